/* SPDX-License-Identifier: MIT */
/* The tokenizer apart from goldens: files it refuses, end tokens, decoding, sizes, failing memory.
 */
#include "failing_alloc.h"
#include "text_data.h"

#include "text/tokenizer.h"

#include <unistd.h>

#define MODEL \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define BYTES "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"}"
#define SPLIT(regex)                                                                           \
    "{\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"Sequence\","          \
    "\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":" \
    "\"" regex "\"}},{\"type\":\"ByteLevel\",\"use_regex\":false}]}," MODEL "}"

static mf_status open_text(const char *text, mf_tokenizer **out, mf_error *error)
{
    mf_allocator a = mf_allocator_default();
    mf_json json = {0};
    mf_status status = mf_json_parse(&a, "t.json", text, strlen(text), &json, error);
    if (status == MF_OK)
        status = mf_text_open_json(&json, &a, out, error);
    mf_json_free(&json);
    return status;
}

static void check_refused(const char *text, mf_status expected, const char *part)
{
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    mf_status status = open_text(text, &t, &error);
    CHECK_MSG(status == expected && strstr(error.message, part) != NULL && t == NULL,
              "%s: got %d \"%s\", want %d with \"%s\"", text, status, error.message, expected,
              part);
    mf_tokenizer_free(&t);
}

/* What is neither true nor false is none of both. */
static void check_flags(void)
{
    static const char *const bad[][2] = {
        {"{" BYTES
         ",\"added_tokens\":[{\"content\":\"x\"},{\"content\":\"y\",\"special\":\"true\"}]," MODEL
         "}",
         "added_tokens[1].special: expected true or false"},
        {"{" BYTES ",\"added_tokens\":[{\"content\":\"x\",\"lstrip\":null}]," MODEL "}",
         "added_tokens[0].lstrip: expected true or false"},
        {"{\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\","
         "\"use_regex\":null}," MODEL "}",
         "pre_tokenizer.use_regex: expected true or false"},
        {"{\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
         "\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":1},"
         "{\"type\":\"ByteLevel\"}]}," MODEL "}",
         "pre_tokenizer.individual_digits: expected true or false"},
        {"{" BYTES ",\"normalizer\":{\"type\":\"Strip\",\"strip_left\":\"yes\"}," MODEL "}",
         "normalizer.strip_left: expected true or false"},
        {"{" BYTES ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":{}}," MODEL "}",
         "normalizer.normalizers: expected an array"},
        {"{" BYTES ",\"model\":{\"ignore_merges\":\"true\",\"vocab\":{\"a\":0},\"merges\":[]}}",
         "model.ignore_merges: expected true or false"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_refused(bad[i][0], MF_ERR_FORMAT, bad[i][1]);
}

static void check_files(void)
{
    const mf_status no = MF_ERR_UNSUPPORTED, bad = MF_ERR_FORMAT;
    check_refused("[]", bad, "t.json");
    check_refused("{" BYTES "}", bad, "model");
    check_refused("{" BYTES ",\"model\":{\"type\":\"Unigram\"}}", no, "Unigram behind a ByteLevel");
    check_refused("{" BYTES ",\"model\":{\"type\":\"WordPiece\"}}", no, "WordPiece");
    check_refused("{" BYTES ",\"model\":{\"dropout\":0.5,\"vocab\":{\"a\":0},\"merges\":[]}}", no,
                  "t.json: model.dropout: expected null or 0");
    check_refused("{" BYTES ",\"model\":{\"dropout\":\"0\",\"vocab\":{\"a\":0},\"merges\":[]}}", no,
                  "model.dropout: expected null or 0");
    mf_tokenizer *t = NULL;
    CHECK_STATUS(open_text("{" BYTES
                           ",\"model\":{\"dropout\":0.0,\"vocab\":{\"a\":0},\"merges\":[]}}",
                           &t, NULL),
                 MF_OK);
    mf_tokenizer_free(&t);
    check_refused("{" BYTES ",\"normalizer\":{\"type\":\"NFKC\"}," MODEL "}", no, "NFKC");
    check_refused("{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," MODEL "}", no, "Whitespace");
    check_refused("{\"pre_tokenizer\":{\"type\":\"ByteLevel\"}," MODEL "}", no, "decoder");
    check_refused("{" BYTES ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", bad,
                  "not in model.vocab");
    check_refused("{" BYTES ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}}", bad,
                  "merges[0]");
    check_refused("{" BYTES ",\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", bad,
                  "twice");
    check_refused("{" BYTES ",\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", bad, "usable id");
    check_refused("{" BYTES ",\"model\":{\"vocab\":{\"a\":9000000},\"merges\":[]}}", bad, "id");
    check_refused("{" BYTES ",\"added_tokens\":[{}]," MODEL "}", bad, "added_tokens[0]");
    check_flags();
    static const char *const patterns[] = {
        SPLIT("[a&&[b]]"),       SPLIT("[^a&&[^b]]"),   SPLIT("[a&&[^^b]]"), SPLIT("[a&&[^b]c]"),
        SPLIT("[&&[^a]]"),       SPLIT("[a&&[^b&&c]]"), SPLIT("\\\\w+"),     SPLIT("a\\\\b"),
        SPLIT("[a[b]]"),         SPLIT("[a&&b]"),       SPLIT("a{,3}"),      SPLIT("a{2}+"),
        SPLIT("(?i)a"),          SPLIT("\\\\h"),        SPLIT("(a"),         SPLIT("[a"),
        SPLIT("\\\\p{Klingon}"), SPLIT("\\\\xff"),      SPLIT("(a)\\\\1"),   SPLIT("(?<n>a)")};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        check_refused(patterns[i], no, "regular expression");
}

