/* SPDX-License-Identifier: MIT */
/*
 * How much memory a cache should have, from what the machine has to spare: a pure function of
 * samples. Several caches on one machine, each governed so, come to share it evenly: what one gives
 * back grows with what it has, what one takes does not.
 */
#ifndef MF_BASE_MEMORY_GOVERNOR_H
#define MF_BASE_MEMORY_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mf_memory_sample {
    uint64_t now_us;
    uint64_t available_bytes; /* as mf_memory_available_bytes; 0: not known */
    uint64_t total_bytes;     /* of the machine, or that limits allow */
    uint64_t stalled_us;      /* that some task waited for memory, ever (PSI); 0: not known */
} mf_memory_sample;

/* Of this process and the control groups that hold it, now. */
void mf_memory_take_sample(mf_memory_sample *out);

typedef struct mf_memory_governor {
    uint64_t room_bytes; /* to be left to others */
    mf_memory_sample last;
    uint64_t scarce_us; /* when there was too little, last */
} mf_memory_governor;

/* The room is a sixteenth of all memory, not less than 512 MiB nor more than half of it: the same
 * for all who share it. */
void mf_memory_governor_init(mf_memory_governor *g, const mf_memory_sample *first);

typedef struct mf_memory_holding {
    uint64_t n_bytes, least_bytes, most_bytes;
    uint64_t unit_bytes; /* the least that is taken */
} mf_memory_holding;

/* The bytes that the cache should have now: fewer at once where less than three quarters of the
 * room are left or tasks wait for memory a tenth of the time, more after a second in which that was
 * not so. */
uint64_t mf_memory_govern(mf_memory_governor *g, const mf_memory_sample *sample,
                          const mf_memory_holding *holding);

#endif
