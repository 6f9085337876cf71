/* SPDX-License-Identifier: MIT */
/*
 * An ECMAScript pattern as a tree: what it says, and nothing of how texts are held to it. What no
 * regular language has, or is not read here, is refused by name.
 */
#ifndef MF_GRAMMAR_PATTERN_H
#define MF_GRAMMAR_PATTERN_H

#include "grammar/schema.h"

#define MF_NO_PATTERN UINT32_MAX

typedef enum mf_pattern_kind {
    MF_PATTERN_CHARS,    /* a character of some ranges */
    MF_PATTERN_SEQ,      /* its parts, one behind the other; perhaps none */
    MF_PATTERN_ALT,      /* one of its parts */
    MF_PATTERN_REPEAT,   /* its part, min to max times */
    MF_PATTERN_BEGIN,    /* ^ */
    MF_PATTERN_END,      /* $ */
    MF_PATTERN_BOUNDARY, /* \b, or with is_not \B */
    MF_PATTERN_LOOK      /* its part follows, or with is_not does not; is_behind: stands before */
} mf_pattern_kind;

typedef struct mf_pattern_node {
    mf_pattern_kind kind;
    bool is_not, is_behind;
    uint32_t first, n; /* of its parts, or of ranges[] */
    uint32_t next;     /* part of the same node; MF_NO_PATTERN: none */
    uint32_t min, max;
} mf_pattern_node;

typedef struct mf_pattern {
    mf_allocator allocator;
    mf_pattern_node *nodes;
    size_t n_nodes, node_capacity;
    mf_char_range *ranges; /* of each node sorted and merged */
    size_t n_ranges, range_capacity;
    uint32_t root;
} mf_pattern;

/* Fails with the reader. *out is to be freed in any case. */
bool mf_pattern_read(mf_schema_reader *s, const char *text, size_t n_bytes, mf_pattern *out);
void mf_pattern_free(mf_pattern *p);

/* The inside of a string of min to max characters that all patterns [n] are found in, by a
 * deterministic automaton: for what looks around, or counts beside what it says. Fails where that
 * would have too many states. */
mf_expr mf_pattern_automaton(mf_schema_reader *s, const mf_pattern *patterns, size_t n,
                             uint32_t min, uint32_t max);

#endif
