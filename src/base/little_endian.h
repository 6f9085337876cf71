/* SPDX-License-Identifier: MIT */
/* Numbers of up to 8 bytes as our files have them: the least byte first, at any address. */
#ifndef MF_BASE_LITTLE_ENDIAN_H
#define MF_BASE_LITTLE_ENDIAN_H

#include <stdint.h>

static inline uint64_t mf_get_le(const unsigned char *from, uint32_t n_bytes)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < n_bytes; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

static inline void mf_put_le(unsigned char *to, uint64_t value, uint32_t n_bytes)
{
    for (uint32_t i = 0; i < n_bytes; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

#endif
