/* SPDX-License-Identifier: MIT */
/* Matrix products: rows are cut into blocks that the threads take. */
#include "backend/cpu/cpu_internal.h"

#define MAX_PRODUCTS MF_CPU_MAX_PRODUCTS
/*
 * Rows a task takes: few enough that each thread gets several tasks and all end together, and as
 * many as that allows, up to a limit: each task begins a new stream of reads, and what is
 * prefetched past its end is another thread's. With several tokens each task may lay these out for
 * itself, so it takes no few rows.
 */
#define MIN_BLOCK_ROWS 64u
#define MAX_BLOCK_ROWS 512u
#define TASKS_PER_THREAD 8u
#define MIN_ROWS_PACKED 128u
#define PACKED_TOKENS 4u

typedef struct product_job {
    mf_cpu_backend *be;
    const mf_cpu_product *products;
    uint32_t n;
    uint32_t block_rows; /* but for products of several tokens, where that is too few */
    uint32_t first_task[MAX_PRODUCTS + 1];
} product_job;

static uint32_t common_block_rows(const product_job *job)
{
    uint64_t n_rows = 0;
    for (uint32_t j = 0; j < job->n; j++)
        n_rows += job->products[j].w.shape.n_rows;
    uint64_t n = n_rows / ((uint64_t)job->be->n_threads * TASKS_PER_THREAD);
    n -= n % MIN_BLOCK_ROWS;
    if (n > MAX_BLOCK_ROWS)
        return MAX_BLOCK_ROWS;
    return n < MIN_BLOCK_ROWS ? MIN_BLOCK_ROWS : (uint32_t)n;
}

static uint32_t block_rows(const product_job *job, const mf_cpu_product *p)
{
    if (p->n_tokens < PACKED_TOKENS || job->block_rows > MIN_ROWS_PACKED)
        return job->block_rows;
    return MIN_ROWS_PACKED;
}

static void run_block(void *ctx, uint32_t task, uint32_t thread)
{
    const product_job *job = ctx;
    uint32_t j = 0;
    while (task >= job->first_task[j + 1])
        j++;
    const mf_cpu_product *p = &job->products[j];
    uint32_t n = block_rows(job, p), row0 = (task - job->first_task[j]) * n;
    uint32_t row1 = row0 + n < p->w.shape.n_rows ? row0 + n : p->w.shape.n_rows;
    const mf_kernels *kernels = job->be->kernels;
    void *scratch = mf_cpu_scratch(job->be, thread);
    if (p->prepared != NULL)
        kernels->matmul_prepared(&p->w, row0, row1, p->prepared, p->n_tokens, p->y + row0,
                                 p->y_stride, scratch);
    else
        kernels->matmul(&p->w, row0, row1, p->x, p->x_stride, p->n_tokens, p->y + row0, p->y_stride,
                        scratch);
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
            job.first_task[j + 1] = job.first_task[j] + (w->shape.n_rows + block - 1) / block;
            be->weight_bytes += mf_weight_bytes(&w->shape);
        }
        mf_thread_pool_run(be->pool, job.first_task[job.n], run_block, &job);
    }
}

typedef struct prepare_job {
    const mf_cpu_backend *be;
    const mf_matrix *w;
    const float *x;
    size_t token_bytes;
    unsigned char *out;
} prepare_job;

static void run_prepare(void *ctx, uint32_t token, uint32_t thread)
{
    (void)thread;
    const prepare_job *job = ctx;
    job->be->kernels->prepare_token(job->w, job->x + (size_t)token * job->w->shape.n_cols,
                                    job->out + token * job->token_bytes);
}

/* The forms that tokens have been prepared in, one after the other. */
typedef struct token_forms {
    size_t token_bytes[MF_MAX_MATMULS], at[MF_MAX_MATMULS], used;
    uint32_t n;
} token_forms;

/* The index of the form of so many bytes a token; n, if there is none. */
static uint32_t form_of(const token_forms *forms, size_t token_bytes)
{
    uint32_t i = 0;
    while (i < forms->n && forms->token_bytes[i] != token_bytes)
        i++;
    return i;
}

/* n_rows tokens in the form that job->w takes, once for all that take the same; NULL: there is no
 * room left. */
static const void *prepare(mf_cpu_backend *be, prepare_job *job, uint32_t n_rows,
                           token_forms *forms)
{
    const uint32_t i = form_of(forms, job->token_bytes);
    if (i < forms->n)
        return be->prepared + forms->at[i];
    const size_t n_bytes = job->token_bytes * n_rows;
    if (n_bytes > be->prepared_bytes - forms->used)
        return NULL;
    job->out = be->prepared + forms->used;
    mf_thread_pool_run(be->pool, n_rows, run_prepare, job);
    forms->token_bytes[i] = job->token_bytes;
    forms->at[i] = forms->used;
    forms->used += n_bytes;
    forms->n++;
    return job->out;
}

/* Rows [row, row + n_rows). */
static void multiply_rows(mf_cpu_backend *be, const mf_op *op, uint32_t row, uint32_t n_rows)
{
    mf_cpu_product products[MF_MAX_MATMULS];
    token_forms forms = {.n = 0};
    for (uint32_t j = 0; j < op->u.matmul.n; j++) {
        mf_matrix w = mf_cpu_matrix(be, &op->u.matmul.weight[j]);
        const float *x = mf_cpu_floats(be, op->u.matmul.x) + (size_t)row * w.shape.n_cols;
        float *y = mf_cpu_floats(be, op->u.matmul.y[j]) + (size_t)row * w.shape.n_rows;
        prepare_job job = {be, &w, x, be->kernels->token_bytes(&w), NULL};
        products[j] = (mf_cpu_product){.w = w,
                                       .x = x,
                                       .x_stride = w.shape.n_cols,
                                       .n_tokens = n_rows,
                                       .y = y,
                                       .y_stride = w.shape.n_rows};
        if (job.token_bytes != 0)
            products[j].prepared = prepare(be, &job, n_rows, &forms);
    }
    mf_cpu_products(be, products, op->u.matmul.n);
}

/* Bytes of a token in all of its forms. */
static size_t token_bytes_of(const mf_cpu_backend *be, const mf_op *op)
{
    token_forms forms = {.n = 0};
    for (uint32_t j = 0; j < op->u.matmul.n; j++) {
        const mf_matrix w = {.shape = op->u.matmul.weight[j].shape};
        const size_t token_bytes = be->kernels->token_bytes(&w);
        if (token_bytes == 0 || form_of(&forms, token_bytes) < forms.n)
            continue;
        forms.token_bytes[forms.n++] = token_bytes;
        forms.used += token_bytes;
    }
    return forms.used;
}

void mf_cpu_matmul(mf_cpu_backend *be, const mf_op *op)
{
    /* as many rows as fit the buffer; all, if it is too small for any */
    const size_t token_bytes = token_bytes_of(be, op);
    const size_t fit = token_bytes == 0 ? 0 : be->prepared_bytes / token_bytes;
    const uint32_t most = fit == 0 || fit > op->n_rows ? op->n_rows : (uint32_t)fit;
    for (uint32_t row = 0; row < op->n_rows; row += most)
        multiply_rows(be, op, row, op->n_rows - row < most ? op->n_rows - row : most);
}
