/* SPDX-License-Identifier: MIT */
/* Multi-head latent attention: rotation, the per-head products that the up-projections are absorbed
 * by, and the attention over the cached latents. */
#include "backend/cpu/cpu_internal.h"

#include <string.h>

/* Heads of an attention task at least: the kernel meets the cache with a few at once. */
#define MIN_HEADS 4u

typedef struct latent_job {
    mf_cpu_backend *be;
    const mf_op *op;
    uint32_t n_heads;                  /* of a task of the attention */
    uint32_t per_row;                  /* tasks */
    uint32_t row;                      /* the only one, UINT32_MAX: all */
    const unsigned char *const *pages; /* that row's gathered ones; NULL: the sequence's */
} latent_job;

void mf_cpu_rotate_pairs(float *x, const float *cos, const float *sin, uint32_t n_rot)
{
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos[i] - b * sin[i];
        x[2 * i + 1] = b * cos[i] + a * sin[i];
    }
}

/* By the negative angle, pairs as the operation has them. */
static void rotate_back(float *x, const float *cos, const float *sin, const mf_rope_params *p)
{
    const uint32_t half = p->n_rot / 2, step = p->interleaved ? 2 : 1;
    const uint32_t apart = p->interleaved ? 1 : half;
    for (uint32_t i = 0; i < half; i++) {
        float *pair = x + (size_t)step * i;
        const float a = pair[0], b = pair[apart];
        pair[0] = a * cos[i] + b * sin[i];
        pair[apart] = b * cos[i] - a * sin[i];
    }
}

static void run_rope(void *ctx, uint32_t row, uint32_t thread)
{
    (void)thread;
    const latent_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_op *op = job->op;
    uint32_t n_rot = op->u.rope.n_rot;
    const uint32_t batch_row = op->first_row + row;
    const mf_sequence *seq = mf_cpu_sequence_of(be, batch_row);
    size_t angle = (size_t)mf_cpu_position_of(seq, batch_row) * (n_rot / 2);
    const float *cos = mf_cpu_floats(be, op->u.rope.cos) + angle;
    const float *sin = mf_cpu_floats(be, op->u.rope.sin) + angle;
    float *x = mf_cpu_floats(be, op->u.rope.x) + (size_t)row * op->u.rope.row_stride;
    for (uint32_t h = 0; h < op->u.rope.n_heads; h++, x += op->u.rope.head_stride) {
        if (op->u.rope.is_inverse)
            rotate_back(x, cos, sin, &op->u.rope);
        else if (op->u.rope.interleaved)
            mf_cpu_rotate_pairs(x, cos, sin, n_rot);
        else
            be->kernels->rope(x, cos, sin, n_rot);
    }
}

void mf_cpu_rope(mf_cpu_backend *be, const mf_op *op)
{
    latent_job job = {.be = be, .op = op};
    mf_thread_pool_run(be->pool, op->n_rows, run_rope, &job);
}

/* y = W^T x: rows of W are expanded a few at a time and added to every token's sum in their
 * order. */
static void transposed_head(const latent_job *job, const mf_matrix *w, uint32_t row0,
                            const float *x, float *y, float *expanded)
{
    const mf_op *op = job->op;
    const mf_kernels *kernels = job->be->kernels;
    uint32_t n_rows = op->u.head_matmul.w.n_rows, n_cols = w->shape.n_cols;
    for (uint32_t t = 0; t < op->n_rows; t++)
        memset(y + (size_t)t * op->u.head_matmul.y_row, 0, n_cols * sizeof *y);
    for (uint32_t i = 0; i < n_rows; i += MF_CPU_TRANSPOSED_ROWS) {
        uint32_t n = n_rows - i < MF_CPU_TRANSPOSED_ROWS ? n_rows - i : MF_CPU_TRANSPOSED_ROWS;
        for (uint32_t j = 0; j < n; j++)
            kernels->dequant_row(w, row0 + i + j, expanded + (size_t)j * n_cols);
        for (uint32_t t = 0; t < op->n_rows; t++) {
            float *sum = y + (size_t)t * op->u.head_matmul.y_row;
            const float *factor = x + (size_t)t * op->u.head_matmul.x_row + i;
            for (uint32_t j = 0; j < n; j++)
                kernels->axpy(sum, expanded + (size_t)j * n_cols, factor[j], n_cols);
        }
    }
}

static void run_head(void *ctx, uint32_t h, uint32_t thread)
{
    const latent_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_op *op = job->op;
    const mf_head_weight *head = &op->u.head_matmul.w;
    const mf_matrix w = mf_cpu_matrix(be, &head->weight);
    uint32_t row0 = h * head->head_rows + head->first_row;
    const float *x = mf_cpu_floats(be, op->u.head_matmul.x) + (size_t)h * op->u.head_matmul.x_head;
    float *y = mf_cpu_floats(be, op->u.head_matmul.y) + (size_t)h * op->u.head_matmul.y_head;
    if (head->transposed)
        transposed_head(job, &w, row0, x, y, mf_cpu_scratch(be, thread));
    else
        be->kernels->matmul(&w, row0, row0 + head->n_rows, x, op->u.head_matmul.x_row, op->n_rows,
                            y, op->u.head_matmul.y_row, mf_cpu_scratch(be, thread));
}

