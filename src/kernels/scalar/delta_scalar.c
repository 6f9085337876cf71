/* SPDX-License-Identifier: MIT */
/* The gated delta rule of one head, scalar. */
#include "kernels/scalar/scalar.h"

#include <math.h>

static void delta_token(const mf_delta_args *a, const float *from, const float *q, const float *k,
                        const float *v, float decay, float beta, float *out)
{
    for (uint32_t j = 0; j < a->value_dim; j++) {
        float predicted = 0, sum = 0;
        for (uint32_t i = 0; i < a->key_dim; i++) {
            size_t at = (size_t)i * a->value_dim + j;
            a->state[at] = from[at] * decay;
            predicted = fmaf(a->state[at], k[i], predicted);
        }
        float delta = (v[j] - predicted) * beta;
        for (uint32_t i = 0; i < a->key_dim; i++) {
            float *s = a->state + (size_t)i * a->value_dim + j;
            *s = fmaf(k[i], delta, *s);
            sum = fmaf(*s, q[i], sum);
        }
        out[j] = sum;
    }
}

void mf_delta_rule_scalar(const mf_delta_args *a)
{
    for (uint32_t t = 0; t < a->n_tokens; t++)
        delta_token(a, t == 0 ? a->from : a->state, a->q + t * a->qk_stride,
                    a->k + t * a->qk_stride, a->v + t * a->v_stride, a->decay[t * a->gate_stride],
                    a->beta[t * a->gate_stride], a->out + t * a->out_stride);
}
