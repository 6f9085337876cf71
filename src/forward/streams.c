/* SPDX-License-Identifier: MIT */
/* A residual stream that is several (hyper-connections): each block's input is a mixture of them,
 * and its result goes into all. plan.x is their mean between layers, for whoever looks on. */
#include "forward/forward.h"

mf_status mf_streams_reserve(mf_runner *r, mf_error *error)
{
    const mf_op_kind kinds[] = {MF_OP_STREAMS_IN, MF_OP_STREAMS_OUT, 0};
    if (r->h.n_streams == 0)
        return MF_OK;
    MF_TRY(mf_reserve_kinds(r, kinds, error));
    for (uint32_t i = 0; i < mf_all_layers(&r->h); i++) {
        const mf_layer_weights *w = &r->weights.layers[i];
        MF_TRY(mf_reserve_matmul(r, &w->attention_streams.fn, r->plan.n_chunk, error));
        MF_TRY(mf_reserve_matmul(r, &w->mlp_streams.fn, r->plan.n_chunk, error));
    }
    return mf_reserve_matmul(r, &r->weights.head_streams.fn, r->plan.n_logit_rows, error);
}

void mf_streams_begin(mf_runner *r, uint32_t n_rows)
{
    const uint32_t n = r->h.n_streams;
    if (n != 0)
        mf_record_copy_rows(r, n_rows * n, r->plan.x, r->stream_rows, r->plan.streams,
                            r->h.hidden_size);
}

static mf_op mix(const mf_runner *r, const mf_stream_weights *w, uint32_t n_rows)
{
    return (mf_op){.kind = MF_OP_STREAMS_IN,
                   .n_rows = n_rows,
                   .u.streams_in = {.streams = r->plan.streams,
                                    .mixes = r->plan.mixes,
                                    .base = w->base,
                                    .scale = w->scale,
                                    .out = r->plan.y,
                                    .gates = r->plan.gates,
                                    .n_streams = r->h.n_streams,
                                    .n_cols = r->h.hidden_size,
                                    .n_iterations = r->h.stream_iterations,
                                    .eps = r->h.stream_eps,
                                    .norm_eps = r->h.rms_eps}};
}

void mf_streams_in(mf_runner *r, uint32_t n_rows, const mf_stream_weights *w, mf_span norm)
{
    mf_op op = mix(r, w, n_rows);
    if (r->h.n_streams == 0)
        return;
    op.u.streams_in.norm = mf_to_h(r, norm);
    mf_record_matmul(r, n_rows, &w->fn, r->plan.streams, r->plan.mixes);
    mf_record(r, &op);
}

void mf_streams_out(mf_runner *r, uint32_t n_rows, mf_span y)
{
    const mf_op op = {.kind = MF_OP_STREAMS_OUT,
                      .n_rows = n_rows,
                      .u.streams_out = {.streams = r->plan.streams,
                                        .y = y,
                                        .gates = r->plan.gates,
                                        .mean = r->plan.x,
                                        .n_streams = r->h.n_streams,
                                        .n_cols = r->h.hidden_size}};
    if (r->h.n_streams != 0)
        mf_record(r, &op);
}

void mf_streams_join(mf_runner *r, uint32_t layer, uint32_t n_rows)
{
    const mf_plan *p = &r->plan;
    const mf_layer_weights *w = &r->weights.layers[layer];
    mf_streams_out(r, n_rows, p->y);
    mf_streams_in(r, n_rows, &w->mlp_streams, w->post_norm);
    /* what the block adds to x is its result then */
    mf_record_copy_rows(r, n_rows, p->zeros, r->same_row, p->x, r->h.hidden_size);
}

void mf_streams_last(mf_runner *r, uint32_t n, const mf_stream_weights *w)
{
    const mf_plan *p = &r->plan;
    const uint32_t width = r->h.n_streams * r->h.hidden_size;
    mf_op op = mix(r, w, n);
    op.u.streams_in.streams = p->last_streams;
    op.u.streams_in.out = p->last;
    op.u.streams_in.gates = (mf_span){{0}, 0};
    op.u.streams_in.is_last = true;
    const mf_op product = {
        .kind = MF_OP_MATMUL,
        .n_rows = n,
        .u.matmul = {.x = p->last_streams, .n = 1, .weight = {w->fn}, .y = {p->mixes}}};
    mf_record_copy_rows(r, n, p->streams, r->row_list, p->last_streams, width);
    mf_record(r, &product);
    mf_record(r, &op);
}
