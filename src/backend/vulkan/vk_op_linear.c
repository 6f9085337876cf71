/* SPDX-License-Identifier: MIT */
/* The operations of linear attention: the causal convolution and the gated delta rule, both with a
 * state per sequence. They go through whole batches. */
#include "backend/vulkan/vk_internal.h"

#include <math.h>

#define CONV_THREADS 128u
#define CONV_ROWS 32u /* of an item */

#define DELTA_THREADS 256u /* as in gated_delta.comp: SHARDS of COLS columns */
#define DELTA_COLS 32u
#define DELTA_SHARDS 8u
#define DELTA_LONG 8u /* rows */
#define DELTA_LONG_DIM 128u
#define DELTA_LONG_BYTES (19u * 1024u) /* of shared memory */
#define MOST_KEY_DIM 512u

/* ------------------------------------------------------------------------------ convolution -- */

/* As the shader's Item. */
typedef struct conv_item {
    uint32_t sequence, first_row, n_rows, halo;
} conv_item;

typedef struct conv_push {
    uint64_t x, weight, out, halo, items, sequences, state_offset;
    uint32_t n_channels, is_single;
    mf_vk_single single;
} conv_push;

static mf_vk_kernel conv_kernel(const mf_op *op, mf_vk_shader shader)
{
    return (mf_vk_kernel){shader, 2, {CONV_THREADS, op->u.conv1d_silu.width}};
}

static bool conv_supports(const mf_vk_backend *be, const mf_op *op)
{
    const uint32_t width = op->u.conv1d_silu.width;
    (void)be;
    return width >= 2 && width <= MF_VK_CONV_WIDTH;
}

/* Runs of at most CONV_ROWS rows into items (NULL: they are counted); returns how many of them are
 * parts of sequences that are cut. */
static uint32_t list_conv_items(const mf_vk_backend *be, conv_item *items, uint32_t *n_items)
{
    const mf_vk_batches *b = &be->batches;
    uint32_t n_cut = 0;
    *n_items = 0;
    for (uint32_t i = 0; i < b->n_sequences; i++) {
        const mf_sequence *seq = &b->sequences[i];
        for (uint32_t at = 0; at < seq->n_rows; at += CONV_ROWS) {
            const uint32_t left = seq->n_rows - at, n = left < CONV_ROWS ? left : CONV_ROWS;
            const uint32_t halo = seq->n_rows > CONV_ROWS ? n_cut++ : UINT32_MAX;
            if (items != NULL)
                items[*n_items] = (conv_item){i, seq->first_row + at, n, halo};
            (*n_items)++;
        }
    }
    return n_cut;
}

static uint64_t halo_bytes(const mf_op *op, uint64_t n_cut)
{
    const mf_conv1d_silu_params *p = &op->u.conv1d_silu;
    return n_cut * (p->width - 1) * p->n_channels * sizeof(float);
}

static mf_status conv_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_vk_kernel halo = conv_kernel(op, MF_VK_SHADER_conv1d_silu_halo);
    const mf_vk_kernel kernel = conv_kernel(op, MF_VK_SHADER_conv1d_silu);
    MF_TRY(mf_vk_prepare(be, &halo, error));
    MF_TRY(mf_vk_prepare(be, &kernel, error));
    /* every row may be a sequence of its own; one that is cut has half full items at least */
    MF_TRY(mf_vk_ring_need(be, MF_VK_RING_PARAMETERS, op->n_rows * sizeof(conv_item), error));
    return mf_vk_ring_need(be, MF_VK_RING_SCRATCH, halo_bytes(op, 2 * op->n_rows / CONV_ROWS),
                           error);
}

static void conv_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_conv1d_silu_params *p = &op->u.conv1d_silu;
    const mf_vk_kernel halo = conv_kernel(op, MF_VK_SHADER_conv1d_silu_halo);
    const mf_vk_kernel kernel = conv_kernel(op, MF_VK_SHADER_conv1d_silu);
    uint32_t n_items;
    const uint32_t n_cut = list_conv_items(be, NULL, &n_items);
    conv_push push = {.x = mf_vk_address(be, p->x),
                      .weight = mf_vk_address(be, p->weight),
                      .out = mf_vk_address(be, p->out),
                      .halo = n_cut != 0 ? mf_vk_scratch(be, halo_bytes(op, n_cut)) : 0,
                      .sequences = mf_vk_batch_address(be),
                      .state_offset = p->state_offset,
                      .n_channels = p->n_channels,
                      .is_single = n_items == 1 && be->batches.n_sequences == 1,
                      .single = mf_vk_batch_single(be)};
    conv_item *items =
        push.is_single ? NULL : mf_vk_parameters(be, n_items * sizeof *items, &push.items);
    if (items != NULL)
        (void)list_conv_items(be, items, &n_items);
    else if (!push.is_single)
        return;
    const uint32_t groups[3] = {mf_vk_groups(p->n_channels, CONV_THREADS), n_items, 1};
    if (n_cut != 0) {
        mf_vk_dispatch(be, &halo, &push, sizeof push, groups);
        mf_vk_step(be);
    }
    mf_vk_dispatch(be, &kernel, &push, sizeof push, groups);
}

const mf_vk_op mf_vk_op_conv1d_silu = {conv_supports, conv_reserve, conv_record};

/* ------------------------------------------------------------------------------- delta rule -- */

static mf_vk_kernel delta_kernel(const mf_op *op, mf_vk_shader shader)
{
    const uint32_t n_rows = mf_vk_groups(op->u.gated_delta.key_dim, DELTA_SHARDS);
    return (mf_vk_kernel){shader, 2, {DELTA_THREADS, mf_vk_groups(n_rows, 4)}};
}

