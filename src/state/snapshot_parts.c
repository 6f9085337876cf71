/* SPDX-License-Identifier: MIT */
/*
 * One thread that copies and hashes reaches about half of what it reaches copying alone, and memory
 * takes more than one thread's copying. Each part has a checksum of its own, so parts are done by
 * whichever thread is free, in any order.
 */
#include "state/snapshot_parts.h"

#include "base/threads.h"

#include <assert.h>
#include <stdatomic.h>

#define CHECKSUM_BYTES 8
/* A thread with less to do is not worth starting; memory does not feed more threads than this. */
#define BYTES_PER_THREAD ((size_t)4 << 20)
#define MAX_THREADS 16u

typedef struct memory_job {
    const mf_snapshot_head *head;
    const mf_snapshot_parts *parts;
    unsigned char *to;         /* where parts are written */
    const unsigned char *from; /* where they are read */
    atomic_uint first_failed;  /* index in the list; UINT32_MAX: none */
} memory_job;

mf_status mf_snapshot_parts_init(mf_snapshot_parts *parts, const mf_allocator *a, uint32_t capacity,
                                 mf_error *error)
{
    *parts = (mf_snapshot_parts){.capacity = capacity};
    if (capacity == 0)
        return MF_OK;
    parts->list = mf_alloc_array(a, capacity, sizeof *parts->list);
    return parts->list != NULL
               ? MF_OK
               : mf_fail_memory(error, capacity * sizeof *parts->list, "a snapshot's parts");
}

void mf_snapshot_parts_free(mf_snapshot_parts *parts, const mf_allocator *a)
{
    if (parts->list != NULL)
        mf_free(a, parts->list, parts->capacity * sizeof *parts->list);
    *parts = (mf_snapshot_parts){0};
}

static void add(mf_snapshot_parts *parts, mf_snapshot_part part)
{
    assert(parts->n_parts < parts->capacity);
    part.offset = parts->n_bytes;
    parts->list[parts->n_parts++] = part;
    parts->n_bytes += part.n_bytes + CHECKSUM_BYTES;
}

void mf_snapshot_parts_add(mf_snapshot_parts *parts, uint64_t number, void *bytes, size_t n_bytes)
{
    add(parts, (mf_snapshot_part){.bytes = bytes, .n_bytes = n_bytes, .number = number});
}

void mf_snapshot_parts_add_place(mf_snapshot_parts *parts, uint64_t number, uint32_t buffer,
                                 uint64_t offset, size_t n_bytes)
{
    add(parts,
        (mf_snapshot_part){.buffer = buffer, .from = offset, .n_bytes = n_bytes, .number = number});
}

/* Each part by one of the crew; *failed: the first that could not be done, or UINT32_MAX. */
static mf_status run(memory_job *job, mf_task_fn fn, const mf_snapshot_crew *crew, uint32_t *failed,
                     mf_error *error)
{
    const mf_snapshot_parts *parts = job->parts;
    mf_thread_pool *pool = NULL;
    size_t n = 1 + parts->n_bytes / BYTES_PER_THREAD;
    n = n < MAX_THREADS ? n : MAX_THREADS;
    n = n < parts->n_parts ? n : parts->n_parts;
    n = n < crew->n_threads ? n : crew->n_threads;
    MF_TRY(mf_thread_pool_create(crew->allocator, n == 0 ? 1 : (uint32_t)n, &pool, error));
    atomic_init(&job->first_failed, UINT32_MAX);
    mf_thread_pool_run(pool, parts->n_parts, fn, job);
    *failed = atomic_load(&job->first_failed);
    mf_thread_pool_free(&pool);
    return MF_OK;
}

static mf_part_place place_of(const mf_snapshot_parts *parts, const mf_snapshot_part *part)
{
    return (mf_part_place){&parts->memory, part->buffer, part->from};
}

