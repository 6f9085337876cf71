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
/* By the instructions of one tier; the same bits by all. */
typedef struct mf_weights {
    /* Of scores[n], each less highest. */
    void (*of)(const float *scores, size_t n, float highest, double *weights);
    /* Their sum, always in the same order. */
    double (*sum)(const float *scores, size_t n, float highest);
} mf_weights;

/* NULL: nothing here has instructions of that tier. */
const mf_weights *mf_weights_of_tier(mf_cpu_tier tier);
/* The fastest one here. Asks the processor: to be kept. */
const mf_weights *mf_weights_here(void);

#endif
