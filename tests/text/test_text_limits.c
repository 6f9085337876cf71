/* SPDX-License-Identifier: MIT */
/* What encoding may take: work of a regular expression for a whole text, the longest word, memory
 * in proportion to a block and not to the text. And details of pre-tokenizers. */
#include "text_data.h"

#include "text/bpe.h"
#include "text/tokenizer.h"

#define MODEL \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define STEP(pattern, more)                                                                     \
    "{\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"Sequence\","           \
    "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"}," more "}," \
    "{\"type\":\"ByteLevel\",\"use_regex\":false}]}," MODEL "}"
#define ISOLATED "\"behavior\":\"Isolated\""

static mf_tokenizer *open_text(const char *text)
{
    mf_allocator a = mf_allocator_default();
    mf_json json = {0};
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_json_parse(&a, "folder/t.json", text, strlen(text), &json, &error), &error);
    REQUIRE_OK(mf_text_open_json(&json, &a, &t, &error), &error);
    mf_json_free(&json);
    return t;
}

/* Writes `unit` over and over; the number of bytes. */
static size_t fill(char *text, size_t capacity, const char *unit)
{
    size_t n = 0, n_unit = strlen(unit);
    for (; n + n_unit <= capacity; n += n_unit)
        memcpy(text + n, unit, n_unit);
    return n;
}

/* Each match is within any sensible limit, but there is one at every character. */
static void check_polynomial(void)
{
    enum { N = 30000 };
    char *text = malloc(N);
    mf_tokenizer *t = open_text(STEP("(?=(?=.*.*x)x)x|.", ISOLATED));
    mf_error error = {0};
    size_t n;
    REQUIRE(text != NULL);
    memset(text, 'a', N);
    CHECK_STATUS(mf_tokenizer_encode(t, text, N, 0, NULL, 0, &n, &error), MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "folder/t.json: pre_tokenizer");
    CHECK_CONTAINS(error.message, "too much work");
    CHECK_STATUS(mf_tokenizer_encode(t, text, 50, 0, NULL, 0, &n, &error), MF_OK);
    mf_tokenizer_free(&t);
    free(text);
}

/* Each match is cheap in steps, but runs over the whole text; or has few steps more than are free.
 */
static void check_cheap_matches(void)
{
    static const char *const patterns[] = {
        STEP("(?=[^x]*)a|.", ISOLATED), STEP("(?=.*)a|.", ISOLATED), STEP("a(?![^x]*x)", ISOLATED)};
    enum { N = 200000 };
    char *text = malloc(N);
    REQUIRE(text != NULL);
    memset(text, 'a', N);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        mf_tokenizer *t = open_text(patterns[i]);
        mf_error error = {0};
        size_t n = 0;
        CHECK_STATUS(mf_tokenizer_encode(t, text, N, 0, NULL, 0, &n, &error), MF_ERR_UNSUPPORTED);
        CHECK_CONTAINS(error.message, "folder/t.json: pre_tokenizer");
        CHECK_CONTAINS(error.message, "too much work");
        REQUIRE_OK(mf_tokenizer_encode(t, text, 5000, 0, NULL, 0, &n, &error), &error);
        CHECK_U64(n, 5000);
        mf_tokenizer_free(&t);
    }
    free(text);
}

static void check_pattern_length(void)
{
    char pattern[16386];
    mf_allocator a = mf_allocator_default();
    mf_regex *regex = NULL;
    mf_error error = {0};
    memset(pattern, 'a', sizeof pattern);
    mf_pattern p = {pattern, 16384, false};
    REQUIRE_OK(mf_regex_compile(&a, "field", p, &regex, &error), &error);
    mf_regex_free(&regex);
    p.n_bytes++;
    CHECK_STATUS(mf_regex_compile(&a, "field", p, &regex, &error), MF_ERR_UNSUPPORTED);
    CHECK_STR(error.message, "field: a pattern of 16385 bytes, this version runs at most 16384");
}

/* The sizes of the words that a text is cut into. */
typedef struct word_sizes {
    size_t sizes[8];
    size_t n;
} word_sizes;

static mf_status take_size(void *ctx, const unsigned char *word, size_t n_bytes, mf_error *error)
{
    word_sizes *w = ctx;
    (void)word;
    (void)error;
    if (w->n < 8)
        w->sizes[w->n] = n_bytes;
    w->n++;
    return MF_OK;
}

