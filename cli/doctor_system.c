/* SPDX-License-Identifier: MIT */
/* The processor, memory and the kernel's settings. */
#include "doctor.h"
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define GIB 1073741824.0
/* docs/PERFORMANCE.md, "What the system's settings are worth" */
#define GAIN_OF_PAGES "a quarter"
#define CPU_OF_HELD "a quarter"
/* docs/PERFORMANCE.md, "The kernels of other CPUs": a prompt of 4 bits, over AVX2's. */
static const struct {
    const char *name;
    double speed;
} tiers[] = {{"avx512-amx-bf16", 3.1}, {"avx512-amx", 3.1}, {"avx512", 2.4}, {"avx512-vnni", 2.1},
             {"avx-vnni", 2.1},        {"avx512-bw", 1.4},  {"avx2", 1.0}};

/* A file's first bytes; "" where there is none. */
static void read_text(const char *path, char *text, size_t capacity)
{
    FILE *file = fopen(path, "re");
    const size_t n = file ? fread(text, 1, capacity - 1, file) : 0;
    text[n] = '\0';
    if (file)
        fclose(file);
}

/* What follows "KEY...:" in a file of such lines, to the line's end; NULL: there is no such line.
 */
static const char *entry(const char *text, const char *key, char out[128])
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *value = line + strcspn(line, ":\n");
        value += strspn(value, ": \t");
        snprintf(out, 128, "%.*s", (int)strcspn(value, "\n"), value);
        return out;
    }
    return NULL;
}

static uint64_t memory_entry(const char *text, const char *key)
{
    char value[128];
    return entry(text, key, value) ? strtoull(value, NULL, 10) * 1024 : 0;
}

/* What a report of a fault is read with. */
static void look_at_system(mf_cli_findings *all)
{
    struct utsname u;
    char text[2048], name[128] = "";
    read_text("/etc/os-release", text, sizeof text);
    const char *value = strstr(text, "PRETTY_NAME=\"");
    if (value) {
        value += strlen("PRETTY_NAME=\"");
        snprintf(name, sizeof name, ", %.*s", (int)strcspn(value, "\"\n"), value);
    }
    if (uname(&u) == 0)
        (void)mf_cli_find(all, "system", "%s %s, %s%s", u.sysname, u.release, u.machine, name);
}

/* What the kernels' instruction set gives: the last word of the CPU's name. */
static void add_tiers(mf_cli_finding *f, const mf_device_info *cpu)
{
    const char *best = strrchr(cpu->name, ' ');
    for (size_t i = 0; best && i < sizeof tiers / sizeof *tiers; i++)
        if (strcmp(best + 1, tiers[i].name) == 0)
            mf_cli_effect(
                f,
                "of %s the last is used; on the machine of docs/PERFORMANCE.md a prompt is "
                "read %.1f times as fast by it as by avx2, of at most %.1f.",
                cpu->tiers, tiers[i].speed, tiers[0].speed);
}

static void look_at_cpu(mf_cli_findings *all, const mf_device_info *cpu)
{
    char text[4096], name[128] = "";
    read_text("/proc/cpuinfo", text, sizeof text);
    (void)entry(text, "model name", name);
    mf_cli_finding *f =
        mf_cli_find(all, "cpu", "%s%s%s", name, name[0] != '\0' ? ": " : "", cpu->name);
    add_tiers(f, cpu);
    if (strstr(cpu->name, "scalar"))
        mf_cli_advise(f, MF_CLI_BAD,
                      "no instructions for vectors that the engine knows (AVX2 at least): several "
                      "times slower than with them. On a virtual machine, let it see the host's "
                      "processor (qemu: -cpu host).");
}

static void look_at_clock(mf_cli_findings *all, const mf_cli_trials *t)
{
    char governor[64] = "", driver[64] = "";
    read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor, sizeof governor);
    read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", driver, sizeof driver);
    governor[strcspn(governor, "\n")] = '\0';
    if (governor[0] == '\0')
        return; /* a virtual machine does not say */
    /* Of other drivers it is a name for what adapts. */
    const bool is_lowest = strcmp(governor, "powersave") == 0 && strncmp(driver, "acpi", 4) == 0;
    const bool is_low = t->clock_hz != 0 && (double)t->clock_hz < 0.6 * (double)t->most_hz;
    mf_cli_finding *f = mf_cli_find(all, "frequency", "governor %s", governor);
    if (is_lowest || is_low)
        mf_cli_advise(f, is_lowest ? MF_CLI_BAD : MF_CLI_NOTE,
                      "cpupower frequency-set -g performance, or powerprofilesctl set performance; "
                      "where that does nothing, heat or the power supply holds it down.");
    if (t->clock_hz != 0)
        mf_cli_effect(f, "%.2f GHz with all CPUs at work, of at most %.2f: %s%.2f times as fast.",
                      1e-9 * (double)t->clock_hz, 1e-9 * (double)t->most_hz,
                      is_lowest || is_low ? "what computes could be " : "at best ",
                      (double)t->most_hz / (double)t->clock_hz);
}

