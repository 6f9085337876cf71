/* SPDX-License-Identifier: MIT */
/* Matrix products: rows are cut into blocks that the threads take, and tokens where rows are few.
 */
#include "backend/cpu/cpu_internal.h"

#define MAX_PRODUCTS MF_CPU_MAX_PRODUCTS
#define TASKS_PER_THREAD 8u /* of few tokens: enough that all threads end together */
/*
 * Few tokens are bound by memory: a task takes about as many bytes of each matrix, whatever its
 * form. Each begins a new stream of reads, and what is prefetched past its end is another thread's,
 * so it takes as many as the number of tasks allows, up to a limit, and some at least.
 */
#define ROW_STEP 16u /* of the kernels' panels */
#define MAX_BLOCK_ROWS 512u
#define MIN_TASK_BYTES ((uint64_t)32 << 10)
/*
 * From PACKED_TOKENS on a task may lay tokens out for itself, and reads them for every panel of its
 * rows again, so that it takes no few rows. Where these do not make tasks enough, tokens are cut
 * too: whole groups, as kernels take them.
 */
#define PACKED_TOKENS 4u
#define MIN_ROWS_PACKED 128u
#define PACKED_TASKS_PER_THREAD 8u
#define TOKEN_STEP 48u

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t parts_of(uint32_t n, uint32_t each)
{
    return (n + each - 1) / each;
}

static uint32_t round_rows(uint64_t n_rows)
{
    if (n_rows > MAX_BLOCK_ROWS)
        return MAX_BLOCK_ROWS;
    return n_rows < ROW_STEP ? ROW_STEP : (uint32_t)(n_rows - n_rows % ROW_STEP);
}

bool mf_cpu_has_few_tokens(const mf_cpu_product *product)
{
    return product->n_tokens < PACKED_TOKENS;
}

/* Tokens of a task of the product, all being of n_blocks blocks of rows. */
static uint32_t block_tokens(const mf_cpu_backend *be, const mf_cpu_product *p, uint32_t n_blocks)
{
    if (mf_cpu_has_few_tokens(p))
        return p->n_tokens;
    const uint32_t n_parts = parts_of(be->n_threads * PACKED_TASKS_PER_THREAD, n_blocks);
    const uint32_t n = parts_of(parts_of(p->n_tokens, n_parts), TOKEN_STEP) * TOKEN_STEP;
    return least(n, p->n_tokens);
}

/* Of the product's rows. */
static uint64_t bytes_of(const mf_cpu_product *p)
{
    mf_weight_shape part = p->w.shape;
    part.n_rows = p->n_rows;
    return mf_weight_bytes(&part);
}

/* The rows of each product's tasks; returns how many blocks of them there are. */
static uint32_t cut_rows(mf_cpu_product_tasks *t)
{
    uint64_t n_bytes = 0, n_rows = 0;
    for (uint32_t j = 0; j < t->n; j++) {
        n_bytes += bytes_of(&t->products[j]);
        n_rows += t->products[j].n_rows;
    }
    const uint64_t n_tasks = (uint64_t)t->be->n_threads * TASKS_PER_THREAD;
    const uint64_t each = n_bytes / n_tasks > MIN_TASK_BYTES ? n_bytes / n_tasks : MIN_TASK_BYTES;
    const uint32_t rows = round_rows(n_rows / n_tasks);
    const uint32_t packed = rows > MIN_ROWS_PACKED ? rows : MIN_ROWS_PACKED;
    uint32_t n_blocks = 0;
    for (uint32_t j = 0; j < t->n; j++) {
        const mf_cpu_product *p = &t->products[j];
        const uint64_t few = each * p->w.shape.n_rows / mf_weight_bytes(&p->w.shape);
        t->block_rows[j] = mf_cpu_has_few_tokens(p) ? round_rows(few) : packed;
        n_blocks += parts_of(p->n_rows, t->block_rows[j]);
    }
    t->be->weight_bytes += n_bytes;
    return n_blocks;
}

void mf_cpu_cut_products(mf_cpu_backend *be, const mf_cpu_product *products, uint32_t n,
                         mf_cpu_product_tasks *out)
{
    out->be = be;
    out->products = products;
    out->n = n;
    out->first_task[0] = 0;
    const uint32_t n_blocks = cut_rows(out);
    for (uint32_t j = 0; j < n; j++) {
        const mf_cpu_product *p = &products[j];
        out->block_tokens[j] = block_tokens(be, p, n_blocks);
        const uint32_t n_tasks =
            parts_of(p->n_rows, out->block_rows[j]) * parts_of(p->n_tokens, out->block_tokens[j]);
        out->first_task[j + 1] = out->first_task[j] + n_tasks;
    }
}

uint32_t mf_cpu_product_of_task(const mf_cpu_product_tasks *tasks, uint32_t task)
{
    uint32_t j = 0;
    while (task >= tasks->first_task[j + 1])
        j++;
    return j;
}

