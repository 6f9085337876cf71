/* SPDX-License-Identifier: MIT */
/* What an engine's devices do when they are looked at: their link, and their time by operations. */
#include "base/clock.h"
#include "session/session.h"

/* What goes over the link before anybody waits, in pieces that are no more than loading staged. */
#define LINK_BYTES ((uint64_t)96 << 20)

/* Bytes that lie on a device with memory of its own. */
typedef struct there {
    mf_backend *be;
    mf_span span;
    uint64_t n_bytes;
} there;

static bool has_memory(const mf_backend *be)
{
    mf_backend_memory memories[MF_MAX_MEMORIES];
    const uint32_t n = be->ops->memories(be, memories);
    for (uint32_t i = 0; i < n; i++)
        if ((memories[i].uses & 1u << MF_USE_DEVICE) != 0 && !memories[i].is_host)
            return true;
    return false;
}

static there find_there(const mf_engine *e)
{
    const mf_runner *r = &e->runner;
    const uint64_t most = mf_load_staging_bytes();
    const uint64_t slots = e->info.n_slots * e->info.slot_bytes;
    there t = {0};
    if (has_memory(r->backend))
        t = (there){r->backend, {{MF_BUFFER_RESIDENT}, 0}, r->resident_bytes};
    else if (has_memory(r->experts))
        t = (there){r->experts, {{MF_BUFFER_SLOTS}, 0}, slots};
    t.n_bytes = t.n_bytes < most ? t.n_bytes : most;
    return t;
}

/* The best rate of one way. What comes is sent back as it was. */
static mf_status measure_way(const there *t, bool is_to, unsigned char *host, uint64_t us,
                             double *out, mf_error *error)
{
    const mf_backend_ops *ops = t->be->ops;
    const uint64_t end = mf_now_us() + us;
    double best = 0.0;
    do {
        const uint64_t start = mf_now_us();
        uint64_t n_sent = 0;
        for (; n_sent < LINK_BYTES; n_sent += t->n_bytes)
            if (is_to)
                (void)ops->upload(t->be, t->span, host, t->n_bytes);
            else
                ops->read(t->be, t->span, host, t->n_bytes);
        MF_TRY(mf_backend_finish(t->be, error));
        const uint64_t took = mf_now_us() - start;
        const double rate = (double)n_sent / (double)(took == 0 ? 1 : took) * 1e6;
        best = rate > best ? rate : best;
    } while (mf_now_us() < end);
    *out = best;
    return MF_OK;
}

static mf_status measure_link(const there *t, uint64_t us, double *to, double *from,
                              mf_error *error)
{
    const mf_backend_ops *ops = t->be->ops;
    mf_buffer staging;
    MF_TRY(
        ops->buffer_create(t->be, t->n_bytes, MF_USE_STAGING, "measuring a link", &staging, error));
    unsigned char *host = ops->buffer_host(t->be, staging);
    double back = 0.0, forth = 0.0;
    mf_status status = measure_way(t, false, host, us, &back, error);
    if (status == MF_OK)
        status = measure_way(t, true, host, us, &forth, error);
    ops->buffer_free(t->be, staging);
    if (status == MF_OK) {
        *to = forth;
        *from = back;
    }
    return status;
}

mf_status mf_engine_measure_link(mf_engine *engine, uint32_t n_milliseconds,
                                 double *to_bytes_per_second, double *from_bytes_per_second,
                                 mf_error *error)
{
    if (engine == NULL || to_bytes_per_second == NULL || from_bytes_per_second == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_engine_measure_link: engine or a result is NULL");
    const there t = find_there(engine);
    if (t.n_bytes == 0) {
        *to_bytes_per_second = *from_bytes_per_second = 0.0;
        return MF_OK;
    }
    MF_TRY(mf_engine_take_turn(engine, error));
    mf_status status = measure_link(&t, (uint64_t)n_milliseconds * 1000, to_bytes_per_second,
                                    from_bytes_per_second, error);
    mf_engine_end_turn(engine);
    return status;
}

/* ------------------------------------------------------------------------------- operations -- */

static mf_status time_ops(mf_runner *r, bool is_on, mf_error *error)
{
    mf_backend *const devices[] = {r->backend, r->experts};
    const int n_devices = mf_experts_are_apart(r) ? 2 : 1;
    uint32_t n = 0;
    for (int i = 0; i < n_devices; i++)
        if (devices[i]->ops->time_ops != NULL) {
            MF_TRY(devices[i]->ops->time_ops(devices[i], is_on, error));
            n++;
        }
    return n != 0 ? MF_OK
                  : mf_fail(error, MF_ERR_UNSUPPORTED, "no device in use takes its time (%s)",
                            r->backend->ops->name);
}

mf_status mf_engine_time_operations(mf_engine *engine, int on, mf_error *error)
{
    if (engine == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_time_operations: engine is NULL");
    MF_TRY(mf_engine_take_turn(engine, error));
    mf_status status = time_ops(&engine->runner, on != 0, error);
    mf_engine_end_turn(engine);
    return status;
}

size_t mf_engine_operation_times(mf_engine *engine, mf_operation_time *out, size_t capacity)
{
    const mf_runner *r = &engine->runner;
    mf_op_time times[MF_N_OP_KINDS] = {{0, 0}};
    size_t n = 0;
    if (r->backend->ops->op_times != NULL)
        r->backend->ops->op_times(r->backend, times);
    if (mf_experts_are_apart(r) && r->experts->ops->op_times != NULL)
        r->experts->ops->op_times(r->experts, times);
    for (uint32_t i = 0; i < MF_N_OP_KINDS; i++) {
        if (times[i].n == 0)
            continue;
        if (n < capacity)
            out[n] = (mf_operation_time){mf_op_name((mf_op_kind)i), times[i].n,
                                         1e-9 * (double)times[i].ns};
        n++;
    }
    return n;
}
