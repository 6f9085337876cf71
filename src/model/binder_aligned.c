/* SPDX-License-Identifier: MIT */
/* Binding of experts of the aligned form: each is one run of bytes, its matrices' arrays one after
 * another in it as a slot has them. */
#include "base/checked.h"
#include "experts/expert_plan.h"
#include "model/binder.h"

typedef struct aligned_layer {
    mf_binder *binder;
    const mf_hparams *h;
    uint32_t layer;
    mf_expert_part *parts; /* of this layer */
    mf_expert_run *places;
    mf_aligned_experts forms;
    uint64_t run_bytes[MF_EXPERT_FORMS];
    uint32_t part_at[MF_EXPERT_FORMS][MF_MAX_EXPERT_PARTS]; /* in a run */
    uint64_t part_bytes[MF_EXPERT_FORMS][MF_MAX_EXPERT_PARTS];
} aligned_layer;

static mf_status fail_layer(const aligned_layer *b, mf_error *error, const char *what)
{
    return mf_fail(error, MF_ERR_FORMAT, "%s: experts of layer %u: %s",
                   b->binder->source->hparam_path, b->layer, what);
}

/* A form's matrices, and from them where each part is in a run. */
static mf_status lay_form(aligned_layer *b, uint32_t form, mf_error *error)
{
    mf_expert_part parts[MF_MAX_EXPERT_PARTS] = {{0}};
    for (uint32_t j = 0; j < MF_EXPERT_MATRICES; j++) {
        const bool is_down = j + 1 == MF_EXPERT_MATRICES;
        mf_weight_shape *s = &b->forms.shapes[form][j];
        if (b->forms.is_paired && j == 1)
            continue;
        s->n_rows = is_down ? b->h->hidden_size : b->h->expert_hidden;
        s->n_cols = is_down ? b->h->expert_hidden : b->h->hidden_size;
        s->n_rows *= b->forms.is_paired && !is_down ? 2 : 1;
        if (!mf_weight_shape_is_sound(s))
            return fail_layer(b, error, "their format does not go with the model's sizes");
        for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
            const uint32_t p = MF_MAX_WEIGHT_ARRAYS * j + i;
            parts[p].n_bytes = b->part_bytes[form][p] = mf_weight_array_bytes(s, i);
            if (parts[p].n_bytes > b->parts[p].n_bytes)
                b->parts[p].n_bytes = parts[p].n_bytes;
        }
    }
    const mf_expert_map map = {
        .n_layers = 1, .n_experts = 1, .n_parts = MF_MAX_EXPERT_PARTS, .parts = parts};
    b->run_bytes[form] = mf_expert_lay_parts(&map, 0, 0, b->part_at[form]);
    return b->run_bytes[form] <= MF_EXPERT_SLOT_BYTES_MAX
               ? MF_OK
               : fail_layer(b, error, "they are too large");
}

static mf_status check_places(const aligned_layer *b, mf_error *error)
{
    for (uint32_t e = 0; e < b->h->n_experts; e++) {
        const mf_expert_run *p = &b->places[e];
        if (p->form >= b->forms.n_forms)
            return fail_layer(b, error, "an expert has a form that is not there");
        if (p->n_bytes != b->run_bytes[p->form])
            return mf_fail(
                error, MF_ERR_FORMAT, "%s: expert %u has %llu bytes, its form means %llu",
                b->binder->source->table.files[p->file].path, e, (unsigned long long)p->n_bytes,
                (unsigned long long)b->run_bytes[p->form]);
    }
    return MF_OK;
}

/* Whether all are of one form and in one file, one as far from the next as another. */
static bool are_even(const aligned_layer *b)
{
    const mf_expert_run *p = b->places;
    const uint64_t stride = b->h->n_experts > 1 ? p[1].offset - p[0].offset : 0;
    for (uint32_t e = 1; e < b->h->n_experts; e++)
        if (p[e].file != p[0].file || p[e].offset < p[e - 1].offset ||
            p[e].offset - p[e - 1].offset != stride)
            return false;
    return b->forms.n_forms == 1;
}

static void place_evenly(aligned_layer *b)
{
    const mf_expert_run *p = b->places;
    for (uint32_t i = 0; i < MF_MAX_EXPERT_PARTS; i++) {
        b->parts[i].file = p[0].file;
        b->parts[i].offset = p[0].offset + b->part_at[0][i];
        b->parts[i].stride = b->h->n_experts > 1 ? p[1].offset - p[0].offset : 0;
    }
}

