/* SPDX-License-Identifier: MIT */
/*
 * Caches by simulation: a trace of visits (a layer, the experts asked for) against a policy, and
 * against Belady's rule, which knows the future: the expert whose next use is furthest away leaves.
 * As in the store, the experts of a visit stay until all are there, or until slots run out.
 */
#ifndef MF_TESTS_CACHE_SIM_H
#define MF_TESTS_CACHE_SIM_H

#include "experts/cache_policy.h"
#include "test.h"

typedef struct cache_trace {
    uint32_t n_layers, n_experts;
    uint32_t n_visits, n_keys;
    uint32_t *layers; /* [n_visits] */
    uint32_t *first;  /* [n_visits + 1] into keys */
    uint32_t *keys;   /* layer * n_experts + expert */
    uint32_t visits_capacity, keys_capacity;
} cache_trace;

static void *sim_grow(void *old, size_t n_bytes)
{
    void *p = realloc(old, n_bytes);
    REQUIRE(p != NULL);
    return p;
}

static void trace_add(cache_trace *t, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    if (t->n_visits + 2 > t->visits_capacity) {
        t->visits_capacity = 2 * t->visits_capacity + 64;
        t->layers = sim_grow(t->layers, t->visits_capacity * sizeof *t->layers);
        t->first = sim_grow(t->first, t->visits_capacity * sizeof *t->first);
    }
    if (t->n_keys + n > t->keys_capacity) {
        t->keys_capacity = 2 * t->keys_capacity + n;
        t->keys = sim_grow(t->keys, t->keys_capacity * sizeof *t->keys);
    }
    t->layers[t->n_visits] = layer;
    t->first[t->n_visits++] = t->n_keys;
    for (uint32_t i = 0; i < n; i++)
        t->keys[t->n_keys++] = layer * t->n_experts + experts[i];
    t->first[t->n_visits] = t->n_keys;
}

static void trace_free(cache_trace *t)
{
    free(t->layers);
    free(t->first);
    free(t->keys);
    *t = (cache_trace){0};
}

typedef struct cache_sim {
    const cache_trace *trace;
    const mf_cache_policy *policy; /* NULL: Belady */
    void *state;
    uint32_t n_slots, n_used;
    uint32_t *key_of;           /* [n_slots] */
    uint32_t *slot_of;          /* by key */
    bool *is_pinned;            /* [n_slots] */
    uint64_t *next;             /* [n_keys] where the key comes again; Belady */
    uint64_t *next_of;          /* [n_slots] */
    uint64_t n_misses, n_looks; /* slots that the policy asked about */
} cache_sim;

static bool sim_is_evictable(void *ctx, uint32_t slot)
{
    cache_sim *s = ctx;
    s->n_looks++;
    return !s->is_pinned[slot];
}

static void sim_note(cache_sim *s, mf_cache_why why, uint32_t slot)
{
    if (s->policy == NULL)
        return;
    uint32_t n = s->trace->n_experts, key = s->key_of[slot];
    s->policy->note(s->state, &(mf_cache_event){why, key / n, key % n, slot});
}

static uint32_t sim_furthest(const cache_sim *s)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        if (!s->is_pinned[i] && (found == UINT32_MAX || s->next_of[i] > s->next_of[found]))
            found = i;
    }
    return found;
}

static uint32_t sim_victim(cache_sim *s, uint32_t key)
{
    if (s->policy == NULL)
        return sim_furthest(s);
    uint32_t n = s->trace->n_experts;
    const mf_cache_request request = {MF_CACHE_MISS,    key / n, key % n, 0,
                                      sim_is_evictable, NULL,    s};
    uint32_t slot = s->policy->victim(s->state, &request);
    CHECK(slot == UINT32_MAX || !s->is_pinned[slot]);
    return slot;
}

static void sim_release(cache_sim *s, uint32_t slot)
{
    if (!s->is_pinned[slot])
        return;
    s->is_pinned[slot] = false;
    sim_note(s, MF_CACHE_RELEASE, slot);
}

/* A slot for the key; where all are pinned, the visit's experts before it have been computed. */
static uint32_t sim_take(cache_sim *s, uint32_t key)
{
    if (s->n_used < s->n_slots)
        return s->n_used++;
    uint32_t slot = sim_victim(s, key);
    if (slot == UINT32_MAX) {
        for (uint32_t i = 0; i < s->n_slots; i++)
            sim_release(s, i);
        slot = sim_victim(s, key);
    }
    REQUIRE(slot < s->n_slots);
    sim_note(s, MF_CACHE_EMPTY, slot);
    s->slot_of[s->key_of[slot]] = UINT32_MAX;
    return slot;
}

