/* SPDX-License-Identifier: MIT */
/*
 * The DeepSeek family: its presets, the tensors of a layer, and the configs. Multi-token-prediction
 * layers are not written.
 */
#include "make_random_checkpoint.h"

#include <math.h>
#include <stdio.h>

typedef unsigned long long ull;

/* What DeepSeek-V3 and all that grew from it share. */
#define MF_RC_V3                                                                               \
    .hidden = 7168, .n_layers = 61, .q_rank = 1536, .kv_rank = 512, .nope_dim = 128,           \
    .rope_dim = 64, .v_dim = 128, .expert_hidden = 2048, .dense_hidden = 18432, .n_shared = 1, \
    .n_experts_per_token = 8, .mscale = 1.0
#define MF_RC_671B                                                                         \
    .family = MF_RC_DEEPSEEK_V3, MF_RC_V3, .n_heads = 128, .n_experts = 256, .n_dense = 3, \
    .n_groups = 8, .n_kept_groups = 4, .routed_scale = 2.5, .rope_theta = 10000,           \
    .n_context = 163840, .yarn_factor = 40, .yarn_beta_fast = 32

static const mf_rc_shape presets[] = {
    {.preset = "cogito-v2-671b", MF_RC_671B, .n_vocab = 128815},
    {.preset = "deepseek-v3", MF_RC_671B, .n_vocab = 129280},
    {.preset = "deepseek-v3.2",
     MF_RC_V3,
     .family = MF_RC_DEEPSEEK_V32,
     .n_heads = 128,
     .n_experts = 256,
     .n_dense = 3,
     .n_groups = 8,
     .n_kept_groups = 4,
     .routed_scale = 2.5,
     .rope_theta = 10000,
     .n_context = 163840,
     .yarn_factor = 40,
     .yarn_beta_fast = 32,
     .n_vocab = 129280,
     .n_index_heads = 64},
    {.preset = "glm-5",
     .family = MF_RC_GLM_DSA,
     .hidden = 6144,
     .n_layers = 78,
     .n_heads = 64,
     .q_rank = 2048,
     .kv_rank = 512,
     .nope_dim = 192,
     .rope_dim = 64,
     .v_dim = 256,
     .expert_hidden = 2048,
     .dense_hidden = 12288,
     .n_vocab = 154880,
     .n_experts = 256,
     .n_experts_per_token = 8,
     .n_shared = 1,
     .n_dense = 3,
     .n_groups = 1,
     .n_kept_groups = 1,
     .routed_scale = 2.5,
     .rope_theta = 1000000,
     .n_context = 202752,
     .n_index_heads = 32},
    {.preset = "glm-4.7-flash",
     .family = MF_RC_GLM4_LITE,
     .hidden = 2048,
     .n_layers = 47,
     .n_heads = 20,
     .q_rank = 768,
     .kv_rank = 512,
     .nope_dim = 192,
     .rope_dim = 64,
     .v_dim = 256,
     .expert_hidden = 1536,
     .dense_hidden = 10240,
     .n_vocab = 154880,
     .n_experts = 64,
     .n_experts_per_token = 4,
     .n_shared = 1,
     .n_dense = 1,
     .n_groups = 1,
     .n_kept_groups = 1,
     .routed_scale = 1.8,
     .rope_theta = 1000000,
     .n_context = 202752},
    {.preset = "kimi-k2",
     .family = MF_RC_KIMI_K2,
     MF_RC_V3,
     .n_heads = 64,
     .n_vocab = 163840,
     .n_experts = 384,
     .n_dense = 1,
     .n_groups = 1,
     .n_kept_groups = 1,
     .routed_scale = 2.827,
     .rope_theta = 50000,
     .n_context = 131072,
     .yarn_factor = 32,
     .yarn_beta_fast = 1},
    {.preset = "deepseek-v2",
     .family = MF_RC_DEEPSEEK_V2,
     .hidden = 5120,
     .n_layers = 60,
     .n_heads = 128,
     .q_rank = 1536,
     .kv_rank = 512,
     .nope_dim = 128,
     .rope_dim = 64,
     .v_dim = 128,
     .expert_hidden = 1536,
     .dense_hidden = 12288,
     .n_vocab = 102400,
     .n_experts = 160,
     .n_experts_per_token = 6,
     .n_shared = 2,
     .n_dense = 1,
     .n_groups = 8,
     .n_kept_groups = 3,
     .routed_scale = 16,
     .rope_theta = 10000,
     .n_context = 163840,
     .yarn_factor = 40,
     .yarn_beta_fast = 32,
     .mscale = 0.707},
    {.preset = "deepseek-v2-lite",
     .family = MF_RC_DEEPSEEK_V2,
     .hidden = 2048,
     .n_layers = 27,
     .n_heads = 16,
     .kv_rank = 512,
     .nope_dim = 128,
     .rope_dim = 64,
     .v_dim = 128,
     .expert_hidden = 1408,
     .dense_hidden = 10944,
     .n_vocab = 102400,
     .n_experts = 64,
     .n_experts_per_token = 6,
     .n_shared = 2,
     .n_dense = 1,
     .n_groups = 1,
     .n_kept_groups = 1,
     .routed_scale = 1,
     .rope_theta = 10000,
     .n_context = 163840,
     .yarn_factor = 40,
     .yarn_beta_fast = 32,
     .mscale = 0.707},
};

