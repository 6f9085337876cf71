/* SPDX-License-Identifier: MIT */
/* Measurements of about half a second each. */
#include "machine.h"
#include "machine_file.h"
#include "machine_reads.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_THREADS = 256 };
#define MAX_READ_BYTES ((uint64_t)16 << 20)
#define MEMORY_BYTES ((size_t)64 << 20)
#define SECONDS 0.5

double mf_cli_measure_drive(const char *model, const char *dir, uint64_t n_bytes)
{
    uint64_t n_file_bytes = MF_CLI_FILE_BYTES;
    int fd = model ? mf_cli_open_largest(model, &n_file_bytes) : -1;
    if (fd < 0) {
        n_file_bytes = MF_CLI_FILE_BYTES;
        fd = mf_cli_open_made(dir, NULL);
    }
    if (fd < 0)
        return 0;
    const mf_cli_read_job job = {.fd = fd,
                                 .n_file_bytes = n_file_bytes,
                                 .n_bytes = mf_cli_read_size(n_bytes),
                                 .seconds = SECONDS};
    const mf_cli_reads reads = mf_cli_read_by_threads(&job);
    close(fd);
    return reads.bytes_per_second;
}

uint64_t mf_cli_read_size(uint64_t n_bytes)
{
    n_bytes = (n_bytes + MF_CLI_FILE_UNIT - 1) / MF_CLI_FILE_UNIT * MF_CLI_FILE_UNIT;
    if (n_bytes == 0)
        return MF_CLI_FILE_UNIT;
    return n_bytes > MAX_READ_BYTES ? MAX_READ_BYTES : n_bytes;
}

typedef struct summer {
    pthread_t thread;
    int advice;
    double seconds; /* how long; then how long it took */
    uint64_t n_done, sum;
} summer;

static void *sum_some(void *user)
{
    summer *s = user;
    const double most = s->seconds;
    s->seconds = 0;
    uint64_t *data =
        mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return NULL;
    if (s->advice != 0)
        (void)madvise(data, MEMORY_BYTES, s->advice);
    memset(data, 1, MEMORY_BYTES);
    const double began = mf_cli_now();
    while (s->seconds < most) {
        for (size_t i = 0; i < MEMORY_BYTES / sizeof *data; i++)
            s->sum += data[i];
        s->n_done += MEMORY_BYTES;
        s->seconds = mf_cli_now() - began;
    }
    (void)munmap(data, MEMORY_BYTES);
    return NULL;
}

static double sum_by_threads(uint32_t n_threads, int advice, double seconds)
{
    summer summers[MAX_THREADS];
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    double rate = 0;
    uint32_t n = 0;
    if (n_threads == 0)
        n_threads = n_cpus > 0 ? (uint32_t)n_cpus : 1;
    for (; n < n_threads && n < MAX_THREADS; n++) {
        summers[n] = (summer){.seconds = seconds, .advice = advice};
        if (pthread_create(&summers[n].thread, NULL, sum_some, &summers[n]) != 0)
            break;
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(summers[i].thread, NULL);
        rate += summers[i].seconds > 0 ? (double)summers[i].n_done / summers[i].seconds : 0;
    }
    return rate;
}

double mf_cli_measure_memory(uint32_t n_threads)
{
    return sum_by_threads(n_threads, 0, SECONDS);
}

double mf_cli_measure_pages(bool is_huge)
{
    return sum_by_threads(0, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE, SECONDS / 4);
}
