/* SPDX-License-Identifier: MIT */
/* Rows of caches: 8 bits are off by half a scale at most, scales by one bfloat16 step, whatever the
 * values; what is not finite stays so in its block alone; rows, heads and blocks lie where they are
 * said to. */
#include "base/cache_rows.h"
#include "test.h"

#include <math.h>
#include <string.h>

enum { HEADS = 3, DIM = 77, BLOCKS = 3, ROWS = 2, ROW_BYTES = HEADS * (DIM + 2 * BLOCKS) };

static void load_head(float *to, const unsigned char *row, uint32_t head)
{
    const unsigned char *values = row + mf_cache_head_at(MF_Q8, head, DIM);
    mf_cache_load(to, values, values + mf_cache_scales_at(HEADS, head, DIM), DIM, MF_Q8);
}

static void check_rows(float size)
{
    float in[ROWS][HEADS][DIM], out[DIM];
    unsigned char rows[ROWS * ROW_BYTES + 1];
    uint64_t state = 7;
    for (size_t i = 0; i < ROWS * HEADS * DIM; i++)
        (&in[0][0][0])[i] = size * ((float)(test_random(&state) >> 40) / 8388608.0f - 1.0f);
    rows[ROWS * ROW_BYTES] = 0xa5;
    mf_cache_store(rows, &in[0][0][0], ROWS, HEADS, DIM, MF_Q8);
    CHECK(rows[ROWS * ROW_BYTES] == 0xa5);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t h = 0; h < HEADS; h++) {
            load_head(out, rows + (size_t)r * ROW_BYTES, h);
            for (uint32_t i = 0; i < DIM; i++) {
                double largest = 0;
                const uint32_t first = i / 32 * 32;
                for (uint32_t j = first; j < DIM && j < first + 32; j++)
                    largest = fmax(largest, fabs((double)in[r][h][j]));
                const double bound = largest / 127 * (1 + 0x1p-7) * 0.5 * 1.0001 + 0x1p-127;
                CHECK_MSG(fabs((double)out[i] - (double)in[r][h][i]) <= bound,
                          "row %u, head %u, value %u: %g became %g", r, h, i, (double)in[r][h][i],
                          (double)out[i]);
            }
        }
}

static void check_not_finite(float odd)
{
    float in[DIM], out[DIM];
    unsigned char row[DIM + 2 * BLOCKS];
    for (uint32_t i = 0; i < DIM; i++)
        in[i] = (float)i;
    in[40] = odd;
    mf_cache_store(row, in, 1, 1, DIM, MF_Q8);
    mf_cache_load(out, row, row + DIM, DIM, MF_Q8);
    for (uint32_t i = 0; i < DIM; i++)
        CHECK(isfinite(out[i]) == (i < 32 || i >= 64));
}

static void check_sizes(void)
{
    CHECK_U64(mf_cache_row_bytes(MF_F32, 2, 256), 2048);
    CHECK_U64(mf_cache_row_bytes(MF_BF16, 2, 256), 1024);
    CHECK_U64(mf_cache_row_bytes(MF_Q8, 2, 256), 544);
    CHECK_U64(mf_cache_row_bytes(MF_Q8, HEADS, DIM), ROW_BYTES);
    CHECK_U64(mf_cache_head_at(MF_BF16, 2, DIM), 4 * DIM);
    for (uint32_t h = 0; h < HEADS; h++)
        CHECK_U64(mf_cache_head_at(MF_Q8, h, DIM) + mf_cache_scales_at(HEADS, h, DIM),
                  HEADS * DIM + h * 2 * BLOCKS);
}

int main(void)
{
    static const float sizes[] = {0.0f,   1.0f,      1e-3f,     3e4f,   3e38f,
                                  1e-30f, 0x1p-126f, 0x1p-140f, 1e-45f, 127.0f};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_rows(sizes[i]);
    check_not_finite(NAN);
    check_not_finite(INFINITY);
    check_not_finite(-INFINITY);
    check_sizes();
    return test_result();
}
