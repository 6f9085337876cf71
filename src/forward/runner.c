/* SPDX-License-Identifier: MIT */
/* Opening and closing a runner: backend memory, resident weights, room for operations, the store.
 */
#include "forward/forward.h"
#include "forward/mirrors.h"

#include "model/rope.h"

#include <math.h>
#include <string.h>

/* One of the buffers that descriptors name by the id that a fresh backend gives it. */
static mf_status create(mf_backend *be, mf_runner_buffer name, uint64_t n_bytes, mf_buffer_use use,
                        const char *what, mf_error *error)
{
    mf_buffer buffer;
    MF_TRY(be->ops->buffer_create(be, n_bytes, use, what, &buffer, error));
    if (buffer.id == (uint32_t)name)
        return MF_OK;
    return mf_fail(error, MF_ERR_STATE, "the backend calls its buffer for %s %u, expected %u", what,
                   buffer.id, (uint32_t)name);
}

/* What is to lie in a device's memory. */
typedef struct device_use {
    uint64_t weights, activations, state, slots;
} device_use;

/* What is known to be needed must fit a memory of the device's own; the process's has its budget.
 */
static mf_status check_memory(const mf_backend *be, const device_use *use, mf_error *error)
{
    mf_backend_memory memories[MF_MAX_MEMORIES];
    uint32_t n = be->ops->memories(be, memories);
    const uint64_t needed = use->weights + use->activations + use->state + use->slots;
    for (uint32_t i = 0; i < n; i++) {
        const mf_backend_memory *m = &memories[i];
        if (m->is_host || (m->uses & 1u << MF_USE_DEVICE) == 0 || m->n_bytes == 0 ||
            needed <= m->n_bytes)
            continue;
        return mf_fail(error, MF_ERR_BUDGET,
                       "device %s: %llu bytes of weights, %llu of activations, %llu of session "
                       "state and %llu of expert slots do not fit its memory '%s' of %llu",
                       be->ops->name, (unsigned long long)use->weights,
                       (unsigned long long)use->activations, (unsigned long long)use->state,
                       (unsigned long long)use->slots, m->name, (unsigned long long)m->n_bytes);
    }
    return MF_OK;
}

mf_status mf_runner_open_devices(const mf_runner_options *o, bool experts_apart, mf_runner *r,
                                 mf_error *error)
{
    static const mf_numa_nodes none = {0};
    *r = (mf_runner){.allocator = o->allocator};
    mf_backend_options options = {.allocator = o->allocator,
                                  .n_threads = o->n_threads,
                                  .cpu_tier = o->cpu_tier,
                                  .nodes = o->numa == MF_NUMA_OFF ? &none : NULL,
                                  .device = o->device,
                                  .device_bytes = o->device_bytes,
                                  .precision = o->precision,
                                  .cache_dir = o->cache_dir};
    if (o->open_backend != NULL)
        MF_TRY(o->open_backend(o->backend_ctx, &options, &r->backend, error));
    else
        MF_TRY(mf_backend_open(&options, &r->backend, error));
    r->experts = r->backend;
    if (!experts_apart)
        return MF_OK;
    mf_backend *experts;
    options.device = mf_backend_device(o->expert_device);
    if (o->open_experts != NULL)
        MF_TRY(o->open_experts(o->experts_ctx, &options, &experts, error));
    else
        MF_TRY(mf_backend_open(&options, &experts, error));
    r->experts = experts;
    return MF_OK;
}

/* Of experts that have a device of their own. */
static mf_status make_expert_buffers(mf_runner *r, uint64_t slots, mf_error *error)
{
    mf_backend *be = r->experts;
    const device_use use = {.weights = mf_expert_scales_bytes(&r->h, &r->weights),
                            .activations = r->plan.expert_act_bytes,
                            .slots = slots};
    MF_TRY(check_memory(be, &use, error));
    MF_TRY(
        create(be, MF_BUFFER_RESIDENT, use.weights, MF_USE_DEVICE, "the experts' scales", error));
    return create(be, MF_BUFFER_ACTIVATIONS, use.activations, MF_USE_DEVICE, "the experts' rows",
                  error);
}

