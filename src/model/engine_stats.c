/* SPDX-License-Identifier: MIT */
/* An engine's counters, and what its drive, memory and cores can do, measured beside them. */
#include "base/checked.h"
#include "model/engine.h"

/* Evaluations on other threads wait meanwhile; callbacks of one on this thread do not. */
static void take_turn(const mf_engine *engine)
{
    (void)pthread_mutex_lock(&((mf_engine *)engine)->turn);
}

static void end_turn(const mf_engine *engine)
{
    (void)pthread_mutex_unlock(&((mf_engine *)engine)->turn);
}

void mf_engine_stats(const mf_engine *engine, mf_stats *out)
{
    mf_expert_stats s;
    take_turn(engine);
    mf_expert_store_stats(engine->store, &s);
    *out = (mf_stats){
        .n_tokens = engine->n_tokens,
        .n_expert_hits = s.n_hits,
        .n_expert_misses = s.n_misses,
        .n_reads = s.n_reads,
        .read_bytes = s.read_bytes,
        .expert_bytes_touched = engine->expert_bytes_touched,
        .weight_bytes_touched =
            engine->backend->ops->weight_bytes(engine->backend) - engine->weight_bytes_start,
        .wait_us = s.wait_us,
        .reading_us = s.reading_us,
        .n_slots = mf_expert_store_n_slots(engine->store),
        .slot_bytes = engine->info.slot_bytes,
    };
    end_turn(engine);
}

void mf_engine_stats_reset(mf_engine *engine)
{
    engine->n_tokens = 0;
    engine->expert_bytes_touched = 0;
    engine->weight_bytes_start = engine->backend->ops->weight_bytes(engine->backend);
    mf_expert_store_stats_reset(engine->store);
}

const char *mf_engine_io_name(const mf_engine *engine)
{
    return mf_io_name(engine->io);
}

const char *mf_engine_cpu_name(const mf_engine *engine)
{
    return engine->backend->ops->device_name(engine->backend);
}

/* Beyond the plan's slack no more than this is taken for measuring. */
#define OWN_BYTES ((uint64_t)16 << 20)

/*
 * Memory for the measurement's reads, for at most one token's experts: as many as fit, for large
 * ones are many requests each. Between evaluations the activations past the rotary angles hold
 * nothing: they are lent, so that measuring stays within the budget.
 */
static mf_status borrow_slots(mf_engine *engine, mf_region *own, unsigned char **out,
                              uint32_t *n_slots, mf_error *error)
{
    uint64_t slot = engine->info.slot_bytes, k = engine->plan.k;
    uint64_t from = mf_round_up(engine->plan.x.offset, MF_IO_ALIGN), end = engine->plan.act_bytes;
    uint64_t n_lent = end > from ? (end - from) / slot : 0, n_own = OWN_BYTES / slot;
    n_lent = n_lent < k ? n_lent : k;
    n_own = n_own < 1 ? 1 : n_own < k ? n_own : k;
    if (n_lent >= n_own) {
        *n_slots = (uint32_t)n_lent;
        *out = engine->backend->ops->buffer_host(engine->backend, engine->act) + from;
        return MF_OK;
    }
    MF_TRY(mf_region_create(&engine->allocator, n_own * slot, "measuring the drive", own, error));
    *n_slots = (uint32_t)n_own;
    *out = own->base;
    return MF_OK;
}

mf_status mf_engine_measure_drive(mf_engine *engine, uint32_t n_milliseconds,
                                  double *bytes_per_second, mf_error *error)
{
    if (engine == NULL || bytes_per_second == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_measure_drive: engine or result is NULL");
    mf_region own = {0};
    unsigned char *buffer;
    uint32_t n_slots;
    take_turn(engine);
    mf_status status = borrow_slots(engine, &own, &buffer, &n_slots, error);
    if (status == MF_OK)
        status = mf_expert_store_measure(engine->store, buffer, n_slots, n_milliseconds,
                                         bytes_per_second, error);
    end_turn(engine);
    mf_region_free(&engine->allocator, &own);
    return status;
}

mf_status mf_engine_measure_compute(mf_engine *engine, uint32_t n_milliseconds,
                                    double *dram_bytes_per_second, double *fma_per_second,
                                    mf_error *error)
{
    if (engine == NULL || dram_bytes_per_second == NULL || fma_per_second == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_engine_measure_compute: engine or a result is NULL");
    const mf_span spans[] = {{engine->resident, 0}, {engine->slots, 0}};
    /* Slots that were never filled are not backed by memory: reading them would measure the zero
     * page. */
    mf_expert_stats s;
    mf_expert_store_stats(engine->store, &s);
    const uint64_t n_bytes[] = {
        engine->info.resident_bytes,
        s.n_misses < engine->info.n_slots ? 0 : engine->info.n_slots * engine->info.slot_bytes};
    take_turn(engine);
    mf_status status =
        engine->backend->ops->measure(engine->backend, spans, n_bytes, 2, n_milliseconds,
                                      dram_bytes_per_second, fma_per_second, error);
    end_turn(engine);
    return status;
}
