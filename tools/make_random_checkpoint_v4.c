/* SPDX-License-Identifier: MIT */
/*
 * DeepSeek-V4: its presets, all tensors under the published names, and the config. The form fp8 is
 * the published one: dense matrices in e4m3 with a power of two for each 128 x 128, experts in e2m1
 * with one for each 32. Multi-token-prediction layers are not written.
 */
#include "make_random_checkpoint.h"

#include <math.h>
#include <stdio.h>

typedef unsigned long long ull;

enum { SPARSE = 4, HEAVY = 128, INDEX_HEADS = MF_RC_V4_INDEX_HEADS, INDEX_DIM = MF_RC_INDEX_DIM };

#define MF_RC_V4                                                                                  \
    .family = MF_RC_DEEPSEEK_V4, .head_dim = 512, .n_kv_heads = 1, .rope_dim = 64,                \
    .n_vocab = 129280, .n_experts_per_token = 6, .n_shared = 1, .rope_theta = 10000,              \
    .n_context = 1048576, .yarn_factor = 16, .yarn_beta_fast = 32, .window = 128, .o_rank = 1024, \
    .n_streams = 4

static const mf_rc_shape presets[] = {
    {.preset = "deepseek-v4-flash",
     MF_RC_V4,
     .hidden = 4096,
     .n_layers = 43,
     .n_heads = 64,
     .q_rank = 1024,
     .o_groups = 8,
     .n_experts = 256,
     .expert_hidden = 2048,
     .routed_scale = 1.5},
    {.preset = "deepseek-v4-pro",
     MF_RC_V4,
     .hidden = 7168,
     .n_layers = 61,
     .n_heads = 128,
     .q_rank = 1536,
     .o_groups = 16,
     .n_experts = 384,
     .expert_hidden = 3072,
     .routed_scale = 2.5},
};

const mf_rc_shape *mf_rc_v4_presets(size_t *count)
{
    *count = sizeof presets / sizeof presets[0];
    return presets;
}

/* Flash begins with two layers
 * that attend to their window alone, Pro with two heavy ones. */
uint64_t mf_rc_v4_ratio(const mf_rc_shape *s, uint64_t layer)
{
    if (layer < 2)
        return s->n_heads >= 128 ? HEAVY : 0;
    return layer % 2 == 0 ? SPARSE : HEAVY;
}

/* --------------------------------------------------------------------------------- tensors -- */

/* How a matrix is stored where the form is the published one. */
typedef enum width { PLAIN, FP8, FP4 } width;

#define NAME_BYTES 112

/* A tensor of the current layer; its name, which is the key of its contents, comes into `full`. */
static mf_rc_tensor *add_named(mf_rc_builder *b, const char *name, const char *suffix,
                               char full[NAME_BYTES])
{
    snprintf(full, NAME_BYTES, "%s%s%s", b->layer, name, suffix);
    return mf_rc_add(b, b->model_prefix, "%s", full);
}

static void add_powers(mf_rc_builder *b, const char *name, uint64_t n_rows, uint64_t n_cols,
                       float scale)
{
    char full[NAME_BYTES];
    mf_rc_tensor *t = add_named(b, name, ".scale", full);
    mf_rc_describe(b, t, "F8_E8M0", (uint64_t[3]){n_rows, n_cols, 0}, MF_RC_E8M0, 0, full);
    t->parts[0].bits = (uint32_t)(127 + (int)lroundf(log2f(scale)));
}

