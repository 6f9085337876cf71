/* SPDX-License-Identifier: MIT */
/*
 * What a hint becomes, case by case: how deep it is sent, what waits and what a demand takes over,
 * and whose slots it may have.
 */
#include "residency_fixture.h"

#include <errno.h>

static void test_hints(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir); /* an expert is three reads */
    rig r;
    rig_open(&r, c, w, 16, 0);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    /* Held when asked for. */
    mf_expert_store_hint(r.store, 0, experts, 2);
    CHECK_U64(stats_of(&r).n_hints, 2);
    settle(&r);
    mf_expert_fetch *f = begin(&r, 0, experts, 3);
    REQUIRE_OK(finish(&r, f, 0, experts, &error), &error);
    CHECK_U64(stats_of(&r).n_hints_useful, 2);
    CHECK_U64(stats_of(&r).n_hits, 2);
    /* Hinted again while held: not taken. */
    mf_expert_store_hint(r.store, 0, experts, 3);
    CHECK_U64(stats_of(&r).n_hints, 2);
    /* Names that are out of range. */
    const uint32_t wrong[] = {8, 4000000000u};
    mf_expert_store_hint(r.store, 0, wrong, 2);
    mf_expert_store_hint(r.store, 2, experts, 2);
    CHECK_U64(stats_of(&r).n_hints, 2);
    rig_close(&r);
    world_free(w);
}

/* A drive that hangs: what is foreseen is sent up to a bounded depth; the rest waits, and can be
 * taken back or is taken over. */
static void test_hints_wait(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 16, 0);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    r.fault.slow_lanes = ALL_LANES;
    mf_expert_store_hint(r.store, 0, experts, 8);
    CHECK_U64(stats_of(&r).n_hints, 8);
    CHECK_U64(mf_io_in_flight(r.io), MF_EXPERT_HINT_DEPTH); /* two and a part of a third */
    CHECK_U64(stats_of(&r).n_queued, 5);
    check_look(r.store);
    /* A demand goes first: its reads are sent though what was foreseen waits. It takes over one
     * that is being read, one that is queued; what is left of the third is never sent. */
    const uint32_t wanted[] = {7, 0};
    mf_expert_fetch *f = begin(&r, 0, wanted, 2);
    CHECK_U64(stats_of(&r).n_hints_late, 2);
    CHECK_U64(stats_of(&r).n_hits, 0); /* what is under way is not there */
    CHECK_U64(stats_of(&r).n_misses, 2);
    CHECK_U64(mf_io_in_flight(r.io), 11);
    /* The others of that layer were dropped: they come too late. */
    CHECK_U64(stats_of(&r).n_queued, 0);
    /* Those of another layer wait until they are cancelled. */
    mf_expert_store_hint(r.store, 1, experts, 4);
    CHECK_U64(stats_of(&r).n_queued, 4);
    check_look(r.store);
    CHECK_U64(mf_io_in_flight(r.io), 11);
    const mf_expert_stats before = stats_of(&r);
    mf_expert_store_stats_reset(r.store); /* of what was, not of what is */
    CHECK_U64(stats_of(&r).n_queued, 4);
    CHECK_U64(stats_of(&r).n_hints + stats_of(&r).n_reads + stats_of(&r).n_misses, 0);
    mf_expert_store_cancel_hints(r.store);
    mf_expert_store_poll(r.store);
    CHECK_U64(stats_of(&r).n_queued, 0);
    r.fault.slow_lanes = 0;
    REQUIRE_OK(finish(&r, f, 0, wanted, &error), &error);
    settle(&r);
    CHECK_U64(before.n_reads + stats_of(&r).n_reads, 11);
    CHECK_U64(stats_of(&r).n_hints_wasted, 0);
    CHECK_U64(before.n_hints_cancelled, 5);       /* 2 to 6 of layer 0 */
    CHECK_U64(stats_of(&r).n_hints_cancelled, 4); /* all of layer 1 */
    f = begin(&r, 0, experts, 3);                 /* 1 was being read whole: held since */
    REQUIRE_OK(finish(&r, f, 0, experts, &error), &error);
    CHECK_U64(stats_of(&r).n_hints_useful, 1);
    CHECK_U64(before.n_reads + stats_of(&r).n_reads, 14);
    rig_close(&r);
    world_free(w);
}

/* The depth of what is foreseen is reads, whole experts or not: of two reads each, four. */
static void test_hint_depth(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    world *w = plain_world(dir);
    w->map.n_parts = 2;
    rig r;
    rig_open(&r, c, w, 16, 0);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    r.fault.slow_lanes = ALL_LANES;
    mf_expert_store_hint(r.store, 0, experts, 8);
    CHECK_U64(mf_io_in_flight(r.io), MF_EXPERT_HINT_DEPTH);
    CHECK_U64(stats_of(&r).n_queued, 4);
    r.fault.slow_lanes = 0;
    settle(&r);
    CHECK_U64(stats_of(&r).n_reads, 16);
    rig_close(&r);
    world_free(w);
}

