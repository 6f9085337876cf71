/* SPDX-License-Identifier: MIT */
/* Qwen3.5-MoE (Qwen3.5-397B-A17B, Qwen3.6-35B-A3B): four separate input projections in
 * linear-attention layers. */
#include "model/arch/hybrid.h"

#define NAME_BYTES 512

static mf_status bind_in_proj(mf_binder *b, const mf_hparams *h, uint32_t layer,
                              mf_linear_weights *w, mf_error *error)
{
    const struct {
        const char *suffix;
        uint32_t n_rows;
        mf_weight *out;
    } projections[] = {
        {"linear_attn.in_proj_qkv", mf_conv_channels(h), &w->qkv},
        {"linear_attn.in_proj_z", mf_value_width(h), &w->z},
        {"linear_attn.in_proj_b", h->n_v_heads, &w->b},
        {"linear_attn.in_proj_a", h->n_v_heads, &w->a},
    };
    for (size_t i = 0; i < sizeof projections / sizeof *projections; i++) {
        char name[NAME_BYTES];
        mf_layer_name(b, layer, projections[i].suffix, name, sizeof name);
        MF_TRY(mf_bind_matrix(b, name, projections[i].n_rows, h->hidden_size, projections[i].out,
                              error));
    }
    return MF_OK;
}

static mf_status bind(mf_binder *b, const mf_hparams *h, mf_model_weights *out, mf_error *error)
{
    return mf_hybrid_bind(b, h, bind_in_proj, out, error);
}

const mf_family mf_family_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .text_name = "qwen3_5_moe_text",
    .configure = mf_hybrid_configure,
    .bind = bind,
};
