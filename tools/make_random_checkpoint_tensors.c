/* SPDX-License-Identifier: MIT */
/*
 * The presets, and the list of a model's tensors in each form: names, dtypes, shapes, and the
 * distribution that keeps activations of order one through all layers: weights with mean 0 and
 * variance 1/fan_in, norms near 1, embeddings with variance 1, decays between 0.9 and 0.9999.
 */
#include "make_random_checkpoint.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fields that all published models of the two families share. */
#define MF_RC_LINEAR                                                                            \
    .full_attention_interval = 4, .head_dim = 256, .n_linear_k_heads = 16, .linear_k_dim = 128, \
    .linear_v_dim = 128, .conv_kernel = 4, .n_context = 262144
#define MF_RC_COMMON MF_RC_LINEAR, .n_kv_heads = 2
#define MF_RC_35B                                                                             \
    .family = MF_RC_QWEN3_5_MOE, MF_RC_COMMON, .hidden = 2048, .n_layers = 40, .n_heads = 16, \
    .n_vocab = 248320, .n_experts = 256, .n_experts_per_token = 8, .expert_hidden = 512,      \
    .shared_hidden = 512, .n_linear_v_heads = 32, .rope_theta = 10000000
#define MF_RC_80B                                                                            \
    .family = MF_RC_QWEN3_NEXT, MF_RC_COMMON, .hidden = 2048, .n_layers = 48, .n_heads = 16, \
    .n_vocab = 151936, .n_experts = 512, .n_experts_per_token = 10, .expert_hidden = 512,    \
    .shared_hidden = 512, .n_linear_v_heads = 32, .dense_hidden = 5120

static const mf_rc_shape presets[] = {
    {.preset = "qwen3.6-35b-a3b", MF_RC_35B},
    {.preset = "qwen3.5-35b-a3b", MF_RC_35B},
    {.preset = "qwen3.5-122b-a10b",
     .family = MF_RC_QWEN3_5_MOE,
     MF_RC_COMMON,
     .hidden = 3072,
     .n_layers = 48,
     .n_heads = 32,
     .n_vocab = 248320,
     .n_experts = 256,
     .n_experts_per_token = 8,
     .expert_hidden = 1024,
     .shared_hidden = 1024,
     .n_linear_v_heads = 64,
     .rope_theta = 10000000},
    {.preset = "qwen3.5-397b-a17b",
     .family = MF_RC_QWEN3_5_MOE,
     MF_RC_COMMON,
     .hidden = 4096,
     .n_layers = 60,
     .n_heads = 32,
     .n_vocab = 248320,
     .n_experts = 512,
     .n_experts_per_token = 10,
     .expert_hidden = 1024,
     .shared_hidden = 1024,
     .n_linear_v_heads = 64,
     .rope_theta = 10000000},
    {.preset = "qwen3.6-27b", /* without experts */
     .family = MF_RC_QWEN3_5_MOE,
     MF_RC_LINEAR,
     .n_kv_heads = 4,
     .hidden = 5120,
     .n_layers = 64,
     .n_heads = 24,
     .n_vocab = 248320,
     .dense_hidden = 17408,
     .n_linear_v_heads = 48,
     .rope_theta = 10000000},
    {.preset = "qwen3-next-80b-a3b", MF_RC_80B, .rope_theta = 10000000},
    {.preset = "qwen3-coder-next-80b-a3b", MF_RC_80B, .rope_theta = 5000000},
};

const mf_rc_shape *mf_rc_preset(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (strcmp(presets[i].preset, name) == 0)
            return &presets[i];
    size_t count;
    const mf_rc_shape *others = mf_rc_deepseek_presets(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(others[i].preset, name) == 0)
            return &others[i];
    others = mf_rc_grouped_presets(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(others[i].preset, name) == 0)
            return &others[i];
    others = mf_rc_v4_presets(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(others[i].preset, name) == 0)
            return &others[i];
    if (strcmp(mf_rc_kimi_linear_preset.preset, name) == 0)
        return &mf_rc_kimi_linear_preset;
    return NULL;
}

