/* SPDX-License-Identifier: MIT */
/*
 * Partial files under hard links, which outlive that they are renamed; who waits for which of their
 * units; and the thread that fetches. A file is known by its device and inode, for that is what a
 * descriptor says.
 */
#include "hub_ahead.h"
#include "hub_fail.h"
#include "hub_model.h"
#include "hub_store.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER ".moeflux-while"

typedef struct ahead_file {
    dev_t device;
    ino_t inode;
    mf_hub_item *item; /* NULL: it is whole, or nobody fetches it any more */
    bool is_whole;
    bool is_used; /* something was read of it before it was whole */
} ahead_file;

/* Somebody waits for these units; on their stack. */
typedef struct ahead_need {
    ahead_file *file;
    uint64_t first, end;
    struct ahead_need *next;
} ahead_need;

struct mf_hub_ahead {
    mf_hub_model *model;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char folder[MF_HUB_PATH_CHARS];
    /* Under the lock. */
    ahead_file *files; /* of each of the listing's files; fixed once is_open */
    ahead_need *first_need, *last_need;
    mf_hub_progress progress;
    bool is_open, is_over, is_failed, is_cancelled;
    bool has_links; /* the folder is ours */
    int folder_fd;  /* locked as long as its names are in use; -1: not yet */
    mf_error error;
};

/* ---- called by the fetching thread ---- */

void mf_hub_ahead_lock(mf_hub_ahead *a)
{
    if (a)
        pthread_mutex_lock(&a->lock);
}

