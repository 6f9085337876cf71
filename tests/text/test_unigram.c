/* SPDX-License-Identifier: MIT */
/*
 * Unigram models apart from goldens: the tree that tokens are found in, what a tokenizer.json or a
 * GGUF file may not say, runs of unknown characters, failing memory, long words.
 */
#include "failing_alloc.h"
#include "gguf_writer.h"
#include "text_data.h"

#include "text/prefix_tree.h"
#include "text/tokenizer.h"

#define MARK "\xe2\x96\x81"
#define METASPACE "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"}"
#define FALLBACK                                                                                \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Metaspace\"," \
    "\"replacement\":\"" MARK "\"}]}"
/* A tokenizer.json with these parts. */
#define FILE_OF(normalizer, decoder, model)                                               \
    "{\"normalizer\":" normalizer ",\"pre_tokenizer\":" METASPACE ",\"decoder\":" decoder \
    ",\"model\":{\"type\":\"Unigram\"," model "}}"
#define VOCAB                                                                             \
    "\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"" MARK "\",-2],[\"a\",-1],[\"b\",-1.5],[\"" \
    "ab\",-2.5],[\"" MARK "a\",-2.25]"

/* ---------------------------------------------------------------------------------------- tree --
 */

static mf_prefix prefix_of(const char *text, uint32_t value)
{
    return (mf_prefix){(const unsigned char *)text, (uint32_t)strlen(text), value};
}

static void check_tree(void)
{
    const mf_allocator a = mf_allocator_default();
    mf_prefix entries[] = {prefix_of("abc", 3), prefix_of("\xff", 5), prefix_of("a", 1),
                           prefix_of("b", 2), prefix_of("abc", 4)};
    static const struct {
        const char *text;
        size_t longest;
        uint32_t value; /* of the whole */
    } cases[] = {{"a", 1, 1},
                 {"ab", 1, MF_PREFIX_NONE},
                 {"abc", 3, 4},
                 {"b", 1, 2},
                 {"abcd", 3, MF_PREFIX_NONE},
                 {"c", 0, MF_PREFIX_NONE},
                 {"\xff", 1, 5},
                 {"", 0, MF_PREFIX_NONE},
                 {"ba", 1, MF_PREFIX_NONE},
                 {"\xff\xff", 1, MF_PREFIX_NONE}};
    mf_prefix_tree tree = {0};
    CHECK_U64(mf_prefix_tree_longest(&tree, (const unsigned char *)"a", 1), 0);
    CHECK_U64(mf_prefix_tree_find(&tree, (const unsigned char *)"a", 1), MF_PREFIX_NONE);
    REQUIRE(mf_prefix_tree_build(&tree, &a, entries, 5, NULL) == MF_OK);
    CHECK_U64(tree.n_nodes, 6); /* the root, a, ab, abc, b, \xff */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const unsigned char *text = (const unsigned char *)cases[i].text;
        const size_t n = strlen(cases[i].text);
        CHECK_U64(mf_prefix_tree_longest(&tree, text, n), cases[i].longest);
        CHECK_U64(mf_prefix_tree_find(&tree, text, n), cases[i].value);
    }
    mf_prefix_tree_free(&tree);
}

/* ------------------------------------------------------------------------------------- refusals --
 */

static mf_status open_json(const char *text, size_t n, const mf_allocator *a, mf_tokenizer **out,
                           mf_error *error)
{
    mf_json json = {0};
    mf_status status = mf_json_parse(a, "t.json", text, n, &json, error);
    if (status == MF_OK)
        status = mf_text_open_json(&json, a, out, error);
    mf_json_free(&json);
    return status;
}

static mf_tokenizer *taken(const char *text)
{
    const mf_allocator a = mf_allocator_default();
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    REQUIRE_OK(open_json(text, strlen(text), &a, &t, &error), &error);
    return t;
}

