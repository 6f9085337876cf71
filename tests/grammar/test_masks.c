/* SPDX-License-Identifier: MIT */
/*
 * Masks against what guides take: at each place of texts that are written by chance, of all tokens
 * those are allowed that the guide takes. Masks are found by groups and subtrees of tokens; a guide
 * follows stacks byte by byte and knows nothing of them. The vocabulary is made for it: tokens of
 * one kind of characters and of several, of all lengths of UTF-8, and parts of characters.
 */
#include "grammar_data.h"

#include <sys/stat.h>
#include <unistd.h>

#define N_RANDOM 1500
#define MOST_BYTES 24

static uint64_t random_state = 88172645463325252u;

static size_t below(size_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)(random_state % n);
}

/* -------------------------------------------------------------------------------- vocabulary -- */

typedef struct words {
    char items[N_RANDOM + 400][MOST_BYTES + 8];
    size_t n;
} words;

static void add(words *w, const char *bytes, size_t n)
{
    for (size_t i = 0; i < w->n; i++)
        if ((size_t)w->items[i][0] == n && memcmp(w->items[i] + 1, bytes, n) == 0)
            return;
    w->items[w->n][0] = (char)n;
    memcpy(w->items[w->n++] + 1, bytes, n);
}

/* Words over an alphabet, which is a list of characters. */
static void add_words(words *w, const char *const *alphabet, size_t n_letters, size_t n_words,
                      size_t longest)
{
    for (size_t i = 0; i < n_words; i++) {
        char word[MOST_BYTES + 8];
        size_t n = 0;
        for (size_t k = 1 + below(longest); k > 0; k--) {
            for (const char *at = alphabet[below(n_letters)]; *at && n < MOST_BYTES; at++)
                word[n++] = *at;
        }
        add(w, word, n);
    }
}

static void fill(words *w)
{
    static const char *const lower[] = {"a", "b", "c", "e", "t", "o", "z"};
    static const char *const mixed[] = {"A", "b", "C", "d", "x", "Z"};
    static const char *const spaced[] = {" ", "a", "b", "q"};
    static const char *const digits[] = {"0", "1", "2", "5", "9"};
    static const char *const marks[] = {"-", ".", "@", "a", "1", "_", ":", "Z", "/"};
    static const char *const wide[] = {"\xC3\xA9",        "\xE4\xB8\xAD", "\xF0\x9F\x98\x80",
                                       "\xDF\xBF",        "\xE0\xA0\x80", "\xED\x9F\xBF",
                                       "\xF4\x8F\xBF\xBF"};
    static const char *const all[] = {"\xC3\xA9", "a", "B", "7", " ", "\xE4\xB8\xAD", ","};
    static const char *const json[] = {"\"", ":", ",", "{", "}", "[", "]", "\\", "n", " ", "\n"};
    static const char *const parts[] = {"\xC3", "\xA9", "\xE4\xB8", "\x80", "a", "\xF0\x9F", "\""};
    for (int byte = 0; byte < 256; byte++) {
        const char c = (char)byte;
        add(w, &c, 1);
    }
    add_words(w, lower, 7, 400, 12);
    add_words(w, mixed, 6, 200, 8);
    add_words(w, spaced, 4, 150, 6);
    add_words(w, digits, 5, 150, 6);
    add_words(w, marks, 9, 250, 6);
    add_words(w, wide, 7, 120, 6);
    add_words(w, all, 7, 100, 6);
    add_words(w, json, 11, 80, 4);
    add_words(w, parts, 7, 50, 3);
}

static void put_base64(FILE *out, const unsigned char *bytes, size_t n)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const unsigned v = (unsigned)bytes[i] << 16 |
                           (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0u) |
                           (left > 2 ? bytes[i + 2] : 0u);
        fputc(letters[v >> 18], out);
        fputc(letters[v >> 12 & 63], out);
        fputc(left > 1 ? letters[v >> 6 & 63] : '=', out);
        fputc(left > 2 ? letters[v & 63] : '=', out);
    }
}

