/* SPDX-License-Identifier: MIT */
/*
 * Which nodes a process may use, of folders as Linux has them and of nonsense; and that asking for
 * places and homes changes no byte and harms nobody where there is one node.
 */
#include "base/alloc.h"
#include "base/numa.h"
#include "put_file.h"
#include "test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64] = "/tmp/mf-test-numa-XXXXXX";

/* ------------------------------------------------------------------------------- lists -- */

static void expect_list(const char *text, uint64_t low, uint64_t high)
{
    uint64_t set[2] = {7, 7};
    CHECK_MSG(mf_numa_parse_list(text, set, 128), "'%s' is no list", text);
    CHECK_MSG(set[0] == low && set[1] == high, "'%s' is %" PRIx64 " %" PRIx64, text, set[0],
              set[1]);
}

static void test_lists(void)
{
    expect_list("", 0, 0);
    expect_list("\n", 0, 0);
    expect_list("0", 1, 0);
    expect_list("0-3\n", 15, 0);
    expect_list("0-1,4,63-64\n", UINT64_C(1) << 63 | 0x13, 1);
    expect_list("5,1", 0x22, 0);
    expect_list("127", 0, UINT64_C(1) << 63);
    expect_list("126-300,999999999", 0, UINT64_C(3) << 62); /* those beyond are left out */
    static const char *const wrong[] = {" ",
                                        "x",
                                        "-3",
                                        "1-",
                                        "3-1",
                                        "1,,2",
                                        ",1",
                                        "1,",
                                        "1 2",
                                        "0x3",
                                        "1-2-3",
                                        "1;2",
                                        "4294967296",
                                        "99999999999999999999",
                                        "0-4294967296",
                                        "0-3\n\n",
                                        "\n0",
                                        "0-3 \n",
                                        "1-,2",
                                        "--1",
                                        "+1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint64_t set[2];
        CHECK_MSG(!mf_numa_parse_list(wrong[i], set, 128), "'%s' passes for a list", wrong[i]);
    }
}

/* ---------------------------------------------------------------------------- machines -- */

/* A machine of so many nodes of four CPUs each. */
static void put_machine(const char *name, uint32_t n_nodes)
{
    char path[128], text[64];
    snprintf(path, sizeof path, "%s/has_memory", name);
    snprintf(text, sizeof text, "0-%u\n", n_nodes - 1);
    put_file(root, path, text);
    for (uint32_t i = 0; i < n_nodes; i++) {
        snprintf(path, sizeof path, "%s/node%u/cpulist", name, i);
        snprintf(text, sizeof text, "%u-%u\n", 4 * i, 4 * i + 3);
        put_file(root, path, text);
    }
}

static void put_status(const char *name, const char *mems)
{
    char text[256];
    snprintf(text, sizeof text,
             "Name:\tx\nCpus_allowed_list:\t0-7\nMems_allowed:\t1\nMems_allowed_list:\t%s\nx:\t1\n",
             mems);
    put_file(root, name, text);
}

/* Of a process with the first n_cpus CPUs from `first` on. */
static uint32_t nodes_of(const char *folder, const char *status, uint32_t first, uint32_t n_cpus,
                         mf_numa_nodes *out)
{
    char folder_path[256], status_path[256];
    uint64_t cpus[MF_NUMA_MAX_CPUS / 64] = {0};
    for (uint32_t i = first; i < first + n_cpus; i++)
        cpus[i / 64] |= (uint64_t)1 << i % 64;
    snprintf(folder_path, sizeof folder_path, "%s/%s", root, folder);
    snprintf(status_path, sizeof status_path, "%s/%s", root, status);
    memset(out, 0x5a, sizeof *out);
    return mf_numa_read(folder_path, status_path, cpus, out);
}

