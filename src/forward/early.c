/* SPDX-License-Identifier: MIT */
/*
 * The next token's commands, recorded while the device does this one's. But for its token the next
 * batch of a sequence that is decoded is known before: a position further, the states in each
 * other's place. So where a batch records without waiting, what comes after it is recorded, too,
 * and kept by the backend (begin_early); when the batch that was foreseen comes, it is handed over
 * with its tokens, and the device has all of it in one piece at once. Any other batch is recorded
 * as ever. What was foreseen is compared with what comes, list by list, so that nobody need tell of
 * a change.
 */
#include "forward/forward.h"

#include <string.h>

static size_t parts_bytes(uint32_t n_sequences)
{
    return n_sequences * sizeof(mf_batch_part);
}

static size_t most_pages(const mf_runner *r, uint32_t n_sequences)
{
    return (size_t)mf_plan_table_pages(&r->plan, n_sequences);
}

static bool can(const mf_runner *r)
{
    bool needs_tokens = false; /* elsewhere than in the embedding */
    for (uint32_t i = 0; i < r->h.n_layers; i++)
        needs_tokens |= r->h.is_hashed[i];
    return r->backend->ops->begin_early != NULL && !needs_tokens;
}

size_t mf_early_bytes(const mf_runner *r, uint32_t n_sequences)
{
    if (!can(r))
        return 0;
    return parts_bytes(n_sequences) + most_pages(r, n_sequences) * sizeof(mf_span) + 2 * 64;
}

void mf_early_open(mf_runner *r, uint32_t n_sequences)
{
    mf_early *e = &r->early;
    if (!can(r))
        return;
    e->parts = mf_arena_take(&r->arena, parts_bytes(n_sequences));
    e->pages = mf_arena_take(&r->arena, most_pages(r, n_sequences) * sizeof(mf_span));
    e->most_parts = n_sequences;
    e->most_pages = most_pages(r, n_sequences);
    e->is_on = e->pages != NULL;
}

/* ------------------------------------------------------------------------------- foreseeing -- */

bool mf_early_is_on(const mf_runner *r)
{
    return r->early.is_on && r->tap == NULL && r->inputs == NULL && r->foresight == NULL;
}

/* Nobody follows it from layer to layer, but for its progress. */
static bool is_plain_batch(const mf_runner *r, const mf_batch *batch)
{
    const mf_batch_watch *w = batch->watch;
    bool is = mf_early_is_on(r) && w->trace == NULL && w->each == NULL && !batch->keeps_hidden &&
              batch->n_parts != 0 && batch->n_parts <= r->early.most_parts &&
              batch->n_parts <= r->plan.n_logit_rows;
    for (uint32_t i = 0; i < batch->n_parts && is; i++)
        is = mf_batch_part_is_plain(&batch->parts[i]);
    return is;
}

/* Of all layers the experts are chosen on the device, among those that it holds. */
static bool is_all_routed(const mf_runner *r)
{
    return r->routed.n_routed == r->h.n_moe_layers && r->n_long_rows == 0 && !mf_ahead_is_open(r) &&
           !mf_relay_is_open(r) && !r->split.is_on &&
           (r->store == NULL || r->routed.n_given_up == mf_expert_store_n_given_up(r->store));
}

/* Puts the list among those that are kept; false: there are too many. */
static bool keep_pages(mf_early *e, const mf_span **pages, uint32_t n)
{
    if (*pages == NULL)
        return true;
    if (n > e->most_pages - e->n_pages)
        return false;
    memcpy(e->pages + e->n_pages, *pages, n * sizeof **pages);
    *pages = e->pages + e->n_pages;
    e->n_pages += n;
    return true;
}

/* The batch after this one. */
static bool foresee(mf_runner *r, const mf_batch *batch)
{
    mf_early *e = &r->early;
    const mf_batch_watch *w = batch->watch;
    e->n_parts = 0;
    e->n_pages = 0;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        mf_batch_part *part = &e->parts[e->n_parts++];
        if (w->foresee == NULL || !w->foresee(w->ctx, i, part) || !mf_batch_part_is_plain(part))
            return false;
        const uint32_t n_pages = mf_pages_of(part->position + part->n_rows);
        if (!keep_pages(e, &part->pages, n_pages) || !keep_pages(e, &part->window_pages, n_pages))
            return false;
    }
    return true;
}

