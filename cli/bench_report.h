/* SPDX-License-Identifier: MIT */
/* The figures of a bench: one value of each metric a round, medians over the rounds. */
#ifndef MF_CLI_BENCH_REPORT_H
#define MF_CLI_BENCH_REPORT_H

#include "run_stats.h"

typedef enum mf_bench_metric {
    MF_BENCH_PREFILL_TPS,
    MF_BENCH_DECODE_TPS,
    MF_BENCH_WEIGHT_PER_TOKEN, /* decode */
    MF_BENCH_READ_PER_TOKEN,   /* decode */
    MF_BENCH_HIT_RATE,         /* decode */
    MF_BENCH_READ_RATE,        /* decode: bytes read over the time with a read in flight */
    MF_BENCH_WAIT_PER_TOKEN,   /* decode, microseconds */
    MF_BENCH_WAIT_FRACTION,    /* decode */
    MF_BENCH_WEIGHT_RATE,      /* decode: weight bytes multiplied with, a second */
    MF_BENCH_HOST_HIT_RATE, /* decode: of the misses, held in RAM; these five: experts on a device
                             */
    MF_BENCH_UPLOAD_PER_TOKEN, /* decode */
    MF_BENCH_UPLOAD_RATE,      /* decode: over all of its time */
    MF_BENCH_PREFILL_HOST_HIT_RATE,
    MF_BENCH_PREFILL_UPLOAD_RATE,
    MF_BENCH_PREFILL_READ_BYTES,
    MF_BENCH_PREFILL_READ_RATE,
    MF_BENCH_PREFILL_WAIT_FRACTION,
    MF_BENCH_PREFILL_MISSES,
    MF_BENCH_PREFILL_READS_PER_EXPERT, /* misses over experts of all layers and chunks: at most 1 */
    MF_BENCH_PREFILL_FMA_RATE,
    MF_BENCH_RAW_READ_RATE,
    MF_BENCH_RAW_READ_LATENCY,
    MF_BENCH_DRAM_RATE,
    MF_BENCH_FMA_PEAK,
    MF_BENCH_LINK_TO_RATE,
    MF_BENCH_LINK_FROM_RATE,
    MF_BENCH_WEIGHT_OVER_DRAM,
    MF_BENCH_READ_OVER_RAW,
    MF_BENCH_PREFILL_READ_OVER_RAW,
    MF_BENCH_PREFILL_FMA_OVER_PEAK,
    MF_BENCH_STATE_PER_TOKEN, /* decode: bytes of caches and states */
    MF_BENCH_FMA_PER_TOKEN,   /* decode */
    MF_BENCH_DECODE_LIMIT,    /* tokens a second, if what binds were all */
    MF_BENCH_DECODE_OVER_LIMIT,
    MF_BENCH_PREFILL_BYTES, /* of weights, caches and states */
    MF_BENCH_PREFILL_FMA,
    MF_BENCH_PREFILL_LIMIT,
    MF_BENCH_PREFILL_OVER_LIMIT,
    MF_BENCH_N_METRICS
} mf_bench_metric;

/* One round; NAN where a metric was not measured. */
typedef struct mf_bench_round {
    double value[MF_BENCH_N_METRICS];
} mf_bench_round;

/* What a GPU's time went to, of one round. */
#define MF_BENCH_MAX_OPERATIONS 32
typedef struct mf_bench_times {
    mf_operation_time prefill[MF_BENCH_MAX_OPERATIONS], decode[MF_BENCH_MAX_OPERATIONS];
    size_t n_prefill, n_decode;
    uint64_t n_prefill_tokens, n_decode_tokens;
    bool is_there;
} mf_bench_times;

/* What of the machine a phase cannot be faster than. */
typedef enum mf_bench_bound {
    MF_BENCH_BOUND_NONE, /* not measured */
    MF_BENCH_BOUND_MEMORY,
    MF_BENCH_BOUND_CORES,
    MF_BENCH_BOUND_DRIVE
} mf_bench_bound;

typedef struct mf_bench_setup {
    const char *model;
    const char *io_name;
    const char *cpu_name;
    mf_model_info info;
    uint32_t n_chunk_tokens;
    uint32_t n_prompt_tokens;
    uint32_t n_gen_tokens;
    uint32_t n_rounds;
    double open_seconds;
    uint64_t device_bytes_taken;
    mf_bench_times times;
    bool has_layers;                            /* wanted in the table */
    mf_engine *engine;                          /* whose layers are told */
    mf_cli_phase prefill, decode;               /* of all rounds that count */
    mf_bench_bound prefill_bound, decode_bound; /* of the last of them */
    double prefill_fma_per_token;
} mf_bench_setup;

/* What the machine can do, a second; NAN: not measured. */
typedef struct mf_bench_machine {
    double read_bytes; /* of the model's files */
    double latency_us; /* of an expert read alone, before its bytes */
    double dram_bytes;
    double fma;
    double link_to, link_from; /* a GPU's, there and back */
} mf_bench_machine;

/* Derives a round's metrics from what its phases took and what the machine can do. */
void mf_bench_round_fill(mf_bench_round *round, mf_bench_setup *setup, const mf_cli_phase *prefill,
                         const mf_cli_phase *decode, const mf_bench_machine *machine);

/* Multiply-adds that a prompt token costs in weight products. */
double mf_bench_fma_per_token(const mf_model_info *info);

void mf_bench_print(const mf_bench_setup *setup, const mf_bench_round *rounds);
void mf_bench_print_json(const mf_bench_setup *setup, const mf_bench_round *rounds);

#endif
