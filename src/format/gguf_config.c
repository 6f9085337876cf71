/* SPDX-License-Identifier: MIT */
/* Hyper-parameters from GGUF's metadata: for each name that families ask for, the key that has it,
 * or a function where it follows from several, or from a tensor's shape. */
#include "format/gguf_source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define KEY_BYTES 96
#define MAX_BLOCKS 65535

static const mf_gguf_arch archs[] = {
    {"qwen35moe", "qwen3_5_moe", .normalises = true, .tiles_value_heads = true},
    {"qwen35", "qwen3_5", .tiles_value_heads = true},
    {"qwen3next", "qwen3_next", .normalises = true},
    {"deepseek2", NULL, .rotates_neighbours = true},
    {"qwen2", "qwen2", .normalises = false},
    {"qwen2moe", "qwen2_moe", .normalises = false},
    {"qwen3", "qwen3", .normalises = false},
    {"qwen3moe", "qwen3_moe", .normalises = true},
    {"qwen3vl", "qwen3_vl", .normalises = false},
    {"qwen3vlmoe", "qwen3_vl_moe", .normalises = true},
    {"llama", "llama", .rotates_neighbours = true}, /* Mixtral where it has experts */
    {"mistral3", "mistral3", .rotates_neighbours = true},
    {"glm4moe", "glm4_moe", .normalises = true},
    {"minimax-m2", "minimax_m2", .normalises = true},
    {"gpt-oss", "gpt_oss", .normalises = true, .keeps_ramp = true},
    {"ernie4_5-moe", "ernie4_5_moe", .normalises = true},
    {"hunyuan-moe", "hunyuan_v1_moe", .normalises = true},
    {"glm-dsa", "glm_moe_dsa", .rotates_neighbours = true},
    {"deepseek32", "deepseek_v32", .rotates_neighbours = true},
    {"deepseek4", "deepseek_v4", .normalises = true, .rotates_neighbours = true},
    {"kimi-linear", "kimi_linear", .normalises = true},
    {"llama4", "llama4", .rotates_neighbours = true, .hidden_is_of_experts = true,
     .n_unnormed_experts = 128}, /* Maverick */
};

static const mf_gguf_source *gguf_of(const mf_source *source)
{
    return (const mf_gguf_source *)source;
}

/* ---------------------------------------------------------------------------------- the keys -- */

/* The value of a key behind the architecture's name. */
static const mf_gguf_value *find_key(const mf_gguf_source *g, const char *key)
{
    char full[KEY_BYTES];
    snprintf(full, sizeof full, "%s.%s", g->arch->name, key);
    return mf_gguf_find(&g->head, full);
}

/* A number, or where there is one for each layer that of all layers that have it. */
static bool find_number(const mf_gguf_source *g, const char *key, double *out)
{
    const mf_gguf_value *v = find_key(g, key);
    double common = 0, number;
    if (v == NULL || v->type == MF_GGUF_STRING)
        return false;
    for (uint64_t i = 0; mf_gguf_number(&g->head, v, i, &number); i++) {
        if (number == 0)
            continue;
        if (common != 0 && common != number)
            return false;
        common = number;
    }
    *out = common;
    return true;
}

static void set_number(mf_hparam_value *out, double number)
{
    out->kind = MF_HPARAM_NUMBER;
    out->number = number;
}

static void set_bool(mf_hparam_value *out, bool value)
{
    out->kind = MF_HPARAM_BOOL;
    out->boolean = value;
}

static void set_string(mf_hparam_value *out, const char *string)
{
    out->kind = MF_HPARAM_STRING;
    out->string = string;
}

static void take_key(const mf_gguf_source *g, const char *key, mf_hparam_value *out)
{
    const mf_gguf_value *v = find_key(g, key);
    double number;
    if (v == NULL)
        return;
    out->kind = MF_HPARAM_OTHER;
    if (!find_number(g, key, &number))
        return;
    if (v->type == MF_GGUF_BOOL)
        set_bool(out, number != 0);
    else
        set_number(out, number);
}

