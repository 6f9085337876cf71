/* SPDX-License-Identifier: MIT */
/*
 * The fingerprint of a model (docs/FORMATS.md): shapes, the dense weights, and a sample of every
 * expert, read from disk when a snapshot or the store first needs it.
 */
#include "base/await.h"
#include "session/session.h"
#include "session/snapshot.h"

#include "base/checked.h"

/* Of large weights every 16th block is enough to tell two models apart. */
#define WHOLE_BYTES ((uint64_t)64 << 20)
#define SAMPLE_BYTES ((uint64_t)4 << 10)
#define SAMPLE_STRIDE ((uint64_t)64 << 10)

/* Samples that are read at once, each within so many aligned bytes. */
#define N_AT_ONCE 128u
#define ROOM_BYTES (SAMPLE_BYTES + MF_IO_ALIGN)

/* Up to N_AT_ONCE samples of the dense weights, from byte `at` on; the byte of the next one. */
static mf_status add_some_resident(const mf_engine *e, uint64_t *at, unsigned char *room,
                                   mf_checksum *c, mf_error *error)
{
    mf_backend *be = e->runner.backend;
    const uint64_t n_bytes = e->info.resident_bytes;
    const uint64_t stride = n_bytes <= WHOLE_BYTES ? SAMPLE_BYTES : SAMPLE_STRIDE;
    uint64_t n = 0, sizes[N_AT_ONCE];
    for (; n < N_AT_ONCE && *at < n_bytes; n++, *at += stride) {
        const mf_span from = {{MF_BUFFER_RESIDENT}, *at};
        sizes[n] = n_bytes - *at < SAMPLE_BYTES ? n_bytes - *at : SAMPLE_BYTES;
        be->ops->read(be, from, room + n * SAMPLE_BYTES, sizes[n]);
    }
    MF_TRY(mf_backend_finish(be, error));
    for (uint64_t i = 0; i < n; i++)
        mf_fingerprint_add(c, room + i * SAMPLE_BYTES, (size_t)sizes[i]);
    return MF_OK;
}

static mf_status add_resident(const mf_engine *e, mf_checksum *c, mf_error *error)
{
    unsigned char *room = mf_alloc(&e->allocator, N_AT_ONCE * SAMPLE_BYTES);
    mf_status status = MF_OK;
    if (room == NULL)
        return mf_fail_memory(error, N_AT_ONCE * SAMPLE_BYTES, "samples of the dense weights");
    for (uint64_t at = 0; at < e->info.resident_bytes && status == MF_OK;)
        status = add_some_resident(e, &at, room, c, error);
    mf_free(&e->allocator, room, N_AT_ONCE * SAMPLE_BYTES);
    return status;
}

/* What the same weights may be evaluated differently by, and the form of the experts. */
static void add_shapes(const mf_engine *e, mf_checksum *c)
{
    const mf_model_info *i = &e->info;
    const uint64_t values[] = {i->n_layers,
                               i->n_full_attention_layers,
                               i->n_linear_attention_layers,
                               i->n_latent_attention_layers,
                               i->hidden_size,
                               i->n_heads,
                               i->n_kv_heads,
                               i->head_dim,
                               i->n_vocab,
                               i->n_experts,
                               i->n_experts_per_token,
                               i->expert_hidden_size,
                               i->expert_bits,
                               i->expert_bytes,
                               i->one_expert_bytes,
                               i->n_expert_groups,
                               i->n_expert_groups_per_token,
                               i->resident_bytes,
                               MF_PAGE_TOKENS};
    mf_fingerprint_add(c, i->family, sizeof i->family);
    mf_fingerprint_add(c, values, sizeof values);
}

/* Of layers with a window and entries, and of the streams and limited activations beside them. How
 * many positions an entry is of, shapes of weights say. */
static void add_entries(const mf_hparams *h, mf_checksum *c)
{
    const mf_rope *r = &h->entry_rope;
    const double values[] = {h->attended_window, h->silu_limit, h->stream_iterations,
                             h->stream_eps,      r->theta,      r->is_yarn,
                             r->truncate,        r->factor,     r->n_original,
                             r->beta_fast,       r->beta_slow,  r->attention_factor};
    if (h->attended_window != 0)
        mf_fingerprint_add(c, values, sizeof values);
}

