/* SPDX-License-Identifier: MIT */
/*
 * The io_uring engine: one ring, a batch of reads submitted by one system call. The submission
 * queue has room for every read in flight, so one that the kernel will not take now stays queued
 * and goes with the next call.
 *
 * The ring has no flag that defers completions to the submitting thread's next system call
 * (IORING_SETUP_COOP_TASKRUN, _DEFER_TASKRUN): whoever collects may be another thread, and would
 * wait for as long as the submitting one computes. What a thread leaves behind when it ends comes
 * back with ECANCELED at worst, and is submitted again by io.c.
 */
#include "io/io_engine.h"

#include <errno.h>
#include <liburing.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define CQES_AT_ONCE 32u
/* How long a ring that failed is waited for, in milliseconds, before its reads count as lost. */
#define RESET_MS 30000

/* Files that the ring holds by their descriptors' numbers, and chunks of memory whose pages it
 * holds: each once something is read to it. */
#define FILES 1024u
#define CHUNK_BYTES ((uint64_t)32 << 20)
#define CHUNKS 1024u
enum { CHUNK_NEW = 0, CHUNK_HELD, CHUNK_REFUSED };

typedef struct uring {
    mf_allocator allocator;
    struct io_uring ring;
    uint32_t depth;
    uint32_t n_in_flight; /* queued or with the kernel */
    uint64_t n_calls;
    bool has_files, has_chunks;
    int fds[FILES]; /* -1: not held */
    unsigned char *memory;
    uint64_t memory_bytes;
    uint8_t chunks[CHUNKS];
} uring;

/* Kernels before 5.6 have rings without plain reads. */
static bool can_read(struct io_uring *ring)
{
    union {
        struct io_uring_probe probe;
        unsigned char room[sizeof(struct io_uring_probe) + 256 * sizeof(struct io_uring_probe_op)];
    } all = {0};
    if (io_uring_register_probe(ring, &all.probe, 256) < 0)
        return false;
    return io_uring_opcode_supported(&all.probe, IORING_OP_READ) != 0;
}

/* ---------------------------------------- what is held ---------------------------------------- */

/* A file or memory that the kernel has looked up once need not be for each read. Kernels that are
 * too old, and limits (RLIMIT_MEMLOCK), refuse; then reads are as ever. */
static void offer_files(uring *u)
{
    struct rlimit most;
    const bool is_room = getrlimit(RLIMIT_NOFILE, &most) == 0 && most.rlim_cur >= FILES;
    u->has_files = is_room && io_uring_register_files(&u->ring, u->fds, FILES) == 0;
}

static void hold_file(void *state, int fd)
{
    uring *u = state;
    if (!u->has_files || fd < 0 || fd >= (int)FILES)
        return;
    if (io_uring_register_files_update(&u->ring, (unsigned)fd, &fd, 1) == 1)
        u->fds[fd] = fd;
}

