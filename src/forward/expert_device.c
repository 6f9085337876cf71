/* SPDX-License-Identifier: MIT */
/*
 * Experts on a device of their own: what the runner keeps there, and the rows that go there and,
 * summed, back through memory that both devices' transfers reach. A read is waited for before its
 * bytes are sent on; sources of uploads are written again only after work that came later in their
 * stream has been waited for (there: the results; back: the next layer's choice of experts).
 */
#include "forward/forward.h"

static uint64_t row_bytes(const mf_runner *r)
{
    return (uint64_t)r->h.hidden_size * sizeof(float);
}

static mf_status make_rows(mf_backend *be, uint64_t n_bytes, const char *what, unsigned char **out,
                           mf_error *error)
{
    mf_buffer buffer;
    MF_TRY(be->ops->buffer_create(be, n_bytes, MF_USE_STAGING, what, &buffer, error));
    *out = be->ops->buffer_host(be, buffer);
    return MF_OK;
}

mf_status mf_expert_device_prepare(mf_runner *r, mf_error *error)
{
    if (!mf_experts_are_apart(r))
        return MF_OK;
    const uint64_t n_bytes = r->plan.n_chunk * row_bytes(r);
    MF_TRY(make_rows(r->experts, n_bytes, "rows for experts", &r->rows_there, error));
    return make_rows(r->backend, n_bytes, "rows of experts", &r->rows_back, error);
}

/* Through rows_there: what fits it at a time. */
static mf_status copy_there(mf_runner *r, mf_span to, mf_span from, uint64_t n_bytes,
                            mf_error *error)
{
    const uint64_t room = r->plan.n_chunk * row_bytes(r);
    for (uint64_t at = 0; at < n_bytes; at += room) {
        const uint64_t n = n_bytes - at < room ? n_bytes - at : room;
        MF_TRY(mf_backend_read(r->backend, mf_span_at(from, at), r->rows_there, n, error));
        const mf_ticket sent =
            r->experts->ops->upload(r->experts, mf_span_at(to, at), r->rows_there, n);
        MF_TRY(r->experts->ops->wait_for(r->experts, sent, error));
    }
    return MF_OK;
}

static mf_status move_scales(mf_runner *r, mf_weight *w, uint64_t *at, mf_error *error)
{
    const mf_weight_format *format = mf_weight_format_of(&w->shape);
    const mf_weight here = *w;
    *at = mf_expert_scales_place(w, r->h.n_experts, *at);
    for (uint32_t i = 0; i < format->n_arrays; i++)
        if (format->arrays[i].is_float32)
            MF_TRY(copy_there(r, w->arrays[i], here.arrays[i],
                              r->h.n_experts * mf_weight_array_bytes(&w->shape, i), error));
    return MF_OK;
}

static mf_status move_biases(mf_runner *r, mf_expert_shape *shape, uint64_t *at, mf_error *error)
{
    const mf_expert_shape here = *shape;
    const uint64_t each = (uint64_t)r->h.n_experts * sizeof(float);
    *at = mf_expert_biases_place(shape, r->h.n_experts, *at);
    const struct {
        mf_span to, from;
        uint64_t n_bytes;
    } biases[] = {
        {shape->steps.gate_bias, here.steps.gate_bias, each * shape->gate.shape.n_rows},
        {shape->steps.up_bias, here.steps.up_bias, each * shape->up.shape.n_rows},
        {shape->steps.down_bias, here.steps.down_bias, each * shape->down.shape.n_rows},
    };
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        if (biases[i].from.buffer.id != 0)
            MF_TRY(copy_there(r, biases[i].to, biases[i].from, biases[i].n_bytes, error));
    return MF_OK;
}

mf_status mf_expert_device_copy_scales(mf_runner *r, mf_error *error)
{
    uint64_t at = MF_EXPERT_SCALES_FIRST;
    for (uint32_t i = 0; mf_experts_are_apart(r) && i < mf_all_layers(&r->h); i++) {
        mf_expert_shape *shape = &r->weights.layers[i].experts;
        if (r->h.is_dense[i])
            continue;
        if (shape->has_resident_scales) {
            MF_TRY(move_scales(r, &shape->gate, &at, error));
            MF_TRY(move_scales(r, &shape->up, &at, error));
            MF_TRY(move_scales(r, &shape->down, &at, error));
        }
        MF_TRY(move_biases(r, shape, &at, error));
    }
    return MF_OK;
}

static uint64_t weights_bytes(const mf_runner *r, uint32_t n_rows)
{
    return (uint64_t)n_rows * r->plan.k * sizeof(float);
}

void mf_expert_rows_ask(mf_runner *r, uint32_t n_rows)
{
    if (!mf_experts_are_away(r))
        return;
    r->backend->ops->read(r->backend, r->plan.moe_x, r->rows_there, n_rows * row_bytes(r));
    r->backend->ops->read(r->backend, r->plan.weights, r->moe.weights, weights_bytes(r, n_rows));
}

void mf_expert_rows_send(mf_runner *r, uint32_t n_rows)
{
    if (!mf_experts_are_away(r))
        return;
    (void)r->experts->ops->upload(r->experts, r->plan.expert_x, r->rows_there,
                                  n_rows * row_bytes(r));
    if (!r->h.router.scales_input) /* else they are one each, for good */
        r->experts->ops->write(r->experts, r->plan.expert_weights, r->moe.weights,
                               weights_bytes(r, n_rows));
}

static mf_op sum_op(const mf_runner *r, uint32_t n_rows)
{
    const mf_plan *p = &r->plan;
    return (mf_op){.kind = MF_OP_COMBINE,
                   .n_rows = n_rows,
                   .u.combine = {.x = p->expert_sum,
                                 .weights = p->expert_weights,
                                 .experts = p->expert_y,
                                 .place = r->moe.place,
                                 .n_cols = r->h.hidden_size,
                                 .k = p->k,
                                 .is_put = true}};
}

mf_status mf_expert_sum_reserve(mf_runner *r, mf_error *error)
{
    const mf_op op = sum_op(r, r->plan.n_chunk);
    return mf_experts_are_apart(r) ? mf_backend_reserve(r->experts, &op, error) : MF_OK;
}

mf_status mf_expert_rows_sum(mf_runner *r, uint32_t n_rows, mf_error *error)
{
    const mf_op op = sum_op(r, n_rows);
    if (!mf_experts_are_away(r))
        return MF_OK;
    r->experts->ops->record(r->experts, &op);
    return mf_backend_read(r->experts, r->plan.expert_sum, r->rows_back, n_rows * row_bytes(r),
                           error);
}

void mf_expert_rows_return(mf_runner *r, uint32_t n_rows)
{
    if (mf_experts_are_away(r))
        (void)r->backend->ops->upload(r->backend, r->plan.expert_out, r->rows_back,
                                      n_rows * row_bytes(r));
}