/* Those that there is room for. */
static uint64_t most_slots(const mf_runner_options *o)
{
    return o->n_slots_most > o->n_slots ? o->n_slots_most : o->n_slots;
}

static mf_status make_buffers(mf_runner *r, const mf_runner_options *o, mf_error *error)
{
    const uint64_t slots = mf_slot_sizes_bytes(&o->slot_sizes, most_slots(o));
    const device_use use = {.weights = r->resident_bytes,
                            .activations = r->plan.act_bytes,
                            .state = mf_plan_slabs_bytes(&r->plan),
                            .slots = mf_experts_are_apart(r) ? 0 : slots};
    MF_TRY(check_memory(r->backend, &use, error));
    MF_TRY(create(r->backend, MF_BUFFER_RESIDENT, use.weights, mf_backend_operand_use(r->backend),
                  "the dense weights", error));
    MF_TRY(create(r->backend, MF_BUFFER_ACTIVATIONS, use.activations, MF_USE_DEVICE, "activations",
                  error));
    if (mf_experts_are_apart(r))
        MF_TRY(make_expert_buffers(r, slots, error));
    /* one byte of a model without experts: there are no empty buffers */
    MF_TRY(create(r->experts, MF_BUFFER_SLOTS, slots != 0 ? slots : 1,
                  mf_backend_operand_use(r->experts), "expert slots", error));
    MF_TRY(mf_lend_prepare(r, error));
    if (r->lending.is_on)
        MF_TRY(create(r->backend, MF_BUFFER_SLOTS, mf_lend_slots_bytes(r), MF_USE_DEVICE,
                      "experts of long runs", error));
    return mf_expert_device_prepare(r, error);
}

mf_status mf_reserve_kinds(mf_runner *r, const mf_op_kind *kinds, mf_error *error)
{
    for (; *kinds != 0; kinds++) {
        const mf_op op = {.kind = *kinds, .n_rows = r->plan.n_chunk};
        MF_TRY(mf_backend_reserve(r->backend, &op, error));
    }
    return MF_OK;
}

mf_status mf_reserve_experts(mf_runner *r, mf_backend *be, const mf_expert_shape *shape,
                             mf_error *error)
{
    for (uint32_t form = 0; form == 0 || form < shape->n_forms; form++) {
        const mf_expert_shape s = mf_expert_shape_of(shape, form);
        const mf_expert_item item = {.gate = s.gate, .up = s.up, .down = s.down};
        const mf_op experts = {.kind = MF_OP_EXPERTS,
                               .n_rows = r->plan.n_chunk,
                               .u.experts = {.steps = s.steps, .items = &item, .n_items = 1}};
        MF_TRY(mf_backend_reserve(be, &experts, error));
    }
    return MF_OK;
}

static mf_status reserve_mlp_fused(mf_runner *r, uint32_t layer, mf_error *error)
{
    const mf_layer_weights *w = &r->weights.layers[layer];
    const mf_op pair = mf_fused_pair(r, &w->mlp, w->post_norm);
    const mf_op out =
        mf_fused_out(r, &w->mlp.down, r->plan.mlp_gate, (mf_input_step){.kind = MF_INPUT_AS_IT_IS});
    MF_TRY(mf_fused_reserve(r, &pair, error));
    return r->h.is_dense[layer] ? mf_fused_reserve(r, &out, error) : MF_OK;
}

