/* SPDX-License-Identifier: MIT */
/*
 * The expert store as a service: several fetches at a time, hints, cancelling, ends at any moment,
 * drives and engines that fail. After each of many random steps the whole state is checked, and
 * every expert in use has its bytes; another thread reads the counters all the while.
 */
#include "expert_fixture.h"

#include "experts/store_impl.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define FETCHES 4u

/* -------------------------------------------------------------------------------- the state -- */

static uint32_t count_queue(const mf_expert_store *s, const mf_load_queue *queue, uint32_t *n_sent)
{
    uint32_t n = 0, before = MF_NONE;
    for (uint32_t i = queue->first; i != MF_NONE; i = s->loads[i].after) {
        CHECK(s->loads[i].before == before);
        *n_sent += s->loads[i].state != MF_LOAD_QUEUED;
        before = i;
        n++;
    }
    CHECK(queue->last == before);
    return n;
}

static void check_loads(const mf_expert_store *s)
{
    uint32_t n_free = 0, n_foreseen = 0, n_queued = 0, n_in_queues = 0, n_in_flight = 0;
    for (uint32_t i = 0; i < s->n_loads; i++) {
        const mf_expert_load *load = &s->loads[i];
        if (load->state == MF_LOAD_FREE) {
            n_free++;
            continue;
        }
        n_foreseen += !load->is_demanded;
        n_queued += load->state == MF_LOAD_QUEUED;
        n_in_queues += load->is_in_queue;
        n_in_flight += load->n_in_flight;
        CHECK(s->slots[load->slot].state == MF_SLOT_LOADING);
        CHECK((load->lanes_left != 0) == load->is_in_queue);
        CHECK(load->first_item == MF_NONE || load->is_demanded);
    }
    uint32_t n_sent = 0;
    CHECK_U64(count_queue(s, &s->free_loads, &n_sent), n_free);
    n_sent = 0;
    uint32_t n_demanded = count_queue(s, &s->demanded, &n_sent);
    CHECK_U64(n_demanded + count_queue(s, &s->foreseen, &n_sent), n_in_queues);
    CHECK_U64(n_in_queues - n_sent, n_queued);
    CHECK_U64(s->n_foreseen, n_foreseen);
    CHECK_U64(s->n_queued, n_queued);
    CHECK(s->is_broken || n_in_flight == mf_io_in_flight(s->io));
    CHECK(mf_io_in_flight(s->io) > 0 || s->reading_since_us == 0);
    for (uint32_t i = 0; i < s->n_loads; i++) { /* what has reads left says so of their drives */
        const mf_expert_load *load = &s->loads[i];
        for (uint32_t lane = 0; lane < mf_io_n_lanes(s->io) && load->is_in_queue; lane++)
            CHECK(mf_expert_plan_has_next(&load->plan, s->io, lane, &load->cursors[lane]) ==
                  (load->lanes_left >> lane & 1));
    }
}

static void check_slots(const mf_expert_store *s)
{
    uint32_t n_users[64] = {0}, n_empty = 0;
    REQUIRE(s->n_slots <= 64);
    for (uint32_t i = 0; i < s->n_open; i++) {
        const mf_expert_fetch *f = s->open[i];
        for (uint32_t j = 0; j < f->n_items; j++) {
            mf_item_state state = f->items[j].state;
            if (state == MF_ITEM_WAITING || state == MF_ITEM_RELEASED)
                continue;
            n_users[f->items[j].slot]++;
            CHECK_U64(s->slots[f->items[j].slot].key,
                      mf_expert_key(s, f->layer, f->items[j].expert));
        }
    }
    for (uint32_t i = 0; i < s->n_slots; i++) {
        const mf_expert_slot *slot = &s->slots[i];
        CHECK_U64(slot->n_users, n_users[i]);
        n_empty += slot->state == MF_SLOT_EMPTY;
        CHECK(slot->state != MF_SLOT_HELD || s->slot_of[slot->key] == i);
    }
    CHECK_U64(n_empty, s->n_empty);
    for (uint32_t key = 0; key < s->map.n_layers * s->map.n_experts; key++) {
        uint32_t slot = s->slot_of[key];
        CHECK(slot == MF_NONE ||
              (s->slots[slot].key == key &&
               (s->slots[slot].state == MF_SLOT_HELD || s->slots[slot].state == MF_SLOT_LOADING)));
    }
}

