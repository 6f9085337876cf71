/* SPDX-License-Identifier: MIT */
/* Tokens sorted by their bytes, then laid out. */
#include "grammar/vocabulary.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* A group has at least so many of the plain tokens: one of ... */
#define GROUP_SHARE 1000u
/* Groups of so many tokens have masks by length, up to one that only a small share exceeds. */
#define MIN_MASKED 2000u
#define LONGEST_SHARE 500u

typedef struct entry {
    const unsigned char *bytes;
    uint32_t n_bytes, token;
    uint32_t kinds, group;
} entry;

static void set_bit(uint32_t *mask, uint32_t token)
{
    mask[token / 32] |= 1u << token % 32;
}

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    const size_t n = x->n_bytes < y->n_bytes ? x->n_bytes : y->n_bytes;
    const int order = memcmp(x->bytes, y->bytes, n);
    if (order != 0)
        return order;
    if (x->n_bytes != y->n_bytes)
        return x->n_bytes < y->n_bytes ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

/* The number of characters if a JSON string may hold them as they are; 0: it may not. */
static size_t plain_chars(const unsigned char *bytes, size_t n_bytes)
{
    size_t n = 0;
    for (size_t at = 0; at < n_bytes; n++) {
        uint32_t c;
        size_t n_char;
        if (bytes[at] < 0x20 || bytes[at] == '"' || bytes[at] == '\\')
            return 0;
        if (mf_utf8_next(bytes + at, n_bytes - at, &c, &n_char) != MF_UTF8_CHAR)
            return 0;
        at += n_char;
    }
    return n;
}

static size_t n_common(const entry *a, const entry *b)
{
    size_t n = 0;
    while (n < a->n_bytes && n < b->n_bytes && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

/* Nodes of sorted entries; with nodes NULL they are only counted. */
static size_t lay_out(const entry *entries, size_t n, mf_trie_node *nodes, uint32_t *same)
{
    uint32_t path[MF_MAX_TOKEN_BYTES];
    size_t n_nodes = 0, n_path = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t shared = i > 0 ? n_common(&entries[i - 1], &entries[i]) : 0;
        if (i > 0 && shared == entries[i].n_bytes) { /* the same again */
            if (nodes != NULL) {
                same[entries[i - 1].token] = entries[i].token;
                nodes[n_nodes - 1].has_like = 1;
            }
            continue;
        }
        for (; n_path > shared; n_path--)
            if (nodes != NULL)
                nodes[path[n_path - 1]].skip = (uint32_t)n_nodes;
        for (; n_path < entries[i].n_bytes; n_path++) {
            path[n_path] = (uint32_t)n_nodes;
            if (nodes != NULL)
                nodes[n_nodes] = (mf_trie_node){.token = MF_NO_TOKEN,
                                                .byte = entries[i].bytes[n_path],
                                                .depth = (uint8_t)n_path};
            n_nodes++;
        }
        if (nodes != NULL)
            nodes[n_nodes - 1].token = entries[i].token;
    }
    for (; n_path > 0 && nodes != NULL; n_path--)
        nodes[path[n_path - 1]].skip = (uint32_t)n_nodes;
    return n_nodes;
}

/* What is below each node. Of a rest, whose tokens are not whole characters, nothing is said. */
static void look_below(mf_trie *trie, bool is_plain)
{
    for (size_t i = trie->n_nodes; i-- > 0;) {
        mf_trie_node *node = &trie->nodes[i];
        for (size_t k = i + 1; k < node->skip; k = trie->nodes[k].skip) {
            const mf_trie_node *below = &trie->nodes[k];
            node->kinds |= (below->kinds & ~MF_KINDS_INSIDE) | mf_kinds_of_byte(below->byte);
            if (node->n_below <= below->n_below)
                node->n_below = (uint8_t)(below->n_below + 1);
        }
        if (!is_plain)
            node->kinds |= MF_KINDS_INSIDE;
    }
}

static bool make_trie(mf_vocabulary *v, const entry *entries, size_t n, mf_trie *out)
{
    out->n_nodes = lay_out(entries, n, NULL, NULL);
    out->n_allocated = out->n_nodes + 1;
    out->nodes = mf_alloc_array(&v->allocator, out->n_allocated, sizeof *out->nodes);
    if (out->nodes != NULL)
        (void)lay_out(entries, n, out->nodes, v->same);
    return out->nodes != NULL;
}

/* ------------------------------------------------------------------------------------ tokens -- */

const unsigned char *mf_vocabulary_bytes(const mf_vocabulary *v, uint32_t token, size_t *n_bytes)
{
    *n_bytes = 0;
    if (token >= v->n_tokens || (v->same[token] == token))
        return NULL;
    return (const unsigned char *)mf_text_piece(v->tokenizer, (int32_t)token, n_bytes);
}

uint32_t mf_vocabulary_added(const mf_vocabulary *v, const char *text, size_t n_bytes,
                             size_t *n_token_bytes)
{
    const mf_added_tokens *added = &v->tokenizer->added;
    uint32_t best = MF_NO_TOKEN;
    *n_token_bytes = 0;
    for (size_t i = 0; i < added->n_tokens; i++) {
        const mf_added_token *t = &added->tokens[i];
        if (t->n_bytes > *n_token_bytes && t->n_bytes <= n_bytes &&
            memcmp(t->text, text, t->n_bytes) == 0) {
            best = t->id;
            *n_token_bytes = t->n_bytes;
        }
    }
    return best;
}

/* A token that is its own like stands for no bytes. */
static void drop_added(mf_vocabulary *v)
{
    const mf_added_tokens *added = &v->tokenizer->added;
    memset(v->same, 0xFF, v->n_tokens * sizeof *v->same);
    for (size_t i = 0; i < added->n_tokens; i++)
        if (added->tokens[i].id < v->n_tokens)
            v->same[added->tokens[i].id] = added->tokens[i].id;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        size_t n = 0;
        (void)mf_text_piece(v->tokenizer, (int32_t)i, &n);
        if (n == 0 || n > MF_MAX_TOKEN_BYTES || mf_tokenizer_is_special(v->tokenizer, (int32_t)i) ||
            mf_tokenizer_is_end(v->tokenizer, (int32_t)i))
            v->same[i] = i;
        if (mf_tokenizer_is_end(v->tokenizer, (int32_t)i))
            set_bit(v->ends, i);
    }
}

