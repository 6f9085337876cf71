/* SPDX-License-Identifier: MIT */
/* DeepSeek-V3 (R1, V3.1, Cogito-V2-671B), Kimi-K2 (the same with other sizes) and DeepSeek-V2 (V2,
 * V2-Lite, Coder-V2): which tensor is which weight. */
#include "model/arch/deepseek.h"

#include "model/arch/common.h"

#include <stdio.h>

#define NAME_BYTES 512

static bool has_tensor(const mf_binder *b, uint32_t layer, const char *suffix)
{
    char name[NAME_BYTES];
    mf_layer_name(b, layer, suffix, name, sizeof name);
    return mf_tensor_find(&b->checkpoint->table, name) != NULL;
}

/* The up-projections of keys and values: one matrix, head by head nope_dim rows of keys and
 * value_head_dim of values, or, as MLX converts it, the key half transposed and the halves apart.
 */
static mf_status bind_up(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_latent_weights *w,
                         mf_error *error)
{
    char name[NAME_BYTES];
    uint32_t rows = h->nope_dim + h->value_head_dim;
    if (has_tensor(b, layer, "self_attn.embed_q.weight")) {
        mf_layer_name(b, layer, "self_attn.embed_q", name, sizeof name);
        w->key = (mf_head_weight){.head_rows = h->kv_rank, .n_rows = h->kv_rank};
        MF_TRY(mf_bind_heads(b, name, h->n_heads, h->kv_rank, h->nope_dim, &w->key.weight, error));
        mf_layer_name(b, layer, "self_attn.unembed_out", name, sizeof name);
        w->value = (mf_head_weight){.head_rows = h->value_head_dim, .n_rows = h->value_head_dim};
        return mf_bind_heads(b, name, h->n_heads, h->value_head_dim, h->kv_rank, &w->value.weight,
                             error);
    }
    mf_weight both;
    MF_TRY(mf_bind_layer_matrix(b, layer, "self_attn.kv_b_proj", h->n_heads * rows, h->kv_rank,
                                &both, error));
    w->key = (mf_head_weight){
        .weight = both, .head_rows = rows, .n_rows = h->nope_dim, .transposed = true};
    w->value = (mf_head_weight){
        .weight = both, .head_rows = rows, .first_row = h->nope_dim, .n_rows = h->value_head_dim};
    return MF_OK;
}

static mf_status bind_latent(mf_binder *b, const mf_hparams *h, uint32_t layer,
                             mf_latent_weights *w, mf_error *error)
{
    uint32_t width = mf_query_width(h), n = h->hidden_size;
    if (h->q_rank == 0) {
        MF_TRY(mf_bind_layer_matrix(b, layer, "self_attn.q_proj", width, n, &w->q_b, error));
    } else {
        MF_TRY(mf_bind_layer_matrix(b, layer, "self_attn.q_a_proj", h->q_rank, n, &w->q_a, error));
        MF_TRY(mf_bind_layer_vector(b, layer, "self_attn.q_a_layernorm.weight", h->q_rank, 0.0f,
                                    &w->q_norm, error));
        MF_TRY(
            mf_bind_layer_matrix(b, layer, "self_attn.q_b_proj", width, h->q_rank, &w->q_b, error));
    }
    MF_TRY(mf_bind_layer_matrix(b, layer, "self_attn.kv_a_proj_with_mqa", mf_latent_width(h), n,
                                &w->kv_a, error));
    MF_TRY(mf_bind_layer_vector(b, layer, "self_attn.kv_a_layernorm.weight", h->kv_rank, 0.0f,
                                &w->kv_norm, error));
    MF_TRY(bind_up(b, h, layer, w, error));
    return mf_bind_layer_matrix(b, layer, "self_attn.o_proj", n, h->n_heads * h->value_head_dim,
                                &w->o, error);
}

static mf_status bind_mlp(mf_binder *b, const mf_hparams *h, uint32_t layer, const char *module,
                          uint32_t hidden, mf_mlp_weights *w, mf_error *error)
{
    const struct {
        const char *name;
        uint32_t n_rows, n_cols;
        mf_weight *out;
    } matrices[] = {{"gate_proj", hidden, h->hidden_size, &w->gate},
                    {"up_proj", hidden, h->hidden_size, &w->up},
                    {"down_proj", h->hidden_size, hidden, &w->down}};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        char suffix[64];
        snprintf(suffix, sizeof suffix, "%s.%s", module, matrices[i].name);
        MF_TRY(mf_bind_layer_matrix(b, layer, suffix, matrices[i].n_rows, matrices[i].n_cols,
                                    matrices[i].out, error));
    }
    return MF_OK;
}

static mf_status bind_moe(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_layer_weights *w,
                          mf_error *error)
{
    MF_TRY(mf_bind_layer_matrix(b, layer, "mlp.gate", h->n_experts, h->hidden_size, &w->router,
                                error));
    if (h->router.has_bias)
        MF_TRY(mf_bind_layer_vector(b, layer, "mlp.gate.e_score_correction_bias", h->n_experts,
                                    0.0f, &w->router_bias, error));
    if (h->shared_hidden != 0)
        MF_TRY(bind_mlp(b, h, layer, "mlp.shared_experts", h->shared_hidden, &w->mlp, error));
    return mf_bind_experts(b, h, layer, &w->experts, error);
}

static mf_status bind_layer(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_layer_weights *w,
                            mf_error *error)
{
    MF_TRY(mf_bind_layer_vector(b, layer, "input_layernorm.weight", h->hidden_size, 0.0f,
                                &w->input_norm, error));
    MF_TRY(mf_bind_layer_vector(b, layer, "post_attention_layernorm.weight", h->hidden_size, 0.0f,
                                &w->post_norm, error));
    MF_TRY(bind_latent(b, h, layer, &w->u.latent, error));
    if (h->is_dense[layer])
        return bind_mlp(b, h, layer, "mlp", h->dense_hidden, &w->mlp, error);
    return bind_moe(b, h, layer, w, error);
}

static mf_status bind(mf_binder *b, const mf_hparams *h, mf_model_weights *out, mf_error *error)
{
    MF_TRY(mf_bind_ends(b, h, 0.0f, out, error));
    for (uint32_t i = 0; i < h->n_layers; i++)
        MF_TRY(bind_layer(b, h, i, &out->layers[i], error));
    return MF_OK;
}

static mf_status configure_v3(const mf_config *config, mf_hparams *out, mf_error *error)
{
    const mf_deepseek_rules rules = {.is_noaux = true};
    return mf_deepseek_configure(config, &rules, out, error);
}

static mf_status configure_v2(const mf_config *config, mf_hparams *out, mf_error *error)
{
    const mf_deepseek_rules rules = {.is_noaux = false};
    return mf_deepseek_configure(config, &rules, out, error);
}

const mf_family mf_family_deepseek_v3 = {
    .name = "deepseek_v3",
    .configure = configure_v3,
    .bind = bind,
};

const mf_family mf_family_kimi_k2 = {
    .name = "kimi_k2",
    .configure = configure_v3,
    .bind = bind,
};

const mf_family mf_family_deepseek_v2 = {
    .name = "deepseek_v2",
    .configure = configure_v2,
    .bind = bind,
};