/* -------------------------------------------------------------------------------- recording -- */

/* All of the layers of the batch at hand are. */
static void note_all_routed(mf_runner *r)
{
    for (uint32_t i = 0; i < r->h.n_moe_layers; i++)
        r->routed.was_routed[i] = true;
    r->routed.n_routed = r->h.n_moe_layers;
}

void mf_early_record(mf_runner *r, const mf_batch *batch)
{
    static const mf_batch_watch nobody = {0};
    mf_early *e = &r->early;
    e->is_kept = false;
    if (!is_plain_batch(r, batch) || !is_all_routed(r) || !foresee(r, batch) ||
        !r->backend->ops->begin_early(r->backend))
        return;
    const mf_stage before = mf_profile_enter(r->profile, MF_STAGE_DEVICE);
    const uint64_t n_fma = r->n_multiply_adds, n_bytes = r->state_bytes_touched;
    const uint64_t n_given_up = r->routed.n_given_up;
    const mf_batch next = {
        .parts = e->parts, .n_parts = e->n_parts, .n_rows = e->n_parts, .watch = &nobody};
    const bool is_whole = mf_forward_record(r, &next, NULL) == MF_OK && is_all_routed(r) &&
                          r->routed.n_given_up == n_given_up;
    e->is_kept = r->backend->ops->end_early(r->backend) && is_whole;
    e->n_multiply_adds = r->n_multiply_adds - n_fma;
    e->state_bytes_touched = r->state_bytes_touched - n_bytes;
    r->n_multiply_adds = n_fma;
    r->state_bytes_touched = n_bytes;
    note_all_routed(r);
    mf_forward_want(r, batch);
    (void)mf_profile_enter(r->profile, before);
}

/* ----------------------------------------------------------------------------------- taking -- */

static bool same_span(mf_span a, mf_span b)
{
    return a.buffer.id == b.buffer.id && a.offset == b.offset;
}

static bool same_pages(const mf_span *a, const mf_span *b, uint32_t n)
{
    bool is_same = (a == NULL) == (b == NULL);
    for (uint32_t i = 0; i < n && is_same && a != NULL; i++)
        is_same = same_span(a[i], b[i]);
    return is_same;
}

static bool same_part(const mf_batch_part *a, const mf_batch_part *b)
{
    const uint32_t n_pages = mf_pages_of(a->position + a->n_rows);
    return a->position == b->position && same_span(a->state[0], b->state[0]) &&
           same_span(a->state[1], b->state[1]) && a->logits == b->logits &&
           a->bounds == b->bounds && same_span(a->shared_logits, b->shared_logits) &&
           same_pages(a->pages, b->pages, n_pages) &&
           same_pages(a->window_pages, b->window_pages, n_pages);
}

static bool is_foreseen(const mf_runner *r, const mf_batch *batch)
{
    const mf_early *e = &r->early;
    bool is = batch->n_parts == e->n_parts && is_plain_batch(r, batch) && is_all_routed(r);
    for (uint32_t i = 0; i < batch->n_parts && is; i++)
        is = same_part(&batch->parts[i], &e->parts[i]);
    return is;
}

bool mf_early_take(mf_runner *r, const mf_batch *batch)
{
    mf_early *e = &r->early;
    if (!e->is_kept)
        return false;
    e->is_kept = false;
    if (!is_foreseen(r, batch))
        return false;
    for (uint32_t i = 0; i < batch->n_parts; i++)
        r->row_tokens[i] = batch->parts[i].tokens[0];
    if (!r->backend->ops->take_early(r->backend, r->row_tokens, batch->n_parts))
        return false;
    e->n_taken++;
    r->n_multiply_adds += e->n_multiply_adds;
    r->state_bytes_touched += e->state_bytes_touched;
    r->n_reported = 0;
    mf_forward_want(r, batch);
    return true;
}
