/* SPDX-License-Identifier: MIT */
/*
 * The GGUF form: the tensors of the MLX form, unquantised, under llama.cpp's names, matrices as
 * blocks of random codes whose scales give the weights the same variance; and the metadata. One
 * file, OUT/model.gguf.
 */
#include "make_random_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

enum { TYPE_F32 = 0, TYPE_BF16 = 30, ALIGNMENT = 4096 };

/* rms: of a weight where d, the block's scale, is 1 and all other bits are random. Where a block
 * has a minimum too, its scale is such a multiple of d that weights have mean 0. */
static const mf_rc_block_type types[] = {
    {.name = "Q4_0", .number = 2, .n_values = 32, .n_bytes = 18, .rms = 4.64f},
    {.name = "Q5_0", .number = 6, .n_values = 32, .n_bytes = 22, .rms = 9.25f},
    {.name = "Q8_0", .number = 8, .n_values = 32, .n_bytes = 34, .rms = 73.9f},
    {.name = "Q4_K", .number = 12, .n_values = 256, .n_bytes = 144, .minimum = 7.5f, .rms = 258.0f},
    {.name = "Q5_K",
     .number = 13,
     .n_values = 256,
     .n_bytes = 176,
     .minimum = 15.5f,
     .rms = 526.0f},
    {.name = "Q6_K",
     .number = 14,
     .n_values = 256,
     .n_bytes = 210,
     .scale_at = 208,
     .rms = 1365.0f},
    {.name = "IQ4_NL", .number = 20, .n_values = 32, .n_bytes = 18, .rms = 67.4f},
    {.name = "IQ4_XS", .number = 23, .n_values = 256, .n_bytes = 136, .rms = 1246.0f},
    {.name = "MXFP4", .number = 39, .n_values = 32, .n_bytes = 17, .is_e8m0 = true, .rms = 2.93f},
};

const mf_rc_block_type *mf_rc_block_type_of(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

void mf_rc_print_block_types(void)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        printf("%s%s", i == 0 ? "" : ", ", types[i].name);
}

/* ------------------------------------------------------------------------------------- names -- */

