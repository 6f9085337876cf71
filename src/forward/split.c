/* SPDX-License-Identifier: MIT */
/* The two halves, layer by layer, and whether it is worth it. */
#include "forward/forward.h"

#include "base/clock.h"

/* ---------------------------------------------------------------------------------- profit -- */

#define PASSES_A_RUN 8u
/* The way that was dearer is tried again after so many runs. */
#define RUNS_BETWEEN 16u
/* Less waiting than this part of the time is nothing to gain. */
#define WAITED_PART 0.05

static double cost_of(const mf_split_cost *c)
{
    return (double)c->n_us / (double)c->n_rows;
}

static bool waits(const mf_split_cost *c)
{
    return (double)c->wait_us >= WAITED_PART * (double)c->n_us;
}

void mf_split_profit_add(mf_split_profit *p, const mf_split_cost *pass)
{
    p->run.n_rows += pass->n_rows;
    p->run.n_us += pass->n_us;
    p->run.wait_us += pass->wait_us;
    if (++p->n_passes < PASSES_A_RUN)
        return;
    p->last[p->is_on] = p->run;
    p->run = (mf_split_cost){0};
    p->n_passes = 0;
    const bool is_other_known = p->last[!p->is_on].n_rows != 0;
    const bool may_gain = p->is_on || waits(&p->last[0]);
    if (may_gain && (!is_other_known || ++p->n_runs_since > RUNS_BETWEEN)) {
        p->is_on = !p->is_on;
        p->n_runs_since = 0;
        return;
    }
    p->is_on = is_other_known && may_gain && cost_of(&p->last[1]) < cost_of(&p->last[0]);
}

/* ------------------------------------------------------------------------------------- pass -- */

static bool can(const mf_runner *r, const mf_batch *batch)
{
    const mf_batch_watch *w = batch->watch;
    return batch->n_parts > 1 && batch->n_rows <= MF_SPLIT_ROWS && r->h.n_moe_layers > 0 &&
           !r->backend->ops->runs_later && !mf_experts_are_apart(r) && r->batch == NULL &&
           r->h.n_streams == 0 && r->tap == NULL && r->inputs == NULL && w->trace == NULL &&
           w->each == NULL;
}

static uint64_t waited_us(const mf_runner *r)
{
    mf_expert_stats s;
    mf_expert_store_stats(r->store, &s);
    return s.wait_us;
}

bool mf_split_begin(mf_runner *r, const mf_batch *batch)
{
    mf_split *s = &r->split;
    uint32_t size = 0;
    for (uint32_t n = batch->n_rows; n > 1 && size + 1 < MF_SPLIT_SIZES; n /= 2)
        size++;
    s->measured = s->mode != MF_SPLIT_NEVER && can(r, batch) ? &s->profit[size] : NULL;
    s->is_on = s->measured != NULL && (s->mode == MF_SPLIT_ALWAYS || s->measured->is_on);
    if (s->measured != NULL) {
        s->began_us = mf_now_us();
        s->waited_us = waited_us(r);
    }
    return s->is_on;
}

void mf_split_end(mf_runner *r, const mf_batch *batch, bool is_whole)
{
    mf_split *s = &r->split;
    if (s->measured != NULL && is_whole && s->mode == MF_SPLIT_AUTO)
        mf_split_profit_add(s->measured, &(mf_split_cost){.n_rows = batch->n_rows,
                                                          .n_us = mf_now_us() - s->began_us,
                                                          .wait_us = waited_us(r) - s->waited_us});
    s->n_split += s->is_on && is_whole;
    s->is_on = false;
    s->measured = NULL;
}

/* ----------------------------------------------------------------------------------- halves -- */

/* What of a half has to outlive the other's turn: its rows of the residual stream, of the layer's
 * input and of the router's choice. All else is used up within a turn. */
typedef struct half {
    mf_batch batch;
    mf_sequence *sequences;
    mf_span x, h, moe_x, weights, ids;
    mf_moe_lists lists;
    mf_expert_fetch *fetch; /* of the layer at hand; NULL: none is open */
    uint32_t n_wanted;
} half;

static void take_place(mf_runner *r, const half *s)
{
    mf_plan *p = &r->plan;
    p->x = s->x;
    p->h = s->h;
    p->moe_x = p->expert_x = s->moe_x;
    p->weights = s->weights;
    p->ids = s->ids;
    r->moe = s->lists;
}

static void enter(mf_runner *r, const half *s)
{
    take_place(r, s);
    r->at_hand = s->sequences;
    r->n_at_hand = s->batch.n_parts;
    r->backend->ops->begin_batch(r->backend, s->sequences, s->batch.n_parts);
}

