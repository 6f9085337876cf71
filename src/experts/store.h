/* SPDX-License-Identifier: MIT */
/*
 * The expert store: where every expert's bytes lie on disk, a fixed pool of slots that hold some of
 * them, and the reads that bring the others in. It knows nothing of models or of arithmetic: an
 * expert is up to nine parts of bytes.
 *
 * An expert is absent, queued, being read, held, or held and in use until a ticket. A fetch is a
 * demand for some experts of one layer: begin names them, next hands them out as they become ready
 * (those already held first, then in order of arrival), release gives a slot back, end closes the
 * fetch. Several may be open, each from its layer's begin to whenever it ends; fewer slots than
 * experts is legal: reads go on as slots are released. A hint says what will be wanted: it is read
 * where no demand waits, into slots of experts that are expected later, and given up or taken over
 * by a demand.
 *
 * Nothing happens behind the caller's back but the reads themselves: completions are taken in, and
 * what is queued is sent, by whoever calls begin, next, release, end, hint or poll. One thread at a
 * time, any thread; the counters alone may be read from others meanwhile.
 *
 * A read that fails fails the fetches that want that expert and nothing else. Where the I/O engine
 * itself fails, all that was queued or being read is given up, with it the fetches that want any of
 * it (MF_ERR_IO); the engine is started anew, and the next fetch works.
 */
#ifndef MF_EXPERTS_STORE_H
#define MF_EXPERTS_STORE_H

#include "base/alloc.h"
#include "base/profile.h"
#include "experts/cache_policy.h"
#include "experts/expert_map.h"
#include "experts/slot_memory.h"
#include "experts/slot_sizes.h"
#include "io/io.h"

typedef struct mf_expert_store mf_expert_store;
typedef struct mf_expert_fetch mf_expert_fetch;

/* Fetches open at once, at most. */
#define MF_EXPERT_FETCHES 8u
/* Experts foreseen and not yet sent for, at most: the oldest are forgotten. */
#define MF_EXPERT_HINTS 512u

/* Host memory that uploads can start from, aligned to MF_IO_ALIGN. */
typedef struct mf_expert_room {
    unsigned char *bytes;
    uint64_t n_bytes;
} mf_expert_room;

typedef struct mf_expert_store_options {
    mf_allocator allocator;
    mf_io *io;             /* borrowed; its files are registered; nothing else reads by it */
    mf_expert_map map;     /* borrowed arrays, valid as long as the store */
    mf_slot_memory memory; /* borrowed */
    uint64_t slot_bytes;   /* of memory and staging: what is needed at least; 0: just that */
    /* Of mf_slot_sizes_of(map, true, ...), then slot_bytes is not asked for; NULL: all slots have
     * slot_bytes. Staging always has the largest. */
    const mf_slot_sizes *sizes;
    /* Where memory.host is NULL: what is read lands in places of slot_bytes in these rooms, is
     * uploaded part by part (mf_expert_lay_parts), and stays until the place is wanted: a level
     * between the slots and the drive. At least one place; the rooms are borrowed, the list is not.
     */
    const mf_expert_room *rooms;
    uint32_t n_rooms;
    const mf_cache_policy *policy; /* NULL: by expected next use */
    /* Of the slots that the memory has room for, those in force at first, 0: all; and at least. */
    uint64_t n_slots, n_slots_least;
} mf_expert_store_options;

/* Bytes of one slot for this map, where reads land in slots: the largest expert's parts with the
 * alignment of direct reads, a multiple of 4096. 0: the map overflows, or a slot would have 4 GiB.
 */
uint64_t mf_expert_slot_bytes(const mf_expert_map *map);
/* The same for slots that may be uploaded to as well, where parts are aligned (expert_plan.h). */
uint64_t mf_expert_slot_bytes_anywhere(const mf_expert_map *map);
/* Whether reads alone put the parts of all experts of a layer at the same places in their slots,
 * each at a multiple of 16. */
