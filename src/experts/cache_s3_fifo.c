/* SPDX-License-Identifier: MIT */
/*
 * S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache eviction",
 * SOSP 2023): what comes is in a small queue first, a tenth of the slots, and goes to the main one
 * only if it was asked for again by the time it reaches the end; what was so dismissed lately and
 * comes again goes to the main queue at once, where it goes round as often as it was asked for, up
 * to three times. A sweep passes through the small queue and leaves the main one alone. To be
 * compared with.
 */
#include "experts/cache_policy.h"

#include <string.h>

#define NONE UINT32_MAX
#define MOST_USES 3u

typedef enum fifo { SMALL, MAIN, N_FIFOS } fifo;

typedef struct fifo_slot {
    uint32_t before, after; /* in its queue, from the oldest on */
    uint32_t key;           /* NONE: it holds none, and is in no queue */
    uint8_t queue, n_uses;
} fifo_slot;

typedef struct s3 {
    mf_cache_shape shape;
    uint32_t first[N_FIFOS], last[N_FIFOS], n[N_FIFOS];
    uint32_t n_dismissed; /* ever, from 1 on */
    fifo_slot *slots;
    uint32_t *dismissed; /* by key: as which of all; 0: never */
} s3;

static size_t s3_bytes(const mf_cache_shape *s)
{
    return sizeof(s3) + s->n_slots * sizeof(fifo_slot) +
           (size_t)s->n_layers * s->n_experts * sizeof(uint32_t);
}

static void s3_init(void *state, const mf_cache_shape *shape)
{
    s3 *s = state;
    memset(s, 0, s3_bytes(shape));
    s->shape = *shape;
    s->slots = (fifo_slot *)(s + 1);
    s->dismissed = (uint32_t *)(s->slots + shape->n_slots);
    s->first[SMALL] = s->first[MAIN] = s->last[SMALL] = s->last[MAIN] = NONE;
    for (uint32_t i = 0; i < shape->n_slots; i++)
        s->slots[i].key = NONE;
}

static void leave(s3 *s, uint32_t number)
{
    fifo_slot *slot = &s->slots[number];
    const uint8_t q = slot->queue;
    if (slot->before != NONE)
        s->slots[slot->before].after = slot->after;
    else
        s->first[q] = slot->after;
    if (slot->after != NONE)
        s->slots[slot->after].before = slot->before;
    else
        s->last[q] = slot->before;
    s->n[q]--;
}

static void join(s3 *s, uint32_t number, fifo q)
{
    fifo_slot *slot = &s->slots[number];
    slot->queue = (uint8_t)q;
    slot->before = s->last[q];
    slot->after = NONE;
    if (s->last[q] != NONE)
        s->slots[s->last[q]].after = number;
    else
        s->first[q] = number;
    s->last[q] = number;
    s->n[q]++;
}

/* Dismissed among the last as many as the main queue has room for. */
static bool is_remembered(const s3 *s, uint32_t key)
{
    return s->dismissed[key] != 0 && s->n_dismissed - s->dismissed[key] < s->shape.n_slots;
}

static void s3_visit(void *state, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    (void)state, (void)layer, (void)experts, (void)n;
}

static void s3_note(void *state, const mf_cache_event *event)
{
    s3 *s = state;
    fifo_slot *slot = &s->slots[event->slot];
    const uint32_t key = event->layer * s->shape.n_experts + event->expert;
    if (event->why == MF_CACHE_RELEASE)
        return;
    if (slot->key != NONE && slot->key == key && event->why != MF_CACHE_EMPTY) {
        slot->n_uses += slot->n_uses < MOST_USES && event->why == MF_CACHE_HIT;
        return;
    }
    if (slot->key != NONE) {
        if (slot->queue == SMALL)
            s->dismissed[slot->key] = ++s->n_dismissed;
        leave(s, event->slot);
        slot->key = NONE;
    }
    if (event->why == MF_CACHE_EMPTY)
        return;
    slot->key = key;
    slot->n_uses = 0;
    join(s, event->slot, is_remembered(s, key) ? MAIN : SMALL);
}

/* The oldest of a queue that may go. Of those before it that were used, the main queue's go round
 * once more, the small one's to the main queue. */
static uint32_t oldest_unused(s3 *s, fifo q, const mf_cache_request *r)
{
    uint32_t next;
    uint32_t left = s->n[q] * (q == MAIN ? MOST_USES + 1 : 1);
    for (uint32_t i = s->first[q]; i != NONE && left > 0; i = next, left--) {
        next = s->slots[i].after;
        if (!r->is_evictable(r->ctx, i))
            continue;
        if (s->slots[i].n_uses == 0)
            return i;
        s->slots[i].n_uses = q == MAIN ? (uint8_t)(s->slots[i].n_uses - 1) : 0;
        leave(s, i);
        join(s, i, MAIN);
        next = next == NONE && q == MAIN ? s->first[q] : next;
    }
    return NONE;
}

static uint32_t s3_victim(void *state, const mf_cache_request *request)
{
    s3 *s = state;
    const bool is_small_full = s->n[SMALL] > s->shape.n_slots / 10;
    const fifo first = is_small_full || s->n[MAIN] == 0 ? SMALL : MAIN;
    uint32_t found = oldest_unused(s, first, request);
    if (found == NONE)
        found = oldest_unused(s, first == SMALL ? MAIN : SMALL, request);
    /* all that may go was asked for: what had gone to the main queue meanwhile */
    return found != NONE ? found : oldest_unused(s, MAIN, request);
}

const mf_cache_policy mf_cache_policy_s3_fifo = {"s3-fifo", s3_bytes,  s3_init, s3_visit,
                                                 s3_note,   s3_victim, NULL};
