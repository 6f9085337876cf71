/* SPDX-License-Identifier: MIT */
/*
 * Hyper-parameters and tensors that the Qwen3-Next and Qwen3.5-MoE families share. Mathematics: the
 * model cards of Qwen3-Next-80B-A3B and Qwen3.5, and Gated Delta Networks, arXiv 2412.06464.
 */
#include "model/arch/hybrid.h"

#include "model/arch/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 512

static mf_status configure_attention(const mf_config *c, mf_hparams *h, mf_error *error)
{
    bool bias;
    MF_TRY(mf_config_u32(c, "num_attention_heads", 1, 4096, &h->n_heads, error));
    MF_TRY(mf_config_u32_or(c, "num_key_value_heads", h->n_heads, 1, 4096, &h->n_kv_heads, error));
    MF_TRY(
        mf_config_u32_or(c, "head_dim", h->hidden_size / h->n_heads, 2, 1024, &h->head_dim, error));
    MF_TRY(mf_config_bool_or(c, "attention_bias", false, &bias, error));
    if (bias)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: field attention_bias is true; only false is supported", c->json.path);
    if (h->n_heads % h->n_kv_heads != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: field num_key_value_heads %u does not divide num_attention_heads %u",
                       c->json.path, h->n_kv_heads, h->n_heads);
    return MF_OK;
}

/* rope_theta and partial_rotary_factor stand at the top of the text config, or inside
 * rope_parameters. */
static mf_status configure_rope(const mf_config *c, mf_hparams *h, mf_error *error)
{
    double partial;
    mf_config nested = *c;
    yyjson_val *rope = mf_config_find(c, "rope_parameters");
    if (rope == NULL)
        rope = mf_config_find(c, "rope_scaling");
    if (yyjson_is_obj(rope)) {
        nested.top = c->text;
        nested.text = rope;
        MF_TRY(mf_require_string(&nested, "rope_type", "default", error));
        MF_TRY(mf_require_string(&nested, "type", "default", error));
    }
    MF_TRY(mf_config_double_or(&nested, "rope_theta", 1e7, 1.0, 1e12, &h->rope.theta, error));
    MF_TRY(mf_config_double_or(&nested, "partial_rotary_factor", 0.25, 0.0, 1.0, &partial, error));
    h->rope.attention_factor = 1.0;
    h->attention_scale = 1.0f / sqrtf((float)h->head_dim);
    h->n_rot = (uint32_t)(h->head_dim * partial);
    if (h->n_rot % 2 != 0)
        return mf_fail(
            error, MF_ERR_FORMAT,
            "%s: field partial_rotary_factor %g rotates %u of %u dims; an even number is needed",
            c->json.path, partial, h->n_rot, h->head_dim);
    return MF_OK;
}

static mf_status configure_linear(const mf_config *c, mf_hparams *h, mf_error *error)
{
    MF_TRY(mf_config_u32(c, "linear_num_key_heads", 1, 4096, &h->n_k_heads, error));
    MF_TRY(mf_config_u32(c, "linear_num_value_heads", 1, 4096, &h->n_v_heads, error));
    MF_TRY(mf_config_u32(c, "linear_key_head_dim", 1, 1024, &h->key_dim, error));
    MF_TRY(mf_config_u32(c, "linear_value_head_dim", 1, 1024, &h->value_dim, error));
    MF_TRY(mf_config_u32_or(c, "linear_conv_kernel_dim", 4, 2, 16, &h->conv_width, error));
    if (h->n_v_heads % h->n_k_heads != 0)
        return mf_fail(
            error, MF_ERR_FORMAT,
            "%s: field linear_num_key_heads %u does not divide linear_num_value_heads %u",
            c->json.path, h->n_k_heads, h->n_v_heads);
    return MF_OK;
}