static void add_matrix(mf_rc_builder *b, const char *name, uint64_t n_out, uint64_t n_in,
                       width stored)
{
    const float std = 1.0f / sqrtf((float)n_in);
    const float rms_e4m3 = 6.757f, rms_e2m1 = 2.926f; /* of what is drawn */
    char full[NAME_BYTES];
    mf_rc_tensor *t = add_named(b, name, ".weight", full);
    if (stored == PLAIN || b->options->form != MF_RC_FP8) {
        mf_rc_describe(b, t, "BF16", (uint64_t[3]){n_out, n_in, 0}, MF_RC_UNIFORM,
                       std * sqrtf(3.0f), full);
    } else if (stored == FP8) {
        mf_rc_describe(b, t, "F8_E4M3", (uint64_t[3]){n_out, n_in, 0}, MF_RC_E4M3, 0, full);
        add_powers(b, name, (n_out + 127) / 128, (n_in + 127) / 128, std / rms_e4m3);
    } else {
        mf_rc_describe(b, t, "I8", (uint64_t[3]){n_out, n_in / 2, 0}, MF_RC_CODES, 0, full);
        add_powers(b, name, n_out, n_in / 32, std / rms_e2m1);
    }
}

/* Float32, around `middle`, or about 0 within `a`. */
static void add_floats(mf_rc_builder *b, const char *name, uint64_t n_rows, uint64_t n_cols,
                       float a, bool is_about_one)
{
    char full[NAME_BYTES];
    mf_rc_describe(b, add_named(b, name, "", full), "F32", (uint64_t[3]){n_rows, n_cols, 0},
                   is_about_one ? MF_RC_NORM_F32 : MF_RC_UNIFORM_F32, a, full);
}

static void add_norm(mf_rc_builder *b, const char *name, uint64_t n)
{
    mf_rc_add_norm(b, b->layer, name, n, false);
}

/* What makes entries of so many columns: values and gates, twice where runs overlap. */
static void add_compressor(mf_rc_builder *b, const char *module, uint64_t dim, uint64_t ratio)
{
    const uint64_t n_cols = ratio == SPARSE ? 2 * dim : dim;
    char name[64];
    snprintf(name, sizeof name, "%s.wkv", module);
    add_matrix(b, name, n_cols, b->options->shape.hidden, PLAIN);
    snprintf(name, sizeof name, "%s.wgate", module);
    add_matrix(b, name, n_cols, b->options->shape.hidden, PLAIN);
    snprintf(name, sizeof name, "%s.ape", module);
    add_floats(b, name, ratio, n_cols, 0.5f, false);
    snprintf(name, sizeof name, "%s.norm.weight", module);
    add_norm(b, name, dim);
}

static void add_attention(mf_rc_builder *b, uint64_t ratio)
{
    const mf_rc_shape *s = &b->options->shape;
    const uint64_t q = s->n_heads * s->head_dim, low = s->o_groups * s->o_rank;
    add_matrix(b, "attn.wq_a", s->q_rank, s->hidden, FP8);
    add_norm(b, "attn.q_norm.weight", s->q_rank);
    add_matrix(b, "attn.wq_b", q, s->q_rank, FP8);
    add_matrix(b, "attn.wkv", s->head_dim, s->hidden, FP8);
    add_norm(b, "attn.kv_norm.weight", s->head_dim);
    add_matrix(b, "attn.wo_a", low, q / s->o_groups, FP8);
    add_matrix(b, "attn.wo_b", s->hidden, low, FP8);
    add_floats(b, "attn.attn_sink", s->n_heads, 0, 0.5f, false);
    if (ratio != 0)
        add_compressor(b, "attn.compressor", s->head_dim, ratio);
    if (ratio != SPARSE)
        return;
    add_matrix(b, "attn.indexer.wq_b", INDEX_HEADS * INDEX_DIM, s->q_rank, FP8);
    add_matrix(b, "attn.indexer.weights_proj", INDEX_HEADS, s->hidden, PLAIN);
    add_compressor(b, "attn.indexer.compressor", INDEX_DIM, ratio);
}

