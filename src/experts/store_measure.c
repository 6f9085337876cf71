/* SPDX-License-Identifier: MIT */
/*
 * The raw reader that fetches are compared with: the same requests into the same memory, no layers,
 * the queue never running dry. It reads whole experts into the slots, which hold them then: one
 * that is cached is read again where it lies, another takes the place of the least recently used.
 * (Reading into a small buffer instead would flatter the drive: what stays in the processor's cache
 * takes data faster than memory does.)
 */
#include "experts/store_impl.h"

#include "base/clock.h"

typedef struct measurement {
    uint32_t n_at_once;
    uint32_t n_reading; /* experts */
    uint64_t random;
    uint64_t end_us;
    uint64_t n_bytes;
} measurement;

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 32) * n >> 32);
}

/* The slot of a random expert, made its own if it had none. Fewer are being read than there are
 * slots and experts, so one is found. */
static uint32_t random_slot(mf_expert_store *store, measurement *m, uint32_t *layer,
                            uint32_t *expert)
{
    for (;;) {
        *layer = random_below(&m->random, store->map.n_layers);
        *expert = random_below(&m->random, store->map.n_experts);
        uint64_t key = (uint64_t)*layer * store->map.n_experts + *expert;
        uint32_t slot = store->slot_of[key];
        if (slot == MF_NO_SLOT)
            return mf_expert_take_slot(store, key);
        if (store->slots[slot].state == MF_SLOT_READING)
            continue;
        store->slots[slot].state = MF_SLOT_READING;
        store->slots[slot].is_pinned = true;
        return slot;
    }
}

static void finish_expert(mf_expert_store *store, measurement *m, mf_fetch_item *item)
{
    store->slots[item->slot].state = MF_SLOT_HELD;
    store->slots[item->slot].is_pinned = false;
    item->slot = MF_NO_SLOT;
    m->n_reading--;
}

static void start_random_expert(mf_expert_store *store, measurement *m)
{
    uint32_t place = 0, layer, expert;
    while (store->items[place].slot != MF_NO_SLOT)
        place++;
    mf_fetch_item *item = &store->items[place];
    item->slot = random_slot(store, m, &layer, &expert);
    (void)mf_expert_plan_make(&store->map, layer, expert, &store->batch.plan);
    mf_expert_batch_put(&store->batch, store->pool + (size_t)item->slot * store->slot_bytes, place);
    item->n_pending = store->batch.plan.n_reads;
    m->n_reading++;
    if (item->n_pending == 0)
        finish_expert(store, m, item);
}

static mf_status read_random_experts(mf_expert_store *store, measurement *m, mf_error *error)
{
    mf_io_done done[32];
    uint32_t n;
    for (;;) {
        while (mf_expert_batch_wants(&store->batch) && m->n_reading < m->n_at_once &&
               mf_now_us() < m->end_us)
            start_random_expert(store, m);
        mf_expert_sent sent;
        MF_TRY(mf_expert_batch_submit(&store->batch, store->io, &sent, error));
        m->n_bytes += sent.n_bytes;
        if (m->n_reading == 0)
            return MF_OK;
        MF_TRY(mf_io_collect(store->io, true, done, 32, &n, error));
        for (uint32_t i = 0; i < n; i++) {
            if (done[i].status != MF_OK)
                return mf_io_fail(store->io, &done[i], error);
            mf_fetch_item *item = &store->items[done[i].tag];
            if (--item->n_pending == 0)
                finish_expert(store, m, item);
        }
    }
}

/* Waits for what is in flight; slots whose expert did not come whole are emptied. */
static void drain(mf_expert_store *store, const measurement *m)
{
    mf_io_done done[32];
    uint32_t n;
    while (mf_io_in_flight(store->io) > 0 && !store->is_broken)
        store->is_broken = mf_io_collect(store->io, true, done, 32, &n, NULL) != MF_OK;
    for (uint32_t i = 0; i < m->n_at_once; i++) {
        if (store->items[i].slot != MF_NO_SLOT)
            mf_expert_empty_slot(store, store->items[i].slot);
    }
    mf_expert_batch_clear(&store->batch);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

mf_status mf_expert_store_measure(mf_expert_store *store, uint32_t n_at_once,
                                  uint32_t n_milliseconds, double *bytes_per_second,
                                  mf_error *error)
{
    if (store->is_open || store->is_broken)
        return mf_fail(error, MF_ERR_STATE, "expert store: not idle, cannot be measured");
    if (n_at_once == 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "a measurement of no experts at once");
    uint64_t start_us = mf_now_us();
    measurement m = {
        /* The items of a fetch, free now, count the reads. */
        .n_at_once = least(n_at_once, least(store->map.n_experts, store->n_slots)),
        .random = start_us | 1, /* other experts each time: the host may cache what it read */
        .end_us = start_us + (uint64_t)n_milliseconds * 1000,
    };
    for (uint32_t i = 0; i < m.n_at_once; i++)
        store->items[i] = (mf_fetch_item){.slot = MF_NO_SLOT};
    mf_expert_batch_clear(&store->batch);
    mf_status status = read_random_experts(store, &m, error);
    drain(store, &m);
    MF_TRY(status);
    uint64_t n_us = mf_now_us() - start_us;
    *bytes_per_second = (double)m.n_bytes * 1e6 / (double)(n_us > 0 ? n_us : 1);
    return MF_OK;
}
