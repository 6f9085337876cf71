/* SPDX-License-Identifier: MIT */
/* Loading of the resident weights: every planned copy, by several threads, in file order, large
 * tensors by several of them. Reading, converting and uploading go on side by side. */
#include "model/model.h"

#include "base/files.h"
#include "base/half.h"
#include "base/threads.h"
#include "model/load_packed.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More threads than cores: a cold page cache wants several reads in flight. */
#define LOAD_THREADS 4u

/* Copies are cut into runs of so many bytes at most; a thread takes so many runs at a time, and has
 * the system read all of them ahead. */
#define RUN_BYTES ((uint64_t)8 << 20)
#define RUNS_PER_TASK 4u

/* Bytes of a file that go through a block at a time; as many floats of 16 bits are twice the bytes.
 */
#define PIECE_BYTES ((uint64_t)1 << 20)

/* Bytes of one copy. */
typedef struct load_run {
    const mf_copy *copy;
    uint64_t first, n_bytes;
} load_run;

/* A thread fills one block while the other is on its way. */
typedef struct load_block {
    unsigned char *bytes; /* what is read, then what it is converted to */
    mf_ticket ticket;     /* of the upload that reads it */
} load_block;

typedef struct load_blocks {
    load_block block[2];
    uint32_t next;
} load_blocks;

typedef struct load_job {
    mf_backend *backend;
    mf_buffer resident;
    unsigned char *host; /* NULL: the backend's memory is out of reach, bytes go through blocks */
    const mf_binder *binder;
    const int *fds;
    load_run *runs;
    size_t n_runs;
    load_blocks blocks[LOAD_THREADS];
    uint64_t piece_bytes;
    atomic_int failed; /* the first failure wins */
    mf_error error;
} load_job;

/* Only one thread's error is kept: true for that one, which is to fill job->error. */
static bool is_first_failure(load_job *job)
{
    int expected = 0;
    return atomic_compare_exchange_strong(&job->failed, &expected, 1);
}

/* n bytes of the copy, from `first` on. */
static bool read_fully(load_job *job, const mf_copy *copy, uint64_t first, uint64_t n,
                       unsigned char *dest)
{
    const int fd = job->fds[copy->file];
    const char *path = job->binder->source->table.files[copy->file].path;
    const uint64_t at = copy->source + first;
    const int refused = mf_await_bytes(&job->binder->source->await, fd, at, n);
    mf_error error = {0};
    if (refused != 0)
        (void)mf_fail_os(&error, MF_ERR_IO, refused, "%s: read failed at byte %llu", path,
                         (unsigned long long)at);
    else if (mf_read_at(fd, path, dest, n, at, " inside a tensor", &error) == MF_OK)
        return true;
    if (is_first_failure(job))
        job->error = error;
    return false;
}

/* E8M0. */
static float power_of_two(uint32_t exponent)
{
    return exponent == 255 ? NAN : ldexpf(1.0f, (int)exponent - 127);
}

static void fail_table(load_job *job, const mf_copy *copy, const char *how)
{
    const mf_tensor_table *table = &job->binder->source->table;
    const char *name = "";
    for (size_t i = 0; i < table->n_tensors; i++)
        if (table->tensors[i].file == copy->file && table->tensors[i].offset == copy->source)
            name = table->tensors[i].name;
    if (is_first_failure(job))
        (void)mf_fail(&job->error, MF_ERR_FORMAT, "%s: tensor %s has %s",
                      table->files[copy->file].path, name, how);
}

/* Whether the values of a row differ: an expert has room for each row of a chunk once. `seen` has a
 * bit for each value, none set, before and after. */
static bool check_row(load_job *job, const mf_copy *copy, const int32_t *row, uint64_t *seen)
{
    char how[96];
    uint32_t n = 0;
    for (; n < copy->row_values; n++) {
        uint64_t *word = &seen[(uint32_t)row[n] / 64];
        const uint64_t bit = (uint64_t)1 << (uint32_t)row[n] % 64;
        if ((*word & bit) != 0)
            break;
        *word |= bit;
    }
    for (uint32_t i = 0; i < n; i++)
        seen[(uint32_t)row[i] / 64] = 0;
    if (n == copy->row_values)
        return true;
    snprintf(how, sizeof how, "%d twice in a row; expected %u different numbers in each", row[n],
             copy->row_values);
    fail_table(job, copy, how);
    return false;
}

