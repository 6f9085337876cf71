/* SPDX-License-Identifier: MIT */
/* An engine's counters, and what its drive, memory and cores can do, measured beside them. */
#include "base/sized.h"
#include "session/session_draft.h"

mf_status mf_engine_take_turn(mf_engine *engine, mf_error *error)
{
    if (mf_turn_is_mine(&engine->turn))
        return mf_fail(error, MF_ERR_STATE, "a callback of an evaluation may not measure");
    return mf_turn_take(&engine->turn, NULL, NULL, error);
}

void mf_engine_end_turn(mf_engine *engine)
{
    mf_engine_count(engine);
    mf_turn_end(&engine->turn);
}

static uint64_t weight_bytes(const mf_runner *r)
{
    uint64_t n_bytes = r->backend->ops->weight_bytes(r->backend);
    if (mf_experts_are_apart(r))
        n_bytes += r->experts->ops->weight_bytes(r->experts);
    return n_bytes - r->foretold_bytes;
}

void mf_engine_count_locked(mf_engine *e)
{
    mf_expert_stats s;
    mf_expert_store_stats(e->runner.store, &s);
    e->counted = (mf_stats){
        .n_tokens = e->runner.n_tokens,
        .n_expert_hits = s.n_hits,
        .n_expert_misses = s.n_misses,
        .n_reads = s.n_reads,
        .read_bytes = s.read_bytes,
        .expert_bytes_touched = e->runner.expert_bytes_touched,
        .weight_bytes_touched = weight_bytes(&e->runner),
        .wait_us = s.wait_us,
        .reading_us = s.reading_us,
        .n_hints = s.n_hints,
        .n_hints_useful = s.n_hints_useful,
        .n_hints_late = s.n_hints_late,
        .n_hints_cancelled = s.n_hints_cancelled,
        .n_hints_wasted = s.n_hints_wasted,
        .hint_bytes = s.hint_bytes,
        .hint_wasted_bytes = s.hint_wasted_bytes,
        .hint_saved_us = s.hint_saved_us,
        .hint_wasted_us = s.hint_wasted_us,
        .n_queued = s.n_queued,
        .n_expert_host_hits = s.n_place_hits,
        .upload_bytes = s.upload_bytes,
        .n_read_calls = e->runner.io != NULL ? mf_io_n_calls(e->runner.io) : 0,
        .n_split_passes = e->runner.split.n_split,
        .n_multiply_adds = e->runner.n_multiply_adds,
        .state_bytes_touched = e->runner.state_bytes_touched,
        .n_proposed = e->n_proposed,
        .n_kept = e->n_kept,
        .proposes = mf_draft_is_on(e),
    };
    mf_engine_count_stages(e->is_profiled ? e->profile : NULL, &e->counted);
}

void mf_engine_count(mf_engine *e)
{
    mf_engine_lock(e);
    mf_engine_count_locked(e);
    mf_engine_unlock(e);
}

/* Bytes of the units that something refers to. */
static uint64_t bytes_held(const mf_state_pool *pool)
{
    uint64_t n_bytes = 0;
    for (int k = 0; k < 2; k++)
        n_bytes += pool->kinds[k].n_used * pool->kinds[k].unit_bytes;
    return n_bytes;
}

static void describe_state(const mf_engine *e, mf_stats *out)
{
    out->n_sessions = e->n_sessions;
    out->state_bytes_used = bytes_held(&e->pool);
    out->state_bytes_free = e->pool.limit_bytes - out->state_bytes_used;
    out->mark_bytes_used = e->mark_bytes;
}

static uint64_t taken_of(const mf_backend *be)
{
    mf_backend_memory memories[MF_MAX_MEMORIES];
    const uint32_t n = be->ops->memories(be, memories);
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        n_bytes += memories[i].takes_promise ? memories[i].taken_bytes : 0;
    return n_bytes;
}

static uint64_t device_bytes_taken(const mf_runner *r)
{
    return taken_of(r->backend) + (mf_experts_are_apart(r) ? taken_of(r->experts) : 0);
}

