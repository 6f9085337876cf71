/* SPDX-License-Identifier: MIT */
/*
 * The fixed-point product by panels of rows: what fixed_product.h and the primitives of a tier have
 * in common. The including file first says how many ROWS a panel has (the lanes of lanes_<isa>.h),
 * how many tokens a TILE, and what `ints` are, vectors of as many 32-bit integers.
 */
#ifndef MF_KERNELS_FIXED_PANEL_H
#define MF_KERNELS_FIXED_PANEL_H

#include "kernels/x86/fixed_token.h"

enum {
    GROUP = MF_FIXED_GROUP,
    DIGITS = MF_FIXED_DIGITS,
    QUADS = 16, /* a group's fours of columns: eight of the even ones, then eight of the odd */
    PANELS = 2, /* multiplied together, by several tokens */
    GROUP_BYTES = GROUP / 2 /* of 4 bits */
};

/* ROWS rows; where there are fewer, the last one again. */
typedef struct panel {
    const mf_matrix *w;
    uint32_t rows[ROWS];
    uint32_t n_rows;
    uint32_t next;          /* rows from each to that of the next panel */
    float *scales, *biases; /* [groups of the weights, ROWS]; biases: bias + middle * scale */
    float middle;           /* of what the bits of a weight may be */
} panel;

static size_t panel_floats(const mf_matrix *w)
{
    return (size_t)2 * ROWS * (w->shape.n_cols / w->shape.group);
}

/* The scales and biases of group g of the weights. */
MF_LANE_OP void store_group(const panel *p, uint32_t g, lanes scale, lanes bias)
{
    lanes_store(p->scales + (size_t)g * ROWS, ROWS, scale);
    lanes_store(p->biases + (size_t)g * ROWS, ROWS, lanes_fma(scale, lanes_set(p->middle), bias));
}

#endif
