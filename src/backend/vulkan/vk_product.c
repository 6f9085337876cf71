/* SPDX-License-Identifier: MIT */
/*
 * Which kernel multiplies a product's jobs. A row's bits depend on none of the choices made here:
 * how many tokens a weight is read for, how many rows a lane has, how wide its loads are.
 */
#include "backend/vulkan/vk_product.h"

#define THREADS 128u
#define TEAMS (THREADS / 16)
#define CLASSES 4u /* of jobs: up to 1, 2, 4, 8 tokens at a time */
/* From so many rows on there are workgroups enough for each lane to have several. */
#define ROWS_FOR_MANY 16384u
#define MANY_ROWS 4u
#define MOST_TOKEN_GROUPS 64u
/* Of matmul_units.comp. */
#define UNIT_TOKENS 16u
#define UNIT_ROWS 128u

bool mf_vk_product_supports(const mf_weight_shape *shape)
{
    return shape->kind >= MF_WEIGHT_FLOAT && shape->kind <= MF_WEIGHT_GGUF_MXFP4;
}

bool mf_vk_same_form(const mf_weight_shape *a, const mf_weight_shape *b)
{
    return a->kind == b->kind && a->float_type == b->float_type && a->bits == b->bits &&
           a->group == b->group && a->scale_rows == b->scale_rows && a->n_cols == b->n_cols;
}

static mf_vk_shader shader_of(const mf_weight_shape *shape, bool is_pair)
{
    switch (shape->kind) {
    case MF_WEIGHT_AFFINE:
        return is_pair ? MF_VK_SHADER_matvec_affine_pair : MF_VK_SHADER_matvec_affine;
    case MF_WEIGHT_FP8_BLOCK:
        return is_pair ? MF_VK_SHADER_matvec_fp8_pair : MF_VK_SHADER_matvec_fp8;
    case MF_WEIGHT_FLOAT:
        return is_pair ? MF_VK_SHADER_matvec_float_pair : MF_VK_SHADER_matvec_float;
    default:
        return is_pair ? MF_VK_SHADER_matvec_any_pair : MF_VK_SHADER_matvec_any;
    }
}

static mf_vk_shader units_shader_of(const mf_weight_shape *shape, bool is_pair)
{
    switch (shape->kind) {
    case MF_WEIGHT_AFFINE:
        return is_pair ? MF_VK_SHADER_units_affine_pair : MF_VK_SHADER_units_affine;
    case MF_WEIGHT_FP8_BLOCK:
        return is_pair ? MF_VK_SHADER_units_fp8_pair : MF_VK_SHADER_units_fp8;
    case MF_WEIGHT_FLOAT:
        return is_pair ? MF_VK_SHADER_units_float_pair : MF_VK_SHADER_units_float;
    default:
        return is_pair ? MF_VK_SHADER_units_any_pair : MF_VK_SHADER_units_any;
    }
}

/* Whether there are wide loads for the form at all; its rows are whole numbers of them. */
static bool has_wide(const mf_weight_shape *shape)
{
    switch (shape->kind) {
    case MF_WEIGHT_AFFINE:
        return shape->bits % 4 == 0;
    case MF_WEIGHT_FP8_BLOCK:
        return shape->n_cols % 16 == 0;
    case MF_WEIGHT_FLOAT:
        return shape->n_cols % (16 / mf_dtype_bytes(shape->float_type)) == 0;
    case MF_WEIGHT_NVFP4:
        return shape->n_cols % 32 == 0;
    case MF_WEIGHT_MXFP4:
    case MF_WEIGHT_GGUF_Q8_0:
    case MF_WEIGHT_GGUF_Q4_K:
        return true;
    default:
        return false;
    }
}

/* Rows of a lane: what is not loaded widely waits for something else than memory. */
static uint32_t lane_rows(const mf_weight_shape *shape, bool is_pair, bool is_wide, uint64_t n_rows)
{
    const bool is_light =
        is_wide && (shape->kind == MF_WEIGHT_AFFINE || shape->kind == MF_WEIGHT_FP8_BLOCK);
    if (!is_light || n_rows * (is_pair ? 2 : 1) < ROWS_FOR_MANY)
        return 1;
    return is_pair ? MANY_ROWS / 2 : MANY_ROWS;
}

