/* SPDX-License-Identifier: MIT */
/*
 * Where an automaton stands: a set of stacks. Stacks are kept in a pool as a tree of nodes, each
 * there once, so that a stack is an index and equal sets are equal arrays. A node's parent is where
 * its rule returns to; a counted repeat's node has its count.
 */
#ifndef MF_GRAMMAR_STACKS_H
#define MF_GRAMMAR_STACKS_H

#include "grammar/program.h"

#define MF_NO_STACK UINT32_MAX
/* More stacks at once than this are refused: the grammar is too ambiguous. */
#define MF_MAX_TOPS 20000u

typedef struct mf_stack {
    uint32_t parent; /* MF_NO_STACK: the grammar's own rule */
    uint32_t state;
    uint32_t count; /* of a repeat */
    uint32_t depth; /* of nodes, this one included */
} mf_stack;

/* Rising indices of stacks whose states take a byte or a token; or that are done (state
 * MF_NO_STATE). */
typedef struct mf_tops {
    uint32_t *items;
    size_t n, capacity;
} mf_tops;

typedef struct mf_pool {
    mf_allocator allocator;
    const mf_program *program;
    mf_stack *stacks;
    uint32_t *seen; /* [capacity], the closure that saw it last */
    size_t n_stacks, capacity;
    uint32_t *slots; /* hash table of n_slots, a power of two; MF_NO_STACK: empty */
    size_t n_slots;
    uint32_t n_closures;
    mf_tops work, found;
    mf_status status; /* MF_ERR_NO_MEMORY or MF_ERR_UNSUPPORTED (too ambiguous): stays */
} mf_pool;

void mf_pool_init(mf_pool *p, const mf_allocator *a, const mf_program *program);
void mf_pool_free(mf_pool *p);
/* Forgets all stacks and failures. */
void mf_pool_clear(mf_pool *p);

/* Each puts what comes out into *out. A failure is in p->status. */
void mf_pool_start(mf_pool *p, mf_tops *out);
void mf_pool_byte(mf_pool *p, const mf_tops *from, unsigned char byte, mf_tops *out);
void mf_pool_token(mf_pool *p, const mf_tops *from, uint32_t token, mf_tops *out);

/* The same stacks in another pool. With longest_bytes > 0 counts become those that texts of so many
 * bytes cannot tell from them: what may follow, up to such a text, is the same. */
void mf_pool_copy(mf_pool *p, const mf_pool *source, const mf_tops *from, size_t longest_bytes,
                  mf_tops *out);

/* One of them is done: the text may end here. */
bool mf_tops_may_end(const mf_pool *p, const mf_tops *tops);
bool mf_tops_set(mf_pool *p, mf_tops *out, const uint32_t *items, size_t n);
/* Those of both; false: see the pool's status. */
bool mf_tops_join(mf_pool *p, mf_tops *into, const mf_tops *from);
void mf_tops_free(const mf_allocator *a, mf_tops *tops);

#endif
