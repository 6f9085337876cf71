/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks times activations in fixed point, ARM: what all tiers have in common. 32
 * columns at once, or 16 where they have a scale of their own: the products by each digit are added
 * up as integers, exactly, four rows become the lanes, and only then are they floats. So every tier
 * gives the same bits. The including file defines first
 *
 *   dot(acc, a, b)   acc + the sums of each four products of signed bytes
 */
#ifndef MF_KERNELS_BLOCKS_ROWS_NEON_H
#define MF_KERNELS_BLOCKS_ROWS_NEON_H

#include "kernels/arm/blocks_neon.h"
#include "kernels/arm/blocks_unpack_neon.h"
#include "kernels/x86/unroll.h"

#define MF_INLINE MF_LANE_OP

enum { TILE = 4, GROUP = 16, CHUNKS = 8, CHUNK = 32, DIGITS = 3 };

typedef float vec;

/* A span of a row. */
typedef struct unpacked_span {
    weights_32 weights[CHUNKS];
    span_scales scales;
    bool sixteens; /* scales are of 16 columns */
} unpacked_span;

/* Scales make up for weights that are twice what they mean. */
static float factor_of(mf_weight_kind kind)
{
    (void)kind;
    return 1.0f;
}

MF_LANE_OP vec zero_vec(void)
{
    return 0.0f;
}

MF_LANE_OP void sum_four(mf_weight_kind kind, const vec v[4], float out[4])
{
    (void)kind;
    memcpy(out, v, 4 * sizeof *out);
}

MF_LANE_OP void sum_panel(mf_weight_kind kind, const vec *v, size_t apart, float factor,
                          float out[16])
{
    (void)kind;
    for (uint32_t r = 0; r < 16; r++)
        out[r] = v[r * apart] * factor;
}

/* 32 activations by digit, the lowest first. */
typedef struct digits_32 {
    int8x16_t v[DIGITS][2];
} digits_32;

MF_LANE_OP digits_32 load_digits(const mf_blocks_span *x, uint32_t g)
{
    digits_32 d;
    MF_UNROLL(3)
    for (uint32_t i = 0; i < DIGITS; i++) {
        d.v[i][0] = vld1q_s8(x->chunks[g][i]);
        d.v[i][1] = vld1q_s8(x->chunks[g][i] + 16);
    }
    return d;
}

/* What the minima of a row add. */
MF_LANE_OP float sum_minima(const float min[16], const float sums[16])
{
    float32x4_t sum = vmulq_f32(vld1q_f32(min), vld1q_f32(sums));
    MF_UNROLL(3)
    for (uint32_t i = 4; i < 16; i += 4)
        sum = vfmaq_f32(sum, vld1q_f32(min + i), vld1q_f32(sums + i));
    return vaddvq_f32(sum);
}

/* Scale i of each of four rows. */
MF_LANE_OP float32x4_t scales_at(const span_scales *const s[4], uint32_t i)
{
    const float scales[4] = {s[0]->scale[i], s[1]->scale[i], s[2]->scale[i], s[3]->scale[i]};
    return vld1q_f32(scales);
}

/* What the lanes of each add up to. */
MF_LANE_OP int32x4_t add_lanes(const int32x4_t v[4])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

/* high * 256 + low, rounded once or, beyond 2^24, twice. */
MF_LANE_OP float32x4_t join(int32x4_t high, int32x4_t low)
{
    return vfmaq_n_f32(vcvtq_f32_s32(low), vcvtq_f32_s32(high), 256.0f);
}

/* 32 columns of four rows by a token. */
MF_LANE_OP float32x4_t sum_chunk(const weights_32 w[4], const digits_32 *x)
{
    int32x4_t high[4], low[4];
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++) {
        int32x4_t sum = vdupq_n_s32(0);
        sum = dot(dot(sum, w[r].v[0], x->v[2][0]), w[r].v[1], x->v[2][1]);
        sum = vshlq_n_s32(sum, 8);
        high[r] = dot(dot(sum, w[r].v[0], x->v[1][0]), w[r].v[1], x->v[1][1]);
        low[r] = dot(dot(vdupq_n_s32(0), w[r].v[0], x->v[0][0]), w[r].v[1], x->v[0][1]);
    }
    return join(add_lanes(high), add_lanes(low));
}

