/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks with a float for the scale of each 32 columns (or more), times activations in
 * fixed point, for tiles: what a prepared token is. The sum of a block's products is exact, becomes
 * a float, and is added to the ones before it, in the order of the columns: so a row's bits depend
 * on nothing but the row and the token.
 *
 * A tile's product takes as long for 32 columns as for 64. So where a weight has 4 or 5 bits it
 * lies in a tile twice, once as it is and once times 2^shift, each by a digit of its own of the
 * same activations: 32 columns fill a tile's 64 bytes, and two products do for all of an
 * activation's bits. A weight of 8 bits takes three, by digits of 8 bits.
 *
 * One token goes by vectors (blocks_row_avx512.h), with digits in the order of lanes.
 */
#ifndef MF_KERNELS_SCALED_TOKEN_H
#define MF_KERNELS_SCALED_TOKEN_H

#include "kernels/x86/blocks_token.h"
#include "kernels/x86/tiles.h"

enum {
    MF_SCALED_COLS = 32,                         /* of a block */
    MF_SCALED_BLOCKS = MF_SPAN / MF_SCALED_COLS, /* of a span */
    MF_SCALED_CHUNKS = 4                         /* of a span, with a unit each */
};

/* A span's activations as a tile has them in its rows, a block after the other. */
typedef union mf_scaled_digits {
    /* The low bits of activations, and those above; of each what is multiplied by weights as they
     * are, and by those times 2^shift. */
    signed char halves[MF_SCALED_BLOCKS][2][2][MF_SCALED_COLS];
    signed char bytes[MF_SCALED_BLOCKS][3][MF_SCALED_COLS]; /* the lowest digit first */
} mf_scaled_digits;

/* The same in the order of lanes. */
typedef struct mf_scaled_lanes {
    signed char digits[3][MF_SCALED_CHUNKS][64]; /* the lowest first */
    int32_t offsets[16]; /* what makes up for weights that lanes have above what they are */
    float units[2][16];  /* of the blocks as their sums come from lanes */
} mf_scaled_lanes;

/* A prepared token, an element a span. */
typedef struct mf_scaled_token {
    mf_scaled_digits *digits;
    mf_scaled_lanes *lanes;
    float (*units)[MF_SCALED_CHUNKS]; /* of 64 columns each */
} mf_scaled_token;

enum { MF_SCALED_SPAN_BYTES = 2048 /* that a span takes of a token, of which 48 are not used */ };

static inline mf_scaled_token mf_scaled_token_at(const void *token, uint32_t n_spans)
{
    mf_scaled_token x;
    x.digits = (mf_scaled_digits *)(uintptr_t)token;
    x.lanes = (mf_scaled_lanes *)(void *)(x.digits + n_spans);
    x.units = (float(*)[MF_SCALED_CHUNKS])(void *)(x.lanes + n_spans);
    return x;
}

/* Whether tiles multiply it so. */
static inline bool mf_is_scaled(const mf_matrix *w)
{
    switch (w->shape.kind) {
    case MF_WEIGHT_MXFP4:
    case MF_WEIGHT_INT4:
    case MF_WEIGHT_INT8:
    case MF_WEIGHT_GGUF_Q4_0:
    case MF_WEIGHT_GGUF_Q5_0:
    case MF_WEIGHT_GGUF_Q8_0:
    case MF_WEIGHT_GGUF_IQ4_NL:
    case MF_WEIGHT_GGUF_MXFP4:
        return true;
    default:
        return false;
    }
}

/* By which a weight of `kind`, a constant, may be shifted within a signed byte; 0: it has 8 bits.
 */
static inline uint32_t mf_scaled_shift(mf_weight_kind kind)
{
    switch (kind) {
    case MF_WEIGHT_GGUF_Q4_0: /* -8 .. 7 */
    case MF_WEIGHT_INT4:
        return 4;
    case MF_WEIGHT_GGUF_Q5_0: /* -16 .. 15 */
    case MF_WEIGHT_MXFP4:     /* -12 .. 12 */
    case MF_WEIGHT_GGUF_MXFP4:
        return 3;
    default:
        return 0;
    }
}

/* The form of each kind is told apart by it; and tokens do not lie alike in a page, so that all of
 * a tile's rows have a place in the first cache. */
static inline size_t mf_scaled_token_bytes(const mf_matrix *w)
{
    const uint32_t shift = mf_scaled_shift(w->shape.kind);
    return mf_blocks_spans(w) * MF_SCALED_SPAN_BYTES +
           (shift == 4   ? 64
            : shift == 3 ? 192
                         : 320) +
           (mf_blocks_is_woven(w->shape.kind) ? 512 : 0) +
           (mf_blocks_is_paired(w->shape.kind) ? 1024 : 0);
}

#endif
