/* SPDX-License-Identifier: MIT */
/*
 * The JSON texts of a checkpoint: config.json, shard headers and their index, and the packed form's
 * manifest and layout. Layout and key order follow the programs that publish such checkpoints:
 * mlx-lm (sorted keys, header not padded), Hugging Face (header padded to 8 bytes), and the
 * reference's own converter.
 */
#include "make_random_checkpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

void mf_rc_text_add(mf_rc_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (text->length + (size_t)n + 1 > text->capacity) {
        text->capacity = (text->length + (size_t)n + 1) * 2;
        text->data = mf_rc_alloc(text->data, text->capacity);
    }
    vsnprintf(text->data + text->length, (size_t)n + 1, format, again);
    va_end(again);
    text->length += (size_t)n;
}

void mf_rc_text_free(mf_rc_text *text)
{
    free(text->data);
    *text = (mf_rc_text){0};
}

static const char *layer_type(const mf_rc_shape *s, uint64_t i)
{
    return (i + 1) % s->full_attention_interval == 0 ? "full_attention" : "linear_attention";
}

static void add_layer_types(const mf_rc_shape *s, const char *indent, mf_rc_text *out)
{
    mf_rc_text_add(out, "%s\"layer_types\": [", indent);
    for (uint64_t i = 0; i < s->n_layers; i++)
        mf_rc_text_add(out, "%s\n%s    \"%s\"", i ? "," : "", indent, layer_type(s, i));
    mf_rc_text_add(out, "\n%s],\n", indent);
}

/* The shape's numbers, which both families name alike. */
static void add_numbers(const mf_rc_shape *s, const char *in, mf_rc_text *out)
{
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"full_attention_interval", s->full_attention_interval},
        {"head_dim", s->head_dim},
        {"hidden_size", s->hidden},
        {"linear_conv_kernel_dim", s->conv_kernel},
        {"linear_key_head_dim", s->linear_k_dim},
        {"linear_num_key_heads", s->n_linear_k_heads},
        {"linear_num_value_heads", s->n_linear_v_heads},
        {"linear_value_head_dim", s->linear_v_dim},
        {"max_position_embeddings", s->n_context},
        {"moe_intermediate_size", s->expert_hidden},
        {"num_attention_heads", s->n_heads},
        {"num_experts", s->n_experts},
        {"num_experts_per_tok", s->n_experts_per_token},
        {"num_hidden_layers", s->n_layers},
        {"num_key_value_heads", s->n_kv_heads},
        {"shared_expert_intermediate_size", s->shared_hidden},
        {"vocab_size", s->n_vocab},
    };
    mf_rc_text_add(out, "%s\"attention_bias\": false,\n%s\"attention_dropout\": 0.0,\n", in, in);
    mf_rc_text_add(out, "%s\"hidden_act\": \"silu\",\n%s\"initializer_range\": 0.02,\n", in, in);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].value)
            mf_rc_text_add(out, "%s\"%s\": %llu,\n", in, rows[i].name, (ull)rows[i].value);
    mf_rc_text_add(out, "%s\"mlp_only_layers\": [],\n%s\"rms_norm_eps\": 1e-06,\n", in, in);
    mf_rc_text_add(out, "%s\"router_aux_loss_coef\": 0.001,\n%s\"use_cache\": true,\n", in, in);
}

static const char *qwen3_5_type(const mf_rc_shape *s)
{
    return s->n_experts ? "qwen3_5_moe" : "qwen3_5";
}

static void add_qwen3_5_text_config(const mf_rc_options *o, mf_rc_text *out)
{
    const mf_rc_shape *s = &o->shape;
    const char *in = "        ";
    mf_rc_text_add(out, "    \"text_config\": {\n");
    add_numbers(s, in, out);
    add_layer_types(s, in, out);
    if (s->dense_hidden)
        mf_rc_text_add(out, "%s\"intermediate_size\": %llu,\n", in, (ull)s->dense_hidden);
    mf_rc_text_add(out,
                   "        \"attn_output_gate\": true,\n"
                   "        \"dtype\": \"bfloat16\",\n"
                   "        \"eos_token_id\": %llu,\n"
                   "        \"mamba_ssm_dtype\": \"float32\",\n"
                   "        \"model_type\": \"%s_text\",\n"
                   "        \"mtp_num_hidden_layers\": %d,\n"
                   "        \"mtp_use_dedicated_embeddings\": false,\n"
                   "        \"rope_parameters\": {\n"
                   "            \"mrope_interleaved\": true,\n"
                   "            \"mrope_section\": [\n"
                   "                11,\n                11,\n                10\n"
                   "            ],\n"
                   "            \"partial_rotary_factor\": 0.25,\n"
                   "            \"rope_theta\": %llu,\n"
                   "            \"rope_type\": \"default\"\n"
                   "        }\n"
                   "    },\n",
                   s->n_vocab == 248320 ? 248044ULL : (ull)s->n_vocab - 1, qwen3_5_type(s),
                   o->has_mtp, (ull)s->rope_theta);
}

