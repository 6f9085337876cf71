/* SPDX-License-Identifier: MIT */
/*
 * The fault-injecting engine. A read that is to fail or to be interrupted never reaches the inner
 * engine; one that is to be short is cut there to aligned bytes, so that direct reads work, and
 * then shortened to any byte. Results are held in a bounded list; waiting empties it.
 */
#include "io/io_fault.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define FAULT_ALIGN 4096u
#define SPOILED 0xa5

typedef struct fault {
    mf_allocator allocator;
    mf_io_fault *script;
    void *inner_state;
    uint64_t random;
    uint32_t depth;
    uint32_t n_inner;   /* in flight there */
    mf_io_op *ops;      /* [depth], by request */
    uint32_t *n_shown;  /* [depth], by request: bytes reported at most */
    uint32_t *n_tries;  /* [depth], by request: interruptions in a row */
    mf_io_result *held; /* [depth] */
    uint32_t n_held;    /* the first n_due of which may go at once */
    uint32_t n_due;
} fault;

static uint64_t next_random(fault *f)
{
    f->random ^= f->random << 13;
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return f->random >> 16;
}

static bool happens(fault *f, uint32_t chance)
{
    return chance > 0 && next_random(f) % 1000 < chance;
}

static void close_fault(void *state)
{
    fault *f = state;
    if (f == NULL)
        return;
    if (f->inner_state != NULL)
        f->script->inner->close(f->inner_state);
    mf_allocator allocator = f->allocator;
    mf_free(&allocator, f->held, f->depth * sizeof *f->held);
    mf_free(&allocator, f->n_tries, f->depth * sizeof *f->n_tries);
    mf_free(&allocator, f->n_shown, f->depth * sizeof *f->n_shown);
    mf_free(&allocator, f->ops, f->depth * sizeof *f->ops);
    mf_free(&allocator, f, sizeof *f);
}

static mf_status open_fault(const mf_allocator *allocator, uint32_t depth, void *arg, void **state,
                            mf_error *error)
{
    fault *f = mf_alloc_zeroed(allocator, sizeof *f);
    if (f == NULL)
        return mf_fail_memory(error, sizeof *f, "the fault engine");
    f->allocator = *allocator;
    f->script = arg;
    f->random = f->script->seed * 2 + 1;
    f->depth = depth;
    f->ops = mf_alloc_array(allocator, depth, sizeof *f->ops);
    f->n_shown = mf_alloc_array(allocator, depth, sizeof *f->n_shown);
    f->n_tries = mf_alloc_array(allocator, depth, sizeof *f->n_tries);
    f->held = mf_alloc_array(allocator, depth, sizeof *f->held);
    mf_status status = MF_OK;
    if (f->ops == NULL || f->n_shown == NULL || f->n_tries == NULL || f->held == NULL)
        status = mf_fail_memory(error, depth * sizeof *f->ops, "the fault engine");
    else
        status = f->script->inner->open(allocator, depth, NULL, &f->inner_state, error);
    if (status != MF_OK) {
        close_fault(f);
        return status;
    }
    *state = f;
    return MF_OK;
}

static void hold(fault *f, mf_io_result result, bool is_due)
{
    assert(f->n_held < f->depth);
    f->held[f->n_held] = result;
    if (is_due) { /* the due ones come first */
        f->held[f->n_held] = f->held[f->n_due];
        f->held[f->n_due++] = result;
    }
    f->n_held++;
}

static bool is_to_fail(const fault *f, const mf_io_op *op)
{
    const mf_io_fault *s = f->script;
    if (s->fail_errno == 0)
        return false;
    if (s->fail_lanes != 0)
        return (s->fail_lanes >> op->lane & 1) != 0;
    if (s->fail_at_offset)
        return op->offset <= s->fail_offset && s->fail_offset - op->offset < op->n_bytes;
    return s->n_reads >= s->fail_from && s->n_reads - s->fail_from < s->fail_count;
}

static bool is_to_interrupt(fault *f, const mf_io_op *op)
{
    uint32_t *n_tries = &f->n_tries[op->request];
    if (happens(f, f->script->interrupt_chance) || *n_tries < f->script->interrupt_each) {
        (*n_tries)++;
        return true;
    }
    *n_tries = 0;
    return false;
}

/* False if the read was answered here. */
static bool prepare(fault *f, mf_io_op *op)
{
    mf_io_fault *s = f->script;
    s->n_reads++;
    s->last_fd = op->fd;
    f->ops[op->request] = *op;
    f->n_shown[op->request] = op->n_bytes;
    if (is_to_fail(f, op)) {
        s->n_failed++;
        hold(f, (mf_io_result){op->request, -s->fail_errno}, true);
        return false;
    }
    if (is_to_interrupt(f, op)) {
        s->n_interrupted++;
        int code = s->interrupt_errno != 0 ? s->interrupt_errno : EINTR;
        hold(f, (mf_io_result){op->request, -code}, true);
        return false;
    }
    if (happens(f, s->short_chance)) {
        s->n_short++;
        uint32_t n_shown = 1 + (uint32_t)(next_random(f) % op->n_bytes);
        f->n_shown[op->request] = n_shown;
        op->n_bytes = (n_shown + FAULT_ALIGN - 1) & ~(FAULT_ALIGN - 1);
    }
    return true;
}