/* The numbers of the config that the state of a token depends on. */
static void add_config(const mf_hparams *h, mf_checksum *c)
{
    const mf_rope *r = &h->rope;
    const mf_router *o = &h->router;
    const double values[] = {
        r->theta,   r->factor, r->n_original,      r->beta_fast, r->beta_slow, r->attention_factor,
        h->rms_eps, o->eps,    h->attention_scale, o->scale};
    const uint64_t choices[] = {
        h->n_rot,        r->interleaved,   r->is_yarn,         r->truncate,      o->is_sigmoid,
        o->has_bias,     o->normalise,     h->q_rank,          h->kv_rank,       h->nope_dim,
        h->n_k_heads,    h->n_v_heads,     h->key_dim,         h->value_dim,     h->conv_width,
        h->dense_hidden, h->shared_hidden, h->shared_is_gated, h->value_head_dim};
    mf_fingerprint_add(c, values, sizeof values);
    mf_fingerprint_add(c, choices, sizeof choices);
    mf_fingerprint_add(c, h->layer_kind, h->n_layers * sizeof *h->layer_kind);
    mf_fingerprint_add(c, h->is_dense, h->n_layers * sizeof *h->is_dense);
    const uint32_t norms[] = {h->head_norm_is_whole, h->head_norm_is_last};
    if (h->head_norm_is_whole || h->head_norm_is_last)
        mf_fingerprint_add(c, norms, sizeof norms);
    const double clamped[] = {h->expert_limit, h->expert_alpha};
    if (h->experts_are_clamped)
        mf_fingerprint_add(c, clamped, sizeof clamped);
    const double llama4[] = {h->windows_are_chunks, h->has_unit_norms, h->query_floor,
                             h->query_growth};
    if (h->windows_are_chunks || h->has_unit_norms || h->query_growth != 0)
        mf_fingerprint_add(c, llama4, sizeof llama4);
    const uint32_t index[] = {h->index_heads, h->index_dim, h->index_most, h->is_indexed};
    if (h->index_heads != 0)
        mf_fingerprint_add(c, index, sizeof index);
    const double scaled[] = {r->is_llama3, r->low_factor, r->high_factor};
    if (r->is_llama3)
        mf_fingerprint_add(c, scaled, sizeof scaled);
    mf_fingerprint_add(c, r->factors, r->n_factors * sizeof *r->factors);
    add_entries(h, c);
    for (uint32_t i = 0; i < h->n_layers; i++) { /* only of models that have such layers */
        const uint32_t differs[] = {i, h->window[i], h->is_unrotated[i]};
        if (h->window[i] != 0 || h->is_unrotated[i])
            mf_fingerprint_add(c, differs, sizeof differs);
    }
}

/* ------------------------------------------------------------------------------------- experts */

typedef struct sampler {
    const mf_engine *engine;
    mf_io *io; /* its own: the engine's belongs to whoever evaluates */
    mf_region room;
} sampler;

/* The middle of one of an expert's parts: the parts take turns, so that all matrices, their scales
 * and biases are seen. */
static mf_io_read sample_of(const mf_engine *e, uint64_t number, uint64_t *skip, uint64_t *n)
{
    uint64_t layer = number / e->runner.h.n_experts, expert = number % e->runner.h.n_experts;
    uint32_t n_parts;
    const mf_expert_part *parts = mf_expert_stored_parts(&e->runner.map, (uint32_t)layer, &n_parts);
    uint64_t p = expert % n_parts;
    for (uint32_t i = 0; i < n_parts && mf_expert_part_bytes(&parts[p], expert) == 0; i++)
        p = (p + 1) % n_parts;
    const mf_expert_part *part = &parts[p];
    const uint64_t part_bytes = mf_expert_part_bytes(part, expert);
    *n = part_bytes < SAMPLE_BYTES ? part_bytes : SAMPLE_BYTES;
    uint64_t begin = part->each_offset != NULL ? part->each_offset[expert]
                                               : part->offset + expert * part->stride;
    begin += (part_bytes - *n) / 2;
    *skip = begin % MF_IO_ALIGN;
    return (mf_io_read){.file = part->each_file != NULL ? part->each_file[expert] : part->file,
                        .offset = begin - *skip,
                        .n_bytes = (uint32_t)mf_round_up(*skip + *n, MF_IO_ALIGN),
                        .n_needed = (uint32_t)(*skip + *n)};
}

/* All that is in flight. */
static mf_status collect(sampler *s, mf_error *error)
{
    mf_io_done done[N_AT_ONCE];
    uint32_t n;
    do {
        MF_TRY(mf_io_collect(s->io, true, done, N_AT_ONCE, &n, error));
        for (uint32_t i = 0; i < n; i++)
            if (done[i].status != MF_OK)
                return mf_io_fail(s->io, &done[i], error);
    } while (n > 0);
    return MF_OK;
}