static void expect_nodes(const char *folder, const char *status, uint32_t first, uint32_t n_cpus,
                         uint32_t n, uint32_t n_used)
{
    static mf_numa_nodes nodes;
    const uint32_t got = nodes_of(folder, status, first, n_cpus, &nodes);
    CHECK_MSG(got == n && nodes.n == n_used, "%s, %s, %u CPUs from %u: %u nodes, %u used", folder,
              status, n_cpus, first, got, nodes.n);
}

static void test_machines(void)
{
    static mf_numa_nodes nodes;
    put_machine("two", 2);
    put_status("all.status", "0-1");
    CHECK_U64(nodes_of("two", "all.status", 0, 8, &nodes), 2);
    CHECK_U64(nodes.n, 2);
    CHECK(nodes.node[0].id == 0 && nodes.node[0].n_cpus == 4 && nodes.node[0].cpus[0] == 0x0f);
    CHECK(nodes.node[1].id == 1 && nodes.node[1].n_cpus == 4 && nodes.node[1].cpus[0] == 0xf0);
    CHECK_U64(nodes_of("two", "all.status", 3, 2, &nodes), 2); /* one CPU of each */
    CHECK(nodes.n == 2 && nodes.node[0].cpus[0] == 8 && nodes.node[1].cpus[0] == 16);
    expect_nodes("two", "all.status", 0, 4, 1, 0); /* taskset to one node */
    expect_nodes("two", "all.status", 4, 4, 1, 0);
    expect_nodes("two", "all.status", 0, 0, 1, 0);
    expect_nodes("two", "all.status", 100, 4, 1, 0); /* CPUs of no node */
    put_status("one.status", "1");
    expect_nodes("two", "one.status", 0, 8, 1, 0); /* a cpuset of one memory */
    put_status("none.status", "");
    expect_nodes("two", "none.status", 0, 8, 1, 0);
    put_machine("one", 1);
    expect_nodes("one", "all.status", 0, 4, 1, 0);

    put_machine("many", 17);
    put_status("many.status", "0-16");
    expect_nodes("many", "many.status", 0, 68, 17, 0);
    expect_nodes("many", "many.status", 4, 64, 16, 16);
    CHECK_U64(nodes_of("many", "many.status", 8, 60, &nodes), 15);
    CHECK(nodes.n == 15 && nodes.node[0].id == 2 && nodes.node[14].id == 16);
    CHECK(nodes.node[14].cpus[0] == 0 && nodes.node[14].cpus[1] == 0xf);
}

/* CPUs without memory, memory without CPUs. */
static void test_uneven(void)
{
    put_machine("blind", 3);
    put_status("blind.status", "0-2");
    put_file(root, "blind/has_memory", "0,2\n");
    expect_nodes("blind", "blind.status", 0, 12, 2, 0);
    expect_nodes("blind", "blind.status", 0, 4, 1, 0);
    put_machine("far", 3);
    put_file(root, "far/node1/cpulist", "\n");
    put_file(root, "far/node2/cpulist", "4-11\n");
    static mf_numa_nodes nodes;
    CHECK_U64(nodes_of("far", "blind.status", 0, 12, &nodes), 2);
    CHECK(nodes.n == 2 && nodes.node[1].id == 2 && nodes.node[1].n_cpus == 8);
}

static void test_nonsense(void)
{
    static char huge[40000];
    expect_nodes("absent", "all.status", 0, 8, 1, 0);
    expect_nodes("two", "absent", 0, 8, 1, 0);
    put_file(root, "odd.status", "Name:\tx\n");
    expect_nodes("two", "odd.status", 0, 8, 1, 0);
    put_file(root, "odd.status", "Mems_allowed_list:\t0-1\n"); /* not after a line's end */
    expect_nodes("two", "odd.status", 0, 8, 1, 0);
    static const char *const wrong[] = {"", "\n", "x", "0-", "1-0", "0,,1", "-1", "0-1,"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_status("odd.status", wrong[i]);
        expect_nodes("two", "odd.status", 0, 8, 1, 0);
        put_machine("odd", 2);
        put_file(root, "odd/has_memory", wrong[i]);
        expect_nodes("odd", "all.status", 0, 8, 1, 0);
        put_machine("odd", 2);
        put_file(root, "odd/node1/cpulist", wrong[i]);
        expect_nodes("odd", "all.status", 0, 8, 1, 0);
    }
    for (size_t i = 0; i + 1 < sizeof huge; i++)
        huge[i] = i % 2 == 0 ? '1' : ',';
    put_machine("odd", 2);
    put_file(root, "odd/node1/cpulist", huge);
    expect_nodes("odd", "all.status", 0, 8, 1, 0);
    put_machine("odd", 2);
    put_file(root, "odd/has_memory", "0-1,1024-4000\n"); /* more than any kernel has */
    expect_nodes("odd", "all.status", 0, 8, 2, 2);
    put_file(root, "odd/has_memory", "0-2\n"); /* of one there is no folder */
    expect_nodes("odd", "blind.status", 0, 8, 1, 0);
}