/* What is all but certain is sent at any depth, after what is demanded. */
static void test_expected(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir); /* an expert is three reads */
    rig r;
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    rig_open(&r, c, w, 16, 0);
    r.fault.slow_lanes = ALL_LANES;
    mf_expert_store_expect(r.store, 1, experts, 8);
    CHECK_U64(mf_io_in_flight(r.io), 24);
    mf_expert_store_hint(r.store, 0, experts, 2); /* so much is in flight that these wait */
    CHECK_U64(mf_io_in_flight(r.io), 24);
    CHECK_U64(stats_of(&r).n_queued, 2);
    /* The demand takes over what is on its way; nothing is read twice. */
    mf_expert_fetch *f = begin(&r, 1, experts, 8);
    CHECK_U64(stats_of(&r).n_hints_late, 8);
    CHECK_U64(mf_io_in_flight(r.io), 24);
    r.fault.slow_lanes = 0;
    REQUIRE_OK(finish(&r, f, 1, experts, &error), &error);
    settle(&r);
    CHECK_U64(stats_of(&r).n_reads, 30);
    rig_close(&r);
    /* Where the drive takes fewer at a time, what is demanded goes first. */
    rig_open(&r, c, w, 16, 9);
    r.fault.slow_lanes = ALL_LANES;
    f = begin(&r, 0, experts, 2);
    mf_expert_store_expect(r.store, 1, experts, 8);
    CHECK_U64(mf_io_in_flight(r.io), 9);
    CHECK_U64(stats_of(&r).n_queued, 7);
    mf_expert_fetch *other = begin(&r, 0, experts + 2, 2);
    CHECK(r.store->demanded.first != MF_NONE);
    r.fault.slow_lanes = 0;
    REQUIRE_OK(finish(&r, other, 0, experts + 2, &error), &error);
    REQUIRE_OK(finish(&r, f, 0, experts, &error), &error);
    settle(&r);
    CHECK_U64(stats_of(&r).n_reads, 36);
    rig_close(&r);
    world_free(w);
}

/* More names than the list holds: the oldest are forgotten, the others come in their order. */
static void test_hints_overflow(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 2, 0);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    mf_expert_ready ready[2];
    mf_expert_fetch *f = begin(&r, 0, experts, 2);
    for (uint32_t n, n_got = 0; n_got < 2; n_got += n)
        REQUIRE_OK(mf_expert_fetch_next(f, ready, 2 - n_got, &n, &error), &error);
    mf_expert_store_hint(r.store, 1, experts + 3, 1);
    for (uint32_t i = 0; i + 1 < MF_EXPERT_HINTS; i++)
        mf_expert_store_hint(r.store, 1, experts + 5, 1);
    mf_expert_store_hint(r.store, 1, experts + 4, 1); /* the third is forgotten for it */
    CHECK_U64(stats_of(&r).n_hints, 0);
    CHECK_U64(r.store->n_hints, MF_EXPERT_HINTS);
    mf_expert_fetch_end(f, 0);
    CHECK_U64(stats_of(&r).n_hints, 2);
    settle(&r);
    f = begin(&r, 1, experts + 4, 2);
    CHECK_U64(stats_of(&r).n_hits, 2);
    REQUIRE_OK(finish(&r, f, 1, experts + 4, &error), &error);
    rig_close(&r);
    world_free(w);
}

/* What is foreseen makes room for a demand, and takes no slot of what is used or comes sooner. */
static void test_hints_and_slots(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 4, 0);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    mf_expert_fetch *f = begin(&r, 0, experts, 4);
    mf_expert_ready ready[4];
    for (uint32_t n, n_got = 0; n_got < 4; n_got += n)
        REQUIRE_OK(mf_expert_fetch_next(f, ready, 4 - n_got, &n, &error), &error);
    mf_expert_store_hint(r.store, 1, experts, 2); /* all slots are in use */
    CHECK_U64(stats_of(&r).n_hints, 0);
    mf_expert_fetch_end(f, 0); /* now they are not, and layer 0 comes after layer 1 */
    CHECK_U64(stats_of(&r).n_hints, 2);
    mf_expert_store_hint(r.store, 0, experts + 4, 4); /* later than what it would replace, or not */
    settle(&r);
    mf_expert_stats before = stats_of(&r);
    f = begin(&r, 1, experts, 2);
    REQUIRE_OK(finish(&r, f, 1, experts, &error), &error);
    CHECK_U64(stats_of(&r).n_hits, before.n_hits + 2);
    CHECK(stats_of(&r).n_hints_useful == 2);
    /* Foreseen and never wanted. */
    mf_expert_store_hint(r.store, 0, experts + 6, 2);
    settle(&r);
    for (uint32_t i = 0; i < 6; i++) {
        f = begin(&r, i % 2, experts, 4);
        REQUIRE_OK(finish(&r, f, i % 2, experts, &error), &error);
    }
    mf_expert_stats s = stats_of(&r);
    CHECK_U64(s.n_hints, s.n_hints_useful + s.n_hints_late + s.n_hints_wasted);
    CHECK(s.n_hints_wasted > 0);
    rig_close(&r);
    world_free(w);
}