void mf_rc_print_presets(void)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        printf("  %s\n", presets[i].preset);
    size_t count;
    const mf_rc_shape *others = mf_rc_deepseek_presets(&count);
    for (size_t i = 0; i < count; i++)
        printf("  %s\n", others[i].preset);
    others = mf_rc_grouped_presets(&count);
    for (size_t i = 0; i < count; i++)
        printf("  %s\n", others[i].preset);
    others = mf_rc_v4_presets(&count);
    for (size_t i = 0; i < count; i++)
        printf("  %s\n", others[i].preset);
    printf("  %s\n", mf_rc_kimi_linear_preset.preset);
}

mf_rc_tensor *mf_rc_add(mf_rc_builder *b, const char *prefix, const char *format, ...)
{
    mf_rc_tensors *t = b->out;
    if (t->count == t->capacity) {
        t->capacity = t->capacity ? t->capacity * 2 : 1024;
        t->items = mf_rc_alloc(t->items, t->capacity * sizeof *t->items);
    }
    mf_rc_tensor *tensor = &t->items[t->count++];
    memset(tensor, 0, sizeof *tensor);
    int n = snprintf(tensor->name, sizeof tensor->name, "%s", prefix);
    va_list args;
    va_start(args, format);
    vsnprintf(tensor->name + n, sizeof tensor->name - (size_t)n, format, args);
    va_end(args);
    return tensor;
}

void mf_rc_describe(mf_rc_builder *b, mf_rc_tensor *t, const char *dtype, const uint64_t dims[3],
                    mf_rc_kind kind, float a, const char *key_name)
{
    t->dtype = dtype;
    uint64_t n = 1;
    for (size_t i = 0; i < 3 && dims[i]; i++, t->n_dims++)
        n *= t->dims[i] = dims[i];
    t->n_bytes = n * (dtype[0] == 'B'   ? 2
                      : dtype[1] == '8' ? 1 /* F8, I8 and U8 */
                      : dtype[1] == '6' ? 8
                                        : 4);
    t->n_repeats = 1;
    t->n_parts = 1;
    t->parts[0] = (mf_rc_part){
        .kind = kind, .a = a, .bytes = t->n_bytes, .key = mf_rc_key(b->options->seed, key_name)};
}

/* A matrix [n_out, n_in], or n_stack of them. name has no prefix and no suffix. */
typedef struct matrix {
    const char *name;
    uint64_t n_stack; /* 0: not stacked */
    uint64_t n_out, n_in;
    uint64_t bits, group;
    float std; /* 0: 1/sqrt(n_in) */
    bool is_head;
    bool is_fp8;
} matrix;

static const char *suffixed(char *buffer, size_t size, const char *name, const char *suffix)
{
    snprintf(buffer, size, "%s.%s", name, suffix);
    return buffer;
}

static void add_matrix_part(mf_rc_builder *b, const matrix *m, const char *suffix, mf_rc_kind kind,
                            uint64_t n_cols, float a)
{
    char key[128];
    const char *prefix = m->is_head ? b->head_prefix : b->model_prefix;
    mf_rc_tensor *t = mf_rc_add(b, prefix, "%s.%s", m->name, suffix);
    uint64_t dims[3] = {m->n_out, n_cols, 0};
    if (m->n_stack) {
        dims[0] = m->n_stack;
        dims[1] = m->n_out;
        dims[2] = n_cols;
    }
    /* Scales and biases share a key: a bias is a function of its scale. */
    const char *key_suffix = kind == MF_RC_BIASES ? "scales" : suffix;
    mf_rc_describe(b, t, kind == MF_RC_CODES ? "U32" : "BF16", dims, kind, a,
                   suffixed(key, sizeof key, m->name, key_suffix));
    t->parts[0].bits = (uint32_t)m->bits;
    t->bits = kind == MF_RC_CODES ? (uint32_t)m->bits : 0;
    t->is_expert = m->n_stack != 0;
}

/* e4m3 values and a factor for every block of 128 x 128. */
static void add_fp8(mf_rc_builder *b, const matrix *m, float std)
{
    const float rms = 6.757f; /* of the values that MF_RC_E4M3 draws */
    char key[128];
    uint64_t dims[3] = {m->n_out, m->n_in, 0};
    mf_rc_tensor *t = mf_rc_add(b, b->model_prefix, "%s.weight", m->name);
    mf_rc_describe(b, t, "F8_E4M3", dims, MF_RC_E4M3, 0, suffixed(key, sizeof key, m->name, "fp8"));
    dims[0] = (m->n_out + 127) / 128;
    dims[1] = (m->n_in + 127) / 128;
    t = mf_rc_add(b, b->model_prefix, "%s.weight_scale_inv", m->name);
    mf_rc_describe(b, t, "F32", dims, MF_RC_E4M3_SCALES, std / rms,
                   suffixed(key, sizeof key, m->name, "scale_inv"));
}

