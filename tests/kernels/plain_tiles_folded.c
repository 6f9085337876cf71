/* SPDX-License-Identifier: MIT */
/* kernels/x86/folded_amx.c over tiles in plain C. */
#include "plain_tiles.h"

#include "kernels/x86/folded_tiles.h"

static const mf_fixed_kernels kernels = {folded_prepare, folded_multiply, folded_scratch_bytes,
                                         mf_folded_token_bytes};

const mf_fixed_kernels *mf_plain_folded(void)
{
    return &kernels;
}
