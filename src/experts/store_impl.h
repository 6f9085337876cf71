/* SPDX-License-Identifier: MIT */
/* The expert store's state, shared by its two files: store.c (fetches) and store_measure.c. */
#ifndef MF_EXPERTS_STORE_IMPL_H
#define MF_EXPERTS_STORE_IMPL_H

#include "experts/expert_batch.h"

#define MF_NO_SLOT UINT32_MAX

typedef enum mf_slot_state {
    MF_SLOT_EMPTY = 0,
    MF_SLOT_READING, /* its expert is in the map, its bytes are not all there */
    MF_SLOT_HELD
} mf_slot_state;

typedef struct mf_expert_slot {
    uint64_t key; /* layer * n_experts + expert */
    mf_slot_state state;
    bool is_pinned; /* by the open fetch */
} mf_expert_slot;

typedef enum mf_item_state {
    MF_ITEM_WAITING = 0, /* for a slot */
    MF_ITEM_READING,
    MF_ITEM_READY,
    MF_ITEM_HANDED_OUT,
    MF_ITEM_RELEASED
} mf_item_state;

/* One expert of the open fetch (or of a measurement). */
typedef struct mf_fetch_item {
    uint32_t expert;
    uint32_t slot;
    uint32_t n_pending; /* reads not yet completed, submitted or not */
    mf_item_state state;
} mf_fetch_item;

struct mf_expert_store {
    mf_arena arena; /* holds this struct and every array below */
    mf_io *io;
    mf_expert_map map;
    unsigned char *pool;
    uint64_t slot_bytes;
    uint32_t n_slots;

    uint32_t *slot_of; /* [n_layers * n_experts] or MF_NO_SLOT */
    mf_expert_slot *slots;
    uint32_t *empty; /* a stack of the empty slots */
    uint32_t n_empty;
    const mf_cache_policy *policy;
    void *policy_state;

    /* The open fetch: items in the order given, `ready` their indices in the order they became
     * so. */
    bool is_open;
    bool is_broken; /* the engine failed under a read: slots may still be written to */
    uint32_t layer;
    uint32_t n_items, n_handed_out;
    uint32_t first_waiting; /* no item before it waits for a slot */
    uint32_t ready_head, ready_end;
    mf_fetch_item *items; /* [n_experts] */
    uint32_t *ready;      /* [n_experts] */
    uint64_t *seen_in;    /* [n_experts]: the last fetch that asked for the expert */
    uint64_t n_fetches;
    mf_status failure; /* of the open fetch */
    mf_error failure_error;

    mf_expert_batch batch;
    uint32_t n_in_flight;
    uint64_t reading_since_us; /* while n_in_flight > 0 */
    mf_expert_stats stats;
};

/* A slot for the expert, pinned and to be read into; MF_NO_SLOT if all are in use. */
uint32_t mf_expert_take_slot(mf_expert_store *store, uint64_t key);
/* The slot's expert is forgotten. */
void mf_expert_empty_slot(mf_expert_store *store, uint32_t slot);

#endif
