/* SPDX-License-Identifier: MIT */
/* The floating-point types of weights and caches. */
#ifndef MF_BASE_DTYPE_H
#define MF_BASE_DTYPE_H

#include <stdint.h>

typedef enum mf_dtype { MF_F32 = 1, MF_F16 = 2, MF_BF16 = 3 } mf_dtype;

static inline uint32_t mf_dtype_bytes(mf_dtype type)
{
    return type == MF_F32 ? 4 : 2;
}

#endif
