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
 *                                                                  | kind[KEYED] spans
 *                                                                  | mlp_* expert_act expert_out
 *   draft.source draft.in draft.cache
 */
/* Positions that a session's draft looks back to, at most. */
#define MF_DRAFT_CONTEXT 2048u

/* Of a layer that proposes tokens. Its cache is no part of sessions' pages: it follows what was
 * evaluated last and is never kept. */
typedef struct mf_draft_plan {
    uint32_t n_tokens;  /* proposed at once; 0: there is none */
    uint32_t n_sources; /* states in `source`, after the n_chunk embeddings */
    uint32_t n_pages;   /* of a session */
    uint64_t page_bytes;
    mf_span source; /* [n_chunk, hidden] of embeddings, [n_sources, mf_draft_width] of states */
    mf_span in;     /* [n_chunk, 2 hidden], or [n_chunk, n_streams, hidden] */
    mf_span cache;  /* [sessions, n_pages] pages */
} mf_draft_plan;

typedef struct mf_plan {
    uint32_t n_chunk;   /* rows */
    uint32_t n_context; /* positions a session */
    uint32_t k;         /* experts per token in use */
    uint32_t n_logit_rows;
    mf_span cos, sin;             /* [n_context, n_rot / 2] */
    mf_span index_scores;         /* of an indexer, of n_at_once rows: [2, n_context], or entries */
    mf_span entry_cos, entry_sin; /* like cos and sin, of layers that have entries */
    /* What those layers' rows see, or rows for which an indexer chooses positions, side by side, of
     * n_at_once rows; of entries a row sees at most n_entries. */
    mf_span gathered;
    uint32_t n_at_once, n_entries;
    /* Where the residual stream is several: [n_chunk, n_streams, hidden], of logits' rows, what
     * mixes them, and the gates that a block's result goes back by. */
    mf_span streams, last_streams, mixes, gates;
    mf_span x, h, y; /* [n_chunk, hidden] */
    mf_span last;    /* [n_logit_rows, hidden] */
    mf_span logits;  /* [n_logit_rows, vocab] */
    mf_span bounds;  /* [n_logit_rows, mf_finite_blocks(vocab)] */
    /* Constants, where the model has a use for them: of 1, of 0 [hidden], what queries grow by and
     * as many 0 [n_context]. */
    mf_span ones, zeros, growth, no_sin;
    uint64_t n_ones;
    mf_span moe_x; /* what experts are given: h, or scaled [n_chunk, hidden] */
    mf_span ids, weights, router, shared_router;
    mf_span routed_ids;   /* [MoE layers, MF_MAX_ROUTED_PICKS]: ids that nobody waits for */
    mf_span slot_numbers; /* [MoE layers, experts] */
    mf_span found;        /* [MoE layers, 2]: as mf_route_params has it */
    mf_span kind[MF_N_LAYER_KINDS][MF_KIND_SPANS]; /* of the kinds that the model has */
    mf_dtype cache_type;                           /* of cached keys, values and latents */
    mf_span mlp_gate, mlp_up, mlp_out;
    /* [picks, ...]: scratch, results as the experts leave them and as they are summed; expert_x is
     * what they read. Where experts have a device of their own, all but expert_out are there, and
     * they are summed there too: by expert_weights [rows, k] to expert_sum [rows, hidden], which
     * comes back to expert_out. */
    mf_span expert_x, expert_act, expert_y, expert_out, expert_weights, expert_sum;
    mf_span lent_act; /* as expert_act, where those of long runs are multiplied here; id 0: never */
    uint32_t n_given; /* of the first MoE layers, whose experts lie and are multiplied here */
    mf_draft_plan draft;
    uint64_t act_bytes;
    uint64_t expert_act_bytes; /* on the experts' own device; 0: they have none */
    /* MF_PAGE_TOKENS positions of all layers that attend to every one, and of those with a window;
     * 0: there is no such layer. */
    uint64_t page_bytes, window_bytes;
    uint64_t recurrent_bytes;   /* one recurrent state of all layers; 0: none has one */
    uint32_t window;            /* positions, the widest of all layers'; 0: none has one */
    uint64_t mark_window_bytes; /* of pages that a mark holds because the session will drop them */
    uint64_t session_bytes;     /* pages of n_context positions, and what a session needs besides */
    uint64_t state_bytes;       /* of all sessions together: the default, or the option */
    uint64_t mark_bytes;        /* of these, what marks alone may hold */
    uint64_t session_host_bytes;
    uint64_t host_bytes; /* host-side lists of the experts' rows */
    /* What devices take of their memory beside buffers, and their drivers of the process's. */
    uint64_t overhead_bytes, expert_overhead_bytes, driver_bytes;
} mf_plan;