static void add_qwen3_next_config(const mf_rc_shape *s, mf_rc_text *out)
{
    const char *in = "    ";
    add_numbers(s, in, out);
    mf_rc_text_add(out,
                   "    \"decoder_sparse_step\": 1,\n"
                   "    \"eos_token_id\": %llu,\n"
                   "    \"intermediate_size\": %llu,\n"
                   "    \"norm_topk_prob\": true,\n"
                   "    \"output_router_logits\": false,\n"
                   "    \"partial_rotary_factor\": 0.25,\n"
                   "    \"rope_scaling\": null,\n"
                   "    \"rope_theta\": %llu,\n"
                   "    \"torch_dtype\": \"bfloat16\",\n",
                   s->n_vocab == 151936 ? 151645ULL : (ull)s->n_vocab - 1, (ull)s->dense_hidden,
                   (ull)s->rope_theta);
}

static void add_quantization(const mf_rc_options *o, const char *key, mf_rc_text *out)
{
    const char *prefix = o->shape.family == MF_RC_QWEN3_5_MOE ? "language_model.model." : "model.";
    mf_rc_text_add(out,
                   "    \"%s\": {\n        \"group_size\": %llu,\n        \"bits\": %llu,\n"
                   "        \"mode\": \"affine\"",
                   key, (ull)o->group, (ull)o->bits);
    static const char *const names[2] = {"mlp.gate", "mlp.shared_expert_gate"};
    const uint64_t n_layers = o->shape.n_layers;
    for (uint64_t i = 0; o->shape.n_experts && i < 2 * (n_layers + (o->has_mtp ? 1 : 0)); i++) {
        const bool is_mtp = i / 2 == n_layers;
        mf_rc_text_add(out,
                       ",\n        \"%slayers.%llu.%s\": {\n            \"group_size\": 64,\n"
                       "            \"bits\": 8\n        }",
                       is_mtp ? "mtp." : prefix, is_mtp ? 0 : (ull)(i / 2), names[i % 2]);
    }
    mf_rc_text_add(out, "\n    },\n");
}

void mf_rc_config_text(const mf_rc_options *o, mf_rc_text *out)
{
    if (mf_rc_is_v4(&o->shape)) {
        mf_rc_v4_config(o, out);
        return;
    }
    if (o->shape.family == MF_RC_KIMI_LINEAR) {
        mf_rc_kimi_config(o, out);
        return;
    }
    if (mf_rc_is_deepseek(&o->shape)) {
        mf_rc_deepseek_config(o, out);
        return;
    }
    if (mf_rc_is_grouped(&o->shape)) {
        mf_rc_grouped_config(o, out);
        return;
    }
    bool is_next = o->shape.family == MF_RC_QWEN3_NEXT;
    mf_rc_text_add(out, "{\n    \"architectures\": [\n        \"%s\"\n    ],\n",
                   is_next              ? "Qwen3NextForCausalLM"
                   : o->shape.n_experts ? "Qwen3_5MoeForConditionalGeneration"
                                        : "Qwen3_5ForConditionalGeneration");
    if (!is_next)
        mf_rc_text_add(out, "    \"image_token_id\": 248056,\n");
    mf_rc_text_add(out, "    \"model_type\": \"%s\",\n",
                   is_next ? "qwen3_next" : qwen3_5_type(&o->shape));
    if (o->form != MF_RC_HF && o->bits < 16) {
        add_quantization(o, "quantization", out);
        add_quantization(o, "quantization_config", out);
    }
    if (is_next)
        add_qwen3_next_config(&o->shape, out);
    else
        add_qwen3_5_text_config(o, out);
    mf_rc_text_add(out, "    \"tie_word_embeddings\": false,\n");
    if (is_next)
        mf_rc_text_add(out, "    \"transformers_version\": \"4.57.0.dev0\"\n}\n");
    else
        mf_rc_text_add(out, "    \"transformers_version\": \"4.57.0.dev0\",\n"
                            "    \"video_token_id\": 248057,\n"
                            "    \"vision_end_token_id\": 248054,\n"
                            "    \"vision_start_token_id\": 248053\n}\n");
}

