/* SPDX-License-Identifier: MIT */
/*
 * Where an evaluation's time goes: the stage that the evaluating thread is at, by layer, what the
 * expert store was asked for, and the timeline, if one is written. For the thread whose turn it is.
 * Whoever may be profiled has a pointer to one, NULL while nobody wants to know; all functions take
 * that.
 */
#ifndef MF_BASE_PROFILE_H
#define MF_BASE_PROFILE_H

#include "base/alloc.h"
#include "base/timeline.h"

#include <moeflux/profile.h>

#define MF_N_STAGES ((uint32_t)MF_STAGE_FORETELLING + 1)

typedef struct mf_profile_shape {
    uint32_t n_layers, n_moe_layers, n_experts;
} mf_profile_shape;

/* Of a layer with experts. */
typedef struct mf_profile_requests {
    uint64_t n, n_hits, n_repeated;
    uint64_t n_hints, n_useful, n_late, n_wasted;
    uint32_t n_turns;
} mf_profile_requests;

typedef struct mf_profile {
    mf_arena arena; /* holds this struct and every array below */
    mf_profile_shape shape;
    mf_timeline *timeline;             /* or NULL */
    uint64_t (*spent_ns)[MF_N_STAGES]; /* [n_layers + 1] */
    uint64_t all_ns[MF_N_STAGES];
    mf_profile_requests *requests; /* [n_moe_layers] */
    uint32_t *n_asked;             /* [n_moe_layers * n_experts] */
    uint32_t *last_turn;           /* as n_asked; 0: never */
    mf_stage stage;
    uint32_t layer;
    uint64_t since_ns, began_ns; /* 0: no pass is under way */
} mf_profile;

mf_status mf_profile_create(const mf_allocator *allocator, const mf_profile_shape *shape,
                            mf_profile **out, mf_error *error);
/* The timeline is not the profile's. */
void mf_profile_free(mf_profile **profile);

/* A pass of so many rows begins or ends. */
void mf_profile_begin(mf_profile *p);
void mf_profile_end(mf_profile *p, uint32_t n_rows);
/* The layer that it is at; n_layers: none. */
void mf_profile_layer(mf_profile *p, uint32_t layer);
/* The stage that it is at from now on; returns the one before, to go back to. */
mf_stage mf_profile_enter(mf_profile *p, mf_stage stage);

/* A layer with experts is asked for these. */
void mf_profile_asked(mf_profile *p, uint32_t moe_layer, const uint32_t *experts, uint32_t n);
/* What a layer with experts counts; NULL while nobody wants to know. */
static inline mf_profile_requests *mf_profile_of(mf_profile *p, uint32_t moe_layer)
{
    return p != NULL && moe_layer < p->shape.n_moe_layers ? &p->requests[moe_layer] : NULL;
}
/* Of the requests of a layer with experts, those of the tenth of its experts that was asked for
 * most; *n_used: how many were asked for at all. scratch [n_experts]. */
double mf_profile_most_used(const mf_profile *p, uint32_t moe_layer, uint32_t *scratch,
                            uint32_t *n_used);

#endif
