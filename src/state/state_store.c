/* SPDX-License-Identifier: MIT */
/* The store: opening, looking up, reading and adding entries. */
#include "state/state_store.h"

#include "base/sized.h"
#include "state/state_store_impl.h"

#include "base/clock.h"
#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_MAX_BYTES ((uint64_t)8 << 30)
#define DEFAULT_MIN_TOKENS 64u
#define DEFAULT_LOCK_WAIT_MS 3000u
#define LOCK_POLL_NS 5000000

void mf_store_options_init(mf_store_options *options, size_t struct_bytes)
{
    const mf_store_options defaults = {.max_bytes = DEFAULT_MAX_BYTES,
                                       .min_tokens = DEFAULT_MIN_TOKENS,
                                       .lock_wait_ms = DEFAULT_LOCK_WAIT_MS};
    mf_sized_init(options, struct_bytes, &defaults, sizeof defaults);
}

void mf_store_log(const mf_store *s, mf_log_level level, const char *format, ...)
{
    char line[512];
    va_list args;
    if (s->options.log == NULL)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    mf_one_line(line); /* the directory's name is the caller's */
    s->options.log(s->options.log_user, level, line);
}

static mf_status open_directory(mf_store *s, const char *directory, mf_error *error)
{
    s->dir_bytes = strlen(directory) + 1;
    s->dir = mf_alloc(&s->allocator, s->dir_bytes);
    if (s->dir == NULL)
        return mf_fail_memory(error, s->dir_bytes, "the store");
    memcpy(s->dir, directory, s->dir_bytes);
    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot be made", directory);
    s->dir_fd = mf_open_apart(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY, 0);
    if (s->dir_fd < 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s", directory);
    s->lock_fd = mf_open_apart(s->dir_fd, MF_STORE_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (s->lock_fd < 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/" MF_STORE_LOCK ": cannot be written",
                          directory);
    return MF_OK;
}

/* At once or not at all. Without locks the limit may be overrun by what is written at once. */
static bool try_lock(const mf_store *s)
{
    int failure;
    do {
        failure = flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    } while (failure == EINTR);
    return failure != EWOULDBLOCK;
}

/* What earlier limits left beyond this one goes now, not when something is written. Where another
 * process is at it, that does. */
static void shrink(mf_store *s)
{
    mf_error error = {0};
    if (!try_lock(s))
        return;
    const mf_status status = mf_store_make_room(s, 0, &error);
    flock(s->lock_fd, LOCK_UN);
    if (status != MF_OK && status != MF_ERR_BUDGET) /* what others are writing is theirs */
        mf_store_log(s, MF_LOG_WARNING, "%s", error.message);
}

mf_status mf_store_open_with_io(const char *directory, const mf_store_options *options,
                                const struct mf_io_engine *engine, void *engine_arg, mf_store **out,
                                mf_error *error)
{
    mf_store_options given;
    mf_store_options_default(&given);
    if (options != NULL)
        MF_TRY(mf_sized_get(&given, sizeof given, options, "mf_store_options", error));
    mf_allocator a;
    MF_TRY(mf_allocator_take(&given.allocator, &a, error));
    mf_store *s = mf_alloc_zeroed(&a, sizeof *s);
    if (s == NULL)
        return mf_fail_memory(error, sizeof *s, "the store");
    mf_status status;
    s->options = given;
    if (s->options.max_bytes == 0)
        s->options.max_bytes = DEFAULT_MAX_BYTES;
    if (s->options.min_tokens == 0)
        s->options.min_tokens = DEFAULT_MIN_TOKENS;
    if (s->options.lock_wait_ms == 0)
        s->options.lock_wait_ms = DEFAULT_LOCK_WAIT_MS;
    s->allocator = a;
    s->engine = engine;
    s->engine_arg = engine_arg;
    s->dir_fd = s->lock_fd = -1;
    pthread_mutex_init(&s->mutex, NULL); /* cannot fail where threads are the C library's */
    pthread_mutex_init(&s->read_mutex, NULL);
    MF_TRY_GOTO(open_directory(s, directory, error));
    MF_TRY_GOTO(mf_prefix_index_create(&a, &s->index, error));
    MF_TRY_GOTO(mf_state_reader_init(&s->reader, &a, error));
    MF_TRY_GOTO(mf_store_scan(s, true, error));
    shrink(s);
    *out = s;
    return MF_OK;
fail:
    mf_store_close(&s);
    return status;
}

mf_status mf_store_open(const char *directory, const mf_store_options *options, mf_store **out,
                        mf_error *error)
{
    if (directory == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_store_open: directory or out is NULL");
    return mf_store_open_with_io(directory, options, NULL, NULL, out, error);
}

void mf_store_close(mf_store **store)
{
    mf_store *s = store != NULL ? *store : NULL;
    if (s == NULL)
        return;
    const mf_allocator a = s->allocator;
    mf_state_reader_free(&s->reader);
    while (s->n_entries > 0)
        mf_store_entry_drop(s, s->entries[s->n_entries - 1]);
    mf_free(&a, s->entries, s->capacity * sizeof *s->entries);
    mf_prefix_index_free(&s->index);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    if (s->dir_fd >= 0)
        close(s->dir_fd);
    pthread_mutex_destroy(&s->mutex);
    pthread_mutex_destroy(&s->read_mutex);
    mf_free(&a, s->dir, s->dir_bytes);
    mf_free(&a, s, sizeof *s);
    *store = NULL;
}

void mf_store_get_stats_sized(mf_store *store, mf_store_stats *out, size_t struct_bytes)
{
    pthread_mutex_lock(&store->mutex);
    (void)mf_store_scan(store, false, NULL); /* what is known is an answer too */
    mf_store_stats stats = {.n_entries = store->n_entries,
                            .n_hits = store->n_hits,
                            .n_misses = store->n_misses,
                            .n_evicted = store->n_evicted,
                            .n_set_aside = store->n_set_aside};
    for (size_t i = 0; i < store->n_entries; i++)
        stats.n_bytes += store->entries[i]->n_bytes;
    pthread_mutex_unlock(&store->mutex);
    mf_sized_put(out, struct_bytes, &stats, sizeof stats);
}

uint64_t mf_store_min_tokens(const mf_store *store)
{
    return store->options.min_tokens;
}

uint64_t mf_store_max_bytes(const mf_store *store)
{
    return store->options.max_bytes;
}

int32_t *mf_store_sequence(const mf_store *s, const mf_snapshot_key *key, const int32_t *tokens,
                           size_t n_tokens)
{
    int32_t *sequence = mf_alloc_array(&s->allocator, n_tokens + MF_STORE_KEY_WORDS, 4);
    if (sequence == NULL)
        return NULL;
    memcpy(sequence, key->fingerprint, MF_FINGERPRINT_BYTES);
    memcpy(sequence + 4, &key->kv_type, 4);
    memcpy(sequence + 5, &key->cpu_tier, 4);
    if (n_tokens > 0)
        memcpy(sequence + MF_STORE_KEY_WORDS, tokens, n_tokens * 4);
    return sequence;
}

static void free_sequence(const mf_store *s, int32_t *sequence, size_t n_tokens)
{
    mf_free(&s->allocator, sequence, (n_tokens + MF_STORE_KEY_WORDS) * 4);
}

static bool name_of(const mf_store *s, const mf_snapshot_key *key, const int32_t *tokens,
                    size_t n_tokens, char name[MF_STORE_NAME_CHARS])
{
    int32_t *sequence = mf_store_sequence(s, key, tokens, n_tokens);
    if (sequence == NULL)
        return false;
    mf_store_entry_name(sequence, n_tokens + MF_STORE_KEY_WORDS, name);
    free_sequence(s, sequence, n_tokens);
    return true;
}

bool mf_store_has(mf_store *store, const mf_snapshot_key *key, const int32_t *tokens,
                  size_t n_tokens)
{
    char name[MF_STORE_NAME_CHARS];
    if (!name_of(store, key, tokens, n_tokens, name))
        return false;
    pthread_mutex_lock(&store->mutex);
    (void)mf_store_scan(store, false, NULL);
    const mf_store_entry *e = mf_store_entry_find(store, name);
    bool has = e != NULL && e->place != NULL;
    pthread_mutex_unlock(&store->mutex);
    return has;
}

/* Among the entries that serve these words, the one that holds no more than they. */
static const mf_store_entry *exact_or(const mf_store *s, const mf_store_entry *e,
                                      const int32_t *sequence, size_t n_words)
{
    char name[MF_STORE_NAME_CHARS];
    mf_store_entry_name(sequence, n_words, name);
    const mf_store_entry *exact = mf_store_entry_find(s, name);
    return exact != NULL && exact->place != NULL ? exact : e;
}

static bool goes_back(const void *ctx, const void *value, size_t n_words)
{
    const mf_store_query *query = ctx;
    const mf_store_entry *e = value;
    return query->reaches(query->ctx, e->n_tokens, n_words - MF_STORE_KEY_WORDS);
}

static mf_prefix_match look_up(const mf_store *s, const mf_store_query *query,
                               const int32_t *sequence, size_t n_words)
{
    if (!query->whole)
        return mf_prefix_find_common(s->index, sequence, n_words);
    const mf_prefix_match whole = mf_prefix_find_whole(s->index, sequence, n_words);
    if (query->reaches == NULL)
        return whole;
    const size_t n_whole = whole.value != NULL ? whole.n_common : 0;
    const size_t n_least = n_whole > MF_STORE_KEY_WORDS ? n_whole : MF_STORE_KEY_WORDS;
    const mf_prefix_match back =
        mf_prefix_find_serving(s->index, sequence, n_words, n_least, goes_back, query);
    return back.value != NULL ? back : whole;
}

bool mf_store_find(mf_store *store, const mf_store_query *query, mf_store_match *out)
{
    int32_t *sequence = mf_store_sequence(store, query->key, query->tokens, query->n_tokens);
    if (sequence == NULL)
        return false;
    size_t n_words = query->n_tokens + MF_STORE_KEY_WORDS;
    pthread_mutex_lock(&store->mutex);
    (void)mf_store_scan(store, false, NULL); /* without it: what was there before */
    const mf_prefix_match m = look_up(store, query, sequence, n_words);
    bool found = m.value != NULL && m.n_common > query->n_least + MF_STORE_KEY_WORDS;
    if (found) {
        const mf_store_entry *e = exact_or(store, m.value, sequence, m.n_common);
        memcpy(out->name, e->name, sizeof out->name);
        out->n_tokens = (size_t)e->n_tokens;
        out->n_marks = e->n_marks;
        out->state_end = e->state_end;
        out->has_logits = e->has_logits;
        out->n_common = m.n_common - MF_STORE_KEY_WORDS;
    } else {
        store->n_misses++;
    }
    pthread_mutex_unlock(&store->mutex);
    free_sequence(store, sequence, query->n_tokens);
    return found;
}

static mf_status path_of(const mf_store *s, const char *name, char *path, size_t capacity,
                         mf_error *error)
{
    int n = snprintf(path, capacity, "%s/%s", s->dir, name);
    return n > 0 && (size_t)n < capacity
               ? MF_OK
               : mf_fail(error, MF_ERR_IO, "%s: the path is too long", s->dir);
}

mf_status mf_store_read_begin(mf_store *store, const mf_store_match *match, mf_state_reader **out,
                              mf_error *error)
{
    char path[4096];
    MF_TRY(path_of(store, match->name, path, sizeof path, error));
    pthread_mutex_lock(&store->read_mutex);
    mf_status status = mf_state_reader_open(&store->reader, path,
                                            mf_snapshot_head_bytes(match->n_tokens, match->n_marks),
                                            store->engine, store->engine_arg, error);
    if (status != MF_OK) {
        pthread_mutex_unlock(&store->read_mutex);
        pthread_mutex_lock(&store->mutex);
        store->n_misses++;
        store->is_stale = true; /* evicted by another process, most likely */
        pthread_mutex_unlock(&store->mutex);
        return status;
    }
    *out = &store->reader;
    return MF_OK;
}

/* Best effort: in a directory that became read-only an entry is used all the same. */
static void count_hit(mf_store *s, const char *name)
{
    mf_store_entry *e = mf_store_entry_find(s, name);
    s->n_hits++;
    if (e == NULL)
        return;
    e->n_hits++;
    struct stat st;
    int fd = mf_store_open_own(s, name, O_RDWR);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && (uint64_t)st.st_size == e->n_bytes)
        (void)!pwrite(fd, &e->n_hits, sizeof e->n_hits, (off_t)(e->n_bytes - MF_STORE_TAIL_BYTES));
    close(fd);
}

void mf_store_read_end(mf_store *store, const mf_store_match *match, mf_status status)
{
    mf_state_reader_close(&store->reader);
    pthread_mutex_unlock(&store->read_mutex);
    pthread_mutex_lock(&store->mutex);
    if (status == MF_OK)
        count_hit(store, match->name);
    else if (status == MF_ERR_FORMAT)
        mf_store_set_aside(store, match->name, "its content is not what was written");
    if (status != MF_OK)
        store->n_misses++;
    pthread_mutex_unlock(&store->mutex);
}

static bool is_stopped(const mf_store *s)
{
    return s->options.stop != NULL && s->options.stop(s->options.stop_user) != 0;
}

/* On MF_OK the mutex and the directory's lock are held. The lock is not waited for under the mutex,
 * which lookups take; nor again by everyone, once it was kept too long. */
static mf_status lock_directory(mf_store *s, mf_error *error)
{
    static const struct timespec pause = {0, LOCK_POLL_NS};
    const uint64_t start_us = mf_now_us(), most_us = (uint64_t)s->options.lock_wait_ms * 1000;
    for (;;) {
        pthread_mutex_lock(&s->mutex);
        bool is_locked = try_lock(s);
        bool gives_up = !is_locked && (s->is_lock_stuck || mf_now_us() - start_us >= most_us);
        s->is_lock_stuck = gives_up;
        if (is_locked)
            return MF_OK;
        pthread_mutex_unlock(&s->mutex);
        if (gives_up)
            return mf_fail_os(error, MF_ERR_IO, EWOULDBLOCK,
                              "%s/" MF_STORE_LOCK ": held by another process", s->dir);
        if (is_stopped(s))
            return mf_fail(error, MF_ERR_CANCELLED,
                           "%s/" MF_STORE_LOCK ": held by another process; no longer waited for",
                           s->dir);
        (void)nanosleep(&pause, NULL); /* a signal ends it early */
    }
}

/* Evicts and takes the space for a new entry, while no other process does. */
static mf_status reserve(mf_store *s, const char *name, uint64_t n_bytes,
                         char tmp[MF_STORE_TMP_CHARS], int *fd, mf_error *error)
{
    MF_TRY(lock_directory(s, error));
    mf_status status = mf_store_scan(s, true, error);
    if (status == MF_OK)
        status = mf_store_make_room(s, n_bytes, error);
    if (status == MF_OK)
        status = mf_store_tmp_create(s, name, n_bytes, tmp, fd, error);
    flock(s->lock_fd, LOCK_UN);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

static mf_status write_bytes(const mf_store *s, int fd, const mf_store_addition *addition,
                             mf_error *error)
{
    static const uint64_t n_hits = 0;
    mf_fd_sink sink;
    mf_fd_sink_init(&sink, fd, s->dir);
    mf_fd_sink_gather(&sink, &s->allocator);
    mf_status status = addition->write(addition->ctx, &sink.sink, error);
    if (status == MF_OK)
        status = sink.sink.write(&sink.sink, &n_hits, sizeof n_hits, error);
    return mf_fd_sink_end(&sink, status, error);
}

/* The name is given when all of the content is on the disk. */
static mf_status publish(const mf_store *s, int fd, const char *tmp, const char *name,
                         mf_error *error)
{
    if (fsync(fd) != 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s: cannot be synced", s->dir, tmp);
    if (renameat(s->dir_fd, tmp, s->dir_fd, name) != 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s: cannot be renamed", s->dir, tmp);
    (void)fsync(s->dir_fd); /* at worst the name is lost with the power */
    return MF_OK;
}

mf_status mf_store_add(mf_store *store, const mf_store_addition *addition, mf_error *error)
{
    char name[MF_STORE_NAME_CHARS], tmp[MF_STORE_TMP_CHARS];
    int fd = -1;
    const mf_store_addition *a = addition;
    uint64_t n_bytes = a->n_bytes + MF_STORE_TAIL_BYTES;
    if (mf_store_has(store, a->key, a->tokens, a->n_tokens))
        return MF_OK;
    if (!name_of(store, a->key, a->tokens, a->n_tokens, name))
        return mf_fail_memory(error, a->n_tokens * 4, "a stored entry");
    if (n_bytes > store->options.max_bytes)
        return mf_fail(error, MF_ERR_BUDGET, "%s: an entry of %llu bytes, the limit is %llu",
                       store->dir, (unsigned long long)n_bytes,
                       (unsigned long long)store->options.max_bytes);
    MF_TRY(reserve(store, name, n_bytes, tmp, &fd, error));
    mf_status status = write_bytes(store, fd, a, error);
    if (status == MF_OK)
        status = publish(store, fd, tmp, name, error);
    if (status != MF_OK)
        unlinkat(store->dir_fd, tmp, 0);
    close(fd);
    pthread_mutex_lock(&store->mutex);
    (void)mf_store_scan(store, false, NULL); /* takes the new entry into the index */
    pthread_mutex_unlock(&store->mutex);
    return status;
}
