/* SPDX-License-Identifier: MIT */
/* kernels/x86/scaled_amx.c over tiles in plain C. */
#include "plain_tiles.h"

#include "kernels/x86/scaled_tiles.h"

static const mf_fixed_kernels kernels = {scaled_prepare, scaled_multiply, scaled_scratch_bytes,
                                         mf_scaled_token_bytes};

const mf_fixed_kernels *mf_plain_scaled(void)
{
    return &kernels;
}
