/* SPDX-License-Identifier: MIT */
/* Products with weights: of rows, and of the heads of rows. */
#include "backend/vulkan/vk_product.h"

#define MOST_HEADS 1024u
/* Weights of fewer rows are gates and decays: exp makes much of what they are off by. They stay in
 * float32, which costs little. */
#define UNITS_ROWS 64u
/* Of head_transposed.comp: columns of a workgroup; where there are as many tokens as to fill half
 * of its teams, each has so many of them. */
#define TRANSPOSED_THREADS 256u
#define TRANSPOSED_TILE 512u
#define TRANSPOSED_TOKENS 4u
#define TRANSPOSED_TEAMS 16u
#define TRANSPOSED_MANY (TRANSPOSED_TOKENS * TRANSPOSED_TEAMS / 2)

/* ---------------------------------------------------------------------------------- matmul -- */

/* As matvec_one.comp's Convolution. */
typedef struct convolution {
    uint64_t weight, before, after, y;
} convolution;

/* Without what a recording gives. */
static mf_vk_steps steps_of(const mf_vk_backend *be, const mf_op *op)
{
    const mf_matmul_params *p = &op->u.matmul;
    return (mf_vk_steps){.before = p->before.kind,
                         .after = p->after.kind,
                         .weight = mf_vk_address(be, p->before.weight),
                         .more = mf_vk_address(be, p->before.gate),
                         .head_dim = p->before.head_dim,
                         .width = p->after.width,
                         .eps = p->before.eps};
}

static bool matmul_supports(const mf_vk_backend *be, const mf_op *op)
{
    const mf_matmul_params *p = &op->u.matmul;
    const mf_vk_steps steps = steps_of(be, op);
    if (mf_has_steps(p) &&
        (op->n_rows > 1 || (p->before.gate.buffer.id != 0 && p->after.kind == MF_OUTPUT_CONVOLVED)))
        return false;
    for (uint32_t j = 0; j < p->n; j++)
        if (!mf_vk_product_supports(&p->weight[j].shape) ||
            !mf_vk_steps_support(&p->weight[j].shape, &steps) ||
            (p->is_paired && !mf_vk_same_form(&p->weight[j].shape, &p->weight[j ^ 1].shape)))
            return false;
    return true;
}

static mf_status steps_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error);

static mf_status matmul_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_matmul_params *p = &op->u.matmul;
    if (mf_has_steps(p))
        return steps_reserve(be, op, error);
    for (uint32_t j = 0; j < p->n; j++) {
        const mf_weight_shape *shape = &p->weight[j].shape;
        const mf_vk_product product = {.shape = shape};
        MF_TRY(mf_vk_product_reserve(be, &product, op->n_rows,
                                     (uint64_t)shape->n_rows * MF_MAX_MATMULS, error));
    }
    const uint32_t n_cols = p->weight[0].shape.n_cols, most = mf_vk_halves_rows(n_cols);
    const uint32_t n = op->n_rows < most ? op->n_rows : most;
    const uint64_t n_pieces = be->is_mixed ? mf_vk_groups(op->n_rows, n) : 1;
    if (be->is_mixed)
        MF_TRY(mf_vk_ring_need(be, MF_VK_RING_SCRATCH, mf_vk_halves_bytes(n, n_cols), error));
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS,
                           n_pieces * MF_MAX_MATMULS * mf_vk_product_bytes(MF_MAX_MATMULS), error);
}

typedef struct matmul_jobs {
    const mf_vk_backend *be;
    const mf_op *op;
    const mf_vk_halves *halves;  /* of these rows; NULL: they are multiplied as they are */
    const mf_vk_steps *steps;    /* NULL: none */
    mf_vk_preparing *preparing;  /* NULL: it is recorded */
    uint32_t first, n_rows;      /* of the operation */
    uint32_t of[MF_MAX_MATMULS]; /* the weights */
} matmul_jobs;

static mf_span rows_at(mf_span span, uint64_t row, uint64_t n_cols)
{
    return mf_span_at(span, row * n_cols * sizeof(float));
}

static void matmul_job(void *ctx, uint32_t i, mf_vk_job *out)
{
    const matmul_jobs *jobs = ctx;
    const mf_matmul_params *p = &jobs->op->u.matmul;
    const mf_weight *w = &p->weight[jobs->of[i]];
    out->weight = mf_vk_weight_at(jobs->be, w);
    if (p->is_paired)
        out->up = mf_vk_weight_at(jobs->be, w + 1);
    out->n_rows = out->y_stride = w->shape.n_rows;
    out->n_tokens = jobs->n_rows;
    out->x_stride = w->shape.n_cols;
    out->x = mf_vk_address(jobs->be, rows_at(p->x, jobs->first, out->x_stride));
    out->y = mf_vk_address(jobs->be, rows_at(p->y[jobs->of[i]], jobs->first, out->y_stride));
    if (jobs->halves != NULL)
        mf_vk_halves_at(jobs->halves, 0, out);
}

