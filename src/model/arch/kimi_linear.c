/* SPDX-License-Identifier: MIT */
/*
 * Kimi-Linear-48B-A3B (arXiv 2510.26692): layers of Kimi Delta Attention, and of multi-head latent
 * attention without any rotation; experts as in DeepSeek-V3.
 */
#include "model/arch/common.h"
#include "model/arch/deepseek.h"

#include <math.h>
#include <string.h>

#define LINEAR "linear_attn_config."

/* Numbers from 1 on. */
static mf_status read_layers(const mf_source *s, const char *name, mf_layer_kind kind,
                             mf_hparams *h, mf_error *error)
{
    uint32_t n;
    MF_TRY(mf_hparam_list(s, name, &n, error));
    for (uint32_t i = 0; n != MF_HPARAM_WHOLE && i < n; i++) {
        mf_hparam_value v;
        s->ops->hparam(s, name, i, &v);
        if (v.kind != MF_HPARAM_NUMBER || !(v.number >= 1 && v.number <= h->n_layers) ||
            v.number != (uint32_t)v.number)
            return mf_fail(error, MF_ERR_FORMAT, "%s: field %s[%u] is no layer from 1 to %u",
                           s->hparam_path, name, i, h->n_layers);
        h->layer_kind[(uint32_t)v.number - 1] = (uint8_t)kind;
    }
    return MF_OK;
}

/* As transformers 5 writes it, which keeps the published lists beside it where it read them. */
static mf_status take_types(const mf_source *s, uint32_t n_types, mf_hparams *h, mf_error *error)
{
    for (uint32_t i = 0; i < h->n_layers; i++) {
        bool is_linear;
        MF_TRY(mf_layer_word(s, "layer_types", n_types, i, "linear_attention", "full_attention",
                             &is_linear, error));
        h->layer_kind[i] = is_linear ? MF_LAYER_KEYED : MF_LAYER_LATENT;
    }
    return MF_OK;
}

static mf_status configure_kinds(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t n_types;
    MF_TRY(mf_hparam_list(s, "layer_types", &n_types, error));
    if (n_types != MF_HPARAM_WHOLE)
        return take_types(s, n_types, h, error);
    memset(h->layer_kind, 0, sizeof h->layer_kind);
    MF_TRY(read_layers(s, LINEAR "kda_layers", MF_LAYER_KEYED, h, error));
    MF_TRY(read_layers(s, LINEAR "full_attn_layers", MF_LAYER_LATENT, h, error));
    for (uint32_t i = 0; i < h->n_layers; i++)
        if (h->layer_kind[i] == 0)
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: fields " LINEAR "kda_layers and full_attn_layers do not name "
                           "layer %u of %u",
                           s->hparam_path, i + 1, h->n_layers);
    return MF_OK;
}

static mf_status configure_linear(const mf_source *s, mf_hparams *h, mf_error *error)
{
    const char *n_heads = mf_hparam_either(s, LINEAR "num_heads", "linear_num_heads");
    const char *head_dim = mf_hparam_either(s, LINEAR "head_dim", "linear_head_dim");
    const char *width =
        mf_hparam_either(s, LINEAR "short_conv_kernel_size", "linear_conv_kernel_dim");
    MF_TRY(mf_hparam_u32(s, n_heads, (mf_range){1, 4096}, &h->n_v_heads, error));
    MF_TRY(mf_hparam_u32(s, head_dim, (mf_range){1, 1024}, &h->key_dim, error));
    MF_TRY(mf_hparam_u32_or(s, width, 4, (mf_range){2, 16}, &h->conv_width, error));
    h->n_k_heads = h->n_v_heads;
    h->value_dim = h->key_dim;
    return configure_kinds(s, h, error);
}

static mf_status configure_latent(const mf_source *s, mf_hparams *h, mf_error *error)
{
    bool is_unrotated;
    MF_TRY(mf_deepseek_attention(s, h, error));
    MF_TRY(mf_hparam_bool_or(s, "mla_use_nope", true, &is_unrotated, error));
    if (!is_unrotated)
        return mf_hparam_fail(s, "mla_use_nope", MF_ERR_UNSUPPORTED, error,
                              "is false; only true is supported");
    h->never_rotates = true;
    return MF_OK;
}

