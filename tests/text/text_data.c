/* SPDX-License-Identifier: MIT */
/* Reading golden files. */
#include "text_data.h"

static const char *data_dir = "tests/text/data";

void text_data_set_dir(int argc, char **argv)
{
    if (argc > 1)
        data_dir = argv[1];
}

const char *text_data_path(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", data_dir, name);
    return path;
}

text_file text_file_read(const char *name)
{
    FILE *f = fopen(text_data_path(name), "rb");
    text_file file = {0};
    REQUIRE(f != NULL);
    fseek(f, 0, SEEK_END);
    file.n_bytes = (size_t)ftell(f);
    rewind(f);
    file.data = malloc(file.n_bytes + 1);
    REQUIRE(file.data != NULL && fread(file.data, 1, file.n_bytes, f) == file.n_bytes);
    file.data[file.n_bytes] = '\0';
    fclose(f);
    return file;
}

void text_file_free(text_file *file)
{
    free(file->data);
    *file = (text_file){0};
}

const unsigned char *text_file_bytes(text_file *file, size_t n_bytes)
{
    REQUIRE(n_bytes <= file->n_bytes - file->at);
    file->at += n_bytes;
    return file->data + file->at - n_bytes;
}

uint32_t text_file_u32(text_file *file)
{
    const unsigned char *b = text_file_bytes(file, 4);
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

uint32_t text_file_leb128(text_file *file)
{
    uint32_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        unsigned char b = *text_file_bytes(file, 1);
        value |= (uint32_t)(b & 0x7F) << shift;
        if (b < 0x80)
            return value;
    }
}

void text_file_ids(text_file *file, size_t n, int32_t *ids, size_t capacity)
{
    REQUIRE(n <= capacity);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)text_file_leb128(file);
}

uint64_t text_hash_ids(const int32_t *ids, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n * 4; i++)
        hash = (hash ^ ((uint32_t)ids[i / 4] >> (8 * (i % 4)) & 0xFF)) * 0x100000001b3u;
    return hash;
}

size_t text_of_parts(yyjson_val *parts, char *text, size_t capacity)
{
    size_t i, n, n_bytes = 0;
    yyjson_val *part;
    yyjson_arr_foreach(parts, i, n, part)
    {
        yyjson_val *unit = yyjson_arr_get(part, 0);
        size_t n_times = (size_t)yyjson_get_uint(yyjson_arr_get(part, 1));
        REQUIRE(n_times * yyjson_get_len(unit) <= capacity - n_bytes);
        for (; n_times > 0; n_times--, n_bytes += yyjson_get_len(unit))
            memcpy(text + n_bytes, yyjson_get_str(unit), yyjson_get_len(unit));
    }
    return n_bytes;
}

mf_tokenizer *text_tokenizer_open(const char *name)
{
    mf_tokenizer *tokenizer = NULL;
    mf_error error = {0};
    mf_status status = mf_tokenizer_open(text_data_path(name), NULL, &tokenizer, &error);
    CHECK_MSG(status == MF_OK, "%s: %s", name, error.message);
    REQUIRE(tokenizer != NULL);
    return tokenizer;
}

void text_encode_long_words(const char *name)
{
    static const char *const units[] = {"a", " ", "\n", "!", "\xE4\xB8\xAD", "\xCC\x81\xCC\xA3"};
    mf_tokenizer *t = text_tokenizer_open(name);
    size_t n_bytes = 1u << 20, n;
    char *text = malloc(n_bytes);
    REQUIRE(text != NULL);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t n_unit = strlen(units[u]);
        for (size_t i = 0; i < n_bytes; i++)
            text[i] = units[u][i % n_unit];
        REQUIRE(mf_tokenizer_encode(t, text, n_bytes, 0, NULL, 0, &n, NULL) == MF_OK && n > 0);
    }
    free(text);
    mf_tokenizer_free(&t);
}
