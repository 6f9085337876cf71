/* SPDX-License-Identifier: MIT */
/* CPU detection: which kernel tiers this machine runs, and how many cores this process may use. */
#ifndef MF_BASE_CPU_H
#define MF_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Instruction sets of the kernels. The numbers are written into snapshots and mean no order. */
typedef enum mf_cpu_tier {
    MF_CPU_BEST = 0, /* whichever is best here */
    MF_CPU_SCALAR = 1,
    MF_CPU_AVX2 = 2,             /* and FMA, F16C */
    MF_CPU_AVX512 = 3,           /* F, BW, DQ, VL, VBMI, VNNI: Ice Lake, Zen 4 */
    MF_CPU_NEON = 4,             /* what every 64-bit ARM has */
    MF_CPU_NEON_DOTPROD = 5,     /* and SDOT */
    MF_CPU_NEON_I8MM = 6,        /* and SMMLA */
    MF_CPU_AVX_VNNI = 7,         /* AVX2 and VNNI in its encoding: Alder Lake */
    MF_CPU_AVX512_BW = 8,        /* F, BW, DQ, VL: Skylake-SP */
    MF_CPU_AVX512_VNNI = 9,      /* and VNNI: Cascade Lake */
    MF_CPU_AVX512_AMX = 10,      /* AVX512, and tiles of bytes */
    MF_CPU_AVX512_AMX_BF16 = 11, /* and of bfloat16: Sapphire Rapids */
    MF_CPU_END                   /* one past the last */
} mf_cpu_tier;

/* Whether CPU, operating system (XGETBV, HWCAP) and this build (MF_AVX512) have it. Tiles are asked
 * of the kernel, which has to permit them to the process, and does so to all its threads. */
bool mf_cpu_has(mf_cpu_tier tier);
/* The best of those. */
mf_cpu_tier mf_cpu_best(void);
/* "auto" is MF_CPU_BEST. */
const char *mf_cpu_tier_name(mf_cpu_tier tier);
/* False if there is none of that name, anywhere; NULL is MF_CPU_BEST. */
bool mf_cpu_tier_named(const char *name, mf_cpu_tier *out);
/* Names of those that this machine has, with ", " between, the best last. */
void mf_cpu_list_tiers(char *out, size_t n_bytes);

/* Where the kernel says which CPUs are threads of one core. */
#define MF_CPU_FOLDER "/sys/devices/system/cpu"

/* Cores that the CPUs of a set belong to: CPU c is in it if bit c % 64 of set[c / 64] is one, c <
 * n_cpus. One whose siblings `folder` does not tell is a core by itself. */
uint32_t mf_cpu_cores(const char *folder, const uint64_t *set, uint32_t n_cpus);
/* Cores in this process's affinity mask, or where they are fewer than four, CPUs: threads of a core
 * share what computes. At least 1; a cgroup's CPU quota is respected. */
uint32_t mf_cpu_count(void);

#endif
