/* SPDX-License-Identifier: MIT */
/* Operations that treat each row of a batch by itself: copies, norms, elementwise products, the
 * router's choice, the combination. */
#include "backend/cpu/cpu_internal.h"

#include <math.h>
#include <string.h>

/* Below this many floats a dispatch to the threads costs more than the work. */
#define INLINE_FLOATS 16384u

typedef struct row_job {
    mf_cpu_backend *be;
    const mf_op *op;
    mf_cpu_row_fn fn;
    uint32_t rows_per_task;
} row_job;

static void run_rows(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    const row_job *job = ctx;
    uint32_t first = task * job->rows_per_task;
    uint32_t end =
        first + job->rows_per_task < job->op->n_rows ? first + job->rows_per_task : job->op->n_rows;
    for (uint32_t row = first; row < end; row++)
        job->fn(job->be, job->op, row);
}

void mf_cpu_for_rows(mf_cpu_backend *be, const mf_op *op, uint32_t floats_per_row, mf_cpu_row_fn fn)
{
    uint32_t per_task = INLINE_FLOATS / (floats_per_row == 0 ? 1 : floats_per_row);
    row_job job = {be, op, fn, per_task == 0 ? 1 : per_task};
    if (op->n_rows <= job.rows_per_task) {
        for (uint32_t row = 0; row < op->n_rows; row++)
            fn(be, op, row);
        return;
    }
    mf_thread_pool_run(be->pool, (op->n_rows + job.rows_per_task - 1) / job.rows_per_task, run_rows,
                       &job);
}

static void embed_row(mf_cpu_backend *be, const mf_op *op, uint32_t row)
{
    const mf_matrix w = mf_cpu_matrix(be, &op->u.embed.weight);
    float *out = mf_cpu_floats(be, op->u.embed.out) + (size_t)row * w.shape.n_cols;
    be->kernels->dequant_row(&w, (uint32_t)op->u.embed.tokens[row], out);
}

void mf_cpu_embed(mf_cpu_backend *be, const mf_op *op)
{
    mf_cpu_for_rows(be, op, op->u.embed.weight.shape.n_cols, embed_row);
}

void mf_cpu_copy_rows(mf_cpu_backend *be, const mf_op *op)
{
    const float *x = mf_cpu_floats(be, op->u.copy_rows.x);
    float *out = mf_cpu_floats(be, op->u.copy_rows.out);
    size_t n_cols = op->u.copy_rows.n_cols;
    for (uint32_t i = 0; i < op->n_rows; i++)
        memcpy(out + i * n_cols, x + op->u.copy_rows.rows[i] * n_cols, n_cols * sizeof *x);
}

static void finite_row(mf_cpu_backend *be, const mf_op *op, uint32_t row)
{
    const mf_finite_params *p = &op->u.finite;
    const uint32_t n = p->n_cols, n_blocks = mf_finite_blocks(n);
    const float *x = mf_cpu_floats(be, p->x) + (size_t)row * n;
    float *out = mf_cpu_floats(be, p->out) + (size_t)row * n_blocks;
    for (uint32_t i = 0; i < n_blocks; i++) {
        const uint32_t first = i * MF_FINITE_BLOCK;
        const uint32_t end = n - first < MF_FINITE_BLOCK ? n : first + MF_FINITE_BLOCK;
        out[i] = -INFINITY;
        for (uint32_t j = first; j < end && !isnan(out[i]); j++)
            out[i] = !isfinite(x[j]) ? NAN : x[j] > out[i] ? x[j] : out[i];
    }
    if (p->copy.buffer.id != 0)
        memcpy(mf_cpu_floats(be, p->copy) + (size_t)row * n, x, n * sizeof *x);
}

void mf_cpu_finite(mf_cpu_backend *be, const mf_op *op)
{
    mf_cpu_for_rows(be, op, op->u.finite.n_cols, finite_row);
}

static void centre(float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i];
    const float mean = (float)(sum / n);
    for (uint32_t i = 0; i < n; i++)
        x[i] -= mean;
}

static void rmsnorm_row(mf_cpu_backend *be, const mf_op *op, uint32_t row)
{
    uint32_t stride = op->u.rmsnorm.stride != 0 ? op->u.rmsnorm.stride : op->u.rmsnorm.n_cols;
    size_t at = (size_t)row * stride;
    if (op->u.rmsnorm.is_centred)
        centre(mf_cpu_floats(be, op->u.rmsnorm.x) + at, op->u.rmsnorm.n_cols);
    be->kernels->rmsnorm(mf_cpu_floats(be, op->u.rmsnorm.x) + at,
                         mf_cpu_floats(be, op->u.rmsnorm.weight), op->u.rmsnorm.eps,
                         op->u.rmsnorm.n_cols, mf_cpu_floats(be, op->u.rmsnorm.out) + at);
}

void mf_cpu_rmsnorm(mf_cpu_backend *be, const mf_op *op)
{
    mf_cpu_for_rows(be, op, op->u.rmsnorm.n_cols, rmsnorm_row);
}

