/* SPDX-License-Identifier: MIT */
/*
 * Where an expert is, case by case: what a hint becomes, who goes first, what ends early, what a
 * failure takes with it, what a drive that hangs holds up, and what tickets keep. Drives hang by
 * script, so that nothing depends on time.
 */
#include "expert_fixture.h"

#include "experts/store_impl.h"

#include <errno.h>

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

/* -------------------------------------------------------------------------------- foresight -- */

/* What others see: where each expert is, and how often it was asked for. */
static void test_look(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 5, 0);
    uint8_t states[8], one = 99;
    uint32_t n_asked[8];
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    mf_expert_store_look(r.store, 0, states, n_asked, 8);
    for (uint32_t e = 0; e < 8; e++)
        CHECK(states[e] == MF_EXPERT_ABSENT && n_asked[e] == 0);
    mf_expert_fetch *f = begin(&r, 0, experts, 1);
    REQUIRE_OK(finish(&r, f, 0, experts, &error), &error);
    r.fault.slow_lanes = ALL_LANES;
    f = begin(&r, 0, experts, 2);
    mf_expert_store_hint(r.store, 0, experts + 3, 3);
    mf_expert_store_look(r.store, 0, states, n_asked, 8);
    const uint8_t expected[] = {MF_EXPERT_HELD,    MF_EXPERT_READING, MF_EXPERT_ABSENT,
                                MF_EXPERT_READING, MF_EXPERT_READING, MF_EXPERT_QUEUED,
                                MF_EXPERT_ABSENT,  MF_EXPERT_ABSENT};
    const uint32_t asked[] = {2, 1, 0, 0, 0, 0, 0, 0}; /* what is foreseen was not asked for */
    CHECK(memcmp(states, expected, sizeof states) == 0);
    CHECK(memcmp(n_asked, asked, sizeof asked) == 0);
    check_look(r.store);
    mf_expert_store_look(r.store, 0, &one, NULL, 1);
    CHECK_U64(one, MF_EXPERT_HELD);
    mf_expert_store_cancel_hints(r.store);
    check_look(r.store);
    r.fault.slow_lanes = 0;
    REQUIRE_OK(finish(&r, f, 0, experts, &error), &error);
    settle(&r);
    check_look(r.store);
    for (uint32_t i = 0; i < 4; i++) { /* others have to make room */
        f = begin(&r, i % 2, experts, 5);
        REQUIRE_OK(finish(&r, f, i % 2, experts, &error), &error);
        check_look(r.store);
    }
    mf_expert_store_look(r.store, 1, NULL, n_asked, 8);
    CHECK(n_asked[0] == 2 && n_asked[4] == 2 && n_asked[5] == 0);
    rig_close(&r);
    world_free(w);
}

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

/* A demand is sent to the drive's depth at once, however many reads that is. */
static void test_demand_depth(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir);
    w->map.n_layers = 1;
    w->map.n_parts = MF_MAX_EXPERT_PARTS;
    for (uint32_t i = 0; i < MF_MAX_EXPERT_PARTS; i++)
        w->parts[i] = (mf_expert_part){
            i % N_FILES, 200000u * i + 17, 20000, 5000 + 100 * i, NULL, NULL, NULL, NULL};
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const uint32_t depths[] = {0, 70};
    for (int i = 0; i < 2; i++) {
        rig r;
        rig_open(&r, c, w, 8, depths[i]);
        r.fault.slow_lanes = ALL_LANES;
        mf_expert_fetch *f = begin(&r, 0, experts, 8);
        CHECK_U64(mf_io_in_flight(r.io), i == 0 ? 8 * MF_MAX_EXPERT_PARTS : 70);
        r.fault.slow_lanes = 0;
        REQUIRE_OK(finish(&r, f, 0, experts, &error), &error);
        rig_close(&r);
    }
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

/* Where slots are short, one expert is handed out at a time, and the next is read once it is
 * released, while others that are there were not yet handed out. */
