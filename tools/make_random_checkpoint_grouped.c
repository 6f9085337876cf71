/* SPDX-License-Identifier: MIT */
/*
 * Families of grouped-query softmax attention, with experts and without: their presets, the tensors
 * of a layer, and the configs. Multi-token-prediction layers are not written.
 */
#include "make_random_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

#define MF_RC_QWEN3_OF(n_ctx, theta)                                                \
    .family = MF_RC_QWEN3_MOE, .head_norms = 1, .head_dim = 128, .n_vocab = 151936, \
    .n_experts_per_token = 8, .n_context = (n_ctx), .rope_theta = (theta)
#define MF_RC_QWEN3_30B                                                               \
    .hidden = 2048, .n_layers = 48, .n_heads = 32, .n_kv_heads = 4, .n_experts = 128, \
    .expert_hidden = 768, .dense_hidden = 6144
#define MF_RC_GLM4                                                                            \
    .family = MF_RC_GLM4_MOE, .n_heads = 96, .n_kv_heads = 8, .head_dim = 128, .n_rot = 64,   \
    .qkv_bias = 1, .n_vocab = 151552, .n_experts_per_token = 8, .n_shared = 1, .n_groups = 1, \
    .n_kept_groups = 1, .rope_theta = 1000000
#define MF_RC_GLM4_355B                                                            \
    MF_RC_GLM4, .head_norms = 1, .hidden = 5120, .n_layers = 92, .n_experts = 160, \
                .expert_hidden = 1536, .dense_hidden = 12288, .n_dense = 3, .routed_scale = 2.5
#define MF_RC_OSS                                                                            \
    .family = MF_RC_GPT_OSS, .hidden = 2880, .n_heads = 64, .n_kv_heads = 8, .head_dim = 64, \
    .n_vocab = 201088, .n_experts_per_token = 4, .expert_hidden = 2880, .window = 128,       \
    .qkv_bias = 1, .rope_theta = 150000, .n_context = 131072
#define MF_RC_ERNIE45                                                           \
    .family = MF_RC_ERNIE, .head_dim = 128, .n_vocab = 103424, .n_experts = 64, \
    .rope_theta = 500000, .n_context = 131072
#define MF_RC_LLAMA4_OF                                                                     \
    .family = MF_RC_LLAMA4, .hidden = 5120, .n_layers = 48, .n_heads = 40, .n_kv_heads = 8, \
    .head_dim = 128, .n_vocab = 202048, .n_experts_per_token = 1, .expert_hidden = 8192,    \
    .dense_hidden = 16384, .rope_theta = 500000
#define MF_RC_8B .hidden = 4096, .n_heads = 32, .n_kv_heads = 8, .head_dim = 128

