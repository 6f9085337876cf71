/* SPDX-License-Identifier: MIT */
/*
 * Floats to affine codes: w = code * scale + bias, a scale and a bias for each group of a row's
 * columns (MLX's definition and layout, docs/FORMATS.md), both float16, chosen so that the squared
 * error, weighted by column where that is asked for, is small: the range is tried at several
 * widths, scale and bias are fitted to the codes by least squares and the codes to them in turn,
 * and what is best as it will be stored is kept. MLX's own choice is among what is tried, so the
 * error is never above it. The same bits on every machine.
 */
#ifndef MF_QUANTISE_QUANTISE_H
#define MF_QUANTISE_QUANTISE_H

#include <stdbool.h>
#include <stdint.h>

#define MF_QUANTISE_MAX_GROUP 128u

typedef struct mf_quantise_form {
    uint32_t bits;  /* 2, 3, 4, 5, 6 or 8 */
    uint32_t group; /* 32, 64 or 128 */
} mf_quantise_form;

/* The weighted squared error, and the weighted squares of what was given. */
typedef struct mf_quantise_loss {
    double error, signal;
} mf_quantise_loss;

/* A row on its way. */
typedef struct mf_quantise_job {
    const float *row;        /* [n_cols], a multiple of the group */
    const float *importance; /* [n_cols], of each column's squared error, >= 0; NULL: all alike */
    uint32_t n_cols;
    unsigned char *values;          /* gets n_cols * bits / 8 bytes */
    unsigned char *scales, *biases; /* get n_cols / group float16 numbers each */
} mf_quantise_job;

/* Adds to *loss. False: a value is not finite, or larger than float16 holds. */
bool mf_quantise_row(const mf_quantise_form *form, const mf_quantise_job *job,
                     mf_quantise_loss *loss);

#endif
