/* SPDX-License-Identifier: MIT */
/*
 * Choosing the next token from logits. The order is that of Hugging Face transformers, with what it
 * lacks where vLLM has it: logit bias, repetition, presence and frequency penalties, DRY,
 * temperature, top-k, top-p, min-p, XTC, then a draw. All memory is taken at creation.
 */
#ifndef MF_SAMPLING_SAMPLER_H
#define MF_SAMPLING_SAMPLER_H

#include "base/alloc.h"

#include <moeflux/sampling.h>

/* A token that may be drawn. */
typedef struct mf_candidate {
    float score; /* the logit after penalty and temperature */
    int32_t id;
} mf_candidate;

/* Every option within its range? MF_ERR_ARGUMENT names the one that is not. */
mf_status mf_sampler_options_check(const mf_sampler_options *options, mf_error *error);

/* What mf_sampler_sample_bounded goes by, until it is given others (NULL: none). */
void mf_sampler_take_bounds(mf_sampler *sampler, const float *bounds);

/*
 * The candidates that the filters leave, and their weights' sum; a candidate's weight is
 * mf_weight_of(its score - *highest). None if there is no finite logit. Valid until the next
 * call. XTC draws whether it acts.
 */
const mf_candidate *mf_sampler_filter(mf_sampler *sampler, const float *logits, size_t *n,
                                      float *highest, double *sum);
#endif
