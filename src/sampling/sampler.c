/* SPDX-License-Identifier: MIT */
/*
 * The sampler. Random numbers come from xoshiro256** (Blackman and Vigna), seeded through
 * splitmix64, and the exponential is computed here with plain double arithmetic, so that a seed
 * gives the same tokens wherever IEEE arithmetic is used. NaN and -inf logits are never drawn while
 * there is another.
 */
#include "sampling/sampler.h"

#include "base/sized.h"
#include "sampling/dry.h"

#include <math.h>
#include <string.h>

/* Logits that are compared side by side; so many blocks of them are looked at as a whole. */
#define LANES 16u
#define BLOCK ((size_t)4 * LANES)
/* A top-k up to this is found while candidates are collected. */
#define MAX_TOP_K 256u
/* Below this a temperature would make infinities of logits, of which none is above another. Here
 * all that is not the highest is without weight already. */
#define MIN_DIVISOR 1e-30f

struct mf_sampler {
    mf_allocator allocator;
    mf_sampler_options options;
    size_t n_vocab;
    mf_candidate *candidates;   /* [n_vocab] */
    unsigned char *is_accepted; /* [n_vocab] */
    uint32_t *n_answered;       /* [n_vocab], how often in the answer; NULL: nothing asks */
    float *biases;              /* [n_vocab]; NULL: none */
    mf_dry *dry;                /* NULL: off */
    const float *dry_penalties; /* [n_vocab], of this token's place; NULL: off */
    const uint32_t *allowed;    /* of the sample that is being taken: a bit a token; NULL: all */
    bool can_raise;             /* a score may be above its logit and bias */
    float *highest_biases;      /* [n_blocks], of each block; NULL: none */
    float *bounds;              /* [n_blocks]: no score is above its block's */
    float divisor;              /* temperature as far as it matters, or 1 */
    bool has_bounds, skips;     /* of the sample that is being taken; skips: blocks, if need be */
    uint64_t random[4];
};

/* ---------------------------------------------------------------------------- random numbers -- */

static uint64_t rotate_left(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void seed_random(uint64_t state[4], uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        state[i] = z ^ z >> 31;
    }
}

/* Uniform in [0, 1): the upper 53 bits. */
static double next_random(uint64_t s[4])
{
    uint64_t result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return (double)(result >> 11) * 0x1p-53;
}

/* ------------------------------------------------------------------------------------ handle -- */

static size_t n_blocks(const mf_sampler *s)
{
    return (s->n_vocab + MF_LOGITS_BLOCK - 1) / MF_LOGITS_BLOCK;
}

static size_t block_end(const mf_sampler *s, size_t block)
{
    const size_t end = (block + 1) * MF_LOGITS_BLOCK;
    return end < s->n_vocab ? end : s->n_vocab;
}

static mf_status create_block_biases(mf_sampler *s, mf_error *error)
{
    s->highest_biases = mf_alloc_array(&s->allocator, n_blocks(s), sizeof *s->highest_biases);
    if (s->highest_biases == NULL)
        return mf_fail_memory(error, n_blocks(s) * sizeof *s->highest_biases, "a sampler");
    for (size_t b = 0; b < n_blocks(s); b++) {
        s->highest_biases[b] = -INFINITY;
        for (size_t i = b * MF_LOGITS_BLOCK; i < block_end(s, b); i++)
            s->highest_biases[b] = fmaxf(s->highest_biases[b], s->biases[i]);
    }
    return MF_OK;
}

