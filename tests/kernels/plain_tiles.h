/* SPDX-License-Identifier: MIT */
/*
 * The operations of kernels/x86/tiles.h in plain C, one multiplication after the other, so that
 * kernels by tiles run where there are none. What AMX would refuse with a fault, shapes that do not
 * match, and tiles used before or after they are there, ends the process.
 */
#ifndef MF_TESTS_PLAIN_TILES_H
#define MF_TESTS_PLAIN_TILES_H

#define MF_TILES_PLAIN
#include "kernels/tier.h"
#include "kernels/x86/fixed_token.h"
#include "kernels/x86/tiles.h"

/* The kernels of fixed_amx.c, compiled over this. */
size_t mf_plain_fixed_scratch_bytes(const mf_matrix *w, uint32_t n_tokens);
void mf_plain_fixed_matmul(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                           uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

/* The same of bf16_amx.c, of fp8_amx.c. */
size_t mf_plain_bf16_scratch_bytes(const mf_matrix *w, uint32_t n_tokens);
void mf_plain_bf16_matmul(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                          size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                          void *scratch);
size_t mf_plain_fp8_scratch_bytes(const mf_matrix *w, uint32_t n_tokens);
void mf_plain_fp8_matmul(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                         size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                         void *scratch);

/* The same of folded_amx.c, of scaled_amx.c. */
void mf_plain_folded_prepare(const mf_matrix *w, const float *x, void *out);
size_t mf_plain_folded_scratch_bytes(const mf_matrix *w, uint32_t n_tokens);
void mf_plain_folded_matmul(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch);
void mf_plain_scaled_prepare(const mf_matrix *w, const float *x, void *out);
size_t mf_plain_scaled_scratch_bytes(const mf_matrix *w, uint32_t n_tokens);
void mf_plain_scaled_matmul(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

/* What matmul_avx512.c makes of all these, as for the tiers with tiles. */
MF_DECLARE_PRODUCTS(plain_amx);
size_t mf_token_bytes_plain_amx(const mf_matrix *w);
void mf_prepare_token_plain_amx(const mf_matrix *w, const float *x, void *out);
MF_DECLARE_PREPARED_PRODUCTS(plain_amx);
MF_DECLARE_PRODUCTS(plain_amx_bf16);

/* The tier with tiles of bytes so; `vectors`: AVX-512's. */
static inline mf_kernels mf_plain_amx_kernels(const mf_kernels *vectors)
{
    mf_kernels k = *vectors;
    k.tier = MF_CPU_AVX512_AMX;
    k.matmul_scratch_bytes = mf_matmul_scratch_bytes_plain_amx;
    k.matmul = mf_matmul_plain_amx;
    k.token_bytes = mf_token_bytes_plain_amx;
    k.prepare_token = mf_prepare_token_plain_amx;
    k.matmul_prepared = mf_matmul_prepared_plain_amx;
    return k;
}

void mf_plain_tiles_open(mf_tiles *tiles);
void mf_plain_tiles_close(mf_tiles *tiles);
void mf_plain_tile_zero(mf_tiles *tiles, uint32_t i);
void mf_plain_tile_load(mf_tiles *tiles, uint32_t i, const void *from, size_t stride);
void mf_plain_tile_store(const mf_tiles *tiles, uint32_t i, void *to, size_t stride);
void mf_plain_tile_dot(mf_tiles *tiles, bool signed_a, bool signed_b, uint32_t c, uint32_t a,
                       uint32_t b);
void mf_plain_tile_dot_bf16(mf_tiles *tiles, uint32_t c, uint32_t a, uint32_t b);

#define MF_TILES_OPEN(tiles) mf_plain_tiles_open(tiles)
#define MF_TILES_CLOSE(tiles) mf_plain_tiles_close(tiles)
#define MF_TILE_ZERO(tiles, i) mf_plain_tile_zero(tiles, i)
#define MF_TILE_LOAD(tiles, i, from, stride) mf_plain_tile_load(tiles, i, from, stride)
#define MF_TILE_STORE(tiles, i, to, stride) mf_plain_tile_store(tiles, i, to, stride)
#define MF_TILE_DOT_SU(tiles, c, a, b) mf_plain_tile_dot(tiles, true, false, c, a, b)
#define MF_TILE_DOT_US(tiles, c, a, b) mf_plain_tile_dot(tiles, false, true, c, a, b)
#define MF_TILE_DOT_SS(tiles, c, a, b) mf_plain_tile_dot(tiles, true, true, c, a, b)
#define MF_TILE_DOT_BF16(tiles, c, a, b) mf_plain_tile_dot_bf16(tiles, c, a, b)

#endif
