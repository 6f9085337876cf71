/* SPDX-License-Identifier: MIT */
/* Opening and closing an engine: descriptors, budget, backend memory, weights, the expert store. */
#include "model/rope.h"
#include "session/session.h"
#include "session/session_index.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB 1048576.0

static void say(const mf_engine *e, mf_log_level level, const char *line)
{
    if (e->options.log != NULL)
        e->options.log(e->options.log_user, level, line);
}

static mf_status check_budget(const mf_engine *e, const char *dir, mf_error *error)
{
    const mf_model_info *info = &e->info;
    if (info->n_slots == 0)
        return mf_fail(error, MF_ERR_BUDGET,
                       "%s: memory budget of %.1f MiB is below the floor of %.1f MiB (%llu bytes): "
                       "%.1f MiB dense weights, "
                       "%.1f MiB session state and activations, and %u expert slots of %.1f MiB",
                       dir, (double)info->ram_bytes / MIB, (double)info->floor_bytes / MIB,
                       (unsigned long long)info->floor_bytes, (double)info->resident_bytes / MIB,
                       (double)(e->plan.state_bytes + info->scratch_bytes) / MIB,
                       info->n_experts_per_token, (double)info->slot_bytes / MIB);
    return MF_OK;
}

static void warn_small_cache(const mf_engine *e)
{
    const mf_model_info *info = &e->info;
    uint64_t working_set = (uint64_t)info->n_moe_layers * info->n_experts_per_token;
    if (info->n_slots >= working_set)
        return;
    char line[256];
    snprintf(
        line, sizeof line,
        "the expert cache holds %llu experts, less than the %llu that one token uses: every token "
        "reads nearly all of "
        "them again; an expert cache of %.1f MiB (%.1f MiB in all) or more would help",
        (unsigned long long)info->n_slots, (unsigned long long)working_set,
        (double)(working_set * info->slot_bytes) / MIB,
        (double)(info->floor_bytes + (working_set - info->n_experts_per_token) * info->slot_bytes) /
            MIB);
    say(e, MF_LOG_WARNING, line);
}

static void say_skipped(const mf_engine *e)
{
    char line[128];
    if (e->info.n_skipped_layers == 0)
        return;
    snprintf(line, sizeof line, "%u multi-token-prediction layer%s after layer %u left out",
             e->info.n_skipped_layers, e->info.n_skipped_layers == 1 ? "" : "s",
             e->info.n_layers - 1);
    say(e, MF_LOG_INFO, line);
}

static mf_status open_backend(mf_engine *e, const mf_model *m, mf_error *error)
{
    const mf_backend_options options = {e->allocator, m->n_threads, e->options.cpu_tier_limit};
    e->n_threads = m->n_threads;
    MF_TRY(mf_backend_open(&options, &e->backend, error));
    const mf_backend_ops *ops = e->backend->ops;
    MF_TRY(ops->buffer_create(e->backend, e->info.resident_bytes, "the dense weights", &e->resident,
                              error));
    MF_TRY(ops->buffer_create(e->backend, e->plan.act_bytes, "activations", &e->act, error));
    MF_TRY(ops->buffer_create(e->backend, e->info.n_slots * e->info.slot_bytes, "expert slots",
                              &e->slots, error));
    mf_plan_set_buffer(&e->plan, e->act);
    mf_weights_set_buffer(&e->weights, &e->h, e->resident);
    return MF_OK;
}

static mf_status reserve_matmul(mf_engine *e, const mf_weight *w, uint32_t n_rows, mf_error *error)
{
    mf_op op = {.kind = MF_OP_MATMUL, .n_rows = n_rows, .u.matmul = {.n = 1}};
    op.u.matmul.weight[0] = *w;
    return e->backend->ops->reserve(e->backend, &op, error);
}

static mf_status reserve_heads(mf_engine *e, const mf_head_weight *w, mf_error *error)
{
    mf_op op = {.kind = MF_OP_HEAD_MATMUL, .n_rows = MF_LATENT_ROWS, .u.head_matmul = {.w = *w}};
    return e->backend->ops->reserve(e->backend, &op, error);
}

/* As many pages as all sessions together may refer to, shared ones each time. */
static mf_sequence most_pages(const mf_engine *e)
{
    uint64_t n_pages = (uint64_t)mf_pages_of(e->plan.n_context) * e->options.n_sessions;
    return (mf_sequence){.position = n_pages * MF_PAGE_TOKENS};
}