/* What only some samplers have. */
static mf_status create_extras(mf_sampler *s, mf_error *error)
{
    const mf_sampler_options *o = &s->options;
    if (o->presence_penalty != 0.0f || o->frequency_penalty != 0.0f) {
        s->n_answered = mf_alloc_array(&s->allocator, s->n_vocab, sizeof *s->n_answered);
        if (s->n_answered == NULL)
            return mf_fail_memory(error, s->n_vocab * sizeof *s->n_answered, "a sampler");
    }
    if (o->dry_multiplier > 0.0f)
        MF_TRY(mf_dry_create(o, s->n_vocab, &s->allocator, &s->dry, error));
    if (o->n_biases == 0)
        return MF_OK;
    s->biases = mf_alloc_array(&s->allocator, s->n_vocab, sizeof *s->biases);
    if (s->biases == NULL)
        return mf_fail_memory(error, s->n_vocab * sizeof *s->biases, "a sampler");
    for (size_t i = 0; i < o->n_biases; i++) {
        if (o->biases[i].token < 0 || (size_t)o->biases[i].token >= s->n_vocab)
            return mf_fail(error, MF_ERR_ARGUMENT, "logit bias of token %ld: expected 0 to %zu",
                           (long)o->biases[i].token, s->n_vocab - 1);
        s->biases[o->biases[i].token] = o->biases[i].bias;
    }
    return create_block_biases(s, error);
}

mf_status mf_sampler_create(const mf_sampler_options *options, size_t n_vocab,
                            const mf_allocator *allocator, mf_sampler **out, mf_error *error)
{
    if (options == NULL || out == NULL || n_vocab == 0 || n_vocab > INT32_MAX)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_sampler_create: a NULL argument or a vocabulary of %zu", n_vocab);
    mf_sampler_options given;
    mf_sampler_options_default(&given);
    MF_TRY(mf_sized_get(&given, sizeof given, options, "mf_sampler_options", error));
    MF_TRY(mf_sampler_options_check(&given, error));
    const mf_allocator a = mf_allocator_or_default(allocator);
    mf_sampler *s = mf_alloc_zeroed(&a, sizeof *s);
    if (s == NULL)
        return mf_fail_memory(error, sizeof *s, "a sampler");
    s->allocator = a;
    s->options = given;
    s->n_vocab = n_vocab;
    s->divisor = given.temperature > 0.0f ? fmaxf(given.temperature, MIN_DIVISOR) : 1.0f;
    s->can_raise = given.repetition_penalty < 1.0f || given.presence_penalty < 0.0f ||
                   given.frequency_penalty < 0.0f;
    s->candidates = mf_alloc_array(&a, n_vocab, sizeof *s->candidates);
    s->is_accepted = mf_alloc_array(&a, n_vocab, 1);
    s->bounds = mf_alloc_array(&a, n_blocks(s), sizeof *s->bounds);
    if (s->candidates == NULL || s->is_accepted == NULL || s->bounds == NULL) {
        mf_sampler_free(&s);
        return mf_fail_memory(error, n_vocab * sizeof *s->candidates, "a sampler");
    }
    mf_status status = create_extras(s, error);
    s->options.biases = NULL; /* the caller's, as these */
    s->options.dry_breakers = NULL;
    if (status != MF_OK) {
        mf_sampler_free(&s);
        return status;
    }
    seed_random(s->random, given.seed);
    *out = s;
    return MF_OK;
}

void mf_sampler_free(mf_sampler **sampler)
{
    if (sampler == NULL || *sampler == NULL)
        return;
    mf_sampler *s = *sampler;
    *sampler = NULL;
    mf_allocator a = s->allocator;
    mf_free(&a, s->candidates, s->n_vocab * sizeof *s->candidates);
    mf_free(&a, s->is_accepted, s->n_vocab);
    mf_free(&a, s->n_answered, s->n_vocab * sizeof *s->n_answered);
    mf_free(&a, s->biases, s->n_vocab * sizeof *s->biases);
    mf_free(&a, s->highest_biases, n_blocks(s) * sizeof *s->highest_biases);
    mf_free(&a, s->bounds, n_blocks(s) * sizeof *s->bounds);
    mf_dry_free(&s->dry);
    mf_free(&a, s, sizeof *s);
}

void mf_sampler_accept(mf_sampler *s, int32_t token)
{
    if (token < 0 || (size_t)token >= s->n_vocab)
        return;
    s->is_accepted[token] = 1;
    if (s->n_answered != NULL)
        s->n_answered[token]++;
    if (s->dry != NULL)
        mf_dry_accept(s->dry, token);
}

