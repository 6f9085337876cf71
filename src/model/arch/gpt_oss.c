/* SPDX-License-Identifier: MIT */
/* gpt-oss-20b and 120b (arXiv 2508.10925): attention sinks, a window in every second layer, biases
 * everywhere, and experts with a clamped activation. */
#include "model/arch/common.h"
#include "model/arch/grouped.h"

static bool is_even(uint32_t layer, uint32_t unused)
{
    (void)unused;
    return layer % 2 == 0;
}

static mf_status configure_experts(const mf_source *s, mf_hparams *h, mf_error *error)
{
    const mf_grouped_names names = {"num_local_experts", "intermediate_size", NULL};
    double limit, alpha;
    MF_TRY(mf_grouped_experts(s, &names, h, error));
    MF_TRY(mf_hparam_double_or(s, "swiglu_limit", 7.0, (mf_range){1e-3, 1e6}, &limit, error));
    MF_TRY(mf_hparam_double_or(s, "swiglu_alpha", 1.702, (mf_range){1e-3, 1e3}, &alpha, error));
    h->experts_have_biases = h->experts_are_clamped = true;
    h->experts_are_turned = h->experts_are_paired = true; /* where they are floats */
    h->expert_limit = (float)limit;
    h->expert_alpha = (float)alpha;
    /* the softmax of the chosen logits alone: the scores of all, divided by the sum of theirs */
    h->router.has_logit_bias = h->router.normalise = true;
    mf_number_moe_layers(h);
    return MF_OK;
}

static mf_status configure(const mf_source *s, mf_hparams *out, mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(mf_configure_common(s, &h, error));
    MF_TRY(mf_grouped_heads(s, &h, error));
    MF_TRY(mf_grouped_rope(s, 1.5e5, 1.0, &h, error));
    MF_TRY(mf_hparam_bool_or(s, "attention_bias", true, &h.has_qkv_bias, error));
    h.has_o_bias = h.has_qkv_bias;
    h.has_sinks = true;
    MF_TRY(mf_grouped_windows(s, 128, is_even, 0, &h, error));
    MF_TRY(configure_experts(s, &h, error));
    *out = h;
    return MF_OK;
}

const mf_family mf_family_gpt_oss = {
    .name = "gpt_oss", .configure = configure, .bind = mf_grouped_bind};
