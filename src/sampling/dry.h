/* SPDX-License-Identifier: MIT */
/*
 * DRY, "don't repeat yourself" (P. E. Weidmann, text-generation-webui #5677; breakers of several
 * tokens as in koboldcpp #982 and llama.cpp #9702): what would carry a repetition on loses score,
 * the more the longer it is. Let the sequence, its last dry_n_tokens, be s, and L how many of its
 * tokens come after the one in which the last breaker ends. For each earlier place, n is the number
 * of tokens, at most L, that stand before it and also end the sequence; if n >= allowed_length, the
 * token at that place loses multiplier * base^(n - allowed_length), the most of all its places, and
 * nothing if a breaker stands in its own text.
 */
#ifndef MF_SAMPLING_DRY_H
#define MF_SAMPLING_DRY_H

#include "base/alloc.h"

#include <moeflux/sampling.h>

typedef struct mf_dry mf_dry;

/* The options have been checked. */
mf_status mf_dry_create(const mf_sampler_options *options, size_t n_vocab, const mf_allocator *a,
                        mf_dry **out, mf_error *error);
void mf_dry_free(mf_dry **dry);
void mf_dry_accept(mf_dry *dry, int32_t token);
void mf_dry_forget(mf_dry *dry);
/* [n_vocab], 0 or more, finite; valid until the next call. Allocates nothing. */
const float *mf_dry_penalties(mf_dry *dry);

#endif
