/* SPDX-License-Identifier: MIT */
/* The tokens that end an answer, which are all that any of the checkpoint's files names; and the
 * one that a text starts with. */
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

/* Added tokens that are looked for in normalised text are known by what they are there. */
static mf_status find_normalized(const mf_tokenizer *t, const char *name, size_t n, uint32_t *id,
                                 mf_error *error)
{
    const unsigned char *text = (const unsigned char *)name;
    mf_normal_scratch scratch;
    mf_normal_scratch_init(&scratch, &t->allocator);
    mf_status status = mf_normalise(&t->normalizer, &scratch, &text, &n, error);
    const mf_added_token *token =
        status == MF_OK ? mf_added_tokens_find(&t->added, (const char *)text, n) : NULL;
    if (token != NULL)
        *id = token->id;
    mf_normal_scratch_free(&scratch);
    return status;
}

/* The id of the token that a field names: a string, or an object with its content. MF_BPE_NONE if
 * the field is absent, null, or names no token. */
static mf_status find_named(const mf_tokenizer *t, const mf_json *json, const char *field,
                            uint32_t *id, mf_error *error)
{
    yyjson_val *value = yyjson_obj_get(json->root, field);
    *id = MF_BPE_NONE;
    if (value == NULL || yyjson_is_null(value))
        return MF_OK;
    if (yyjson_is_obj(value))
        value = yyjson_obj_get(value, "content");
    if (!yyjson_is_str(value))
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: %s: expected a string, or an object whose content is one", json->path,
                       field);
    const char *name = yyjson_get_str(value);
    size_t n = yyjson_get_len(value);
    const mf_added_token *token = mf_added_tokens_find(&t->added, name, n);
    if (token != NULL) {
        *id = token->id;
        return MF_OK;
    }
    mf_buffer scratch;
    mf_status status;
    mf_buffer_init(&scratch, &t->allocator);
    *id = mf_bpe_find_key(&t->bpe, name, n, &scratch, error, &status);
    mf_buffer_free(&scratch);
    return status == MF_OK && *id == MF_BPE_NONE ? find_normalized(t, name, n, id, error) : status;
}

static mf_status add_named(mf_tokenizer *t, const mf_json *json, mf_error *error)
{
    uint32_t id;
    MF_TRY(find_named(t, json, "eos_token", &id, error));
    return id == MF_BPE_NONE ? MF_OK : add_end_token(t, (int32_t)id, json->path, error);
}

/* add_bos_token overrides the post-processor. */
static mf_status set_start(mf_tokenizer *t, const mf_json *json, mf_error *error)
{
    yyjson_val *adds = yyjson_obj_get(json->root, "add_bos_token");
    uint32_t id = MF_BPE_NONE;
    if (adds == NULL || yyjson_is_null(adds))
        return MF_OK;
    if (!yyjson_is_bool(adds))
        return mf_fail(error, MF_ERR_FORMAT, "%s: add_bos_token: expected true or false",
                       json->path);
    if (yyjson_get_bool(adds) && yyjson_obj_get(json->root, "bos_token") == NULL)
        return MF_OK; /* the one that the vocabulary has */
    if (yyjson_get_bool(adds))
        MF_TRY(find_named(t, json, "bos_token", &id, error));
    t->start_token = id == MF_BPE_NONE ? -1 : (int32_t)id;
    return MF_OK;
}

/* The TemplateProcessing step of a post-processor, or NULL. */
static yyjson_val *find_template(yyjson_val *step)
{
    if (yyjson_equals_str(yyjson_obj_get(step, "type"), "TemplateProcessing"))
        return step;
    size_t i, n;
    yyjson_val *inner;
    yyjson_arr_foreach(yyjson_obj_get(step, "processors"), i, n, inner)
    {
        if (yyjson_equals_str(yyjson_obj_get(inner, "type"), "TemplateProcessing"))
            return inner;
    }
    return NULL;
}

void mf_start_token_load(mf_tokenizer *t, const mf_json *json)
{
    yyjson_val *step = find_template(yyjson_obj_get(json->root, "post_processor"));
    yyjson_val *first = yyjson_arr_get_first(yyjson_obj_get(step, "single"));
    yyjson_val *name = yyjson_obj_get(yyjson_obj_get(first, "SpecialToken"), "id");
    yyjson_val *special = yyjson_is_str(name)
                              ? yyjson_obj_getn(yyjson_obj_get(step, "special_tokens"),
                                                yyjson_get_str(name), yyjson_get_len(name))
                              : NULL;
    yyjson_val *id = yyjson_arr_get_first(yyjson_obj_get(special, "ids"));
    if (yyjson_is_uint(id) && yyjson_get_uint(id) < t->bpe.n_ids)
        t->start_token = (int32_t)yyjson_get_uint(id);
}

static mf_status take_file(mf_tokenizer *t, const mf_json *json, mf_error *error)
{
    if (!yyjson_is_obj(json->root))
        return mf_fail(error, MF_ERR_FORMAT, "%s: expected an object", json->path);
    MF_TRY(mf_json_check_names(json, error));
    MF_TRY(add_ids(t, json->root, json->path, error));
    MF_TRY(add_ids(t, yyjson_obj_get(json->root, "text_config"), json->path, error));
    MF_TRY(add_named(t, json, error));
    return set_start(t, json, error);
}

static mf_status load_file(mf_tokenizer *t, const char *path, const char *name, mf_error *error)
{
    char file[MAX_PATH_BYTES];
    mf_json json = {0};
    MF_TRY(mf_path_join(file, sizeof file, path, name, error));
    if (!mf_file_exists(file))
        return MF_OK;
    MF_TRY(mf_json_read(&t->allocator, file, MAX_CONFIG_BYTES, &json, error));
    mf_status status = take_file(t, &json, error);
    mf_json_free(&json);
    return status;
}

mf_status mf_end_tokens_load(mf_tokenizer *t, const char *path, mf_error *error)
{
    MF_TRY(load_file(t, path, "config.json", error));
    MF_TRY(load_file(t, path, "generation_config.json", error));
    MF_TRY(load_file(t, path, "tokenizer_config.json", error));
    return t->n_end_tokens == 0 && t->model_end >= 0
               ? add_end_token(t, t->model_end, "tokenizer.model", error)
               : MF_OK;
}
