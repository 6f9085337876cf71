/* SPDX-License-Identifier: MIT */
/* Tiles in plain C: plain_tiles.h. */
#include "plain_tiles.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void require(int is_true, const char *what)
{
    if (!is_true) {
        fprintf(stderr, "tiles: %s\n", what);
        abort();
    }
}

/* A tile that was given a shape. */
static void require_tile(const mf_tiles *tiles, uint32_t i)
{
    require(tiles->palette == 1, "not open");
    require(i < 8 && tiles->n_rows[i] > 0, "no such tile");
}

void mf_plain_tiles_open(mf_tiles *tiles)
{
    require(tiles->palette == 1 && tiles->start_row == 0, "no shapes");
    for (uint32_t i = 0; i < 14; i++)
        require(tiles->zeros[i] == 0, "bytes that have to be 0");
    for (uint32_t i = 0; i < 16; i++) {
        require(tiles->n_rows[i] <= (i < 8 ? MF_TILE_ROWS : 0), "rows");
        require(tiles->row_bytes[i] <= (i < 8 ? MF_TILE_ROW_BYTES : 0), "bytes of a row");
        require((tiles->n_rows[i] == 0) == (tiles->row_bytes[i] == 0), "half a shape");
    }
    memset(tiles->bytes, 0, sizeof tiles->bytes);
}

void mf_plain_tiles_close(mf_tiles *tiles)
{
    require(tiles->palette == 1, "not open");
    tiles->palette = 0;
}

void mf_plain_tile_zero(mf_tiles *tiles, uint32_t i)
{
    require_tile(tiles, i);
    memset(tiles->bytes[i], 0, sizeof tiles->bytes[i]);
}

void mf_plain_tile_load(mf_tiles *tiles, uint32_t i, const void *from, size_t stride)
{
    mf_plain_tile_zero(tiles, i);
    for (uint32_t m = 0; m < tiles->n_rows[i]; m++)
        memcpy(tiles->bytes[i][m], (const unsigned char *)from + m * stride, tiles->row_bytes[i]);
}

void mf_plain_tile_store(const mf_tiles *tiles, uint32_t i, void *to, size_t stride)
{
    require_tile(tiles, i);
    for (uint32_t m = 0; m < tiles->n_rows[i]; m++)
        memcpy((unsigned char *)to + m * stride, tiles->bytes[i][m], tiles->row_bytes[i]);
}

/* Tiles that may be multiplied with each other. */
static void require_match(const mf_tiles *tiles, uint32_t c, uint32_t a, uint32_t b)
{
    require_tile(tiles, a);
    require_tile(tiles, b);
    require_tile(tiles, c);
    require(a != b && a != c && b != c, "one tile twice");
    require(tiles->n_rows[c] == tiles->n_rows[a] && tiles->row_bytes[c] == tiles->row_bytes[b] &&
                tiles->row_bytes[a] == 4 * tiles->n_rows[b],
            "shapes that do not match");
}

static int32_t byte_value(unsigned char byte, bool is_signed)
{
    return is_signed ? (signed char)byte : byte;
}

void mf_plain_tile_dot(mf_tiles *tiles, bool signed_a, bool signed_b, uint32_t c, uint32_t a,
                       uint32_t b)
{
    require_match(tiles, c, a, b);
    for (uint32_t m = 0; m < tiles->n_rows[c]; m++) {
        for (uint32_t n = 0; n < tiles->row_bytes[c] / 4u; n++) {
            uint32_t sum;
            memcpy(&sum, &tiles->bytes[c][m][4 * (size_t)n], sizeof sum);
            for (uint32_t k = 0; k < tiles->row_bytes[a]; k++) {
                const int32_t first = byte_value(tiles->bytes[a][m][k], signed_a);
                const int32_t second = byte_value(tiles->bytes[b][k / 4][4 * n + k % 4], signed_b);
                sum += (uint32_t)(first * second);
            }
            memcpy(&tiles->bytes[c][m][4 * (size_t)n], &sum, sizeof sum);
        }
    }
}

/* Zero, of the same sign, for what is below the normal numbers. */
static float flushed(float v)
{
    return fabsf(v) < FLT_MIN ? copysignf(0.0f, v) : v;
}

static float bf16_at(const unsigned char *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return flushed(v);
}

/* The sum of the products of a row and a column of pairs, of which `which` says the element. */
static float sum_of(const mf_tiles *tiles, uint32_t a, uint32_t b, uint32_t m, uint32_t n,
                    uint32_t which)
{
    float sum = 0.0f;
    for (uint32_t k = 0; k < tiles->n_rows[b]; k++)
        sum = flushed(fmaf(bf16_at(&tiles->bytes[a][m][4 * k + 2 * which]),
                           bf16_at(&tiles->bytes[b][k][4 * n + 2 * which]), sum));
    return sum;
}

void mf_plain_tile_dot_bf16(mf_tiles *tiles, uint32_t c, uint32_t a, uint32_t b)
{
    require_match(tiles, c, a, b);
    for (uint32_t m = 0; m < tiles->n_rows[c]; m++) {
        for (uint32_t n = 0; n < tiles->row_bytes[c] / 4u; n++) {
            float sum;
            memcpy(&sum, &tiles->bytes[c][m][4 * (size_t)n], sizeof sum);
            const float even = sum_of(tiles, a, b, m, n, 0), odd = sum_of(tiles, a, b, m, n, 1);
            sum = flushed(flushed(sum) + flushed(even + odd));
            memcpy(&tiles->bytes[c][m][4 * (size_t)n], &sum, sizeof sum);
        }
    }
}
