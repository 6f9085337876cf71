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
#include <unistd.h>

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

static void look_at_cpu(mf_cli_findings *all, const mf_device_info *cpu)
{
    char text[4096], name[128] = "";
    read_text("/proc/cpuinfo", text, sizeof text);
    (void)entry(text, "model name", name);
    mf_cli_finding *f =
        mf_cli_find(all, "cpu", "%s%s%s", name, name[0] != '\0' ? ": " : "", cpu->name);
    if (strstr(cpu->name, "scalar"))
        mf_cli_advise(f, MF_CLI_BAD,
                      "no instructions for vectors that the engine knows (AVX2 at least): several "
                      "times slower than with them. On a virtual machine, let it see the host's "
                      "processor (qemu: -cpu host).");
    read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text, sizeof text);
    if (strncmp(text, "powersave", 9) != 0)
        return;
    read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", text, sizeof text);
    if (strncmp(text, "acpi-cpufreq", 12) == 0)
        mf_cli_advise(mf_cli_find(all, "frequency", "held at its lowest (powersave)"), MF_CLI_BAD,
                      "cpupower frequency-set -g performance: as many times faster as the highest "
                      "frequency is above the lowest.");
}

static void look_at_load(mf_cli_findings *all)
{
    double load[1] = {0};
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) < n_cpus)
        mf_cli_advise(mf_cli_find(all, "affinity", "%d of %ld CPUs", CPU_COUNT(&allowed), n_cpus),
                      MF_CLI_NOTE, "The others are not for this process (taskset, a container).");
    if (getloadavg(load, 1) != 1)
        return;
    mf_cli_finding *f = mf_cli_find(all, "load", "%.1f on %ld CPUs", load[0], n_cpus);
    if (load[0] > 0.5 * (double)n_cpus)
        mf_cli_advise(f, MF_CLI_NOTE,
                      "Others compute: the threads wait for each other. End what need not run, or "
                      "leave it CPUs with --threads.");
}

static void look_at_memory(mf_cli_findings *all, const mf_device_info *cpu)
{
    char text[8192], a[MF_CLI_SIZE_CHARS], b[MF_CLI_SIZE_CHARS], c[MF_CLI_SIZE_CHARS];
    read_text("/proc/meminfo", text, sizeof text);
    const uint64_t total = memory_entry(text, "MemTotal");
    mf_cli_finding *f = mf_cli_find(all, "memory", "%s, %s free for models",
                                    mf_cli_size(a, (double)cpu->memory_bytes),
                                    mf_cli_size(b, (double)cpu->free_bytes));
    if (cpu->memory_bytes != 0 && cpu->memory_bytes < total / 20 * 19)
        mf_cli_advise(f, MF_CLI_NOTE,
                      "The machine has %s: a control group (container, unit) allows less. Where "
                      "that is not meant, raise its limit: what is held need not be read.",
                      mf_cli_size(c, (double)total));
    else if (cpu->free_bytes != 0 && cpu->free_bytes < total / 2)
        mf_cli_advise(f, MF_CLI_NOTE,
                      "More than half is taken by other programs: each expert that memory does not "
                      "hold is read again and again.");
    const uint64_t swap = memory_entry(text, "SwapTotal"),
                   free_swap = memory_entry(text, "SwapFree");
    if (swap > free_swap && swap - free_swap > total / 20)
        mf_cli_advise(
            mf_cli_find(all, "swap", "%s in use", mf_cli_size(a, (double)(swap - free_swap))),
            MF_CLI_NOTE,
            "Memory was short not long ago. Give --ram: weights that are swapped out "
            "cost a read twice.");
}

static void look_at_pages(mf_cli_findings *all)
{
    char text[256];
    read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    const char *in_force = strchr(text, '[');
    if (!in_force)
        return;
    in_force++;
    mf_cli_finding *f =
        mf_cli_find(all, "huge pages", "%.*s", (int)strcspn(in_force, "]"), in_force);
    if (strncmp(in_force, "never", 5) == 0)
        mf_cli_advise(f, MF_CLI_NOTE,
                      "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled: fewer "
                      "misses of the table of pages, decode some per cent faster.");
}

/* The first bytes of the kernel's struct do for all it is asked here. */
static void look_at_uring(mf_cli_findings *all)
{
    unsigned char params[512] = {0};
    const long fd = syscall(SYS_io_uring_setup, 4, params);
    const int failure = fd < 0 ? errno : 0;
    if (fd >= 0) {
        close((int)fd);
        (void)mf_cli_find(all, "io_uring", "allowed");
        return;
    }
    mf_cli_finding *f = mf_cli_find(all, "io_uring", "%s", strerror(failure));
    mf_cli_advise(f, MF_CLI_NOTE,
                  "Reads go through a pool of threads: more work for the CPU at the same rate of "
                  "the drive. %s",
                  failure == ENOSYS
                      ? "The kernel has none: 5.6 is the first with all that is used."
                      : "Allow it: sysctl kernel.io_uring_disabled=0, or a seccomp profile of the "
                        "container that lets io_uring_setup pass.");
}

static void look_at_files(mf_cli_findings *all)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    mf_cli_finding *f = mf_cli_find(all, "open files", "%" PRIu64, (uint64_t)limit.rlim_cur);
    if (limit.rlim_cur < 512)
        mf_cli_advise(f, MF_CLI_NOTE,
                      "ulimit -n 4096 before serve: a client takes one, and so does each file of "
                      "a checkpoint.");
}

void mf_cli_doctor_system(mf_cli_findings *all)
{
    mf_device_info cpu = {0};
    mf_error no_gpu;
    (void)mf_device_list(&cpu, 1, &no_gpu);
    look_at_cpu(all, &cpu);
    look_at_load(all);
    look_at_memory(all, &cpu);
    look_at_pages(all);
    look_at_uring(all);
    look_at_files(all);
}
