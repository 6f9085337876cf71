/* SPDX-License-Identifier: MIT */
/* The number formats of weights and caches. */
#ifndef MF_BASE_DTYPE_H
#define MF_BASE_DTYPE_H

#include <stdint.h>

/* MF_Q8 is of caches alone (cache_rows.h): its rows are more than their values. */
typedef enum mf_dtype { MF_F32 = 1, MF_F16 = 2, MF_BF16 = 3, MF_Q8 = 4 } mf_dtype;

/* Of the floating-point types. */
static inline uint32_t mf_dtype_bytes(mf_dtype type)
{
    return type == MF_F32 ? 4 : 2;
}

#endif
