/* SPDX-License-Identifier: MIT */
/* Monotonic time. */
#ifndef MF_BASE_CLOCK_H
#define MF_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t mf_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static inline uint64_t mf_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