/* ------------------------------------------------------------------------------ derived ones -- */

/* As llama.cpp numbers them. */
enum { SCORES_SOFTMAX = 1, SCORES_SIGMOID = 2, SCORES_SQRT_SOFTPLUS = 4 };

static double scores_of(const mf_gguf_source *g)
{
    double function = 0;
    (void)find_number(g, "expert_gating_func", &function);
    return function;
}

static bool is_sigmoid(const mf_gguf_source *g)
{
    return scores_of(g) == SCORES_SIGMOID;
}

static void derive_family(const mf_gguf_source *g, mf_hparam_value *out)
{
    const char *family = g->arch->family;
    double n_experts = 0;
    (void)find_number(g, "expert_count", &n_experts);
    if (family == NULL)
        family = is_sigmoid(g) ? "deepseek_v3" : "deepseek_v2";
    else if (strcmp(family, "llama") == 0 && n_experts > 0)
        family = "mixtral";
    set_string(out, family);
}

static void derive_layers(const mf_gguf_source *g, mf_hparam_value *out)
{
    set_number(out, g->n_layers);
}

static void derive_extra_layers(const mf_gguf_source *g, mf_hparam_value *out)
{
    set_number(out, g->n_blocks - g->n_layers);
}

/* Dimension `from_last` of a tensor, counted from its last one. */
static bool dim_of(const mf_gguf_source *g, mf_role role, uint32_t from_last, double *out)
{
    const mf_tensor *t = NULL;
    for (uint32_t layer = 0; layer < g->n_layers && t == NULL; layer++)
        t = mf_gguf_find_role(g, mf_tensor_of(role, layer));
    if (t == NULL || t->n_dims > MF_MAX_DIMS || from_last >= t->n_dims)
        return false;
    *out = (double)t->shape[t->n_dims - 1 - from_last];
    return true;
}

static void derive_vocab(const mf_gguf_source *g, mf_hparam_value *out)
{
    double n;
    if (dim_of(g, MF_ROLE_EMBED, 1, &n))
        set_number(out, n);
}

static void derive_expert_hidden(const mf_gguf_source *g, mf_hparam_value *out)
{
    double n;
    take_key(g, "expert_feed_forward_length", out);
    if (out->kind == MF_HPARAM_ABSENT && dim_of(g, MF_ROLE_EXPERT_DOWN, 0, &n))
        set_number(out, n);
}

/* Of dense layers; of experts where there are no others. */
static void derive_hidden(const mf_gguf_source *g, mf_hparam_value *out)
{
    if (!g->arch->hidden_is_of_experts)
        take_key(g, "feed_forward_length", out);
    if (out->kind == MF_HPARAM_ABSENT)
        take_key(g, "expert_feed_forward_length", out);
}

static bool has_in_any(const mf_gguf_source *g, mf_role role)
{
    for (uint32_t layer = 0; layer < g->n_layers; layer++)
        if (mf_gguf_find_role(g, mf_tensor_of(role, layer)) != NULL)
            return true;
    return false;
}

static void derive_biases(const mf_gguf_source *g, mf_hparam_value *out)
{
    set_bool(out, has_in_any(g, MF_ROLE_Q_BIAS));
}

static void derive_head_norms(const mf_gguf_source *g, mf_hparam_value *out)
{
    const uint32_t n_unnormed = g->arch->n_unnormed_experts;
    double n_experts = 0;
    (void)find_number(g, "expert_count", &n_experts);
    set_bool(out, n_unnormed == 0 ? has_in_any(g, MF_ROLE_Q_NORM) : n_experts != n_unnormed);
}

static void derive_router_bias(const mf_gguf_source *g, mf_hparam_value *out)
{
    set_bool(out, has_in_any(g, MF_ROLE_ROUTER_BIAS));
}

static void derive_shared_hidden(const mf_gguf_source *g, mf_hparam_value *out)
{
    double n;
    take_key(g, "expert_shared_feed_forward_length", out);
    if (out->kind == MF_HPARAM_ABSENT && dim_of(g, MF_ROLE_SHARED_DOWN, 0, &n))
        set_number(out, n);
}

