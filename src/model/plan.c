/* SPDX-License-Identifier: MIT */
/* Memory layouts. */
#include "model/plan.h"

#include "base/checked.h"
#include "experts/foresight.h"

#define ALIGN ((uint64_t)64)

mf_span mf_layout_take(mf_layout *l, uint64_t n_rows, uint64_t n_cols, mf_dtype type)
{
    uint64_t n, at = mf_round_up(l->used, ALIGN);
    mf_span span = {l->buffer, at};
    if (!mf_mul_u64(n_rows, n_cols, &n) || !mf_mul_u64(n, mf_dtype_bytes(type), &n) ||
        !mf_add_u64(at, n, &l->used) || l->used > UINT64_MAX / 4)
        l->overflow = true;
    l->high = l->used > l->high ? l->used : l->high;
    return span;
}

static mf_span take(mf_layout *l, uint64_t n_rows, uint64_t n_cols)
{
    return mf_layout_take(l, n_rows, n_cols, MF_F32);
}

/* Each kind that the model has, all over the same bytes. */
static void plan_kinds(const mf_hparams *h, const mf_plan_options *o, mf_layout *l, mf_plan *p)
{
    const uint64_t shared_from = l->used;
    bool is_planned[MF_N_LAYER_KINDS] = {false};
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const uint8_t kind = h->layer_kind[i];
        if (is_planned[kind])
            continue;
        is_planned[kind] = true;
        l->used = shared_from;
        o->kinds[kind]->plan(h, p->n_chunk, l, p->kind[kind]);
    }
    l->used = shared_from;
}

/* What experts read, need and leave: among the other activations, or on a device of their own, from
 * where it comes back to expert_out. */
static void plan_experts(const mf_hparams *h, bool are_apart, mf_layout *l, mf_plan *p)
{
    const uint64_t n = p->n_chunk, picks = n * p->k;
    mf_layout apart = {.buffer = {MF_BUFFER_ACTIVATIONS}};
    p->expert_act = take(are_apart ? &apart : l, picks, 2 * (uint64_t)h->expert_hidden);
    p->expert_out = take(l, picks, h->hidden_size);
    p->expert_x = are_apart ? take(&apart, n, h->hidden_size) : p->h;
    p->expert_y = are_apart ? take(&apart, picks, h->hidden_size) : p->expert_out;
    p->expert_act_bytes = apart.high;
    l->overflow |= apart.overflow;
}

static void plan_mlp(const mf_hparams *h, bool experts_apart, mf_layout *l, mf_plan *p)
{
    uint64_t n = p->n_chunk;
    uint32_t hidden = h->shared_hidden > h->dense_hidden ? h->shared_hidden : h->dense_hidden;
    p->mlp_gate = take(l, n, hidden);
    p->mlp_up = take(l, n, hidden);
    p->mlp_out = take(l, n, h->hidden_size);
    plan_experts(h, experts_apart, l, p);
}

static uint64_t pages_of(uint64_t n_tokens)
{
    return (n_tokens + MF_PAGE_TOKENS - 1) / MF_PAGE_TOKENS;
}

/* Recurrent states that a session holds: its own, the next one, a mark's. */
#define STATES_A_SESSION 3
/* The least context that each session beside the first has room for, where nothing is asked for. */
#define SHARED_CONTEXT 256

/* One session of the full context; the others of an eighth, but at least SHARED_CONTEXT. */
static bool plan_sessions(uint32_t n_sessions, mf_plan *p)
{
    uint64_t each, others, other = p->n_context / 8;
    other = other < SHARED_CONTEXT ? SHARED_CONTEXT : other;
    other = other > p->n_context ? p->n_context : other;
    /* a page more: the last one may be shared with a mark */
    if (!mf_mul_u64(pages_of(p->n_context) + 1, p->page_bytes, &p->session_bytes) ||
        !mf_mul_u64(STATES_A_SESSION, p->recurrent_bytes, &each) ||
        !mf_add_u64(p->session_bytes, each, &p->session_bytes) ||
        !mf_mul_u64(pages_of(other) + 1, p->page_bytes, &others) ||
        !mf_add_u64(others, each, &others) || !mf_mul_u64(others, n_sessions - 1, &others) ||
        !mf_add_u64(p->session_bytes, others, &p->state_bytes))
        return false;
    return p->state_bytes != 0 && p->state_bytes < UINT64_MAX / 4;
}