static const char *const names[][2] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight"},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight"},
    {"linear_attn.in_proj_b.weight", "ssm_beta.weight"},
    {"linear_attn.in_proj_a.weight", "ssm_alpha.weight"},
    {"linear_attn.in_proj_qkvz.weight", "ssm_in.weight"},
    {"linear_attn.in_proj_ba.weight", "ssm_ba.weight"},
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight"},
    {"linear_attn.A_log", "ssm_a"},
    {"linear_attn.dt_bias", "ssm_dt.bias"},
    {"linear_attn.norm.weight", "ssm_norm.weight"},
    {"linear_attn.out_proj.weight", "ssm_out.weight"},
    {"self_attn.q_conv1d.weight", "ssm_conv1d_q.weight"},
    {"self_attn.k_conv1d.weight", "ssm_conv1d_k.weight"},
    {"self_attn.v_conv1d.weight", "ssm_conv1d_v.weight"},
    {"self_attn.f_a_proj.weight", "ssm_f_a.weight"},
    {"self_attn.f_b_proj.weight", "ssm_f_b.weight"},
    {"self_attn.g_a_proj.weight", "ssm_g_a.weight"},
    {"self_attn.g_b_proj.weight", "ssm_g_b.weight"},
    {"self_attn.b_proj.weight", "ssm_beta.weight"},
    {"self_attn.o_norm.weight", "ssm_norm.weight"},
    {"self_attn.A_log", "ssm_a"},
    {"self_attn.dt_bias", "ssm_dt.bias"},
    {"self_attn.q_a_proj.weight", "attn_q_a.weight"},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight"},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
    {"self_attn.embed_q.weight", "attn_k_b.weight"},
    {"self_attn.unembed_out.weight", "attn_v_b.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"feed_forward.gate_proj.weight", "ffn_gate.weight"},
    {"feed_forward.up_proj.weight", "ffn_up.weight"},
    {"feed_forward.down_proj.weight", "ffn_down.weight"},
    {"feed_forward.router.weight", "ffn_gate_inp.weight"},
    {"feed_forward.experts.gate_proj.weight", "ffn_gate_exps.weight"},
    {"feed_forward.experts.up_proj.weight", "ffn_up_exps.weight"},
    {"feed_forward.experts.down_proj.weight", "ffn_down_exps.weight"},
    {"gate.weight", "ffn_gate_inp.weight"},
    {"e_score_correction_bias", "exp_probs_b.bias"},
    {"shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    {"shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    {"shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
    {"shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
    {"switch_mlp.gate_proj.weight", "ffn_gate_exps.weight"},
    {"switch_mlp.up_proj.weight", "ffn_up_exps.weight"},
    {"switch_mlp.down_proj.weight", "ffn_down_exps.weight"},
};

static const char *arch_of(const mf_rc_shape *s)
{
    static const char *const archs[] = {
        [MF_RC_QWEN3_5_MOE] = "qwen35moe", [MF_RC_QWEN3_NEXT] = "qwen3next",
        [MF_RC_DEEPSEEK_V3] = "deepseek2", [MF_RC_KIMI_K2] = "deepseek2",
        [MF_RC_GLM4_LITE] = "deepseek2",   [MF_RC_KIMI_LINEAR] = "kimi-linear",
        [MF_RC_DEEPSEEK_V2] = "deepseek2", [MF_RC_QWEN3_MOE] = "qwen3moe",
        [MF_RC_QWEN2_MOE] = "qwen2moe",    [MF_RC_GLM4_MOE] = "glm4moe",
        [MF_RC_MINIMAX_M2] = "minimax-m2", [MF_RC_MIXTRAL] = "llama",
        [MF_RC_QWEN3] = "qwen3",           [MF_RC_LLAMA] = "llama",
        [MF_RC_MISTRAL] = "llama",         [MF_RC_LLAMA4] = "llama4",
    };
    if (s->family == MF_RC_QWEN3_5_MOE && s->n_experts == 0)
        return "qwen35";
    return archs[s->family]; /* llama4 is the last */
}

bool mf_rc_has_gguf(const mf_rc_shape *s)
{
    return arch_of(s) != NULL;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n > n_end && strcmp(text + n - n_end, end) == 0 &&
           (text[n - n_end - 1] == '.' || strchr(end, '.') != NULL);
}

static const char *layer_name(const mf_rc_shape *s, const char *name)
{
    const bool has_post_norm =
        !mf_rc_is_deepseek(s) && (!mf_rc_is_grouped(s) || s->family == MF_RC_GLM4_MOE);
    if (ends_with(name, "post_attention_layernorm.weight"))
        return has_post_norm ? "post_attention_norm.weight" : "ffn_norm.weight";
    const char *found = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i][0]) > longest && ends_with(name, names[i][0])) {
            found = names[i][1];
            longest = strlen(names[i][0]);
        }
    if (found == NULL)
        mf_rc_die("%s: no name in GGUF", name);
    return found;
}

static void rename_tensor(const mf_rc_shape *s, mf_rc_tensor *t)
{
    const char *layer = strstr(t->name, "layers.");
    char name[128];
    if (layer != NULL)
        snprintf(name, sizeof name, "blk.%d.%s", (int)strtol(layer + 7, NULL, 10),
                 layer_name(s, t->name));
    else
        snprintf(name, sizeof name, "%s",
                 strstr(t->name, "embed_tokens") != NULL ? "token_embd.weight"
                 : strstr(t->name, "lm_head") != NULL    ? "output.weight"
                                                         : "output_norm.weight");
    snprintf(t->name, sizeof t->name, "%s", name);
}

/* ------------------------------------------------------------------------------------- types -- */

static uint32_t type_of(const mf_rc_tensor *t)
{
    return t->block != NULL ? t->block->number : t->dtype[0] == 'F' ? TYPE_F32 : TYPE_BF16;
}

