/* SPDX-License-Identifier: MIT */
/* All experts of some layers are visited, each once, with one slot or with more than enough; the
 * first error ends it, and leaves a store that works. */
#include "expert_fixture.h"

#include <errno.h>

#define N_LAYERS 3u
#define N_EXPERTS 70u /* three fetches a layer */
#define N_ALL (N_LAYERS * N_EXPERTS)
#define FETCHES_AT_ONCE 4u

static world *wide_world(const char *dir)
{
    world *w = plain_world(dir);
    w->map.n_layers = N_LAYERS;
    w->map.n_experts = N_EXPERTS;
    for (uint32_t i = 0; i < N_LAYERS * w->map.n_parts; i++)
        w->parts[i] = (mf_expert_part){.file = i % N_FILES,
                                       .offset = 5000u * i + 17,
                                       .stride = 12000,
                                       .n_bytes = 3000 + 1000 * (i % 3)};
    return w;
}

typedef struct visits {
    const rig *r;
    uint32_t n_of[N_LAYERS][N_EXPERTS];
    uint32_t n, layer;    /* all; of the last */
    uint32_t n_open_most; /* fetches */
    uint32_t fails_after; /* so many; 0: never */
} visits;

static mf_status visit(void *user, uint32_t layer, mf_expert_ready *ready, uint32_t n,
                       mf_error *error)
{
    visits *v = user;
    const uint32_t n_open = v->r->store->n_open;
    CHECK(layer >= v->layer && n != 0 && n <= MF_EXPERTS_VISITED);
    v->layer = layer;
    v->n_open_most = n_open > v->n_open_most ? n_open : v->n_open_most;
    for (uint32_t i = 0; i < n; i++) {
        REQUIRE(layer < N_LAYERS && ready[i].index < N_EXPERTS);
        v->n_of[layer][ready[i].index]++;
        check_expert(v->r, layer, ready[i].index, &ready[i]);
    }
    v->n += n;
    if (v->fails_after != 0 && v->n >= v->fails_after)
        return mf_fail(error, MF_ERR_CANCELLED, "enough of it");
    return MF_OK;
}

/* Each of the layers once, and no other. */
static void check_all(const visits *v, uint32_t first, uint32_t n)
{
    for (uint32_t layer = 0; layer < N_LAYERS; layer++)
        for (uint32_t e = 0; e < N_EXPERTS; e++)
            CHECK_U64(v->n_of[layer][e], layer - first < n);
}

/* No fetch is open, and all slots are to be had. */
static void check_closed(const rig *r)
{
    CHECK_U64(r->store->n_open, 0);
    for (uint32_t i = 0; i < r->n_slots; i++)
        CHECK_U64(r->store->slots[i].n_users, 0);
}

static void visit_some(rig *r, uint32_t first, uint32_t n)
{
    visits v = {.r = r};
    mf_error error;
    REQUIRE_OK(mf_expert_store_each(r->store, first, n, visit, &v, &error), &error);
    check_all(&v, first, n);
    check_closed(r);
    CHECK_U64(v.n_open_most, n == 0 ? 0 : n * 3 < FETCHES_AT_ONCE ? n * 3 : FETCHES_AT_ONCE);
}

static void test_visits(const io_case *c, const char *dir)
{
    static const uint32_t n_slots[] = {1, 2, 5, 33, N_EXPERTS, N_ALL};
    world *w = wide_world(dir);
    for (uint32_t i = 0; i < sizeof n_slots / sizeof n_slots[0]; i++) {
        rig r;
        rig_open(&r, c, w, n_slots[i], 8);
        if (c->inner != NULL)
            break_a_little(&r);
        visit_some(&r, 0, N_LAYERS);
        visit_some(&r, 1, 1);
        visit_some(&r, 1, 2);
        visit_some(&r, N_LAYERS, 0);
        CHECK_U64(r.store->n_empty, n_slots[i]); /* none is kept */
        rig_close(&r);
    }
    world_free(w);
}

/* Without anybody who visits they stay, and what was held is not read again. */
static void test_stay(const io_case *c, const char *dir)
{
    world *w = wide_world(dir);
    rig r;
    mf_error error;
    mf_expert_stats stats;
    rig_open(&r, c, w, 2 * N_EXPERTS, 8);
    REQUIRE_OK(mf_expert_store_each(r.store, 0, 2, NULL, NULL, &error), &error);
    CHECK_U64(r.store->n_empty, 0);
    mf_expert_store_stats_reset(r.store);
    visit_some(&r, 1, 1);
    mf_expert_store_stats(r.store, &stats);
    CHECK(stats.n_hits == N_EXPERTS && stats.n_misses == 0 && stats.n_reads == 0);
    CHECK_U64(r.store->n_empty, N_EXPERTS);
    check_closed(&r);
    rig_close(&r);
    world_free(w);
}

static void test_read_error(const io_case *c, const char *dir)
{
    static const uint32_t n_slots[] = {1, 40, N_ALL};
    world *w = wide_world(dir);
    for (uint64_t i = 0; i < 9 && c->inner != NULL; i++) {
        rig r;
        mf_error error;
        visits v = {.r = &r};
        rig_open(&r, c, w, n_slots[i % 3], 8);
        r.fault.fail_from = r.fault.n_reads + 1 + 61 * i;
        r.fault.fail_count = 1;
        r.fault.fail_errno = EIO;
        CHECK_STATUS(mf_expert_store_each(r.store, 0, N_LAYERS, visit, &v, &error), MF_ERR_IO);
        CHECK_CONTAINS(error.message, "offset");
        CHECK_U64(error.os_errno, EIO);
        CHECK(v.n < N_ALL);
        check_closed(&r);
        visit_some(&r, 0, N_LAYERS);
        rig_close(&r);
    }
    world_free(w);
}

static void test_visitor_error(const io_case *c, const char *dir)
{
    world *w = wide_world(dir);
    for (uint32_t i = 1; i < N_ALL; i += 50) {
        rig r;
        mf_error error;
        visits v = {.r = &r, .fails_after = i};
        rig_open(&r, c, w, i, 8);
        CHECK_STATUS(mf_expert_store_each(r.store, 0, N_LAYERS, visit, &v, &error),
                     MF_ERR_CANCELLED);
        CHECK_STR(error.message, "enough of it");
        CHECK(v.n >= i && v.n < i + MF_EXPERTS_VISITED);
        check_closed(&r);
        visit_some(&r, 0, N_LAYERS);
        rig_close(&r);
    }
    world_free(w);
}

static void test_refused(const io_case *c, const char *dir)
{
    world *w = wide_world(dir);
    rig r;
    mf_error error;
    visits v = {.r = &r};
    rig_open(&r, c, w, 4, 8);
    CHECK_STATUS(mf_expert_store_each(r.store, 2, 2, visit, &v, &error), MF_ERR_ARGUMENT);
    check_closed(&r);
    visit_some(&r, 2, 1);
    rig_close(&r);
    world_free(w);
}

int main(void)
{
    const char *dirs[2];
    io_case cases[4];
    const uint32_t n_dirs = scratch_dirs(dirs), n_cases = io_cases(cases);
    for (uint32_t c = 0; c < n_cases; c++) {
        test_visits(&cases[c], dirs[n_dirs - 1]);
        test_stay(&cases[c], dirs[n_dirs - 1]);
        test_read_error(&cases[c], dirs[n_dirs - 1]);
        test_visitor_error(&cases[c], dirs[n_dirs - 1]);
        test_refused(&cases[c], dirs[n_dirs - 1]);
    }
    return test_result();
}
