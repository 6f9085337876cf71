/* SPDX-License-Identifier: MIT */
/*
 * Random matrices of every stored form, beside the float64 values that their bytes mean by the
 * definition of the form, and what every product of them has to satisfy.
 */
#ifndef MF_TESTS_MATRIX_CASE_H
#define MF_TESTS_MATRIX_CASE_H

#include "kernel_data.h"

typedef struct matrix_case {
    mf_matrix w;
    guarded arrays[MF_MAX_WEIGHT_ARRAYS]; /* each ends at an inaccessible page */
    double *values;                       /* [n_rows, n_cols] */
} matrix_case;

/* A value of a float type, and an e4m3 code's. */
double value_at(const unsigned char *p, mf_dtype type, size_t i);
double e4m3_value(uint32_t code);

/* The shapes of the forms, without rows and columns. */
mf_weight_shape affine_shape(uint32_t bits, uint32_t group, mf_dtype type);
mf_weight_shape float_shape(mf_dtype type);
mf_weight_shape fp8_shape(uint32_t scale_rows);

matrix_case make_case(uint64_t *state, mf_weight_shape shape, uint32_t n_rows, uint32_t n_cols);
/* The same with all codes' bytes, but not the scales, of one value. */
matrix_case make_even_case(uint64_t *state, mf_weight_shape shape, uint32_t n_rows, uint32_t n_cols,
                           unsigned char code);
void free_case(matrix_case *c);

/* n values, those that are not numbers the same one: which of two an addition keeps is open. */
void make_one_nan(float *values, size_t n);

/* Filled with NaN, should anything be read before it is written. Freed by the caller. */
void *scratch_for(const mf_kernels *k, const mf_matrix *w, uint32_t n_tokens);

/* What fixed point may add to an output's error: 2^-23 of the largest activation of a group (64
 * columns in affine weights, 256 in formats of blocks) for each of its weights; of blocks with
 * AVX-512 of a quarter of the 16 largest of 32 neighbours, where that is more, or with tiles of all
 * 32; and twice that with tiles by weights that take 5 bits and a sign. */
double fixed_point_bound(const mf_kernels *k, const matrix_case *c, const float *x, uint32_t row);
/* n_tokens outputs against the stated bound. */
void check_outputs(const mf_kernels *k, const matrix_case *c, const float *x, uint32_t n_tokens,
                   const float *y);
/* Up to 70 tokens: within the bound, and the same bits alone, together, and with the rows cut. */
void check_case(const mf_kernels *k, uint64_t *state, const matrix_case *c);
/* Tokens prepared once give what matmul gives. */
void check_prepared(const mf_kernels *k, uint64_t *state, const matrix_case *c);
/* Decoded rows: rounded once. */
void check_rows(const mf_kernels *k, const matrix_case *c);

#endif
