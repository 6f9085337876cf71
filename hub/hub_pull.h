/* SPDX-License-Identifier: MIT */
/*
 * Fetching a model: what the hub lists is held against what runs, what is missing is fetched in
 * ranges over several connections, checked by its hash and then named in the cache. What was
 * interrupted, by whatever, goes on where it was.
 */
#ifndef MF_HUB_PULL_H
#define MF_HUB_PULL_H

#include "hub.h"

/* One file of a repository. */
typedef struct mf_hub_file {
    const char *path; /* safe; owned by the listing */
    uint64_t n_bytes;
    char blob[65];  /* the hash of its content: SHA-256, or git's SHA-1 of small files */
    bool is_wanted; /* it is part of what is fetched */
    bool is_held;   /* its blob is in the cache */
} mf_hub_file;

typedef struct mf_hub_listing {
    char commit[41];
    mf_hub_file *files;
    size_t n_files;
    char *strings;
} mf_hub_listing;

/* The hub's answer about a revision. Refused: paths that are not safe, sizes and hashes that are
 * none, more of all that than could be true. False: error says what; nothing is left behind. */
bool mf_hub_listing_parse(const char *json, size_t n_bytes, mf_hub_listing *out, mf_error *error);
void mf_hub_listing_free(mf_hub_listing *listing);
/* NULL: not there. */
mf_hub_file *mf_hub_listing_find(const mf_hub_listing *listing, const char *path);

/* The file that says which shards there are, and has to be read before choosing; NULL: none. */
mf_hub_file *mf_hub_index_of(const mf_hub_listing *listing, const mf_hub_name *name);
/* Marks what is wanted: one form of the weights, and what belongs to it. index: of
 * mf_hub_index_of. False: nothing of it runs, or the choice is not clear; error lists them. */
bool mf_hub_choose(mf_hub_listing *listing, const mf_hub_name *name, const char *index,
                   size_t n_index_bytes, mf_error *error);

typedef struct mf_hub_progress {
    uint64_t n_bytes;             /* to be fetched in all */
    uint64_t n_bytes_done;        /* of them there, before and now */
    uint64_t n_bytes_came;        /* by this run */
    size_t n_files, n_files_done; /* checked */
    double waits_seconds;         /* until the hub is asked again; 0: it is not waited for */
    const char *why;              /* the last failure that is tried again; "": none */
} mf_hub_progress;

struct mf_hub_ahead;

typedef struct mf_hub_options {
    struct mf_hub_ahead *ahead; /* who reads files before they are whole; NULL: nobody */
    uint32_t n_connections;
    uint32_t n_retries; /* failures in a row without any progress */
    /* Called several times a second while something is fetched, and once when all files are
     * checked; false: stop. May be NULL. */
    bool (*tick)(void *user, const mf_hub_progress *progress);
    void *user;
} mf_hub_options;

/* One model of the hub. */
typedef struct mf_hub_model mf_hub_model;

/* Asks the hub what there is, and chooses. The caller closes *out. */
bool mf_hub_open(const mf_hub_places *places, const mf_hub_name *name,
                 const mf_hub_options *options, mf_hub_model **out, mf_error *error);
void mf_hub_close(mf_hub_model **model);
const mf_hub_listing *mf_hub_model_listing(const mf_hub_model *model);

/* Of what is wanted: all bytes, those that are not there yet, and what the drive has free. */
typedef struct mf_hub_cost {
    size_t n_files;
    uint64_t n_bytes, n_missing_bytes, n_free_bytes;
} mf_hub_cost;
void mf_hub_model_cost(const mf_hub_model *model, mf_hub_cost *out);

/* Fetches what is missing, checks it and names it in the cache. */
bool mf_hub_fetch(mf_hub_model *model, mf_error *error);
/*
 * Files that are read before they are whole. A thread fetches; what is waited for comes first. Its
 * content is used before its hash is known: where that turns out to be wrong, the fetch and all
 * waiting fail.
 */
typedef struct mf_hub_ahead mf_hub_ahead;

/* Removes what a program that was killed has left of its names for such files; those that another
 * one reads stay. */
void mf_hub_ahead_clear(const mf_hub_places *places, const mf_hub_name *name);
/* The model is the thread's until mf_hub_ahead_end. path: what the engine is to open, whose
 * descriptors and small files are there when this returns. stop: asked while that takes; true ends
 * it. False: nothing is left behind but what came. */
bool mf_hub_ahead_begin(mf_hub_model *model, bool (*stop)(void), mf_hub_ahead **out,
                        char path[MF_HUB_PATH_CHARS], mf_error *error);
/* mf_engine_options.await_bytes, its user an mf_hub_ahead *. */
int mf_hub_ahead_await(void *ahead, int fd, uint64_t offset, uint64_t n_bytes);
/* How far it is; false: it failed, and *error says why. From any thread. */
bool mf_hub_ahead_look(mf_hub_ahead *ahead, mf_hub_progress *progress, mf_error *error);
/* Nobody waits any more: reads fail with ECANCELED from now on. The fetch ends where it is. */
void mf_hub_ahead_cancel(mf_hub_ahead *ahead);
/* After whoever reads has closed the files. What came is kept, and another pull goes on from there.
 * Takes NULL inside. */
void mf_hub_ahead_end(mf_hub_ahead **ahead);

/* Hashes again what the cache holds of it; *n_bad of its files are others, and are removed. */
bool mf_hub_check(mf_hub_model *model, size_t *n_bad, mf_error *error);

/* Makes, in the empty directory dir, files of the published names and sizes of which only the
 * descriptors are there: enough for mf_model_inspect. path: what that opens. */
bool mf_hub_sketch(mf_hub_model *model, const char *dir, char path[MF_HUB_PATH_CHARS],
                   mf_error *error);

#endif
