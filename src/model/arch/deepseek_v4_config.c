/* SPDX-License-Identifier: MIT */
/* Hyper-parameters of DeepSeek-V4: as published, and as transformers writes them. */
#include "model/arch/common.h"
#include "model/arch/deepseek_v4.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_HEAD_DIM 1024u
#define MAX_WINDOW 65536u
#define MAX_RATE 65536u

typedef enum layer_type { SLIDING, SPARSE, HEAVY, N_TYPES } layer_type;

static const char *const type_names[N_TYPES] = {"sliding_attention", "compressed_sparse_attention",
                                                "heavily_compressed_attention"};

static mf_status configure_attention(const mf_source *s, mf_hparams *h, mf_error *error)
{
    double part;
    MF_TRY(mf_hparam_u32(s, "num_attention_heads", (mf_range){1, 4096}, &h->n_heads, error));
    MF_TRY(
        mf_hparam_u32_or(s, "num_key_value_heads", 1, (mf_range){1, 4096}, &h->n_kv_heads, error));
    MF_TRY(mf_hparam_u32(s, "head_dim", (mf_range){2, MAX_HEAD_DIM}, &h->head_dim, error));
    MF_TRY(mf_hparam_u32(s, "q_lora_rank", (mf_range){1, MF_MAX_DIM}, &h->q_rank, error));
    MF_TRY(mf_hparam_u32(s, "o_groups", (mf_range){1, 4096}, &h->o_groups, error));
    MF_TRY(mf_hparam_u32(s, "o_lora_rank", (mf_range){1, MF_MAX_DIM}, &h->o_rank, error));
    MF_TRY(mf_hparam_u32_or(s, "sliding_window", 128, (mf_range){1, MAX_WINDOW},
                            &h->attended_window, error));
    MF_TRY(mf_hparam_u32_or(s, "qk_rope_head_dim", h->head_dim / 8, (mf_range){2, MAX_HEAD_DIM},
                            &h->n_rot, error));
    MF_TRY(mf_hparam_double_or(s, "partial_rotary_factor", (double)h->n_rot / h->head_dim,
                               (mf_range){0, 1}, &part, error));
    h->n_rot = (uint32_t)(part * h->head_dim);
    MF_TRY(mf_require_false(s, "attention_bias", error));
    MF_TRY(mf_require_false(s, "mlp_bias", error));
    if (h->n_kv_heads != 1)
        return mf_hparam_fail(s, "num_key_value_heads", MF_ERR_UNSUPPORTED, error,
                              "is %u; only 1 is supported", h->n_kv_heads);
    if (h->n_rot < 2 || h->n_rot % 2 != 0 || h->n_rot > h->head_dim)
        return mf_hparam_fail(s, "qk_rope_head_dim", MF_ERR_FORMAT, error,
                              "makes %u of %u dimensions rotate; expected an even number of them",
                              h->n_rot, h->head_dim);
    if (h->n_heads % h->o_groups != 0)
        return mf_hparam_fail(s, "o_groups", MF_ERR_FORMAT, error, "%u does not divide %u heads",
                              h->o_groups, h->n_heads);
    h->attention_scale = 1.0f / sqrtf((float)h->head_dim);
    return MF_OK;
}

/* Positions that an entry of each type stands for. */
static mf_status read_rates(const mf_source *s, uint32_t rates[N_TYPES], mf_error *error)
{
    static const char *const old[N_TYPES] = {NULL, "compress_rate_csa", "compress_rate_hca"};
    char name[64];
    rates[SLIDING] = 0;
    for (layer_type t = SPARSE; t < N_TYPES; t++) {
        snprintf(name, sizeof name, "compress_rates.%s", type_names[t]);
        MF_TRY(mf_hparam_u32_or(s, old[t], t == SPARSE ? 4 : 128, (mf_range){1, MAX_RATE},
                                &rates[t], error));
        MF_TRY(mf_hparam_u32_or(s, name, rates[t], (mf_range){1, MAX_RATE}, &rates[t], error));
        if (rates[t] < MF_PAGE_TOKENS ? MF_PAGE_TOKENS % rates[t] != 0
                                      : rates[t] % MF_PAGE_TOKENS != 0)
            return mf_hparam_fail(s, name, MF_ERR_UNSUPPORTED, error,
                                  "is %u; supported are divisors and multiples of %d", rates[t],
                                  MF_PAGE_TOKENS);
    }
    return MF_OK;
}