static mf_status reserve_mlp(mf_runner *r, uint32_t layer, mf_error *error)
{
    const mf_layer_weights *w = &r->weights.layers[layer];
    if (r->h.is_dense[layer] || r->h.shared_hidden != 0) {
        MF_TRY(mf_reserve_matmul(r, &w->mlp.gate, r->plan.n_chunk, error));
        MF_TRY(mf_reserve_matmul(r, &w->mlp.up, r->plan.n_chunk, error));
        MF_TRY(mf_reserve_matmul(r, &w->mlp.down, r->plan.n_chunk, error));
        MF_TRY(reserve_mlp_fused(r, layer, error));
    }
    if (r->h.is_dense[layer])
        return MF_OK;
    MF_TRY(mf_reserve_matmul(r, &w->router, r->plan.n_chunk, error));
    const mf_op fused = mf_fused_router(r, layer);
    MF_TRY(mf_fused_reserve(r, &fused, error));
    mf_op route = {.kind = MF_OP_ROUTE, .n_rows = r->plan.n_chunk};
    route.u.route.n_experts = r->h.n_experts;
    MF_TRY(mf_backend_reserve(r->backend, &route, error));
    const mf_op combine = {.kind = MF_OP_COMBINE,
                           .n_rows = r->plan.n_chunk,
                           .u.combine = {.n_cols = r->h.hidden_size,
                                         .k = mf_experts_are_apart(r) ? 1 : r->plan.k,
                                         .norm = mf_next_input(r, layer)}};
    MF_TRY(mf_backend_reserve(r->backend, &combine, error));
    MF_TRY(mf_expert_sum_reserve(r, error));
    mf_op scale = combine;
    scale.u.combine.norm = (mf_norm_after){{{0}, 0}, {{0}, 0}, 0};
    if (r->h.router.scales_input)
        MF_TRY(mf_backend_reserve(r->backend, &scale, error));
    MF_TRY(mf_routed_reserve(r, layer, error));
    MF_TRY(mf_mixture_reserve(r, layer, error));
    return mf_reserve_experts(r, r->experts, &w->experts, error);
}

/* A host reads megabytes of a device's logits no faster than they come. */
static mf_status reserve_finite(mf_runner *r, mf_error *error)
{
    const mf_op op = {
        .kind = MF_OP_FINITE, .n_rows = r->plan.n_logit_rows, .u.finite = {.n_cols = r->h.n_vocab}};
    r->asks_finite = r->backend->ops->runs_later && r->backend->ops->supports_op(r->backend, &op);
    return r->asks_finite ? mf_backend_reserve(r->backend, &op, error) : MF_OK;
}

/* The largest operations of each kind that will be recorded, so that none of them allocates later.
 */
static mf_status reserve_ops(mf_runner *r, uint32_t n_sequences, mf_error *error)
{
    /* As many pages as all sequences together may refer to, shared ones each time. */
    const size_t n_pages = (size_t)mf_plan_table_pages(&r->plan, n_sequences);
    const mf_op_kind kinds[] = {MF_OP_RMSNORM, MF_OP_ADD, MF_OP_SWIGLU, MF_OP_COPY_ROWS, 0};
    const mf_op embed = {
        .kind = MF_OP_EMBED, .n_rows = r->plan.n_chunk, .u.embed = {.weight = r->weights.embed}};
    MF_TRY(r->backend->ops->reserve_batch(r->backend, n_sequences, n_pages, error));
    MF_TRY(mf_reserve_kinds(r, kinds, error));
    MF_TRY(mf_backend_reserve(r->backend, &embed, error));
    const mf_op add = {
        .kind = MF_OP_ADD,
        .n_rows = r->plan.n_chunk,
        .u.add = {.n_cols = r->h.hidden_size, .norm = mf_to_h(r, r->weights.layers[0].post_norm)}};
    MF_TRY(mf_backend_reserve(r->backend, &add, error));
    for (uint32_t i = 0; i < mf_all_layers(&r->h); i++) {
        MF_TRY(mf_layer_kind_table[r->h.layer_kind[i]]->reserve(r, i, error));
        MF_TRY(reserve_mlp(r, i, error));
    }
    MF_TRY(reserve_finite(r, error));
    MF_TRY(mf_draft_reserve(r, error));
    MF_TRY(mf_streams_reserve(r, error));
    return mf_reserve_matmul(r, &r->weights.lm_head, r->plan.n_logit_rows, error);
}

static bool slot_is_done(void *ctx, mf_ticket ticket)
{
    mf_backend *be = ctx;
    return be->ops->done(be, ticket);
}

static mf_status slot_wait_for(void *ctx, mf_ticket ticket, mf_error *error)
{
    mf_backend *be = ctx;
    return be->ops->wait_for(be, ticket, error);
}

