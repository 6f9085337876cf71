/* SPDX-License-Identifier: MIT */
/*
 * Which tokens may come next. Sets of stacks become states of a deterministic automaton as they are
 * met, with their transitions by byte; a mask is found by one walk over the tree of tokens and kept
 * with its state. Within a JSON string the plain tokens need no walk: all that fit are allowed. The
 * memory is bounded: when it is full everything is forgotten and found again.
 */
#ifndef MF_GRAMMAR_MASKS_H
#define MF_GRAMMAR_MASKS_H

#include "grammar/stacks.h"
#include "grammar/vocabulary.h"

#define MF_DEFAULT_MASK_BYTES ((size_t)64 << 20)

typedef struct mf_dfa_state {
    uint32_t first, n_tops; /* in tops[] */
    uint32_t *next; /* [256], from the allocator when first needed: state, or 0: not known */
    uint32_t *mask; /* NULL: not known */
    uint32_t only;  /* the mask's token if it has one alone, else MF_NO_TOKEN */
} mf_dfa_state;

typedef struct mf_masks {
    mf_allocator allocator;
    const mf_vocabulary *vocabulary;
    const mf_program *program;
    mf_pool pool;
    mf_dfa_state *states; /* [0] is not used, [1] has no stacks */
    size_t n_states, state_capacity;
    uint32_t *tops;
    size_t n_tops, top_capacity;
    uint32_t *slots; /* hash table of states, by their stacks; 0: empty */
    size_t n_slots;
    mf_tops scratch;
    size_t used_bytes, max_bytes;
    uint64_t n_hits, n_misses, n_flushes;
} mf_masks;

void mf_masks_init(mf_masks *m, const mf_allocator *a, const mf_program *program,
                   const mf_vocabulary *vocabulary, size_t max_bytes);
void mf_masks_free(mf_masks *m);

/* Copies the mask for these stacks of another pool to out[n_words of the vocabulary], unless that
 * is NULL. *only: its token if it has one alone, else MF_NO_TOKEN. */
mf_status mf_masks_find(mf_masks *m, const mf_pool *pool, const mf_tops *tops, uint32_t *out,
                        uint32_t *only, mf_error *error);

#endif