static void test_one_at_a_time(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir); /* an expert is three reads */
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    mf_expert_ready ready[8];
    uint32_t n;
    rig r;
    rig_open(&r, c, w, 3, 0);
    mf_expert_fetch *f = begin(&r, 0, experts, 5);
    settle(&r);
    r.fault.slow_lanes = ALL_LANES;
    for (uint32_t i = 0; i < 3; i++) {
        REQUIRE_OK(mf_expert_fetch_next(f, ready, 8, &n, &error), &error);
        CHECK_U64(n, 1);
        check_expert(&r, 0, experts[ready[0].index], &ready[0]);
        mf_expert_fetch_release(f, ready[0].index, 0);
        CHECK_U64(mf_io_in_flight(r.io), i == 0 ? 3 : 6); /* the fourth, then the fifth as well */
    }
    r.fault.slow_lanes = 0;
    settle(&r);
    REQUIRE_OK(mf_expert_fetch_next(f, ready, 8, &n, &error), &error);
    CHECK_U64(n, 2); /* nothing waits any more */
    mf_expert_fetch_end(f, 0);
    f = begin(&r, 1, experts, 3);
    settle(&r);
    REQUIRE_OK(mf_expert_fetch_next(f, ready, 8, &n, &error), &error);
    CHECK_U64(n, 3);
    mf_expert_fetch_end(f, 0);
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

/* --------------------------------------------------------------------------- many fetches -- */

/* Ending waits for nothing: what was being read is held afterwards, what was queued is forgotten.
 */
static void test_end_does_not_wait(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 16, 7);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5};
    r.fault.slow_lanes = ALL_LANES;
    mf_expert_fetch *f = begin(&r, 0, experts, 6);
    CHECK_U64(mf_io_in_flight(r.io), 7); /* the third expert's first read is among them */
    CHECK_U64(stats_of(&r).n_queued, 3);
    mf_expert_fetch_end(f, 0);
    CHECK_U64(mf_io_in_flight(r.io), 7);
    CHECK_U64(stats_of(&r).n_queued, 0);
    r.fault.slow_lanes = 0;
    settle(&r);
    f = begin(&r, 0, experts, 6);
    CHECK_U64(stats_of(&r).n_hits, 3);
    REQUIRE_OK(finish(&r, f, 0, experts, &error), &error);
    CHECK_U64(stats_of(&r).n_reads, 6 * 3);
    rig_close(&r);
    world_free(w);
}

/* Two fetches share what both want: one read, and the end of one leaves it to the other. */
static void test_shared(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 16, 0);
    break_a_little(&r);
    const uint32_t some[] = {0, 1, 2, 3}, others[] = {3, 2, 1, 5}, third[] = {1};
    mf_expert_fetch *a = begin(&r, 0, some, 4), *b = begin(&r, 0, others, 4),
                    *d = begin(&r, 0, third, 1);
    mf_expert_fetch_end(a, 0);
    REQUIRE_OK(finish(&r, b, 0, others, &error), &error);
    REQUIRE_OK(finish(&r, d, 0, third, &error), &error);
    settle(&r);
    mf_expert_stats s = stats_of(&r);
    CHECK_U64(s.n_reads, 15);
    CHECK_U64(s.n_hits + s.n_misses, 9);
    rig_close(&r);
    world_free(w);
}

/* The fetch that is waited for comes to its end first, whatever is ready for others. */
static void test_any_order(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir);
    const uint32_t slots[] = {1, 2, 3, 5};
    for (int i = 0; i < 4; i++) {
        rig r;
        rig_open(&r, c, w, slots[i], 0);
        break_a_little(&r);
        const uint32_t experts[] = {0, 1, 2, 3, 4, 5};
        mf_expert_fetch *f[4];
        for (uint32_t j = 0; j < 4; j++)
            f[j] = begin(&r, j % 2, experts + j % 3, 3);
        const uint32_t order[] = {3, 1, 0, 2};
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t k = order[j];
            REQUIRE_OK(finish(&r, f[k], k % 2, experts + k % 3, &error), &error);
        }
        rig_close(&r);
    }
    world_free(w);
}

/* --------------------------------------------------------------------------------- failures -- */

