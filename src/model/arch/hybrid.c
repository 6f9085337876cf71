/* SPDX-License-Identifier: MIT */
/*
 * Hyper-parameters and tensors that the Qwen3-Next and Qwen3.5 families share. Mathematics: the
 * model cards of Qwen3-Next-80B-A3B and Qwen3.5, and Gated Delta Networks, arXiv 2412.06464.
 */
#include "model/arch/hybrid.h"

#include "model/arch/common.h"

#include <math.h>
#include <string.h>

/* x * (1 + w): published without the one. */
#define NORM_CENTRE 1.0f

/* What a layer's attention is followed by. */
typedef mf_status (*mf_configure_mlp_fn)(const mf_source *s, mf_hparams *h, mf_error *error);

static mf_status configure_attention(const mf_source *s, mf_hparams *h, mf_error *error)
{
    MF_TRY(mf_hparam_u32(s, "num_attention_heads", (mf_range){1, 4096}, &h->n_heads, error));
    MF_TRY(mf_hparam_u32_or(s, "num_key_value_heads", h->n_heads, (mf_range){1, 4096},
                            &h->n_kv_heads, error));
    MF_TRY(mf_hparam_u32_or(s, "head_dim", h->hidden_size / h->n_heads, (mf_range){2, 1024},
                            &h->head_dim, error));
    MF_TRY(mf_require_false(s, "attention_bias", error));
    if (h->n_heads % h->n_kv_heads != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: field num_key_value_heads %u does not divide num_attention_heads %u",
                       s->hparam_path, h->n_kv_heads, h->n_heads);
    return MF_OK;
}

/* A part of each head is rotated. */
static mf_status configure_rope(const mf_source *s, mf_hparams *h, mf_error *error)
{
    static const char field[] = "rope.partial_rotary_factor";
    double partial;
    MF_TRY(mf_hparam_double_or(s, field, 0.25, (mf_range){0, 1}, &partial, error));
    h->attention_scale = 1.0f / sqrtf((float)h->head_dim);
    h->n_rot = (uint32_t)(h->head_dim * partial);
    if (h->n_rot % 2 != 0)
        return mf_hparam_fail(s, field, MF_ERR_FORMAT, error,
                              "%g rotates %u of %u dims; an even number is needed", partial,
                              h->n_rot, h->head_dim);
    return mf_configure_rope(s, 1e7, h, error);
}

static mf_status configure_linear(const mf_source *s, mf_hparams *h, mf_error *error)
{
    MF_TRY(mf_hparam_u32(s, "linear_num_key_heads", (mf_range){1, 4096}, &h->n_k_heads, error));
    MF_TRY(mf_hparam_u32(s, "linear_num_value_heads", (mf_range){1, 4096}, &h->n_v_heads, error));
    MF_TRY(mf_hparam_u32(s, "linear_key_head_dim", (mf_range){1, 1024}, &h->key_dim, error));
    MF_TRY(mf_hparam_u32(s, "linear_value_head_dim", (mf_range){1, 1024}, &h->value_dim, error));
    MF_TRY(
        mf_hparam_u32_or(s, "linear_conv_kernel_dim", 4, (mf_range){2, 16}, &h->conv_width, error));
    MF_TRY(mf_hparam_bool_or(s, "linear_value_heads_tiled", false, &h->v_heads_are_tiled, error));
    if (h->n_v_heads % h->n_k_heads != 0)
        return mf_fail(
            error, MF_ERR_FORMAT,
            "%s: field linear_num_key_heads %u does not divide linear_num_value_heads %u",
            s->hparam_path, h->n_k_heads, h->n_v_heads);
    return MF_OK;
}

