/* SPDX-License-Identifier: MIT */
/* The choice of a backend (the CPU is the only one so far), and arithmetic on weights that all
 * share. */
#include "backend/backend.h"

#include "backend/cpu/cpu_backend.h"

mf_status mf_backend_open(const mf_backend_options *options, mf_backend **out, mf_error *error)
{
    return mf_cpu_backend_create(options, out, error);
}

uint64_t mf_weight_row_bytes(const mf_weight *w)
{
    if (w->kind == MF_WEIGHT_AFFINE)
        return (uint64_t)w->n_cols * w->bits / 8;
    if (w->kind == MF_WEIGHT_FP8_BLOCK)
        return w->n_cols;
    return (uint64_t)w->n_cols * mf_dtype_bytes(w->float_type);
}

uint64_t mf_weight_scale_row_bytes(const mf_weight *w)
{
    if (w->kind == MF_WEIGHT_FLOAT)
        return 0;
    uint64_t n_groups = ((uint64_t)w->n_cols + w->group - 1) / w->group;
    return n_groups * mf_dtype_bytes(w->float_type);
}

uint64_t mf_weight_scale_bytes(const mf_weight *w)
{
    uint64_t n_rows = w->n_rows;
    if (w->kind == MF_WEIGHT_FP8_BLOCK)
        n_rows = (n_rows + MF_FP8_BLOCK - 1) / MF_FP8_BLOCK;
    return n_rows * mf_weight_scale_row_bytes(w);
}

uint64_t mf_weight_bytes(const mf_weight *w)
{
    uint64_t scales = mf_weight_scale_bytes(w);
    uint64_t biases = w->kind == MF_WEIGHT_AFFINE ? scales : 0;
    return w->n_rows * mf_weight_row_bytes(w) + scales + biases;
}
