/* SPDX-License-Identifier: MIT */
/* Attention over the cached keys and values, and the normalisation and rotation before it. */
#include "backend/cpu/cpu_internal.h"

#include "base/half.h"

#include <assert.h>
#include <string.h>

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
    const mf_sequence *seq =
        mf_cpu_sequence_of(op->u.head_norm_rope.sequences, op->u.head_norm_rope.n_sequences, row);
    size_t angle = (size_t)(seq->position + row - seq->first_row) * (n_rot / 2);
    const float *cos = mf_cpu_floats(be, op->u.head_norm_rope.cos) + angle;
    const float *sin = mf_cpu_floats(be, op->u.head_norm_rope.sin) + angle;
    const float *weight = mf_cpu_floats(be, op->u.head_norm_rope.weight);
    float *x = mf_cpu_floats(be, op->u.head_norm_rope.x) + (size_t)row * n_heads * head_dim;
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim) {
        be->kernels->rmsnorm(x, weight, 0.0f, op->u.head_norm_rope.eps, head_dim, x);
        be->kernels->rope(x, cos, sin, n_rot);
    }
}

void mf_cpu_head_norm_rope(mf_cpu_backend *be, const mf_op *op)
{
    attention_job job = {be, op};
    mf_thread_pool_run(be->pool, op->n_rows, run_norm_rope, &job);
}

void mf_cpu_find_pages(mf_cpu_backend *be, const mf_sequence *sequences, uint32_t n)
{
    size_t at = 0;
    for (uint32_t s = 0; s < n; s++) {
        size_t n_pages = mf_cpu_count_pages(&sequences[s], 1);
        for (size_t p = 0; p < n_pages; p++)
            be->pages[at++] = mf_cpu_bytes(be, sequences[s].pages[p]);
    }
    assert(at * sizeof *be->pages <= be->pages_bytes);
}

const unsigned char *const *mf_cpu_pages_of(const mf_cpu_backend *be, const mf_sequence *sequences,
                                            const mf_sequence *seq)
{
    return be->pages + mf_cpu_count_pages(sequences, (uint32_t)(seq - sequences));
}

static void append_page(mf_cpu_backend *be, mf_span to, const float *from, size_t n, mf_dtype type)
{
    if (type == MF_F32) {
        memcpy(mf_cpu_floats(be, to), from, n * sizeof *from);
        return;
    }
    uint16_t *half = (uint16_t *)(void *)mf_cpu_bytes(be, to);
    for (size_t i = 0; i < n; i++)
        half[i] = mf_bf16_from_f32(from[i]);
}

void mf_cpu_append(mf_cpu_backend *be, const mf_sequence *seq, uint64_t page_offset, mf_span x,
                   size_t width, mf_dtype type)
{
    const float *from = mf_cpu_floats(be, x) + seq->first_row * width;
    for (uint32_t done = 0; done < seq->n_rows;) {
        uint64_t position = seq->position + done, row = position % MF_PAGE_TOKENS;
        uint32_t left = seq->n_rows - done, room = (uint32_t)(MF_PAGE_TOKENS - row);
        uint32_t n = left < room ? left : room;
        uint64_t at = page_offset + row * width * mf_dtype_bytes(type);
        append_page(be, mf_span_at(seq->pages[position / MF_PAGE_TOKENS], at), from + done * width,
                    n * width, type);
        done += n;
    }
}

static void append(mf_cpu_backend *be, const mf_op *op)
{
    size_t width = (size_t)op->u.attention.n_kv_heads * op->u.attention.head_dim;
    for (uint32_t s = 0; s < op->u.attention.n_sequences; s++) {
        const mf_sequence *seq = &op->u.attention.sequences[s];
        mf_dtype type = op->u.attention.cache_type;
        mf_cpu_append(be, seq, seq->page_offset[0], op->u.attention.k, width, type);
        mf_cpu_append(be, seq, seq->page_offset[1], op->u.attention.v, width, type);
    }
}

static void run_attention(void *ctx, uint32_t task, uint32_t thread)
{
    const attention_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_op *op = job->op;
    uint32_t n_heads = op->u.attention.n_heads, n_kv_heads = op->u.attention.n_kv_heads;
    uint32_t head_dim = op->u.attention.head_dim;
    /* Longest rows first, so that the threads end together. */
    uint32_t row = op->n_rows - 1 - task / n_heads, h = task % n_heads;
    const mf_sequence *seq =
        mf_cpu_sequence_of(op->u.attention.sequences, op->u.attention.n_sequences, row);
    size_t kv_at = (size_t)(h / (n_heads / n_kv_heads)) * head_dim *
                   mf_dtype_bytes(op->u.attention.cache_type);
    size_t at = ((size_t)row * n_heads + h) * head_dim;
    const mf_attention_args args = {
        .q = mf_cpu_floats(be, op->u.attention.q) + at,
        .pages = mf_cpu_pages_of(be, op->u.attention.sequences, seq),
        .k_offset = (size_t)seq->page_offset[0] + kv_at,
        .v_offset = (size_t)seq->page_offset[1] + kv_at,
        .kv_stride = (size_t)n_kv_heads * head_dim,
        .cache_type = op->u.attention.cache_type,
        .n_kv = (uint32_t)(seq->position + row - seq->first_row + 1),
        .head_dim = head_dim,
        .scale = op->u.attention.scale,
        .out = mf_cpu_floats(be, op->u.attention.out) + at,
        .scratch = mf_cpu_scratch(be, thread),
    };
    be->kernels->attention(&args);
}

void mf_cpu_attention(mf_cpu_backend *be, const mf_op *op)
{
    append(be, op);
    mf_cpu_find_pages(be, op->u.attention.sequences, op->u.attention.n_sequences);
    attention_job job = {be, op};
    mf_thread_pool_run(be->pool, op->n_rows * op->u.attention.n_heads, run_attention, &job);
}
