/* SPDX-License-Identifier: MIT */
/* Of fixed_product.h's primitives: a token whose digits are taken as they lie. */
#ifndef MF_KERNELS_FIXED_AS_IT_LIES_H
#define MF_KERNELS_FIXED_AS_IT_LIES_H

#include "kernels/x86/fixed_panel.h"

typedef mf_fixed_digits ordered;

/* Bytes of a token in its order. */
MF_LANE_OP size_t ordered_bytes(uint32_t n_groups)
{
    (void)n_groups;
    return 0;
}

MF_LANE_OP const ordered *order_token(uint32_t bits, const mf_fixed_digits *x, uint32_t n_groups,
                                      void *to)
{
    (void)bits;
    (void)n_groups;
    (void)to;
    return x;
}

#endif
