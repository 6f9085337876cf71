/* SPDX-License-Identifier: MIT */
/* Formats of blocks by many tokens, for tiers that add products in fours. */
#ifndef MF_KERNELS_BLOCKS_TILES_NEON_H
#define MF_KERNELS_BLOCKS_TILES_NEON_H

#include "kernels/arm/blocks_rows_neon.h"

/* Functions of their own: every kind has these same products. */
__attribute__((noinline)) static void add_wide(bool with_min, uint32_t n, const tile *a)
{
    if (n == TILE)
        add_dots(false, with_min, TILE, a, 0);
    else if (n == 2)
        add_dots(false, with_min, 2, a, 0);
    else
        add_dots(false, with_min, 1, a, 0);
}

__attribute__((noinline)) static void add_narrow(bool with_min, uint32_t n, const tile *a)
{
    if (n == TILE)
        add_dots(true, with_min, TILE, a, 0);
    else if (n == 2)
        add_dots(true, with_min, 2, a, 0);
    else
        add_dots(true, with_min, 1, a, 0);
}

#include "kernels/arm/blocks_spans_neon.h"

#include "kernels/x86/blocks_tokens.h"

#include "kernels/x86/blocks_product.h"

#endif
