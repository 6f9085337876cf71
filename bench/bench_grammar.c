/* SPDX-License-Identifier: MIT */
/*
 * bench_grammar [TEXT [N_TOKENS]]: the time of a mask at a large vocabulary. The vocabulary is made
 * of TEXT (models/demo/heldout.txt): all bytes, pieces of words, words, pairs of words, and what
 * JSON has between them, up to N_TOKENS (250,000) tokens. Texts are written by random choice among
 * what the masks allow; each mask is timed, with a new grammar for each text (cold) and with one
 * for all.
 */
#include <moeflux/moeflux.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_TEXT ((size_t)8 << 20)
#define N_TEXTS 12
#define MAX_STEPS 400

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* -------------------------------------------------------------------------------- vocabulary -- */

typedef struct words {
    char **items;
    size_t n, most;
    size_t *slots; /* of twice as many: index + 1, or 0 */
    size_t n_slots;
} words;

static size_t hash(const char *bytes, size_t n)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)bytes[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

/* The first byte of an item is its length. */
static void add(words *w, const char *bytes, size_t n)
{
    if (n == 0 || n > 60 || w->n == w->most)
        return;
    size_t at = hash(bytes, n) % w->n_slots;
    for (; w->slots[at] != 0; at = (at + 1) % w->n_slots) {
        const char *item = w->items[w->slots[at] - 1];
        if ((size_t)item[0] == n && memcmp(item + 1, bytes, n) == 0)
            return;
    }
    char *item = malloc(n + 1);
    if (!item)
        exit(1);
    item[0] = (char)n;
    memcpy(item + 1, bytes, n);
    w->items[w->n++] = item;
    w->slots[at] = w->n;
}

static void add_json(words *w)
{
    static const char *const parts[] = {"\"", "\":", "\",",  "{",    "}",    "[",   "]",
                                        ":",  ",",   " ",    "\n",   "  ",   "\\n", "\\\"",
                                        "0",  "1",   "null", "true", "false"};
    const size_t n = sizeof parts / sizeof *parts;
    char both[64];
    for (size_t i = 0; i < n * n * n; i++)
        add(w, both,
            (size_t)snprintf(both, sizeof both, "%s%s%s", parts[i % n], parts[i / n % n],
                             parts[i / n / n]));
}

static void fill(words *w, const char *text, size_t n_text)
{
    for (int c = 0; c < 256; c++) {
        const char byte = (char)c;
        add(w, &byte, 1);
    }
    add_json(w);
    for (size_t length = 2; length <= 8; length++) /* pieces that cross no word's end */
        for (size_t i = 1; i + length < n_text; i++)
            if (!memchr(text + i + 1, ' ', length - 1) && !memchr(text + i, '\n', length))
                add(w, text + i, length);
    for (size_t tries = 0; w->n < w->most && tries < 100 * w->most; tries++) {
        char both[64];
        const size_t a = next_random() % (n_text - 8), b = next_random() % (n_text - 8);
        const size_t n_a = 2 + next_random() % 5, n_b = 2 + next_random() % 5;
        memcpy(both, text + a, n_a);
        memcpy(both + n_a, text + b, n_b);
        if (!memchr(both + 1, ' ', n_a + n_b - 1) && !memchr(both, '\n', n_a + n_b))
            add(w, both, n_a + n_b);
    }
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

static mf_tokenizer *make_tokenizer(const char *path, size_t n_tokens)
{
    char dir[] = "/tmp/bench_grammar.XXXXXX", file[64];
    mf_tokenizer *tokenizer = NULL;
    mf_error error = {0};
    words w = {.items = calloc(n_tokens, sizeof *w.items),
               .most = n_tokens,
               .slots = calloc(2 * n_tokens, sizeof *w.slots),
               .n_slots = 2 * n_tokens};
    char *text = malloc(MAX_TEXT);
    FILE *in = fopen(path, "rb");
    if (!w.items || !w.slots || !text || !in || !mkdtemp(dir))
        return NULL;
    fill(&w, text, fread(text, 1, MAX_TEXT, in));
    fclose(in);
    free(text);
    snprintf(file, sizeof file, "%s/tiktoken.model", dir);
    FILE *out = fopen(file, "wb");
    if (!out)
        return NULL;
    for (size_t i = 0; i < w.n; i++) {
        put_base64(out, (unsigned char *)w.items[i] + 1, (size_t)w.items[i][0]);
        fprintf(out, " %zu\n", i);
        free(w.items[i]);
    }
    fclose(out);
    if (mf_tokenizer_open(dir, NULL, &tokenizer, &error) != MF_OK)
        fprintf(stderr, "%s\n", error.message);
    unlink(file);
    rmdir(dir);
    free(w.items);
    free(w.slots);
    return tokenizer;
}

/* ------------------------------------------------------------------------------------- times -- */

static const struct {
    const char *name, *schema;
} cases[] = {
    {"any object", NULL},
    {"strings, counted",
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":5,\"maxLength\":40}}"},
    {"a form",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
     "\"integer\",\"minimum\":0,\"maximum\":150},\"born\":{\"type\":\"string\",\"format\":"
     "\"date\"},\"mail\":{\"type\":\"string\",\"format\":\"email\"},\"tags\":{\"type\":"
     "\"array\",\"items\":{\"enum\":[\"red\",\"green\",\"blue\"]},\"maxItems\":9},\"note\":"
     "{\"type\":\"string\",\"maxLength\":300}},\"required\":[\"name\",\"age\",\"born\","
     "\"mail\",\"tags\",\"note\"],\"additionalProperties\":false}"},
    {"a tree",
     "{\"type\":\"object\",\"properties\":{\"word\":{\"type\":\"string\",\"pattern\":\"^[a-z]"
     "{1,20}$\"},\"next\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"maxItems\":3}},"
     "\"required\":[\"word\",\"next\"],\"additionalProperties\":false}"},
};

typedef struct times {
    double *us;
    size_t n;
} times;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report(const char *name, const char *how, times *t)
{
    qsort(t->us, t->n, sizeof *t->us, compare);
    if (t->n > 0)
        printf("%-18s %-6s %6zu masks  p50 %8.1f  p90 %8.1f  p99 %8.1f  max %8.1f us\n", name, how,
               t->n, t->us[t->n / 2], t->us[t->n * 9 / 10], t->us[t->n * 99 / 100],
               t->us[t->n - 1]);
    t->n = 0;
}

/* One of the tokens that are allowed, or -1. */
static int32_t pick(const uint32_t *mask, size_t n)
{
    const size_t begin = next_random() % n;
    for (size_t i = 0; i < n; i++) {
        const size_t token = (begin + i) % n;
        if (mask[token / 32] >> token % 32 & 1)
            return (int32_t)token;
    }
    return -1;
}

static void write_text(mf_grammar *grammar, uint32_t *mask, size_t n_vocab, times *t)
{
    mf_guide *guide = NULL;
    if (mf_guide_create(grammar, &guide, NULL) != MF_OK)
        exit(1);
    for (size_t i = 0; i < MAX_STEPS; i++) {
        const double before = now_us();
        if (mf_guide_mask(guide, mask, n_vocab, NULL, NULL) != MF_OK)
            break;
        t->us[t->n++] = now_us() - before;
        const int32_t token = pick(mask, n_vocab);
        if (token < 0 || mf_guide_accept(guide, token, NULL) != MF_OK || mf_guide_is_done(guide))
            break;
    }
    mf_guide_free(&guide);
}

static mf_grammar *compile(mf_vocabulary *v, const char *schema)
{
    mf_grammar *grammar = NULL;
    mf_grammar_params params;
    mf_error error = {0};
    mf_grammar_params_default(&params);
    params.json_schema = schema;
    params.n_schema_bytes = schema ? strlen(schema) : 0;
    params.json_object = schema == NULL;
    if (mf_grammar_compile(v, &params, &grammar, &error) != MF_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return grammar;
}

static void measure(mf_vocabulary *v, size_t n_vocab, size_t i, times *t)
{
    uint32_t *mask = calloc((n_vocab + 31) / 32, sizeof *mask);
    if (!mask)
        exit(1);
    for (int k = 0; k < N_TEXTS; k++) {
        mf_grammar *grammar = compile(v, cases[i].schema);
        write_text(grammar, mask, n_vocab, t);
        mf_grammar_free(&grammar);
    }
    report(cases[i].name, "cold", t);
    mf_grammar *grammar = compile(v, cases[i].schema);
    for (int k = 0; k < N_TEXTS; k++)
        write_text(grammar, mask, n_vocab, t);
    report(cases[i].name, "kept", t);
    mf_grammar_free(&grammar);
    free(mask);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "models/demo/heldout.txt";
    const size_t n_tokens = argc > 2 ? strtoul(argv[2], NULL, 10) : 250000;
    mf_vocabulary *v = NULL;
    mf_error error = {0};
    times t = {calloc((size_t)N_TEXTS * MAX_STEPS, sizeof(double)), 0};
    mf_tokenizer *tokenizer = n_tokens < 1000 ? NULL : make_tokenizer(path, n_tokens);
    if (!tokenizer || !t.us) {
        fprintf(stderr, "%s: no vocabulary could be made of it\n", path);
        return 1;
    }
    const size_t n_bytes = mallinfo2().uordblks + mallinfo2().hblkhd;
    const double before = now_us();
    if (mf_vocabulary_create(tokenizer, NULL, &v, &error) != MF_OK)
        return 1;
    const size_t n_vocab = mf_tokenizer_n_vocab(tokenizer);
    printf("%zu tokens; the tree of tokens took %.0f ms and %.1f MB\n", n_vocab,
           (now_us() - before) * 1e-3,
           (double)(mallinfo2().uordblks + mallinfo2().hblkhd - n_bytes) * 1e-6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        measure(v, n_vocab, i, &t);
    mf_vocabulary_free(&v);
    mf_tokenizer_free(&tokenizer);
    free(t.us);
    return 0;
}
