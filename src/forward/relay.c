/* SPDX-License-Identifier: MIT */
/*
 * Experts on a device of their own, for a few rows: decoding. Waiting for the router's choice, and
 * handing over what comes after the experts only once they are multiplied, leaves the dense layers'
 * device without work for longer than it computes. So its stream goes on by itself: it puts what
 * the router chose to words that are asked for here, and asks for the sum of the experts in others.
 * While it computes a layer's attention, what follows that layer's experts is recorded up to the
 * next layer's choice, and handed over before these experts are multiplied. So at most one layer
 * is waited for, and nothing needs the stream between its choice and its sum. The results are those
 * of the other way.
 */
#include "forward/forward.h"

#include "base/clock.h"

#include <sched.h>
#include <string.h>

/* Between two questions whether the device is still there. */
#define ASK_US 1000u
#define PATIENCE_US 500u

static mf_op to_host_op(const mf_runner *r, uint32_t n_rows)
{
    const mf_plan *p = &r->plan;
    return (mf_op){.kind = MF_OP_TO_HOST,
                   .n_rows = n_rows,
                   .u.to_host = {.arrays = {p->ids, p->weights, p->moe_x},
                                 .n_cols = {p->k, p->k, r->h.hidden_size},
                                 .words = r->relay.there_span,
                                 .number = r->relay.number}};
}

static mf_op from_host_op(const mf_runner *r, uint32_t n_rows)
{
    return (mf_op){.kind = MF_OP_FROM_HOST,
                   .n_rows = n_rows,
                   .u.from_host = {.words = r->relay.back_span,
                                   .late = r->relay.late_span,
                                   .out = r->plan.expert_out,
                                   .n_cols = r->h.hidden_size,
                                   .number = r->relay.number}};
}

static mf_status make_words(mf_runner *r, mf_buffer_use use, uint64_t n_bytes, mf_span *span,
                            mf_host_word **words, mf_error *error)
{
    MF_TRY(r->backend->ops->buffer_create(r->backend, n_bytes, use, "rows on their way",
                                          &span->buffer, error));
    *words = (mf_host_word *)(void *)r->backend->ops->buffer_host(r->backend, span->buffer);
    memset((void *)*words, 0, n_bytes);
    return MF_OK;
}

static mf_status make_all_words(mf_runner *r, mf_error *error)
{
    mf_relay *relay = &r->relay;
    const uint64_t there = mf_plan_relay_there_bytes(&r->plan, &r->h);
    MF_TRY(make_words(r, MF_USE_HOST, there + sizeof(mf_host_word), &relay->there_span,
                      &relay->there, error));
    relay->late_span = mf_span_at(relay->there_span, there);
    relay->late = (uint32_t *)(void *)(relay->there + there / sizeof(mf_host_word));
    return make_words(r, MF_USE_SHARED, mf_plan_relay_back_bytes(&r->h), &relay->back_span,
                      &relay->back, error);
}

/* No word has a number that comes again. */
static void begin_numbers(mf_runner *r)
{
    memset((void *)r->relay.there, 0, mf_plan_relay_there_bytes(&r->plan, &r->h));
    memset((void *)r->relay.back, 0, mf_plan_relay_back_bytes(&r->h));
    r->relay.number = 0;
}

mf_status mf_relay_prepare(mf_runner *r, mf_error *error)
{
    const mf_op there = to_host_op(r, MF_RELAY_ROWS), back = from_host_op(r, MF_RELAY_ROWS);
    r->relay.is_on = mf_experts_are_apart(r) && !r->experts->ops->runs_later &&
                     r->map.n_layers != 0 && r->backend->ops->supports_op(r->backend, &there) &&
                     r->backend->ops->supports_op(r->backend, &back);
    if (!r->relay.is_on)
        return MF_OK;
    MF_TRY(mf_backend_reserve(r->backend, &there, error));
    MF_TRY(mf_backend_reserve(r->backend, &back, error));
    return make_all_words(r, error);
}

/* That the experts' threads have work every few dozen microseconds. */
static void expect(mf_runner *r, bool is_expected)
{
    if (r->experts->ops->expect != NULL)
        r->experts->ops->expect(r->experts, is_expected);
}

void mf_relay_begin(mf_runner *r, const mf_batch *batch)
{
    mf_relay *relay = &r->relay;
    const bool foresees = r->foresight != NULL && !r->routed.is_whole; /* which pays more */
    if (relay->is_on && relay->number > UINT32_MAX - r->h.n_layers)
        begin_numbers(r);
    relay->is_at_hand = relay->is_on && !foresees && batch->n_rows <= MF_RELAY_ROWS &&
                        r->n_long_rows == 0 && !r->lending.is_at_hand &&
                        batch->watch->trace == NULL && r->tap == NULL && r->inputs == NULL;
    if (relay->is_at_hand)
        expect(r, true);
}