static mf_vk_kernel ready_kernel(void)
{
    return (mf_vk_kernel){MF_VK_SHADER_gated_delta_ready, 1, {DELTA_THREADS}};
}

/* Whether the device can keep a column within a subgroup. */
static bool delta_has_long(const mf_vk_backend *be, const mf_op *op)
{
    return be->device.info.least_subgroup >= DELTA_SHARDS &&
           be->device.info.shared_bytes >= DELTA_LONG_BYTES &&
           op->u.gated_delta.key_dim <= DELTA_LONG_DIM;
}

/* Runs of many rows take less time so; of few they take less dispatches. The same bits. */
static bool delta_is_long(const mf_vk_backend *be, const mf_op *op)
{
    bool is_long = false;
    for (uint32_t i = 0; i < be->batches.n_sequences; i++)
        is_long |= be->batches.sequences[i].n_rows >= DELTA_LONG;
    return is_long && delta_has_long(be, op);
}

static bool delta_supports(const mf_vk_backend *be, const mf_op *op)
{
    (void)be;
    if (op->u.gated_delta.has_key_decays) /* there is no shader of it yet */
        return false;
    return op->u.gated_delta.key_dim != 0 && op->u.gated_delta.key_dim <= MOST_KEY_DIM;
}

static uint64_t gates_bytes(const mf_op *op)
{
    return (uint64_t)op->n_rows * 2 * op->u.gated_delta.n_v_heads * sizeof(float);
}

static mf_status delta_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_vk_kernel few = delta_kernel(op, MF_VK_SHADER_gated_delta), ready = ready_kernel();
    const mf_vk_kernel many = delta_kernel(op, MF_VK_SHADER_gated_delta_long);
    MF_TRY(mf_vk_prepare(be, &few, error));
    if (!delta_has_long(be, op))
        return MF_OK;
    MF_TRY(mf_vk_prepare(be, &ready, error));
    MF_TRY(mf_vk_prepare(be, &many, error));
    return mf_vk_ring_need(be, MF_VK_RING_SCRATCH, gates_bytes(op), error);
}

typedef struct delta_push {
    uint64_t qkv, a, b, a_log, dt_bias, out, sequences, state_offset;
    uint32_t n_k_heads, n_v_heads, key_dim, value_dim;
    float eps, q_scale;
    uint32_t is_tiled;
    mf_vk_single single;
} delta_push;

/* What is ready for each row, then the runs. */
static void record_long(mf_vk_backend *be, const mf_op *op, const delta_push *all)
{
    const mf_vk_kernel ready = ready_kernel();
    const mf_vk_kernel kernel = delta_kernel(op, MF_VK_SHADER_gated_delta_long);
    const uint64_t gates = mf_vk_scratch(be, gates_bytes(op));
    const struct {
        uint64_t qkv, a, b, a_log, dt_bias, gates;
        uint32_t n_k_heads, n_v_heads, key_dim, value_dim;
        float eps, q_scale;
    } first = {all->qkv,     all->a,         all->b,         all->a_log,
               all->dt_bias, gates,          all->n_k_heads, all->n_v_heads,
               all->key_dim, all->value_dim, all->eps,       all->q_scale};
    const struct {
        uint64_t qkv, gates, out, sequences, state_offset;
        uint32_t n_k_heads, n_v_heads, key_dim, value_dim, is_tiled;
    } then = {all->qkv,       gates,          all->out,     all->sequences, all->state_offset,
              all->n_k_heads, all->n_v_heads, all->key_dim, all->value_dim, all->is_tiled};
    const uint32_t n_vectors = DELTA_THREADS / 16; /* of a workgroup that makes them ready */
    mf_vk_dispatch(be, &ready, &first, sizeof first,
                   (const uint32_t[]){mf_vk_groups(2 * all->n_k_heads, n_vectors), op->n_rows, 1});
    mf_vk_step(be);
    mf_vk_dispatch(be, &kernel, &then, sizeof then,
                   (const uint32_t[]){mf_vk_groups(all->value_dim, DELTA_COLS), all->n_v_heads,
                                      be->batches.n_sequences});
}

static void delta_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_gated_delta_params *p = &op->u.gated_delta;
    const mf_vk_kernel kernel = delta_kernel(op, MF_VK_SHADER_gated_delta);
    const delta_push push = {.qkv = mf_vk_address(be, p->qkv),
                             .a = mf_vk_address(be, p->a),
                             .b = mf_vk_address(be, p->b),
                             .a_log = mf_vk_address(be, p->a_log),
                             .dt_bias = mf_vk_address(be, p->dt_bias),
                             .out = mf_vk_address(be, p->out),
                             .sequences = mf_vk_batch_address(be),
                             .state_offset = p->state_offset,
                             .n_k_heads = p->n_k_heads,
                             .n_v_heads = p->n_v_heads,
                             .key_dim = p->key_dim,
                             .value_dim = p->value_dim,
                             .eps = p->eps,
                             .q_scale = 1.0f / sqrtf((float)p->key_dim),
                             .is_tiled = p->is_tiled,
                             .single = mf_vk_batch_single(be)};
    if (delta_is_long(be, op)) {
        record_long(be, op, &push);
        return;
    }
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(p->value_dim, DELTA_COLS), p->n_v_heads,
                                      be->batches.n_sequences});
}

const mf_vk_op mf_vk_op_gated_delta = {delta_supports, delta_reserve, delta_record};
