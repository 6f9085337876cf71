/* SPDX-License-Identifier: MIT */
/* What the kernel tests share: tiers, random numbers biased to extremes, and memory with a guard
 * page right behind it. */
#ifndef MF_TESTS_KERNEL_DATA_H
#define MF_TESTS_KERNEL_DATA_H

#include "kernels/kernels.h"
#include "test.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

typedef struct guarded {
    unsigned char *mapping;
    size_t n_mapped;
    unsigned char *p; /* n bytes that end at an inaccessible page */
} guarded;

static inline guarded guarded_alloc(size_t n)
{
    guarded g;
    size_t pages = (n + 4095) / 4096;
    g.n_mapped = (pages + 2) * 4096;
    g.mapping = mmap(NULL, g.n_mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(g.mapping != MAP_FAILED);
    REQUIRE(mprotect(g.mapping, 4096, PROT_NONE) == 0);
    REQUIRE(mprotect(g.mapping + (pages + 1) * 4096, 4096, PROT_NONE) == 0);
    g.p = g.mapping + (pages + 1) * 4096 - n;
    return g;
}

static inline void guarded_free(guarded *g)
{
    munmap(g->mapping, g->n_mapped);
}

static inline uint64_t next_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Mostly in [-1, 1]; now and then zero, tiny, or large. */
static inline float next_float(uint64_t *state)
{
    uint64_t r = next_random(state);
    float x = (float)(int32_t)(r >> 32) * 0x1p-31f;
    switch (r % 32) {
    case 0:
        return 0.0f;
    case 1:
        return x * 1e-20f;
    case 2:
        return x * 64.0f;
    default:
        return x;
    }
}

static inline float *random_floats(uint64_t *state, guarded *g, size_t n)
{
    *g = guarded_alloc(n * sizeof(float));
    float *out = (float *)(void *)g->p;
    for (size_t i = 0; i < n; i++)
        out[i] = next_float(state);
    return out;
}

/* Runs test on every tier that this machine and build have, each once. */
static inline void for_tiers(void (*test)(const mf_kernels *k))
{
    for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++) {
        const mf_kernels *k = mf_kernels_get((mf_cpu_tier)tier);
        if (k != NULL)
            test(k);
    }
}

#endif