/* A group's, by number of characters, which are few. */
static void sort_group(mf_vocabulary *v, const entry *entries, const mf_token_group *g)
{
    size_t starts[MF_MAX_TOKEN_BYTES + 2] = {0};
    const size_t end = g->first + g->n_tokens;
    for (size_t i = g->first; i < end; i++)
        starts[plain_chars(entries[i].bytes, entries[i].n_bytes) + 1]++;
    for (size_t i = 1; i < MF_MAX_TOKEN_BYTES + 2; i++)
        starts[i] += starts[i - 1];
    for (size_t i = g->first; i < end; i++) {
        const size_t n_chars = plain_chars(entries[i].bytes, entries[i].n_bytes);
        const size_t at = g->first + starts[n_chars]++;
        v->plain_sorted[at] = entries[i].token;
        v->plain_chars[at] = (uint8_t)n_chars;
        set_bit(v->plain_all, entries[i].token);
    }
}

/* Masks of a large group by length: setting so many bits one by one would be most of a mask's time.
 * Not for the last few tokens, which may be very long. False: no memory. */
static bool mask_lengths(mf_vocabulary *v, mf_token_group *g)
{
    const size_t end = g->first + g->n_tokens;
    if (g->n_tokens < MIN_MASKED)
        return true;
    g->n_lengths = v->plain_chars[end - 1 - g->n_tokens / LONGEST_SHARE];
    g->up_to = mf_alloc_array(&v->allocator, (size_t)g->n_lengths * v->n_words, sizeof *g->up_to);
    if (g->up_to == NULL)
        return false;
    g->longer = g->first;
    for (uint32_t n = 1; n <= g->n_lengths; n++) {
        uint32_t *mask = g->up_to + (n - 1) * v->n_words;
        if (n > 1)
            memcpy(mask, mask - v->n_words, v->n_words * sizeof *mask);
        for (; g->longer < end && v->plain_chars[g->longer] <= n; g->longer++)
            set_bit(mask, v->plain_sorted[g->longer]);
    }
    return true;
}

/* How many tokens have just these kinds. */
typedef struct tally {
    uint32_t kinds, group;
    size_t n;
} tally;

enum { N_TALLIES = 1024 };

/* NULL: the table is full. */
static tally *find_tally(tally *tallies, uint32_t kinds)
{
    size_t at = (kinds * 0x9E3779B1u) >> 22;
    for (size_t i = 0; i < N_TALLIES; i++, at = (at + 1) % N_TALLIES)
        if (tallies[at].n == 0 || tallies[at].kinds == kinds)
            return &tallies[at];
    return NULL;
}

/* Gives each entry its group: 0, unless there are many like it. */
static void choose_groups(mf_vocabulary *v, entry *entries, size_t n)
{
    tally tallies[N_TALLIES] = {{0, 0, 0}};
    for (size_t i = 0; i < n; i++) {
        tally *t = find_tally(tallies, entries[i].kinds);
        if (t != NULL) {
            t->kinds = entries[i].kinds;
            t->n++;
        }
    }
    v->n_groups = 1;
    for (size_t i = 0; i < N_TALLIES; i++)
        if (tallies[i].n > n / GROUP_SHARE && v->n_groups < MF_MAX_GROUPS) {
            tallies[i].group = (uint32_t)v->n_groups;
            v->groups[v->n_groups++].kinds = tallies[i].kinds;
        }
    for (size_t i = 0; i < n; i++) {
        const tally *t = find_tally(tallies, entries[i].kinds);
        entries[i].group = t != NULL ? t->group : 0;
        v->groups[entries[i].group].n_tokens++;
    }
}

