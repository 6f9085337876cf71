/* SPDX-License-Identifier: MIT */
/* Checked arithmetic for sizes that come from files: false on overflow, *out untouched. */
#ifndef MF_BASE_CHECKED_H
#define MF_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool mf_add_size(size_t a, size_t b, size_t *out)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

static inline bool mf_mul_size(size_t a, size_t b, size_t *out)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

static inline bool mf_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

static inline bool mf_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

/* n rounded up to a multiple of a power of two; n must leave room for it. */
static inline uint64_t mf_round_up(uint64_t n, uint64_t power_of_two)
{
    return (n + power_of_two - 1) & ~(power_of_two - 1);
}

#endif
