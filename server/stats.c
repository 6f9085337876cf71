/* SPDX-License-Identifier: MIT */
/* Counters. */
#include "stats.h"

const double mf_srv_bucket_bounds[MF_SRV_N_BUCKETS - 1] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                           0.5,   1.0,  2.5,   10.0, 60.0};

void mf_srv_stats_add(mf_srv_stats *s, uint64_t *counter, uint64_t n)
{
    pthread_mutex_lock(&s->lock);
    *counter += n;
    pthread_mutex_unlock(&s->lock);
}

void mf_srv_stats_set(mf_srv_stats *s, uint64_t *counter, uint64_t n)
{
    pthread_mutex_lock(&s->lock);
    *counter = n;
    pthread_mutex_unlock(&s->lock);
}

void mf_srv_stats_time(mf_srv_stats *s, mf_srv_histogram *h, double seconds)
{
    int i = 0;
    while (i < MF_SRV_N_BUCKETS - 1 && seconds > mf_srv_bucket_bounds[i])
        i++;
    pthread_mutex_lock(&s->lock);
    h->n[i]++;
    h->sum += seconds;
    pthread_mutex_unlock(&s->lock);
}

mf_srv_counts mf_srv_stats_get(mf_srv_stats *s)
{
    pthread_mutex_lock(&s->lock);
    mf_srv_counts counts = s->counts;
    pthread_mutex_unlock(&s->lock);
    return counts;
}
