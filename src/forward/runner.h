/* SPDX-License-Identifier: MIT */
/*
 * A model that can be run: its weights in a backend's memory, the expert store, and what one pass
 * over the layers needs at a time. It has no sequences of its own: their tokens, pages and states
 * come with each batch. One thread at a time.
 */
#ifndef MF_FORWARD_RUNNER_H
#define MF_FORWARD_RUNNER_H

#include "backend/host_words.h"
#include "base/profile.h"
#include "experts/foresight.h"
#include "forward/batch.h"
#include "forward/route_tap.h"
#include "forward/split.h"
#include "model/model.h"

struct mf_io_engine;

/* Experts that are multiplied together, at most. */
#define MF_READY_MAX 256u

/* Host-side lists for the experts of one layer and chunk; sized once, in the runner's arena. */
typedef struct mf_moe_lists {
    int32_t *ids;           /* [chunk * k] the router's choice */
    uint32_t *place;        /* [chunk * k] row of expert_out that holds it */
    uint32_t *x_rows;       /* [chunk * k] tokens, expert by expert */
    uint32_t *first;        /* [experts + 1] where each expert's rows begin */
    uint32_t *wanted;       /* [experts] the distinct experts, in rising order */
    float *weights;         /* [chunk * k] of the choice, where somebody watches */
    int32_t *foretold;      /* [MF_FORESIGHT_DEPTH][MF_FORESIGHT_ROWS * 2 k] of layers after */
    mf_expert_item *items;  /* [MF_READY_MAX, or as many as there are experts] */
    mf_expert_ready *ready; /* [MF_READY_MAX, or as many as there are experts] */
} mf_moe_lists;

/* Where a row's logits go, as in mf_batch_part. */
typedef struct mf_logits {
    float *logits, *bounds;
    mf_span shared;
    bool is_proposal; /* of a token that may not be next: they may be no numbers */
} mf_logits;

/* A single row, whose norms and sums are made where products begin and end (fused.c). */
typedef struct mf_fused {
    bool is_on, has_experts;            /* mixtures of experts too */
    bool has_mixture[MF_MAX_LAYERS];    /* as one operation */
    bool has_linear_rows;               /* likewise, of all layers */
    bool has_attend_row[MF_MAX_LAYERS]; /* likewise */
    bool has_latent[MF_MAX_LAYERS];     /* of latent attention, all products of it with steps */
    bool has_latent_row[MF_MAX_LAYERS]; /* and what lies between them as one operation */
    bool is_at_hand;                    /* the batch is such a row */
    mf_span norm;  /* plan.h is not made yet: of plan.x with this weight; id 0: it is */
    bool is_added; /* plan.x has the layer's attention already */
} mf_fused;

/* What the next batch records, recorded while the device does this one (early.c). */
typedef struct mf_early {
    bool is_on;           /* the device can, and the model */
    bool is_kept;         /* commands of this batch are: */
    mf_batch_part *parts; /* [n_sequences], their pages in `pages`, one after the other */
    uint32_t n_parts, most_parts;
    mf_span *pages;
    size_t n_pages, most_pages;
    uint64_t n_multiply_adds, state_bytes_touched; /* that it adds to the runner's counts */
    uint64_t n_taken;                              /* batches, ever */
} mf_early;

/* Layers whose experts are all held, and chosen where they lie (routed.c). */
typedef struct mf_routed {
    bool is_on;          /* the device can */
    bool is_whole;       /* there are slots for all */
    uint64_t n_given_up; /* by the store, when what follows was so */
    bool *is_ready;      /* [MoE layers]: slot_numbers has them */
    uint32_t *part_at;   /* [MoE layers][MF_MAX_EXPERT_PARTS], in any slot of the layer */
    /* Of the pass at hand. */
    uint32_t n_routed; /* layers */
    bool *was_routed;  /* [MoE layers] */
    int32_t *ids;      /* [MoE layers][rows * k], once it is done */
} mf_routed;

/* Layers recorded before it is known whether the experts that they choose are held (ahead.c). */
typedef struct mf_ahead {
    bool is_on;         /* the device can */
    uint32_t n_most;    /* MoE layers, now; 1: none, as the choice is waited for */
    uint64_t *versions; /* [MoE layers]: of what slot_numbers has */
    uint32_t *found;    /* [MoE layers][2], as read back */
    uint32_t first, n;  /* MoE layers that are recorded, and not known to be done */
    mf_span when;       /* under which operations are recorded now; id 0: none */
    uint64_t n_done;    /* ever, without the host's choice */
    uint64_t n_missed;  /* ever, that were left to the host */
} mf_ahead;