/* An exponential pattern ends in an error, not in a wait. */
static void check_match_limit(void)
{
    char text[64];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b';
    mf_tokenizer *t = NULL;
    size_t n;
    REQUIRE(open_text(SPLIT("(?:a|a|aa)+$"), &t, NULL) == MF_OK);
    CHECK(mf_tokenizer_encode(t, text, sizeof text, 0, NULL, 0, &n, NULL) == MF_ERR_UNSUPPORTED);
    mf_tokenizer_free(&t);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* What the files beside the tokenizer may not say of ends and starts: by file and field. */
static void check_refused_ends(void)
{
    static const struct {
        const char *file, *text, *part;
    } bad[] = {
        {"generation_config.json", "{\"eos_token_id\": 1, \"eos_token_id\": 2}", "twice"},
        {"generation_config.json", "{\"eos_token_id\": \"1\"}", "eos_token_id"},
        {"generation_config.json", "{\"eos_token_id\": [0, -1]}", "eos_token_id"},
        {"generation_config.json", "[]", "object"},
        {"config.json", "{\"eos_token_id\": 1.5}", "eos_token_id"},
        {"tokenizer_config.json", "{\"eos_token\": \"a\", \"eos_token\": \"b\"}", "twice"},
        {"tokenizer_config.json", "{\"eos_token\": 1}", "eos_token"},
        {"tokenizer_config.json", "{\"eos_token\": {\"content\": 1}}", "eos_token"},
        {"tokenizer_config.json", "{\"add_bos_token\": \"true\"}", "add_bos_token"},
        {"tokenizer_config.json", "{\"add_bos_token\": true, \"bos_token\": [\"a\"]}", "bos_token"},
    };
    char dir[] = "/tmp/mf_ends_XXXXXX", json[64], path[64];
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(json, sizeof json, "%s/tokenizer.json", dir);
    write_file(json, "{" BYTES "," MODEL "}");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mf_tokenizer *t = NULL;
        mf_error error = {0};
        snprintf(path, sizeof path, "%s/%s", dir, bad[i].file);
        write_file(path, bad[i].text);
        CHECK_STATUS(mf_tokenizer_open(dir, NULL, &t, &error), MF_ERR_FORMAT);
        CHECK_CONTAINS(error.message, path);
        CHECK_CONTAINS(error.message, bad[i].part);
        mf_tokenizer_free(&t);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    write_file(path, "{\"eos_token\": {\"content\": \"ab\"}, \"add_bos_token\": true, "
                     "\"bos_token\": null}");
    mf_tokenizer *t = NULL;
    CHECK_STATUS(mf_tokenizer_open(dir, NULL, &t, NULL), MF_OK);
    CHECK(mf_tokenizer_is_end(t, 2) && !mf_tokenizer_is_end(t, 1) && mf_tokenizer_start(t) == -1);
    mf_tokenizer_free(&t);
    unlink(path);
    unlink(json);
    rmdir(dir);
}

/* In a long word too a merge waits for its own rank: "a bc" does not come in the place of the "a b"
 * that there is no more, before "bc d". */
static void check_long_word(void)
{
    static const char text[] =
        "{" BYTES ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,"
        "\"bc\":4,\"ab\":5,\"bcd\":6,\"abc\":7},"
        "\"merges\":[\"b c\",\"a b\",\"bc d\",\"a bc\"]}}";
    enum { N = 60 };
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    char word[4 * N];
    int32_t ids[4 * N];
    size_t n = 0;
    REQUIRE_OK(open_text(text, &t, &error), &error);
    for (size_t i = 0; i < N; i++) {
        memcpy(word + 4 * i, "abcd", 4);
        REQUIRE_OK(mf_tokenizer_encode(t, word, 4 * (i + 1), 0, ids, 4 * N, &n, &error), &error);
        CHECK_U64(n, 2 * (i + 1));
        for (size_t k = 0; k < n; k++)
            CHECK_U64((uint64_t)ids[k], k % 2 == 0 ? 0 : 6);
    }
    mf_tokenizer_free(&t);
}

static size_t n_of_token(const mf_tokenizer *t, const char *text, const mf_text_range *literal)
{
    int32_t ids[64];
    mf_error error = {0};
    const mf_text_input input = {text, strlen(text), .parse_special = true, .literal = literal,
                                 .n_literal = literal != NULL};
    mf_token_list list = {ids, 64, 0};
    REQUIRE_OK(mf_text_encode(t, &input, &list, &error), &error);
    size_t n = 0;
    for (size_t i = 0; i < list.n_tokens; i++)
        n += ids[i] == 8;
    return n;
}

/* What looks like a token in a literal range is text: also a token that is looked for after the
 * text was normalised, when the ranges fit no more. */
static void check_literal(void)
{
    static const char text[] =
        "{\"normalizer\":{\"type\":\"NFC\"}," BYTES ",\"added_tokens\":[{\"id\":8,\"content\":"
        "\"<t>\",\"normalized\":true,\"special\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{"
        "\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4,\"f\":5,\"g\":6,\"h\":7},\"merges\":[]}}";
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    REQUIRE_OK(open_text(text, &t, &error), &error);
    REQUIRE(t->added.normalized.n_tokens == 1);
    CHECK_U64(n_of_token(t, "<t>a<t>", NULL), 2);
    CHECK_U64(n_of_token(t, "<t>a<t>", &(mf_text_range){4, 7}), 1);
    CHECK_U64(n_of_token(t, "<t>a\xCC\x81<t>", NULL), 2);
    CHECK_U64(n_of_token(t, "<t>a\xCC\x81<t>", &(mf_text_range){6, 9}), 0);
    mf_tokenizer_free(&t);
}

/* A token that is looked for as the normalizer makes it, here behind a mark, is in the model's
 * vocabulary as it is written: there it is found in the middle of a text. */
static void check_normalized_key(void)
{
    static const char text[] =
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
        "\"prepend\":\"\u2581\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
        "\"\u2581\"}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
        "\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"},{\"type\":\"Fuse\"}]},"
        "\"added_tokens\":[{\"id\":4,\"content\":\"c\",\"normalized\":true}],\"model\":{\"type\":"
        "\"BPE\",\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"\u2581\":1,\"a\":2,\"b\":3,"
        "\"c\":4,\"\u2581a\":5},\"merges\":[\"\u2581 a\"]}}";
    static const int32_t middle[] = {5, 4, 3}, start[] = {4, 2};
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    int32_t ids[8] = {0};
    size_t n = 0;
    REQUIRE_OK(open_text(text, &t, &error), &error);
    REQUIRE_OK(mf_tokenizer_encode(t, "acb", 3, 0, ids, 8, &n, &error), &error);
    CHECK(n == 3 && memcmp(ids, middle, sizeof middle) == 0);
    REQUIRE_OK(mf_tokenizer_encode(t, "ca", 2, 0, ids, 8, &n, &error), &error);
    CHECK(n == 2 && memcmp(ids, start, sizeof start) == 0);
    mf_tokenizer_free(&t);
}

/* Ids have a gap, so that an added token, which is numbered by how many there are, has the id of a
 * token of the model: the tokenizers package finds both. */
static void check_shared_id(void)
{
    static const char text[] =
        "{\"decoder\":{\"type\":\"Fuse\"},\"added_tokens\":[{\"content\":\"<x>\"}],\"model\":{"
        "\"type\":"
        "\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":3},\"merges\":[]}}";
    static const int32_t expected[] = {1, 3, 3};
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    int32_t ids[8] = {0};
    size_t n = 0;
    REQUIRE_OK(open_text(text, &t, &error), &error);
    REQUIRE_OK(mf_tokenizer_encode(t, "ab<x>", 5, 1, ids, 8, &n, &error), &error);
    CHECK(n == 3 && memcmp(ids, expected, sizeof expected) == 0);
    const char *piece = mf_tokenizer_piece(t, 3, &n);
    CHECK(n == 3 && memcmp(piece, "<x>", 3) == 0);
    mf_tokenizer_free(&t);
}

