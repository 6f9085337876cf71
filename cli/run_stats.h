/* SPDX-License-Identifier: MIT */
/* The figures of a run, prefill and decode apart, and how --stats prints them. */
#ifndef MF_CLI_RUN_STATS_H
#define MF_CLI_RUN_STATS_H

#include "json.h"
#include "output.h"

#include <stdio.h>

/* What one kind of work took so far. */
typedef struct mf_cli_phase {
    uint64_t n_tokens; /* evaluated */
    double seconds;
    mf_stats stats; /* the counters' growth meanwhile */
} mf_cli_phase;

/* Adds what happened between two readings of the counters. */
void mf_cli_phase_add(mf_cli_phase *phase, const mf_stats *before, const mf_stats *after,
                      double seconds);
mf_cli_phase mf_cli_phase_sum(const mf_cli_phase *a, const mf_cli_phase *b);
double mf_cli_phase_tokens_per_second(const mf_cli_phase *phase);
/* Hits over requests; NAN before the first request. */
double mf_cli_hit_rate(const mf_stats *stats);

typedef struct mf_cli_run_stats {
    mf_cli_phase prefill;
    mf_cli_phase decode;
    double announced_seconds; /* that prompts would take; 0: nobody was told */
    uint64_t n_prompt;        /* tokens of the prompts, each turn's in full */
    uint64_t n_reused;        /* of them: taken over, not evaluated; the others are the prefill's */
    uint64_t n_new;        /* of them: neither evaluated at their place before nor from the store */
    uint64_t n_from_store; /* of those reused: from the store */
    uint64_t n_generated;  /* tokens chosen; the last one may not have been evaluated */
    uint64_t n_forced;     /* of them: the only ones that a grammar left, evaluated with others */
    uint32_t n_experts_per_token, n_experts_per_token_model; /* in use; the model's own */
    uint64_t ram_bytes;
    uint64_t n_slots;
    uint64_t slot_bytes, n_host_slots;
    const char *io_name;
    const char *cpu_name;
    bool is_random; /* choices are made by chance, by this seed: */
    uint64_t seed;
    const char *device, *expert_device, *device_why;
    uint64_t device_bytes; /* that may be taken of it; 0: not known */
} mf_cli_run_stats;

void mf_cli_run_stats_table(FILE *out, const mf_cli_run_stats *stats);
/* As members of an object that the caller opens and closes. */
void mf_cli_run_stats_json(mf_cli_json *json, const mf_cli_run_stats *stats);
/* The member "seed": null where nothing is left to chance. */
void mf_cli_seed_json(mf_cli_json *json, const mf_cli_run_stats *stats);

#endif
