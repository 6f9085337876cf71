/* SPDX-License-Identifier: MIT */
/* Writing to the cache: its folders, and names for what lies in blobs/. */
#ifndef MF_HUB_STORE_H
#define MF_HUB_STORE_H

#include "hub_pull.h"

/* A model's folders, made if need be, which nobody else of us writes to as long as it is open. */
typedef struct mf_hub_store {
    char folder[MF_HUB_PATH_CHARS], blobs[MF_HUB_PATH_CHARS];
    int lock_fd; /* -1: not open */
} mf_hub_store;

bool mf_hub_store_open(const mf_hub_places *places, const mf_hub_name *name, mf_hub_store *out,
                       mf_error *error);
void mf_hub_store_close(mf_hub_store *store);
/* snapshots/COMMIT/PATH of what is wanted become links to their blobs; then refs/REVISION. */
bool mf_hub_store_name(const mf_hub_store *store, const mf_hub_listing *listing,
                       const char *revision, mf_error *error);
/* path's folders, and path itself where it ends with a slash. */
bool mf_hub_make_folders(const char *path, mf_error *error);
/* Bytes free on the drive of the nearest folder of path that exists; 0: not known. */
uint64_t mf_hub_free_bytes(const char *path);

#endif
