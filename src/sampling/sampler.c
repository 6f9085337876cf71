/* SPDX-License-Identifier: MIT */
/*
 * The sampler: its handle, and draws. What is drawn by has the same bits everywhere
 * (token_weights.h), so that a seed gives the same tokens wherever IEEE arithmetic is used. NaN and
 * -inf logits are never drawn while there is another.
 */
#include "sampling/sampler.h"

#include "base/sized.h"
#include "sampling/sampler_random.h"
#include "sampling/sampler_scores.h"

#include <math.h>
#include <string.h>

/* Below this a temperature would make infinities of logits, of which none is above another. Here
 * all that is not the highest is without weight already. */
#define MIN_DIVISOR 1e-30f

/* ------------------------------------------------------------------------------------ handle -- */

static mf_status create_block_biases(mf_sampler *s, mf_error *error)
{
    s->highest_biases = mf_alloc_array(&s->allocator, mf_n_blocks(s), sizeof *s->highest_biases);
    if (s->highest_biases == NULL)
        return mf_fail_memory(error, mf_n_blocks(s) * sizeof *s->highest_biases, "a sampler");
    for (size_t b = 0; b < mf_n_blocks(s); b++) {
        s->highest_biases[b] = -INFINITY;
        for (size_t i = b * MF_LOGITS_BLOCK; i < mf_block_end(s, b); i++)
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
    mf_allocator a;
    MF_TRY(mf_allocator_take(allocator, &a, error));
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
    s->bounds = mf_alloc_array(&a, mf_n_blocks(s), sizeof *s->bounds);
    s->masses = mf_alloc_array(&a, mf_n_blocks(s), sizeof *s->masses);
    s->is_summed = mf_alloc_array(&a, mf_n_blocks(s), sizeof *s->is_summed);
    s->weights = mf_weights_here();
    if (s->candidates == NULL || s->is_accepted == NULL || s->bounds == NULL || s->masses == NULL ||
        s->is_summed == NULL) {
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
    mf_random_seed(s->random, given.seed);
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
    mf_free(&a, s->highest_biases, mf_n_blocks(s) * sizeof *s->highest_biases);
    mf_free(&a, s->bounds, mf_n_blocks(s) * sizeof *s->bounds);
    mf_free(&a, s->masses, mf_n_blocks(s) * sizeof *s->masses);
    mf_free(&a, s->is_summed, mf_n_blocks(s) * sizeof *s->is_summed);
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
    mf_random_seed(s->random, s->options.seed);
}

/* ------------------------------------------------------------------------------------- draws -- */

/* What is drawn where no logit is a number: the first token that may be. */
static int32_t first_allowed(const mf_sampler *s)
{
    for (size_t i = 0; i < s->n_vocab; i++)
        if (mf_is_allowed(s, i))
            return (int32_t)i;
    return 0;
}

/* The first of the highest scores. */
static int32_t greedy(mf_sampler *s, const float *logits)
{
    const bool is_highest = mf_is_plain(s) && !s->has_bounds;
    float best = mf_scores_high(s, logits);
    size_t best_token = SIZE_MAX;
    for (size_t i = 0; (i = mf_scores_skip(s, logits, i, best)) < s->n_vocab; i++) {
        const float score = mf_is_allowed(s, i) ? mf_score_of(s, i, logits[i]) : -INFINITY;
        if (score > best || (score == best && score > -INFINITY && best_token == SIZE_MAX)) {
            best = score;
            best_token = i;
        }
        if (is_highest && best_token != SIZE_MAX)
            break;
    }
    return best_token == SIZE_MAX ? first_allowed(s) : (int32_t)best_token;
}

static void find_penalties(mf_sampler *s)
{
    s->dry_penalties = s->dry != NULL ? mf_dry_penalties(s->dry) : NULL;
}

const mf_candidate *mf_sampler_filter(mf_sampler *s, const float *logits, size_t *n_kept,
                                      float *highest, double *sum)
{
    find_penalties(s);
    return mf_filter(s, logits, n_kept, highest, sum);
}

/* What each block weighs at most: as if all of it were as likely as its likeliest can be. The same
 * whether bounds are given or not. */
static void find_most(mf_sampler *s, const float *logits, float highest)
{
    for (size_t b = 0; b < mf_n_blocks(s); b++) {
        s->bounds[b] = fminf(mf_scores_bound(s, logits, b), highest);
        s->is_summed[b] = false;
    }
    s->weights->of(s->bounds, mf_n_blocks(s), highest, s->masses);
    for (size_t b = 0; b < mf_n_blocks(s); b++)
        s->masses[b] *= (double)(mf_block_end(s, b) - b * MF_LOGITS_BLOCK);
}

/* The block of a point of all masses, which becomes one of the block's. */
static size_t block_at(const mf_sampler *s, double *point)
{
    double passed = 0.0;
    size_t b = 0;
    for (; passed + s->masses[b] <= *point && b + 1 < mf_n_blocks(s); b++)
        passed += s->masses[b];
    *point -= passed;
    return b;
}

static int32_t token_at(const mf_sampler *s, const float *logits, size_t block, float highest,
                        double point)
{
    float scores[MF_LOGITS_BLOCK];
    double weights[MF_LOGITS_BLOCK], passed = 0.0;
    size_t chosen = 0;
    const size_t n = mf_scores_of_block(s, logits, block, scores);
    s->weights->of(scores, n, highest, weights);
    for (size_t i = 0; i < n && passed <= point; i++) {
        chosen = weights[i] > 0.0 ? i : chosen;
        passed += weights[i];
    }
    return (int32_t)(block * MF_LOGITS_BLOCK + chosen);
}

static void keep_mass(mf_sampler *s, size_t block, double mass)
{
    s->masses[block] = mass;
    s->is_summed[block] = true;
}

/* How much of the block stands before the token. What all of it weighs is known then, too. */
static double mass_before(mf_sampler *s, const float *logits, size_t block, mf_candidate token,
                          float highest)
{
    float scores[MF_LOGITS_BLOCK];
    const int32_t first = (int32_t)(block * MF_LOGITS_BLOCK);
    const size_t n = mf_scores_of_block(s, logits, block, scores);
    if (!s->is_summed[block])
        keep_mass(s, block, s->weights->sum(scores, n, highest));
    for (size_t i = 0; i < n; i++) {
        const mf_candidate other = {scores[i], first + (int32_t)i};
        scores[i] = mf_goes_before(other, token) ? scores[i] : -INFINITY;
    }
    return s->weights->sum(scores, n, highest);
}

/* Whether top-p keeps the token: those before it have less than its share of all. How much all is
 * has to be known no better than that tells. */
static bool is_in_nucleus(mf_sampler *s, const float *logits, int32_t id, float highest)
{
    const mf_candidate token = {mf_score_of(s, (size_t)id, logits[id]), id};
    const double share = (double)s->options.top_p;
    double before = 0.0, least = 0.0, most = 0.0;
    for (size_t b = 0; b < mf_n_blocks(s); b++) {
        if (s->bounds[b] >= token.score)
            before += mass_before(s, logits, b, token, highest);
        least += s->is_summed[b] ? s->masses[b] : 0.0;
        most += s->masses[b];
    }
    for (size_t b = 0; b < mf_n_blocks(s) && before >= share * least && before < share * most;
         b++) {
        if (s->is_summed[b])
            continue;
        most -= s->masses[b];
        keep_mass(s, b, mf_scores_mass(s, logits, b, highest));
        most += s->masses[b];
        least += s->masses[b];
    }
    return before < share * least;
}

/*
 * Where nearly all may be drawn, few blocks have to be looked at: what is drawn first is a point of
 * what all weigh at most. Where it lies beyond what its block is then found to weigh, or is a
 * token's that top-p drops, another is drawn, of what is known by then. So a token comes as often
 * as it is to (rejection sampling): whichever point is kept, none within a token's weight is
 * likelier than another. All of that takes one of the sampler's random numbers.
 */
static int32_t draw_of_most(mf_sampler *s, const float *logits, float highest)
{
    uint64_t random[4];
    mf_random_seed(random, mf_random_word(s->random));
    find_most(s, logits, highest);
    for (;;) {
        double total = 0.0;
        for (size_t b = 0; b < mf_n_blocks(s); b++)
            total += s->masses[b];
        double point = mf_random_next(random) * total;
        const size_t block = block_at(s, &point);
        const bool was_summed = s->is_summed[block];
        if (!was_summed)
            keep_mass(s, block, mf_scores_mass(s, logits, block, highest));
        if (!was_summed && point >= s->masses[block])
            continue;
        const int32_t token = token_at(s, logits, block, highest, point);
        if (s->options.top_p == 1.0f || is_in_nucleus(s, logits, token, highest))
            return token;
    }
}

static int32_t draw(mf_sampler *s, const float *logits)
{
    size_t n;
    float highest;
    double sum, passed = 0.0, weights[MF_WEIGHED];
    const mf_candidate *kept = mf_filter(s, logits, &n, &highest, &sum);
    const double point = mf_random_next(s->random) * sum;
    if (n == 0)
        return first_allowed(s);
    int32_t chosen = kept[0].id;
    for (size_t i = 0; i < n && passed <= point;) {
        const size_t n_more = mf_weigh(s, kept + i, n - i, highest, weights);
        for (size_t k = 0; k < n_more && passed <= point; k++) {
            chosen = weights[k] > 0.0 ? kept[i + k].id : chosen;
            passed += weights[k];
        }
        i += n_more;
    }
    return chosen;
}

/* A smaller share would have to be drawn for too often. */
#define LEAST_SHARE 0.5f

static bool keeps_most(const mf_sampler_options *o)
{
    return o->top_k == 0 && o->top_p >= LEAST_SHARE && o->min_p == 0.0f &&
           o->xtc_probability == 0.0f;
}

static int32_t sample(mf_sampler *s, const float *logits)
{
    find_penalties(s);
    if (s->options.temperature == 0.0f)
        return greedy(s, logits);
    if (!keeps_most(&s->options))
        return draw(s, logits);
    const float highest = mf_scores_highest(s, logits);
    return isfinite(highest) ? draw_of_most(s, logits, highest) : draw(s, logits);
}

/* As many as sample() draws, whatever the logits. */
void mf_sampler_skip(mf_sampler *s)
{
    if (s->options.temperature == 0.0f)
        return;
    if (s->options.xtc_probability > 0.0f)
        (void)mf_random_next(s->random);
    (void)mf_random_next(s->random);
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