/* What mixes the streams around a block; `where` is hc_attn, hc_ffn or, at the end, hc_head. */
static void add_streams(mf_rc_builder *b, const char *where, bool is_last)
{
    const uint64_t n = b->options->shape.n_streams, n_in = n * b->options->shape.hidden;
    const uint64_t n_out = is_last ? n : (2 + n) * n;
    char name[32];
    snprintf(name, sizeof name, "%s_fn", where);
    add_floats(b, name, n_out, n_in, sqrtf(3.0f / (float)n_in), false);
    snprintf(name, sizeof name, "%s_base", where);
    add_floats(b, name, n_out, 0, 0.5f, false);
    snprintf(name, sizeof name, "%s_scale", where);
    add_floats(b, name, is_last ? 1 : 3, 0, 1.0f, true);
}

/* Which experts the tokens of the first layers have. */
static void add_table(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    char full[NAME_BYTES];
    mf_rc_tensor *t = add_named(b, "ffn.gate.tid2eid", "", full);
    mf_rc_describe(b, t, "I64", (uint64_t[3]){s->n_vocab, s->n_experts_per_token, 0}, MF_RC_TABLE,
                   (float)s->n_experts_per_token, full);
    t->parts[0].bits = (uint32_t)s->n_experts;
}

static void add_experts(mf_rc_builder *b, const char *module, width stored)
{
    static const char *const names[3] = {"w1", "w2", "w3"};
    const uint64_t n = b->options->shape.hidden, mid = b->options->shape.expert_hidden;
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", module, names[i]);
        const size_t first = b->out->count;
        add_matrix(b, name, i == 1 ? n : mid, i == 1 ? mid : n, stored);
        for (size_t k = first; k < b->out->count; k++)
            b->out->items[k].is_expert = stored == FP4;
    }
}

/* All of a layer's in three tensors. */
static void add_stacked_experts(mf_rc_builder *b)
{
    static const char *const names[3] = {"ffn.experts.w1", "ffn.experts.w2", "ffn.experts.w3"};
    const mf_rc_shape *s = &b->options->shape;
    for (size_t i = 0; i < 3; i++) {
        const uint64_t n_out = i == 1 ? s->hidden : s->expert_hidden;
        const uint64_t n_in = i == 1 ? s->expert_hidden : s->hidden;
        char full[NAME_BYTES];
        mf_rc_describe(b, add_named(b, names[i], ".weight", full), "BF16",
                       (uint64_t[3]){s->n_experts, n_out, n_in}, MF_RC_UNIFORM,
                       sqrtf(3.0f / (float)n_in), full);
    }
}

static void add_layer(mf_rc_builder *b, uint64_t layer)
{
    const mf_rc_shape *s = &b->options->shape;
    snprintf(b->layer, sizeof b->layer, "layers.%llu.", (ull)layer);
    add_norm(b, "attn_norm.weight", s->hidden);
    add_norm(b, "ffn_norm.weight", s->hidden);
    add_streams(b, "hc_attn", false);
    add_streams(b, "hc_ffn", false);
    add_attention(b, mf_rc_v4_ratio(s, layer));
    add_matrix(b, "ffn.gate", s->n_experts, s->hidden, PLAIN);
    if (layer < MF_RC_V4_HASHED)
        add_table(b);
    else
        add_floats(b, "ffn.gate.bias", s->n_experts, 0, 0.1f, false);
    add_experts(b, "ffn.shared_experts", FP8);
    if (b->options->is_gguf) {
        add_stacked_experts(b);
        return;
    }
    for (uint64_t e = 0; e < s->n_experts; e++) {
        char module[48];
        snprintf(module, sizeof module, "ffn.experts.%llu", (ull)e);
        add_experts(b, module, FP4);
    }
}

void mf_rc_v4_tensors(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    b->model_prefix = "";
    mf_rc_tensor *t = mf_rc_add(b, "", "embed.weight");
    mf_rc_describe(b, t, "BF16", (uint64_t[3]){s->n_vocab, s->hidden, 0}, MF_RC_UNIFORM,
                   sqrtf(3.0f), "embed.weight");
    for (uint64_t i = 0; i < s->n_layers; i++)
        add_layer(b, i);
    b->layer[0] = '\0';
    add_norm(b, "norm.weight", s->hidden);
    add_streams(b, "hc_head", true);
    add_matrix(b, "head", s->n_vocab, s->hidden, PLAIN);
}

