/* SPDX-License-Identifier: MIT */
/*
 * Which experts a model was asked for most, kept between runs: a small file of a directory for each
 * fingerprint (docs/FORMATS.md), "hot-" and its 32 hexadecimal digits and ".mfhot". It is a matter
 * of speed alone: what is damaged or of another model is refused as a whole.
 */
#ifndef MF_STATE_HOT_FILE_H
#define MF_STATE_HOT_FILE_H

#include "base/alloc.h"
#include "base/checksum.h"

/* layer * n_experts + expert; more keys than this have no such file. */
#define MF_HOT_KEYS_MAX (1u << 24)

typedef struct mf_hot_shape {
    uint8_t fingerprint[MF_FINGERPRINT_BYTES];
    uint32_t n_layers, n_experts;
} mf_hot_shape;

/* Of a layer's turns, the share in which each expert is asked for; by key, 0 where it is not known;
 * and the n keys that have one, the largest share first. Both [n_layers * n_experts]. */
typedef struct mf_hot_list {
    float *shares;
    uint32_t *keys;
    uint32_t n;
} mf_hot_list;

/* Of bytes of a file called `name`. The list's arrays are there; on failure they are undefined.
 * Errors: MF_ERR_FORMAT (damaged, or of another model), MF_ERR_UNSUPPORTED (another version). */
mf_status mf_hot_parse(const unsigned char *bytes, size_t n_bytes, const char *name,
                       const mf_hot_shape *shape, mf_hot_list *list, mf_error *error);
/* Removes what processes that were killed while they wrote such files have left, too. Errors:
 * those, MF_ERR_NOT_FOUND, MF_ERR_IO, MF_ERR_NO_MEMORY. */
mf_status mf_hot_load(const mf_allocator *allocator, const char *directory,
                      const mf_hot_shape *shape, mf_hot_list *list, mf_error *error);
/* Sorts the keys by shares and writes the file: whole, or the one before stays. The directory is
 * made if missing. Errors: MF_ERR_IO, MF_ERR_NO_MEMORY, MF_ERR_ARGUMENT (too many keys). */
mf_status mf_hot_save(const mf_allocator *allocator, const char *directory,
                      const mf_hot_shape *shape, mf_hot_list *list, mf_error *error);

#endif
