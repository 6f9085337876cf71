/* SPDX-License-Identifier: MIT */
/* Memory figures against the kernel's, and cgroup limits from made-up hierarchies. */
#include "base/cgroup.h"
#include "base/cpu.h"
#include "base/memory_limits.h"
#include "put_file.h"
#include "test.h"

#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

static char root[64] = "/tmp/mf-test-cgroup-XXXXXX";

static void test_resident(void)
{
    uint64_t before = mf_memory_resident_bytes();
    const size_t n_bytes = 128 * MIB;
    unsigned char *bytes = malloc(n_bytes);
    REQUIRE(bytes != NULL);
    for (size_t i = 0; i < n_bytes; i += 4096)
        ((volatile unsigned char *)bytes)[i] = 1;
    uint64_t during = mf_memory_resident_bytes();
    /* the kernel's count is behind by some pages for each processor */
    CHECK(during >= before + 96 * MIB);
    free(bytes);
}

static void test_available(void)
{
    struct sysinfo info;
    REQUIRE(sysinfo(&info) == 0);
    uint64_t available = mf_memory_available_bytes();
    CHECK(available > 0);
    CHECK(available <= (uint64_t)info.totalram * info.mem_unit);

    CHECK_U64(mf_memory_available_of(100, UINT64_MAX), 100);
    CHECK_U64(mf_memory_available_of(100, 99), 99);
    CHECK_U64(mf_memory_available_of(100, 101), 100);
    CHECK_U64(mf_memory_available_of(100, 0), 0);
    CHECK_U64(mf_memory_available_of(0, 99), 99); /* the machine does not say */
    CHECK_U64(mf_memory_available_of(0, UINT64_MAX), 0);
}

static uint64_t memory_room(const char *self, const char *mount)
{
    char self_path[256], mount_path[256];
    snprintf(self_path, sizeof self_path, "%s/%s", root, self);
    snprintf(mount_path, sizeof mount_path, "%s/%s", root, mount);
    return mf_cgroup_memory_room_bytes(self_path, mount_path);
}

static uint32_t cpu_limit(const char *self, const char *mount)
{
    char self_path[256], mount_path[256];
    snprintf(self_path, sizeof self_path, "%s/%s", root, self);
    snprintf(mount_path, sizeof mount_path, "%s/%s", root, mount);
    return mf_cgroup_cpu_limit(self_path, mount_path);
}

/* Unified hierarchy; an ancestor's limit is the tighter one. */
static void test_v2(void)
{
    put_file(root, "v2.self", "0::/user.slice/session.scope\n");
    put_file(root, "v2/user.slice/memory.max", "1073741824\n");
    put_file(root, "v2/user.slice/memory.current", "524288000\n");
    put_file(root, "v2/user.slice/memory.stat",
             "anon 1\nfile 2\ninactive_file 100000000\nactive_file 20000000\n");
    put_file(root, "v2/user.slice/session.scope/memory.max", "max\n");
    put_file(root, "v2/user.slice/session.scope/memory.current", "5000\n");
    put_file(root, "v2/user.slice/cpu.max", "150000 100000\n");
    put_file(root, "v2/user.slice/session.scope/cpu.max", "max 100000\n");
    CHECK_U64(memory_room("v2.self", "v2"), 1073741824 - 524288000 + 100000000 + 10000000);
    CHECK_U64(cpu_limit("v2.self", "v2"), 2);

    put_file(root, "v2/user.slice/session.scope/memory.max", "100000\n");
    put_file(root, "v2/user.slice/session.scope/cpu.max", "20000 100000\n");
    CHECK_U64(memory_room("v2.self", "v2"), 95000);
    CHECK_U64(cpu_limit("v2.self", "v2"), 1);

    put_file(root, "v2/user.slice/session.scope/memory.current", "200000\n");
    CHECK_U64(memory_room("v2.self", "v2"), 0);
}

