/* SPDX-License-Identifier: MIT */
/*
 * grammar_probe MODEL: a grammar's two sides for tools/check_grammar.py, by commands on standard
 * input, each a line and, where it says so, bytes behind it:
 *   S N            a JSON schema of N bytes                -> "ok", or "no " and the reason
 *   G N            a GBNF grammar of N bytes               -> the same
 *   W SEED LIMIT   a text by random logits within it       -> "= N" and N bytes, or "cut" (LIMIT
 *                  tokens were not enough), or "stuck" and why
 *   T N            is this text of N bytes one of it?      -> "yes", "no" or "no, mask" (where the
 *                  text's tokens are taken but not in the masks, or the other way round)
 */
#include <moeflux/moeflux.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct probe {
    mf_tokenizer *tokenizer;
    mf_vocabulary *vocabulary;
    mf_grammar *grammar;
    size_t n_vocab;
    uint32_t *mask;
    float *logits;
} probe;

static char *read_bytes(size_t n)
{
    char *bytes = malloc(n + 1);
    if (!bytes || fread(bytes, 1, n, stdin) != n)
        exit(2);
    bytes[n] = '\0';
    return bytes;
}

static void compile(probe *p, size_t n, int is_schema)
{
    char *text = read_bytes(n);
    mf_grammar_params params;
    mf_error error = {0};
    mf_grammar_params_default(&params);
    if (is_schema) {
        params.json_schema = text;
        params.n_schema_bytes = n;
    } else {
        params.gbnf = text;
        params.n_gbnf_bytes = n;
    }
    mf_grammar_free(&p->grammar);
    if (mf_grammar_compile(p->vocabulary, &params, &p->grammar, &error) == MF_OK)
        puts("ok");
    else
        printf("no %s\n", error.message);
    free(text);
}

static float next_logit(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return (float)((double)(x * UINT64_C(2685821657736338717) >> 40) * 0x1p-24 * 12.0);
}

/* Texts grow until they are made to end: the longer they are, the likelier is what closes. */
static void fill_logits(probe *p, uint64_t *state, size_t n_taken)
{
    for (size_t i = 0; i < p->n_vocab; i++) {
        size_t n = 0;
        const char *piece = mf_tokenizer_piece(p->tokenizer, (int32_t)i, &n);
        p->logits[i] = next_logit(state);
        if (n_taken > 60 &&
            (mf_tokenizer_is_end(p->tokenizer, (int32_t)i) || (n == 1 && strchr("\"]}0", *piece))))
            p->logits[i] += (float)(n_taken - 60) / 4.0f;
    }
}

static void write_text(probe *p, uint64_t seed, size_t limit)
{
    mf_guide *guide = NULL;
    mf_sampler *sampler = NULL;
    mf_sampler_options options;
    mf_error error = {0};
    size_t n_text = 0;
    char *text = malloc(limit * 1024 + 1);
    uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    mf_sampler_options_default(&options);
    options.seed = seed;
    if (!text || mf_guide_create(p->grammar, &guide, &error) != MF_OK ||
        mf_sampler_create(&options, p->n_vocab, NULL, &sampler, &error) != MF_OK)
        exit(2);
    const char *end = "cut";
    for (size_t i = 0; i < limit; i++) {
        size_t n = 0;
        if (mf_guide_mask(guide, p->mask, p->n_vocab, NULL, &error) != MF_OK) {
            end = "stuck";
            break;
        }
        fill_logits(p, &state, i);
        int32_t token = mf_sampler_sample_masked(sampler, p->logits, p->mask);
        if (mf_tokenizer_is_end(p->tokenizer, token)) {
            end = mf_guide_may_end(guide) ? "=" : "stuck";
            break;
        }
        if (mf_guide_accept(guide, token, &error) != MF_OK) {
            end = "stuck";
            break;
        }
        const char *piece = mf_tokenizer_piece(p->tokenizer, token, &n);
        memcpy(text + n_text, piece, n);
        n_text += n;
    }
    if (*end == '=') {
        printf("= %zu\n", n_text);
        fwrite(text, 1, n_text, stdout);
    } else {
        printf("%s %s\n", end, *end == 's' ? error.message : "");
    }
    mf_sampler_free(&sampler);
    mf_guide_free(&guide);
    free(text);
}

static void try_text(probe *p, size_t n_bytes)
{
    char *text = read_bytes(n_bytes);
    int32_t *tokens = malloc((n_bytes + 1) * sizeof *tokens);
    mf_guide *guide = NULL;
    mf_error error = {0};
    size_t n = 0;
    if (!tokens || mf_guide_create(p->grammar, &guide, &error) != MF_OK ||
        mf_tokenizer_encode(p->tokenizer, text, n_bytes, 0, tokens, n_bytes, &n, &error) != MF_OK)
        exit(2);
    int is_good = 1, agrees = 1;
    for (size_t i = 0; i < n && is_good; i++) {
        agrees = agrees && mf_guide_mask(guide, p->mask, p->n_vocab, NULL, &error) == MF_OK;
        const int is_set = (int)(p->mask[tokens[i] / 32] >> tokens[i] % 32 & 1);
        is_good = mf_guide_accept(guide, tokens[i], &error) == MF_OK;
        agrees = agrees && is_good == is_set;
    }
    is_good = is_good && mf_guide_may_end(guide);
    puts(!agrees ? "no, mask" : is_good ? "yes" : "no");
    mf_guide_free(&guide);
    free(tokens);
    free(text);
}

static void serve(probe *p)
{
    char line[128];
    while (fgets(line, sizeof line, stdin)) {
        const char command = line[0];
        char *end = line;
        const uint64_t a = command != '\0' ? strtoull(line + 1, &end, 10) : 0;
        if (end <= line + 1)
            exit(2);
        const uint64_t b = strtoull(end, NULL, 10);
        if (command == 'S' || command == 'G')
            compile(p, (size_t)a, command == 'S');
        else if (command == 'W' && p->grammar)
            write_text(p, a, (size_t)b);
        else if (command == 'T' && p->grammar)
            try_text(p, (size_t)a);
        else
            exit(2);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    probe p = {0};
    mf_error error = {0};
    if (argc != 2)
        return 2;
    if (mf_tokenizer_open(argv[1], NULL, &p.tokenizer, &error) != MF_OK ||
        mf_vocabulary_create(p.tokenizer, NULL, &p.vocabulary, &error) != MF_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    p.n_vocab = mf_tokenizer_n_vocab(p.tokenizer);
    p.mask = calloc((p.n_vocab + 31) / 32, sizeof *p.mask);
    p.logits = calloc(p.n_vocab, sizeof *p.logits);
    if (p.mask && p.logits)
        serve(&p);
    const int code = p.mask && p.logits ? 0 : 1;
    free(p.mask);
    free(p.logits);
    mf_grammar_free(&p.grammar);
    mf_vocabulary_free(&p.vocabulary);
    mf_tokenizer_free(&p.tokenizer);
    return code;
}