/* Whole rows to int32; false if one is none of a table. */
static bool convert_table(load_job *job, const mf_copy *copy, const unsigned char *from,
                          uint64_t n_bytes, int32_t *to)
{
    uint64_t seen[MF_TABLE_LIMIT / 64] = {0};
    const size_t width = (size_t)mf_copy_width(copy->convert);
    for (uint64_t i = 0; i < n_bytes / width; i++) {
        int64_t value;
        if (copy->convert == MF_TENSOR_I32) {
            int32_t narrow;
            memcpy(&narrow, from + i * width, sizeof narrow);
            value = narrow;
        } else {
            memcpy(&value, from + i * width, sizeof value);
        }
        if (value < 0 || value >= copy->limit) {
            char how[96];
            snprintf(how, sizeof how, "%lld; expected 0 to %u", (long long)value, copy->limit - 1);
            fail_table(job, copy, how);
            return false;
        }
        to[i] = (int32_t)value;
        if ((i + 1) % copy->row_values == 0 &&
            !check_row(job, copy, to + i + 1 - copy->row_values, seen))
            return false;
    }
    return true;
}

/* So many bytes of a copy, or a little less, that tables are not cut within a row. */
static uint64_t whole_rows(const mf_copy *copy, uint64_t n_bytes)
{
    const uint64_t row = (uint64_t)copy->row_values * mf_copy_width(copy->convert);
    return copy->row_values == 0 ? n_bytes : n_bytes - n_bytes % row;
}

static void convert(const mf_copy *copy, const unsigned char *from, uint64_t n_bytes, float *to)
{
    const size_t width = (size_t)mf_copy_width(copy->convert), n = (size_t)(n_bytes / width);
    for (size_t i = 0; i < n; i++) {
        uint32_t word = 0;
        memcpy(&word, from + i * width, width); /* little-endian, like the files */
        float value = copy->convert == MF_TENSOR_F32    ? mf_f32_from_bits(word)
                      : copy->convert == MF_TENSOR_BF16 ? mf_f32_from_bf16((uint16_t)word)
                      : copy->convert == MF_TENSOR_U8   ? power_of_two(word)
                                                        : mf_f32_from_f16((uint16_t)word);
        to[i] = (copy->is_negated_exp ? logf(-value) : value) + copy->add;
    }
}

/* Bytes of the values that n bytes of the file become. */
static uint64_t bytes_after(const mf_copy *copy, uint64_t n)
{
    if (copy->convert == MF_TENSOR_OTHER)
        return n;
    return n / mf_copy_width(copy->convert) * sizeof(float);
}

/* n bytes of a copy, at most a piece, read into the block and uploaded from it. */
static bool load_piece(load_job *job, const mf_copy *copy, uint64_t first, uint64_t n,
                       load_block *block)
{
    const mf_span dest = {job->resident, copy->dest + bytes_after(copy, first)};
    const mf_backend_ops *ops = job->backend->ops;
    unsigned char *from = block->bytes;
    mf_error error = {0};
    if (ops->wait_for(job->backend, block->ticket, &error) != MF_OK) {
        if (is_first_failure(job))
            job->error = error;
        return false;
    }
    if (!read_fully(job, copy, first, n, from))
        return false;
    if (copy->convert != MF_TENSOR_OTHER) {
        from += job->piece_bytes;
        void *to = from;
        const bool is_table = copy->convert == MF_TENSOR_I64 || copy->convert == MF_TENSOR_I32;
        if (is_table && !convert_table(job, copy, block->bytes, n, to))
            return false;
        if (!is_table)
            convert(copy, block->bytes, n, to);
    }
    const mf_upload upload = {dest, from, bytes_after(copy, n)};
    block->ticket = mf_backend_upload_ahead(job->backend, &upload, 1);
    return true;
}

