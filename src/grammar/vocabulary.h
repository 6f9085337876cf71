/* SPDX-License-Identifier: MIT */
/*
 * The tokens of a tokenizer as trees of bytes, laid out in the order of a walk: those that are
 * whole characters which a JSON string may hold as they are ("plain", most of them), by the kinds
 * of their characters, and the rest. Added tokens, special or not, are in none: they stand for no
 * bytes. Read-only once made.
 */
#ifndef MF_GRAMMAR_VOCABULARY_H
#define MF_GRAMMAR_VOCABULARY_H

#include "grammar/kinds.h"
#include "text/tokenizer.h"

#include <moeflux/grammar.h>

/* Longer tokens are never allowed. */
#define MF_MAX_TOKEN_BYTES 250u
#define MF_NO_TOKEN UINT32_MAX
/* Groups of plain tokens at most. */
#define MF_MAX_GROUPS 48u

typedef struct mf_trie_node {
    uint32_t skip;  /* the node behind those below this one */
    uint32_t token; /* that ends here, or MF_NO_TOKEN; vocabulary.same leads to its like */
    uint32_t kinds; /* of the characters below */
    uint8_t byte;
    uint8_t depth;   /* of the byte: 0 for the first */
    uint8_t n_below; /* the most bytes below */
    uint8_t has_like;
} mf_trie_node;

typedef struct mf_trie {
    mf_trie_node *nodes;
    size_t n_nodes, n_allocated;
} mf_trie;

/* Plain tokens that all have exactly the same kinds of characters; or the others. */
typedef struct mf_token_group {
    mf_trie trie;
    uint32_t kinds;         /* 0: the others */
    size_t first, n_tokens; /* in plain_sorted */
    /* Of a large group: [n_lengths][n_words], masks of those that have at most 1, 2, ...
     * characters. The few that are longer begin at `longer` of plain_sorted. */
    uint32_t *up_to;
    uint32_t n_lengths;
    size_t longer;
} mf_token_group;

struct mf_vocabulary {
    mf_allocator allocator;
    int n_refs; /* atomic */
    const mf_tokenizer *tokenizer;
    size_t n_tokens, n_words; /* n_words: of 32 tokens */
    mf_token_group *groups;   /* [n_groups] of the plain ones, room for MF_MAX_GROUPS */
    size_t n_groups;
    mf_trie rest;
    uint32_t *same;         /* [n_tokens] the next token of the same bytes, or MF_NO_TOKEN */
    uint32_t *plain_all;    /* [n_words] mask of the plain ones */
    uint32_t *plain_sorted; /* of the plain ones, by group, then by number of characters */
    uint8_t *plain_chars;   /* beside them: that number */
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
