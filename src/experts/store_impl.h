/* SPDX-License-Identifier: MIT */
/*
 * The expert store's state, shared by its files: store.c (opening, figures), expert_slots.c (what
 * holds what), expert_places.c (the level below slots that the host cannot reach), expert_loads.c
 * (queues, reads), store_fetch.c (demand), store_each.c (layers from end to end), store_hints.c
 * (foresight), store_whole.c (slots for all), store_look.c (what other threads may see) and
 * store_measure.c; store_resize.c.
 */
#ifndef MF_EXPERTS_STORE_IMPL_H
#define MF_EXPERTS_STORE_IMPL_H

#include "experts/expert_plan.h"
#include "experts/store.h"

#include <pthread.h>
#include <stdatomic.h>

#define MF_NONE UINT32_MAX
/* Experts brought in at once, at most: enough for a layer's sweep at the drive's depth. */
#define MF_EXPERT_LOADS 256u
/* Of them foreseen ones; and hints are read only while so few reads, of so many bytes, are in
 * flight on the drive: what keeps it busy, and about what one read of a demand takes, which waits
 * for no more. */
#define MF_EXPERT_HINT_LOADS 32u
#define MF_EXPERT_SURE_LOADS 128u /* of those that are as good as demanded, at any depth */
#define MF_EXPERT_HINT_DEPTH 8u
#define MF_EXPERT_WARM_LOADS 8u
#define MF_EXPERT_HINT_BYTES (2u * MF_EXPERT_READ_BYTES)

typedef enum mf_slot_state {
    MF_SLOT_EMPTY = 0,
    MF_SLOT_LOADING, /* its expert is in the map, its bytes are not all there */
    MF_SLOT_HELD,
    MF_SLOT_LOST /* in no map; an engine that failed may still write to it */
} mf_slot_state;

typedef struct mf_expert_slot {
    mf_ticket ticket;      /* not emptied before it is done */
    uint32_t key;          /* layer * n_experts + expert */
    uint32_t load;         /* while LOADING */
    uint32_t n_users;      /* items of fetches */
    uint32_t read_us;      /* that its reads took */
    uint32_t n_read_bytes; /* that were read for it; 0: it came from a place */
    mf_slot_state state;
    bool is_hinted; /* brought in by a hint, not asked for since */
    uint32_t part_at[MF_MAX_EXPERT_PARTS];
} mf_expert_slot;

typedef enum mf_place_state {
    MF_PLACE_EMPTY = 0,
    MF_PLACE_READING, /* its expert is in the map, its bytes are not all there */
    MF_PLACE_HELD,
    MF_PLACE_LOST /* in no map; an engine that failed may still write to it */
} mf_place_state;

/* Host memory for an expert, on its way to a slot and afterwards. */
typedef struct mf_expert_place {
    unsigned char *bytes;
    mf_ticket ticket; /* of its last upload; not written to before it is done */
    uint32_t key;
    mf_place_state state;
} mf_expert_place;

typedef enum mf_load_state {
    MF_LOAD_FREE = 0,
    MF_LOAD_QUEUED, /* nothing was sent: it can be cancelled */
    MF_LOAD_READING
} mf_load_state;

/* An expert being brought in. */
typedef struct mf_expert_load {
    mf_expert_plan plan;
    uint32_t slot;
    uint32_t place;                            /* that it is read into; MF_NONE: the slot itself */
    uint32_t n_pending;                        /* reads not yet completed, sent or not */
    uint32_t n_in_flight;                      /* those that were sent */
    uint32_t n_reads;                          /* all */
    uint64_t sent_us;                          /* the first */
    uint64_t sent_ns;                          /* likewise, for a timeline */
    mf_expert_cursor cursors[MF_IO_LANES_MAX]; /* how far each drive is */
    uint32_t lanes_left;                       /* by bit: where it has reads that were not sent */
    uint32_t first_item;                       /* that waits for it; through the items' next */
    uint32_t before, after;
    mf_load_state state;
    bool is_demanded, is_measured, is_in_queue;
    bool is_warm; /* not foreseen by anybody: for earlier runs' sake */
    bool is_sure; /* foreseen, and sent as if it were demanded */
    mf_status failure;
} mf_expert_load;

typedef struct mf_expert_hint {
    uint32_t key;
    bool is_sure;
} mf_expert_hint;