const mf_rc_shape *mf_rc_deepseek_presets(size_t *count)
{
    *count = sizeof presets / sizeof presets[0];
    return presets;
}

/* --------------------------------------------------------------------------------- tensors -- */

static void add_attention(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    uint64_t q = s->n_heads * (s->nope_dim + s->rope_dim);
    if (s->q_rank == 0) {
        mf_rc_add_linear(b, "self_attn.q_proj", q, s->hidden, 0);
    } else {
        mf_rc_add_linear(b, "self_attn.q_a_proj", s->q_rank, s->hidden, 0);
        mf_rc_add_norm(b, b->layer, "self_attn.q_a_layernorm.weight", s->q_rank, false);
        mf_rc_add_linear(b, "self_attn.q_b_proj", q, s->q_rank, 0);
    }
    mf_rc_add_linear(b, "self_attn.kv_a_proj_with_mqa", s->kv_rank + s->rope_dim, s->hidden, 0);
    mf_rc_add_norm(b, b->layer, "self_attn.kv_a_layernorm.weight", s->kv_rank, false);
    if (b->options->split_kv_b) {
        mf_rc_add_stack(b, "self_attn.embed_q", s->n_heads, s->kv_rank, s->nope_dim);
        mf_rc_add_stack(b, "self_attn.unembed_out", s->n_heads, s->v_dim, s->kv_rank);
    } else {
        mf_rc_add_linear(b, "self_attn.kv_b_proj", s->n_heads * (s->nope_dim + s->v_dim),
                         s->kv_rank, 0);
    }
    mf_rc_add_linear(b, "self_attn.o_proj", s->hidden, s->n_heads * s->v_dim, 0);
}

#define INDEX_DIM ((unsigned)MF_RC_INDEX_DIM)

/* What chooses positions beyond the first 2,048. */
static void add_indexer(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    mf_rc_add_linear(b, "self_attn.indexer.wq_b", s->n_index_heads * INDEX_DIM, s->q_rank, 0);
    mf_rc_add_linear(b, "self_attn.indexer.wk", INDEX_DIM, s->hidden, 0);
    mf_rc_add_norm(b, b->layer, "self_attn.indexer.k_norm.weight", INDEX_DIM, false);
    mf_rc_add_norm(b, b->layer, "self_attn.indexer.k_norm.bias", INDEX_DIM, false);
    mf_rc_add_linear(b, "self_attn.indexer.weights_proj", s->n_index_heads, s->hidden, 0);
}

void mf_rc_add_mlp(mf_rc_builder *b, const char *module, uint64_t n_mid)
{
    static const char *const names[3] = {"gate_proj", "up_proj", "down_proj"};
    uint64_t n_hidden = b->options->shape.hidden;
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", module, names[i]);
        mf_rc_add_linear(b, name, i == 2 ? n_hidden : n_mid, i == 2 ? n_mid : n_hidden, 0);
    }
}

void mf_rc_add_plain_router(mf_rc_builder *b, const char *module)
{
    const mf_rc_shape *s = &b->options->shape;
    char name[96];
    snprintf(name, sizeof name, "%s%s.weight", b->layer, module);
    mf_rc_describe(b, mf_rc_add(b, b->model_prefix, "%s", name), "BF16",
                   (uint64_t[3]){s->n_experts, s->hidden, 0}, MF_RC_UNIFORM,
                   sqrtf(3.0f / (float)s->hidden), name);
}