static mf_status configure_experts(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t step, n_dense;
    MF_TRY(mf_configure_experts(s, "num_experts", "num_experts_per_tok", "moe_intermediate_size", h,
                                error));
    MF_TRY(mf_hparam_u32(s, "shared_expert_intermediate_size", (mf_range){1, MF_MAX_DIM},
                         &h->shared_hidden, error));
    h->shared_is_gated = true;
    h->router = (mf_router){.n_groups = 1, .k_groups = 1, .scale = 1.0f};
    MF_TRY(mf_hparam_bool_or(s, "norm_topk_prob", true, &h->router.normalise, error));
    MF_TRY(mf_hparam_u32_or(s, "decoder_sparse_step", 1, (mf_range){0, MF_MAX_DIM}, &step, error));
    MF_TRY(mf_hparam_list(s, "mlp_only_layers", &n_dense, error));
    if (step != 1 || (n_dense != 0 && n_dense != MF_HPARAM_WHOLE))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: fields decoder_sparse_step and mlp_only_layers: layers without experts "
                       "are not supported",
                       s->hparam_path);
    return MF_OK;
}

/* No layer has experts. */
static mf_status configure_dense(const mf_source *s, mf_hparams *h, mf_error *error)
{
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->is_dense[i] = true;
    h->router = (mf_router){.n_groups = 1, .k_groups = 1, .scale = 1.0f};
    return mf_hparam_u32(s, "intermediate_size", (mf_range){1, MF_MAX_DIM}, &h->dense_hidden,
                         error);
}

static mf_status configure_layer_kinds(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t interval, n_types;
    MF_TRY(mf_hparam_u32_or(s, "full_attention_interval", 4, (mf_range){1, MF_MAX_LAYERS},
                            &interval, error));
    MF_TRY(mf_layer_list(s, "layer_types", h, &n_types, error));
    for (uint32_t i = 0; i < h->n_layers; i++) {
        bool is_linear = (i + 1) % interval != 0;
        if (n_types != MF_HPARAM_WHOLE)
            MF_TRY(mf_layer_word(s, "layer_types", n_types, i, "linear_attention", "full_attention",
                                 &is_linear, error));
        h->layer_kind[i] = is_linear ? MF_LAYER_LINEAR : MF_LAYER_FULL;
    }
    return MF_OK;
}

static mf_status configure(const mf_source *s, mf_configure_mlp_fn configure_mlp, mf_hparams *out,
                           mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(mf_configure_common(s, &h, error));
    MF_TRY(configure_attention(s, &h, error));
    MF_TRY(configure_rope(s, &h, error));
    MF_TRY(configure_linear(s, &h, error));
    MF_TRY(configure_mlp(s, &h, error));
    MF_TRY(configure_layer_kinds(s, &h, error));
    mf_number_moe_layers(&h);
    *out = h;
    return MF_OK;
}

mf_status mf_hybrid_configure(const mf_source *s, mf_hparams *out, mf_error *error)
{
    return configure(s, configure_experts, out, error);
}

mf_status mf_hybrid_configure_dense(const mf_source *s, mf_hparams *out, mf_error *error)
{
    return configure(s, configure_dense, out, error);
}

/* The query's matrix holds, head by head, head_dim rows of the query and head_dim rows of the
 * output gate. */
static mf_status bind_full(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_full_weights *w,
                           mf_error *error)
{
    uint32_t width = mf_query_width(h), n = h->hidden_size;
    const mf_tensor_id q = mf_tensor_of(MF_ROLE_Q, layer);
    const mf_matrix_shape both = {0, 2 * width, n};
    const mf_rows query = {h->n_heads, h->head_dim, 2 * h->head_dim, 0};
    const mf_rows gate = {h->n_heads, h->head_dim, 2 * h->head_dim, h->head_dim};
    MF_TRY(mf_bind_matrix_rows(b, q, both, &(mf_row_list){&query, 1}, &w->q, error));
    MF_TRY(mf_bind_matrix_rows(b, q, both, &(mf_row_list){&gate, 1}, &w->gate, error));
    MF_TRY(
        mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_K, layer), mf_kv_width(h), n, &w->k, error));
    MF_TRY(
        mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_V, layer), mf_kv_width(h), n, &w->v, error));
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_O, layer), n, width, &w->o, error));
    MF_TRY(mf_bind_norm(b, mf_tensor_of(MF_ROLE_Q_NORM, layer), h->head_dim, NORM_CENTRE,
                        &w->q_norm, error));
    return mf_bind_norm(b, mf_tensor_of(MF_ROLE_K_NORM, layer), h->head_dim, NORM_CENTRE,
                        &w->k_norm, error);
}