bool mf_expert_map_is_even(const mf_expert_map *map);
/* What reading an expert takes: reads apart in their files, and bytes with alignment, the mean of
 * all. Both 0: see above. */
void mf_expert_map_cost(const mf_expert_map *map, uint32_t *n_reads, uint64_t *n_bytes);
/* Bytes the store itself allocates for this many slots and places (bookkeeping, not the slots),
 * with the policy by expected next use. */
uint64_t mf_expert_store_bytes(const mf_expert_map *map, uint64_t n_slots, uint64_t n_places);

mf_status mf_expert_store_open(const mf_expert_store_options *options, mf_expert_store **out,
                               mf_error *error);
/* Waits for reads and uploads under way. Fetches that are open are gone. */
void mf_expert_store_close(mf_expert_store **store);

/* ---- demand ---- */

typedef struct mf_expert_ready {
    uint32_t index; /* into begin's experts */
    uint32_t slot;
    uint64_t part_at[MF_MAX_EXPERT_PARTS]; /* in slot memory, of each part's first byte */
} mf_expert_ready;

/* Starts a fetch of n distinct experts of a layer, n >= 1. Those held are in use from now on; reads
 * for the others are sent as far as slots and the drives' depths allow, in the order given. *out is
 * the store's, until end. Errors: MF_ERR_ARGUMENT, MF_ERR_STATE (too many fetches are open). What
 * fails later is told by next. */
mf_status mf_expert_fetch_begin(mf_expert_store *store, uint32_t layer, const uint32_t *experts,
                                uint32_t n, mf_expert_fetch **out, mf_error *error);
/* Whether all of it is there or on its way from places, with nothing left to be read, and nothing
 * was handed out yet. */
bool mf_expert_fetch_is_ready(const mf_expert_fetch *fetch);
/* Whether slots held all of it when it began. */
bool mf_expert_fetch_was_held(const mf_expert_fetch *fetch);
/* Hands out up to `max` experts that are ready now; waits for one if none is. *n is 0 only when all
 * were handed out. One at a time where others wait for slots that the host reaches: each that is
 * released lets the drive go on, while those that are ready are used. With slots of a device, an
 * expert is ready when its upload is in the stream: what is recorded afterwards finds it. Where too
 * few slots are left, ready experts of other fetches that were not handed out yet make room.
 * Errors: those of a read, naming file and offset, and of the engine and the device; MF_ERR_STATE:
 * all slots are handed out. Then call end. */
mf_status mf_expert_fetch_next(mf_expert_fetch *fetch, mf_expert_ready *out, uint32_t max,
                               uint32_t *n, mf_error *error);
/* The fetch needs the expert no longer. It stays cached, and its slot is not written to before the
 * ticket is done. */
void mf_expert_fetch_release(mf_expert_fetch *fetch, uint32_t index, mf_ticket ticket);
/* Closes the fetch, at any time, and waits for nothing: what was not sent is forgotten, what is
 * being read becomes held. What was handed out and not released counts as released with `ticket`.
 */
void mf_expert_fetch_end(mf_expert_fetch *fetch, mf_ticket ticket);

/* ---- how many slots ---- */

/* So many slots are to be in force, as far as the memory has room and not below the least. From any
 * thread, at any time; it is done by those that follow, little by little. More slots are taken only
 * when those there are have been filled. */
void mf_expert_store_want_slots(mf_expert_store *store, uint64_t n);
/* Goes on with it, for the thread whose turn it is; begin, release and poll do so too. True if
 * nothing is left to be done now. */
bool mf_expert_store_resize(mf_expert_store *store);

/* What slots hold of the layer is not wanted any more: those that nobody uses are empty then. */
void mf_expert_store_forget(mf_expert_store *store, uint32_t layer);

/* ---- all experts of some layers ---- */

