/* SPDX-License-Identifier: MIT */
/*
 * What the sampler's parts share: a token's score, which is its logit after biases, penalties and
 * temperature, and how high the scores of blocks of tokens are (sampler_scores.c); the candidates
 * that filters leave (sampler_filters.c).
 */
#ifndef MF_SAMPLING_SAMPLER_SCORES_H
#define MF_SAMPLING_SAMPLER_SCORES_H

#include "sampling/dry.h"
#include "sampling/sampler.h"
#include "sampling/token_weights.h"

#include <math.h>

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
    double *masses;             /* [n_blocks]: the sum of a block's weights, or no less than it */
    bool *is_summed;            /* [n_blocks]: which of the two (draw_of_most) */
    const mf_weights *weights;  /* mf_weights_here */
    float divisor;              /* temperature as far as it matters, or 1 */
    bool has_bounds, skips;     /* of the sample that is being taken; skips: blocks, if need be */
    uint64_t random[4];
};

static inline size_t mf_n_blocks(const mf_sampler *s)
{
    return (s->n_vocab + MF_LOGITS_BLOCK - 1) / MF_LOGITS_BLOCK;
}

static inline size_t mf_block_end(const mf_sampler *s, size_t block)
{
    const size_t end = (block + 1) * MF_LOGITS_BLOCK;
    return end < s->n_vocab ? end : s->n_vocab;
}

static inline bool mf_is_allowed(const mf_sampler *s, size_t token)
{
    return s->allowed == NULL || (s->allowed[token / 32] >> token % 32 & 1) != 0;
}

static inline float penalised(const mf_sampler *s, size_t token, float logit)
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

static inline float mf_score_of(const mf_sampler *s, size_t token, float logit)
{
    return penalised(s, token, logit) / s->divisor;
}

static inline bool mf_goes_before(mf_candidate a, mf_candidate b)
{
    return a.score > b.score || (a.score == b.score && a.id < b.id);
}

/* What is looked at is the model's logits, but for biases. */
static inline bool mf_is_plain(const mf_sampler *s)
{
    return s->allowed == NULL && s->options.repetition_penalty == 1.0f && s->n_answered == NULL &&
           s->dry == NULL;
}

/* The highest score of the block's tokens that may be drawn; -INFINITY: there is none. */
float mf_scores_highest_of_block(const mf_sampler *s, const float *logits, size_t block);
/* A score that some token has, the highest of all or near it; -INFINITY: it would take a while. */
float mf_scores_high(const mf_sampler *s, const float *logits);
/* The highest of all. */
float mf_scores_highest(const mf_sampler *s, const float *logits);
/* No score of the block is above it, whether bounds are given or not. */
float mf_scores_bound(const mf_sampler *s, const float *logits, size_t block);
/* At multiples of MF_SCORES_STEP: the next token from `at` on from where a score may be `least` or
 * more. */
#define MF_SCORES_STEP ((size_t)64)
size_t mf_scores_skip_steps(const mf_sampler *s, const float *logits, size_t at, float least);
/* The same from anywhere, if it is asked of each token in turn that is not skipped. */
static inline size_t mf_scores_skip(const mf_sampler *s, const float *logits, size_t at,
                                    float least)
{
    return at % MF_SCORES_STEP == 0 ? mf_scores_skip_steps(s, logits, at, least) : at;
}
/* A block's scores, -INFINITY where a token may not be drawn: how many there are; what they weigh.
 */
size_t mf_scores_of_block(const mf_sampler *s, const float *logits, size_t block, float *scores);
double mf_scores_mass(const mf_sampler *s, const float *logits, size_t block, float highest);

/* The filters, after the penalties of the place have been found. As mf_sampler_filter. */
const mf_candidate *mf_filter(mf_sampler *s, const float *logits, size_t *n, float *highest,
                              double *sum);
/* The weights of candidates, at most MF_WEIGHED of which are looked at together: how many. */
#define MF_WEIGHED ((size_t)64)
size_t mf_weigh(const mf_sampler *s, const mf_candidate *candidates, size_t n, float highest,
                double *weights);

#endif
