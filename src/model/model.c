/* SPDX-License-Identifier: MIT */
/* A model's descriptors: read, configured, bound, planned and described, before any weight is
 * loaded. */
#include "model/model.h"

#include "base/cpu.h"
#include "base/memory_limits.h"
#include "base/sized.h"
#include "model/load_packed.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_CONTEXT 4096u
#define DEFAULT_CHUNK 512u
/* What options may be at most; the public header says so. */
#define MAX_THREADS 1024
#define MAX_SESSIONS 200
#define MAX_CHUNK_TOKENS (1u << 20)
#define MAX_STATE_BYTES ((uint64_t)1 << 60)

void mf_engine_options_init(mf_engine_options *options, size_t struct_bytes)
{
    const mf_engine_options defaults = {.expert_cache_bytes = MF_EXPERT_CACHE_AUTO,
                                        .n_sessions = 1};
    mf_sized_init(options, struct_bytes, &defaults, sizeof defaults);
}

mf_status mf_engine_options_take(const mf_engine_options *given, mf_engine_options *out,
                                 mf_error *error)
{
    mf_engine_options_default(out);
    if (given != NULL)
        MF_TRY(mf_sized_get(out, sizeof *out, given, "mf_engine_options", error));
    return MF_OK;
}

/* One option against the most that it may be. */
static mf_status check_most(const char *name, uint64_t value, uint64_t most, mf_error *error)
{
    if (value > most)
        return mf_fail(error, MF_ERR_ARGUMENT, "%s %llu is more than %llu", name,
                       (unsigned long long)value, (unsigned long long)most);
    return MF_OK;
}

static mf_status check_cpu_tier(const char *name, mf_error *error)
{
    mf_cpu_tier tier;
    char names[128];
    if (mf_cpu_tier_named(name, &tier) && (tier == MF_CPU_BEST || mf_cpu_has(tier)))
        return MF_OK;
    mf_cpu_list_tiers(names, sizeof names);
    return mf_fail(error, MF_ERR_ARGUMENT, "cpu_tier '%s' is none of this CPU's: auto, %s", name,
                   names);
}

/* What can be said of options without looking at the model. */
static mf_status check_options(const mf_engine_options *o, mf_error *error)
{
    MF_TRY(check_most("n_threads", o->n_threads, MAX_THREADS, error));
    if (o->n_sessions == 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "n_sessions 0 is less than 1");
    MF_TRY(check_most("n_sessions", o->n_sessions, MAX_SESSIONS, error));
    MF_TRY(check_most("n_chunk_tokens", o->n_chunk_tokens, MAX_CHUNK_TOKENS, error));
    MF_TRY(check_most("predict", (uint32_t)o->predict, MF_PREDICT_WRONG, error));
    MF_TRY(check_most("predict_depth", o->predict_depth, MF_PREDICT_DEPTH_MOST, error));
    MF_TRY(check_most("n_draft_tokens", o->n_draft_tokens, MF_DRAFT_TOKENS_MOST, error));
    MF_TRY(check_most("draft", (uint32_t)o->draft, MF_DRAFT_ALWAYS, error));
    MF_TRY(check_most("state_bytes", o->state_bytes, MAX_STATE_BYTES, error));
    if (o->packed_expert_bits != 0 && o->packed_expert_bits != 2 && o->packed_expert_bits != 4)
        return mf_fail(error, MF_ERR_ARGUMENT, "packed_expert_bits %u is not 0, 2 or 4",
                       o->packed_expert_bits);
    MF_TRY(mf_backend_check_device("device", o->device, error));
    MF_TRY(mf_backend_check_expert_device(o->expert_device, error));
    if (mf_backend_is_hybrid(o->expert_device) && o->n_draft_tokens != 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "tokens are not proposed (n_draft_tokens) where expert_device is '%s'",
                       o->expert_device);
    MF_TRY(check_most("io", (uint32_t)o->io, MF_IO_POOL, error));
    MF_TRY(check_cpu_tier(o->cpu_tier, error));
    MF_TRY(check_most("precision", (uint32_t)o->precision, MF_PRECISION_MIXED, error));
    MF_TRY(check_most("numa", (uint32_t)o->numa, MF_NUMA_OFF, error));
    return check_most("kv_type", (uint32_t)o->kv_type, MF_KV_Q8, error);
}