static mf_status add_samples(sampler *s, uint64_t first, uint32_t n, mf_checksum *c,
                             mf_error *error)
{
    uint64_t skip, n_bytes;
    for (uint32_t i = 0; i < n;) {
        uint32_t n_accepted = 0;
        mf_io_read read = sample_of(s->engine, first + i, &skip, &n_bytes);
        read.dest = s->room.base + i * ROOM_BYTES;
        MF_TRY(mf_io_submit(s->io, &read, 1, &n_accepted, error));
        i += n_accepted;
        if (n_accepted == 0)
            MF_TRY(collect(s, error));
    }
    MF_TRY(collect(s, error));
    for (uint32_t i = 0; i < n; i++) {
        (void)sample_of(s->engine, first + i, &skip, &n_bytes);
        mf_fingerprint_add(c, s->room.base + i * ROOM_BYTES + skip, (size_t)n_bytes);
    }
    return MF_OK;
}

static mf_status add_experts(const mf_engine *e, mf_checksum *c, mf_error *error)
{
    mf_await await = {e->options.await_bytes, e->options.await_user};
    const mf_io_options options = {.allocator = e->allocator,
                                   .kind = await.fn != NULL ? MF_IO_POOL : e->options.io,
                                   .engine_arg = await.fn != NULL ? &await : NULL,
                                   .depth = N_AT_ONCE};
    uint64_t n_all = (uint64_t)e->runner.h.n_moe_layers * e->runner.h.n_experts;
    sampler s = {.engine = e};
    mf_status status;
    MF_TRY_GOTO(mf_region_create(&e->allocator, N_AT_ONCE * ROOM_BYTES, "samples of the experts",
                                 &s.room, error));
    MF_TRY_GOTO(mf_io_open(&options, &s.io, error));
    MF_TRY_GOTO(mf_io_add_files_of(s.io, e->runner.io, error));
    for (uint64_t at = 0; at < n_all; at += N_AT_ONCE) {
        uint64_t n = n_all - at < N_AT_ONCE ? n_all - at : N_AT_ONCE;
        MF_TRY_GOTO(add_samples(&s, at, (uint32_t)n, c, error));
    }
    status = MF_OK;
fail:
    mf_io_close(&s.io);
    if (s.room.base != NULL)
        mf_region_free(&e->allocator, &s.room);
    return status;
}

/* Whose roundings states have: both devices' where experts have one of their own, or have not for
 * long runs and so many layers; 0: none. */
static uint32_t rounding(const mf_runner *r)
{
    const uint32_t dense = r->backend->ops->rounding(r->backend);
    const uint32_t experts = r->experts->ops->rounding(r->experts);
    if (dense == 0 || experts == 0)
        return 0;
    if (r->lending.is_on)
        return ((dense * 31 + experts) * 31 + 1 + r->plan.n_given) | 1u << 31;
    if (dense < 1u << 16 && experts < 1u << 15)
        return dense == experts ? dense : dense | experts << 16;
    return dense == experts ? dense : (dense * 31 + experts) | 1u << 31;
}

mf_status mf_engine_dense_fingerprint(mf_engine *engine, uint8_t out[MF_FINGERPRINT_BYTES],
                                      mf_error *error)
{
    mf_checksum c;
    mf_fingerprint_begin(&c);
    add_shapes(engine, &c);
    add_config(&engine->runner.h, &c);
    MF_TRY(add_resident(engine, &c, error));
    mf_fingerprint_end(&c, out);
    return MF_OK;
}

/* Two threads may both compute it: they find the same. */
mf_status mf_engine_snapshot_key(mf_engine *engine, mf_snapshot_key *out, mf_error *error)
{
    mf_engine_lock(engine);
    bool is_known = engine->has_snapshot_key;
    *out = engine->snapshot_key;
    mf_engine_unlock(engine);
    if (is_known)
        return MF_OK;
    const mf_backend *be = engine->runner.backend;
    mf_snapshot_key key = {.kv_type = (uint32_t)engine->options.kv_type,
                           .cpu_tier = rounding(&engine->runner)};
    if (key.cpu_tier == 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "backend %s on %s: its states cannot be told from another's, and are not "
                       "stored",
                       be->ops->name, be->ops->device_name(be));
    mf_checksum c;
    mf_fingerprint_begin(&c);
    add_shapes(engine, &c);
    add_config(&engine->runner.h, &c);
    MF_TRY(add_resident(engine, &c, error));
    MF_TRY(add_experts(engine, &c, error));
    mf_fingerprint_end(&c, key.fingerprint);
    mf_engine_lock(engine);
    engine->snapshot_key = key;
    engine->has_snapshot_key = true;
    mf_engine_unlock(engine);
    *out = key;
    return MF_OK;
}

mf_status mf_engine_fingerprint(mf_engine *engine, uint8_t out[MF_FINGERPRINT_BYTES],
                                mf_error *error)
{
    mf_snapshot_key key;
    if (engine == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_fingerprint: engine or result is NULL");
    MF_TRY(mf_engine_snapshot_key(engine, &key, error));
    memcpy(out, key.fingerprint, sizeof key.fingerprint);
    return MF_OK;
}