static void look_at_load(mf_cli_findings *all)
{
    double load[1] = {0};
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) < n_cpus) {
        mf_cli_finding *f =
            mf_cli_find(all, "affinity", "%d of %ld CPUs", CPU_COUNT(&allowed), n_cpus);
        mf_cli_advise(f, MF_CLI_NOTE,
                      "The others are not for this process (taskset, a container).");
        mf_cli_effect(f, "with all of them what computes is up to %.3g times as fast.",
                      (double)n_cpus / (double)CPU_COUNT(&allowed));
    }
    if (getloadavg(load, 1) != 1)
        return;
    mf_cli_finding *f = mf_cli_find(all, "load", "%.1f on %ld CPUs", load[0], n_cpus);
    if (load[0] <= 0.5 * (double)n_cpus)
        return;
    mf_cli_advise(f, MF_CLI_NOTE,
                  "Others compute: the threads wait for each other, and what is measured here "
                  "varies. End what need not run, or leave it CPUs with --threads.");
    mf_cli_effect(f,
                  "shared evenly, %.2g of %ld CPUs are the engine's: what computes takes %.2g "
                  "times as long as alone.",
                  (double)n_cpus / (1 + load[0] / (double)n_cpus), n_cpus,
                  1 + load[0] / (double)n_cpus);
}

/* What a container or unit leaves: memory's part is said with memory. */
static void look_at_group(mf_cli_findings *all, const mf_device_info *cpu, bool has_less_memory)
{
    const uint32_t n_paid = cpu->n_paid_cpus;
    cpu_set_t allowed;
    const bool is_known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
    const uint32_t n_allowed = is_known ? (uint32_t)CPU_COUNT(&allowed) : 0;
    const bool has_less_time = n_paid != 0 && n_paid < n_allowed;
    mf_cli_finding *f = mf_cli_find(all, "control group", "%s",
                                    has_less_memory && has_less_time ? "limits memory and CPUs"
                                    : has_less_memory                ? "limits memory"
                                    : has_less_time                  ? "limits CPUs"
                                                                     : "limits nothing");
    if (!has_less_time)
        return;
    mf_cli_advise(f, MF_CLI_NOTE,
                  "It pays for %" PRIu32 " of %" PRIu32
                  " CPUs. Where that is not meant, raise it (docker run --cpus, "
                  "CPUQuota=).",
                  n_paid, n_allowed);
    mf_cli_effect(f, "with all of them what computes is up to %.3g times as fast.",
                  (double)n_allowed / (double)n_paid);
}

/* ulimit -v: what is mapped counts, and that is more than what is held. */
static void look_at_addresses(mf_cli_findings *all)
{
    char size[MF_CLI_SIZE_CHARS];
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    mf_cli_finding *f =
        mf_cli_find(all, "address space", "%s", mf_cli_size(size, (double)limit.rlim_cur));
    mf_cli_advise(
        f, MF_CLI_NOTE,
        "ulimit -v unlimited, and --ram for what is held: files that are mapped and stacks "
        "of threads count here, too.");
    mf_cli_effect(f, "a model that needs more cannot be opened, whatever memory is free.");
}

/* What is free for models is less than what is free. */
static void advise_group(mf_cli_finding *f, const mf_cli_patient *patient, uint64_t machine_free)
{
    char size[MF_CLI_SIZE_CHARS];
    const double here = mf_cli_doctor_speed(patient, 0, 1),
                 there = mf_cli_doctor_speed(patient, machine_free, 1);
    mf_cli_advise(f, MF_CLI_NOTE,
                  "A control group (container, unit) allows that; the machine has %s free. Where "
                  "it is not meant, raise its limit (docker run --memory, MemoryMax=).",
                  mf_cli_size(size, (double)machine_free));
    if (here > 0 && there > 0)
        mf_cli_effect(f, "%.3g tokens/s of this model instead of %.3g, by what was measured.",
                      there, here);
    else if (there > 0)
        mf_cli_effect(f, "this model would run, at %.3g tokens/s by what was measured.", there);
}

