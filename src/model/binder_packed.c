/* SPDX-License-Identifier: MIT */
/* Binding of matrices that are repacked when they are read (base/weight_repack.h): what their
 * tensors have to be, and, of resident ones, where what is made of them goes. */
#include "model/binder.h"

#include <stdio.h>
#include <string.h>

/* Bits and groups, as the shapes of values and scales say: shapes that say nothing give 0. */
static void measure(const mf_stored *s, mf_repack *r)
{
    const mf_tensor *data = s->data, *scales = s->scales;
    const bool is_gptq = r->packing == MF_PACKING_GPTQ || r->packing == MF_PACKING_GPTQ_V2;
    const bool is_by_column = is_gptq || r->packing == MF_PACKING_AWQ;
    const uint64_t n_cols = r->shape.n_cols;
    const uint64_t words = data->n_dims == 2 ? data->shape[is_gptq ? 0 : 1] : 0;
    const uint64_t n_groups = scales->n_dims == 2 ? scales->shape[is_by_column ? 0 : 1] : 0;
    const uint64_t bits = words > n_cols ? 0 : words * 32 / n_cols;
    r->bits = r->packing == MF_PACKING_AWQ     ? 4
              : r->packing == MF_PACKING_BYTES ? 8
                                               : (uint32_t)bits;
    r->n_groups = n_groups <= n_cols ? (uint32_t)n_groups : 0;
}

static mf_status check_array(const mf_binder *binder, const mf_repack *r, const mf_tensor *t,
                             uint32_t array, mf_error *error)
{
    static const char *const types[] = {"I32", "F32, F16 or BF16", "I32", "I32"};
    const mf_packed_array a = mf_repack_stored(r, array);
    const bool is_bytes = r->packing == MF_PACKING_BYTES && array != MF_PACKED_SCALES;
    const mf_tensor_type type = is_bytes ? MF_TENSOR_I8 : MF_TENSOR_I32;
    const uint64_t expected[] = {a.n_rows, a.n_cols};
    const uint32_t first = a.n_rows == 0;
    if ((array == MF_PACKED_SCALES || t->type == type) && t->n_dims == 2 - first &&
        (first != 0 || t->shape[0] == a.n_rows) && t->shape[1 - first] == a.n_cols)
        return MF_OK;
    char shape[64], text[160];
    mf_shape_text(expected + first, 2 - first, shape, sizeof shape);
    snprintf(text, sizeof text, "%s of %s (%s, %u bits)", shape, is_bytes ? "I8" : types[array],
             mf_packing_name(r->packing), r->bits);
    return mf_bind_wrong_shape(binder, t, text, error);
}

/* GGUF's NVFP4 with a factor beside it: one, or of stacked matrices one for each. */
static mf_status bind_blocks(mf_binder *binder, mf_matrix_shape s, const mf_stored *stored,
                             mf_stored_matrix *out, mf_error *error)
{
    const mf_tensor *data = stored->data, *factor = stored->scales;
    const uint64_t n = s.n_stacked == 0 ? 1 : s.n_stacked;
    if (data->type != MF_TENSOR_BLOCKS || data->kind != MF_WEIGHT_GGUF_NVFP4)
        return mf_bind_wrong_shape(binder, data, "blocks of NVFP4", error);
    if (factor->type != MF_TENSOR_F32 || factor->n_dims != 1 || factor->shape[0] != n) {
        char text[64];
        snprintf(text, sizeof text, "[%llu] of F32 (the factor of NVFP4)", (unsigned long long)n);
        return mf_bind_wrong_shape(binder, factor, text, error);
    }
    out->shape = (mf_weight_shape){
        .kind = MF_WEIGHT_NVFP4, .float_type = MF_F32, .n_rows = s.n_rows, .n_cols = s.n_cols};
    out->repack = (mf_repack){
        .packing = MF_PACKING_BLOCKS, .n_groups = s.n_stacked == 0, .shape = out->shape};
    out->packed[MF_PACKED_VALUES] = stored->data;
    out->packed[MF_PACKED_SCALES] = stored->scales;
    return MF_OK;
}

