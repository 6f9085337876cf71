/* SPDX-License-Identifier: MIT */
/*
 * All experts of some layers, in their order. Beyond the fetch whose experts are visited others are
 * open, so that the drive reads on meanwhile. Slots go to the eldest first, and each that was
 * visited gives its slot back: one slot is enough.
 */
#include "experts/store_impl.h"

/* Fetches that are open. */
#define FETCHES_AT_ONCE 4u

typedef struct visitor {
    mf_expert_visit_fn fn; /* or NULL */
    void *user;
} visitor;

/* Of a layer: fetches do not go beyond one. */
static uint32_t n_fetches(const mf_expert_store *store)
{
    return (store->map.n_experts - 1) / MF_EXPERTS_VISITED + 1;
}

static mf_status begin(mf_expert_store *store, uint32_t number, mf_expert_fetch **out,
                       mf_error *error)
{
    const uint32_t layer = number / n_fetches(store);
    const uint32_t first = number % n_fetches(store) * MF_EXPERTS_VISITED;
    uint32_t experts[MF_EXPERTS_VISITED], n = 0;
    for (; n < MF_EXPERTS_VISITED && first + n < store->map.n_experts; n++)
        experts[n] = first + n;
    return mf_expert_fetch_begin(store, layer, experts, n, out, error);
}

/* Of experts that have been handed out. They are wanted no longer, whatever comes of it. */
static mf_status visit(mf_expert_fetch *f, const visitor *v, mf_expert_ready *ready, uint32_t n,
                       mf_error *error)
{
    const uint32_t first = f->items[0].expert; /* the others follow it */
    mf_status status = MF_OK;
    for (uint32_t i = 0; i < n; i++)
        ready[i].index += first;
    if (v->fn != NULL)
        status = v->fn(v->user, f->layer, ready, n, error);
    for (uint32_t i = 0; i < n; i++)
        mf_expert_fetch_release(f, ready[i].index - first, 0);
    if (v->fn != NULL)
        mf_expert_store_forget(f->store, f->layer);
    return status;
}

/* All of the fetch, which is closed then. */
static mf_status visit_all(mf_expert_fetch *f, const visitor *v, mf_error *error)
{
    mf_expert_ready ready[MF_EXPERTS_VISITED];
    mf_status status = MF_OK;
    for (uint32_t n = 1; n != 0 && status == MF_OK;) {
        status = mf_expert_fetch_next(f, ready, MF_EXPERTS_VISITED, &n, error);
        if (status == MF_OK && n != 0)
            status = visit(f, v, ready, n, error);
    }
    mf_expert_fetch_end(f, 0);
    return status;
}

mf_status mf_expert_store_each(mf_expert_store *store, uint32_t first, uint32_t n,
                               mf_expert_visit_fn fn, void *user, mf_error *error)
{
    const visitor v = {fn, user};
    const uint32_t end = (first + n) * n_fetches(store);
    uint32_t eldest = first * n_fetches(store), next = eldest;
    mf_expert_fetch *open[FETCHES_AT_ONCE]; /* by number: from the eldest up to the next */
    mf_status status = MF_OK;
    while (eldest < end && status == MF_OK) {
        if (next < end && next - eldest < FETCHES_AT_ONCE) {
            status = begin(store, next, &open[next % FETCHES_AT_ONCE], error);
            next += status == MF_OK;
        } else {
            status = visit_all(open[eldest % FETCHES_AT_ONCE], &v, error);
            eldest++;
        }
    }
    while (eldest < next)
        mf_expert_fetch_end(open[eldest++ % FETCHES_AT_ONCE], 0);
    return status;
}