typedef struct mf_load_queue {
    uint32_t first, last;
} mf_load_queue;

typedef enum mf_item_state {
    MF_ITEM_WAITING = 0, /* for a slot */
    MF_ITEM_LOADING,
    MF_ITEM_READY,
    MF_ITEM_HANDED_OUT,
    MF_ITEM_RELEASED
} mf_item_state;

typedef struct mf_fetch_item {
    uint32_t expert;
    uint32_t slot; /* unless WAITING or RELEASED; it counts this item among its users */
    uint32_t next; /* of those that wait for the same load */
    mf_item_state state;
} mf_fetch_item;

struct mf_expert_fetch {
    mf_expert_store *store;
    bool is_open;
    uint32_t first_item; /* number of items[0] among the store's */
    uint32_t layer;
    uint32_t n_items, n_handed_out, n_loading;
    uint32_t n_missed;      /* in the slots, when it began */
    uint32_t first_waiting; /* no item before it waits for a slot */
    uint32_t ready_head, ready_end;
    mf_fetch_item *items; /* [n_experts], in the order given */
    uint32_t *ready;      /* [n_experts], indices in the order they became so */
    mf_status failure;
    mf_error failure_error;
};

struct mf_expert_store {
    mf_arena arena; /* holds this struct and every array below */
    mf_io *io;
    mf_expert_map map;
    mf_slot_memory memory;
    mf_slot_sizes sizes;
    uint64_t slot_bytes; /* of the largest, and of a place */
    uint32_t n_slots;
    uint32_t n_least;     /* in force, at least */
    atomic_uint n_active; /* in force: those below */
    atomic_uint n_wanted; /* to be in force */
    uint32_t n_held;      /* none from here on holds anything, or is on its way to */

    uint32_t *slot_of; /* [n_layers * n_experts] or MF_NONE */
    mf_expert_slot *slots;
    uint64_t *slot_at;  /* [n_slots + 1]: where in slot memory each begins, and all end */
    uint8_t *slot_size; /* [n_slots]: the number of its size */
    uint8_t *key_size;  /* [n_layers * n_experts]: of the least slots that the expert fits into */
    uint8_t *sizes_in;  /* [n_layers]: those of its experts, by bit */
    uint32_t *empty; /* [n_slots]: for each size a stack of the empty slots, one behind another */
    uint32_t empty_at[MF_SLOT_SIZES], n_empty_of[MF_SLOT_SIZES];
    uint32_t n_empty;                    /* of any size */
    uint32_t n_active_of[MF_SLOT_SIZES]; /* in force */
    uint32_t n_guests;                   /* experts in slots of a larger size than theirs */
    uint32_t wanted_size;                /* of the slot that is being looked for */
    bool lacks_slots;    /* an item waits for one: there was none when slots were last given */
    uint64_t n_given_up; /* ever */
    uint64_t *versions;  /* [n_layers] */
    uint32_t first_kept, n_kept; /* layers */
    const mf_cache_policy *policy;
    void *policy_state;

    /* Where the host cannot reach the slots. */
    mf_expert_place *places;
    uint32_t n_places;      /* 0: it can */
    uint32_t *place_of;     /* as slot_of */
    uint32_t *empty_places; /* a stack */
    uint32_t n_empty_places;
    uint32_t *whole_at; /* [n_layers]: from where on a place goes to a slot as it was read, with
                           what lies between the parts; MF_NONE: part by part */
    void *place_policy;
    uint32_t *missed; /* [n_experts], of the fetch that begins */

    mf_expert_load *loads; /* [MF_EXPERT_LOADS] */
    uint32_t n_loads;      /* in use at once, at most: no more than there are places */
    mf_load_queue free_loads, demanded, foreseen;
    uint32_t n_foreseen, n_queued; /* loads */
    uint32_t n_queued_told;        /* in the counters */
    unsigned char *read; /* a copy of what was read of an expert, while its parts are made of it */
    bool is_broken;      /* the engine failed and could not be started anew yet */

    mf_expert_fetch fetches[MF_EXPERT_FETCHES];
    mf_expert_fetch *open[MF_EXPERT_FETCHES]; /* the eldest first */
    uint32_t n_open;
    mf_fetch_item *items; /* of all fetches */
    uint64_t *seen_in;    /* [n_experts]: the last fetch that asked for the expert */
    uint64_t n_fetches;