static void offer_chunks(uring *u)
{
    const uint64_t n = (u->memory_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
    memset(u->chunks, CHUNK_NEW, sizeof u->chunks);
    u->has_chunks = n != 0 && io_uring_register_buffers_sparse(&u->ring, n < CHUNKS ? (unsigned)n
                                                                                    : CHUNKS) == 0;
}

static void hold_memory(void *state, unsigned char *memory, uint64_t n_bytes)
{
    uring *u = state;
    u->memory = memory;
    u->memory_bytes = n_bytes;
    offer_chunks(u);
}

/* The chunk's pages are the ring's from now on. One refusal is enough: there is a limit. */
static bool hold_chunk(uring *u, uint32_t i)
{
    const uint64_t at = i * CHUNK_BYTES, left = u->memory_bytes - at;
    const struct iovec pages = {u->memory + at, left < CHUNK_BYTES ? left : CHUNK_BYTES};
    const __u64 tag = 0;
    if (u->chunks[i] == CHUNK_NEW) {
        u->n_calls++;
        const bool is_held =
            io_uring_register_buffers_update_tag(&u->ring, i, &pages, &tag, 1) == 1;
        u->chunks[i] = is_held ? CHUNK_HELD : CHUNK_REFUSED;
        u->has_chunks = is_held;
    }
    return u->chunks[i] == CHUNK_HELD;
}

/* Whether the read goes to one chunk, which is held. */
static bool is_held(uring *u, const mf_io_op *op, uint32_t *chunk)
{
    const uint64_t at = (uint64_t)((uintptr_t)op->dest - (uintptr_t)u->memory);
    const uint64_t first = at / CHUNK_BYTES, last = (at + op->n_bytes - 1) / CHUNK_BYTES;
    *chunk = (uint32_t)first;
    return u->has_chunks && at < u->memory_bytes && op->n_bytes <= u->memory_bytes - at &&
           first == last && first < CHUNKS && hold_chunk(u, (uint32_t)first);
}

static void prepare(uring *u, struct io_uring_sqe *sqe, const mf_io_op *op)
{
    uint32_t chunk;
    if (is_held(u, op, &chunk))
        io_uring_prep_read_fixed(sqe, op->fd, op->dest, op->n_bytes, op->offset, (int)chunk);
    else
        io_uring_prep_read(sqe, op->fd, op->dest, op->n_bytes, op->offset);
    if (u->has_files && op->fd >= 0 && op->fd < (int)FILES && u->fds[op->fd] == op->fd)
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    sqe->user_data = op->request;
}

static uint64_t n_calls(void *state)
{
    return ((const uring *)state)->n_calls;
}

/* ---------------------------------------- the engine ---------------------------------------- */

static mf_status open_uring(const mf_allocator *allocator, uint32_t depth, void *arg, void **state,
                            mf_error *error)
{
    (void)arg;
    uring *u = mf_alloc_zeroed(allocator, sizeof *u);
    if (u == NULL)
        return mf_fail_memory(error, sizeof *u, "io_uring");
    u->allocator = *allocator;
    u->depth = depth;
    memset(u->fds, -1, sizeof u->fds);
    int result = io_uring_queue_init(depth, &u->ring, 0);
    if (result < 0) {
        mf_free(allocator, u, sizeof *u);
        return mf_fail_os(error, MF_ERR_UNSUPPORTED, -result, "io_uring is not available here");
    }
    if (!can_read(&u->ring)) {
        io_uring_queue_exit(&u->ring);
        mf_free(allocator, u, sizeof *u);
        return mf_fail(error, MF_ERR_UNSUPPORTED, "io_uring: this kernel's cannot read files");
    }
    offer_files(u);
    *state = u;
    return MF_OK;
}

static void close_uring(void *state)
{
    uring *u = state;
    if (u == NULL)
        return;
    io_uring_queue_exit(&u->ring);
    mf_allocator allocator = u->allocator;
    mf_free(&allocator, u, sizeof *u);
}

/* The kernel is short of something now; what was not taken stays in the submission queue. */
static bool is_passing(int result)
{
    return result == -EINTR || result == -EAGAIN || result == -EBUSY;
}

static mf_status submit_to_uring(void *state, const mf_io_op *ops, uint32_t n, mf_error *error)
{
    uring *u = state;
    for (uint32_t i = 0; i < n; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        if (sqe == NULL)
            return mf_fail(error, MF_ERR_IO, "io_uring: more reads than its queue holds");
        prepare(u, sqe, &ops[i]);
        u->n_in_flight++;
    }
    while (io_uring_sq_ready(&u->ring) > 0) {
        int result = io_uring_submit(&u->ring);
        u->n_calls++;
        if (result < 0 && !is_passing(result))
            return mf_fail_os(error, MF_ERR_IO, -result, "io_uring: submitting reads failed");
        if (result <= 0 && result != -EINTR)
            break;
    }
    return MF_OK;
}

static uint32_t take_completions(uring *u, mf_io_result *out, uint32_t max)
{
    struct io_uring *ring = &u->ring;
    struct io_uring_cqe *cqes[CQES_AT_ONCE];
    uint32_t n = io_uring_peek_batch_cqe(ring, cqes, max < CQES_AT_ONCE ? max : CQES_AT_ONCE);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (mf_io_result){(uint32_t)cqes[i]->user_data, cqes[i]->res};
    io_uring_cq_advance(ring, n);
    u->n_in_flight -= n;
    return n;
}

static mf_status collect_from_uring(void *state, bool wait, mf_io_result *out, uint32_t max,
                                    uint32_t *n, mf_error *error)
{
    uring *u = state;
    while ((*n = take_completions(u, out, max)) == 0) {
        int result = 0;
        u->n_calls += wait || io_uring_sq_ready(&u->ring) > 0;
        if (wait)
            result = io_uring_submit_and_wait(&u->ring, 1);
        else if (io_uring_sq_ready(&u->ring) > 0)
            result = io_uring_submit(&u->ring);
        if (result < 0 && !is_passing(result))
            return mf_fail_os(error, MF_ERR_IO, -result, "io_uring: waiting for reads failed");
        if (!wait)
            break;
        if (result < 0 && result != -EINTR)
            (void)sched_yield();
    }
    return MF_OK;
}

/* Closing a ring does not wait for its reads, so they are waited for here, without the calls that
 * may have failed: the kernel posts completions on any return from it. What it never took is
 * dropped with the ring. */
static mf_status reset_uring(void *state, mf_error *error)
{
    uring *u = state;
    mf_io_result dropped[CQES_AT_ONCE];
    uint32_t n_queued = io_uring_sq_ready(&u->ring);
    for (int n_ms = 0; u->n_in_flight > n_queued; n_ms++) {
        while (take_completions(u, dropped, CQES_AT_ONCE) > 0)
            continue;
        if (n_ms == RESET_MS)
            return mf_fail(error, MF_ERR_IO, "io_uring: %u reads do not come back",
                           u->n_in_flight - n_queued);
        if (u->n_in_flight > n_queued)
            (void)nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    struct io_uring fresh;
    int result = io_uring_queue_init(u->depth, &fresh, 0);
    if (result < 0)
        return mf_fail_os(error, MF_ERR_IO, -result, "io_uring: starting anew failed");
    io_uring_queue_exit(&u->ring);
    u->ring = fresh;
    u->n_in_flight = 0;
    offer_files(u); /* those that were held */
    offer_chunks(u);
    return MF_OK;
}

const mf_io_engine mf_io_engine_uring = {
    "io_uring", open_uring, close_uring, submit_to_uring, collect_from_uring, NULL, reset_uring,
    NULL,       hold_file,  hold_memory, n_calls};
