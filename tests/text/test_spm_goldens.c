/* SPDX-License-Identifier: MIT */
/* SentencePiece's vocabularies in the forms of Hugging Face's directories, and Hunyuan's: the same
 * ids, text and pieces of a stream as the tokenizers, sentencepiece and tiktoken packages have. */
#include "text_data.h"

#include "text/tokenizer.h"

#define MAX_IDS ((size_t)1 << 16)

/* tests/text/data/FOLDER/NAME */
static const char *form_path(const char *folder, const char *name, const char *end)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
    return path;
}

/* A form with the vocabulary that it names between two @ put in. */
static mf_tokenizer *open_form(const char *folder, const char *name)
{
    text_file form = text_file_read(form_path(folder, name, ".json"));
    char *at = strchr((char *)form.data, '@'), vocabulary[64];
    REQUIRE(at != NULL && strchr(at + 1, '@') != NULL);
    char *end = strchr(at + 1, '@');
    snprintf(vocabulary, sizeof vocabulary, "%.*s", (int)(end - at - 1), at + 1);
    text_file part = text_file_read(form_path(folder, vocabulary, ".txt"));
    char *text = malloc(form.n_bytes + part.n_bytes + 1);
    REQUIRE(text != NULL);
    const int n =
        snprintf(text, form.n_bytes + part.n_bytes + 1, "%.*s%s%s", (int)(at - (char *)form.data),
                 (char *)form.data, (char *)part.data, end + 1);
    mf_allocator a = mf_allocator_default();
    mf_json json = {0};
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_json_parse(&a, name, text, (size_t)n, &json, &error), &error);
    REQUIRE_OK(mf_text_open_json(&json, &a, &t, &error), &error);
    mf_json_free(&json);
    free(text);
    text_file_free(&form);
    text_file_free(&part);
    return t;
}

static void print_ids(const char *what, const int32_t *ids, size_t n)
{
    fprintf(stderr, "  %s %zu:", what, n);
    for (size_t i = 0; i < n && i < 30; i++)
        fprintf(stderr, " %d", ids[i]);
    fputc('\n', stderr);
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
    const bool same =
        status == MF_OK && n_got == n_want && memcmp(got, want, n_want * sizeof *got) == 0;
    if (CHECK_MSG(same, "%s: text %u, special %d: \"%.*s\": ids differ %s", name, index, special,
                  (int)(n_bytes < 80 ? n_bytes : 80), (const char *)text, error.message))
        return;
    print_ids("got", got, n_got < MAX_IDS ? n_got : 0);
    print_ids("want", want, n_want);
}

/* folder: of the texts. */
static void check_ids(const mf_tokenizer *t, const char *folder, const char *name, const char *file)
{
    static int32_t want[MAX_IDS];
    text_file ids = text_file_read(file);
    text_file texts = text_file_read(form_path(folder, "texts", ".bin"));
    const uint32_t n_texts = text_file_u32(&texts);
    for (uint32_t i = 0; i < n_texts; i++) {
        const uint32_t n_bytes = text_file_u32(&texts);
        const unsigned char *text = text_file_bytes(&texts, n_bytes);
        size_t n = text_file_leb128(&ids);
        text_file_ids(&ids, n, want, MAX_IDS);
        check_text(t, name, i, 1, text, n_bytes, want, n);
        const size_t n_other = text_file_leb128(&ids);
        if (n_other != 0) {
            n = n_other - 1;
            text_file_ids(&ids, n, want, MAX_IDS);
        }
        if (n_other == 1 && n_bytes != 0) /* the package took special tokens nevertheless */
            continue;
        check_text(t, name, i, 0, text, n_bytes, want, n);
    }
    CHECK(texts.at == texts.n_bytes && ids.at == ids.n_bytes);
    text_file_free(&texts);
    text_file_free(&ids);
}

typedef struct decoded {
    char text[1u << 16];
    size_t n_bytes;
    mf_decoder decoder;
} decoded;

/* What the token adds. */
static size_t add_token(const mf_tokenizer *t, decoded *d, int32_t token)
{
    size_t n;
    REQUIRE(mf_tokenizer_decode(t, &d->decoder, token, d->text + d->n_bytes,
                                sizeof d->text - d->n_bytes, &n) == MF_OK);
    d->n_bytes += n;
    return n;
}

static void check_decoded(const char *name, const decoded *d, text_file *file)
{
    const uint32_t n_want = text_file_leb128(file);
    const unsigned char *want = text_file_bytes(file, n_want);
    CHECK(d->decoder.n_pending == 0);
    CHECK_MSG(d->n_bytes == n_want && memcmp(d->text, want, n_want) == 0,
              "%s: at %zu: decoded \"%.*s\", want \"%.*s\"", name, file->at, (int)d->n_bytes,
              d->text, (int)n_want, (const char *)want);
}

static void check_decoding(const mf_tokenizer *t, const char *name, const char *path)
{
    static decoded d;
    text_file file = text_file_read(path);
    size_t n_sequences = 0;
    for (; file.at < file.n_bytes; n_sequences++) {
        d.n_bytes = 0;
        d.decoder = (mf_decoder){0};
        for (uint32_t n = text_file_leb128(&file); n > 0; n--)
            (void)add_token(t, &d, (int32_t)text_file_leb128(&file));
        (void)add_token(t, &d, -1);
        check_decoded(name, &d, &file);
    }
    CHECK(n_sequences > 40);
    text_file_free(&file);
}

