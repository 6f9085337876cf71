/* SPDX-License-Identifier: MIT */
/*
 * Memory for units on their way. The fetching thread fills a room with a unit's bytes and hands it
 * over; threads of their own write it to the drive, past the page cache where that can be. What is
 * written is kept until it has been hashed, or its room is wanted for another: who hashes reads the
 * file then.
 *
 * FREE -> FILLING -> WAITING -> WRITTEN -> KEPT -> FREE; LENT instead of KEPT while it is hashed.
 *
 * Who asks for a room gets one as soon as the drive or the hash is done with one, whatever the
 * network does: at most n_fillers rooms are FILLING, and there are more. So one is always FREE or
 * KEPT, which are given at once, WRITTEN, which the asker himself makes KEPT, WAITING for a writer
 * that waits for nothing but the drive, or LENT to the hashing thread, which waits for nothing at
 * all until it has given it back. No room waits for another to come.
 */
#ifndef MF_HUB_ROOMS_H
#define MF_HUB_ROOMS_H

#include "hub_verify.h"

typedef enum mf_hub_room_state {
    MF_HUB_ROOM_FREE,
    MF_HUB_ROOM_FILLING,
    MF_HUB_ROOM_WAITING, /* to be written, or being written */
    MF_HUB_ROOM_WRITTEN, /* the fetching thread does not know yet */
    MF_HUB_ROOM_KEPT,
    MF_HUB_ROOM_LENT
} mf_hub_room_state;

typedef struct mf_hub_room {
    unsigned char *data; /* MF_HUB_UNIT_BYTES of it */
    /* Filled in by who hands it over. */
    mf_hub_item *item;
    uint64_t unit;
    size_t n_bytes;
    uint32_t epoch; /* of the item */

    int failure; /* errno of writing it; 0: none */
    mf_hub_room_state state;
    struct mf_hub_room *next;
} mf_hub_room;

/* Starts the threads. Up to n_fillers rooms are filled at once; n_more, at least one, are beside
 * them. */
bool mf_hub_rooms_start(mf_hub_client *client, uint32_t n_fillers, uint32_t n_more,
                        mf_hub_rooms **out, mf_error *error);
/* Ends the threads, when what was handed over is written: what is WRITTEN can be asked for then. */
void mf_hub_rooms_finish(mf_hub_rooms *rooms);
/* Ends the threads and takes the memory, also of rooms that somebody has. Takes a pointer to NULL.
 */
void mf_hub_rooms_free(mf_hub_rooms **rooms);

/* ---- for the fetching thread ---- */

/* A room to fill, for one of the n_fillers that has none. Waits until something was written where
 * there is none; NULL: what was written has to be taken first. */
mf_hub_room *mf_hub_rooms_take(mf_hub_rooms *rooms);
/* It was not filled. */
void mf_hub_rooms_drop(mf_hub_rooms *rooms, mf_hub_room *room);
/* It is full, and its unit is neither on the drive nor on its way there. */
void mf_hub_rooms_write(mf_hub_rooms *rooms, mf_hub_room *room);
/* A copy of the next room that has been written, or failed to be; false: there is none now. */
bool mf_hub_rooms_written(mf_hub_rooms *rooms, mf_hub_room *out);
/* Waits until nothing of the item is being written, and forgets what is kept of it. Takes NULL. */
void mf_hub_rooms_forget(mf_hub_rooms *rooms, const mf_hub_item *item);

/* ---- for the hashing thread ---- */

/* The bytes of a unit; NULL: they are in the file alone. */
mf_hub_room *mf_hub_rooms_lend(mf_hub_rooms *rooms, const mf_hub_item *item, uint32_t epoch,
                               uint64_t unit);
void mf_hub_rooms_return(mf_hub_rooms *rooms, mf_hub_room *room);

#endif