mf_status mf_bind_packed(mf_binder *binder, mf_matrix_shape s, const mf_stored *stored,
                         mf_stored_matrix *out, mf_error *error)
{
    if (stored->data->packing == MF_PACKING_BLOCKS)
        return bind_blocks(binder, s, stored, out, error);
    const char *path = mf_source_path_of(binder->source, stored->data);
    const char *name = stored->data->name;
    mf_repack r = {.packing = stored->data->packing, .has_zeros = stored->zeros != NULL};
    r.shape = (mf_weight_shape){.n_rows = s.n_rows, .n_cols = s.n_cols};
    r.has_index = stored->index != NULL;
    if (s.n_stacked != 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: tensor %s: %s of several matrices in one tensor is not supported", path,
                       name, mf_packing_name(r.packing));
    if (!mf_float_type_of(stored->scales->type, &r.scale_type))
        return mf_bind_wrong_shape(binder, stored->scales, "scales of F32, F16 or BF16", error);
    measure(stored, &r);
    if (!mf_repack_choose(&r))
        return mf_fail(
            error, MF_ERR_UNSUPPORTED,
            "%s: tensor %s: %s of %u bits, %u scales for a row of %u columns; supported "
            "are 2, 3, 4 and 8 bits (AWQ 4, compressed-tensors 2 to 6 and 8) and groups of "
            "a multiple of 32 (with g_idx 32, 64 or 128)",
            path, name, mf_packing_name(r.packing), r.bits, r.n_groups, s.n_cols);
    mf_tensor *const arrays[MF_PACKED_ARRAYS] = {stored->data, stored->scales, stored->zeros,
                                                 stored->index};
    for (uint32_t i = 0; i < MF_PACKED_ARRAYS; i++) {
        out->packed[i] = mf_repack_stored_bytes(&r, i) != 0 ? arrays[i] : NULL;
        if (out->packed[i] != NULL)
            MF_TRY(check_array(binder, &r, arrays[i], i, error));
    }
    out->repack = r;
    out->shape = r.shape;
    return MF_OK;
}

static mf_status keep_rows(mf_binder *binder, const mf_row_list *rows, mf_error *error)
{
    for (uint32_t i = 0; i < rows->n_runs; i++) {
        void *list = binder->rows;
        MF_TRY(mf_bind_grow(binder, &list, binder->n_rows, &binder->rows_capacity,
                            sizeof *binder->rows, error));
        binder->rows = list;
        binder->rows[binder->n_rows++] = rows->runs[i];
    }
    return MF_OK;
}

mf_status mf_bind_place_packed(mf_binder *binder, const mf_stored_matrix *m,
                               const mf_row_list *rows, mf_weight *w, mf_error *error)
{
    if (m->repack.packing == MF_PACKING_BLOCKS && m->repack.n_groups == 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: tensor %s: %s of several matrices in one tensor is not supported",
                       mf_source_path_of(binder->source, m->packed[0]), m->packed[0]->name,
                       mf_packing_name(m->repack.packing));
    mf_making k = {.repack = m->repack, .first_run = binder->n_rows, .n_runs = rows->n_runs};
    MF_TRY(keep_rows(binder, rows, error));
    for (uint32_t i = 0; i < mf_weight_format_of(&w->shape)->n_arrays; i++) {
        MF_TRY(mf_bind_place(binder, mf_weight_array_bytes(&w->shape, i), &w->arrays[i], error));
        k.dest[i] = w->arrays[i].offset;
    }
    for (uint32_t i = 0; i < MF_PACKED_ARRAYS; i++) {
        if (m->packed[i] == NULL)
            continue;
        k.file[i] = m->packed[i]->file;
        k.source[i] = m->packed[i]->offset;
    }
    void *list = binder->makings;
    MF_TRY(mf_bind_grow(binder, &list, binder->n_makings, &binder->makings_capacity,
                        sizeof *binder->makings, error));
    binder->makings = list;
    binder->makings[binder->n_makings++] = k;
    return MF_OK;
}

void mf_binder_free_packed(mf_binder *binder)
{
    const mf_allocator *a = &binder->allocator;
    mf_free(a, binder->rows, binder->rows_capacity * sizeof *binder->rows);
    mf_free(a, binder->makings, binder->makings_capacity * sizeof *binder->makings);
}

/* ------------------------------------------------------------------------------- experts -- */

/* Parts that are read of an expert: array i of matrix j is part MF_PACKED_ARRAYS * j + i. */
_Static_assert(MF_MAX_STORED_PARTS == MF_EXPERT_MATRICES * MF_PACKED_ARRAYS,
               "what is read of an expert are its matrices' stored arrays");

mf_status mf_bind_stored_tables(mf_binder *binder, const mf_hparams *h, mf_error *error)
{
    const mf_allocator *a = &binder->allocator;
    mf_expert_tables *t = &binder->experts;
    if (t->n_stored_layers != 0)
        return MF_OK;
    const size_t n = h->n_moe_layers, n_parts = n * MF_MAX_STORED_PARTS;
    t->n_stored_layers = n;
    t->n_stored_each = n_parts * h->n_experts;
    t->stored = mf_alloc_zeroed(a, n_parts * sizeof *t->stored);
    t->recipes = mf_alloc_zeroed(a, n * sizeof *t->recipes);
    t->stored_file = mf_alloc_array(a, t->n_stored_each, sizeof *t->stored_file);
    t->stored_offset = mf_alloc_array(a, t->n_stored_each, sizeof *t->stored_offset);
    if (t->stored == NULL || t->recipes == NULL || t->stored_file == NULL ||
        t->stored_offset == NULL)
        return mf_fail_memory(error, t->n_stored_each * sizeof *t->stored_offset,
                              "the table of experts");
    return MF_OK;
}