mf_ticket mf_upload_to_slots(mf_backend *be, const mf_slot_piece *pieces, uint32_t n)
{
    mf_upload uploads[MF_MAX_EXPERT_PARTS];
    for (uint32_t i = 0; i < n; i++)
        uploads[i] =
            (mf_upload){{{MF_BUFFER_SLOTS}, pieces[i].slot_at}, pieces[i].from, pieces[i].n_bytes};
    return mf_backend_upload_ahead(be, uploads, n); /* what used the slot is done */
}

static mf_status slot_upload(void *ctx, const mf_slot_piece *pieces, uint32_t n, mf_ticket *ticket,
                             mf_error *error)
{
    (void)error;
    *ticket = mf_upload_to_slots(ctx, pieces, n);
    return MF_OK;
}

static bool slot_discard(void *ctx, uint64_t at, uint64_t n_bytes)
{
    mf_backend *be = ctx;
    return be->ops->buffer_discard(be, (mf_span){{MF_BUFFER_SLOTS}, at}, n_bytes);
}

bool mf_runner_can_discard_slots(const mf_runner *r)
{
    const mf_backend_ops *ops = r->experts->ops;
    return !ops->runs_later && !r->lending.is_on && /* whose device reaches them */
           ops->buffer_discard(r->experts, (mf_span){{MF_BUFFER_SLOTS}, 0}, 0);
}

/* One more room of the list for n places. */
static mf_status make_room(mf_runner *r, const mf_runner_options *o, uint64_t n,
                           mf_expert_room *out, mf_error *error)
{
    mf_buffer buffer;
    const uint64_t n_bytes = n * o->slot_sizes.bytes[0];
    MF_TRY(r->experts->ops->buffer_create(r->experts, n_bytes, MF_USE_STAGING,
                                          "experts on their way", &buffer, error));
    *out = (mf_expert_room){r->experts->ops->buffer_host(r->experts, buffer), n_bytes};
    return MF_OK;
}

static uint64_t count_rooms(const mf_runner_options *o)
{
    if (o->n_places <= o->n_first_places)
        return 1;
    return 2 + (o->n_places - o->n_first_places - 1) / o->n_room_places;
}

/* The first room is needed. The others are what the budget allows; a system may have less to give
 * for devices to reach, and then does with it. */
static mf_status make_rooms(mf_runner *r, const mf_runner_options *o, mf_expert_room *rooms,
                            uint32_t *n, mf_error *error)
{
    uint64_t left = o->n_places > o->n_first_places ? o->n_places - o->n_first_places : 0;
    MF_TRY(make_room(r, o, o->n_first_places, &rooms[0], error));
    for (*n = 1; left > 0; ++*n) {
        const uint64_t n_places = left < o->n_room_places ? left : o->n_room_places;
        if (make_room(r, o, n_places, &rooms[*n], NULL) != MF_OK)
            break;
        left -= n_places;
    }
    return MF_OK;
}

/* Where the experts' bytes go: the slots, or rooms before them. */
static mf_status find_slots(mf_runner *r, const mf_runner_options *o,
                            mf_expert_store_options *options, mf_expert_room *rooms,
                            mf_error *error)
{
    const mf_backend_ops *ops = r->experts->ops;
    /* A device reads words where they are aligned, and finds experts where all have their arrays at
     * the same places. */
    const bool is_read_to = !ops->runs_later || mf_expert_map_is_even(&r->map);
    options->memory = (mf_slot_memory){
        .n_bytes = mf_slot_sizes_bytes(&o->slot_sizes, most_slots(o)),
        .host = is_read_to ? ops->buffer_host(r->experts, (mf_buffer){MF_BUFFER_SLOTS}) : NULL,
        .ctx = r->experts,
        .is_done = slot_is_done,
        .wait_for = slot_wait_for,
        .upload = slot_upload,
        .discard = mf_runner_can_discard_slots(r) ? slot_discard : NULL,
    };
    if (options->memory.host != NULL) {
        mf_lend_from(r, options->memory.host, options->memory.n_bytes, o->slot_sizes.bytes[0]);
        return MF_OK;
    }
    return make_rooms(r, o, rooms, &options->n_rooms, error);
}