void mf_engine_stats_sized(const mf_engine *engine, mf_stats *out, size_t struct_bytes)
{
    mf_engine *e = (mf_engine *)engine; /* to be locked */
    mf_engine_lock(e);
    const mf_stats *to = &e->counted, *from = &e->counted_before;
    mf_stats stats = {
        .n_tokens = to->n_tokens - from->n_tokens,
        .n_expert_hits = to->n_expert_hits - from->n_expert_hits,
        .n_expert_misses = to->n_expert_misses - from->n_expert_misses,
        .n_reads = to->n_reads - from->n_reads,
        .read_bytes = to->read_bytes - from->read_bytes,
        .expert_bytes_touched = to->expert_bytes_touched - from->expert_bytes_touched,
        .weight_bytes_touched = to->weight_bytes_touched - from->weight_bytes_touched,
        .wait_us = to->wait_us - from->wait_us,
        .reading_us = to->reading_us - from->reading_us,
        .n_hints = to->n_hints - from->n_hints,
        .n_hints_useful = to->n_hints_useful - from->n_hints_useful,
        .n_hints_late = to->n_hints_late - from->n_hints_late,
        .n_hints_cancelled = to->n_hints_cancelled - from->n_hints_cancelled,
        .n_hints_wasted = to->n_hints_wasted - from->n_hints_wasted,
        .hint_bytes = to->hint_bytes - from->hint_bytes,
        .hint_wasted_bytes = to->hint_wasted_bytes - from->hint_wasted_bytes,
        .hint_saved_us = to->hint_saved_us - from->hint_saved_us,
        .hint_wasted_us = to->hint_wasted_us - from->hint_wasted_us,
        .n_queued = to->n_queued,
        .n_slots = mf_expert_store_n_slots(e->runner.store),
        .slot_bytes = e->info.slot_bytes,
        .n_expert_host_hits = to->n_expert_host_hits - from->n_expert_host_hits,
        .upload_bytes = to->upload_bytes - from->upload_bytes,
        .n_host_slots = e->info.n_host_slots,
        .n_read_calls = to->n_read_calls - from->n_read_calls,
        .n_split_passes = to->n_split_passes - from->n_split_passes,
        .n_multiply_adds = to->n_multiply_adds - from->n_multiply_adds,
        .state_bytes_touched = to->state_bytes_touched - from->state_bytes_touched,
        .n_proposed = to->n_proposed - from->n_proposed,
        .n_kept = to->n_kept - from->n_kept,
        .proposes = to->proposes,
    };
    for (uint32_t i = 0; i < MF_STAGES; i++)
        stats.stage_us[i] = to->stage_us[i] - from->stage_us[i];
    describe_state(e, &stats);
    mf_engine_unlock(e);
    if (e->info.device_floor_bytes != 0 || e->info.expert_device_floor_bytes != 0)
        stats.device_bytes_taken = device_bytes_taken(&e->runner);
    mf_sized_put(out, struct_bytes, &stats, sizeof stats);
}

size_t mf_engine_expert_states(const mf_engine *engine, uint32_t layer, uint8_t *states,
                               uint32_t *n_uses, size_t capacity)
{
    const mf_runner *r = &engine->runner;
    if (layer >= r->h.n_moe_layers)
        return 0;
    mf_expert_store_look(r->store, layer, states, n_uses, capacity);
    return r->h.n_experts;
}

void mf_engine_stats_reset(mf_engine *engine)
{
    mf_engine_lock(engine);
    engine->counted_before = engine->counted;
    mf_engine_unlock(engine);
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
    MF_TRY(mf_engine_take_turn(engine, error));
    mf_status status = mf_expert_store_measure(engine->runner.store, engine->runner.plan.k,
                                               n_milliseconds, bytes_per_second, error);
    mf_engine_end_turn(engine);
    return status;
}

/* Of one expert alone, and of a token's of a layer at once. */
static mf_status measure_rates(mf_engine *e, uint32_t n_milliseconds, double *alone,
                               double *together, mf_error *error)
{
    mf_expert_store *store = e->runner.store;
    const uint32_t half = n_milliseconds / 2;
    MF_TRY(mf_expert_store_measure(store, 1, half, alone, error));
    return mf_expert_store_measure(store, e->runner.plan.k, n_milliseconds - half, together, error);
}

mf_status mf_engine_measure_latency(mf_engine *engine, uint32_t n_milliseconds, double *latency_us,
                                    mf_error *error)
{
    double alone = 0, together = 0;
    uint64_t n_bytes;
    uint32_t n_reads;
    if (engine == NULL || latency_us == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_engine_measure_latency: engine or result is NULL");
    MF_TRY(mf_engine_take_turn(engine, error));
    mf_status status = measure_rates(engine, n_milliseconds, &alone, &together, error);
    mf_engine_end_turn(engine);
    MF_TRY(status);
    mf_expert_map_cost(&engine->runner.map, &n_reads, &n_bytes);
    const bool is_slower = alone > 0 && alone < together; /* else others came between */
    *latency_us = is_slower ? 1e6 * (double)n_bytes * (1 / alone - 1 / together) : 0;
    return MF_OK;
}

mf_status mf_engine_measure_compute(mf_engine *engine, uint32_t n_milliseconds,
                                    double *dram_bytes_per_second, double *fma_per_second,
                                    mf_error *error)
{
    if (engine == NULL || dram_bytes_per_second == NULL || fma_per_second == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_engine_measure_compute: engine or a result is NULL");
    const mf_span spans[] = {{{MF_BUFFER_RESIDENT}, 0}, {{MF_BUFFER_SLOTS}, 0}};
    const uint32_t n_spans = mf_experts_are_apart(&engine->runner) ? 1 : 2;
    MF_TRY(mf_engine_take_turn(engine, error));
    /* Slots that were never filled are not backed by memory: reading them would measure the zero
     * page. */
    mf_expert_stats s;
    mf_expert_store_stats(engine->runner.store, &s);
    const uint64_t n_bytes[] = {engine->info.resident_bytes,
                                s.n_misses < engine->info.n_slots
                                    ? 0
                                    : mf_expert_store_n_slots(engine->runner.store) *
                                          engine->info.slot_bytes};
    mf_status status = engine->runner.backend->ops->measure(
        engine->runner.backend, spans, n_bytes, n_spans, n_milliseconds, dram_bytes_per_second,
        fma_per_second, error);
    mf_engine_end_turn(engine);
    return status;
}
