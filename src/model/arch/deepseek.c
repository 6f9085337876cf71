/* SPDX-License-Identifier: MIT */
/* DeepSeek-V3 (R1, V3.1, Cogito-V2-671B), Kimi-K2 and GLM-4.7-Flash (the same with other sizes) and
 * DeepSeek-V2 (V2, V2-Lite, Coder-V2): which tensor is which weight. */
#include "model/arch/deepseek.h"

#include "model/arch/common.h"

/* The up-projections of keys and values: one matrix, head by head nope_dim rows of keys and
 * value_head_dim of values, or, as conversions make it, the key half transposed and the halves
 * apart. */
static mf_status bind_up(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_latent_weights *w,
                         mf_error *error)
{
    uint32_t rows = h->nope_dim + h->value_head_dim;
    if (mf_source_has(b->source, MF_ROLE_LATENT_K_UP, layer)) {
        const mf_matrix_shape key = {h->n_heads, h->kv_rank, h->nope_dim};
        const mf_matrix_shape value = {h->n_heads, h->value_head_dim, h->kv_rank};
        w->key = (mf_head_weight){.head_rows = h->kv_rank, .n_rows = h->kv_rank};
        MF_TRY(mf_bind_matrix(b, mf_tensor_of(MF_ROLE_LATENT_K_UP, layer), key, &w->key.weight,
                              error));
        w->value = (mf_head_weight){.head_rows = h->value_head_dim, .n_rows = h->value_head_dim};
        return mf_bind_matrix(b, mf_tensor_of(MF_ROLE_LATENT_V_UP, layer), value, &w->value.weight,
                              error);
    }
    mf_weight both;
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_LATENT_KV_B, layer), h->n_heads * rows,
                                h->kv_rank, &both, error));
    w->key = (mf_head_weight){
        .weight = both, .head_rows = rows, .n_rows = h->nope_dim, .transposed = true};
    w->value = (mf_head_weight){
        .weight = both, .head_rows = rows, .first_row = h->nope_dim, .n_rows = h->value_head_dim};
    return MF_OK;
}

static mf_status bind_indexer(mf_binder *b, const mf_hparams *h, uint32_t layer,
                              mf_latent_weights *w, mf_error *error)
{
    const uint32_t n = h->hidden_size, width = h->index_heads * h->index_dim;
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_INDEX_Q, layer), width, h->q_rank,
                                &w->index_q, error));
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_INDEX_K, layer), h->index_dim, n,
                                &w->index_k, error));
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_INDEX_WEIGHTS, layer), h->index_heads, n,
                                &w->index_w, error));
    MF_TRY(mf_bind_vector(b, mf_tensor_of(MF_ROLE_INDEX_NORM, layer), h->index_dim, &w->index_norm,
                          error));
    return mf_bind_vector(b, mf_tensor_of(MF_ROLE_INDEX_NORM_BIAS, layer), h->index_dim,
                          &w->index_norm_bias, error);
}

mf_status mf_deepseek_bind_latent(mf_binder *b, const mf_hparams *h, uint32_t layer,
                                  mf_layer_weights *of, mf_error *error)
{
    mf_latent_weights *w = &of->u.latent;
    uint32_t width = mf_query_width(h), n = h->hidden_size;
    if (h->q_rank == 0) {
        MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_Q, layer), width, n, &w->q_b, error));
    } else {
        MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_LATENT_Q_A, layer), h->q_rank, n,
                                    &w->q_a, error));
        MF_TRY(mf_bind_vector(b, mf_tensor_of(MF_ROLE_LATENT_Q_A_NORM, layer), h->q_rank,
                              &w->q_norm, error));
        MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_LATENT_Q_B, layer), width, h->q_rank,
                                    &w->q_b, error));
    }
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_LATENT_KV_A, layer), mf_latent_width(h), n,
                                &w->kv_a, error));
    MF_TRY(mf_bind_vector(b, mf_tensor_of(MF_ROLE_LATENT_KV_A_NORM, layer), h->kv_rank, &w->kv_norm,
                          error));
    MF_TRY(bind_up(b, h, layer, w, error));
    if (h->index_heads != 0)
        MF_TRY(bind_indexer(b, h, layer, w, error));
    return mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_O, layer), n,
                                h->n_heads * h->value_head_dim, &w->o, error);
}

static mf_status bind(mf_binder *b, const mf_hparams *h, mf_model_weights *out, mf_error *error)
{
    return mf_bind_all(b, h, mf_deepseek_bind_latent, out, error);
}

static mf_status configure_v3(const mf_source *source, mf_hparams *out, mf_error *error)
{
    const mf_deepseek_rules rules = {.is_noaux = true};
    return mf_deepseek_configure(source, &rules, out, error);
}

static mf_status configure_v2(const mf_source *source, mf_hparams *out, mf_error *error)
{
    const mf_deepseek_rules rules = {.is_noaux = false};
    return mf_deepseek_configure(source, &rules, out, error);
}

/* GLM-4.7-Flash: its model card. */
static mf_status configure_lite(const mf_source *source, mf_hparams *out, mf_error *error)
{
    const mf_deepseek_rules rules = {.is_noaux = true, .n_dense_usual = 1, .scale_usual = 1.8};
    return mf_deepseek_configure(source, &rules, out, error);
}

static mf_status configure_v32(const mf_source *source, mf_hparams *out, mf_error *error)
{
    const mf_deepseek_rules rules = {.is_noaux = true, .has_indexer = true};
    return mf_deepseek_configure(source, &rules, out, error);
}

static mf_status configure_glm(const mf_source *source, mf_hparams *out, mf_error *error)
{
    const mf_deepseek_rules rules = {
        .is_noaux = true, .has_indexer = true, .index_is_interleaved = true};
    return mf_deepseek_configure(source, &rules, out, error);
}

const mf_family mf_family_deepseek_v32 = {
    .name = "deepseek_v32",
    .configure = configure_v32,
    .draft_kind = MF_LAYER_LATENT,
    .bind = bind,
};

const mf_family mf_family_glm_moe_dsa = {
    .name = "glm_moe_dsa",
    .configure = configure_glm,
    .draft_kind = MF_LAYER_LATENT,
    .bind = bind,
};

const mf_family mf_family_deepseek_v3 = {
    .name = "deepseek_v3",
    .configure = configure_v3,
    .draft_kind = MF_LAYER_LATENT,
    .bind = bind,
};

const mf_family mf_family_kimi_k2 = {
    .name = "kimi_k2",
    .configure = configure_v3,
    .draft_kind = MF_LAYER_LATENT,
    .bind = bind,
};

/* The text towers of Kimi-K2.5 and its successors: Kimi-K2, one folder further in. */
const mf_family mf_family_kimi_k25 = {
    .name = "kimi_k25",
    .configure = configure_v3,
    .draft_kind = MF_LAYER_LATENT,
    .bind = bind,
};

const mf_family mf_family_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .configure = configure_lite,
    .draft_kind = MF_LAYER_LATENT,
    .bind = bind,
};

const mf_family mf_family_deepseek_v2 = {
    .name = "deepseek_v2",
    .configure = configure_v2,
    .bind = bind,
};