static void add_dims(const mf_rc_tensor *t, const char *comma, mf_rc_text *out)
{
    mf_rc_text_add(out, "[");
    for (uint32_t i = 0; i < t->n_dims; i++)
        mf_rc_text_add(out, "%s%llu", i ? comma : "", (ull)t->dims[i]);
    mf_rc_text_add(out, "]");
}

/* In the files of Hugging Face, not of mlx-lm. */
static bool is_published(const mf_rc_options *o)
{
    return o->form == MF_RC_HF || o->form == MF_RC_FP8;
}

void mf_rc_header_text(const mf_rc_options *o, const mf_rc_tensor *tensors, size_t count,
                       mf_rc_text *out)
{
    uint64_t at = 0;
    mf_rc_text_add(out, "........{\"__metadata__\":{\"format\":\"%s\"}",
                   is_published(o) ? "pt" : "mlx");
    for (size_t i = 0; i < count; i++) {
        const mf_rc_tensor *t = &tensors[i];
        mf_rc_text_add(out,
                       ",\"%s\":{\"data_offsets\":[%llu,%llu],\"dtype\":\"%s\",\"shape\":", t->name,
                       (ull)at, (ull)(at + t->n_bytes), t->dtype);
        add_dims(t, ",", out);
        mf_rc_text_add(out, "}");
        at += t->n_bytes;
    }
    mf_rc_text_add(out, "}");
    while (is_published(o) && out->length % 8)
        mf_rc_text_add(out, " ");
    uint64_t n = out->length - 8;
    for (size_t i = 0; i < 8; i++)
        out->data[i] = (char)(n >> (8 * i));
}

void mf_rc_shard_name(size_t i, size_t n, char name[64])
{
    if (n == 1)
        snprintf(name, 64, "model.safetensors");
    else
        snprintf(name, 64, "model-%05zu-of-%05zu.safetensors", i + 1, n);
}

void mf_rc_index_text(const mf_rc_options *o, const mf_rc_tensors *tensors, const size_t *first,
                      size_t n_shards, mf_rc_text *out)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < tensors->count; i++)
        n_bytes += tensors->items[i].n_bytes;
    mf_rc_text_add(out, "{\n    \"metadata\": {\n        \"total_size\": %llu\n    },\n",
                   (ull)n_bytes);
    mf_rc_text_add(out, "    \"weight_map\": {");
    const char *comma = "";
    (void)o;
    for (size_t shard = 0; shard < n_shards; shard++) {
        char name[64];
        mf_rc_shard_name(shard, n_shards, name);
        for (size_t i = first[shard]; i < first[shard + 1]; i++, comma = ",")
            mf_rc_text_add(out, "%s\n        \"%s\": \"%s\"", comma, tensors->items[i].name, name);
    }
    mf_rc_text_add(out, "\n    }\n}\n");
}

static void add_manifest_config(const mf_rc_options *o, mf_rc_text *out)
{
    const mf_rc_shape *s = &o->shape;
    mf_rc_text_add(out,
                   "  \"config\": {\n"
                   "    \"hidden_size\": %llu,\n    \"num_hidden_layers\": %llu,\n"
                   "    \"num_attention_heads\": %llu,\n    \"num_key_value_heads\": %llu,\n"
                   "    \"head_dim\": %llu,\n    \"vocab_size\": %llu,\n"
                   "    \"rms_norm_eps\": 1e-06,\n",
                   (ull)s->hidden, (ull)s->n_layers, (ull)s->n_heads, (ull)s->n_kv_heads,
                   (ull)s->head_dim, (ull)s->n_vocab);
    mf_rc_text_add(out,
                   "    \"num_experts\": %llu,\n    \"num_experts_per_tok\": %llu,\n"
                   "    \"moe_intermediate_size\": %llu,\n"
                   "    \"shared_expert_intermediate_size\": %llu,\n"
                   "    \"full_attention_interval\": %llu,\n",
                   (ull)s->n_experts, (ull)s->n_experts_per_token, (ull)s->expert_hidden,
                   (ull)s->shared_hidden, (ull)s->full_attention_interval);
    mf_rc_text_add(out,
                   "    \"linear_num_value_heads\": %llu,\n    \"linear_num_key_heads\": %llu,\n"
                   "    \"linear_key_head_dim\": %llu,\n    \"linear_value_head_dim\": %llu,\n"
                   "    \"linear_conv_kernel_dim\": %llu,\n    \"partial_rotary_factor\": 0.25,\n"
                   "    \"rope_theta\": %llu.0,\n    \"default_bits\": %llu,\n"
                   "    \"default_group_size\": %llu,\n",
                   (ull)s->n_linear_v_heads, (ull)s->n_linear_k_heads, (ull)s->linear_k_dim,
                   (ull)s->linear_v_dim, (ull)s->conv_kernel, (ull)s->rope_theta, (ull)o->bits,
                   (ull)o->group);
    mf_rc_text_add(out, "    \"layer_types\": [");
    for (uint64_t i = 0; i < s->n_layers; i++)
        mf_rc_text_add(out, "%s\n      \"%s\"", i ? "," : "", layer_type(s, i));
    mf_rc_text_add(out, "\n    ]\n  }\n");
}

