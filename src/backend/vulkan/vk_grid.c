/* SPDX-License-Identifier: MIT */
/* Dispatches whose workgroups wait for each other: what they hand each other, and their numbers. */
#include "backend/vulkan/vk_grid.h"

#include <string.h>

#define TILE 512u /* as in row_products.glsl */
#define TEAMS (MF_VK_GRID_THREADS / 16u)
#define LEAST_TEAM_ROWS 4u
/* The last number, after which memory is cleared. */
#define LAST_EPOCH UINT32_MAX

/* Values that workgroups hand each other, and the word that says that one of them gave up. */
mf_status mf_vk_grid_reserve(mf_vk_backend *be, uint64_t n_values, mf_error *error)
{
    mf_vk_grid *g = &be->grid;
    const uint64_t n_bytes = n_values * sizeof(uint64_t);
    const mf_vk_request values = {.n_bytes = n_bytes,
                                  .place = MF_VK_ON_DEVICE,
                                  .use = MF_USE_DEVICE,
                                  .is_internal = true,
                                  .what = "values between workgroups"};
    const mf_vk_request fault = {.n_bytes = sizeof(uint32_t),
                                 .place = MF_VK_ON_HOST,
                                 .use = MF_USE_HOST,
                                 .is_internal = true,
                                 .what = "a word for those who wait"};
    mf_buffer buffer = {0};
    if (g->n_bytes >= n_bytes)
        return MF_OK;
    mf_vk_submit(be);
    mf_vk_wait_in_lock(be, be->stream.submitted);
    if (g->fault.id == 0) {
        MF_TRY(mf_vk_buffer_create(be, &fault, &g->fault, error));
        memset(be->buffers[g->fault.id - 1].host, 0, sizeof(uint32_t));
    }
    MF_TRY(mf_vk_buffer_create(be, &values, &buffer, error));
    mf_vk_buffer_drop(be, g->values);
    g->values = buffer;
    g->n_bytes = n_bytes;
    g->epoch = LAST_EPOCH; /* nobody has cleared it */
    return MF_OK;
}

uint64_t mf_vk_grid_values(const mf_vk_backend *be)
{
    return mf_vk_address(be, (mf_span){be->grid.values, 0});
}

uint64_t mf_vk_grid_fault(const mf_vk_backend *be)
{
    return mf_vk_address(be, (mf_span){be->grid.fault, 0});
}

static void touch(void *ctx, mf_span span, uint64_t n_bytes, uint32_t access)
{
    mf_vk_touch(ctx, span, n_bytes, access);
}

/* Before the operation's dispatch: what it touches is said again. */
static void clear(mf_vk_backend *be, const mf_op *op)
{
    static const unsigned char zeros[4096];
    const mf_vk_grid *g = &be->grid;
    for (uint64_t at = 0; at < g->n_bytes; at += sizeof zeros)
        mf_vk_write(be, (mf_span){g->values, at}, zeros,
                    g->n_bytes - at < sizeof zeros ? g->n_bytes - at : sizeof zeros);
    mf_vk_next(be);
    mf_op_spans(op, be->batches.sequences, be->batches.n_sequences, touch, be);
}

uint32_t mf_vk_grid_next(mf_vk_backend *be, const mf_op *op)
{
    mf_vk_grid *g = &be->grid;
    if (g->epoch == LAST_EPOCH) {
        if (be->early.state != MF_VK_NOT_EARLY) { /* clearing may not come to be */
            mf_vk_early_drop(be);
            return g->epoch;
        }
        clear(be, op);
        g->epoch = 0;
    }
    return ++g->epoch;
}

void mf_vk_grid_dispatch(mf_vk_backend *be, const mf_vk_kernel *kernel, const void *push,
                         uint32_t push_bytes)
{
    mf_vk_touch(be, (mf_span){be->grid.values, 0}, be->grid.n_bytes, MF_READS | MF_WRITES);
    mf_vk_dispatch(be, kernel, push, push_bytes, (const uint32_t[]){be->device.n_resident, 1, 1});
}

/* to: 0 where the form has no such array. */
static bool put_distance(uint64_t from, uint64_t to, int32_t *out)
{
    const int64_t d = to != 0 ? (int64_t)(to - from) : 0;
    *out = (int32_t)(d / 4);
    return (int64_t)*out * 4 == d;
}

bool mf_vk_put_near(const mf_vk_backend *be, const mf_weight *w, mf_vk_near *out)
{
    const mf_vk_weight at = mf_vk_weight_at(be, w);
    out->values = at.values;
    return at.values % 16 == 0 && put_distance(at.values, at.scales, &out->scales) &&
           put_distance(at.values, at.biases, &out->biases);
}

bool mf_vk_put_row_products(const mf_vk_backend *be, const mf_matmul_params *in,
                            const mf_matmul_params *out, mf_vk_row_products *products)
{
    for (uint32_t i = 0; i < in->n; i++)
        if (!mf_vk_put_near(be, &in->weight[i], &products->first[i]))
            return false;
    return mf_vk_put_near(be, &out->weight[0], &products->last);
}

uint32_t mf_vk_in_rows(const mf_matmul_params *in)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n; i++)
        n += in->weight[i].shape.n_rows;
    return n;
}

/* Rows that each team goes through where it has n at a time. */
static uint32_t rows_by(const mf_vk_backend *be, const mf_matmul_params *in, uint32_t n)
{
    const uint32_t n_slots = TEAMS / (in->weight[0].shape.n_cols / TILE);
    uint32_t n_runs = 0;
    for (uint32_t i = 0; i < in->n; i++)
        n_runs += mf_vk_groups(in->weight[i].shape.n_rows, n);
    return mf_vk_groups(n_runs, n_slots * be->device.n_resident) * n;
}

uint32_t mf_vk_team_rows(const mf_vk_backend *be, const mf_matmul_params *in, uint32_t step)
{
    uint32_t best = MF_VK_TEAM_ROWS;
    for (uint32_t n = MF_VK_TEAM_ROWS; n >= LEAST_TEAM_ROWS; n -= step)
        if (rows_by(be, in, n) < rows_by(be, in, best))
            best = n;
    return best;
}

void mf_vk_count_row_products(mf_vk_backend *be, const mf_matmul_params *in,
                              const mf_matmul_params *out)
{
    for (uint32_t i = 0; i < in->n; i++)
        be->weight_bytes += mf_weight_bytes(&in->weight[i].shape);
    be->weight_bytes += mf_weight_bytes(&out->weight[0].shape);
}

bool mf_vk_is_affine(const mf_weight *w, uint32_t bits, const mf_weight *like, uint32_t n_rows,
                     uint32_t n_cols)
{
    const mf_weight_shape *s = &w->shape;
    return s->kind == MF_WEIGHT_AFFINE && s->bits == bits && s->group == like->shape.group &&
           s->float_type == like->shape.float_type && s->n_rows == n_rows && s->n_cols == n_cols;
}

bool mf_vk_grid_failed(mf_vk_backend *be)
{
    mf_error error = {0};
    const mf_buffer fault = be->grid.fault;
    if (fault.id == 0 || *(volatile uint32_t *)be->buffers[fault.id - 1].host == 0)
        return false;
    (void)mf_fail(&error, MF_ERR_IO, "%s does not run the workgroups of a dispatch side by side",
                  be->device.info.name);
    mf_vk_give_up(be, &error);
    return true;
}