/* A bad place on a drive fails who wants the expert that lies there, and nobody else. */
static void test_bad_place(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 16, 0);
    const uint32_t bad[] = {6, 3, 1}, good[] = {1, 2, 5}, both[] = {3};
    const mf_expert_part *part = &w->parts[0];
    r.fault.fail_errno = EIO;
    r.fault.fail_at_offset = true;
    r.fault.fail_offset = part->offset + 3 * part->stride + 5000;
    r.fault.hold_chance = 300;
    r.fault.shuffle = 1;
    mf_expert_fetch *a = begin(&r, 0, bad, 3), *b = begin(&r, 0, good, 3),
                    *d = begin(&r, 0, both, 1);
    mf_expert_store_hint(r.store, 0, both, 1);
    REQUIRE_OK(finish(&r, b, 0, good, &error), &error);
    CHECK_STATUS(finish(&r, a, 0, bad, &error), MF_ERR_IO);
    CHECK_U64(error.os_errno, EIO);
    CHECK_CONTAINS(error.message, "offset ");
    CHECK_STATUS(finish(&r, d, 0, both, &error), MF_ERR_IO);
    a = begin(&r, 0, bad, 3);
    CHECK_STATUS(finish(&r, a, 0, bad, &error), MF_ERR_IO);
    r.fault.fail_errno = 0;
    a = begin(&r, 0, bad, 3);
    REQUIRE_OK(finish(&r, a, 0, bad, &error), &error);
    check_look(r.store);
    rig_close(&r);
    world_free(w);
}

/* The engine itself fails at any call: the fetch says so, and the next one works. */
static void test_engine_breaks(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    uint32_t n_failed = 0;
    for (uint64_t nth = 1; nth < 12; nth++) {
        rig_open(&r, c, w, 4, 5);
        r.fault.hold_chance = 300;
        r.fault.shuffle = 1;
        r.fault.break_at = r.fault.n_calls + nth;
        mf_expert_fetch *f = begin(&r, 0, experts, 8);
        mf_status status = finish(&r, f, 0, experts, &error);
        if (status != MF_OK) {
            CHECK_STATUS(status, MF_ERR_IO);
            CHECK_CONTAINS(error.message, "broke");
            n_failed++;
        }
        CHECK_U64(r.fault.n_resets, r.fault.n_calls >= r.fault.break_at);
        f = begin(&r, 0, experts, 8);
        REQUIRE_OK(finish(&r, f, 0, experts, &error), &error);
        check_look(r.store);
        rig_close(&r);
    }
    CHECK(n_failed > 3);
    world_free(w);
}

/* Where it cannot be started anew, each fetch says so; when it can, all is well again. */
static void test_engine_stays_broken(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 4, 0);
    double rate;
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    r.fault.slow_lanes = ALL_LANES;
    mf_expert_fetch *f = begin(&r, 0, experts, 8), *none = NULL;
    mf_expert_store_hint(r.store, 1, experts, 8);
    r.fault.reset_fails = true;
    r.fault.break_at = r.fault.n_calls + 1;
    CHECK_STATUS(finish(&r, f, 0, experts, &error), MF_ERR_IO);
    CHECK_CONTAINS(error.message, "broke");
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(mf_expert_fetch_begin(r.store, 0, experts, 8, &none, &error), MF_ERR_IO);
        CHECK_CONTAINS(error.message, "stays broken");
        CHECK_STATUS(mf_expert_store_measure(r.store, 2, 10, &rate, &error), MF_ERR_IO);
        mf_expert_store_poll(r.store);
        mf_expert_store_hint(r.store, 1, experts, 8);
    }
    r.fault.reset_fails = false;
    r.fault.slow_lanes = 0;
    f = begin(&r, 0, experts, 8);
    REQUIRE_OK(finish(&r, f, 0, experts, &error), &error);
    f = begin(&r, 1, experts, 8);
    REQUIRE_OK(finish(&r, f, 1, experts, &error), &error);
    REQUIRE_OK(mf_expert_store_measure(r.store, 2, 10, &rate, &error), &error);
    check_look(r.store);
    rig_close(&r);
    world_free(w);
}

/* --------------------------------------------------------------------------------- drives -- */

