/* SPDX-License-Identifier: MIT */
/* ERNIE-4.5 (21B-A3B, 300B-A47B; its technical report, 2025): pairs of neighbours are rotated, a
 * few dense layers, then experts chosen by softmax scores and a correction beside ungated shared
 * ones. */
#include "model/arch/common.h"
#include "model/arch/grouped.h"

/* From moe_layer_start_index to moe_layer_end_index every moe_layer_interval-th layer has experts.
 */
static mf_status configure_layers(const mf_source *s, mf_hparams *h, mf_error *error)
{
    static const char last_name[] = "moe_layer_end_index";
    const mf_range layers = {0, MF_MAX_LAYERS};
    mf_hparam_value last;
    uint32_t first, interval, end = h->n_layers;
    MF_TRY(mf_hparam_u32_or(s, "moe_layer_start_index", 1, layers, &first, error));
    MF_TRY(mf_hparam_u32_or(s, "moe_layer_interval", 1, (mf_range){1, MF_MAX_LAYERS}, &interval,
                            error));
    s->ops->hparam(s, last_name, MF_HPARAM_WHOLE, &last);
    if (last.kind != MF_HPARAM_NUMBER || last.number != -1.0) {
        MF_TRY(mf_hparam_u32_or(s, last_name, h->n_layers - 1, layers, &end, error));
        end++;
    }
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->is_dense[i] = i < first || i >= end || (i + 1) % interval != 0;
    return mf_grouped_number_layers(s, h, "moe_layer_start_index", error);
}

/* The sum that the chosen scores are divided by is at least moe_norm_min: what is published keeps
 * it from being 0, and more would change answers. */
static mf_status check_least_sum(const mf_source *s, mf_error *error)
{
    static const char name[] = "moe_norm_min";
    double least;
    MF_TRY(mf_hparam_double_or(s, name, 1e-12, (mf_range){0, 1e6}, &least, error));
    return least <= 1e-9 ? MF_OK
                         : mf_hparam_fail(s, name, MF_ERR_UNSUPPORTED, error,
                                          "is %g; supported is at most 1e-09", least);
}

static mf_status configure(const mf_source *s, mf_hparams *out, mf_error *error)
{
    const mf_grouped_names names = {"moe_num_experts", "moe_intermediate_size", "moe_k"};
    mf_hparams h = {0};
    uint32_t n_shared;
    MF_TRY(mf_configure_common(s, &h, error));
    MF_TRY(mf_grouped_heads(s, &h, error));
    MF_TRY(mf_grouped_rope(s, 5e5, 1.0, &h, error));
    h.rope.interleaved = true;
    MF_TRY(mf_hparam_bool_or(s, "use_bias", false, &h.has_qkv_bias, error));
    h.has_o_bias = h.has_qkv_bias;
    MF_TRY(mf_grouped_experts(s, &names, &h, error));
    h.router.has_bias = h.router.normalise = true;
    MF_TRY(check_least_sum(s, error));
    MF_TRY(configure_layers(s, &h, error));
    if (h.has_qkv_bias)
        return mf_hparam_fail(s, "use_bias", MF_ERR_UNSUPPORTED, error,
                              "is true: MLPs and experts with biases are not supported");
    MF_TRY(mf_hparam_u32_or(s, "moe_num_shared_experts", 0, (mf_range){0, 64}, &n_shared, error));
    h.shared_hidden = n_shared * h.expert_hidden; /* several are one wide MLP */
    *out = h;
    return MF_OK;
}

const mf_family mf_family_ernie4_5_moe = {
    .name = "ernie4_5_moe", .configure = configure, .bind = mf_grouped_bind};
