/* SPDX-License-Identifier: MIT */
/* Attention over the cached keys and values, and the normalisation and rotation before it. */
#include "backend/cpu/cpu_internal.h"

#include "base/cache_rows.h"

#include <assert.h>

static_assert(MF_PAGE_TOKENS == MF_ATTENTION_TILE, "a page is a tile of the kernels");

typedef struct attention_job {
    mf_cpu_backend *be;
    const mf_op *op;
} attention_job;

static void run_norm_rope(void *ctx, uint32_t row, uint32_t thread)
{
    (void)thread;
    const attention_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_op *op = job->op;
    uint32_t n_heads = op->u.head_norm_rope.n_heads, head_dim = op->u.head_norm_rope.head_dim;
    uint32_t n_rot = op->u.head_norm_rope.n_rot;
    const uint32_t batch_row = op->first_row + row;
    const mf_sequence *seq = mf_cpu_sequence_of(be, batch_row);
    size_t angle = (size_t)mf_cpu_position_of(seq, batch_row) * (n_rot / 2);
    const float *cos = mf_cpu_floats(be, op->u.head_norm_rope.cos) + angle;
    const float *sin = mf_cpu_floats(be, op->u.head_norm_rope.sin) + angle;
    const float *weight = mf_cpu_floats(be, op->u.head_norm_rope.weight);
    float *x = mf_cpu_floats(be, op->u.head_norm_rope.x) + (size_t)row * n_heads * head_dim;
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim) {
        be->kernels->rmsnorm(x, weight, op->u.head_norm_rope.eps, head_dim, x);
        be->kernels->rope(x, cos, sin, n_rot);
    }
}

void mf_cpu_head_norm_rope(mf_cpu_backend *be, const mf_op *op)
{
    attention_job job = {be, op};
    mf_thread_pool_run(be->pool, op->n_rows, run_norm_rope, &job);
}

/* n rows from row `first` of the sequence's run on, page by page. */
static void append_run(mf_cpu_backend *be, const mf_sequence *seq, uint32_t first, uint32_t n_rows,
                       const float *from, const mf_cpu_cache *cache)
{
    const unsigned char *const *pages = mf_cpu_pages_of(be, seq, cache->is_in_window_pages);
    const uint64_t row_bytes = mf_cache_row_bytes(cache->type, cache->n_heads, cache->dim);
    const size_t width = (size_t)cache->n_heads * cache->dim;
    for (uint32_t done = 0; done < n_rows;) {
        uint64_t position = seq->position + first + done, row = position % MF_PAGE_TOKENS;
        uint32_t left = n_rows - done, room = (uint32_t)(MF_PAGE_TOKENS - row);
        uint32_t n = left < room ? left : room;
        mf_cache_store((unsigned char *)pages[position / MF_PAGE_TOKENS] + cache->page_offset +
                           row * row_bytes,
                       from + done * width, n, cache->n_heads, cache->dim, cache->type);
        done += n;
    }
}

void mf_cpu_append(mf_cpu_backend *be, const mf_op *op, mf_span x, const mf_cpu_cache *cache)
{
    const uint32_t op_end = op->first_row + op->n_rows;
    for (uint32_t i = 0; i < be->n_sequences; i++) {
        const mf_sequence *seq = &be->sequences[i];
        uint32_t seq_end = seq->first_row + seq->n_rows;
        uint32_t from = seq->first_row > op->first_row ? seq->first_row : op->first_row;
        uint32_t end = seq_end < op_end ? seq_end : op_end;
        if (from >= end)
            continue;
        const float *rows =
            mf_cpu_floats(be, x) + (size_t)(from - op->first_row) * cache->n_heads * cache->dim;
        append_run(be, seq, from - seq->first_row, end - from, rows, cache);
    }
}

static void append(mf_cpu_backend *be, const mf_op *op)
{
    const mf_attention_params *p = &op->u.attention;
    mf_cpu_cache cache = {p->page_offset[0], p->n_kv_heads, p->head_dim, p->cache_type,
                          p->is_in_window_pages};
    mf_cpu_append(be, op, p->k, &cache);
    cache.page_offset = p->page_offset[1];
    mf_cpu_append(be, op, p->v, &cache);
}

void mf_cpu_attention(mf_cpu_backend *be, const mf_op *op)
{
    append(be, op);
    mf_cpu_attend(be, op);
}