/* Whether matrix units multiply this weight of the operation. */
static bool takes_units(const mf_vk_backend *be, const mf_op *op, uint32_t i)
{
    return mf_vk_wants_units(be, op) && op->u.matmul.weight[i].shape.n_rows >= UNITS_ROWS;
}

/* Weights of the same form together: of those that matrix units multiply, or of the others. */
static void record_rows(mf_vk_backend *be, const matmul_jobs *rows)
{
    const mf_matmul_params *p = &rows->op->u.matmul;
    bool is_done[MF_MAX_MATMULS] = {false};
    for (uint32_t j = 0; j < p->n; j++)
        is_done[j] = takes_units(be, rows->op, j) != (rows->halves != NULL);
    for (uint32_t j = 0; j < p->n; j++) {
        matmul_jobs jobs = *rows;
        mf_vk_product product = {.shape = &p->weight[j].shape,
                                 .job = matmul_job,
                                 .ctx = &jobs,
                                 .is_pair = p->is_paired,
                                 .steps = jobs.steps,
                                 .preparing = jobs.preparing,
                                 .is_half = jobs.halves != NULL};
        for (uint32_t i = j; i < p->n; i++) {
            if (p->is_paired && i % 2 != 0) {
                be->weight_bytes += is_done[i] ? 0 : mf_weight_bytes(&p->weight[i].shape);
                is_done[i] = true;
            }
            if (is_done[i] || !mf_vk_same_form(product.shape, &p->weight[i].shape))
                continue;
            is_done[i] = true;
            jobs.of[product.n_jobs++] = i;
            be->weight_bytes += mf_weight_bytes(&p->weight[i].shape);
        }
        mf_vk_product_record(be, &product);
    }
}

/* Exactly what recording it takes: it will have the same operands. */
static mf_status steps_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const uint64_t weight_bytes = be->weight_bytes;
    const mf_vk_steps steps = steps_of(be, op);
    mf_vk_preparing preparing = {MF_OK, error};
    const matmul_jobs jobs = {
        .be = be, .op = op, .n_rows = 1, .steps = &steps, .preparing = &preparing};
    record_rows(be, &jobs);
    be->weight_bytes = weight_bytes; /* nothing was multiplied */
    MF_TRY(preparing.status);
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS,
                           MF_MAX_MATMULS * mf_vk_product_bytes(MF_MAX_MATMULS) + 512, error);
}

static void record_steps(mf_vk_backend *be, const mf_op *op)
{
    const mf_output_step *after = &op->u.matmul.after;
    mf_vk_steps steps = steps_of(be, op);
    const matmul_jobs jobs = {.be = be, .op = op, .n_rows = op->n_rows, .steps = &steps};
    if (after->kind == MF_OUTPUT_CONVOLVED) {
        const mf_vk_single s = mf_vk_batch_single(be);
        const convolution c = {mf_vk_address(be, after->weight),
                               s.before != 0 ? s.before + after->state_offset : 0,
                               s.after + after->state_offset, mf_vk_address(be, op->u.matmul.y[0])};
        steps.more = mf_vk_array(be, &c, sizeof c);
    }
    record_rows(be, &jobs);
}

static void matmul_record(mf_vk_backend *be, const mf_op *op)
{
    if (mf_has_steps(&op->u.matmul)) {
        record_steps(be, op);
        return;
    }
    const uint32_t n_cols = op->u.matmul.weight[0].shape.n_cols, most = mf_vk_halves_rows(n_cols);
    matmul_jobs jobs = {.be = be, .op = op, .n_rows = op->n_rows};
    bool is_half = false;
    for (uint32_t i = 0; i < op->u.matmul.n; i++)
        is_half |= takes_units(be, op, i);
    record_rows(be, &jobs);
    for (uint32_t first = 0; is_half && first < op->n_rows; first += most) {
        const uint32_t n = op->n_rows - first < most ? op->n_rows - first : most;
        const mf_vk_halves halves = mf_vk_halves_take(be, n, n_cols);
        jobs.halves = &halves;
        jobs.first = first;
        jobs.n_rows = n;
        if (first != 0)
            mf_vk_step(be); /* the room may be that of the piece before */
        mf_vk_halves_fill(be, &halves, mf_vk_address(be, rows_at(op->u.matmul.x, first, n_cols)),
                          n_cols, 0, n);
        mf_vk_step(be);
        record_rows(be, &jobs);
    }
}

const mf_vk_op mf_vk_op_matmul = {matmul_supports, matmul_reserve, matmul_record};

/* ----------------------------------------------------------------------------- head_matmul -- */

static bool head_supports(const mf_vk_backend *be, const mf_op *op)
{
    (void)be;
    return mf_vk_product_supports(&op->u.head_matmul.w.weight.shape) &&
           op->u.head_matmul.n_heads <= MOST_HEADS;
}

