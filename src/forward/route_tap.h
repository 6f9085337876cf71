/* SPDX-License-Identifier: MIT */
/* Whoever watches the routing, or sets it. While there is one, the host chooses in every layer. */
#ifndef MF_FORWARD_ROUTE_TAP_H
#define MF_FORWARD_ROUTE_TAP_H

#include "forward/batch.h"

typedef struct mf_route_tap {
    void *ctx;
    /* A pass over the batch begins. */
    void (*begin)(void *ctx, const mf_batch *batch);
    /* The router's choice of a layer (numbered among those with experts): ids [n_rows, k], of which
     * those that are left there are computed; weights likewise. */
    void (*chosen)(void *ctx, uint32_t moe_layer, int32_t *ids, const float *weights,
                   uint32_t n_rows);
    /* What was foretold of a layer, [n_rows, n], the likeliest first; it may be changed too. */
    void (*foretold)(void *ctx, uint32_t moe_layer, int32_t *ids, uint32_t n, uint32_t n_rows);
    /* The pass has ended. */
    void (*end)(void *ctx, bool is_whole);
} mf_route_tap;

/* Sums up the squares of what the experts of each layer are given. */
typedef struct mf_input_sums {
    float *rows;  /* [n_chunk, hidden]: of the layer at hand */
    double *sums; /* [MoE layers, hidden] */
} mf_input_sums;

#endif
