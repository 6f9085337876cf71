/* SPDX-License-Identifier: MIT */
/* The only place that asks what the CPU is. x86: CPUID says what the silicon has, XGETBV whether
 * the operating system saves the registers; both are needed. ARM: the kernel says it at once. */
#include "base/cpu.h"

#include "base/cgroup.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define XCR0_AVX 0x06u    /* XMM, YMM */
#define XCR0_AVX512 0xe6u /* and opmask, ZMM0-15 upper halves, ZMM16-31 */
#define XCR0_TILES 0x60000u

/* What has no kernels is as good as not there: nobody is to choose it, or to be told of it. */
#if defined(MF_NO_AVX512)
#define HAS_AVX512_KERNELS false
#else
#define HAS_AVX512_KERNELS true
#endif

/* As the kernel numbers them; older headers of the system lack the names. */
#define ASK_FOR_STATE 0x1023L /* ARCH_REQ_XCOMP_PERM */
#define TILE_DATA 18L         /* XFEATURE_XTILEDATA */

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

static bool has_all(uint32_t reg, uint32_t bits)
{
    return (reg & bits) == bits;
}

/* Whether tiles may be used, EDX being that of leaf 7: what they hold is more than the kernel makes
 * room for unasked. Asking again is granted again. */
static bool has_tiles(uint32_t edx, uint64_t xcr0)
{
    const uint32_t tile = 1u << 24, int8 = 1u << 25;
    return has_all(edx, tile | int8) && (xcr0 & XCR0_TILES) == XCR0_TILES &&
           syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}

/* Those of AVX-512, EBX, ECX and EDX being those of leaf 7. */
static uint32_t detect_avx512(uint32_t ebx, uint32_t ecx, uint32_t edx, uint64_t xcr0)
{
    const uint32_t fdqbwvl = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);
    const uint32_t vbmi = 1u << 1, vnni = 1u << 11, amx_bf16 = 1u << 22;
    uint32_t tiers = 0;
    if (!has_all(ebx, fdqbwvl))
        return 0;
    tiers |= 1u << MF_CPU_AVX512_BW;
    if (has_all(ecx, vnni))
        tiers |= 1u << MF_CPU_AVX512_VNNI;
    if (has_all(ecx, vnni | vbmi)) {
        tiers |= 1u << MF_CPU_AVX512;
        if (has_tiles(edx, xcr0)) {
            tiers |= 1u << MF_CPU_AVX512_AMX;
            if (has_all(edx, amx_bf16))
                tiers |= 1u << MF_CPU_AVX512_AMX_BF16;
        }
    }
    return tiers;
}

/* A bit for each tier. */
static uint32_t detect_tiers(void)
{
    /* CPUID leaf 1, ECX */
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    const uint32_t avx2 = 1u << 5;     /* leaf 7, EBX */
    const uint32_t avx_vnni = 1u << 4; /* leaf 7.1, EAX */

    uint32_t eax, ebx, ecx, edx, tiers = 1u << MF_CPU_SCALAR;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !has_all(ecx, fma | osxsave | avx | f16c))
        return tiers;
    uint64_t xcr0 = read_xcr0();
    if ((xcr0 & XCR0_AVX) != XCR0_AVX)
        return tiers;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !has_all(ebx, avx2))
        return tiers;
    tiers |= 1u << MF_CPU_AVX2;
    if (HAS_AVX512_KERNELS && (xcr0 & XCR0_AVX512) == XCR0_AVX512)
        tiers |= detect_avx512(ebx, ecx, edx, xcr0);
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && has_all(eax, avx_vnni))
        tiers |= 1u << MF_CPU_AVX_VNNI;
    return tiers;
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

/* As the kernel numbers them; older headers of the system lack the names. */
#define HAS_ASIMD (1ul << 1)
#define HAS_ASIMDDP (1ul << 20)
#define HAS2_I8MM (1ul << 13)

static uint32_t detect_tiers(void)
{
    const unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
    uint32_t tiers = 1u << MF_CPU_SCALAR;
    if ((caps & HAS_ASIMD) == 0)
        return tiers;
    tiers |= 1u << MF_CPU_NEON;
    if ((caps & HAS_ASIMDDP) == 0)
        return tiers;
    tiers |= 1u << MF_CPU_NEON_DOTPROD;
    if ((caps2 & HAS2_I8MM) != 0)
        tiers |= 1u << MF_CPU_NEON_I8MM;
    return tiers;
}
#else
static uint32_t detect_tiers(void)
{
    return 1u << MF_CPU_SCALAR;
}
#endif

