/* SPDX-License-Identifier: MIT */
/* Reads that take time and nothing else; they end in the order in which they were submitted. */
#include "routing/drive_sim.h"

#include <string.h>

typedef struct sim_read {
    double end_us;
    mf_io_result result;
} sim_read;

typedef struct sim {
    mf_allocator allocator;
    mf_drive_sim *drive;
    sim_read *reads; /* [depth], a ring */
    uint32_t depth, first, n;
} sim;

static mf_status sim_open(const mf_allocator *allocator, uint32_t depth, void *arg, void **state,
                          mf_error *error)
{
    sim *s = mf_alloc_zeroed(allocator, sizeof *s);
    if (s == NULL)
        return mf_fail_memory(error, sizeof *s, "a drive made of numbers");
    s->allocator = *allocator;
    s->drive = arg;
    s->depth = depth;
    s->reads = mf_alloc_array(allocator, depth, sizeof *s->reads);
    if (s->reads == NULL) {
        mf_free(allocator, s, sizeof *s);
        return mf_fail_memory(error, depth * sizeof *s->reads, "a drive made of numbers");
    }
    *state = s;
    return MF_OK;
}

static void sim_close(void *state)
{
    sim *s = state;
    if (s == NULL)
        return;
    const mf_allocator a = s->allocator;
    mf_free(&a, s->reads, s->depth * sizeof *s->reads);
    mf_free(&a, s, sizeof *s);
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

static mf_status sim_submit(void *state, const mf_io_op *ops, uint32_t n, mf_error *error)
{
    sim *s = state;
    mf_drive_sim *d = s->drive;
    (void)error;
    for (uint32_t i = 0; i < n; i++) {
        const double end =
            later(d->now_us + d->latency_us, d->free_us) + (double)ops[i].n_bytes / d->bytes_per_us;
        d->reading_us += end - later(d->now_us, d->free_us);
        d->free_us = end;
        s->reads[(s->first + s->n++) % s->depth] =
            (sim_read){end, {ops[i].request, (int32_t)ops[i].n_bytes}};
    }
    return MF_OK;
}

static mf_status sim_collect(void *state, bool wait, mf_io_result *out, uint32_t max, uint32_t *n,
                             mf_error *error)
{
    sim *s = state;
    mf_drive_sim *d = s->drive;
    (void)error;
    const double first = s->n > 0 ? s->reads[s->first].end_us : d->now_us;
    if (wait && first > d->now_us) {
        d->waited_us += first - d->now_us;
        d->now_us = first;
    }
    for (*n = 0; *n < max && s->n > 0 && s->reads[s->first].end_us <= d->now_us; s->n--) {
        out[(*n)++] = s->reads[s->first].result;
        s->first = (s->first + 1) % s->depth;
    }
    return MF_OK;
}

uint64_t mf_drive_sim_now_us(const mf_drive_sim *d)
{
    return d->now_us < (double)MF_DRIVE_SIM_LAST_US ? (uint64_t)d->now_us : MF_DRIVE_SIM_LAST_US;
}

static uint64_t sim_now_us(void *state)
{
    const sim *s = state;
    return mf_drive_sim_now_us(s->drive);
}

static mf_status sim_reset(void *state, mf_error *error)
{
    sim *s = state;
    (void)error;
    s->n = 0;
    return MF_OK;
}

const mf_io_engine mf_io_engine_sim = {.name = "sim",
                                       .open = sim_open,
                                       .close = sim_close,
                                       .submit = sim_submit,
                                       .collect = sim_collect,
                                       .reset = sim_reset,
                                       .now_us = sim_now_us};