void mf_cpu_head_matmul(mf_cpu_backend *be, const mf_op *op)
{
    latent_job job = {.be = be, .op = op};
    const mf_head_weight *w = &op->u.head_matmul.w;
    mf_weight_shape part = w->weight.shape;
    part.n_rows = w->n_rows * op->u.head_matmul.n_heads;
    be->weight_bytes += mf_weight_bytes(&part);
    mf_thread_pool_run(be->pool, op->u.head_matmul.n_heads, run_head, &job);
}

static void run_attention(void *ctx, uint32_t task, uint32_t thread)
{
    const latent_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_op *op = job->op;
    uint32_t n_heads = op->u.latent_attention.n_heads, n_latent = op->u.latent_attention.n_latent;
    /* Longest rows first, so that the threads end together. */
    uint32_t row = job->row != UINT32_MAX ? job->row : op->n_rows - 1 - task / job->per_row;
    uint32_t h = task % job->per_row * job->n_heads;
    const uint32_t batch_row = op->first_row + row;
    const mf_sequence *seq = mf_cpu_sequence_of(be, batch_row);
    size_t at = ((size_t)row * n_heads + h) * n_latent;
    const mf_latent_args args = {
        .q = mf_cpu_floats(be, op->u.latent_attention.q) + at,
        .q_rot = mf_cpu_floats(be, op->u.latent_attention.q_rot) +
                 (size_t)row * op->u.latent_attention.q_rot_row +
                 (size_t)h * op->u.latent_attention.q_rot_head,
        .pages = job->pages != NULL ? job->pages : mf_cpu_pages_of(be, seq, false),
        .offset = job->pages != NULL ? 0 : (size_t)op->u.latent_attention.page_offset,
        .out = mf_cpu_floats(be, op->u.latent_attention.out) + at,
        .scratch = mf_cpu_scratch(be, thread),
        .q_stride = n_latent,
        .q_rot_stride = op->u.latent_attention.q_rot_head,
        .out_stride = n_latent,
        .cache_type = op->u.latent_attention.cache_type,
        .n_kv = job->pages != NULL ? op->u.latent_attention.index.n_most
                                   : (uint32_t)mf_cpu_position_of(seq, batch_row) + 1,
        .n_heads = n_heads - h < job->n_heads ? n_heads - h : job->n_heads,
        .n_latent = n_latent,
        .n_rot = op->u.latent_attention.n_rot,
        .scale = op->u.latent_attention.scale,
    };
    be->kernels->latent_attention(&args);
}

/* Row by row: what one sees is gathered where the next one's will be. */
static void attend_chosen(latent_job *job)
{
    mf_cpu_backend *be = job->be;
    const mf_op *op = job->op;
    const uint32_t n_most = op->u.latent_attention.index.n_most;
    const uint32_t n_heads = op->u.latent_attention.n_heads;
    const unsigned char *pages[MF_INDEX_MOST / MF_PAGE_TOKENS];
    while (job->n_heads > MIN_HEADS && job->per_row < 2 * be->n_threads) {
        job->n_heads /= 2;
        job->per_row = (n_heads + job->n_heads - 1) / job->n_heads;
    }
    for (job->row = 0; job->row < op->n_rows; job->row++) {
        const uint32_t batch_row = op->first_row + job->row;
        const mf_sequence *seq = mf_cpu_sequence_of(be, batch_row);
        job->pages = NULL;
        if (mf_cpu_position_of(seq, batch_row) >= n_most) {
            mf_cpu_index_gather(be, op, job->row, pages);
            job->pages = pages;
        }
        mf_thread_pool_run(be->pool, job->per_row, run_attention, job);
    }
}

/* Every task reads the whole cache: few with many heads each, as long as no thread stands idle. */
void mf_cpu_latent_attention(mf_cpu_backend *be, const mf_op *op)
{
    const mf_latent_attention_params *p = &op->u.latent_attention;
    const mf_cpu_cache cache = {p->page_offset, 1, p->n_latent + p->n_rot, p->cache_type, false};
    mf_cpu_append(be, op, p->kv, &cache);
    uint32_t n_heads = op->u.latent_attention.n_heads;
    latent_job job = {.be = be,
                      .op = op,
                      .n_heads = MF_LATENT_HEADS,
                      .per_row = (n_heads + MF_LATENT_HEADS - 1) / MF_LATENT_HEADS,
                      .row = UINT32_MAX};
    if (p->index.n_most != 0) {
        mf_cpu_index_append(be, op);
        attend_chosen(&job);
        return;
    }
    while (job.n_heads > MIN_HEADS && op->n_rows * job.per_row < 2 * be->n_threads) {
        job.n_heads /= 2;
        job.per_row = (n_heads + job.n_heads - 1) / job.n_heads;
    }
    mf_thread_pool_run(be->pool, op->n_rows * job.per_row, run_attention, &job);
}
