/* SPDX-License-Identifier: MIT */
/* The table of model families. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

enum { N_FAMILIES = 5 };
static const mf_family *const families[N_FAMILIES] = {&mf_family_qwen3_5_moe, &mf_family_qwen3_next,
                                                      &mf_family_deepseek_v3, &mf_family_kimi_k2,
                                                      &mf_family_deepseek_v2};

const char *const *mf_families(void)
{
    static const char *const names[N_FAMILIES + 1] = {"qwen3_5_moe", "qwen3_next",  "deepseek_v3",
                                                      "kimi_k2",     "deepseek_v2", NULL};
    return names;
}

static bool is_named(const mf_family *family, const char *type)
{
    return strcmp(type, family->name) == 0 ||
           (family->text_name != NULL && strcmp(type, family->text_name) == 0);
}

mf_status mf_family_find(const mf_source *source, const mf_family **out, mf_error *error)
{
    const char *type = NULL;
    MF_TRY(mf_hparam_string(source, "model_type", &type, error));
    for (size_t i = 0; type != NULL && i < N_FAMILIES; i++) {
        if (is_named(families[i], type)) {
            *out = families[i];
            return MF_OK;
        }
    }
    char known[256];
    size_t used = 0;
    for (size_t i = 0; i < N_FAMILIES && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                                 families[i]->name);
    return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: model_type %s is not a known family (known: %s)",
                   source->hparam_path, type == NULL ? "(none)" : type, known);
}
