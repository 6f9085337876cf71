/* SPDX-License-Identifier: MIT */
/* Grammars over the demo's tokenizer, and texts held against them. */
#ifndef MF_TESTS_GRAMMAR_DATA_H
#define MF_TESTS_GRAMMAR_DATA_H

#include "test.h"

typedef struct grammar_data {
    mf_tokenizer *tokenizer;
    mf_vocabulary *vocabulary;
} grammar_data;

void grammar_data_open(grammar_data *d);
void grammar_data_close(grammar_data *d);

/* A compiled schema (or, with gbnf, grammar); NULL and *error where it is refused. */
mf_grammar *grammar_of_schema(const grammar_data *d, const char *schema, mf_error *error);
mf_grammar *grammar_of_gbnf(const grammar_data *d, const char *gbnf, mf_error *error);

/* Is the text one of the grammar's? It is taken as the tokenizer cuts it, then once more byte by
 * byte, where each token must be in the mask before it: both have to agree. */
bool grammar_accepts(const grammar_data *d, mf_grammar *grammar, const char *text);
/* So many bytes of it can be taken. */
size_t grammar_prefix(const grammar_data *d, mf_grammar *grammar, const char *text);

#endif