/* What llama.cpp keeps in float32: vectors, routers, the convolution. */
static bool stays_float(const mf_rc_tensor *t)
{
    return t->n_dims == 1 || strstr(t->name, "ffn_gate_inp") != NULL ||
           strstr(t->name, "ssm_conv1d") != NULL;
}

static void make_float32(mf_rc_tensor *t)
{
    mf_rc_part *p = &t->parts[0];
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    p->kind = p->kind == MF_RC_UNIFORM                                    ? MF_RC_UNIFORM_F32
              : p->kind == MF_RC_NORM                                     ? MF_RC_NORM_F32
              : p->kind == MF_RC_A_LOG_F32 || p->kind == MF_RC_A_LOG_BF16 ? MF_RC_DECAY_F32
              : p->kind == MF_RC_DT_BIAS                                  ? MF_RC_DT_BIAS_F32
                                                                          : p->kind;
    t->dtype = "F32";
    t->n_bytes = p->bytes = 4 * n;
}

static void make_blocks(mf_rc_tensor *t, const mf_rc_block_type *type)
{
    static const char *const fallback = "Q8_0"; /* where a row is no whole number of blocks */
    const uint64_t n_cols = t->dims[t->n_dims - 1];
    mf_rc_part *p = &t->parts[0];
    if (type != NULL && n_cols % type->n_values != 0)
        type = mf_rc_block_type_of(fallback);
    if (type == NULL || n_cols % type->n_values != 0)
        return; /* BF16, as it is */
    t->block = p->block = type;
    p->kind = MF_RC_BLOCKS;
    p->a = p->a / sqrtf(3.0f) / type->rms; /* from a range to a variance */
    t->n_bytes = p->bytes = t->n_bytes / 2 / type->n_values * type->n_bytes;
}

void mf_rc_gguf_tensors(const mf_rc_options *o, mf_rc_tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++) {
        mf_rc_tensor *t = &tensors->items[i];
        rename_tensor(&o->shape, t);
        if (strcmp(t->name + strlen(t->name) - 6, "conv1d") == 0 || t->dims[t->n_dims - 1] == 1)
            t->n_dims -= t->n_dims > 1; /* [channels, width, 1] */
        if (strstr(t->name, "gate_inp_shexp") != NULL && t->n_dims == 2) {
            t->dims[0] = t->dims[1]; /* a vector */
            t->n_dims = 1;
        }
        if (stays_float(t))
            make_float32(t);
        else
            make_blocks(t, o->block);
    }
}

/* ---------------------------------------------------------------------------------- metadata -- */

typedef struct head {
    mf_rc_text text;
    const char *arch;
    uint64_t n_keys;
} head;

static void put_bytes(head *h, const void *bytes, size_t n)
{
    mf_rc_text *t = &h->text;
    if (t->length + n > t->capacity) {
        t->capacity = (t->length + n) * 2;
        t->data = mf_rc_alloc(t->data, t->capacity);
    }
    memcpy(t->data + t->length, bytes, n);
    t->length += n;
}

static void put(head *h, uint64_t value, size_t n)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    put_bytes(h, bytes, n);
}

static void put_text(head *h, const char *text)
{
    put(h, strlen(text), 8);
    put_bytes(h, text, strlen(text));
}

/* A key that begins with a '.' is the architecture's. */
static void put_key(head *h, const char *key, uint32_t type)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", key[0] == '.' ? h->arch : "", key);
    put_text(h, full);
    put(h, type, 4);
    h->n_keys++;
}

static void put_string(head *h, const char *key, const char *value)
{
    put_key(h, key, 8);
    put_text(h, value);
}

static void put_count(head *h, const char *key, uint64_t value)
{
    put_key(h, key, 4);
    put(h, value, 4);
}

static void put_number(head *h, const char *key, double value)
{
    const float single = (float)value;
    uint32_t word;
    memcpy(&word, &single, sizeof word);
    put_key(h, key, 6);
    put(h, word, 4);
}

static void put_flag(head *h, const char *key, bool value)
{
    put_key(h, key, 7);
    put(h, value, 1);
}

