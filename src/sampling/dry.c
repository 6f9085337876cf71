/* SPDX-License-Identifier: MIT */
/* Repetitions are found by the Z-algorithm on the sequence read backwards: in linear time. */
#include "sampling/dry.h"

#include <string.h>

/* Enough for any token, and still a number after a low temperature. */
#define MAX_PENALTY 1e30

/* Does a breaker stand in a token's text? Looked for when it is first asked. */
typedef enum token_kind { KIND_UNKNOWN, KIND_PLAIN, KIND_BREAKER } token_kind;

struct mf_dry {
    mf_allocator allocator;
    double multiplier, base;
    size_t allowed_length, n_vocab;

    char *breakers; /* each with its NUL */
    size_t breaker_bytes, n_breakers, longest;
    unsigned char *kinds; /* [n_vocab] of token_kind */
    const mf_tokenizer *tokenizer;
    char *tail; /* [2 * longest] the last bytes of the text, then the next ones */
    size_t n_tail;

    int32_t *tokens; /* [2 * capacity] the newest at the end; moved down when it is full */
    size_t capacity, n_tokens;
    size_t n_open;        /* tokens after the last breaker */
    uint32_t *common;     /* [capacity] */
    uint32_t *n_repeated; /* [n_vocab] repetition that the token would go on with; 0: none */
    int32_t *touched;     /* [capacity] the tokens that have one */
    size_t n_touched;
    float *penalties; /* [n_vocab] */
    bool is_current;  /* they are of the sequence as it is */
};

/* ---------------------------------------------------------------------------------- breakers -- */

/* The text of a token; NULL, and 0 bytes, for one that has none. */
static const char *piece_of(const mf_dry *d, int32_t token, size_t *n_bytes)
{
    *n_bytes = 0;
    return d->tokenizer != NULL ? mf_tokenizer_piece(d->tokenizer, token, n_bytes) : NULL;
}

/* Does any of them stand in the text? Or, where its first n_old bytes were searched before, does
 * one that begins there end behind them? */
static bool has_breaker(const mf_dry *d, const char *text, size_t n_old, size_t n_bytes)
{
    const char *breaker = d->breakers;
    for (size_t i = 0; i < d->n_breakers; i++) {
        size_t n = strlen(breaker), first = n_old > n - 1 ? n_old - (n - 1) : 0;
        if (memmem(text + first, n_bytes - first, breaker, n) != NULL)
            return true;
        breaker += n + 1;
    }
    return false;
}

static mf_status create_breakers(mf_dry *d, const mf_sampler_options *o, mf_error *error)
{
    for (size_t i = 0; i < o->n_dry_breakers; i++) {
        size_t n = strlen(o->dry_breakers[i]);
        d->breaker_bytes += n + 1;
        d->longest = n > d->longest ? n : d->longest;
    }
    d->n_breakers = o->n_dry_breakers;
    d->breakers = mf_alloc_array(&d->allocator, d->breaker_bytes, 1);
    d->kinds = mf_alloc_array(&d->allocator, d->n_vocab, 1);
    d->tail = mf_alloc_array(&d->allocator, 2 * d->longest, 1);
    if (d->breakers == NULL || d->kinds == NULL || d->tail == NULL)
        return mf_fail_memory(error, d->breaker_bytes + d->n_vocab, "a sampler's breakers");
    char *out = d->breakers;
    for (size_t i = 0; i < o->n_dry_breakers; i++) {
        size_t n = strlen(o->dry_breakers[i]) + 1;
        memcpy(out, o->dry_breakers[i], n);
        out += n;
    }
    return MF_OK;
}

static bool is_breaker(mf_dry *d, int32_t token)
{
    size_t n = 0;
    if (d->n_breakers == 0)
        return false;
    if (d->kinds[token] == KIND_UNKNOWN) {
        const char *piece = piece_of(d, token, &n);
        bool has_one = piece != NULL && has_breaker(d, piece, 0, n);
        d->kinds[token] = has_one ? KIND_BREAKER : KIND_PLAIN;
    }
    return d->kinds[token] == KIND_BREAKER;
}

/* Does a breaker end in this token, be it that it begins before it? */
static bool ends_breaker(mf_dry *d, int32_t token)
{
    size_t n_piece = 0, n_most = d->longest - 1;
    const char *piece = piece_of(d, token, &n_piece);
    if (n_piece == 0)
        return false;
    size_t n = n_piece < n_most ? n_piece : n_most;
    memcpy(d->tail + d->n_tail, piece, n);
    bool is_found = is_breaker(d, token) || has_breaker(d, d->tail, d->n_tail, d->n_tail + n);
    if (n_piece >= n_most) { /* its own last bytes are the new tail */
        memcpy(d->tail, piece + n_piece - n_most, n_most);
        d->n_tail = n_most;
        return is_found;
    }
    size_t n_all = d->n_tail + n, n_kept = n_all < n_most ? n_all : n_most;
    memmove(d->tail, d->tail + n_all - n_kept, n_kept);
    d->n_tail = n_kept;
    return is_found;
}

/* ------------------------------------------------------------------------------------ handle -- */