static const mf_rc_shape presets[] = {
    {.preset = "qwen3-30b-a3b", MF_RC_QWEN3_OF(40960, 1000000), MF_RC_QWEN3_30B},
    {.preset = "qwen3-coder-30b-a3b", MF_RC_QWEN3_OF(262144, 10000000), MF_RC_QWEN3_30B},
    {.preset = "qwen3-235b-a22b",
     MF_RC_QWEN3_OF(40960, 1000000),
     .hidden = 4096,
     .n_layers = 94,
     .n_heads = 64,
     .n_kv_heads = 4,
     .n_experts = 128,
     .expert_hidden = 1536,
     .dense_hidden = 12288},
    {.preset = "qwen3-coder-480b-a35b",
     MF_RC_QWEN3_OF(262144, 10000000),
     .hidden = 6144,
     .n_layers = 62,
     .n_heads = 96,
     .n_kv_heads = 8,
     .n_experts = 160,
     .expert_hidden = 2560,
     .dense_hidden = 8192},
    {.preset = "glm-4.5", MF_RC_GLM4_355B, .n_context = 131072},
    {.preset = "glm-4.6", MF_RC_GLM4_355B, .n_context = 202752},
    {.preset = "glm-4.5-air",
     MF_RC_GLM4,
     .hidden = 4096,
     .n_layers = 46,
     .n_experts = 128,
     .expert_hidden = 1408,
     .dense_hidden = 10944,
     .n_dense = 1,
     .routed_scale = 1.0,
     .n_context = 131072},
    {.preset = "minimax-m2",
     .family = MF_RC_MINIMAX_M2,
     .head_norms = 2,
     .hidden = 3072,
     .n_layers = 62,
     .n_heads = 48,
     .n_kv_heads = 8,
     .head_dim = 128,
     .n_rot = 64,
     .n_vocab = 200064,
     .n_experts = 256,
     .n_experts_per_token = 8,
     .expert_hidden = 1536,
     .rope_theta = 5000000,
     .n_context = 196608},
    {.preset = "gpt-oss-20b", MF_RC_OSS, .n_layers = 24, .n_experts = 32},
    {.preset = "gpt-oss-120b", MF_RC_OSS, .n_layers = 36, .n_experts = 128},
    {.preset = "ernie-4.5-21b-a3b",
     MF_RC_ERNIE45,
     .is_tied = 1,
     .hidden = 2560,
     .n_layers = 28,
     .n_heads = 20,
     .n_kv_heads = 4,
     .expert_hidden = 1536,
     .n_experts_per_token = 6,
     .dense_hidden = 12288,
     .n_dense = 1,
     .n_shared = 2},
    {.preset = "ernie-4.5-300b-a47b",
     MF_RC_ERNIE45,
     .hidden = 8192,
     .n_layers = 54,
     .n_heads = 64,
     .n_kv_heads = 8,
     .expert_hidden = 3584,
     .n_experts_per_token = 8,
     .dense_hidden = 28672,
     .n_dense = 3},
    {.preset = "hunyuan-a13b",
     .family = MF_RC_HUNYUAN,
     MF_RC_8B,
     .is_tied = 1,
     .head_norms = 1,
     .n_layers = 32,
     .n_vocab = 128167,
     .n_experts = 64,
     .n_experts_per_token = 8,
     .expert_hidden = 3072,
     .n_shared = 1,
     .rope_theta = 10000,
     .n_context = 32768},
    {.preset = "llama-4-scout",
     MF_RC_LLAMA4_OF,
     .n_experts = 16,
     .full_attention_interval = 1,
     .n_context = 10485760},
    {.preset = "llama-4-maverick",
     MF_RC_LLAMA4_OF,
     .n_experts = 128,
     .full_attention_interval = 2,
     .n_context = 1048576},
    {.preset = "mixtral-8x7b",
     .family = MF_RC_MIXTRAL,
     MF_RC_8B,
     .n_layers = 32,
     .n_vocab = 32000,
     .n_experts = 8,
     .n_experts_per_token = 2,
     .expert_hidden = 14336,
     .rope_theta = 1000000,
     .n_context = 32768},
    {.preset = "qwen2-57b-a14b",
     .family = MF_RC_QWEN2_MOE,
     .qkv_bias = 1,
     .hidden = 3584,
     .n_layers = 28,
     .n_heads = 28,
     .n_kv_heads = 4,
     .head_dim = 128,
     .n_vocab = 151936,
     .n_experts = 64,
     .n_experts_per_token = 8,
     .expert_hidden = 2560,
     .shared_hidden = 20480,
     .dense_hidden = 18944,
     .rope_theta = 1000000,
     .n_context = 131072},
    {.preset = "qwen3-8b",
     .family = MF_RC_QWEN3,
     .head_norms = 1,
     MF_RC_8B,
     .n_layers = 36,
     .n_vocab = 151936,
     .dense_hidden = 12288,
     .rope_theta = 1000000,
     .n_context = 40960},
    {.preset = "llama-3.1-8b",
     .family = MF_RC_LLAMA,
     MF_RC_8B,
     .n_layers = 32,
     .n_vocab = 128256,
     .dense_hidden = 14336,
     .rope_theta = 500000,
     .n_context = 131072},
    {.preset = "mistral-7b",
     .family = MF_RC_MISTRAL,
     MF_RC_8B,
     .n_layers = 32,
     .n_vocab = 32768,
     .dense_hidden = 14336,
     .rope_theta = 1000000,
     .n_context = 32768},
};

const mf_rc_shape *mf_rc_grouped_presets(size_t *count)
{
    *count = sizeof presets / sizeof presets[0];
    return presets;
}