void mf_sampler_accept_prompt(mf_sampler *s, const int32_t *tokens, size_t n_tokens)
{
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || (size_t)tokens[i] >= s->n_vocab)
            continue;
        s->is_accepted[tokens[i]] = 1;
        if (s->dry != NULL)
            mf_dry_accept(s->dry, tokens[i]);
    }
}

void mf_sampler_forget(mf_sampler *s)
{
    memset(s->is_accepted, 0, s->n_vocab);
    if (s->n_answered != NULL)
        memset(s->n_answered, 0, s->n_vocab * sizeof *s->n_answered);
    if (s->dry != NULL)
        mf_dry_forget(s->dry);
}

void mf_sampler_reset(mf_sampler *s)
{
    mf_sampler_forget(s);
    seed_random(s->random, s->options.seed);
}

/* ----------------------------------------------------------------------------------- filters -- */

/* exp(x) = 2^k exp(r), |r| <= ln 2 / 2, by its series to r^13 (relative error below 1e-15). Without
 * divisions, calls and branches within: a vocabulary of these is summed up for a token. What is
 * added to round to a whole number has that number in its lowest bits. */
static inline double weight_of(double x)
{
    static const double terms[] = {1.0 / 6227020800.0,
                                   1.0 / 479001600.0,
                                   1.0 / 39916800.0,
                                   1.0 / 3628800.0,
                                   1.0 / 362880.0,
                                   1.0 / 40320.0,
                                   1.0 / 5040.0,
                                   1.0 / 720.0,
                                   1.0 / 120.0,
                                   1.0 / 24.0,
                                   1.0 / 6.0,
                                   0.5,
                                   1.0,
                                   1.0};
    const double limited = x > -700.0 ? x : -700.0; /* NaN, too */
    const double rounded = limited * 1.4426950408889634 + 0x1.8p52, k = rounded - 0x1.8p52;
    const double r =
        (limited - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33; /* ln 2 in two parts */
    double sum = terms[0], power;
    for (size_t i = 1; i < sizeof terms / sizeof *terms; i++)
        sum = terms[i] + sum * r;
    uint64_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    bits = (bits + 1023) << 52;
    memcpy(&power, &bits, sizeof power);
    return x > -700.0 ? sum * power : 0.0;
}

double mf_sampler_weight(double x)
{
    return weight_of(x);
}

static bool is_allowed(const mf_sampler *s, size_t token)
{
    return s->allowed == NULL || (s->allowed[token / 32] >> token % 32 & 1) != 0;
}

/* What is drawn where no logit is a number: the first token that may be. */
static int32_t first_allowed(const mf_sampler *s)
{
    for (size_t i = 0; i < s->n_vocab; i++)
        if (is_allowed(s, i))
            return (int32_t)i;
    return 0;
}

static float penalised(const mf_sampler *s, size_t token, float logit)
{
    float penalty = s->options.repetition_penalty;
    if (s->biases != NULL)
        logit += s->biases[token];
    if (penalty != 1.0f && s->is_accepted[token])
        logit = logit < 0.0f ? logit * penalty : logit / penalty;
    if (s->n_answered != NULL && s->n_answered[token] > 0)
        logit -= s->options.presence_penalty +
                 s->options.frequency_penalty * (float)s->n_answered[token];
    if (s->dry_penalties != NULL)
        logit -= s->dry_penalties[token];
    return logit;
}

static float score_of(const mf_sampler *s, size_t token, float logit)
{
    return penalised(s, token, logit) / s->divisor;
}

/* What is looked at is the model's logits, but for biases. */
static bool is_plain(const mf_sampler *s)
{
    return s->allowed == NULL && s->options.repetition_penalty == 1.0f && s->n_answered == NULL &&
           s->dry == NULL;
}

/* The highest of n, of which LANES lie side by side in biases as well (NULL: none); -INFINITY where
 * none is a number. */
static float highest_in(const float *logits, const float *biases, size_t n)
{
    float lanes[LANES];
    for (size_t k = 0; k < LANES; k++)
        lanes[k] = -INFINITY;
    for (size_t i = 0; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            const float x = biases != NULL ? logits[i + k] + biases[i + k] : logits[i + k];
            lanes[k] = x > lanes[k] ? x : lanes[k];
        }
    for (size_t i = n - n % LANES; i < n; i++) {
        const float x = biases != NULL ? logits[i] + biases[i] : logits[i];
        lanes[0] = x > lanes[0] ? x : lanes[0];
    }
    for (size_t k = 1; k < LANES; k++)
        lanes[0] = lanes[k] > lanes[0] ? lanes[k] : lanes[0];
    return lanes[0];
}

/* Rounding keeps the order: a score that is not above its block's bound in the mathematics is not
 * above it here. */
void mf_sampler_take_bounds(mf_sampler *s, const float *bounds)
{
    s->skips = !s->can_raise;
    s->has_bounds = bounds != NULL && s->skips;
    for (size_t b = 0; b < n_blocks(s) && s->has_bounds; b++) {
        const float most = s->highest_biases != NULL ? bounds[b] + s->highest_biases[b] : bounds[b];
        s->bounds[b] = most / s->divisor;
    }
}

/* At multiples of BLOCK: the next from `at` on from where a score may be `least` or more; elsewhere
 * `at`. */
static size_t skip_below(const mf_sampler *s, const float *logits, size_t at, float least)
{
    while (at % BLOCK == 0 && at < s->n_vocab && s->skips) {
        const size_t n = s->n_vocab - at < BLOCK ? s->n_vocab - at : BLOCK;
        if (s->has_bounds && at % MF_LOGITS_BLOCK == 0 && s->bounds[at / MF_LOGITS_BLOCK] < least) {
            at = block_end(s, at / MF_LOGITS_BLOCK);
            continue;
        }
        const float most = highest_in(logits + at, s->biases != NULL ? s->biases + at : NULL, n);
        if (!(most / s->divisor < least))
            break;
        at += n;
    }
    return at;
}

/* The highest score of tokens from first, a multiple of BLOCK, to end - 1; -INFINITY where none may
 * be drawn. */
static float highest_score(const mf_sampler *s, const float *logits, size_t first, size_t end)
{
    float highest = -INFINITY;
    if (is_plain(s))
        return highest_in(logits + first, s->biases != NULL ? s->biases + first : NULL,
                          end - first) /
               s->divisor;
    for (size_t i = first; (i = skip_below(s, logits, i, highest)) < end; i++) {
        const float score = is_allowed(s, i) ? score_of(s, i, logits[i]) : -INFINITY;
        highest = score > highest ? score : highest;
    }
    return highest;
}

static float highest_of_block(const mf_sampler *s, const float *logits, size_t block)
{
    return highest_score(s, logits, block * MF_LOGITS_BLOCK, block_end(s, block));
}

/* A score that some token has, the highest of all or near it. */
static float high_score(const mf_sampler *s, const float *logits)
{
    size_t block = 0;
    if (!s->has_bounds)
        return is_plain(s) ? highest_score(s, logits, 0, s->n_vocab) : -INFINITY;
    for (size_t b = 1; b < n_blocks(s); b++)
        block = s->bounds[b] > s->bounds[block] ? b : block;
    return highest_of_block(s, logits, block);
}

/* The first of the highest scores. */
static int32_t greedy(mf_sampler *s, const float *logits)
{
    s->dry_penalties = s->dry != NULL ? mf_dry_penalties(s->dry) : NULL;
    const bool is_highest = is_plain(s) && !s->has_bounds;
    float best = high_score(s, logits);
    size_t best_token = SIZE_MAX;
    for (size_t i = 0; (i = skip_below(s, logits, i, best)) < s->n_vocab; i++) {
        const float score = is_allowed(s, i) ? score_of(s, i, logits[i]) : -INFINITY;
        if (score > best || (score == best && score > -INFINITY && best_token == SIZE_MAX)) {
            best = score;
            best_token = i;
        }
        if (is_highest && best_token != SIZE_MAX)
            break;
    }
    return best_token == SIZE_MAX ? first_allowed(s) : (int32_t)best_token;
}

static bool goes_before(mf_candidate a, mf_candidate b)
{
    return a.score > b.score || (a.score == b.score && a.id < b.id);
}

static void sift_down(mf_candidate *heap, size_t n, size_t i)
{
    mf_candidate moved = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && goes_before(heap[child + 1], heap[child]))
            child++;
        if (!goes_before(heap[child], moved))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

/* What min-p drops for certain lies below, where nothing before it asks how much there is in all.
 */
static float least_near(const mf_sampler *s, const float *logits)
{
    const mf_sampler_options *o = &s->options;
    if (!s->skips || o->min_p == 0.0f || o->top_k != 0 || o->top_p < 1.0f)
        return -INFINITY;
    const float high = high_score(s, logits);
    return isfinite(high) ? (float)((double)high + log((double)o->min_p) - 1.0) : -INFINITY;
}

/* What can be drawn at all, in order of id; *highest is the best score. What is below `least` is
 * left out. */
static size_t collect(mf_sampler *s, const float *logits, float *highest)
{
    const float least = least_near(s, logits);
    const bool skips = least > -INFINITY;
    size_t n = 0;
    *highest = -INFINITY;
    for (size_t i = 0; i < s->n_vocab; i++) {
        if (skips && (i = skip_below(s, logits, i, least)) >= s->n_vocab)
            break;
        if (!is_allowed(s, i))
            continue;
        float score = score_of(s, i, logits[i]);
        if (!(score > -INFINITY) || score < least) /* NaN too */
            continue;
        if (score > *highest)
            *highest = score;
        s->candidates[n++] = (mf_candidate){score, (int32_t)i};
    }
    return n;
}

/* A heap of the k highest scores so far, the least of them first. */
static void keep_score(float *heap, size_t *n, size_t k, float score)
{
    size_t i = 0;
    if (*n < k) {
        for (i = (*n)++; i > 0 && heap[(i - 1) / 2] > score; i = (i - 1) / 2)
            heap[i] = heap[(i - 1) / 2];
        heap[i] = score;
        return;
    }
    for (size_t child = 1; child < k; child = 2 * i + 1) {
        child += child + 1 < k && heap[child + 1] < heap[child];
        if (heap[child] >= score)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = score;
}

/* A score that k tokens reach, -INFINITY: none is known. By bounds: each of the blocks with the
 * highest ones has a token as high as its highest. */
static float least_of_top(const mf_sampler *s, const float *logits, size_t k)
{
    float bounds[MAX_TOP_K], highest[MAX_TOP_K];
    size_t n_bounds = 0, n = 0;
    if (!s->has_bounds || k > n_blocks(s))
        return -INFINITY;
    for (size_t b = 0; b < n_blocks(s); b++)
        if (n_bounds < k || s->bounds[b] > bounds[0])
            keep_score(bounds, &n_bounds, k, s->bounds[b]);
    for (size_t b = 0; b < n_blocks(s); b++) {
        if (!(s->bounds[b] >= bounds[0]))
            continue;
        const float score = highest_of_block(s, logits, b);
        if (n < k || score > highest[0])
            keep_score(highest, &n, k, score);
    }
    return highest[0];
}

/* As collect(), but for those that top-k drops. *n_all: how many there were with those; or one more
 * than k at least, if they were more. */
static size_t collect_top(mf_sampler *s, const float *logits, float *highest, size_t *n_all)
{
    float heap[MAX_TOP_K];
    const size_t k = s->options.top_k;
    float least = least_of_top(s, logits, k);
    size_t n = 0, n_heap = 0, n_kept = 0, n_skipped = 0;
    *highest = -INFINITY;
    *n_all = 0;
    for (size_t i = 0; i < s->n_vocab; i++) {
        const size_t to = least > -INFINITY ? skip_below(s, logits, i, least) : i;
        n_skipped += to - i;
        if ((i = to) >= s->n_vocab)
            break;
        if (!is_allowed(s, i))
            continue;
        const float score = score_of(s, i, logits[i]);
        if (!(score > -INFINITY)) /* NaN too */
            continue;
        ++*n_all;
        if (score < least)
            continue;
        keep_score(heap, &n_heap, k, score);
        least = n_heap == k && heap[0] > least ? heap[0] : least;
        *highest = score > *highest ? score : *highest;
        s->candidates[n++] = (mf_candidate){score, (int32_t)i};
    }
    for (size_t i = 0; i < n; i++)
        if (n_heap < k || s->candidates[i].score >= heap[0])
            s->candidates[n_kept++] = s->candidates[i];
    if (n_skipped == 0 || *n_all > k)
        return n_kept;
    s->skips = s->has_bounds = false; /* whether there are more than k is to be known */
    return collect_top(s, logits, highest, n_all);
}

/* Each keeps the best of sorted[n] as transformers does: of scores equal to the k-th all stay; a
 * token stays while those before it have less than top_p of the mass; min_p is relative to the
 * best. */
static size_t keep_top_p(const mf_candidate *sorted, size_t n, float highest, double total,
                         float top_p)
{
    double before = 0.0;
    size_t kept = 0;
    while (kept < n && (kept == 0 || before < (double)top_p * total))
        before += weight_of((double)sorted[kept++].score - (double)highest);
    return kept;
}

static double sum_weights(const mf_candidate *candidates, size_t n, float highest)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += weight_of((double)candidates[i].score - (double)highest);
    return sum;
}

/* What top-p drops for certain, most of a vocabulary: of n candidates those with less than an n-th
 * of the mass that it leaves out (rest) have no more than that together, and are its last. Those
 * near the border stay, to be cut exactly. */
static size_t drop_tail(mf_candidate *candidates, size_t n, float highest, double rest)
{
    const double border = (double)highest + log(rest / (double)n) - 1.0;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        candidates[kept] = candidates[i];
        kept += (double)candidates[i].score >= border;
    }
    return kept;
}