#define MIB ((uint64_t)1 << 20)
#define SLAB_MIN (2 * MIB)
#define SLAB_MAX (32 * MIB)

uint32_t mf_plan_slab_units(uint64_t state_bytes, uint64_t unit_bytes)
{
    uint64_t slab = state_bytes / 8;
    slab = slab < SLAB_MIN ? SLAB_MIN : slab > SLAB_MAX ? SLAB_MAX : slab;
    /* few enough for the pool's table, whatever the limit */
    const uint64_t least = state_bytes / (MF_STATE_SLABS / 2);
    slab = mf_round_up(slab < least ? least : slab, SLAB_MIN);
    if (unit_bytes == 0)
        return 0;
    const uint64_t n = slab / unit_bytes;
    return n == 0 ? 1 : n > (1u << 20) ? 1u << 20 : (uint32_t)n;
}

uint64_t mf_plan_slabs_bytes(const mf_plan *p)
{
    return p->state_bytes + mf_plan_slab_units(p->state_bytes, p->page_bytes) * p->page_bytes +
           mf_plan_slab_units(p->state_bytes, p->recurrent_bytes) * p->recurrent_bytes;
}

/* Logits (those of a chunk in the making and of a mark too), tokens, and the table of pages.
 */
static uint64_t session_host_bytes(const mf_hparams *h, uint32_t n_context)
{
    return 4096 + 12 * (uint64_t)h->n_vocab + 8 * (uint64_t)n_context +
           (pages_of(n_context) + 1) * (sizeof(mf_span) + 2 * sizeof(void *));
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The widest row that a product reads. */
static uint64_t widest(const mf_hparams *h)
{
    uint64_t width = max_u64(h->hidden_size, max_u64(h->shared_hidden, h->dense_hidden));
    width = max_u64(width, max_u64(mf_query_width(h), mf_value_width(h)));
    return max_u64(width, max_u64(h->q_rank, (uint64_t)h->n_heads * h->value_head_dim));
}

/* A chunk's tokens in a form of the backend's own: hardly smaller than float32, and bounded. */
static uint64_t prepared_bytes(const mf_hparams *h, const char *device, uint64_t n_chunk)
{
    return mf_backend_host_bytes(device, n_chunk, widest(h));
}

static void plan_devices(const mf_hparams *h, const mf_plan_options *o, mf_plan *p)
{
    const mf_backend_sizes sizes = {.n_rows = o->n_chunk,
                                    .n_cols = widest(h),
                                    .may_be_mixed = o->precision != MF_PRECISION_F32,
                                    .n_sequences = o->n_sessions,
                                    .n_pages = (uint64_t)pages_of(o->n_context) * o->n_sessions};
    p->overhead_bytes = mf_backend_device_bytes(o->device, &sizes);
    p->driver_bytes = mf_backend_driver_bytes(o->device);
    if (!o->experts_apart)
        return;
    p->expert_overhead_bytes = mf_backend_device_bytes(o->expert_device, &sizes);
    p->driver_bytes += mf_backend_driver_bytes(o->expert_device);
}

static uint32_t logit_rows(uint32_t n_sessions)
{
    if (n_sessions < MF_LOGIT_ROWS)
        return MF_LOGIT_ROWS;
    return n_sessions > MF_LOGIT_ROWS_MAX ? MF_LOGIT_ROWS_MAX : n_sessions;
}

/* Host lists: ids, places, rows and tokens per pick; counts per expert; gathered rows and prepared
 * tokens of the backend; logits; and what sessions have. */
static uint64_t host_bytes(const mf_hparams *h, const mf_plan_options *o, const mf_plan *p)
{
    const uint64_t n = o->n_chunk, picks = n * o->k;
    const uint64_t routed = (uint64_t)h->n_moe_layers * (4 * MF_MAX_ROUTED_PICKS + 80);
    return picks * 16 + (uint64_t)h->n_experts * 64 + routed +
           n * (h->hidden_size + 2 * (uint64_t)h->n_v_heads + 1) * 4 + (uint64_t)h->n_vocab * 4 +
           o->n_sessions * p->session_host_bytes + prepared_bytes(h, o->device, n) +
           mf_foresight_bytes(h->n_moe_layers, h->n_experts) +
           MF_FORESIGHT_ROWS * 8 * (uint64_t)o->k +
           (o->experts_apart ? prepared_bytes(h, o->expert_device, n) : 0);
}

bool mf_plan_make(const mf_hparams *h, const mf_plan_options *o, mf_plan *out)
{
    const uint32_t n = o->n_chunk, k = o->k;
    mf_layout l = {.buffer = {MF_BUFFER_ACTIVATIONS}};
    mf_plan p = {.n_chunk = n,
                 .n_context = o->n_context,
                 .k = k,
                 .n_logit_rows = logit_rows(o->n_sessions),
                 .cache_type = o->cache_type};
    p.cos = take(&l, o->n_context, h->n_rot / 2);
    p.sin = take(&l, o->n_context, h->n_rot / 2);
    p.slot_numbers = take(&l, h->n_moe_layers, h->n_experts);
    p.found = take(&l, h->n_moe_layers, 2);
    p.x = take(&l, n, h->hidden_size);
    p.h = take(&l, n, h->hidden_size);
    p.y = take(&l, n, h->hidden_size);
    p.last = take(&l, p.n_logit_rows, h->hidden_size);
    p.logits = take(&l, p.n_logit_rows, h->n_vocab);
    p.ids = take(&l, n, k);
    p.routed_ids = take(&l, h->n_moe_layers, MF_MAX_ROUTED_PICKS);
    p.weights = take(&l, n, k);
    p.router = take(&l, n, h->n_experts);
    p.shared_router = take(&l, n, 1);
    plan_kinds(h, o, &l, &p);
    plan_mlp(h, o->experts_apart, &l, &p);
    p.act_bytes = l.high;
    bool fits = mf_plan_state(h, o, NULL, &p.page_bytes, &p.recurrent_bytes) &&
                plan_sessions(o->n_sessions, &p);
    p.session_host_bytes = session_host_bytes(h, o->n_context);
    p.host_bytes = host_bytes(h, o, &p);
    plan_devices(h, o, &p);
    *out = p;
    return !l.overflow && fits;
}

bool mf_plan_state(const mf_hparams *h, const mf_plan_options *o, mf_layer_state *states,
                   uint64_t *page_bytes, uint64_t *recurrent_bytes)
{
    mf_layout page = {0}, recurrent = {0};
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const mf_state_shape shape = o->kinds[h->layer_kind[i]]->state(h, o->cache_type);
        mf_layer_state s = {.is_recurrent = shape.is_recurrent};
        mf_layout *l = s.is_recurrent ? &recurrent : &page;
        for (int j = 0; j < 2; j++) {
            s.offset[j] = mf_layout_take(l, shape.rows[j], shape.cols[j], shape.type).offset;
            s.n_bytes[j] = shape.cols[j] * mf_dtype_bytes(shape.type);
            if (s.is_recurrent)
                s.n_bytes[j] *= shape.rows[j];
        }
        if (states != NULL)
            states[i] = s;
    }
    *page_bytes = mf_round_up(page.used, ALIGN);
    *recurrent_bytes = mf_round_up(recurrent.used, ALIGN);
    return !page.overflow && !recurrent.overflow;
}
