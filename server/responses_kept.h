/* SPDX-License-Identifier: MIT */
/*
 * Responses by their ids. Those that were given, for requests that go on from one: so many bytes of
 * them, those used last, in memory alone. And those in the making that nobody waits for. Any thread
 * may ask. An id opens nothing for another key than the one that it was given to.
 */
#ifndef MF_SERVER_RESPONSES_KEPT_H
#define MF_SERVER_RESPONSES_KEPT_H

#include "bytes.h"

#define MF_SRV_RESPONSE_BYTES ((size_t)32 << 20)

struct mf_srv_job;
typedef struct mf_srv_responses mf_srv_responses;

/* NULL: no memory. */
mf_srv_responses *mf_srv_responses_new(size_t max_bytes);
void mf_srv_responses_free(mf_srv_responses **responses);

/* What is kept of a response. */
typedef struct mf_srv_stored {
    mf_srv_bytes items;    /* of the conversation, the response's own among them, as JSON without
                              brackets */
    mf_srv_bytes response; /* the object */
    mf_srv_bytes events;   /* those of a stream that can be read again; empty: there was none */
} mf_srv_stored;

/* Whether so much can be kept, in the place of all else. */
bool mf_srv_responses_fit(const mf_srv_responses *responses, const mf_srv_stored *kept);
/* Takes the texts over, in any case. who: the key's number. False: they are not kept, since they
 * are more than all that is kept may be, or for lack of memory. */
bool mf_srv_responses_put(mf_srv_responses *responses, const char *id, size_t who,
                          mf_srv_stored *kept);
/* Puts copies behind what the bytes have; any may be NULL. False: there is none of that id, or it
 * is in the making. */
bool mf_srv_responses_find(mf_srv_responses *responses, const char *id, size_t who,
                           mf_srv_bytes *items, mf_srv_bytes *response, mf_srv_bytes *events);
/* Puts a copy of the items, of one that is over, in which the text stands. *n_seen, at first 0: how
 * many were looked at, from the one used last on; *n_bytes: the bytes that were, added to what it
 * has. False: there are no more. */
bool mf_srv_responses_search(mf_srv_responses *responses, size_t who, const char *text,
                             size_t *n_seen, size_t *n_bytes, mf_srv_bytes *items);
/* Also of one in the making, of which there are items alone: those that it was asked for with. */
bool mf_srv_responses_find_input(mf_srv_responses *responses, const char *id, size_t who,
                                 mf_srv_bytes *items, mf_srv_bytes *response);
/* Also of one in the making, which is cancelled. False: there is none. */
bool mf_srv_responses_drop(mf_srv_responses *responses, const char *id, size_t who);

/* --- conversations are kept likewise: their items, and what they are as the response --- */

/* What became of a change; where it was not made, all is as it was. */
typedef enum mf_srv_change {
    MF_SRV_CHANGED,
    MF_SRV_NOT_THERE,         /* there is none of that id */
    MF_SRV_CHANGED_MEANWHILE, /* by somebody else */
    MF_SRV_TOO_LARGE,         /* it would be more than all that is kept may be */
    MF_SRV_NO_MEMORY
} mf_srv_change;
/* More items, as JSON without brackets, behind those that are there. */
mf_srv_change mf_srv_responses_add(mf_srv_responses *responses, const char *id, size_t who,
                                   const mf_srv_bytes *items);
/* Other texts in the place of what was kept, of those that are not NULL, as long as its items are
 * what they were (NULL: whatever they are). They are taken over unless it is CHANGED_MEANWHILE or
 * NOT_THERE. */
mf_srv_change mf_srv_responses_change(mf_srv_responses *responses, const char *id, size_t who,
                                      const mf_srv_bytes *was, mf_srv_bytes *items,
                                      mf_srv_bytes *response);

/* --- in the making: its id and key are the job's --- */

/* Holds the job. False: no memory, or too many. */
bool mf_srv_responses_begin(mf_srv_responses *responses, struct mf_srv_job *job);
/* The job with that id, held for the caller; *is_cancelled: it will not be finished. NULL: there is
 * none in the making. */
struct mf_srv_job *mf_srv_responses_running(mf_srv_responses *responses, const char *id, size_t who,
                                            bool *is_cancelled);
/* Cancels one in the making, which the caller has to tell the scheduler; held. NULL: there is none;
 * it is over, if it is known. */
struct mf_srv_job *mf_srv_responses_cancel(mf_srv_responses *responses, const char *id, size_t who);

typedef enum mf_srv_wanted {
    MF_SRV_IS_DROPPED,   /* nobody asks for it any more */
    MF_SRV_IS_CANCELLED, /* its client was told that it is */
    MF_SRV_IS_WANTED
} mf_srv_wanted;
/* The job is over: what is to be kept of it? It cannot be cancelled from now on; _settled follows
 * soon. */
mf_srv_wanted mf_srv_responses_settle(mf_srv_responses *responses, const struct mf_srv_job *job);
/* What is kept of it, which is taken over in any case, in the place of the job, which is let go. */
void mf_srv_responses_settled(mf_srv_responses *responses, const struct mf_srv_job *job,
                              mf_srv_stored *kept);

#endif
