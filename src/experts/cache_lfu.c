/* SPDX-License-Identifier: MIT */
/*
 * Least frequently used, with ageing: an expert counts each time that it is asked for, held or not,
 * and all counts are halved as often as each layer has had its turn so many times. The least
 * recently asked for goes first among equals. To be compared with: a victim looks at every slot.
 */
#include "experts/cache_policy.h"

#include <string.h>

#define NONE UINT32_MAX
#define TURNS_TO_HALVE 64u

typedef struct lfu_slot {
    uint32_t key; /* NONE: it holds none */
    uint32_t padding;
    uint64_t last; /* request */
} lfu_slot;

typedef struct lfu {
    mf_cache_shape shape;
    uint64_t n_turns, n_requests;
    lfu_slot *slots;
    float *counts; /* by key */
} lfu;

static size_t n_keys(const mf_cache_shape *s)
{
    return (size_t)s->n_layers * s->n_experts;
}

static size_t lfu_bytes(const mf_cache_shape *s)
{
    return sizeof(lfu) + s->n_slots * sizeof(lfu_slot) + n_keys(s) * sizeof(float);
}

static void lfu_init(void *state, const mf_cache_shape *shape)
{
    lfu *l = state;
    memset(l, 0, lfu_bytes(shape));
    l->shape = *shape;
    l->slots = (lfu_slot *)(l + 1);
    l->counts = (float *)(l->slots + shape->n_slots);
    for (uint32_t i = 0; i < shape->n_slots; i++)
        l->slots[i].key = NONE;
}

static void lfu_visit(void *state, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    lfu *l = state;
    float *counts = l->counts + (size_t)layer * l->shape.n_experts;
    if (++l->n_turns % ((uint64_t)TURNS_TO_HALVE * l->shape.n_layers) == 0)
        for (size_t i = 0; i < n_keys(&l->shape); i++)
            l->counts[i] *= 0.5f;
    for (uint32_t i = 0; i < n; i++)
        counts[experts[i]] += 1.0f;
}

/* As if each layer had had half as many turns as counts live for. */
static void lfu_prime(void *state, uint32_t layer, const float *shares)
{
    lfu *l = state;
    float *counts = l->counts + (size_t)layer * l->shape.n_experts;
    for (uint32_t i = 0; i < l->shape.n_experts; i++)
        counts[i] = shares[i] * 0.5f * (float)TURNS_TO_HALVE;
}

static void lfu_note(void *state, const mf_cache_event *event)
{
    lfu *l = state;
    lfu_slot *slot = &l->slots[event->slot];
    if (event->why == MF_CACHE_EMPTY) {
        slot->key = NONE;
    } else if (event->why != MF_CACHE_RELEASE) {
        slot->key = event->layer * l->shape.n_experts + event->expert;
        slot->last = ++l->n_requests;
    }
}

/* What is foreseen makes room only of what was asked for less often. */
static uint32_t lfu_victim(void *state, const mf_cache_request *r)
{
    const lfu *l = state;
    uint32_t found = NONE;
    float least = r->why == MF_CACHE_HINT
                      ? l->counts[(size_t)r->layer * l->shape.n_experts + r->expert] + 1.0f
                      : 1e30f;
    for (uint32_t i = 0; i < l->shape.n_slots; i++) {
        const lfu_slot *slot = &l->slots[i];
        if (slot->key == NONE || !r->is_evictable(r->ctx, i))
            continue;
        const float count = l->counts[slot->key];
        const bool is_older = found != NONE && slot->last < l->slots[found].last;
        if (count < least || (count == least && is_older)) {
            least = count;
            found = i;
        }
    }
    return found;
}

const mf_cache_policy mf_cache_policy_lfu = {"lfu",    lfu_bytes,  lfu_init, lfu_visit,
                                             lfu_note, lfu_victim, lfu_prime};