/* ------------------------------------------------------------------------- this machine -- */

static void test_here(void)
{
    static mf_numa_nodes nodes;
    mf_numa_use use = MF_NUMA_UNEVEN;
    const uint32_t n = mf_numa_find(&nodes, &use);
    CHECK(n >= 1 && (n == 1) == (use == MF_NUMA_ONE_NODE));
    CHECK_U64(nodes.n, use == MF_NUMA_USED ? n : 0);
    CHECK(mf_numa_here(&nodes) == 0 || mf_numa_here(&nodes) < nodes.n);
}

/* The CPUs of this process, as two nodes. */
static void make_two(mf_numa_nodes *nodes)
{
    *nodes = (mf_numa_nodes){.n = 2};
    REQUIRE(sched_getaffinity(0, sizeof nodes->node[0].cpus,
                              (cpu_set_t *)(void *)nodes->node[0].cpus) == 0);
    nodes->node[0].n_cpus = 1;
    nodes->node[1] = nodes->node[0];
}

/* Where pages lie is the system's business: what is in them is not touched. */
static void test_places(void)
{
    static mf_numa_nodes nodes;
    const mf_allocator a = mf_allocator_default();
    const size_t n_bytes = 4 * MF_NUMA_UNIT;
    mf_region region;
    mf_error error;
    uint8_t where[8];
    make_two(&nodes);
    REQUIRE_OK(mf_region_create(&a, n_bytes, "a test", &region, &error), &error);
    for (size_t i = 0; i < n_bytes; i += 4096)
        region.base[i] = (unsigned char)(i >> 12);
    (void)mf_numa_interleave(&nodes, region.base, n_bytes);
    (void)mf_numa_share(&nodes, region.base, 100, n_bytes - 200);
    for (size_t i = 0; i < n_bytes; i += 4096)
        CHECK(region.base[i] == (unsigned char)(i >> 12));
    mf_numa_locate(&nodes, region.base, n_bytes / 8, 8, where);
    for (int i = 0; i < 8; i++)
        CHECK(where[i] <= 2);
    nodes.node[1].id = 1023; /* no machine here has it */
    CHECK(!mf_numa_share(&nodes, region.base, 0, n_bytes));
    mf_region_free(&a, &region);
    mf_numa_locate(&nodes, NULL, 4096, 8, where); /* nothing is there */
    for (int i = 0; i < 8; i++)
        CHECK_U64(where[i], 2);
}

/* Where there are several nodes (tools/test_numa.sh), pages go where they are wanted, whoever
 * touches them: those that are shared out to their node, of others huge ones in turn. */
