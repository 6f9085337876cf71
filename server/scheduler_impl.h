/* SPDX-License-Identifier: MIT */
/* What the scheduler's files share. All but the lock's part belongs to its thread. */
#ifndef MF_SERVER_SCHEDULER_IMPL_H
#define MF_SERVER_SCHEDULER_IMPL_H

#include "drawers.h"
#include "model.h"
#include "pace.h"
#include "scheduler.h"

#define MF_SRV_N_CLIENTS 1024u

/* A session, whose sequence stays when its user is done: the next prompt may begin so. */
typedef struct mf_srv_slot {
    mf_session *session;
    mf_srv_choice *user; /* NULL: idle */
    uint64_t used;       /* a count of uses: the least is the oldest */
    bool is_storing;     /* the keeper has it */
} mf_srv_slot;

struct mf_srv_scheduler {
    mf_srv_scheduler_options options;
    const mf_srv_model *model;
    mf_srv_stats *stats;
    pthread_t thread, keeper;
    bool has_keeper;

    pthread_mutex_t lock; /* of the next eight, and of the slots' is_storing */
    pthread_cond_t woken, stored;
    mf_srv_choice *arrived; /* not yet seen by the thread */
    size_t n_jobs;          /* not over */
    size_t n_waiting_jobs;  /* of these, without any session yet */
    /* Of these, by client; two that fall together count as one. */
    uint32_t n_waiting_of[MF_SRV_N_CLIENTS];
    bool is_closed, is_cancelling, is_stopping, has_news;
    mf_srv_slot **to_store; /* [n_slots] */
    size_t n_to_store;

    mf_srv_choice *waiting; /* in order of arrival */
    mf_srv_slot *slots;
    size_t n_slots;
    mf_srv_choice **running; /* [n_slots] */
    size_t n_running;
    mf_step_item *items; /* [n_slots] */
    mf_srv_choice **of;  /* [n_slots], whose item it is */
    mf_srv_draw *draws;  /* [n_slots], of the choices drawn[] */
    mf_srv_choice **drawn;
    mf_srv_drawers *drawers; /* NULL: none */
    uint64_t n_uses;
    uint64_t gave_way_us; /* when somebody last did */
    bool is_short;        /* of memory: nobody comes in before somebody goes */

    mf_srv_pace pace;    /* of prompts, while answers are running */
    uint64_t flushed_us; /* when readers were last told */
};

/* A failure that others may cure by going: it is no fault of the request. */
static inline bool mf_srv_is_short_of_memory(mf_status status)
{
    return status == MF_ERR_BUDGET || status == MF_ERR_NO_MEMORY;
}

/* --- slots: scheduler_slots.c --- */

/* Gives a waiting choice a session that holds as much of its tokens as there is. False: no slot is
 * free. A failure ends the job. */
bool mf_srv_slots_take(mf_srv_scheduler *s, mf_srv_choice *c);
/* The choice is done with its session, which stays as it is. keeps: it is worth storing. */
void mf_srv_slots_give_back(mf_srv_scheduler *s, mf_srv_choice *c, bool keeps);
/* The choice gives its session up, to go on later: what it holds goes to the store, if there is
 * one, and is the first to be emptied after that. */
void mf_srv_slots_put_by(mf_srv_scheduler *s, mf_srv_choice *c);
/* Some session is being stored: it can be emptied soon. */
bool mf_srv_slots_is_storing(mf_srv_scheduler *s);
/* Empties the idle session that was used longest ago. False: there is none. */
bool mf_srv_slots_make_room(mf_srv_scheduler *s);
/* The thread that writes sessions to the store. */
void *mf_srv_slots_keeper(void *scheduler);
size_t mf_srv_slots_n_idle(const mf_srv_scheduler *s);

/* --- choices: scheduler_run.c --- */

/* Gives back what of the prompt is to be given back before it is evaluated. */
void mf_srv_run_begin_echo(mf_srv_choice *c);
/* One chunk of all that run. False: nothing could be done. */
bool mf_srv_run_step(mf_srv_scheduler *s);
/* Takes a choice out of those running. */
void mf_srv_run_remove(mf_srv_scheduler *s, mf_srv_choice *c);
/* How many of a client's choices run. */
size_t mf_srv_run_n_of(const mf_srv_scheduler *s, uint64_t client);
/* Puts one back that runs, into the first place of those who wait: the newest of the client who has
 * the most running. False: nobody has n_least. */
bool mf_srv_run_put_back(mf_srv_scheduler *s, size_t n_least);
/* Likewise one whose reader is behind. False: there is none. */
bool mf_srv_run_put_back_paused(mf_srv_scheduler *s);
/* The reader of its stream is behind. */
bool mf_srv_run_is_paused(const mf_srv_scheduler *s, mf_srv_choice *c);
/* Ends the job of a choice with a failure; its other choices go with it at the next look. */
void mf_srv_run_fail(mf_srv_scheduler *s, mf_srv_choice *c, const mf_srv_refusal *refusal);

#endif
