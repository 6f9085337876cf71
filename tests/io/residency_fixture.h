/* SPDX-License-Identifier: MIT */
/*
 * What the tests of single cases of residency share: fetches that are begun and brought to their
 * end, and a store that comes to rest. Drives hang by script (ALL_LANES), so that nothing depends
 * on time.
 */
#ifndef MF_TESTS_RESIDENCY_FIXTURE_H
#define MF_TESTS_RESIDENCY_FIXTURE_H

#include "expert_fixture.h"

#define ALL_LANES 0xffu

static mf_expert_fetch *begin(rig *r, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    mf_error error = {0};
    mf_expert_fetch *f = NULL;
    REQUIRE_OK(mf_expert_fetch_begin(r->store, layer, experts, n, &f, &error), &error);
    return f;
}

/* Brings a fetch to its end. */
static mf_status finish(rig *r, mf_expert_fetch *f, uint32_t layer, const uint32_t *experts,
                        mf_error *error)
{
    mf_status status;
    uint32_t n = 1;
    while (n > 0) {
        mf_expert_ready ready;
        status = mf_expert_fetch_next(f, &ready, 1, &n, error);
        if (status != MF_OK)
            break;
        if (n > 0) {
            check_expert(r, layer, experts[ready.index], &ready);
            mf_expert_fetch_release(f, ready.index, 0);
        }
    }
    mf_expert_fetch_end(f, 0);
    return status;
}

static mf_expert_stats stats_of(const rig *r)
{
    mf_expert_stats s;
    mf_expert_store_stats(r->store, &s);
    return s;
}

/* Until nothing is in flight, nor wants to be. */
static void settle(rig *r)
{
    do {
        mf_expert_loads_drain(r->store);
        mf_expert_store_poll(r->store);
    } while (mf_io_in_flight(r->io) > 0);
}

#endif
