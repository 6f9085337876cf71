/* SPDX-License-Identifier: MIT */
/*
 * A grammar as an automaton with a stack, over bytes. States are instructions; a rule called pushes
 * where it returns to, a counted repeat pushes how often it has been, so that {0,100000} is as
 * small as {0,1}. Read-only once made. What can never end is refused or cut off here: for every
 * state it is known how deep the stack must grow until its rule can end, and nothing is entered
 * that would need more than MF_MAX_STACK.
 */
#ifndef MF_GRAMMAR_PROGRAM_H
#define MF_GRAMMAR_PROGRAM_H

#include "grammar/rules.h"

#define MF_MAX_STATES 400000u
#define MF_MAX_STACK 512u
#define MF_NO_STATE UINT32_MAX

typedef enum mf_state_kind {
    MF_STATE_RETURN, /* the rule ends */
    MF_STATE_RANGE,  /* a byte of a to b, then next */
    MF_STATE_TOKEN,  /* the token a, then next */
    MF_STATE_SPLIT,  /* next, or a */
    MF_STATE_CALL,   /* the rule that begins at state a, then next */
    MF_STATE_REPEAT  /* what begins at state a, min to max times, then next */
} mf_state_kind;

typedef struct mf_state {
    uint8_t kind;
    uint32_t next, a, b;
    uint32_t min, max;
} mf_state;

typedef struct mf_program {
    mf_allocator allocator;
    mf_state *states;
    uint16_t *needs; /* [n_states] of stack, until the rule ends; above MF_MAX_STACK: never */
    size_t n_states, n_allocated;
    uint32_t start;
    /* The first state of the rule for a character of a JSON string, or MF_NO_STATE. */
    uint32_t char_state;
} mf_program;

/* Errors: MF_ERR_FORMAT (a rule is missing, calls itself first, or never ends),
 * MF_ERR_UNSUPPORTED (too large), MF_ERR_NO_MEMORY. */
mf_status mf_program_make(const mf_rules *rules, mf_program *out, mf_error *error);
void mf_program_free(mf_program *p);

#endif