static mf_status check_options_of_model(const mf_engine_options *o, const mf_hparams *h,
                                        mf_error *error)
{
    const uint32_t n_given = mf_backend_given_layers(o->expert_device);
    if (n_given != MF_GIVEN_AUTO && n_given > h->n_moe_layers)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "expert_device '%s': %u layers have experts, which is the most",
                       o->expert_device, h->n_moe_layers);
    if (o->n_experts_per_token > h->n_experts_per_token)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "%u experts a token (n_experts_per_token) are more than the model's %u",
                       o->n_experts_per_token, h->n_experts_per_token);
    for (uint32_t i = 0; i < h->n_layers; i++)
        if (o->kv_type == MF_KV_Q8 && h->layer_kind[i] == MF_LAYER_ENTRIES)
            return mf_fail(error, MF_ERR_UNSUPPORTED,
                           "8 bits a cached value (kv_type) are not supported where entries are "
                           "made of what is cached, as in layer %u; expected float32 or bfloat16",
                           i);
    if (o->n_context_tokens > h->n_context && h->context_is_indexed)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "a context of %u tokens (n_context_tokens) is more than %u (index_topk): "
                       "beyond it positions are chosen by an indexer, which is not supported",
                       o->n_context_tokens, h->n_context);
    if (o->n_context_tokens > h->n_context)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "a context of %u tokens (n_context_tokens) is more than the model's %u "
                       "(max_position_embeddings)",
                       o->n_context_tokens, h->n_context);
    return MF_OK;
}

static bool has_draft(const mf_model *m)
{
    return m->family->draft_kind != 0 && m->h.n_layers < MF_MAX_LAYERS &&
           mf_source_has_draft(m->source, m->h.n_layers);
}

/* Its attention and its last expert are there, too: such layers are published in part as well. */
static bool has_whole_draft(const mf_model *m)
{
    const mf_hparams *h = &m->h;
    if (!has_draft(m) || (!mf_source_has(m->source, MF_ROLE_O, h->n_layers) &&
                          !mf_source_has(m->source, MF_ROLE_ENTRY_O_B, h->n_layers)))
        return false;
    if (h->n_moe_layers == 0 ||
        m->source->ops->expert_layout(m->source, h->n_layers) != MF_EXPERTS_EACH)
        return true;
    return m->source->ops->has(m->source,
                               (mf_tensor_id){MF_ROLE_EXPERT_DOWN, h->n_layers, h->n_experts - 1});
}

/* The layer that proposes tokens is one of the model's. */
static void add_draft(mf_model *m)
{
    mf_hparams *h = &m->h;
    h->n_draft_layers = 1;
    h->draft_feeds_normed = m->family->draft_feeds_normed;
    h->layer_kind[h->n_layers] = (uint8_t)m->family->draft_kind;
    h->is_dense[h->n_layers] = h->n_moe_layers == 0;
    if (m->family->draft_kind == MF_LAYER_ENTRIES) /* of a window alone, without entries */
        h->window[h->n_layers] = h->attended_window;
    mf_number_moe_layers(h);
}

/* Where the options want it. */
static mf_status configure_draft(mf_model *m, const mf_engine_options *o, mf_error *error)
{
    if (o->n_draft_tokens == 0)
        return MF_OK;
    if (!has_draft(m))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: no multi-token-prediction layer is here that could propose tokens "
                       "(n_draft_tokens)",
                       m->source->path);
    add_draft(m);
    return MF_OK;
}

static mf_status bind_weights(mf_model *m, const mf_allocator *a, mf_error *error)
{
    m->weights.layers = mf_alloc_zeroed(a, mf_all_layers(&m->h) * sizeof *m->weights.layers);
    if (m->weights.layers == NULL)
        return mf_fail_memory(error, mf_all_layers(&m->h) * sizeof *m->weights.layers,
                              "layer descriptors");
    mf_binder_init(&m->binder, a, m->source);
    MF_TRY(m->family->bind(&m->binder, &m->h, &m->weights, error));
    return mf_bind_finish(&m->binder, &m->h, error);
}

