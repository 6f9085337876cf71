/* SPDX-License-Identifier: MIT */
/* Memory layouts and the division of the budget. */
#include "model/plan.h"

#include "base/checked.h"
#include "base/memory_limits.h"

#define ALIGN ((uint64_t)64)
#define MIB ((uint64_t)1 << 20)
/* Regions are rounded to huge pages; the allocator, thread stacks and code not yet touched need a
 * little more. */
#define REGION_SLACK (4 * MIB)
#define PROCESS_SLACK (32 * MIB)
#define THREAD_SLACK (1 * MIB)
/* What is left to the rest of the machine where the user gives no budget. */
#define ROOM_MIN (512 * MIB)

typedef struct layout {
    uint64_t used, high;
    bool overflow;
} layout;

static mf_span take_values(layout *l, uint64_t n_rows, uint64_t n_cols, mf_dtype type)
{
    uint64_t n, at = mf_round_up(l->used, ALIGN);
    mf_span span = {{0}, at};
    if (!mf_mul_u64(n_rows, n_cols, &n) || !mf_mul_u64(n, mf_dtype_bytes(type), &n) ||
        !mf_add_u64(at, n, &l->used) || l->used > UINT64_MAX / 4)
        l->overflow = true;
    l->high = l->used > l->high ? l->used : l->high;
    return span;
}

static mf_span take(layout *l, uint64_t n_rows, uint64_t n_cols)
{
    return take_values(l, n_rows, n_cols, MF_F32);
}

static void plan_latent(const mf_hparams *h, layout *l, mf_plan *p)
{
    uint64_t n = p->n_chunk, rows = n < MF_LATENT_ROWS ? n : MF_LATENT_ROWS;
    p->q_low = take(l, n, h->q_rank);
    p->q = take(l, n, mf_query_width(h));
    p->kv = take(l, n, mf_latent_width(h));
    p->q_latent = take(l, rows, (uint64_t)h->n_heads * h->kv_rank);
    p->latent = take(l, rows, (uint64_t)h->n_heads * h->kv_rank);
    p->attn = take(l, n, (uint64_t)h->n_heads * h->value_head_dim);
}

static void plan_full(const mf_hparams *h, layout *l, mf_plan *p)
{
    p->q = take(l, p->n_chunk, mf_query_width(h));
    p->gate = take(l, p->n_chunk, mf_query_width(h));
    p->kv_k = take(l, p->n_chunk, mf_kv_width(h));
    p->kv_v = take(l, p->n_chunk, mf_kv_width(h));
    p->attn = take(l, p->n_chunk, mf_query_width(h));
}

static void plan_linear(const mf_hparams *h, layout *l, mf_plan *p)
{
    p->qkv = take(l, p->n_chunk, mf_conv_channels(h));
    p->z = take(l, p->n_chunk, mf_value_width(h));
    p->b = take(l, p->n_chunk, h->n_v_heads);
    p->a = take(l, p->n_chunk, h->n_v_heads);
    p->delta = take(l, p->n_chunk, mf_value_width(h));
}

static void plan_mlp(const mf_hparams *h, layout *l, mf_plan *p)
{
    uint64_t n = p->n_chunk, picks = n * p->k;
    uint32_t hidden = h->shared_hidden > h->dense_hidden ? h->shared_hidden : h->dense_hidden;
    p->mlp_gate = take(l, n, hidden);
    p->mlp_up = take(l, n, hidden);
    p->mlp_out = take(l, n, h->hidden_size);
    p->expert_act = take(l, picks, 2 * (uint64_t)h->expert_hidden);
    p->expert_out = take(l, picks, h->hidden_size);
}

static uint64_t pages_of(uint64_t n_tokens)
{
    return (n_tokens + MF_PAGE_TOKENS - 1) / MF_PAGE_TOKENS;
}

/* Recurrent states that a session holds: its own, the next one, a checkpoint's. */
#define STATES_A_SESSION 3
/* The least context that each session beside the first has room for, where nothing is asked for. */
#define SHARED_CONTEXT 256