static mf_status bind_linear(mf_binder *b, const mf_hparams *h, uint32_t layer,
                             mf_bind_in_proj_fn bind_in_proj, mf_linear_weights *w, mf_error *error)
{
    const struct {
        mf_role role;
        uint64_t n;
        mf_span *out;
    } vectors[] = {
        {MF_ROLE_LINEAR_CONV, (uint64_t)mf_conv_channels(h) * h->conv_width, &w->conv},
        {MF_ROLE_LINEAR_A_LOG, h->n_v_heads, &w->a_log},
        {MF_ROLE_LINEAR_DT_BIAS, h->n_v_heads, &w->dt_bias},
        {MF_ROLE_LINEAR_NORM, h->value_dim, &w->norm},
    };
    MF_TRY(bind_in_proj(b, h, layer, w, error));
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        MF_TRY(mf_bind_vector(b, mf_tensor_of(vectors[i].role, layer), vectors[i].n, vectors[i].out,
                              error));
    return mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_LINEAR_OUT, layer), h->hidden_size,
                                mf_value_width(h), &w->out, error);
}

mf_status mf_hybrid_bind_qkv_z(mf_binder *b, const mf_hparams *h, uint32_t layer,
                               mf_linear_weights *w, mf_error *error)
{
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_LINEAR_QKV, layer), mf_conv_channels(h),
                                h->hidden_size, &w->qkv, error));
    return mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_LINEAR_Z, layer), mf_value_width(h),
                                h->hidden_size, &w->z, error);
}

mf_status mf_hybrid_bind_b_a(mf_binder *b, const mf_hparams *h, uint32_t layer,
                             mf_linear_weights *w, mf_error *error)
{
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_LINEAR_B, layer), h->n_v_heads,
                                h->hidden_size, &w->b, error));
    return mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_LINEAR_A, layer), h->n_v_heads,
                                h->hidden_size, &w->a, error);
}

mf_status mf_hybrid_bind_in_proj(mf_binder *b, const mf_hparams *h, uint32_t layer,
                                 mf_linear_weights *w, mf_error *error)
{
    MF_TRY(mf_hybrid_bind_qkv_z(b, h, layer, w, error));
    return mf_hybrid_bind_b_a(b, h, layer, w, error);
}

static mf_status bind_layer(mf_binder *b, const mf_hparams *h, uint32_t layer,
                            mf_bind_in_proj_fn bind_in_proj, mf_layer_weights *w, mf_error *error)
{
    MF_TRY(mf_bind_norm(b, mf_tensor_of(MF_ROLE_INPUT_NORM, layer), h->hidden_size, NORM_CENTRE,
                        &w->input_norm, error));
    MF_TRY(mf_bind_norm(b, mf_tensor_of(MF_ROLE_POST_NORM, layer), h->hidden_size, NORM_CENTRE,
                        &w->post_norm, error));
    if (h->layer_kind[layer] == MF_LAYER_FULL)
        MF_TRY(bind_full(b, h, layer, &w->u.full, error));
    else
        MF_TRY(bind_linear(b, h, layer, bind_in_proj, &w->u.linear, error));
    if (h->is_dense[layer])
        return mf_bind_mlp(b, h, mf_tensor_of(MF_ROLE_GATE, layer), h->dense_hidden, &w->mlp,
                           error);
    return mf_bind_moe(b, h, layer, w, error);
}

mf_status mf_hybrid_bind(mf_binder *b, const mf_hparams *h, mf_bind_in_proj_fn bind_in_proj,
                         mf_model_weights *out, mf_error *error)
{
    MF_TRY(mf_bind_ends(b, h, NORM_CENTRE, out, error));
    MF_TRY(mf_bind_draft(b, h, NORM_CENTRE, &out->draft, error));
    for (uint32_t i = 0; i < mf_all_layers(h); i++)
        MF_TRY(bind_layer(b, h, i, bind_in_proj, &out->layers[i], error));
    return MF_OK;
}
