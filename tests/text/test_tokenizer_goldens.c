/* SPDX-License-Identifier: MIT */
/* The same ids and the same text as Hugging Face tokenizers and tiktoken, for every golden
 * tokenizer and text. */
#include "gguf_writer.h"
#include "text_data.h"

#include "format/json.h"

#define MAX_IDS ((size_t)1 << 16)

static const char *const names[] = {"qwen3",  "qwen35",   "gpt2",        "several",
                                    "merged", "deepseek", "deepseek_v2", "kimi"};

static void report(const char *name, uint32_t index, int special, const unsigned char *text,
                   size_t n_bytes, const int32_t *got, size_t n_got, const int32_t *want,
                   size_t n_want)
{
    fprintf(stderr, "%s: text %u, special %d:", name, index, special);
    for (size_t i = 0; i < n_bytes && i < 80; i++)
        fprintf(stderr, text[i] >= 0x20 && text[i] < 0x7F ? "%c" : "\\x%02x", text[i]);
    fprintf(stderr, "\n  got %zu:", n_got);
    for (size_t i = 0; i < n_got && i < 24; i++)
        fprintf(stderr, " %d", got[i]);
    fprintf(stderr, "\n  want %zu:", n_want);
    for (size_t i = 0; i < n_want && i < 24; i++)
        fprintf(stderr, " %d", want[i]);
    fputc('\n', stderr);
}

/* Tokens that GGUF cannot say all of: whether they stand alone, take blanks with them, or are
 * looked for in normalised text. Where one is met texts are not compared. */
static bool is_left_out[MAX_IDS];

static bool has_left_out(const int32_t *ids, size_t n)
{
    bool has = false;
    for (size_t i = 0; i < n && !has; i++)
        has = is_left_out[ids[i]];
    return has;
}

static void check_text(const mf_tokenizer *t, const char *name, uint32_t index, int special,
                       const unsigned char *text, size_t n_bytes, const int32_t *want,
                       size_t n_want)
{
    static int32_t got[MAX_IDS];
    size_t n_got = 0;
    mf_error error = {0};
    mf_status status =
        mf_tokenizer_encode(t, (const char *)text, n_bytes, special, got, MAX_IDS, &n_got, &error);
    bool same = status == MF_OK && n_got == n_want && memcmp(got, want, n_want * sizeof *got) == 0;
    if (!same && (has_left_out(want, n_want) || has_left_out(got, n_got)))
        return;
    if (!CHECK_MSG(same, "%s: text %u: ids differ %s", name, index, error.message))
        report(name, index, special, text, n_bytes, got, n_got < MAX_IDS ? n_got : MAX_IDS, want,
               n_want);
}

static void check_ids(const mf_tokenizer *t, const char *name)
{
    static int32_t want[MAX_IDS];
    char file[256];
    snprintf(file, sizeof file, "%s/ids.bin", name);
    text_file ids = text_file_read(file), texts = text_file_read("texts.bin");
    uint32_t n_texts = text_file_u32(&texts);
    for (uint32_t i = 0; i < n_texts; i++) {
        uint32_t n_bytes = text_file_u32(&texts);
        const unsigned char *text = text_file_bytes(&texts, n_bytes);
        size_t n = text_file_leb128(&ids);
        text_file_ids(&ids, n, want, MAX_IDS);
        check_text(t, name, i, 1, text, n_bytes, want, n);
        size_t n_other = text_file_leb128(&ids);
        if (n_other != 0) { /* 0: the same without special tokens */
            n = n_other - 1;
            text_file_ids(&ids, n, want, MAX_IDS);
        }
        check_text(t, name, i, 0, text, n_bytes, want, n);
    }
    CHECK(texts.at == texts.n_bytes && ids.at == ids.n_bytes);
    text_file_free(&texts);
    text_file_free(&ids);
}

/* Decodes a sequence a token at a time; what comes out must be whole characters at every step. */
static void check_sequence(const mf_tokenizer *t, const char *name, text_file *file)
{
    uint32_t n_tokens = text_file_leb128(file);
    mf_decoder decoder = {0};
    char got[8192];
    size_t n_got = 0, n;
    for (uint32_t i = 0; i < n_tokens; i++) {
        int32_t token = (int32_t)text_file_leb128(file);
        REQUIRE(mf_tokenizer_decode(t, &decoder, token, got + n_got, sizeof got - n_got, &n) ==
                MF_OK);
        CHECK(n == 0 || (got[n_got] & 0xC0) != 0x80);
        n_got += n;
    }
    REQUIRE(mf_tokenizer_decode(t, &decoder, -1, got + n_got, sizeof got - n_got, &n) == MF_OK);
    n_got += n;
    CHECK(decoder.n_pending == 0);
    uint32_t n_want = text_file_leb128(file);
    const unsigned char *want = text_file_bytes(file, n_want);
    CHECK_MSG(n_got == n_want && memcmp(got, want, n_want) == 0,
              "%s: decoded text differs at %zu: got %.*s, want %.*s", name, file->at, (int)n_got,
              got, (int)n_want, want);
}