static void derive_tied(const mf_gguf_source *g, mf_hparam_value *out)
{
    set_bool(out, mf_gguf_find_role(g, mf_tensor_of(MF_ROLE_HEAD, 0)) == NULL);
}

/* DeepSeek's says 1: of the latent that all heads share. */
static void derive_kv_heads(const mf_gguf_source *g, mf_hparam_value *out)
{
    if (find_key(g, "attention.kv_lora_rank") == NULL)
        take_key(g, "attention.head_count_kv", out);
}

/* The number of dims that are rotated, as a part of a head's; times it they are whole again. */
static void derive_partial(const mf_gguf_source *g, mf_hparam_value *out)
{
    double n_rot, head_dim, n_heads = 0, hidden = 0;
    if (!find_number(g, "rope.dimension_count", &n_rot))
        return;
    if (!find_number(g, "attention.key_length", &head_dim)) {
        (void)find_number(g, "attention.head_count", &n_heads);
        (void)find_number(g, "embedding_length", &hidden);
        head_dim = n_heads == 0 ? 0 : floor(hidden / n_heads);
    }
    if (head_dim > 0)
        set_number(out, n_rot >= head_dim ? n_rot / head_dim : nextafter(n_rot / head_dim, 1.0));
}

static void derive_theta(const mf_gguf_source *g, mf_hparam_value *out)
{
    take_key(g, "rope.freq_base", out);
    if (out->kind == MF_HPARAM_ABSENT)
        set_number(out, 10000);
}

/* Under its old name as well. 0 is none: so llama.cpp reads it. */
static void derive_rope_factor(const mf_gguf_source *g, mf_hparam_value *out)
{
    take_key(g, "rope.scaling.factor", out);
    if (out->kind == MF_HPARAM_ABSENT)
        take_key(g, "rope.scale_linear", out);
    if (out->kind == MF_HPARAM_NUMBER && out->number == 0)
        *out = (mf_hparam_value){0};
}

static bool has_rope_factor(const mf_gguf_source *g)
{
    mf_hparam_value factor = {0};
    derive_rope_factor(g, &factor);
    return factor.kind != MF_HPARAM_ABSENT &&
           !(factor.kind == MF_HPARAM_NUMBER && factor.number == 1);
}

static void derive_rope_type(const mf_gguf_source *g, mf_hparam_value *out)
{
    static const char *const types[] = {"yarn", "longrope"};
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.rope.scaling.type", g->arch->name);
    /* a factor without a type is linear, and linear without a factor nothing: so llama.cpp */
    if (mf_gguf_find(&g->head, key) == NULL || mf_gguf_is(&g->head, key, "linear")) {
        if (has_rope_factor(g))
            set_string(out, "linear");
        return;
    }
    if (mf_gguf_is(&g->head, key, "none"))
        return;
    set_string(out, "another");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (mf_gguf_is(&g->head, key, types[i]))
            out->string = types[i];
}

/* A tenth of it is stored. The published models have both multipliers alike, or neither. */
static void derive_mscale(const mf_gguf_source *g, mf_hparam_value *out)
{
    double tenth;
    if (find_number(g, "rope.scaling.yarn_log_multiplier", &tenth))
        set_number(out, round(tenth * 1e7) / 1e6);
}

/* Dims of keys without rotation. Older files have the keys of all heads where newer ones have the
 * latent. */
static void derive_nope(const mf_gguf_source *g, mf_hparam_value *out)
{
    double length, n_rot = 0;
    bool has_length = find_number(g, "attention.key_length_mla", &length) ||
                      find_number(g, "attention.key_length", &length);
    if (has_length && find_number(g, "rope.dimension_count", &n_rot))
        set_number(out, length - n_rot);
}

static void derive_value_dim(const mf_gguf_source *g, mf_hparam_value *out)
{
    take_key(g, "attention.value_length_mla", out);
    if (out->kind == MF_HPARAM_ABSENT)
        take_key(g, "attention.value_length", out);
}

