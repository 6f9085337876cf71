/* SPDX-License-Identifier: MIT */
/* Operations on rows of activations, one dispatch each. */
#include "backend/vulkan/vk_internal.h"

#define THREADS 256u

static bool any(const mf_vk_backend *be, const mf_op *op)
{
    (void)be;
    (void)op;
    return true;
}

/* Elements one after another: shaders go on with the next grid's where it is too small. */
static void dispatch_elements(mf_vk_backend *be, mf_vk_shader shader, const void *push,
                              uint32_t push_bytes, uint64_t n)
{
    const mf_vk_kernel kernel = {shader, 1, {THREADS}};
    const bool is_more = n > (uint64_t)MF_VK_MOST_GROUPS * THREADS;
    const uint32_t groups = is_more ? MF_VK_MOST_GROUPS : mf_vk_groups(n, THREADS);
    mf_vk_dispatch(be, &kernel, push, push_bytes, (const uint32_t[]){groups, 1, 1});
}

/* ------------------------------------------------------------------------------ elementwise -- */

/* A row's sum has the order of norm.glsl. */
static mf_vk_kernel add_norm_kernel(bool is_aligned)
{
    return (mf_vk_kernel){MF_VK_SHADER_add_norm, 2, {THREADS, is_aligned}};
}

static mf_status add_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    if (op->u.add.norm.weight.buffer.id == 0)
        return mf_vk_prepare_shader(be, MF_VK_SHADER_add, THREADS, error);
    for (uint32_t is_aligned = 0; is_aligned < 2; is_aligned++) {
        const mf_vk_kernel kernel = add_norm_kernel(is_aligned != 0);
        MF_TRY(mf_vk_prepare(be, &kernel, error));
    }
    return MF_OK;
}

static void add_norm_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_add_params *p = &op->u.add;
    const struct {
        uint64_t x, y, weight, result;
        uint32_t n_cols, y_stride;
        float eps;
        uint32_t unused;
    } push = {mf_vk_address(be, p->x),
              mf_vk_address(be, p->y),
              mf_vk_address(be, p->norm.weight),
              mf_vk_address(be, p->norm.out),
              p->n_cols,
              p->y_is_one_row ? 0 : p->n_cols,
              p->norm.eps,
              0};
    const uint64_t bits = push.x | push.y | push.weight | push.result | push.n_cols * (uint64_t)4;
    const mf_vk_kernel kernel = add_norm_kernel(bits % 16 == 0);
    mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){1, op->n_rows, 1});
}

static void add_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_add_params *p = &op->u.add;
    if (p->norm.weight.buffer.id != 0) {
        add_norm_record(be, op);
        return;
    }
    const uint32_t n = op->n_rows * p->n_cols;
    const struct {
        uint64_t x, y;
        uint32_t n, period;
    } push = {mf_vk_address(be, p->x), mf_vk_address(be, p->y), n, p->y_is_one_row ? p->n_cols : n};
    dispatch_elements(be, MF_VK_SHADER_add, &push, sizeof push, n);
}

const mf_vk_op mf_vk_op_add = {any, add_reserve, add_record};

static mf_status swiglu_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    (void)op;
    return mf_vk_prepare_shader(be, MF_VK_SHADER_swiglu, THREADS, error);
}

static void swiglu_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_swiglu_params *p = &op->u.swiglu;
    const struct {
        uint64_t gate, up, out;
        uint32_t n;
        float limit;
    } push = {mf_vk_address(be, p->gate), mf_vk_address(be, p->up), mf_vk_address(be, p->out),
              op->n_rows * p->n_cols, p->limit};
    dispatch_elements(be, MF_VK_SHADER_swiglu, &push, sizeof push, push.n);
}

const mf_vk_op mf_vk_op_swiglu = {any, swiglu_reserve, swiglu_record};

static mf_status sigmoid_mul_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    (void)op;
    return mf_vk_prepare_shader(be, MF_VK_SHADER_sigmoid_mul, THREADS, error);
}

static void sigmoid_mul_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_sigmoid_mul_params *p = &op->u.sigmoid_mul;
    const struct {
        uint64_t x, gate;
        uint32_t n, unused;
    } push = {mf_vk_address(be, p->x), mf_vk_address(be, p->gate), op->n_rows * p->n_cols, 0};
    dispatch_elements(be, MF_VK_SHADER_sigmoid_mul, &push, sizeof push, push.n);
}

