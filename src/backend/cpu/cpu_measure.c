/* SPDX-License-Identifier: MIT */
/* What this machine's memory and arithmetic can do, measured on the backend's own threads. */
#include "backend/cpu/cpu_internal.h"

#include "base/clock.h"

#define CHUNK_BYTES ((uint64_t)1 << 20)
#define FMA_ITERATIONS ((uint64_t)200000)

typedef struct read_job {
    mf_cpu_backend *be;
    const unsigned char *p;
    uint64_t sums[256]; /* by thread, modulo: kept so that the reads are not optimised away */
} read_job;

static void run_read(void *ctx, uint32_t task, uint32_t thread)
{
    read_job *job = ctx;
    job->sums[thread % 256] +=
        job->be->kernels->read_bytes(job->p + task * CHUNK_BYTES, CHUNK_BYTES);
}

static double read_bandwidth(mf_cpu_backend *be, const mf_span *spans, const uint64_t *span_bytes,
                             uint32_t n_spans, uint32_t n_milliseconds)
{
    double best = 0.0;
    uint64_t end = mf_now_us() + (uint64_t)n_milliseconds * 1000;
    do {
        uint64_t n_bytes = 0, start = mf_now_us();
        for (uint32_t i = 0; i < n_spans; i++) {
            read_job job = {be, mf_cpu_bytes(be, spans[i]), {0}};
            uint32_t n_tasks = (uint32_t)(span_bytes[i] / CHUNK_BYTES);
            mf_thread_pool_run(be->pool, n_tasks, run_read, &job);
            n_bytes += n_tasks * CHUNK_BYTES;
        }
        uint64_t us = mf_now_us() - start;
        if (n_bytes == 0)
            return 0.0;
        double rate = (double)n_bytes / (double)(us == 0 ? 1 : us) * 1e6;
        best = rate > best ? rate : best; /* the limit is the best that was seen */
    } while (mf_now_us() < end);
    return best;
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
    (void)error;
    mf_cpu_backend *be = (mf_cpu_backend *)base;
    *bytes_per_second = read_bandwidth(be, spans, span_bytes, n_spans, n_milliseconds);
    *fma_per_second = fma_peak(be, n_milliseconds);
    return MF_OK;
}