/* One session of the full context; the others of an eighth, but at least SHARED_CONTEXT. */
static bool plan_sessions(uint32_t n_sessions, mf_plan *p)
{
    uint64_t each, others, other = p->n_context / 8;
    other = other < SHARED_CONTEXT ? SHARED_CONTEXT : other;
    other = other > p->n_context ? p->n_context : other;
    /* a page more: the last one may be shared with a checkpoint */
    if (!mf_mul_u64(pages_of(p->n_context) + 1, p->page_bytes, &p->session_bytes) ||
        !mf_mul_u64(STATES_A_SESSION, p->recurrent_bytes, &each) ||
        !mf_add_u64(p->session_bytes, each, &p->session_bytes) ||
        !mf_mul_u64(pages_of(other) + 1, p->page_bytes, &others) ||
        !mf_add_u64(others, each, &others) || !mf_mul_u64(others, n_sessions - 1, &others) ||
        !mf_add_u64(p->session_bytes, others, &p->state_bytes))
        return false;
    return p->state_bytes != 0 && p->state_bytes < UINT64_MAX / 4;
}

/* Logits (those of a chunk in the making and of a checkpoint too), tokens, and the table of pages.
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

/* A chunk's tokens in a form of the backend's own: hardly smaller than float32, and bounded. */
static uint64_t prepared_bytes(const mf_hparams *h, uint64_t n_chunk)
{
    uint64_t width = max_u64(h->hidden_size, max_u64(h->shared_hidden, h->dense_hidden));
    width = max_u64(width, max_u64(mf_query_width(h), mf_value_width(h)));
    width = max_u64(width, max_u64(h->q_rank, (uint64_t)h->n_heads * h->value_head_dim));
    uint64_t n_bytes = n_chunk * width * sizeof(float);
    return n_bytes < MF_PREPARED_BYTES_MAX ? n_bytes : MF_PREPARED_BYTES_MAX;
}

bool mf_plan_make(const mf_hparams *h, uint32_t n_chunk, uint32_t n_context, uint32_t k,
                  mf_dtype cache_type, uint32_t n_sessions, mf_plan *out)
{
    uint64_t n = n_chunk, picks = (uint64_t)n_chunk * k;
    layout l = {0};
    mf_plan p = {.n_chunk = n_chunk, .n_context = n_context, .k = k, .cache_type = cache_type};
    p.n_logit_rows = n_sessions < MF_LOGIT_ROWS       ? MF_LOGIT_ROWS
                     : n_sessions > MF_LOGIT_ROWS_MAX ? MF_LOGIT_ROWS_MAX
                                                      : n_sessions;
    p.cos = take(&l, n_context, h->n_rot / 2);
    p.sin = take(&l, n_context, h->n_rot / 2);
    p.x = take(&l, n, h->hidden_size);
    p.h = take(&l, n, h->hidden_size);
    p.y = take(&l, n, h->hidden_size);
    p.last = take(&l, p.n_logit_rows, h->hidden_size);
    p.logits = take(&l, p.n_logit_rows, h->n_vocab);
    p.ids = take(&l, n, k);
    p.weights = take(&l, n, k);
    p.router = take(&l, n, h->n_experts);
    p.shared_router = take(&l, n, 1);
    const uint64_t shared_from = l.used;
    if (h->kv_rank != 0) {
        plan_latent(h, &l, &p);
    } else {
        plan_full(h, &l, &p);
        l.used = shared_from;
        plan_linear(h, &l, &p);
    }
    l.used = shared_from;
    plan_mlp(h, &l, &p);
    p.act_bytes = l.high;
    bool fits = mf_plan_state(h, cache_type, NULL, &p.page_bytes, &p.recurrent_bytes) &&
                plan_sessions(n_sessions, &p);
    p.session_host_bytes = session_host_bytes(h, n_context);
    /* Host lists: ids, places, rows and tokens per pick; counts per expert; gathered rows and
     * prepared tokens of the backend; logits. */
    p.host_bytes = picks * 16 + (uint64_t)h->n_experts * 64 +
                   n * (h->hidden_size + 2 * (uint64_t)h->n_v_heads + 1) * 4 +
                   (uint64_t)h->n_vocab * 4 + n_sessions * p.session_host_bytes +
                   prepared_bytes(h, n);
    *out = p;
    return !l.overflow && fits;
}