const mf_vk_op mf_vk_op_sigmoid_mul = {any, sigmoid_mul_reserve, sigmoid_mul_record};

/* ------------------------------------------------------------------------------- row by row -- */

/* Rows from `first` on that a dispatch has, a workgroup's y each: where they are heads of rows, or
 * streams, an operation may have more. */
static uint32_t rows_from(const mf_op *op, uint32_t first)
{
    const uint32_t left = op->n_rows - first;
    return left < MF_VK_MOST_GROUPS ? left : MF_VK_MOST_GROUPS;
}

static mf_status copy_rows_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    MF_TRY(mf_vk_prepare_shader(be, MF_VK_SHADER_copy_rows, THREADS, error));
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS, op->n_rows * sizeof(uint32_t), error);
}

static void copy_rows_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_copy_rows_params *p = &op->u.copy_rows;
    const mf_vk_kernel kernel = {MF_VK_SHADER_copy_rows, 1, {THREADS}};
    struct {
        uint64_t x, out, rows;
        uint32_t n_cols, unused;
    } push = {mf_vk_address(be, p->x), mf_vk_address(be, p->out),
              mf_vk_array(be, p->rows, op->n_rows * sizeof *p->rows), p->n_cols, 0};
    for (uint32_t first = 0, n; first < op->n_rows; first += n) {
        n = rows_from(op, first);
        mf_vk_dispatch(be, &kernel, &push, sizeof push,
                       (const uint32_t[]){mf_vk_groups(p->n_cols, THREADS), n, 1});
        push.out += (uint64_t)n * p->n_cols * sizeof(float);
        push.rows += n * sizeof *p->rows;
    }
}

const mf_vk_op mf_vk_op_copy_rows = {any, copy_rows_reserve, copy_rows_record};

static mf_status finite_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    (void)op;
    return mf_vk_prepare_shader(be, MF_VK_SHADER_finite, THREADS, error);
}

static void finite_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_finite_params *p = &op->u.finite;
    const mf_vk_kernel kernel = {MF_VK_SHADER_finite, 1, {THREADS}};
    const uint64_t copy = p->copy.buffer.id != 0 ? mf_vk_address(be, p->copy) : 0;
    struct {
        uint64_t x, copy, out;
        uint32_t n_cols, is_wide;
    } push = {mf_vk_address(be, p->x), copy, mf_vk_address(be, p->out), p->n_cols, 0};
    push.is_wide = ((push.x | copy) % 16 | p->n_cols % 4) == 0;
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_finite_blocks(p->n_cols), op->n_rows, 1});
}

const mf_vk_op mf_vk_op_finite = {any, finite_reserve, finite_record};

/* A subgroup of most devices is enough for a head. */
#define NORM_FEW_COLS 256u
#define NORM_FEW_THREADS 32u

static mf_vk_kernel norm_kernel(mf_vk_shader shader, bool is_small, bool is_aligned)
{
    return (mf_vk_kernel){shader, 2, {is_small ? NORM_FEW_THREADS : THREADS, is_aligned}};
}

static mf_status norm_reserve(mf_vk_backend *be, mf_vk_shader shader, mf_error *error)
{
    for (uint32_t i = 0; i < 4; i++) {
        const mf_vk_kernel kernel = norm_kernel(shader, (i & 1) != 0, (i & 2) != 0);
        MF_TRY(mf_vk_prepare(be, &kernel, error));
    }
    return MF_OK;
}

static mf_vk_shader rmsnorm_shader(const mf_op *op)
{
    return op->u.rmsnorm.is_centred ? MF_VK_SHADER_rmsnorm_centred : MF_VK_SHADER_rmsnorm;
}

static mf_status rmsnorm_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    return norm_reserve(be, rmsnorm_shader(op), error);
}

typedef struct norm_push {
    uint64_t x, weight, out;
    uint32_t n_cols, stride;
    float eps;
    uint32_t unused;
} norm_push;

