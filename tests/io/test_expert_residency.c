/* SPDX-License-Identifier: MIT */
/*
 * Where an expert is, case by case: what is seen from outside, who has what in flight, what ends
 * early, what a failure takes with it, what a drive that hangs holds up, and what tickets keep.
 * What hints become is test_expert_hints.c's.
 */
#include "residency_fixture.h"

#include <errno.h>

/* --------------------------------------------------------------------------------- fetches -- */

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
        test_demand_depth(&cases[c], dirs[0]);
        test_one_at_a_time(&cases[c], dirs[0]);
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
