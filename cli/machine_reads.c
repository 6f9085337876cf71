/* SPDX-License-Identifier: MIT */
#include "machine_reads.h"
#include "machine_file.h"
#include "output.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef MF_HAVE_URING
#include <liburing.h>
#endif

enum { N_AT_ONCE = 8 };
#define GIB 1073741824.0

/* A job under way. */
typedef struct reading {
    const mf_cli_read_job *job;
    uint64_t n_pieces, step; /* of the order in which they are read */
    double began, cpu_began;
    atomic_uint_fast64_t n_begun, n_done; /* pieces */
    atomic_bool is_bad;
} reading;

static double cpu_seconds(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void begin(reading *r, const mf_cli_read_job *job)
{
    *r = (reading){.job = job, .n_pieces = job->n_file_bytes / job->n_bytes};
    r->step = r->n_pieces * 5 / 8 + 1;
    while (common_divisor(r->step, r->n_pieces) > 1)
        r->step++;
    r->began = mf_cli_now();
    r->cpu_began = cpu_seconds();
}

/* False: there is none left, or no time. */
static bool next(reading *r, uint64_t *offset)
{
    const uint64_t i = atomic_fetch_add(&r->n_begun, 1);
    if (r->n_pieces == 0 || (r->job->is_once && i >= r->n_pieces) || atomic_load(&r->is_bad) ||
        mf_cli_now() - r->began >= r->job->seconds)
        return false;
    *offset = i % r->n_pieces * r->step % r->n_pieces * r->job->n_bytes;
    return true;
}

static mf_cli_reads end(reading *r)
{
    const double seconds = mf_cli_now() - r->began, cpu = cpu_seconds() - r->cpu_began;
    const double n_bytes = (double)atomic_load(&r->n_done) * (double)r->job->n_bytes;
    if (atomic_load(&r->is_bad) || n_bytes <= 0 || seconds <= 0)
        return (mf_cli_reads){0};
    return (mf_cli_reads){n_bytes / seconds, cpu / (n_bytes / GIB)};
}

static void *read_some(void *user)
{
    reading *r = user;
    void *buffer = NULL;
    uint64_t offset;
    if (posix_memalign(&buffer, MF_CLI_FILE_UNIT, r->job->n_bytes) != 0) {
        atomic_store(&r->is_bad, true);
        return NULL;
    }
    while (next(r, &offset)) {
        const ssize_t n = pread(r->job->fd, buffer, r->job->n_bytes, (off_t)offset);
        if (n == (ssize_t)r->job->n_bytes)
            atomic_fetch_add(&r->n_done, 1);
        else
            atomic_store(&r->is_bad, true);
    }
    free(buffer);
    return NULL;
}

mf_cli_reads mf_cli_read_by_threads(const mf_cli_read_job *job)
{
    pthread_t threads[N_AT_ONCE];
    reading r;
    int n = 0;
    begin(&r, job);
    while (n < N_AT_ONCE && pthread_create(&threads[n], NULL, read_some, &r) == 0)
        n++;
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    return end(&r);
}

#ifdef MF_HAVE_URING
/* The i-th piece of memory reads what is next; false: there is nothing. */
static bool submit(reading *r, struct io_uring *ring, unsigned char *memory, int i, bool is_held)
{
    uint64_t offset;
    if (!next(r, &offset))
        return false;
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    unsigned char *to = memory + (uint64_t)i * r->job->n_bytes;
    const unsigned n = (unsigned)r->job->n_bytes;
    if (is_held) {
        io_uring_prep_read_fixed(sqe, 0, to, n, offset, i);
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    } else {
        io_uring_prep_read(sqe, r->job->fd, to, n, offset);
    }
    sqe->user_data = (uint64_t)i;
    return io_uring_submit(ring) == 1;
}

static bool hold(struct io_uring *ring, const mf_cli_read_job *job, unsigned char *memory)
{
    struct iovec pieces[N_AT_ONCE];
    for (int i = 0; i < N_AT_ONCE; i++)
        pieces[i] = (struct iovec){memory + (uint64_t)i * job->n_bytes, job->n_bytes};
    return io_uring_register_files(ring, &job->fd, 1) == 0 &&
           io_uring_register_buffers(ring, pieces, N_AT_ONCE) == 0;
}

/* Nothing is under way any more when it returns. */
static void go_round(reading *r, struct io_uring *ring, unsigned char *memory, bool is_held)
{
    int n = 0;
    while (n < N_AT_ONCE && submit(r, ring, memory, n, is_held))
        n++;
    while (n > 0) {
        struct io_uring_cqe *cqe;
        if (io_uring_wait_cqe(ring, &cqe) != 0)
            continue; /* interrupted */
        const int i = (int)cqe->user_data;
        if (cqe->res == (int)r->job->n_bytes)
            atomic_fetch_add(&r->n_done, 1);
        else
            atomic_store(&r->is_bad, true);
        io_uring_cqe_seen(ring, cqe);
        n -= !submit(r, ring, memory, i, is_held);
    }
}

mf_cli_reads mf_cli_read_by_ring(const mf_cli_read_job *job, bool is_held)
{
    mf_cli_reads result = {0};
    struct io_uring ring;
    void *memory = NULL;
    reading r;
    if (io_uring_queue_init(N_AT_ONCE, &ring, 0) < 0)
        return result;
    if (posix_memalign(&memory, MF_CLI_FILE_UNIT, N_AT_ONCE * job->n_bytes) == 0 &&
        (!is_held || hold(&ring, job, memory))) {
        begin(&r, job);
        go_round(&r, &ring, memory, is_held);
        result = end(&r);
    }
    io_uring_queue_exit(&ring);
    free(memory);
    return result;
}
#else
mf_cli_reads mf_cli_read_by_ring(const mf_cli_read_job *job, bool is_held)
{
    (void)job;
    (void)is_held;
    return (mf_cli_reads){0};
}
#endif