/* of_many: tokens, as TRANSPOSED_MANY says. */
static mf_vk_kernel transposed_kernel(const mf_weight_shape *shape, bool of_many, bool is_wide)
{
    static const mf_vk_shader shaders[MF_VK_CHUNKS] = {
        [MF_VK_CHUNKS_ANY] = MF_VK_SHADER_head_transposed_any,
        [MF_VK_CHUNKS_AFFINE] = MF_VK_SHADER_head_transposed_affine,
        [MF_VK_CHUNKS_FP8] = MF_VK_SHADER_head_transposed_fp8,
        [MF_VK_CHUNKS_FLOATS] = MF_VK_SHADER_head_transposed_float,
    };
    mf_vk_kernel k = {shaders[mf_vk_chunks_of(shape)], 1, {TRANSPOSED_THREADS}};
    mf_vk_weight_constants(shape, &k);
    k.constants[k.n_constants++] = of_many ? TRANSPOSED_TOKENS : 1;
    k.constants[k.n_constants++] = 0; /* of other products */
    k.constants[k.n_constants++] = is_wide;
    return k;
}

static mf_status prepare_transposed(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_weight_shape *shape = &op->u.head_matmul.w.weight.shape;
    for (uint32_t of_many = 0; of_many <= (op->n_rows >= TRANSPOSED_MANY); of_many++)
        for (uint32_t is_wide = 0; is_wide <= mf_vk_has_wide(shape); is_wide++) {
            const mf_vk_kernel k = transposed_kernel(shape, of_many != 0, is_wide != 0);
            MF_TRY(mf_vk_prepare(be, &k, error));
        }
    return MF_OK;
}

static mf_status head_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_head_matmul_params *p = &op->u.head_matmul;
    const mf_vk_product product = {.shape = &p->w.weight.shape};
    if (p->w.transposed)
        MF_TRY(prepare_transposed(be, op, error));
    else
        MF_TRY(mf_vk_product_reserve(be, &product, op->n_rows, (uint64_t)p->n_heads * p->w.n_rows,
                                     error));
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS, mf_vk_product_bytes(p->n_heads), error);
}

typedef struct head_jobs {
    const mf_vk_backend *be;
    const mf_op *op;
} head_jobs;

static void head_job(void *ctx, uint32_t i, mf_vk_job *out)
{
    const head_jobs *jobs = ctx;
    const mf_head_matmul_params *p = &jobs->op->u.head_matmul;
    out->weight = mf_vk_weight_at(jobs->be, &p->w.weight);
    out->x = mf_vk_address(jobs->be, mf_span_at(p->x, (uint64_t)i * p->x_head * sizeof(float)));
    out->y = mf_vk_address(jobs->be, mf_span_at(p->y, (uint64_t)i * p->y_head * sizeof(float)));
    out->first_row = i * p->w.head_rows + p->w.first_row;
    out->n_rows = p->w.n_rows;
    out->n_tokens = jobs->op->n_rows;
    out->x_stride = p->x_row;
    out->y_stride = p->y_row;
}

static void record_transposed(mf_vk_backend *be, const mf_op *op, head_jobs *ctx)
{
    const mf_head_matmul_params *p = &op->u.head_matmul;
    struct {
        uint64_t jobs;
        uint32_t n_cols, unused;
    } push = {0, p->w.weight.shape.n_cols, 0};
    const mf_vk_product product = {.shape = &p->w.weight.shape};
    mf_vk_job *jobs = mf_vk_parameters(be, p->n_heads * sizeof *jobs, &push.jobs);
    if (jobs == NULL)
        return;
    bool is_wide = true;
    for (uint32_t i = 0; i < p->n_heads; i++) {
        mf_vk_job job = {0};
        head_job(ctx, i, &job);
        is_wide = is_wide && mf_vk_job_is_wide(&product, &job);
        jobs[i] = job;
    }
    const bool of_many = op->n_rows >= TRANSPOSED_MANY;
    const mf_vk_kernel k = transposed_kernel(product.shape, of_many, is_wide);
    mf_vk_dispatch(
        be, &k, &push, sizeof push,
        (const uint32_t[]){mf_vk_groups(push.n_cols, TRANSPOSED_TILE), p->n_heads,
                           of_many ? mf_vk_groups(op->n_rows, TRANSPOSED_TOKENS * TRANSPOSED_TEAMS)
                                   : op->n_rows});
}

static void head_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_head_matmul_params *p = &op->u.head_matmul;
    head_jobs jobs = {be, op};
    mf_weight_shape used = p->w.weight.shape;
    used.n_rows = p->n_heads * p->w.n_rows;
    be->weight_bytes += mf_weight_bytes(&used);
    if (p->w.transposed) {
        record_transposed(be, op, &jobs);
        return;
    }
    const mf_vk_product product = {
        .shape = &p->w.weight.shape, .n_jobs = p->n_heads, .job = head_job, .ctx = &jobs};
    mf_vk_product_record(be, &product);
}

const mf_vk_op mf_vk_op_head_matmul = {head_supports, head_reserve, head_record};
