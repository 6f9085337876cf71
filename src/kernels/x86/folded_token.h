/* SPDX-License-Identifier: MIT */
/*
 * GGUF's blocks of 256 columns whose scales are integers, times activations in fixed point, for
 * tiles: what a prepared token is. A weight times the integer scale of its 16 or 32 columns is an
 * integer of at most 13 bits and a sign, so that the sum of a whole block's products is exact, and
 * becomes a float once: tiles add up 64 columns at a time and cannot stop for a scale. In return a
 * weight has two digits, of 8 bits each.
 *
 * An activation has three, each a signed byte, with a unit for each block. Sums by the same digit
 * of activations stay below 2^27 in size and are joined as floats, the lowest first. Minima are
 * multiplied by the sums of their columns' activations, the first group first. So a row's bits
 * depend on nothing but the row and the token.
 *
 * Tiles multiply a block in four steps of 64 columns, of which four times 16 are neighbours: those
 * from 64 * q + 16 * s on are quarter q of step s, in which order all of these formats come with
 * the fewest moves. One token or two, whose products wait for memory, go by vectors, which need
 * less unpacking: each lane has 16 columns of a scale (blocks_dot_avx512.h), and its three sums
 * times that scale are added up as integers, the same ones.
 */
#ifndef MF_KERNELS_FOLDED_TOKEN_H
#define MF_KERNELS_FOLDED_TOKEN_H

#include "kernels/x86/blocks_token.h"

enum {
    MF_FOLDED_STEPS = 4,
    MF_FOLDED_DIGITS = 3, /* of an activation */
    MF_FOLDED_GROUPS = 8  /* of columns that have a minimum */
};

/* The largest activation as an integer: its highest digit is a signed byte. */
#define MF_FOLDED_LIMIT 8323072.0f /* 127 * 65536 */

/* A block's activations. A step's digits are a tile as it lies: rows of four columns. */
typedef struct mf_folded_span {
    signed char digits[MF_FOLDED_STEPS][16][4][4]; /* of each digit, the lowest first; then zeros */
    signed char lanes[MF_FOLDED_DIGITS][4][64];    /* the same in the order of lanes */
    int32_t offsets[MF_FOLDED_DIGITS][16];         /* -128 times their sums in each lane */
    float sums[MF_FOLDED_GROUPS];                  /* of 32 neighbours' integers */
    float unit, unused[7];
} mf_folded_span;

/* Whether tiles multiply it so. */
static inline bool mf_is_folded(const mf_matrix *w)
{
    return w->shape.kind == MF_WEIGHT_GGUF_Q4_K || w->shape.kind == MF_WEIGHT_GGUF_Q5_K ||
           w->shape.kind == MF_WEIGHT_GGUF_Q6_K || w->shape.kind == MF_WEIGHT_GGUF_IQ4_XS;
}

/* Another number than that of any other form of as many columns, which is told apart by it: Q6_K's
 * lanes have an order of their own; and without 128 two spans of NVFP4 take as many
 * (tests/kernels/test_token_forms.c). */
static inline size_t mf_folded_token_bytes(const mf_matrix *w)
{
    return mf_blocks_spans(w) * sizeof(mf_folded_span) +
           (mf_blocks_is_crossed(w->shape.kind) ? 128 : 64);
}

#endif