static word_sizes sizes_by(const char *pattern, const char *text, size_t n_bytes)
{
    mf_allocator a = mf_allocator_default();
    mf_pretokenizer p = {0};
    mf_pretoken_run run = {0};
    mf_error error = {0};
    word_sizes w = {0};
    REQUIRE_OK(mf_pretokenizer_make(&p, &a, pattern, &error), &error);
    REQUIRE_OK(mf_pretoken_run_init(&run, &p, &a, take_size, &w, &error), &error);
    REQUIRE_OK(mf_pretoken_run_text(&run, (const unsigned char *)text, n_bytes, true), &error);
    mf_pretoken_run_free(&run);
    mf_pretokenizer_free(&p);
    return w;
}

/* A text of `n` units and an end, cut by a pattern: where only the end decides what the words are,
 * however far away it is. Expected by the definition of the pattern: sizes in `per_unit` parts of
 * the run, and bytes beside them. */
static void check_far_ends(void)
{
    static const struct {
        const char *pattern, *unit, *end;
        size_t n_words;
        int from_run[3]; /* what the first three words have more than the run (run > 0), or alone */
        bool is_run[3];
    } cases[] = {
        {"a+|b", "a", "b", 2, {0, 1}, {true}},
        {"(?:\xC3\xA9)+b?", "\xC3\xA9", "b", 1, {1}, {true}},
        {"\\s+(?!\\S)|\\s+|x", " ", "x", 3, {-1, 1, 1}, {true}},
        {"\\s+(?!\\S)|\\s+|x", " ", "", 1, {0}, {true}},
        {"(?<=\xC3\xA9)b|z", "\xC3\xA9", "b", 2, {0, 1}, {true}}, /* nothing before the end */
        {"a+\\z|b|a+", "a", "", 1, {0}, {true}},
        {"a+\\z|b|a(?=a*b)|a+", "a", "c", 2, {0, 1}, {true}},
        {"(?<=b)(?!c)", "a", "bc", 1, {2}, {true}}, /* matches nothing anywhere */
        {"(?<=b)(?!c)", "a", "bd", 2, {1, 1}, {true}},
        {"[^b]+", "\xF0\x9F\x98\x80", "b", 2, {0, 1}, {true}},
    };
    enum { CAPACITY = 24000 };
    static const size_t bases[] = {2, 60, 84, 124, 252, 508, 1020, 4092};
    char *text = malloc(CAPACITY);
    REQUIRE(text != NULL);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (size_t b = 0; b < 8 * sizeof bases / sizeof *bases; b++) {
            size_t n_run = (bases[b / 8] + b % 8) * strlen(cases[c].unit);
            size_t n = fill(text, n_run, cases[c].unit);
            REQUIRE(n == n_run && n + 8 < CAPACITY);
            memcpy(text + n, cases[c].end, strlen(cases[c].end));
            word_sizes w = sizes_by(cases[c].pattern, text, n + strlen(cases[c].end));
            CHECK_MSG(w.n == cases[c].n_words, "%s, a run of %zu: %zu words", cases[c].pattern,
                      n_run, w.n);
            for (size_t i = 0; i < w.n && i < 3; i++) {
                size_t expected =
                    (cases[c].is_run[i] ? n_run : 0) + (size_t)(ptrdiff_t)cases[c].from_run[i];
                CHECK_MSG(w.sizes[i] == expected, "%s, a run of %zu: word %zu has %zu bytes",
                          cases[c].pattern, n_run, i, w.sizes[i]);
            }
        }
    }
    free(text);
}

static void check_word_length(void)
{
    size_t n_bytes = MF_MAX_WORD_BYTES + 1, n = 0;
    char *text = malloc(n_bytes);
    mf_tokenizer *t = open_text("{\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":"
                                "\"ByteLevel\",\"use_regex\":false}," MODEL "}");
    mf_error error = {0};
    REQUIRE(text != NULL);
    memset(text, 'b', n_bytes);
    text[0] = 'a';
    REQUIRE_OK(mf_tokenizer_encode(t, text, n_bytes - 1, 0, NULL, 0, &n, &error), &error);
    CHECK_U64(n, n_bytes - 2);
    CHECK_STATUS(mf_tokenizer_encode(t, text, n_bytes, 0, NULL, 0, &n, &error), MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "16777217 bytes");
    mf_tokenizer_free(&t);
    free(text);
}

/* The peak of what is allocated. */
typedef struct peak {
    size_t live, most;
} peak;

static void *peak_realloc(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    peak *p = ctx;
    void *got = realloc(ptr, new_bytes);
    if (got == NULL)
        return NULL;
    p->live = p->live - old_bytes + new_bytes;
    p->most = p->live > p->most ? p->live : p->most;
    return got;
}

