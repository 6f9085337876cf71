/* SPDX-License-Identifier: MIT */
/* Does a file have the content that its blob's name promises? */
#ifndef MF_HUB_HASH_H
#define MF_HUB_HASH_H

#include "hub_pull.h"

typedef struct mf_hub_hash mf_hub_hash;

/* SHA-256, or git's SHA-1 of a blob where the name has forty digits. NULL: no memory. */
mf_hub_hash *mf_hub_hash_begin(const mf_hub_file *file);
bool mf_hub_hash_take(mf_hub_hash *hash, const void *data, size_t n_bytes);
/* Frees it; digits: what it is. True: the file's. */
bool mf_hub_hash_end(mf_hub_hash *hash, const mf_hub_file *file, char digits[65]);
void mf_hub_hash_free(mf_hub_hash *hash);
/* The same of bytes in memory. */
bool mf_hub_hash_fits(const mf_hub_file *file, const void *data, size_t n_bytes);

#endif