/* ------------------------------------------------------------------------------------ text -- */

static void add_ratios(const mf_rc_shape *s, mf_rc_text *out)
{
    mf_rc_text_add(out, "    \"compress_ratios\": [");
    for (uint64_t i = 0; i < s->n_layers; i++)
        mf_rc_text_add(out, "%s%llu", i ? ", " : "", (ull)mf_rc_v4_ratio(s, i));
    mf_rc_text_add(out, "],\n");
}

void mf_rc_v4_config(const mf_rc_options *o, mf_rc_text *out)
{
    const mf_rc_shape *s = &o->shape;
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {{"bos_token_id", 0},
                {"compress_rope_theta", 160000},
                {"eos_token_id", 1},
                {"hc_mult", s->n_streams},
                {"hc_sinkhorn_iters", 20},
                {"head_dim", s->head_dim},
                {"hidden_size", s->hidden},
                {"index_head_dim", INDEX_DIM},
                {"index_n_heads", INDEX_HEADS},
                {"index_topk", 512},
                {"max_position_embeddings", s->n_context},
                {"moe_intermediate_size", s->expert_hidden},
                {"n_routed_experts", s->n_experts},
                {"n_shared_experts", s->n_shared},
                {"num_attention_heads", s->n_heads},
                {"num_experts_per_tok", s->n_experts_per_token},
                {"num_hash_layers", MF_RC_V4_HASHED},
                {"num_hidden_layers", s->n_layers},
                {"num_key_value_heads", s->n_kv_heads},
                {"num_nextn_predict_layers", 0},
                {"o_groups", s->o_groups},
                {"o_lora_rank", s->o_rank},
                {"q_lora_rank", s->q_rank},
                {"qk_rope_head_dim", s->rope_dim},
                {"rope_theta", s->rope_theta},
                {"sliding_window", s->window},
                {"vocab_size", s->n_vocab}};
    mf_rc_text_add(out, "{\n    \"architectures\": [\n        \"DeepseekV4ForCausalLM\"\n    ],\n"
                        "    \"attention_bias\": false,\n");
    add_ratios(s, out);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        mf_rc_text_add(out, "    \"%s\": %llu,\n", rows[i].name, (ull)rows[i].value);
    if (o->form == MF_RC_FP8)
        mf_rc_text_add(out, "    \"expert_dtype\": \"fp4\",\n    \"quantization_config\": {\n"
                            "        \"activation_scheme\": \"dynamic\",\n"
                            "        \"fmt\": \"e4m3\",\n        \"quant_method\": \"fp8\",\n"
                            "        \"scale_fmt\": \"ue8m0\",\n"
                            "        \"weight_block_size\": [128, 128]\n    },\n");
    mf_rc_text_add(out,
                   "    \"hc_eps\": 1e-06,\n    \"hidden_act\": \"silu\",\n"
                   "    \"model_type\": \"deepseek_v4\",\n    \"norm_topk_prob\": true,\n"
                   "    \"rms_norm_eps\": 1e-06,\n    \"rope_scaling\": {\n"
                   "        \"beta_fast\": %g,\n        \"beta_slow\": 1,\n"
                   "        \"factor\": %g,\n"
                   "        \"original_max_position_embeddings\": 65536,\n"
                   "        \"type\": \"yarn\"\n    },\n    \"routed_scaling_factor\": %g,\n"
                   "    \"scoring_func\": \"sqrtsoftplus\",\n    \"swiglu_limit\": 10.0,\n"
                   "    \"tie_word_embeddings\": false,\n    \"topk_method\": \"noaux_tc\",\n"
                   "    \"torch_dtype\": \"bfloat16\"\n}\n",
                   s->yarn_beta_fast, s->yarn_factor, s->routed_scale);
}
