/* SPDX-License-Identifier: MIT */
/*
 * Boolean functions as ordered decision diagrams (R. E. Bryant, "Graph-Based Algorithms for Boolean
 * Function Manipulation", 1986): equal functions are one number, so that there are finitely many
 * however they are put together. Everything is bounded: what is too much fails, and stays so.
 */
#ifndef MF_GRAMMAR_DECISIONS_H
#define MF_GRAMMAR_DECISIONS_H

#include "base/alloc.h"

/* A function: an index. */
typedef uint32_t mf_decision;

#define MF_NEVER 0u
#define MF_ALWAYS 1u

typedef struct mf_decision_node {
    uint32_t variable; /* lower ones are decided first */
    mf_decision low, high;
} mf_decision_node;

typedef struct mf_decision_memo {
    mf_decision f, g, h, result;
} mf_decision_memo;

typedef enum mf_decisions_state {
    MF_DECISIONS_GOOD,
    MF_DECISIONS_TOO_MANY,
    MF_DECISIONS_NO_MEMORY
} mf_decisions_state;

typedef struct mf_decisions {
    mf_allocator allocator;
    mf_decisions_state state;
    mf_decision_node *nodes; /* the first two are the constants */
    size_t n, capacity;
    uint32_t *table; /* by content: indices, 0 where there is none */
    size_t n_table;
    mf_decision_memo *memo;
    unsigned long n_steps;
    unsigned depth;
} mf_decisions;

/* To be freed in any case. */
void mf_decisions_init(mf_decisions *d, const mf_allocator *a);
void mf_decisions_free(mf_decisions *d);

mf_decision mf_decision_variable(mf_decisions *d, uint32_t variable);
/* g where f holds, else h. */
mf_decision mf_decision_if(mf_decisions *d, mf_decision f, mf_decision g, mf_decision h);
static inline mf_decision mf_decision_and(mf_decisions *d, mf_decision a, mf_decision b)
{
    return mf_decision_if(d, a, b, MF_NEVER);
}
static inline mf_decision mf_decision_or(mf_decisions *d, mf_decision a, mf_decision b)
{
    return mf_decision_if(d, a, MF_ALWAYS, b);
}
static inline mf_decision mf_decision_not(mf_decisions *d, mf_decision a)
{
    return mf_decision_if(d, a, MF_NEVER, MF_ALWAYS);
}

/* Counts a step of a computation; false: there were too many, or something failed before. */
bool mf_decisions_step(mf_decisions *d);

#endif
