/* SPDX-License-Identifier: MIT */
/*
 * A thread that hashes files while they come, one after the other, and gives those that are right
 * their blob's name. What is still in memory it takes from there (hub_rooms.h).
 */
#ifndef MF_HUB_VERIFY_H
#define MF_HUB_VERIFY_H

#include "hub_client.h"
#include "hub_partial.h"

#include <pthread.h>

typedef struct mf_hub_rooms mf_hub_rooms;

typedef enum mf_hub_verdict {
    MF_HUB_NO_VERDICT,
    MF_HUB_CHECKED,
    MF_HUB_WRONG, /* the content is another */
    MF_HUB_FAILED /* it cannot be read or named */
} mf_hub_verdict;

/* A file on its way. */
typedef struct mf_hub_item {
    mf_hub_file *file;
    mf_hub_partial part;
    bool is_open;
    uint8_t *claimed;       /* of each unit: who has it (hub_download.c) */
    uint64_t first_free;    /* no unit before it is neither there nor claimed */
    uint64_t n_known_bytes; /* there before it was opened */
    uint32_t n_active;      /* requests */
    uint32_t n_wrong, n_changes;
    bool has_no_ranges;
    char *location; /* what the hub redirected to; NULL: not known */
    char etag[MF_HUB_ETAG_CHARS];
    /* Under the verifier's lock. */
    bool is_begun;
    uint32_t epoch;       /* begun anew so often */
    uint64_t front_units; /* all before are there */
    mf_hub_verdict verdict;
    char digits[65]; /* of MF_HUB_WRONG: what it is instead */
    mf_error error;  /* of MF_HUB_FAILED */
} mf_hub_item;

typedef struct mf_hub_verifier {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    mf_hub_item *items;
    size_t n_items;
    const char *blobs_dir;
    mf_hub_client *client;
    mf_hub_rooms *rooms;
    bool is_stopped;
} mf_hub_verifier;

bool mf_hub_verifier_start(mf_hub_verifier *verifier, mf_hub_item *items, size_t n_items,
                           const char *blobs_dir, mf_hub_client *client, mf_hub_rooms *rooms,
                           mf_error *error);
void mf_hub_verifier_stop(mf_hub_verifier *verifier);
/* The item is open, or has this front now. */
void mf_hub_verifier_advance(mf_hub_verifier *verifier, mf_hub_item *item, uint64_t front_units);
/* The item is fetched anew: what was hashed is forgotten. */
void mf_hub_verifier_restart(mf_hub_verifier *verifier, mf_hub_item *item);
mf_hub_verdict mf_hub_verifier_verdict(mf_hub_verifier *verifier, const mf_hub_item *item);

#endif