void mf_rc_manifest_text(const mf_rc_options *o, const mf_rc_tensors *tensors,
                         const uint64_t *offsets, mf_rc_text *out)
{
    size_t n = 0;
    for (size_t i = 0; i < tensors->count; i++)
        n += !tensors->items[i].is_expert;
    mf_rc_text_add(out, "{\n  \"model\": \"%s\",\n  \"num_tensors\": %zu,\n  \"tensors\": {",
                   o->shape.preset, n);
    const char *comma = "";
    for (size_t i = 0; i < tensors->count; i++) {
        const mf_rc_tensor *t = &tensors->items[i];
        if (t->is_expert)
            continue;
        mf_rc_text_add(out,
                       "%s\n    \"%s\": {\n      \"offset\": %llu,\n      \"size\": %llu,\n"
                       "      \"shape\": ",
                       comma, t->name, (ull)offsets[i], (ull)t->n_bytes);
        add_dims(t, ", ", out);
        mf_rc_text_add(out, ",\n      \"dtype\": \"%s\"", t->dtype);
        if (t->bits)
            mf_rc_text_add(out, ",\n      \"bits\": %u", t->bits);
        mf_rc_text_add(out, "\n    }");
        comma = ",";
    }
    mf_rc_text_add(out, "\n  },\n");
    if (mf_rc_is_deepseek(&o->shape))
        mf_rc_deepseek_manifest_config(o, out);
    else
        add_manifest_config(o, out);
    mf_rc_text_add(out, "}\n");
}

void mf_rc_layout_text(const mf_rc_options *o, const mf_rc_tensor *components, mf_rc_text *out)
{
    const mf_rc_shape *s = &o->shape;
    uint64_t expert_bytes = 0, at = 0;
    for (size_t i = 0; i < 9; i++)
        expert_bytes += components[i].n_bytes / s->n_experts;
    mf_rc_text_add(out,
                   "{\n  \"expert_size\": %llu,\n  \"num_layers\": %llu,\n"
                   "  \"num_experts\": %llu,\n  \"components\": [",
                   (ull)expert_bytes, (ull)s->n_layers, (ull)s->n_experts);
    for (size_t i = 0; i < 9; i++) {
        const mf_rc_tensor *t = &components[i];
        const char *name = strstr(t->name, "switch_mlp.") + strlen("switch_mlp.");
        uint64_t n = t->n_bytes / s->n_experts;
        mf_rc_text_add(out,
                       "%s\n    {\"name\": \"%s\", \"offset\": %llu, \"size\": %llu, "
                       "\"dtype\": \"%s\", \"shape\": [%llu, %llu]}",
                       i ? "," : "", name, (ull)at, (ull)n, t->dtype, (ull)t->dims[1],
                       (ull)t->dims[2]);
        at += n;
    }
    mf_rc_text_add(out, "\n  ]");
    if (mf_rc_is_deepseek(s)) {
        mf_rc_text_add(out, ",\n  \"moe_layers\": [");
        for (uint64_t i = s->n_dense; i < s->n_layers; i++)
            mf_rc_text_add(out, "%s%llu", i > s->n_dense ? ", " : "", (ull)i);
        mf_rc_text_add(out, "]");
    }
    mf_rc_text_add(out, "\n}\n");
}