static void derive_normalise(const mf_gguf_source *g, mf_hparam_value *out)
{
    take_key(g, "expert_weights_norm", out);
    if (out->kind == MF_HPARAM_ABSENT)
        set_bool(out, g->arch->normalises);
}

static void derive_scale(const mf_gguf_source *g, mf_hparam_value *out)
{
    take_key(g, "expert_weights_scale", out);
    if (out->kind == MF_HPARAM_ABSENT || (out->kind == MF_HPARAM_NUMBER && out->number == 0))
        set_number(out, 1.0);
}

static void derive_scores(const mf_gguf_source *g, mf_hparam_value *out)
{
    const double function = scores_of(g);
    if (function == 0)
        return;
    set_string(out, function == SCORES_SOFTMAX         ? "softmax"
                    : function == SCORES_SIGMOID       ? "sigmoid"
                    : function == SCORES_SQRT_SOFTPLUS ? "sqrtsoftplus"
                                                       : "another");
}

static void derive_method(const mf_gguf_source *g, mf_hparam_value *out)
{
    double n_groups = 0;
    if (is_sigmoid(g) || scores_of(g) == SCORES_SQRT_SOFTPLUS)
        return;
    (void)find_number(g, "expert_group_count", &n_groups);
    set_string(out, n_groups > 1 ? "group_limited_greedy" : "greedy");
}

static void derive_neighbours(const mf_gguf_source *g, mf_hparam_value *out)
{
    set_bool(out, g->arch->rotates_neighbours);
}

static void derive_truncate(const mf_gguf_source *g, mf_hparam_value *out)
{
    set_bool(out, !g->arch->keeps_ramp);
}

static void derive_tiled(const mf_gguf_source *g, mf_hparam_value *out)
{
    set_bool(out, g->arch->tiles_value_heads);
}

static void derive_linear_value_dim(const mf_gguf_source *g, mf_hparam_value *out)
{
    double inner, n_heads;
    if (find_number(g, "ssm.inner_size", &inner) &&
        find_number(g, "ssm.time_step_rank", &n_heads) && n_heads > 0)
        set_number(out, inner / n_heads);
}

/* --------------------------------------------------------------------------------- the rules -- */

typedef struct gguf_rule {
    const char *name, *key; /* the key also names the field in messages */
    void (*derive)(const mf_gguf_source *g, mf_hparam_value *out);
} gguf_rule;