static void open_data(grammar_data *d)
{
    static words w;
    char dir[] = "test_masks.XXXXXX", file[64];
    mf_error error = {0};
    fill(&w);
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(file, sizeof file, "%s/tiktoken.model", dir);
    FILE *out = fopen(file, "wb");
    REQUIRE(out != NULL);
    for (size_t i = 0; i < w.n; i++) {
        put_base64(out, (unsigned char *)w.items[i] + 1, (size_t)w.items[i][0]);
        fprintf(out, " %zu\n", i);
    }
    REQUIRE(fclose(out) == 0);
    mf_status status = mf_tokenizer_open(dir, NULL, &d->tokenizer, &error);
    unlink(file);
    rmdir(dir);
    REQUIRE_OK(status, &error);
    REQUIRE_OK(mf_vocabulary_create(d->tokenizer, NULL, &d->vocabulary, &error), &error);
}

/* ------------------------------------------------------------------------------------- masks -- */

typedef struct state {
    const grammar_data *data;
    const char *name;
    mf_guide *guide;
    uint32_t *mask;
    size_t n_tokens, n_masks, n_forced;
} state;

/* A token is forced exactly where it is the mask's only one, and no end. */
static void check_forced(state *s)
{
    mf_error error = {0};
    int32_t forced = -1, only = -1;
    size_t n = 0;
    for (size_t i = 0; i < s->n_tokens; i++)
        if (s->mask[i / 32] >> i % 32 & 1) {
            only = (int32_t)i;
            n++;
        }
    if (n != 1 || mf_tokenizer_is_end(s->data->tokenizer, only))
        only = -1;
    REQUIRE_OK(mf_guide_forced(s->guide, &forced, &error), &error);
    CHECK_MSG(forced == only, "%s: token %d is forced, not %d", s->name, (int)forced, (int)only);
    s->n_forced += forced >= 0;
}

/* The mask against each token. Returns one that is allowed, by chance; -1: only an end is. */
static int32_t check_mask(state *s)
{
    mf_error error = {0};
    size_t n_allowed = 0;
    int32_t chosen = -1;
    mf_status status = mf_guide_mask(s->guide, s->mask, s->n_tokens, NULL, &error);
    /* this vocabulary has no end token */
    CHECK(status == MF_OK || (status == MF_ERR_NOT_FOUND && mf_guide_may_end(s->guide)));
    for (size_t i = 0; i < s->n_tokens; i++) {
        mf_guide *copy = NULL;
        size_t n_bytes;
        if (!mf_tokenizer_piece(s->data->tokenizer, (int32_t)i, &n_bytes) ||
            mf_tokenizer_is_end(s->data->tokenizer, (int32_t)i))
            continue;
        REQUIRE_OK(mf_guide_clone(s->guide, &copy, &error), &error);
        const bool takes = mf_guide_accept(copy, (int32_t)i, NULL) == MF_OK;
        const bool may = s->mask[i / 32] >> i % 32 & 1;
        CHECK_MSG(takes == may, "%s: token %zu: the mask says %d, the guide %d", s->name, i, may,
                  takes);
        if (may && below(++n_allowed) == 0)
            chosen = (int32_t)i;
        mf_guide_free(&copy);
    }
    s->n_masks++;
    check_forced(s);
    return chosen;
}

/* Returns how many tokens were forced. */
static size_t check_grammar(const grammar_data *d, const char *name, mf_grammar *grammar,
                            size_t n_steps)
{
    mf_error error = {0};
    state s = {.data = d, .name = name, .n_tokens = mf_tokenizer_n_vocab(d->tokenizer)};
    s.mask = malloc((s.n_tokens + 31) / 32 * sizeof *s.mask);
    REQUIRE(s.mask != NULL);
    REQUIRE_OK(mf_guide_create(grammar, &s.guide, &error), &error);
    while (s.n_masks < n_steps) {
        const int32_t token = check_mask(&s);
        if (token < 0)
            REQUIRE_OK(mf_guide_reset(s.guide, &error), &error);
        else
            REQUIRE_OK(mf_guide_accept(s.guide, token, &error), &error);
    }
    mf_guide_free(&s.guide);
    free(s.mask);
    return s.n_forced;
}