/* Experts of another device, multiplied while this one's stream waits for them (relay.c). */
typedef struct mf_relay {
    bool is_on;      /* the devices can */
    bool is_at_hand; /* the batch is passed on so */
    /* [MF_RELAY_ROWS, mf_plan_relay_width]: the router's choice, its weights, the rows. */
    mf_host_word *there;
    mf_host_word *back; /* [MF_RELAY_ROWS, hidden] */
    uint32_t *late;     /* is 1 where the device gave up */
    mf_span there_span, back_span, late_span;
    uint32_t number; /* of the layer passed on last */
    bool is_open;    /* nothing has come back yet for this layer, of this number */
    uint32_t open_layer, open_number;
} mf_relay;

/* Experts of long runs, and of some layers, multiplied by the dense layers' device (lend.c,
 * give.c).
 */
typedef struct mf_lending {
    bool is_on;
    bool is_at_hand;             /* the batch is of long runs */
    bool is_given;               /* the layer at hand is given */
    mf_expert_shape *shapes;     /* [mf_all_layers], with what they have on that device */
    bool is_even[MF_MAX_LAYERS]; /* MoE layers: their experts go there as they were read */
    const unsigned char *from;   /* the slots that the CPU multiplies from */
    uint32_t n_slots;            /* there; behind them those of experts that are given */
    uint64_t slot_bytes;
    mf_ticket *used;    /* [n_slots], after which the slot may be written to */
    uint32_t *at_hand;  /* [n_slots], of the fetch: whose bytes may still be on their way */
    uint32_t next_slot; /* to be written to */
    uint32_t n_at_hand;
    mf_ticket sent; /* after which their bytes are there */
} mf_lending;

typedef struct mf_runner {
    mf_allocator allocator;
    mf_hparams h;
    mf_plan plan;
    mf_model_weights weights;
    mf_expert_map map; /* its arrays, and those that its parts point to, belong to the runner */
    mf_expert_tables tables;
    mf_backend *backend; /* of dense layers, activations, and what sessions hold */
    mf_backend *experts; /* where slots are and experts are multiplied: the same, or another */
    /* Rows on their way there and, summed, back, [chunk, hidden]; NULL where the two are one. */
    unsigned char *rows_there, *rows_back;
    uint64_t resident_bytes;
    mf_io *io;
    mf_expert_store *store;
    mf_arena arena;
    mf_moe_lists moe;
    uint32_t *split_lists; /* [2 * n_experts + 1]: moe.first and moe.wanted of a second half */
    mf_routed routed;
    mf_ahead ahead;
    mf_early early;
    mf_fused fused;
    mf_relay relay;
    mf_lending lending;
    mf_layer_state *layers;     /* [mf_all_layers] */
    mf_sequence *sequences;     /* [n_sequences], of the batch at hand */
    const mf_sequence *at_hand; /* [n_at_hand], of what is recorded */
    uint32_t n_at_hand;
    uint32_t *row_list;    /* [n_logit_rows] */
    uint32_t *same_row;    /* [n_chunk], all 0 */
    uint32_t *stream_rows; /* [n_chunk, n_streams], the row that each is of */
    mf_logits *row_logits; /* [n_logit_rows], where they go */
    float *row_bounds;     /* [n_logit_rows, mf_finite_blocks(n_vocab)], as plan.bounds */
    bool asks_finite;      /* a device that has them looks through logits, not the host */
    uint32_t *draft_rows;  /* [2 n_chunk], where something is drafted */
    const mf_batch *batch; /* at hand, where parts have states of their rows; else NULL */
    int32_t *row_tokens;   /* [n_chunk] */
    float *each_logits;    /* [n_vocab] */
    uint32_t n_reported;   /* layers of the batch at hand */
    uint32_t n_long_rows;  /* of the batch at hand, where it makes a difference */
    uint64_t n_tokens, expert_bytes_touched;
    uint64_t n_multiply_adds, state_bytes_touched; /* op_counts.c */
    const mf_route_tap *tap;                       /* NULL: nobody watches */
    mf_input_sums *inputs;                         /* NULL: nobody sums */
    mf_foresight *foresight;                       /* NULL: nothing is foreseen */
    mf_split split;
    uint64_t foretold_bytes; /* of weights, multiplied with for it alone */
    mf_profile *profile;     /* NULL: nobody wants to know */
} mf_runner;