static const gguf_rule rules[] = {
    {"model_type", "expert_gating_func", derive_family},
    {"num_hidden_layers", "block_count", derive_layers},
    {"num_nextn_predict_layers", "nextn_predict_layers", derive_extra_layers},
    {"hidden_size", "embedding_length", NULL},
    {"vocab_size", "vocab_size", derive_vocab},
    {"max_position_embeddings", "context_length", NULL},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", NULL},
    {"tie_word_embeddings", "(output.weight)", derive_tied},
    {"intermediate_size", "feed_forward_length", derive_hidden},
    {"intermediate_size_mlp", "feed_forward_length", NULL},
    /* attention */
    {"num_attention_heads", "attention.head_count", NULL},
    {"num_key_value_heads", "attention.head_count_kv", derive_kv_heads},
    {"head_dim", "attention.key_length", NULL},
    {"attention_bias", "(attn_q.bias)", derive_biases},
    {"use_qk_norm", "(attn_q_norm.weight)", derive_head_norms},
    {"q_lora_rank", "attention.q_lora_rank", NULL},
    {"kv_lora_rank", "attention.kv_lora_rank", NULL},
    {"qk_nope_head_dim", "attention.key_length_mla", derive_nope},
    {"qk_rope_head_dim", "rope.dimension_count", NULL},
    {"v_head_dim", "attention.value_length_mla", derive_value_dim},
    {"sliding_window", "attention.sliding_window", NULL},
    {"attention_chunk_size", "attention.sliding_window", NULL},
    {"floor_scale", "attention.temperature_length", NULL},
    {"attn_scale", "attention.temperature_scale", NULL},
    {"full_attention_interval", "full_attention_interval", NULL},
    /* rotation */
    {"o_groups", "attention.output_group_count", NULL},
    {"o_lora_rank", "attention.output_lora_rank", NULL},
    {"compress_rope_theta", "attention.compress_rope_freq_base", NULL},
    {"hc_mult", "hyper_connection.count", NULL},
    {"hc_sinkhorn_iters", "hyper_connection.sinkhorn_iterations", NULL},
    {"hc_eps", "hyper_connection.epsilon", NULL},
    {"rope_theta", "rope.freq_base", derive_theta},
    {"rope.theta", "rope.freq_base", derive_theta},
    {"rope.partial_rotary_factor", "rope.dimension_count", derive_partial},
    {"rope.type", "rope.scaling.type", derive_rope_type},
    {"rope.factor", "rope.scaling.factor", derive_rope_factor},
    {"rope.original_max_position_embeddings", "rope.scaling.original_context_length", NULL},
    {"rope.beta_fast", "rope.scaling.yarn_beta_fast", NULL},
    {"rope.beta_slow", "rope.scaling.yarn_beta_slow", NULL},
    {"rope.mscale", "rope.scaling.yarn_log_multiplier", derive_mscale},
    {"rope.mscale_all_dim", "rope.scaling.yarn_log_multiplier", derive_mscale},
    {"rope.truncate", "(architecture)", derive_truncate},
    {"rope.llama_4_scaling_beta", "attention.temperature_scale", NULL},
    {"rope_interleave", "(architecture)", derive_neighbours},
    /* linear attention */
    {"linear_num_key_heads", "ssm.group_count", NULL},
    {"linear_num_value_heads", "ssm.time_step_rank", NULL},
    {"linear_key_head_dim", "ssm.state_size", NULL},
    {"linear_value_head_dim", "ssm.inner_size", derive_linear_value_dim},
    {"linear_conv_kernel_dim", "ssm.conv_kernel", NULL},
    {"linear_value_heads_tiled", "(architecture)", derive_tiled},
    {"linear_attn_config.num_heads", "attention.head_count", NULL},
    {"linear_attn_config.head_dim", "kda.head_dim", NULL},
    {"linear_attn_config.short_conv_kernel_size", "ssm.conv_kernel", NULL},
    /* experts */
    {"num_experts", "expert_count", NULL},
    {"n_routed_experts", "expert_count", NULL},
    {"num_local_experts", "expert_count", NULL},
    {"use_routing_bias", "(exp_probs_b.bias)", derive_router_bias},
    {"moe_num_experts", "expert_count", NULL},
    {"num_experts_per_tok", "expert_used_count", NULL},
    {"moe_k", "expert_used_count", NULL},
    {"moe_topk", "expert_used_count", NULL},
    {"num_experts_per_token", "expert_used_count", NULL},
    {"n_shared_experts", "expert_shared_count", NULL},
    {"moe_num_shared_experts", "expert_shared_count", NULL},
    {"num_shared_expert", "expert_shared_count", NULL},
    {"num_shared_experts", "expert_shared_count", NULL},
    {"moe_layer_start_index", "leading_dense_block_count", NULL},
    {"moe_layer_interval", "interleave_moe_layer_step", NULL},
    {"interleave_moe_layer_step", "interleave_moe_layer_step", NULL},
    {"index_topk", "attention.indexer.top_k", NULL},
    {"index_n_heads", "attention.indexer.head_count", NULL},
    {"index_head_dim", "attention.indexer.key_length", NULL},
    {"num_hash_layers", "hash_layer_count", NULL},
    {"swiglu_limit", "swiglu_clamp_exp", NULL},
    {"moe_intermediate_size", "expert_feed_forward_length", derive_expert_hidden},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", derive_shared_hidden},
    {"first_k_dense_replace", "leading_dense_block_count", NULL},
    {"norm_topk_prob", "expert_weights_norm", derive_normalise},
    {"moe_renormalize", "expert_weights_norm", derive_normalise},
    {"routed_scaling_factor", "expert_weights_scale", derive_scale},
    {"scoring_func", "expert_gating_func", derive_scores},
    {"moe_router_activation_func", "expert_gating_func", derive_scores},
    {"topk_method", "expert_group_count", derive_method},
    {"n_group", "expert_group_count", NULL},
    {"topk_group", "expert_group_used_count", NULL},
    {"num_expert_group", "expert_group_count", NULL},
};

