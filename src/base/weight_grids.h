/* SPDX-License-Identifier: MIT */
/*
 * The codebooks of GGUF's IQ1, IQ2 and IQ3 types: facts of the format, made by
 * tools/make_gguf_grids.py. An entry is eight numbers of 2 bits, or in IQ3 four of 3, the first one
 * lowest; what they stand for is in weight_iq.c.
 */
#ifndef MF_BASE_WEIGHT_GRIDS_H
#define MF_BASE_WEIGHT_GRIDS_H

#include <stdint.h>

extern const uint16_t mf_grid_iq1[2048];
extern const uint16_t mf_grid_iq2_xxs[256];
extern const uint16_t mf_grid_iq2_xs[512];
extern const uint16_t mf_grid_iq2_s[1024];
extern const uint16_t mf_grid_iq3_xxs[256];
extern const uint16_t mf_grid_iq3_s[512];

#endif
