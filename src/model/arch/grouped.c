/* SPDX-License-Identifier: MIT */
/* Families of grouped-query softmax attention: what their configs share, and their binding. */
#include "model/arch/grouped.h"

#include "model/arch/common.h"

#include <math.h>
#include <string.h>

#define MAX_HEADS 4096u
#define MAX_HEAD_DIM 1024u

mf_status mf_grouped_heads(const mf_source *s, mf_hparams *h, mf_error *error)
{
    MF_TRY(mf_hparam_u32(s, "num_attention_heads", (mf_range){1, MAX_HEADS}, &h->n_heads, error));
    MF_TRY(mf_hparam_u32_or(s, "num_key_value_heads", h->n_heads, (mf_range){1, MAX_HEADS},
                            &h->n_kv_heads, error));
    const uint32_t each = h->hidden_size / h->n_heads;
    MF_TRY(mf_hparam_u32_or(s, "head_dim", each, (mf_range){2, MAX_HEAD_DIM}, &h->head_dim, error));
    if (h->n_heads % h->n_kv_heads != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: field num_key_value_heads %u does not divide num_attention_heads %u",
                       s->hparam_path, h->n_kv_heads, h->n_heads);
    if (h->head_dim < 2 || h->head_dim > MAX_HEAD_DIM) /* of the fallback */
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: %u heads of hidden_size %u have %u dims; expected 2 to %u, or the "
                       "field head_dim",
                       s->hparam_path, h->n_heads, h->hidden_size, each, MAX_HEAD_DIM);
    h->attention_scale = 1.0f / sqrtf((float)h->head_dim);
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->layer_kind[i] = MF_LAYER_FULL;
    return MF_OK;
}

mf_status mf_grouped_rope(const mf_source *s, double theta, double part, mf_hparams *h,
                          mf_error *error)
{
    static const char field[] = "rope.partial_rotary_factor";
    MF_TRY(mf_hparam_double_or(s, field, part, (mf_range){0, 1}, &part, error));
    h->n_rot = (uint32_t)(h->head_dim * part);
    if (h->n_rot % 2 != 0)
        return mf_hparam_fail(s, field, MF_ERR_FORMAT, error,
                              "%g rotates %u of %u dims; an even number is needed", part, h->n_rot,
                              h->head_dim);
    MF_TRY(mf_hparam_bool_or(s, "rope_interleave", false, &h->rope.interleaved, error));
    return mf_configure_rope(s, theta, h, error);
}

/* Once is_dense is known. */
static mf_status number_layers(const mf_source *s, mf_hparams *h, mf_error *error)
{
    mf_number_moe_layers(h);
    if (h->n_moe_layers < h->n_layers)
        return mf_hparam_u32(s, "intermediate_size", (mf_range){1, MF_MAX_DIM}, &h->dense_hidden,
                             error);
    return MF_OK;
}

mf_status mf_grouped_dense(const mf_source *s, mf_hparams *h, mf_error *error)
{
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->is_dense[i] = true;
    h->router = (mf_router){.n_groups = 1, .k_groups = 1, .scale = 1.0f};
    return number_layers(s, h, error);
}

static mf_status require_experts(const mf_source *s, const mf_hparams *h, const char *field,
                                 mf_error *error)
{
    if (h->n_moe_layers != 0)
        return MF_OK;
    return mf_hparam_fail(s, field, MF_ERR_UNSUPPORTED, error, "leaves no layer of %u its experts",
                          h->n_layers);
}

mf_status mf_grouped_number_layers(const mf_source *s, mf_hparams *h, const char *field,
                                   mf_error *error)
{
    MF_TRY(number_layers(s, h, error));
    return require_experts(s, h, field, error);
}

/* A whole number of the list mlp_only_layers. */
static mf_status take_dense_layer(const mf_source *s, uint32_t index, mf_hparams *h,
                                  mf_error *error)
{
    mf_hparam_value v;
    s->ops->hparam(s, "mlp_only_layers", index, &v);
    if (v.kind != MF_HPARAM_NUMBER || !(v.number >= 0 && v.number < h->n_layers) ||
        v.number != floor(v.number))
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: field mlp_only_layers[%u] is no layer of num_hidden_layers = %u",
                       s->hparam_path, index, h->n_layers);
    h->is_dense[(uint32_t)v.number] = true;
    return MF_OK;
}

mf_status mf_grouped_sparse_steps(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t step, n_dense;
    MF_TRY(mf_hparam_u32_or(s, "decoder_sparse_step", 1, (mf_range){1, MF_MAX_DIM}, &step, error));
    MF_TRY(mf_hparam_list(s, "mlp_only_layers", &n_dense, error));
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->is_dense[i] = (i + 1) % step != 0;
    for (uint32_t i = 0; n_dense != MF_HPARAM_WHOLE && i < n_dense; i++)
        MF_TRY(take_dense_layer(s, i, h, error));
    return mf_grouped_number_layers(s, h, "mlp_only_layers", error);
}

