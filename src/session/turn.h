/* SPDX-License-Identifier: MIT */
/*
 * Whose evaluation it is. Held by one thread at a time, which may take it again; given to those who
 * wait in the order in which they came. Waiting can be broken off.
 */
#ifndef MF_SESSION_TURN_H
#define MF_SESSION_TURN_H

#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct mf_turn_waiter {
    struct mf_turn_waiter *next;
} mf_turn_waiter;

typedef struct mf_turn {
    pthread_mutex_t mutex; /* over all below; held for moments */
    pthread_cond_t changed;
    pthread_t holder;
    uint32_t depth; /* times that the holder has taken it; 0: it is free */
    mf_turn_waiter *waiting;
} mf_turn;

mf_status mf_turn_init(mf_turn *turn, mf_error *error);
void mf_turn_destroy(mf_turn *turn);

/* Asked again and again while waiting, from the waiting thread: anything but MF_OK ends it. */
typedef mf_status (*mf_turn_check_fn)(void *ctx, mf_error *error);

/* check may be NULL. What it returned, the turn not taken; else MF_OK, and mf_turn_end must follow.
 */
mf_status mf_turn_take(mf_turn *turn, mf_turn_check_fn check, void *ctx, mf_error *error);
/* Takes it if it is free and nobody waits for it; then mf_turn_end must follow. */
bool mf_turn_try(mf_turn *turn);
void mf_turn_end(mf_turn *turn);

/* True if this thread holds it. */
bool mf_turn_is_mine(mf_turn *turn);
/* How many wait; for tests. */
uint32_t mf_turn_n_waiting(mf_turn *turn);

#endif
