/* SPDX-License-Identifier: MIT */
/*
 * A held prefix taken over, a stored one read back, snapshots written and read: each with the time
 * of evaluating the same tokens, and the rates of copying memory and of the drive. Files that are
 * read were dropped from the page cache before.
 */
#include "bench_sessions.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES ((size_t)1 << 20)
#define N_READERS 4u

static double seconds_since(uint64_t start)
{
    return (double)(mf_now_us() - start) * 1e-6;
}

static int drop_file(const char *path, const struct stat *stat, int kind, struct FTW *at)
{
    (void)stat, (void)at;
    int fd = kind == FTW_F ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fdatasync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return 0;
}

static int remove_file(const char *path, const struct stat *stat, int kind, struct FTW *at)
{
    (void)stat, (void)kind, (void)at;
    return remove(path);
}

static void drop_page_cache(const char *directory)
{
    nftw(directory, drop_file, 8, FTW_PHYS);
}

/* ----------------------------------------------------------------------- the drive by itself -- */

typedef struct reader {
    pthread_t thread;
    const char *path;
    uint64_t n_bytes, first;
} reader;

static void *read_stripes(void *arg)
{
    const reader *r = arg;
    void *block = aligned_alloc(4096, READ_BYTES);
    int fd = open(r->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    for (uint64_t at = r->first * READ_BYTES; block != NULL && fd >= 0 && at < r->n_bytes;
         at += N_READERS * READ_BYTES)
        if (pread(fd, block, READ_BYTES, (off_t)at) <= 0)
            bench_die(r->path, &(mf_error){.message = "cannot be read"});
    if (fd < 0)
        bench_die(r->path, &(mf_error){.message = "no direct I/O here"});
    close(fd);
    free(block);
    return NULL;
}

/* Seconds that reading the file takes, in large requests, several at once. */
static double raw_read(const char *path, uint64_t n_bytes)
{
    reader readers[N_READERS];
    uint64_t start = mf_now_us();
    for (uint32_t i = 0; i < N_READERS; i++) {
        readers[i] = (reader){.path = path, .n_bytes = n_bytes, .first = i};
        if (pthread_create(&readers[i].thread, NULL, read_stripes, &readers[i]) != 0)
            bench_die("no thread", NULL);
    }
    for (uint32_t i = 0; i < N_READERS; i++)
        pthread_join(readers[i].thread, NULL);
    return seconds_since(start);
}

static int open_new(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        bench_die(path, &(mf_error){.message = "cannot be made"});
    return fd;
}

static double raw_write(const char *path, const unsigned char *bytes, uint64_t n_bytes)
{
    int fd = open_new(path);
    uint64_t start = mf_now_us();
    for (uint64_t done = 0; done < n_bytes;) {
        ssize_t n = write(fd, bytes + done, n_bytes - done);
        if (n <= 0)
            bench_die(path, &(mf_error){.message = "cannot be written"});
        done += (uint64_t)n;
    }
    fsync(fd);
    double seconds = seconds_since(start);
    close(fd);
    return seconds;
}

/* --------------------------------------------------------------------------------------- parts */

static void print_sync(const char *what, double seconds, const mf_sync_result *r)
{
    static const char *const sources[] = {"nothing", "itself", "another session", "the store"};
    printf("%s: %zu tokens from %s, %zu evaluated\n", what, r->n_reused, sources[r->source],
           r->n_evaluated);
    bench_line("  time", 1e3 * seconds, "ms");
}

/* A new session brought to the prefix, rounds times; the median. */
static double time_sync(bench *b, const char *drop, mf_sync_result *result)
{
    double seconds[BENCH_MAX_ROUNDS];
    for (uint32_t i = 0; i < b->n_rounds; i++) {
        mf_session *session = NULL;
        BENCH_TRY(mf_session_create(b->engine, &session, &error));
        if (drop != NULL)
            drop_page_cache(drop);
        uint64_t start = mf_now_us();
        BENCH_TRY(mf_session_sync(session, b->tokens, b->n_prefix, result, &error));
        seconds[i] = seconds_since(start);
        mf_session_free(&session);
    }
    return bench_median(seconds, b->n_rounds);
}

static void in_memory(bench *b, const mf_session *holder, unsigned char *buffer, uint64_t n_bytes)
{
    double save[BENCH_MAX_ROUNDS], load[BENCH_MAX_ROUNDS], copy[BENCH_MAX_ROUNDS], dram, fma;
    unsigned char *other = malloc(n_bytes);
    mf_session *session = NULL;
    if (other == NULL)
        bench_die("no memory", NULL);
    memset(other, 1, n_bytes);
    for (uint32_t i = 0; i < b->n_rounds; i++) {
        uint64_t start = mf_now_us();
        BENCH_TRY(mf_snapshot_save(holder, buffer, n_bytes, &error));
        save[i] = seconds_since(start);
        BENCH_TRY(mf_session_create(b->engine, &session, &error));
        start = mf_now_us();
        BENCH_TRY(mf_snapshot_load(session, buffer, n_bytes, &error));
        load[i] = seconds_since(start);
        mf_session_free(&session);
        start = mf_now_us();
        memcpy(other, buffer, n_bytes);
        copy[i] = seconds_since(start);
    }
    BENCH_TRY(mf_engine_measure_compute(b->engine, 200, &dram, &fma, &error));
    double gb = (double)n_bytes * 1e-9, copied = bench_median(copy, b->n_rounds);
    double saved = bench_median(save, b->n_rounds), loaded = bench_median(load, b->n_rounds);
    printf("snapshot of %.1f MB, in memory:\n", 1e3 * gb);
    bench_line("  save", gb / saved, "GB/s");
    bench_line("  load", gb / loaded, "GB/s");
    bench_line("  copying as many bytes, one thread", gb / copied, "GB/s");
    bench_line("  reading memory, all threads", dram * 1e-9, "GB/s");
    bench_line("  save over copying", copied / saved, "");
    bench_line("  load over copying", copied / loaded, "");
    free(other);
}

static void through_file(bench *b, const mf_session *holder, const unsigned char *buffer,
                         uint64_t n_bytes)
{
    double save[BENCH_MAX_ROUNDS], load[BENCH_MAX_ROUNDS], raw_out[BENCH_MAX_ROUNDS],
        raw_in[BENCH_MAX_ROUNDS];
    char path[4096];
    snprintf(path, sizeof path, "%s/bench-sessions", b->directory);
    for (uint32_t i = 0; i < b->n_rounds; i++) {
        mf_session *session = NULL;
        raw_out[i] = raw_write(path, buffer, n_bytes);
        int fd = open_new(path);
        uint64_t start = mf_now_us();
        BENCH_TRY(mf_snapshot_save_fd(holder, fd, &error));
        fsync(fd);
        save[i] = seconds_since(start);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        raw_in[i] = raw_read(path, n_bytes);
        BENCH_TRY(mf_session_create(b->engine, &session, &error));
        lseek(fd, 0, SEEK_SET);
        start = mf_now_us();
        BENCH_TRY(mf_snapshot_load_fd(session, fd, &error));
        load[i] = seconds_since(start);
        close(fd);
        mf_session_free(&session);
    }
    unlink(path);
    double gb = (double)n_bytes * 1e-9, out = bench_median(raw_out, b->n_rounds);
    double in = bench_median(raw_in, b->n_rounds), saved = bench_median(save, b->n_rounds),
           loaded = bench_median(load, b->n_rounds);
    printf("snapshot to a file and back:\n");
    bench_line("  save and fsync", gb / saved, "GB/s");
    bench_line("  write and fsync of as many bytes", gb / out, "GB/s");
    bench_line("  load", gb / loaded, "GB/s");
    bench_line("  raw reads of as many bytes", gb / in, "GB/s");
    bench_line("  save over writing", out / saved, "");
    bench_line("  load over reading", in / loaded, "");
}

/* The holder is freed on the way: from then on only the store has the prefix. */
static void from_store(bench *b, mf_session **holder, uint64_t n_bytes, double evaluated)
{
    char path[4096], probe[4096];
    mf_store *store = NULL;
    mf_sync_result result = {0};
    double raw[BENCH_MAX_ROUNDS];
    snprintf(path, sizeof path, "%s/bench-sessions-store", b->directory);
    snprintf(probe, sizeof probe, "%s/bench-sessions-raw", b->directory);
    BENCH_TRY(mf_store_open(path, NULL, &store, &error));
    uint64_t start = mf_now_us();
    BENCH_TRY(mf_store_put(store, *holder, &error));
    double put = seconds_since(start);
    mf_session_free(holder);
    mf_engine_set_store(b->engine, store);
    unsigned char *bytes = calloc(1, n_bytes);
    if (bytes == NULL)
        bench_die("no memory", NULL);
    raw_write(probe, bytes, n_bytes);
    free(bytes);
    for (uint32_t i = 0; i < b->n_rounds; i++)
        raw[i] = raw_read(probe, n_bytes);
    unlink(probe);
    double seconds = time_sync(b, path, &result), gb = (double)n_bytes * 1e-9;
    mf_engine_set_store(b->engine, NULL);
    mf_store_close(&store);
    nftw(path, remove_file, 8, FTW_DEPTH | FTW_PHYS);

    print_sync("sync from disk", seconds, &result);
    double reading = bench_median(raw, b->n_rounds);
    bench_line("  rate", gb / seconds, "GB/s");
    bench_line("  raw reads of as many bytes", gb / reading, "GB/s");
    bench_line("  rate over raw reads", reading / seconds, "");
    bench_line("  evaluating instead, times as long", evaluated / seconds, "");
    bench_line("  put (write, sync, rename)", gb / put, "GB/s");
}

void bench_state(bench *b)
{
    mf_session *holder = NULL;
    mf_sync_result result = {0};
    BENCH_TRY(mf_session_create(b->engine, &holder, &error));
    uint64_t start = mf_now_us();
    BENCH_TRY(mf_session_eval(holder, b->tokens, b->n_prefix, &error));
    double evaluated = seconds_since(start);
    printf("a prefix of %u tokens, %.1f MB of state:\n", b->n_prefix,
           (double)mf_session_state_bytes(holder) * 1e-6);
    bench_line("  evaluating it", 1e3 * evaluated, "ms");

    double seconds = time_sync(b, NULL, &result);
    print_sync("sync with the prefix held", seconds, &result);
    bench_line("  evaluating instead, times as long", evaluated / seconds, "");

    uint64_t n_bytes = mf_snapshot_bytes(holder);
    unsigned char *buffer = malloc(n_bytes);
    if (buffer == NULL)
        bench_die("no memory", NULL);
    memset(buffer, 1, n_bytes);
    in_memory(b, holder, buffer, n_bytes);
    if (b->directory != NULL)
        through_file(b, holder, buffer, n_bytes);
    free(buffer);
    if (b->directory != NULL)
        from_store(b, &holder, n_bytes, evaluated);
    mf_session_free(&holder);
}