/* As published: 0, or the rate that a type has. */
static mf_status type_of_ratio(const mf_source *s, uint32_t layer, layer_type *out, mf_error *error)
{
    mf_hparam_value v;
    s->ops->hparam(s, "compress_ratios", layer, &v);
    const bool is_number = v.kind == MF_HPARAM_NUMBER;
    if (!is_number || (v.number != 0 && v.number != 4 && v.number != 128))
        return mf_fail(error, is_number ? MF_ERR_UNSUPPORTED : MF_ERR_FORMAT,
                       "%s: field compress_ratios[%u] is %g; expected 0, 4 or 128 for each of the "
                       "layers",
                       s->hparam_path, layer, is_number ? v.number : NAN);
    *out = v.number == 0 ? SLIDING : v.number == 4 ? SPARSE : HEAVY;
    return MF_OK;
}

static mf_status type_of_name(const mf_source *s, uint32_t layer, layer_type *out, mf_error *error)
{
    const char *name = mf_hparam_element(s, "layer_types", layer);
    for (layer_type t = SLIDING; name != NULL && t < N_TYPES; t++)
        if (strcmp(name, type_names[t]) == 0) {
            *out = t;
            return MF_OK;
        }
    return mf_fail(error, name != NULL ? MF_ERR_UNSUPPORTED : MF_ERR_FORMAT,
                   "%s: field layer_types[%u] is %.64s; expected %s, %s or %s for each of the "
                   "layers",
                   s->hparam_path, layer, name != NULL ? name : "missing", type_names[SLIDING],
                   type_names[SPARSE], type_names[HEAVY]);
}

/* Names before ratios before what the model's code falls back to: two heavy layers, then both types
 * in turns. */
static mf_status configure_layers(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t rates[N_TYPES], n_types, n_ratios;
    MF_TRY(read_rates(s, rates, error));
    MF_TRY(mf_hparam_list(s, "layer_types", &n_types, error));
    MF_TRY(mf_hparam_list(s, "compress_ratios", &n_ratios, error));
    for (uint32_t i = 0; i < h->n_layers; i++) {
        layer_type type = i < 2 || i % 2 == 0 ? HEAVY : SPARSE;
        if (n_types != MF_HPARAM_WHOLE)
            MF_TRY(type_of_name(s, i, &type, error));
        else if (n_ratios != MF_HPARAM_WHOLE)
            MF_TRY(type_of_ratio(s, i, &type, error));
        const uint32_t reach = type == SPARSE ? 2 * rates[type] : rates[type];
        h->layer_kind[i] = MF_LAYER_ENTRIES;
        h->entry_rate[i] = rates[type];
        h->entries_overlap[i] = type == SPARSE;
        h->window[i] = reach > h->attended_window ? reach : h->attended_window;
        h->index_rate = rates[SPARSE];
    }
    return MF_OK;
}

static mf_status configure_indexer(const mf_source *s, mf_hparams *h, mf_error *error)
{
    bool has_choice = false;
    for (uint32_t i = 0; i < h->n_layers; i++)
        has_choice |= h->entries_overlap[i];
    if (!has_choice)
        return MF_OK;
    MF_TRY(mf_hparam_u32_or(s, "index_topk", 512, (mf_range){1, MF_INDEX_MOST}, &h->index_most,
                            error));
    MF_TRY(mf_hparam_u32_or(s, "index_n_heads", 64, (mf_range){1, 4096}, &h->index_heads, error));
    return mf_hparam_u32_or(s, "index_head_dim", 128, (mf_range){h->n_rot, MAX_HEAD_DIM},
                            &h->index_dim, error);
}