static void look_at_memory(mf_cli_findings *all, const mf_device_info *cpu,
                           const mf_cli_patient *patient)
{
    char text[8192], a[MF_CLI_SIZE_CHARS], b[MF_CLI_SIZE_CHARS];
    read_text("/proc/meminfo", text, sizeof text);
    const uint64_t total = memory_entry(text, "MemTotal"),
                   free_bytes = memory_entry(text, "MemAvailable");
    mf_cli_finding *f = mf_cli_find(all, "memory", "%s, %s free for models",
                                    mf_cli_size(a, (double)cpu->memory_bytes),
                                    mf_cli_size(b, (double)cpu->free_bytes));
    if (patient->trials.drive > 0)
        mf_cli_effect(f,
                      "a GiB that is held need not be read: %.0f ms less for each time that it "
                      "is wanted.",
                      1e3 * GIB / patient->trials.drive);
    const bool is_limited = cpu->free_bytes != 0 && cpu->free_bytes < free_bytes / 20 * 19;
    if (is_limited)
        advise_group(f, patient, free_bytes);
    else if (cpu->free_bytes != 0 && cpu->free_bytes < total / 2)
        mf_cli_advise(f, MF_CLI_NOTE,
                      "More than half is taken by other programs: each expert that memory does not "
                      "hold is read again and again.");
    look_at_group(all, cpu, is_limited);
    const uint64_t swap = memory_entry(text, "SwapTotal"),
                   free_swap = memory_entry(text, "SwapFree");
    if (swap <= free_swap || swap - free_swap <= total / 20)
        return;
    f = mf_cli_find(all, "swap", "%s in use", mf_cli_size(a, (double)(swap - free_swap)));
    mf_cli_advise(f, MF_CLI_NOTE,
                  "Memory was short not long ago. Give --ram: weights that are swapped out "
                  "cost a read twice.");
    if (patient->trials.drive > 0)
        mf_cli_effect(f, "%.0f ms for each GiB that has to come back, by the drive below.",
                      1e3 * GIB / patient->trials.drive);
}

static void look_at_pages(mf_cli_findings *all, const mf_cli_trials *t)
{
    char text[256], a[MF_CLI_SIZE_CHARS], b[MF_CLI_SIZE_CHARS];
    read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    const char *in_force = strchr(text, '[');
    if (!in_force)
        return;
    in_force++;
    mf_cli_finding *f =
        mf_cli_find(all, "huge pages", "%.*s", (int)strcspn(in_force, "]"), in_force);
    if (strncmp(in_force, "never", 5) == 0) {
        mf_cli_advise(f, MF_CLI_NOTE,
                      "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled: fewer "
                      "misses of the table of pages.");
        mf_cli_effect(f, "on the machine of docs/PERFORMANCE.md memory is read " GAIN_OF_PAGES
                         " faster with them.");
    } else if (t->small_pages > 0 && t->huge_pages > 0) {
        mf_cli_effect(f, "memory is read at %s/s with them, at %s/s without.",
                      mf_cli_size(a, t->huge_pages), mf_cli_size(b, t->small_pages));
    }
}

/* The first bytes of the kernel's struct do for all it is asked here. 0, or why not. */
static int uring_failure(void)
{
    unsigned char params[512] = {0};
    const long fd = syscall(SYS_io_uring_setup, 4, params);
    if (fd < 0)
        return errno;
    close((int)fd);
    return 0;
}

/* Memory that is near to some CPUs and far from the others. */
static void look_at_nodes(mf_cli_findings *all, const mf_device_info *cpu)
{
    static const char *const uses[] = {
        [MF_NUMA_ONE_NODE] = "",
        [MF_NUMA_USED] = ", weights and threads shared out among them",
        [MF_NUMA_GIVEN] = ", memory as the policy of this process says (numactl)",
        [MF_NUMA_FORBIDDEN] = ", but memory cannot be placed",
        [MF_NUMA_UNEVEN] = ", some CPUs without memory of their own, or more than 16",
    };
    const uint32_t use = (uint32_t)cpu->numa_use;
    if (use == MF_NUMA_ONE_NODE || use >= sizeof uses / sizeof *uses)
        return;
    mf_cli_finding *f = mf_cli_find(all, "nodes", "%" PRIu32 "%s", cpu->n_nodes, uses[use]);
    if (use == MF_NUMA_FORBIDDEN)
        mf_cli_advise(f, MF_CLI_NOTE,
                      "The system refuses get_mempolicy: weights lie on the node whose CPU touched "
                      "them first, and the others read them from there. Allow it to the container "
                      "(docker run --cap-add SYS_NICE), or start it on one node's CPUs.");
}

