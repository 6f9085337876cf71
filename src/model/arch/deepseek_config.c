/* SPDX-License-Identifier: MIT */
/* Hyper-parameters of the DeepSeek families, from the config's fields as published. */
#include "model/arch/common.h"
#include "model/arch/deepseek.h"

#include <math.h>
#include <string.h>

#define MAX_HEAD_DIM 1024u
#define MAX_LATENT 65536u

/* Fields for a variant that nothing published uses. */
static mf_status require_false(const mf_config *c, const char *field, mf_error *error)
{
    bool value;
    MF_TRY(mf_config_bool_or(c, field, false, &value, error));
    if (value)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: field %s is true; only false is supported",
                       c->json.path, field);
    return MF_OK;
}

static mf_status configure_attention(const mf_config *c, mf_hparams *h, mf_error *error)
{
    MF_TRY(mf_config_u32(c, "num_attention_heads", 1, 4096, &h->n_heads, error));
    MF_TRY(mf_config_u32_or(c, "num_key_value_heads", h->n_heads, 1, 4096, &h->n_kv_heads, error));
    MF_TRY(mf_config_u32_or(c, "q_lora_rank", 0, 1, MF_MAX_DIM, &h->q_rank, error));
    MF_TRY(mf_config_u32(c, "kv_lora_rank", 1, MAX_LATENT, &h->kv_rank, error));
    MF_TRY(mf_config_u32(c, "qk_nope_head_dim", 1, MAX_HEAD_DIM, &h->nope_dim, error));
    MF_TRY(mf_config_u32(c, "qk_rope_head_dim", 2, MAX_HEAD_DIM, &h->n_rot, error));
    MF_TRY(mf_config_u32(c, "v_head_dim", 1, MAX_HEAD_DIM, &h->value_head_dim, error));
    MF_TRY(require_false(c, "attention_bias", error));
    MF_TRY(require_false(c, "mlp_bias", error));
    if (h->n_kv_heads != h->n_heads)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: field num_key_value_heads is %u; only num_attention_heads = %u is "
                       "supported",
                       c->json.path, h->n_kv_heads, h->n_heads);
    if (h->n_rot % 2 != 0)
        return mf_fail(error, MF_ERR_FORMAT, "%s: field qk_rope_head_dim %u is not even",
                       c->json.path, h->n_rot);
    h->head_dim = h->nope_dim + h->n_rot;
    h->attention_scale = 1.0f / sqrtf((float)h->head_dim);
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->layer_kind[i] = MF_LAYER_LATENT;
    return MF_OK;
}

static double mscale(double factor, double m)
{
    return factor <= 1.0 ? 1.0 : 0.1 * m * log(factor) + 1.0;
}

/* The factor of cosine and sine, and that of the attention's scale: the square of mscale over all
 * dims. */
static mf_status configure_yarn(const mf_config *rope, mf_hparams *h, mf_error *error)
{
    mf_rope *r = &h->rope;
    double part, all;
    r->is_yarn = true;
    MF_TRY(mf_config_double_or(rope, "original_max_position_embeddings", h->n_context, 1.0, 1e9,
                               &r->n_original, error));
    MF_TRY(mf_config_double_or(rope, "factor", h->n_context / r->n_original, 1e-3, 1e6, &r->factor,
                               error));
    MF_TRY(mf_config_double_or(rope, "beta_fast", 32.0, 0.0, 1e6, &r->beta_fast, error));
    MF_TRY(mf_config_double_or(rope, "beta_slow", 1.0, 0.0, 1e6, &r->beta_slow, error));
    MF_TRY(mf_config_bool_or(rope, "truncate", true, &r->truncate, error));
    MF_TRY(mf_config_double_or(rope, "mscale", 0.0, 0.0, 1e3, &part, error));
    MF_TRY(mf_config_double_or(rope, "mscale_all_dim", 0.0, 0.0, 1e3, &all, error));
    r->beta_fast = r->beta_fast == 0.0 ? 32.0 : r->beta_fast;
    r->beta_slow = r->beta_slow == 0.0 ? 1.0 : r->beta_slow;
    double cos_sin = part != 0.0 && all != 0.0 ? mscale(r->factor, part) / mscale(r->factor, all)
                                               : mscale(r->factor, 1.0);
    MF_TRY(mf_config_double_or(rope, "attention_factor", cos_sin, 0.0, 1e6, &r->attention_factor,
                               error));
    if (all != 0.0) {
        double m = mscale(r->factor, all);
        h->attention_scale = (float)(m * m / sqrt((double)h->head_dim));
    }
    return MF_OK;
}