bool mf_rc_is_w123(const mf_rc_shape *s)
{
    return s->family == MF_RC_MIXTRAL || s->family == MF_RC_MINIMAX_M2 ||
           s->family == MF_RC_KIMI_LINEAR;
}

/* --------------------------------------------------------------------------------- tensors -- */

static void add_vector(mf_rc_builder *b, const char *name, uint64_t n, bool is_f32)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", b->layer, name);
    mf_rc_describe(b, mf_rc_add(b, b->model_prefix, "%s", full), is_f32 ? "F32" : "BF16",
                   (uint64_t[3]){n, 0, 0}, is_f32 ? MF_RC_UNIFORM_F32 : MF_RC_UNIFORM, 0.1f, full);
}

static void add_attention(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    const uint64_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    const uint64_t n_heads = s->head_norms == 2 ? s->n_heads : 1;
    const uint64_t n_kv_heads = s->head_norms == 2 ? s->n_kv_heads : 1;
    mf_rc_add_linear(b, "self_attn.q_proj", q, s->hidden, 0);
    mf_rc_add_linear(b, "self_attn.k_proj", kv, s->hidden, 0);
    mf_rc_add_linear(b, "self_attn.v_proj", kv, s->hidden, 0);
    mf_rc_add_linear(b, "self_attn.o_proj", s->hidden, q, 0);
    if (s->qkv_bias) {
        add_vector(b, "self_attn.q_proj.bias", q, false);
        add_vector(b, "self_attn.k_proj.bias", kv, false);
        add_vector(b, "self_attn.v_proj.bias", kv, false);
    }
    if (s->family == MF_RC_GPT_OSS) {
        add_vector(b, "self_attn.o_proj.bias", s->hidden, false);
        add_vector(b, "self_attn.sinks", s->n_heads, false);
    }
    if (s->head_norms == 0)
        return;
    const bool is_last = s->family == MF_RC_HUNYUAN;
    mf_rc_add_norm(b, b->layer,
                   is_last ? "self_attn.query_layernorm.weight" : "self_attn.q_norm.weight",
                   n_heads * s->head_dim, false);
    mf_rc_add_norm(b, b->layer,
                   is_last ? "self_attn.key_layernorm.weight" : "self_attn.k_norm.weight",
                   n_kv_heads * s->head_dim, false);
}

/* A bias of every expert's matrix. */
static void add_biases(mf_rc_builder *b, const char *name, uint64_t n)
{
    char full[96];
    snprintf(full, sizeof full, "%smlp.experts.%s.bias", b->layer, name);
    mf_rc_describe(b, mf_rc_add(b, b->model_prefix, "%s", full), "BF16",
                   (uint64_t[3]){b->options->shape.n_experts, n, 0}, MF_RC_UNIFORM, 0.1f, full);
}

/* As published: blocks of 32 columns, and an exponent of each. */
static void add_mxfp4(mf_rc_builder *b, const char *name, uint64_t n_out, uint64_t n_in)
{
    const float rms = 2.926f; /* of random e2m1 codes */
    const uint64_t n_experts = b->options->shape.n_experts;
    const int exponent = (int)lroundf(log2f(1.0f / (sqrtf((float)n_in) * rms)));
    char full[96];
    snprintf(full, sizeof full, "%smlp.experts.%s_blocks", b->layer, name);
    mf_rc_tensor *t = mf_rc_add(b, b->model_prefix, "%s", full);
    mf_rc_describe(b, t, "U8", (uint64_t[3]){n_experts, n_out, n_in / 2}, MF_RC_CODES, 0, full);
    t->n_dims = 4;
    t->dims[2] = n_in / 32;
    t->dims[3] = 16;
    t->is_expert = true;
    snprintf(full, sizeof full, "%smlp.experts.%s_scales", b->layer, name);
    t = mf_rc_add(b, b->model_prefix, "%s", full);
    mf_rc_describe(b, t, "U8", (uint64_t[3]){n_experts, n_out, n_in / 32}, MF_RC_E8M0, 0, full);
    t->parts[0].bits = (uint32_t)(127 + exponent);
    t->is_expert = true;
}

