/* SPDX-License-Identifier: MIT */
/* The tokens that end an answer: every one that any of the checkpoint's files names. */
#include "text/tokenizer.h"

#include <string.h>

#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define MAX_PATH_BYTES 4096

static mf_status add_end_token(mf_tokenizer *t, int32_t id, const char *file, mf_error *error)
{
    for (size_t i = 0; i < t->n_end_tokens; i++)
        if (t->end_tokens[i] == id)
            return MF_OK;
    if (t->n_end_tokens == MF_MAX_END_TOKENS)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: more than %d end tokens", file,
                       MF_MAX_END_TOKENS);
    t->end_tokens[t->n_end_tokens++] = id;
    return MF_OK;
}

/* eos_token_id: absent, null, a number, or an array of numbers. */
static mf_status add_ids(mf_tokenizer *t, yyjson_val *object, const char *file, mf_error *error)
{
    yyjson_val *value = yyjson_obj_get(object, "eos_token_id");
    if (value == NULL || yyjson_is_null(value))
        return MF_OK;
    size_t n = yyjson_is_arr(value) ? yyjson_arr_size(value) : 1;
    yyjson_val *item = yyjson_is_arr(value) ? yyjson_arr_get_first(value) : value;
    for (size_t i = 0; i < n; i++, item = unsafe_yyjson_get_next(item)) {
        if (!yyjson_is_uint(item) || yyjson_get_uint(item) > INT32_MAX)
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: eos_token_id: expected a token id or an array of them", file);
        MF_TRY(add_end_token(t, (int32_t)yyjson_get_uint(item), file, error));
    }
    return MF_OK;
}

/* eos_token: a string, or an object with its content. A name that no token has ends nothing. */
static mf_status add_named(mf_tokenizer *t, yyjson_val *root, const char *file, mf_error *error)
{
    yyjson_val *value = yyjson_obj_get(root, "eos_token");
    if (yyjson_is_obj(value))
        value = yyjson_obj_get(value, "content");
    if (!yyjson_is_str(value))
        return MF_OK;
    const char *name = yyjson_get_str(value);
    size_t n = yyjson_get_len(value);
    const mf_added_token *token = mf_added_tokens_find(&t->added, name, n);
    if (token != NULL)
        return add_end_token(t, (int32_t)token->id, file, error);
    mf_buffer scratch;
    mf_status status;
    mf_buffer_init(&scratch, &t->allocator);
    uint32_t id = mf_bpe_find_key(&t->bpe, name, n, &scratch, error, &status);
    mf_buffer_free(&scratch);
    if (status != MF_OK || id == MF_BPE_NONE)
        return status;
    return add_end_token(t, (int32_t)id, file, error);
}

static mf_status load_file(mf_tokenizer *t, const char *path, const char *name, mf_error *error)
{
    char file[MAX_PATH_BYTES];
    mf_json json = {0};
    MF_TRY(mf_path_join(file, sizeof file, path, name, error));
    if (!mf_file_exists(file))
        return MF_OK;
    MF_TRY(mf_json_read(&t->allocator, file, MAX_CONFIG_BYTES, &json, error));
    mf_status status = add_ids(t, json.root, file, error);
    if (status == MF_OK)
        status = add_ids(t, yyjson_obj_get(json.root, "text_config"), file, error);
    if (status == MF_OK)
        status = add_named(t, json.root, file, error);
    mf_json_free(&json);
    return status;
}

mf_status mf_end_tokens_load(mf_tokenizer *t, const char *path, mf_error *error)
{
    MF_TRY(load_file(t, path, "config.json", error));
    MF_TRY(load_file(t, path, "generation_config.json", error));
    return load_file(t, path, "tokenizer_config.json", error);
}