/* The parts from `first` on, n of them, whose rows begin at `row`. */
static half make_half(mf_runner *r, const mf_batch *batch, uint32_t first, uint32_t n, uint32_t row)
{
    const mf_plan *p = &r->plan;
    const uint64_t wide = (uint64_t)row * r->h.hidden_size * sizeof(float);
    const uint64_t picks = (uint64_t)row * p->k;
    half s = {.batch = {.parts = batch->parts + first, .n_parts = n, .watch = batch->watch},
              .sequences = r->sequences + first,
              .x = mf_span_at(p->x, wide),
              .h = mf_span_at(p->h, wide),
              .moe_x = mf_span_at(p->moe_x, wide),
              .weights = mf_span_at(p->weights, picks * sizeof(float)),
              .ids = mf_span_at(p->ids, picks * sizeof(int32_t)),
              .lists = r->moe};
    for (uint32_t i = 0; i < n; i++) {
        s.batch.n_rows += s.batch.parts[i].n_rows;
        s.sequences[i].first_row -= row;
    }
    if (row == 0)
        return s;
    s.lists.ids += picks;
    s.lists.place += picks;
    s.lists.x_rows += picks;
    s.lists.first = r->split_lists;
    s.lists.wanted = r->split_lists + r->h.n_experts + 1;
    return s;
}

/* As many parts as have half of the rows, at least one and not all. */
static uint32_t first_parts(const mf_batch *batch, uint32_t *n_rows)
{
    uint32_t n = 0;
    *n_rows = 0;
    while (n + 1 < batch->n_parts && 2 * *n_rows < batch->n_rows)
        *n_rows += batch->parts[n++].n_rows;
    return n;
}

/* Up to the choice of a layer's experts, for which reads are sent. */
static mf_status choose(mf_runner *r, half *s, uint32_t layer, mf_error *error)
{
    enter(r, s);
    MF_TRY(mf_batch_check(&s->batch, error));
    mf_profile_layer(r->profile, layer);
    if (layer == 0) /* later ones find it made */
        mf_record_rmsnorm(r, s->batch.n_rows, r->plan.x, r->weights.layers[0].input_norm,
                          r->plan.h);
    mf_forward_attention(r, s->batch.n_rows, layer);
    if (!r->h.is_dense[layer])
        return mf_forward_choose(r, layer, s->batch.n_rows, &s->fetch, &s->n_wanted, error);
    mf_forward_mlp(r, layer, s->batch.n_rows);
    return MF_OK;
}

/* The rest of the layer. */
static mf_status multiply(mf_runner *r, half *s, uint32_t layer, mf_error *error)
{
    mf_expert_fetch *fetch = s->fetch;
    if (fetch == NULL)
        return MF_OK;
    enter(r, s);
    mf_profile_layer(r->profile, layer);
    s->fetch = NULL; /* it is ended there */
    return mf_forward_multiply(r, &s->batch, layer, fetch, s->n_wanted, error);
}

/* While one half's experts are read, the other has its turn. */
static mf_status run_halves(mf_runner *r, const mf_batch *batch, half both[2], mf_error *error)
{
    const int32_t *ids = both[0].lists.ids; /* those of the second half follow */
    MF_TRY(choose(r, &both[0], 0, error));
    for (uint32_t layer = 0; layer < r->h.n_layers; layer++) {
        MF_TRY(choose(r, &both[1], layer, error));
        if (r->foresight != NULL && !r->h.is_dense[layer])
            mf_foresight_chosen(r->foresight, r->h.moe_index[layer], ids);
        MF_TRY(multiply(r, &both[0], layer, error));
        if (layer + 1 < r->h.n_layers)
            MF_TRY(choose(r, &both[0], layer + 1, error));
        MF_TRY(multiply(r, &both[1], layer, error));
        mf_profile_layer(r->profile, r->h.n_layers);
        MF_TRY(mf_forward_report(r, batch, layer, error));
    }
    return MF_OK;
}

mf_status mf_split_layers(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    uint32_t n_rows;
    const uint32_t n = first_parts(batch, &n_rows);
    const half whole = make_half(r, batch, 0, batch->n_parts, 0);
    half both[2] = {make_half(r, batch, 0, n, 0),
                    make_half(r, batch, n, batch->n_parts - n, n_rows)};
    mf_status status = run_halves(r, batch, both, error);
    for (int i = 0; i < 2; i++)
        if (both[i].fetch != NULL)
            mf_expert_fetch_end(both[i].fetch, r->experts->ops->mark(r->experts));
    for (uint32_t i = 0; i < both[1].batch.n_parts; i++)
        both[1].sequences[i].first_row += n_rows;
    enter(r, &whole);
    return status;
}