static void rmsnorm_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_rmsnorm_params *p = &op->u.rmsnorm;
    norm_push push = {mf_vk_address(be, p->x),
                      mf_vk_address(be, p->weight),
                      mf_vk_address(be, p->out),
                      p->n_cols,
                      p->stride != 0 ? p->stride : p->n_cols,
                      p->eps,
                      0};
    const uint64_t bits =
        push.x | push.weight | push.out | (push.n_cols | push.stride) * (uint64_t)4;
    const mf_vk_kernel kernel =
        norm_kernel(rmsnorm_shader(op), p->n_cols <= NORM_FEW_COLS, bits % 16 == 0);
    for (uint32_t first = 0, n; first < op->n_rows; first += n) {
        const uint64_t row_bytes = (uint64_t)push.stride * sizeof(float);
        n = rows_from(op, first);
        mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){1, n, 1});
        push.x += n * row_bytes;
        push.out += n * row_bytes;
    }
}

const mf_vk_op mf_vk_op_rmsnorm = {any, rmsnorm_reserve, rmsnorm_record};

static mf_status rmsnorm_gated_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    (void)op;
    return norm_reserve(be, MF_VK_SHADER_rmsnorm_gated, error);
}

static void rmsnorm_gated_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_rmsnorm_gated_params *p = &op->u.rmsnorm_gated;
    const struct {
        uint64_t x, weight, out, z;
        uint32_t n_cols, stride;
        float eps;
        uint32_t unused;
    } push = {mf_vk_address(be, p->x),
              mf_vk_address(be, p->weight),
              mf_vk_address(be, p->x),
              mf_vk_address(be, p->z),
              p->head_dim,
              p->head_dim,
              p->eps,
              0};
    const uint64_t bits = push.x | push.weight | push.z | push.n_cols * (uint64_t)4;
    const mf_vk_kernel kernel =
        norm_kernel(MF_VK_SHADER_rmsnorm_gated, p->head_dim <= NORM_FEW_COLS, bits % 16 == 0);
    mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){p->n_heads, op->n_rows, 1});
}

const mf_vk_op mf_vk_op_rmsnorm_gated = {any, rmsnorm_gated_reserve, rmsnorm_gated_record};

static mf_status rope_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    (void)op;
    return mf_vk_prepare_shader(be, MF_VK_SHADER_rope, THREADS, error);
}

static void rope_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_rope_params *p = &op->u.rope;
    const mf_vk_kernel kernel = {MF_VK_SHADER_rope, 1, {THREADS}};
    const struct {
        uint64_t x, cosine, sine, sequences;
        uint32_t n_sequences, first_row, n_heads, n_rot, row_stride, head_stride, is_interleaved;
        uint32_t is_inverse;
    } push = {mf_vk_address(be, p->x),
              mf_vk_address(be, p->cos),
              mf_vk_address(be, p->sin),
              mf_vk_batch_address(be),
              be->batches.n_sequences,
              op->first_row,
              p->n_heads,
              p->n_rot,
              p->row_stride,
              p->head_stride,
              p->interleaved,
              p->is_inverse};
    const uint32_t n_pairs = p->n_heads * (p->n_rot / 2);
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(n_pairs, THREADS), op->n_rows, 1});
}

const mf_vk_op mf_vk_op_rope = {any, rope_reserve, rope_record};

/* A head is a small row: two subgroups or less of most devices. */
#define HEAD_THREADS 64u

static mf_status head_norm_rope_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    (void)op;
    return mf_vk_prepare_shader(be, MF_VK_SHADER_head_norm_rope, HEAD_THREADS, error);
}

static void head_norm_rope_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_head_norm_rope_params *p = &op->u.head_norm_rope;
    const mf_vk_kernel kernel = {MF_VK_SHADER_head_norm_rope, 1, {HEAD_THREADS}};
    const struct {
        uint64_t x, weight, cosine, sine, sequences;
        uint32_t n_sequences, first_row, n_heads, head_dim, n_rot;
        float eps;
    } push = {mf_vk_address(be, p->x),
              mf_vk_address(be, p->weight),
              mf_vk_address(be, p->cos),
              mf_vk_address(be, p->sin),
              mf_vk_batch_address(be),
              be->batches.n_sequences,
              op->first_row,
              p->n_heads,
              p->head_dim,
              p->n_rot,
              p->eps};
    mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){p->n_heads, op->n_rows, 1});
}

const mf_vk_op mf_vk_op_head_norm_rope = {any, head_norm_rope_reserve, head_norm_rope_record};