static void add_matrix(mf_rc_builder *b, const matrix *m)
{
    float std = m->std > 0 ? m->std : 1.0f / sqrtf((float)m->n_in);
    if (m->is_fp8) {
        add_fp8(b, m, std);
        return;
    }
    if (m->bits >= 16) {
        add_matrix_part(b, m, "weight", MF_RC_UNIFORM, m->n_in, std * sqrtf(3.0f));
        return;
    }
    float n_codes = (float)(1u << m->bits);
    float scale = std / sqrtf((n_codes * n_codes - 1.0f) / 12.0f);
    add_matrix_part(b, m, "weight", MF_RC_CODES, m->n_in * m->bits / 32, 0);
    add_matrix_part(b, m, "scales", MF_RC_SCALES, m->n_in / m->group, scale);
    add_matrix_part(b, m, "biases", MF_RC_BIASES, m->n_in / m->group, scale);
}

void mf_rc_add_linear(mf_rc_builder *b, const char *name, uint64_t n_out, uint64_t n_in, float std)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", b->layer, name);
    matrix m = {.name = full, .n_out = n_out, .n_in = n_in, .std = std};
    m.bits = b->options->bits;
    m.group = b->options->group;
    m.is_fp8 = b->options->form == MF_RC_FP8;
    add_matrix(b, &m);
}

void mf_rc_add_stack(mf_rc_builder *b, const char *name, uint64_t n_stack, uint64_t n_out,
                     uint64_t n_in)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", b->layer, name);
    matrix m = {.name = full, .n_stack = n_stack, .n_out = n_out, .n_in = n_in};
    m.bits = n_in % b->options->group == 0 ? b->options->bits : 16; /* as mlx-lm leaves such */
    m.group = b->options->group;
    size_t first = b->out->count;
    add_matrix(b, &m);
    for (size_t i = first; i < b->out->count; i++)
        b->out->items[i].is_expert = false;
}

/* The router and the shared expert's gate: 8 bits, whatever the rest has. */
static void add_router(mf_rc_builder *b, const char *name, uint64_t n_out)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", b->layer, name);
    matrix m = {.name = full, .n_out = n_out, .n_in = b->options->shape.hidden, .group = 64};
    m.bits = b->options->bits >= 16 ? 16 : 8;
    add_matrix(b, &m);
}

void mf_rc_add_norm(mf_rc_builder *b, const char *layer, const char *name, uint64_t n,
                    bool is_shifted)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", layer, name);
    mf_rc_tensor *t = mf_rc_add(b, b->model_prefix, "%s", full);
    float a = is_shifted && b->options->form == MF_RC_HF ? 0.0f : 1.0f;
    mf_rc_describe(b, t, "BF16", (uint64_t[3]){n, 0, 0}, MF_RC_NORM, a, full);
}

static void add_full_attention(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    uint64_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    mf_rc_add_linear(b, "self_attn.q_proj", 2 * q, s->hidden, 0);
    mf_rc_add_linear(b, "self_attn.k_proj", kv, s->hidden, 0);
    mf_rc_add_linear(b, "self_attn.v_proj", kv, s->hidden, 0);
    mf_rc_add_linear(b, "self_attn.o_proj", s->hidden, q, 0);
    mf_rc_add_norm(b, b->layer, "self_attn.q_norm.weight", s->head_dim, true);
    mf_rc_add_norm(b, b->layer, "self_attn.k_norm.weight", s->head_dim, true);
}