/* n_rows: of a lane. Processors take long to compile loads that are on their way early. */
static mf_vk_kernel kernel_for(const mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                               uint32_t class, uint32_t n_rows, bool is_wide)
{
    const bool is_processor = be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    mf_vk_kernel k = {shader_of(shape, is_pair), 1, {THREADS}};
    mf_vk_weight_constants(shape, &k);
    k.constants[k.n_constants++] = 1u << class;
    k.constants[k.n_constants++] = n_rows;
    k.constants[k.n_constants++] = is_wide;
    k.constants[k.n_constants++] = !is_processor;
    return k;
}

/* A workgroup has 16 tokens, or 32, 64, 128. */
static mf_vk_kernel units_kernel(const mf_weight_shape *shape, bool is_pair, uint32_t class,
                                 bool is_wide)
{
    mf_vk_kernel k = {units_shader_of(shape, is_pair), 1, {THREADS}};
    mf_vk_weight_constants(shape, &k);
    k.constants[k.n_constants++] = 1u << class;
    k.constants[k.n_constants++] = 1;
    k.constants[k.n_constants++] = is_wide;
    return k;
}

static uint32_t class_of(uint32_t n_tokens)
{
    return n_tokens <= 1 ? 0 : n_tokens == 2 ? 1 : n_tokens <= 4 ? 2 : 3;
}

static uint32_t class_in(const mf_vk_product *p, uint32_t n_tokens)
{
    return class_of(p->is_half ? mf_vk_groups(n_tokens, UNIT_TOKENS) : n_tokens);
}

static mf_status reserve_units(mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                               uint32_t n_tokens, mf_error *error)
{
    const uint32_t most = class_of(mf_vk_groups(n_tokens, UNIT_TOKENS));
    for (uint32_t class = 0; class <= most; class ++) {
        for (uint32_t is_wide = 0; is_wide <= has_wide(shape); is_wide++) {
            const mf_vk_kernel k = units_kernel(shape, is_pair, class, is_wide != 0);
            MF_TRY(mf_vk_prepare(be, &k, error));
        }
    }
    return mf_vk_halves_reserve(be, error);
}

mf_status mf_vk_product_reserve(mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                                uint32_t n_tokens, uint64_t n_rows, mf_error *error)
{
    for (uint32_t class = 0; class <= class_of(n_tokens); class ++) {
        mf_vk_kernel k = kernel_for(be, shape, is_pair, class, 1, false);
        MF_TRY(mf_vk_prepare(be, &k, error));
        if (!has_wide(shape))
            continue;
        k = kernel_for(be, shape, is_pair, class, 1, true);
        MF_TRY(mf_vk_prepare(be, &k, error));
        k = kernel_for(be, shape, is_pair, class, lane_rows(shape, is_pair, true, n_rows), true);
        MF_TRY(mf_vk_prepare(be, &k, error));
    }
    return be->is_mixed ? reserve_units(be, shape, is_pair, n_tokens, error) : MF_OK;
}

uint64_t mf_vk_product_bytes(uint32_t n_jobs)
{
    return n_jobs * sizeof(mf_vk_job) + 2 * CLASSES * 256;
}

/* Whether the form's wide loads may be used: blocks of Q8_0 are read by halves, others by 16 bytes.
 */
static bool is_aligned(const mf_weight_shape *shape, const mf_vk_job *job)
{
    const uint64_t mask = shape->kind == MF_WEIGHT_GGUF_Q8_0 ? 1 : 15;
    return ((job->weight.values | job->up.values) & mask) == 0;
}

/* A class, and whether loads are wide: jobs that have both in common are dispatched together. */
typedef struct bunch {
    uint32_t n_jobs, most_rows, most_tokens;
    uint64_t n_rows;
} bunch;

static uint32_t bunch_of(const mf_vk_product *p, const mf_vk_job *job)
{
    return 2 * class_in(p, job->n_tokens) + (has_wide(p->shape) && is_aligned(p->shape, job));
}

static mf_vk_kernel routed_kernel(const mf_vk_backend *be, const mf_weight_shape *shape,
                                  bool is_pair, uint32_t n_rows, bool is_wide)
{
    mf_vk_kernel k = kernel_for(be, shape, is_pair, 0, n_rows, is_wide);
    k.constants[k.n_constants++] = true;
    return k;
}

