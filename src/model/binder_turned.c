/* SPDX-License-Identifier: MIT */
/* Binding of experts whose two tensors are transposed: GATE_UP [experts, hidden, 2 * intermediate],
 * the columns of gate before those of up or taking turns with them, and DOWN [experts,
 * intermediate, hidden]. Rows are made when an expert has been read. */
#include "model/binder.h"

enum { GATE, UP, DOWN };

typedef struct turning {
    mf_binder *binder;
    const mf_hparams *h;
    uint32_t layer;
    mf_expert_recipe *recipe;
} turning;

/* The tensor that becomes n_stored rows of n_cols columns, and where matrix j's are read. */
static mf_status find(const turning *t, mf_role role, uint32_t j, const mf_matrix_shape *s,
                      mf_error *error)
{
    const mf_matrix_shape stored = {t->h->n_experts, s->n_cols, s->n_rows};
    mf_expert_tables *tables = &t->binder->experts;
    mf_stored_matrix m;
    MF_TRY(mf_bind_stored(t->binder, mf_tensor_of(role, t->layer), stored, &m, error));
    if (m.shape.kind != MF_WEIGHT_FLOAT)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: tensor %s: transposed experts are supported as F32, F16 and BF16",
                       t->binder->source->path, m.data->name);
    const size_t part =
        (size_t)t->h->moe_index[t->layer] * MF_MAX_STORED_PARTS + j * MF_PACKED_ARRAYS;
    const uint64_t stride = m.data->n_bytes / t->h->n_experts;
    tables->stored[part] = (mf_expert_part){
        .file = m.data->file, .offset = m.data->offset, .stride = stride, .n_bytes = stride};
    t->recipe->matrices[j] = (mf_repack){.packing = MF_PACKING_TURNED,
                                         .n_stored_rows = s->n_rows,
                                         .shape = {.kind = MF_WEIGHT_FLOAT,
                                                   .float_type = m.shape.float_type,
                                                   .n_rows = s->n_rows,
                                                   .n_cols = s->n_cols}};
    return MF_OK;
}

static void keep(const turning *t, uint32_t j, mf_weight *out)
{
    const mf_weight_shape *shape = &t->recipe->matrices[j].shape;
    const size_t part =
        (size_t)t->h->moe_index[t->layer] * MF_MAX_EXPERT_PARTS + j * MF_MAX_WEIGHT_ARRAYS;
    t->binder->experts.parts[part].n_bytes = mf_weight_array_bytes(shape, MF_WEIGHT_VALUES);
    out->shape = *shape;
}

mf_status mf_bind_turned(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                         mf_expert_shape *out, mf_error *error)
{
    const uint32_t n = h->expert_hidden;
    MF_TRY(mf_bind_stored_tables(binder, h, error));
    const turning t = {binder, h, layer, &binder->experts.recipes[h->moe_index[layer]]};
    mf_repack *gate = &t.recipe->matrices[GATE], *up = &t.recipe->matrices[UP];
    const mf_matrix_shape both = {0, 2 * n, h->hidden_size}, down = {0, h->hidden_size, n};
    MF_TRY(find(&t, MF_ROLE_EXPERT_GATE_UP, GATE, &both, error));
    MF_TRY(find(&t, MF_ROLE_EXPERT_DOWN, DOWN, &down, error));
    out->steps.is_paired = h->experts_are_paired;
    t.recipe->up_is_in_gate = !h->experts_are_paired;
    if (!h->experts_are_paired) {
        gate->shape.n_rows = n;
        *up = *gate;
        up->first_row = n;
        keep(&t, UP, &out->up);
    }
    keep(&t, GATE, &out->gate);
    keep(&t, DOWN, &out->down);
    return MF_OK;
}