typedef struct mf_plan_options {
    uint32_t n_chunk, n_context, k, n_sessions;
    uint32_t n_threads;
    uint32_t n_draft; /* tokens proposed at once; 0: none */
    mf_dtype cache_type;
    mf_layer_kinds kinds;
    const char *device, *expert_device;
    mf_precision precision;
    bool experts_apart; /* they have a device of their own */
    bool experts_lent;  /* but for long runs */
    uint32_t n_given;   /* and for these, as mf_plan has it */
} mf_plan_options;

/* Slabs of state of either kind, at most. */
#define MF_STATE_SLABS 256

/* State is cut from slabs of so many units of a size; 0: there are none of it. */
uint32_t mf_plan_slab_units(uint64_t state_bytes, uint64_t unit_bytes);
/* What all slabs take where memory is taken whole, not as it is touched: the last of either kind
 * may be used in part. */
uint64_t mf_plan_slabs_bytes(const mf_plan *plan);

/* Of experts on a device of their own: rows of a batch that goes there while the other device's
 * stream waits, at most; values of each on its way there; and what all of them take there and back,
 * each value beside a number. */
#define MF_RELAY_ROWS 8u
static inline uint64_t mf_plan_relay_width(const mf_plan *p, const mf_hparams *h)
{
    return (uint64_t)h->hidden_size + 2 * (uint64_t)p->k;
}
static inline uint64_t mf_plan_relay_there_bytes(const mf_plan *p, const mf_hparams *h)
{
    return MF_RELAY_ROWS * mf_plan_relay_width(p, h) * sizeof(uint64_t);
}
static inline uint64_t mf_plan_relay_back_bytes(const mf_hparams *h)
{
    return MF_RELAY_ROWS * (uint64_t)h->hidden_size * sizeof(uint64_t);
}

/* What a mark is counted as, without logits: what only it may hold. */
static inline uint64_t mf_plan_mark_bytes(const mf_plan *p)
{
    return p->page_bytes + p->recurrent_bytes +
           (p->mark_window_bytes != 0 ? p->mark_window_bytes : p->window_bytes);
}

/* Entries of all sessions' tables of pages. */
uint64_t mf_plan_table_pages(const mf_plan *plan, uint32_t n_sessions);

/* False if a size overflows. */
bool mf_plan_make(const mf_hparams *h, const mf_plan_options *options, mf_plan *out);

/* Whether experts of long runs are multiplied by the dense layers' device, and others not. */
static inline bool mf_plan_lends(const mf_plan *plan)
{
    return plan->lent_act.buffer.id != 0;
}
/* Slots of the dense layers' device for experts that are lent to it, of so many bytes each: half of
 * them are filled while the others are multiplied. 0: none are lent. */
uint32_t mf_plan_lent_slots(const mf_plan *plan, uint64_t slot_bytes);

/* Windows' pages are kept for so many positions more than the window needs, so that a sequence may
 * go back a little: guesses that were wrong, a text written otherwise. */
#define MF_WINDOW_SLACK 64

/* The first page that rows from `position` on reach in layers of this window. */
uint32_t mf_window_first(uint32_t window, uint64_t position);
/* The first page that is kept of such layers by what ends at `position`. */
uint32_t mf_window_kept(uint32_t window, uint64_t position);

/* What a layer keeps, in the order of its kind: from `offset` on in units of their kind, n_rows
 * rows of n_bytes; n_bytes 0: nothing. */
typedef struct mf_layer_state {
    mf_unit_kind unit[MF_MOST_KEPT];
    uint64_t offset[MF_MOST_KEPT];
    uint64_t n_bytes[MF_MOST_KEPT];
    uint64_t n_rows[MF_MOST_KEPT];
} mf_layer_state;

/* Bytes of what is kept of n positions of a page, or of all of a recurrent state's. */
static inline uint64_t mf_kept_bytes(const mf_layer_state *l, uint32_t i, uint64_t n)
{
    const bool is_recurrent = l->unit[i] == MF_UNIT_RECURRENT;
    return l->n_bytes[i] * (is_recurrent ? l->n_rows[i] : n * l->n_rows[i] / MF_PAGE_TOKENS);
}

/* Fills states[mf_all_layers] (may be NULL), and of the plan the sizes of pages and of a recurrent
 * state; false on overflow. */
bool mf_plan_state(const mf_hparams *h, const mf_plan_options *options, mf_layer_state *states,
                   mf_plan *plan);

#endif
