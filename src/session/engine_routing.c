/* SPDX-License-Identifier: MIT */
/* Routing recorded, and routing that follows what was recorded. */
#include "base/clock.h"
#include "routing/routing_format.h"
#include "session/session.h"

#include <stdio.h>
#include <string.h>

/* One for both; of an engine, while there is anything to do. */
struct mf_engine_routing {
    mf_route_tap tap;
    mf_engine *engine;
    mf_routing_writer *writer; /* or NULL */
    const mf_routing *followed;
    mf_routing_part *parts; /* [n_sessions], of the pass at hand */
    uint64_t *rows;         /* [n_chunk] of the followed trace, one for each of the pass's */
    uint64_t began_us, waited_us;
    mf_status failure; /* of writing: the first */
    mf_error error;
};

static uint64_t waited_us(const mf_engine *e)
{
    mf_expert_stats stats;
    mf_expert_store_stats(e->runner.store, &stats);
    return stats.wait_us;
}

/* Positions of sequences are tokens of the trace, over and over. */
static void find_rows(struct mf_engine_routing *t, const mf_batch *batch)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < batch->n_parts; i++)
        for (uint32_t j = 0; j < batch->parts[i].n_rows; j++)
            t->rows[row++] = (batch->parts[i].position + j) % t->followed->n_rows;
}

static void begin(void *ctx, const mf_batch *batch)
{
    struct mf_engine_routing *t = ctx;
    t->began_us = mf_now_us();
    t->waited_us = waited_us(t->engine);
    if (t->followed != NULL)
        find_rows(t, batch);
    if (t->writer == NULL)
        return;
    /* of a chunk that is several passes, from this one's first on */
    mf_session *const *sessions =
        t->engine->parts_sessions + (batch->parts - t->engine->parts_list);
    for (uint32_t i = 0; i < batch->n_parts; i++)
        t->parts[i] = (mf_routing_part){sessions[i]->number, batch->parts[i].position,
                                        batch->parts[i].n_rows};
    mf_routing_writer_begin(t->writer, t->parts, batch->n_parts, batch->n_rows);
}

/* The pass that has this row of all. */
static const mf_routing_pass *pass_of(const mf_routing *t, uint64_t row)
{
    size_t low = 0, high = t->n_passes;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (t->passes[middle].first_row <= row)
            low = middle;
        else
            high = middle;
    }
    return &t->passes[low];
}

/* The first of the k numbers that an array of the trace has of a row and layer. */
static size_t place_of(const mf_routing *t, uint64_t row, uint32_t layer,
                       const mf_routing_pass **pass)
{
    *pass = pass_of(t, row);
    const size_t in_pass = (size_t)(row - (*pass)->first_row);
    return (*pass)->first_choice + (layer * (size_t)(*pass)->n_rows + in_pass) * t->head.k;
}

/* Layers that a trace has none for are its own again, but for the first, of which nothing could be
 * foretold. */
static uint32_t layer_of(const mf_routing *t, uint32_t layer)
{
    const uint32_t n = t->head.n_layers;
    return layer < n || n == 1 ? layer % n : 1 + (layer - 1) % (n - 1);
}

static void chosen(void *ctx, uint32_t layer, int32_t *ids, const float *weights, uint32_t n_rows)
{
    struct mf_engine_routing *t = ctx;
    const mf_routing *f = t->followed;
    for (uint32_t row = 0; row < n_rows && f != NULL; row++) {
        const mf_routing_pass *pass;
        const size_t at = place_of(f, t->rows[row], layer_of(f, layer), &pass);
        for (uint32_t i = 0; i < f->head.k; i++)
            ids[row * f->head.k + i] = f->ids[at + i];
    }
    if (t->writer != NULL)
        mf_routing_writer_layer(t->writer, layer, ids, weights);
}

