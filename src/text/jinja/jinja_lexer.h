/* SPDX-License-Identifier: MIT */
/* A template's text as tokens, by the rules of Jinja's lexer with trim_blocks and lstrip_blocks. */
#ifndef MF_TEXT_JINJA_LEXER_H
#define MF_TEXT_JINJA_LEXER_H

#include "text/jinja/jinja_value.h"

typedef enum mf_jtoken_kind {
    MF_JT_END,
    MF_JT_DATA,
    MF_JT_VARIABLE_BEGIN,
    MF_JT_VARIABLE_END,
    MF_JT_BLOCK_BEGIN,
    MF_JT_BLOCK_END,
    MF_JT_NAME,
    MF_JT_STRING,
    MF_JT_NUMBER,
    MF_JT_OPERATOR
} mf_jtoken_kind;

typedef struct mf_jtoken {
    mf_jtoken_kind kind;
    unsigned line;
    int op;
    const char *text; /* data, names */
    size_t n_bytes;
    mf_jval value; /* strings, numbers */
} mf_jtoken;

typedef struct mf_jtokens {
    mf_jtoken *tokens; /* the last one is MF_JT_END */
    size_t n_tokens, capacity;
} mf_jtokens;

/* In the run's memory, referring to text, which stays. Failures: mf_j_ok, j->line. */
void mf_j_tokenize(mf_jrun *j, const char *text, size_t n_bytes, mf_jtokens *out);

#endif