/* On a device of their own (expert_device.c). */
static inline bool mf_experts_are_apart(const mf_runner *r)
{
    return r->experts != r->backend;
}
/* The batch's, of the layer at hand, are multiplied there. */
static inline bool mf_experts_are_away(const mf_runner *r)
{
    return mf_experts_are_apart(r) && !r->lending.is_at_hand && !r->lending.is_given;
}
/* The layer's lie on the dense layers' device for good (give.c). */
static inline bool mf_is_given(const mf_runner *r, uint32_t layer)
{
    return layer < r->h.n_layers && !r->h.is_dense[layer] &&
           r->h.moe_index[layer] < r->plan.n_given;
}

/* Every kind of layer that there is. */
extern const mf_layer_kind_ops *const mf_layer_kind_table[MF_N_LAYER_KINDS];

typedef struct mf_runner_options {
    mf_allocator allocator;
    uint32_t n_threads;
    mf_cpu_tier cpu_tier;
    uint32_t n_sequences; /* of a batch, at most */
    uint64_t n_slots;
    mf_slot_sizes slot_sizes;             /* as the budget counted them */
    bool slots_stay;                      /* no memory of theirs is ever given back */
    uint64_t n_slots_most, n_slots_least; /* between which n_slots may change; as n_slots, or 0 */
    uint64_t n_places, n_first_places, n_room_places; /* as mf_budget says */
    mf_io_kind io;
    const mf_cache_policy *cache_policy;
    mf_predict predict;
    uint32_t predict_depth;
    const struct mf_io_engine *io_engine; /* NULL: by `io` */
    void *io_arg;
    const char *device, *expert_device;
    uint64_t device_bytes;
    mf_precision precision;
    mf_numa numa;
    const char *cache_dir;
    const char *const *mirrors;
    uint32_t n_mirrors;
    void (*lost)(void *ctx, const char *path, int os_errno); /* a drive with copies, or NULL */
    void *lost_ctx;
    mf_backend_open_fn open_backend; /* NULL: mf_backend_open */
    void *backend_ctx;
    mf_backend_open_fn open_experts; /* NULL: as expert_device says */
    void *experts_ctx;
} mf_runner_options;

/* Opens the backends, so that their memories can be asked for. Of the options, those of slots and
 * sequences are not needed yet. On failure *runner can be closed. */
mf_status mf_runner_open_devices(const mf_runner_options *options, bool experts_apart,
                                 mf_runner *runner, mf_error *error);
/* Then what the descriptors plan: resident weights, expert store. Takes over what it needs of the
 * model, which is still to be released. On failure *runner can be closed. */
mf_status mf_runner_open(mf_model *model, const mf_runner_options *options, mf_runner *runner,
                         mf_error *error);
/* Whether memory of slots that are not needed goes back to the system. */
bool mf_runner_can_discard_slots(const mf_runner *runner);
/* Takes a zeroed one. */
void mf_runner_close(mf_runner *runner);

/* Runs the layers over the batch and delivers the logits that it asks for. States of the batch's
 * sequences are written; nothing else of them changes. When it returns, also with an error, nothing
 * of it is under way any more. */
mf_status mf_forward(mf_runner *runner, const mf_batch *batch, mf_error *error);

/* Rows of a sequence for the layer that proposes tokens (draft.c). A row is of a token and the
 * normed state of the position before it. */
typedef struct mf_draft_part {
    const int32_t *tokens; /* [n_rows] */
    uint32_t n_rows;
    const float *states; /* [n_states, mf_draft_width], of the first rows */
    uint32_t n_states;
    uint32_t first_row;   /* of the batch that mf_forward evaluated last: the others', one by one */
    uint32_t slot;        /* the first row's place in the sequence's own cache; later ones follow */
    const mf_span *pages; /* of that */
    float *logits;        /* [n_vocab], gets the last row's: of the token after it; or NULL */
    float *fed; /* [mf_draft_width], gets what the last row gives as state of its token; or NULL */
} mf_draft_part;

/* Runs it over the parts: at most n_chunk rows in all. When it returns, nothing is under way. */
mf_status mf_forward_draft(mf_runner *runner, const mf_draft_part *parts, uint32_t n_parts,
                           const mf_batch_watch *watch, mf_error *error);

#endif
