/* SPDX-License-Identifier: MIT */
/*
 * Affine weights times activations in fixed point: what the x86 tiers share. A token's
 * activations become integers of 23 bits and a unit in each group of 64 columns; the sum of a
 * group's products of integers is exact, whatever its order, and only the sums of groups are added
 * as float32, in the order of the columns. That takes half the instructions of the float32 product,
 * and its error is of the same size: at most 2^-23 of the group's largest activation for each
 * weight.
 *
 * An activation is x = unit * (a2 * 2^16 + a1 * 2^8 + a0), each digit a signed byte; the sums of
 * the three digits are put together by shifts. Weights are (q - m) * scale + (bias + m * scale), m
 * being the middle of what their bits may be: with q - m for q, the sum of a group of 4 bits fits
 * 32 bits, and sums that pass beyond them on the way come back, as all is modulo 2^32. Of more bits
 * the sum by the highest digit is kept by itself until both become floats.
 */
#ifndef MF_KERNELS_FIXED_TOKEN_H
#define MF_KERNELS_FIXED_TOKEN_H

#include "base/checked.h"
#include "kernels/x86/blocks_token.h"
#include "kernels/x86/unroll.h"

enum {
    MF_FIXED_GROUP = 64,   /* columns of a group of activations */
    MF_FIXED_DIGITS = 3,   /* bytes of an activation */
    MF_FIXED_TOGETHER = 24 /* tokens that a call prepares together for itself */
};

/* The largest activation as an integer: 64 * 8 * LIMIT < 2^31. */
#define MF_FIXED_LIMIT 4194300.0f
/* Groups of nothing larger than this lose precision. A unit below it, times the scale of a weight,
 * might not be a normal number, which is slow to compute with. */
#define MF_FIXED_SMALLEST 0x1p-80f

/* A group's activations, [digit, the lowest first][even or odd columns]: a digit's 64 side by side,
 * as a tile multiplies them. */
typedef struct mf_fixed_digits {
    signed char digit[MF_FIXED_DIGITS][2][MF_FIXED_GROUP / 2];
} mf_fixed_digits;

/* A prepared token. Each array has an element a group. */
typedef struct mf_fixed_token {
    const mf_fixed_digits *digits;
    const float *units;
    const float *sums;      /* of the activations */
    const int32_t *offsets; /* -8 times the sums of the integers */
} mf_fixed_token;

/* Whether a matrix can be multiplied in fixed point: in groups of at least 64. */
static inline bool mf_is_fixed(const mf_matrix *w)
{
    return w->shape.kind == MF_WEIGHT_AFFINE && w->shape.group >= MF_FIXED_GROUP;
}

/* The same of up to 4 bits. More are not worth it to tiers without an instruction that adds
 * products of bytes up in 32 bits: those of 16 bits hold too few of them. */
static inline bool mf_is_fixed_narrow(const mf_matrix *w)
{
    return mf_is_fixed(w) && w->shape.bits <= 4;
}

/* Of activations. */
static inline uint32_t mf_fixed_groups(const mf_matrix *w)
{
    return w->shape.n_cols / MF_FIXED_GROUP;
}

/* Of the weights: asked in inner loops, so not of the table. */
static inline size_t mf_fixed_row_bytes(const mf_matrix *w)
{
    return (size_t)w->shape.n_cols * w->shape.bits / 8;
}

static inline size_t mf_fixed_token_bytes(const mf_matrix *w)
{
    size_t n = mf_fixed_groups(w);
    return (size_t)mf_round_up(n * (sizeof(mf_fixed_digits) + 2 * sizeof(float) + sizeof(int32_t)),
                               64);
}

static inline mf_fixed_token mf_fixed_token_at(const void *tokens, uint32_t n_groups)
{
    mf_fixed_token x;
    x.digits = tokens;
    x.units = (const float *)(const void *)(x.digits + n_groups);
    x.sums = x.units + n_groups;
    x.offsets = (const int32_t *)(const void *)(x.sums + n_groups);
    return x;
}

/* A tier's product. prepare, matmul and token_bytes are mf_kernels.prepare_token, .matmul_prepared
 * and .token_bytes. */
typedef struct mf_fixed_kernels {
    void (*prepare)(const mf_matrix *w, const float *x, void *out);
    void (*matmul)(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                   uint32_t n_tokens, float *y, size_t y_stride, void *scratch);
    size_t (*scratch_bytes)(const mf_matrix *w, uint32_t n_tokens);
    size_t (*token_bytes)(const mf_matrix *w);
} mf_fixed_kernels;

/* mf_kernels.token_bytes: of this form and of that of blocks, which is always longer. Of tiers that
 * multiply all affine weights in groups of 64 so; and of those that do so with up to 4 bits. */
static inline size_t mf_token_bytes_x86(const mf_matrix *w)
{
    if (mf_is_blocks(w))
        return mf_blocks_token_bytes(w);
    return mf_is_fixed(w) ? mf_fixed_token_bytes(w) : 0;
}

static inline size_t mf_token_bytes_narrow(const mf_matrix *w)
{
    return mf_is_blocks(w) || mf_is_fixed_narrow(w) ? mf_token_bytes_x86(w) : 0;
}

/* mf_kernels.matmul and what it needs, by tokens that nobody has prepared: of either form. */
size_t mf_fixed_plain_scratch_bytes(const mf_fixed_kernels *k, const mf_matrix *w,
                                    uint32_t n_tokens);
void mf_fixed_plain_matmul(const mf_fixed_kernels *k, const mf_matrix *w, uint32_t row0,
                           uint32_t row1, const float *x, size_t x_stride, uint32_t n_tokens,
                           float *y, size_t y_stride, unsigned char *scratch);

#endif
