/* SPDX-License-Identifier: MIT */
/* Qwen2 and Qwen3, dense and with experts (Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder,
 * Qwen2-57B-A14B, Qwen1.5-MoE): their model cards; Qwen3, arXiv 2505.09388. */
#include "model/arch/common.h"
#include "model/arch/grouped.h"

/* Qwen2 has biases of queries, keys and values; Qwen3 has norms of each head instead. */
static mf_status configure_attention(const mf_source *s, bool is_qwen3, mf_hparams *h,
                                     mf_error *error)
{
    MF_TRY(mf_configure_common(s, h, error));
    MF_TRY(mf_grouped_heads(s, h, error));
    MF_TRY(mf_grouped_rope(s, 1e4, 1.0, h, error));
    if (!is_qwen3)
        return mf_hparam_bool_or(s, "qkv_bias", true, &h->has_qkv_bias, error);
    h->has_head_norms = true;
    MF_TRY(mf_hparam_bool_or(s, "attention_bias", false, &h->has_qkv_bias, error));
    h->has_o_bias = h->has_qkv_bias;
    return MF_OK;
}

static bool is_from(uint32_t layer, uint32_t first)
{
    return layer >= first;
}

/* Of Qwen2 with experts, whose code takes max_window_layers for the end. */
static bool is_even_below(uint32_t layer, uint32_t end)
{
    return layer % 2 == 0 && layer < end;
}

static bool is_any(uint32_t layer, uint32_t unused)
{
    (void)layer;
    (void)unused;
    return true;
}

/* use_sliding_window: the layers that layer_types names; without it `is_windowed` says, by
 * max_window_layers. No published model has it on. */
static mf_status configure_windows(const mf_source *s, mf_is_windowed_fn is_windowed, mf_hparams *h,
                                   mf_error *error)
{
    bool is_used;
    uint32_t bound;
    MF_TRY(mf_hparam_bool_or(s, "use_sliding_window", false, &is_used, error));
    if (!is_used)
        return MF_OK;
    MF_TRY(mf_hparam_u32_or(s, "max_window_layers", 28, (mf_range){0, MF_MAX_DIM}, &bound, error));
    return mf_grouped_windows(s, 4096, is_windowed, bound, h, error);
}

static mf_status configure_dense(const mf_source *s, bool is_qwen3, mf_hparams *out,
                                 mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(configure_attention(s, is_qwen3, &h, error));
    MF_TRY(configure_windows(s, is_from, &h, error));
    MF_TRY(mf_grouped_dense(s, &h, error));
    *out = h;
    return MF_OK;
}

/* Of Qwen3's experts transformers 5 writes num_local_experts. */
static mf_status configure_experts(const mf_source *s, bool normalises, mf_hparams *h,
                                   mf_error *error)
{
    const mf_grouped_names names = {mf_hparam_either(s, "num_experts", "num_local_experts"),
                                    "moe_intermediate_size", NULL};
    MF_TRY(mf_grouped_experts(s, &names, h, error));
    MF_TRY(mf_grouped_sparse_steps(s, h, error));
    return mf_hparam_bool_or(s, "norm_topk_prob", normalises, &h->router.normalise, error);
}

static mf_status configure_qwen2(const mf_source *s, mf_hparams *out, mf_error *error)
{
    return configure_dense(s, false, out, error);
}

static mf_status configure_qwen3(const mf_source *s, mf_hparams *out, mf_error *error)
{
    return configure_dense(s, true, out, error);
}

static mf_status configure_qwen2_moe(const mf_source *s, mf_hparams *out, mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(configure_attention(s, false, &h, error));
    MF_TRY(configure_windows(s, is_even_below, &h, error));
    MF_TRY(configure_experts(s, false, &h, error));
    MF_TRY(mf_hparam_u32(s, "shared_expert_intermediate_size", (mf_range){1, MF_MAX_DIM},
                         &h.shared_hidden, error));
    h.shared_is_gated = true;
    *out = h;
    return MF_OK;
}

static mf_status configure_qwen3_experts(const mf_source *s, bool normalises, mf_hparams *out,
                                         mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(configure_attention(s, true, &h, error));
    MF_TRY(configure_windows(s, is_any, &h, error));
    MF_TRY(configure_experts(s, normalises, &h, error));
    *out = h;
    return MF_OK;
}

static mf_status configure_qwen3_moe(const mf_source *s, mf_hparams *out, mf_error *error)
{
    return configure_qwen3_experts(s, false, out, error);
}

const mf_family mf_family_qwen2 = {
    .name = "qwen2", .configure = configure_qwen2, .bind = mf_grouped_bind};

const mf_family mf_family_qwen3 = {
    .name = "qwen3", .configure = configure_qwen3, .bind = mf_grouped_bind};

/* The text towers of those that see. Of text alone the positions on their three axes are the same.
 */
const mf_family mf_family_qwen3_vl = {.name = "qwen3_vl",
                                      .text_name = "qwen3_vl_text",
                                      .configure = configure_qwen3,
                                      .bind = mf_grouped_bind};

/* Published with transposed experts, and its code divides by their scores' sum in any case. */
static mf_status configure_qwen3_vl_moe(const mf_source *s, mf_hparams *out, mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(configure_qwen3_experts(s, true, &h, error));
    h.experts_are_turned = true;
    *out = h;
    return MF_OK;
}

const mf_family mf_family_qwen3_vl_moe = {.name = "qwen3_vl_moe",
                                          .text_name = "qwen3_vl_moe_text",
                                          .configure = configure_qwen3_vl_moe,
                                          .bind = mf_grouped_bind};

const mf_family mf_family_qwen2_moe = {
    .name = "qwen2_moe", .configure = configure_qwen2_moe, .bind = mf_grouped_bind};

const mf_family mf_family_qwen3_moe = {
    .name = "qwen3_moe", .configure = configure_qwen3_moe, .bind = mf_grouped_bind};
