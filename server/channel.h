/* SPDX-License-Identifier: MIT */
/*
 * The way of an answer from the scheduler's thread to a connection: bytes with a bound. A
 * connection that has nothing to send is suspended; whoever puts bytes resumes it, at once or,
 * where steps are fast, for some together. What an answer says that nobody waits for goes to a log,
 * and a connection may read such a log.
 */
#ifndef MF_SERVER_CHANNEL_H
#define MF_SERVER_CHANNEL_H

#include "bytes.h"
#include "event_log.h"

#include <pthread.h>
#include <sys/types.h>

struct MHD_Connection;

typedef struct mf_srv_channel {
    pthread_mutex_t lock;
    struct MHD_Connection *connection; /* NULL: it is gone, and nobody reads any more */
    mf_srv_bytes out;
    size_t n_taken;     /* of out */
    bool is_suspended;  /* until bytes come */
    bool is_due;        /* bytes were put of which the connection does not know yet */
    bool is_done;       /* nothing will be added */
    bool is_broken;     /* the rest is not worth sending: close */
    int status;         /* of HTTP, for an answer in one piece; set with is_done */
    uint64_t put_us;    /* when bytes were last put */
    uint64_t taken_us;  /* when the connection last took some, or had none to take */
    mf_srv_log *sink;   /* what is put goes there; NULL: to the connection */
    mf_srv_log *source; /* what is taken comes from there, beside what is put; NULL: it does not */
    mf_srv_log_place place; /* in the source */
} mf_srv_channel;

bool mf_srv_channel_init(mf_srv_channel *c);
void mf_srv_channel_free(mf_srv_channel *c);

/* From the scheduler. Puts bytes, of which the connection is told with the next flush, or the end.
 */
void mf_srv_channel_put(mf_srv_channel *c, const mf_srv_bytes *bytes);
void mf_srv_channel_flush(mf_srv_channel *c);
/* Nothing more will come. status: of an answer in one piece. */
void mf_srv_channel_end(mf_srv_channel *c, int status);
/* Bytes that wait to be sent. */
size_t mf_srv_channel_waiting(mf_srv_channel *c);

/* From the connection's thread. Takes up to capacity bytes; 0: none yet, and the connection is
 * suspended; -1: the end; -2: broken. */
ssize_t mf_srv_channel_take(mf_srv_channel *c, char *buffer, size_t capacity);
/* True: all is there. False: the connection is suspended until it is. */
bool mf_srv_channel_is_whole(mf_srv_channel *c);
/* The connection is no more. */
void mf_srv_channel_leave(mf_srv_channel *c);

/* There is something to take. From any thread, for readers of a log. */
void mf_srv_channel_wake(mf_srv_channel *c);

/* From the watch. */
typedef struct mf_srv_channel_state {
    bool is_stalled; /* there was something to take all the time since then, and nobody did */
    bool is_silent;  /* nothing was put since then, all is taken, and the end is not there */
} mf_srv_channel_state;
mf_srv_channel_state mf_srv_channel_look(mf_srv_channel *c, uint64_t stalled_since_us,
                                         uint64_t silent_since_us);
/* The peer has gone, or reads nothing. The connection is closed. */
void mf_srv_channel_break(mf_srv_channel *c);

/* CLOCK_MONOTONIC. */
uint64_t mf_srv_now_us(void);

#endif
