/* SPDX-License-Identifier: MIT */
/* The hash tables of a BPE vocabulary: open addressing, linear probing, at most half full. */
#ifndef MF_TEXT_BPE_TABLES_H
#define MF_TEXT_BPE_TABLES_H

#include "text/bpe.h"

#include <string.h>

#define MF_HASH_FACTOR 0x9E3779B97F4A7C15u

static inline size_t mf_bpe_hash(const unsigned char *bytes, size_t n_bytes, bool is_raw)
{
    uint64_t h = (n_bytes * 2 + is_raw) * MF_HASH_FACTOR;
    for (; n_bytes >= 8; bytes += 8, n_bytes -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = (h ^ word) * MF_HASH_FACTOR;
        h ^= h >> 29;
    }
    uint64_t word = 0;
    for (size_t i = 0; i < n_bytes; i++)
        word |= (uint64_t)bytes[i] << (8 * i);
    h = (h ^ word) * MF_HASH_FACTOR;
    h ^= h >> 32;
    return (size_t)(h * MF_HASH_FACTOR >> 20);
}

static inline size_t mf_bpe_hash_pair(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * MF_HASH_FACTOR;
    h ^= h >> 32;
    return (size_t)(h * MF_HASH_FACTOR >> 20);
}

/* The id of a piece, or MF_BPE_NONE. */
static inline uint32_t mf_bpe_find(const mf_bpe *bpe, const unsigned char *bytes, size_t n_bytes,
                                   bool is_raw)
{
    const mf_piece *const keys = bpe->keys != NULL ? bpe->keys : bpe->pieces;
    size_t mask = bpe->n_slots - 1;
    for (size_t i = mf_bpe_hash(bytes, n_bytes, is_raw) & mask;; i = (i + 1) & mask) {
        uint32_t id = bpe->slots[i];
        if (id == MF_BPE_NONE)
            return MF_BPE_NONE;
        const mf_piece *p = &keys[id];
        if (p->n_bytes == n_bytes && p->is_raw == is_raw &&
            memcmp(bpe->bytes + p->offset, bytes, n_bytes) == 0)
            return id;
    }
}

/* The merge of a pair of ids, or NULL. */
static inline const mf_merge *mf_bpe_find_merge(const mf_bpe *bpe, uint32_t left, uint32_t right)
{
    size_t mask = bpe->n_merge_slots - 1;
    for (size_t i = mf_bpe_hash_pair(left, right) & mask;; i = (i + 1) & mask) {
        const mf_merge *m = &bpe->merges[i];
        if (m->left == MF_BPE_NONE)
            return NULL;
        if (m->left == left && m->right == right)
            return m;
    }
}

/* The token whose bytes are those of two tokens joined, in a vocabulary of ranks; or MF_BPE_NONE.
 */
static inline uint32_t mf_bpe_find_joined(const mf_bpe *bpe, uint32_t left, uint32_t right)
{
    unsigned char joined[MF_MAX_RANKED_BYTES];
    const mf_piece *l = &bpe->pieces[left], *r = &bpe->pieces[right];
    size_t n = (size_t)l->n_bytes + r->n_bytes;
    if (n > bpe->longest_bytes)
        return MF_BPE_NONE;
    memcpy(joined, bpe->bytes + l->offset, l->n_bytes);
    memcpy(joined + l->n_bytes, bpe->bytes + r->offset, r->n_bytes);
    return mf_bpe_find(bpe, joined, n, false);
}

#endif
