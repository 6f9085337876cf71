/* SPDX-License-Identifier: MIT */
/* The raw reader that fetches are compared with: the same requests, no cache, no layers, the queue
 * never running dry. */
#include "experts/store_impl.h"

#include "base/clock.h"

typedef struct measurement {
    unsigned char *buffer;
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

static void start_random_expert(mf_expert_store *store, measurement *m)
{
    uint32_t place = 0;
    while (store->items[place].n_pending > 0)
        place++;
    uint32_t layer = random_below(&m->random, store->map.n_layers);
    uint32_t expert = random_below(&m->random, store->map.n_experts);
    (void)mf_expert_plan_make(&store->map, layer, expert, &store->batch.plan);
    mf_expert_batch_put(&store->batch, m->buffer + place * store->slot_bytes, place);
    store->items[place].n_pending = store->batch.plan.n_reads;
    if (store->items[place].n_pending > 0)
        m->n_reading++;
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
            if (--store->items[done[i].tag].n_pending == 0)
                m->n_reading--;
        }
    }
}

static void drain(mf_expert_store *store)
{
    mf_io_done done[32];
    uint32_t n;
    while (mf_io_in_flight(store->io) > 0 && !store->is_broken)
        store->is_broken = mf_io_collect(store->io, true, done, 32, &n, NULL) != MF_OK;
}

mf_status mf_expert_store_measure(mf_expert_store *store, unsigned char *buffer, uint32_t n_at_once,
                                  uint32_t n_milliseconds, double *bytes_per_second,
                                  mf_error *error)
{
    if (store->is_open || store->is_broken)
        return mf_fail(error, MF_ERR_STATE, "expert store: not idle, cannot be measured");
    if (n_at_once == 0 || ((uintptr_t)buffer & (MF_IO_ALIGN - 1)) != 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "a measurement of %u experts at once", n_at_once);
    uint64_t start_us = mf_now_us();
    measurement m = {
        .buffer = buffer,
        /* The items of a fetch, free now, count the reads. */
        .n_at_once = n_at_once < store->map.n_experts ? n_at_once : store->map.n_experts,
        .random = start_us | 1, /* other experts each time: the host may cache what it read */
        .end_us = start_us + (uint64_t)n_milliseconds * 1000,
    };
    for (uint32_t i = 0; i < m.n_at_once; i++)
        store->items[i].n_pending = 0;
    mf_expert_batch_clear(&store->batch);
    mf_status status = read_random_experts(store, &m, error);
    drain(store);
    MF_TRY(status);
    uint64_t n_us = mf_now_us() - start_us;
    *bytes_per_second = (double)m.n_bytes * 1e6 / (double)(n_us > 0 ? n_us : 1);
    return MF_OK;
}