/* A quarter of the state; where marks hold pages of windows, one such mark at least. */
static uint64_t default_mark_bytes(const mf_model *m)
{
    const uint64_t quarter = m->plan.state_bytes / 4;
    const uint64_t one = mf_plan_mark_bytes(&m->plan) + m->h.n_vocab * sizeof(float);
    if (m->plan.mark_window_bytes == 0 || one <= quarter)
        return quarter;
    return one < m->plan.state_bytes ? one : m->plan.state_bytes;
}

mf_status mf_model_plan(mf_model *m, const mf_engine_options *o, mf_layer_kinds kinds,
                        bool experts_apart, mf_error *error)
{
    static const mf_dtype cache_types[] = {MF_F32, MF_BF16, MF_Q8}; /* by mf_kv_type */
    uint32_t context = o->n_context_tokens != 0 ? o->n_context_tokens : DEFAULT_CONTEXT;
    context = context > m->h.n_context ? m->h.n_context : context;
    m->h.is_indexed = m->h.index_heads != 0 && context > mf_index_reach(&m->h);
    uint32_t chunk = o->n_chunk_tokens != 0 ? o->n_chunk_tokens : DEFAULT_CHUNK;
    chunk = chunk > context ? context : chunk;
    m->k = o->n_experts_per_token != 0 ? o->n_experts_per_token : m->h.n_experts_per_token;
    m->n_threads = o->n_threads != 0 ? o->n_threads : mf_cpu_count();
    const uint32_t n_given = mf_backend_given_layers(o->expert_device);
    m->plan_options =
        (mf_plan_options){.n_chunk = chunk,
                          .n_context = context,
                          .k = m->k,
                          .n_sessions = o->n_sessions,
                          .n_threads = m->n_threads,
                          .n_draft = o->n_draft_tokens,
                          .cache_type = cache_types[o->kv_type],
                          .kinds = kinds,
                          .device = o->device,
                          .expert_device = o->expert_device,
                          .precision = o->precision,
                          .experts_apart = experts_apart,
                          .experts_lent = experts_apart && mf_backend_is_hybrid(o->expert_device),
                          .n_given = n_given != MF_GIVEN_AUTO ? n_given : 0};
    if (!mf_plan_make(&m->h, &m->plan_options, &m->plan))
        return mf_fail(error, MF_ERR_FORMAT, "%s: sizes overflow", m->source->hparam_path);
    if (o->state_bytes != 0)
        m->plan.state_bytes = o->state_bytes;
    m->plan.mark_bytes = o->mark_bytes != 0 ? o->mark_bytes : default_mark_bytes(m);
    if (m->plan.mark_bytes > m->plan.state_bytes)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mark_bytes %llu is more than the %llu of state_bytes that it is of",
                       (unsigned long long)m->plan.mark_bytes,
                       (unsigned long long)m->plan.state_bytes);
    return MF_OK;
}

mf_status mf_model_bind(const mf_allocator *a, mf_source *source, mf_model *out, mf_error *error)
{
    mf_status status;
    memset(out, 0, sizeof *out);
    out->allocator = *a;
    out->source = source;
    MF_TRY_GOTO(mf_family_find(source, &out->family, error));
    MF_TRY_GOTO(out->family->configure(source, &out->h, error));
    if (has_whole_draft(out))
        add_draft(out);
    MF_TRY_GOTO(bind_weights(out, a, error));
    return MF_OK;
fail:
    mf_model_release(out);
    return status;
}

mf_status mf_model_read(const mf_allocator *a, const char *path, const mf_engine_options *options,
                        mf_layer_kinds kinds, mf_model *out, mf_error *error)
{
    mf_status status;
    memset(out, 0, sizeof *out);
    out->allocator = *a;
    MF_TRY_GOTO(check_options(options, error));
    MF_TRY_GOTO(mf_source_open(a, path, options->packed_expert_bits, &out->source, error));
    MF_TRY_GOTO(mf_family_find(out->source, &out->family, error));
    MF_TRY_GOTO(out->family->configure(out->source, &out->h, error));
    MF_TRY_GOTO(check_options_of_model(options, &out->h, error));
    MF_TRY_GOTO(configure_draft(out, options, error));
    MF_TRY_GOTO(bind_weights(out, a, error));
    MF_TRY_GOTO(mf_model_plan(
        out, options, kinds, mf_backend_are_apart(options->device, options->expert_device), error));
    return MF_OK;
fail:
    mf_model_release(out);
    return status;
}