/* Tokens of blanks that take all blanks beside them, as tokenizers has them: a next one is among
 * those that the first has taken, and is left out where it takes blanks on its left, too. */
static void check_taken_blanks(void)
{
    static const char text[] =
        "{" BYTES ",\"added_tokens\":[{\"id\":2,\"content\":\"  \",\"rstrip\":true%s}],"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\u0120\":1},\"merges\":[]}}";
    static const struct {
        const char *more;
        size_t n_tokens;
    } cases[] = {{"", 4}, {",\"lstrip\":true", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[512];
        mf_tokenizer *t = NULL;
        mf_error error = {0};
        int32_t ids[8] = {0};
        size_t n = 0;
        snprintf(json, sizeof json, text, cases[i].more);
        REQUIRE_OK(open_text(json, &t, &error), &error);
        REQUIRE_OK(mf_tokenizer_encode(t, "      a", 7, 0, ids, 8, &n, &error), &error);
        CHECK_U64(n, cases[i].n_tokens);
        CHECK(ids[0] == 2 && ids[cases[i].n_tokens - 1] == 0);
        mf_tokenizer_free(&t);
    }
}

static void check_end_tokens(void)
{
    mf_tokenizer *t = text_tokenizer_open("ends");
    static const int32_t ends[] = {0, 1, 5, 7, 3};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        CHECK(mf_tokenizer_is_end(t, ends[i]));
    CHECK(!mf_tokenizer_is_end(t, 2) && !mf_tokenizer_is_end(t, -1));
    CHECK(mf_tokenizer_is_special(t, 3) && !mf_tokenizer_is_special(t, 2));
    CHECK(!mf_tokenizer_is_special(t, -1) && !mf_tokenizer_is_special(t, 99));
    CHECK(mf_tokenizer_n_vocab(t) == 4);
    size_t n;
    const char *piece = mf_tokenizer_piece(t, 3, &n);
    CHECK(piece != NULL && n == 5 && memcmp(piece, "<end>", 5) == 0);
    CHECK(mf_tokenizer_piece(t, 4, &n) == NULL && mf_tokenizer_piece(t, -1, &n) == NULL);
    mf_tokenizer_free(&t);
}

#define TEMPLATE(first)                                                                    \
    "{" BYTES "," MODEL ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":["      \
    "{\"type\":\"ByteLevel\"},{\"type\":\"TemplateProcessing\",\"single\":[" first         \
    "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"b\":{\"id\":\"b\",\"ids\":[1]}," \
    "\"far\":{\"id\":\"far\",\"ids\":[99]}}}]}}"

/* What a text starts with, by the post-processor and by tokenizer_config.json. */
static void check_start_tokens(void)
{
    static const struct {
        const char *json;
        int32_t start;
    } cases[] = {
        {"{" BYTES "," MODEL "}", -1},
        {TEMPLATE(""), -1},
        {TEMPLATE("{\"SpecialToken\":{\"id\":\"b\"}},"), 1},
        {TEMPLATE("{\"SpecialToken\":{\"id\":\"far\"}},"), -1},
        {TEMPLATE("{\"SpecialToken\":{\"id\":\"none\"}},"), -1},
    };
    mf_tokenizer *t = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        REQUIRE(open_text(cases[i].json, &t, NULL) == MF_OK);
        CHECK_MSG(mf_tokenizer_start(t) == cases[i].start, "case %zu: %d", i,
                  mf_tokenizer_start(t));
        mf_tokenizer_free(&t);
    }
    static const char *const names[] = {"qwen3", "kimi", "ends", "deepseek", "deepseek_v2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        t = text_tokenizer_open(names[i]);
        size_t n;
        const char *piece = mf_tokenizer_piece(t, mf_tokenizer_start(t), &n);
        static const char bos[] = "<｜begin▁of▁sentence｜>";
        CHECK((i >= 3) == (piece != NULL));
        CHECK(i < 3 || (n == sizeof bos - 1 && memcmp(piece, bos, n) == 0));
        mf_tokenizer_free(&t);
    }
}