mf_status mf_dry_create(const mf_sampler_options *o, size_t n_vocab, const mf_allocator *a,
                        mf_dry **out, mf_error *error)
{
    mf_dry *d = mf_alloc_zeroed(a, sizeof *d);
    if (d == NULL)
        return mf_fail_memory(error, sizeof *d, "a sampler");
    *d = (mf_dry){.allocator = *a,
                  .multiplier = (double)o->dry_multiplier,
                  .base = (double)o->dry_base,
                  .allowed_length = o->dry_allowed_length,
                  .n_vocab = n_vocab,
                  .capacity = o->dry_n_tokens,
                  .tokenizer = o->tokenizer};
    d->tokens = mf_alloc_array(a, 2 * d->capacity, sizeof *d->tokens);
    d->common = mf_alloc_array(a, d->capacity, sizeof *d->common);
    d->touched = mf_alloc_array(a, d->capacity, sizeof *d->touched);
    d->n_repeated = mf_alloc_array(a, n_vocab, sizeof *d->n_repeated);
    d->penalties = mf_alloc_array(a, n_vocab, sizeof *d->penalties);
    mf_status status = MF_OK;
    if (d->tokens == NULL || d->common == NULL || d->touched == NULL || d->n_repeated == NULL ||
        d->penalties == NULL)
        status = mf_fail_memory(error, 4 * d->capacity * sizeof *d->tokens, "a sampler's tokens");
    if (status == MF_OK && o->n_dry_breakers > 0)
        status = create_breakers(d, o, error);
    if (status != MF_OK)
        mf_dry_free(&d);
    else
        *out = d;
    return status;
}

void mf_dry_free(mf_dry **dry)
{
    if (*dry == NULL)
        return;
    mf_dry *d = *dry;
    const mf_allocator a = d->allocator;
    *dry = NULL;
    mf_free(&a, d->tokens, 2 * d->capacity * sizeof *d->tokens);
    mf_free(&a, d->common, d->capacity * sizeof *d->common);
    mf_free(&a, d->touched, d->capacity * sizeof *d->touched);
    mf_free(&a, d->n_repeated, d->n_vocab * sizeof *d->n_repeated);
    mf_free(&a, d->penalties, d->n_vocab * sizeof *d->penalties);
    mf_free(&a, d->breakers, d->breaker_bytes);
    mf_free(&a, d->kinds, d->n_vocab);
    mf_free(&a, d->tail, 2 * d->longest);
    mf_free(&a, d, sizeof *d);
}

void mf_dry_accept(mf_dry *d, int32_t token)
{
    if (d->n_tokens == 2 * d->capacity) {
        d->n_tokens = d->capacity;
        memmove(d->tokens, d->tokens + d->capacity, d->capacity * sizeof *d->tokens);
    }
    d->tokens[d->n_tokens++] = token;
    d->n_open++;
    if (d->n_breakers > 0 && ends_breaker(d, token))
        d->n_open = 0;
    d->is_current = false;
}

void mf_dry_forget(mf_dry *d)
{
    d->n_tokens = d->n_open = d->n_tail = 0;
    d->is_current = false;
}

/* --------------------------------------------------------------------------------- penalties -- */

/* common[k]: how many of the last tokens are also those that end k places earlier. newest: the last
 * of n tokens. */
static void find_common(const int32_t *newest, size_t n, uint32_t *common)
{
    size_t begin = 0, end = 0; /* the furthest stretch found: [begin, end) is [0, end - begin) */
    common[0] = (uint32_t)n;
    for (size_t k = 1; k < n; k++) {
        size_t length = 0;
        if (k < end)
            length = common[k - begin] < end - k ? common[k - begin] : end - k;
        while (k + length < n && newest[-(ptrdiff_t)length] == newest[-(ptrdiff_t)(k + length)])
            length++;
        common[k] = (uint32_t)length;
        if (k + length > end) {
            begin = k;
            end = k + length;
        }
    }
}

/* By squaring, which gives the same bits everywhere. */
static float penalty_of(const mf_dry *d, size_t n_repeated)
{
    double power = 1.0, square = d->base;
    for (size_t e = n_repeated - d->allowed_length; e > 0; e >>= 1) {
        if (e & 1)
            power *= square;
        square *= square;
    }
    double penalty = d->multiplier * power;
    return (float)(penalty < MAX_PENALTY ? penalty : MAX_PENALTY);
}

static void note_repetition(mf_dry *d, int32_t token, size_t n_repeated)
{
    if (d->n_repeated[token] == 0)
        d->touched[d->n_touched++] = token;
    if (n_repeated > d->n_repeated[token])
        d->n_repeated[token] = (uint32_t)n_repeated;
}

const float *mf_dry_penalties(mf_dry *d)
{
    if (d->is_current)
        return d->penalties;
    for (size_t i = 0; i < d->n_touched; i++) {
        d->penalties[d->touched[i]] = 0.0f;
        d->n_repeated[d->touched[i]] = 0;
    }
    d->n_touched = 0;
    d->is_current = true;
    size_t n = d->n_tokens < d->capacity ? d->n_tokens : d->capacity;
    size_t n_open = d->n_open < n ? d->n_open : n;
    if (n_open < d->allowed_length)
        return d->penalties;
    const int32_t *newest = d->tokens + d->n_tokens - 1;
    find_common(newest, n, d->common);
    for (size_t k = 1; k < n; k++) {
        size_t n_repeated = d->common[k] < n_open ? d->common[k] : n_open;
        if (n_repeated >= d->allowed_length)
            note_repetition(d, newest[1 - (ptrdiff_t)k], n_repeated);
    }
    for (size_t i = 0; i < d->n_touched; i++)
        if (!is_breaker(d, d->touched[i]))
            d->penalties[d->touched[i]] = penalty_of(d, d->n_repeated[d->touched[i]]);
    return d->penalties;
}