/* BF16 in every form; its bias F32, but BF16 in the prepared form. */
static void add_router(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    char name[96], gate[32];
    snprintf(gate, sizeof gate, "%s.gate", mf_rc_moe_module(s));
    mf_rc_add_plain_router(b, gate);
    if (s->family == MF_RC_DEEPSEEK_V2)
        return;
    bool is_bf16 = b->options->form == MF_RC_PACKED;
    snprintf(name, sizeof name, "%s%s.e_score_correction_bias", b->layer, gate);
    mf_rc_describe(b, mf_rc_add(b, b->model_prefix, "%s", name), is_bf16 ? "BF16" : "F32",
                   (uint64_t[3]){s->n_experts, 0, 0}, is_bf16 ? MF_RC_UNIFORM : MF_RC_UNIFORM_F32,
                   0.1f, name);
}

void mf_rc_deepseek_layer(mf_rc_builder *b, uint64_t layer)
{
    const mf_rc_shape *s = &b->options->shape;
    mf_rc_add_norm(b, b->layer, "input_layernorm.weight", s->hidden, false);
    if (mf_rc_is_keyed(s, layer))
        mf_rc_keyed_attention(b);
    else
        add_attention(b);
    if (s->n_index_heads)
        add_indexer(b);
    mf_rc_add_norm(b, b->layer, "post_attention_layernorm.weight", s->hidden, false);
    if (layer < s->n_dense) {
        mf_rc_add_mlp(b, "mlp", s->dense_hidden);
        return;
    }
    add_router(b);
    char shared[32];
    snprintf(shared, sizeof shared, "%s.shared_experts", mf_rc_moe_module(s));
    if (s->n_shared)
        mf_rc_add_mlp(b, shared, s->shared_hidden);
    mf_rc_add_experts(b);
}

/* ------------------------------------------------------------------------------------ text -- */

static void add_numbers(const mf_rc_shape *s, mf_rc_text *out)
{
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"first_k_dense_replace", s->n_dense},
        {"hidden_size", s->hidden},
        {"intermediate_size", s->dense_hidden},
        {"kv_lora_rank", s->kv_rank},
        {"moe_intermediate_size", s->expert_hidden},
        {"n_group", s->n_groups},
        {"n_routed_experts", s->n_experts},
        {"n_shared_experts", s->n_shared},
        {"num_attention_heads", s->n_heads},
        {"num_experts_per_tok", s->n_experts_per_token},
        {"num_hidden_layers", s->n_layers},
        {"num_key_value_heads", s->n_heads},
        {"qk_nope_head_dim", s->nope_dim},
        {"qk_rope_head_dim", s->rope_dim},
        {"topk_group", s->n_kept_groups},
        {"v_head_dim", s->v_dim},
        {"vocab_size", s->n_vocab},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        mf_rc_text_add(out, "    \"%s\": %llu,\n", rows[i].name, (ull)rows[i].value);
    if (s->q_rank)
        mf_rc_text_add(out, "    \"q_lora_rank\": %llu,\n", (ull)s->q_rank);
    else
        mf_rc_text_add(out, "    \"q_lora_rank\": null,\n");
    if (s->n_index_heads)
        mf_rc_text_add(out,
                       "    \"index_head_dim\": %u,\n    \"index_n_heads\": %llu,\n"
                       "    \"index_topk\": 2048,\n",
                       INDEX_DIM, (ull)s->n_index_heads);
    if (s->yarn_factor == 0) {
        mf_rc_text_add(out,
                       "    \"rms_norm_eps\": 1e-05,\n    \"rope_parameters\": {\n"
                       "        \"rope_theta\": %llu,\n        \"rope_type\": \"default\"\n"
                       "    },\n    \"routed_scaling_factor\": %g,\n",
                       (ull)s->rope_theta, s->routed_scale);
        return;
    }
    mf_rc_text_add(
        out,
        "    \"rms_norm_eps\": 1e-06,\n    \"rope_theta\": %llu,\n"
        "    \"rope_scaling\": {\n        \"beta_fast\": %g,\n        \"beta_slow\": 1,\n"
        "        \"factor\": %g,\n        \"mscale\": %g,\n"
        "        \"mscale_all_dim\": %g,\n"
        "        \"original_max_position_embeddings\": 4096,\n"
        "        \"type\": \"yarn\"\n    },\n    \"routed_scaling_factor\": %g,\n",
        (ull)s->rope_theta, s->yarn_beta_fast, s->yarn_factor, s->mscale, s->mscale,
        s->routed_scale);
}

