/* SPDX-License-Identifier: MIT */
/* Hyper-parameters of the DeepSeek families, from the config's fields as published. */
#include "model/arch/common.h"
#include "model/arch/deepseek.h"

#include <math.h>
#include <string.h>

#define MAX_HEAD_DIM 1024u
#define MAX_LATENT 65536u

mf_status mf_deepseek_attention(const mf_source *s, mf_hparams *h, mf_error *error)
{
    MF_TRY(mf_hparam_u32(s, "num_attention_heads", (mf_range){1, 4096}, &h->n_heads, error));
    MF_TRY(mf_hparam_u32_or(s, "num_key_value_heads", h->n_heads, (mf_range){1, 4096},
                            &h->n_kv_heads, error));
    MF_TRY(mf_hparam_u32_or(s, "q_lora_rank", 0, (mf_range){1, MF_MAX_DIM}, &h->q_rank, error));
    MF_TRY(mf_hparam_u32(s, "kv_lora_rank", (mf_range){1, MAX_LATENT}, &h->kv_rank, error));
    MF_TRY(mf_hparam_u32(s, "qk_nope_head_dim", (mf_range){1, MAX_HEAD_DIM}, &h->nope_dim, error));
    MF_TRY(mf_hparam_u32(s, "qk_rope_head_dim", (mf_range){2, MAX_HEAD_DIM}, &h->n_rot, error));
    MF_TRY(mf_hparam_u32(s, "v_head_dim", (mf_range){1, MAX_HEAD_DIM}, &h->value_head_dim, error));
    MF_TRY(mf_require_false(s, "attention_bias", error));
    MF_TRY(mf_require_false(s, "mlp_bias", error));
    if (h->n_kv_heads != h->n_heads)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: field num_key_value_heads is %u; only num_attention_heads = %u is "
                       "supported",
                       s->hparam_path, h->n_kv_heads, h->n_heads);
    if (h->n_rot % 2 != 0)
        return mf_fail(error, MF_ERR_FORMAT, "%s: field qk_rope_head_dim %u is not even",
                       s->hparam_path, h->n_rot);
    h->head_dim = h->nope_dim + h->n_rot;
    h->attention_scale = 1.0f / sqrtf((float)h->head_dim);
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->layer_kind[i] = MF_LAYER_LATENT;
    return MF_OK;
}

/* What slows the rotation by a factor also scales the attention, by the square of mscale over all
 * dims; that YaRN does is all that is published, but the code asks for no type. */
static mf_status configure_rope(const mf_source *s, mf_hparams *h, mf_error *error)
{
    double all;
    MF_TRY(mf_configure_rope(s, 1e4, h, error));
    MF_TRY(mf_hparam_bool_or(s, "rope_interleave", true, &h->rope.interleaved, error));
    if (h->rope.factor == 0.0)
        return MF_OK;
    MF_TRY(mf_hparam_double_or(s, "rope.mscale_all_dim", 0.0, (mf_range){0, 1e3}, &all, error));
    if (all != 0.0) {
        double m = mf_yarn_mscale(h->rope.factor, all);
        h->attention_scale = (float)(m * m / sqrt((double)h->head_dim));
    }
    return MF_OK;
}

/* mlp_layer_types says the same of each layer; where nothing else does, it alone. */
static mf_status take_layer_types(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t n_types;
    mf_hparam_value first;
    s->ops->hparam(s, "first_k_dense_replace", MF_HPARAM_WHOLE, &first);
    MF_TRY(mf_hparam_list(s, "mlp_layer_types", &n_types, error));
    for (uint32_t i = 0; n_types != MF_HPARAM_WHOLE && i < h->n_layers; i++) {
        bool is_dense;
        MF_TRY(
            mf_layer_word(s, "mlp_layer_types", n_types, i, "dense", "sparse", &is_dense, error));
        if (first.kind == MF_HPARAM_ABSENT)
            h->is_dense[i] = is_dense;
        else if (is_dense != h->is_dense[i])
            return mf_fail(error, MF_ERR_UNSUPPORTED,
                           "%s: field mlp_layer_types[%u] is %s; first_k_dense_replace says %s",
                           s->hparam_path, i, is_dense ? "dense" : "sparse",
                           h->is_dense[i] ? "dense" : "sparse");
    }
    return MF_OK;
}

