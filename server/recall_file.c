/* SPDX-License-Identifier: MIT */
/* One thread writes; the others leave it what is to be written in a bounded queue. */
#include "recall_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_WAITING 256
#define NAME_CHARS 64

/* An answer, or tools. */
typedef struct item {
    mf_srv_kept *kept;
    char *tools;
} item;

struct mf_srv_recall_file {
    mf_srv_recall_file_options options;
    mf_srv_recall *recall;
    mf_srv_answers_head head;
    char name[NAME_CHARS];
    int directory, fd;
    uint64_t n_bytes; /* of the file, all of it whole */
    bool has_failed;  /* nothing more is written */

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    item waiting[MAX_WAITING];
    size_t n_waiting;
    bool is_ending;
};

__attribute__((format(printf, 2, 3))) static void say(const mf_srv_recall_file *f,
                                                      const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (f->options.log)
        f->options.log(f->options.log_user, MF_LOG_WARNING, line);
}

static void free_item(item *it)
{
    mf_srv_kept_drop(it->kept);
    free(it->tools);
}

/* ----------------------------------------------------------------------------------- writing -- */

static bool write_at(int fd, const void *bytes, size_t n_bytes, uint64_t at)
{
    const char *from = bytes;
    while (n_bytes > 0) {
        const ssize_t n = pwrite(fd, from, n_bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        n_bytes -= (size_t)n;
        at += (size_t)n;
    }
    return true;
}

static bool write_head(const mf_srv_recall_file *f, int fd)
{
    unsigned char head[MF_SRV_ANSWERS_HEAD_BYTES];
    mf_srv_answers_head_write(&f->head, head);
    return ftruncate(fd, 0) == 0 && write_at(fd, head, sizeof head, 0);
}

static void fail(mf_srv_recall_file *f)
{
    say(f, "%s/%s: %s: answers are kept in memory alone from now on", f->options.directory, f->name,
        strerror(errno));
    f->has_failed = true;
    /* what is half written is cut off, or found damaged by who reads it */
    if (ftruncate(f->fd, (off_t)f->n_bytes) != 0)
        (void)unlinkat(f->directory, f->name, 0);
}

/* One record behind the others; false: it could not be written. */
static bool append(int fd, const mf_srv_bytes *record, uint64_t *n_bytes)
{
    if (record->has_failed || !write_at(fd, record->data, record->n_bytes, *n_bytes))
        return false;
    *n_bytes += record->n_bytes;
    return true;
}

/* Half of what the file may have: what a new file begins with, and what one answer may take. */
static uint64_t half_of(const mf_srv_recall_file *f)
{
    return f->options.max_bytes / 2;
}

/* The first of those that are kept that the file begins with: the newest of them, but for what is
 * too large for any file. */
static size_t first_of(const mf_srv_recall_file *f, const mf_srv_recall_list *list)
{
    size_t first = list->n_kept;
    for (uint64_t n_bytes = 0; first > 0; first--) {
        const uint64_t n = mf_srv_kept_bytes(list->kept[first - 1]);
        if (n > half_of(f))
            continue;
        n_bytes += n;
        if (n_bytes > half_of(f))
            break;
    }
    return first;
}

/* All that is kept, the newest of it up to half of what the file may have, oldest first. */
static bool write_all(mf_srv_recall_file *f, int fd, uint64_t *n_bytes)
{
    mf_srv_recall_list list;
    mf_srv_bytes record = {0};
    if (!mf_srv_recall_list_all(f->recall, &list))
        return false;
    *n_bytes = MF_SRV_ANSWERS_HEAD_BYTES;
    bool is_good = write_head(f, fd);
    for (size_t i = 0; is_good && i < list.n_tools; i++) {
        record.n_bytes = 0;
        mf_srv_record_put_tools(&f->head.key, list.tools[i], &record);
        is_good = append(fd, &record, n_bytes);
    }
    for (size_t i = first_of(f, &list); is_good && i < list.n_kept; i++) {
        if (mf_srv_kept_bytes(list.kept[i]) > half_of(f))
            continue;
        record.n_bytes = 0;
        mf_srv_record_put_answer(&f->head.key, list.kept[i], &record);
        is_good = append(fd, &record, n_bytes);
    }
    mf_srv_bytes_free(&record);
    mf_srv_recall_list_free(&list);
    return is_good;
}

/* Another file in the place of one that is full: whole on the drive before it has the name. */
static bool begin_anew(mf_srv_recall_file *f)
{
    char tmp[NAME_CHARS + 4];
    uint64_t n_bytes = 0;
    snprintf(tmp, sizeof tmp, "tmp-%s",
             f->name);                    /* nobody else's: the file of the name is locked */
    (void)unlinkat(f->directory, tmp, 0); /* of a server that was killed */
    const int fd =
        openat(f->directory, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !write_all(f, fd, &n_bytes) || fdatasync(fd) != 0 ||
        renameat(f->directory, tmp, f->directory, f->name) != 0) {
        const int failure = errno;
        (void)unlinkat(f->directory, tmp, 0);
        close(fd);
        errno = failure;
        return false;
    }
    close(f->fd);
    f->fd = fd;
    f->n_bytes = n_bytes;
    return true;
}

static void write_item(mf_srv_recall_file *f, const item *it)
{
    mf_srv_bytes record = {0};
    errno = ENOMEM;
    if (it->kept)
        mf_srv_record_put_answer(&f->head.key, it->kept, &record);
    else
        mf_srv_record_put_tools(&f->head.key, it->tools, &record);
    const bool is_full = f->n_bytes + record.n_bytes > f->options.max_bytes;
    if (record.n_bytes <= half_of(f) &&
        !(is_full ? begin_anew(f) : append(f->fd, &record, &f->n_bytes)))
        fail(f);
    mf_srv_bytes_free(&record);
}

static void *write_items(void *file)
{
    mf_srv_recall_file *f = file;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (f->n_waiting == 0 && !f->is_ending)
            pthread_cond_wait(&f->changed, &f->lock);
        if (f->n_waiting == 0)
            break;
        item it = f->waiting[0];
        memmove(f->waiting, f->waiting + 1, --f->n_waiting * sizeof it);
        pthread_mutex_unlock(&f->lock);
        if (!f->has_failed)
            write_item(f, &it);
        free_item(&it);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* Something more to be written; it goes where there is no room for it. */
static void leave(mf_srv_recall_file *f, item it)
{
    pthread_mutex_lock(&f->lock);
    const bool has_room = f->n_waiting < MAX_WAITING;
    if (has_room)
        f->waiting[f->n_waiting++] = it;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    if (!has_room)
        free_item(&it);
}

static void leave_kept(void *file, mf_srv_kept *kept)
{
    __atomic_add_fetch(&kept->n_refs, 1, __ATOMIC_RELAXED);
    leave(file, (item){kept, NULL});
}

static void leave_tools(void *file, const char *tools)
{
    char *copy = strdup(tools);
    if (copy)
        leave(file, (item){NULL, copy});
}

/* ----------------------------------------------------------------------------------- reading -- */

/* False: the end of the file, or it cannot be read. */
static bool read_at(int fd, void *bytes, size_t n_bytes, uint64_t at)
{
    char *to = bytes;
    while (n_bytes > 0) {
        const ssize_t n = pread(fd, to, n_bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        n_bytes -= (size_t)n;
        at += (size_t)n;
    }
    return true;
}

/* What a record holds comes back; false: it is none. */
static bool take_record(mf_srv_recall_file *f, const mf_srv_record_head *head,
                        const unsigned char *bytes)
{
    if (!mf_srv_record_is_whole(&f->head.key, head, bytes))
        return false;
    if (head->kind == MF_SRV_RECORD_ANSWER) {
        mf_srv_kept *kept = mf_srv_record_answer(bytes, head->n_bytes, f->options.n_vocab);
        if (kept)
            mf_srv_recall_put(f->recall, kept);
        return kept != NULL;
    }
    char *tools =
        head->kind == MF_SRV_RECORD_TOOLS ? mf_srv_record_tools(bytes, head->n_bytes) : NULL;
    mf_srv_bytes copy = {0};
    if (tools)
        mf_srv_puts(&copy, tools);
    const bool is_good = tools && mf_srv_recall_order(f->recall, &copy);
    mf_srv_bytes_free(&copy);
    free(tools);
    return is_good;
}

/* All records up to the first that is none; *n_good: where it would begin. */
static void read_records(mf_srv_recall_file *f, uint64_t n_bytes, uint64_t *n_good)
{
    unsigned char begin[MF_SRV_RECORD_HEAD_BYTES];
    mf_srv_record_head head;
    *n_good = MF_SRV_ANSWERS_HEAD_BYTES;
    while (n_bytes - *n_good >= sizeof begin && read_at(f->fd, begin, sizeof begin, *n_good) &&
           mf_srv_record_head_read(begin, &head) &&
           head.n_bytes <= n_bytes - *n_good - sizeof begin) {
        unsigned char *bytes = malloc(head.n_bytes + 1);
        const bool is_good = bytes && read_at(f->fd, bytes, head.n_bytes, *n_good + sizeof begin) &&
                             take_record(f, &head, bytes);
        free(bytes);
        if (!is_good)
            return;
        *n_good += sizeof begin + head.n_bytes;
    }
}

/* The file's head, or a new one in its place. */
static bool read_file(mf_srv_recall_file *f, uint64_t n_bytes)
{
    unsigned char begin[MF_SRV_ANSWERS_HEAD_BYTES];
    mf_srv_answers_head head;
    f->head.key = *mf_srv_recall_key(f->recall);
    memcpy(f->head.model, f->options.model, sizeof f->head.model);
    f->n_bytes = MF_SRV_ANSWERS_HEAD_BYTES;
    if (n_bytes < sizeof begin || !read_at(f->fd, begin, sizeof begin, 0) ||
        !mf_srv_answers_head_read(begin, &head) ||
        memcmp(head.model, f->head.model, sizeof head.model) != 0) {
        if (n_bytes > 0)
            say(f, "%s/%s: no answers of this model, or damaged: it begins anew",
                f->options.directory, f->name);
        return write_head(f, f->fd);
    }
    f->head = head;
    mf_srv_recall_set_key(f->recall, &head.key);
    read_records(f, n_bytes, &f->n_bytes);
    if (f->n_bytes == n_bytes)
        return true;
    say(f, "%s/%s: damaged at byte %llu: what stands behind it is lost", f->options.directory,
        f->name, (unsigned long long)f->n_bytes);
    return ftruncate(f->fd, (off_t)f->n_bytes) == 0;
}

/* ----------------------------------------------------------------------------------- opening -- */

__attribute__((format(printf, 4, 5))) static mf_status refuse(mf_error *error, mf_status status,
                                                              int failure, const char *format, ...)
{
    va_list args;
    *error = (mf_error){.code = status, .os_errno = failure, .byte_position = MF_ERROR_NO_POSITION};
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return status;
}

/* The file is opened and locked, and still has its name then. */
static mf_status open_file(mf_srv_recall_file *f, uint64_t *n_bytes, mf_error *error)
{
    const char *directory = f->options.directory;
    struct stat is, named;
    f->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->directory < 0)
        return refuse(error, MF_ERR_IO, errno, "%s: %s", directory, strerror(errno));
    f->fd =
        openat(f->directory, f->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (f->fd < 0 || fstat(f->fd, &is) != 0)
        return refuse(error, MF_ERR_IO, errno, "%s/%s: %s", directory, f->name, strerror(errno));
    if (!S_ISREG(is.st_mode))
        return refuse(error, MF_ERR_IO, 0, "%s/%s: no file", directory, f->name);
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0 ||
        fstatat(f->directory, f->name, &named, AT_SYMLINK_NOFOLLOW) != 0 ||
        named.st_ino != is.st_ino || named.st_dev != is.st_dev || fstat(f->fd, &is) != 0)
        return refuse(error, MF_ERR_STATE, 0, "%s/%s: another server keeps its answers there",
                      directory, f->name);
    *n_bytes = (uint64_t)is.st_size;
    if (!read_file(f, *n_bytes))
        return refuse(error, MF_ERR_IO, errno, "%s/%s: %s", directory, f->name, strerror(errno));
    return MF_OK;
}

mf_status mf_srv_recall_file_open(const mf_srv_recall_file_options *options, mf_srv_recall *recall,
                                  mf_srv_recall_file **out, mf_error *error)
{
    uint64_t n_bytes = 0;
    mf_srv_recall_file *f = calloc(1, sizeof *f);
    if (!f)
        return refuse(error, MF_ERR_NO_MEMORY, 0, "no memory for kept answers");
    f->options = *options;
    f->recall = recall;
    f->directory = f->fd = -1;
    int n = snprintf(f->name, sizeof f->name, "answers-");
    for (size_t i = 0; i < sizeof options->model; i++)
        n += snprintf(f->name + n, sizeof f->name - (size_t)n, "%02x", options->model[i]);
    snprintf(f->name + n, sizeof f->name - (size_t)n, ".mfanswers");
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    mf_status status = open_file(f, &n_bytes, error);
    if (status == MF_OK && pthread_create(&f->thread, NULL, write_items, f) != 0)
        status = refuse(error, MF_ERR_NO_MEMORY, 0, "no thread for kept answers");
    f->has_thread = status == MF_OK;
    if (status != MF_OK) {
        mf_srv_recall_file_close(&f);
        return status;
    }
    mf_srv_recall_watch(recall, &(mf_srv_recall_watcher){leave_kept, leave_tools, f});
    *out = f;
    return MF_OK;
}

void mf_srv_recall_file_close(mf_srv_recall_file **file)
{
    mf_srv_recall_file *f = *file;
    if (!f)
        return;
    if (f->has_thread) {
        mf_srv_recall_watch(f->recall, NULL);
        pthread_mutex_lock(&f->lock);
        f->is_ending = true;
        pthread_cond_signal(&f->changed);
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
    }
    if (f->fd >= 0)
        close(f->fd);
    if (f->directory >= 0)
        close(f->directory);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
    *file = NULL;
}