static mf_status write_part(mf_byte_sink *sink, const mf_snapshot_head *head,
                            const mf_snapshot_parts *parts, uint32_t i, mf_error *error)
{
    const mf_snapshot_part *part = &parts->list[i];
    const mf_part_place from = place_of(parts, part);
    if (part->bytes != NULL)
        return mf_snapshot_write_part(sink, head, part->number, part->bytes, part->n_bytes, error);
    return mf_snapshot_write_part_from(sink, head, part->number, &from, part->n_bytes, error);
}

static mf_status read_part(mf_byte_source *source, const mf_snapshot_head *head,
                           const mf_snapshot_parts *parts, uint32_t i, mf_error *error)
{
    const mf_snapshot_part *part = &parts->list[i];
    const mf_part_place to = place_of(parts, part);
    if (part->bytes != NULL)
        return mf_snapshot_read_part(source, head, part->number, part->bytes, part->n_bytes, error);
    return mf_snapshot_read_part_to(source, head, part->number, &to, part->n_bytes, error);
}

/* The first of the tasks that failed; its message is found by doing it again. */
static void note_failure(memory_job *job, uint32_t task)
{
    unsigned first = atomic_load(&job->first_failed);
    while (task < first && !atomic_compare_exchange_weak(&job->first_failed, &first, task))
        continue;
}

static mf_status write_part_of(const memory_job *job, uint32_t i, mf_error *error)
{
    const mf_snapshot_part *part = &job->parts->list[i];
    mf_buffer_sink sink;
    mf_buffer_sink_init(&sink, job->to + part->offset, part->n_bytes + CHECKSUM_BYTES);
    return write_part(&sink.sink, job->head, job->parts, i, error);
}

static void write_to_memory(void *ctx, uint32_t task, uint32_t thread)
{
    memory_job *job = ctx;
    (void)thread;
    if (write_part_of(job, task, NULL) != MF_OK)
        note_failure(job, task);
}

mf_status mf_snapshot_write_parts(mf_byte_sink *sink, const mf_snapshot_head *head,
                                  const mf_snapshot_parts *parts, const mf_snapshot_crew *crew,
                                  mf_error *error)
{
    uint32_t failed;
    unsigned char *to = sink->reserve != NULL ? sink->reserve(sink, parts->n_bytes) : NULL;
    if (to != NULL) {
        memory_job job = {.head = head, .parts = parts, .to = to};
        MF_TRY(run(&job, write_to_memory, crew, &failed, error));
        return failed == UINT32_MAX ? MF_OK : write_part_of(&job, failed, error);
    }
    for (uint32_t i = 0; i < parts->n_parts; i++)
        MF_TRY(write_part(sink, head, parts, i, error));
    return MF_OK;
}

static mf_status read_part_of(const memory_job *job, uint32_t i, mf_error *error)
{
    const mf_snapshot_part *part = &job->parts->list[i];
    mf_buffer_source source;
    mf_buffer_source_init(&source, job->from + part->offset, part->n_bytes + CHECKSUM_BYTES);
    return read_part(&source.source, job->head, job->parts, i, error);
}

static void read_from_memory(void *ctx, uint32_t task, uint32_t thread)
{
    memory_job *job = ctx;
    (void)thread;
    if (read_part_of(job, task, NULL) != MF_OK)
        note_failure(job, task);
}

mf_status mf_snapshot_read_parts(mf_byte_source *source, const mf_snapshot_head *head,
                                 const mf_snapshot_parts *parts, const mf_snapshot_crew *crew,
                                 mf_error *error)
{
    uint32_t failed;
    const unsigned char *from =
        source->reserve != NULL ? source->reserve(source, parts->n_bytes) : NULL;
    if (from != NULL) {
        memory_job job = {.head = head, .parts = parts, .from = from};
        MF_TRY(run(&job, read_from_memory, crew, &failed, error));
        return failed == UINT32_MAX ? MF_OK : read_part_of(&job, failed, error);
    }
    for (uint32_t i = 0; i < parts->n_parts; i++)
        MF_TRY(read_part(source, head, parts, i, error));
    return MF_OK;
}