void mf_model_release(mf_model *m)
{
    const mf_allocator a = m->allocator;
    if (m->weights.layers != NULL)
        mf_free(&a, m->weights.layers, mf_all_layers(&m->h) * sizeof *m->weights.layers);
    mf_binder_free(&m->binder);
    mf_source_close(&m->source);
    memset(m, 0, sizeof *m);
}

static uint32_t first_moe_layer(const mf_hparams *h)
{
    uint32_t i = 0;
    while (i + 1 < h->n_layers && h->is_dense[i])
        i++;
    return i;
}

_Static_assert(MF_LEFT_OUT_MOST == MF_LEFT_PARTS, "all parts are told");

static void describe_left_out(const mf_source *source, mf_model_info *out)
{
    out->n_left_out = source->n_left;
    for (uint32_t i = 0; i < source->n_left; i++) {
        const mf_left_part *part = &source->left[i];
        mf_left_out *left = &out->left_out[i];
        snprintf(left->what, sizeof left->what, "%s", part->what);
        snprintf(left->names, sizeof left->names, "%s", part->names);
        left->n_tensors = part->n_tensors;
        left->n_bytes = part->n_bytes;
    }
}

static void describe_shapes(const mf_model *m, mf_model_info *out)
{
    const mf_hparams *h = &m->h;
    snprintf(out->family, sizeof out->family, "%s", m->family->name);
    const mf_layer_weights *first = &m->weights.layers[first_moe_layer(h)];
    const mf_weight_shape *gate =
        h->n_moe_layers != 0 ? &first->experts.gate.shape : &first->mlp.gate.shape;
    snprintf(out->form, sizeof out->form, "%s",
             m->source->form != NULL ? m->source->form : mf_weight_format_of(gate)->form);
    out->n_layers = h->n_layers;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        out->n_full_attention_layers +=
            h->layer_kind[i] == MF_LAYER_FULL || h->layer_kind[i] == MF_LAYER_ENTRIES;
        out->n_linear_attention_layers +=
            h->layer_kind[i] == MF_LAYER_LINEAR || h->layer_kind[i] == MF_LAYER_KEYED;
        out->n_latent_attention_layers += h->layer_kind[i] == MF_LAYER_LATENT;
    }
    out->n_moe_layers = h->n_moe_layers;
    out->n_skipped_layers = m->binder.n_skipped_layers;
    out->dense_hidden_size = h->dense_hidden;
    out->q_lora_rank = h->q_rank;
    out->kv_lora_rank = h->kv_rank;
    out->qk_rope_head_dim = h->kv_rank != 0 ? h->n_rot : 0;
    out->v_head_dim = h->value_head_dim;
    out->n_expert_groups = h->router.n_groups;
    out->n_expert_groups_per_token = h->router.k_groups;
    out->hidden_size = h->hidden_size;
    out->n_heads = h->n_heads;
    out->n_kv_heads = h->n_kv_heads;
    out->head_dim = h->head_dim;
    out->n_vocab = h->n_vocab;
    out->n_experts = h->n_experts;
    out->n_experts_per_token = m->k;
    out->n_experts_per_token_model = h->n_experts_per_token;
    out->expert_hidden_size = h->expert_hidden;
    out->shared_expert_hidden_size = h->shared_hidden;
    out->n_context_tokens_model = h->n_context;
    out->expert_bits = mf_weight_bits(gate);
    out->n_parameters = m->binder.n_parameters;
    describe_left_out(m->source, out);
}