void mf_plan_set_buffer(mf_plan *p, mf_buffer act)
{
    enum { N_SPANS = 30 };
    mf_span *const spans[N_SPANS] = {
        &p->cos,           &p->sin,     &p->x,          &p->h,          &p->y,
        &p->last,          &p->logits,  &p->ids,        &p->weights,    &p->router,
        &p->shared_router, &p->q,       &p->gate,       &p->kv_k,       &p->kv_v,
        &p->attn,          &p->qkv,     &p->z,          &p->b,          &p->a,
        &p->delta,         &p->q_low,   &p->kv,         &p->q_latent,   &p->latent,
        &p->mlp_up,        &p->mlp_out, &p->expert_act, &p->expert_out, &p->mlp_gate};
    for (size_t i = 0; i < N_SPANS; i++)
        spans[i]->buffer = act;
}

/* The two parts of a layer's state: rows, columns, type. */
typedef struct state_shape {
    uint64_t rows[2], cols[2];
    mf_dtype type;
} state_shape;

static state_shape shape_of(const mf_hparams *h, uint32_t layer, mf_dtype cache_type)
{
    const uint64_t n = MF_PAGE_TOKENS;
    if (h->layer_kind[layer] == MF_LAYER_LATENT)
        return (state_shape){{n, 0}, {mf_latent_width(h), 0}, cache_type};
    if (h->layer_kind[layer] == MF_LAYER_FULL)
        return (state_shape){{n, n}, {mf_kv_width(h), mf_kv_width(h)}, cache_type};
    return (state_shape){{h->conv_width - 1, h->n_v_heads},
                         {mf_conv_channels(h), (uint64_t)h->key_dim * h->value_dim},
                         MF_F32};
}

bool mf_plan_state(const mf_hparams *h, mf_dtype cache_type, mf_layer_state *states,
                   uint64_t *page_bytes, uint64_t *recurrent_bytes)
{
    layout page = {0}, recurrent = {0};
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const state_shape shape = shape_of(h, i, cache_type);
        mf_layer_state s = {.is_recurrent = h->layer_kind[i] == MF_LAYER_LINEAR};
        layout *l = s.is_recurrent ? &recurrent : &page;
        for (int j = 0; j < 2; j++) {
            s.offset[j] = take_values(l, shape.rows[j], shape.cols[j], shape.type).offset;
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

static uint64_t auto_ram(uint64_t held, uint64_t available)
{
    uint64_t room = available / 10 > ROOM_MIN ? available / 10 : ROOM_MIN;
    return held + (available > room ? available - room : 0);
}

void mf_budget_make(const mf_budget_request *r, mf_budget *out)
{
    uint64_t held = mf_memory_resident_bytes();
    mf_budget b = {.available_bytes = mf_memory_available_bytes()};
    /* State is taken by the slab (state_pool.h), each rounded up to huge pages. */
    b.fixed_bytes = held + r->resident_bytes + r->act_bytes + r->state_bytes + r->state_bytes / 16 +
                    r->host_bytes + 5 * REGION_SLACK + PROCESS_SLACK + r->n_threads * THREAD_SLACK;
    uint64_t per_slot = r->slot_bytes + r->slot_host_bytes;
    b.ram_bytes = r->ram_bytes != 0 ? r->ram_bytes : auto_ram(held, b.available_bytes);
    uint64_t wanted = r->n_experts_total;
    if (r->expert_cache_bytes != MF_EXPERT_CACHE_AUTO) {
        wanted = r->expert_cache_bytes / r->slot_bytes;
        wanted = wanted < r->n_slots_min ? r->n_slots_min : wanted;
        wanted = wanted > r->n_experts_total ? r->n_experts_total : wanted;
    }
    b.floor_bytes = b.fixed_bytes + r->n_slots_min * per_slot;
    if (b.ram_bytes >= b.floor_bytes) {
        uint64_t fit = (b.ram_bytes - b.fixed_bytes) / per_slot;
        b.n_slots = fit < wanted ? fit : wanted;
    }
    *out = b;
}
