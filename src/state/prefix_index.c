/* SPDX-License-Identifier: MIT */
/*
 * The radix tree. Invariants: but for the root, a node has a label, and an entry or at least two
 * children; children are sorted by the first token of their labels. So there are fewer nodes than
 * twice the entries, and every leaf has an entry.
 */
#include "state/prefix_index.h"

#include <string.h>

typedef struct node node;

struct mf_prefix_entry {
    node *at;
    mf_prefix_entry *next; /* of the same sequence */
    void *value;
};

struct node {
    node *parent;
    int32_t *label;
    size_t n_label;
    node **children;
    size_t n_children, capacity;
    mf_prefix_entry *entries;
};

struct mf_prefix_index {
    mf_allocator allocator;
    node root;
};

mf_status mf_prefix_index_create(const mf_allocator *a, mf_prefix_index **out, mf_error *error)
{
    mf_prefix_index *index = mf_alloc_zeroed(a, sizeof *index);
    if (index == NULL)
        return mf_fail_memory(error, sizeof *index, "a prefix index");
    index->allocator = *a;
    *out = index;
    return MF_OK;
}

/* The node's own memory, not that of its children. */
static void free_node(mf_prefix_index *index, node *n)
{
    const mf_allocator *a = &index->allocator;
    while (n->entries != NULL) {
        mf_prefix_entry *e = n->entries;
        n->entries = e->next;
        mf_free(a, e, sizeof *e);
    }
    mf_free(a, n->label, n->n_label * sizeof *n->label);
    mf_free(a, n->children, n->capacity * sizeof *n->children);
    if (n != &index->root)
        mf_free(a, n, sizeof *n);
}

void mf_prefix_index_free(mf_prefix_index **index)
{
    mf_prefix_index *tree = *index;
    if (tree == NULL)
        return;
    /* Leaves first; not by recursion, whose depth the sequences would decide. */
    for (node *n = &tree->root; n != NULL;) {
        if (n->n_children > 0) {
            n = n->children[--n->n_children];
            continue;
        }
        node *parent = n->parent;
        free_node(tree, n);
        n = parent;
    }
    const mf_allocator a = tree->allocator;
    mf_free(&a, tree, sizeof *tree);
    *index = NULL;
}