/* Experts that are visited at once, at most. */
#define MF_EXPERTS_VISITED 32u
/* n experts of a layer, each ready[i].index, are in their slots until this returns. */
typedef mf_status (*mf_expert_visit_fn)(void *user, uint32_t layer, mf_expert_ready *ready,
                                        uint32_t n, mf_error *error);

/* Visits each expert of n layers from `first` on once, layer by layer, while those that follow are
 * read, and forgets it. visit may be NULL: they are read, and stay where there are slots enough.
 * The first error ends it, with no fetch left open. Errors: those of fetches, and visit's. */
mf_status mf_expert_store_each(mf_expert_store *store, uint32_t first, uint32_t n,
                               mf_expert_visit_fn visit, void *user, mf_error *error);

/* ---- slots for all ---- */

/* Where there is a slot for every expert, none has to make room for another, but for a moment after
 * a read has failed. */

/* Reads all experts that are not held, if there is a slot for each. Nothing of it is counted. An
 * error leaves what is not held to those who ask for it. Errors: those of fetches. */
mf_status mf_expert_store_fill(mf_expert_store *store, mf_error *error);
/* True if there is a slot for each and all experts of a layer are held: slots [n_experts] then has
 * where in slot memory the slot of each begins, in units of mf_expert_store_unit_bytes, and part_at
 * where in any of these slots each part begins. False also if that is
 * not the same for all. It stays so as long as n_given_up does, which changes in fetches and
 * measurements alone. What is recorded from now on finds them there. */
bool mf_expert_store_layer(const mf_expert_store *store, uint32_t layer, uint32_t *slots,
                           uint32_t part_at[MF_MAX_EXPERT_PARTS]);
/* Rises with each expert that was held or on its way and is not any more. */
uint64_t mf_expert_store_n_given_up(const mf_expert_store *store);
/* Experts that were asked for without a fetch, and held. */
void mf_expert_store_count_hits(mf_expert_store *store, uint64_t n);

/* ---- experts that a device finds by itself ---- */

/* slots [n_experts]: as above, the slot of each expert of the layer that is held now, UINT32_MAX of
 * the others; part_at: where in any of these slots each part begins. What is recorded from now on
 * finds them there, as long as the version stays the same. */
void mf_expert_store_held(const mf_expert_store *store, uint32_t layer, uint32_t *slots,
                          uint32_t part_at[MF_MAX_EXPERT_PARTS]);
/* Rises with each expert of the layer that comes to be held or is not any more; never 0. */
uint64_t mf_expert_store_version(const mf_expert_store *store, uint32_t layer);
/* What is recorded may use any expert that n layers from `first` on hold: none of them leaves its
 * slot until this is called again; n 0: none is kept. Fetches of those that are held go on. */
void mf_expert_store_keep(mf_expert_store *store, uint32_t first, uint32_t n);

/* ---- foresight ---- */

/* Experts of a layer that will be wanted, the likeliest first. Those of a layer's hints that were
 * not sent when a fetch of the layer begins are dropped. Names that are out of range are ignored.
 */
void mf_expert_store_hint(mf_expert_store *store, uint32_t layer, const uint32_t *experts,
                          uint32_t n);
/* The same of experts that are all but certain to be wanted, as a prompt's are: their reads are
 * sent as if they were demanded, at any depth, once nothing that is demanded is left to be sent. */
void mf_expert_store_expect(mf_expert_store *store, uint32_t layer, const uint32_t *experts,
                            uint32_t n);
/* What earlier runs asked for: shares [n_layers * n_experts], for the policy, and the n keys (layer
 * * n_experts + expert) that are worth most, read in this order into empty slots while nothing else
 * wants the drive. Before the first fetch. The keys are borrowed until this is called with none. */
void mf_expert_store_warm(mf_expert_store *store, const float *shares, const uint32_t *keys,
                          uint32_t n);
/* Drops all hints that were not sent; and those of a layer. */
void mf_expert_store_cancel_hints(mf_expert_store *store);
void mf_expert_store_cancel_hints_of(mf_expert_store *store, uint32_t layer);
/* Takes in what has completed and sends what is queued, without waiting. For the points where
 * computing hands over. */