/* Of them 16: the weights are of 6 bits at most. */
MF_LANE_OP float32x4_t sum_sixteen(const weights_32 w[4], const digits_32 *x, uint32_t half)
{
    int32x4_t sums[4];
    MF_UNROLL(4)
    for (uint32_t r = 0; r < 4; r++) {
        sums[r] = dot(vdupq_n_s32(0), w[r].v[half], x->v[2][half]);
        sums[r] = dot(vshlq_n_s32(sums[r], 8), w[r].v[half], x->v[1][half]);
        sums[r] = dot(vshlq_n_s32(sums[r], 8), w[r].v[half], x->v[0][half]);
    }
    return vcvtq_f32_s32(add_lanes(sums));
}

/* Chunk g of four rows by a token: sum + products * scales. */
MF_LANE_OP float32x4_t add_chunk(bool sixteens, uint32_t g, const weights_32 w[4],
                                 const span_scales *const s[4], const digits_32 *x, float32x4_t sum)
{
    if (!sixteens)
        return vfmaq_f32(sum, sum_chunk(w, x), scales_at(s, g));
    sum = vfmaq_f32(sum, sum_sixteen(w, x, 0), scales_at(s, 2 * g));
    return vfmaq_f32(sum, sum_sixteen(w, x, 1), scales_at(s, 2 * g + 1));
}

/* What the minima of four rows add, by a token. */
MF_LANE_OP float32x4_t first_sums(bool with_min, const span_scales *const s[4],
                                  const mf_blocks_span *x)
{
    float sums[4] = {0};
    for (uint32_t r = 0; with_min && r < 4; r++)
        sums[r] = sum_minima(s[r]->min, x->sums);
    return vld1q_f32(sums);
}

MF_LANE_OP void unpack_span(mf_weight_kind kind, const span_tables *t, const mf_blocks_rows *w,
                            const unsigned char *v, const unsigned char *s, unpacked_span *out)
{
    out->sixteens = mf_blocks_has_sixteens(kind);
    scales_of(kind, v, s, w, &out->scales);
    MF_ROLLED
    for (uint32_t g = 0; g < CHUNKS; g++)
        out->weights[g] = chunk_weights(kind, t, v, g);
}

MF_LANE_OP const mf_blocks_span *span_of(const unsigned char *tokens, size_t token_bytes,
                                         uint32_t t)
{
    return (const mf_blocks_span *)(const void *)(tokens + t * token_bytes);
}

/* A span of four rows joins their sums by a token. */
MF_LANE_OP void add_sums(float32x4_t sums, float unit, vec *acc, size_t apart)
{
    float rows[4] = {acc[0], acc[apart], acc[2 * apart], acc[3 * apart]};
    vst1q_f32(rows, vfmaq_n_f32(vld1q_f32(rows), sums, unit));
    for (uint32_t r = 0; r < 4; r++)
        acc[r * apart] = rows[r];
}

/* Spans of four rows, and the tokens that they meet. */
typedef struct tile {
    const unpacked_span *rows;
    const unsigned char *tokens;
    size_t token_bytes;
    vec *acc;
    size_t apart;
} tile;

/* n tokens from `first` on; sixteens and n are constants. */
MF_LANE_OP void add_dots(bool sixteens, bool with_min, uint32_t n, const tile *a, uint32_t first)
{
    const unpacked_span *w = a->rows;
    const span_scales *const scales[4] = {&w[0].scales, &w[1].scales, &w[2].scales, &w[3].scales};
    float32x4_t sums[TILE];
    for (uint32_t t = 0; t < n; t++)
        sums[t] = first_sums(with_min, scales, span_of(a->tokens, a->token_bytes, first + t));
    MF_ROLLED
    for (uint32_t g = 0; g < CHUNKS; g++) {
        const weights_32 weights[4] = {w[0].weights[g], w[1].weights[g], w[2].weights[g],
                                       w[3].weights[g]};
        MF_UNROLL(4)
        for (uint32_t t = 0; t < n; t++) {
            const digits_32 x = load_digits(span_of(a->tokens, a->token_bytes, first + t), g);
            sums[t] = add_chunk(sixteens, g, weights, scales, &x, sums[t]);
        }
    }
    for (uint32_t t = 0; t < n; t++)
        add_sums(sums[t], span_of(a->tokens, a->token_bytes, first + t)->units[0],
                 a->acc + first + t, a->apart);
}

#endif
