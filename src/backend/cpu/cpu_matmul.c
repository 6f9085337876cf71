/* SPDX-License-Identifier: MIT */
/* Matrix products: rows are cut into blocks that the threads take; experts are sets of products. */
#include "backend/cpu/cpu_internal.h"

#include <string.h>

#define MAX_PRODUCTS 64u
/*
 * Rows a task takes: few enough that each thread gets several tasks and all end together, and as
 * many as that allows, up to a limit: each task begins a new stream of reads, and what is
 * prefetched past its end is another thread's. With several tokens each task packs them for itself,
 * and its rows are constant.
 */
#define MIN_BLOCK_ROWS 64u
#define MAX_BLOCK_ROWS 512u
#define TASKS_PER_THREAD 8u
#define BLOCK_ROWS_PACKED 128u
#define PACKED_TOKENS 4u

typedef struct product_job {
    mf_cpu_backend *be;
    const mf_cpu_product *products;
    uint32_t n;
    uint32_t block_rows; /* of products of few tokens */
    uint32_t first_task[MAX_PRODUCTS + 1];
} product_job;

static uint32_t common_block_rows(const product_job *job)
{
    uint64_t n_rows = 0;
    for (uint32_t j = 0; j < job->n; j++)
        n_rows += job->products[j].w.n_rows;
    uint64_t n = n_rows / ((uint64_t)job->be->n_threads * TASKS_PER_THREAD);
    n -= n % MIN_BLOCK_ROWS;
    if (n > MAX_BLOCK_ROWS)
        return MAX_BLOCK_ROWS;
    return n < MIN_BLOCK_ROWS ? MIN_BLOCK_ROWS : (uint32_t)n;
}

static uint32_t block_rows(const product_job *job, const mf_cpu_product *p)
{
    return p->n_tokens < PACKED_TOKENS ? job->block_rows : BLOCK_ROWS_PACKED;
}

static void run_block(void *ctx, uint32_t task, uint32_t thread)
{
    const product_job *job = ctx;
    uint32_t j = 0;
    while (task >= job->first_task[j + 1])
        j++;
    const mf_cpu_product *p = &job->products[j];
    uint32_t n = block_rows(job, p), row0 = (task - job->first_task[j]) * n;
    uint32_t row1 = row0 + n < p->w.n_rows ? row0 + n : p->w.n_rows;
    job->be->kernels->matmul(&p->w, row0, row1, p->x, p->x_stride, p->n_tokens, p->y + row0,
                             p->y_stride, mf_cpu_scratch(job->be, thread));
}

static uint64_t matrix_bytes(const mf_matrix *w)
{
    const mf_weight shape = {.kind = w->kind,
                             .float_type = w->float_type,
                             .bits = w->bits,
                             .group = w->group,
                             .n_rows = w->n_rows,
                             .n_cols = w->n_cols};
    return mf_weight_bytes(&shape);
}

void mf_cpu_products(mf_cpu_backend *be, const mf_cpu_product *products, uint32_t n)
{
    for (uint32_t done = 0; done < n; done += MAX_PRODUCTS) {
        product_job job = {
            be, products + done, n - done < MAX_PRODUCTS ? n - done : MAX_PRODUCTS, 0, {0}};
        job.block_rows = common_block_rows(&job);
        for (uint32_t j = 0; j < job.n; j++) {
            const mf_matrix *w = &job.products[j].w;
            uint32_t block = block_rows(&job, &job.products[j]);
            job.first_task[j + 1] = job.first_task[j] + (w->n_rows + block - 1) / block;
            be->weight_bytes += matrix_bytes(w);
        }
        mf_thread_pool_run(be->pool, job.first_task[job.n], run_block, &job);
    }
}

void mf_cpu_matmul(mf_cpu_backend *be, const mf_op *op)
{
    mf_cpu_product products[MF_MAX_MATMULS];
    for (uint32_t j = 0; j < op->u.matmul.n; j++) {
        mf_matrix w = mf_cpu_matrix(be, &op->u.matmul.weight[j]);
        products[j] = (mf_cpu_product){w,          mf_cpu_floats(be, op->u.matmul.x),    w.n_cols,
                                       op->n_rows, mf_cpu_floats(be, op->u.matmul.y[j]), w.n_rows};
    }
    mf_cpu_products(be, products, op->u.matmul.n);
}