/*
 * Takes candidates out of a heap in falling order until top-k or top-p is satisfied. What was taken
 * grows from the end of the array downwards, in the room that the heap gives up; it is turned round
 * at last.
 */
static size_t sort_and_cut(mf_sampler *s, size_t n, size_t n_all, float highest)
{
    mf_candidate *heap = s->candidates;
    size_t n_heap = n, k = s->options.top_k;
    bool uses_p = s->options.top_p < 1.0f;
    bool uses_k = k != 0 && k < n_all;
    const double total = uses_p && !uses_k ? sum_weights(heap, n, highest) : 0.0;
    const double mass = total * (double)s->options.top_p;
    double before = 0.0;
    if (total > 0.0)
        n = n_heap = drop_tail(heap, n, highest, total - mass);
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
    while (n_heap > 0) {
        size_t n_taken = n - n_heap;
        if (uses_k && n_taken >= k && heap[0].score < heap[n_heap].score)
            break;
        if (!uses_k && uses_p && n_taken > 0 && before >= mass)
            break;
        mf_candidate best = heap[0];
        heap[0] = heap[--n_heap];
        sift_down(heap, n_heap, 0);
        heap[n_heap] = best;
        if (!uses_k && uses_p)
            before += weight_of((double)best.score - (double)highest);
    }
    size_t n_taken = n - n_heap;
    for (size_t i = 0; i < n_taken / 2; i++) {
        mf_candidate swap = heap[n_heap + i];
        heap[n_heap + i] = heap[n - 1 - i];
        heap[n - 1 - i] = swap;
    }
    memmove(heap, heap + n_heap, n_taken * sizeof *heap);
    if (uses_k && uses_p)
        n_taken = keep_top_p(heap, n_taken, highest, sum_weights(heap, n_taken, highest),
                             s->options.top_p);
    return n_taken;
}