/* conv1d, A_log, dt_bias: named and stored as the published checkpoints do. */
static void add_recurrence(mf_rc_builder *b)
{
    const mf_rc_options *o = b->options;
    const mf_rc_shape *s = &o->shape;
    uint64_t n_channels =
        2 * s->n_linear_k_heads * s->linear_k_dim + s->n_linear_v_heads * s->linear_v_dim;
    char name[96];
    snprintf(name, sizeof name, "%slinear_attn.conv1d.weight", b->layer);
    uint64_t raw[3] = {n_channels, 1, s->conv_kernel}, mlx[3] = {n_channels, s->conv_kernel, 1};
    mf_rc_describe(b, mf_rc_add(b, b->model_prefix, "%s", name), "BF16",
                   o->form == MF_RC_HF ? raw : mlx, MF_RC_UNIFORM,
                   sqrtf(3.0f / (float)s->conv_kernel), name);

    bool is_bf16 = s->family == MF_RC_QWEN3_NEXT; /* as published; the packed form widens it */
    bool store_bf16 = is_bf16 && o->form != MF_RC_PACKED;
    snprintf(name, sizeof name, "%slinear_attn.A_log", b->layer);
    mf_rc_tensor *t = mf_rc_add(b, b->model_prefix, "%s", name);
    mf_rc_describe(b, t, store_bf16 ? "BF16" : "F32", (uint64_t[3]){s->n_linear_v_heads, 0, 0},
                   store_bf16 ? MF_RC_A_LOG_BF16 : MF_RC_A_LOG_F32, 0, name);
    t->parts[0].bits = is_bf16 ? 16 : 32;

    snprintf(name, sizeof name, "%slinear_attn.dt_bias", b->layer);
    mf_rc_describe(b, mf_rc_add(b, b->model_prefix, "%s", name), "BF16",
                   (uint64_t[3]){s->n_linear_v_heads, 0, 0}, MF_RC_DT_BIAS, 0, name);
}

static void add_linear_attention(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    uint64_t k = s->n_linear_k_heads * s->linear_k_dim, v = s->n_linear_v_heads * s->linear_v_dim;
    float small = 0.5f / sqrtf((float)s->hidden); /* keeps the decay within a factor of e or so */
    if (s->family == MF_RC_QWEN3_NEXT) {
        mf_rc_add_linear(b, "linear_attn.in_proj_qkvz", 2 * k + 2 * v, s->hidden, 0);
        mf_rc_add_linear(b, "linear_attn.in_proj_ba", 2 * s->n_linear_v_heads, s->hidden, small);
    } else {
        mf_rc_add_linear(b, "linear_attn.in_proj_qkv", 2 * k + v, s->hidden, 0);
        mf_rc_add_linear(b, "linear_attn.in_proj_z", v, s->hidden, 0);
        mf_rc_add_linear(b, "linear_attn.in_proj_b", s->n_linear_v_heads, s->hidden, 0);
        mf_rc_add_linear(b, "linear_attn.in_proj_a", s->n_linear_v_heads, s->hidden, small);
    }
    add_recurrence(b);
    mf_rc_add_norm(b, b->layer, "linear_attn.norm.weight", s->linear_v_dim, false);
    mf_rc_add_linear(b, "linear_attn.out_proj", s->hidden, v, 0);
}

const char *mf_rc_moe_module(const mf_rc_shape *s)
{
    if (s->family == MF_RC_LLAMA4)
        return "feed_forward";
    return mf_rc_is_w123(s) ? "block_sparse_moe" : "mlp";
}

/* gate, up, down as experts that are stored one by one call them. */
static const char *expert_matrix(const mf_rc_shape *s, uint64_t i)
{
    static const char *const names[2][3] = {{"gate_proj", "up_proj", "down_proj"},
                                            {"w1", "w3", "w2"}};
    return names[mf_rc_is_w123(s)][i];
}

/* BF16 contents of one expert matrix, as add_matrix would give the stacked one. */
static mf_rc_part expert_part(mf_rc_builder *b, const char *proj, uint64_t n_out, uint64_t n_in)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s.switch_mlp.%s.weight", b->layer,
             mf_rc_moe_module(&b->options->shape), proj);
    return (mf_rc_part){.kind = MF_RC_UNIFORM,
                        .bits = 16,
                        .key = mf_rc_key(b->options->seed, name),
                        .bytes = n_out * n_in * 2,
                        .a = sqrtf(3.0f / (float)n_in)};
}