/* ---------------------------------------------------------------------------- random steps -- */

typedef struct open_fetch {
    mf_expert_fetch *f;
    uint32_t layer, n, n_handed;
    uint32_t experts[MAX_EXPERTS];
    mf_expert_ready held[MAX_EXPERTS];
    uint32_t n_held;
    bool may_fail; /* something was broken since it began */
} open_fetch;

typedef struct service {
    rig r;
    open_fetch fetches[FETCHES];
    uint32_t n_open;
    uint64_t n_asked, n_failed, n_done;
    bool is_breaking; /* reads or the engine may fail now */
} service;

static void step_begin(service *s)
{
    mf_error error = {0};
    if (s->n_open == FETCHES)
        return;
    world *w = s->r.w;
    open_fetch *o = &s->fetches[s->n_open];
    *o = (open_fetch){.layer = (uint32_t)below(&w->random, w->map.n_layers),
                      .n = 1 + (uint32_t)below(&w->random, w->map.n_experts),
                      .may_fail = s->is_breaking};
    random_choice(w, o->experts, o->n);
    mf_status status = mf_expert_fetch_begin(s->r.store, o->layer, o->experts, o->n, &o->f, &error);
    if (status != MF_OK) {
        CHECK_STATUS(status, MF_ERR_IO); /* an engine that stays broken */
        CHECK(s->r.fault.reset_fails);
        return;
    }
    s->n_asked += o->n;
    s->n_open++;
}

static void step_end(service *s, uint32_t i)
{
    open_fetch *o = &s->fetches[i];
    for (uint32_t j = 0; j < o->n_held; j++)
        check_expert(&s->r, o->layer, o->experts[o->held[j].index], &o->held[j]);
    mf_expert_fetch_end(o->f, 0);
    *o = s->fetches[--s->n_open];
}

/* Legal only where every slot has been handed out, or is lost to an engine that stays broken. */
static void check_all_in_use(const service *s)
{
    bool is_used[64] = {false};
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_open; i++) {
        for (uint32_t j = 0; j < s->fetches[i].n_held; j++)
            is_used[s->fetches[i].held[j].slot] = true;
    }
    for (uint32_t i = 0; i < s->r.n_slots; i++)
        n += is_used[i] || s->r.store->slots[i].state == MF_SLOT_LOST;
    CHECK_U64(n, s->r.n_slots);
}

static void step_next(service *s, uint32_t i)
{
    mf_error error = {0};
    open_fetch *o = &s->fetches[i];
    uint32_t n = 0, n_most = 1 + (uint32_t)below(&s->r.w->random, 3);
    mf_status status = mf_expert_fetch_next(o->f, o->held + o->n_held, n_most, &n, &error);
    if (status == MF_ERR_STATE) {
        check_all_in_use(s);
        return;
    }
    if (status != MF_OK) {
        CHECK_STATUS(status, MF_ERR_IO);
        CHECK_MSG(o->may_fail, "a fetch failed that had no reason to: %s", error.message);
        s->n_failed++;
        step_end(s, i);
        return;
    }
    for (uint32_t j = 0; j < n; j++) {
        const mf_expert_ready *ready = &o->held[o->n_held + j];
        REQUIRE(ready->index < o->n);
        check_expert(&s->r, o->layer, o->experts[ready->index], ready);
    }
    o->n_held += n;
    o->n_handed += n;
    if (n > 0)
        return;
    CHECK_U64(o->n_handed, o->n);
    s->n_done++;
    step_end(s, i);
}

