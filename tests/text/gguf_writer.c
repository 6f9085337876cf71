/* SPDX-License-Identifier: MIT */
#include "gguf_writer.h"

#include "text_data.h"

static void put_bytes(gguf_head *h, const void *bytes, size_t n)
{
    if (h->n + n > h->capacity) {
        h->capacity = 2 * (h->n + n);
        h->bytes = realloc(h->bytes, h->capacity);
        REQUIRE(h->bytes != NULL);
    }
    memcpy(h->bytes + h->n, bytes, n);
    h->n += n;
}

static void put(gguf_head *h, uint64_t value, size_t n)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    put_bytes(h, bytes, n);
}

static void put_text(gguf_head *h, const char *text, size_t n)
{
    put(h, n, 8);
    put_bytes(h, text, n);
}

static void put_key(gguf_head *h, const char *key, mf_gguf_type type)
{
    put_text(h, key, strlen(key));
    put(h, type, 4);
    h->n_values++;
}

static void put_array(gguf_head *h, const char *key, mf_gguf_type type, uint64_t n)
{
    put_key(h, key, MF_GGUF_ARRAY);
    put(h, type, 4);
    put(h, n, 8);
}

void gguf_head_begin(gguf_head *h, const char *model)
{
    *h = (gguf_head){.n = 0};
    put_bytes(h, "GGUF", 4);
    put(h, 3, 4);
    put(h, 0, 8);
    put(h, 0, 8); /* keys */
    gguf_head_put_string(h, "tokenizer.ggml.model", model);
}

void gguf_head_put_string(gguf_head *h, const char *key, const char *text)
{
    put_key(h, key, MF_GGUF_STRING);
    put_text(h, text, strlen(text));
}

void gguf_head_put_number(gguf_head *h, const char *key, uint32_t number)
{
    put_key(h, key, MF_GGUF_U32);
    put(h, number, 4);
}

void gguf_head_put_bool(gguf_head *h, const char *key, bool value)
{
    put_key(h, key, MF_GGUF_BOOL);
    put(h, value, 1);
}

void gguf_head_put_tokens(gguf_head *h, const char *const texts[3], const uint32_t types[3],
                          const float *scores)
{
    put_array(h, "tokenizer.ggml.tokens", MF_GGUF_STRING, 3);
    for (size_t i = 0; i < 3; i++)
        put_text(h, texts[i], strlen(texts[i]));
    put_array(h, "tokenizer.ggml.token_type", MF_GGUF_I32, 3);
    for (size_t i = 0; i < 3; i++)
        put(h, types[i], 4);
    if (scores == NULL)
        return;
    put_array(h, "tokenizer.ggml.scores", MF_GGUF_F32, 3);
    put_bytes(h, scores, 3 * sizeof *scores); /* little-endian machines alone are supported */
}

enum { MAX_TOKENS = 4096 };

/* Tokens by id, from a vocabulary and from the added ones. */
typedef struct token_list {
    yyjson_val *text[MAX_TOKENS];
    uint32_t type[MAX_TOKENS];
    size_t n;
} token_list;

static void set_token(token_list *list, size_t id, yyjson_val *text, uint32_t type)
{
    REQUIRE(id < MAX_TOKENS);
    list->text[id] = text;
    list->type[id] = type;
    list->n = id >= list->n ? id + 1 : list->n;
}

static void list_tokens(yyjson_val *root, token_list *list)
{
    size_t i, n;
    yyjson_val *key, *value;
    yyjson_obj_foreach(yyjson_obj_get(yyjson_obj_get(root, "model"), "vocab"), i, n, key, value)
    {
        set_token(list, (size_t)yyjson_get_uint(value), key, 1);
    }
    yyjson_arr_foreach(yyjson_obj_get(root, "added_tokens"), i, n, value)
    {
        const bool is_special = yyjson_get_bool(yyjson_obj_get(value, "special"));
        set_token(list, (size_t)yyjson_get_uint(yyjson_obj_get(value, "id")),
                  yyjson_obj_get(value, "content"), is_special ? 3 : 4);
    }
}

static void put_merges(gguf_head *h, yyjson_val *merges)
{
    size_t i, n;
    yyjson_val *merge;
    put_array(h, "tokenizer.ggml.merges", MF_GGUF_STRING, yyjson_arr_size(merges));
    yyjson_arr_foreach(merges, i, n, merge)
    {
        char text[512];
        if (yyjson_is_str(merge))
            snprintf(text, sizeof text, "%s", yyjson_get_str(merge));
        else
            snprintf(text, sizeof text, "%s %s", yyjson_get_str(yyjson_arr_get(merge, 0)),
                     yyjson_get_str(yyjson_arr_get(merge, 1)));
        put_text(h, text, strlen(text));
    }
}

void gguf_head_put_tokenizer(gguf_head *h, const char *name)
{
    static token_list list;
    char path[256];
    mf_json json = {0};
    const mf_allocator a = mf_allocator_default();
    memset(&list, 0, sizeof list);
    snprintf(path, sizeof path, "%s/tokenizer.json", name);
    REQUIRE(mf_json_read(&a, text_data_path(path), 1u << 24, &json, NULL) == MF_OK);
    list_tokens(json.root, &list);
    put_array(h, "tokenizer.ggml.tokens", MF_GGUF_STRING, list.n);
    for (size_t i = 0; i < list.n; i++)
        put_text(h, list.text[i] != NULL ? yyjson_get_str(list.text[i]) : "[PAD]",
                 list.text[i] != NULL ? yyjson_get_len(list.text[i]) : 5);
    put_array(h, "tokenizer.ggml.token_type", MF_GGUF_I32, list.n);
    for (size_t i = 0; i < list.n; i++)
        put(h, list.text[i] != NULL ? list.type[i] : 5, 4);
    put_merges(h, yyjson_obj_get(yyjson_obj_get(json.root, "model"), "merges"));
    mf_json_free(&json);
}

mf_tokenizer *gguf_head_take(gguf_head *h, mf_error *error)
{
    const mf_allocator a = mf_allocator_default();
    mf_gguf gguf = {0};
    mf_tokenizer *tokenizer = NULL;
    for (size_t i = 0; i < 8; i++)
        h->bytes[16 + i] = (unsigned char)(h->n_values >> (8 * i));
    if (mf_gguf_parse(&a, "FILE", h->bytes, h->n, h->n, &gguf, error) == MF_OK)
        (void)!mf_text_of_gguf(&gguf, &a, &tokenizer, error);
    mf_gguf_free(&gguf);
    free(h->bytes);
    *h = (gguf_head){.n = 0};
    return tokenizer;
}