static mf_status open_store(mf_runner *r, const mf_source *source, const mf_runner_options *o,
                            mf_error *error)
{
    const bool waits = source->await.fn != NULL && o->io_engine == NULL;
    const mf_io_options io = {.allocator = r->allocator,
                              .kind = waits ? MF_IO_POOL : o->io,
                              .engine = o->io_engine,
                              .engine_arg = waits ? (void *)&source->await : o->io_arg,
                              .lost = o->lost,
                              .lost_ctx = o->lost_ctx};
    MF_TRY(mf_io_open(&io, &r->io, error));
    for (size_t i = 0; i < source->table.n_files; i++) {
        uint32_t file; /* the io layer numbers from 0 in this order, as the table does */
        MF_TRY(mf_io_add_file(r->io, source->table.files[i].path, &file, error));
    }
    MF_TRY(mf_mirrors_add(r->io, source, o->mirrors, o->n_mirrors, error));
    if (r->map.n_layers == 0) /* nothing is streamed */
        return MF_OK;
    mf_expert_store_options options = {.allocator = r->allocator,
                                       .io = r->io,
                                       .map = r->map,
                                       .sizes = &o->slot_sizes,
                                       .policy = o->cache_policy,
                                       .n_slots = o->n_slots,
                                       .n_slots_least = o->n_slots_least};
    const size_t n_bytes = count_rooms(o) * sizeof(mf_expert_room);
    mf_expert_room *rooms = mf_alloc(&r->allocator, n_bytes);
    if (rooms == NULL)
        return mf_fail_memory(error, n_bytes, "the list of rooms for experts");
    options.rooms = rooms;
    mf_status status = find_slots(r, o, &options, rooms, error);
    if (status == MF_OK)
        status = mf_expert_store_open(&options, &r->store, error);
    if (status == MF_OK && o->slots_stay && options.memory.host != NULL)
        mf_io_hold_memory(r->io, options.memory.host, options.memory.n_bytes);
    mf_free(&r->allocator, rooms, n_bytes);
    return status;
}

/* What MF_PREDICT_AUTO is where a device has the slots. Nothing, where there is one for each. If
 * all experts are in RAM, the link is idle while layers are computed, so that what the next router
 * says is uploaded then; but not where nearly all have slots, since layers that are recorded ahead
 * are foretold nothing. If experts have to be read, trials tell which way is faster, as on the CPU.
 */
static mf_predict predict_for_device(const mf_runner *r)
{
    const uint64_t n = (uint64_t)r->h.n_moe_layers * r->h.n_experts;
    if (r->routed.is_on && r->routed.is_whole && !mf_experts_are_apart(r))
        return MF_PREDICT_OFF;
    if (mf_expert_store_n_places(r->store) < n)
        return MF_PREDICT_AUTO;
    return mf_expert_store_n_slots(r->store) * 10 < n * 9 ? MF_PREDICT_NEXT_LAYER : MF_PREDICT_OFF;
}

static mf_status open_foresight(mf_runner *r, const mf_runner_options *o, mf_error *error)
{
    mf_foresight_options options = {.allocator = r->allocator,
                                    .store = r->store,
                                    .n_layers = r->h.n_moe_layers,
                                    .n_experts = r->h.n_experts,
                                    .k = r->plan.k,
                                    .predict = o->predict,
                                    .depth = o->predict_depth};
    if (r->store != NULL && o->predict == MF_PREDICT_AUTO && r->experts->ops->runs_later)
        options.predict = predict_for_device(r);
    if (options.predict == MF_PREDICT_OFF || r->store == NULL)
        return MF_OK;
    MF_TRY(mf_foresight_open(&options, &r->foresight, error));
    if (mf_foretell_can_fold(r))
        mf_foresight_may_fold(r->foresight);
    return MF_OK;
}