static void check_decoding(const mf_tokenizer *t, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/decode.bin", name);
    text_file file = text_file_read(path);
    while (file.at < file.n_bytes)
        check_sequence(t, name, &file);
    text_file_free(&file);
}

static void check_long_text(const mf_tokenizer *t, yyjson_val *item, size_t index)
{
    static char text[1u << 20];
    static int32_t ids[1u << 20];
    size_t n_ids = 0;
    const size_t n_bytes = text_of_parts(yyjson_obj_get(item, "parts"), text, sizeof text);
    for (int plain = 0; plain < 2; plain++) {
        char got[17];
        const char *want =
            yyjson_get_str(yyjson_arr_get(yyjson_obj_get(item, "fnv"), (size_t)plain));
        size_t n_want =
            (size_t)yyjson_get_uint(yyjson_arr_get(yyjson_obj_get(item, "n"), (size_t)plain));
        REQUIRE(mf_tokenizer_encode(t, text, n_bytes, !plain, ids, 1u << 20, &n_ids, NULL) ==
                MF_OK);
        snprintf(got, sizeof got, "%016llx", (unsigned long long)text_hash_ids(ids, n_ids));
        CHECK_MSG(n_ids == n_want && strcmp(got, want) == 0,
                  "kimi: long text %zu, plain %d: %zu ids, want %zu; hash %s, want %s", index,
                  plain, n_ids, n_want, got, want);
    }
}

/* Texts that tokenization_kimi.py cuts before it encodes them. */
static void check_long_texts(void)
{
    mf_json json = {0};
    mf_allocator a = mf_allocator_default();
    mf_tokenizer *t = text_tokenizer_open("kimi");
    REQUIRE(mf_json_read(&a, text_data_path("kimi/long.json"), 1u << 22, &json, NULL) == MF_OK);
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(json.root, i, n, item)
    {
        check_long_text(t, item, i);
    }
    CHECK(n >= 10);
    mf_json_free(&json);
    mf_tokenizer_free(&t);
}

static void leave_out(const char *name)
{
    char file[256];
    mf_json json = {0};
    const mf_allocator a = mf_allocator_default();
    static const char *const flags[] = {"lstrip", "rstrip", "single_word", "normalized"};
    size_t i, n;
    yyjson_val *token;
    snprintf(file, sizeof file, "%s/tokenizer.json", name);
    REQUIRE(mf_json_read(&a, text_data_path(file), 1u << 24, &json, NULL) == MF_OK);
    yyjson_arr_foreach(yyjson_obj_get(json.root, "added_tokens"), i, n, token)
    {
        uint64_t id = yyjson_get_uint(yyjson_obj_get(token, "id"));
        for (size_t j = 0; j < 4; j++)
            is_left_out[id] |= yyjson_get_bool(yyjson_obj_get(token, flags[j]));
    }
    mf_json_free(&json);
}

/* The same vocabularies in GGUF, with a pre-tokenizer by name. */
static void check_gguf(void)
{
    static const struct {
        const char *name, *pre;
    } cases[] = {{"qwen3", "qwen2"},
                 {"qwen35", "qwen35"},
                 {"gpt2", "gpt-2"},
                 {"deepseek", "deepseek-v3"},
                 {"deepseek_v2", "deepseek-coder"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_head head;
        mf_error error = {0};
        gguf_head_begin(&head, "gpt2");
        gguf_head_put_string(&head, "tokenizer.ggml.pre", cases[i].pre);
        gguf_head_put_tokenizer(&head, cases[i].name);
        mf_tokenizer *t = gguf_head_take(&head, &error);
        REQUIRE(CHECK_MSG(t != NULL, "%s: %s", cases[i].name, error.message));
        leave_out(cases[i].name);
        check_ids(t, cases[i].name);
        check_decoding(t, cases[i].name);
        memset(is_left_out, 0, sizeof is_left_out);
        mf_tokenizer_free(&t);
    }
}

/* A SentencePiece model, against the package of that name. */
static void check_spm(void)
{
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_tokenizer_open(text_data_path("spm/model.gguf"), NULL, &t, &error), &error);
    check_ids(t, "spm");
    mf_tokenizer_free(&t);
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mf_tokenizer *t = text_tokenizer_open(names[i]);
        check_ids(t, names[i]);
        check_decoding(t, names[i]);
        mf_tokenizer_free(&t);
    }
    check_gguf();
    check_spm();
    check_long_texts();
    return test_result();
}
