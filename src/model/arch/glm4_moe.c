/* SPDX-License-Identifier: MIT */
/* GLM-4.5, 4.5-Air, 4.6 and 4.7 (arXiv 2508.06471): half of each head rotated, a few dense layers,
 * then experts chosen as in DeepSeek-V3 beside an ungated shared one. */
#include "model/arch/common.h"
#include "model/arch/grouped.h"

static mf_status configure_router(const mf_source *s, mf_hparams *h, mf_error *error)
{
    double scale;
    h->router.is_sigmoid = h->router.has_bias = true;
    h->router.eps = 1e-20f;
    MF_TRY(mf_hparam_bool_or(s, "norm_topk_prob", true, &h->router.normalise, error));
    MF_TRY(mf_hparam_double_or(s, "routed_scaling_factor", 1.0, (mf_range){0, 1e6}, &scale, error));
    h->router.scale = (float)scale;
    return mf_configure_groups(s, "n_group", 0, h, error);
}

static mf_status configure(const mf_source *s, mf_hparams *out, mf_error *error)
{
    const mf_grouped_names names = {"n_routed_experts", "moe_intermediate_size", NULL};
    mf_hparams h = {0};
    uint32_t n_shared;
    MF_TRY(mf_configure_common(s, &h, error));
    MF_TRY(mf_grouped_heads(s, &h, error));
    MF_TRY(mf_grouped_rope(s, 1e4, 0.5, &h, error));
    MF_TRY(mf_hparam_bool_or(s, "attention_bias", false, &h.has_qkv_bias, error));
    MF_TRY(mf_hparam_bool_or(s, "use_qk_norm", false, &h.has_head_norms, error));
    MF_TRY(mf_grouped_experts(s, &names, &h, error));
    MF_TRY(configure_router(s, &h, error));
    MF_TRY(mf_grouped_first_dense(s, &h, error));
    MF_TRY(mf_hparam_u32_or(s, "n_shared_experts", 1, (mf_range){0, 64}, &n_shared, error));
    h.shared_hidden = n_shared * h.expert_hidden; /* several are one wide MLP */
    MF_TRY(mf_hparam_u32_or(s, "num_nextn_predict_layers", 1, (mf_range){0, MF_MAX_LAYERS},
                            &h.n_mtp_layers, error));
    *out = h;
    return MF_OK;
}

/* GLM-4.5V: its text tower. Of text alone the positions on its three axes are the same. */
const mf_family mf_family_glm4v_moe = {.name = "glm4v_moe",
                                       .text_name = "glm4v_moe_text",
                                       .configure = configure,
                                       .bind = mf_grouped_bind};

const mf_family mf_family_glm4_moe = {
    .name = "glm4_moe",
    .configure = configure,
    .draft_kind = MF_LAYER_FULL,
    .bind = mf_grouped_bind,
};
