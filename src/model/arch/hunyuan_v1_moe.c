/* SPDX-License-Identifier: MIT */
/* Hunyuan-A13B (its technical report, 2025): norms of each head after the rotation, experts beside
 * an ungated shared one in every layer. */
#include "model/arch/common.h"
#include "model/arch/grouped.h"

/* A number, or a list that has the same for every layer. */
static mf_status read_count(const mf_source *s, const char *name, uint32_t fallback, uint32_t most,
                            uint32_t *out)
{
    mf_hparam_value v;
    s->ops->hparam(s, name, MF_HPARAM_WHOLE, &v);
    const uint32_t n = v.kind == MF_HPARAM_LIST ? v.n_elements : 1;
    uint32_t value = v.kind == MF_HPARAM_ABSENT ? fallback : 0;
    for (uint32_t i = 0; v.kind != MF_HPARAM_ABSENT && i < n; i++) {
        mf_hparam_value e = v;
        if (v.kind == MF_HPARAM_LIST)
            s->ops->hparam(s, name, i, &e);
        if (e.kind != MF_HPARAM_NUMBER || !(e.number >= 1 && e.number <= most) ||
            e.number != (double)(uint32_t)e.number || (i > 0 && e.number != value))
            return MF_ERR_UNSUPPORTED;
        value = (uint32_t)e.number;
    }
    *out = value;
    return value != 0 ? MF_OK : MF_ERR_UNSUPPORTED;
}

static mf_status configure_experts(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t dense, n_shared;
    MF_TRY(mf_hparam_u32(s, "intermediate_size", (mf_range){1, MF_MAX_DIM}, &dense, error));
    const struct {
        const char *name;
        uint32_t fallback, most;
        uint32_t *out;
    } counts[] = {{"num_experts", 0, 65535, &h->n_experts},
                  {"moe_topk", 1, 65535, &h->n_experts_per_token},
                  {"moe_intermediate_size", dense, MF_MAX_DIM, &h->expert_hidden},
                  {"num_shared_expert", 1, 64, &n_shared}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (read_count(s, counts[i].name, counts[i].fallback, counts[i].most, counts[i].out) !=
            MF_OK)
            return mf_hparam_fail(s, counts[i].name, MF_ERR_UNSUPPORTED, error,
                                  "is not a whole number from 1 to %u, the same for every layer",
                                  counts[i].most);
    if (h->n_experts_per_token > h->n_experts)
        return mf_hparam_fail(s, "moe_topk", MF_ERR_FORMAT, error, "%u is more than num_experts %u",
                              h->n_experts_per_token, h->n_experts);
    h->shared_hidden = n_shared * h->expert_hidden;
    h->router = (mf_router){.n_groups = 1, .k_groups = 1, .normalise = true, .scale = 1.0f};
    mf_number_moe_layers(h);
    return MF_OK;
}

static mf_status configure(const mf_source *s, mf_hparams *out, mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(mf_configure_common(s, &h, error));
    MF_TRY(mf_grouped_heads(s, &h, error));
    MF_TRY(mf_grouped_rope(s, 1e4, 1.0, &h, error));
    MF_TRY(mf_require_false(s, "mlp_bias", error));
    MF_TRY(mf_require_false(s, "use_cla", error));
    MF_TRY(mf_hparam_bool_or(s, "attention_bias", false, &h.has_qkv_bias, error));
    h.has_o_bias = h.has_qkv_bias;
    MF_TRY(mf_hparam_bool_or(s, "use_qk_norm", true, &h.has_head_norms, error));
    h.head_norm_is_last = h.has_head_norms;
    MF_TRY(configure_experts(s, &h, error));
    *out = h;
    return MF_OK;
}

const mf_family mf_family_hunyuan_v1_moe = {
    .name = "hunyuan_v1_moe", .configure = configure, .bind = mf_grouped_bind};
