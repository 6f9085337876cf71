/* SPDX-License-Identifier: MIT */
/* The table of model families. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

static const mf_family *const families[] = {
    &mf_family_qwen3_5_moe,    &mf_family_qwen3_next,   &mf_family_qwen3_moe,
    &mf_family_qwen3_vl_moe,   &mf_family_qwen3,        &mf_family_qwen3_vl,
    &mf_family_qwen2_moe,      &mf_family_qwen2,        &mf_family_gpt_oss,
    &mf_family_glm4_moe,       &mf_family_glm4v_moe,    &mf_family_minimax_m2,
    &mf_family_deepseek_v3,    &mf_family_deepseek_v32, &mf_family_glm_moe_dsa,
    &mf_family_kimi_k2,        &mf_family_deepseek_v2,  &mf_family_ernie4_5_moe,
    &mf_family_hunyuan_v1_moe, &mf_family_mixtral,      &mf_family_mistral,
    &mf_family_mistral3,       &mf_family_llama,        &mf_family_llama4,
    &mf_family_kimi_linear,    &mf_family_deepseek_v4,  &mf_family_kimi_k25,
    &mf_family_glm4_moe_lite,  &mf_family_qwen3_5};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* The same in the same order. */
const char *const *mf_families(void)
{
    static const char *const names[N_FAMILIES + 1] = {
        "qwen3_5_moe", "qwen3_next",  "qwen3_moe",     "qwen3_vl_moe",   "qwen3",
        "qwen3_vl",    "qwen2_moe",   "qwen2",         "gpt_oss",        "glm4_moe",
        "glm4v_moe",   "minimax_m2",  "deepseek_v3",   "deepseek_v32",   "glm_moe_dsa",
        "kimi_k2",     "deepseek_v2", "ernie4_5_moe",  "hunyuan_v1_moe", "mixtral",
        "mistral",     "mistral3",    "llama",         "llama4",         "kimi_linear",
        "deepseek_v4", "kimi_k25",    "glm4_moe_lite", "qwen3_5",        NULL};
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
    char known[768];
    size_t used = 0;
    for (size_t i = 0; i < N_FAMILIES && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                                 families[i]->name);
    return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: model_type %s is not a known family (known: %s)",
                   source->hparam_path, type == NULL ? "(none)" : type, known);
}
