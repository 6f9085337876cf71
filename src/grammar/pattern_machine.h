/* SPDX-License-Identifier: MIT */
/*
 * A deterministic automaton of patterns in the making (pattern_automaton.c), and the conditions on
 * the rest of a text that its trees become (pattern_conditions.c): an alternating automaton of or,
 * and, not, each node of which says what has to follow it. Everything is bounded.
 */
#ifndef MF_GRAMMAR_PATTERN_MACHINE_H
#define MF_GRAMMAR_PATTERN_MACHINE_H

#include "grammar/decisions.h"
#include "grammar/pattern.h"

#define MF_MAX_BEHIND 8u
#define MF_MAX_CLASSES 512u
#define MF_MAX_KINDS 512u
#define MF_KIND_WORDS (MF_MAX_CLASSES / 64)

/* What has to follow: an index. The first three are always there. */
typedef uint32_t mf_condition;

#define MF_CONDITION_NEVER 0u
#define MF_CONDITION_ALWAYS 1u
#define MF_CONDITION_END 2u

typedef enum mf_condition_kind {
    MF_IS_NEVER,
    MF_IS_ALWAYS, /* any rest */
    MF_IS_END,    /* none */
    MF_IS_CHARS,  /* a character of class a, then b */
    MF_IS_OR,     /* a or b */
    MF_IS_AND,
    MF_IS_NOT,   /* not a */
    MF_IS_BEGIN, /* at the beginning of the string, a */
    MF_IS_BEHIND /* where the text so far is as behind[b] says (is_not: is not), a */
} mf_condition_kind;

typedef struct mf_condition_node {
    mf_condition_kind kind;
    bool is_not;
    bool is_under_way; /* its value is being found */
    mf_condition a, b;
    mf_decision value; /* here, if stamp is of now */
    uint32_t stamp;
} mf_condition_node;

/* A class of characters, as it stands in a pattern. */
typedef struct mf_machine_class {
    const mf_char_range *ranges;
    size_t n;
} mf_machine_class;

/* Where a text may be. */
typedef struct mf_machine_state {
    mf_decision rest, behind[MF_MAX_BEHIND];
    bool is_live;
    uint32_t rule;
} mf_machine_state;

typedef struct mf_machine {
    mf_schema_reader *schema;
    mf_allocator allocator;
    const mf_pattern *pattern; /* whose tree is read */
    mf_decisions d;
    mf_status status; /* of what is not d's */
    mf_condition_node *conditions;
    size_t n_conditions, condition_capacity;
    mf_machine_class *classes;
    size_t n_classes;
    /* Kinds of characters: intervals of one kind are in the same classes. */
    mf_char_range *intervals;
    uint32_t *kind_of; /* of each interval */
    size_t n_intervals, interval_capacity, n_kinds;
    uint64_t *members; /* of each kind, the classes that it is in */
    mf_condition behind[MF_MAX_BEHIND];
    const mf_pattern_node *behind_of[MF_MAX_BEHIND]; /* where it stands; NULL: \b */
    size_t n_behind;
    mf_machine_state *states;
    size_t n_states, state_capacity;
    uint32_t *to; /* [state][kind] */
    size_t to_capacity;
    uint32_t *places; /* states by content: index + 1 */
    /* Of the position whose values are found: */
    bool is_begin, is_tainted, holds[MF_MAX_BEHIND];
    uint32_t stamp;
    unsigned depth;
} mf_machine;

/* All but surrogates. */
static const mf_char_range mf_all_chars[] = {{0, 0xD7FF}, {0xE000, MF_MAX_CODE_POINT}};

static inline void mf_machine_fail(mf_machine *m, mf_status status)
{
    if (m->status == MF_OK)
        m->status = status;
}

static inline bool mf_machine_is_good(const mf_machine *m)
{
    return m->status == MF_OK && m->d.state == MF_DECISIONS_GOOD;
}

/* Room for n + 1 of an array. */
bool mf_machine_grow(mf_machine *m, void **array, size_t *capacity, size_t n, size_t size);

mf_condition mf_machine_add(mf_machine *m, mf_condition_kind kind, mf_condition a, mf_condition b);
/* The pattern is found somewhere. */
mf_condition mf_machine_read(mf_machine *m, const mf_pattern *p);
/* The string has min to max characters. */
mf_condition mf_machine_read_lengths(mf_machine *m, uint32_t min, uint32_t max);
/* The kinds of characters that the classes of all conditions tell apart. */
void mf_machine_find_kinds(mf_machine *m);

#endif
