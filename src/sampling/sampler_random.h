/* SPDX-License-Identifier: MIT */
/* Random numbers: xoshiro256** (Blackman and Vigna), seeded through splitmix64. */
#ifndef MF_SAMPLING_SAMPLER_RANDOM_H
#define MF_SAMPLING_SAMPLER_RANDOM_H

#include <stdint.h>

static inline uint64_t mf_rotate_left(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static inline void mf_random_seed(uint64_t state[4], uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        state[i] = z ^ z >> 31;
    }
}

static inline uint64_t mf_random_word(uint64_t s[4])
{
    uint64_t result = mf_rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = mf_rotate_left(s[3], 45);
    return result;
}

/* Uniform in [0, 1): the upper 53 bits. */
static inline double mf_random_next(uint64_t s[4])
{
    return (double)(mf_random_word(s) >> 11) * 0x1p-53;
}

#endif