static uint64_t routed_bytes(const mf_runner *r)
{
    return (uint64_t)r->h.n_moe_layers *
           (2 + 4 * MF_MAX_EXPERT_PARTS + 4 * (uint64_t)MF_MAX_ROUTED_PICKS + 16);
}

static void take_routed(mf_runner *r)
{
    const size_t n = r->h.n_moe_layers;
    r->routed.is_ready = mf_arena_take(&r->arena, n);
    r->routed.was_routed = mf_arena_take(&r->arena, n);
    r->routed.part_at = mf_arena_take(&r->arena, n * MF_MAX_EXPERT_PARTS * 4);
    r->routed.ids = mf_arena_take(&r->arena, n * MF_MAX_ROUTED_PICKS * 4);
    r->ahead.versions = mf_arena_take(&r->arena, n * sizeof *r->ahead.versions);
    r->ahead.found = mf_arena_take(&r->arena, n * 2 * sizeof *r->ahead.found);
}

static size_t foretold_bytes(const mf_runner *r)
{
    return (size_t)MF_FORESIGHT_DEPTH * MF_FORESIGHT_ROWS * 2 * r->plan.k * sizeof(int32_t);
}

static size_t draft_rows_bytes(const mf_runner *r)
{
    return r->plan.draft.n_tokens != 0 ? (size_t)r->plan.n_chunk * 2 * sizeof(uint32_t) : 0;
}

static size_t stream_rows_bytes(const mf_runner *r)
{
    return (size_t)r->plan.n_chunk * r->h.n_streams * sizeof(uint32_t);
}

static mf_status make_lists(mf_runner *r, uint32_t n_sequences, mf_error *error)
{
    size_t picks = (size_t)r->plan.n_chunk * r->plan.k, n_experts = r->h.n_experts;
    size_t n_ready = n_experts < MF_READY_MAX ? n_experts : MF_READY_MAX;
    size_t n_bytes =
        picks * 16 + 2 * (2 * n_experts + 1) * 4 +
        n_ready * (sizeof(mf_expert_item) + sizeof(mf_expert_ready)) +
        (size_t)n_sequences * sizeof(mf_sequence) + (size_t)r->plan.n_logit_rows * 4 +
        (size_t)r->plan.n_chunk * 8 + (size_t)r->h.n_vocab * sizeof(float) +
        mf_all_layers(&r->h) * sizeof(mf_layer_state) + routed_bytes(r) + foretold_bytes(r) +
        (size_t)r->plan.n_logit_rows * (sizeof(mf_logits) + 4 * mf_finite_blocks(r->h.n_vocab)) +
        draft_rows_bytes(r) + stream_rows_bytes(r) + mf_early_bytes(r, n_sequences) + 33 * 64;
    MF_TRY(mf_arena_create(&r->allocator, n_bytes, "expert lists", &r->arena, error));
    r->moe.ids = mf_arena_take(&r->arena, picks * 4);
    r->moe.place = mf_arena_take(&r->arena, picks * 4);
    r->moe.x_rows = mf_arena_take(&r->arena, picks * 4);
    r->moe.weights = mf_arena_take(&r->arena, picks * 4);
    r->moe.foretold = mf_arena_take(&r->arena, foretold_bytes(r));
    r->moe.first = mf_arena_take(&r->arena, (n_experts + 1) * 4);
    r->moe.wanted = mf_arena_take(&r->arena, n_experts * 4);
    r->split_lists = mf_arena_take(&r->arena, (2 * n_experts + 1) * 4);
    r->moe.items = mf_arena_take(&r->arena, n_ready * sizeof(mf_expert_item));
    r->moe.ready = mf_arena_take(&r->arena, n_ready * sizeof(mf_expert_ready));
    r->sequences = mf_arena_take(&r->arena, (size_t)n_sequences * sizeof(mf_sequence));
    r->row_list = mf_arena_take(&r->arena, (size_t)r->plan.n_logit_rows * 4);
    r->row_logits = mf_arena_take(&r->arena, r->plan.n_logit_rows * sizeof(mf_logits));
    r->row_bounds =
        mf_arena_take(&r->arena, (size_t)r->plan.n_logit_rows * mf_finite_blocks(r->h.n_vocab) * 4);
    r->draft_rows = mf_arena_take(&r->arena, draft_rows_bytes(r));
    r->row_tokens = mf_arena_take(&r->arena, (size_t)r->plan.n_chunk * 4);
    r->same_row = mf_arena_take(&r->arena, (size_t)r->plan.n_chunk * 4);
    r->stream_rows = mf_arena_take(&r->arena, stream_rows_bytes(r));
    r->each_logits = mf_arena_take(&r->arena, (size_t)r->h.n_vocab * sizeof(float));
    take_routed(r);
    mf_early_open(r, n_sequences);
    r->layers = mf_arena_take(&r->arena, mf_all_layers(&r->h) * sizeof(mf_layer_state));
    if (r->layers == NULL)
        return mf_fail_memory(error, n_bytes, "expert lists");
    memset(r->same_row, 0, (size_t)r->plan.n_chunk * 4);
    for (uint32_t i = 0; i < r->plan.n_chunk * r->h.n_streams; i++)
        r->stream_rows[i] = i / r->h.n_streams;
    return MF_OK;
}

