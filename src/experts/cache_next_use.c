/* SPDX-License-Identifier: MIT */
/*
 * Expected next use: the expert whose next use is expected last leaves first.
 *
 * Layers take turns in a ring, so that the earliest next use of an expert is its layer's next turn,
 * d layers ahead. An expert that is asked for in a share p of its layer's turns is expected 1/p - 1
 * rounds of L layers later than that: d + L (1/p - 1). In sweeps over all layers p is near 1
 * everywhere and d decides: the layer just left goes, and what a cache can hold of a sweep stays
 * (least recently used would drop each expert just before its turn). In decoding p differs, and the
 * rule is frequency with ageing, held against the ring at equal frequency.
 *
 * p is an average over the layer's turns, exponentially weighted, kept for all experts, held or
 * not: three parts of one over many turns, which says best what is asked for as long as a text
 * stays what it is, and one of an average over few, which soon knows when it does not. Each layer's
 * held slots are a list, its worst slot for each kind of request is remembered until the list or
 * its shares change, so that a victim costs one look at each layer and a walk over one layer's
 * slots.
 */
#include "experts/cache_policy.h"

#include <string.h>

#define NONE UINT32_MAX
/* The weight of a turn: 1 / n at the layer's n-th, up to these. */
#define TURNS_LATELY 24u
#define TURNS_LONG 256u
#define PART_LATELY 0.25F
/* An expert that was never asked for is taken to come once in so many turns. */
#define SHARE_LEAST (1.0F / 4096)

typedef struct slot_link {
    uint32_t before, after; /* in its layer's list */
    uint32_t layer, expert; /* layer: NONE outside */
    uint64_t foreseen;      /* the turn of its layer for which a hint foresaw it; 0: none */
} slot_link;

typedef struct worst_slot {
    uint32_t slot; /* evictable when looked at; NONE: there was none */
    float rounds;
} worst_slot;

typedef struct layer_list {
    uint32_t first;
    uint32_t known;                   /* kinds of requests, by bit, of which there is */
    worst_slot worst[MF_CACHE_KINDS]; /* this */
    uint64_t turn;                    /* the layer's next, from 1 on */
} layer_list;

/* In which share of its layer's turns an expert was asked for. */
typedef struct use_share {
    float lately, long_since;
} use_share;

typedef struct next_use {
    mf_cache_shape shape;
    uint32_t now; /* the layer whose turn it is */
    layer_list *layers;
    slot_link *links;
    use_share *shares; /* [n_layers][n_experts] */
} next_use;

static size_t next_use_bytes(const mf_cache_shape *s)
{
    return sizeof(next_use) + s->n_layers * sizeof(layer_list) + s->n_slots * sizeof(slot_link) +
           (size_t)s->n_layers * s->n_experts * sizeof(use_share);
}

static void next_use_init(void *state, const mf_cache_shape *shape)
{
    next_use *u = state;
    memset(u, 0, next_use_bytes(shape));
    u->shape = *shape;
    u->layers = (layer_list *)(u + 1);
    u->links = (slot_link *)(u->layers + shape->n_layers);
    u->shares = (use_share *)(u->links + shape->n_slots);
    for (uint32_t i = 0; i < shape->n_layers; i++)
        u->layers[i] = (layer_list){.first = NONE, .turn = 1};
    for (uint32_t i = 0; i < shape->n_slots; i++)
        u->links[i].layer = NONE;
}

/* ---------------------------------------------------------------------------------- shares -- */

static void next_use_visit(void *state, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    next_use *u = state;
    layer_list *l = &u->layers[layer];
    use_share *shares = u->shares + (size_t)layer * u->shape.n_experts;
    const use_share weight = {1.0F / (float)(l->turn < TURNS_LATELY ? l->turn : TURNS_LATELY),
                              1.0F / (float)(l->turn < TURNS_LONG ? l->turn : TURNS_LONG)};
    for (uint32_t e = 0; e < u->shape.n_experts; e++) {
        shares[e].lately -= weight.lately * shares[e].lately;
        shares[e].long_since -= weight.long_since * shares[e].long_since;
    }
    for (uint32_t i = 0; i < n; i++) {
        shares[experts[i]].lately += weight.lately;
        shares[experts[i]].long_since += weight.long_since;
    }
    l->turn++;
    l->known = 0;
    u->now = layer;
}

/* What was known before counts as so many turns. */
#define TURNS_PRIMED 16u

