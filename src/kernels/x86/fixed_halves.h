/* SPDX-License-Identifier: MIT */
/*
 * A group's sums by several tokens where products of bytes are added in pairs, to 16 bits, and
 * those must not overflow: half a group's columns at once, by one digit. fixed_product.h's
 * sum_group_tokens, written once over what the including file defines first:
 *
 *   add_words(acc, products)      acc + products, of 16 bits
 *   words_of_bytes(w, digits)     products of unsigned and signed bytes, neighbours added
 *   ints_of_words(words)          neighbours of 16 bits added
 *   ints_times_256(sums)
 */
#ifndef MF_KERNELS_FIXED_HALVES_H
#define MF_KERNELS_FIXED_HALVES_H

#include "kernels/x86/fixed_panel.h"

/* Half a group's columns, those of one parity, by one digit of n_tokens (a constant) tokens: into
 * the sums, [n_tokens, PANELS]. */
MF_LANE_OP void add_half(uint32_t n_tokens, const ints *w0, const ints *w1, const signed char *x,
                         size_t x_stride, ints *sums)
{
    ints acc0[TILE], acc1[TILE];
    MF_UNROLL(4)
    for (uint32_t t = 0; t < n_tokens; t++)
        acc0[t] = acc1[t] = ints_set(0);
    MF_ROLLED
    for (uint32_t j = 0; j < HALF; j++) {
        const ints a = w0[j], b = w1[j];
        MF_UNROLL(4)
        for (uint32_t t = 0; t < n_tokens; t++) {
            const ints digits = four(x + t * x_stride + (size_t)j * 4);
            acc0[t] = add_words(acc0[t], words_of_bytes(a, digits));
            acc1[t] = add_words(acc1[t], words_of_bytes(b, digits));
        }
    }
    MF_UNROLL(4)
    for (uint32_t t = 0; t < n_tokens; t++) {
        sums[PANELS * t] = ints_add(sums[PANELS * t], ints_of_words(acc0[t]));
        sums[PANELS * t + 1] = ints_add(sums[PANELS * t + 1], ints_of_words(acc1[t]));
    }
}

/* A function of its own: within the others gcc 12 does not keep the sums in registers. */
__attribute__((noinline)) static void
add_half_of_tile(const ints *w0, const ints *w1, const signed char *x, size_t x_stride, ints *sums)
{
    add_half(TILE, w0, w1, x, x_stride, sums);
}

/* n_tokens is a constant. */
MF_LANE_OP void add_halves(uint32_t n_tokens, const ints *w0, const ints *w1,
                           const mf_fixed_digits *x, uint32_t digit, size_t x_stride, ints *sums)
{
    for (uint32_t i = 0; i < 2; i++, w0 += HALF, w1 += HALF) {
        if (n_tokens == TILE)
            add_half_of_tile(w0, w1, x->digit[digit][i], x_stride, sums);
        else
            add_half(n_tokens, w0, w1, x->digit[digit][i], x_stride, sums);
    }
}

MF_LANE_OP void sum_group_tokens(bool wide, uint32_t n_tokens, const ints *w0, const ints *w1,
                                 const mf_fixed_digits *x, size_t x_stride, ints *sums)
{
    (void)wide;
    for (uint32_t i = 0; i < PANELS * n_tokens; i++)
        sums[i] = ints_set(0);
    for (uint32_t d = DIGITS; d-- > 0;) {
        for (uint32_t i = 0; i < PANELS * n_tokens; i++)
            sums[i] = ints_times_256(sums[i]);
        add_halves(n_tokens, w0, w1, x, d, x_stride, sums);
    }
}

#endif
