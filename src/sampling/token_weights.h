/* SPDX-License-Identifier: MIT */
/*
 * What a token's chance is proportional to: exp of its score less the highest. Computed here with
 * plain double arithmetic, so that it has the same bits on every machine.
 */
#ifndef MF_SAMPLING_TOKEN_WEIGHTS_H
#define MF_SAMPLING_TOKEN_WEIGHTS_H

#include "base/cpu.h"

/* exp(x), x <= 0; 0 at -700 and below, and of what is no number. */
double mf_weight_of(double x);
/* Of scores[n], each less highest. */
void mf_weights_of(const float *scores, size_t n, float highest, double *weights);

/* Their sum, always in the same order. */
typedef double mf_weights_sum(const float *scores, size_t n, float highest);
/* By the instructions of a tier; NULL: no form of it has any of the tier's own. */
mf_weights_sum *mf_weights_sum_of(mf_cpu_tier tier);
/* The fastest one here. Asks the processor: to be kept. */
mf_weights_sum *mf_weights_sum_here(void);

#endif
