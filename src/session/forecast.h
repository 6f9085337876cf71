/* SPDX-License-Identifier: MIT */
/*
 * How long evaluations will take: what a chunk computes and what it reads, each over a rate that
 * was measured beforehand or learned from the chunks before. A chunk takes the longer of the two,
 * as the next layer's experts are read while one computes.
 */
#ifndef MF_SESSION_FORECAST_H
#define MF_SESSION_FORECAST_H

#include <moeflux/moeflux.h>

#include <stdbool.h>

/* Under the engine's state lock. */
typedef struct mf_forecast_rates {
    double read;        /* bytes of experts a second; 0: not known */
    double fma, memory; /* multiply-adds and bytes a second of those that compute; 0: not known */
    double slowness;    /* what computing takes, of what these two say; 0: not known */
    double wanted;      /* experts asked for, of as many as rows that choose evenly would */
} mf_forecast_rates;

typedef struct mf_forecast_chunk {
    uint64_t n_rows, position; /* of the first row */
    bool is_first;             /* later ones find the cache as a sweep leaves it */
    /* What it comes to. */
    double read_bytes, computing, reading; /* seconds */
} mf_forecast_chunk;

/* What a chunk took. */
typedef struct mf_forecast_seen {
    uint64_t n_us, wait_us, reading_us, read_bytes, n_wanted;
} mf_forecast_seen;

void mf_forecast_init(mf_forecast_rates *rates);
/* Seconds, if both rates are known, else in units of its own. */
double mf_forecast_cost(const mf_engine *e, const mf_forecast_rates *rates,
                        mf_forecast_chunk *chunk);
/* Learns of a chunk that was evaluated. */
void mf_forecast_learn(const mf_engine *e, mf_forecast_rates *rates, const mf_forecast_chunk *chunk,
                       const mf_forecast_seen *seen);

#endif
