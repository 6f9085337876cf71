/* SPDX-License-Identifier: MIT */
/*
 * The raw reader that fetches are compared with: the same requests into the same memory, no layers,
 * the queue never running dry. It reads whole experts into the slots, which hold them then: one
 * that is cached is read again where it lies, another takes the place of the one that the policy
 * gives up. (Reading into a small buffer instead would flatter the drive: what stays in the
 * processor's cache takes data faster than memory does.)
 */
#include "experts/store_impl.h"

#include "base/clock.h"

typedef struct measurement {
    uint32_t n_at_once;
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

/* The slot of a random expert, made its own if it had none; MF_NONE: there is no load or no place
 * for it now. Fewer are being read than there are slots and experts, so one is found. */
static uint32_t random_slot(mf_expert_store *store, measurement *m)
{
    for (;;) {
        uint32_t layer = random_below(&m->random, store->map.n_layers);
        uint32_t key = mf_expert_key(store, layer, random_below(&m->random, store->map.n_experts));
        uint32_t slot = store->slot_of[key];
        if (slot != MF_NONE && store->slots[slot].state != MF_SLOT_HELD)
            continue;
        if (!mf_expert_load_find(store, MF_CACHE_MEASURE, key))
            return MF_NONE;
        return slot != MF_NONE ? slot : mf_expert_slot_take(store, MF_CACHE_MEASURE, key);
    }
}

static bool start_random_expert(mf_expert_store *store, measurement *m)
{
    uint32_t slot = random_slot(store, m);
    if (slot == MF_NONE)
        return false;
    mf_expert_load *load = mf_expert_load_start(store, slot, true);
    load->is_measured = true;
    m->n_bytes += load->plan.n_bytes;
    return true;
}

/* Loads that wait or are being read. */
static uint32_t count_under_way(const mf_expert_store *store)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < store->n_loads; i++) {
        mf_load_state state = store->loads[i].state;
        n += state == MF_LOAD_QUEUED || state == MF_LOAD_READING;
    }
    return n;
}

/* No slot is read into while a device may still use what it held. */
static mf_status wait_for_slots(mf_expert_store *store, mf_error *error)
{
    bool found = true;
    while (found)
        MF_TRY(mf_expert_slot_wait(store, &found, error));
    return MF_OK;
}

/* One is read at least, however late it is. */
static bool is_over(const mf_expert_store *store, const measurement *m)
{
    return store->measure_failure != MF_OK || (m->n_bytes != 0 && mf_now_us() >= m->end_us);
}

static mf_status read_random_experts(mf_expert_store *store, measurement *m, mf_error *error)
{
    bool found = true;
    while (found) {
        uint32_t n = count_under_way(store);
        while (n < m->n_at_once && !is_over(store, m) && start_random_expert(store, m))
            n++;
        mf_expert_loads_send(store);
        mf_expert_loads_collect(store, true);
        if (n == 0) /* the end, a failure's too, or all places are being uploaded from */
            MF_TRY(mf_expert_places_wait(store, &found, error));
    }
    if (store->measure_failure == MF_OK)
        return MF_OK;
    if (error != NULL)
        *error = store->measure_error;
    return store->measure_failure;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

mf_status mf_expert_store_measure(mf_expert_store *store, uint32_t n_at_once,
                                  uint32_t n_milliseconds, double *bytes_per_second,
                                  mf_error *error)
{
    if (store == NULL) { /* a model without experts reads nothing */
        *bytes_per_second = 0.0;
        return MF_OK;
    }
    if (store->n_open > 0)
        return mf_fail(error, MF_ERR_STATE, "expert store: not idle, cannot be measured");
    if (n_at_once == 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "a measurement of no experts at once");
    MF_TRY(mf_expert_loads_recover(store, error));
    mf_expert_hints_drop(store, MF_NONE);
    mf_expert_loads_drain(store);
    MF_TRY(wait_for_slots(store, error));
    uint64_t start_us = mf_now_us();
    measurement m = {
        .n_at_once =
            least(n_at_once, least(store->map.n_experts, (uint32_t)mf_expert_store_n_slots(store))),
        .random = start_us | 1, /* other experts each time: the host may cache what it read */
        .end_us = start_us + (uint64_t)n_milliseconds * 1000,
    };
    store->is_uncounted = true;
    store->measure_failure = MF_OK;
    mf_status status = read_random_experts(store, &m, error);
    mf_expert_loads_drain(store);
    store->is_uncounted = false;
    MF_TRY(status);
    uint64_t n_us = mf_now_us() - start_us;
    *bytes_per_second = (double)m.n_bytes * 1e6 / (double)(n_us > 0 ? n_us : 1);
    return MF_OK;
}