static void set_parts(mf_rc_tensor *t, uint64_t d0, uint64_t d1, uint64_t d2)
{
    t->dtype = "BF16";
    t->n_dims = d2 ? 3 : 2;
    t->dims[0] = d0;
    t->dims[1] = d1;
    t->dims[2] = d2;
    t->n_bytes = d0 * d1 * (d2 ? d2 : 1) * 2;
    t->is_expert = true;
}

/* Raw Hugging Face: gate and up fused per expert (qwen3_5_moe), or one tensor an expert. */
static void add_fp8_experts(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    for (uint64_t i = 0; i < 3 * s->n_experts; i++) {
        char name[64];
        bool is_down = i % 3 == 2;
        snprintf(name, sizeof name, "%s.experts.%llu.%s", mf_rc_moe_module(s),
                 (unsigned long long)i / 3, expert_matrix(s, i % 3));
        mf_rc_add_linear(b, name, is_down ? s->hidden : s->expert_hidden,
                         is_down ? s->expert_hidden : s->hidden, 0);
    }
}

static void add_raw_experts(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    uint64_t n_in = s->hidden, n_mid = s->expert_hidden;
    mf_rc_part parts[3] = {expert_part(b, "gate_proj", n_mid, n_in),
                           expert_part(b, "up_proj", n_mid, n_in),
                           expert_part(b, "down_proj", n_in, n_mid)};
    if (s->family == MF_RC_QWEN3_5_MOE) {
        mf_rc_tensor *t = mf_rc_add(b, b->model_prefix, "%smlp.experts.gate_up_proj", b->layer);
        set_parts(t, s->n_experts, 2 * n_mid, n_in);
        t->n_repeats = s->n_experts;
        t->n_parts = 2;
        memcpy(t->parts, parts, 2 * sizeof parts[0]);
        t = mf_rc_add(b, b->model_prefix, "%smlp.experts.down_proj", b->layer);
        set_parts(t, s->n_experts, n_in, n_mid);
        t->n_repeats = s->n_experts;
        t->n_parts = 1;
        t->parts[0] = parts[2];
        return;
    }
    for (uint64_t e = 0; e < s->n_experts; e++) {
        for (size_t i = 0; i < 3; i++) {
            mf_rc_tensor *t =
                mf_rc_add(b, b->model_prefix, "%s%s.experts.%llu.%s.weight", b->layer,
                          mf_rc_moe_module(s), (unsigned long long)e, expert_matrix(s, i));
            set_parts(t, i == 2 ? n_in : n_mid, i == 2 ? n_mid : n_in, 0);
            t->n_repeats = 1;
            t->n_parts = 1;
            t->parts[0] = parts[i];
            t->parts[0].first_byte = e * parts[i].bytes;
        }
    }
}

void mf_rc_add_experts(mf_rc_builder *b)
{
    const mf_rc_options *o = b->options;
    const mf_rc_shape *s = &o->shape;
    static const char *const names[3] = {"gate_proj", "up_proj", "down_proj"};
    if (o->form == MF_RC_HF) {
        add_raw_experts(b);
        return;
    }
    if (o->form == MF_RC_FP8) {
        add_fp8_experts(b);
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        char name[96];
        if (s->family == MF_RC_GPT_OSS || s->family == MF_RC_LLAMA4)
            snprintf(name, sizeof name, "%s%s.experts.%s", b->layer, mf_rc_moe_module(s), names[i]);
        else
            snprintf(name, sizeof name, "%s%s.switch_mlp.%s", b->layer, mf_rc_moe_module(s),
                     names[i]);
        matrix m = {.name = name, .n_stack = s->n_experts, .bits = o->expert_bits};
        m.group = o->group;
        m.n_out = i == 2 ? s->hidden : s->expert_hidden;
        m.n_in = i == 2 ? s->expert_hidden : s->hidden;
        add_matrix(b, &m);
    }
}

