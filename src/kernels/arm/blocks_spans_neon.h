/* SPDX-License-Identifier: MIT */
/* What kernels/x86/blocks_product.h asks for, over the including file's add_wide and add_narrow:
 * TILE tokens, two or one by four unpacked spans, with scales of 32 columns or of 16. */
#ifndef MF_KERNELS_BLOCKS_SPANS_NEON_H
#define MF_KERNELS_BLOCKS_SPANS_NEON_H

#include "kernels/arm/blocks_rows_neon.h"

enum { FEW = 1, SET = 4 }; /* tokens that are multiplied as one is; rows together */

MF_LANE_OP void add_tile(bool with_min, uint32_t n, const unpacked_span *w,
                         const unsigned char *tokens, size_t token_bytes, bool begins, vec *acc,
                         size_t apart)
{
    for (uint32_t r = 0; r < SET && begins; r++)
        for (uint32_t t = 0; t < n; t++)
            acc[r * apart + t] = 0.0f;
    const tile a = {w, tokens, token_bytes, acc, apart};
    if (w->sixteens)
        add_narrow(with_min, n, &a);
    else
        add_wide(with_min, n, &a);
}

/* One token: the same by way of the nearest cache, as that costs little beside memory. */
MF_LANE_OP uint32_t few_of(mf_weight_kind kind)
{
    (void)kind;
    return FEW;
}

MF_LANE_OP void add_span(mf_weight_kind kind, uint32_t n, const span_tables *t,
                         const mf_blocks_rows *w, const unsigned char *const v[4],
                         const unsigned char *const s[4], const unsigned char *tokens,
                         size_t token_bytes, vec acc[FEW][4])
{
    (void)n;
    (void)token_bytes;
    unpacked_span rows[4];
    MF_ROLLED
    for (uint32_t r = 0; r < 4; r++)
        unpack_span(kind, t, w, v[r], s[r], &rows[r]);
    add_tile(mf_blocks_has_min(kind), 1, rows, tokens, 0, false, acc[0], 1);
}

#endif