static bool make_groups(mf_vocabulary *v, entry *entries, size_t n)
{
    size_t first = 0;
    choose_groups(v, entries, n);
    qsort(entries, n, sizeof *entries, compare_entries);
    for (size_t i = 0; i < v->n_groups; i++) {
        mf_token_group *g = &v->groups[i];
        g->first = first;
        sort_group(v, entries, g);
        if (!mask_lengths(v, g) || !make_trie(v, entries + first, g->n_tokens, &g->trie))
            return false;
        look_below(&g->trie, true);
        first += g->n_tokens;
    }
    return true;
}

static bool fill(mf_vocabulary *v, entry *entries)
{
    size_t n_plain = 0, n_rest = 0;
    for (int pass = 0; pass < 2; pass++) /* the plain ones first */
        for (uint32_t i = 0; i < v->n_tokens; i++) {
            size_t n = 0;
            const unsigned char *bytes = mf_vocabulary_bytes(v, i, &n);
            if (bytes == NULL || (plain_chars(bytes, n) > 0) != (pass == 0))
                continue;
            entries[n_plain + n_rest] =
                (entry){bytes, (uint32_t)n, i, pass == 0 ? mf_kinds_of(bytes, n) : 0, 0};
            *(pass == 0 ? &n_plain : &n_rest) += 1;
            v->longest_bytes = n > v->longest_bytes ? n : v->longest_bytes;
        }
    qsort(entries + n_plain, n_rest, sizeof *entries, compare_entries);
    if (!make_groups(v, entries, n_plain) || !make_trie(v, entries + n_plain, n_rest, &v->rest))
        return false;
    look_below(&v->rest, false);
    return true;
}

mf_status mf_vocabulary_create(const mf_tokenizer *tokenizer, const mf_allocator *allocator,
                               mf_vocabulary **out, mf_error *error)
{
    if (tokenizer == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_vocabulary_create: a NULL argument");
    mf_allocator a;
    MF_TRY(mf_allocator_take(allocator, &a, error));
    const size_t n = mf_tokenizer_n_vocab(tokenizer);
    mf_vocabulary *v = mf_alloc_zeroed(&a, sizeof *v);
    if (v == NULL)
        return mf_fail_memory(error, sizeof *v, "a vocabulary");
    *v = (mf_vocabulary){.allocator = a,
                         .n_refs = 1,
                         .tokenizer = tokenizer,
                         .n_tokens = n,
                         .n_words = (n + 31) / 32};
    v->same = mf_alloc_array(&a, n + 1, sizeof *v->same);
    v->plain_all = mf_alloc_array(&a, v->n_words + 1, sizeof *v->plain_all);
    v->plain_sorted = mf_alloc_array(&a, n + 1, sizeof *v->plain_sorted);
    v->plain_chars = mf_alloc_array(&a, n + 1, 1);
    v->ends = mf_alloc_array(&a, v->n_words + 1, sizeof *v->ends);
    v->groups = mf_alloc_array(&a, MF_MAX_GROUPS, sizeof *v->groups);
    entry *entries = mf_alloc_array(&a, n + 1, sizeof *entries);
    bool is_whole = v->same && v->plain_all && v->plain_sorted && v->plain_chars && v->ends &&
                    v->groups && entries;
    if (is_whole) {
        drop_added(v);
        is_whole = fill(v, entries);
    }
    mf_free(&a, entries, (n + 1) * sizeof *entries);
    if (!is_whole) {
        mf_vocabulary_free(&v);
        return mf_fail_memory(error, n * sizeof *entries, "a vocabulary");
    }
    *out = v;
    return MF_OK;
}

void mf_vocabulary_hold(mf_vocabulary *v)
{
    __atomic_add_fetch(&v->n_refs, 1, __ATOMIC_RELAXED);
}

void mf_vocabulary_free(mf_vocabulary **vocabulary)
{
    if (vocabulary == NULL || *vocabulary == NULL)
        return;
    mf_vocabulary *v = *vocabulary;
    *vocabulary = NULL;
    if (__atomic_sub_fetch(&v->n_refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    const mf_allocator a = v->allocator;
    const size_t n = v->n_tokens;
    for (size_t i = 0; i < v->n_groups; i++) {
        const mf_token_group *g = &v->groups[i];
        mf_free(&a, g->trie.nodes, g->trie.n_allocated * sizeof *v->rest.nodes);
        mf_free(&a, g->up_to, (size_t)g->n_lengths * v->n_words * sizeof *g->up_to);
    }
    mf_free(&a, v->groups, MF_MAX_GROUPS * sizeof *v->groups);
    mf_free(&a, v->rest.nodes, v->rest.n_allocated * sizeof *v->rest.nodes);
    mf_free(&a, v->same, (n + 1) * sizeof *v->same);
    mf_free(&a, v->plain_all, (v->n_words + 1) * sizeof *v->plain_all);
    mf_free(&a, v->plain_sorted, (n + 1) * sizeof *v->plain_sorted);
    mf_free(&a, v->plain_chars, n + 1);
    mf_free(&a, v->ends, (v->n_words + 1) * sizeof *v->ends);
    mf_free(&a, v, sizeof *v);
}