mf_status mf_vk_routed_reserve(mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                               uint32_t n_picks, mf_error *error)
{
    for (uint32_t is_wide = 0; is_wide <= has_wide(shape); is_wide++) {
        for (uint32_t i = 0; i < 2; i++) { /* of few picks or many */
            const uint64_t n_rows = (uint64_t)shape->n_rows * (i == 0 ? 1 : n_picks);
            const uint32_t n = lane_rows(shape, is_pair, is_wide != 0, n_rows);
            const mf_vk_kernel k = routed_kernel(be, shape, is_pair, n, is_wide != 0);
            MF_TRY(mf_vk_prepare(be, &k, error));
        }
    }
    return MF_OK;
}

/* Its one job stands for all picks: their slots are as far from each other as is wide. */
static void record_routed(mf_vk_backend *be, const mf_vk_product *p)
{
    mf_vk_job job = {0};
    p->job(p->ctx, 0, &job);
    const bool is_wide =
        has_wide(p->shape) && is_aligned(p->shape, &job) && p->routing->slot_bytes % 16 == 0;
    const uint32_t n = lane_rows(p->shape, p->is_pair, is_wide, (uint64_t)p->n_picks * job.n_rows);
    const struct {
        uint64_t jobs;
        uint32_t n_cols, unused;
        mf_vk_routing routing;
    } push = {mf_vk_array(be, &job, sizeof job), p->shape->n_cols, 0, *p->routing};
    const mf_vk_kernel k = routed_kernel(be, p->shape, p->is_pair, n, is_wide);
    mf_vk_dispatch(be, &k, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(job.n_rows, TEAMS * n), p->n_picks, 1});
}

static void dispatch_bunch(mf_vk_backend *be, const mf_vk_product *p, uint32_t which,
                           const bunch *b, uint64_t jobs)
{
    const uint32_t class = which / 2, n_cols = p->shape->n_cols;
    const bool is_wide = which % 2 != 0;
    const struct {
        uint64_t jobs;
        uint32_t n_cols, n_padded;
    } push = {jobs, n_cols, mf_vk_halves_padded(n_cols)};
    uint32_t groups[3] = {0, b->n_jobs, 0};
    mf_vk_kernel k;
    if (p->is_half) {
        k = units_kernel(p->shape, p->is_pair, class, is_wide);
        groups[0] = mf_vk_groups(b->most_rows, p->is_pair ? UNIT_ROWS / 2 : UNIT_ROWS);
        groups[2] = mf_vk_groups(b->most_tokens, UNIT_TOKENS << class);
    } else {
        const uint32_t n = lane_rows(p->shape, p->is_pair, is_wide, b->n_rows);
        const uint32_t token_groups = mf_vk_groups(b->most_tokens, 1u << class);
        k = kernel_for(be, p->shape, p->is_pair, class, n, is_wide);
        groups[0] = mf_vk_groups(b->most_rows, TEAMS * n);
        groups[2] = token_groups < MOST_TOKEN_GROUPS ? token_groups : MOST_TOKEN_GROUPS;
    }
    mf_vk_dispatch(be, &k, &push, sizeof push, groups);
}

static void record_bunch(mf_vk_backend *be, const mf_vk_product *p, uint32_t which, const bunch *b)
{
    uint64_t address = 0;
    mf_vk_job *jobs = mf_vk_parameters(be, b->n_jobs * sizeof *jobs, &address);
    if (jobs == NULL)
        return;
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        mf_vk_job job = {0};
        p->job(p->ctx, i, &job);
        if (bunch_of(p, &job) == which)
            *jobs++ = job;
    }
    dispatch_bunch(be, p, which, b, address);
}

void mf_vk_product_record(mf_vk_backend *be, const mf_vk_product *p)
{
    if (p->routing != NULL) {
        record_routed(be, p);
        return;
    }
    bunch bunches[2 * CLASSES] = {{0}};
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        mf_vk_job job = {0};
        p->job(p->ctx, i, &job);
        bunch *b = &bunches[bunch_of(p, &job)];
        b->n_jobs++;
        b->n_rows += job.n_rows;
        b->most_rows = job.n_rows > b->most_rows ? job.n_rows : b->most_rows;
        b->most_tokens = job.n_tokens > b->most_tokens ? job.n_tokens : b->most_tokens;
    }
    for (uint32_t which = 0; which < 2 * CLASSES; which++)
        if (bunches[which].n_jobs != 0)
            record_bunch(be, p, which, &bunches[which]);
}
