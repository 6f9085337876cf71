/* SPDX-License-Identifier: MIT */
/* The operations of linear attention: the causal convolution and the gated delta rule, with a decay
 * of each head or of each of its keys, both with a state per sequence. They go through whole
 * batches. */
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
#define DELTA_KEYED_LONG_BYTES (27u * 1024u)
#define DELTA_FEW_BYTES (7u * 1024u) /* beside the rows at hand */
#define MOST_KEY_DIM 512u
/* Of gated_delta_one.comp: columns of a workgroup; rows that its shards go through by fours. */
#define DELTA_ONE_COLS 128u
#define DELTA_ONE_KEYS (4 * DELTA_SHARDS)
#define DELTA_ONE_MOST_KEY_DIM 128u

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

static mf_vk_kernel few_kernel(const mf_op *op)
{
    return delta_kernel(op, op->u.gated_delta.has_key_decays ? MF_VK_SHADER_keyed_delta
                                                             : MF_VK_SHADER_gated_delta);
}

static mf_vk_kernel long_kernel(const mf_op *op)
{
    return delta_kernel(op, op->u.gated_delta.has_key_decays ? MF_VK_SHADER_keyed_delta_long
                                                             : MF_VK_SHADER_gated_delta_long);
}

static mf_vk_kernel ready_kernel(const mf_op *op)
{
    const bool is_keyed = op->u.gated_delta.has_key_decays;
    return (mf_vk_kernel){is_keyed ? MF_VK_SHADER_keyed_delta_ready
                                   : MF_VK_SHADER_gated_delta_ready,
                          1,
                          {DELTA_THREADS}};
}

/* Of gated_delta.comp: eight rows' queries and keys, or four rows' queries, keys and decays. */
static uint32_t few_bytes(const mf_op *op)
{
    const uint32_t n_vectors = op->u.gated_delta.has_key_decays ? 4 * 3 : 8 * 2;
    return DELTA_FEW_BYTES + n_vectors * few_kernel(op).constants[1] * DELTA_SHARDS * 16;
}

