/* SPDX-License-Identifier: MIT */
/*
 * An index over token sequences: which of the sequences in it begins a given one, or shares the
 * longest beginning with it. A radix tree: a node's label is a run of tokens, children begin with
 * different ones. Looking up and changing cost one comparison a token and a binary search a node.
 * One thread at a time.
 */
#ifndef MF_STATE_PREFIX_INDEX_H
#define MF_STATE_PREFIX_INDEX_H

#include "base/alloc.h"

#include <stdbool.h>

typedef struct mf_prefix_index mf_prefix_index;
typedef struct mf_prefix_entry mf_prefix_entry; /* one sequence in the index */

mf_status mf_prefix_index_create(const mf_allocator *a, mf_prefix_index **out, mf_error *error);
void mf_prefix_index_free(mf_prefix_index **index);

/* Copies the tokens. The same sequence may be in the index any number of times. value is the
 * caller's. n_tokens 0 is the empty sequence. */
mf_status mf_prefix_insert(mf_prefix_index *index, const int32_t *tokens, size_t n_tokens,
                           void *value, mf_prefix_entry **out, mf_error *error);
void mf_prefix_remove(mf_prefix_index *index, mf_prefix_entry *entry);

typedef struct mf_prefix_match {
    void *value;     /* NULL: nothing found */
    size_t n_common; /* tokens that it shares with the query, from the beginning */
} mf_prefix_match;

/* The longest sequence that is a beginning of tokens, or all of them; the one inserted last among
 * equal ones. */
mf_prefix_match mf_prefix_find_whole(const mf_prefix_index *index, const int32_t *tokens,
                                     size_t n_tokens);
/* A sequence that shares the longest beginning with tokens. */
mf_prefix_match mf_prefix_find_common(const mf_prefix_index *index, const int32_t *tokens,
                                      size_t n_tokens);

/* Whether a sequence's value is of use to who shares n_common tokens with it. */
typedef bool (*mf_prefix_serves)(const void *ctx, const void *value, size_t n_common);
/* A sequence that serves and shares the longest beginning with tokens, more than n_least of them.
 * Asks each sequence that shares more than the one that is found. */
mf_prefix_match mf_prefix_find_serving(const mf_prefix_index *index, const int32_t *tokens,
                                       size_t n_tokens, size_t n_least, mf_prefix_serves serves,
                                       const void *ctx);

#endif
