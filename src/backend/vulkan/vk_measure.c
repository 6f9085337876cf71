/* SPDX-License-Identifier: MIT */
/* What the device's memory and arithmetic give to plain shaders, for bench. */
#include "backend/vulkan/vk_internal.h"

#include "base/clock.h"

#define THREADS 256u
#define MOST_GROUPS 16384u
#define CHAINS 16u
#define STEPS 1024u
/* Work is repeated within a submission until it takes this long: a wait costs 10 to 40 us. */
#define LEAST_US 4000u

static const mf_vk_kernel read_kernel = {MF_VK_SHADER_measure_read, 1, {THREADS}};
static const mf_vk_kernel fma_kernel = {MF_VK_SHADER_measure_fma, 1, {THREADS}};

/* One pass over the spans; returns the bytes of it. */
static uint64_t read_once(mf_vk_backend *be, const mf_span *spans, const uint64_t *span_bytes,
                          uint32_t n_spans, uint64_t result)
{
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < n_spans; i++) {
        const uint64_t at = mf_vk_address(be, spans[i]), skip = -at & 15;
        const uint64_t n = span_bytes[i] < skip ? 0 : (span_bytes[i] - skip) / 16;
        const struct {
            uint64_t x, result;
            uint32_t n, unused;
        } push = {at + skip, result, n > UINT32_MAX ? UINT32_MAX : (uint32_t)n, 0};
        const uint32_t groups = mf_vk_groups(push.n, THREADS * 8);
        mf_vk_dispatch(be, &read_kernel, &push, sizeof push,
                       (const uint32_t[]){groups < MOST_GROUPS ? groups : MOST_GROUPS, 1, 1});
        n_bytes += (uint64_t)push.n * 16;
    }
    return n_bytes;
}

static uint64_t fma_once(mf_vk_backend *be, uint64_t result)
{
    const bool is_software = be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const uint32_t groups = is_software ? 8 : 4096;
    const struct {
        uint64_t result;
        uint32_t n;
        float factor, summand;
        uint32_t unused;
    } push = {result, STEPS, 0.5f, 1.0f, 0};
    mf_vk_dispatch(be, &fma_kernel, &push, sizeof push, (const uint32_t[]){groups, 1, 1});
    return (uint64_t)groups * THREADS * CHAINS * STEPS;
}

typedef struct job {
    const mf_span *spans; /* NULL: arithmetic */
    const uint64_t *span_bytes;
    uint32_t n_spans;
} job;

/* The rate of n_times the work in one submission, and how long it took. */
static double rate_of(mf_vk_backend *be, const job *j, uint32_t n_times, uint64_t *us)
{
    uint64_t count = 0, result = 0;
    mf_vk_submit(be);
    mf_vk_wait_in_lock(be, be->stream.submitted);
    for (uint32_t i = 0; i < j->n_spans; i++)
        mf_vk_ahead_await(be, j->spans[i], j->span_bytes[i]);
    mf_vk_next(be);
    result = mf_vk_scratch(be, 256);
    for (uint32_t i = 0; i < j->n_spans; i++)
        mf_vk_touch(be, j->spans[i], j->span_bytes[i], MF_READS);
    for (uint32_t i = 0; i < n_times; i++)
        count += j->spans != NULL ? read_once(be, j->spans, j->span_bytes, j->n_spans, result)
                                  : fma_once(be, result);
    const uint64_t start = mf_now_us();
    mf_vk_submit(be);
    mf_vk_wait_in_lock(be, be->stream.submitted);
    *us = mf_now_us() - start;
    return (double)count / (double)(*us == 0 ? 1 : *us) * 1e6;
}

/* The best that was seen: what else the machine does only slows. */
static double best_rate(mf_vk_backend *be, const job *j, uint32_t n_milliseconds)
{
    uint64_t first_us;
    (void)rate_of(be, j, 1, &first_us); /* a driver may compile at the first dispatch */
    const uint64_t end = mf_now_us() + (uint64_t)n_milliseconds * 1000;
    double best = 0.0;
    uint32_t n_times = 1;
    do {
        uint64_t us;
        const double rate = rate_of(be, j, n_times, &us);
        best = rate > best ? rate : best;
        if (us < LEAST_US && n_times < 256)
            n_times *= 2;
    } while (mf_now_us() < end && be->stream.lost == MF_OK);
    return best;
}

mf_status mf_vk_measure(mf_vk_backend *be, const mf_vk_measurement *m, double *bytes_per_second,
                        double *fma_per_second, mf_error *error)
{
    const job reads = {m->spans, m->span_bytes, m->n_spans}, sums = {NULL, NULL, 0};
    MF_TRY(mf_vk_prepare(be, &read_kernel, error));
    MF_TRY(mf_vk_prepare(be, &fma_kernel, error));
    MF_TRY(mf_vk_ring_need(be, MF_VK_RING_SCRATCH, 256, error));
    const double bytes = m->n_spans != 0 ? best_rate(be, &reads, m->n_milliseconds) : 0.0;
    const double fma = best_rate(be, &sums, m->n_milliseconds);
    if (be->stream.lost != MF_OK)
        return mf_fail(error, be->stream.lost, "%s", be->stream.why);
    *bytes_per_second = bytes;
    *fma_per_second = fma;
    return MF_OK;
}
