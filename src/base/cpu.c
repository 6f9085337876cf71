/* SPDX-License-Identifier: MIT */
/* The only place that asks what the CPU is. CPUID says what the silicon has, XGETBV whether the
 * operating system saves the registers; both are needed. */
#include "base/cpu.h"

#include "base/cgroup.h"

#include <sched.h>
#include <stdbool.h>

#if defined(__x86_64__) || defined(__i386__)
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
#else
static mf_cpu_tier detect_hardware(void)
{
    return MF_CPU_SCALAR;
}
#endif

mf_cpu_tier mf_cpu_detect(uint32_t limit)
{
    mf_cpu_tier best = detect_hardware();
    return limit != 0 && limit < (uint32_t)best ? (mf_cpu_tier)limit : best;
}

const char *mf_cpu_tier_name(mf_cpu_tier tier)
{
    switch (tier) {
    case MF_CPU_BEST:
        break;
    case MF_CPU_SCALAR:
        return "scalar";
    case MF_CPU_AVX2:
        return "avx2";
    case MF_CPU_AVX512:
        return "avx512";
    }
    return "unknown";
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
