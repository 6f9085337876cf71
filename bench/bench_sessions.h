/* SPDX-License-Identifier: MIT */
/* What the parts of bench_sessions share. */
#ifndef MF_BENCH_SESSIONS_H
#define MF_BENCH_SESSIONS_H

#include "bench_median.h"

#include "base/clock.h"
#include "session/session.h"

#include <stdbool.h>
#include <stdio.h>

#define BENCH_MAX_SESSIONS 64u
#define BENCH_MAX_ROUNDS 99u

typedef struct bench {
    const char *model;
    const char *text;      /* a file of text; NULL: random tokens */
    const char *directory; /* for files; NULL: none are made */
    bool has_one_prompt;   /* all sessions continue the same prompt, each as it samples */
    bool has_operations;   /* a round more tells a device's time of a step by operations */
    uint32_t n_sessions, n_prompt, n_steps, n_prefix, n_rounds;
    mf_split_mode halves; /* whether passes of several are split */
    mf_engine_options options;
    mf_engine *engine;
    mf_model_info info;
    int32_t *tokens; /* [n_tokens], enough for all parts */
    size_t n_tokens;
} bench;

_Noreturn void bench_die(const char *what, const mf_error *error);

/* Ends the program unless the call gave MF_OK. */
#define BENCH_TRY(call)               \
    do {                              \
        mf_error error = {0};         \
        if ((call) != MF_OK)          \
            bench_die(#call, &error); \
    } while (0)

/* One line: what, value, unit. */
void bench_line(const char *what, double value, const char *unit);

/* n_sessions decoding one after the other, and together. */
void bench_decode(bench *b);
void bench_together(bench *b);
/* Sync with a prefix that is held, and that is on disk, beside evaluating it; snapshots beside
 * memory and drive. */
void bench_state(bench *b);

#endif
