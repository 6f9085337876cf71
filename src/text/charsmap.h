/* SPDX-License-Identifier: MIT */
/*
 * SentencePiece's precompiled_charsmap: what strings of characters a normalisation replaces, the
 * longest first. A double-array trie (Darts) of little-endian 32-bit units, behind its length in
 * bytes, before the replacements, each of which ends with a zero byte.
 */
#ifndef MF_TEXT_CHARSMAP_H
#define MF_TEXT_CHARSMAP_H

#include "base/alloc.h"

typedef struct mf_charsmap {
    mf_allocator allocator;
    unsigned char *data; /* a copy of the whole */
    size_t n_bytes;
    size_t n_units; /* 0: nothing is replaced */
} mf_charsmap;

/* *map is zeroed by the caller and freed after a failure too. `where`: the file and the field, for
 * messages. Errors: MF_ERR_FORMAT, MF_ERR_UNSUPPORTED, MF_ERR_NO_MEMORY. */
mf_status mf_charsmap_load(mf_charsmap *map, const mf_allocator *a, const char *where,
                           const void *data, size_t n_bytes, mf_error *error);
void mf_charsmap_free(mf_charsmap *map);
/* What replaces the beginning of text[n_bytes]: *n_used bytes of it, 0 if nothing is replaced. The
 * replacement is the map's, *n_out bytes of UTF-8. */
const unsigned char *mf_charsmap_find(const mf_charsmap *map, const unsigned char *text,
                                      size_t n_bytes, size_t *n_used, size_t *n_out);
/* The same of the shortest beginning that is replaced. */
const unsigned char *mf_charsmap_find_shortest(const mf_charsmap *map, const unsigned char *text,
                                               size_t n_bytes, size_t *n_used, size_t *n_out);

#endif