static mf_status rope_number(const mf_source *s, const char *object, const char *field,
                             double fallback, mf_range range, double *out, mf_error *error)
{
    char name[96];
    snprintf(name, sizeof name, "rope.%s%s", object, field);
    return mf_hparam_double_or(s, name, fallback, range, out, error);
}

/* The rotation that a nested object states, or the config itself (object ""). Its temperature is 1
 * where none is stated. */
static mf_status read_rope(const mf_source *s, const char *object, mf_hparams *h, mf_rope *r,
                           mf_error *error)
{
    const char *type = NULL;
    char name[96];
    snprintf(name, sizeof name, "rope.%s%s", object, *object != '\0' ? "rope_type" : "type");
    MF_TRY(mf_hparam_string(s, name, &type, error));
    r->interleaved = true;
    r->attention_factor = 1.0;
    if (type == NULL || strcmp(type, "default") == 0)
        return MF_OK;
    if (strcmp(type, "yarn") != 0)
        return mf_hparam_fail(s, name, MF_ERR_UNSUPPORTED, error,
                              "is %.64s; supported are default and yarn", type);
    r->is_yarn = true;
    const mf_range turns = {1e-6, 1e6};
    MF_TRY(rope_number(s, object, "original_max_position_embeddings", h->n_context,
                       (mf_range){1, 1e9}, &r->n_original, error));
    MF_TRY(rope_number(s, object, "factor", h->n_context / r->n_original, (mf_range){1e-3, 1e6},
                       &r->factor, error));
    MF_TRY(rope_number(s, object, "beta_fast", 32.0, turns, &r->beta_fast, error));
    MF_TRY(rope_number(s, object, "beta_slow", 1.0, turns, &r->beta_slow, error));
    MF_TRY(rope_number(s, object, "attention_factor", 1.0, (mf_range){0, 1e6}, &r->attention_factor,
                       error));
    snprintf(name, sizeof name, "rope.%struncate", object);
    MF_TRY(mf_hparam_bool_or(s, name, true, &r->truncate, error));
    if (r->theta <= 1.0)
        return mf_hparam_fail(s, "rope.theta", MF_ERR_FORMAT, error,
                              "is 1: with YaRN more than 1 is needed");
    return MF_OK;
}

/* Layers without entries rotate by rope_theta as it is, the others by compress_rope_theta and what
 * else is stated. */
static mf_status configure_ropes(const mf_source *s, mf_hparams *h, mf_error *error)
{
    const mf_range thetas = {1, 1e12};
    mf_hparam_value nested;
    s->ops->hparam(s, "rope.main", MF_HPARAM_WHOLE, &nested);
    const bool is_nested = nested.kind == MF_HPARAM_OTHER;
    MF_TRY(mf_hparam_double_or(s, "rope_theta", 1e4, thetas, &h->rope.theta, error));
    MF_TRY(
        mf_hparam_double_or(s, "compress_rope_theta", 16e4, thetas, &h->entry_rope.theta, error));
    h->rope.interleaved = true;
    h->rope.attention_factor = 1.0;
    if (!is_nested)
        return read_rope(s, "", h, &h->entry_rope, error);
    MF_TRY(rope_number(s, "main.", "rope_theta", h->rope.theta, thetas, &h->rope.theta, error));
    MF_TRY(rope_number(s, "compress.", "rope_theta", h->entry_rope.theta, thetas,
                       &h->entry_rope.theta, error));
    MF_TRY(read_rope(s, "main.", h, &h->rope, error));
    return read_rope(s, "compress.", h, &h->entry_rope, error);
}

/* The first num_hash_layers layers' experts are named by tokens, or those that a list names. */
static mf_status configure_hashes(const mf_source *s, mf_hparams *h, mf_error *error)
{
    uint32_t n_types, n_hashed;
    MF_TRY(
        mf_hparam_u32_or(s, "num_hash_layers", 3, (mf_range){0, MF_MAX_LAYERS}, &n_hashed, error));
    MF_TRY(mf_hparam_list(s, "mlp_layer_types", &n_types, error));
    for (uint32_t i = 0; i < h->n_layers; i++) {
        h->is_hashed[i] = i < n_hashed;
        if (n_types != MF_HPARAM_WHOLE)
            MF_TRY(mf_layer_word(s, "mlp_layer_types", n_types, i, "hash_moe", "moe",
                                 &h->is_hashed[i], error));
    }
    mf_number_moe_layers(h);
    return MF_OK;
}

