/* SPDX-License-Identifier: MIT */
/* What the server counts of itself. Changed and read under one lock, for moments. */
#ifndef MF_SERVER_STATS_H
#define MF_SERVER_STATS_H

#include <pthread.h>
#include <stdint.h>

enum { MF_SRV_N_BUCKETS = 12 };

/* Bounds of the histograms' buckets, in seconds; the last is without one. */
extern const double mf_srv_bucket_bounds[MF_SRV_N_BUCKETS - 1];

typedef struct mf_srv_histogram {
    uint64_t n[MF_SRV_N_BUCKETS];
    double sum;
} mf_srv_histogram;

typedef struct mf_srv_counts {
    uint64_t n_requests;  /* heads that were read */
    uint64_t n_refused;   /* answered with 4xx */
    uint64_t n_failed;    /* answered with 5xx, or ended by a failure */
    uint64_t n_jobs;      /* requests for answers, taken in */
    uint64_t n_finished;  /* of these */
    uint64_t n_cancelled; /* the client went away */
    uint64_t n_rejected;  /* the queue was full */
    uint64_t n_preempted; /* answers put back for lack of memory, to be gone on with */
    uint64_t n_prompt_tokens, n_cached_tokens, n_evaluated_tokens, n_answer_tokens;
    uint64_t n_forced_tokens; /* of answers: a grammar left no choice */
    uint64_t n_steps;
    uint64_t n_step_us, n_busy_us; /* within the steps; with what is done between them */
    uint64_t n_stored;
    mf_srv_histogram first_token, between_tokens;
    /* Now. */
    uint64_t n_waiting, n_running, n_paused, n_connections, n_sessions_idle;
} mf_srv_counts;

typedef struct mf_srv_stats {
    pthread_mutex_t lock;
    mf_srv_counts counts;
} mf_srv_stats;

void mf_srv_stats_add(mf_srv_stats *s, uint64_t *counter, uint64_t n);
void mf_srv_stats_set(mf_srv_stats *s, uint64_t *counter, uint64_t n);
void mf_srv_stats_time(mf_srv_stats *s, mf_srv_histogram *h, double seconds);
mf_srv_counts mf_srv_stats_get(mf_srv_stats *s);

#endif