static void add_published_oss(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    const uint64_t n_both = 2 * s->expert_hidden;
    add_mxfp4(b, "gate_up_proj", n_both, s->hidden);
    add_mxfp4(b, "down_proj", s->hidden, s->expert_hidden);
    char full[96];
    for (int i = 0; i < 2; i++) {
        snprintf(full, sizeof full, "%smlp.experts.%s_proj_bias", b->layer, i ? "down" : "gate_up");
        mf_rc_describe(b, mf_rc_add(b, b->model_prefix, "%s", full), "BF16",
                       (uint64_t[3]){s->n_experts, i ? s->hidden : n_both, 0}, MF_RC_UNIFORM, 0.1f,
                       full);
    }
}

static void add_oss(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    mf_rc_add_plain_router(b, "mlp.router");
    add_vector(b, "mlp.router.bias", s->n_experts, false);
    if (b->options->form == MF_RC_HF) {
        add_published_oss(b);
        return;
    }
    add_biases(b, "gate_proj", s->expert_hidden);
    add_biases(b, "up_proj", s->expert_hidden);
    add_biases(b, "down_proj", s->hidden);
    mf_rc_add_experts(b);
}

static void add_moe(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    if (s->family == MF_RC_GPT_OSS) {
        add_oss(b);
        return;
    }
    if (s->family == MF_RC_GLM4_MOE) {
        mf_rc_add_plain_router(b, "mlp.gate");
        mf_rc_add_mlp(b, "mlp.shared_experts", s->n_shared * s->expert_hidden);
    } else if (s->family == MF_RC_ERNIE) {
        mf_rc_add_plain_router(b, "mlp.gate");
        add_vector(b, "mlp.moe_statics.e_score_correction_bias", s->n_experts, true);
        if (s->n_shared)
            mf_rc_add_mlp(b, "mlp.shared_experts", s->n_shared * s->expert_hidden);
    } else if (s->family == MF_RC_LLAMA4) {
        mf_rc_add_plain_router(b, "feed_forward.router");
        mf_rc_add_mlp(b, "feed_forward.shared_expert", s->expert_hidden);
    } else if (s->family == MF_RC_HUNYUAN) {
        mf_rc_add_plain_router(b, "mlp.gate.wg");
        mf_rc_add_mlp(b, "mlp.shared_mlp", s->n_shared * s->expert_hidden);
    } else if (s->family == MF_RC_MINIMAX_M2) {
        mf_rc_add_plain_router(b, "block_sparse_moe.gate");
        add_vector(b, "block_sparse_moe.e_score_correction_bias", s->n_experts, true);
    } else {
        mf_rc_add_plain_router(b, mf_rc_is_w123(s) ? "block_sparse_moe.gate" : "mlp.gate");
    }
    if (s->family == MF_RC_GLM4_MOE)
        add_vector(b, "mlp.gate.e_score_correction_bias", s->n_experts, true);
    if (s->family == MF_RC_QWEN2_MOE) {
        mf_rc_add_linear(b, "mlp.shared_expert_gate", 1, s->hidden, 0);
        mf_rc_add_mlp(b, "mlp.shared_expert", s->shared_hidden);
    }
    mf_rc_add_experts(b);
}

void mf_rc_grouped_layer(mf_rc_builder *b, uint64_t layer)
{
    const mf_rc_shape *s = &b->options->shape;
    mf_rc_add_norm(b, b->layer, "input_layernorm.weight", s->hidden, false);
    add_attention(b);
    mf_rc_add_norm(b, b->layer, "post_attention_layernorm.weight", s->hidden, false);
    if (s->family == MF_RC_LLAMA4 && (layer + 1) % s->full_attention_interval != 0)
        mf_rc_add_mlp(b, "feed_forward", s->dense_hidden);
    else if (layer < s->n_dense || s->n_experts == 0)
        mf_rc_add_mlp(b, "mlp", s->dense_hidden);
    else
        add_moe(b);
}

/* ------------------------------------------------------------------------------------ text -- */

typedef struct family_words {
    const char *type, *class;
    const char *n_experts, *expert_hidden;
    const char *n_per_token; /* NULL: num_experts_per_tok */
} family_words;

