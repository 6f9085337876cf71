/* SPDX-License-Identifier: MIT */
/* Matrix products, scalar: rows decoded as the table of formats says, multiplied in order of the
 * columns. This is how every tier multiplies a format that it has no kernel for, but for the order.
 */
#include "kernels/scalar/scalar.h"

#include <math.h>

size_t mf_matmul_scratch_bytes_scalar(const mf_matrix *w, uint32_t n_tokens)
{
    (void)n_tokens;
    return (size_t)w->shape.n_cols * sizeof(float);
}

void mf_dequant_row_scalar(const mf_matrix *w, uint32_t row, float *out)
{
    mf_weight_format_of(&w->shape)->decode_row(&w->shape, w->arrays, row, out);
}

void mf_matmul_scalar(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                      size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    float *weights = scratch;
    for (uint32_t r = row0; r < row1; r++) {
        mf_dequant_row_scalar(w, r, weights);
        for (uint32_t t = 0; t < n_tokens; t++) {
            const float *token = x + t * x_stride;
            float sum = 0;
            for (uint32_t i = 0; i < w->shape.n_cols; i++)
                sum = fmaf(weights[i], token[i], sum);
            y[t * y_stride + (r - row0)] = sum;
        }
    }
}