/* What each pair's frequency is divided by. */
static void take_factors(const mf_gguf_source *g, uint32_t index, mf_hparam_value *out)
{
    snprintf(out->field, sizeof out->field, "%s", MF_GGUF_ROPE_FACTORS);
    if (index == MF_HPARAM_WHOLE && g->n_rope_factors != 0) {
        out->kind = MF_HPARAM_LIST;
        out->n_elements = g->n_rope_factors;
    } else if (index < g->n_rope_factors) {
        set_number(out, (double)g->rope_factors[index]);
    }
}

/* One string for each layer, where the file says which layers are recurrent. */
static void take_layer_type(const mf_gguf_source *g, uint32_t index, mf_hparam_value *out)
{
    const mf_gguf_value *v = find_key(g, "attention.recurrent_layers");
    double is_recurrent;
    if (v == NULL || !v->is_array)
        return;
    out->kind = MF_HPARAM_LIST;
    out->n_elements = v->n < g->n_layers ? (uint32_t)v->n : g->n_layers;
    if (index == MF_HPARAM_WHOLE)
        return;
    out->kind = MF_HPARAM_ABSENT;
    if (mf_gguf_number(&g->head, v, index, &is_recurrent))
        set_string(out, is_recurrent != 0 ? "linear_attention" : "full_attention");
}

/* A number for each layer, or more. */
static void take_numbers(const mf_gguf_source *g, const char *key, uint32_t index,
                         mf_hparam_value *out)
{
    const mf_gguf_value *v = find_key(g, key);
    double number;
    snprintf(out->field, sizeof out->field, "%s.%s", g->arch->name, key);
    if (v == NULL || !v->is_array)
        return;
    if (index == MF_HPARAM_WHOLE) {
        out->kind = MF_HPARAM_LIST;
        out->n_elements = v->n < MAX_BLOCKS ? (uint32_t)v->n : MAX_BLOCKS;
    } else if (mf_gguf_number(&g->head, v, index, &number)) {
        set_number(out, number);
    }
}

/* Whether a layer has an indexer of its own. */
static void take_indexer_type(const mf_gguf_source *g, uint32_t index, mf_hparam_value *out)
{
    take_numbers(g, "attention.indexer.types", index, out);
    if (out->kind == MF_HPARAM_NUMBER)
        set_string(out, out->number != 0 ? "full" : "shared");
}

/* Kimi's layers of either kind, numbered from 1: linear ones have no heads for keys and values. */
static void take_layers_of(const mf_gguf_source *g, bool are_linear, uint32_t index,
                           mf_hparam_value *out)
{
    const mf_gguf_value *v = find_key(g, "attention.head_count_kv");
    uint32_t n = 0;
    double n_heads;
    snprintf(out->field, sizeof out->field, "%s.attention.head_count_kv", g->arch->name);
    if (v == NULL || !v->is_array)
        return;
    for (uint32_t i = 0; i < g->n_layers && mf_gguf_number(&g->head, v, i, &n_heads); i++) {
        if ((n_heads == 0) != are_linear)
            continue;
        if (n++ == index)
            set_number(out, i + 1.0);
    }
    if (index != MF_HPARAM_WHOLE)
        return;
    out->kind = MF_HPARAM_LIST;
    out->n_elements = n;
}