static family_words words_of(mf_rc_family family)
{
    switch (family) {
    case MF_RC_QWEN3_MOE:
        return (family_words){"qwen3_moe", "Qwen3Moe", "num_experts", "moe_intermediate_size",
                              NULL};
    case MF_RC_QWEN2_MOE:
        return (family_words){"qwen2_moe", "Qwen2Moe", "num_experts", "moe_intermediate_size",
                              NULL};
    case MF_RC_GLM4_MOE:
        return (family_words){"glm4_moe", "Glm4Moe", "n_routed_experts", "moe_intermediate_size",
                              NULL};
    case MF_RC_MINIMAX_M2:
        return (family_words){"minimax_m2", "MiniMaxM2", "num_local_experts", "intermediate_size",
                              NULL};
    case MF_RC_MIXTRAL:
        return (family_words){"mixtral", "Mixtral", "num_local_experts", "intermediate_size", NULL};
    case MF_RC_ERNIE:
        return (family_words){"ernie4_5_moe", "Ernie4_5_Moe", "moe_num_experts",
                              "moe_intermediate_size", "moe_k"};
    case MF_RC_HUNYUAN:
        return (family_words){"hunyuan_v1_moe", "HunYuanMoEV1", "num_experts", "intermediate_size",
                              "moe_topk"};
    case MF_RC_GPT_OSS:
        return (family_words){"gpt_oss", "GptOss", "num_local_experts", "intermediate_size", NULL};
    case MF_RC_LLAMA4:
        return (family_words){"llama4_text", "Llama4", "num_local_experts", "intermediate_size",
                              NULL};
    case MF_RC_QWEN3:
        return (family_words){"qwen3", "Qwen3", NULL, NULL, NULL};
    case MF_RC_MISTRAL:
        return (family_words){"mistral", "Mistral", NULL, NULL, NULL};
    default:
        return (family_words){"llama", "Llama", NULL, NULL, NULL};
    }
}

static void add_number(mf_rc_text *out, const char *name, uint64_t value)
{
    mf_rc_text_add(out, "    \"%s\": %llu,\n", name, (ull)value);
}