static mf_grammar *compile(const grammar_data *d, const char *schema, const char *gbnf,
                           size_t max_mask_bytes)
{
    mf_error error = {0};
    mf_grammar *g = NULL;
    mf_grammar_params params;
    mf_grammar_params_default(&params);
    params.json_schema = schema;
    params.n_schema_bytes = schema != NULL ? strlen(schema) : 0;
    params.gbnf = gbnf;
    params.n_gbnf_bytes = gbnf != NULL ? strlen(gbnf) : 0;
    params.max_mask_bytes = max_mask_bytes;
    REQUIRE_OK(mf_grammar_compile(d->vocabulary, &params, &g, &error), &error);
    return g;
}

static void check_patterns(const grammar_data *d)
{
    static const char *const patterns[] = {
        "^[a-z]{1,20}$", "^[a-z]{3,5}$", "^[a-zA-Z]+$",       "^[b-z]+$",
        "^[A-Z][a-z]*$", "^[^a]{2,9}$",  "^[^,]*$",           "^\\\\d{4}-\\\\d\\\\d$",
        "^.{0,7}x?$",    "a.b",          "^([a-c]+ )*[0-9]$", "^[\xC3\x80-\xEF\xBF\xBD]{1,4}$",
        "^[ -~]{5}$",    "^(\\\\w|-)+$", "^\\\\S+@[a-z.]+$",  "^[\xE4\xB8\xAD]*[^z]$"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char schema[200];
        snprintf(schema, sizeof schema, "{\"type\":\"string\",\"pattern\":\"%s\"}", patterns[i]);
        mf_grammar *g = compile(d, schema, NULL, 0);
        (void)check_grammar(d, patterns[i], g, 14);
        mf_grammar_free(&g);
    }
}

static void check_formats(const grammar_data *d)
{
    static const char *const formats[] = {"date", "email", "uuid", "uri", "hostname"};
    size_t n_forced = 0;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char schema[200];
        snprintf(schema, sizeof schema, "{\"type\":\"string\",\"format\":\"%s\"}", formats[i]);
        mf_grammar *g = compile(d, schema, NULL, 0);
        n_forced += check_grammar(d, formats[i], g, 14);
        mf_grammar_free(&g);
    }
    CHECK(n_forced > 0);
}

/* Strings of JSON beside other ways, numbers, rules that call themselves; then with so little
 * memory that all is forgotten in the middle of a walk. */
static void check_others(const grammar_data *d)
{
    static const char *const schemas[] = {
        "{\"type\":\"string\",\"maxLength\":9}", "{\"enum\":[\"abc\",\"ab\",7,null]}",
        "{\"type\":[\"string\",\"number\"],\"minLength\":2}",
        "{\"anyOf\":[{\"maxLength\":3},{\"pattern\":\"^[a-z]+$\"}]}", "{\"type\":\"object\"}"};
    static const char *const grammars[] = {
        "root ::= [a-z]{2,7} (\"-\" root)?", "root ::= (\"a\" | \"b\" | [c-z])+ \".\"",
        "root ::= [a-zA-Z0-9]* [^\\x00-\\x7F]{1,3}", "root ::= \"(\" root \")\" | [^()]+"};
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        for (size_t bytes = 0; bytes < 2; bytes++) {
            mf_grammar *g = compile(d, schemas[i], NULL, bytes);
            (void)check_grammar(d, schemas[i], g, 8);
            mf_grammar_free(&g);
        }
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++)
        for (size_t bytes = 0; bytes < 30000; bytes += 29999) {
            mf_grammar *g = compile(d, NULL, grammars[i], bytes);
            (void)check_grammar(d, grammars[i], g, 8);
            mf_grammar_free(&g);
        }
}

int main(void)
{
    grammar_data d = {0};
    open_data(&d);
    check_patterns(&d);
    check_formats(&d);
    check_others(&d);
    grammar_data_close(&d);
    return test_result();
}
