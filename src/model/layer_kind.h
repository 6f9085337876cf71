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

/* The next n_rows x n_cols values. */
mf_span mf_layout_take(mf_layout *layout, uint64_t n_rows, uint64_t n_cols, mf_dtype type);

/* Activation spans that a kind has at most; what each is, its file says. */
#define MF_KIND_SPANS 8

/* The one or two things that a layer keeps of a sequence: rows of cached keys and values or of
 * latents (of each position), or a convolution's inputs and a recurrent state (once). */
typedef struct mf_state_shape {
    bool is_recurrent;
    uint64_t rows[2], cols[2]; /* rows: MF_PAGE_TOKENS where not recurrent; 0 x 0: nothing */
    mf_dtype type;
} mf_state_shape;

struct mf_runner;

typedef struct mf_layer_kind_ops {
    const char *name;
    /* Lays out the activations of n_rows rows as spans[MF_KIND_SPANS]. */
    void (*plan)(const mf_hparams *h, uint64_t n_rows, mf_layout *layout, mf_span *spans);
    /* cache_type: of cached keys, values and latents. */
    mf_state_shape (*state)(const mf_hparams *h, mf_dtype cache_type);
    /* Room for the largest operations that forward will record, so that it need not allocate. */
    mf_status (*reserve)(struct mf_runner *runner, uint32_t layer, mf_error *error);
    /* plan.y = attention of the n_rows rows of plan.h. */
    void (*forward)(struct mf_runner *runner, uint32_t n_rows, uint32_t layer);
} mf_layer_kind_ops;

/* By mf_layer_kind; entries of no kind are NULL. */
typedef const mf_layer_kind_ops *const *mf_layer_kinds;

#endif