/* Where a child that begins with `token` is or would be. */
static size_t child_place(const node *n, int32_t token)
{
    size_t low = 0, high = n->n_children;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (n->children[middle]->label[0] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static node *child_of(const node *n, int32_t token)
{
    size_t i = child_place(n, token);
    return i < n->n_children && n->children[i]->label[0] == token ? n->children[i] : NULL;
}

static size_t n_equal(const int32_t *a, const int32_t *b, size_t n)
{
    size_t i = 0;
    while (i + 16 <= n && memcmp(a + i, b + i, 16 * sizeof *a) == 0)
        i += 16;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Where the longest beginning of tokens that the tree has ends: n_label tokens into node `at`. */
typedef struct place {
    node *at;
    size_t n_label;
    size_t depth; /* tokens matched */
} place;

static place descend(const mf_prefix_index *index, const int32_t *tokens, size_t n_tokens)
{
    place p = {(node *)&index->root, 0, 0};
    while (p.depth < n_tokens) {
        node *child = child_of(p.at, tokens[p.depth]);
        if (child == NULL)
            break;
        size_t left = n_tokens - p.depth;
        p.at = child;
        p.n_label =
            n_equal(child->label, tokens + p.depth, left < child->n_label ? left : child->n_label);
        p.depth += p.n_label;
        if (p.n_label < child->n_label)
            break;
    }
    return p;
}

static mf_status make_node(mf_prefix_index *index, const int32_t *label, size_t n_label, node **out,
                           mf_error *error)
{
    const mf_allocator *a = &index->allocator;
    node *n = mf_alloc_zeroed(a, sizeof *n);
    int32_t *copy = n != NULL ? mf_alloc_array(a, n_label, sizeof *copy) : NULL;
    if (copy == NULL) {
        mf_free(a, n, sizeof *n);
        return mf_fail_memory(error, n_label * sizeof *copy, "a node of the prefix index");
    }
    memcpy(copy, label, n_label * sizeof *copy);
    n->label = copy;
    n->n_label = n_label;
    *out = n;
    return MF_OK;
}

static mf_status reserve_child(mf_prefix_index *index, node *n, mf_error *error)
{
    if (n->n_children < n->capacity)
        return MF_OK;
    size_t capacity = n->capacity == 0 ? 2 : 2 * n->capacity;
    node **children = mf_realloc(&index->allocator, n->children, n->capacity * sizeof *n->children,
                                 capacity * sizeof *n->children);
    if (children == NULL)
        return mf_fail_memory(error, capacity * sizeof *children, "a node of the prefix index");
    n->children = children;
    n->capacity = capacity;
    return MF_OK;
}

/* There must be room. */
static void add_child(node *parent, node *child)
{
    size_t i = child_place(parent, child->label[0]);
    memmove(parent->children + i + 1, parent->children + i,
            (parent->n_children - i) * sizeof *parent->children);
    parent->children[i] = child;
    parent->n_children++;
    child->parent = parent;
}

/* Cuts the label of p->at in two; p->at is then the upper half, whose label ends at the place. */
static mf_status split(mf_prefix_index *index, place *p, mf_error *error)
{
    const mf_allocator *a = &index->allocator;
    node *lower = p->at, *upper = NULL, *parent = lower->parent;
    size_t n_rest = lower->n_label - p->n_label;
    int32_t *rest = mf_alloc_array(a, n_rest, sizeof *rest);
    if (rest == NULL)
        return mf_fail_memory(error, n_rest * sizeof *rest, "a node of the prefix index");
    mf_status status = make_node(index, lower->label, p->n_label, &upper, error);
    if (status == MF_OK)
        status = reserve_child(index, upper, error);
    if (status != MF_OK) {
        if (upper != NULL)
            free_node(index, upper);
        mf_free(a, rest, n_rest * sizeof *rest);
        return status;
    }
    parent->children[child_place(parent, lower->label[0])] = upper;
    upper->parent = parent;
    memcpy(rest, lower->label + p->n_label, n_rest * sizeof *rest);
    mf_free(a, lower->label, lower->n_label * sizeof *lower->label);
    lower->label = rest;
    lower->n_label = n_rest;
    add_child(upper, lower);
    p->at = upper;
    return MF_OK;
}

/* Takes nodes that carry nothing out of the tree, from n upwards. Joining labels needs memory;
 * where there is none the node stays, which costs a step and harms nothing. */
static void prune(mf_prefix_index *index, node *n)
{
    const mf_allocator *a = &index->allocator;
    while (n->parent != NULL && n->entries == NULL && n->n_children == 0) {
        node *parent = n->parent;
        size_t i = child_place(parent, n->label[0]);
        parent->n_children--;
        memmove(parent->children + i, parent->children + i + 1,
                (parent->n_children - i) * sizeof *parent->children);
        free_node(index, n);
        n = parent;
    }
    if (n->parent == NULL || n->entries != NULL || n->n_children != 1)
        return;
    node *child = n->children[0];
    size_t n_label = n->n_label + child->n_label;
    int32_t *label = mf_alloc_array(a, n_label, sizeof *label);
    if (label == NULL)
        return;
    memcpy(label, n->label, n->n_label * sizeof *label);
    memcpy(label + n->n_label, child->label, child->n_label * sizeof *label);
    mf_free(a, child->label, child->n_label * sizeof *label);
    child->label = label;
    child->n_label = n_label;
    n->parent->children[child_place(n->parent, label[0])] = child;
    child->parent = n->parent;
    free_node(index, n);
}

/* The node of exactly these tokens, made if there is none. */
static mf_status node_for(mf_prefix_index *index, const int32_t *tokens, size_t n_tokens,
                          node **out, mf_error *error)
{
    place p = descend(index, tokens, n_tokens);
    bool is_split = p.n_label < p.at->n_label;
    if (is_split)
        MF_TRY(split(index, &p, error));
    if (p.depth < n_tokens) {
        node *leaf = NULL;
        mf_status status = reserve_child(index, p.at, error);
        if (status == MF_OK)
            status = make_node(index, tokens + p.depth, n_tokens - p.depth, &leaf, error);
        if (status != MF_OK) {
            prune(index, p.at);
            return status;
        }
        add_child(p.at, leaf);
        p.at = leaf;
    }
    *out = p.at;
    return MF_OK;
}

mf_status mf_prefix_insert(mf_prefix_index *index, const int32_t *tokens, size_t n_tokens,
                           void *value, mf_prefix_entry **out, mf_error *error)
{
    node *n = NULL;
    mf_prefix_entry *e = mf_alloc(&index->allocator, sizeof *e);
    if (e == NULL)
        return mf_fail_memory(error, sizeof *e, "an entry of the prefix index");
    mf_status status = node_for(index, tokens, n_tokens, &n, error);
    if (status != MF_OK) {
        mf_free(&index->allocator, e, sizeof *e);
        return status;
    }
    *e = (mf_prefix_entry){n, n->entries, value};
    n->entries = e;
    *out = e;
    return MF_OK;
}

void mf_prefix_remove(mf_prefix_index *index, mf_prefix_entry *entry)
{
    node *n = entry->at;
    mf_prefix_entry **link = &n->entries;
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    mf_free(&index->allocator, entry, sizeof *entry);
    prune(index, n);
}

mf_prefix_match mf_prefix_find_whole(const mf_prefix_index *index, const int32_t *tokens,
                                     size_t n_tokens)
{
    place p = descend(index, tokens, n_tokens);
    const node *n = p.at;
    if (p.n_label < n->n_label) {
        p.depth -= p.n_label;
        n = n->parent;
    }
    while (n != NULL && n->entries == NULL) {
        p.depth -= n->n_label;
        n = n->parent;
    }
    return n != NULL ? (mf_prefix_match){n->entries->value, p.depth} : (mf_prefix_match){NULL, 0};
}

mf_prefix_match mf_prefix_find_common(const mf_prefix_index *index, const int32_t *tokens,
                                      size_t n_tokens)
{
    place p = descend(index, tokens, n_tokens);
    const node *n = p.at;
    while (n->entries == NULL && n->n_children > 0)
        n = n->children[0];
    return n->entries != NULL ? (mf_prefix_match){n->entries->value, p.depth}
                              : (mf_prefix_match){NULL, 0};
}

/* The node behind n and all below it, up to the end of what is below `top`; NULL: there is none. */
static const node *node_after(const node *n, const node *top)
{
    while (n != top) {
        const node *parent = n->parent;
        const size_t i = child_place(parent, n->label[0]) + 1;
        if (i < parent->n_children)
            return parent->children[i];
        n = parent;
    }
    return NULL;
}

/* An entry that serves, at `top` and below it but for `seen` and below that. */
static void *find_below(const node *top, const node *seen, size_t n_common, mf_prefix_serves serves,
                        const void *ctx)
{
    for (const node *n = top; n != NULL;) {
        const bool is_new = n != seen;
        for (const mf_prefix_entry *e = n->entries; e != NULL && is_new; e = e->next)
            if (serves(ctx, e->value, n_common))
                return e->value;
        n = is_new && n->n_children > 0 ? n->children[0] : node_after(n, top);
    }
    return NULL;
}

mf_prefix_match mf_prefix_find_serving(const mf_prefix_index *index, const int32_t *tokens,
                                       size_t n_tokens, size_t n_least, mf_prefix_serves serves,
                                       const void *ctx)
{
    place p = descend(index, tokens, n_tokens);
    const node *seen = NULL;
    for (const node *n = p.at; n != NULL && p.depth > n_least; n = n->parent) {
        void *value = find_below(n, seen, p.depth, serves, ctx);
        if (value != NULL)
            return (mf_prefix_match){value, p.depth};
        p.depth -= seen == NULL ? p.n_label : n->n_label;
        seen = n;
    }
    return (mf_prefix_match){NULL, 0};
}