static void *peak_alloc(void *ctx, size_t n_bytes)
{
    return peak_realloc(ctx, NULL, 0, n_bytes);
}

static void peak_free(void *ctx, void *ptr, size_t n_bytes)
{
    ((peak *)ctx)->live -= n_bytes;
    free(ptr);
}

/* Long texts are normalised in blocks: the same ids wherever a block ends, by the definition of NFC
 * those of the composed text, with memory for the normalised text and little else. */
static void check_blocks(void)
{
    static const struct {
        const char *decomposed, *composed;
    } units[] = {{"e\xCC\x81", "\xC3\xA9"},                    /* e + acute */
                 {"xa\xCC\xA3\xCC\x82 ", "x\xE1\xBA\xAD "},    /* a + dot below, circumflex */
                 {"\xE3\x81\x8B\xE3\x82\x99", "\xE3\x81\x8C"}, /* ka + voiced mark */
                 {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81"}, /* Hangul jamo */
                 {"\xE4\xB8\xADq\xCC\x87\xCC\xA3", "\xE4\xB8\xADq\xCC\xA3\xCC\x87"}};
    enum { CAPACITY = 400000 };
    char *text = malloc(CAPACITY + 8), *composed = malloc(CAPACITY + 8);
    int32_t *ids = malloc(CAPACITY * sizeof *ids), *expected = malloc(CAPACITY * sizeof *ids);
    peak p = {0};
    const mf_allocator a = {&p, peak_alloc, peak_realloc, peak_free};
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    REQUIRE(text != NULL && composed != NULL && ids != NULL && expected != NULL);
    REQUIRE_OK(mf_tokenizer_open(text_data_path("qwen3"), &a, &t, &error), &error);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        for (size_t shift = 0; shift < 4; shift++) {
            memset(text, 'z', shift);
            memset(composed, 'z', shift);
            size_t n_text = shift + fill(text + shift, CAPACITY, units[u].decomposed);
            size_t n_units = (n_text - shift) / strlen(units[u].decomposed);
            size_t n_composed = shift + fill(composed + shift, n_units * strlen(units[u].composed),
                                             units[u].composed);
            size_t n, n_expected;
            p.most = p.live;
            size_t held = p.live;
            REQUIRE_OK(mf_tokenizer_encode(t, text, n_text, 0, ids, CAPACITY, &n, &error), &error);
            bool is_one_word = units[u].decomposed[1] != 'a';
            CHECK_MSG(is_one_word || p.most - held < 3 * n_text, "unit %zu: %zu bytes for %zu", u,
                      p.most - held, n_text);
            REQUIRE_OK(mf_tokenizer_encode(t, composed, n_composed, 0, expected, CAPACITY,
                                           &n_expected, &error),
                       &error);
            CHECK_U64(n, n_expected);
            CHECK_BYTES(ids, expected, (n < n_expected ? n : n_expected) * sizeof *ids);
        }
    }
    mf_tokenizer_free(&t);
    free(text);
    free(composed);
    free(ids);
    free(expected);
}

static void check_ids(const char *json, const char *text, const char *expected)
{
    mf_tokenizer *t = open_text(json);
    int32_t ids[32];
    char shown[64] = "";
    size_t n = 0;
    REQUIRE(mf_tokenizer_encode(t, text, strlen(text), 0, ids, 32, &n, NULL) == MF_OK);
    for (size_t i = 0; i < n; i++)
        (void)snprintf(shown + 2 * i, 3, "%d ", ids[i]);
    CHECK_STR(shown, expected);
    mf_tokenizer_free(&t);
}

/* "invert" makes matches of what lies between the matches: by the documentation of Hugging Face's
 * Split. a is 0, b is 1, ab is 2. */
static void check_invert(void)
{
    check_ids(STEP("b", "\"behavior\":\"Removed\""), "abab", "0 0 ");
    check_ids(STEP("b", "\"behavior\":\"Removed\",\"invert\":true"), "abab", "1 1 ");
    check_ids(STEP("b", "\"behavior\":\"Removed\",\"invert\":false"), "abab", "0 0 ");
    /* the match, or with invert the gap, goes to the piece before it */
    check_ids(STEP("b", "\"behavior\":\"MergedWithPrevious\""), "abab", "2 2 ");
    check_ids(STEP("b", "\"behavior\":\"MergedWithPrevious\",\"invert\":true"), "abab", "0 1 0 1 ");
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    check_polynomial();
    check_cheap_matches();
    check_pattern_length();
    check_far_ends();
    check_word_length();
    check_blocks();
    check_invert();
    return test_result();
}