/* A layer's turn: these keys. `next`: where each comes again, or NULL. */
static uint64_t sim_turn(cache_sim *s, uint32_t layer, const uint32_t *keys, uint32_t n,
                         const uint64_t *next)
{
    uint32_t experts[1024];
    uint64_t n_hits = 0;
    REQUIRE(n <= 1024);
    for (uint32_t i = 0; i < n; i++)
        experts[i] = keys[i] % s->trace->n_experts;
    if (s->policy != NULL)
        s->policy->visit(s->state, layer, experts, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = s->slot_of[keys[i]];
        if (slot == UINT32_MAX)
            continue;
        n_hits++;
        s->is_pinned[slot] = true;
        s->next_of[slot] = next != NULL ? next[i] : 0;
        sim_note(s, MF_CACHE_HIT, slot);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (s->slot_of[keys[i]] != UINT32_MAX)
            continue;
        s->n_misses++;
        uint32_t slot = sim_take(s, keys[i]);
        s->key_of[slot] = keys[i];
        s->slot_of[keys[i]] = slot;
        s->is_pinned[slot] = true;
        s->next_of[slot] = next != NULL ? next[i] : 0;
        sim_note(s, MF_CACHE_MISS, slot);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (s->slot_of[keys[i]] != UINT32_MAX)
            sim_release(s, s->slot_of[keys[i]]);
    }
    return n_hits;
}

static uint64_t sim_visit(cache_sim *s, uint32_t visit)
{
    const cache_trace *t = s->trace;
    const uint32_t begin = t->first[visit], n = t->first[visit + 1] - begin;
    return sim_turn(s, t->layers[visit], t->keys + begin, n, s->next + begin);
}

/* What is not of the trace as it is; not by Belady's rule. */
__attribute__((unused)) static uint64_t sim_ask(cache_sim *s, uint32_t layer, const uint32_t *keys,
                                                uint32_t n)
{
    return sim_turn(s, layer, keys, n, NULL);
}

static uint64_t *find_next_uses(const cache_trace *t)
{
    size_t n_all = (size_t)t->n_layers * t->n_experts;
    uint64_t *next = calloc(t->n_keys, sizeof *next), *last = malloc(n_all * sizeof *last);
    REQUIRE(next != NULL && last != NULL);
    memset(last, 0xff, n_all * sizeof *last);
    for (uint32_t i = t->n_keys; i-- > 0;) {
        next[i] = last[t->keys[i]];
        last[t->keys[i]] = i;
    }
    free(last);
    return next;
}

static cache_sim sim_open(const cache_trace *t, const mf_cache_policy *policy, uint32_t n_slots)
{
    size_t n_all = (size_t)t->n_layers * t->n_experts;
    const mf_cache_shape shape = {n_slots, t->n_layers, t->n_experts};
    cache_sim s = {.trace = t, .policy = policy, .n_slots = n_slots};
    s.key_of = calloc(n_slots, sizeof *s.key_of);
    s.slot_of = malloc(n_all * sizeof *s.slot_of);
    s.is_pinned = calloc(n_slots, sizeof *s.is_pinned);
    s.next_of = calloc(n_slots, sizeof *s.next_of);
    s.next = find_next_uses(t);
    s.state = policy == NULL ? NULL : malloc(policy->state_bytes(&shape));
    REQUIRE(s.key_of != NULL && s.slot_of != NULL && s.is_pinned != NULL && s.next_of != NULL);
    memset(s.slot_of, 0xff, n_all * sizeof *s.slot_of);
    if (policy != NULL)
        policy->init(s.state, &shape);
    return s;
}

static void sim_close(cache_sim *s)
{
    free(s->key_of);
    free(s->slot_of);
    free(s->is_pinned);
    free(s->next_of);
    free(s->next);
    free(s->state);
}

/* The share of requests that hit; policy NULL: by Belady's rule. *n_looks: slots that the policy
 * looked at for a miss. */
static double sim_hit_rate(const cache_trace *t, const mf_cache_policy *policy, uint32_t n_slots,
                           double *n_looks)
{
    cache_sim s = sim_open(t, policy, n_slots);
    uint64_t n_hits = 0;
    for (uint32_t v = 0; v < t->n_visits; v++)
        n_hits += sim_visit(&s, v);
    if (n_looks != NULL)
        *n_looks = (double)s.n_looks / (double)s.n_misses;
    sim_close(&s);
    return (double)n_hits / t->n_keys;
}

#endif
