/* SPDX-License-Identifier: MIT */
/*
 * Qwen3-Next (Qwen3-Next-80B-A3B, Qwen3-Coder-Next): the input projections of linear-attention
 * layers are fused and stored key head by key head. Binding takes their rows apart, so that the
 * forward pass sees the same four matrices as Qwen3.5-MoE.
 */
#include "model/arch/hybrid.h"

/* in_proj_qkvz, per key head: q [key_dim], k [key_dim], v and z [value heads per key head *
 * value_dim]. */
static mf_status bind_qkvz(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_linear_weights *w,
                           mf_error *error)
{
    uint32_t key = h->key_dim, value = h->n_v_heads / h->n_k_heads * h->value_dim;
    uint32_t stride = 2 * key + 2 * value, n_rows = h->n_k_heads * stride;
    const mf_rows qkv[3] = {
        {h->n_k_heads, key, stride, 0},
        {h->n_k_heads, key, stride, key},
        {h->n_k_heads, value, stride, 2 * key},
    };
    const mf_rows z = {h->n_k_heads, value, stride, 2 * key + value};
    const mf_tensor_id id = mf_tensor_of(MF_ROLE_LINEAR_QKVZ, layer);
    const mf_matrix_shape shape = {0, n_rows, h->hidden_size};
    MF_TRY(mf_bind_matrix_rows(b, id, shape, &(mf_row_list){qkv, 3}, &w->qkv, error));
    return mf_bind_matrix_rows(b, id, shape, &(mf_row_list){&z, 1}, &w->z, error);
}

/* in_proj_ba, per key head: b then a, one row per value head. */
static mf_status bind_ba(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_linear_weights *w,
                         mf_error *error)
{
    uint32_t ratio = h->n_v_heads / h->n_k_heads;
    const mf_rows beta = {h->n_k_heads, ratio, 2 * ratio, 0};
    const mf_rows alpha = {h->n_k_heads, ratio, 2 * ratio, ratio};
    const mf_tensor_id id = mf_tensor_of(MF_ROLE_LINEAR_BA, layer);
    const mf_matrix_shape shape = {0, 2 * h->n_v_heads, h->hidden_size};
    MF_TRY(mf_bind_matrix_rows(b, id, shape, &(mf_row_list){&beta, 1}, &w->b, error));
    return mf_bind_matrix_rows(b, id, shape, &(mf_row_list){&alpha, 1}, &w->a, error);
}

/* Conversions may have taken them apart already. */
static mf_status bind_in_proj(mf_binder *b, const mf_hparams *h, uint32_t layer,
                              mf_linear_weights *w, mf_error *error)
{
    const bool has_qkv = mf_source_has(b->source, MF_ROLE_LINEAR_QKV, layer);
    const bool has_b = mf_source_has(b->source, MF_ROLE_LINEAR_B, layer);
    MF_TRY(has_qkv ? mf_hybrid_bind_qkv_z(b, h, layer, w, error)
                   : bind_qkvz(b, h, layer, w, error));
    return has_b ? mf_hybrid_bind_b_a(b, h, layer, w, error) : bind_ba(b, h, layer, w, error);
}

static mf_status bind(mf_binder *b, const mf_hparams *h, mf_model_weights *out, mf_error *error)
{
    return mf_hybrid_bind(b, h, bind_in_proj, out, error);
}

const mf_family mf_family_qwen3_next = {
    .name = "qwen3_next",
    .text_name = NULL,
    .configure = mf_hybrid_configure,
    .draft_kind = MF_LAYER_FULL,
    .draft_feeds_normed = true,
    .bind = bind,
};