static void step_release(service *s, uint32_t i)
{
    open_fetch *o = &s->fetches[i];
    if (o->n_held == 0)
        return;
    uint32_t j = (uint32_t)below(&s->r.w->random, o->n_held);
    mf_expert_ready ready = o->held[j];
    check_expert(&s->r, o->layer, o->experts[ready.index], &ready); /* untouched until now */
    o->held[j] = o->held[--o->n_held];
    mf_expert_fetch_release(o->f, ready.index, 0);
}

static void step_hint(service *s)
{
    uint32_t experts[MAX_EXPERTS];
    world *w = s->r.w;
    uint32_t n = 1 + (uint32_t)below(&w->random, w->map.n_experts);
    random_choice(w, experts, n);
    mf_expert_store_hint(s->r.store, (uint32_t)below(&w->random, w->map.n_layers), experts, n);
}

static void step_break(service *s)
{
    mf_io_fault *fault = &s->r.fault;
    uint64_t what = below(&s->r.w->random, 6);
    s->is_breaking = what < 3;
    fault->fail_errno = what == 0 ? EIO : 0;
    fault->fail_from = fault->n_reads + 1 + below(&s->r.w->random, 10);
    fault->fail_count = 1 + below(&s->r.w->random, 3);
    fault->break_at = what == 1 || what == 2 ? fault->n_calls + 1 + below(&s->r.w->random, 20) : 0;
    fault->reset_fails = what == 2;
    for (uint32_t i = 0; i < s->n_open; i++)
        s->fetches[i].may_fail |= s->is_breaking;
}

static void random_step(service *s)
{
    uint64_t what = below(&s->r.w->random, 100);
    if (what < 8)
        step_hint(s);
    else if (what < 10)
        mf_expert_store_cancel_hints(s->r.store);
    else if (what < 14)
        mf_expert_store_poll(s->r.store);
    else if (what < 16 && s->r.fault.inner != NULL)
        step_break(s);
    else if (what < 36 || s->n_open == 0)
        step_begin(s);
    else if (what < 38)
        step_end(s, (uint32_t)below(&s->r.w->random, s->n_open));
    else if (what < 70)
        step_next(s, (uint32_t)below(&s->r.w->random, s->n_open));
    else
        step_release(s, (uint32_t)below(&s->r.w->random, s->n_open));
}

typedef struct counter_watch {
    mf_expert_store *store;
    atomic_bool is_over;
    uint64_t n_looks, n_wrong;
} counter_watch;

/* The counters from another thread: they only grow, and belong together. */
static void *watch(void *arg)
{
    counter_watch *w = arg;
    mf_expert_stats before = {0}, now;
    do {
        mf_expert_store_stats(w->store, &now);
        w->n_wrong += now.n_hits < before.n_hits || now.n_misses < before.n_misses ||
                      now.n_reads < before.n_reads || now.read_bytes < before.read_bytes ||
                      now.reading_us < before.reading_us || now.wait_us < before.wait_us;
        before = now;
        w->n_looks++;
        (void)sched_yield();
    } while (!atomic_load(&w->is_over));
    return NULL;
}