static void check_refused(void)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {FILE_OF("null", METASPACE, "\"vocab\":{}"), "model.vocab: expected an array"},
        {FILE_OF("null", METASPACE, "\"vocab\":[]"), "model.vocab: 0 tokens, expected 1 to"},
        {FILE_OF("null", METASPACE, "\"vocab\":[[\"a\",1],[\"b\"]]"),
         "model.vocab[1]: expected a token and its score"},
        {FILE_OF("null", METASPACE, "\"vocab\":[[\"a\",\"1\"]]"), "model.vocab[0]: expected"},
        {FILE_OF("null", METASPACE, "\"vocab\":[[1,1]]"), "model.vocab[0]: expected"},
        {FILE_OF("null", METASPACE, "\"vocab\":[7]"), "model.vocab[0]: expected"},
        {FILE_OF("null", METASPACE, "\"vocab\":[[\"\",1]]"), "model.vocab: an empty token"},
        {FILE_OF("null", METASPACE, "\"vocab\":[[\"a\",1],[\"a\",2]]"), "\"a\" is listed twice"},
        {FILE_OF("null", METASPACE, "\"vocab\":[[\" \",1]]"),
         "no token of a Unigram model is text"},
        {FILE_OF("null", METASPACE, "\"unk_id\":1,\"vocab\":[[\"a\",1]]"),
         "model.unk_id: expected an id below 1"},
        {FILE_OF("null", METASPACE, "\"unk_id\":-1,\"vocab\":[[\"a\",1]]"), "model.unk_id"},
        {FILE_OF("null", METASPACE, "\"byte_fallback\":true," VOCAB "]"),
         "model.byte_fallback with a decoder that lacks ByteFallback"},
        {FILE_OF("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"?\"}", METASPACE, VOCAB "]"),
         "normalizer.precompiled_charsmap: expected base64"},
        {FILE_OF("{\"type\":\"Precompiled\"}", METASPACE, VOCAB "]"),
         "normalizer.precompiled_charsmap: expected base64"},
        {FILE_OF("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}", METASPACE,
                 VOCAB "]"),
         "normalizer.precompiled_charsmap: expected a trie's length"},
        {FILE_OF("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +\"},\"content\":\" \"}",
                 METASPACE, VOCAB "]"),
         "normalizer.pattern: expected"},
    };
    const mf_allocator a = mf_allocator_default();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_tokenizer *t = NULL;
        mf_error error = {0};
        const mf_status status = open_json(cases[i].text, strlen(cases[i].text), &a, &t, &error);
        CHECK_MSG((status == MF_ERR_UNSUPPORTED || status == MF_ERR_FORMAT) && t == NULL &&
                      strstr(error.message, cases[i].part) != NULL &&
                      strncmp(error.message, "t.json: ", 8) == 0,
                  "case %zu: got %d \"%s\", want \"%s\"", i, status, error.message, cases[i].part);
        mf_text_close(&t);
    }
}

/* What a text takes is bounded by the longest token. */
static void check_long_token(void)
{
    const mf_allocator a = mf_allocator_default();
    for (size_t n_token = MF_MAX_UNIGRAM_BYTES; n_token <= MF_MAX_UNIGRAM_BYTES + 1; n_token++) {
        char token[MF_MAX_UNIGRAM_BYTES + 2], text[4096];
        mf_tokenizer *t = NULL;
        mf_error error = {0};
        memset(token, 'x', n_token);
        token[n_token] = '\0';
        const int n =
            snprintf(text, sizeof text,
                     FILE_OF("null", METASPACE, "\"vocab\":[[\"a\",1],[\"%s\",1]]"), token);
        const mf_status status = open_json(text, (size_t)n, &a, &t, &error);
        CHECK_STATUS(status, n_token > MF_MAX_UNIGRAM_BYTES ? MF_ERR_FORMAT : MF_OK);
        if (status != MF_OK)
            CHECK_CONTAINS(error.message, "token 1 has 1025 bytes, expected at most 1024");
        mf_text_close(&t);
    }
}

/* An added token of which nothing is left could be found everywhere. */
static void check_empty_added(void)
{
    static const char text[] =
        "{\"added_tokens\":[{\"content\":\"\\t\",\"normalized\":true}],\"normalizer\":{\"type\":"
        "\"Strip\",\"strip_left\":true,\"strip_right\":true},\"pre_tokenizer\":" METASPACE
        ",\"decoder\":" METASPACE ",\"model\":{\"type\":\"Unigram\"," VOCAB "]}}";
    const mf_allocator a = mf_allocator_default();
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    CHECK_STATUS(open_json(text, strlen(text), &a, &t, &error), MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "t.json: added_tokens: ");
    CHECK_CONTAINS(error.message, "the normalizer leaves nothing of it");
}

static void check_gguf(void)
{
    static const char *const texts[3] = {"<unk>", "a", MARK "b"};
    static const uint32_t types[3] = {2, 1, 1};
    static const float scores[3] = {0, -1, -2};
    gguf_head h;
    int32_t ids[8];
    size_t n = 0;
    mf_error error = {0};
    gguf_head_begin(&h, "t5");
    gguf_head_put_tokens(&h, texts, types, scores);
    mf_tokenizer *t = gguf_head_take(&h, &error);
    REQUIRE(CHECK_MSG(t != NULL, "%s", error.message));
    CHECK(mf_tokenizer_start(t) == -1);
    REQUIRE(mf_tokenizer_encode(t, "b  aa\xc3\xa9", 7, 0, ids, 8, &n, NULL) == MF_OK);
    /* a mark by itself is no token: two of them are one unknown */
    CHECK(n == 5 && ids[0] == 2 && ids[1] == 0 && ids[2] == 1 && ids[3] == 1 && ids[4] == 0);
    mf_tokenizer_free(&t);
    gguf_head_begin(&h, "t5");
    gguf_head_put_tokens(&h, texts, types, scores);
    gguf_head_put_number(&h, "tokenizer.ggml.precompiled_charsmap", 3);
    t = gguf_head_take(&h, &error);
    CHECK(t == NULL);
    CHECK_CONTAINS(error.message, "tokenizer.ggml.precompiled_charsmap is no array of numbers");
}

/* ------------------------------------------------------------------------------------- encoding --
 */

