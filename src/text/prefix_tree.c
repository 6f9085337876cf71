/* SPDX-License-Identifier: MIT */
/* Building the tree level by level from sorted strings, of which each node has a range. */
#include "text/prefix_tree.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *left, const void *right)
{
    const mf_prefix *a = left, *b = right;
    const int order = memcmp(a->text, b->text, a->n_bytes < b->n_bytes ? a->n_bytes : b->n_bytes);
    if (order != 0)
        return order;
    if (a->n_bytes != b->n_bytes)
        return a->n_bytes < b->n_bytes ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

/* How many bytes of an entry are not the beginning of the one before. */
static size_t n_new_bytes(const mf_prefix *entries, size_t i)
{
    size_t n = 0;
    if (i == 0)
        return entries[i].n_bytes;
    while (n < entries[i].n_bytes && n < entries[i - 1].n_bytes &&
           entries[i].text[n] == entries[i - 1].text[n])
        n++;
    return entries[i].n_bytes - n;
}

/* Gives a node, whose range of entries is in the place of its children, its value and its children,
 * which have their ranges then. */
static void grow(mf_prefix_tree *tree, const mf_prefix *entries, uint32_t node, size_t depth)
{
    mf_prefix_node *const n = &tree->nodes[node];
    uint32_t at = n->first;
    const uint32_t end = n->end;
    for (; at < end && entries[at].n_bytes == depth; at++)
        n->value = entries[at].value;
    n->first = (uint32_t)tree->n_nodes;
    while (at < end) {
        const uint32_t first = at;
        const unsigned char byte = entries[at].text[depth];
        while (at < end && entries[at].text[depth] == byte)
            at++;
        tree->nodes[tree->n_nodes++] = (mf_prefix_node){first, at, MF_PREFIX_NONE, byte};
    }
    n->end = (uint32_t)tree->n_nodes;
}

mf_status mf_prefix_tree_build(mf_prefix_tree *tree, const mf_allocator *a, mf_prefix *entries,
                               size_t n, mf_error *error)
{
    size_t n_nodes = 1;
    if (n == 0)
        return MF_OK;
    qsort(entries, n, sizeof *entries, by_text);
    for (size_t i = 0; i < n; i++)
        if (!mf_add_size(n_nodes, n_new_bytes(entries, i), &n_nodes) || n_nodes >= MF_PREFIX_NONE)
            return mf_fail_memory(error, SIZE_MAX, "a vocabulary");
    tree->allocator = *a;
    tree->nodes = mf_alloc_array(a, n_nodes, sizeof *tree->nodes);
    if (tree->nodes == NULL)
        return mf_fail_memory(error, n_nodes * sizeof *tree->nodes, "a vocabulary");
    tree->nodes[tree->n_nodes++] = (mf_prefix_node){0, (uint32_t)n, MF_PREFIX_NONE, 0};
    for (size_t node = 0, level_end = 1, depth = 0; node < tree->n_nodes; node++) {
        if (node == level_end) {
            level_end = tree->n_nodes;
            depth++;
        }
        grow(tree, entries, (uint32_t)node, depth);
    }
    return MF_OK;
}

void mf_prefix_tree_free(mf_prefix_tree *tree)
{
    /* as many as were asked for: each new byte of a string is a node */
    if (tree->nodes != NULL)
        mf_free(&tree->allocator, tree->nodes, tree->n_nodes * sizeof *tree->nodes);
    *tree = (mf_prefix_tree){0};
}

uint32_t mf_prefix_tree_step(const mf_prefix_tree *tree, uint32_t node, unsigned char byte)
{
    uint32_t first = tree->nodes[node].first, end = tree->nodes[node].end;
    while (first < end) {
        const uint32_t middle = first + (end - first) / 2;
        if (tree->nodes[middle].byte == byte)
            return middle;
        if (tree->nodes[middle].byte < byte)
            first = middle + 1;
        else
            end = middle;
    }
    return MF_PREFIX_NONE;
}

size_t mf_prefix_tree_longest(const mf_prefix_tree *tree, const unsigned char *text, size_t n_bytes)
{
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t i = 0; tree->n_nodes != 0 && i < n_bytes; i++) {
        node = mf_prefix_tree_step(tree, node, text[i]);
        if (node == MF_PREFIX_NONE)
            break;
        if (tree->nodes[node].value != MF_PREFIX_NONE)
            longest = i + 1;
    }
    return longest;
}

uint32_t mf_prefix_tree_find(const mf_prefix_tree *tree, const unsigned char *text, size_t n_bytes)
{
    uint32_t node = 0;
    if (tree->n_nodes == 0)
        return MF_PREFIX_NONE;
    for (size_t i = 0; i < n_bytes && node != MF_PREFIX_NONE; i++)
        node = mf_prefix_tree_step(tree, node, text[i]);
    return node == MF_PREFIX_NONE ? MF_PREFIX_NONE : tree->nodes[node].value;
}