/* Whether the device can keep a column within a subgroup. */
static bool delta_has_long(const mf_vk_backend *be, const mf_op *op)
{
    const bool is_keyed = op->u.gated_delta.has_key_decays;
    return be->device.info.least_subgroup >= DELTA_SHARDS &&
           be->device.info.shared_bytes >= (is_keyed ? DELTA_KEYED_LONG_BYTES : DELTA_LONG_BYTES) &&
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

static mf_vk_kernel one_kernel(const mf_op *op)
{
    return delta_kernel(op, MF_VK_SHADER_gated_delta_one);
}

/* Whether the head's sizes are those of the kernel for sequences of one row. */
static bool delta_has_one(const mf_op *op)
{
    const mf_gated_delta_params *p = &op->u.gated_delta;
    return !p->has_key_decays && p->key_dim % DELTA_ONE_KEYS == 0 &&
           p->key_dim <= DELTA_ONE_MOST_KEY_DIM && p->value_dim % DELTA_ONE_COLS == 0;
}

/* Whether several sequences have one row each, and their states lie so that they can be read by 16
 * bytes. The same bits. */
static bool delta_is_ones(const mf_vk_backend *be, const mf_op *op)
{
    const mf_gated_delta_params *p = &op->u.gated_delta;
    uint64_t bits = mf_vk_address(be, p->qkv) | mf_vk_address(be, p->out) | p->state_offset;
    bool is_one = delta_has_one(op) && be->batches.n_sequences > 1;
    for (uint32_t i = 0; i < be->batches.n_sequences && is_one; i++) {
        const mf_sequence *s = &be->batches.sequences[i];
        is_one = s->n_rows == 1;
        bits |= mf_vk_address(be, s->state[0]) | mf_vk_address(be, s->state[1]);
    }
    return is_one && bits % 16 == 0;
}

static bool delta_supports(const mf_vk_backend *be, const mf_op *op)
{
    return op->u.gated_delta.key_dim != 0 && op->u.gated_delta.key_dim <= MOST_KEY_DIM &&
           few_bytes(op) <= be->device.info.shared_bytes;
}

static uint64_t gates_bytes(const mf_op *op)
{
    if (op->u.gated_delta.has_key_decays) /* they lie where what they are made of did */
        return 0;
    return (uint64_t)op->n_rows * 2 * op->u.gated_delta.n_v_heads * sizeof(float);
}

static mf_status delta_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_vk_kernel few = few_kernel(op), ready = ready_kernel(op), many = long_kernel(op);
    MF_TRY(mf_vk_prepare(be, &few, error));
    if (delta_has_one(op)) {
        const mf_vk_kernel one = one_kernel(op);
        MF_TRY(mf_vk_prepare(be, &one, error));
    }
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

/* A workgroup for as many queries and keys of a row as it has runs of 16 invocations. */
static void dispatch_ready(mf_vk_backend *be, const mf_op *op, const mf_vk_kernel *kernel,
                           const void *push, uint32_t push_bytes)
{
    const uint32_t n = 2 * op->u.gated_delta.n_k_heads;
    mf_vk_dispatch(be, kernel, push, push_bytes,
                   (const uint32_t[]){mf_vk_groups(n, DELTA_THREADS / 16), op->n_rows, 1});
}

/* One for some columns of a head of a sequence. */
static void dispatch_columns(mf_vk_backend *be, const mf_op *op, const mf_vk_kernel *kernel,
                             const void *push, uint32_t push_bytes)
{
    const mf_gated_delta_params *p = &op->u.gated_delta;
    mf_vk_dispatch(be, kernel, push, push_bytes,
                   (const uint32_t[]){mf_vk_groups(p->value_dim, DELTA_COLS), p->n_v_heads,
                                      be->batches.n_sequences});
}

/* What is ready for each row, then the runs. */
static void record_long(mf_vk_backend *be, const mf_op *op, const delta_push *all)
{
    const mf_vk_kernel ready = ready_kernel(op), kernel = long_kernel(op);
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
    dispatch_ready(be, op, &ready, &first, sizeof first);
    mf_vk_step(be);
    dispatch_columns(be, op, &kernel, &then, sizeof then);
}

/* One for each head of a sequence of one row. */
static void dispatch_ones(mf_vk_backend *be, const mf_op *op, const delta_push *push)
{
    const mf_gated_delta_params *p = &op->u.gated_delta;
    const mf_vk_kernel kernel = one_kernel(op);
    mf_vk_dispatch(be, &kernel, push, offsetof(delta_push, single),
                   (const uint32_t[]){mf_vk_groups(p->value_dim, DELTA_ONE_COLS), p->n_v_heads,
                                      be->batches.n_sequences});
}

float mf_vk_query_scale(const mf_gated_delta_params *p)
{
    return 1.0f / sqrtf((float)p->key_dim);
}

static void record_keyed_long(mf_vk_backend *be, const mf_op *op)
{
    const mf_gated_delta_params *p = &op->u.gated_delta;
    const mf_vk_kernel ready = ready_kernel(op), kernel = long_kernel(op);
    const struct {
        uint64_t q, k, a, b, a_log, dt_bias;
        uint32_t n_heads, key_dim;
        float eps, q_scale;
    } first = {mf_vk_address(be, p->qkv),
               mf_vk_address(be, p->k),
               mf_vk_address(be, p->a),
               mf_vk_address(be, p->b),
               mf_vk_address(be, p->a_log),
               mf_vk_address(be, p->dt_bias),
               p->n_v_heads,
               p->key_dim,
               p->eps,
               mf_vk_query_scale(p)};
    const struct {
        uint64_t q, k, v, decays, betas, out, sequences, state_offset;
        uint32_t n_heads, key_dim, value_dim, unused;
    } then = {first.q,
              first.k,
              mf_vk_address(be, p->v),
              first.a,
              first.b,
              mf_vk_address(be, p->out),
              mf_vk_batch_address(be),
              p->state_offset,
              p->n_v_heads,
              p->key_dim,
              p->value_dim,
              0};
    dispatch_ready(be, op, &ready, &first, sizeof first);
    mf_vk_step(be);
    dispatch_columns(be, op, &kernel, &then, sizeof then);
}

static void record_keyed(mf_vk_backend *be, const mf_op *op)
{
    const mf_gated_delta_params *p = &op->u.gated_delta;
    if (delta_is_long(be, op)) {
        record_keyed_long(be, op);
        return;
    }
    const mf_vk_kernel kernel = few_kernel(op);
    const struct {
        uint64_t q, k, v, a, b, a_log, dt_bias, out, sequences, state_offset;
        uint32_t n_heads, key_dim, value_dim;
        float eps, q_scale;
        mf_vk_single single;
    } push = {.q = mf_vk_address(be, p->qkv),
              .k = mf_vk_address(be, p->k),
              .v = mf_vk_address(be, p->v),
              .a = mf_vk_address(be, p->a),
              .b = mf_vk_address(be, p->b),
              .a_log = mf_vk_address(be, p->a_log),
              .dt_bias = mf_vk_address(be, p->dt_bias),
              .out = mf_vk_address(be, p->out),
              .sequences = mf_vk_batch_address(be),
              .state_offset = p->state_offset,
              .n_heads = p->n_v_heads,
              .key_dim = p->key_dim,
              .value_dim = p->value_dim,
              .eps = p->eps,
              .q_scale = mf_vk_query_scale(p),
              .single = mf_vk_batch_single(be)};
    dispatch_columns(be, op, &kernel, &push, sizeof push);
}

static void delta_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_gated_delta_params *p = &op->u.gated_delta;
    if (p->has_key_decays) {
        record_keyed(be, op);
        return;
    }
    const mf_vk_kernel kernel = few_kernel(op);
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
                             .q_scale = mf_vk_query_scale(p),
                             .is_tiled = p->is_tiled,
                             .single = mf_vk_batch_single(be)};
    if (delta_is_long(be, op)) {
        record_long(be, op, &push);
        return;
    }
    if (delta_is_ones(be, op)) {
        dispatch_ones(be, op, &push);
        return;
    }
    dispatch_columns(be, op, &kernel, &push, sizeof push);
}

const mf_vk_op mf_vk_op_gated_delta = {delta_supports, delta_reserve, delta_record};