static void next_use_prime(void *state, uint32_t layer, const float *shares)
{
    next_use *u = state;
    use_share *own = u->shares + (size_t)layer * u->shape.n_experts;
    for (uint32_t e = 0; e < u->shape.n_experts; e++)
        own[e] = (use_share){shares[e], shares[e]};
    u->layers[layer].turn = TURNS_PRIMED + 1;
    u->layers[layer].known = 0;
}

/* Rounds after the layer's next turn. */
static float rounds_until(const next_use *u, const slot_link *link)
{
    if (link->foreseen == u->layers[link->layer].turn)
        return 0;
    const use_share *of = &u->shares[(size_t)link->layer * u->shape.n_experts + link->expert];
    const float share = PART_LATELY * of->lately + (1 - PART_LATELY) * of->long_since;
    return 1.0F / (share > SHARE_LEAST ? share : SHARE_LEAST) - 1.0F;
}

/* ----------------------------------------------------------------------------------- lists -- */

static void take_out(next_use *u, uint32_t slot)
{
    slot_link *link = &u->links[slot];
    if (link->layer == NONE)
        return;
    layer_list *l = &u->layers[link->layer];
    if (link->before != NONE)
        u->links[link->before].after = link->after;
    else
        l->first = link->after;
    if (link->after != NONE)
        u->links[link->after].before = link->before;
    l->known = 0;
    link->layer = NONE;
}

static void put_in(next_use *u, const mf_cache_event *event)
{
    layer_list *l = &u->layers[event->layer];
    take_out(u, event->slot);
    u->links[event->slot] = (slot_link){.before = NONE,
                                        .after = l->first,
                                        .layer = event->layer,
                                        .expert = event->expert,
                                        .foreseen = event->why == MF_CACHE_HINT ? l->turn : 0};
    if (l->first != NONE)
        u->links[l->first].before = event->slot;
    l->first = event->slot;
}

static void next_use_note(void *state, const mf_cache_event *event)
{
    next_use *u = state;
    u->layers[event->layer].known = 0;
    switch (event->why) {
    case MF_CACHE_MISS:
    case MF_CACHE_HINT:
    case MF_CACHE_MEASURE:
        put_in(u, event);
        break;
    case MF_CACHE_EMPTY:
        take_out(u, event->slot);
        break;
    case MF_CACHE_HIT:
    case MF_CACHE_RELEASE:
        break;
    }
}

/* --------------------------------------------------------------------------------- victims -- */

static void find_worst(const next_use *u, layer_list *l, const mf_cache_request *r)
{
    worst_slot worst = {NONE, -1};
    for (uint32_t slot = l->first; slot != NONE; slot = u->links[slot].after) {
        const float rounds = rounds_until(u, &u->links[slot]);
        if (rounds > worst.rounds && r->is_evictable(r->ctx, slot))
            worst = (worst_slot){slot, rounds};
    }
    l->worst[r->kind] = worst;
    l->known |= 1u << r->kind;
}

static uint32_t find_victim(next_use *u, const mf_cache_request *r, float *latest)
{
    uint32_t found = NONE;
    for (uint32_t i = 0; i < u->shape.n_layers; i++) {
        layer_list *l = &u->layers[i];
        if (l->first == NONE || (r->is_of_use != NULL && !r->is_of_use(r->ctx, i)))
            continue;
        const worst_slot *worst = &l->worst[r->kind];
        if ((l->known >> r->kind & 1) == 0 ||
            (worst->slot != NONE && !r->is_evictable(r->ctx, worst->slot)))
            find_worst(u, l, r);
        if (worst->slot == NONE)
            continue;
        float use = (float)mf_cache_layers_ahead(u->shape.n_layers, u->now, i) +
                    (float)u->shape.n_layers * worst->rounds;
        if (use > *latest) {
            *latest = use;
            found = worst->slot;
        }
    }
    return found;
}

static uint32_t next_use_victim(void *state, const mf_cache_request *r)
{
    next_use *u = state;
    /* What is foreseen is expected at its layer's next turn: only what comes later makes room. */
    float latest = r->why == MF_CACHE_HINT
                       ? (float)mf_cache_layers_ahead(u->shape.n_layers, u->now, r->layer)
                       : -1;
    uint32_t found = find_victim(u, r, &latest);
    if (found != NONE || r->why == MF_CACHE_HINT)
        return found;
    /* A slot may have become evictable without a word: a ticket was done. */
    for (uint32_t i = 0; i < u->shape.n_layers; i++)
        u->layers[i].known = 0;
    return find_victim(u, r, &latest);
}

const mf_cache_policy mf_cache_policy_next_use = {"next-use",     next_use_bytes, next_use_init,
                                                  next_use_visit, next_use_note,  next_use_victim,
                                                  next_use_prime};