static mf_status count_call(fault *f, mf_error *error)
{
    if (++f->script->n_calls == f->script->break_at)
        return mf_fail_os(error, MF_ERR_IO, ENXIO, "the fault engine broke");
    return MF_OK;
}

static mf_status submit_to_fault(void *state, const mf_io_op *ops, uint32_t n, mf_error *error)
{
    fault *f = state;
    MF_TRY(count_call(f, error));
    for (uint32_t i = 0; i < n; i++) {
        mf_io_op op = ops[i];
        if (!prepare(f, &op))
            continue;
        MF_TRY(f->script->inner->submit(f->inner_state, &op, 1, error));
        f->n_inner++;
    }
    return MF_OK;
}

/* Takes what the inner engine has finished into the list. */
static mf_status drain_inner(fault *f, bool wait, mf_error *error)
{
    mf_io_result results[16];
    uint32_t n = 0;
    if (f->n_inner == 0)
        return MF_OK;
    MF_TRY(f->script->inner->collect(f->inner_state, wait, results, 16, &n, error));
    f->n_inner -= n;
    for (uint32_t i = 0; i < n; i++) {
        mf_io_result result = results[i];
        uint32_t n_shown = f->n_shown[result.request];
        const mf_io_op *op = &f->ops[result.request];
        if (n_shown < op->n_bytes && result.n_read >= 0) {
            if ((uint32_t)result.n_read > n_shown)
                result.n_read = (int32_t)n_shown;
            memset(op->dest + result.n_read, SPOILED, op->n_bytes - (uint32_t)result.n_read);
        }
        bool is_held = happens(f, f->script->hold_chance);
        f->script->n_held += is_held;
        hold(f, result, !is_held);
    }
    return MF_OK;
}

static bool is_slow(const fault *f, uint32_t held)
{
    return (f->script->slow_lanes >> f->ops[f->held[held].request].lane & 1) != 0;
}

/* One of the due ones, or of all where none is due, that no slow lane keeps; false if there is
 * none.
 */
static bool take_held(fault *f, mf_io_result *out)
{
    uint32_t n = f->n_due > 0 ? f->n_due : f->n_held;
    uint32_t i = f->script->shuffle != 0 && n > 0 ? (uint32_t)(next_random(f) % n) : 0;
    for (uint32_t tries = 0; tries < f->n_held && is_slow(f, i); tries++)
        i = (i + 1) % f->n_held;
    if (f->n_held == 0 || is_slow(f, i))
        return false;
    *out = f->held[i];
    memmove(f->held + i, f->held + i + 1, (f->n_held - i - 1) * sizeof *f->held);
    f->n_held--;
    if (i < f->n_due)
        f->n_due--;
    return true;
}

static mf_status collect_from_fault(void *state, bool wait, mf_io_result *out, uint32_t max,
                                    uint32_t *n, mf_error *error)
{
    fault *f = state;
    *n = 0;
    MF_TRY(count_call(f, error));
    MF_TRY(drain_inner(f, false, error));
    while (wait && f->n_due == 0 && f->n_inner > 0)
        MF_TRY(drain_inner(f, true, error));
    while (*n < max && f->n_due > 0 && take_held(f, &out[*n]))
        (*n)++;
    while (wait && *n == 0) {
        if (take_held(f, &out[*n]))
            (*n)++;
        else if (f->n_inner > 0)
            MF_TRY(drain_inner(f, true, error));
        else
            return mf_fail(error, MF_ERR_IO, "waiting for a drive that hangs");
    }
    return MF_OK;
}

static void set_fault_lanes(void *state, uint32_t n_lanes)
{
    fault *f = state;
    if (f->script->inner->set_lanes != NULL)
        f->script->inner->set_lanes(f->inner_state, n_lanes);
}

static mf_status reset_fault(void *state, mf_error *error)
{
    fault *f = state;
    f->script->n_resets++;
    if (f->script->reset_fails)
        return mf_fail_os(error, MF_ERR_IO, ENXIO, "the fault engine stays broken");
    MF_TRY(f->script->inner->reset(f->inner_state, error));
    f->n_inner = f->n_held = f->n_due = 0;
    memset(f->n_tries, 0, f->depth * sizeof *f->n_tries);
    return MF_OK;
}

static void hold_file(void *state, int fd)
{
    fault *f = state;
    if (f->script->inner->hold_file != NULL)
        f->script->inner->hold_file(f->inner_state, fd);
}

static void hold_memory(void *state, unsigned char *memory, uint64_t n_bytes)
{
    fault *f = state;
    if (f->script->inner->hold_memory != NULL)
        f->script->inner->hold_memory(f->inner_state, memory, n_bytes);
}

static uint64_t n_calls(void *state)
{
    fault *f = state;
    return f->script->inner->n_calls != NULL ? f->script->inner->n_calls(f->inner_state) : 0;
}

const mf_io_engine mf_io_engine_fault = {
    "fault",         open_fault,  close_fault, submit_to_fault, collect_from_fault,
    set_fault_lanes, reset_fault, NULL,        hold_file,       hold_memory,
    n_calls};