/* Layer 0 on one drive, layer 1 on the other, an expert of layer 2 on both. One hangs. */
static void test_two_drives(const io_case *c, const char **dirs)
{
    mf_error error = {0};
    struct stat info[2];
    world *w = plain_world(dirs[0]);
    scratch_remove(&w->files[1]);
    w->files[1] = scratch_create(dirs[1], 3000000, &w->random);
    w->map.n_layers = 3;
    for (uint32_t i = 0; i < 9; i++)
        w->parts[i] = (mf_expert_part){
            i < 3 ? 0 : i < 6 ? 1 : i % 2, 100000u * i + 17, 20000, 9000, NULL, NULL, NULL, NULL};
    rig r;
    rig_open(&r, c, w, 24, 12);
    REQUIRE(stat(w->files[0].path, &info[0]) == 0 && stat(w->files[1].path, &info[1]) == 0);
    if (c->inner != NULL && info[0].st_dev != info[1].st_dev) {
        const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
        r.fault.slow_lanes = 1;
        mf_expert_fetch *slow = begin(&r, 0, experts, 8), *split = begin(&r, 2, experts, 4);
        mf_expert_store_hint(r.store, 0, experts, 8);
        for (int i = 0; i < 3; i++) {
            mf_expert_fetch *fast = begin(&r, 1, experts, 8);
            REQUIRE_OK(finish(&r, fast, 1, experts, &error), &error);
        }
        CHECK_U64(mf_io_lane_in_flight(r.io, 0), 6);
        r.fault.slow_lanes = 0;
        REQUIRE_OK(finish(&r, split, 2, experts, &error), &error);
        REQUIRE_OK(finish(&r, slow, 0, experts, &error), &error);
    }
    rig_close(&r);
    world_free(w);
}

/* --------------------------------------------------------------------------------- tickets -- */

typedef struct ticket_clock {
    mf_ticket now;
    uint32_t n_waits;
    mf_status wait_status;
} ticket_clock;

static bool clock_is_done(void *ctx, mf_ticket ticket)
{
    return ticket <= ((ticket_clock *)ctx)->now;
}

static mf_status clock_wait_for(void *ctx, mf_ticket ticket, mf_error *error)
{
    ticket_clock *clock = ctx;
    clock->n_waits++;
    if (clock->wait_status != MF_OK)
        return mf_fail(error, clock->wait_status, "the device is lost");
    clock->now = ticket;
    return MF_OK;
}

static void open_with_clock(rig *r, const io_case *c, world *w, ticket_clock *clock)
{
    mf_error error = {0};
    rig_open(r, c, w, 3, 0);
    mf_expert_store_close(&r->store);
    mf_expert_store_options options = rig_options(r);
    options.memory.ctx = clock;
    options.memory.is_done = clock_is_done;
    options.memory.wait_for = clock_wait_for;
    REQUIRE_OK(mf_expert_store_open(&options, &r->store, &error), &error);
}

/* A fetch of three experts, each released with a ticket. */
static void use_three(rig *r, const uint32_t *experts, const mf_ticket *tickets,
                      mf_expert_ready *used)
{
    mf_error error = {0};
    uint32_t n = 0;
    mf_expert_fetch *f = begin(r, 0, experts, 3);
    for (uint32_t i = 0; i < 3; i++) {
        REQUIRE_OK(mf_expert_fetch_next(f, &used[i], 1, &n, &error), &error);
        mf_expert_fetch_release(f, used[i].index, tickets[i]);
    }
    mf_expert_fetch_end(f, 0);
}

/* A slot is not written to before the ticket of its last use is done; where nothing else is to be
 * had, the earliest ticket is waited for. */
static void test_tickets(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    ticket_clock clock = {0};
    open_with_clock(&r, c, w, &clock);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const mf_ticket tickets[] = {30, 20, 10};
    mf_expert_ready used[3], ready;
    uint32_t n = 0;
    use_three(&r, experts, tickets, used);
    mf_expert_fetch *f = begin(&r, 1, experts, 1); /* no slot yet */
    CHECK_U64(mf_io_in_flight(r.io), 0);
    for (uint32_t i = 0; i < 3; i++)
        check_expert(&r, 0, experts[used[i].index], &used[i]);
    clock.now = 10; /* the last one's is done: it is the one to go */
    REQUIRE_OK(mf_expert_fetch_next(f, &ready, 1, &n, &error), &error);
    CHECK(n == 1 && ready.slot == used[2].slot && clock.n_waits == 0);
    mf_expert_fetch_release(f, ready.index, 40);
    mf_expert_fetch_end(f, 0);
    f = begin(&r, 1, experts + 1, 1);
    check_expert(&r, 0, experts[used[0].index], &used[0]);
    check_expert(&r, 0, experts[used[1].index], &used[1]);
    REQUIRE_OK(mf_expert_fetch_next(f, &ready, 1, &n, &error), &error);
    CHECK(n == 1 && ready.slot == used[1].slot && clock.now == 20 && clock.n_waits == 1);
    mf_expert_fetch_end(f, 0);
    rig_close(&r);
    world_free(w);
}