static void load_one(load_job *job, const load_run *run, load_blocks *blocks)
{
    const mf_copy *copy = run->copy;
    const uint64_t end = run->first + run->n_bytes;
    /* twice a piece is what it may become */
    const uint64_t most =
        whole_rows(copy, job->piece_bytes / (copy->convert == MF_TENSOR_U8 ? 2 : 1));
    if (copy->convert == MF_TENSOR_OTHER && job->host != NULL) {
        (void)read_fully(job, copy, run->first, run->n_bytes, job->host + copy->dest + run->first);
        return;
    }
    for (uint64_t at = run->first, n; at < end; at += n, blocks->next ^= 1) {
        n = end - at < most ? end - at : most;
        if (!load_piece(job, copy, at, n, &blocks->block[blocks->next]))
            return;
    }
}

static void run_load(void *ctx, uint32_t task, uint32_t thread)
{
    load_job *job = ctx;
    size_t first = (size_t)task * RUNS_PER_TASK, end = first + RUNS_PER_TASK;
    end = end < job->n_runs ? end : job->n_runs;
    for (size_t i = first; i < end; i++) {
        const load_run *run = &job->runs[i];
        (void)posix_fadvise(job->fds[run->copy->file], (off_t)(run->copy->source + run->first),
                            (off_t)run->n_bytes, POSIX_FADV_WILLNEED);
    }
    for (size_t i = first; i < end && atomic_load(&job->failed) == 0; i++)
        load_one(job, &job->runs[i], &job->blocks[thread]);
}

/* The copies, in file order, as runs. */
static mf_status make_runs(load_job *job, mf_error *error)
{
    const mf_binder *binder = job->binder;
    size_t n = 0;
    for (size_t i = 0; i < binder->n_copies; i++)
        n += (size_t)(binder->copies[i].n_bytes / whole_rows(&binder->copies[i], RUN_BYTES) + 1);
    job->runs = mf_alloc_array(&binder->allocator, n + 1, sizeof *job->runs);
    if (job->runs == NULL)
        return mf_fail_memory(error, n * sizeof *job->runs, "the list of weights to load");
    for (size_t i = 0; i < binder->n_copies; i++) {
        const mf_copy *copy = &binder->copies[i];
        const uint64_t most = whole_rows(copy, RUN_BYTES);
        for (uint64_t at = 0; at < copy->n_bytes; at += most) {
            const uint64_t left = copy->n_bytes - at;
            job->runs[job->n_runs++] = (load_run){copy, at, left < most ? left : most};
        }
    }
    return MF_OK;
}

static int by_source(const void *a, const void *b)
{
    const mf_copy *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->source < y->source ? -1 : x->source > y->source;
}

static mf_status open_files(const mf_binder *binder, int *fds, mf_error *error)
{
    const mf_tensor_table *table = &binder->source->table;
    for (size_t i = 0; i < table->n_files; i++) {
        fds[i] = open(table->files[i].path, O_RDONLY | O_CLOEXEC);
        if (fds[i] < 0)
            return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot open", table->files[i].path);
    }
    return MF_OK;
}

/* Blocks for each thread in one staging buffer, as large as the largest piece needs. */
static mf_status make_blocks(load_job *job, uint32_t n_threads, mf_buffer *out, mf_error *error)
{
    uint64_t largest = 64;
    for (size_t i = 0; i < job->binder->n_copies; i++) {
        const mf_copy *copy = &job->binder->copies[i];
        if ((copy->convert != MF_TENSOR_OTHER || job->host == NULL) && copy->n_bytes > largest)
            largest = copy->n_bytes;
    }
    if (job->binder->n_makings != 0)
        largest = PIECE_BYTES;
    largest = (largest + 63) & ~(uint64_t)63;
    job->piece_bytes = largest < PIECE_BYTES ? largest : PIECE_BYTES;
    uint64_t block_bytes = 3 * job->piece_bytes;
    MF_TRY(job->backend->ops->buffer_create(job->backend, 2 * n_threads * block_bytes,
                                            MF_USE_STAGING, "loading", out, error));
    unsigned char *bytes = job->backend->ops->buffer_host(job->backend, *out);
    for (uint32_t i = 0; i < 2 * n_threads; i++)
        job->blocks[i / 2].block[i % 2].bytes = bytes + i * block_bytes;
    return MF_OK;
}

