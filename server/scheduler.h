/* SPDX-License-Identifier: MIT */
/*
 * One thread owns the engine. It takes jobs in, gives their choices sessions, evaluates all of them
 * together step by step, and puts what they say into their channels.
 */
#ifndef MF_SERVER_SCHEDULER_H
#define MF_SERVER_SCHEDULER_H

#include "job.h"
#include "stats.h"

typedef struct mf_srv_scheduler mf_srv_scheduler;

typedef struct mf_srv_scheduler_options {
    const struct mf_srv_model *model;
    mf_srv_stats *stats;
    size_t max_waiting_jobs;
    double max_stall_us; /* of running answers, while prompts come in; if it is above the usual */
    size_t max_unsent_bytes; /* of a stream; beyond it an answer waits for its reader */
} mf_srv_scheduler_options;

/* Starts the thread. NULL: no memory, or no thread. */
mf_srv_scheduler *mf_srv_scheduler_start(const mf_srv_scheduler_options *options);

typedef enum mf_srv_taken { MF_SRV_TAKEN, MF_SRV_FULL, MF_SRV_CLOSED } mf_srv_taken;
/* Hands a prepared job over; the scheduler holds a reference of its own. */
mf_srv_taken mf_srv_scheduler_submit(mf_srv_scheduler *s, mf_srv_job *job);
/* Something changed that it waits for: a cancel, or room in a channel. From any thread. */
void mf_srv_scheduler_wake(mf_srv_scheduler *s);
/* Takes nothing more in. */
void mf_srv_scheduler_close(mf_srv_scheduler *s);
/* True: closed, and all jobs are done. */
bool mf_srv_scheduler_is_idle(mf_srv_scheduler *s);
/* Ends all jobs at once: their clients are told. */
void mf_srv_scheduler_cancel_all(mf_srv_scheduler *s);
/* Ends the thread, after all jobs are done, and frees. */
void mf_srv_scheduler_stop(mf_srv_scheduler **s);

#endif
