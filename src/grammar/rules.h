/* SPDX-License-Identifier: MIT */
/*
 * A grammar while it is read: rules, each an expression over bytes. The readers (GBNF, JSON Schema,
 * patterns) build it, program.h makes an automaton of it. The first failure stays: whoever builds
 * goes on with what comes out and asks for `status` at the end. Everything is bounded.
 */
#ifndef MF_GRAMMAR_RULES_H
#define MF_GRAMMAR_RULES_H

#include "base/alloc.h"

#include <string.h>

/* An expression: an index. */
typedef uint32_t mf_expr;

#define MF_EXPR_EMPTY 0u   /* no byte */
#define MF_EXPR_NOTHING 1u /* matches never */
#define MF_NO_RULE UINT32_MAX
#define MF_NO_LIMIT UINT32_MAX

#define MF_MAX_EXPRS 400000u
#define MF_MAX_RULES 20000u
#define MF_MAX_RULE_BYTES ((size_t)8 << 20)
#define MF_MAX_CODE_POINT 0x10FFFFu

typedef enum mf_expr_kind {
    MF_EXPR_IS_EMPTY,
    MF_EXPR_IS_NOTHING,
    MF_EXPR_IS_BYTES,  /* bytes[a .. a + b) */
    MF_EXPR_IS_CHARS,  /* one character of ranges[a .. a + b) */
    MF_EXPR_IS_SEQ,    /* a, then b */
    MF_EXPR_IS_ALT,    /* a or b */
    MF_EXPR_IS_REPEAT, /* a, min to max times */
    MF_EXPR_IS_RULE,   /* rule a */
    MF_EXPR_IS_TOKEN   /* the token a itself, whatever its bytes */
} mf_expr_kind;

typedef struct mf_expr_node {
    mf_expr_kind kind;
    uint32_t a, b;
    uint32_t min, max; /* MF_NO_LIMIT: no max */
} mf_expr_node;

/* Code points, both ends included. */
typedef struct mf_char_range {
    uint32_t first, last;
} mf_char_range;

typedef struct mf_rule {
    mf_expr body;
    bool is_defined;
    uint32_t name, n_name; /* in bytes[] */
} mf_rule;

typedef struct mf_rules {
    mf_allocator allocator;
    mf_error *error;
    mf_status status; /* the first failure */
    mf_expr_node *nodes;
    size_t n_nodes, node_capacity;
    unsigned char *bytes;
    size_t n_bytes, byte_capacity;
    mf_char_range *ranges;
    size_t n_ranges, range_capacity;
    mf_rule *rules;
    size_t n_rules, rule_capacity;
    uint32_t root;
    uint32_t char_rule; /* a character of a JSON string, or MF_NO_RULE */
    /* What reading schemas has taken so far, bounded for all that a grammar has together: values
     * and names compared, steps of patterns' automata. */
    unsigned long n_compared, n_steps;
    size_t max_nodes; /* MF_MAX_EXPRS, less for what is only tried */
    size_t n_tried;   /* expressions and states of what was only tried */
} mf_rules;

mf_status mf_rules_init(mf_rules *r, const mf_allocator *a, mf_error *error);
void mf_rules_free(mf_rules *r);

/* Records a failure, unless there is one. */
void mf_rules_fail(mf_rules *r, mf_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes room for one more of n elements; false and a failure where there is none. */
bool mf_rules_grow(mf_rules *r, void **array, size_t *capacity, size_t n, size_t size);

mf_expr mf_expr_bytes(mf_rules *r, const void *bytes, size_t n_bytes);
mf_expr mf_expr_text(mf_rules *r, const char *text);
/* Takes the ranges in any order, overlapping or not; they are changed. */
mf_expr mf_expr_chars(mf_rules *r, mf_char_range *ranges, size_t n_ranges);
mf_expr mf_expr_seq(mf_rules *r, mf_expr a, mf_expr b);
mf_expr mf_expr_alt(mf_rules *r, mf_expr a, mf_expr b);
mf_expr mf_expr_repeat(mf_rules *r, mf_expr a, uint32_t min, uint32_t max);
mf_expr mf_expr_optional(mf_rules *r, mf_expr a);
mf_expr mf_expr_rule(mf_rules *r, uint32_t rule);
mf_expr mf_expr_token(mf_rules *r, uint32_t token);

/* A rule without a body yet; the name may be NULL. */
uint32_t mf_rules_add(mf_rules *r, const char *name, size_t n_name);
void mf_rules_define(mf_rules *r, uint32_t rule, mf_expr body);
/* The rule of that name, or MF_NO_RULE. */
uint32_t mf_rules_find(const mf_rules *r, const char *name, size_t n_name);

/* A text of bytes. */
typedef struct mf_word {
    const char *text;
    size_t n_bytes;
} mf_word;

/* One of the words, which are sorted here; what they begin with in common stands once. */
mf_expr mf_expr_words(mf_rules *r, mf_word *words, size_t n_words);

/* Sorts ranges and joins what overlaps or touches; returns how many are left. */
size_t mf_char_ranges_merge(mf_char_range *ranges, size_t n);
/* What of all characters but surrogates is not in the merged ranges, into out[n + 2]. */
size_t mf_char_ranges_invert(const mf_char_range *ranges, size_t n, mf_char_range *out);

#endif