void mf_hub_ahead_unlock(mf_hub_ahead *a)
{
    if (!a)
        return;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static bool make_link(mf_hub_ahead *a, const char *from, size_t i, mf_error *error)
{
    const mf_hub_file *file = &a->model->listing.files[i];
    char to[MF_HUB_PATH_CHARS];
    struct stat st;
    const int n = snprintf(to, sizeof to, "%s/%s", a->folder, file->path);
    if (n < 0 || (size_t)n >= sizeof to)
        return mf_hub_fail(error, MF_ERR_ARGUMENT, "%.600s: the path is too long", a->folder);
    if (!mf_hub_make_folders(to, error))
        return false;
    if (link(from, to) != 0 || stat(to, &st) != 0)
        return mf_hub_fail_os(error, errno,
                              "%.900s: cannot make this link, which --while-pulling needs", to);
    a->files[i].device = st.st_dev;
    a->files[i].inode = st.st_ino;
    return true;
}

static mf_hub_item *item_of(mf_hub_item *items, size_t n_items, const mf_hub_file *file)
{
    for (size_t i = 0; i < n_items; i++)
        if (strcmp(items[i].file->blob, file->blob) == 0)
            return &items[i];
    return NULL;
}

static bool link_all(mf_hub_ahead *a, const char *blobs_dir, mf_hub_item *items, size_t n_items,
                     mf_error *error)
{
    char blob[MF_HUB_PATH_CHARS];
    for (size_t i = 0; i < a->model->listing.n_files; i++) {
        const mf_hub_file *file = &a->model->listing.files[i];
        mf_hub_item *item = item_of(items, n_items, file);
        if (!file->is_wanted || (!item && !file->is_held))
            continue;
        const int n = snprintf(blob, sizeof blob, "%s/%s", blobs_dir, file->blob);
        if (n < 0 || (size_t)n >= sizeof blob)
            return mf_hub_fail(error, MF_ERR_ARGUMENT, "%.600s: the path is too long", blobs_dir);
        a->files[i].item = item;
        a->files[i].is_whole = !item;
        if (!make_link(a, item ? item->part.path : blob, i, error))
            return false;
    }
    return true;
}

/* The store's lock is gone when all has come, and the names are read for longer. */
static bool lock_folder(mf_hub_ahead *a, mf_error *error)
{
    if (mkdir(a->folder, 0777) == 0 || errno == EEXIST)
        a->folder_fd = open(a->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (a->folder_fd < 0)
        return mf_hub_fail_os(error, errno, "%.900s: cannot make this folder", a->folder);
    if (flock(a->folder_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return true;
    return mf_hub_fail(error, MF_ERR_STATE, "%.900s: another moeflux is fetching this model",
                       a->folder);
}

bool mf_hub_ahead_open(mf_hub_ahead *a, const char *blobs_dir, mf_hub_item *items, size_t n_items,
                       mf_error *error)
{
    if (!a)
        return true;
    mf_hub_ahead_lock(a);
    a->has_links = lock_folder(a, error);
    const bool good = a->has_links && link_all(a, blobs_dir, items, n_items, error);
    a->is_open = good;
    mf_hub_ahead_unlock(a);
    return good;
}

bool mf_hub_ahead_wanted(mf_hub_ahead *a, mf_hub_free_fn is_free, mf_hub_item **item,
                         uint64_t *first_unit, uint64_t *end_unit)
{
    if (!a)
        return false;
    for (const ahead_need *need = a->first_need; need; need = need->next) {
        uint64_t unit = need->first;
        if (!need->file->item)
            continue;
        while (unit < need->end && !is_free(need->file->item, unit))
            unit++;
        if (unit == need->end)
            continue;
        *item = need->file->item;
        *first_unit = unit;
        *end_unit = need->end;
        return true;
    }
    return false;
}

void mf_hub_ahead_whole(mf_hub_ahead *a, const mf_hub_item *item)
{
    if (!a)
        return;
    mf_hub_ahead_lock(a);
    for (size_t i = 0; i < a->model->listing.n_files; i++)
        if (a->files[i].item == item) {
            a->files[i].item = NULL;
            a->files[i].is_whole = true;
        }
    mf_hub_ahead_unlock(a);
}

bool mf_hub_ahead_may_restart(mf_hub_ahead *a, const mf_hub_item *item)
{
    bool is_used = false;
    if (!a)
        return true;
    mf_hub_ahead_lock(a);
    for (size_t i = 0; i < a->model->listing.n_files; i++)
        is_used = is_used || (a->files[i].item == item && a->files[i].is_used);
    mf_hub_ahead_unlock(a);
    return !is_used;
}

void mf_hub_ahead_close(mf_hub_ahead *a)
{
    if (!a)
        return;
    mf_hub_ahead_lock(a);
    for (size_t i = 0; i < a->model->listing.n_files; i++)
        a->files[i].item = NULL;
    a->is_over = true;
    mf_hub_ahead_unlock(a);
}

/* ---- called by who reads ---- */

static ahead_file *file_of(const mf_hub_ahead *a, int fd)
{
    struct stat st;
    if (!a->is_open || fstat(fd, &st) != 0)
        return NULL;
    for (size_t i = 0; i < a->model->listing.n_files; i++)
        if (a->files[i].inode == st.st_ino && a->files[i].device == st.st_dev)
            return &a->files[i];
    return NULL;
}

static bool is_there(const ahead_need *need)
{
    uint64_t unit = need->first;
    if (!need->file->item)
        return need->file->is_whole;
    while (unit < need->end && mf_hub_partial_has(&need->file->item->part, unit))
        unit++;
    return unit == need->end;
}

static void add_need(mf_hub_ahead *a, ahead_need *need)
{
    if (a->last_need)
        a->last_need->next = need;
    else
        a->first_need = need;
    a->last_need = need;
    mf_hub_client_wake(a->model->client);
}

static void remove_need(mf_hub_ahead *a, ahead_need *need)
{
    ahead_need *before = NULL;
    for (ahead_need *n = a->first_need; n != need; n = n->next)
        before = n;
    if (before)
        before->next = need->next;
    else
        a->first_need = need->next;
    if (a->last_need == need)
        a->last_need = before;
}

static int wait_for(mf_hub_ahead *a, ahead_need *need)
{
    need->file->is_used = need->file->is_used || need->file->item;
    if (is_there(need))
        return 0;
    add_need(a, need);
    while (!a->is_cancelled && !a->is_over && !a->is_failed && !is_there(need))
        pthread_cond_wait(&a->changed, &a->lock);
    remove_need(a, need);
    if (a->is_cancelled)
        return ECANCELED;
    return is_there(need) ? 0 : EIO;
}

int mf_hub_ahead_await(void *ahead, int fd, uint64_t offset, uint64_t n_bytes)
{
    mf_hub_ahead *a = ahead;
    int result = 0;
    pthread_mutex_lock(&a->lock);
    ahead_file *file = file_of(a, fd);
    if (a->is_failed)
        result = EIO;
    else if (file && !file->item && !file->is_whole)
        result = a->is_cancelled ? ECANCELED : EIO;
    else if (file && file->item) {
        const uint64_t size = file->item->file->n_bytes;
        const uint64_t begin = offset < size ? offset : size;
        const uint64_t end = n_bytes < size - begin ? begin + n_bytes : size;
        ahead_need need = {file, begin / MF_HUB_UNIT_BYTES, mf_hub_units(end), NULL};
        if (end > begin)
            result = a->is_cancelled ? ECANCELED : wait_for(a, &need);
    }
    pthread_mutex_unlock(&a->lock);
    return result;
}

bool mf_hub_ahead_look(mf_hub_ahead *a, mf_hub_progress *progress, mf_error *error)
{
    pthread_mutex_lock(&a->lock);
    const bool good = !a->is_failed;
    *progress = a->progress;
    progress->why = "";
    if (!good && error)
        *error = a->error;
    pthread_mutex_unlock(&a->lock);
    return good;
}

/* ---- the thread ---- */

static bool tick(void *user, const mf_hub_progress *progress)
{
    mf_hub_ahead *a = user;
    pthread_mutex_lock(&a->lock);
    a->progress = *progress;
    const bool goes_on = !a->is_cancelled;
    pthread_mutex_unlock(&a->lock);
    return goes_on;
}

static void *fetch(void *arg)
{
    mf_hub_ahead *a = arg;
    mf_error error = {0};
    const bool good = mf_hub_fetch(a->model, &error);
    mf_hub_ahead_lock(a);
    a->is_over = true;
    a->is_failed = !good && !a->is_cancelled;
    a->error = error;
    mf_hub_ahead_unlock(a);
    return NULL;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

static void remove_folder(const char *folder)
{
    (void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Until something changes, or a little later. */
static void wait_a_little(mf_hub_ahead *a)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&a->changed, &a->lock, &until);
}

static bool wait_until_open(mf_hub_ahead *a, bool (*stop)(void), mf_error *error)
{
    pthread_mutex_lock(&a->lock);
    while (!a->is_open && !a->is_over && !stop())
        wait_a_little(a);
    const bool is_open = a->is_open, is_failed = a->is_failed;
    if (is_failed)
        *error = a->error;
    pthread_mutex_unlock(&a->lock);
    return is_open || is_failed ||
           mf_hub_fail(error, MF_ERR_CANCELLED, "interrupted; the same command goes on from here");
}

static bool wait_for_expert_head(mf_hub_ahead *a, const mf_hub_file *file, int fd)
{
    unsigned char start[MF_HUB_EXPERT_START];
    return mf_hub_ahead_await(a, fd, 0, sizeof start) == 0 &&
           pread(fd, start, sizeof start, 0) == sizeof start &&
           mf_hub_ahead_await(a, fd, 0, mf_hub_expert_head_bytes(file, start)) == 0;
}

/* As much again, until the header's end is there; of one that is very long, all of the file. */
static bool wait_for_gguf_head(mf_hub_ahead *a, const mf_hub_file *file, int fd)
{
    bool goes_on = true, good = true;
    for (uint64_t n = MF_HUB_GGUF_BYTES; good && goes_on && n < file->n_bytes; n *= 2) {
        if (n > MF_HUB_MAX_HEADER_BYTES)
            break;
        char *bytes = malloc((size_t)n);
        good = bytes && mf_hub_ahead_await(a, fd, 0, n) == 0 &&
               pread(fd, bytes, (size_t)n, 0) == (ssize_t)n;
        goes_on = good && mf_hub_gguf_goes_on(bytes, (size_t)n);
        free(bytes);
    }
    return good && (!goes_on || mf_hub_ahead_await(a, fd, 0, file->n_bytes) == 0);
}

/* What the engine reads without asking: small files, and headers. */
static bool wait_for_head(mf_hub_ahead *a, const mf_hub_file *file, int fd)
{
    unsigned char length[8];
    if (mf_hub_is_gguf(file->path))
        return wait_for_gguf_head(a, file, fd);
    if (mf_hub_has_expert_head(file))
        return wait_for_expert_head(a, file, fd);
    if (mf_hub_ends_with(file->path, ".bin"))
        return true;
    if (!mf_hub_ends_with(file->path, ".safetensors"))
        return mf_hub_ahead_await(a, fd, 0, file->n_bytes) == 0;
    if (mf_hub_ahead_await(a, fd, 0, sizeof length) != 0 ||
        pread(fd, length, sizeof length, 0) != sizeof length)
        return false;
    const uint64_t n = mf_hub_length(length);
    return mf_hub_ahead_await(a, fd, 0, n < file->n_bytes ? n + 8 : file->n_bytes) == 0;
}

static bool wait_for_heads(mf_hub_ahead *a, mf_error *error)
{
    char path[MF_HUB_PATH_CHARS];
    bool good = true;
    for (size_t i = 0; i < a->model->listing.n_files && good; i++) {
        const mf_hub_file *file = &a->model->listing.files[i];
        if (!file->is_wanted)
            continue;
        (void)snprintf(path, sizeof path, "%.*s/%.1000s", MF_HUB_PATH_CHARS - 1002, a->folder,
                       file->path);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        good = fd >= 0 && wait_for_head(a, file, fd);
        if (fd >= 0)
            close(fd);
    }
    mf_hub_progress progress;
    if (!good && mf_hub_ahead_look(a, &progress, error))
        return mf_hub_fail(error, MF_ERR_IO, "%.900s: cannot be read", path);
    return good;
}

void mf_hub_ahead_clear(const mf_hub_places *places, const mf_hub_name *name)
{
    char folder[MF_HUB_PATH_CHARS];
    if (!mf_hub_folder(places, name, FOLDER, folder))
        return;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) /* else somebody reads there */
        remove_folder(folder);
    close(fd);
}

static mf_hub_ahead *make(mf_hub_model *model)
{
    mf_hub_ahead *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->model = model;
    a->folder_fd = -1;
    a->files = calloc(model->listing.n_files + 1, sizeof *a->files);
    if (!a->files) {
        free(a);
        return NULL;
    }
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_t monotonic; /* a clock that is set back makes no wait longer */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&a->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    model->options.ahead = a;
    model->options.tick = tick;
    model->options.user = a;
    return a;
}

static void release(mf_hub_ahead **ahead)
{
    mf_hub_ahead *a = *ahead;
    a->model->options.ahead = NULL;
    if (a->folder_fd >= 0)
        close(a->folder_fd);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a->files);
    free(a);
    *ahead = NULL;
}

/* Signals are for the program's own threads. */
static bool start_thread(mf_hub_ahead *a)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool good = pthread_create(&a->thread, NULL, fetch, a) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return good;
}

bool mf_hub_ahead_begin(mf_hub_model *model, bool (*stop)(void), mf_hub_ahead **out,
                        char path[MF_HUB_PATH_CHARS], mf_error *error)
{
    mf_hub_ahead *a = make(model);
    if (!a)
        return mf_hub_fail(error, MF_ERR_NO_MEMORY, "no memory for %s", model->name.repo);
    const bool has_name = mf_hub_folder(&model->places, &model->name, FOLDER, a->folder);
    if (!has_name || !start_thread(a)) {
        release(&a);
        return has_name ? mf_hub_fail(error, MF_ERR_NO_MEMORY, "no thread to fetch with")
                        : mf_hub_fail(error, MF_ERR_ARGUMENT, "the cache's path is too long");
    }
    if (wait_until_open(a, stop, error) && a->is_open && wait_for_heads(a, error) &&
        mf_hub_name_model(model, a->folder, path, error)) {
        *out = a;
        return true;
    }
    mf_hub_ahead_end(&a);
    return false;
}

void mf_hub_ahead_cancel(mf_hub_ahead *a)
{
    if (!a)
        return;
    mf_hub_ahead_lock(a);
    a->is_cancelled = true;
    mf_hub_ahead_unlock(a);
    mf_hub_client_wake(a->model->client);
}

void mf_hub_ahead_end(mf_hub_ahead **ahead)
{
    mf_hub_ahead *a = *ahead;
    if (!a)
        return;
    mf_hub_ahead_cancel(a);
    pthread_join(a->thread, NULL);
    if (a->has_links) /* else another program's may be there */
        remove_folder(a->folder);
    release(ahead);
}
