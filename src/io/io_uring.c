/* SPDX-License-Identifier: MIT */
/*
 * The io_uring engine: one ring, a batch of reads submitted by one system call. The submission
 * queue has room for every read in flight, so one that the kernel will not take now stays queued
 * and goes with the next call.
 */
#include "io/io_engine.h"

#include <errno.h>
#include <liburing.h>
#include <sched.h>

#define CQES_AT_ONCE 32u

typedef struct uring {
    mf_allocator allocator;
    struct io_uring ring;
} uring;

/* Completions are posted when the submitting thread next enters the kernel instead of interrupting
 * its computing; kernels before 5.19 refuse that. */
static int init_ring(struct io_uring *ring, uint32_t depth)
{
    int result = -EINVAL;
#if defined(IORING_SETUP_COOP_TASKRUN) && defined(IORING_SETUP_TASKRUN_FLAG)
    result =
        io_uring_queue_init(depth, ring, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
#endif
    return result == -EINVAL ? io_uring_queue_init(depth, ring, 0) : result;
}

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
    int result = init_ring(&u->ring, depth);
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

static uint32_t take_completions(struct io_uring *ring, mf_io_result *out, uint32_t max)
{
    struct io_uring_cqe *cqes[CQES_AT_ONCE];
    uint32_t n = io_uring_peek_batch_cqe(ring, cqes, max < CQES_AT_ONCE ? max : CQES_AT_ONCE);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (mf_io_result){(uint32_t)cqes[i]->user_data, cqes[i]->res};
    io_uring_cq_advance(ring, n);
    return n;
}

static mf_status collect_from_uring(void *state, bool wait, mf_io_result *out, uint32_t max,
                                    uint32_t *n, mf_error *error)
{
    uring *u = state;
    while ((*n = take_completions(&u->ring, out, max)) == 0) {
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

const mf_io_engine mf_io_engine_uring = {"io_uring", open_uring, close_uring, submit_to_uring,
                                         collect_from_uring};