/* Angles as the published model computes them: the frequency rounded to float32, their product with
 * the position too. */
static void fill_table(const mf_runner *r, const mf_rope *rope, const float *frequencies,
                       bool is_sine, float *table)
{
    const uint32_t half = r->h.n_rot / 2;
    const float factor = (float)rope->attention_factor;
    for (uint32_t pos = 0; pos < r->plan.n_context; pos++)
        for (uint32_t i = 0; i < half; i++) {
            const float angle = (float)pos * frequencies[i];
            const double value = is_sine ? sin((double)angle) : cos((double)angle);
            *table++ = (float)value * factor;
        }
}

/* One table at a time: each is as large as what it becomes. */
static mf_status write_rope(mf_runner *r, mf_error *error)
{
    const uint32_t half = mf_rotated_pairs(&r->h);
    if (half == 0)
        return MF_OK;
    const size_t table_bytes = (size_t)r->plan.n_context * half * sizeof(float);
    const size_t n_bytes = table_bytes + half * sizeof(float);
    float *memory = mf_alloc(&r->allocator, n_bytes);
    if (memory == NULL)
        return mf_fail_memory(error, n_bytes, "rotary angles");
    const mf_span tables[] = {r->plan.cos, r->plan.sin, r->plan.entry_cos, r->plan.entry_sin};
    for (uint32_t i = 0; i < 4 && tables[i].buffer.id != 0; i++) {
        const mf_rope *rope = i < 2 ? &r->h.rope : &r->h.entry_rope;
        mf_rope_frequencies(rope, r->h.n_rot, memory);
        fill_table(r, rope, memory, i % 2 == 1, memory + half);
        r->backend->ops->write(r->backend, tables[i], memory + half, table_bytes);
    }
    mf_free(&r->allocator, memory, n_bytes);
    return MF_OK;
}

static void write_floats(mf_runner *r, mf_span to, const float *values, size_t n)
{
    if (to.buffer.id != 0)
        r->backend->ops->write(r->backend, to, values, n * sizeof *values);
}

/* The plan's constants. */
static mf_status write_constants(mf_runner *r, mf_error *error)
{
    const mf_plan *p = &r->plan;
    const mf_hparams *h = &r->h;
    const size_t n_zeros = h->hidden_size > p->n_context ? h->hidden_size : p->n_context;
    const size_t n = p->n_ones > n_zeros ? p->n_ones : n_zeros;
    if (p->ones.buffer.id == 0 && p->growth.buffer.id == 0 && p->zeros.buffer.id == 0)
        return MF_OK;
    float *memory = mf_alloc(&r->allocator, n * sizeof *memory);
    if (memory == NULL)
        return mf_fail_memory(error, n * sizeof *memory, "constants");
    for (size_t i = 0; i < n; i++)
        memory[i] = 1.0f;
    write_floats(r, p->ones, memory, p->n_ones);
    if (mf_experts_are_apart(r) && h->router.scales_input)
        r->experts->ops->write(r->experts, p->expert_weights, memory,
                               (uint64_t)p->n_chunk * p->k * sizeof *memory);
    for (size_t i = 0; i < p->n_context; i++) /* in float32, as published */
        memory[i] = log1pf(floorf(((float)i + (float)h->query_first) / (float)h->query_floor)) *
                        (float)h->query_growth +
                    1.0f;
    write_floats(r, p->growth, memory, p->n_context);
    memset(memory, 0, n_zeros * sizeof *memory);
    write_floats(r, p->zeros, memory, h->hidden_size);
    write_floats(r, p->no_sin, memory, p->n_context);
    mf_free(&r->allocator, memory, n * sizeof *memory);
    return MF_OK;
}