static const char *const tier_names[MF_CPU_END] = {
    [MF_CPU_BEST] = "auto",
    [MF_CPU_SCALAR] = "scalar",
    [MF_CPU_AVX2] = "avx2",
    [MF_CPU_AVX512] = "avx512",
    [MF_CPU_NEON] = "neon",
    [MF_CPU_NEON_DOTPROD] = "neon-dotprod",
    [MF_CPU_NEON_I8MM] = "neon-i8mm",
    [MF_CPU_AVX_VNNI] = "avx-vnni",
    [MF_CPU_AVX512_BW] = "avx512-bw",
    [MF_CPU_AVX512_VNNI] = "avx512-vnni",
    [MF_CPU_AVX512_AMX] = "avx512-amx",
    [MF_CPU_AVX512_AMX_BF16] = "avx512-amx-bf16",
};

/* The better first: with products of bytes before wider ones without. */
static const mf_cpu_tier by_preference[] = {
    MF_CPU_AVX512_AMX_BF16, MF_CPU_AVX512_AMX, MF_CPU_AVX512, MF_CPU_AVX512_VNNI,
    MF_CPU_AVX_VNNI,        MF_CPU_AVX512_BW,  MF_CPU_AVX2,   MF_CPU_NEON_I8MM,
    MF_CPU_NEON_DOTPROD,    MF_CPU_NEON,       MF_CPU_SCALAR};

mf_cpu_tier mf_cpu_best(void)
{
    const uint32_t tiers = detect_tiers();
    size_t i = 0;
    while ((tiers >> by_preference[i] & 1) == 0)
        i++; /* every CPU has the last */
    return by_preference[i];
}

bool mf_cpu_has(mf_cpu_tier tier)
{
    return (uint32_t)tier < MF_CPU_END && (detect_tiers() >> tier & 1) != 0;
}

const char *mf_cpu_tier_name(mf_cpu_tier tier)
{
    return (uint32_t)tier < MF_CPU_END ? tier_names[tier] : "unknown";
}

bool mf_cpu_tier_named(const char *name, mf_cpu_tier *out)
{
    for (uint32_t i = 0; i < MF_CPU_END; i++) {
        if (name != NULL && strcmp(name, tier_names[i]) != 0)
            continue;
        *out = (mf_cpu_tier)i;
        return true;
    }
    return false;
}

void mf_cpu_list_tiers(char *out, size_t n_bytes)
{
    size_t n = 0;
    for (size_t i = sizeof by_preference / sizeof *by_preference; i-- > 0 && n < n_bytes;)
        if (mf_cpu_has(by_preference[i]))
            n += (size_t)snprintf(out + n, n_bytes - n, "%s%s", n == 0 ? "" : ", ",
                                  tier_names[by_preference[i]]);
}

/* So few do not use up what the memory gives, alone: there each of their threads counts. */
#define FEW_CORES 4u

static bool is_in(const uint64_t *set, uint32_t n_cpus, uint32_t cpu)
{
    return cpu < n_cpus && (set[cpu / 64] >> cpu % 64 & 1) != 0;
}

/* The first CPU of the set that a list such as "0,64" or "2-3" names; `cpu`, if the list is none.
 */
static uint32_t first_of_list(const char *list, const uint64_t *set, uint32_t n_cpus, uint32_t cpu)
{
    uint32_t first = cpu;
    for (const char *at = list; *at >= '0' && *at <= '9';) {
        char *end;
        const unsigned long from = strtoul(at, &end, 10);
        const unsigned long to = *end == '-' ? strtoul(end + 1, &end, 10) : from;
        for (unsigned long c = from; c <= to && c < first; c++)
            if (is_in(set, n_cpus, (uint32_t)c))
                first = (uint32_t)c;
        at = *end == ',' ? end + 1 : "";
    }
    return first;
}

uint32_t mf_cpu_cores(const char *folder, const uint64_t *set, uint32_t n_cpus)
{
    uint32_t n = 0;
    for (uint32_t cpu = 0; cpu < n_cpus; cpu++) {
        char path[256], list[256];
        if (!is_in(set, n_cpus, cpu))
            continue;
        (void)snprintf(path, sizeof path, "%s/cpu%u/topology/thread_siblings_list", folder, cpu);
        if (!mf_read_small_file(path, list, sizeof list) ||
            first_of_list(list, set, n_cpus, cpu) == cpu)
            n++;
    }
    return n;
}

static uint32_t count_affinity(void)
{
    /* Machines with more than 1024 CPUs refuse the static set; the count is only a default. */
    uint64_t bits[CPU_SETSIZE / 64] = {0};
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            bits[cpu / 64] |= (uint64_t)1 << cpu % 64;
    const uint32_t n_cpus = (uint32_t)CPU_COUNT(&set);
    const uint32_t n_cores = mf_cpu_cores(MF_CPU_FOLDER, bits, CPU_SETSIZE);
    return n_cores < FEW_CORES ? n_cpus : n_cores;
}

uint32_t mf_cpu_count(void)
{
    uint32_t n = count_affinity();
    uint32_t paid = mf_cgroup_cpu_limit(MF_CGROUP_SELF, MF_CGROUP_MOUNT);
    return paid < n ? paid : n;
}
