/* SPDX-License-Identifier: MIT */
/* Attention over the cached keys and values, and the normalisation and rotation before it. */
#include "backend/cpu/cpu_internal.h"

#include <string.h>

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

static void append(mf_cpu_backend *be, const mf_op *op)
{
    size_t width = (size_t)op->u.attention.n_kv_heads * op->u.attention.head_dim;
    for (uint32_t s = 0; s < op->u.attention.n_sequences; s++) {
        const mf_sequence *seq = &op->u.attention.sequences[s];
        size_t from = seq->first_row * width, to = (size_t)seq->position * width;
        size_t n_bytes = seq->n_rows * width * sizeof(float);
        memcpy(mf_cpu_floats(be, seq->state[0]) + to, mf_cpu_floats(be, op->u.attention.k) + from,
               n_bytes);
        memcpy(mf_cpu_floats(be, seq->state[1]) + to, mf_cpu_floats(be, op->u.attention.v) + from,
               n_bytes);
    }
}

static void run_attention(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    const attention_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_op *op = job->op;
    uint32_t n_heads = op->u.attention.n_heads, n_kv_heads = op->u.attention.n_kv_heads;
    uint32_t head_dim = op->u.attention.head_dim;
    /* Longest rows first, so that the threads end together. */
    uint32_t row = op->n_rows - 1 - task / n_heads, h = task % n_heads;
    const mf_sequence *seq =
        mf_cpu_sequence_of(op->u.attention.sequences, op->u.attention.n_sequences, row);
    size_t kv_at = (size_t)(h / (n_heads / n_kv_heads)) * head_dim;
    size_t at = ((size_t)row * n_heads + h) * head_dim;
    const mf_attention_args args = {
        .q = mf_cpu_floats(be, op->u.attention.q) + at,
        .k = mf_cpu_floats(be, seq->state[0]) + kv_at,
        .v = mf_cpu_floats(be, seq->state[1]) + kv_at,
        .kv_stride = (size_t)n_kv_heads * head_dim,
        .n_kv = (uint32_t)(seq->position + row - seq->first_row + 1),
        .head_dim = head_dim,
        .scale = op->u.attention.scale,
        .out = mf_cpu_floats(be, op->u.attention.out) + at,
    };
    be->kernels->attention(&args);
}

void mf_cpu_attention(mf_cpu_backend *be, const mf_op *op)
{
    append(be, op);
    attention_job job = {be, op};
    mf_thread_pool_run(be->pool, op->n_rows * op->u.attention.n_heads, run_attention, &job);
}
