/* SPDX-License-Identifier: MIT */
/* Runs of positions become entries: sums weighted column by column, normed and rotated. */
#include "backend/cpu/cpu_internal.h"

#include "base/cache_rows.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Rows of scratch, each of dim floats: the largest gate, the weights' sum, the weighted sum,
 * weights of a position, and a cached row. */
enum { LARGEST, SUM, WEIGHTED, WEIGHT, ROW };
static_assert(ROW + 1 == MF_CPU_COMPRESS_ROWS, "what is reserved");

typedef struct compress_job {
    mf_cpu_backend *be;
    const mf_op *op;
} compress_job;

/* What one entry is made of. */
typedef struct making {
    const mf_cpu_backend *be;
    const mf_compress_params *p;
    const unsigned char *const *pages; /* of the window */
    uint64_t first;                    /* position of the run */
    float *scratch;
} making;

static float *scratch_row(const making *m, uint32_t i)
{
    return m->scratch + (size_t)i * m->p->dim;
}

/* n cached values, of float32 or bfloat16. */
static void take(float *to, const unsigned char *from, uint32_t n, mf_dtype type)
{
    if (type == MF_F32)
        memcpy(to, from, n * sizeof *to);
    else
        mf_cache_load(to, from, NULL, n, type);
}

/* A cached row's columns of a series to scratch. */
static const float *cached(const making *m, uint64_t position, uint32_t series, uint64_t offset)
{
    const mf_compress_params *p = m->p;
    const size_t each = mf_dtype_bytes(p->cache_type);
    const size_t row = position % MF_PAGE_TOKENS * ((size_t)p->n_series * p->dim);
    float *to = scratch_row(m, ROW);
    take(to, m->pages[position / MF_PAGE_TOKENS] + offset + (row + (size_t)series * p->dim) * each,
         p->dim, p->cache_type);
    return to;
}

/* The gate of a position of the series, bias and all. */
static const float *gate_of(const making *m, uint64_t position, uint32_t series)
{
    const mf_compress_params *p = m->p;
    const size_t at = position % p->rate * ((size_t)p->n_series * p->dim) + (size_t)series * p->dim;
    const float *bias = mf_cpu_floats(m->be, p->bias) + at;
    float *gate = scratch_row(m, ROW);
    (void)cached(m, position, series, p->gate_offset);
    for (uint32_t i = 0; i < p->dim; i++)
        gate[i] += bias[i];
    return gate;
}

typedef void (*position_fn)(const making *m, uint64_t position, uint32_t series);

/* Those that the entry is made of, in the order of positions. */
static void for_positions(const making *m, position_fn fn)
{
    const mf_compress_params *p = m->p;
    const bool has_before = p->n_series == 2 && m->first != 0;
    for (uint64_t at = m->first - (has_before ? p->rate : 0); at < m->first; at++)
        fn(m, at, 0);
    for (uint64_t at = m->first; at < m->first + p->rate; at++)
        fn(m, at, p->n_series - 1);
}

static void find_largest(const making *m, uint64_t position, uint32_t series)
{
    const float *gate = gate_of(m, position, series);
    float *largest = scratch_row(m, LARGEST);
    for (uint32_t i = 0; i < m->p->dim; i++)
        largest[i] = gate[i] > largest[i] ? gate[i] : largest[i];
}

static void add_weighted(const making *m, uint64_t position, uint32_t series)
{
    const uint32_t dim = m->p->dim;
    const float *gate = gate_of(m, position, series), *largest = scratch_row(m, LARGEST);
    float *sum = scratch_row(m, SUM), *weighted = scratch_row(m, WEIGHTED);
    float *weight = scratch_row(m, WEIGHT);
    for (uint32_t i = 0; i < dim; i++) {
        weight[i] = expf(gate[i] - largest[i]);
        sum[i] += weight[i];
    }
    const float *value = cached(m, position, series, m->p->kv_offset);
    for (uint32_t i = 0; i < dim; i++)
        weighted[i] += weight[i] * value[i];
}

/* The entry's place, in the page of its run's last position. */
static unsigned char *place_of(const mf_cpu_backend *be, const mf_sequence *seq,
                               const mf_compress_params *p, uint64_t last)
{
    const unsigned char *const *pages = mf_cpu_pages_of(be, seq, false);
    const uint64_t row = p->rate < MF_PAGE_TOKENS ? last % MF_PAGE_TOKENS / p->rate : 0;
    return (unsigned char *)pages[last / MF_PAGE_TOKENS] + p->entry_offset +
           row * p->dim * mf_dtype_bytes(p->cache_type);
}

/* Of a row that is its run's last. */
static void run_entry(void *ctx, uint32_t row, uint32_t thread)
{
    const compress_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_compress_params *p = &job->op->u.compress;
    const uint32_t batch_row = job->op->first_row + row;
    const mf_sequence *seq = mf_cpu_sequence_of(be, batch_row);
    const uint64_t last = mf_cpu_position_of(seq, batch_row);
    if ((last + 1) % p->rate != 0)
        return;
    const making m = {be, p, mf_cpu_pages_of(be, seq, true), last + 1 - p->rate,
                      mf_cpu_scratch(be, thread)};
    float *entry = scratch_row(&m, WEIGHTED), *sum = scratch_row(&m, SUM);
    for (uint32_t i = 0; i < p->dim; i++) {
        scratch_row(&m, LARGEST)[i] = -INFINITY;
        sum[i] = entry[i] = 0;
    }
    for_positions(&m, find_largest);
    for_positions(&m, add_weighted);
    for (uint32_t i = 0; i < p->dim; i++)
        entry[i] /= sum[i];
    be->kernels->rmsnorm(entry, mf_cpu_floats(be, p->norm), p->eps, p->dim, entry);
    const size_t angle = (size_t)m.first * (p->n_rot / 2);
    mf_cpu_rotate_pairs(entry + p->dim - p->n_rot, mf_cpu_floats(be, p->cos) + angle,
                        mf_cpu_floats(be, p->sin) + angle, p->n_rot);
    mf_cache_store(place_of(be, seq, p, last), entry, 1, 1, p->dim, p->cache_type);
}

void mf_cpu_compress(mf_cpu_backend *be, const mf_op *op)
{
    const mf_compress_params *p = &op->u.compress;
    mf_cpu_cache cache = {p->kv_offset, 1, p->n_series * p->dim, p->cache_type, true};
    compress_job job = {be, op};
    mf_cpu_append(be, op, p->kv, &cache);
    cache.page_offset = p->gate_offset;
    mf_cpu_append(be, op, p->gate, &cache);
    mf_thread_pool_run(be->pool, op->n_rows, run_entry, &job);
}
