/* SPDX-License-Identifier: MIT */
/*
 * Foresight: what experts a layer will ask for, said to the store before the layer's turn. Several
 * predictors name candidates; all are judged by what is then chosen, and the one that has been
 * right most often is followed, for as many of its candidates as are likely enough. A pass of many
 * rows wants nearly all experts of a layer: they are named in the order of their files (a planned
 * sweep).
 *
 * It holds itself back: where next to nothing was missed lately there is nothing to gain, and no
 * clock is read; a predictor that is mostly wrong is not even asked; whether passes of few rows are
 * faster with it is tried now and then (foresight_trial.h); and where what was read for nothing in
 * sweeps took longer than what was of use, they pause, longer each time. It knows no models: what
 * the router of a layer says of an earlier state is brought by whoever ran it.
 */
#ifndef MF_EXPERTS_FORESIGHT_H
#define MF_EXPERTS_FORESIGHT_H

#include "experts/store.h"

typedef struct mf_foresight mf_foresight;

/* Rows of a pass, at most, for which candidates are named row by row; and those of each. */
#define MF_FORESIGHT_ROWS 16u
#define MF_FORESIGHT_RANKS 32u
/* Layers ahead that routers are asked of, at most. */
#define MF_FORESIGHT_DEPTH 3u

typedef struct mf_foresight_options {
    mf_allocator allocator;
    mf_expert_store *store; /* borrowed */
    uint32_t n_layers, n_experts, k;
    mf_predict predict;              /* not MF_PREDICT_OFF */
    uint32_t depth;                  /* up to MF_FORESIGHT_DEPTH; 0: as many as pay */
    uint64_t (*now_us)(void *clock); /* NULL: the machine's own */
    void *clock;                     /* borrowed */
} mf_foresight_options;

uint64_t mf_foresight_bytes(uint32_t n_layers, uint32_t n_experts);
mf_status mf_foresight_open(const mf_foresight_options *options, mf_foresight **out,
                            mf_error *error);
/* For tests: it does not hold itself back from now on. */
void mf_foresight_unbridle(mf_foresight *foresight);
void mf_foresight_close(mf_foresight **foresight);

/* A pass of so many rows begins. */
void mf_foresight_begin(mf_foresight *f, uint32_t n_rows);
/* While it is noted, routers are asked in every pass of few rows, whether or not it pays: a trace
 * is for other machines, too. */
void mf_foresight_note(mf_foresight *f, bool is_noted);
/* Whether routers are asked in this pass. */
bool mf_foresight_asks(const mf_foresight *f);
/* Whether what the layer's router says of an earlier state is wanted. */
bool mf_foresight_wants_router(const mf_foresight *f, uint32_t layer);
/* How many layers ahead in this pass, 1 at least. */
uint32_t mf_foresight_depth(const mf_foresight *f);
/* Whether the earlier state is to have the shared expert's part in it. */
bool mf_foresight_folds_shared(const mf_foresight *f);
/* Of as many as a row chooses, the part that the router named rightly so many turns before; 0 while
 * too few were named. is_folded: with the shared expert's part, for a distance of 1. */
double mf_foresight_recall(const mf_foresight *f, uint32_t distance, bool is_folded);
/* Whether it may: once, before the first pass. */
void mf_foresight_may_fold(mf_foresight *f);
/* It is the layer's turn soon: gives hints. foretold [n_rows][n]: what its router said of each row,
 * the likeliest first; NULL: it was not asked. */
void mf_foresight_hint(mf_foresight *f, uint32_t layer, const int32_t *foretold, uint32_t n);
/* The same of a layer that is `distance` turns away, 2 or more: after those that are nearer. */
void mf_foresight_hint_far(mf_foresight *f, uint32_t layer, uint32_t distance,
                           const int32_t *foretold, uint32_t n);
/* What was chosen, [n_rows][k]: judges what was named. */
void mf_foresight_chosen(mf_foresight *f, uint32_t layer, const int32_t *ids);
/* The pass has ended, with all that it computes; what was foreseen of one that failed is given up.
 */
void mf_foresight_end(mf_foresight *f, bool is_whole);

#endif