/* Each token adds what the package's stream adds with it. */
static void check_stream(const mf_tokenizer *t, const char *folder, const char *name)
{
    static decoded d;
    text_file file = text_file_read(form_path(folder, name, ".stream"));
    size_t n_sequences = 0;
    for (; file.at < file.n_bytes; n_sequences++) {
        d.n_bytes = 0;
        d.decoder = (mf_decoder){0};
        for (uint32_t n = text_file_leb128(&file); n > 0; n--) {
            const int32_t token = (int32_t)text_file_leb128(&file);
            const size_t want = text_file_leb128(&file), got = add_token(t, &d, token);
            CHECK_MSG(got == want, "%s: stream at %zu: token %d adds %zu bytes, want %zu", name,
                      file.at, token, got, want);
        }
        (void)add_token(t, &d, -1);
        check_decoded(name, &d, &file);
    }
    CHECK(n_sequences > 20);
    text_file_free(&file);
}

static void check_long_text(yyjson_val *item, size_t index)
{
    static char text[1u << 20];
    static int32_t ids[1u << 20];
    char got[17];
    size_t n_ids = 0;
    mf_error error = {0};
    mf_tokenizer *t = open_form("spm_json", yyjson_get_str(yyjson_obj_get(item, "form")));
    const size_t n_bytes = text_of_parts(yyjson_obj_get(item, "parts"), text, sizeof text);
    REQUIRE_OK(mf_tokenizer_encode(t, text, n_bytes, 1, ids, 1u << 20, &n_ids, &error), &error);
    snprintf(got, sizeof got, "%016llx", (unsigned long long)text_hash_ids(ids, n_ids));
    CHECK_MSG(n_ids == yyjson_get_uint(yyjson_obj_get(item, "n")) &&
                  yyjson_equals_str(yyjson_obj_get(item, "fnv"), got),
              "long text %zu: %zu ids, hash %s", index, n_ids, got);
    mf_tokenizer_free(&t);
}

static void check_long_texts(void)
{
    mf_json json = {0};
    const mf_allocator a = mf_allocator_default();
    size_t i, n;
    yyjson_val *item;
    REQUIRE(mf_json_read(&a, text_data_path("spm_json/long.json"), 1u << 20, &json, NULL) == MF_OK);
    yyjson_arr_foreach(json.root, i, n, item)
    {
        check_long_text(item, i);
    }
    CHECK(n >= 40);
    mf_json_free(&json);
}

static void check_form(const char *folder, const char *name)
{
    mf_tokenizer *t = open_form(folder, name);
    check_ids(t, folder, name, form_path(folder, name, ".ids"));
    check_decoding(t, name, form_path(folder, name, ".decode"));
    check_stream(t, folder, name);
    mf_tokenizer_free(&t);
}

/* texts: the folder of those. */
static void check_folder(const char *texts, const char *name)
{
    char path[128];
    mf_tokenizer *t = text_tokenizer_open(name);
    snprintf(path, sizeof path, "%s/ids.bin", name);
    check_ids(t, texts, name, path);
    snprintf(path, sizeof path, "%s/decode.bin", name);
    check_decoding(t, name, path);
    mf_tokenizer_free(&t);
}

/* The head of a GGUF file that has the model of unigram/plain. */
static void check_gguf(void)
{
    mf_tokenizer *t = text_tokenizer_open("unigram/gguf/model.gguf");
    check_ids(t, "unigram", "gguf", "unigram/plain/ids.bin");
    check_decoding(t, "gguf", "unigram/plain/decode.bin");
    mf_tokenizer_free(&t);
}

/* Pieces with blanks of their own beside those that marks stand for; they are not in the goldens of
 * texts that GGUF is held against: there such a piece is found in the text as it is. */
static void check_blanks(void)
{
    static const char *const forms[] = {"llama", "gemma", "joined", "metaspace",
                                        "apart", "none",  "t5",     "fallback"};
    static const char *const folders[] = {"spm_blanks/bytes",    "spm_blanks/never",
                                          "spm_blanks/stripped", "spm_blanks/either",
                                          "spm_blanks/unigram",  "spm_blanks/unigram_kept"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        check_form("spm_blanks", forms[i]);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        check_folder("spm_blanks", folders[i]);
    mf_tokenizer *t = text_tokenizer_open("spm_blanks/gguf/model.gguf");
    check_decoding(t, "gguf", "spm_blanks/gguf/decode.bin");
    mf_tokenizer_free(&t);
}

int main(int argc, char **argv)
{
    static const char *const forms[] = {"llama",  "llama_added", "mistral", "gemma",
                                        "ernie",  "always",      "never",   "old",
                                        "digits", "regex",       "holes",   "holes_apart"};
    static const char *const unigram_forms[] = {"t5", "old", "fallback", "stripped"};
    static const char *const folders[] = {"spm_model/llama", "spm_model/defined",
                                          "spm_model/mapped", "spm_model/extra", "hunyuan"};
    static const char *const unigram_folders[] = {"unigram/plain", "unigram/bytes",
                                                  "unigram/symbols", "unigram/pairs"};
    text_data_set_dir(argc, argv);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        check_form("spm_json", forms[i]);
    for (size_t i = 0; i < sizeof unigram_forms / sizeof *unigram_forms; i++)
        check_form("unigram", unigram_forms[i]);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        check_folder("spm_json", folders[i]);
    for (size_t i = 0; i < sizeof unigram_folders / sizeof *unigram_folders; i++)
        check_folder("unigram", unigram_folders[i]);
    check_gguf();
    check_blanks();
    check_long_texts();
    return test_result();
}