static mf_status reserve_attention(mf_engine *e, uint32_t layer, mf_error *error)
{
    enum { N_MATRICES = 6 };
    const mf_layer_weights *w = &e->weights.layers[layer];
    const mf_full_weights *full = &w->u.full;
    const mf_linear_weights *linear = &w->u.linear;
    const mf_latent_weights *latent = &w->u.latent;
    const mf_weight *const of_kind[][N_MATRICES] = {
        [MF_LAYER_FULL] = {&full->q, &full->gate, &full->k, &full->v, &full->o},
        [MF_LAYER_LINEAR] = {&linear->qkv, &linear->z, &linear->b, &linear->a, &linear->out},
        [MF_LAYER_LATENT] = {e->h.q_rank != 0 ? &latent->q_a : NULL, &latent->q_b, &latent->kv_a,
                             &latent->o},
    };
    uint8_t kind = e->h.layer_kind[layer];
    for (size_t j = 0; j < N_MATRICES; j++) {
        if (of_kind[kind][j] != NULL)
            MF_TRY(reserve_matmul(e, of_kind[kind][j], e->plan.n_chunk, error));
    }
    if (kind == MF_LAYER_LINEAR)
        return MF_OK;
    mf_sequence pages = most_pages(e);
    if (kind == MF_LAYER_FULL) {
        mf_op full_attend = {.kind = MF_OP_ATTENTION, .n_rows = e->plan.n_chunk};
        full_attend.u.attention.head_dim = e->h.head_dim;
        full_attend.u.attention.cache_type = e->plan.cache_type;
        full_attend.u.attention.sequences = &pages;
        full_attend.u.attention.n_sequences = 1;
        return e->backend->ops->reserve(e->backend, &full_attend, error);
    }
    MF_TRY(reserve_heads(e, &latent->key, error));
    MF_TRY(reserve_heads(e, &latent->value, error));
    mf_op attend = {.kind = MF_OP_LATENT_ATTENTION, .n_rows = MF_LATENT_ROWS};
    attend.u.latent_attention.n_latent = e->h.kv_rank;
    attend.u.latent_attention.n_rot = e->h.n_rot;
    attend.u.latent_attention.sequences = &pages;
    attend.u.latent_attention.n_sequences = 1;
    return e->backend->ops->reserve(e->backend, &attend, error);
}

static mf_status reserve_mlp(mf_engine *e, uint32_t layer, mf_error *error)
{
    const mf_layer_weights *w = &e->weights.layers[layer];
    const mf_backend_ops *ops = e->backend->ops;
    if (e->h.is_dense[layer] || e->h.shared_hidden != 0) {
        MF_TRY(reserve_matmul(e, &w->mlp.gate, e->plan.n_chunk, error));
        MF_TRY(reserve_matmul(e, &w->mlp.up, e->plan.n_chunk, error));
        MF_TRY(reserve_matmul(e, &w->mlp.down, e->plan.n_chunk, error));
    }
    if (e->h.is_dense[layer])
        return MF_OK;
    MF_TRY(reserve_matmul(e, &w->router, e->plan.n_chunk, error));
    mf_op route = {.kind = MF_OP_ROUTE, .n_rows = e->plan.n_chunk};
    route.u.route.n_experts = e->h.n_experts;
    MF_TRY(ops->reserve(e->backend, &route, error));
    const mf_expert_item item = {
        .gate = w->experts.gate, .up = w->experts.up, .down = w->experts.down};
    const mf_op experts = {.kind = MF_OP_EXPERTS,
                           .n_rows = e->plan.n_chunk,
                           .u.experts = {.items = &item, .n_items = 1}};
    return ops->reserve(e->backend, &experts, error);
}

/* The largest operations of each kind that will be recorded, so that none of them allocates later.
 */
static mf_status reserve_ops(mf_engine *e, mf_error *error)
{
    for (uint32_t i = 0; i < e->h.n_layers; i++) {
        MF_TRY(reserve_attention(e, i, error));
        MF_TRY(reserve_mlp(e, i, error));
    }
    MF_TRY(reserve_matmul(e, &e->weights.lm_head, e->plan.n_logit_rows, error));
    mf_op delta = {.kind = MF_OP_GATED_DELTA, .n_rows = e->plan.n_chunk};
    delta.u.gated_delta.n_v_heads = e->h.n_v_heads;
    return e->backend->ops->reserve(e->backend, &delta, error);
}

