/* SPDX-License-Identifier: MIT */
/*
 * A row of a cache: what a position keeps, n_heads heads of dim values each (latents: one head).
 * float32 and bfloat16 values lie one after the other. In 8 bits (MF_Q8) each head is cut into
 * blocks of MF_CACHE_BLOCK values, the last one of what is left; a row is all values, a signed byte
 * each, and then the scales of all blocks, a bfloat16 each at any address: value * scale. A scale
 * is the block's largest magnitude / 127, rounded up, so that no value is beyond 127 and none is
 * off by more than half a scale. A block that is not finite has NaN for a scale: so are its values.
 */
#ifndef MF_BASE_CACHE_ROWS_H
#define MF_BASE_CACHE_ROWS_H

#include "base/dtype.h"
#include "base/half.h"

#include <stddef.h>

#define MF_CACHE_BLOCK 32u

static inline uint64_t mf_cache_blocks(uint64_t dim)
{
    return (dim + MF_CACHE_BLOCK - 1) / MF_CACHE_BLOCK;
}

static inline uint64_t mf_cache_row_bytes(mf_dtype type, uint64_t n_heads, uint64_t dim)
{
    return type == MF_Q8 ? n_heads * (dim + 2 * mf_cache_blocks(dim))
                         : n_heads * dim * mf_dtype_bytes(type);
}

/* Bytes from a row to the values of a head; from those to the head's scales. */
static inline size_t mf_cache_head_at(mf_dtype type, uint32_t head, uint32_t dim)
{
    return (size_t)head * dim * (type == MF_Q8 ? 1 : mf_dtype_bytes(type));
}

static inline size_t mf_cache_scales_at(uint32_t n_heads, uint32_t head, uint32_t dim)
{
    return (size_t)(n_heads - head) * dim + head * 2 * (size_t)mf_cache_blocks(dim);
}

/* Writes n_rows rows of floats, one after the other, as rows of the type. */
void mf_cache_store(unsigned char *to, const float *from, uint32_t n_rows, uint32_t n_heads,
                    uint32_t dim, mf_dtype type);

/* n values of a head, as they lie in a row, as float32. What reads them includes this: compilers
 * make vectors of it. */
static inline void mf_cache_load(float *to, const unsigned char *values,
                                 const unsigned char *scales, uint32_t n, mf_dtype type)
{
    const uint16_t *halves = (const uint16_t *)(const void *)values;
    const signed char *bytes = (const signed char *)values;
    uint16_t half;
    for (uint32_t i = 0; type == MF_BF16 && i < n; i++)
        to[i] = mf_f32_from_bf16(halves[i]);
    for (uint32_t at = 0; type == MF_Q8 && at < n; at += MF_CACHE_BLOCK) {
        const uint32_t end = n - at < MF_CACHE_BLOCK ? n : at + MF_CACHE_BLOCK;
        memcpy(&half, scales + at / MF_CACHE_BLOCK * 2, sizeof half);
        const float scale = mf_f32_from_bf16(half);
        for (uint32_t i = at; i < end; i++)
            to[i] = (float)bytes[i] * scale;
    }
}

#endif
