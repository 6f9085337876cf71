/* SPDX-License-Identifier: MIT */
/*
 * A file of what happened when: Chrome's trace events, as text. Events may come from any thread and
 * in any order. Nothing is allocated after opening; what cannot be written is forgotten, and told
 * at the end. Names are static text without quotes.
 */
#ifndef MF_BASE_TIMELINE_H
#define MF_BASE_TIMELINE_H

#include "base/alloc.h"

typedef struct mf_timeline mf_timeline;

/* Who an event is of: threads are the compute threads, the evaluating one is 0; drives are the
 * lanes of reads, MF_TIMELINE_EXPERTS the experts as wholes. */
typedef enum mf_timeline_group {
    MF_TIMELINE_THREADS = 1,
    MF_TIMELINE_DRIVES = 2
} mf_timeline_group;
#define MF_TIMELINE_EXPERTS 0u
#define MF_TIMELINE_FIRST_DRIVE 1u

typedef struct mf_timeline_track {
    mf_timeline_group group;
    uint32_t number;
} mf_timeline_track;

/* What is told with an event; name NULL: no more. */
typedef struct mf_timeline_note {
    const char *name;
    uint64_t value;
} mf_timeline_note;
#define MF_TIMELINE_NOTES 4

mf_status mf_timeline_open(const mf_allocator *allocator, const char *path, mf_timeline **out,
                           mf_error *error);
/* MF_ERR_IO: not all of it could be written. */
mf_status mf_timeline_close(mf_timeline **timeline, mf_error *error);

/* On a track of its own, where events do not overlap unless one contains the other. */
void mf_timeline_span(mf_timeline *t, mf_timeline_track track, const char *name, uint64_t from_ns,
                      uint64_t to_ns, const mf_timeline_note notes[MF_TIMELINE_NOTES]);
/* One of several that go on at a time. */
void mf_timeline_flight(mf_timeline *t, mf_timeline_track track, const char *name, uint64_t from_ns,
                        uint64_t to_ns, const mf_timeline_note notes[MF_TIMELINE_NOTES]);

/* What is computed now, for the threads that compute it; NULL: nothing. */
void mf_timeline_set_work(mf_timeline *t, const char *name);
const char *mf_timeline_work(mf_timeline *t);

#endif
