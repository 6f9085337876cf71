/* SPDX-License-Identifier: MIT */
/* The memory of bound weights. */
#include "model/weights.h"

#include "format/source.h"

void mf_expert_tables_free(mf_expert_tables *t, const mf_allocator *a)
{
    mf_free(a, t->parts, t->parts_bytes);
    mf_free(a, t->each_file, t->each_count * sizeof *t->each_file);
    mf_free(a, t->each_offset, t->each_count * sizeof *t->each_offset);
    mf_free(a, t->forms, t->n_form_layers * MF_EXPERT_FORMS * sizeof *t->forms);
    mf_free(a, t->form_bytes,
            t->n_form_layers * MF_MAX_EXPERT_PARTS * MF_EXPERT_FORMS * sizeof *t->form_bytes);
    mf_free(a, t->form_of, t->n_form_experts);
    mf_free(a, t->stored, t->n_stored_layers * MF_MAX_STORED_PARTS * sizeof *t->stored);
    mf_free(a, t->recipes, t->n_stored_layers * sizeof *t->recipes);
    mf_free(a, t->stored_file, t->n_stored_each * sizeof *t->stored_file);
    mf_free(a, t->stored_offset, t->n_stored_each * sizeof *t->stored_offset);
    *t = (mf_expert_tables){0};
}

mf_expert_map mf_expert_tables_map(const mf_expert_tables *t, const mf_hparams *h)
{
    mf_expert_map map = {.n_layers = h->n_moe_layers,
                         .n_experts = h->n_experts,
                         .n_parts = MF_MAX_EXPERT_PARTS,
                         .parts = t->parts};
    if (t->stored != NULL) {
        map.stored = t->stored;
        map.make = mf_expert_recipe_make;
        map.make_ctx = t->recipes;
    }
    return map;
}

mf_expert_shape mf_expert_shape_of(const mf_expert_shape *shape, uint32_t form)
{
    mf_expert_shape s = *shape;
    if (shape->n_forms != 0) {
        s.gate.shape = shape->forms[form].gate;
        s.up.shape = shape->forms[form].up;
        s.down.shape = shape->forms[form].down;
    }
    return s;
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

static uint64_t place_bias(mf_span *bias, uint64_t n_values, uint64_t at)
{
    if (bias->buffer.id == 0)
        return at;
    bias->offset = at;
    return at + (n_values * sizeof(float) + 63) / 64 * 64;
}

uint64_t mf_expert_biases_place(mf_expert_shape *s, uint32_t n_experts, uint64_t at)
{
    at = place_bias(&s->steps.gate_bias, (uint64_t)n_experts * s->gate.shape.n_rows, at);
    at = place_bias(&s->steps.up_bias, (uint64_t)n_experts * s->up.shape.n_rows, at);
    return place_bias(&s->steps.down_bias, (uint64_t)n_experts * s->down.shape.n_rows, at);
}

uint64_t mf_expert_scales_bytes(const mf_hparams *h, const mf_model_weights *weights)
{
    uint64_t at = MF_EXPERT_SCALES_FIRST;
    for (uint32_t i = 0; i < mf_all_layers(h); i++) {
        mf_expert_shape shape = weights->layers[i].experts;
        if (h->is_dense[i])
            continue;
        if (shape.has_resident_scales) {
            at = mf_expert_scales_place(&shape.gate, h->n_experts, at);
            at = mf_expert_scales_place(&shape.up, h->n_experts, at);
            at = mf_expert_scales_place(&shape.down, h->n_experts, at);
        }
        at = mf_expert_biases_place(&shape, h->n_experts, at);
    }
    return at;
}