/* rope_theta stands at the top, or inside rope_parameters with the rest. */
static mf_status configure_rope(const mf_config *c, mf_hparams *h, mf_error *error)
{
    mf_config nested = *c;
    const char *object = "rope_parameters", *field = "rope_type";
    yyjson_val *rope = mf_config_find(c, object);
    if (rope == NULL || (yyjson_is_obj(rope) && mf_config_find(c, "rope_scaling") != NULL &&
                         yyjson_obj_get(rope, "factor") == NULL)) {
        object = "rope_scaling";
        rope = mf_config_find(c, object);
    }
    if (rope != NULL && !yyjson_is_obj(rope))
        return mf_fail(error, MF_ERR_FORMAT, "%s: field %s is not an object", c->json.path, object);
    if (rope != NULL) {
        nested.top = c->text;
        nested.text = rope;
    }
    h->rope.attention_factor = 1.0;
    MF_TRY(mf_config_double_or(&nested, "rope_theta", 1e4, 1.0, 1e12, &h->rope.theta, error));
    MF_TRY(mf_config_bool_or(c, "rope_interleave", true, &h->rope.interleaved, error));
    if (rope == NULL)
        return MF_OK;
    const char *type = yyjson_get_str(yyjson_obj_get(rope, field));
    if (type == NULL) {
        field = "type";
        type = yyjson_get_str(yyjson_obj_get(rope, field));
    }
    if (type == NULL || strcmp(type, "default") == 0)
        return MF_OK;
    if (strcmp(type, "yarn") == 0)
        return configure_yarn(&nested, h, error);
    return mf_fail(error, MF_ERR_UNSUPPORTED,
                   "%s: field %s.%s is %s; supported are default and yarn", c->json.path, object,
                   field, type);
}

/* The first first_k_dense_replace layers are dense, and of the others all but every
 * moe_layer_freq-th. */
static mf_status configure_layers(const mf_config *c, mf_hparams *h, mf_error *error)
{
    uint32_t n_dense, frequency;
    MF_TRY(mf_config_u32_or(c, "first_k_dense_replace", 0, 0, MF_MAX_LAYERS, &n_dense, error));
    MF_TRY(mf_config_u32_or(c, "moe_layer_freq", 1, 1, MF_MAX_LAYERS, &frequency, error));
    MF_TRY(mf_config_u32_or(c, "num_nextn_predict_layers", 1, 0, MF_MAX_LAYERS, &h->n_mtp_layers,
                            error));
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->is_dense[i] = i < n_dense || i % frequency != 0;
    mf_number_moe_layers(h);
    if (h->n_moe_layers == 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: field first_k_dense_replace is %u: no layer of %u has experts",
                       c->json.path, n_dense, h->n_layers);
    if (h->n_moe_layers < h->n_layers)
        return mf_config_u32(c, "intermediate_size", 1, MF_MAX_DIM, &h->dense_hidden, error);
    return MF_OK;
}

static mf_status configure_experts(const mf_config *c, mf_hparams *h, mf_error *error)
{
    uint32_t n_shared;
    MF_TRY(mf_config_u32(c, "n_routed_experts", 1, 65535, &h->n_experts, error));
    MF_TRY(
        mf_config_u32(c, "num_experts_per_tok", 1, h->n_experts, &h->n_experts_per_token, error));
    MF_TRY(mf_config_u32(c, "moe_intermediate_size", 1, MF_MAX_DIM, &h->expert_hidden, error));
    MF_TRY(mf_config_u32_or(c, "n_shared_experts", 0, 0, 64, &n_shared, error));
    h->shared_hidden = n_shared * h->expert_hidden; /* several are one wide MLP */
    return MF_OK;
}

