/* SPDX-License-Identifier: MIT */
/* What comes before the data of a GGUF file: the metadata of each architecture, and descriptors. */
#include "make_random_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_I32 = 26, TYPE_BF16 = 30, ALIGNMENT = 4096 };

static uint32_t type_of(const mf_rc_tensor *t)
{
    if (t->block != NULL)
        return t->block->number;
    return strcmp(t->dtype, "F32") == 0   ? TYPE_F32
           : strcmp(t->dtype, "F16") == 0 ? TYPE_F16
           : strcmp(t->dtype, "I32") == 0 ? TYPE_I32
                                          : TYPE_BF16;
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

/* A list of n numbers follows, 4 bytes each. */
static void put_list(head *h, const char *key, uint32_t type, uint64_t n)
{
    put_key(h, key, 9);
    put(h, type, 4);
    put(h, n, 8);
}

static void put_yarn(head *h, const mf_rc_shape *s, double factor, uint64_t original)
{
    put_string(h, ".rope.scaling.type", "yarn");
    put_number(h, ".rope.scaling.factor", factor);
    put_count(h, ".rope.scaling.original_context_length", original);
    put_number(h, ".rope.scaling.yarn_beta_fast", s->yarn_beta_fast != 0 ? s->yarn_beta_fast : 32);
    put_number(h, ".rope.scaling.yarn_beta_slow", 1);
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
    put_list(h, ".rope.dimension_sections", 5, 4);
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
    put_list(h, ".attention.head_count_kv", 4, s->n_layers);
    for (uint64_t i = 0; i < s->n_layers; i++)
        put(h, mf_rc_is_keyed(s, i) ? 0 : 1, 4);
}

static void put_indexer(head *h, uint64_t n_heads, uint64_t n_chosen)
{
    put_count(h, ".attention.indexer.head_count", n_heads);
    put_count(h, ".attention.indexer.key_length", MF_RC_INDEX_DIM);
    put_count(h, ".attention.indexer.top_k", n_chosen);
}

static void put_v4(head *h, const mf_rc_shape *s)
{
    static const char *const clamps[] = {".swiglu_clamp_exp", ".swiglu_clamp_shexp"};
    put_count(h, ".attention.head_count_kv", 1);
    put_count(h, ".attention.key_length", s->head_dim);
    put_count(h, ".attention.value_length", s->head_dim);
    put_count(h, ".attention.q_lora_rank", s->q_rank);
    put_count(h, ".attention.sliding_window", s->window);
    put_count(h, ".attention.output_group_count", s->o_groups);
    put_count(h, ".attention.output_lora_rank", s->o_rank);
    put_number(h, ".attention.compress_rope_freq_base", 160000);
    put_list(h, ".attention.compress_ratios", 4, s->n_layers);
    for (uint64_t i = 0; i < s->n_layers; i++)
        put(h, mf_rc_v4_ratio(s, i), 4);
    put_indexer(h, MF_RC_V4_INDEX_HEADS, 512);
    put_count(h, ".rope.dimension_count", s->rope_dim);
    put_yarn(h, s, s->yarn_factor, 65536);
    put_count(h, ".hyper_connection.count", s->n_streams);
    put_count(h, ".hyper_connection.sinkhorn_iterations", 20);
    put_number(h, ".hyper_connection.epsilon", 1e-6);
    put_count(h, ".hash_layer_count", MF_RC_V4_HASHED);
    put_count(h, ".expert_shared_count", s->n_shared);
    for (size_t k = 0; k < 2; k++) {
        put_list(h, clamps[k], 6, s->n_layers);
        for (uint64_t i = 0; i < s->n_layers; i++)
            put(h, 0x41200000, 4); /* 10.0f */
    }
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
    if (s->n_index_heads != 0)
        put_indexer(h, s->n_index_heads, 2048);
    if (s->yarn_factor == 0)
        return;
    put_yarn(h, s, s->yarn_factor, 4096);
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
    if (s->family == MF_RC_ERNIE)
        put_count(h, ".interleave_moe_layer_step", 1);
    if (s->family == MF_RC_GPT_OSS) {
        put_count(h, ".attention.sliding_window", s->window);
        put_yarn(h, s, 32, 4096);
    }
    const uint64_t n_shared = s->n_shared * s->expert_hidden;
    if (s->n_shared != 0)
        put_count(h, ".expert_shared_count", s->n_shared);
    if (n_shared != 0 || s->shared_hidden != 0)
        put_count(h, ".expert_shared_feed_forward_length", n_shared ? n_shared : s->shared_hidden);
}

static void put_experts(head *h, const mf_rc_shape *s)
{
    const bool is_sigmoid = (mf_rc_is_deepseek(s) && s->family != MF_RC_DEEPSEEK_V2) ||
                            s->family == MF_RC_GLM4_MOE || s->family == MF_RC_MINIMAX_M2 ||
                            s->family == MF_RC_LLAMA4;
    if (s->n_experts == 0)
        return;
    const uint32_t scores = mf_rc_is_v4(s) ? 4 : is_sigmoid ? 2 : 1;
    put_count(h, ".expert_count", s->n_experts);
    put_count(h, ".expert_used_count", s->n_experts_per_token);
    put_count(h, ".expert_feed_forward_length", s->expert_hidden);
    put_count(h, ".expert_gating_func", scores);
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

/* Hunyuan's is stretched once and for all. */
static double theta_of(const mf_rc_shape *s)
{
    const double theta = (double)s->rope_theta, dim = (double)s->head_dim;
    return s->family == MF_RC_HUNYUAN ? theta * pow(1000.0, dim / (dim - 2)) : theta;
}

static void put_metadata(head *h, const mf_rc_shape *s)
{
    const bool is_fine = s->family == MF_RC_QWEN3_MOE || s->family == MF_RC_MINIMAX_M2 ||
                         s->family == MF_RC_QWEN2_MOE || s->family == MF_RC_QWEN3;
    const bool is_coarse =
        (mf_rc_is_grouped(s) && !is_fine) || (mf_rc_is_deepseek(s) && s->yarn_factor == 0);
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
    put_number(h, ".rope.freq_base", theta_of(s));
    if (mf_rc_is_deepseek(s))
        put_deepseek(h, s);
    else if (mf_rc_is_v4(s))
        put_v4(h, s);
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
    head h = {.arch = mf_rc_gguf_arch(&o->shape)};
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
