/* SPDX-License-Identifier: MIT */
/* The memory of bound weights. */
#include "model/weights.h"

void mf_expert_tables_free(mf_expert_tables *t, const mf_allocator *a)
{
    mf_free(a, t->parts, t->parts_bytes);
    mf_free(a, t->each_file, t->each_count * sizeof *t->each_file);
    mf_free(a, t->each_offset, t->each_count * sizeof *t->each_offset);
    *t = (mf_expert_tables){0};
}

uint64_t mf_expert_scales_place(mf_weight *w, uint32_t n_experts, uint64_t at)
{
    const mf_weight_format *format = mf_weight_format_of(&w->shape);
    for (uint32_t i = 0; i < format->n_arrays; i++) {
        if (!format->arrays[i].is_float32)
            continue;
        w->arrays[i].offset = at;
        at += (n_experts * mf_weight_array_bytes(&w->shape, i) + 63) / 64 * 64;
    }
    return at;
}

uint64_t mf_expert_scales_bytes(const mf_hparams *h, const mf_model_weights *weights)
{
    uint64_t at = MF_EXPERT_SCALES_FIRST;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        mf_expert_shape shape = weights->layers[i].experts;
        if (h->is_dense[i] || !shape.has_resident_scales)
            continue;
        at = mf_expert_scales_place(&shape.gate, h->n_experts, at);
        at = mf_expert_scales_place(&shape.up, h->n_experts, at);
        at = mf_expert_scales_place(&shape.down, h->n_experts, at);
    }
    return at;
}
