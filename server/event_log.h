/* SPDX-License-Identifier: MIT */
/*
 * The events of an answer that is made whether somebody reads them or not: whole, up to a bound,
 * for any number of readers, who come and go and begin behind any event. Any thread may ask.
 */
#ifndef MF_SERVER_EVENT_LOG_H
#define MF_SERVER_EVENT_LOG_H

#include "bytes.h"

#include <sys/types.h>

#define MF_SRV_LOG_BYTES ((size_t)8 << 20)

struct mf_srv_channel;
typedef struct mf_srv_log mf_srv_log;

/* NULL: no memory. */
mf_srv_log *mf_srv_log_new(void);
void mf_srv_log_free(mf_srv_log **log);

/* Whole events more. Beyond the bound the log is lost: its readers are cut off. */
void mf_srv_log_put(mf_srv_log *log, const mf_srv_bytes *events);
/* Nothing more will come. */
void mf_srv_log_end(mf_srv_log *log);
/* Wakes the readers, if there is something that they were not told of. */
void mf_srv_log_tell(mf_srv_log *log);
/* A copy of all of it, into empty bytes. False: it is lost, or there is no memory. */
bool mf_srv_log_copy(mf_srv_log *log, mf_srv_bytes *out);

/* A channel that reads it, until it leaves. False: no memory. */
bool mf_srv_log_join(mf_srv_log *log, struct mf_srv_channel *reader);
void mf_srv_log_leave(mf_srv_log *log, const struct mf_srv_channel *reader);
/* Where a reader is. */
typedef struct mf_srv_log_place {
    size_t at;     /* of the log's bytes */
    size_t n_skip; /* events from there on that it does not want */
} mf_srv_log_place;
/* Some of what follows the place; 0: there is none yet; -1: and never will be; -2: it is lost. */
ssize_t mf_srv_log_take(mf_srv_log *log, mf_srv_log_place *place, char *buffer, size_t capacity);
/* There is something to take, or to know. */
bool mf_srv_log_has_more(mf_srv_log *log, mf_srv_log_place *place);
/* Moves the place behind events of a text that are to be skipped, as far as they are there. */
void mf_srv_skip_events(const char *text, size_t n_bytes, mf_srv_log_place *place);

#endif
