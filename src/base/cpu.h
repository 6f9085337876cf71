/* SPDX-License-Identifier: MIT */
/* CPU detection: which kernel tiers this machine runs, and how many CPUs this process may use. */
#ifndef MF_BASE_CPU_H
#define MF_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Instruction sets of the kernels. The numbers are written into snapshots and mean no order. */
typedef enum mf_cpu_tier {
    MF_CPU_BEST = 0, /* whichever is best here */
    MF_CPU_SCALAR = 1,
    MF_CPU_AVX2 = 2,         /* and FMA, F16C */
    MF_CPU_AVX512 = 3,       /* F, BW, DQ, VL, VBMI, VNNI: Ice Lake, Zen 4 */
    MF_CPU_NEON = 4,         /* what every 64-bit ARM has */
    MF_CPU_NEON_DOTPROD = 5, /* and SDOT */
    MF_CPU_NEON_I8MM = 6,    /* and SMMLA */
    MF_CPU_AVX_VNNI = 7,     /* AVX2 and VNNI in its encoding: Alder Lake */
    MF_CPU_AVX512_BW = 8,    /* F, BW, DQ, VL: Skylake-SP */
    MF_CPU_AVX512_VNNI = 9,  /* and VNNI: Cascade Lake */
    MF_CPU_END               /* one past the last */
} mf_cpu_tier;

/* Whether CPU and operating system run it (XGETBV, HWCAP). */
bool mf_cpu_has(mf_cpu_tier tier);
/* The best of those. */
mf_cpu_tier mf_cpu_best(void);
/* "auto" is MF_CPU_BEST. */
const char *mf_cpu_tier_name(mf_cpu_tier tier);
/* False if there is none of that name, anywhere; NULL is MF_CPU_BEST. */
bool mf_cpu_tier_named(const char *name, mf_cpu_tier *out);
/* Names of those that this machine has, with commas between. */
void mf_cpu_list_tiers(char *out, size_t n_bytes);
/* CPUs in this process's affinity mask, at least 1; a cgroup's CPU quota is respected. */
uint32_t mf_cpu_count(void);

#endif
