/* SPDX-License-Identifier: MIT */
/* An engine's counters, and what its drive, memory and cores can do, measured beside them. */
#include "base/sized.h"
#include "session/session.h"

/* Evaluations on other threads wait meanwhile; callbacks of one on this thread do not. */
static void take_turn(const mf_engine *engine)
{
    (void)!mf_turn_take(&((mf_engine *)engine)->turn, NULL, NULL, NULL); /* nothing ends it */
}

static void end_turn(const mf_engine *engine)
{
    mf_turn_end(&((mf_engine *)engine)->turn);
}

void mf_engine_stats_sized(const mf_engine *engine, mf_stats *out, size_t struct_bytes)
{
    mf_expert_stats s;
    mf_stats stats;
    take_turn(engine);
    mf_expert_store_stats(engine->runner.store, &s);
    stats = (mf_stats){
        .n_tokens = engine->runner.n_tokens,
        .n_expert_hits = s.n_hits,
        .n_expert_misses = s.n_misses,
        .n_reads = s.n_reads,
        .read_bytes = s.read_bytes,
        .expert_bytes_touched = engine->runner.expert_bytes_touched,
        .weight_bytes_touched = engine->runner.backend->ops->weight_bytes(engine->runner.backend) -
                                engine->weight_bytes_start,
        .wait_us = s.wait_us,
        .reading_us = s.reading_us,
        .n_slots = mf_expert_store_n_slots(engine->runner.store),
        .slot_bytes = engine->info.slot_bytes,
    };
    end_turn(engine);
    mf_sized_put(out, struct_bytes, &stats, sizeof stats);
}

void mf_engine_stats_reset(mf_engine *engine)
{
    engine->runner.n_tokens = 0;
    engine->runner.expert_bytes_touched = 0;
    engine->weight_bytes_start = engine->runner.backend->ops->weight_bytes(engine->runner.backend);
    mf_expert_store_stats_reset(engine->runner.store);
}

const char *mf_engine_io_name(const mf_engine *engine)
{
    return mf_io_name(engine->runner.io);
}

const char *mf_engine_cpu_name(const mf_engine *engine)
{
    return engine->runner.backend->ops->device_name(engine->runner.backend);
}

mf_status mf_engine_measure_drive(mf_engine *engine, uint32_t n_milliseconds,
                                  double *bytes_per_second, mf_error *error)
{
    if (engine == NULL || bytes_per_second == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_measure_drive: engine or result is NULL");
    take_turn(engine);
    mf_status status = mf_expert_store_measure(engine->runner.store, engine->runner.plan.k,
                                               n_milliseconds, bytes_per_second, error);
    end_turn(engine);
    return status;
}

mf_status mf_engine_measure_compute(mf_engine *engine, uint32_t n_milliseconds,
                                    double *dram_bytes_per_second, double *fma_per_second,
                                    mf_error *error)
{
    if (engine == NULL || dram_bytes_per_second == NULL || fma_per_second == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_engine_measure_compute: engine or a result is NULL");
    const mf_span spans[] = {{{MF_BUFFER_RESIDENT}, 0}, {{MF_BUFFER_SLOTS}, 0}};
    /* Slots that were never filled are not backed by memory: reading them would measure the zero
     * page. */
    mf_expert_stats s;
    mf_expert_store_stats(engine->runner.store, &s);
    const uint64_t n_bytes[] = {
        engine->info.resident_bytes,
        s.n_misses < engine->info.n_slots ? 0 : engine->info.n_slots * engine->info.slot_bytes};
    take_turn(engine);
    mf_status status = engine->runner.backend->ops->measure(
        engine->runner.backend, spans, n_bytes, 2, n_milliseconds, dram_bytes_per_second,
        fma_per_second, error);
    end_turn(engine);
    return status;
}