mf_status mf_grouped_first_dense(const mf_source *s, mf_hparams *h, mf_error *error)
{
    static const char field[] = "first_k_dense_replace";
    uint32_t n_dense;
    MF_TRY(mf_hparam_u32_or(s, field, 0, (mf_range){0, MF_MAX_LAYERS}, &n_dense, error));
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->is_dense[i] = i < n_dense;
    return mf_grouped_number_layers(s, h, field, error);
}

mf_status mf_grouped_experts(const mf_source *s, const mf_grouped_names *names, mf_hparams *h,
                             mf_error *error)
{
    const char *per_token = names->n_per_token != NULL ? names->n_per_token : "num_experts_per_tok";
    MF_TRY(mf_configure_experts(s, names->n_experts, per_token, names->expert_hidden, h, error));
    h->router = (mf_router){.n_groups = 1, .k_groups = 1, .scale = 1.0f};
    return MF_OK;
}

/* null is no window; a field that is left out has a meaning of each family's own. */
static mf_status read_window(const mf_source *s, uint32_t fallback, uint32_t *out, mf_error *error)
{
    static const char field[] = "sliding_window";
    mf_hparam_value v;
    s->ops->hparam(s, field, MF_HPARAM_WHOLE, &v);
    return mf_hparam_u32_or(s, field, v.is_null ? 0 : fallback, (mf_range){1, 1u << 28}, out,
                            error);
}

mf_status mf_grouped_windows(const mf_source *s, uint32_t fallback, mf_is_windowed_fn is_windowed,
                             uint32_t parameter, mf_hparams *h, mf_error *error)
{
    uint32_t window, n_types;
    MF_TRY(read_window(s, fallback, &window, error));
    MF_TRY(mf_layer_list(s, "layer_types", h, &n_types, error));
    for (uint32_t i = 0; i < h->n_layers; i++) {
        bool has_window = is_windowed != NULL && is_windowed(i, parameter);
        if (n_types != MF_HPARAM_WHOLE)
            MF_TRY(mf_layer_word(s, "layer_types", n_types, i, "sliding_attention",
                                 "full_attention", &has_window, error));
        if (has_window && window == 0 && n_types != MF_HPARAM_WHOLE)
            return mf_hparam_fail(s, "sliding_window", MF_ERR_FORMAT, error,
                                  "is missing; layer_types has sliding_attention");
        h->window[i] = has_window ? window : 0;
    }
    return MF_OK;
}

/* -------------------------------------------------------------------------------- binding -- */

static mf_status bind_attention(mf_binder *b, const mf_hparams *h, uint32_t layer,
                                mf_layer_weights *of, mf_error *error)
{
    mf_full_weights *w = &of->u.full;
    const uint32_t q = mf_query_width(h), kv = mf_kv_width(h), n = h->hidden_size;
    const struct {
        mf_role role;
        uint32_t n_rows, n_cols;
        mf_weight *out;
    } matrices[] = {{MF_ROLE_Q, q, n, &w->q},
                    {MF_ROLE_K, kv, n, &w->k},
                    {MF_ROLE_V, kv, n, &w->v},
                    {MF_ROLE_O, n, q, &w->o}};
    const bool is_whole = h->head_norm_is_whole;
    const struct {
        bool is_there;
        mf_role role;
        uint32_t n;
        mf_span *out;
    } vectors[] = {{h->has_qkv_bias, MF_ROLE_Q_BIAS, q, &w->q_bias},
                   {h->has_qkv_bias, MF_ROLE_K_BIAS, kv, &w->k_bias},
                   {h->has_qkv_bias, MF_ROLE_V_BIAS, kv, &w->v_bias},
                   {h->has_o_bias, MF_ROLE_O_BIAS, n, &w->o_bias},
                   {h->has_sinks, MF_ROLE_SINKS, h->n_heads, &w->sinks},
                   {h->has_head_norms, MF_ROLE_Q_NORM, is_whole ? q : h->head_dim, &w->q_norm},
                   {h->has_head_norms, MF_ROLE_K_NORM, is_whole ? kv : h->head_dim, &w->k_norm}};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(matrices[i].role, layer), matrices[i].n_rows,
                                    matrices[i].n_cols, matrices[i].out, error));
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        if (vectors[i].is_there)
            MF_TRY(mf_bind_vector(b, mf_tensor_of(vectors[i].role, layer), vectors[i].n,
                                  vectors[i].out, error));
    return MF_OK;
}

mf_status mf_grouped_bind(mf_binder *b, const mf_hparams *h, mf_model_weights *out, mf_error *error)
{
    return mf_bind_all(b, h, bind_attention, out, error);
}