static void add_hybrid_layer(mf_rc_builder *b, bool is_full)
{
    const mf_rc_shape *s = &b->options->shape;
    mf_rc_add_norm(b, b->layer, "input_layernorm.weight", s->hidden, true);
    if (is_full)
        add_full_attention(b);
    else
        add_linear_attention(b);
    mf_rc_add_norm(b, b->layer, "post_attention_layernorm.weight", s->hidden, true);
    if (s->n_experts == 0) {
        mf_rc_add_mlp(b, "mlp", s->dense_hidden);
        return;
    }
    add_router(b, "mlp.gate", s->n_experts);
    add_router(b, "mlp.shared_expert_gate", 1);
    mf_rc_add_linear(b, "mlp.shared_expert.gate_proj", s->shared_hidden, s->hidden, 0);
    mf_rc_add_linear(b, "mlp.shared_expert.up_proj", s->shared_hidden, s->hidden, 0);
    mf_rc_add_linear(b, "mlp.shared_expert.down_proj", s->hidden, s->shared_hidden, 0);
    mf_rc_add_experts(b);
}

static void add_layer(mf_rc_builder *b, uint64_t i)
{
    const mf_rc_shape *s = &b->options->shape;
    snprintf(b->layer, sizeof b->layer, "layers.%llu.", (unsigned long long)i);
    if (mf_rc_is_deepseek(s)) {
        mf_rc_deepseek_layer(b, i);
        return;
    }
    if (mf_rc_is_grouped(s)) {
        mf_rc_grouped_layer(b, i);
        return;
    }
    add_hybrid_layer(b, (i + 1) % s->full_attention_interval == 0);
}

/* The layer that predicts a token further: one like the others, with full attention, and what joins
 * and ends it. The Qwen families have it apart, the others after their last. */
static void add_mtp(mf_rc_builder *b)
{
    const mf_rc_shape *s = &b->options->shape;
    const bool is_apart = !mf_rc_is_deepseek(s);
    const char *before = b->model_prefix;
    if (is_apart) {
        b->model_prefix = "mtp.";
        snprintf(b->layer, sizeof b->layer, "layers.0.");
        add_hybrid_layer(b, true);
        b->layer[0] = '\0';
    } else {
        snprintf(b->layer, sizeof b->layer, "layers.%llu.", (unsigned long long)s->n_layers);
        mf_rc_deepseek_layer(b, s->n_layers);
    }
    mf_rc_add_linear(b, is_apart ? "fc" : "eh_proj", s->hidden, 2 * s->hidden, 0);
    mf_rc_add_norm(b, b->layer, is_apart ? "pre_fc_norm_embedding.weight" : "enorm.weight",
                   s->hidden, is_apart);
    mf_rc_add_norm(b, b->layer, is_apart ? "pre_fc_norm_hidden.weight" : "hnorm.weight", s->hidden,
                   is_apart);
    mf_rc_add_norm(b, b->layer, is_apart ? "norm.weight" : "shared_head.norm.weight", s->hidden,
                   is_apart);
    b->model_prefix = before;
}

void mf_rc_tensors_build(const mf_rc_options *options, mf_rc_tensors *out)
{
    const mf_rc_shape *s = &options->shape;
    bool is_nested = s->family == MF_RC_QWEN3_5_MOE;
    mf_rc_builder b = {.options = options, .out = out, .model_prefix = "model.", .head_prefix = ""};
    if (mf_rc_is_v4(s)) {
        mf_rc_v4_tensors(&b);
        return;
    }
    if (is_nested && options->form == MF_RC_MLX) {
        b.model_prefix = "language_model.model.";
        b.head_prefix = "language_model.";
    } else if (is_nested && options->form == MF_RC_HF) {
        b.model_prefix = "model.language_model.";
    }
    matrix embed = {
        .name = "embed_tokens", .n_out = s->n_vocab, .n_in = s->hidden, .std = s->is_tied ? 0 : 1};
    embed.bits = options->bits;
    embed.group = options->group;
    add_matrix(&b, &embed);
    for (uint64_t i = 0; i < s->n_layers; i++)
        add_layer(&b, i);
    if (options->has_mtp)
        add_mtp(&b);
    mf_rc_add_norm(&b, "", "norm.weight", s->hidden, !mf_rc_is_deepseek(s) && !mf_rc_is_grouped(s));
    if (s->is_tied)
        return;
    matrix head = embed;
    head.name = "lm_head";
    head.is_head = true;
    head.std = 0;
    add_matrix(&b, &head);
}

void mf_rc_tensors_free(mf_rc_tensors *tensors)
{
    free(tensors->items);
    *tensors = (mf_rc_tensors){0};
}
