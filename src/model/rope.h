/* SPDX-License-Identifier: MIT */
/* Rotary frequencies. */
#ifndef MF_MODEL_ROPE_H
#define MF_MODEL_ROPE_H

#include "model/hparams.h"

/* The frequency of each of the n_rot / 2 pairs, as the published models compute them: in float32.
 */
void mf_rope_frequencies(const mf_rope *rope, uint32_t n_rot, float *out);

#endif