/* Of the tickets of several users the latest keeps the slot, in whatever order they come. */
static void test_latest_ticket(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    ticket_clock clock = {0};
    open_with_clock(&r, c, w, &clock);
    const uint32_t experts[] = {0, 1, 2};
    const mf_ticket later[] = {50, 70, 60};
    mf_expert_ready kept[3], used[3], ready;
    uint32_t n = 0;
    mf_expert_fetch *f = begin(&r, 0, experts, 3), *other;
    for (uint32_t i = 0; i < 3; i++)
        REQUIRE_OK(mf_expert_fetch_next(f, &kept[i], 1, &n, &error), &error);
    use_three(&r, experts, later, used);
    for (uint32_t i = 0; i < 3; i++)
        mf_expert_fetch_release(f, kept[i].index, 10 + i);
    mf_expert_fetch_end(f, 0);
    clock.now = 40;
    other = begin(&r, 1, experts, 1);
    CHECK_U64(mf_io_in_flight(r.io), 0);
    REQUIRE_OK(mf_expert_fetch_next(other, &ready, 1, &n, &error), &error);
    CHECK(n == 1 && ready.slot == used[0].slot && clock.now == 50 && clock.n_waits == 1);
    mf_expert_fetch_end(other, 0);
    rig_close(&r);
    world_free(w);
}

/* A device that is lost while a ticket is waited for; a ticket given at a fetch's end. */
static void test_tickets_at_the_end(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    ticket_clock clock = {0};
    open_with_clock(&r, c, w, &clock);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const mf_ticket tickets[] = {30, 20, 40};
    mf_expert_ready used[3], ready;
    uint32_t n = 0;
    use_three(&r, experts, tickets, used);
    mf_expert_fetch *f = begin(&r, 1, experts, 1);
    clock.wait_status = MF_ERR_IO;
    CHECK_STATUS(mf_expert_fetch_next(f, &ready, 1, &n, &error), MF_ERR_IO);
    CHECK_CONTAINS(error.message, "lost");
    clock.wait_status = MF_OK;
    REQUIRE_OK(mf_expert_fetch_next(f, &ready, 1, &n, &error), &error);
    CHECK(n == 1 && ready.slot == used[1].slot && clock.now == 20);
    mf_expert_fetch_end(f, 50); /* handed out, and not released before */
    clock.now = 40;
    f = begin(&r, 0, experts + 4, 3);
    for (uint32_t i = 0; i < 3; i++) {
        REQUIRE_OK(mf_expert_fetch_next(f, &used[i], 1, &n, &error), &error);
        CHECK((used[i].slot == ready.slot) == (i == 2));
        CHECK_U64(clock.now, i == 2 ? 50 : 40);
    }
    mf_expert_fetch_end(f, 0);
    rig_close(&r);
    world_free(w);
}

int main(void)
{
    const char *dirs[2];
    io_case cases[4];
    uint32_t n_dirs = scratch_dirs(dirs), n_cases = io_cases(cases);
    for (uint32_t c = 0; c < n_cases; c++) {
        fprintf(stderr, "%s\n", cases[c].name);
        test_look(&cases[c], dirs[0]);
        test_hints(&cases[c], dirs[0]);
        test_hint_beyond(&cases[c], dirs[0]);
        test_hints_wait(&cases[c], dirs[0]);
        test_demand_depth(&cases[c], dirs[0]);
        test_hint_depth(&cases[c], dirs[0]);
        test_expected(&cases[c], dirs[0]);
        test_one_at_a_time(&cases[c], dirs[0]);
        test_hints_overflow(&cases[c], dirs[0]);
        test_hints_and_slots(&cases[c], dirs[0]);
        test_demand_takes_queued(&cases[c], dirs[0]);
        test_end_does_not_wait(&cases[c], dirs[0]);
        test_shared(&cases[c], dirs[0]);
        test_any_order(&cases[c], dirs[0]);
        test_bad_place(&cases[c], dirs[0]);
        test_engine_breaks(&cases[c], dirs[0]);
        test_engine_stays_broken(&cases[c], dirs[0]);
        test_tickets(&cases[c], dirs[0]);
        test_latest_ticket(&cases[c], dirs[0]);
        test_tickets_at_the_end(&cases[c], dirs[0]);
        if (n_dirs == 2)
            test_two_drives(&cases[c], dirs);
    }
    return test_result();
}
