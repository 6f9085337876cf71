/* SPDX-License-Identifier: MIT */
/* The only place that asks what the CPU is. x86: CPUID says what the silicon has, XGETBV whether
 * the operating system saves the registers; both are needed. ARM: the kernel says it at once. */
#include "base/cpu.h"

#include "base/cgroup.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

#define XCR0_AVX 0x06u    /* XMM, YMM */
#define XCR0_AVX512 0xe6u /* and opmask, ZMM0-15 upper halves, ZMM16-31 */

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

/* The best of x86's, each of which includes those before it. */
static mf_cpu_tier detect_hardware(void)
{
    /* CPUID leaf 1, ECX */
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    /* CPUID leaf 7, EBX and ECX */
    const uint32_t avx2 = 1u << 5;
    const uint32_t avx512_fdqbwvl = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);
    const uint32_t avx512_vbmi_vnni = (1u << 1) | (1u << 11);

    uint32_t eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !has_all(ecx, fma | osxsave | avx | f16c))
        return MF_CPU_SCALAR;
    uint64_t xcr0 = read_xcr0();
    if ((xcr0 & XCR0_AVX) != XCR0_AVX)
        return MF_CPU_SCALAR;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !has_all(ebx, avx2))
        return MF_CPU_SCALAR;
    if ((xcr0 & XCR0_AVX512) != XCR0_AVX512)
        return MF_CPU_AVX2;
    if (!has_all(ebx, avx512_fdqbwvl) || !has_all(ecx, avx512_vbmi_vnni))
        return MF_CPU_AVX2;
    return MF_CPU_AVX512;
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

/* As the kernel numbers them; older headers of the system lack the names. */
#define HAS_ASIMD (1ul << 1)
#define HAS_ASIMDDP (1ul << 20)
#define HAS2_I8MM (1ul << 13)

static mf_cpu_tier detect_hardware(void)
{
    const unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
    if ((caps & HAS_ASIMD) == 0)
        return MF_CPU_SCALAR;
    if ((caps & HAS_ASIMDDP) == 0)
        return MF_CPU_NEON;
    return (caps2 & HAS2_I8MM) == 0 ? MF_CPU_NEON_DOTPROD : MF_CPU_NEON_I8MM;
}
#else
static mf_cpu_tier detect_hardware(void)
{
    return MF_CPU_SCALAR;
}
#endif

/* What comes before a tier on a CPU that has it; 0: nothing. */
static const struct tier {
    const char *name;
    mf_cpu_tier before;
} tiers[MF_CPU_END] = {
    [MF_CPU_BEST] = {"auto", MF_CPU_BEST},
    [MF_CPU_SCALAR] = {"scalar", MF_CPU_BEST},
    [MF_CPU_AVX2] = {"avx2", MF_CPU_SCALAR},
    [MF_CPU_AVX512] = {"avx512", MF_CPU_AVX2},
    [MF_CPU_NEON] = {"neon", MF_CPU_SCALAR},
    [MF_CPU_NEON_DOTPROD] = {"neon-dotprod", MF_CPU_NEON},
    [MF_CPU_NEON_I8MM] = {"neon-i8mm", MF_CPU_NEON_DOTPROD},
};

mf_cpu_tier mf_cpu_best(void)
{
    return detect_hardware();
}

bool mf_cpu_has(mf_cpu_tier tier)
{
    mf_cpu_tier at = detect_hardware();
    while (at != tier && at != MF_CPU_BEST)
        at = tiers[at].before;
    return at == tier;
}

const char *mf_cpu_tier_name(mf_cpu_tier tier)
{
    return (uint32_t)tier < MF_CPU_END ? tiers[tier].name : "unknown";
}

bool mf_cpu_tier_named(const char *name, mf_cpu_tier *out)
{
    for (uint32_t i = 0; i < MF_CPU_END; i++) {
        if (name != NULL && strcmp(name, tiers[i].name) != 0)
            continue;
        *out = (mf_cpu_tier)i;
        return true;
    }
    return false;
}

void mf_cpu_list_tiers(char *out, size_t n_bytes)
{
    size_t n = 0;
    for (uint32_t i = MF_CPU_SCALAR; i < MF_CPU_END && n < n_bytes; i++)
        if (mf_cpu_has((mf_cpu_tier)i))
            n += (size_t)snprintf(out + n, n_bytes - n, "%s%s", n == 0 ? "" : ", ", tiers[i].name);
}

static uint32_t count_affinity(void)
{
    /* Machines with more than 1024 CPUs refuse the static set; the count is only a default. */
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : (uint32_t)n;
}

uint32_t mf_cpu_count(void)
{
    uint32_t n = count_affinity();
    uint32_t paid = mf_cgroup_cpu_limit(MF_CGROUP_SELF, MF_CGROUP_MOUNT);
    return paid < n ? paid : n;
}
