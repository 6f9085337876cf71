/* SPDX-License-Identifier: MIT */
/*
 * The store's directory: what is in it, what is thrown out. Other processes change it at any time:
 * every name may be gone at the next call, and new ones be there.
 */
#include "state/state_store_impl.h"

#include "base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Changes within one tick of the file system's clock leave the same mtime. */
#define TICK_NS 50000000

/* Where a name is or would be. */
static size_t entry_place(const mf_store *s, const char *name)
{
    size_t low = 0, high = s->n_entries;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(s->entries[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

mf_store_entry *mf_store_entry_find(const mf_store *s, const char *name)
{
    size_t i = entry_place(s, name);
    return i < s->n_entries && strcmp(s->entries[i]->name, name) == 0 ? s->entries[i] : NULL;
}

/* No lookup finds it any more. */
static void hide(mf_store *s, mf_store_entry *e)
{
    while (e->n_marks > 0)
        mf_prefix_remove(s->index, e->marks[--e->n_marks]);
    if (e->place != NULL)
        mf_prefix_remove(s->index, e->place);
    e->place = NULL;
}

void mf_store_entry_drop(mf_store *s, mf_store_entry *e)
{
    size_t i = entry_place(s, e->name);
    hide(s, e);
    s->n_entries--;
    memmove(s->entries + i, s->entries + i + 1, (s->n_entries - i) * sizeof *s->entries);
    mf_free(&s->allocator, e, sizeof *e);
}

void mf_store_set_aside(mf_store *s, const char *name, const char *why)
{
    char bad[MF_STORE_NAME_CHARS + sizeof MF_STORE_BAD];
    snprintf(bad, sizeof bad, MF_STORE_BAD "%s", name);
    s->n_set_aside++;
    mf_store_log(s, MF_LOG_WARNING, "%s/%s is damaged and set aside: %s", s->dir, name, why);
    mf_store_entry *e = mf_store_entry_find(s, name);
    int fd = mf_store_open_own(s, name, O_RDONLY);
    bool is_gone = fd < 0 || renameat(s->dir_fd, name, s->dir_fd, bad) == 0 || errno == ENOENT;
    if (fd >= 0)
        close(fd);
    if (e != NULL && is_gone)
        mf_store_entry_drop(s, e);
    else if (e != NULL) /* remembered, so that it is not served */
        hide(s, e);
}

static mf_status reserve_entry(mf_store *s, mf_error *error)
{
    if (s->n_entries < s->capacity)
        return MF_OK;
    size_t capacity = s->capacity == 0 ? 16 : 2 * s->capacity;
    mf_store_entry **entries = mf_realloc(&s->allocator, s->entries, s->capacity * sizeof *entries,
                                          capacity * sizeof *entries);
    if (entries == NULL)
        return mf_fail_memory(error, capacity * sizeof *entries, "the store's entries");
    s->entries = entries;
    s->capacity = capacity;
    return MF_OK;
}

/* What a file says of itself. tokens is the caller's to free: [head->n_tokens]. */
static mf_status read_head(mf_store *s, int fd, const char *name, mf_snapshot_head *head,
                           int32_t **tokens, mf_error *error)
{
    mf_fd_source source;
    mf_fd_source_init(&source, fd, name);
    MF_TRY(mf_snapshot_read_header(&source.source, head, error));
    struct stat st;
    if (fstat(fd, &st) != 0 ||
        (uint64_t)st.st_size != mf_snapshot_total_bytes(head) + MF_STORE_TAIL_BYTES)
        return mf_fail(error, MF_ERR_FORMAT, "%s: its size is not what its header says", name);
    *tokens = mf_alloc_array(&s->allocator, (size_t)head->n_tokens + 1, sizeof **tokens);
    if (*tokens == NULL)
        return mf_fail_memory(error, (size_t)head->n_tokens * 4, "a stored entry's tokens");
    mf_status status = mf_snapshot_read_tokens(&source.source, head, *tokens, error);
    if (status != MF_OK) {
        mf_free(&s->allocator, *tokens, ((size_t)head->n_tokens + 1) * sizeof **tokens);
        *tokens = NULL;
    }
    return status;
}

static uint64_t read_hits(int fd, uint64_t n_bytes)
{
    uint64_t n_hits = 0;
    if (pread(fd, &n_hits, sizeof n_hits, (off_t)(n_bytes - MF_STORE_TAIL_BYTES)) != sizeof n_hits)
        return 0;
    return n_hits;
}

/* Its places in the index: all of its tokens, and those before each mark. */
static mf_status place_entry(mf_store *s, mf_store_entry *e, const mf_snapshot_head *head,
                             const int32_t *tokens, mf_error *error)
{
    size_t n_words = (size_t)head->n_tokens + MF_STORE_KEY_WORDS;
    int32_t *sequence = mf_store_sequence(s, &head->key, tokens, (size_t)head->n_tokens);
    if (sequence == NULL)
        return mf_fail_memory(error, n_words * sizeof *sequence, "a stored entry");
    mf_status status = mf_prefix_insert(s->index, sequence, n_words, e, &e->place, error);
    for (uint32_t i = 0; i < head->n_marks && status == MF_OK; i++) {
        status = mf_prefix_insert(s->index, sequence, head->marks[i] + MF_STORE_KEY_WORDS, e,
                                  &e->marks[i], error);
        e->n_marks += status == MF_OK;
    }
    mf_free(&s->allocator, sequence, n_words * sizeof *sequence);
    if (status != MF_OK)
        hide(s, e);
    return status;
}

static mf_status add_entry(mf_store *s, int fd, const char *name, const mf_snapshot_head *head,
                           const int32_t *tokens, mf_error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s", s->dir, name);
    MF_TRY(reserve_entry(s, error));
    mf_store_entry *e = mf_alloc_zeroed(&s->allocator, sizeof *e);
    if (e == NULL)
        return mf_fail_memory(error, sizeof *e, "a stored entry");
    mf_status status = place_entry(s, e, head, tokens, error);
    if (status != MF_OK) {
        mf_free(&s->allocator, e, sizeof *e);
        return status;
    }
    memcpy(e->name, name, strlen(name) + 1); /* an entry's name: it fits */
    e->n_bytes = (uint64_t)st.st_size;
    e->n_tokens = head->n_tokens;
    e->state_end = mf_snapshot_mark_offset(head, 0);
    e->has_logits = head->has_logits;
    e->used_s = st.st_mtim.tv_sec;
    e->n_hits = read_hits(fd, e->n_bytes);
    e->is_seen = true;
    size_t i = entry_place(s, name);
    memmove(s->entries + i + 1, s->entries + i, (s->n_entries - i) * sizeof *s->entries);
    s->entries[i] = e;
    s->n_entries++;
    return MF_OK;
}

/* A file that this store has not seen yet. Only a lack of memory fails. */
static mf_status meet_entry(mf_store *s, const char *name, mf_error *error)
{
    int fd = mf_store_open_own(s, name, O_RDONLY);
    if (fd < 0)
        return MF_OK; /* gone already, or not ours */
    mf_error why = {0};
    mf_snapshot_head head;
    int32_t *tokens = NULL;
    mf_status status = read_head(s, fd, name, &head, &tokens, &why);
    if (status == MF_OK)
        status = add_entry(s, fd, name, &head, tokens, &why);
    if (tokens != NULL)
        mf_free(&s->allocator, tokens, ((size_t)head.n_tokens + 1) * sizeof *tokens);
    close(fd);
    if (status == MF_ERR_FORMAT)
        mf_store_set_aside(s, name, why.message);
    if (status != MF_ERR_NO_MEMORY)
        return MF_OK;
    if (error != NULL)
        *error = why;
    return status;
}

/* A file that is no entry: counted, or removed if it is temporary and its writer is gone. */
static void meet_other(mf_store *s, const char *name, bool is_tmp)
{
    struct stat st;
    int fd = mf_store_open_own(s, name, O_RDWR);
    if (fd < 0)
        fd = mf_store_open_own(s, name, O_RDONLY); /* of another user */
    if (fd < 0)
        return;
    if (is_tmp && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(s->dir_fd, name, 0);
    else if (fstat(fd, &st) == 0)
        s->other_bytes += (uint64_t)st.st_size;
    close(fd);
}

static mf_status scan_name(mf_store *s, const char *name, mf_error *error)
{
    struct stat st;
    mf_store_name_kind kind = mf_store_kind_of(name);
    if (kind == MF_STORE_IS_TMP || kind == MF_STORE_IS_BAD)
        meet_other(s, name, kind == MF_STORE_IS_TMP);
    if (kind != MF_STORE_IS_ENTRY || fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return MF_OK;
    mf_store_entry *e = mf_store_entry_find(s, name);
    if (e == NULL)
        return meet_entry(s, name, error);
    e->is_seen = true;
    e->used_s = st.st_mtim.tv_sec;
    return MF_OK;
}

/* NULL with errno. */
static DIR *open_listing(const mf_store *s)
{
    int fd = mf_open_apart(s->dir_fd, ".", O_RDONLY | O_DIRECTORY, 0);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL && fd >= 0)
        close(fd);
    return d;
}

static mf_status scan_all(mf_store *s, mf_error *error)
{
    DIR *d = open_listing(s);
    if (d == NULL)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot be listed", s->dir);
    mf_status status = MF_OK;
    for (size_t i = 0; i < s->n_entries; i++)
        s->entries[i]->is_seen = false;
    s->other_bytes = 0;
    for (struct dirent *e = readdir(d); e != NULL && status == MF_OK; e = readdir(d))
        status = scan_name(s, e->d_name, error);
    closedir(d);
    for (size_t i = s->n_entries; i-- > 0 && status == MF_OK;)
        if (!s->entries[i]->is_seen)
            mf_store_entry_drop(s, s->entries[i]);
    return status;
}

mf_status mf_store_scan(mf_store *s, bool always, mf_error *error)
{
    struct stat st;
    struct timespec now;
    if (fstat(s->dir_fd, &st) != 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s", s->dir);
    if (!always && !s->is_stale && st.st_mtim.tv_sec == s->scanned.tv_sec &&
        st.st_mtim.tv_nsec == s->scanned.tv_nsec)
        return MF_OK;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age_ns =
        (int64_t)(now.tv_sec - st.st_mtim.tv_sec) * 1000000000 + (now.tv_nsec - st.st_mtim.tv_nsec);
    s->is_stale = true; /* until it has been gone through */
    MF_TRY(scan_all(s, error));
    s->is_stale = age_ns < TICK_NS;
    s->scanned = st.st_mtim;
    return MF_OK;
}

/* The least useful entry: long unused, large, rarely hit. */
static mf_store_entry *least_useful(const mf_store *s)
{
    struct timespec now;
    mf_store_entry *worst = NULL;
    double worst_score = -1;
    clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; i < s->n_entries; i++) {
        mf_store_entry *e = s->entries[i];
        int64_t age_s = now.tv_sec > e->used_s ? now.tv_sec - e->used_s : 0;
        double score = (double)(age_s + 60) * (double)e->n_bytes / (double)(1 + e->n_hits);
        if (score > worst_score) {
            worst_score = score;
            worst = e;
        }
    }
    return worst;
}

static void remove_bad_one(mf_store *s, const char *name)
{
    struct stat st;
    int fd = mf_store_kind_of(name) == MF_STORE_IS_BAD ? mf_store_open_own(s, name, O_RDONLY) : -1;
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && unlinkat(s->dir_fd, name, 0) == 0) {
        uint64_t n_bytes = (uint64_t)st.st_size;
        s->other_bytes -= s->other_bytes < n_bytes ? s->other_bytes : n_bytes;
    }
    close(fd);
}

/* Damaged files serve nobody: they are the first to go. */
static void remove_bad(mf_store *s)
{
    DIR *d = open_listing(s);
    if (d == NULL)
        return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        remove_bad_one(s, e->d_name);
    closedir(d);
}

static mf_status evict(mf_store *s, mf_store_entry *e, mf_error *error)
{
    if (unlinkat(s->dir_fd, e->name, 0) != 0 && errno != ENOENT)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s: cannot be removed", s->dir, e->name);
    mf_store_log(s, MF_LOG_INFO, "%s/%s evicted: %llu tokens, %llu hits", s->dir, e->name,
                 (unsigned long long)e->n_tokens, (unsigned long long)e->n_hits);
    s->n_evicted++;
    mf_store_entry_drop(s, e);
    return MF_OK;
}

static uint64_t entries_bytes(const mf_store *s)
{
    uint64_t total = 0;
    for (size_t i = 0; i < s->n_entries; i++)
        total += s->entries[i]->n_bytes;
    return total;
}

mf_status mf_store_make_room(mf_store *s, uint64_t n_bytes, mf_error *error)
{
    const uint64_t max_bytes = s->options.max_bytes;
    uint64_t total = s->other_bytes + entries_bytes(s);
    if (total + n_bytes > max_bytes) {
        uint64_t before = s->other_bytes;
        remove_bad(s);
        total -= before - s->other_bytes;
    }
    while (total + n_bytes > max_bytes) {
        mf_store_entry *e = least_useful(s);
        if (e == NULL)
            return mf_fail(error, MF_ERR_BUDGET,
                           "%s: %llu bytes do not fit beside what others are writing", s->dir,
                           (unsigned long long)n_bytes);
        total -= e->n_bytes;
        MF_TRY(evict(s, e, error));
    }
    return MF_OK;
}

/* All of the space at once: a full disk is found before anything is written. An errno, or 0. */
static int try_space(int fd, uint64_t n_bytes)
{
    mf_write_guard guard;
    mf_write_guard_begin(&guard);
    int failure = fallocate(fd, 0, 0, (off_t)n_bytes) == 0 ? 0 : errno;
    if (failure == EOPNOTSUPP || failure == ENOSYS || failure == EINTR)
        failure = ftruncate(fd, (off_t)n_bytes) == 0 ? 0 : errno;
    mf_write_guard_end(&guard);
    return failure;
}

/* Whether the disk would have room for a file, which may have a part of it already, without the
 * entries. If not, none of them need go. */
static bool could_fit(const mf_store *s, int fd, uint64_t n_bytes)
{
    struct statvfs fs;
    struct stat st;
    if (fstatvfs(fd, &fs) != 0 || fstat(fd, &st) != 0)
        return false;
    const uint64_t here = (uint64_t)fs.f_bavail * fs.f_frsize + (uint64_t)st.st_blocks * 512;
    return here + entries_bytes(s) >= n_bytes;
}

/* A disk that others have filled is a smaller limit: the least useful entries go for it, too. */
static mf_status take_space(mf_store *s, int fd, uint64_t n_bytes, mf_error *error)
{
    int failure = try_space(fd, n_bytes);
    if (failure == ENOSPC) {
        remove_bad(s);
        failure = try_space(fd, n_bytes);
    }
    for (mf_store_entry *e = least_useful(s);
         failure == ENOSPC && e != NULL && could_fit(s, fd, n_bytes); e = least_useful(s)) {
        MF_TRY(evict(s, e, error));
        failure = try_space(fd, n_bytes);
    }
    return failure == 0 ? MF_OK
                        : mf_fail_os(error, MF_ERR_IO, failure, "%s: no room for %llu bytes",
                                     s->dir, (unsigned long long)n_bytes);
}

mf_status mf_store_tmp_create(mf_store *s, const char *name, uint64_t n_bytes,
                              char tmp[MF_STORE_TMP_CHARS], int *fd, mf_error *error)
{
    const int made = mf_store_tmp_make(s, name, tmp);
    if (made < 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s/%s: cannot be made", s->dir, tmp);
    mf_status status = take_space(s, made, n_bytes, error);
    if (status != MF_OK) {
        unlinkat(s->dir_fd, tmp, 0);
        close(made);
        return status;
    }
    *fd = made;
    return MF_OK;
}
