/* SPDX-License-Identifier: MIT */
/* What blocks_product.h asks for of a group's tokens, for tiers that take them as they are, over
 * their add_tile(with_min, n, ...): unpacked spans of SET rows by n tokens, TILE, two or one. */
#ifndef MF_KERNELS_BLOCKS_TOKENS_H
#define MF_KERNELS_BLOCKS_TOKENS_H

#include "kernels/x86/blocks_token.h"

/* A core has room for some 24 lines on their way: with each tile of tokens those of a few rows. */
MF_INLINE void add_tokens(bool with_min, const unpacked_span *w, const group_tokens *x, vec *acc)
{
    const uint32_t n_tiles = (x->n + TILE - 1) / TILE, step = (SET + n_tiles - 1) / n_tiles;
    uint32_t fetched = 0;
    for (uint32_t t = 0, n; t < x->n; t += n) {
        const unsigned char *tokens = x->tokens + t * x->token_bytes;
        const uint32_t end = fetched + step < SET ? fetched + step : SET;
        mf_blocks_fetch(x, fetched, end);
        fetched = end;
        n = x->n - t < TILE ? x->n - t : TILE;
        if (n == TILE) {
            add_tile(with_min, TILE, w, tokens, x->token_bytes, x->begins, acc + t, GROUP);
        } else if (TILE > 2 && n == 2) {
            add_tile(with_min, TILE > 2 ? 2 : 1, w, tokens, x->token_bytes, x->begins, acc + t,
                     GROUP);
        } else {
            add_tile(with_min, 1, w, tokens, x->token_bytes, x->begins, acc + t, GROUP);
            n = 1;
        }
    }
}

/* Functions of their own, which all kinds share: within the kernel of each, gcc 12 does not keep
 * the sums in registers. */
__attribute__((noinline)) static void add_with_min(const unpacked_span *w, const group_tokens *x,
                                                   vec *acc)
{
    add_tokens(true, w, x, acc);
}

__attribute__((noinline)) static void add_without_min(const unpacked_span *w, const group_tokens *x,
                                                      vec *acc)
{
    add_tokens(false, w, x, acc);
}

MF_INLINE void add_rows(mf_weight_kind kind, mf_weight_kind stored, const unpacked_span *w,
                        const group_tokens *x, vec *acc)
{
    (void)stored;
    if (mf_blocks_has_min(kind))
        add_with_min(w, x, acc);
    else
        add_without_min(w, x, acc);
}

static size_t turned_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    (void)w;
    (void)n_tokens;
    return 0;
}

MF_INLINE void turn_tokens(const mf_blocks_rows *w, group_tokens *x, void *turned)
{
    (void)w;
    x->turned = turned;
}

#endif
