/* SPDX-License-Identifier: MIT */
/* How high scores are, by blocks of tokens that are looked at as a whole where that is enough. */
#include "sampling/sampler_scores.h"

/* Logits that are compared side by side. */
#define LANES 16u

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

/* Of a block's scores, by its highest logit. Rounding keeps the order: a score that is not above it
 * in the mathematics is not above it here. */
static float bound_of(const mf_sampler *s, size_t block, float highest_logit)
{
    const float most =
        s->highest_biases != NULL ? highest_logit + s->highest_biases[block] : highest_logit;
    return most / s->divisor;
}

void mf_sampler_take_bounds(mf_sampler *s, const float *bounds)
{
    s->skips = !s->can_raise;
    s->has_bounds = bounds != NULL && s->skips;
    for (size_t b = 0; b < mf_n_blocks(s) && s->has_bounds; b++)
        s->bounds[b] = bound_of(s, b, bounds[b]);
}

size_t mf_scores_skip_steps(const mf_sampler *s, const float *logits, size_t at, float least)
{
    while (at % MF_SCORES_STEP == 0 && at < s->n_vocab && s->skips) {
        const size_t n = s->n_vocab - at < MF_SCORES_STEP ? s->n_vocab - at : MF_SCORES_STEP;
        if (s->has_bounds && at % MF_LOGITS_BLOCK == 0 && s->bounds[at / MF_LOGITS_BLOCK] < least) {
            at = mf_block_end(s, at / MF_LOGITS_BLOCK);
            continue;
        }
        const float most = highest_in(logits + at, s->biases != NULL ? s->biases + at : NULL, n);
        if (!(most / s->divisor < least))
            break;
        at += n;
    }
    return at;
}

/* The highest score of tokens from first, a multiple of the step, to end - 1; -INFINITY where none
 * may be drawn. */
static float highest_score(const mf_sampler *s, const float *logits, size_t first, size_t end)
{
    float highest = -INFINITY;
    if (mf_is_plain(s))
        return highest_in(logits + first, s->biases != NULL ? s->biases + first : NULL,
                          end - first) /
               s->divisor;
    for (size_t i = first; (i = mf_scores_skip(s, logits, i, highest)) < end; i++) {
        const float score = mf_is_allowed(s, i) ? mf_score_of(s, i, logits[i]) : -INFINITY;
        highest = score > highest ? score : highest;
    }
    return highest;
}

float mf_scores_highest_of_block(const mf_sampler *s, const float *logits, size_t block)
{
    return highest_score(s, logits, block * MF_LOGITS_BLOCK, mf_block_end(s, block));
}

float mf_scores_high(const mf_sampler *s, const float *logits)
{
    size_t block = 0;
    if (!s->has_bounds)
        return mf_is_plain(s) ? highest_score(s, logits, 0, s->n_vocab) : -INFINITY;
    for (size_t b = 1; b < mf_n_blocks(s); b++)
        block = s->bounds[b] > s->bounds[block] ? b : block;
    return mf_scores_highest_of_block(s, logits, block);
}

float mf_scores_highest(const mf_sampler *s, const float *logits)
{
    if (!s->has_bounds)
        return highest_score(s, logits, 0, s->n_vocab);
    float highest = mf_scores_high(s, logits);
    for (size_t b = 0; b < mf_n_blocks(s); b++)
        if (s->bounds[b] > highest)
            highest = fmaxf(highest, mf_scores_highest_of_block(s, logits, b));
    return highest;
}

float mf_scores_bound(const mf_sampler *s, const float *logits, size_t block)
{
    const size_t first = block * MF_LOGITS_BLOCK;
    if (s->can_raise)
        return mf_scores_highest_of_block(s, logits, block);
    if (s->has_bounds)
        return s->bounds[block];
    return bound_of(s, block, highest_in(logits + first, NULL, mf_block_end(s, block) - first));
}

size_t mf_scores_of_block(const mf_sampler *s, const float *logits, size_t block, float *scores)
{
    const size_t first = block * MF_LOGITS_BLOCK, n = mf_block_end(s, block) - first;
    const bool has_all = mf_is_plain(s) && s->biases == NULL;
    for (size_t i = 0; i < n && has_all; i++)
        scores[i] = logits[first + i] / s->divisor;
    for (size_t i = 0; i < n && !has_all; i++)
        scores[i] =
            mf_is_allowed(s, first + i) ? mf_score_of(s, first + i, logits[first + i]) : -INFINITY;
    return n;
}

double mf_scores_mass(const mf_sampler *s, const float *logits, size_t block, float highest)
{
    float scores[MF_LOGITS_BLOCK];
    const size_t n = mf_scores_of_block(s, logits, block, scores);
    return s->weights->sum(scores, n, highest);
}