/* Uploads read the blocks until they are done. */
static mf_status finish_blocks(load_job *job, uint32_t n_threads, mf_error *error)
{
    mf_status status = MF_OK;
    for (uint32_t i = 0; i < 2 * n_threads && status == MF_OK; i++)
        status = job->backend->ops->wait_for(job->backend, job->blocks[i / 2].block[i % 2].ticket,
                                             error);
    return status;
}

/* What was copied is there, and the blocks are free. */
static mf_status load_packed(const load_job *job, mf_thread_pool *pool, mf_error *error)
{
    const mf_packed_load load = {.binder = job->binder,
                                 .fds = job->fds,
                                 .pool = pool,
                                 .backend = job->backend,
                                 .resident = job->resident,
                                 .host = job->host,
                                 .staging = job->blocks[0].block[0].bytes,
                                 .staging_bytes = job->piece_bytes};
    return mf_load_packed(&load, error);
}

static mf_status load_with_pool(load_job *job, mf_thread_pool *pool, mf_error *error)
{
    mf_buffer staging = {0};
    MF_TRY(make_blocks(job, mf_thread_pool_size(pool), &staging, error));
    const uint32_t n_tasks = (uint32_t)((job->n_runs + RUNS_PER_TASK - 1) / RUNS_PER_TASK);
    mf_thread_pool_run(pool, n_tasks, run_load, job);
    mf_status status = finish_blocks(job, mf_thread_pool_size(pool), error);
    if (status == MF_OK && atomic_load(&job->failed) == 0)
        status = load_packed(job, pool, error);
    job->backend->ops->buffer_free(job->backend, staging);
    if (atomic_load(&job->failed) == 0)
        return status;
    if (error != NULL)
        *error = job->error;
    return job->error.code;
}

uint64_t mf_load_staging_bytes(void)
{
    return LOAD_THREADS * 2 * 3 * PIECE_BYTES; /* see make_blocks */
}

/* Each array's rows, before anything touches them. */
static void share_rows(mf_backend *backend, mf_buffer resident, const mf_binder *binder)
{
    for (size_t i = 0; i < binder->n_places && backend->ops->share_rows != NULL; i++) {
        const uint64_t at = binder->places[i];
        const uint64_t end =
            i + 1 < binder->n_places ? binder->places[i + 1] : binder->resident_bytes;
        backend->ops->share_rows(backend, (mf_span){resident, at}, end - at);
    }
}

mf_status mf_load_resident(mf_backend *backend, mf_buffer resident, const mf_binder *binder,
                           uint32_t n_threads, mf_error *error)
{
    size_t n_files = binder->source->table.n_files;
    int *fds = mf_alloc_array(&binder->allocator, n_files, sizeof *fds);
    if (fds == NULL)
        return mf_fail_memory(error, n_files * sizeof *fds, "file descriptors");
    memset(fds, -1, n_files * sizeof *fds);
    if (binder->n_copies > 0)
        qsort(binder->copies, binder->n_copies, sizeof *binder->copies, by_source);

    mf_thread_pool *pool = NULL;
    load_job job = {.backend = backend, .resident = resident, .binder = binder, .fds = fds};
    job.host = backend->ops->buffer_host(backend, resident);
    share_rows(backend, resident, binder);
    mf_status status = open_files(binder, fds, error);
    if (status == MF_OK)
        status = make_runs(&job, error);
    const size_t runs_bytes = (job.n_runs + 1) * sizeof *job.runs;
    if (status == MF_OK)
        status = mf_thread_pool_create(&binder->allocator, n_threads == 1 ? 1 : LOAD_THREADS, &pool,
                                       error);
    if (status == MF_OK)
        status = load_with_pool(&job, pool, error);
    mf_thread_pool_free(&pool);
    if (job.runs != NULL)
        mf_free(&binder->allocator, job.runs, runs_bytes);
    for (size_t i = 0; i < n_files; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    mf_free(&binder->allocator, fds, n_files * sizeof *fds);
    return status;
}