/* What the trace knows of what was foretold comes first, then what the router says here. */
static void foretold(void *ctx, uint32_t layer, int32_t *ids, uint32_t n, uint32_t n_rows)
{
    struct mf_engine_routing *t = ctx;
    const mf_routing *f = t->followed;
    for (uint32_t row = 0; row < n_rows && f != NULL; row++) {
        const mf_routing_pass *pass;
        const uint32_t of = layer_of(f, layer);
        const size_t at = place_of(f, t->rows[row], of, &pass);
        if (!f->has_foretold[(size_t)(pass - f->passes) * f->head.n_layers + of])
            continue;
        for (uint32_t i = 0; i < n; i++)
            ids[row * n + i] = i < f->head.k ? f->foretold[at + i] : -1;
    }
    if (t->writer != NULL)
        mf_routing_writer_foretold(t->writer, layer, ids, n);
}

static void say_full(const mf_engine *e)
{
    static const char line[] = "the trace ends here: no more than 1 GiB of one can be read again";
    _Static_assert(MF_ROUTING_MAX_FILE_BYTES == 1u << 30, "as the line says");
    if (e->options.log != NULL)
        e->options.log(e->options.log_user, MF_LOG_WARNING, line);
}

static void end(void *ctx, bool is_whole)
{
    struct mf_engine_routing *t = ctx;
    if (t->writer == NULL || !is_whole || t->failure != MF_OK ||
        mf_routing_writer_is_full(t->writer))
        return;
    t->failure = mf_routing_writer_commit(t->writer, mf_now_us() - t->began_us,
                                          waited_us(t->engine) - t->waited_us, &t->error);
    if (mf_routing_writer_is_full(t->writer))
        say_full(t->engine);
}

/* ----------------------------------------------------------------------------- on and off -- */

static mf_status make(mf_engine *e, mf_error *error)
{
    const mf_allocator *a = &e->allocator;
    if (e->routing != NULL)
        return MF_OK;
    struct mf_engine_routing *t = mf_alloc_zeroed(a, sizeof *t);
    if (t == NULL)
        return mf_fail_memory(error, sizeof *t, "watching the router");
    t->engine = e;
    t->tap = (mf_route_tap){t, begin, chosen, foretold, end};
    t->parts = mf_alloc_array(a, e->options.n_sessions, sizeof *t->parts);
    t->rows = mf_alloc_array(a, e->runner.plan.n_chunk, sizeof *t->rows);
    e->routing = t;
    if (t->parts != NULL && t->rows != NULL)
        return MF_OK;
    mf_engine_routing_free(e);
    return mf_fail_memory(error, e->runner.plan.n_chunk * sizeof *t->rows, "watching the router");
}

void mf_engine_routing_free(mf_engine *e)
{
    struct mf_engine_routing *t = e->routing;
    if (t == NULL)
        return;
    e->runner.tap = NULL;
    (void)!mf_routing_writer_close(&t->writer, NULL);
    mf_free(&e->allocator, t->parts, e->options.n_sessions * sizeof *t->parts);
    mf_free(&e->allocator, t->rows, e->runner.plan.n_chunk * sizeof *t->rows);
    mf_free(&e->allocator, t, sizeof *t);
    e->routing = NULL;
}

static void watch_or_not(mf_engine *e)
{
    const bool is_wanted = e->routing->writer != NULL || e->routing->followed != NULL;
    e->runner.tap = is_wanted ? &e->routing->tap : NULL;
    if (e->runner.foresight != NULL)
        mf_foresight_note(e->runner.foresight, e->routing->writer != NULL);
}

_Static_assert(MF_SLOT_SIZES <= MF_ROUTING_MAX_SIZES, "a trace has room for all sizes");

/* What is beside slots, and the sizes of these, where experts have several; of: [n_layers *
 * n_experts]. A size of which less is read than of the next smaller one cannot be told: then all
 * count as the mean. */
