/* SPDX-License-Identifier: MIT */
/*
 * Files: threads take the next stretch of the file, fill an aligned buffer of their own and write
 * it in place, past the page cache where the file system allows. Memory: one buffer a thread.
 */
#include "make_random_checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 4 << 20, ALIGN_BYTES = 4096, MAX_THREADS = 64 };

typedef struct mf_rc_job {
    const mf_rc_file *file;
    int fd;
    _Atomic uint64_t next;
} mf_rc_job;

void mf_rc_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("make_random_checkpoint: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

void *mf_rc_alloc(void *old, size_t n_bytes)
{
    void *p = realloc(old, n_bytes ? n_bytes : 1);
    if (!p)
        mf_rc_die("out of memory for %zu bytes", n_bytes);
    return p;
}

/* The part of block that lies in [begin, end) of the file, to dst = the byte at begin. */
static void fill_block(const mf_rc_block *block, uint64_t begin, uint64_t end, unsigned char *dst)
{
    uint64_t block_end = block->offset + block->n_repeats * block->repeat_bytes;
    uint64_t at = begin > block->offset ? begin : block->offset;
    end = end < block_end ? end : block_end;
    while (at < end) {
        uint64_t repeat = (at - block->offset) / block->repeat_bytes;
        uint64_t inside = (at - block->offset) % block->repeat_bytes;
        const mf_rc_part *part = block->parts;
        for (; inside >= part->bytes; part++)
            inside -= part->bytes;
        uint64_t n = part->bytes - inside < end - at ? part->bytes - inside : end - at;
        mf_rc_fill(part, part->first_byte + repeat * part->bytes + inside, dst + (at - begin),
                   (size_t)n);
        at += n;
    }
}

static void fill_range(const mf_rc_file *file, uint64_t begin, uint64_t end, unsigned char *dst)
{
    memset(dst, 0, (size_t)(end - begin));
    if (file->head && begin < file->head->length) {
        uint64_t stop = end < file->head->length ? end : file->head->length;
        memcpy(dst, file->head->data + begin, (size_t)(stop - begin));
    }
    size_t low = 0, high = file->n_blocks; /* the first block that ends after begin */
    while (low < high) {
        size_t middle = (low + high) / 2;
        const mf_rc_block *block = &file->blocks[middle];
        if (block->offset + block->n_repeats * block->repeat_bytes <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < file->n_blocks && file->blocks[low].offset < end; low++)
        fill_block(&file->blocks[low], begin, end, dst);
}

static void write_all(int fd, const char *path, const unsigned char *data, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t got = pwrite(fd, data, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        int flags = fcntl(fd, F_GETFL);
        if (got < 0 && errno == EINVAL && flags >= 0 && (flags & O_DIRECT)) {
            fcntl(fd, F_SETFL, flags & ~O_DIRECT); /* direct only by name on this file system */
            continue;
        }
        if (got <= 0)
            mf_rc_die("%s: write of %zu bytes at %llu: %s (the checkpoint is incomplete)", path, n,
                      (unsigned long long)at, got < 0 ? strerror(errno) : "wrote nothing");
        if (got % ALIGN_BYTES && (size_t)got < n && flags >= 0)
            fcntl(fd, F_SETFL, flags & ~O_DIRECT);
        data += got;
        n -= (size_t)got;
        at += (uint64_t)got;
    }
}

static void *run_job(void *arg)
{
    mf_rc_job *job = arg;
    const mf_rc_file *file = job->file;
    void *buffer = NULL;
    if (posix_memalign(&buffer, ALIGN_BYTES, CHUNK_BYTES))
        mf_rc_die("out of memory for a buffer");
    for (;;) {
        uint64_t begin = atomic_fetch_add(&job->next, CHUNK_BYTES);
        if (begin >= file->n_bytes)
            break;
        uint64_t end = begin + CHUNK_BYTES;
        if (end >
            file->n_bytes) /* direct writes are whole blocks; the rest is cut off afterwards */
            end = (file->n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
        fill_range(file, begin, end, buffer);
        write_all(job->fd, file->path, buffer, (size_t)(end - begin), begin);
    }
    free(buffer);
    return NULL;
}

static int open_file(const char *path, uint64_t n_bytes)
{
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    int fd = open(path, flags | O_DIRECT, 0644);
    if (fd < 0 && errno == EINVAL)
        fd = open(path, flags, 0644);
    if (fd < 0)
        mf_rc_die("%s: cannot create: %s", path, strerror(errno));
    int rc = n_bytes ? posix_fallocate(fd, 0, (off_t)n_bytes) : 0;
    if (rc != 0 && rc != EOPNOTSUPP && rc != EINVAL)
        mf_rc_die("%s: cannot reserve %llu bytes: %s (the checkpoint is incomplete)", path,
                  (unsigned long long)n_bytes, strerror(rc));
    return fd;
}

void mf_rc_write_file(const mf_rc_file *file, uint64_t n_threads)
{
    mf_rc_job job = {.file = file, .fd = open_file(file->path, file->n_bytes)};
    pthread_t threads[MAX_THREADS];
    size_t n_started = 0;
    for (uint64_t i = 1; i < n_threads && i < MAX_THREADS; i++)
        n_started += pthread_create(&threads[n_started], NULL, run_job, &job) == 0;
    run_job(&job);
    for (size_t i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
    if (ftruncate(job.fd, (off_t)file->n_bytes) != 0 || fdatasync(job.fd) != 0 ||
        close(job.fd) != 0)
        mf_rc_die("%s: cannot finish: %s (the checkpoint is incomplete)", file->path,
                  strerror(errno));
}

void mf_rc_write_text(const char *path, const mf_rc_text *text)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        mf_rc_die("%s: cannot create: %s", path, strerror(errno));
    bool bad = fwrite(text->data, 1, text->length, f) != text->length;
    if (fclose(f) != 0 || bad)
        mf_rc_die("%s: cannot write: %s (the checkpoint is incomplete)", path, strerror(errno));
}

void mf_rc_copy_file(const char *from, const char *to)
{
    FILE *f = fopen(from, "rb");
    if (!f)
        mf_rc_die("%s: cannot open: %s", from, strerror(errno));
    mf_rc_text text = {0};
    char buffer[65536];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;) {
        text.data = mf_rc_alloc(text.data, text.length + n);
        memcpy(text.data + text.length, buffer, n);
        text.length += n;
    }
    if (ferror(f))
        mf_rc_die("%s: cannot read", from);
    fclose(f);
    mf_rc_write_text(to, &text);
    mf_rc_text_free(&text);
}
