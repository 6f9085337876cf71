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
#include <time.h>

#define CQES_AT_ONCE 32u
/* How long a ring that failed is waited for, in milliseconds, before its reads count as lost. */
#define RESET_MS 30000

typedef struct uring {
    mf_allocator allocator;
    struct io_uring ring;
    uint32_t depth;
    uint32_t n_in_flight; /* queued or with the kernel */
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

static mf_status open_uring(const mf_allocator *allocator, uint32_t depth, void *arg, void **state,
                            mf_error *error)
{
    (void)arg;
    uring *u = mf_alloc_zeroed(allocator, sizeof *u);
    if (u == NULL)
        return mf_fail_memory(error, sizeof *u, "io_uring");
    u->allocator = *allocator;
    u->depth = depth;
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
        io_uring_prep_read(sqe, ops[i].fd, ops[i].dest, ops[i].n_bytes, ops[i].offset);
        sqe->user_data = ops[i].request;
        u->n_in_flight++;
    }
    while (io_uring_sq_ready(&u->ring) > 0) {
        int result = io_uring_submit(&u->ring);
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
    return MF_OK;
}

const mf_io_engine mf_io_engine_uring = {
    "io_uring",         open_uring, close_uring, submit_to_uring,
    collect_from_uring, NULL,       reset_uring, NULL};
