/* SPDX-License-Identifier: MIT */
/*
 * Tiles: eight registers of up to 16 rows of up to 64 bytes, and products of bytes and of
 * bfloat16 between them.
 * Kernels by tiles are written over these operations, which the including file takes from
 * tiles_amx.h; tests have the same in plain C. `tiles` is a mf_tiles, tiles are numbered by
 * literals, `stride` is bytes from a row to the next.
 *
 *   MF_TILES_OPEN(tiles), MF_TILES_CLOSE(tiles)   all between them, on one thread
 *   MF_TILE_ZERO(tiles, i)
 *   MF_TILE_LOAD(tiles, i, from, stride), MF_TILE_STORE(tiles, i, to, stride)
 *   MF_TILE_DOT_SU(tiles, c, a, b)   c[m][n] += a[m][4 * k + j] * b[k][4 * n + j] for all k, j < 4:
 *                                    c of 32-bit integers modulo 2^32, a of signed bytes, b of
 *                                    unsigned ones
 *   MF_TILE_DOT_US(tiles, c, a, b)   the same of unsigned bytes and signed ones
 *   MF_TILE_DOT_SS(tiles, c, a, b)   and of signed ones alone
 *   MF_TILE_DOT_BF16(tiles, c, a, b) c[m][n] += even + odd, even being the sum of a[m][2 * k] *
 *                                    b[k][2 * n] over all k in their order, beginning with 0, each
 *                                    product added as a fused multiply-add, and odd that of
 *                                    a[m][2 * k + 1] * b[k][2 * n + 1]: c of float32, a and b of
 *                                    bfloat16. Every step rounds to the nearest, of two to the even
 *                                    one; numbers below the normal ones are zeros, read or made
 */
#ifndef MF_KERNELS_TILES_H
#define MF_KERNELS_TILES_H

#include <stdint.h>

enum {
    MF_TILE_ROWS = 16,
    MF_TILE_ROW_BYTES = 64,
    MF_TILED_TOKENS_MIN = 8 /* from so many on tiles pay */
};

/* What the tiles are to be, as the processor wants it. */
typedef struct mf_tiles {
    unsigned char palette, start_row, zeros[14];
    uint16_t row_bytes[16];
    unsigned char n_rows[16];
#if defined(MF_TILES_PLAIN)
    unsigned char bytes[8][MF_TILE_ROWS][MF_TILE_ROW_BYTES];
#endif
} mf_tiles;

static inline void mf_tile_shape(mf_tiles *tiles, uint32_t i, uint32_t n_rows, uint32_t row_bytes)
{
    tiles->palette = 1;
    tiles->n_rows[i] = (unsigned char)n_rows;
    tiles->row_bytes[i] = (uint16_t)row_bytes;
}

/* Tokens that go through tiles together, of n: about as many each time. The last tile begins
 * where it ends with the last token, so that some may be multiplied twice. */
static inline uint32_t mf_tile_tokens(uint32_t n_tokens)
{
    const uint32_t n_tiles = (n_tokens + MF_TILE_ROWS - 1) / MF_TILE_ROWS;
    return (n_tokens + n_tiles - 1) / n_tiles;
}

/* The first token of tile i of so many tokens each. */
static inline uint32_t mf_tile_first(uint32_t i, uint32_t together, uint32_t n_tokens)
{
    return i * together + together > n_tokens ? n_tokens - together : i * together;
}

#endif