static void put_hybrid(head *h, const mf_rc_shape *s)
{
    put_count(h, ".attention.head_count_kv", s->n_kv_heads);
    put_count(h, ".attention.key_length", s->head_dim);
    put_count(h, ".attention.value_length", s->head_dim);
    put_count(h, ".rope.dimension_count", s->head_dim / 4);
    if (s->n_experts != 0)
        put_count(h, ".expert_shared_feed_forward_length", s->shared_hidden);
    put_count(h, ".full_attention_interval", s->full_attention_interval);
    put_count(h, ".ssm.conv_kernel", s->conv_kernel);
    put_count(h, ".ssm.state_size", s->linear_k_dim);
    put_count(h, ".ssm.group_count", s->n_linear_k_heads);
    put_count(h, ".ssm.time_step_rank", s->n_linear_v_heads);
    put_count(h, ".ssm.inner_size", s->n_linear_v_heads * s->linear_v_dim);
    if (s->family != MF_RC_QWEN3_5_MOE)
        return;
    put_key(h, ".rope.dimension_sections", 9);
    put(h, 5, 4);
    put(h, 4, 8);
    for (uint32_t i = 0; i < 4; i++)
        put(h,
            i < 2    ? s->head_dim / 8 / 3 + (i < s->head_dim / 8 % 3)
            : i == 2 ? s->head_dim / 8 / 3
                     : 0,
            4);
}

/* Kimi-Linear: the layers of linear attention have no head of keys and values. */
static void put_keyed(head *h, const mf_rc_shape *s)
{
    put_count(h, ".ssm.conv_kernel", s->conv_kernel);
    put_count(h, ".kda.head_dim", s->linear_k_dim);
    put_key(h, ".attention.head_count_kv", 9);
    put(h, 4, 4);
    put(h, s->n_layers, 8);
    for (uint64_t i = 0; i < s->n_layers; i++)
        put(h, mf_rc_is_keyed(s, i) ? 0 : 1, 4);
}

static void put_deepseek(head *h, const mf_rc_shape *s)
{
    if (s->family == MF_RC_KIMI_LINEAR)
        put_keyed(h, s);
    else
        put_count(h, ".attention.head_count_kv", 1);
    if (s->q_rank != 0)
        put_count(h, ".attention.q_lora_rank", s->q_rank);
    put_count(h, ".attention.kv_lora_rank", s->kv_rank);
    put_count(h, ".attention.key_length", s->kv_rank + s->rope_dim);
    put_count(h, ".attention.value_length", s->kv_rank);
    put_count(h, ".attention.key_length_mla", s->nope_dim + s->rope_dim);
    put_count(h, ".attention.value_length_mla", s->v_dim);
    put_count(h, ".rope.dimension_count", s->rope_dim);
    put_count(h, ".expert_shared_count", s->n_shared);
    if (s->yarn_factor == 0)
        return;
    put_string(h, ".rope.scaling.type", "yarn");
    put_number(h, ".rope.scaling.factor", s->yarn_factor);
    put_count(h, ".rope.scaling.original_context_length", 4096);
    put_number(h, ".rope.scaling.yarn_beta_fast", s->yarn_beta_fast);
    put_number(h, ".rope.scaling.yarn_log_multiplier", 0.1 * s->mscale);
}

static void put_grouped(head *h, const mf_rc_shape *s)
{
    put_count(h, ".attention.head_count_kv", s->n_kv_heads);
    put_count(h, ".attention.key_length", s->head_dim);
    put_count(h, ".attention.value_length", s->head_dim);
    put_count(h, ".rope.dimension_count",
              s->family == MF_RC_GLM4_MOE ? s->head_dim / 2
              : s->n_rot != 0             ? s->n_rot
                                          : s->head_dim);
    if (s->family == MF_RC_LLAMA4)
        put_count(h, ".interleave_moe_layer_step", s->full_attention_interval);
    if (s->n_shared != 0)
        put_count(h, ".expert_shared_count", s->n_shared);
    else if (s->shared_hidden != 0)
        put_count(h, ".expert_shared_feed_forward_length", s->shared_hidden);
}

