/* SPDX-License-Identifier: MIT */
/* Logarithms of the model's own probabilities. */
#include "base/alloc.h"
#include "sampling/token_weights.h"

#include <moeflux/sampling.h>

#include <math.h>
#include <string.h>

/* Keeps top[n_top] in falling order. */
static void insert(mf_logprob *top, size_t n_top, mf_logprob one)
{
    size_t i = n_top - 1;
    for (; i > 0 && one.logprob > top[i - 1].logprob; i--)
        top[i] = top[i - 1];
    top[i] = one;
}

float mf_logprob_of(const float *logits, size_t n_vocab, int32_t token, mf_logprob *top,
                    size_t n_top)
{
    float highest = -INFINITY;
    for (size_t i = 0; i < n_vocab; i++)
        highest = logits[i] > highest ? logits[i] : highest;
    const double sum = mf_weights_here()->sum(logits, n_vocab, highest);
    const float normal = (float)((double)highest + log(sum));
    for (size_t i = 0; i < n_top; i++)
        top[i] = (mf_logprob){-1, -INFINITY};
    for (size_t i = 0; n_top > 0 && i < n_vocab; i++)
        if (logits[i] - normal > top[n_top - 1].logprob)
            insert(top, n_top, (mf_logprob){(int32_t)i, logits[i] - normal});
    return token >= 0 && (size_t)token < n_vocab ? logits[token] - normal : NAN;
}