static mf_status require_one(const mf_source *s, const char *name, mf_error *error)
{
    uint32_t n;
    MF_TRY(mf_hparam_u32_or(s, name, 1, (mf_range){0, 65535}, &n, error));
    return n == 1 ? MF_OK
                  : mf_hparam_fail(s, name, MF_ERR_UNSUPPORTED, error, "is %u; only 1 is supported",
                                   n);
}

static mf_status configure_router(const mf_source *s, mf_hparams *h, mf_error *error)
{
    bool normalises;
    double scale;
    const char *score = NULL;
    MF_TRY(mf_hparam_string(s, "scoring_func", &score, error));
    const bool is_sigmoid = score != NULL && strcmp(score, "sigmoid") == 0;
    if (!is_sigmoid && score != NULL && strcmp(score, "sqrtsoftplus") != 0)
        return mf_hparam_fail(s, "scoring_func", MF_ERR_UNSUPPORTED, error,
                              "is %.64s; supported are sqrtsoftplus and sigmoid", score);
    MF_TRY(mf_require_string(s, "topk_method", "noaux_tc", error));
    MF_TRY(mf_hparam_bool_or(s, "norm_topk_prob", true, &normalises, error));
    if (!normalises)
        return mf_hparam_fail(s, "norm_topk_prob", MF_ERR_UNSUPPORTED, error,
                              "is false; only true is supported");
    MF_TRY(require_one(s, "n_group", error));
    MF_TRY(mf_hparam_double_or(s, "routed_scaling_factor", 1.5, (mf_range){0, 1e6}, &scale, error));
    h->router = (mf_router){.n_groups = 1,
                            .k_groups = 1,
                            .is_sigmoid = is_sigmoid,
                            .is_sqrt_softplus = !is_sigmoid,
                            .has_bias = true,
                            .normalise = true,
                            .eps = 1e-20f,
                            .scale = (float)scale};
    return MF_OK;
}

static mf_status configure_experts(const mf_source *s, mf_hparams *h, mf_error *error)
{
    double limit;
    MF_TRY(mf_configure_experts(s, "n_routed_experts", "num_experts_per_tok",
                                "moe_intermediate_size", h, error));
    MF_TRY(require_one(s, "n_shared_experts", error));
    MF_TRY(mf_hparam_double_or(s, "swiglu_limit", 10.0, (mf_range){1e-3, 1e30}, &limit, error));
    h->shared_hidden = h->expert_hidden;
    h->silu_limit = (float)limit;
    return configure_hashes(s, h, error);
}

static mf_status configure_streams(const mf_source *s, mf_hparams *h, mf_error *error)
{
    double eps;
    MF_TRY(mf_hparam_u32_or(s, "hc_mult", 4, (mf_range){1, MF_MAX_STREAMS}, &h->n_streams, error));
    MF_TRY(mf_hparam_u32_or(s, "hc_sinkhorn_iters", 20, (mf_range){1, 1000}, &h->stream_iterations,
                            error));
    MF_TRY(mf_hparam_double_or(s, "hc_eps", 1e-6, (mf_range){0, 1}, &eps, error));
    h->stream_eps = (float)eps;
    return MF_OK;
}

mf_status mf_deepseek_v4_configure(const mf_source *s, mf_hparams *out, mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(mf_configure_common(s, &h, error));
    MF_TRY(configure_attention(s, &h, error));
    MF_TRY(configure_layers(s, &h, error));
    MF_TRY(configure_indexer(s, &h, error));
    MF_TRY(configure_ropes(s, &h, error));
    MF_TRY(configure_router(s, &h, error));
    MF_TRY(configure_experts(s, &h, error));
    MF_TRY(configure_streams(s, &h, error));
    *out = h;
    return MF_OK;
}