static void take_sizes(const mf_engine *e, mf_routing_head *h, uint8_t *of)
{
    uint64_t n_bytes[MF_SLOT_SIZES];
    const mf_slot_sizes *s = mf_expert_store_sizes(e->runner.store, h->n_layers, of, n_bytes);
    mf_routing_sizes sizes = {.n = s->n, .of = of};
    const uint64_t least = h->k * s->bytes[0]; /* slots are all of the largest size */
    h->fixed_bytes = h->fixed_bytes > least ? h->fixed_bytes - least : 0;
    for (uint32_t i = 0; i < s->n; i++) {
        sizes.slot_bytes[i] = s->bytes[i];
        sizes.expert_bytes[i] = n_bytes[i];
        if (n_bytes[i] == 0 || (i > 0 && n_bytes[i] > n_bytes[i - 1]))
            return;
    }
    if (s->n > 1)
        h->sizes = sizes;
}

/* of: [n_layers * n_experts], which the head borrows. */
static mf_routing_head head_of(const mf_engine *e, uint8_t *of)
{
    mf_routing_head h = {.n_layers = mf_main_moe_layers(&e->runner.h),
                         .n_experts = e->runner.h.n_experts,
                         .k = e->runner.plan.k,
                         .slot_bytes = e->info.slot_bytes,
                         .fixed_bytes = e->info.floor_bytes};
    mf_expert_map_cost(&e->runner.map, &h.reads_per_expert, &h.expert_bytes);
    snprintf(h.family, sizeof h.family, "%s", e->info.family);
    take_sizes(e, &h, of);
    return h;
}

/* What was written so far is whole, whatever comes of it. */
static mf_status stop_recording(mf_engine *e, mf_error *error)
{
    struct mf_engine_routing *t = e->routing;
    if (t == NULL || t->writer == NULL)
        return MF_OK;
    mf_status status = mf_routing_writer_close(&t->writer, error);
    if (t->failure != MF_OK && error != NULL)
        *error = t->error;
    status = t->failure != MF_OK ? t->failure : status;
    t->failure = MF_OK;
    watch_or_not(e);
    return status;
}

static mf_status start_recording(mf_engine *e, const char *path, mf_error *error)
{
    if (e->runner.h.n_moe_layers == 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: a model without experts routes nothing",
                       e->info.family);
    const size_t n_keys = (size_t)mf_main_moe_layers(&e->runner.h) * e->runner.h.n_experts;
    MF_TRY(make(e, error));
    uint8_t *of = mf_alloc(&e->allocator, n_keys);
    if (of == NULL)
        return mf_fail_memory(error, n_keys, "watching the router");
    const mf_routing_head head = head_of(e, of);
    mf_status status = mf_routing_writer_open(&e->allocator, path, &head, e->runner.plan.n_chunk,
                                              e->options.n_sessions, &e->routing->writer, error);
    mf_free(&e->allocator, of, n_keys);
    watch_or_not(e);
    return status;
}

mf_status mf_engine_record_routing(mf_engine *engine, const char *path, mf_error *error)
{
    if (engine == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_record_routing: engine is NULL");
    MF_TRY(mf_engine_take_turn(engine, error));
    mf_status status = stop_recording(engine, error);
    if (status == MF_OK && path != NULL)
        status = start_recording(engine, path, error);
    mf_engine_end_turn(engine);
    return status;
}

static mf_status follow(mf_engine *e, const mf_routing *routing, mf_error *error)
{
    const mf_hparams *h = &e->runner.h;
    if (routing == NULL) {
        if (e->routing != NULL) {
            e->routing->followed = NULL;
            watch_or_not(e);
        }
        return MF_OK;
    }
    if (routing->head.n_experts != h->n_experts || routing->head.k != e->runner.plan.k)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "a trace of %u of %u experts a token, expected %u of %u", routing->head.k,
                       routing->head.n_experts, e->runner.plan.k, h->n_experts);
    MF_TRY(make(e, error));
    e->routing->followed = routing;
    watch_or_not(e);
    return MF_OK;
}

mf_status mf_engine_follow_routing(mf_engine *engine, const mf_routing *routing, mf_error *error)
{
    if (engine == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_follow_routing: engine is NULL");
    MF_TRY(mf_engine_take_turn(engine, error));
    mf_status status = follow(engine, routing, error);
    mf_engine_end_turn(engine);
    return status;
}
