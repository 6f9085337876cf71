/* SPDX-License-Identifier: MIT */
/*
 * Merging one word: always the adjacent pair of lowest rank, the leftmost of equals. Short words
 * keep the ranks of their pairs in an array and look for the least; long ones keep them in a heap,
 * so that a word of a megabyte takes n log n.
 */
#include "text/bpe.h"

#include "text/bpe_chars.h"
#include "text/bpe_tables.h"

#include <string.h>

#define SHORT_WORD 48

/* Rank << 32 | position of the left symbol. Of one place only one pair has a rank, which tells an
 * entry that has become stale. */
typedef uint64_t mf_heap_entry;

typedef struct mf_symbol {
    uint32_t id; /* MF_BPE_NONE once merged into its left neighbour */
    uint32_t previous, next;
} mf_symbol;

void mf_bpe_scratch_init(mf_bpe_scratch *scratch, const mf_allocator *a)
{
    mf_buffer_init(&scratch->symbols, a);
    mf_buffer_init(&scratch->heap, a);
}

void mf_bpe_scratch_free(mf_bpe_scratch *scratch)
{
    mf_buffer_free(&scratch->symbols);
    mf_buffer_free(&scratch->heap);
}

/* What merging begins with: at most an id a byte. Of a vocabulary of bytes their own ids; those
 * that it lacks are left out. */
static size_t first_symbols(const mf_bpe *bpe, const unsigned char *word, size_t n_bytes,
                            uint32_t *ids)
{
    size_t n = 0;
    if (bpe->of_characters)
        return mf_bpe_char_symbols(bpe, word, n_bytes, ids);
    for (size_t i = 0; i < n_bytes; i++) {
        uint32_t id = bpe->byte_ids[word[i]];
        if (id != MF_BPE_NONE)
            ids[n++] = id;
    }
    return n;
}

static size_t most_symbols(const mf_bpe *bpe, size_t n_bytes)
{
    return bpe->marks_go_as_bytes ? n_bytes * MF_BLANK_MARK_BYTES : n_bytes;
}

/* What a pair of ids merges to, and how early; MF_BPE_NONE if to nothing. */
static uint32_t find_merge(const mf_bpe *bpe, uint32_t left, uint32_t right, uint32_t *rank)
{
    if (bpe->merges_by_rank)
        return *rank = mf_bpe_find_joined(bpe, left, right);
    const mf_merge *m = mf_bpe_find_merge(bpe, left, right);
    *rank = m != NULL ? m->rank : MF_BPE_NONE;
    return m != NULL ? m->merged : MF_BPE_NONE;
}

static void set_rank(const mf_bpe *bpe, const uint32_t *ids, size_t i, uint32_t *ranks,
                     uint32_t *merged)
{
    merged[i] = find_merge(bpe, ids[i], ids[i + 1], &ranks[i]);
}

static size_t merge_short(const mf_bpe *bpe, uint32_t *ids, size_t n)
{
    uint32_t ranks[SHORT_WORD], merged[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++)
        set_rank(bpe, ids, i, ranks, merged);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == MF_BPE_NONE)
            break;
        ids[best] = merged[best];
        size_t n_after = n - best - 2;
        memmove(ids + best + 1, ids + best + 2, n_after * sizeof *ids);
        memmove(ranks + best, ranks + best + 1, n_after * sizeof *ranks);
        memmove(merged + best, merged + best + 1, n_after * sizeof *merged);
        n--;
        if (best > 0)
            set_rank(bpe, ids, best - 1, ranks, merged);
        if (best + 1 < n)
            set_rank(bpe, ids, best, ranks, merged);
    }
    return n;
}

static void heap_push(mf_heap_entry *heap, size_t *n, mf_heap_entry entry)
{
    size_t i = (*n)++;
    while (i > 0 && heap[(i - 1) / 2] > entry) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = entry;
}

