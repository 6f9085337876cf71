/* SPDX-License-Identifier: MIT */
/*
 * Llama 4 (Scout, Maverick; their model cards, 2025), the text tower: three layers of four attend
 * within chunks of positions and rotate; the fourth attends to all and does not, its queries
 * growing with the position (arXiv 2501.19399). One expert of each layer, whose input is scaled by
 * its sigmoid score, beside a shared one; in Maverick every second layer has none.
 */
#include "model/arch/common.h"
#include "model/arch/grouped.h"

#include <string.h>

/* Whether a list of numbers says something of a layer: that it has the layer's number (members), or
 * not 0 in its place. */
static mf_status read_list(const mf_source *s, const char *name, bool are_members, mf_hparams *h,
                           bool *of_layer, mf_error *error)
{
    uint32_t n;
    MF_TRY(mf_hparam_list(s, name, &n, error));
    if (n == MF_HPARAM_WHOLE || n == 0)
        return MF_OK;
    if (!are_members && n < h->n_layers)
        return mf_hparam_fail(s, name, MF_ERR_FORMAT, error,
                              "has %u entries; expected num_hidden_layers = %u", n, h->n_layers);
    memset(of_layer, 0, h->n_layers * sizeof *of_layer);
    for (uint32_t i = 0; i < n && (are_members || i < h->n_layers); i++) {
        mf_hparam_value v;
        s->ops->hparam(s, name, i, &v);
        const double most = are_members ? h->n_layers - 1.0 : 1.0;
        if (v.kind != MF_HPARAM_NUMBER || !(v.number >= 0 && v.number <= most) ||
            v.number != (uint32_t)v.number)
            return mf_fail(error, MF_ERR_FORMAT, "%s: field %s[%u] is no number from 0 to %g",
                           s->hparam_path, name, i, most);
        if (are_members)
            of_layer[(uint32_t)v.number] = true;
        else
            of_layer[i] = v.number != 0;
    }
    return MF_OK;
}

/* Which layers rotate (no_rope_layers, of which 0 is no rope) and so attend within chunks, where
 * layer_types does not say otherwise. */
static mf_status configure_layers(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t interval, chunk, n_types;
    bool rotates[MF_MAX_LAYERS];
    MF_TRY(mf_hparam_u32_or(s, "no_rope_layer_interval", 4, (mf_range){1, MF_MAX_LAYERS}, &interval,
                            error));
    MF_TRY(
        mf_hparam_u32_or(s, "attention_chunk_size", 8192, (mf_range){1, 1u << 28}, &chunk, error));
    for (uint32_t i = 0; i < h->n_layers; i++)
        rotates[i] = (i + 1) % interval != 0;
    MF_TRY(read_list(s, "no_rope_layers", false, h, rotates, error));
    MF_TRY(mf_layer_list(s, "layer_types", h, &n_types, error));
    h->windows_are_chunks = true;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        bool is_chunked = rotates[i];
        if (n_types != MF_HPARAM_WHOLE)
            MF_TRY(mf_layer_word(s, "layer_types", n_types, i, "chunked_attention",
                                 "full_attention", &is_chunked, error));
        h->is_unrotated[i] = !rotates[i];
        h->window[i] = is_chunked ? chunk : 0;
    }
    return MF_OK;
}

/* A flag, which published configs also give as a number. */
static mf_status read_flag(const mf_source *s, const char *name, bool *out, mf_error *error)
{
    mf_hparam_value v;
    s->ops->hparam(s, name, MF_HPARAM_WHOLE, &v);
    if (v.kind != MF_HPARAM_NUMBER)
        return mf_hparam_bool_or(s, name, true, out, error);
    *out = v.number != 0;
    return MF_OK;
}

/* Of the layers that do not rotate: queries grow by ln(floor((position + 1) / floor_scale) + 1) *
 * attn_scale. */
static mf_status configure_temperature(const mf_source *s, mf_hparams *h, mf_error *error)
{
    bool is_tuned;
    MF_TRY(read_flag(s, "attn_temperature_tuning", &is_tuned, error));
    MF_TRY(mf_hparam_double_or(s, "floor_scale", 8192, (mf_range){1, 1e9}, &h->query_floor, error));
    MF_TRY(mf_hparam_double_or(s, "attn_scale", 0.1, (mf_range){0, 1e3}, &h->query_growth, error));
    h->query_growth = is_tuned ? h->query_growth : 0;
    h->query_first = 1;
    return MF_OK;
}

static mf_status configure_experts(const mf_source *s, mf_hparams *h, mf_error *error)
{
    static const char per_token[] = "num_experts_per_tok";
    const mf_grouped_names names = {"num_local_experts", "intermediate_size", per_token};
    uint32_t step;
    bool has_experts[MF_MAX_LAYERS];
    MF_TRY(mf_grouped_experts(s, &names, h, error));
    h->experts_are_turned = true;
    if (h->n_experts_per_token != 1)
        return mf_hparam_fail(s, per_token, MF_ERR_UNSUPPORTED, error,
                              "is %u; supported is 1, as in all published models",
                              h->n_experts_per_token);
    h->router.is_sigmoid = h->router.scales_input = true;
    h->shared_hidden = h->expert_hidden;
    MF_TRY(mf_hparam_u32_or(s, "interleave_moe_layer_step", 1, (mf_range){1, MF_MAX_LAYERS}, &step,
                            error));
    for (uint32_t i = 0; i < h->n_layers; i++)
        has_experts[i] = (i + 1) % step == 0;
    MF_TRY(read_list(s, "moe_layers", true, h, has_experts, error));
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->is_dense[i] = !has_experts[i];
    mf_number_moe_layers(h);
    if (h->n_moe_layers == 0)
        return mf_hparam_fail(s, "interleave_moe_layer_step", MF_ERR_UNSUPPORTED, error,
                              "leaves no layer of %u its experts", h->n_layers);
    return h->n_moe_layers == h->n_layers
               ? MF_OK
               : mf_hparam_u32(s, "intermediate_size_mlp", (mf_range){1, MF_MAX_DIM},
                               &h->dense_hidden, error);
}

static mf_status configure(const mf_source *s, mf_hparams *out, mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(mf_configure_common(s, &h, error));
    MF_TRY(mf_grouped_heads(s, &h, error));
    MF_TRY(mf_grouped_rope(s, 5e5, 1.0, &h, error));
    h.rope.interleaved = true;
    MF_TRY(mf_hparam_bool_or(s, "attention_bias", false, &h.has_qkv_bias, error));
    h.has_o_bias = h.has_qkv_bias;
    MF_TRY(mf_hparam_bool_or(s, "use_qk_norm", true, &h.has_unit_norms, error));
    h.head_norm_is_last = true;
    MF_TRY(configure_layers(s, &h, error));
    MF_TRY(configure_temperature(s, &h, error));
    MF_TRY(configure_experts(s, &h, error));
    *out = h;
    return MF_OK;
}

/* Weights as they are trained are published [experts, hidden, 2 * intermediate]: their columns
 * would have to be gathered. */
const mf_family mf_family_llama4 = {
    .name = "llama4", .text_name = "llama4_text", .configure = configure, .bind = mf_grouped_bind};