/* What the runner needs of the descriptors; the rest is released by the caller. */
static void take_over(mf_runner *r, mf_model *m)
{
    r->h = m->h;
    r->plan = m->plan;
    r->weights = m->weights;
    r->resident_bytes = m->binder.resident_bytes;
    r->tables = m->binder.experts;
    r->map = mf_expert_tables_map(&r->tables, &m->h);
    m->weights.layers = NULL;
    m->binder.experts = (mf_expert_tables){0};
}

mf_status mf_runner_open(mf_model *model, const mf_runner_options *o, mf_runner *r, mf_error *error)
{
    mf_plan ignored;
    take_over(r, model);
    MF_TRY(make_buffers(r, o, error));
    MF_TRY(mf_load_resident(r->backend, (mf_buffer){MF_BUFFER_RESIDENT}, &model->binder,
                            o->n_threads, error));
    MF_TRY(mf_expert_device_copy_scales(r, error));
    MF_TRY(make_lists(r, o->n_sequences, error));
    (void)mf_plan_state(&r->h, &model->plan_options, r->layers, &ignored);
    const bool are_apart = mf_experts_are_apart(r);
    const uint32_t n_in_slots = r->h.n_moe_layers - r->plan.n_given; /* layers */
    r->routed.is_on =
        r->backend->ops->runs_later && r->map.n_layers != 0 && (!are_apart || r->plan.n_given != 0);
    r->routed.is_whole = o->n_slots >= (uint64_t)n_in_slots * r->h.n_experts;
    r->ahead.is_on = r->routed.is_on && !r->routed.is_whole && !are_apart;
    r->ahead.n_most = 1;
    r->fused.is_on = r->fused.has_experts = r->fused.has_linear_rows =
        true; /* until a layer cannot be */
    mf_backend_gather(r->backend);
    mf_backend_gather(r->experts);
    MF_TRY(reserve_ops(r, o->n_sequences, error));
    MF_TRY(mf_lend_reserve(r, error));
    MF_TRY(mf_relay_prepare(r, error));
    MF_TRY(mf_backend_gathered(r->backend, error));
    MF_TRY(mf_backend_gathered(r->experts, error));
    MF_TRY(open_store(r, model->source, o, error));
    MF_TRY(open_foresight(r, o, error));
    MF_TRY(write_rope(r, error));
    MF_TRY(write_constants(r, error));
    if (r->routed.is_on && r->routed.is_whole && !are_apart)
        (void)mf_expert_store_fill(r->store, NULL); /* what cannot be read fails who needs it */
    return mf_give(r, error);
}

void mf_runner_close(mf_runner *r)
{
    const mf_allocator a = r->allocator;
    mf_foresight_close(&r->foresight);
    mf_expert_store_close(&r->store);
    mf_io_close(&r->io);
    mf_backend *experts = mf_experts_are_apart(r) ? r->experts : NULL;
    if (r->backend != NULL)
        r->backend->ops->destroy(r->backend);
    if (experts != NULL) /* whose memory the other may reach */
        experts->ops->destroy(experts);
    mf_lend_close(r);
    mf_arena_free(&r->arena);
    if (r->weights.layers != NULL)
        mf_free(&a, r->weights.layers, mf_all_layers(&r->h) * sizeof *r->weights.layers);
    mf_expert_tables_free(&r->tables, &a);
    *r = (mf_runner){0};
}
