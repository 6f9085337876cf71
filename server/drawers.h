/* SPDX-License-Identifier: MIT */
/*
 * Threads that draw tokens beside the scheduler's: with a large vocabulary the logits of several
 * answers take longer to look through than the engine's threads stay awake between steps.
 */
#ifndef MF_SERVER_DRAWERS_H
#define MF_SERVER_DRAWERS_H

#include <moeflux/moeflux.h>

#include <stddef.h>

/* One draw: of a sampler that no other draw has. */
typedef struct mf_srv_draw {
    mf_sampler *sampler;
    const float *logits, *bounds; /* as mf_sampler_sample_bounded takes them */
    int32_t token;                /* what came of it */
} mf_srv_draw;

typedef struct mf_srv_drawers mf_srv_drawers;

/* So many threads, or less where there are no more. NULL: none. */
mf_srv_drawers *mf_srv_drawers_start(size_t n_threads);
/* All of draws[n], by the caller's thread and the others (drawers NULL: none); each sampler gives
 * what it gives anywhere. One call at a time. */
void mf_srv_draw_all(mf_srv_drawers *drawers, mf_srv_draw *draws, size_t n);
void mf_srv_drawers_stop(mf_srv_drawers **drawers);

#endif