static mf_status place_each(aligned_layer *b, mf_error *error)
{
    const uint32_t n = b->h->n_experts;
    mf_expert_tables *t = &b->binder->experts;
    MF_TRY(mf_bind_each_table(b->binder, b->h, error));
    for (uint32_t i = 0; i < MF_MAX_EXPERT_PARTS; i++) {
        const size_t first = ((size_t)b->h->moe_index[b->layer] * MF_MAX_EXPERT_PARTS + i) * n;
        for (uint32_t e = 0; e < n; e++) {
            t->each_file[first + e] = b->places[e].file;
            t->each_offset[first + e] = b->places[e].offset + b->part_at[b->places[e].form][i];
        }
        b->parts[i].each_file = &t->each_file[first];
        b->parts[i].each_offset = &t->each_offset[first];
    }
    return MF_OK;
}

_Static_assert(MF_MAP_FORMS >= MF_EXPERT_FORMS, "a map tells all forms of a layer apart");

/* For all layers, when the first is found whose experts differ. */
static mf_status make_form_tables(const aligned_layer *b, mf_error *error)
{
    const mf_allocator *a = &b->binder->allocator;
    mf_expert_tables *t = &b->binder->experts;
    const size_t n_layers = b->h->n_moe_layers, n_experts = n_layers * b->h->n_experts;
    if (t->n_form_layers != 0)
        return MF_OK;
    t->n_form_layers = n_layers;
    t->n_form_experts = n_experts;
    t->forms = mf_alloc_array(a, n_layers * MF_EXPERT_FORMS, sizeof *t->forms);
    t->form_bytes =
        mf_alloc_array(a, n_layers * MF_MAX_EXPERT_PARTS * MF_EXPERT_FORMS, sizeof *t->form_bytes);
    t->form_of = mf_alloc_array(a, n_experts, sizeof *t->form_of);
    if (t->forms == NULL || t->form_bytes == NULL || t->form_of == NULL)
        return mf_fail_memory(error, n_experts, "the forms of experts");
    return MF_OK;
}

static mf_status place_forms(aligned_layer *b, mf_expert_shape *out, mf_error *error)
{
    const size_t moe = b->h->moe_index[b->layer];
    MF_TRY(make_form_tables(b, error));
    const mf_expert_tables *t = &b->binder->experts;
    mf_expert_form *forms = t->forms + moe * MF_EXPERT_FORMS;
    uint8_t *form_of = t->form_of + moe * b->h->n_experts;
    for (uint32_t f = 0; f < b->forms.n_forms; f++) {
        const mf_weight_shape *s = b->forms.shapes[f];
        forms[f] = (mf_expert_form){s[0], s[1], s[2]};
    }
    for (uint32_t e = 0; e < b->h->n_experts; e++)
        form_of[e] = (uint8_t)b->places[e].form;
    for (uint32_t p = 0; p < MF_MAX_EXPERT_PARTS; p++) {
        uint64_t *bytes = t->form_bytes + (moe * MF_MAX_EXPERT_PARTS + p) * MF_EXPERT_FORMS;
        for (uint32_t f = 0; f < b->forms.n_forms; f++)
            bytes[f] = b->part_bytes[f][p];
        b->parts[p].form_of = form_of;
        b->parts[p].form_bytes = bytes;
    }
    out->n_forms = b->forms.n_forms;
    out->forms = forms;
    out->form_of = form_of;
    return MF_OK;
}

static mf_status bind(aligned_layer *b, mf_expert_shape *out, mf_error *error)
{
    mf_source *source = b->binder->source;
    MF_TRY(source->ops->aligned_experts(source, b->layer, b->places, b->h->n_experts, &b->forms,
                                        error));
    for (uint32_t f = 0; f < b->forms.n_forms; f++)
        MF_TRY(lay_form(b, f, error));
    MF_TRY(check_places(b, error));
    out->steps.is_paired = b->forms.is_paired;
    out->gate.shape = b->forms.shapes[0][0];
    out->up.shape = b->forms.shapes[0][1];
    out->down.shape = b->forms.shapes[0][2];
    b->binder->n_parameters +=
        (uint64_t)b->h->n_experts * MF_EXPERT_MATRICES * b->h->hidden_size * b->h->expert_hidden;
    if (are_even(b)) {
        place_evenly(b);
        return MF_OK;
    }
    MF_TRY(place_each(b, error));
    return b->forms.n_forms > 1 ? place_forms(b, out, error) : MF_OK;
}

mf_status mf_bind_aligned(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                          mf_expert_shape *out, mf_error *error)
{
    const size_t n_bytes = h->n_experts * sizeof(mf_expert_run);
    aligned_layer b = {.binder = binder,
                       .h = h,
                       .layer = layer,
                       .parts = binder->experts.parts +
                                (size_t)h->moe_index[layer] * MF_MAX_EXPERT_PARTS};
    b.places = mf_alloc(&binder->allocator, n_bytes);
    if (b.places == NULL)
        return mf_fail_memory(error, n_bytes, "the places of experts");
    mf_status status = bind(&b, out, error);
    mf_free(&binder->allocator, b.places, n_bytes);
    return status;
}