/* Every group along the path has a limit: the least room counts, wherever it is. */
static void test_least_of_all(void)
{
    put_file(root, "all.self", "0::/a/b/c\n");
    put_file(root, "all/a/b/c/memory.max", "900\n");
    put_file(root, "all/a/b/c/memory.current", "100\n");
    put_file(root, "all/a/b/memory.max", "700\n");
    put_file(root, "all/a/b/memory.current", "200\n");
    put_file(root, "all/a/memory.max", "2000\n");
    put_file(root, "all/a/memory.current", "1300\n");
    put_file(root, "all/a/b/c/cpu.max", "400000 100000\n");
    put_file(root, "all/a/b/cpu.max", "200000 100000\n");
    put_file(root, "all/a/cpu.max", "300000 100000\n");
    CHECK_U64(memory_room("all.self", "all"), 500);
    CHECK_U64(cpu_limit("all.self", "all"), 2);
    put_file(root, "all/a/memory.current", "1600\n");
    CHECK_U64(memory_room("all.self", "all"), 400);
    put_file(root, "all/a/b/c/memory.current", "600\n");
    CHECK_U64(memory_room("all.self", "all"), 300);
}

/* A group is slowed down beyond memory.high as it is killed beyond memory.max. */
static void test_high(void)
{
    put_file(root, "high.self", "0::/g\n");
    put_file(root, "high/g/memory.current", "1000\n");
    put_file(root, "high/g/memory.max", "max\n");
    put_file(root, "high/g/memory.high", "5000\n");
    CHECK_U64(memory_room("high.self", "high"), 4000);
    put_file(root, "high/g/memory.max", "3000\n");
    CHECK_U64(memory_room("high.self", "high"), 2000);
    put_file(root, "high/g/memory.high", "2500\n");
    CHECK_U64(memory_room("high.self", "high"), 1500);
    put_file(root, "high/g/memory.high", "max\n");
    CHECK_U64(memory_room("high.self", "high"), 2000);
}

/* The first hierarchy, controllers mounted one by one, nested groups. */
static void test_v1(void)
{
    put_file(root, "v1.self",
             "5:cpuset:/other\n4:memory:/a/b\n3:cpu,cpuacct:/c\n1:name=systemd:/x\n");
    put_file(root, "v1/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put_file(root, "v1/memory/a/memory.limit_in_bytes", "800000\n");
    put_file(root, "v1/memory/a/memory.usage_in_bytes", "300000\n");
    put_file(root, "v1/memory/a/memory.stat",
             "inactive_file 7\ntotal_inactive_file 1000\ntotal_active_file 10\n");
    put_file(root, "v1/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    put_file(root, "v1/cpu/c/cpu.cfs_quota_us", "300000\n");
    put_file(root, "v1/cpu/c/cpu.cfs_period_us", "100000\n");
    CHECK_U64(memory_room("v1.self", "v1"), 800000 - 300000 + 1000 + 5);
    CHECK_U64(cpu_limit("v1.self", "v1"), 3);
    put_file(root, "v1/cpu/c/cpu.cfs_quota_us", "-1\n");
    CHECK_U64(cpu_limit("v1.self", "v1"), UINT32_MAX);
}

/* In a container the path is the host's, and the mount's root is the container's own group. */
static void test_container(void)
{
    put_file(root, "host.self", "4:memory:/docker/0123abcd\n0::/system.slice/docker-0123.scope\n");
    put_file(root, "host/memory.max", "5000000\n");
    put_file(root, "host/memory.current", "1000000\n");
    CHECK_U64(memory_room("host.self", "host"), 4000000);
    put_file(root, "host/memory/memory.limit_in_bytes", "3000000\n");
    CHECK_U64(memory_room("host.self", "host"), 3000000);
}

/* A hybrid machine: v1 controllers beside a unified hierarchy in a folder of its own. */
static void test_hybrid(void)
{
    put_file(root, "hybrid.self", "2:pids:/\n0::/g\n");
    put_file(root, "hybrid/unified/g/memory.max", "77\n");
    put_file(root, "hybrid/unified/g/cpu.max", "400000 100000\n");
    CHECK_U64(memory_room("hybrid.self", "hybrid"), 77);
    CHECK_U64(cpu_limit("hybrid.self", "hybrid"), 4);
}

static void test_nonsense(void)
{
    CHECK_U64(memory_room("absent", "absent"), UINT64_MAX);
    CHECK_U64(cpu_limit("absent", "absent"), UINT32_MAX);
    put_file(root, "odd.self", "\n:\n::\nx\n0:memory:\n4:memory:/q\n0::/q");
    put_file(root, "odd/memory/q/memory.limit_in_bytes", "");
    put_file(root, "odd/memory/q/cpu.max", "5");
    put_file(root, "odd/q/cpu.max", "5 0\n");
    put_file(root, "odd/q/memory.max", "-3\n");
    CHECK_U64(memory_room("odd.self", "odd"), UINT64_MAX);
    CHECK_U64(cpu_limit("odd.self", "odd"), UINT32_MAX);

    static char long_path[3000];
    memset(long_path, 'p', sizeof long_path - 1);
    memcpy(long_path, "0::/", 4);
    put_file(root, "long.self", long_path);
    CHECK_U64(memory_room("long.self", "v2"), UINT64_MAX);
}

static uint32_t cores(const char *folder, uint64_t low, uint64_t high)
{
    char path[512];
    const uint64_t set[2] = {low, high};
    snprintf(path, sizeof path, "%s/%s", root, folder);
    return mf_cpu_cores(path, set, 128);
}

/* Threads of a core are counted once, as far as the set has them. */
static void test_cores(void)
{
    char path[64], list[64];
    for (unsigned cpu = 0; cpu < 128; cpu++) {
        snprintf(path, sizeof path, "far/cpu%u/topology/thread_siblings_list", cpu);
        snprintf(list, sizeof list, "%u,%u\n", cpu % 64, cpu % 64 + 64);
        put_file(root, path, list);
        snprintf(path, sizeof path, "near/cpu%u/topology/thread_siblings_list", cpu);
        snprintf(list, sizeof list, "%u-%u\n", cpu / 4 * 4, cpu / 4 * 4 + 3);
        put_file(root, path, list);
    }
    CHECK_U64(cores("far", UINT64_MAX, UINT64_MAX), 64);
    CHECK_U64(cores("far", 0, UINT64_MAX), 64);
    CHECK_U64(cores("far", 3, 3), 2);
    CHECK_U64(cores("far", 1, 2), 2);
    CHECK_U64(cores("near", UINT64_MAX, UINT64_MAX), 32);
    CHECK_U64(cores("near", 0xe, 0), 1);
    CHECK_U64(cores("near", 0x18, 1), 3);
    CHECK_U64(cores("near", 0, 0), 0);
    CHECK_U64(cores("none", 0xff, 0), 8); /* nobody says */
    static const char *const odd[] = {
        "", "\n", "x", "-3", "1-", "99999999999999999999", "1,,0", "0-4294967295", "5,"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        put_file(root, "odd/cpu1/topology/thread_siblings_list", odd[i]);
        CHECK_U64(cores("odd", 2, 0), 1);
    }
}

static void test_cpu_count(void)
{
    uint32_t n = mf_cpu_count();
    CHECK(n >= 1 && n <= (uint32_t)sysconf(_SC_NPROCESSORS_ONLN));
    cpu_set_t before, one;
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &before)) {
            CPU_SET(cpu, &one);
            break;
        }
    }
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK_U64(mf_cpu_count(), 1);
    REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