static void test_real_places(void)
{
    enum { N = 12 };
    static mf_numa_nodes nodes;
    const mf_allocator a = mf_allocator_default();
    mf_region region;
    mf_error error;
    mf_numa_use use;
    uint8_t first[N], last[N];
    if (mf_numa_find(&nodes, &use) < 2 || use != MF_NUMA_USED)
        return;
    REQUIRE_OK(mf_region_create(&a, N * MF_NUMA_UNIT, "a test", &region, &error), &error);
    CHECK(mf_numa_interleave(&nodes, region.base, region.n_bytes));
    CHECK(mf_numa_share(&nodes, region.base, MF_NUMA_UNIT / 4, N / 2 * MF_NUMA_UNIT));
    memset(region.base, 1, region.n_bytes);
    mf_numa_locate(&nodes, region.base, MF_NUMA_UNIT, N, first);
    mf_numa_locate(&nodes, region.base + MF_NUMA_UNIT - 4096, MF_NUMA_UNIT, N, last);
    for (uint32_t i = 0; i < N / 2; i++)
        CHECK_MSG(first[i] == i * nodes.n / (N / 2) && last[i] == first[i],
                  "unit %u, shared, is on node %u and %u", i, first[i], last[i]);
    for (uint32_t i = N / 2; i < N; i++) {
        const uint32_t turn = mf_numa_turn(nodes.n, region.base + i * MF_NUMA_UNIT);
        CHECK_MSG(first[i] == turn && last[i] == turn, "unit %u is on node %u and %u, not %u", i,
                  first[i], last[i], turn);
    }
    printf("pages are where they are wanted on %u nodes\n", nodes.n);
    mf_region_free(&a, &region);
}

static void test_stay(void)
{
    static mf_numa_nodes nodes;
    static mf_numa_node none;
    uint64_t after[MF_NUMA_MAX_CPUS / 64] = {0};
    make_two(&nodes);
    CHECK(!mf_numa_stay(&none));
    CHECK(mf_numa_stay(&nodes.node[1]));
    REQUIRE(sched_getaffinity(0, sizeof after, (cpu_set_t *)(void *)after) == 0);
    CHECK_BYTES(after, nodes.node[0].cpus, sizeof after);
}

/* ---------------------------------------------------------------------------- forbidden -- */

/* From now on, and for what this process becomes, as containers have it. */
static void forbid(void)
{
#define REFUSE(call)                                   \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REFUSE(SYS_mbind),
        REFUSE(SYS_set_mempolicy),
        REFUSE(SYS_get_mempolicy),
        REFUSE(SYS_move_pages),
        REFUSE(SYS_sched_setaffinity),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(TEST_SKIPPED); /* no kernel of ours */
}

static void check_forbidden(void)
{
    static mf_numa_nodes nodes;
    const mf_allocator a = mf_allocator_default();
    mf_region region;
    mf_error error;
    uint8_t where[2];
    make_two(&nodes);
    REQUIRE_OK(mf_region_create(&a, 2 * MF_NUMA_UNIT, "a test", &region, &error), &error);
    forbid();
    CHECK(!mf_numa_interleave(&nodes, region.base, region.n_bytes));
    CHECK(!mf_numa_share(&nodes, region.base, 0, region.n_bytes));
    CHECK(!mf_numa_stay(&nodes.node[0]));
    memset(region.base, 1, region.n_bytes);
    mf_numa_locate(&nodes, region.base, MF_NUMA_UNIT, 2, where);
    CHECK(where[0] == 2 && where[1] == 2);
    mf_numa_use use;
    const uint32_t n = mf_numa_find(&nodes, &use);
    CHECK(nodes.n == 0 && (n > 1) == (use == MF_NUMA_FORBIDDEN));
    mf_region_free(&a, &region);
}

static void test_forbidden(void)
{
    int status = 0;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        check_forbidden();
        _exit(test_result());
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == TEST_SKIPPED));
}

/* --forbid COMMAND...: runs it where these calls are refused. */
int main(int argc, char **argv)
{
    char command[128];
    if (argc > 2 && strcmp(argv[1], "--forbid") == 0) {
        forbid();
        (void)execvp(argv[2], argv + 2);
        return 1;
    }
    REQUIRE(mkdtemp(root) != NULL);
    test_lists();
    test_machines();
    test_uneven();
    test_nonsense();
    test_here();
    test_places();
    test_real_places();
    test_forbidden();
    test_stay();
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
    return test_result();
}
