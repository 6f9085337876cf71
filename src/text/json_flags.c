/* SPDX-License-Identifier: MIT */
/* Checked before anything is read: those who read a flag then ask for no more than its value. */
#include "text/json_flags.h"

#include <stdio.h>

#define MAX_WHERE_BYTES 64

mf_status mf_json_flags_check(const char *path, const char *where, yyjson_val *object,
                              mf_error *error)
{
    static const struct {
        const char *name;
        bool takes_null; /* the tokenizers package reads it as absent */
    } flags[] = {{"special", false},     {"single_word", false},
                 {"lstrip", false},      {"rstrip", false},
                 {"normalized", false},  {"use_regex", false},
                 {"invert", false},      {"strip_left", false},
                 {"strip_right", false}, {"individual_digits", false},
                 {"split", true},        {"add_prefix_space", true},
                 {"fuse_unk", true},     {"byte_fallback", true},
                 {"ignore_merges", true}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        yyjson_val *value = yyjson_obj_get(object, flags[i].name);
        if (value != NULL && !yyjson_is_bool(value) &&
            !(flags[i].takes_null && yyjson_is_null(value)))
            return mf_fail(error, MF_ERR_FORMAT, "%s: %s.%s: expected true or false", path, where,
                           flags[i].name);
    }
    return MF_OK;
}

/* A normalizer, a pre_tokenizer or a decoder: one step or a list of them. */
static mf_status check_steps(const mf_json *json, const char *where, const char *list,
                             mf_error *error)
{
    yyjson_val *root = yyjson_obj_get(json->root, where), *steps = yyjson_obj_get(root, list);
    size_t i, n;
    yyjson_val *step;
    if (yyjson_equals_str(yyjson_obj_get(root, "type"), "Sequence") && !yyjson_is_arr(steps))
        return mf_fail(error, MF_ERR_FORMAT, "%s: %s.%s: expected an array", json->path, where,
                       list);
    MF_TRY(mf_json_flags_check(json->path, where, root, error));
    yyjson_arr_foreach(steps, i, n, step)
    {
        MF_TRY(mf_json_flags_check(json->path, where, step, error));
    }
    return MF_OK;
}

mf_status mf_json_flags_check_added(const char *path, const char *id, yyjson_val *object,
                                    mf_error *error)
{
    char where[MAX_WHERE_BYTES];
    snprintf(where, sizeof where, "added_tokens_decoder.%.32s", id);
    return mf_json_flags_check(path, where, object, error);
}

mf_status mf_json_flags_check_all(const mf_json *json, mf_error *error)
{
    char where[MAX_WHERE_BYTES];
    size_t i, n;
    yyjson_val *token;
    MF_TRY(check_steps(json, "normalizer", "normalizers", error));
    MF_TRY(check_steps(json, "pre_tokenizer", "pretokenizers", error));
    MF_TRY(check_steps(json, "decoder", "decoders", error));
    MF_TRY(mf_json_flags_check(json->path, "model", yyjson_obj_get(json->root, "model"), error));
    yyjson_arr_foreach(yyjson_obj_get(json->root, "added_tokens"), i, n, token)
    {
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        MF_TRY(mf_json_flags_check(json->path, where, token, error));
    }
    return MF_OK;
}