static mf_status open_store(mf_engine *e, const mf_checkpoint *checkpoint,
                            const struct mf_io_engine *io_engine, void *io_arg, mf_error *error)
{
    const mf_io_options io = {.allocator = e->allocator,
                              .kind = e->options.io,
                              .engine = io_engine,
                              .engine_arg = io_arg};
    MF_TRY(mf_io_open(&io, &e->io, error));
    for (size_t i = 0; i < checkpoint->table.n_files; i++) {
        uint32_t file; /* the io layer numbers from 0 in this order, as the table does */
        MF_TRY(mf_io_add_file(e->io, checkpoint->table.files[i].path, &file, error));
    }
    const mf_expert_store_options options = {
        .allocator = e->allocator,
        .io = e->io,
        .map = {e->h.n_moe_layers, e->h.n_experts, MF_MAX_EXPERT_PARTS, e->parts},
        .pool = e->backend->ops->buffer_host(e->backend, e->slots),
        .pool_bytes = e->info.n_slots * e->info.slot_bytes,
    };
    return mf_expert_store_open(&options, &e->store, error);
}

static mf_status make_lists(mf_engine *e, mf_error *error)
{
    size_t picks = (size_t)e->plan.n_chunk * e->plan.k, n_experts = e->h.n_experts;
    size_t n_sessions = e->options.n_sessions;
    size_t n_bytes = picks * 12 + (2 * n_experts + 1) * 4 +
                     MF_READY_MAX * (sizeof(mf_expert_item) + sizeof(mf_expert_ready)) +
                     n_sessions * (2 * sizeof(mf_sequence) + sizeof(mf_batch_part)) +
                     (size_t)e->plan.n_logit_rows * 4 + (size_t)e->plan.n_chunk * 4 +
                     (size_t)e->h.n_vocab * sizeof(float) + e->h.n_layers * sizeof(mf_layer_state) +
                     20 * 64;
    MF_TRY(mf_arena_create(&e->allocator, n_bytes, "expert lists", &e->arena, error));
    e->moe.ids = mf_arena_take(&e->arena, picks * 4);
    e->moe.place = mf_arena_take(&e->arena, picks * 4);
    e->moe.x_rows = mf_arena_take(&e->arena, picks * 4);
    e->moe.first = mf_arena_take(&e->arena, (n_experts + 1) * 4);
    e->moe.wanted = mf_arena_take(&e->arena, n_experts * 4);
    e->moe.items = mf_arena_take(&e->arena, MF_READY_MAX * sizeof(mf_expert_item));
    e->moe.ready = mf_arena_take(&e->arena, MF_READY_MAX * sizeof(mf_expert_ready));
    e->sequences = mf_arena_take(&e->arena, n_sessions * sizeof(mf_sequence));
    e->sequence_cuts = mf_arena_take(&e->arena, n_sessions * sizeof(mf_sequence));
    e->parts_list = mf_arena_take(&e->arena, n_sessions * sizeof(mf_batch_part));
    e->row_list = mf_arena_take(&e->arena, (size_t)e->plan.n_logit_rows * 4);
    e->row_tokens = mf_arena_take(&e->arena, (size_t)e->plan.n_chunk * 4);
    e->each_logits = mf_arena_take(&e->arena, (size_t)e->h.n_vocab * sizeof(float));
    e->layers = mf_arena_take(&e->arena, e->h.n_layers * sizeof(mf_layer_state));
    return e->layers != NULL ? MF_OK : mf_fail_memory(error, n_bytes, "expert lists");
}

static mf_status open_state(mf_engine *e, mf_error *error)
{
    uint64_t page_bytes, recurrent_bytes;
    (void)mf_plan_state(&e->h, e->plan.cache_type, e->layers, &page_bytes, &recurrent_bytes);
    mf_state_pool_init(&e->pool, &e->allocator, e->backend, page_bytes, recurrent_bytes,
                       e->plan.state_bytes);
    e->checkpoint_limit =
        e->options.checkpoint_bytes != 0 ? e->options.checkpoint_bytes : e->plan.state_bytes / 4;
    MF_TRY(mf_turn_init(&e->turn, error));
    if (pthread_mutex_init(&e->state_lock, NULL) != 0) {
        mf_turn_destroy(&e->turn);
        return mf_fail(error, MF_ERR_NO_MEMORY, "no memory for a lock");
    }
    e->has_locks = true;
    return MF_OK;
}

/* Angles as the published model computes them: the frequency rounded to float32, their product with
 * the position too. */
static void write_angles(mf_engine *e, const float *frequencies, float *row)
{
    uint32_t half = e->h.n_rot / 2;
    float factor = (float)e->h.rope.attention_factor;
    for (uint32_t pos = 0; pos < e->plan.n_context; pos++) {
        for (uint32_t i = 0; i < half; i++) {
            float angle = (float)pos * frequencies[i];
            row[i] = (float)cos((double)angle) * factor;
            row[half + i] = (float)sin((double)angle) * factor;
        }
        uint64_t at = (uint64_t)pos * half * sizeof(float);
        e->backend->ops->write(e->backend, mf_span_at(e->plan.cos, at), row, half * sizeof(float));
        e->backend->ops->write(e->backend, mf_span_at(e->plan.sin, at), row + half,
                               half * sizeof(float));
    }
}

