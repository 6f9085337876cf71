/* SPDX-License-Identifier: MIT */
/* What the files of the store share. */
#ifndef MF_STATE_STATE_STORE_IMPL_H
#define MF_STATE_STATE_STORE_IMPL_H

#include "state/prefix_index.h"
#include "state/state_store.h"

#include <pthread.h>
#include <time.h>

#define MF_STORE_SUFFIX ".mfstate"
#define MF_STORE_TMP "tmp-"
#define MF_STORE_BAD "bad-"
#define MF_STORE_LOCK "lock"
#define MF_STORE_TMP_CHARS 96
#define MF_STORE_TAIL_BYTES 8 /* behind the snapshot: hits */

/* The key's words come before the tokens in the index, so that one tree serves all models. */
#define MF_STORE_KEY_WORDS 6

typedef struct mf_store_entry {
    char name[MF_STORE_NAME_CHARS];
    uint64_t n_bytes, n_hits, n_tokens;
    int64_t used_s;                                /* mtime */
    mf_prefix_entry *place;                        /* NULL: damaged, but could not be set aside */
    mf_prefix_entry *marks[MF_SNAPSHOT_MAX_MARKS]; /* their places */
    uint32_t n_marks;
    uint64_t state_end; /* of the snapshot without its marks */
    bool has_logits;
    bool is_seen; /* by the scan in progress */
} mf_store_entry;

struct mf_store {
    mf_allocator allocator;
    mf_store_options options;
    char *dir;
    size_t dir_bytes;
    int dir_fd, lock_fd;
    pthread_mutex_t mutex;      /* over all below */
    pthread_mutex_t read_mutex; /* over the reader; taken before mutex */
    mf_prefix_index *index;
    mf_store_entry **entries; /* sorted by name */
    size_t n_entries, capacity;
    uint64_t other_bytes;    /* of tmp- and bad- files, by the last scan */
    struct timespec scanned; /* the directory's mtime then */
    bool is_lock_stuck;      /* another process kept it for longer than one waits */
    bool is_stale;           /* it was so fresh that more may have happened at the same time */
    uint64_t n_hits, n_misses, n_evicted, n_set_aside;
    mf_state_reader reader;
    const struct mf_io_engine *engine;
    void *engine_arg;
};

void mf_store_log(const mf_store *s, mf_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The index's sequence for a key and tokens; NULL without memory. Of n_tokens + KEY_WORDS. */
int32_t *mf_store_sequence(const mf_store *s, const mf_snapshot_key *key, const int32_t *tokens,
                           size_t n_tokens);

/* ---------------------------------------------------------------------------------------- names */

typedef enum mf_store_name_kind {
    MF_STORE_IS_FOREIGN,
    MF_STORE_IS_ENTRY,
    MF_STORE_IS_TMP,
    MF_STORE_IS_BAD
} mf_store_name_kind;

mf_store_name_kind mf_store_kind_of(const char *name);
void mf_store_entry_name(const int32_t *sequence, size_t n_words, char name[MF_STORE_NAME_CHARS]);
/* A new file for an entry of this name, as mf_make_aside. */
int mf_store_tmp_make(const mf_store *s, const char *entry, char tmp[MF_STORE_TMP_CHARS]);
/* Opens a file that is the store's by name and content; flags: O_RDONLY or O_RDWR. -1: it is not,
 * or is gone, or may not be opened. */
int mf_store_open_own(const mf_store *s, const char *name, int flags);

/* ------------------------------------------------------------------------------------ directory */

/* Makes entries and index agree with the directory, if it changed or `always`. */
mf_status mf_store_scan(mf_store *s, bool always, mf_error *error);
mf_store_entry *mf_store_entry_find(const mf_store *s, const char *name);
/* Forgets an entry; its file is not touched. */
void mf_store_entry_drop(mf_store *s, mf_store_entry *e);
/* Out of the way of everyone, for someone to look at. */
void mf_store_set_aside(mf_store *s, const char *name, const char *why);
/* Evicts until n_bytes more fit. */
mf_status mf_store_make_room(mf_store *s, uint64_t n_bytes, mf_error *error);

/* A new temporary file of n_bytes for the entry `name`, locked by this process; it is called tmp.
 */
mf_status mf_store_tmp_create(mf_store *s, const char *name, uint64_t n_bytes,
                              char tmp[MF_STORE_TMP_CHARS], int *fd, mf_error *error);

#endif