mf_status mf_deepseek_layers(const mf_source *s, uint32_t n_dense_usual, mf_hparams *h,
                             mf_error *error)
{
    uint32_t n_dense, frequency;
    MF_TRY(mf_hparam_u32_or(s, "first_k_dense_replace", n_dense_usual, (mf_range){0, MF_MAX_LAYERS},
                            &n_dense, error));
    MF_TRY(
        mf_hparam_u32_or(s, "moe_layer_freq", 1, (mf_range){1, MF_MAX_LAYERS}, &frequency, error));
    MF_TRY(mf_hparam_u32_or(s, "num_nextn_predict_layers", 1, (mf_range){0, MF_MAX_LAYERS},
                            &h->n_mtp_layers, error));
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->is_dense[i] = i < n_dense || i % frequency != 0;
    MF_TRY(take_layer_types(s, h, error));
    mf_number_moe_layers(h);
    if (h->n_moe_layers == 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: field first_k_dense_replace is %u: no layer of %u has experts",
                       s->hparam_path, n_dense, h->n_layers);
    if (h->n_moe_layers < h->n_layers)
        return mf_hparam_u32(s, "intermediate_size", (mf_range){1, MF_MAX_DIM}, &h->dense_hidden,
                             error);
    return MF_OK;
}

static mf_status configure_experts(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t n_shared;
    MF_TRY(mf_configure_experts(s, "n_routed_experts", "num_experts_per_tok",
                                "moe_intermediate_size", h, error));
    MF_TRY(mf_hparam_u32_or(s, "n_shared_experts", 0, (mf_range){0, 64}, &n_shared, error));
    h->shared_hidden = n_shared * h->expert_hidden; /* several are one wide MLP */
    return MF_OK;
}

static mf_status unsupported(const mf_source *s, const char *field, const char *value,
                             const char *supported, mf_error *error)
{
    return mf_hparam_fail(s, field, MF_ERR_UNSUPPORTED, error, "is %.64s; supported here: %s",
                          value, supported);
}

/* V2: softmax scores, unbiased and not renormalised. The published codes disagree on what
 * norm_topk_prob would do, and no checkpoint sets it. */
static mf_status configure_greedy(const mf_source *s, mf_hparams *h, mf_error *error)
{
    const char *method = NULL;
    MF_TRY(mf_hparam_string(s, "topk_method", &method, error));
    if (method != NULL && strcmp(method, "greedy") != 0 &&
        strcmp(method, "group_limited_greedy") != 0)
        return unsupported(s, "topk_method", method, "greedy and group_limited_greedy", error);
    const char *scores = NULL;
    MF_TRY(mf_hparam_string(s, "scoring_func", &scores, error));
    if (scores != NULL && strcmp(scores, "softmax") != 0)
        return unsupported(s, "scoring_func", scores, "softmax", error);
    MF_TRY(mf_require_false(s, "norm_topk_prob", error));
    h->router = (mf_router){.n_groups = 1, .k_groups = 1};
    if (method != NULL && strcmp(method, "group_limited_greedy") == 0)
        return mf_configure_groups(s, "n_group", 0, h, error);
    return MF_OK;
}

/* V3: arXiv 2412.19437, section 2.1.2. */
static mf_status configure_noaux(const mf_source *s, mf_hparams *h, mf_error *error)
{
    const char *method = NULL;
    MF_TRY(mf_hparam_string(s, "topk_method", &method, error));
    if (method != NULL && strcmp(method, "noaux_tc") != 0)
        return unsupported(s, "topk_method", method, "noaux_tc", error);
    const char *scores = NULL;
    MF_TRY(mf_hparam_string(s, "scoring_func", &scores, error));
    if (scores != NULL && strcmp(scores, "sigmoid") != 0)
        return unsupported(s, "scoring_func", scores, "sigmoid", error);
    h->router = (mf_router){.is_sigmoid = true, .has_bias = true, .eps = 1e-20f};
    MF_TRY(mf_hparam_bool_or(s, "norm_topk_prob", true, &h->router.normalise, error));
    return mf_configure_groups(s, "n_group", 0, h, error);
}

