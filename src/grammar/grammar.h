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

/* Rules of a text in GBNF; the vocabulary is asked for tokens by name (NULL: there are none).
 * Rules that are there already may be used by name. */
void mf_gbnf_read(mf_rules *r, const char *text, size_t n_bytes, const mf_vocabulary *vocabulary,
                  bool literal_tokens);
/* The value of a JSON schema; `what` begins the messages. */
mf_expr mf_schema_read(mf_rules *r, const char *text, size_t n_bytes, const char *what);
/* Any JSON object. */
mf_expr mf_schema_any_object(mf_rules *r);

#endif
