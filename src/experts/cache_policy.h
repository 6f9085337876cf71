/* SPDX-License-Identifier: MIT */
/*
 * What a cache policy sees and answers. It sees every request by layer and expert, with the reason;
 * it answers which slot to empty. Its state is sized at open; nothing is allocated later.
 */
#ifndef MF_EXPERTS_CACHE_POLICY_H
#define MF_EXPERTS_CACHE_POLICY_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mf_cache_shape {
    uint32_t n_slots, n_layers, n_experts;
} mf_cache_shape;

typedef enum mf_cache_why {
    MF_CACHE_HIT,     /* asked for, and held */
    MF_CACHE_MISS,    /* asked for; the slot is to hold it */
    MF_CACHE_HINT,    /* foreseen; the slot is to hold it, or does already */
    MF_CACHE_MEASURE, /* the drive is measured; the slot is to hold what was read */
    MF_CACHE_RELEASE, /* no longer in use */
    MF_CACHE_EMPTY    /* the slot holds it no longer */
} mf_cache_why;

typedef struct mf_cache_event {
    mf_cache_why why;
    uint32_t layer, expert, slot;
} mf_cache_event;

#define MF_CACHE_KINDS 8u

/* A slot is wanted for this expert, by a miss, a hint or a measurement. */
typedef struct mf_cache_request {
    mf_cache_why why;
    uint32_t layer, expert;
    uint32_t kind; /* below MF_CACHE_KINDS: of requests that the same slots are wanted for */
    /* Slots in use, or not holding an expert whole, are not to be emptied now. */
    bool (*is_evictable)(void *ctx, uint32_t slot);
    /* Whether slots that hold a layer's experts may be of use at all, by their size. NULL: all. */
    bool (*is_of_use)(void *ctx, uint32_t layer);
    void *ctx;
} mf_cache_request;

typedef struct mf_cache_policy {
    const char *name;
    size_t (*state_bytes)(const mf_cache_shape *shape);
    void (*init)(void *state, const mf_cache_shape *shape);
    /* A layer's turn: these of its experts are asked for now, before the events of each. */
    void (*visit)(void *state, uint32_t layer, const uint32_t *experts, uint32_t n);
    void (*note)(void *state, const mf_cache_event *event);
    /* The slot to empty, among those that are evictable; UINT32_MAX: none of them, or, for a hint,
     * none that is worth less than what is foreseen. */
    uint32_t (*victim)(void *state, const mf_cache_request *request);
    /* Before the first visit: in which share of a layer's turns each of its experts was asked for
     * in earlier runs. NULL: it has no use for that. */
    void (*prime)(void *state, uint32_t layer, const float *shares);
} mf_cache_policy;

/* How many layers ahead the next turn of a layer is, at the turn of `now`: 1 to n_layers, as layers
 * take their turns in a ring. The layer whose turn it is comes last. */
static inline uint32_t mf_cache_layers_ahead(uint32_t n_layers, uint32_t now, uint32_t layer)
{
    return layer > now ? layer - now : layer + n_layers - now;
}

/* By expected next use; see cache_next_use.c. */
extern const mf_cache_policy mf_cache_policy_next_use;
extern const mf_cache_policy mf_cache_policy_lru;
extern const mf_cache_policy mf_cache_policy_lfu;
extern const mf_cache_policy mf_cache_policy_s3_fifo;

/* The policy of a name; NULL: the first of those there are. None has a larger state than
 * mf_cache_policy_next_use. MF_ERR_ARGUMENT: there is none of that name. */
mf_status mf_cache_policy_find(const char *name, const mf_cache_policy **out, mf_error *error);

#endif