#if defined(__aarch64__)
enum { IS_ARM = 1 };
#else
enum { IS_ARM = 0 };
#endif

static bool cpuinfo_has(const char *flags, const char *flag)
{
    size_t n = strlen(flag);
    for (const char *at = flags; (at = strstr(at, flag)) != NULL; at += n)
        if (at > flags && (at[-1] == ' ' || at[-1] == '\t') && (at[n] == ' ' || at[n] == '\n'))
            return true;
    return false;
}

static void check_tier_names(void)
{
    static const char *const names[] = {
        "auto",      "scalar",   "avx2",      "avx512",      "neon",       "neon-dotprod",
        "neon-i8mm", "avx-vnni", "avx512-bw", "avx512-vnni", "avx512-amx", "avx512-amx-bf16"};
    mf_cpu_tier tier;
    char list[160];
    for (uint32_t i = 0; i < MF_CPU_END; i++) {
        CHECK_STR(mf_cpu_tier_name((mf_cpu_tier)i), names[i]);
        CHECK(mf_cpu_tier_named(names[i], &tier) && (uint32_t)tier == i);
    }
    CHECK(mf_cpu_tier_named(NULL, &tier) && tier == MF_CPU_BEST);
    tier = MF_CPU_SCALAR;
    CHECK(!mf_cpu_tier_named("sse", &tier) && !mf_cpu_tier_named("", &tier));
    CHECK(tier == MF_CPU_SCALAR);
    CHECK(mf_cpu_has(MF_CPU_SCALAR) && mf_cpu_has(mf_cpu_best()));
    CHECK(!(mf_cpu_has(MF_CPU_AVX2) && mf_cpu_has(MF_CPU_NEON)));
    mf_cpu_list_tiers(list, sizeof list);
    CHECK(strncmp(list, "scalar", 6) == 0);
    CHECK_CONTAINS(list, mf_cpu_tier_name(mf_cpu_best()));
    mf_cpu_list_tiers(list, 3); /* cut, not beyond */
    CHECK_STR(list, "sc");
}