static mf_status configure_experts(const mf_config *c, mf_hparams *h, mf_error *error)
{
    uint32_t step;
    MF_TRY(mf_config_u32(c, "num_experts", 1, 65535, &h->n_experts, error));
    MF_TRY(
        mf_config_u32(c, "num_experts_per_tok", 1, h->n_experts, &h->n_experts_per_token, error));
    MF_TRY(mf_config_u32(c, "moe_intermediate_size", 1, MF_MAX_DIM, &h->expert_hidden, error));
    MF_TRY(mf_config_u32(c, "shared_expert_intermediate_size", 1, MF_MAX_DIM, &h->shared_hidden,
                         error));
    h->shared_is_gated = true;
    h->router = (mf_router){.n_groups = 1, .k_groups = 1, .scale = 1.0f};
    MF_TRY(mf_config_bool_or(c, "norm_topk_prob", true, &h->router.normalise, error));
    MF_TRY(mf_config_u32_or(c, "decoder_sparse_step", 1, 0, MF_MAX_DIM, &step, error));
    yyjson_val *dense = mf_config_find(c, "mlp_only_layers");
    if (step != 1 || yyjson_arr_size(dense) != 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: fields decoder_sparse_step and mlp_only_layers: layers without experts "
                       "are not supported",
                       c->json.path);
    return MF_OK;
}

static mf_status configure_layer_kinds(const mf_config *c, mf_hparams *h, mf_error *error)
{
    yyjson_val *types = mf_config_find(c, "layer_types");
    uint32_t interval;
    MF_TRY(mf_config_u32_or(c, "full_attention_interval", 4, 1, MF_MAX_LAYERS, &interval, error));
    if (types != NULL && (!yyjson_is_arr(types) || yyjson_arr_size(types) != h->n_layers))
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: field layer_types is not an array of num_hidden_layers = %u entries",
                       c->json.path, h->n_layers);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        h->layer_kind[i] = (i + 1) % interval == 0 ? MF_LAYER_FULL : MF_LAYER_LINEAR;
        if (types == NULL)
            continue;
        const char *type = yyjson_get_str(yyjson_arr_get(types, i));
        if (type != NULL && strcmp(type, "full_attention") == 0)
            h->layer_kind[i] = MF_LAYER_FULL;
        else if (type != NULL && strcmp(type, "linear_attention") == 0)
            h->layer_kind[i] = MF_LAYER_LINEAR;
        else
            return mf_fail(error, MF_ERR_UNSUPPORTED,
                           "%s: field layer_types[%u] is %s; supported are full_attention and "
                           "linear_attention",
                           c->json.path, i, type == NULL ? "not a string" : type);
    }
    return MF_OK;
}

mf_status mf_hybrid_configure(const mf_config *c, mf_hparams *out, mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(mf_configure_common(c, &h, error));
    MF_TRY(configure_attention(c, &h, error));
    MF_TRY(configure_rope(c, &h, error));
    MF_TRY(configure_linear(c, &h, error));
    MF_TRY(configure_experts(c, &h, error));
    MF_TRY(configure_layer_kinds(c, &h, error));
    mf_number_moe_layers(&h);
    *out = h;
    return MF_OK;
}

/* q_proj holds, head by head, head_dim rows of the query and head_dim rows of the output gate. */
static mf_status bind_full(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_full_weights *w,
                           mf_error *error)
{
    char name[NAME_BYTES];
    uint32_t width = mf_query_width(h);
    const mf_rows query = {width, h->head_dim, 2 * h->head_dim, 0};
    const mf_rows gate = {width, h->head_dim, 2 * h->head_dim, h->head_dim};
    mf_layer_name(b, layer, "self_attn.q_proj", name, sizeof name);
    MF_TRY(mf_bind_matrix_rows(b, name, 2 * width, h->hidden_size, &query, 1, &w->q, error));
    MF_TRY(mf_bind_matrix_rows(b, name, 2 * width, h->hidden_size, &gate, 1, &w->gate, error));
    MF_TRY(mf_bind_layer_matrix(b, layer, "self_attn.k_proj", mf_kv_width(h), h->hidden_size, &w->k,
                                error));
    MF_TRY(mf_bind_layer_matrix(b, layer, "self_attn.v_proj", mf_kv_width(h), h->hidden_size, &w->v,
                                error));
    MF_TRY(mf_bind_layer_matrix(b, layer, "self_attn.o_proj", h->hidden_size, width, &w->o, error));
    MF_TRY(mf_bind_layer_vector(b, layer, "self_attn.q_norm.weight", h->head_dim, b->norm_add,
                                &w->q_norm, error));
    return mf_bind_layer_vector(b, layer, "self_attn.k_norm.weight", h->head_dim, b->norm_add,
                                &w->k_norm, error);
}

