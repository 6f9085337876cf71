/* SPDX-License-Identifier: MIT */
#include "base/memory_governor.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/memory_limits.h"

#define ROOM_MIN ((uint64_t)512 << 20)
#define ROOM_PART 16
#define CALM_US 1000000u
/* Of a holding, what is given back at least (and half of it at most: others give, too), and taken
 * at most. */
#define PART_GIVEN 16u
#define PART_TAKEN 32u

void mf_memory_take_sample(mf_memory_sample *out)
{
    *out = (mf_memory_sample){
        .now_us = mf_now_us(),
        .available_bytes = mf_memory_available_bytes(),
        .total_bytes =
            mf_memory_available_of(mf_memory_machine_bytes(),
                                   mf_cgroup_memory_limit_bytes(MF_CGROUP_SELF, MF_CGROUP_MOUNT)),
        .stalled_us = mf_cgroup_memory_stalled_us(MF_CGROUP_SELF, MF_CGROUP_MOUNT)};
}

void mf_memory_governor_init(mf_memory_governor *g, const mf_memory_sample *first)
{
    const uint64_t all = first->total_bytes;
    const uint64_t part = all / ROOM_PART > ROOM_MIN ? all / ROOM_PART : ROOM_MIN;
    *g = (mf_memory_governor){
        .room_bytes = part < all / 2 ? part : all / 2, .last = *first, .scarce_us = first->now_us};
}

/* More than a tenth of the time since the last sample. */
static bool is_stalled(const mf_memory_governor *g, const mf_memory_sample *s)
{
    const uint64_t took = s->now_us - g->last.now_us;
    return s->stalled_us > g->last.stalled_us && g->last.stalled_us != 0 &&
           s->stalled_us - g->last.stalled_us > took / 10;
}

static uint64_t given_back(const mf_memory_governor *g, const mf_memory_sample *s,
                           const mf_memory_holding *h)
{
    const uint64_t lack =
        s->available_bytes < g->room_bytes ? g->room_bytes - s->available_bytes : 0;
    const uint64_t part = h->n_bytes / PART_GIVEN + h->unit_bytes;
    const uint64_t half = h->n_bytes / 2 + h->unit_bytes;
    const uint64_t wanted = lack > part ? lack : part;
    const bool is_dire = s->available_bytes < g->room_bytes / 4; /* who knows how much is wanted */
    const uint64_t n_bytes = wanted < half && !is_dire ? wanted : half;
    return h->n_bytes > h->least_bytes + n_bytes ? h->n_bytes - n_bytes : h->least_bytes;
}

static uint64_t taken(const mf_memory_governor *g, const mf_memory_sample *s,
                      const mf_memory_holding *h)
{
    const uint64_t most = h->most_bytes / PART_TAKEN + h->unit_bytes;
    const uint64_t spare = s->available_bytes - g->room_bytes;
    uint64_t n_bytes = spare / 4 < most ? spare / 4 : most;
    if (spare < g->room_bytes / 8 || n_bytes < h->unit_bytes || h->n_bytes >= h->most_bytes)
        return h->n_bytes;
    n_bytes = n_bytes < h->most_bytes - h->n_bytes ? n_bytes : h->most_bytes - h->n_bytes;
    return h->n_bytes + n_bytes;
}

uint64_t mf_memory_govern(mf_memory_governor *g, const mf_memory_sample *s,
                          const mf_memory_holding *h)
{
    const bool is_scarce = s->available_bytes < g->room_bytes / 4 * 3 || is_stalled(g, s);
    uint64_t n_bytes = h->n_bytes;
    if (s->available_bytes != 0 || g->last.available_bytes != 0) {
        if (is_scarce) {
            g->scarce_us = s->now_us;
            n_bytes = given_back(g, s, h);
        } else if (s->now_us - g->scarce_us >= CALM_US && s->available_bytes > g->room_bytes) {
            n_bytes = taken(g, s, h);
        }
    }
    g->last = *s;
    return n_bytes;
}
