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
    return (uint64_t)w->n_cols * mf_dtype_bytes(w->float_type);
}

uint64_t mf_weight_scale_row_bytes(const mf_weight *w)
{
    if (w->kind != MF_WEIGHT_AFFINE)
        return 0;
    return (uint64_t)(w->n_cols / w->group) * mf_dtype_bytes(w->float_type);
}

uint64_t mf_weight_bytes(const mf_weight *w)
{
    return w->n_rows * (mf_weight_row_bytes(w) + 2 * mf_weight_scale_row_bytes(w));
}