static void check_x86_flags(const char *flags)
{
    bool avx2 =
        cpuinfo_has(flags, "avx2") && cpuinfo_has(flags, "fma") && cpuinfo_has(flags, "f16c");
#if defined(MF_NO_AVX512)
    const bool is_built = false;
#else
    const bool is_built = true;
#endif
    bool bw = is_built && avx2 && cpuinfo_has(flags, "avx512f") && cpuinfo_has(flags, "avx512bw") &&
              cpuinfo_has(flags, "avx512dq") && cpuinfo_has(flags, "avx512vl");
    bool vnni = bw && cpuinfo_has(flags, "avx512_vnni");
    bool avx512 = vnni && cpuinfo_has(flags, "avx512vbmi");
    bool avx_vnni = avx2 && cpuinfo_has(flags, "avx_vnni");
    const bool tiles = mf_cpu_has(MF_CPU_AVX512_AMX); /* the kernel may refuse what the CPU has */
    CHECK(!tiles || (avx512 && cpuinfo_has(flags, "amx_tile") && cpuinfo_has(flags, "amx_int8")));
    const bool bf16 = mf_cpu_has(MF_CPU_AVX512_AMX_BF16);
    CHECK(bf16 == (tiles && cpuinfo_has(flags, "amx_bf16")));
    CHECK(mf_cpu_best() == (bf16       ? MF_CPU_AVX512_AMX_BF16
                            : tiles    ? MF_CPU_AVX512_AMX
                            : avx512   ? MF_CPU_AVX512
                            : vnni     ? MF_CPU_AVX512_VNNI
                            : avx_vnni ? MF_CPU_AVX_VNNI
                            : bw       ? MF_CPU_AVX512_BW
                            : avx2     ? MF_CPU_AVX2
                                       : MF_CPU_SCALAR));
    CHECK(mf_cpu_has(MF_CPU_AVX2) == avx2 && mf_cpu_has(MF_CPU_AVX512_BW) == bw);
    CHECK(mf_cpu_has(MF_CPU_AVX512_VNNI) == vnni && mf_cpu_has(MF_CPU_AVX512) == avx512);
    CHECK(mf_cpu_has(MF_CPU_AVX_VNNI) == avx_vnni);
    CHECK(!mf_cpu_has(MF_CPU_NEON) && !mf_cpu_has(MF_CPU_NEON_I8MM));
}

static void check_arm_flags(const char *flags)
{
    const bool dotprod = cpuinfo_has(flags, "asimddp");
    CHECK(mf_cpu_has(MF_CPU_NEON) == cpuinfo_has(flags, "asimd"));
    CHECK(mf_cpu_has(MF_CPU_NEON_DOTPROD) == dotprod);
    CHECK(mf_cpu_has(MF_CPU_NEON_I8MM) == (dotprod && cpuinfo_has(flags, "i8mm")));
    CHECK(!mf_cpu_has(MF_CPU_AVX2) && !mf_cpu_has(MF_CPU_AVX512));
}

/* The kernel's list of flags is an independent opinion on what CPU and system offer. (qemu-user
 * shows the host's, in which an ARM finds none of its own.) */
static void test_cpu_tier(void)
{
    check_tier_names();

    static char text[65536], flags[8192];
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL)
        return;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *line = strstr(text, IS_ARM ? "\nFeatures" : "\nflags");
    if (line == NULL)
        return;
    snprintf(flags, sizeof flags, "%.*s\n", (int)strcspn(line + 1, "\n"), line + 1);
    if (IS_ARM)
        check_arm_flags(flags);
    else
        check_x86_flags(flags);
}

int main(void)
{
    test_resident();
    test_available();
    test_cpu_count();
    test_cpu_tier();
    REQUIRE(mkdtemp(root) != NULL);
    test_cores();
    test_v2();
    test_least_of_all();
    test_high();
    test_v1();
    test_container();
    test_hybrid();
    test_nonsense();
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    CHECK(system(command) == 0);
    return test_result();
}
