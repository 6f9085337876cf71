/* SPDX-License-Identifier: MIT */
/*
 * Kimi-Linear: its preset, the linear attention of its own that three layers of four have, and the
 * config. All else of a layer is DeepSeek's.
 */
#include "make_random_checkpoint.h"

#include <math.h>
#include <stdio.h>

typedef unsigned long long ull;

const mf_rc_shape mf_rc_kimi_linear_preset = {.preset = "kimi-linear-48b-a3b",
                                              .family = MF_RC_KIMI_LINEAR,
                                              .hidden = 2304,
                                              .n_layers = 27,
                                              .n_heads = 32,
                                              .kv_rank = 512,
                                              .nope_dim = 128,
                                              .rope_dim = 64,
                                              .v_dim = 128,
                                              .expert_hidden = 1024,
                                              .dense_hidden = 9216,
                                              .n_vocab = 163840,
                                              .n_experts = 256,
                                              .n_experts_per_token = 8,
                                              .n_shared = 1,
                                              .n_dense = 1,
                                              .n_groups = 1,
                                              .n_kept_groups = 1,
                                              .routed_scale = 2.446,
                                              .rope_theta = 10000,
                                              .n_context = 1048576,
                                              .n_linear_v_heads = 32,
                                              .n_linear_k_heads = 32,
                                              .linear_k_dim = 128,
                                              .linear_v_dim = 128,
                                              .conv_kernel = 4};

/* Layers count from 1 in the config; each fourth and the last attend to all. */
bool mf_rc_is_keyed(const mf_rc_shape *s, uint64_t layer)
{
    return s->family == MF_RC_KIMI_LINEAR && (layer + 1) % 4 != 0 && layer + 1 != s->n_layers;
}

static void add_vector(mf_rc_builder *b, const char *name, const uint64_t dims[3], const char *type,
                       mf_rc_kind kind, float a)
{
    char full[96];
    snprintf(full, sizeof full, "%sself_attn.%s", b->layer, name);
    mf_rc_describe(b, mf_rc_add(b, b->model_prefix, "%s", full), type, dims, kind, a, full);
}

void mf_rc_keyed_attention(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    const uint64_t width = s->n_linear_v_heads * s->linear_k_dim, low = s->linear_k_dim;
    const float small = 0.5f / sqrtf((float)low), taps = sqrtf(3.0f / (float)s->conv_kernel);
    for (const char *letter = "qkv"; *letter != '\0'; letter++) {
        char name[32];
        snprintf(name, sizeof name, "self_attn.%c_proj", *letter);
        mf_rc_add_linear(b, name, width, s->hidden, 0);
        snprintf(name, sizeof name, "%c_conv1d.weight", *letter);
        add_vector(b, name, (uint64_t[3]){width, 1, s->conv_kernel}, "BF16", MF_RC_UNIFORM, taps);
    }
    mf_rc_add_linear(b, "self_attn.f_a_proj", low, s->hidden, 0);
    mf_rc_add_linear(b, "self_attn.f_b_proj", width, low, small);
    mf_rc_add_linear(b, "self_attn.b_proj", s->n_linear_v_heads, s->hidden, 0);
    mf_rc_add_linear(b, "self_attn.g_a_proj", low, s->hidden, 0);
    mf_rc_add_linear(b, "self_attn.g_b_proj", width, low, 0);
    add_vector(b, "A_log", (uint64_t[3]){s->n_linear_v_heads, 0, 0}, "F32", MF_RC_A_LOG_F32, 0);
    add_vector(b, "dt_bias", (uint64_t[3]){width, 0, 0}, "F32", MF_RC_DT_BIAS_F32, 0);
    mf_rc_add_norm(b, b->layer, "self_attn.o_norm.weight", s->linear_v_dim, false);
    mf_rc_add_linear(b, "self_attn.o_proj", s->hidden, width, 0);
}

static void add_layers(const mf_rc_shape *s, bool is_keyed, mf_rc_text *out)
{
    const char *comma = "";
    mf_rc_text_add(out, "        \"%s\": [", is_keyed ? "kda_layers" : "full_attn_layers");
    for (uint64_t i = 0; i < s->n_layers; i++) {
        if (mf_rc_is_keyed(s, i) != is_keyed)
            continue;
        mf_rc_text_add(out, "%s%llu", comma, (ull)i + 1);
        comma = ", ";
    }
    mf_rc_text_add(out, "],\n");
}

void mf_rc_kimi_config(const mf_rc_options *o, mf_rc_text *out)
{
    const mf_rc_shape *s = &o->shape;
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {{"bos_token_id", s->n_vocab > 163584 ? 163584 : 0},
                {"eos_token_id", s->n_vocab > 163586 ? 163586 : s->n_vocab - 1},
                {"first_k_dense_replace", s->n_dense},
                {"hidden_size", s->hidden},
                {"intermediate_size", s->dense_hidden},
                {"kv_lora_rank", s->kv_rank},
                {"model_max_length", s->n_context},
                {"moe_intermediate_size", s->expert_hidden},
                {"moe_layer_freq", 1},
                {"num_attention_heads", s->n_heads},
                {"num_expert_group", s->n_groups},
                {"num_experts", s->n_experts},
                {"num_experts_per_token", s->n_experts_per_token},
                {"num_hidden_layers", s->n_layers},
                {"num_key_value_heads", s->n_heads},
                {"num_nextn_predict_layers", 0},
                {"num_shared_experts", s->n_shared},
                {"qk_nope_head_dim", s->nope_dim},
                {"qk_rope_head_dim", s->rope_dim},
                {"rope_theta", s->rope_theta},
                {"topk_group", s->n_kept_groups},
                {"v_head_dim", s->v_dim},
                {"vocab_size", s->n_vocab}};
    mf_rc_text_add(out, "{\n    \"architectures\": [\n        \"KimiLinearForCausalLM\"\n    ],\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        mf_rc_text_add(out, "    \"%s\": %llu,\n", rows[i].name, (ull)rows[i].value);
    mf_rc_text_add(out, "    \"linear_attn_config\": {\n");
    add_layers(s, false, out);
    add_layers(s, true, out);
    mf_rc_text_add(out,
                   "        \"head_dim\": %llu,\n        \"num_heads\": %llu,\n"
                   "        \"short_conv_kernel_size\": %llu\n    },\n",
                   (ull)s->linear_k_dim, (ull)s->n_linear_v_heads, (ull)s->conv_kernel);
    mf_rc_add_quantization(o, out);
    mf_rc_text_add(out,
                   "    \"hidden_act\": \"silu\",\n    \"mla_use_nope\": true,\n"
                   "    \"model_type\": \"kimi_linear\",\n    \"moe_renormalize\": true,\n"
                   "    \"moe_router_activation_func\": \"sigmoid\",\n    \"q_lora_rank\": null,\n"
                   "    \"rms_norm_eps\": 1e-05,\n    \"rope_scaling\": null,\n"
                   "    \"routed_scaling_factor\": %g,\n    \"tie_word_embeddings\": false,\n"
                   "    \"torch_dtype\": \"bfloat16\",\n    \"use_grouped_topk\": true\n}\n",
                   s->routed_scale);
}