    mf_expert_hint hints[MF_EXPERT_HINTS]; /* a ring */
    uint32_t hints_head, n_hints;
    const uint32_t *warm; /* keys that earlier runs asked for most; from next_warm on to be read */
    uint32_t n_warm, next_warm;

    /* What other threads may see: see store_look.c. */
    atomic_uchar *shown;  /* [n_layers * n_experts], mf_expert_state */
    atomic_uint *n_asked; /* as shown */

    mf_profile *profile; /* or NULL */
    bool is_uncounted;
    mf_status measure_failure;
    mf_error measure_error;

    pthread_mutex_t stats_lock; /* of what follows */
    mf_expert_stats stats;
    uint64_t reading_since_us; /* 0: nothing is in flight */
};

/* ---- expert_slots.c ---- */

void mf_expert_slots_init(mf_expert_store *store);
/* A slot for the expert, LOADING from now on; MF_NONE if there is none to be had. */
uint32_t mf_expert_slot_take(mf_expert_store *store, mf_cache_why why, uint32_t key);
/* The slot holds its expert whole. */
void mf_expert_slot_hold(mf_expert_store *store, uint32_t slot);
/* The slot's expert is forgotten; nobody uses it. */
void mf_expert_slot_empty(mf_expert_store *store, uint32_t slot);
/* The slot's expert will not come: it counts as absent, though the slot is still being read into.
 */
void mf_expert_slot_disown(mf_expert_store *store, uint32_t slot);
/* The slot's expert was asked for by one more, or is not needed any more. */
void mf_expert_slot_use(mf_expert_store *store, uint32_t slot);
void mf_expert_slot_unuse(mf_expert_store *store, uint32_t slot, mf_ticket ticket);
/* Waits for the ticket that keeps an otherwise unused slot; *found tells whether there is one. */
mf_status mf_expert_slot_wait(mf_expert_store *store, bool *found, mf_error *error);
/* As a policy asks, of the store. */
bool mf_expert_slot_evictable(void *store, uint32_t slot);
/* Whether a slot may hold an expert of this size: one of that size, or a larger one where too few
 * of its own are in force for a token's experts, or more of the larger than there are experts for.
 */
bool mf_expert_slot_fits(const mf_expert_store *store, uint32_t size, uint32_t slot);
/* The slot is among the empty ones from now on; not any more; an empty slot for the size, or
 * MF_NONE. */
void mf_expert_slot_put_empty(mf_expert_store *store, uint32_t slot);
void mf_expert_slot_take_empty(mf_expert_store *store, uint32_t slot);
uint32_t mf_expert_slot_find_empty(const mf_expert_store *store, uint32_t size);
/* Once n_active is another: counts anew what is in force, and gives back the empty slots that are
 * not. */
void mf_expert_slots_recount(mf_expert_store *store);
/* The slot that is not in force any more is empty: its memory is not needed. */
void mf_expert_slot_give_back(mf_expert_store *store, uint32_t slot);
void mf_expert_note(mf_expert_store *store, mf_cache_why why, uint32_t key, uint32_t slot);
bool mf_expert_ticket_done(const mf_expert_store *store, mf_ticket ticket);

/* ---- expert_places.c ---- */

/* The rooms hold n_places. */
void mf_expert_places_init(mf_expert_store *store, const mf_expert_room *rooms, uint32_t n_rooms);
/* A layer's turn: what the slots do not hold of what is asked for. */
void mf_expert_places_visit(mf_expert_store *store, uint32_t layer, const uint32_t *missed,
                            uint32_t n);
/* Sees to it that there is a place to read the expert into; false: not now. */
bool mf_expert_place_find(mf_expert_store *store, mf_cache_why why, uint32_t key);
/* The place that was found, READING from now on; MF_NONE where there are none. */
uint32_t mf_expert_place_take(mf_expert_store *store, mf_cache_why why, uint32_t key);
/* The place that holds the expert, which is asked for or foreseen; or MF_NONE. */
uint32_t mf_expert_place_with(mf_expert_store *store, mf_cache_why why, uint32_t key);
/* Where a slot has the parts of an expert that comes from a place. */
void mf_expert_place_lay(const mf_expert_store *store, uint32_t key, const mf_expert_plan *plan,
                         uint32_t part_at[MF_MAX_EXPERT_PARTS]);