static mf_heap_entry heap_pop(mf_heap_entry *heap, size_t *n)
{
    mf_heap_entry top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *n)
            break;
        if (child + 1 < *n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* Puts the pair that starts at symbol i into the heap, if it has a merge. */
static void push_pair(const mf_bpe *bpe, const mf_symbol *symbols, uint32_t i, mf_heap_entry *heap,
                      size_t *n_heap)
{
    if (i == MF_BPE_NONE || symbols[i].next == MF_BPE_NONE)
        return;
    uint32_t rank;
    uint32_t merged = find_merge(bpe, symbols[i].id, symbols[symbols[i].next].id, &rank);
    if (merged != MF_BPE_NONE)
        heap_push(heap, n_heap, (mf_heap_entry)rank << 32 | i);
}

static void merge_with_heap(const mf_bpe *bpe, mf_symbol *symbols, size_t n, mf_heap_entry *heap)
{
    size_t n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        symbols[i].previous = i > 0 ? (uint32_t)(i - 1) : MF_BPE_NONE;
        symbols[i].next = i + 1 < n ? (uint32_t)(i + 1) : MF_BPE_NONE;
    }
    for (size_t i = 0; i < n; i++)
        push_pair(bpe, symbols, (uint32_t)i, heap, &n_heap);
    while (n_heap > 0) {
        mf_heap_entry entry = heap_pop(heap, &n_heap);
        uint32_t i = (uint32_t)entry, right = symbols[i].next, rank;
        if (symbols[i].id == MF_BPE_NONE || right == MF_BPE_NONE)
            continue;
        uint32_t merged = find_merge(bpe, symbols[i].id, symbols[right].id, &rank);
        if (merged == MF_BPE_NONE || rank != entry >> 32)
            continue; /* one side has merged otherwise since */
        symbols[i].id = merged;
        symbols[i].next = symbols[right].next;
        symbols[right].id = MF_BPE_NONE;
        if (symbols[i].next != MF_BPE_NONE)
            symbols[symbols[i].next].previous = i;
        push_pair(bpe, symbols, symbols[i].previous, heap, &n_heap);
        push_pair(bpe, symbols, i, heap, &n_heap);
    }
}

mf_status mf_bpe_check_word(size_t n_bytes, mf_error *error)
{
    if (n_bytes <= MF_MAX_WORD_BYTES)
        return MF_OK;
    return mf_fail(error, MF_ERR_UNSUPPORTED,
                   "%zu bytes of the text are one word to the tokenizer, more than the %zu that "
                   "one may have",
                   n_bytes, MF_MAX_WORD_BYTES);
}

/* Each merge takes one entry out and puts at most two in, so 2n entries are enough. */
static mf_status encode_long(const mf_bpe *bpe, mf_bpe_scratch *scratch, const unsigned char *word,
                             size_t n_bytes, mf_bpe_ids *out, mf_error *error)
{
    const size_t n_most = most_symbols(bpe, n_bytes);
    MF_TRY(mf_bpe_check_word(n_bytes, error));
    const size_t symbol_bytes = n_most * sizeof(mf_symbol);
    const size_t heap_bytes = n_most * 2 * sizeof(mf_heap_entry);
    MF_TRY(mf_buffer_reserve(&scratch->symbols, symbol_bytes, "a word's symbols", error));
    MF_TRY(mf_buffer_reserve(&scratch->heap, heap_bytes, "a word's pairs", error));
    mf_symbol *symbols = (mf_symbol *)(void *)scratch->symbols.data;
    /* What lies where the heap does before there is one, and when it is empty again. */
    uint32_t *ids = (uint32_t *)(void *)scratch->heap.data;
    const size_t n = first_symbols(bpe, word, n_bytes, ids);
    for (size_t i = 0; i < n; i++)
        symbols[i].id = ids[i];
    merge_with_heap(bpe, symbols, n, (mf_heap_entry *)(void *)scratch->heap.data);
    size_t n_ids = 0;
    for (size_t i = 0; i < n; i++)
        if (symbols[i].id != MF_BPE_NONE)
            ids[n_ids++] = symbols[i].id;
    *out = (mf_bpe_ids){ids, n_ids};
    return MF_OK;
}

static uint32_t find_word(const mf_bpe *bpe, const unsigned char *word, size_t n_bytes)
{
    unsigned char byte;
    if (bpe->has_byte_keys && mf_bpe_is_byte_key((const char *)word, n_bytes, &byte))
        return bpe->byte_ids[byte];
    return mf_bpe_find(bpe, word, n_bytes, false);
}

mf_status mf_bpe_encode(const mf_bpe *bpe, mf_bpe_scratch *scratch, const unsigned char *word,
                        size_t n_bytes, mf_bpe_ids *out, mf_error *error)
{
    const bool is_long = most_symbols(bpe, n_bytes) > SHORT_WORD;
    if (is_long && !bpe->ignores_merges)
        return encode_long(bpe, scratch, word, n_bytes, out, error);
    MF_TRY(mf_buffer_reserve(&scratch->symbols, SHORT_WORD * sizeof(uint32_t), "a word", error));
    uint32_t *ids = (uint32_t *)(void *)scratch->symbols.data;
    *out = (mf_bpe_ids){ids, 1};
    if (bpe->ignores_merges) {
        ids[0] = find_word(bpe, word, n_bytes);
        if (ids[0] != MF_BPE_NONE && !bpe->pieces[ids[0]].is_special)
            return MF_OK;
        if (is_long)
            return encode_long(bpe, scratch, word, n_bytes, out, error);
    }
    out->n_ids = merge_short(bpe, ids, first_symbols(bpe, word, n_bytes, ids));
    return MF_OK;
}