/* As the options name them, but for what they leave open. */
static void describe_devices(const mf_model *m, const mf_engine_options *o, mf_model_info *out)
{
    const bool are_apart = mf_backend_are_apart(o->device, o->expert_device);
    snprintf(out->device, sizeof out->device, "%s", mf_backend_device(o->device));
    if (m->plan.n_given != 0)
        snprintf(out->expert_device, sizeof out->expert_device, "%s:%u", MF_DEVICE_HYBRID,
                 m->plan.n_given);
    else if (are_apart && mf_backend_is_hybrid(o->expert_device))
        snprintf(out->expert_device, sizeof out->expert_device, "%s", MF_DEVICE_HYBRID);
    else
        snprintf(out->expert_device, sizeof out->expert_device, "%s",
                 are_apart ? o->expert_device : out->device);
}

/* What the options come to for sessions. */
static void describe_sessions(const mf_model *m, const mf_engine_options *o, mf_model_info *out)
{
    const mf_plan *p = &m->plan;
    out->n_context_tokens = p->n_context;
    out->n_chunk_tokens = p->n_chunk;
    out->n_sessions = o->n_sessions;
    out->page_tokens = MF_PAGE_TOKENS;
    out->page_bytes = p->page_bytes;
    out->recurrent_bytes = p->recurrent_bytes;
    out->window_page_bytes = p->window_bytes;
    out->window_tokens = p->window;
    out->session_bytes = p->session_bytes;
    out->one_mark_bytes = mf_plan_mark_bytes(p) + m->h.n_vocab * sizeof(float);
    out->state_bytes = p->state_bytes;
    out->mark_bytes = p->mark_bytes;
}

static uint64_t expert_bytes(const mf_model *m, uint32_t moe_layer, uint32_t expert)
{
    const mf_expert_part *parts = m->binder.experts.parts + moe_layer * MF_MAX_EXPERT_PARTS;
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < MF_MAX_EXPERT_PARTS; i++)
        n_bytes += mf_expert_part_bytes(&parts[i], expert);
    return n_bytes;
}

/* The sizes of experts, which may differ within a layer too. */
static void describe_experts(const mf_model *m, mf_model_info *out)
{
    const uint32_t n = m->h.n_experts;
    for (uint32_t i = 0; n != 0 && i < m->h.n_moe_layers; i++) {
        uint64_t all = 0;
        for (uint32_t e = 0; e < n; e++) {
            const uint64_t one = expert_bytes(m, i, e);
            out->one_expert_bytes = one > out->one_expert_bytes ? one : out->one_expert_bytes;
            all += one;
        }
        out->expert_bytes += all;
        out->working_set_bytes += all * m->k / n;
    }
}

/* Of the process: dense weights on their way to memory that it does not reach, and rows on theirs
 * between two devices. */
static uint64_t staging_bytes(const mf_model *m, const mf_budget_place *place)
{
    const uint64_t rows = (uint64_t)m->plan.n_chunk * m->h.hidden_size * sizeof(float);
    const uint64_t words = mf_plan_relay_there_bytes(&m->plan, &m->h) + sizeof(uint64_t);
    uint64_t n_bytes = m->plan.expert_act_bytes != 0 ? 2 * rows + words : 0;
    if (place->dense.has_memory)
        n_bytes += mf_load_staging_bytes();
    return n_bytes + mf_load_packed_bytes(&m->binder);
}

/* Of the dense layers' device, for experts that are lent and given to it. */
static uint64_t lent_bytes(const mf_model *m, const mf_expert_map *map)
{
    const uint64_t each = mf_expert_slot_bytes_anywhere(map);
    const uint64_t n_given = (uint64_t)m->plan.n_given * m->h.n_experts;
    return (mf_plan_lent_slots(&m->plan, each) + n_given) * each;
}

/* That may be in slots; those that are given pass through them. */
static uint64_t n_experts_in_slots(const mf_model *m)
{
    const uint64_t n = (uint64_t)(m->h.n_moe_layers - m->plan.n_given) * m->h.n_experts;
    return n != 0 || m->plan.n_given == 0 ? n : m->h.n_experts;
}

/* A token's experts; of those that are lent one is on its way while the next is waited for. */
static uint32_t least_slots(const mf_model *m)
{
    return mf_plan_lends(&m->plan) && m->k < 2 ? 2 : m->k;
}