/* Items whose gathered inputs fit the gather buffer together: at most MAX_PRODUCTS / 2 of them. */
typedef struct expert_batch {
    uint32_t first, n;
    uint32_t n_rows;
} expert_batch;

static expert_batch next_batch(const mf_cpu_backend *be, const mf_op *op, uint32_t first)
{
    const mf_expert_item *items = op->u.experts.items;
    uint32_t capacity = (uint32_t)(be->gather_bytes / sizeof(float) / items[0].gate.n_cols);
    expert_batch batch = {first, 0, 0};
    while (first + batch.n < op->u.experts.n_items && batch.n < MAX_PRODUCTS / 2) {
        uint32_t n_rows = items[first + batch.n].n_rows;
        if (batch.n > 0 && batch.n_rows + n_rows > capacity)
            break;
        batch.n_rows += n_rows;
        batch.n++;
    }
    return batch;
}

static void gather_rows(mf_cpu_backend *be, const mf_op *op, const expert_batch *batch)
{
    float *out = be->gather;
    const float *x = mf_cpu_floats(be, op->u.experts.x);
    for (uint32_t i = 0; i < batch->n; i++) {
        const mf_expert_item *item = &op->u.experts.items[batch->first + i];
        size_t n_cols = item->gate.n_cols;
        for (uint32_t r = 0; r < item->n_rows; r++, out += n_cols)
            memcpy(out, x + item->x_rows[r] * n_cols, n_cols * sizeof *out);
    }
}

static void run_swiglu(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    const product_job *job = ctx; /* products come in pairs: gate, up */
    const mf_cpu_product *gate = &job->products[2 * task], *up = &job->products[2 * task + 1];
    for (uint32_t t = 0; t < gate->n_tokens; t++)
        job->be->kernels->swiglu(gate->y + t * gate->y_stride, up->y + t * up->y_stride,
                                 gate->w.n_rows, gate->y + t * gate->y_stride);
}

static void run_experts(mf_cpu_backend *be, const mf_op *op, const expert_batch *batch)
{
    mf_cpu_product in[MAX_PRODUCTS], down[MAX_PRODUCTS / 2];
    const float *x = be->gather;
    float *act = mf_cpu_floats(be, op->u.experts.act), *out = mf_cpu_floats(be, op->u.experts.out);
    gather_rows(be, op, batch);
    for (uint32_t i = 0; i < batch->n; i++) {
        const mf_expert_item *item = &op->u.experts.items[batch->first + i];
        size_t hidden = item->gate.n_rows, n_cols = item->gate.n_cols;
        float *gate = act + (size_t)item->out_row * 2 * hidden;
        in[2 * i] = (mf_cpu_product){
            mf_cpu_matrix(be, &item->gate), x, n_cols, item->n_rows, gate, 2 * hidden};
        in[2 * i + 1] = (mf_cpu_product){
            mf_cpu_matrix(be, &item->up), x, n_cols, item->n_rows, gate + hidden, 2 * hidden};
        down[i] =
            (mf_cpu_product){mf_cpu_matrix(be, &item->down),       gate,  2 * hidden, item->n_rows,
                             out + (size_t)item->out_row * n_cols, n_cols};
        x += item->n_rows * n_cols;
    }
    mf_cpu_products(be, in, 2 * batch->n);
    product_job swiglu = {be, in, 2 * batch->n, 0, {0}};
    mf_thread_pool_run(be->pool, batch->n, run_swiglu, &swiglu);
    mf_cpu_products(be, down, batch->n);
}

void mf_cpu_experts(mf_cpu_backend *be, const mf_op *op)
{
    for (uint32_t done = 0; done < op->u.experts.n_items;) {
        expert_batch batch = next_batch(be, op, done);
        run_experts(be, op, &batch);
        done += batch.n;
    }
}