static void rmsnorm_gated_row(mf_cpu_backend *be, const mf_op *op, uint32_t row)
{
    uint32_t n_heads = op->u.rmsnorm_gated.n_heads, head_dim = op->u.rmsnorm_gated.head_dim;
    const float *weight = mf_cpu_floats(be, op->u.rmsnorm_gated.weight);
    for (uint32_t h = 0; h < n_heads; h++) {
        size_t at = ((size_t)row * n_heads + h) * head_dim;
        float *x = mf_cpu_floats(be, op->u.rmsnorm_gated.x) + at;
        const float *z = mf_cpu_floats(be, op->u.rmsnorm_gated.z) + at;
        be->kernels->rmsnorm_gated(x, z, weight, op->u.rmsnorm_gated.eps, head_dim, x);
    }
}

void mf_cpu_rmsnorm_gated(mf_cpu_backend *be, const mf_op *op)
{
    mf_cpu_for_rows(be, op, op->u.rmsnorm_gated.n_heads * op->u.rmsnorm_gated.head_dim * 4,
                    rmsnorm_gated_row);
}

static void sigmoid_mul_row(mf_cpu_backend *be, const mf_op *op, uint32_t row)
{
    size_t at = (size_t)row * op->u.sigmoid_mul.n_cols;
    be->kernels->sigmoid_mul(mf_cpu_floats(be, op->u.sigmoid_mul.x) + at,
                             mf_cpu_floats(be, op->u.sigmoid_mul.gate) + at,
                             op->u.sigmoid_mul.n_cols);
}

void mf_cpu_sigmoid_mul(mf_cpu_backend *be, const mf_op *op)
{
    mf_cpu_for_rows(be, op, op->u.sigmoid_mul.n_cols * 4, sigmoid_mul_row);
}

static void norm_row(mf_cpu_backend *be, const mf_norm_after *norm, const float *x, uint32_t n_cols,
                     uint32_t row)
{
    if (norm->weight.buffer.id != 0)
        be->kernels->rmsnorm(x, mf_cpu_floats(be, norm->weight), norm->eps, n_cols,
                             mf_cpu_floats(be, norm->out) + (size_t)row * n_cols);
}

static void add_row(mf_cpu_backend *be, const mf_op *op, uint32_t row)
{
    size_t at = (size_t)row * op->u.add.n_cols;
    float *x = mf_cpu_floats(be, op->u.add.x) + at;
    const float *y = mf_cpu_floats(be, op->u.add.y) + (op->u.add.y_is_one_row ? 0 : at);
    be->kernels->add(x, y, op->u.add.n_cols, x);
    norm_row(be, &op->u.add.norm, x, op->u.add.n_cols, row);
}

void mf_cpu_add(mf_cpu_backend *be, const mf_op *op)
{
    mf_cpu_for_rows(be, op, op->u.add.n_cols, add_row);
}

static void swiglu_row(mf_cpu_backend *be, const mf_op *op, uint32_t row)
{
    size_t at = (size_t)row * op->u.swiglu.n_cols;
    float *gate = mf_cpu_floats(be, op->u.swiglu.gate) + at;
    float *up = mf_cpu_floats(be, op->u.swiglu.up) + at;
    mf_cpu_limit(gate, up, op->u.swiglu.n_cols, op->u.swiglu.limit);
    be->kernels->swiglu(gate, up, op->u.swiglu.n_cols, mf_cpu_floats(be, op->u.swiglu.out) + at);
}

void mf_cpu_swiglu(mf_cpu_backend *be, const mf_op *op)
{
    mf_cpu_for_rows(be, op, op->u.swiglu.n_cols * 4, swiglu_row);
}

static void scale_by_sigmoid(const mf_cpu_backend *be, float *x, float gate, uint32_t n)
{
    float sigmoid = 1.0f; /* sigmoid_mul(1, gate) is the sigmoid, by the kernel's own exp */
    be->kernels->sigmoid_mul(&sigmoid, &gate, 1);
    for (uint32_t i = 0; i < n; i++)
        x[i] *= sigmoid;
}

/* The sum is kept in x's own order of k, whatever order the experts were computed in. */
static void combine_row(mf_cpu_backend *be, const mf_op *op, uint32_t row)
{
    uint32_t n = op->u.combine.n_cols, k = op->u.combine.k;
    const float *weights = mf_cpu_floats(be, op->u.combine.weights) + (size_t)row * k;
    const float *experts = mf_cpu_floats(be, op->u.combine.experts);
    const size_t first = (size_t)row * k;
    const uint32_t *place = op->u.combine.place;
    float *x = mf_cpu_floats(be, op->u.combine.x) + (size_t)row * n;
    float *sum = x;
    if (op->u.combine.is_put)
        memset(x, 0, n * sizeof *x);
    if (op->u.combine.shared.buffer.id != 0) {
        sum = mf_cpu_floats(be, op->u.combine.shared) + (size_t)row * n;
        if (op->u.combine.shared_gate.buffer.id != 0)
            scale_by_sigmoid(be, sum, mf_cpu_floats(be, op->u.combine.shared_gate)[row], n);
    }
    for (uint32_t j = 0; j < k; j++) {
        const size_t from = place != NULL ? place[first + j] : first + j;
        be->kernels->axpy(sum, experts + from * n, weights[j], n);
    }
    if (sum != x)
        be->kernels->add(x, sum, n, x);
    norm_row(be, &op->u.combine.norm, x, n, row);
}

void mf_cpu_combine(mf_cpu_backend *be, const mf_op *op)
{
    mf_cpu_for_rows(be, op, op->u.combine.n_cols * (op->u.combine.k + 2), combine_row);
}
