/* SPDX-License-Identifier: MIT */
/*
 * Between a fetch and who reads its files meanwhile (hub_pull.h). The fetching thread changes what
 * is there under the lock, and asks what is waited for; all calls take NULL.
 */
#ifndef MF_HUB_AHEAD_H
#define MF_HUB_AHEAD_H

#include "hub_verify.h"

/* The items are open: their files get the names that the engine opens. */
bool mf_hub_ahead_open(mf_hub_ahead *ahead, const char *blobs_dir, mf_hub_item *items,
                       size_t n_items, mf_error *error);
void mf_hub_ahead_lock(mf_hub_ahead *ahead);
/* Who waits looks again. */
void mf_hub_ahead_unlock(mf_hub_ahead *ahead);
/* Under the lock: the next run of units that is waited for and is_free; false: there is none. */
typedef bool (*mf_hub_free_fn)(const mf_hub_item *item, uint64_t unit);
bool mf_hub_ahead_wanted(mf_hub_ahead *ahead, mf_hub_free_fn is_free, mf_hub_item **item,
                         uint64_t *first_unit, uint64_t *end_unit);
/* The item's content is right; it may be closed then. */
void mf_hub_ahead_whole(mf_hub_ahead *ahead, const mf_hub_item *item);
/* The item will be begun anew. False: something of it has been read. */
bool mf_hub_ahead_may_restart(mf_hub_ahead *ahead, const mf_hub_item *item);
/* All items will be closed now. */
void mf_hub_ahead_close(mf_hub_ahead *ahead);

#endif
