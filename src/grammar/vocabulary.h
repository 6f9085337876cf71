/* SPDX-License-Identifier: MIT */
/*
 * The tokens of a tokenizer as two trees of bytes, laid out in the order of a walk: those that are
 * whole characters which a JSON string may hold as they are ("plain", most of them), and the rest.
 * Added tokens, special or not, are in neither: they stand for no bytes. Read-only once made.
 */
#ifndef MF_GRAMMAR_VOCABULARY_H
#define MF_GRAMMAR_VOCABULARY_H

#include "text/tokenizer.h"

#include <moeflux/grammar.h>

/* Longer tokens are never allowed. */
#define MF_MAX_TOKEN_BYTES 250u
#define MF_NO_TOKEN UINT32_MAX

typedef struct mf_trie_node {
    uint32_t skip;  /* the node behind those below this one */
    uint32_t token; /* that ends here, or MF_NO_TOKEN; vocabulary.same leads to its like */
    uint8_t byte;
    uint8_t depth; /* of the byte: 0 for the first */
} mf_trie_node;

typedef struct mf_trie {
    mf_trie_node *nodes;
    size_t n_nodes, n_allocated;
} mf_trie;

struct mf_vocabulary {
    mf_allocator allocator;
    int n_refs; /* atomic */
    const mf_tokenizer *tokenizer;
    size_t n_tokens, n_words; /* n_words: of 32 tokens */
    mf_trie plain, rest;
    uint32_t *same;         /* [n_tokens] the next token of the same bytes, or MF_NO_TOKEN */
    uint32_t *plain_all;    /* [n_words] mask of the plain ones */
    uint32_t *plain_sorted; /* [n_plain] by number of characters */
    uint8_t *plain_chars;   /* [n_plain] that number */
    size_t n_plain;
    size_t longest_bytes;
    uint32_t *ends; /* [n_words] mask of the tokens that end an answer */
};

void mf_vocabulary_hold(mf_vocabulary *v);
/* The bytes that a token stands for; NULL: none, it is added or too long. */
const unsigned char *mf_vocabulary_bytes(const mf_vocabulary *v, uint32_t token, size_t *n_bytes);
/* The longest added token that text[n_bytes] begins with, or MF_NO_TOKEN. */
uint32_t mf_vocabulary_added(const mf_vocabulary *v, const char *text, size_t n_bytes,
                             size_t *n_token_bytes);

#endif