static mf_status unsupported(const mf_config *c, const char *field, const char *value,
                             const char *supported, mf_error *error)
{
    return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: field %s is %s; supported here: %s",
                   c->json.path, field, value, supported);
}

static mf_status configure_groups(const mf_config *c, mf_router *r, uint32_t n_experts,
                                  mf_error *error)
{
    MF_TRY(mf_config_u32_or(c, "n_group", 1, 1, MF_MAX_GROUPS, &r->n_groups, error));
    MF_TRY(mf_config_u32_or(c, "topk_group", r->n_groups, 1, r->n_groups, &r->k_groups, error));
    if (n_experts % r->n_groups != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: field n_group %u does not divide n_routed_experts %u", c->json.path,
                       r->n_groups, n_experts);
    return MF_OK;
}

/* V2: softmax scores, unbiased and not renormalised. The published codes disagree on what
 * norm_topk_prob would do, and no checkpoint sets it. */
static mf_status configure_greedy(const mf_config *c, mf_hparams *h, mf_error *error)
{
    const char *method = mf_config_string(c, "topk_method");
    if (method != NULL && strcmp(method, "greedy") != 0 &&
        strcmp(method, "group_limited_greedy") != 0)
        return unsupported(c, "topk_method", method, "greedy and group_limited_greedy", error);
    const char *scores = mf_config_string(c, "scoring_func");
    if (scores != NULL && strcmp(scores, "softmax") != 0)
        return unsupported(c, "scoring_func", scores, "softmax", error);
    MF_TRY(require_false(c, "norm_topk_prob", error));
    h->router = (mf_router){.n_groups = 1, .k_groups = 1};
    if (method != NULL && strcmp(method, "group_limited_greedy") == 0)
        return configure_groups(c, &h->router, h->n_experts, error);
    return MF_OK;
}

/* V3: arXiv 2412.19437, section 2.1.2. */
static mf_status configure_noaux(const mf_config *c, mf_hparams *h, mf_error *error)
{
    const char *method = mf_config_string(c, "topk_method");
    if (method != NULL && strcmp(method, "noaux_tc") != 0)
        return unsupported(c, "topk_method", method, "noaux_tc", error);
    const char *scores = mf_config_string(c, "scoring_func");
    if (scores != NULL && strcmp(scores, "sigmoid") != 0)
        return unsupported(c, "scoring_func", scores, "sigmoid", error);
    h->router = (mf_router){.is_sigmoid = true, .has_bias = true, .eps = 1e-20f};
    MF_TRY(mf_config_bool_or(c, "norm_topk_prob", true, &h->router.normalise, error));
    return configure_groups(c, &h->router, h->n_experts, error);
}

mf_status mf_deepseek_configure(const mf_config *c, const mf_deepseek_rules *rules, mf_hparams *out,
                                mf_error *error)
{
    mf_hparams h = {0};
    double scale;
    MF_TRY(mf_configure_common(c, &h, error));
    MF_TRY(configure_attention(c, &h, error));
    MF_TRY(configure_rope(c, &h, error));
    MF_TRY(configure_experts(c, &h, error));
    MF_TRY(configure_layers(c, &h, error));
    if (rules->is_noaux)
        MF_TRY(configure_noaux(c, &h, error));
    else
        MF_TRY(configure_greedy(c, &h, error));
    MF_TRY(mf_config_double_or(c, "routed_scaling_factor", rules->is_noaux ? 2.5 : 1.0, 0.0, 1e6,
                               &scale, error));
    h.router.scale = (float)scale;
    *out = h;
    return MF_OK;
}