/* Reads that fail are for nothing, as are those that nobody asked for; the expert is read anew for
 * who asks. */
static void test_hints_fail(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 16, 0);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    r.fault.fail_errno = EIO;
    r.fault.fail_from = r.fault.n_reads + 1;
    r.fault.fail_count = UINT64_MAX;
    mf_expert_store_hint(r.store, 0, experts, 4);
    settle(&r);
    mf_expert_stats s = stats_of(&r);
    CHECK_U64(s.n_hints, 4);
    CHECK_U64(s.n_hints_wasted, 4);
    CHECK_U64(s.hint_wasted_bytes, 0); /* nothing came of them */
    r.fault.fail_errno = 0;
    mf_expert_fetch *f = begin(&r, 0, experts, 4);
    REQUIRE_OK(finish(&r, f, 0, experts, &error), &error);
    s = stats_of(&r);
    CHECK_U64(s.n_misses, 4);
    CHECK_U64(s.n_hints_useful + s.n_hints_late + s.n_hints_cancelled, 0);
    rig_close(&r);
    world_free(w);
}

/* A policy that gives no slot back and counts what it is told of layers that there are not. */
typedef struct layer_spy {
    uint32_t n_layers, n_beyond;
} layer_spy;

static size_t spy_bytes(const mf_cache_shape *shape)
{
    (void)shape;
    return sizeof(layer_spy);
}

static void spy_init(void *state, const mf_cache_shape *shape)
{
    *(layer_spy *)state = (layer_spy){.n_layers = shape->n_layers};
}

static void spy_visit(void *state, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    (void)state, (void)layer, (void)experts, (void)n;
}

static void spy_note(void *state, const mf_cache_event *event)
{
    layer_spy *spy = state;
    spy->n_beyond += event->layer >= spy->n_layers;
}

static uint32_t spy_victim(void *state, const mf_cache_request *request)
{
    layer_spy *spy = state;
    spy->n_beyond += request->layer >= spy->n_layers;
    return UINT32_MAX;
}

static const mf_cache_policy spy_policy = {"spy",    spy_bytes,  spy_init, spy_visit,
                                           spy_note, spy_victim, NULL};

/* The layer behind the last is as far out of range as any. */
static void test_hint_beyond(const io_case *c, const char *dir)
{
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 4, 0);
    r.policy = &spy_policy;
    rig_forget(&r);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    mf_expert_store_hint(r.store, w->map.n_layers, experts, 8);
    mf_expert_store_hint(r.store, UINT32_MAX, experts, 8);
    const layer_spy *spy = r.store->policy_state;
    CHECK_U64(spy->n_layers, 2);
    CHECK_U64(spy->n_beyond, 0);
    CHECK_U64(r.store->n_hints, 0);
    rig_close(&r);
    world_free(w);
}

/* A demand takes the slot of what is foreseen and was not sent, the least likely first. */
static void test_demand_takes_queued(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 5, 0);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    r.fault.slow_lanes = ALL_LANES;
    mf_expert_store_hint(r.store, 1, experts, 5); /* three are sent, two are queued */
    CHECK_U64(stats_of(&r).n_queued, 2);
    mf_expert_fetch *one = begin(&r, 0, experts + 1, 1);
    CHECK_U64(stats_of(&r).n_queued, 1);
    CHECK(r.store->slot_of[mf_expert_key(r.store, 1, 3)] != MF_NONE);
    CHECK(r.store->slot_of[mf_expert_key(r.store, 1, 4)] == MF_NONE);
    mf_expert_fetch *f = begin(&r, 0, experts, 2);
    CHECK_U64(stats_of(&r).n_queued, 0);
    CHECK_U64(mf_io_in_flight(r.io), 14); /* of the third, two of three reads */
    r.fault.slow_lanes = 0;
    REQUIRE_OK(finish(&r, f, 0, experts, &error), &error);
    REQUIRE_OK(finish(&r, one, 0, experts + 1, &error), &error);
    rig_close(&r);
    world_free(w);
}

int main(void)
{
    const char *dirs[2];
    io_case cases[4];
    uint32_t n_cases = io_cases(cases);
    (void)scratch_dirs(dirs);
    for (uint32_t c = 0; c < n_cases; c++) {
        fprintf(stderr, "%s\n", cases[c].name);
        test_hints(&cases[c], dirs[0]);
        test_hint_beyond(&cases[c], dirs[0]);
        test_hints_wait(&cases[c], dirs[0]);
        test_hint_depth(&cases[c], dirs[0]);
        test_expected(&cases[c], dirs[0]);
        test_hints_overflow(&cases[c], dirs[0]);
        test_hints_and_slots(&cases[c], dirs[0]);
        test_demand_takes_queued(&cases[c], dirs[0]);
        test_hints_fail(&cases[c], dirs[0]);
    }
    return test_result();
}