static void look_at_uring(mf_cli_findings *all, const mf_cli_trials *t, int failure)
{
    const mf_cli_reads *ring = t->held.bytes_per_second > 0 ? &t->held : &t->ring;
    char a[MF_CLI_SIZE_CHARS], b[MF_CLI_SIZE_CHARS];
    mf_cli_finding *f =
        mf_cli_find(all, "io_uring", "%s", failure == 0 ? "allowed" : strerror(failure));
    if (failure != 0) {
        mf_cli_advise(f, MF_CLI_NOTE, "Reads go through a pool of threads. %s",
                      failure == ENOSYS
                          ? "The kernel has none: 5.6 is the first with all that is used."
                          : "Allow it: sysctl kernel.io_uring_disabled=0, or a seccomp profile of "
                            "the container that lets io_uring_setup pass.");
        mf_cli_effect(f, "on the machine of docs/PERFORMANCE.md reads by io_uring take " CPU_OF_HELD
                         " of the CPU's time that a pool of threads takes.");
    } else if (ring->bytes_per_second > 0 && t->threads.bytes_per_second > 0) {
        mf_cli_effect(f, "%s/s for %.0f ms of CPU a GiB; a pool of threads: %s/s for %.0f ms.",
                      mf_cli_size(a, ring->bytes_per_second), 1e3 * ring->cpu_seconds,
                      mf_cli_size(b, t->threads.bytes_per_second), 1e3 * t->threads.cpu_seconds);
    }
}

/* This process may lock as much as it likes. */
static bool may_lock_all(void)
{
    char text[8192], value[128];
    enum { CAP_IPC_LOCK = 14 };
    read_text("/proc/self/status", text, sizeof text);
    return entry(text, "CapEff", value) && strtoull(value, NULL, 16) >> CAP_IPC_LOCK & 1;
}

/* What io_uring holds for its reads counts as locked. */
static void look_at_locked(mf_cli_findings *all, const mf_device_info *cpu, const mf_cli_trials *t)
{
    char size[MF_CLI_SIZE_CHARS];
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return;
    const bool is_enough = limit.rlim_cur == RLIM_INFINITY || may_lock_all() ||
                           (uint64_t)limit.rlim_cur >= cpu->free_bytes;
    mf_cli_finding *f =
        mf_cli_find(all, "locked memory", "%s",
                    is_enough ? "as much as there is" : mf_cli_size(size, (double)limit.rlim_cur));
    if (!is_enough)
        mf_cli_advise(
            f, MF_CLI_NOTE,
            "ulimit -l unlimited (a unit: LimitMEMLOCK=infinity, docker run --ulimit "
            "memlock=-1): the kernel then looks up the pages of a slot once instead of at "
            "every read.");
    if (t->held.bytes_per_second > 0 && t->ring.bytes_per_second > 0)
        mf_cli_effect(f,
                      "%.0f ms of CPU a GiB read to memory that io_uring holds, %.0f ms to other.",
                      1e3 * t->held.cpu_seconds, 1e3 * t->ring.cpu_seconds);
    else if (!is_enough)
        mf_cli_effect(f,
                      "on the machine of docs/PERFORMANCE.md reads to such memory take " CPU_OF_HELD
                      " of the CPU's time that others take.");
}

static void look_at_files(mf_cli_findings *all)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    mf_cli_finding *f = mf_cli_find(all, "open files", "%" PRIu64, (uint64_t)limit.rlim_cur);
    if (limit.rlim_cur >= 512)
        return;
    mf_cli_advise(f, MF_CLI_NOTE,
                  "ulimit -n 4096 before serve: a client takes one, and so does each file of "
                  "a checkpoint.");
    mf_cli_effect(
        f, "serve has room for fewer than %" PRIu64 " clients at once (--connections: 1024).",
        (uint64_t)limit.rlim_cur);
}

void mf_cli_doctor_system(mf_cli_findings *all, const mf_cli_patient *patient)
{
    const mf_cli_trials *t = &patient->trials;
    mf_device_info cpu = {0};
    mf_error no_gpu;
    (void)mf_device_list(&cpu, 1, &no_gpu);
    look_at_system(all);
    look_at_cpu(all, &cpu);
    look_at_clock(all, t);
    look_at_load(all);
    look_at_memory(all, &cpu, patient);
    look_at_nodes(all, &cpu);
    look_at_addresses(all);
    look_at_pages(all, t);
    const int failure = uring_failure();
    look_at_uring(all, t, failure);
    if (failure == 0)
        look_at_locked(all, &cpu, t);
    look_at_files(all);
}