static void test_random_steps(const io_case *c, const char *dir, uint64_t seed)
{
    world *w = world_create(dir, seed);
    const uint32_t n_all = w->map.n_layers * w->map.n_experts;
    const uint32_t slots[] = {1, n_all < 4 ? n_all : 4, n_all / 2 + 1};
    uint64_t n_failed = 0;
    for (int k = 0; k < 3; k++) {
        service s = {.n_open = 0};
        pthread_t thread;
        rig_open(&s.r, c, w, slots[k], k == 1 ? 3 : 0);
        break_a_little(&s.r);
        counter_watch watcher = {.store = s.r.store};
        REQUIRE(pthread_create(&thread, NULL, watch, &watcher) == 0);
        for (int i = 0; i < 1500; i++) {
            random_step(&s);
            check_slots(s.r.store);
            check_loads(s.r.store);
        }
        atomic_store(&watcher.is_over, true);
        REQUIRE(pthread_join(thread, NULL) == 0);
        mf_expert_stats stats;
        mf_expert_store_stats(s.r.store, &stats);
        CHECK_U64(stats.n_hits + stats.n_misses, s.n_asked);
        CHECK(stats.n_hints >= stats.n_hints_useful + stats.n_hints_late);
        CHECK_MSG(stats.hint_wasted_bytes <= stats.hint_bytes,
                  "%llu bytes read for nothing, of %llu read for hints",
                  (unsigned long long)stats.hint_wasted_bytes,
                  (unsigned long long)stats.hint_bytes);
        CHECK(watcher.n_looks > 0 && watcher.n_wrong == 0 && s.n_done > 0);
        n_failed += s.n_failed;
        rig_close(&s.r); /* fetches are open, reads in flight */
    }
    CHECK(c->inner == NULL || n_failed > 0);
    world_free(w);
}

/* ---------------------------------------------------------------------------- turns -- */

/* Threads that take turns, as evaluations of sessions do, and end with reads in flight. */
typedef struct turns {
    rig *r;
    pthread_mutex_t turn;
} turns;

static void *take_turns(void *arg)
{
    turns *t = arg;
    mf_error error = {0};
    uint32_t experts[MAX_EXPERTS], n;
    for (int i = 0; i < 20; i++) {
        mf_expert_fetch *f = NULL;
        mf_expert_ready ready;
        pthread_mutex_lock(&t->turn);
        uint32_t layer = (uint32_t)below(&t->r->w->random, t->r->w->map.n_layers);
        random_choice(t->r->w, experts, t->r->w->map.n_experts);
        mf_expert_store_hint(t->r->store, layer, experts, 2);
        REQUIRE_OK(
            mf_expert_fetch_begin(t->r->store, layer, experts, t->r->w->map.n_experts, &f, &error),
            &error);
        for (int j = 0; j < 2; j++) {
            REQUIRE_OK(mf_expert_fetch_next(f, &ready, 1, &n, &error), &error);
            REQUIRE(n == 1);
            check_expert(t->r, layer, experts[ready.index], &ready);
            mf_expert_fetch_release(f, ready.index, 0);
        }
        mf_expert_fetch_end(f, 0);
        pthread_mutex_unlock(&t->turn);
    }
    return NULL;
}

static void test_turns(const io_case *c, const char *dir)
{
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 5, 0);
    break_a_little(&r);
    turns t = {.r = &r};
    pthread_mutex_init(&t.turn, NULL);
    pthread_t threads[3], looker;
    counter_watch watcher = {.store = r.store};
    REQUIRE(pthread_create(&looker, NULL, watch, &watcher) == 0);
    for (int round = 0; round < 3; round++) {
        pthread_mutex_lock(&t.turn); /* of the test's own counts, too */
        for (int i = 0; i < 3; i++)
            REQUIRE(pthread_create(&threads[i], NULL, take_turns, &t) == 0);
        pthread_mutex_unlock(&t.turn);
        int failure = 0;
        for (int i = 0; i < 3; i++)
            failure |= pthread_join(threads[i], NULL);
        CHECK_U64(failure, 0);
    }
    atomic_store(&watcher.is_over, true);
    REQUIRE(pthread_join(looker, NULL) == 0);
    CHECK(watcher.n_looks > 0 && watcher.n_wrong == 0);
    pthread_mutex_destroy(&t.turn);
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
        for (uint64_t seed = 1; seed <= 4; seed++)
            test_random_steps(&cases[c], dirs[seed % n_dirs], seed * 4 + c);
        test_turns(&cases[c], dirs[0]);
    }
    return test_result();
}