static void add_numbers(const mf_rc_shape *s, const family_words *w, mf_rc_text *out)
{
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {{"head_dim", s->head_dim},
                {"hidden_size", s->hidden},
                {"max_position_embeddings", s->n_context},
                {"num_attention_heads", s->n_heads},
                {"num_hidden_layers", s->n_layers},
                {"num_key_value_heads", s->n_kv_heads},
                {"rope_theta", s->rope_theta},
                {"vocab_size", s->n_vocab},
                {"eos_token_id", s->n_vocab - 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        add_number(out, rows[i].name, rows[i].value);
    if (w->n_experts) {
        add_number(out, w->n_experts, s->n_experts);
        add_number(out, w->n_per_token ? w->n_per_token : "num_experts_per_tok",
                   s->n_experts_per_token);
        add_number(out, w->expert_hidden, s->expert_hidden);
    }
    if (s->dense_hidden && !(w->n_experts && strcmp(w->expert_hidden, "intermediate_size") == 0))
        add_number(out, "intermediate_size", s->dense_hidden);
}

static void add_family(const mf_rc_shape *s, mf_rc_text *out)
{
    if (s->family == MF_RC_GLM4_MOE) {
        add_number(out, "first_k_dense_replace", s->n_dense);
        add_number(out, "n_shared_experts", s->n_shared);
        mf_rc_text_add(out,
                       "    \"attention_bias\": true,\n    \"n_group\": 1,\n"
                       "    \"topk_group\": 1,\n    \"num_nextn_predict_layers\": 0,\n"
                       "    \"norm_topk_prob\": true,\n    \"partial_rotary_factor\": 0.5,\n"
                       "    \"routed_scaling_factor\": %g,\n    \"use_qk_norm\": %s,\n",
                       s->routed_scale, s->head_norms ? "true" : "false");
    } else if (s->family == MF_RC_MINIMAX_M2) {
        add_number(out, "rotary_dim", s->n_rot);
        mf_rc_text_add(out, "    \"qk_norm_type\": \"per_layer\",\n    \"use_qk_norm\": true,\n"
                            "    \"scoring_func\": \"sigmoid\",\n    \"use_routing_bias\": true,\n"
                            "    \"shared_intermediate_size\": 0,\n");
    } else if (s->family == MF_RC_GPT_OSS) {
        add_number(out, "sliding_window", s->window);
        mf_rc_text_add(out, "    \"attention_bias\": true,\n    \"swiglu_limit\": 7.0,\n"
                            "    \"rope_scaling\": {\n        \"beta_fast\": 32.0,\n"
                            "        \"beta_slow\": 1.0,\n        \"factor\": 32.0,\n"
                            "        \"original_max_position_embeddings\": 4096,\n"
                            "        \"rope_type\": \"yarn\",\n        \"truncate\": false\n"
                            "    },\n");
    } else if (s->family == MF_RC_ERNIE) {
        add_number(out, "moe_layer_start_index", s->n_dense);
        add_number(out, "moe_num_shared_experts", s->n_shared);
        mf_rc_text_add(out, "    \"moe_layer_end_index\": -1,\n    \"moe_layer_interval\": 1,\n"
                            "    \"use_bias\": false,\n");
    } else if (s->family == MF_RC_HUNYUAN) {
        mf_rc_text_add(out, "    \"rope_scaling\": {\n        \"alpha\": 1000.0,\n"
                            "        \"factor\": 1.0,\n        \"type\": \"dynamic\"\n    },\n"
                            "    \"use_qk_norm\": true,\n");
    } else if (s->family == MF_RC_LLAMA4) {
        add_number(out, "interleave_moe_layer_step", s->full_attention_interval);
        add_number(out, "intermediate_size_mlp", s->dense_hidden);
        mf_rc_text_add(out,
                       "    \"attention_chunk_size\": 8192,\n    \"attn_scale\": 0.1,\n"
                       "    \"attn_temperature_tuning\": 4,\n    \"floor_scale\": 8192,\n"
                       "    \"use_qk_norm\": %s,\n",
                       s->full_attention_interval == 1 ? "true" : "false");
    } else if (s->family == MF_RC_LLAMA) {
        mf_rc_text_add(out,
                       "    \"rope_scaling\": {\n        \"factor\": 8.0,\n"
                       "        \"high_freq_factor\": 4.0,\n        \"low_freq_factor\": 1.0,\n"
                       "        \"original_max_position_embeddings\": 8192,\n"
                       "        \"rope_type\": \"llama3\"\n    },\n");
    } else if (s->family == MF_RC_MIXTRAL || s->family == MF_RC_MISTRAL) {
        mf_rc_text_add(out, "    \"sliding_window\": null,\n");
    } else if (s->family == MF_RC_QWEN2_MOE) {
        add_number(out, "shared_expert_intermediate_size", s->shared_hidden);
        mf_rc_text_add(out, "    \"norm_topk_prob\": false,\n");
    }
    if (s->family == MF_RC_QWEN3_MOE)
        mf_rc_text_add(out, "    \"norm_topk_prob\": true,\n");
    if (s->family == MF_RC_QWEN3_MOE || s->family == MF_RC_QWEN2_MOE)
        mf_rc_text_add(out, "    \"decoder_sparse_step\": 1,\n    \"mlp_only_layers\": [],\n");
}

void mf_rc_grouped_config(const mf_rc_options *o, mf_rc_text *out)
{
    const mf_rc_shape *s = &o->shape;
    const family_words w = words_of(s->family);
    const bool is_fine = s->family == MF_RC_QWEN3_MOE || s->family == MF_RC_MINIMAX_M2 ||
                         s->family == MF_RC_QWEN2_MOE || s->family == MF_RC_QWEN3;
    mf_rc_text_add(out, "{\n    \"architectures\": [\n        \"%sForCausalLM\"\n    ],\n",
                   w.class);
    add_numbers(s, &w, out);
    add_family(s, out);
    mf_rc_add_quantization(o, out);
    if (s->family == MF_RC_GPT_OSS && o->form == MF_RC_HF)
        mf_rc_text_add(out, "    \"quantization_config\": {\n"
                            "        \"quant_method\": \"mxfp4\"\n    },\n");
    mf_rc_text_add(out,
                   "    \"hidden_act\": \"silu\",\n    \"model_type\": \"%s\",\n"
                   "    \"rms_norm_eps\": %s,\n    \"tie_word_embeddings\": %s,\n"
                   "    \"torch_dtype\": \"bfloat16\"\n}\n",
                   w.type, is_fine ? "1e-06" : "1e-05", s->is_tied ? "true" : "false");
}