void mf_rc_add_quantization(const mf_rc_options *o, mf_rc_text *out)
{
    static const char *const keys[2] = {"quantization", "quantization_config"};
    if (o->form == MF_RC_FP8)
        mf_rc_text_add(out, "    \"quantization_config\": {\n"
                            "        \"activation_scheme\": \"dynamic\",\n"
                            "        \"fmt\": \"e4m3\",\n        \"quant_method\": \"fp8\",\n"
                            "        \"weight_block_size\": [\n            128,\n            128\n"
                            "        ]\n    },\n");
    for (size_t i = 0; o->bits < 16 && i < 2; i++)
        mf_rc_text_add(out,
                       "    \"%s\": {\n        \"group_size\": %llu,\n        \"bits\": %llu,\n"
                       "        \"mode\": \"affine\"\n    },\n",
                       keys[i], (ull)o->group, (ull)o->bits);
}

static ull end_token(const mf_rc_shape *s)
{
    ull eos = s->family == MF_RC_KIMI_K2 ? 163586 : s->family == MF_RC_DEEPSEEK_V2 ? 100001 : 1;
    return eos < s->n_vocab ? eos : s->n_vocab - 1;
}

static const char *class_of(mf_rc_family family)
{
    return family == MF_RC_DEEPSEEK_V2    ? "DeepseekV2ForCausalLM"
           : family == MF_RC_DEEPSEEK_V32 ? "DeepseekV32ForCausalLM"
           : family == MF_RC_GLM_DSA      ? "GlmMoeDsaForCausalLM"
           : family == MF_RC_GLM4_LITE    ? "Glm4MoeLiteForCausalLM"
                                          : "DeepseekV3ForCausalLM";
}

static const char *type_of(mf_rc_family family)
{
    return family == MF_RC_DEEPSEEK_V2    ? "deepseek_v2"
           : family == MF_RC_DEEPSEEK_V32 ? "deepseek_v32"
           : family == MF_RC_GLM_DSA      ? "glm_moe_dsa"
           : family == MF_RC_GLM4_LITE    ? "glm4_moe_lite"
           : family == MF_RC_KIMI_K2      ? "kimi_k2"
                                          : "deepseek_v3";
}

void mf_rc_deepseek_config(const mf_rc_options *o, mf_rc_text *out)
{
    const mf_rc_shape *s = &o->shape;
    bool is_v2 = s->family == MF_RC_DEEPSEEK_V2;
    mf_rc_text_add(out, "{\n    \"architectures\": [\n        \"%s\"\n    ],\n",
                   class_of(s->family));
    mf_rc_text_add(out,
                   "    \"attention_bias\": false,\n    \"attention_dropout\": 0.0,\n"
                   "    \"bos_token_id\": 0,\n    \"eos_token_id\": %llu,\n",
                   end_token(s));
    add_numbers(s, out);
    mf_rc_add_quantization(o, out);
    mf_rc_text_add(out,
                   "    \"hidden_act\": \"silu\",\n    \"initializer_range\": 0.02,\n"
                   "    \"max_position_embeddings\": %llu,\n    \"model_type\": \"%s\",\n"
                   "    \"moe_layer_freq\": 1,\n    \"norm_topk_prob\": %s,\n"
                   "    \"num_nextn_predict_layers\": %d,\n    \"scoring_func\": \"%s\",\n"
                   "    \"topk_method\": \"%s\",\n",
                   (ull)s->n_context, type_of(s->family), is_v2 ? "false" : "true", o->has_mtp,
                   is_v2 ? "softmax" : "sigmoid",
                   !is_v2            ? "noaux_tc"
                   : s->n_groups > 1 ? "group_limited_greedy"
                                     : "greedy");
    mf_rc_text_add(out, "    \"tie_word_embeddings\": false,\n    \"torch_dtype\": \"bfloat16\",\n"
                        "    \"transformers_version\": \"4.46.3\",\n    \"use_cache\": true\n}\n");
}

void mf_rc_deepseek_manifest_config(const mf_rc_options *o, mf_rc_text *out)
{
    mf_rc_text_add(out, "  \"config\": {\n");
    add_numbers(&o->shape, out);
    mf_rc_text_add(out, "    \"default_bits\": %llu,\n    \"default_group_size\": %llu\n  }\n",
                   (ull)o->bits, (ull)o->group);
}