static mf_status bind_linear(mf_binder *b, const mf_hparams *h, uint32_t layer,
                             mf_bind_in_proj_fn bind_in_proj, mf_linear_weights *w, mf_error *error)
{
    uint64_t conv = (uint64_t)mf_conv_channels(h) * h->conv_width;
    MF_TRY(bind_in_proj(b, h, layer, w, error));
    MF_TRY(
        mf_bind_layer_vector(b, layer, "linear_attn.conv1d.weight", conv, 0.0f, &w->conv, error));
    MF_TRY(
        mf_bind_layer_vector(b, layer, "linear_attn.A_log", h->n_v_heads, 0.0f, &w->a_log, error));
    MF_TRY(mf_bind_layer_vector(b, layer, "linear_attn.dt_bias", h->n_v_heads, 0.0f, &w->dt_bias,
                                error));
    MF_TRY(mf_bind_layer_vector(b, layer, "linear_attn.norm.weight", h->value_dim, 0.0f, &w->norm,
                                error));
    return mf_bind_layer_matrix(b, layer, "linear_attn.out_proj", h->hidden_size, mf_value_width(h),
                                &w->out, error);
}

static mf_status bind_moe(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_layer_weights *w,
                          mf_error *error)
{
    uint32_t n = h->hidden_size, shared = h->shared_hidden;
    MF_TRY(mf_bind_layer_matrix(b, layer, "mlp.gate", h->n_experts, n, &w->router, error));
    MF_TRY(
        mf_bind_layer_matrix(b, layer, "mlp.shared_expert_gate", 1, n, &w->shared_router, error));
    MF_TRY(mf_bind_layer_matrix(b, layer, "mlp.shared_expert.gate_proj", shared, n, &w->mlp.gate,
                                error));
    MF_TRY(
        mf_bind_layer_matrix(b, layer, "mlp.shared_expert.up_proj", shared, n, &w->mlp.up, error));
    MF_TRY(mf_bind_layer_matrix(b, layer, "mlp.shared_expert.down_proj", n, shared, &w->mlp.down,
                                error));
    return mf_bind_experts(b, h, layer, &w->experts, error);
}

static mf_status bind_layer(mf_binder *b, const mf_hparams *h, uint32_t layer,
                            mf_bind_in_proj_fn bind_in_proj, mf_layer_weights *w, mf_error *error)
{
    MF_TRY(mf_bind_layer_vector(b, layer, "input_layernorm.weight", h->hidden_size, b->norm_add,
                                &w->input_norm, error));
    MF_TRY(mf_bind_layer_vector(b, layer, "post_attention_layernorm.weight", h->hidden_size,
                                b->norm_add, &w->post_norm, error));
    if (h->layer_kind[layer] == MF_LAYER_FULL)
        MF_TRY(bind_full(b, h, layer, &w->u.full, error));
    else
        MF_TRY(bind_linear(b, h, layer, bind_in_proj, &w->u.linear, error));
    return bind_moe(b, h, layer, w, error);
}

mf_status mf_hybrid_bind(mf_binder *b, const mf_hparams *h, mf_bind_in_proj_fn bind_in_proj,
                         mf_model_weights *out, mf_error *error)
{
    MF_TRY(mf_bind_ends(b, h, b->norm_add, out, error));
    for (uint32_t i = 0; i < h->n_layers; i++)
        MF_TRY(bind_layer(b, h, i, bind_in_proj, &out->layers[i], error));
    return MF_OK;
}