/* Whether a layer uses another's choice: GLM's later ones. */
static mf_status find_shared(const mf_source *s, const mf_hparams *h, bool *out, mf_error *error)
{
    uint32_t n_types, frequency;
    MF_TRY(mf_hparam_list(s, "indexer_types", &n_types, error));
    MF_TRY(
        mf_hparam_u32_or(s, "index_topk_freq", 1, (mf_range){0, MF_MAX_LAYERS}, &frequency, error));
    mf_hparam_value pattern;
    s->ops->hparam(s, "index_topk_pattern", MF_HPARAM_WHOLE, &pattern);
    *out = frequency > 1 || pattern.kind != MF_HPARAM_ABSENT;
    for (uint32_t i = 0; n_types != MF_HPARAM_WHOLE && i < h->n_layers; i++) {
        const char *type = i < n_types ? mf_hparam_element(s, "indexer_types", i) : NULL;
        *out |= type == NULL || strcmp(type, "full") != 0;
    }
    return MF_OK;
}

/* Within the first index_topk positions an indexer chooses all that there are: the same as V3's
 * attention. Where it is not here, or layers share one, the context ends there. */
static mf_status configure_indexer(const mf_source *s, bool is_interleaved, mf_hparams *h,
                                   mf_error *error)
{
    bool is_shared;
    MF_TRY(mf_hparam_u32_or(s, "index_topk", 2048, (mf_range){1, 1 << 28}, &h->index_most, error));
    MF_TRY(mf_hparam_u32_or(s, "index_n_heads", 32, (mf_range){1, 4096}, &h->index_heads, error));
    MF_TRY(mf_hparam_u32_or(s, "index_head_dim", 128, (mf_range){1, MAX_HEAD_DIM}, &h->index_dim,
                            error));
    MF_TRY(find_shared(s, h, &is_shared, error));
    h->index_is_interleaved = is_interleaved;
    if (is_shared || h->q_rank == 0 || h->index_dim < h->n_rot || h->index_most > MF_INDEX_MOST ||
        h->n_context <= h->index_most || !mf_source_has(s, MF_ROLE_INDEX_Q, 0)) {
        h->index_heads = 0;
        h->context_is_indexed = h->n_context > h->index_most;
        h->n_context = h->context_is_indexed ? h->index_most : h->n_context;
    }
    return MF_OK;
}

mf_status mf_deepseek_configure(const mf_source *s, const mf_deepseek_rules *rules, mf_hparams *out,
                                mf_error *error)
{
    mf_hparams h = {0};
    double scale;
    MF_TRY(mf_configure_common(s, &h, error));
    MF_TRY(mf_deepseek_attention(s, &h, error));
    MF_TRY(configure_rope(s, &h, error));
    MF_TRY(configure_experts(s, &h, error));
    MF_TRY(mf_deepseek_layers(s, rules->n_dense_usual, &h, error));
    if (rules->is_noaux)
        MF_TRY(configure_noaux(s, &h, error));
    else
        MF_TRY(configure_greedy(s, &h, error));
    const double usual = rules->scale_usual != 0.0 ? rules->scale_usual
                         : rules->is_noaux         ? 2.5
                                                   : 1.0;
    MF_TRY(
        mf_hparam_double_or(s, "routed_scaling_factor", usual, (mf_range){0, 1e6}, &scale, error));
    h.router.scale = (float)scale;
    if (rules->has_indexer)
        MF_TRY(configure_indexer(s, rules->index_is_interleaved, &h, error));
    *out = h;
    return MF_OK;
}
