/* SPDX-License-Identifier: MIT */
/*
 * Passes of several sequences in two halves: one computes while the other's experts are read. What
 * comes of a row does not depend on the rows beside it, so the bits are those of one pass; the
 * dense weights are gone through twice, and whether that pays is measured.
 */
#ifndef MF_FORWARD_SPLIT_H
#define MF_FORWARD_SPLIT_H

#include "forward/batch.h"

/* Rows of a pass that is split, at most: more are a prompt's, whose layers are swept. */
#define MF_SPLIT_ROWS 64u
/* Passes are compared with those of about as many rows: from 2, 4, 8, 16, 32 on. */
#define MF_SPLIT_SIZES 6u

typedef enum mf_split_mode {
    MF_SPLIT_AUTO = 0, /* where it pays */
    MF_SPLIT_NEVER,
    MF_SPLIT_ALWAYS /* where it can be */
} mf_split_mode;

/* What passes cost. */
typedef struct mf_split_cost {
    uint64_t n_rows, n_us, wait_us;
} mf_split_cost;

typedef struct mf_split_profit {
    bool is_on;
    mf_split_cost run, last[2]; /* the run at hand, and the last of each way */
    uint32_t n_passes, n_runs_since;
} mf_split_profit;

typedef struct mf_split {
    mf_split_mode mode;
    bool is_on;                   /* in the pass at hand */
    mf_split_profit *measured;    /* of the pass at hand; NULL: it could not be split */
    uint64_t began_us, waited_us; /* when it began, and what was waited up to then */
    mf_split_profit profit[MF_SPLIT_SIZES];
    uint64_t n_split; /* passes, ever */
} mf_split;

struct mf_runner;

/* A pass begins, and ends: whether it is split, and what it cost. */
bool mf_split_begin(struct mf_runner *r, const mf_batch *batch);
void mf_split_end(struct mf_runner *r, const mf_batch *batch, bool is_whole);
/* All layers, of plan.x. */
mf_status mf_split_layers(struct mf_runner *r, const mf_batch *batch, mf_error *error);

/* For tests: a pass was of this cost. */
void mf_split_profit_add(mf_split_profit *p, const mf_split_cost *pass);

#endif
