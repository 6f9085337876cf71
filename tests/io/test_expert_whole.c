/* SPDX-License-Identifier: MIT */
/* A store with a slot for every expert: it is filled, and says where a layer's experts are once all
 * are there, at the same places in their slots. */
#include "expert_fixture.h"

#include <errno.h>
#include <unistd.h>

#define N_LAYERS 2u
#define N_EXPERTS 8u
#define N_ALL (N_LAYERS * N_EXPERTS)

/* Experts whole numbers of blocks apart, or not. */
static world *even_world(const char *dir, uint64_t stride)
{
    world *w = plain_world(dir);
    REQUIRE(w->map.n_layers == N_LAYERS && w->map.n_experts == N_EXPERTS);
    for (uint32_t i = 0; i < N_LAYERS * w->map.n_parts; i++)
        w->parts[i].stride = stride;
    return w;
}

static void check_layer(const rig *r, uint32_t layer)
{
    uint32_t slots[N_EXPERTS], part_at[MF_MAX_EXPERT_PARTS];
    bool is_taken[N_ALL + 1] = {false};
    REQUIRE(mf_expert_store_layer(r->store, layer, slots, part_at));
    for (uint32_t e = 0; e < N_EXPERTS; e++) {
        REQUIRE(slots[e] < r->n_slots && !is_taken[slots[e]]);
        is_taken[slots[e]] = true;
        mf_expert_ready at = {.slot = slots[e]};
        for (uint32_t p = 0; p < r->w->map.n_parts; p++)
            at.part_at[p] = slots[e] * r->slot_bytes + part_at[p];
        check_expert(r, layer, e, &at);
    }
}

static bool is_whole(const rig *r, uint32_t layer)
{
    uint32_t slots[N_EXPERTS], part_at[MF_MAX_EXPERT_PARTS];
    return mf_expert_store_layer(r->store, layer, slots, part_at);
}

static void fetch_all(rig *r, uint32_t layer)
{
    static const uint32_t experts[N_EXPERTS] = {7, 0, 3, 2, 1, 6, 5, 4};
    mf_expert_fetch *f = NULL;
    mf_expert_ready ready[N_EXPERTS];
    mf_error error;
    uint32_t n = 1;
    REQUIRE_OK(mf_expert_fetch_begin(r->store, layer, experts, N_EXPERTS, &f, &error), &error);
    while (n != 0)
        REQUIRE_OK(mf_expert_fetch_next(f, ready, N_EXPERTS, &n, &error), &error);
    mf_expert_fetch_end(f, 0);
}

static void test_fill(const io_case *c, const char *dir)
{
    world *w = even_world(dir, 12288);
    rig r;
    mf_error error;
    mf_expert_stats stats;
    rig_open(&r, c, w, N_ALL, 8);
    CHECK(!is_whole(&r, 0) && !is_whole(&r, 1));
    fetch_all(&r, 1);
    CHECK(!is_whole(&r, 0));
    check_layer(&r, 1);
    mf_expert_store_stats_reset(r.store);
    REQUIRE_OK(mf_expert_store_fill(r.store, &error), &error);
    check_layer(&r, 0);
    check_layer(&r, 1);
    const uint64_t n_given_up = mf_expert_store_n_given_up(r.store);
    mf_expert_store_stats(r.store, &stats);
    CHECK(stats.n_hits == 0 && stats.n_misses == 0 && stats.n_reads == 0 && stats.wait_us == 0);
    fetch_all(&r, 0);
    mf_expert_store_count_hits(r.store, 5);
    mf_expert_store_stats(r.store, &stats);
    CHECK_U64(stats.n_hits, N_EXPERTS + 5);
    CHECK_U64(stats.n_reads, 0);
    REQUIRE_OK(mf_expert_store_fill(r.store, &error), &error);
    CHECK_U64(mf_expert_store_n_given_up(r.store), n_given_up);
    rig_close(&r);
    world_free(w);
}