static size_t keep_min_p(mf_candidate *candidates, size_t n, float highest, float min_p)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (weight_of((double)candidates[i].score - (double)highest) >= (double)min_p)
            candidates[kept++] = candidates[i];
    return kept;
}

/* Takes out all that have at least the threshold's share but the least likely of them. */
static size_t exclude_top(mf_candidate *candidates, size_t n, float highest, float threshold)
{
    const double least = (double)threshold * sum_weights(candidates, n, highest);
    size_t n_viable = 0, last = 0, kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (weight_of((double)candidates[i].score - (double)highest) < least)
            continue;
        if (n_viable++ == 0 || goes_before(candidates[last], candidates[i]))
            last = i;
    }
    if (n_viable < 2)
        return n;
    const mf_candidate boundary = candidates[last];
    for (size_t i = 0; i < n; i++)
        if (!goes_before(candidates[i], boundary))
            candidates[kept++] = candidates[i];
    return kept;
}

static float highest_of(const mf_candidate *candidates, size_t n)
{
    float highest = -INFINITY;
    for (size_t i = 0; i < n; i++)
        highest = candidates[i].score > highest ? candidates[i].score : highest;
    return highest;
}

const mf_candidate *mf_sampler_filter(mf_sampler *s, const float *logits, size_t *n_kept,
                                      float *highest, double *sum)
{
    s->dry_penalties = s->dry != NULL ? mf_dry_penalties(s->dry) : NULL;
    const bool is_top = s->options.top_k > 0 && s->options.top_k <= MAX_TOP_K;
    size_t n_all = 0,
           n = is_top ? collect_top(s, logits, highest, &n_all) : collect(s, logits, highest);
    n_all = is_top ? n_all : n;
    if (*highest == INFINITY) { /* only those are as likely as that; they share it evenly */
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
            if (s->candidates[i].score == INFINITY)
                s->candidates[kept++] = (mf_candidate){0.0f, s->candidates[i].id};
        n = n_all = kept;
        *highest = 0.0f;
    }
    if ((s->options.top_k != 0 && s->options.top_k < n_all) || s->options.top_p < 1.0f)
        n = sort_and_cut(s, n, n_all, *highest);
    if (s->options.min_p > 0.0f)
        n = keep_min_p(s->candidates, n, *highest, s->options.min_p);
    if (s->options.xtc_probability > 0.0f &&
        next_random(s->random) < (double)s->options.xtc_probability) {
        n = exclude_top(s->candidates, n, *highest, s->options.xtc_threshold);
        *highest = highest_of(s->candidates, n);
    }
    *sum = sum_weights(s->candidates, n, *highest);
    *n_kept = n;
    return s->candidates;
}