/* Those of all experts of a layer are stored and made alike. */
static mf_status check_alike(const mf_binder *binder, const mf_repack *first,
                             const mf_stored_matrix *m, mf_error *error)
{
    const mf_repack *r = &m->repack;
    if (first->packing == r->packing && first->bits == r->bits && first->n_groups == r->n_groups &&
        first->scale_type == r->scale_type && first->has_zeros == r->has_zeros &&
        first->has_index == r->has_index)
        return MF_OK;
    return mf_fail(error, MF_ERR_UNSUPPORTED,
                   "%s: tensor %s: experts of a layer must be all quantised alike",
                   mf_source_path_of(binder->source, m->packed[0]), m->packed[0]->name);
}

mf_status mf_bind_packed_expert(mf_binder *binder, const mf_hparams *h, mf_expert_id id,
                                const mf_stored_matrix *m, mf_error *error)
{
    const size_t moe = h->moe_index[id.layer], n = h->n_experts;
    MF_TRY(mf_bind_stored_tables(binder, h, error));
    mf_expert_tables *t = &binder->experts;
    mf_repack *recipe = &t->recipes[moe].matrices[id.matrix];
    if (id.expert == 0)
        *recipe = m->repack;
    MF_TRY(check_alike(binder, recipe, m, error));
    for (uint32_t i = 0; i < MF_PACKED_ARRAYS; i++) {
        const size_t part = moe * MF_MAX_STORED_PARTS + id.matrix * MF_PACKED_ARRAYS + i;
        if (m->packed[i] == NULL)
            continue;
        t->stored_file[part * n + id.expert] = m->packed[i]->file;
        t->stored_offset[part * n + id.expert] = m->packed[i]->offset;
        t->stored[part].n_bytes = m->packed[i]->n_bytes;
        t->stored[part].each_file = &t->stored_file[part * n];
        t->stored[part].each_offset = &t->stored_offset[part * n];
    }
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
        const size_t part = moe * MF_MAX_EXPERT_PARTS + id.matrix * MF_MAX_WEIGHT_ARRAYS + i;
        t->parts[part].n_bytes = mf_weight_array_bytes(&m->shape, i);
    }
    return MF_OK;
}

void mf_bind_packed_blocks(mf_binder *binder, const mf_hparams *h, uint32_t layer, uint32_t matrix,
                           const mf_repack *repack)
{
    mf_expert_tables *t = &binder->experts;
    const size_t moe = h->moe_index[layer];
    mf_expert_part *parts = &t->parts[moe * MF_MAX_EXPERT_PARTS + matrix * MF_MAX_WEIGHT_ARRAYS];
    t->stored[moe * MF_MAX_STORED_PARTS + matrix * MF_PACKED_ARRAYS] = parts[MF_WEIGHT_VALUES];
    t->recipes[moe].matrices[matrix] = *repack;
    for (uint32_t i = 0; i < mf_weight_format_of(&repack->shape)->n_arrays; i++)
        if (!mf_weight_format_of(&repack->shape)->arrays[i].is_float32)
            parts[i] = (mf_expert_part){.n_bytes = mf_weight_array_bytes(&repack->shape, i)};
}

mf_status mf_expert_recipe_make(const void *ctx, uint32_t layer, const unsigned char *const *stored,
                                unsigned char *const *parts, mf_error *error)
{
    const mf_expert_recipe *recipe = (const mf_expert_recipe *)ctx + layer;
    for (uint32_t j = 0; j < MF_EXPERT_MATRICES; j++) {
        const mf_repack *r = &recipe->matrices[j];
        const size_t of = recipe->up_is_in_gate && j == 1 ? 0 : j;
        if (r->packing == MF_PACKING_NONE) /* rows of gate and up take turns in gate */
            continue;
        if (!mf_repack_rows(r, stored + of * MF_PACKED_ARRAYS, 0, r->shape.n_rows,
                            parts + (size_t)j * MF_MAX_WEIGHT_ARRAYS))
            return mf_fail(error, MF_ERR_FORMAT,
                           "g_idx of matrix %u of 3 names a group that is not there, expected 0 to "
                           "%u",
                           j + 1, r->n_groups - 1);
    }
    return MF_OK;
}