void mf_gguf_hparam(const mf_source *source, const char *name, uint32_t index, mf_hparam_value *out)
{
    const mf_gguf_source *g = gguf_of(source);
    *out = (mf_hparam_value){.kind = MF_HPARAM_ABSENT};
    snprintf(out->field, sizeof out->field, "%s", name);
    if (strcmp(name, "layer_types") == 0)
        take_layer_type(g, index, out);
    if (strcmp(name, "rope.factors") == 0)
        take_factors(g, index, out);
    if (strcmp(name, "compress_ratios") == 0)
        take_numbers(g, "attention.compress_ratios", index, out);
    if (strcmp(name, "indexer_types") == 0)
        take_indexer_type(g, index, out);
    if (strcmp(name, "linear_attn_config.kda_layers") == 0)
        take_layers_of(g, true, index, out);
    if (strcmp(name, "linear_attn_config.full_attn_layers") == 0)
        take_layers_of(g, false, index, out);
    for (size_t i = 0; i < sizeof rules / sizeof *rules && index == MF_HPARAM_WHOLE; i++) {
        const gguf_rule *r = &rules[i];
        if (strcmp(r->name, name) != 0)
            continue;
        snprintf(out->field, sizeof out->field, "%s.%s", g->arch->name, r->key);
        if (r->derive != NULL)
            r->derive(g, out);
        else
            take_key(g, r->key, out);
    }
}

/* ----------------------------------------------------------------------------- architecture -- */

static mf_status unknown_arch(const mf_gguf_source *g, mf_error *error)
{
    static const char key[] = "general.architecture";
    mf_gguf_text text = {"(none)", 6};
    char known[384];
    size_t used = 0;
    (void)mf_gguf_string(&g->head, mf_gguf_find(&g->head, key), &text);
    for (size_t i = 0; i < sizeof archs / sizeof *archs && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                                 archs[i].name);
    return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: key %s is %.*s; supported are %s", g->head.path,
                   key, (int)(text.n_bytes > 64 ? 64 : text.n_bytes), text.text, known);
}

/* Keys that change what llama.cpp computes, or that only architectures have which are not here:
 * what converters write into files of those that are means "none". */
static mf_status check_factors(const mf_gguf_source *g, mf_error *error)
{
    static const struct {
        const char *key;
        double none, as_well;
    } factors[] = {
        {"rope.scaling.attn_factor", 1, 1},
        {"rope.scaling.yarn_attn_factor", 1, 1},
        {"rope.scaling.yarn_ext_factor", 1, -1}, /* -1: by the type, as if it were not there */
        {"rope.scaling.alpha", 0, 1},
        {"attention.scale", 0, 0},
        {"logit_scale", 1, 0},
        {"residual_scale", 1, 0},
        {"embedding_scale", 1, 0},
    };
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        double factor;
        if (find_number(g, factors[i].key, &factor) && factor != factors[i].none &&
            factor != factors[i].as_well)
            return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: key %s.%s is %g; only %g is supported",
                           g->head.path, g->arch->name, factors[i].key, factor, factors[i].none);
    }
    return MF_OK;
}

mf_status mf_gguf_find_arch(mf_gguf_source *g, mf_error *error)
{
    double n_blocks = 0, n_extra = 0;
    for (size_t i = 0; i < sizeof archs / sizeof *archs && g->arch == NULL; i++)
        if (mf_gguf_is(&g->head, "general.architecture", archs[i].name))
            g->arch = &archs[i];
    if (g->arch == NULL)
        return unknown_arch(g, error);
    (void)find_number(g, "block_count", &n_blocks);
    if (!(n_blocks >= 1 && n_blocks <= MAX_BLOCKS) || n_blocks != floor(n_blocks))
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: key %s.block_count is missing or not a whole number from 1 to %d",
                       g->head.path, g->arch->name, MAX_BLOCKS);
    (void)find_number(g, "nextn_predict_layers", &n_extra);
    if (!(n_extra >= 0 && n_extra < n_blocks) || n_extra != floor(n_extra))
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: key %s.nextn_predict_layers is not a whole number below block_count",
                       g->head.path, g->arch->name);
    g->n_blocks = (uint32_t)n_blocks;
    g->n_layers = (uint32_t)(n_blocks - n_extra);
    return check_factors(g, error);
}
