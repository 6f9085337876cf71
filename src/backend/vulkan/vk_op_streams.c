/* SPDX-License-Identifier: MIT */
/* What DeepSeek-V4's layers add beside attention: a residual of several streams, and entries that
 * stand for runs of positions. */
#include "backend/vulkan/vk_attention.h"

#define THREADS 256u
#define MOST_COLUMNS 1024u /* of an entry, as in compress.comp */

/* ---------------------------------------------------------------------------------- streams -- */

static bool streams_in_supports(const mf_vk_backend *be, const mf_op *op)
{
    (void)be;
    return op->u.streams_in.n_streams <= MF_MAX_STREAMS;
}

static mf_status streams_in_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    (void)op;
    return mf_vk_prepare_shader(be, MF_VK_SHADER_streams_in, THREADS, error);
}

static void streams_in_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_streams_in_params *p = &op->u.streams_in;
    const mf_vk_kernel kernel = {MF_VK_SHADER_streams_in, 1, {THREADS}};
    const struct {
        uint64_t streams, mixes, base, scale, out, gates, weight, normed;
        uint32_t n_streams, n_cols, n_iterations;
        float eps, norm_eps, after_eps;
    } push = {mf_vk_address(be, p->streams),
              mf_vk_address(be, p->mixes),
              mf_vk_address(be, p->base),
              mf_vk_address(be, p->scale),
              mf_vk_address(be, p->out),
              p->is_last ? 0 : mf_vk_address(be, p->gates),
              mf_vk_address(be, p->norm.weight),
              mf_vk_address(be, p->norm.out),
              p->n_streams,
              p->n_cols,
              p->n_iterations,
              p->eps,
              p->norm_eps,
              p->norm.eps};
    mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){1, op->n_rows, 1});
}

const mf_vk_op mf_vk_op_streams_in = {streams_in_supports, streams_in_reserve, streams_in_record};

static bool streams_out_supports(const mf_vk_backend *be, const mf_op *op)
{
    (void)be;
    return op->u.streams_out.n_streams <= MF_MAX_STREAMS;
}

static mf_status streams_out_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    (void)op;
    return mf_vk_prepare_shader(be, MF_VK_SHADER_streams_out, THREADS, error);
}

static void streams_out_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_streams_out_params *p = &op->u.streams_out;
    const mf_vk_kernel kernel = {MF_VK_SHADER_streams_out, 1, {THREADS}};
    const struct {
        uint64_t streams, y, gates, mean;
        uint32_t n_streams, n_cols;
    } push = {mf_vk_address(be, p->streams),
              mf_vk_address(be, p->y),
              mf_vk_address(be, p->gates),
              mf_vk_address(be, p->mean),
              p->n_streams,
              p->n_cols};
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(p->n_cols, THREADS), op->n_rows, 1});
}

const mf_vk_op mf_vk_op_streams_out = {streams_out_supports, streams_out_reserve,
                                       streams_out_record};

/* ---------------------------------------------------------------------------------- entries -- */

static bool is_bf16(const mf_op *op)
{
    return op->u.compress.cache_type == MF_BF16;
}

/* Values and gates, which go into the pages of the window first. */
static mf_vk_attention appended(const mf_op *op)
{
    const mf_compress_params *p = &op->u.compress;
    return (mf_vk_attention){.op = op,
                             .fresh = {p->kv, p->gate},
                             .page_offset = {p->kv_offset, p->gate_offset},
                             .width = p->n_series * p->dim,
                             .cache_type = p->cache_type,
                             .is_in_window_pages = true};
}

static mf_vk_kernel compress_kernel(const mf_op *op)
{
    return (mf_vk_kernel){
        is_bf16(op) ? MF_VK_SHADER_compress_bf16 : MF_VK_SHADER_compress, 1, {THREADS}};
}

static bool compress_supports(const mf_vk_backend *be, const mf_op *op)
{
    const mf_compress_params *p = &op->u.compress;
    (void)be;
    return (p->cache_type == MF_F32 || p->cache_type == MF_BF16) && p->dim <= MOST_COLUMNS;
}

static mf_status compress_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_vk_kernel compress = compress_kernel(op);
    const mf_vk_attention rows = appended(op);
    MF_TRY(mf_vk_append_prepare(be, &rows, error));
    return mf_vk_prepare(be, &compress, error);
}

static void compress_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_compress_params *p = &op->u.compress;
    const mf_vk_kernel kernel = compress_kernel(op);
    const mf_vk_attention rows = appended(op);
    const struct {
        uint64_t bias, norm, cosine, sine, sequences, windows, kv, gate, entry;
        uint32_t n_sequences, first_row, dim, n_series, rate, n_rot;
        float eps;
        uint32_t unused;
    } push = {mf_vk_address(be, p->bias),
              mf_vk_address(be, p->norm),
              mf_vk_address(be, p->cos),
              mf_vk_address(be, p->sin),
              mf_vk_batch_address(be),
              mf_vk_batch_window_address(be),
              p->kv_offset,
              p->gate_offset,
              p->entry_offset,
              be->batches.n_sequences,
              op->first_row,
              p->dim,
              p->n_series,
              p->rate,
              p->n_rot,
              p->eps,
              0};
    mf_vk_attention_append(be, &rows);
    mf_vk_step(be);
    mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){1, op->n_rows, 1});
}

const mf_vk_op mf_vk_op_compress = {compress_supports, compress_reserve, compress_record};
