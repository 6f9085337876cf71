/* SPDX-License-Identifier: MIT */
/* Loading of the resident weights: every planned copy, by several threads, in file order. */
#include "model/model.h"

#include "base/half.h"
#include "base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More threads than cores: a cold page cache wants several reads in flight. */
#define LOAD_THREADS 4u
#define COPIES_PER_TASK 16u

typedef struct load_job {
    mf_backend *backend;
    mf_buffer resident;
    unsigned char
        *host; /* NULL: the backend's memory is out of reach, copies go through a staging block */
    const mf_binder *binder;
    const int *fds;
    unsigned char *staging; /* per thread, the largest copy */
    size_t staging_bytes;
    atomic_int failed; /* the first failure wins */
    mf_error error;
} load_job;

static bool read_fully(load_job *job, const mf_copy *copy, unsigned char *dest)
{
    uint64_t done = 0;
    while (done < copy->n_bytes) {
        ssize_t got = pread(job->fds[copy->file], dest + done, copy->n_bytes - done,
                            (off_t)(copy->source + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got > 0) {
            done += (uint64_t)got;
            continue;
        }
        int expected = 0;
        const char *path = job->binder->source->table.files[copy->file].path;
        if (!atomic_compare_exchange_strong(&job->failed, &expected, 1))
            return false;
        if (got == 0)
            (void)mf_fail_at(&job->error, MF_ERR_FORMAT, copy->source + done,
                             "%s: file ends at byte %llu inside a tensor", path,
                             (unsigned long long)(copy->source + done));
        else
            (void)mf_fail_os(&job->error, MF_ERR_IO, errno, "%s: read failed at byte %llu", path,
                             (unsigned long long)(copy->source + done));
        return false;
    }
    return true;
}

static void convert(const mf_copy *copy, const unsigned char *from, float *to)
{
    size_t width = copy->convert == MF_TENSOR_F32 ? 4 : 2, n = (size_t)(copy->n_bytes / width);
    for (size_t i = 0; i < n; i++) {
        uint32_t word = 0;
        memcpy(&word, from + i * width, width); /* little-endian, like the files */
        float value = copy->convert == MF_TENSOR_F32    ? mf_f32_from_bits(word)
                      : copy->convert == MF_TENSOR_BF16 ? mf_f32_from_bf16((uint16_t)word)
                                                        : mf_f32_from_f16((uint16_t)word);
        to[i] = value + copy->add;
    }
}

static void load_one(load_job *job, const mf_copy *copy, unsigned char *staging)
{
    mf_span dest = {job->resident, copy->dest};
    bool converted = copy->convert != MF_TENSOR_OTHER;
    if (!converted && job->host != NULL) {
        (void)read_fully(job, copy, job->host + copy->dest);
        return;
    }
    if (!read_fully(job, copy, staging))
        return;
    if (!converted) {
        job->backend->ops->write(job->backend, dest, staging, copy->n_bytes);
        return;
    }
    float *values = (float *)(void *)(staging + job->staging_bytes / 3);
    convert(copy, staging, values);
    uint64_t n_bytes = copy->n_bytes / (copy->convert == MF_TENSOR_F32 ? 4 : 2) * sizeof(float);
    job->backend->ops->write(job->backend, dest, values, n_bytes);
}

static void run_load(void *ctx, uint32_t task, uint32_t thread)
{
    load_job *job = ctx;
    size_t first = (size_t)task * COPIES_PER_TASK, end = first + COPIES_PER_TASK;
    end = end < job->binder->n_copies ? end : job->binder->n_copies;
    for (size_t i = first; i < end && atomic_load(&job->failed) == 0; i++)
        load_one(job, &job->binder->copies[i], job->staging + thread * job->staging_bytes);
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

static mf_status load_with_pool(load_job *job, mf_thread_pool *pool, mf_error *error)
{
    const mf_binder *binder = job->binder;
    uint64_t largest = 0;
    for (size_t i = 0; i < binder->n_copies; i++) {
        const mf_copy *copy = &binder->copies[i];
        if ((copy->convert != MF_TENSOR_OTHER || job->host == NULL) && copy->n_bytes > largest)
            largest = copy->n_bytes;
    }
    /* A third for the bytes of the file, two for the floats that 16-bit values become. */
    job->staging_bytes = (size_t)((largest + 63) & ~(uint64_t)63) * 3;
    size_t n_bytes = job->staging_bytes * mf_thread_pool_size(pool) + 64;
    unsigned char *memory = mf_alloc(&binder->allocator, n_bytes);
    if (memory == NULL)
        return mf_fail_memory(error, n_bytes, "loading");
    job->staging = memory + (-(uintptr_t)memory & 63u);
    uint32_t n_tasks = (uint32_t)((binder->n_copies + COPIES_PER_TASK - 1) / COPIES_PER_TASK);
    mf_thread_pool_run(pool, n_tasks, run_load, job);
    mf_free(&binder->allocator, memory, n_bytes);
    if (atomic_load(&job->failed) == 0)
        return MF_OK;
    if (error != NULL)
        *error = job->error;
    return job->error.code;
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
    mf_status status = open_files(binder, fds, error);
    if (status == MF_OK)
        status = mf_thread_pool_create(&binder->allocator,
                                       job.host == NULL || n_threads == 1 ? 1 : LOAD_THREADS, &pool,
                                       error);
    if (status == MF_OK)
        status = load_with_pool(&job, pool, error);
    mf_thread_pool_free(&pool);
    for (size_t i = 0; i < n_files; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    mf_free(&binder->allocator, fds, n_files * sizeof *fds);
    return status;
}