static mf_status write_rope(mf_engine *e, mf_error *error)
{
    uint32_t half = e->h.n_rot / 2;
    if (half == 0)
        return MF_OK;
    size_t n_bytes = 3 * half * sizeof(float);
    float *memory = mf_alloc(&e->allocator, n_bytes);
    if (memory == NULL)
        return mf_fail_memory(error, n_bytes, "rotary angles");
    mf_rope_frequencies(&e->h, memory);
    write_angles(e, memory, memory + half);
    mf_free(&e->allocator, memory, n_bytes);
    return MF_OK;
}

/* The engine keeps what evaluation needs of the descriptors; the rest is released by the caller. */
static void take_over(mf_engine *e, mf_model *m)
{
    e->h = m->h;
    e->plan = m->plan;
    e->weights = m->weights;
    e->parts = m->binder.parts;
    e->parts_bytes = m->binder.parts_bytes;
    e->each_file = m->binder.each_file;
    e->each_offset = m->binder.each_offset;
    e->each_count = m->binder.each_count;
    m->weights.layers = NULL;
    m->binder.parts = NULL;
    m->binder.parts_bytes = 0;
    m->binder.each_file = NULL;
    m->binder.each_offset = NULL;
    m->binder.each_count = 0;
}

static mf_status open_parts(mf_engine *e, mf_model *m, const struct mf_io_engine *io_engine,
                            void *io_arg, mf_error *error)
{
    MF_TRY(check_budget(e, m->checkpoint.dir, error));
    take_over(e, m);
    MF_TRY(open_backend(e, m, error));
    MF_TRY(mf_load_resident(e->backend, e->resident, &m->binder, m->n_threads, error));
    MF_TRY(reserve_ops(e, error));
    MF_TRY(open_store(e, &m->checkpoint, io_engine, io_arg, error));
    MF_TRY(make_lists(e, error));
    MF_TRY(open_state(e, error));
    return write_rope(e, error);
}

mf_status mf_engine_open_with_io(const char *path, const mf_engine_options *options,
                                 const struct mf_io_engine *io_engine, void *io_arg,
                                 mf_engine **out, mf_error *error)
{
    const mf_allocator a = mf_allocator_or_default(&options->allocator);
    mf_engine *e = mf_alloc_zeroed(&a, sizeof *e);
    if (e == NULL)
        return mf_fail_memory(error, sizeof *e, "the engine");
    e->allocator = a;
    e->options = *options;
    e->options.n_sessions = options->n_sessions == 0 ? 1 : options->n_sessions;
    mf_model m;
    mf_status status = mf_model_read(&a, path, &e->options, &m, error);
    if (status == MF_OK) {
        mf_model_describe(&m, &e->options, &e->info);
        status = open_parts(e, &m, io_engine, io_arg, error);
        mf_model_release(&m);
    }
    if (status != MF_OK) {
        mf_engine_close(&e);
        return status;
    }
    warn_small_cache(e);
    say_skipped(e);
    *out = e;
    return MF_OK;
}

mf_status mf_engine_open(const char *path, const mf_engine_options *options, mf_engine **out,
                         mf_error *error)
{
    if (path == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_open: path or out is NULL");
    mf_engine_options given;
    mf_engine_options_default(&given);
    return mf_engine_open_with_io(path, options != NULL ? options : &given, NULL, NULL, out, error);
}

void mf_engine_info(const mf_engine *engine, mf_model_info *out)
{
    *out = engine->info;
}

void mf_engine_close(mf_engine **engine)
{
    mf_engine *e = *engine;
    if (e == NULL)
        return;
    const mf_allocator a = e->allocator;
    mf_session_index_free(&e->session_index);
    mf_expert_store_close(&e->store);
    mf_io_close(&e->io);
    if (e->has_locks) {
        mf_state_pool_free(&e->pool);
        mf_turn_destroy(&e->turn);
        (void)pthread_mutex_destroy(&e->state_lock);
    }
    if (e->backend != NULL)
        e->backend->ops->destroy(e->backend);
    mf_arena_free(&e->arena);
    if (e->weights.layers != NULL)
        mf_free(&a, e->weights.layers, e->h.n_layers * sizeof *e->weights.layers);
    mf_free(&a, e->parts, e->parts_bytes);
    mf_free(&a, e->each_file, e->each_count * sizeof *e->each_file);
    mf_free(&a, e->each_offset, e->each_count * sizeof *e->each_offset);
    mf_free(&a, e, sizeof *e);
    *engine = NULL;
}