/* Errors: the device is lost. */
static mf_status check_device(mf_runner *r, mf_error *error)
{
    if (!r->backend->ops->is_lost(r->backend))
        return MF_OK;
    MF_TRY(mf_backend_finish(r->backend, error));
    return mf_fail(error, MF_ERR_IO, "%s is lost", r->backend->ops->device_name(r->backend));
}

/* n values that the device puts to words. It takes dozens of microseconds; who waits for longer may
 * be what keeps it, or others, from their work. */
static mf_status take(mf_runner *r, const mf_host_word *words, void *values, size_t n,
                      mf_error *error)
{
    const uint64_t began_us = mf_now_us();
    uint64_t asked_us = began_us;
    for (size_t at = 0;;) {
        at += mf_host_words_take(words + at, r->relay.open_number,
                                 (unsigned char *)values + at * sizeof(uint32_t), n - at);
        if (at == n)
            return MF_OK;
        const uint64_t now_us = mf_now_us();
        if (now_us - began_us > PATIENCE_US)
            (void)sched_yield();
        if (now_us - asked_us < ASK_US)
            continue;
        asked_us = now_us;
        MF_TRY(check_device(r, error));
    }
}

/* What the router chose, for the experts' device. */
static mf_status take_rows(mf_runner *r, uint32_t n_rows, mf_error *error)
{
    const size_t n_picks = (size_t)n_rows * r->plan.k;
    const mf_host_word *words = r->relay.there;
    MF_TRY(take(r, words, r->moe.ids, n_picks, error));
    MF_TRY(take(r, words + n_picks, r->moe.weights, n_picks, error));
    return take(r, words + 2 * n_picks, r->rows_there, (size_t)n_rows * r->h.hidden_size, error);
}

/* The stream goes on with what is in rows_back. */
static void put_rows(mf_runner *r, uint32_t n_rows)
{
    mf_host_words_put(r->relay.back, r->relay.open_number, r->rows_back,
                      (size_t)n_rows * r->h.hidden_size);
    r->relay.is_open = false;
}

/* The stream is not called: another thread that has it may wait for what is made here. */
static mf_status serve(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    const uint32_t layer = r->relay.open_layer;
    const mf_stage before = mf_profile_enter(r->profile, MF_STAGE_DEVICE);
    MF_TRY(mf_batch_check(batch, error));
    MF_TRY(take_rows(r, batch->n_rows, error));
    (void)mf_profile_enter(r->profile, MF_STAGE_EXPERTS);
    MF_TRY(mf_forward_there(r, batch, layer, error));
    put_rows(r, batch->n_rows);
    (void)mf_profile_enter(r->profile, before);
    return mf_forward_report(r, batch, layer, error);
}

mf_status mf_relay_settle(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    if (!r->relay.is_open)
        return MF_OK;
    r->backend->ops->go(r->backend);
    return serve(r, batch, error);
}

mf_status mf_relay_pass_on(mf_runner *r, const mf_batch *batch, mf_error *error)
{
    r->relay.number++;
    const mf_op op = to_host_op(r, batch->n_rows);
    mf_record(r, &op);
    return mf_relay_settle(r, batch, error);
}

void mf_relay_await(mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    const mf_op op = from_host_op(r, n_rows);
    r->backend->ops->hold(r->backend);
    mf_record(r, &op);
    r->relay.is_open = true;
    r->relay.open_layer = layer;
    r->relay.open_number = r->relay.number;
}

void mf_relay_end(mf_runner *r)
{
    if (!r->relay.is_on)
        return;
    if (r->relay.is_open) { /* the pass failed: the rows are anything */
        r->backend->ops->go(r->backend);
        put_rows(r, MF_RELAY_ROWS < r->plan.n_chunk ? MF_RELAY_ROWS : r->plan.n_chunk);
    }
    r->relay.is_at_hand = false;
    expect(r, false);
}

mf_status mf_relay_check(mf_runner *r, mf_error *error)
{
    if (r->relay.late == NULL || *r->relay.late == 0)
        return MF_OK;
    *r->relay.late = 0;
    return mf_fail(error, MF_ERR_IO,
                   "%s has not got the experts' results in time (the process was stopped, or does "
                   "not get to run)",
                   r->backend->ops->device_name(r->backend));
}
