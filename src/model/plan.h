/* SPDX-License-Identifier: MIT */
/*
 * The plan of an engine's memory: what lies where in the activation block, in a page of the caches
 * and in a recurrent state. Arithmetic only; nothing is allocated here. budget.h divides the
 * budget.
 */
#ifndef MF_MODEL_PLAN_H
#define MF_MODEL_PLAN_H

#include "model/layer_kind.h"

#include <moeflux/devices.h>

/* Logits are computed for a few rows at a time: these, or as many as there are sessions, up to the
 * most. */
#define MF_LOGIT_ROWS 4
#define MF_LOGIT_ROWS_MAX 16
/*
 * The activation block, for up to n_chunk rows. A layer's attention, whatever its kind, and its MLP
 * or experts are never computed at once and share the same bytes:
 *
 *   cos sin | slot_numbers found | x h y last logits | ids routed_ids weights router shared_router
 *                                                                  | kind[FULL] spans
 *                                                                  | kind[LINEAR] spans
 *                                                                  | kind[LATENT] spans
 *                                                                  | mlp_* expert_act expert_out
 */
typedef struct mf_plan {
    uint32_t n_chunk;   /* rows */
    uint32_t n_context; /* positions a session */
    uint32_t k;         /* experts per token in use */
    uint32_t n_logit_rows;
    mf_span cos, sin; /* [n_context, n_rot / 2] */
    mf_span x, h, y;  /* [n_chunk, hidden] */
    mf_span last;     /* [n_logit_rows, hidden] */
    mf_span logits;   /* [n_logit_rows, vocab] */
    mf_span ids, weights, router, shared_router;
    mf_span routed_ids;   /* [MoE layers, MF_MAX_ROUTED_PICKS]: ids that nobody waits for */
    mf_span slot_numbers; /* [MoE layers, experts] */
    mf_span found;        /* [MoE layers, 2]: as mf_route_params has it */
    mf_span kind[MF_N_LAYER_KINDS][MF_KIND_SPANS]; /* of the kinds that the model has */
    mf_dtype cache_type;                           /* of cached keys, values and latents */
    mf_span mlp_gate, mlp_up, mlp_out;
    /* [picks, ...]: scratch, results as the experts leave them and as they are summed; expert_x is
     * what they read. Where experts have a device of their own, all but expert_out are there. */
    mf_span expert_x, expert_act, expert_y, expert_out;
    uint64_t act_bytes;
    uint64_t expert_act_bytes; /* on the experts' own device; 0: they have none */
    uint64_t page_bytes;       /* MF_PAGE_TOKENS positions of all layers; 0: none is cached */
    uint64_t recurrent_bytes;  /* one recurrent state of all layers; 0: none has one */
    uint64_t session_bytes;    /* pages of n_context positions, and what a session needs besides */
    uint64_t state_bytes;      /* of all sessions together: the default, or the option */
    uint64_t mark_bytes;       /* of these, what marks alone may hold */
    uint64_t session_host_bytes;
    uint64_t host_bytes; /* host-side lists of the experts' rows */
    /* What devices take of their memory beside buffers, and their drivers of the process's. */
    uint64_t overhead_bytes, expert_overhead_bytes, driver_bytes;
} mf_plan;

typedef struct mf_plan_options {
    uint32_t n_chunk, n_context, k, n_sessions;
    mf_dtype cache_type;
    mf_layer_kinds kinds;
    const char *device, *expert_device;
    mf_precision precision;
    bool experts_apart; /* they have a device of their own */
} mf_plan_options;

/* Slabs of state of either kind, at most. */
#define MF_STATE_SLABS 256

/* State is cut from slabs of so many units of a size; 0: there are none of it. */
uint32_t mf_plan_slab_units(uint64_t state_bytes, uint64_t unit_bytes);
/* What all slabs take where memory is taken whole, not as it is touched: the last of either kind
 * may be used in part. */
uint64_t mf_plan_slabs_bytes(const mf_plan *plan);

/* False if a size overflows. */
bool mf_plan_make(const mf_hparams *h, const mf_plan_options *options, mf_plan *out);

/*
 * What a layer keeps: keys and values, or latents, of each position; or the convolution's inputs
 * and the recurrent state. The former lie in pages, MF_PAGE_TOKENS rows of n_bytes from `offset`
 * on, the latter in the recurrent state, n_bytes from `offset` on.
 */
typedef struct mf_layer_state {
    uint64_t offset[2];
    uint64_t n_bytes[2];
    bool is_recurrent;
} mf_layer_state;

/* Fills states[n_layers] (may be NULL) and the sizes of a page and a recurrent state; false on
 * overflow. */
bool mf_plan_state(const mf_hparams *h, const mf_plan_options *options, mf_layer_state *states,
                   uint64_t *page_bytes, uint64_t *recurrent_bytes);

#endif