static void check_ids(const mf_tokenizer *t, const char *text, const char *expected)
{
    int32_t ids[32];
    char got[256];
    size_t n = 0, n_got = 0;
    mf_error error = {0};
    REQUIRE_OK(mf_tokenizer_encode(t, text, strlen(text), 0, ids, 32, &n, &error), &error);
    REQUIRE(n <= 32);
    got[0] = '\0';
    for (size_t i = 0; i < n; i++)
        n_got += (size_t)snprintf(got + n_got, sizeof got - n_got, "%s%d", i ? " " : "", ids[i]);
    CHECK_STR(got, expected);
}

/* Sums that are equal but for how scores are rounded when they are read: ids of tokenizers 0.23. */
static void check_scores(void)
{
    static const struct {
        const char *file, *text, *ids;
    } cases[] = {
        {FILE_OF("null", METASPACE,
                 "\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"" MARK "\",-13.586541105916995],"
                 "[\"a\",-9.689267750391595],[\"aa\",-6.2850950936138315]]"),
         "aaaaa", "1 3 2 3"},
        {FILE_OF("null", METASPACE,
                 "\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"" MARK "\",-14.448382808461039],"
                 "[\"a\",-6.990267123295448],[\"aa\",-5.363652130550205]]"),
         "aaaaa", "1 2 3 3"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_tokenizer *t = taken(cases[i].file);
        check_ids(t, cases[i].text, cases[i].ids);
        mf_tokenizer_free(&t);
    }
}

/* The best sum, the first of equals, and what is unknown. */
static void check_encoding(void)
{
    mf_tokenizer *t = taken(FILE_OF("null", METASPACE, VOCAB "]"));
    check_ids(t, "", "");
    check_ids(t, "a", "5");       /* -2.25, not -2 - 1 */
    check_ids(t, "ab", "5 3");    /* -3.75, not -2 - 2.5 */
    check_ids(t, "bab", "1 3 4"); /* "a" and "b" are -2.5, too: the longer one is found first */
    check_ids(t, "\xc3\xa9\xc3\xa9z", "1 0");
    check_ids(t,
              "a\xc3\xa9"
              "b",
              "5 0 3");
    mf_text_close(&t);
    /* bytes only where all of a run have tokens, and by their names in text */
    t = taken(FILE_OF("null", FALLBACK,
                      "\"byte_fallback\":true," VOCAB ",[\"<0xC3>\",-9],[\"<0xA9>\",-9]]"));
    check_ids(t,
              "\xc3\xa9"
              "b",
              "1 6 7 3");
    check_ids(t, "\xc3\xa9z", "1 0");
    check_ids(t, "a<0xC3>", "5 6");
    mf_text_close(&t);
    /* without a token for it what is unknown is left out */
    t = taken(FILE_OF("null", METASPACE, "\"vocab\":[[\"a\",-1],[\"b\",-1]]"));
    check_ids(t, "a\xc3\xa9z b", "0 1");
    mf_text_close(&t);
}

static void check_long_word(void)
{
    const size_t n_bytes = MF_MAX_WORD_BYTES + 1;
    char *word = malloc(n_bytes);
    size_t n = 0;
    mf_error error = {0};
    mf_tokenizer *t = taken("{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"Unigram\","
                            "\"vocab\":[[\"a\",-1],[\"aaaa\",-1.5]]}}");
    REQUIRE(word != NULL);
    memset(word, 'a', n_bytes);
    CHECK_STATUS(mf_tokenizer_encode(t, word, n_bytes, 0, NULL, 0, &n, &error), MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "are one word to the tokenizer");
    REQUIRE_OK(mf_tokenizer_encode(t, word, MF_MAX_WORD_BYTES, 0, NULL, 0, &n, &error), &error);
    CHECK_U64(n, MF_MAX_WORD_BYTES / 4);
    mf_text_close(&t);
    free(word);
}

/* Every allocation of opening and encoding fails once. */
static void check_failing(void)
{
    static const char text[] = FILE_OF(
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\","
        "\"precompiled_charsmap\":\"BAAAAAAAAAB4AA==\"},{\"type\":\"Strip\",\"strip_left\":true,"
        "\"strip_right\":true},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},"
        "\"content\":\" \"}]}",
        FALLBACK, "\"byte_fallback\":true," VOCAB ",[\"<0xC3>\",-9]]");
    for (unsigned long long n_call = 1;; n_call++) {
        failing f = {.fail_at = n_call};
        mf_allocator a = failing_allocator(&f);
        mf_tokenizer *t = NULL;
        size_t n;
        mf_status status = open_json(text, strlen(text), &a, &t, NULL);
        CHECK((t != NULL) == (status == MF_OK));
        if (status == MF_OK)
            status = mf_tokenizer_encode(t, " ab  \xc3\xa9 b", 9, 1, NULL, 0, &n, NULL);
        mf_tokenizer_free(&t);
        failing_check_end(&f, "a Unigram tokenizer.json");
        if (status == MF_OK && !failing_disarm(&f))
            break;
        REQUIRE(status == MF_OK || status == MF_ERR_NO_MEMORY);
    }
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    check_tree();
    check_refused();
    check_long_token();
    check_empty_added();
    check_gguf();
    check_encoding();
    check_scores();
    check_long_word();
    check_failing();
    return test_result();
}