/* Puts the upload to the slot of the place's expert into the stream; the place holds it. */
mf_status mf_expert_place_upload(mf_expert_store *store, uint32_t place, uint32_t slot,
                                 const mf_expert_plan *plan, mf_error *error);
/* As mf_expert_slot_disown and _empty; of MF_NONE nothing. */
void mf_expert_place_disown(mf_expert_store *store, uint32_t place);
void mf_expert_place_empty(mf_expert_store *store, uint32_t place);
/* Waits until the first upload is done; *found tells whether there is one. */
mf_status mf_expert_places_wait(mf_expert_store *store, bool *found, mf_error *error);
void mf_expert_places_recover(mf_expert_store *store);

/* ---- expert_loads.c ---- */

void mf_expert_loads_init(mf_expert_store *store);
/* Whether a load is to be had for the expert, and a place. */
bool mf_expert_load_find(mf_expert_store *store, mf_cache_why why, uint32_t key);
/* The slot that was taken for an expert that a place holds, HELD from now on: its upload is in the
 * stream. On failure the slot is empty. */
mf_status mf_expert_load_from(mf_expert_store *store, uint32_t place, uint32_t slot,
                              mf_error *error);
/* Queues the reads of the slot's expert; a load was found. */
mf_expert_load *mf_expert_load_start(mf_expert_store *store, uint32_t slot, bool is_demanded);
/* A foreseen load is demanded now. */
void mf_expert_load_adopt(mf_expert_store *store, mf_expert_load *load);
/* Gives up a load of which nothing was sent, and its slot. */
void mf_expert_load_cancel(mf_expert_store *store, mf_expert_load *load);
/* What was not sent of a foreseen load never is, and its slot is given up when the rest has come;
 * but if all was sent, it is held. */
void mf_expert_load_abandon(mf_expert_store *store, mf_expert_load *load);
/* The last foreseen load that can be cancelled and whose slot fits the size (MF_NONE: any), or
 * NULL.
 */
mf_expert_load *mf_expert_load_last_foreseen(mf_expert_store *store, uint32_t size);
/* Sends what is queued, as far as the drives' depths allow. */
void mf_expert_loads_send(mf_expert_store *store);
/* Takes in the reads that have completed; with wait, at least one, if one is in flight. */
void mf_expert_loads_collect(mf_expert_store *store, bool wait);
/* Starts a broken engine anew, if there is one. */
mf_status mf_expert_loads_recover(mf_expert_store *store, mf_error *error);
/* Waits until nothing is queued, read or uploaded. */
void mf_expert_loads_drain(mf_expert_store *store);

/* ---- store_fetch.c ---- */

/* Those who wait for the load have it, or have failed with it. */
void mf_expert_fetch_loaded(mf_expert_store *store, mf_expert_load *load, const mf_error *error);
/* Gives slots to what waits for one, `first` before the other fetches (or NULL), and sends. */
void mf_expert_store_advance(mf_expert_store *store, mf_expert_fetch *first);

/* ---- store_hints.c ---- */

void mf_expert_hints_serve(mf_expert_store *store);
/* Then what earlier runs asked for. */
void mf_expert_warm_serve(mf_expert_store *store);
/* Drops a layer's hints that were not sent; MF_NONE: all. */
void mf_expert_hints_drop(mf_expert_store *store, uint32_t layer);

/* ---- store_look.c ---- */

/* Lets others see where the expert is now. */
void mf_expert_show(mf_expert_store *store, uint32_t key);

/* ---- store.c ---- */

void mf_expert_count(mf_expert_store *store, uint64_t *counter, uint64_t n);
/* What is counted of the layer that the key is of; NULL: nobody wants to know. */
static inline mf_profile_requests *mf_expert_profile_of(const mf_expert_store *store, uint32_t key)
{
    return mf_profile_of(store->profile, key / store->map.n_experts);
}

/* The size of slots that the key's expert needs. */
static inline uint32_t mf_expert_size_of(const mf_expert_store *store, uint32_t key)
{
    return store->key_size[key];
}

static inline uint64_t mf_expert_slot_bytes_of(const mf_expert_store *store, uint32_t slot)
{
    return store->slot_at[slot + 1] - store->slot_at[slot];
}

static inline uint32_t mf_expert_key(const mf_expert_store *store, uint32_t layer, uint32_t expert)
{
    return layer * store->map.n_experts + expert;
}

#endif
