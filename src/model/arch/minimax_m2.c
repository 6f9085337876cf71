/* SPDX-License-Identifier: MIT */
/* MiniMax-M2 and M2.1 (its model card): norms over all heads together, part of each rotated, and
 * experts alone, chosen by sigmoid scores and a correction. */
#include "model/arch/common.h"
#include "model/arch/grouped.h"

#include <string.h>

/* rotary_dim says how many dims are rotated, where rope.partial_rotary_factor does not. */
static mf_status configure_rope(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t n_rot;
    MF_TRY(
        mf_hparam_u32_or(s, "rotary_dim", h->head_dim, (mf_range){2, h->head_dim}, &n_rot, error));
    return mf_grouped_rope(s, 5e6, (double)n_rot / h->head_dim, h, error);
}

/* use_qk_norm with qk_norm_type per_layer: the only kind that is published. */
static mf_status configure_norms(const mf_source *s, mf_hparams *h, mf_error *error)
{
    MF_TRY(mf_require_string(s, "qk_norm_type", "per_layer", error));
    MF_TRY(mf_hparam_bool_or(s, "use_qk_norm", true, &h->has_head_norms, error));
    h->head_norm_is_whole = h->has_head_norms;
    return MF_OK;
}

/* attn_type_list: 1 is softmax attention; MiniMax-M1's linear attention is none of this family. */
static mf_status check_layers(const mf_source *s, const mf_hparams *h, mf_error *error)
{
    uint32_t n;
    mf_hparam_value v;
    MF_TRY(mf_hparam_list(s, "attn_type_list", &n, error));
    for (uint32_t i = 0; n != MF_HPARAM_WHOLE && i < n && i < h->n_layers; i++) {
        s->ops->hparam(s, "attn_type_list", i, &v);
        if (v.kind != MF_HPARAM_NUMBER || v.number != 1.0)
            return mf_fail(error, MF_ERR_UNSUPPORTED,
                           "%s: field attn_type_list[%u] is not 1 (softmax attention)",
                           s->hparam_path, i);
    }
    return MF_OK;
}

static mf_status configure(const mf_source *s, mf_hparams *out, mf_error *error)
{
    const mf_grouped_names names = {"num_local_experts", "intermediate_size", NULL};
    mf_hparams h = {0};
    MF_TRY(mf_configure_common(s, &h, error));
    MF_TRY(mf_grouped_heads(s, &h, error));
    MF_TRY(configure_rope(s, &h, error));
    MF_TRY(configure_norms(s, &h, error));
    MF_TRY(check_layers(s, &h, error));
    MF_TRY(mf_grouped_experts(s, &names, &h, error));
    MF_TRY(mf_require_string(s, "scoring_func", "sigmoid", error));
    MF_TRY(mf_hparam_bool_or(s, "use_routing_bias", true, &h.router.has_bias, error));
    h.router.is_sigmoid = h.router.normalise = true;
    mf_number_moe_layers(&h);
    *out = h;
    return MF_OK;
}

const mf_family mf_family_minimax_m2 = {
    .name = "minimax_m2", .configure = configure, .bind = mf_grouped_bind};
