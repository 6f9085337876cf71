/* SPDX-License-Identifier: MIT */
/*
 * What a kind of layer (of attention) is: its activations, what it keeps of a sequence, the room
 * its operations need, and the operations. A kind is one file and one row of the forward pass's
 * table (forward/layers/); descriptors and plans ask the table, which is handed to them.
 */
#ifndef MF_MODEL_LAYER_KIND_H
#define MF_MODEL_LAYER_KIND_H

#include "backend/backend.h"
#include "model/hparams.h"

/*
 * The buffers of a runner by the ids that a fresh backend gives them: it counts from 1 in the order
 * of creation. So spans are complete when they are laid out, before any memory exists.
 */
typedef enum mf_runner_buffer {
    MF_BUFFER_RESIDENT = 1, /* the dense weights */
    MF_BUFFER_ACTIVATIONS = 2,
    MF_BUFFER_SLOTS = 3 /* of experts */
} mf_runner_buffer;
/* A device of the experts' own has the same: their resident scales, their rows, their slots. */

/* Bytes laid out one after another within one buffer. */
typedef struct mf_layout {
    mf_buffer buffer;
    uint64_t used, high; /* high: the most that was ever used */
    bool overflow;
} mf_layout;

/* The next n_rows x n_cols values of float32. */
mf_span mf_layout_take(mf_layout *layout, uint64_t n_rows, uint64_t n_cols);

/* Activation spans that a kind has at most; what each is, its file says. */
#define MF_KIND_SPANS 12

/* What a sequence's state is made of: pages of MF_PAGE_TOKENS positions, which are kept for all of
 * them, pages that are given back when no window reaches them any more, and what is kept once. */
typedef enum mf_unit_kind {
    MF_UNIT_PAGE = 0,
    MF_UNIT_WINDOW,
    MF_UNIT_RECURRENT,
    MF_N_UNIT_KINDS
} mf_unit_kind;

/* One thing that a layer keeps of a sequence. In a page: a row of each position, or, of fewer rows,
 * one of each MF_PAGE_TOKENS / rows positions once they are all there. 0 x 0: nothing. */
typedef struct mf_kept {
    mf_unit_kind unit;
    uint64_t rows, cols;
    mf_dtype type;
    uint32_t n_heads; /* that cols are of, each by itself in types of blocks; 0: one */
} mf_kept;

/* All that it keeps; what each is, the kind's file says. */
#define MF_MOST_KEPT 7
typedef struct mf_state_shape {
    mf_kept kept[MF_MOST_KEPT];
} mf_state_shape;

struct mf_runner;

typedef struct mf_layer_kind_ops {
    const char *name;
    /* Lays out the activations of n_rows rows as spans[MF_KIND_SPANS]. */
    void (*plan)(const mf_hparams *h, uint64_t n_rows, mf_layout *layout, mf_span *spans);
    /* cache_type: of cached keys, values and latents. */
    mf_state_shape (*state)(const mf_hparams *h, uint32_t layer, mf_dtype cache_type);
    /* Room for the largest operations that forward will record, so that it need not allocate. */
    mf_status (*reserve)(struct mf_runner *runner, uint32_t layer, mf_error *error);
    /* plan.y = attention of the n_rows rows of plan.h. */
    void (*forward)(struct mf_runner *runner, uint32_t n_rows, uint32_t layer);
} mf_layer_kind_ops;

/* By mf_layer_kind; entries of no kind are NULL. */
typedef const mf_layer_kind_ops *const *mf_layer_kinds;

#endif
