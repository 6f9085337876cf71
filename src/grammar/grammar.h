/* SPDX-License-Identifier: MIT */
/* A compiled grammar, and its readers. */
#ifndef MF_GRAMMAR_GRAMMAR_H
#define MF_GRAMMAR_GRAMMAR_H

#include "grammar/masks.h"

#include <pthread.h>

/* The most that is read. */
#define MF_MAX_SCHEMA_BYTES ((size_t)1 << 20)
#define MF_MAX_GBNF_BYTES ((size_t)256 << 10)

struct mf_grammar {
    mf_allocator allocator;
    int n_refs; /* atomic: its own and its guides' */
    mf_vocabulary *vocabulary;
    mf_program program;
    pthread_mutex_t mutex; /* over masks */
    mf_masks masks;
};

typedef void (*mf_rules_fn)(mf_rules *r, const mf_vocabulary *v, const void *source);
/* A grammar of the rules that `read` makes of `source`. */
mf_status mf_grammar_make(mf_vocabulary *vocabulary, mf_rules_fn read, const void *source,
                          size_t max_mask_bytes, mf_grammar **out, mf_error *error);

/* Rules of a text in GBNF; the vocabulary is asked for tokens by name (NULL: there are none).
 * Rules that are there already may be used by name. */
void mf_gbnf_read(mf_rules *r, const char *text, size_t n_bytes, const mf_vocabulary *vocabulary,
                  bool literal_tokens);
/* Refuses a token that ends the answer before what has to come behind it. */
void mf_gbnf_check_ends(mf_rules *r, const mf_vocabulary *vocabulary);
/* A text in which added tokens are those tokens; without a vocabulary there are none. */
mf_expr mf_expr_marked(mf_rules *r, const mf_vocabulary *vocabulary, const char *text,
                       size_t n_bytes);
/* The value of a JSON schema; `what` begins the messages. is_arguments: those of a tool's call, an
 * object, in which objects that name properties and say nothing of others have no others. */
mf_expr mf_schema_read(mf_rules *r, const char *text, size_t n_bytes, const char *what,
                       bool is_arguments);
/* Any JSON object. */
mf_expr mf_schema_any_object(mf_rules *r);

#endif
