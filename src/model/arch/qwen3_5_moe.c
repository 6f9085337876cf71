/* SPDX-License-Identifier: MIT */
/* Qwen3.5-MoE (Qwen3.5-397B-A17B, Qwen3.6-35B-A3B), and Qwen3.5 without experts (Qwen3.6-27B): four
 * separate input projections in linear-attention layers. */
#include "model/arch/hybrid.h"

static mf_status bind(mf_binder *b, const mf_hparams *h, mf_model_weights *out, mf_error *error)
{
    return mf_hybrid_bind(b, h, mf_hybrid_bind_in_proj, out, error);
}

const mf_family mf_family_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .text_name = "qwen3_5_moe_text",
    .configure = mf_hybrid_configure,
    .draft_kind = MF_LAYER_FULL,
    .draft_feeds_normed = true,
    .bind = bind,
};

const mf_family mf_family_qwen3_5 = {
    .name = "qwen3_5",
    .text_name = "qwen3_5_text",
    .configure = mf_hybrid_configure_dense,
    .draft_kind = MF_LAYER_FULL,
    .draft_feeds_normed = true,
    .bind = bind,
};