/* One slot less: nothing is read, and nothing is sure to stay. */
static void test_too_few(const io_case *c, const char *dir)
{
    world *w = even_world(dir, 12288);
    rig r;
    mf_error error;
    mf_expert_stats stats;
    rig_open(&r, c, w, N_ALL - 1, 8);
    REQUIRE_OK(mf_expert_store_fill(r.store, &error), &error);
    mf_expert_store_stats(r.store, &stats);
    CHECK_U64(stats.n_reads, 0);
    fetch_all(&r, 0);
    CHECK(!is_whole(&r, 0));
    const uint64_t n_given_up = mf_expert_store_n_given_up(r.store);
    fetch_all(&r, 1);
    CHECK_U64(mf_expert_store_n_given_up(r.store), n_given_up + 1);
    rig_close(&r);
    world_free(w);
}

/* Where reads alone do not put arrays at the same places. */
static void test_uneven(const io_case *c, const char *dir)
{
    world *w = even_world(dir, 12000);
    rig r;
    mf_error error;
    CHECK(!mf_expert_map_is_even(&w->map));
    rig_open(&r, c, w, N_ALL, 8);
    REQUIRE_OK(mf_expert_store_fill(r.store, &error), &error);
    CHECK(!is_whole(&r, 0) && !is_whole(&r, 1));
    rig_close(&r);
    for (uint32_t i = 0; i < N_LAYERS * w->map.n_parts; i++)
        w->parts[i].stride = 12288;
    CHECK(!mf_expert_map_is_even(&w->map)); /* the same places, at odd bytes */
    for (uint32_t i = 0; i < N_LAYERS * w->map.n_parts; i++)
        w->parts[i].offset = 4096 * i + 48;
    CHECK(mf_expert_map_is_even(&w->map));
    world_free(w);
}

/* What cannot be read is left to who asks for it; then the layer is whole. */
static void test_failure(const io_case *c, const char *dir)
{
    world *w = even_world(dir, 12288);
    mf_expert_stats stats;
    for (uint64_t nth = 1; nth < 3 * N_ALL && c->inner != NULL; nth += 7) {
        rig r;
        mf_error error;
        rig_open(&r, c, w, N_ALL, 8);
        r.fault.fail_from = r.fault.n_reads + nth;
        r.fault.fail_count = 1;
        r.fault.fail_errno = EIO;
        CHECK_STATUS(mf_expert_store_fill(r.store, &error), MF_ERR_IO);
        CHECK_CONTAINS(error.message, "offset");
        CHECK(!is_whole(&r, 0) || !is_whole(&r, 1));
        CHECK(mf_expert_store_n_given_up(r.store) > 0);
        fetch_all(&r, 0);
        fetch_all(&r, 1);
        mf_expert_store_stats(r.store, &stats);
        CHECK(stats.n_misses > 0 && stats.n_hits + stats.n_misses == N_ALL);
        /* while a failed read may still write to a slot, that one is missing */
        for (int i = 0; i < 60000 && !(is_whole(&r, 0) && is_whole(&r, 1)); i++) {
            usleep(1000);
            REQUIRE_OK(mf_expert_store_fill(r.store, &error), &error);
        }
        check_layer(&r, 0);
        check_layer(&r, 1);
        rig_close(&r);
    }
    world_free(w);
}

int main(void)
{
    const char *dirs[2];
    io_case cases[4];
    uint32_t n_dirs = scratch_dirs(dirs), n_cases = io_cases(cases);
    for (uint32_t c = 0; c < n_cases; c++) {
        test_fill(&cases[c], dirs[n_dirs - 1]);
        test_too_few(&cases[c], dirs[n_dirs - 1]);
        test_uneven(&cases[c], dirs[n_dirs - 1]);
        test_failure(&cases[c], dirs[n_dirs - 1]);
    }
    return test_result();
}
