/* SPDX-License-Identifier: MIT */
#include "base/cache_rows.h"

#include <math.h>
#include <stdbool.h>

/* largest / 127 as the next bfloat16 that is not less; what is below the smallest normal one is
 * kept as that. */
static uint16_t scale_of(float largest)
{
    const uint32_t bits = mf_bits_from_f32(fmaxf(largest / 127.0f, 0x1p-126f));
    return (uint16_t)((bits + 0xffffu) >> 16);
}

static void store_block(unsigned char *values, unsigned char *scale, const float *from, uint32_t n)
{
    float largest = 0;
    uint16_t half = 0x7fc0;
    bool is_finite = true;
    for (uint32_t i = 0; i < n; i++) {
        const float size = fabsf(from[i]);
        largest = size > largest ? size : largest;
        is_finite = is_finite && size <= 0x1.fffffep127f;
    }
    memset(values, 0, n);
    if (is_finite && largest > 0) {
        half = scale_of(largest);
        const float inverse = 1.0f / mf_f32_from_bf16(half);
        for (uint32_t i = 0; i < n; i++)
            values[i] = (unsigned char)(signed char)rintf(from[i] * inverse);
    } else if (is_finite) {
        half = 0;
    }
    memcpy(scale, &half, sizeof half);
}

static void store_q8(unsigned char *to, const float *from, uint32_t n_heads, uint32_t dim)
{
    const uint32_t n_blocks = (uint32_t)mf_cache_blocks(dim);
    unsigned char *scale = to + (size_t)n_heads * dim;
    for (uint32_t h = 0; h < n_heads; h++, to += dim, from += dim)
        for (uint32_t b = 0; b < n_blocks; b++, scale += 2) {
            const uint32_t at = b * MF_CACHE_BLOCK, left = dim - at;
            store_block(to + at, scale, from + at, left < MF_CACHE_BLOCK ? left : MF_CACHE_BLOCK);
        }
}

void mf_cache_store(unsigned char *to, const float *from, uint32_t n_rows, uint32_t n_heads,
                    uint32_t dim, mf_dtype type)
{
    const size_t width = (size_t)n_heads * dim;
    const size_t row_bytes = (size_t)mf_cache_row_bytes(type, n_heads, dim);
    if (type == MF_F32) {
        memcpy(to, from, n_rows * row_bytes);
        return;
    }
    for (uint32_t r = 0; r < n_rows; r++, to += row_bytes, from += width) {
        uint16_t *halves = (uint16_t *)(void *)to;
        if (type == MF_Q8)
            store_q8(to, from, n_heads, dim);
        for (size_t i = 0; type == MF_BF16 && i < width; i++)
            halves[i] = mf_bf16_from_f32(from[i]);
    }
}