static void put_experts(head *h, const mf_rc_shape *s)
{
    const bool is_sigmoid = s->family == MF_RC_DEEPSEEK_V3 || s->family == MF_RC_KIMI_K2 ||
                            s->family == MF_RC_GLM4_LITE || s->family == MF_RC_KIMI_LINEAR ||
                            s->family == MF_RC_GLM4_MOE || s->family == MF_RC_MINIMAX_M2 ||
                            s->family == MF_RC_LLAMA4;
    if (s->n_experts == 0)
        return;
    put_count(h, ".expert_count", s->n_experts);
    put_count(h, ".expert_used_count", s->n_experts_per_token);
    put_count(h, ".expert_feed_forward_length", s->expert_hidden);
    put_count(h, ".expert_gating_func", is_sigmoid ? 2 : 1);
    put_flag(h, ".expert_weights_norm",
             s->family != MF_RC_DEEPSEEK_V2 && s->family != MF_RC_QWEN2_MOE);
    if (s->routed_scale != 0)
        put_number(h, ".expert_weights_scale", s->routed_scale);
    if (s->n_groups > 1) {
        put_count(h, ".expert_group_count", s->n_groups);
        put_count(h, ".expert_group_used_count", s->n_kept_groups);
    }
    if (s->n_dense != 0)
        put_count(h, ".leading_dense_block_count", s->n_dense);
}

static void put_metadata(head *h, const mf_rc_shape *s)
{
    const bool is_coarse = s->family == MF_RC_GLM4_MOE || s->family == MF_RC_MIXTRAL ||
                           s->family == MF_RC_LLAMA || s->family == MF_RC_MISTRAL ||
                           s->family == MF_RC_LLAMA4 || s->family == MF_RC_GLM4_LITE ||
                           s->family == MF_RC_KIMI_LINEAR;
    put_string(h, "general.architecture", h->arch);
    put_string(h, "general.name", s->preset);
    put_count(h, "general.alignment", ALIGNMENT);
    put_string(h, "tokenizer.ggml.model", "none");
    put_count(h, ".block_count", s->n_layers);
    put_count(h, ".context_length", s->n_context);
    put_count(h, ".embedding_length", s->hidden);
    put_count(h, ".vocab_size", s->n_vocab);
    put_count(h, ".feed_forward_length", s->dense_hidden != 0 ? s->dense_hidden : s->expert_hidden);
    put_count(h, ".attention.head_count", s->n_heads);
    put_number(h, ".attention.layer_norm_rms_epsilon", is_coarse ? 1e-5 : 1e-6);
    put_number(h, ".rope.freq_base", (double)s->rope_theta);
    if (mf_rc_is_deepseek(s))
        put_deepseek(h, s);
    else if (mf_rc_is_grouped(s))
        put_grouped(h, s);
    else
        put_hybrid(h, s);
    put_experts(h, s);
}

static uint64_t aligned(uint64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void mf_rc_gguf_head(const mf_rc_options *o, const mf_rc_tensors *tensors, mf_rc_text *out)
{
    head h = {.arch = arch_of(&o->shape)};
    uint64_t at = 0;
    put_bytes(&h, "GGUF", 4);
    put(&h, 3, 4);
    put(&h, tensors->count, 8);
    put(&h, 0, 8);
    put_metadata(&h, &o->shape);
    for (size_t i = 0; i < tensors->count; i++) {
        const mf_rc_tensor *t = &tensors->items[i];
        put_text(&h, t->name);
        put(&h, t->n_dims, 4);
        for (uint32_t d = t->n_dims; d-- > 0;)
            put(&h, t->dims[d], 8);
        put(&h, type_of(t), 4);
        put(&h, at, 8);
        at = aligned(at + t->n_bytes);
    }
    for (size_t i = 0; i < 8; i++)
        h.text.data[16 + i] = (char)(h.n_keys >> (8 * i));
    while (h.text.length % ALIGNMENT != 0)
        put(&h, 0, 1);
    *out = h.text;
}

uint64_t mf_rc_gguf_place(uint64_t end)
{
    return aligned(end);
}
