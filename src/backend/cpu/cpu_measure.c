/* SPDX-License-Identifier: MIT */
/* What this machine's memory and arithmetic can do, measured on the backend's own threads. */
#include "backend/cpu/cpu_internal.h"

#include "base/clock.h"

#include <assert.h>

#define CHUNK_BYTES ((uint64_t)1 << 20)
#define MAX_SPANS 4u
#define FMA_ITERATIONS ((uint64_t)200000)

/* A span's chunks, those of a home one after the other: by the threads that read them best. */
typedef struct read_job {
    mf_cpu_backend *be;
    const unsigned char *p;
    uint32_t n, *order;
    uint32_t end[MF_NUMA_MAX_NODES];
    uint64_t sums[256]; /* by thread, modulo: kept so that the reads are not optimised away */
} read_job;

static void run_read(void *ctx, uint32_t task, uint32_t thread)
{
    read_job *job = ctx;
    job->sums[thread % 256] += job->be->kernels->read_bytes(
        job->p + (uint64_t)job->order[task] * CHUNK_BYTES, CHUNK_BYTES);
}

/* Chunks of no known home go to all in turn. */
static void sort_chunks(read_job *job, uint8_t *homes)
{
    const uint32_t n_homes = job->be->n_homes;
    uint32_t n = 0;
    if (n_homes > 1)
        mf_numa_locate(&job->be->nodes, job->p, CHUNK_BYTES, job->n, homes);
    for (uint32_t home = 0; home < n_homes; home++) {
        for (uint32_t i = 0; i < job->n; i++)
            if (n_homes == 1 || homes[i] == home || (homes[i] == n_homes && i % n_homes == home))
                job->order[n++] = i;
        job->end[home] = n;
    }
}

/* The best of some time. */
static double read_jobs(read_job *jobs, uint32_t n_jobs, uint32_t n_milliseconds)
{
    double best = 0.0;
    uint64_t end = mf_now_us() + (uint64_t)n_milliseconds * 1000;
    do {
        uint64_t n_bytes = 0, start = mf_now_us();
        for (uint32_t i = 0; i < n_jobs; i++) {
            mf_thread_pool_run_at_home(jobs[i].be->pool, 1, jobs[i].end, run_read, &jobs[i]);
            n_bytes += jobs[i].n * CHUNK_BYTES;
        }
        uint64_t us = mf_now_us() - start;
        if (n_bytes == 0)
            return 0.0;
        double rate = (double)n_bytes / (double)(us == 0 ? 1 : us) * 1e6;
        best = rate > best ? rate : best; /* the limit is the best that was seen */
    } while (mf_now_us() < end);
    return best;
}

static mf_status measure_reads(mf_cpu_backend *be, const mf_span *spans, const uint64_t *span_bytes,
                               uint32_t n_spans, uint32_t n_milliseconds, double *bytes_per_second,
                               mf_error *error)
{
    read_job jobs[MAX_SPANS];
    size_t n = 0;
    assert(n_spans <= MAX_SPANS);
    for (uint32_t i = 0; i < n_spans; i++)
        n += (size_t)(span_bytes[i] / CHUNK_BYTES);
    const size_t each = sizeof(uint32_t) + sizeof(uint8_t);
    uint32_t *order = mf_alloc_array(&be->allocator, n, each);
    if (order == NULL)
        return mf_fail_memory(error, n * each, "what is measured");
    uint8_t *homes = (uint8_t *)(order + n);
    for (uint32_t i = 0, at = 0; i < n_spans; at += jobs[i++].n) {
        jobs[i] = (read_job){.be = be,
                             .p = mf_cpu_bytes(be, spans[i]),
                             .n = (uint32_t)(span_bytes[i] / CHUNK_BYTES),
                             .order = order + at};
        sort_chunks(&jobs[i], homes + at);
    }
    *bytes_per_second = read_jobs(jobs, n_spans, n_milliseconds);
    mf_free(&be->allocator, order, n * each);
    return MF_OK;
}

typedef struct fma_job {
    const mf_cpu_backend *be;
    uint64_t counts[256];
    float sinks[256];
} fma_job;

static void run_fma(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    fma_job *job = ctx;
    job->counts[task % 256] += job->be->kernels->fma_peak(FMA_ITERATIONS, &job->sinks[task % 256]);
}

static double fma_peak(mf_cpu_backend *be, uint32_t n_milliseconds)
{
    double best = 0.0;
    uint64_t end = mf_now_us() + (uint64_t)n_milliseconds * 1000;
    do {
        fma_job job = {.be = be};
        uint64_t start = mf_now_us(), count = 0;
        mf_thread_pool_run(be->pool, be->n_threads * 4, run_fma, &job);
        uint64_t us = mf_now_us() - start;
        for (uint32_t i = 0; i < 256; i++)
            count += job.counts[i];
        double rate = (double)count / (double)(us == 0 ? 1 : us) * 1e6;
        best = rate > best ? rate : best;
    } while (mf_now_us() < end);
    return best;
}

mf_status mf_cpu_measure(mf_backend *base, const mf_span *spans, const uint64_t *span_bytes,
                         uint32_t n_spans, uint32_t n_milliseconds, double *bytes_per_second,
                         double *fma_per_second, mf_error *error)
{
    mf_cpu_backend *be = (mf_cpu_backend *)base;
    MF_TRY(measure_reads(be, spans, span_bytes, n_spans, n_milliseconds, bytes_per_second, error));
    *fma_per_second = fma_peak(be, n_milliseconds);
    return MF_OK;
}