static void check_decoder(void)
{
    mf_tokenizer *t = text_tokenizer_open("gpt2");
    mf_decoder decoder = {0};
    int32_t tokens[16];
    size_t n_tokens, n;
    char text[64];
    REQUIRE(mf_tokenizer_encode(t, "\xF0\x9F\x98\x80", 4, 0, tokens, 16, &n_tokens, NULL) == MF_OK);
    REQUIRE(n_tokens > 1);
    for (size_t i = 0; i < n_tokens; i++) {
        REQUIRE(mf_tokenizer_decode(t, &decoder, tokens[i], text, sizeof text, &n) == MF_OK);
        CHECK(n == (i + 1 == n_tokens ? 4u : 0u));
    }
    /* A character that is never finished comes out as one U+FFFD. */
    REQUIRE(mf_tokenizer_decode(t, &decoder, tokens[0], text, sizeof text, &n) == MF_OK && n == 0);
    CHECK(mf_tokenizer_decode(t, &decoder, -1, text, 2, &n) == MF_ERR_ARGUMENT);
    REQUIRE(mf_tokenizer_decode(t, &decoder, -1, text, 3, &n) == MF_OK);
    CHECK(n == 3 && memcmp(text, "\xEF\xBF\xBD", 3) == 0);
    mf_tokenizer_free(&t);
}