static mf_budget_request budget_request(const mf_model *m, const mf_expert_map *map,
                                        const mf_engine_options *options,
                                        const mf_budget_place *place)
{
    const bool are_apart = m->plan.expert_act_bytes != 0;
    mf_slot_sizes sizes; /* looks at every expert */
    mf_slot_sizes_of(map, true, least_slots(m), &sizes);
    const uint64_t slot_bytes = sizes.bytes[0]; /* 0: no experts */
    /* on their way to memory that the host does not reach, or where they lie in another order */
    const bool are_staged =
        place->experts.has_memory || (place->experts.runs_later && !mf_expert_map_is_even(map));
    return (mf_budget_request){
        .ram_bytes = options->ram_bytes,
        .expert_cache_bytes = options->expert_cache_bytes,
        .resident_bytes = m->binder.resident_bytes,
        .act_bytes = m->plan.act_bytes,
        .state_bytes = m->plan.state_bytes,
        .slabs_bytes = mf_plan_slabs_bytes(&m->plan),
        .host_bytes =
            m->plan.host_bytes + mf_expert_store_bytes(map, 0, are_staged) +
            mf_mark_logits_bytes(m->plan.mark_bytes, mf_plan_mark_bytes(&m->plan), m->h.n_vocab),
        .slot_bytes = slot_bytes,
        .slot_sizes = sizes,
        .slot_host_bytes =
            (mf_expert_store_bytes(map, 1024, 0) - mf_expert_store_bytes(map, 0, 0)) / 1024 + 1,
        .tokenizer_file_bytes = m->source->tokenizer_bytes != 0
                                    ? m->source->tokenizer_bytes
                                    : mf_tokenizer_file_bytes(m->source->path),
        .place = *place,
        .expert_resident_bytes = are_apart ? mf_expert_scales_bytes(&m->h, &m->weights) : 0,
        .expert_act_bytes = m->plan.expert_act_bytes,
        .overhead_bytes = m->plan.overhead_bytes + lent_bytes(m, map),
        .expert_overhead_bytes = m->plan.expert_overhead_bytes,
        .driver_bytes = m->plan.driver_bytes,
        .staging_bytes = staging_bytes(m, place),
        .place_bytes = slot_bytes,
        .place_host_bytes =
            (mf_expert_store_bytes(map, 0, 1025) - mf_expert_store_bytes(map, 0, 1)) / 1024 + 1,
        .n_places_min = are_staged ? MF_STAGED_EXPERTS : 0,
        .available_bytes = mf_memory_available_bytes(),
        .n_experts_total = n_experts_in_slots(m),
        .n_slots_min = least_slots(m),
        .n_threads = m->n_threads,
        .n_context_tokens = m->plan.n_context,
    };
}

void mf_model_describe(const mf_model *m, const mf_engine_options *options,
                       const mf_budget_place *place, mf_budget *budget, mf_model_info *out)
{
    mf_model_info info = {.struct_bytes = sizeof info};
    describe_shapes(m, &info);
    describe_sessions(m, options, &info);
    describe_devices(m, options, &info);
    describe_experts(m, &info);
    const mf_expert_map map = mf_expert_tables_map(&m->binder.experts, &m->h);
    const mf_budget_request request = budget_request(m, &map, options, place);
    mf_budget_make(&request, budget);
    info.resident_bytes = m->binder.resident_bytes;
    info.scratch_bytes = m->plan.act_bytes;
    info.slot_bytes = mf_slot_sizes_mean(&budget->slot_sizes);
    info.floor_bytes = budget->floor_bytes;
    info.ram_bytes = budget->ram_bytes;
    info.available_bytes = budget->available_bytes;
    info.n_slots = budget->n_slots;
    info.n_host_slots = request.place.experts.has_memory ? budget->n_places : 0;
    info.device_floor_bytes = budget->device_floor_bytes;
    info.expert_device_floor_bytes = budget->expert_device_floor_bytes;
    info.device_bytes = place->dense.takes_promise || place->dense.has_memory
                            ? place->dense.n_bytes
                            : place->experts.n_bytes;
    *out = info;
}
