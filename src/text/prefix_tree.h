/* SPDX-License-Identifier: MIT */
/*
 * A tree of byte strings: which of them a text begins with. The children of a node lie side by
 * side, in the order of their bytes. Read-only once built.
 */
#ifndef MF_TEXT_PREFIX_TREE_H
#define MF_TEXT_PREFIX_TREE_H

#include "base/alloc.h"

#define MF_PREFIX_NONE UINT32_MAX

/* One of the strings that a tree is built of. */
typedef struct mf_prefix {
    const unsigned char *text;
    uint32_t n_bytes; /* not 0 */
    uint32_t value;   /* not MF_PREFIX_NONE */
} mf_prefix;

typedef struct mf_prefix_node {
    uint32_t first, end; /* its children */
    uint32_t value;      /* of the string that ends here; MF_PREFIX_NONE: none does */
    unsigned char byte;  /* that leads here from above */
} mf_prefix_node;

typedef struct mf_prefix_tree {
    mf_allocator allocator;
    mf_prefix_node *nodes; /* the root first */
    size_t n_nodes;        /* 0: there is no string */
} mf_prefix_tree;

/* Sorts entries[n]; of equal ones the one of the highest value counts. *tree is zeroed by the
 * caller and freed after a failure too. */
mf_status mf_prefix_tree_build(mf_prefix_tree *tree, const mf_allocator *a, mf_prefix *entries,
                               size_t n, mf_error *error);
void mf_prefix_tree_free(mf_prefix_tree *tree);

/* The node below `node` (0: the root) that a byte leads to, MF_PREFIX_NONE where there is none. Of
 * a tree that has strings. */
uint32_t mf_prefix_tree_step(const mf_prefix_tree *tree, uint32_t node, unsigned char byte);
/* How many bytes the longest string takes that text[n_bytes] begins with; 0: none. */
size_t mf_prefix_tree_longest(const mf_prefix_tree *tree, const unsigned char *text,
                              size_t n_bytes);
/* The value of the string text[n_bytes], or MF_PREFIX_NONE. */
uint32_t mf_prefix_tree_find(const mf_prefix_tree *tree, const unsigned char *text, size_t n_bytes);

#endif