static void check_arguments(void)
{
    mf_tokenizer *t = NULL;
    size_t n = 0;
    CHECK(mf_tokenizer_open(NULL, NULL, &t, NULL) == MF_ERR_ARGUMENT);
    CHECK(mf_tokenizer_open("tests/text/data/none", NULL, &t, NULL) == MF_ERR_NOT_FOUND);
    t = text_tokenizer_open("qwen3");
    CHECK(mf_tokenizer_encode(t, NULL, 1, 0, NULL, 0, &n, NULL) == MF_ERR_ARGUMENT);
    CHECK(mf_tokenizer_encode(t, NULL, 0, 0, NULL, 0, &n, NULL) == MF_OK && n == 0);
    int32_t one[2] = {-7, -7};
    CHECK(mf_tokenizer_encode(t, "xyz \xff 123", 9, 0, one, 1, &n, NULL) == MF_OK);
    CHECK(n > 1 && one[0] >= 0 && one[1] == -7);
    mf_tokenizer_free(&t);
    mf_tokenizer_free(&t);
}

/* Every allocation of opening and encoding fails once; each time MF_ERR_NO_MEMORY and nothing kept.
 */
static void check_failing_memory(const char *name)
{
    static const char text[] =
        "wo\xCC\x81rd <|im_start|>\xff 'S 123 a\xCC\xA3\xCC\x81 aaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    mf_chat_json_params chat;
    mf_chat_json_params_default(&chat);
    chat.messages = "[{\"role\": \"user\", \"content\": \"hi\"}]";
    chat.tools = "[{}]";
    chat.variables = "{\"x\": 1}";
    for (unsigned long long n_call = 1;; n_call++) {
        failing f = {.fail_at = n_call};
        mf_allocator a = failing_allocator(&f);
        mf_tokenizer *t = NULL;
        size_t n;
        mf_status status = mf_tokenizer_open(text_data_path(name), &a, &t, NULL);
        CHECK((t != NULL) == (status == MF_OK));
        if (status == MF_OK)
            status = mf_tokenizer_encode(t, text, sizeof text - 1, 1, NULL, 0, &n, NULL);
        if (status == MF_OK && mf_tokenizer_has_chat(t))
            status = mf_chat_json_encode(t, &chat, NULL, 0, &n, NULL);
        mf_tokenizer_free(&t);
        failing_check_end(&f, name);
        if (status == MF_OK && !failing_disarm(&f))
            break;
        /* Without memory for machine code a regular expression is interpreted. */
        REQUIRE(status == MF_OK || status == MF_ERR_NO_MEMORY);
    }
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    check_files();
    check_match_limit();
    check_long_word();
    check_literal();
    check_normalized_key();
    check_shared_id();
    check_taken_blanks();
    check_end_tokens();
    check_refused_ends();
    check_start_tokens();
    check_decoder();
    check_arguments();
    text_encode_long_words("qwen35");
    check_failing_memory("qwen3");
    check_failing_memory("several");
    check_failing_memory("kimi");
    check_failing_memory("deepseek");
    check_failing_memory("deepseek_v2");
    return test_result();
}