/* Tasks of the same tokens follow each other. */
void mf_cpu_run_product_task(const mf_cpu_product_tasks *tasks, uint32_t task, uint32_t thread)
{
    const uint32_t j = mf_cpu_product_of_task(tasks, task), at = task - tasks->first_task[j];
    const mf_cpu_product *p = &tasks->products[j];
    const mf_kernels *kernels = tasks->be->kernels;
    const uint32_t n_blocks = parts_of(p->n_rows, tasks->block_rows[j]);
    const uint32_t row0 = p->first_row + at % n_blocks * tasks->block_rows[j];
    const uint32_t row1 = least(row0 + tasks->block_rows[j], p->first_row + p->n_rows);
    const uint32_t token = at / n_blocks * tasks->block_tokens[j];
    const uint32_t n_tokens = least(tasks->block_tokens[j], p->n_tokens - token);
    float *y = p->y + token * p->y_stride + row0;
    void *scratch = mf_cpu_scratch(tasks->be, thread);
    if (p->prepared != NULL) {
        const unsigned char *tokens = p->prepared;
        kernels->matmul_prepared(&p->w, row0, row1, tokens + token * kernels->token_bytes(&p->w),
                                 n_tokens, y, p->y_stride, scratch);
    } else {
        kernels->matmul(&p->w, row0, row1, p->x + token * p->x_stride, p->x_stride, n_tokens, y,
                        p->y_stride, scratch);
    }
}

/* How far it is from one of the product's tasks to the next, and where the first one's middle is.
 */
typedef struct task_places {
    const unsigned char *middle;
    uint64_t apart;
} task_places;

static task_places places_of(const mf_cpu_product_tasks *tasks, uint32_t j)
{
    const mf_cpu_product *p = &tasks->products[j];
    const uint64_t row = mf_weight_array_bytes(&p->w.shape, 0) / p->w.shape.n_rows;
    const uint64_t apart = row * tasks->block_rows[j];
    const unsigned char *first = p->w.arrays[0];
    return (task_places){first + row * p->first_row + apart / 2, apart};
}

void mf_cpu_sort_tasks(const mf_cpu_product_tasks *tasks, uint32_t first, uint16_t *order,
                       uint32_t *end)
{
    const uint32_t n_homes = tasks->be->n_homes;
    uint32_t at[MF_NUMA_MAX_NODES] = {0};
    for (uint32_t j = 0; j < tasks->n; j++) {
        const task_places places = places_of(tasks, j);
        const uint32_t n = tasks->first_task[j + 1] - tasks->first_task[j];
        for (uint32_t i = 0; i < n; i++)
            at[mf_numa_turn(n_homes, places.middle + i * places.apart)]++;
    }
    for (uint32_t home = 0, n = first; home < n_homes; home++) {
        end[home] = n + at[home];
        at[home] = n;
        n = end[home];
    }
    for (uint32_t j = 0; j < tasks->n; j++) {
        const task_places places = places_of(tasks, j);
        for (uint32_t task = tasks->first_task[j], i = 0; task < tasks->first_task[j + 1]; task++)
            order[at[mf_numa_turn(n_homes, places.middle + i++ * places.apart)]++] =
                (uint16_t)(first + task);
    }
}

static void run_task(void *ctx, uint32_t task, uint32_t thread)
{
    mf_cpu_run_product_task(ctx, task, thread);
}

/* The home's share of the rows, as mf_numa_share has it, in whole panels. */
static void take_share(mf_cpu_product *p, uint32_t home, uint32_t n_homes)
{
    const uint64_t n_panels = parts_of(p->n_rows, ROW_STEP);
    const uint32_t first = (uint32_t)(n_panels * home / n_homes) * ROW_STEP;
    const uint32_t end = (uint32_t)(n_panels * (home + 1) / n_homes) * ROW_STEP;
    p->first_row = first;
    p->n_rows = least(end, p->n_rows) - first;
}

/* Each product becomes one for each home, of the rows that lie there. */
static void multiply_at_home(mf_cpu_backend *be, const mf_cpu_product *products, uint32_t n)
{
    _Static_assert(MF_MAX_MATMULS * MF_NUMA_MAX_NODES <= MAX_PRODUCTS, "they go together");
    mf_cpu_product shares[MAX_PRODUCTS];
    mf_cpu_product_tasks tasks;
    uint32_t end[MF_NUMA_MAX_NODES];
    for (uint32_t i = 0; i < n * be->n_homes; i++) {
        shares[i] = products[i % n];
        take_share(&shares[i], i / n, be->n_homes);
    }
    mf_cpu_cut_products(be, shares, n * be->n_homes, &tasks);
    for (uint32_t home = 0; home < be->n_homes; home++)
        end[home] = tasks.first_task[(home + 1) * n];
    mf_thread_pool_run_at_home(be->pool, 1, end, run_task, &tasks);
}

/* Products of one operation. */
static void multiply(mf_cpu_backend *be, const mf_cpu_product *products, uint32_t n)
{
    mf_cpu_product_tasks tasks;
    mf_cpu_cut_products(be, products, n, &tasks);
    mf_thread_pool_run(be->pool, tasks.first_task[tasks.n], run_task, &tasks);
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

static bool have_homes(const mf_cpu_backend *be, const mf_matmul_params *p)
{
    bool have = true;
    for (uint32_t j = 0; j < p->n; j++)
        have = have && be->has_homes[p->weight[j].data.buffer.id - 1];
    return have;
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
                                       .n_rows = w.shape.n_rows,
                                       .x = x,
                                       .x_stride = w.shape.n_cols,
                                       .n_tokens = n_rows,
                                       .y = y,
                                       .y_stride = w.shape.n_rows};
        if (job.token_bytes != 0)
            products[j].prepared = prepare(be, &job, n_rows, &forms);
    }
    if (be->n_homes > 1 && have_homes(be, &op->u.matmul))
        multiply_at_home(be, products, op->u.matmul.n);
    else
        multiply(be, products, op->u.matmul.n);
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