static int32_t sample(mf_sampler *s, const float *logits)
{
    if (s->options.temperature == 0.0f)
        return greedy(s, logits);
    size_t n;
    float highest;
    double sum, passed = 0.0;
    const mf_candidate *kept = mf_sampler_filter(s, logits, &n, &highest, &sum);
    double point = next_random(s->random) * sum;
    if (n == 0)
        return first_allowed(s);
    int32_t chosen = kept[0].id;
    for (size_t i = 0; i < n; i++) {
        double weight = weight_of((double)kept[i].score - (double)highest);
        if (weight == 0.0)
            continue;
        chosen = kept[i].id;
        passed += weight;
        if (passed > point)
            break;
    }
    return chosen;
}

/* As many as sample() draws, whatever the logits. */
void mf_sampler_skip(mf_sampler *s)
{
    if (s->options.temperature == 0.0f)
        return;
    if (s->options.xtc_probability > 0.0f)
        (void)next_random(s->random);
    (void)next_random(s->random);
}

int32_t mf_sampler_sample(mf_sampler *s, const float *logits)
{
    return mf_sampler_sample_masked(s, logits, NULL);
}

int32_t mf_sampler_sample_masked(mf_sampler *s, const float *logits, const uint32_t *allowed)
{
    return mf_sampler_sample_bounded(s, logits, NULL, allowed);
}

int32_t mf_sampler_sample_bounded(mf_sampler *s, const float *logits, const float *bounds,
                                  const uint32_t *allowed)
{
    s->allowed = allowed;
    mf_sampler_take_bounds(s, bounds);
    const int32_t token = sample(s, logits);
    s->allowed = NULL;
    s->skips = s->has_bounds = false;
    return token;
}