static mf_status configure_experts(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t n_shared;
    double scale;
    MF_TRY(mf_configure_experts(s, "num_experts", "num_experts_per_token", "moe_intermediate_size",
                                h, error));
    MF_TRY(mf_hparam_u32_or(s, "num_shared_experts", 1, (mf_range){0, 64}, &n_shared, error));
    MF_TRY(mf_require_string(s, "moe_router_activation_func", "sigmoid", error));
    MF_TRY(
        mf_hparam_double_or(s, "routed_scaling_factor", 2.446, (mf_range){0, 1e6}, &scale, error));
    mf_router *r = &h->router;
    *r = (mf_router){.is_sigmoid = true, .has_bias = true, .eps = 1e-20f, .scale = (float)scale};
    MF_TRY(mf_hparam_bool_or(s, "moe_renormalize", true, &r->normalise, error));
    MF_TRY(mf_configure_groups(s, "num_expert_group", 1, h, error));
    h->shared_hidden = n_shared * h->expert_hidden;
    return mf_deepseek_layers(s, 1, h, error);
}

static mf_status configure(const mf_source *s, mf_hparams *out, mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(mf_configure_common(s, &h, error));
    MF_TRY(mf_hparam_u32_or(s, "model_max_length", h.n_context, (mf_range){1, 1 << 28},
                            &h.n_context, error));
    MF_TRY(configure_latent(s, &h, error));
    MF_TRY(configure_linear(s, &h, error));
    MF_TRY(configure_experts(s, &h, error));
    *out = h;
    return MF_OK;
}

static mf_status bind_keyed(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_keyed_weights *w,
                            mf_error *error)
{
    const uint32_t n = h->hidden_size, low = h->key_dim, width = h->n_v_heads * h->key_dim;
    const struct {
        mf_role role;
        uint32_t n_rows, n_cols;
        mf_weight *out;
    } matrices[] = {
        {MF_ROLE_Q, width, n, &w->q},         {MF_ROLE_K, width, n, &w->k},
        {MF_ROLE_V, width, n, &w->v},         {MF_ROLE_LINEAR_B, h->n_v_heads, n, &w->b},
        {MF_ROLE_KEYED_F_A, low, n, &w->f_a}, {MF_ROLE_KEYED_F_B, width, low, &w->f_b},
        {MF_ROLE_KEYED_G_A, low, n, &w->g_a}, {MF_ROLE_KEYED_G_B, width, low, &w->g_b},
        {MF_ROLE_O, n, width, &w->out},
    };
    const uint64_t taps = (uint64_t)width * h->conv_width;
    const struct {
        mf_role role;
        uint64_t n;
        mf_span *out;
    } vectors[] = {
        {MF_ROLE_KEYED_Q_CONV, taps, &w->q_conv},
        {MF_ROLE_KEYED_K_CONV, taps, &w->k_conv},
        {MF_ROLE_KEYED_V_CONV, taps, &w->v_conv},
        {MF_ROLE_LINEAR_A_LOG, h->n_v_heads, &w->a_log},
        {MF_ROLE_LINEAR_DT_BIAS, width, &w->dt_bias},
        {MF_ROLE_LINEAR_NORM, h->value_dim, &w->norm},
    };
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(matrices[i].role, layer), matrices[i].n_rows,
                                    matrices[i].n_cols, matrices[i].out, error));
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        MF_TRY(mf_bind_vector(b, mf_tensor_of(vectors[i].role, layer), vectors[i].n, vectors[i].out,
                              error));
    return MF_OK;
}

static mf_status bind_attention(mf_binder *b, const mf_hparams *h, uint32_t layer,
                                mf_layer_weights *w, mf_error *error)
{
    if (h->layer_kind[layer] == MF_LAYER_LATENT)
        return mf_deepseek_bind_latent(b, h, layer, w, error);
    return bind_keyed(b, h, layer, &w->u.keyed, error);
}

static mf_status bind(mf_binder *b, const mf_hparams *h, mf_model_weights *out, mf_error *error)
{
    return mf_bind_all(b, h, bind_attention, out, error);
}

const mf_family mf_family_kimi_linear = {
    .name = "kimi_linear", .configure = configure, .bind = bind};