void mf_expert_store_poll(mf_expert_store *store);

/* ---- to be looked at, at any time, from any thread ---- */

/* Where the experts of a layer are, and how often each was asked for: states[i], an
 * mf_expert_state, and n_asked[i] of
 * expert i, of the first `capacity`; either may be NULL. Each figure is one that was true when it
 * was read. */
void mf_expert_store_look(const mf_expert_store *store, uint32_t layer, uint8_t *states,
                          uint32_t *n_asked, size_t capacity);
/* An expert was asked for without a fetch. For the thread whose turn it is. */
void mf_expert_store_count_use(mf_expert_store *store, uint32_t layer, uint32_t expert);

/* Who wants to know from now on; NULL: nobody. */
void mf_expert_store_profile(mf_expert_store *store, mf_profile *profile);

/* ---- figures ---- */

typedef struct mf_expert_stats {
    uint64_t n_hits;       /* asked for and held */
    uint64_t n_misses;     /* asked for and not held, being read included */
    uint64_t n_place_hits; /* of these, uploaded from a place, without a read */
    uint64_t n_reads, read_bytes;
    uint64_t upload_bytes;
    uint64_t wait_us;        /* in next, with nothing ready */
    uint64_t reading_us;     /* with at least one read in flight */
    uint64_t n_hints;        /* taken: experts foreseen that were neither held nor on their way */
    uint64_t n_hints_useful; /* asked for when they were held */
    uint64_t n_hints_late;   /* asked for while they were queued or being read */
    uint64_t n_hints_wasted; /* read, and emptied without having been asked for; or failed */
    uint64_t n_hints_cancelled;             /* given up before all of them was sent */
    uint64_t hint_bytes, hint_wasted_bytes; /* read for hints; of it, of those wasted */
    /* What reading took of those that were asked for afterwards, up to then, and of those wasted.
     */
    uint64_t hint_saved_us, hint_wasted_us;
    uint64_t n_queued; /* now: experts with a slot, of which nothing was sent yet */
} mf_expert_stats;

/* At any time, from any thread. Of no store (NULL) all 0. */
void mf_expert_store_stats(mf_expert_store *store, mf_expert_stats *out);
void mf_expert_store_stats_reset(mf_expert_store *store);
/* In force (of no store, NULL, 0); and as many as the memory has room for. From any thread. */
uint64_t mf_expert_store_n_slots(const mf_expert_store *store);
uint64_t mf_expert_store_n_slots_most(const mf_expert_store *store);
/* That slots are told in: what a slot has where all have the same; and how many of them the slots
 * in force take. */
uint64_t mf_expert_store_unit_bytes(const mf_expert_store *store);
uint64_t mf_expert_store_n_units(const mf_expert_store *store);
uint64_t mf_expert_store_n_places(const mf_expert_store *store);

/* The sizes of slots, the store's own: which of them each expert of the first n_layers layers has,
 * of [n_layers * n_experts], and what is read for one of each size, n_bytes [MF_SLOT_SIZES], the
 * mean, 0 where none has it. */
const mf_slot_sizes *mf_expert_store_sizes(const mf_expert_store *store, uint32_t n_layers,
                                           uint8_t *of, uint64_t n_bytes[MF_SLOT_SIZES]);

/* Reads random experts with the same requests as fetches make, at most n_at_once experts in flight,
 * for about n_milliseconds, into the same memory; the slots hold them afterwards; after a failed
 * read the slot is empty. Hints are dropped, what is being read is waited for first. The counters
 * are untouched. 0 of no store (NULL). Errors: MF_ERR_ARGUMENT, MF_ERR_STATE (a fetch is open), and
 * those of a read. */
mf_status mf_expert_store_measure(mf_expert_store *store, uint32_t n_at_once,
                                  uint32_t n_milliseconds, double *bytes_per_second,
                                  mf_error *error);

#endif
