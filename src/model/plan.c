/* SPDX-License-Identifier: MIT */
/* Memory layouts. */
#include "model/plan.h"

#include "base/cache_rows.h"
#include "base/checked.h"
#include "experts/foresight.h"

#include <string.h>

#define ALIGN ((uint64_t)64)

static mf_span take_bytes(mf_layout *l, uint64_t n_rows, uint64_t n_cols, uint64_t value_bytes)
{
    uint64_t n, at = mf_round_up(l->used, ALIGN);
    mf_span span = {l->buffer, at};
    if (!mf_mul_u64(n_rows, n_cols, &n) || !mf_mul_u64(n, value_bytes, &n) ||
        !mf_add_u64(at, n, &l->used) || l->used > UINT64_MAX / 4)
        l->overflow = true;
    l->high = l->used > l->high ? l->used : l->high;
    return span;
}

mf_span mf_layout_take(mf_layout *l, uint64_t n_rows, uint64_t n_cols)
{
    return take_bytes(l, n_rows, n_cols, sizeof(float));
}

/* Each kind that the model has, all over the same bytes. */
static void plan_kinds(const mf_hparams *h, const mf_plan_options *o, mf_layout *l, mf_plan *p)
{
    const uint64_t shared_from = l->used;
    bool is_planned[MF_N_LAYER_KINDS] = {false};
    for (uint32_t i = 0; i < mf_all_layers(h); i++) {
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
static void plan_experts(const mf_hparams *h, const mf_plan_options *o, mf_layout *l, mf_plan *p)
{
    const bool are_apart = o->experts_apart;
    const uint64_t n = p->n_chunk, picks = n * p->k;
    mf_layout apart = {.buffer = {MF_BUFFER_ACTIVATIONS}};
    p->expert_act = mf_layout_take(are_apart ? &apart : l, picks, 2 * (uint64_t)h->expert_hidden);
    p->expert_out = mf_layout_take(l, picks, h->hidden_size);
    p->expert_x = are_apart ? mf_layout_take(&apart, n, h->hidden_size) : p->moe_x;
    p->expert_y = are_apart ? mf_layout_take(&apart, picks, h->hidden_size) : p->expert_out;
    if (are_apart) {
        p->expert_weights = mf_layout_take(&apart, n, p->k);
        p->expert_sum = mf_layout_take(&apart, n, h->hidden_size);
    }
    if (o->experts_lent)
        p->lent_act = mf_layout_take(l, picks, 2 * (uint64_t)h->expert_hidden);
    p->expert_act_bytes = apart.high;
    l->overflow |= apart.overflow;
}

static void plan_mlp(const mf_hparams *h, const mf_plan_options *o, mf_layout *l, mf_plan *p)
{
    uint64_t n = p->n_chunk;
    uint32_t hidden = h->shared_hidden > h->dense_hidden ? h->shared_hidden : h->dense_hidden;
    p->mlp_gate = mf_layout_take(l, n, hidden);
    p->mlp_up = mf_layout_take(l, n, hidden);
    p->mlp_out = mf_layout_take(l, n, h->hidden_size);
    plan_experts(h, o, l, p);
}

static uint64_t pages_of(uint64_t n_tokens)
{
    return (n_tokens + MF_PAGE_TOKENS - 1) / MF_PAGE_TOKENS;
}

/* Recurrent states that a session holds: its own, the next one, a mark's. */
#define STATES_A_SESSION 3
/* The least context that each session beside the first has room for, where nothing is asked for. */
#define SHARED_CONTEXT 256

/* Positions are counted from the one that a row at `position` may still see; backends read from a
 * multiple of MF_WINDOW_PAGES on. */
static uint32_t window_page(uint64_t window, uint64_t position)
{
    const uint64_t first = position + 1 > window ? position + 1 - window : 0;
    return (uint32_t)(first / MF_PAGE_TOKENS / MF_WINDOW_PAGES * MF_WINDOW_PAGES);
}

uint32_t mf_window_first(uint32_t window, uint64_t position)
{
    return window_page(window, position);
}

uint32_t mf_window_kept(uint32_t window, uint64_t position)
{
    return window_page((uint64_t)window + MF_WINDOW_SLACK, position);
}

/* Pages of windows that a session of so many positions holds at most, its newest mark included. */
static uint64_t window_pages(const mf_plan *p, uint64_t n_context)
{
    const uint64_t kept = (uint64_t)p->window + MF_WINDOW_SLACK + MF_WINDOW_PAGES * MF_PAGE_TOKENS;
    const uint64_t all = pages_of(n_context) + 1;
    const uint64_t n = pages_of(kept + p->n_chunk) + 1 + pages_of(kept) + 1;
    return p->window_bytes == 0 ? 0 : n < all ? n : all;
}

/* The state of one session of so many positions. */
static bool one_session(const mf_plan *p, uint32_t n_draft, uint64_t n_context, uint64_t *out)
{
    uint64_t window, recurrent;
    /* a page more: the last one may be shared with a mark */
    return mf_mul_u64(pages_of(n_context) + 1, p->page_bytes, out) &&
           mf_mul_u64(window_pages(p, n_context), p->window_bytes, &window) &&
           mf_mul_u64(STATES_A_SESSION + n_draft, p->recurrent_bytes, &recurrent) &&
           mf_add_u64(*out, window, out) && mf_add_u64(*out, recurrent, out);
}

/* One session of the full context; the others of an eighth, but at least SHARED_CONTEXT. */
static bool plan_sessions(uint32_t n_sessions, uint32_t n_draft, mf_plan *p)
{
    uint64_t others, other = p->n_context / 8;
    other = other < SHARED_CONTEXT ? SHARED_CONTEXT : other;
    other = other > p->n_context ? p->n_context : other;
    if (!one_session(p, n_draft, p->n_context, &p->session_bytes) ||
        !one_session(p, n_draft, other, &others) || !mf_mul_u64(others, n_sessions - 1, &others) ||
        !mf_add_u64(p->session_bytes, others, &p->state_bytes))
        return false;
    if (p->window_bytes != 0 && mf_window_first(p->window, p->n_context) != 0)
        p->mark_window_bytes =
            (pages_of((uint64_t)p->window + MF_WINDOW_SLACK) + MF_WINDOW_PAGES) * p->window_bytes;
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
           mf_plan_slab_units(p->state_bytes, p->window_bytes) * p->window_bytes +
           mf_plan_slab_units(p->state_bytes, p->recurrent_bytes) * p->recurrent_bytes;
}

/* Where a layer keeps what it keeps of positions or sequences, in units that are laid out. */
static mf_layer_state layer_state(const mf_hparams *h, const mf_plan_options *o, uint32_t layer,
                                  mf_layout units[MF_N_UNIT_KINDS])
{
    const mf_state_shape shape = o->kinds[h->layer_kind[layer]]->state(h, layer, o->cache_type);
    mf_layer_state s = {.offset = {0}};
    for (int j = 0; j < MF_MOST_KEPT; j++) {
        const mf_kept *kept = &shape.kept[j];
        const uint64_t n_heads = kept->n_heads == 0 ? 1 : kept->n_heads;
        s.unit[j] = kept->unit;
        s.n_bytes[j] = mf_cache_row_bytes(kept->type, n_heads, kept->cols / n_heads);
        s.offset[j] = take_bytes(&units[kept->unit], kept->rows, s.n_bytes[j], 1).offset;
        s.n_rows[j] = kept->rows;
    }
    return s;
}

static void plan_draft(const mf_hparams *h, const mf_plan_options *o, mf_layout *l, mf_plan *p)
{
    mf_draft_plan *d = &p->draft;
    mf_layout units[MF_N_UNIT_KINDS] = {{{0}, 0, 0, false}};
    if (h->n_draft_layers == 0)
        return;
    l->used = l->high; /* none of it is shared */
    const uint32_t context = o->n_context < MF_DRAFT_CONTEXT ? o->n_context : MF_DRAFT_CONTEXT;
    (void)layer_state(h, o, h->n_layers, units);
    d->n_tokens = o->n_draft;
    d->n_sources = o->n_chunk + o->n_sessions * (o->n_draft + 1);
    d->n_pages = (uint32_t)pages_of(context);
    /* it keeps all positions or a window's, in pages of one kind */
    d->page_bytes = mf_round_up(units[MF_UNIT_PAGE].used + units[MF_UNIT_WINDOW].used, ALIGN);
    d->source = mf_layout_take(
        l, 1, (uint64_t)o->n_chunk * h->hidden_size + (uint64_t)d->n_sources * mf_draft_width(h));
    d->in = mf_layout_take(l, o->n_chunk,
                           (uint64_t)(h->n_streams > 2 ? h->n_streams : 2) * h->hidden_size);
    d->cache =
        mf_layout_take(l, (uint64_t)o->n_sessions * d->n_pages, d->page_bytes / sizeof(float));
}

/* Of what a session evaluates ahead: logits, states, and its draft's pages. */
static uint64_t session_draft_bytes(const mf_hparams *h, const mf_plan *p)
{
    const uint64_t n = p->draft.n_tokens + 1;
    if (p->draft.n_tokens == 0)
        return 0;
    return 4096 + n * 4 * (h->n_vocab + 2 * (uint64_t)mf_draft_width(h)) +
           p->draft.n_pages * sizeof(mf_span);
}

/* Logits (those of a chunk in the making and of a mark too) and bounds, tokens, and the tables of
 * pages. */
static uint64_t session_host_bytes(const mf_hparams *h, uint32_t n_context)
{
    return 4096 + 12 * (uint64_t)h->n_vocab + 8 * (uint64_t)mf_finite_blocks(h->n_vocab) +
           8 * (uint64_t)n_context +
           2 * (pages_of(n_context) + 1) * (sizeof(mf_span) + 2 * sizeof(void *));
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The widest row that a product reads. */
static uint64_t widest(const mf_hparams *h)
{
    const uint64_t inner = (1 + h->n_draft_layers) * (uint64_t)h->hidden_size;
    uint64_t width = max_u64(inner, max_u64(h->shared_hidden, h->dense_hidden));
    width = max_u64(width, max_u64(mf_query_width(h), mf_value_width(h)));
    width = max_u64(width, (uint64_t)h->o_groups * h->o_rank);
    width = max_u64(width, (uint64_t)h->n_streams * h->hidden_size);
    return max_u64(width, max_u64(h->q_rank, (uint64_t)h->n_heads * h->value_head_dim));
}

/* A chunk's tokens in a form of the backend's own: hardly smaller than float32, and bounded. */
static uint64_t prepared_bytes(const mf_hparams *h, const char *device, uint64_t n_chunk)
{
    return mf_backend_host_bytes(device, n_chunk, widest(h));
}

uint64_t mf_plan_table_pages(const mf_plan *p, uint32_t n_sessions)
{
    return pages_of(p->n_context) * n_sessions * (p->window_bytes != 0 ? 2 : 1);
}

static void plan_devices(const mf_hparams *h, const mf_plan_options *o, mf_plan *p)
{
    const mf_backend_sizes sizes = {.n_rows = o->n_chunk,
                                    .n_cols = widest(h),
                                    .may_be_mixed = o->precision != MF_PRECISION_F32,
                                    .n_sequences = o->n_sessions,
                                    .n_pages = mf_plan_table_pages(p, o->n_sessions)};
    p->overhead_bytes = mf_backend_device_bytes(o->device, &sizes);
    p->driver_bytes = mf_backend_driver_bytes(o->device, o->n_threads);
    if (!o->experts_apart)
        return;
    p->expert_overhead_bytes = mf_backend_device_bytes(o->expert_device, &sizes);
    p->driver_bytes += mf_backend_driver_bytes(o->expert_device, o->n_threads);
}

static uint32_t logit_rows(uint32_t n_sessions)
{
    if (n_sessions < MF_LOGIT_ROWS)
        return MF_LOGIT_ROWS;
    return n_sessions > MF_LOGIT_ROWS_MAX ? MF_LOGIT_ROWS_MAX : n_sessions;
}

static bool is_on_cpu(const mf_plan_options *o)
{
    return strcmp(mf_backend_device(o->device), mf_backend_device(NULL)) == 0;
}

#define EARLY_PART_BYTES ((uint64_t)256) /* of a sequence's part of a batch, at most */

/* The batch that a device's commands are recorded early for, and its pages. */
static uint64_t early_bytes(const mf_plan_options *o, const mf_plan *p)
{
    if (is_on_cpu(o))
        return 0;
    return o->n_sessions * EARLY_PART_BYTES +
           mf_plan_table_pages(p, o->n_sessions) * sizeof(mf_span);
}

/* Host lists: ids, places, rows and tokens per pick; counts per expert; gathered rows and prepared
 * tokens of the backend; logits; and what sessions have. */
static uint64_t host_bytes(const mf_hparams *h, const mf_plan_options *o, const mf_plan *p)
{
    const uint64_t n = o->n_chunk, picks = n * o->k;
    const uint64_t routed = (uint64_t)h->n_moe_layers * (4 * MF_MAX_ROUTED_PICKS + 80);
    return picks * 16 + (uint64_t)h->n_experts * 72 + routed +
           n * (h->hidden_size + 2 * (uint64_t)h->n_v_heads + 1 + h->n_streams) * 4 +
           (uint64_t)h->n_vocab * 4 + (uint64_t)p->n_logit_rows * mf_finite_blocks(h->n_vocab) * 4 +
           o->n_sessions * p->session_host_bytes + prepared_bytes(h, o->device, n) +
           mf_foresight_bytes(h->n_moe_layers, h->n_experts) +
           MF_FORESIGHT_DEPTH * MF_FORESIGHT_ROWS * 8 * (uint64_t)o->k +
           (p->draft.n_tokens != 0 ? 8 * n : 0) + early_bytes(o, p) +
           (o->experts_apart ? prepared_bytes(h, o->expert_device, n) : 0);
}

/* Of what rows see, side by side: a device with few rows at a time is idle. */
#define GATHERED_BYTES ((uint64_t)8 << 20)
#define DEVICE_GATHERED_BYTES ((uint64_t)64 << 20)

/* Rows that are held at a time, of n floats each. */
static uint32_t held_rows(const mf_plan_options *o, uint64_t n)
{
    const uint64_t most = (is_on_cpu(o) ? GATHERED_BYTES : DEVICE_GATHERED_BYTES) / sizeof(float);
    const uint64_t n_held = most / n;
    return n_held == 0 ? 1 : n_held > o->n_chunk ? o->n_chunk : (uint32_t)n_held;
}

/* What attention to chosen positions gathers, and the scores that they are chosen by; the CPU has
 * one row at a time. */
static void plan_chosen(const mf_hparams *h, const mf_plan_options *o, mf_layout *l, mf_plan *p)
{
    if (!h->is_indexed || h->attended_window != 0)
        return;
    const uint64_t n_rows = pages_of(h->index_most) * MF_PAGE_TOKENS;
    const uint64_t n_gathered = n_rows * mf_latent_width(h), n_scores = 2 * (uint64_t)o->n_context;
    p->n_at_once = is_on_cpu(o) ? 1 : held_rows(o, n_gathered + n_scores);
    p->gathered = mf_layout_take(l, p->n_at_once, n_gathered);
    p->index_scores = mf_layout_take(l, p->n_at_once, n_scores);
}

/* What attention to entries gathers, and the scores of those that it chooses of. */
static void plan_entries(const mf_hparams *h, const mf_plan_options *o, mf_layout *l, mf_plan *p)
{
    uint64_t most = 0, n_rows = 0, n_scores = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const uint32_t rate = h->entry_rate[i], n = rate != 0 ? p->n_context / rate : 0;
        const bool is_chosen = h->is_indexed && h->entries_overlap[i];
        if (h->layer_kind[i] != MF_LAYER_ENTRIES)
            continue;
        n_rows =
            max_u64(n_rows, mf_entry_rows(h->attended_window, n, is_chosen ? h->index_most : 0));
        n_scores = max_u64(n_scores, is_chosen ? 2 * (uint64_t)n : 0);
        most = max_u64(most, n);
    }
    if (n_rows == 0)
        return;
    p->n_at_once = held_rows(o, n_rows * (h->head_dim + 1) + n_scores);
    p->n_entries = (uint32_t)most;
    p->entry_cos = mf_layout_take(l, p->n_context, mf_rotated_pairs(h));
    p->entry_sin = mf_layout_take(l, p->n_context, mf_rotated_pairs(h));
    p->gathered = mf_layout_take(l, p->n_at_once, n_rows * (h->head_dim + 1));
    if (n_scores != 0)
        p->index_scores = mf_layout_take(l, p->n_at_once, n_scores);
}

static void plan_streams(const mf_hparams *h, mf_layout *l, mf_plan *p)
{
    const uint64_t n = h->n_streams, width = n * h->hidden_size;
    if (n == 0)
        return;
    p->streams = mf_layout_take(l, p->n_chunk, width);
    p->last_streams = mf_layout_take(l, p->n_logit_rows, width);
    p->mixes =
        mf_layout_take(l, p->n_chunk > p->n_logit_rows ? p->n_chunk : p->n_logit_rows, (2 + n) * n);
    p->gates = mf_layout_take(l, p->n_chunk, n + n * n);
}

static void plan_constants(const mf_hparams *h, bool experts_apart, mf_layout *l, mf_plan *p)
{
    const bool scales = h->router.scales_input, grows = h->query_growth != 0;
    const uint64_t n_norm = h->has_unit_norms || h->attended_window != 0 ? h->head_dim : 0;
    const uint64_t n_sums = experts_apart ? p->n_chunk : 0; /* of a row each, weighted already */
    const uint64_t n_weights = scales ? (uint64_t)p->n_chunk * p->k : n_sums;
    p->n_ones = n_norm > n_weights ? n_norm : n_weights;
    if (p->n_ones != 0)
        p->ones = mf_layout_take(l, 1, p->n_ones);
    if (scales || h->n_streams != 0)
        p->zeros = mf_layout_take(l, 1, h->hidden_size);
    if (grows) {
        p->growth = mf_layout_take(l, 1, p->n_context);
        p->no_sin = mf_layout_take(l, 1, p->n_context);
    }
}

/* Of experts that are lent. */
#define LENT_BYTES ((uint64_t)256 << 20)
#define LENT_LEAST 16
#define LENT_MOST 128

uint32_t mf_plan_lent_slots(const mf_plan *p, uint64_t slot_bytes)
{
    if (!mf_plan_lends(p) || slot_bytes == 0)
        return 0;
    const uint64_t n = LENT_BYTES / slot_bytes;
    return n < LENT_LEAST ? LENT_LEAST : n > LENT_MOST ? LENT_MOST : (uint32_t)n;
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
    p.n_given = o->experts_lent ? o->n_given : 0;
    p.cos = mf_layout_take(&l, o->n_context, mf_rotated_pairs(h));
    p.sin = mf_layout_take(&l, o->n_context, mf_rotated_pairs(h));
    p.slot_numbers = mf_layout_take(&l, h->n_moe_layers, h->n_experts);
    p.found = mf_layout_take(&l, h->n_moe_layers, 2);
    plan_constants(h, o->experts_apart, &l, &p);
    plan_chosen(h, o, &l, &p);
    plan_entries(h, o, &l, &p);
    plan_streams(h, &l, &p);
    p.x = mf_layout_take(&l, n, h->hidden_size);
    p.h = mf_layout_take(&l, n, h->hidden_size);
    p.y = mf_layout_take(&l, n, h->hidden_size);
    p.moe_x = h->router.scales_input ? mf_layout_take(&l, n, h->hidden_size) : p.h;
    p.last = mf_layout_take(&l, p.n_logit_rows, h->hidden_size);
    p.logits = mf_layout_take(&l, p.n_logit_rows, h->n_vocab);
    p.bounds = mf_layout_take(&l, p.n_logit_rows, mf_finite_blocks(h->n_vocab));
    p.ids = mf_layout_take(&l, n, k);
    p.routed_ids = mf_layout_take(&l, h->n_moe_layers, MF_MAX_ROUTED_PICKS);
    p.weights = mf_layout_take(&l, n, k);
    p.router = mf_layout_take(&l, n, h->n_experts);
    p.shared_router = mf_layout_take(&l, n, 1);
    plan_kinds(h, o, &l, &p);
    plan_mlp(h, o, &l, &p);
    plan_draft(h, o, &l, &p);
    p.act_bytes = l.high;
    bool fits = mf_plan_state(h, o, NULL, &p) && plan_sessions(o->n_sessions, o->n_draft, &p);
    p.session_host_bytes = session_host_bytes(h, o->n_context) + session_draft_bytes(h, &p);
    p.host_bytes = host_bytes(h, o, &p);
    plan_devices(h, o, &p);
    *out = p;
    return !l.overflow && fits;
}

bool mf_plan_state(const mf_hparams *h, const mf_plan_options *o, mf_layer_state *states,
                   mf_plan *plan)
{
    mf_layout units[MF_N_UNIT_KINDS] = {{{0}, 0, 0, false}};
    mf_layout of_draft[MF_N_UNIT_KINDS] = {{{0}, 0, 0, false}};
    plan->window = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const uint64_t before = units[MF_UNIT_WINDOW].used;
        const mf_layer_state s = layer_state(h, o, i, units);
        if (units[MF_UNIT_WINDOW].used != before && h->window[i] > plan->window)
            plan->window = h->window[i];
        if (states != NULL)
            states[i] = s;
    }
    if (states != NULL && h->n_draft_layers != 0)
        states[h->n_layers] = layer_state(h, o, h->n_layers, of_draft);
    plan->page_bytes = mf_round_up(units[MF_UNIT_PAGE].used, ALIGN);
    plan->window_bytes = mf_round_up(units[MF_UNIT_WINDOW].used, ALIGN);
    plan->recurrent_bytes = mf_round_up(units[MF_UNIT_RECURRENT].used, ALIGN);
    return !units[MF_UNIT_PAGE].overflow && !units[MF_UNIT_WINDOW].overflow &&
           !units[MF_UNIT_RECURRENT].overflow;
}
