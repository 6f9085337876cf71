/* SPDX-License-Identifier: MIT */
/*
 * The GGUF form: the tensors of the MLX form, unquantised, under llama.cpp's names, matrices as
 * blocks of random codes whose scales give the weights the same variance. One file, OUT/model.gguf.
 */
#include "make_random_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    {"self_attn.o_proj.bias", "attn_output.bias"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"self_attn.query_layernorm.weight", "attn_q_norm.weight"},
    {"self_attn.key_layernorm.weight", "attn_k_norm.weight"},
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
    {"self_attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"},
    {"self_attn.indexer.wk.weight", "indexer.attn_k.weight"},
    {"self_attn.indexer.k_norm.weight", "indexer.k_norm.weight"},
    {"self_attn.indexer.k_norm.bias", "indexer.k_norm.bias"},
    {"self_attn.indexer.weights_proj.weight", "indexer.proj.weight"},
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
    {"mlp.experts.gate_proj.weight", "ffn_gate_exps.weight"},
    {"mlp.experts.up_proj.weight", "ffn_up_exps.weight"},
    {"mlp.experts.down_proj.weight", "ffn_down_exps.weight"},
    {"mlp.experts.gate_proj.bias", "ffn_gate_exps.bias"},
    {"mlp.experts.up_proj.bias", "ffn_up_exps.bias"},
    {"mlp.experts.down_proj.bias", "ffn_down_exps.bias"},
    {"mlp.router.weight", "ffn_gate_inp.weight"},
    {"mlp.router.bias", "ffn_gate_inp.bias"},
    {"mlp.gate.wg.weight", "ffn_gate_inp.weight"},
    {"gate.weight", "ffn_gate_inp.weight"},
    {"e_score_correction_bias", "exp_probs_b.bias"},
    {"shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    {"shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    {"shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
    {"shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
    {"shared_mlp.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"shared_mlp.up_proj.weight", "ffn_up_shexp.weight"},
    {"shared_mlp.down_proj.weight", "ffn_down_shexp.weight"},
    {"switch_mlp.gate_proj.weight", "ffn_gate_exps.weight"},
    {"switch_mlp.up_proj.weight", "ffn_up_exps.weight"},
    {"switch_mlp.down_proj.weight", "ffn_down_exps.weight"},
};

/* DeepSeek-V4's, as it is published. */
static const char *const v4_names[][2] = {
    {"attn_norm.weight", "attn_norm.weight"},
    {"ffn_norm.weight", "ffn_norm.weight"},
    {"attn.wq_a.weight", "attn_q_a.weight"},
    {"attn.q_norm.weight", "attn_q_a_norm.weight"},
    {"attn.wq_b.weight", "attn_q_b.weight"},
    {"attn.wkv.weight", "attn_kv.weight"},
    {"attn.kv_norm.weight", "attn_kv_a_norm.weight"},
    {"attn.wo_a.weight", "attn_output_a.weight"},
    {"attn.wo_b.weight", "attn_output_b.weight"},
    {"attn.attn_sink", "attn_sinks.weight"},
    {"attn.compressor.wkv.weight", "attn_compressor_kv.weight"},
    {"attn.compressor.wgate.weight", "attn_compressor_gate.weight"},
    {"attn.compressor.ape", "attn_compressor_ape.weight"},
    {"attn.compressor.norm.weight", "attn_compressor_norm.weight"},
    {"attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"},
    {"attn.indexer.weights_proj.weight", "indexer.proj.weight"},
    {"attn.indexer.compressor.wkv.weight", "indexer_compressor_kv.weight"},
    {"attn.indexer.compressor.wgate.weight", "indexer_compressor_gate.weight"},
    {"attn.indexer.compressor.ape", "indexer_compressor_ape.weight"},
    {"attn.indexer.compressor.norm.weight", "indexer_compressor_norm.weight"},
    {"hc_attn_fn", "hc_attn_fn.weight"},
    {"hc_attn_base", "hc_attn_base.weight"},
    {"hc_attn_scale", "hc_attn_scale.weight"},
    {"hc_ffn_fn", "hc_ffn_fn.weight"},
    {"hc_ffn_base", "hc_ffn_base.weight"},
    {"hc_ffn_scale", "hc_ffn_scale.weight"},
    {"ffn.gate.weight", "ffn_gate_inp.weight"},
    {"ffn.gate.bias", "exp_probs_b.bias"},
    {"ffn.gate.tid2eid", "ffn_gate_tid2eid.weight"},
    {"ffn.shared_experts.w1.weight", "ffn_gate_shexp.weight"},
    {"ffn.shared_experts.w2.weight", "ffn_down_shexp.weight"},
    {"ffn.shared_experts.w3.weight", "ffn_up_shexp.weight"},
    {"ffn.experts.w1.weight", "ffn_gate_exps.weight"},
    {"ffn.experts.w2.weight", "ffn_down_exps.weight"},
    {"ffn.experts.w3.weight", "ffn_up_exps.weight"},
    /* of no layer */
    {"embed.weight", "token_embd.weight"},
    {"head.weight", "output.weight"},
    {"norm.weight", "output_norm.weight"},
    {"hc_head_fn", "output_hc_fn.weight"},
    {"hc_head_base", "output_hc_base.weight"},
    {"hc_head_scale", "output_hc_scale.weight"},
};

const char *mf_rc_gguf_arch(const mf_rc_shape *s)
{
    static const char *const archs[] = {
        [MF_RC_QWEN3_5_MOE] = "qwen35moe",
        [MF_RC_QWEN3_NEXT] = "qwen3next",
        [MF_RC_DEEPSEEK_V3] = "deepseek2",
        [MF_RC_KIMI_K2] = "deepseek2",
        [MF_RC_GLM4_LITE] = "deepseek2",
        [MF_RC_KIMI_LINEAR] = "kimi-linear",
        [MF_RC_DEEPSEEK_V2] = "deepseek2",
        [MF_RC_QWEN3_MOE] = "qwen3moe",
        [MF_RC_QWEN2_MOE] = "qwen2moe",
        [MF_RC_GLM4_MOE] = "glm4moe",
        [MF_RC_MINIMAX_M2] = "minimax-m2",
        [MF_RC_MIXTRAL] = "llama",
        [MF_RC_QWEN3] = "qwen3",
        [MF_RC_LLAMA] = "llama",
        [MF_RC_MISTRAL] = "llama",
        [MF_RC_LLAMA4] = "llama4",
        [MF_RC_DEEPSEEK_V32] = "deepseek32",
        [MF_RC_GLM_DSA] = "glm-dsa",
        [MF_RC_GPT_OSS] = "gpt-oss",
        [MF_RC_ERNIE] = "ernie4_5-moe",
        [MF_RC_HUNYUAN] = "hunyuan-moe",
        [MF_RC_DEEPSEEK_V4] = "deepseek4",
    };
    if (s->family == MF_RC_QWEN3_5_MOE && s->n_experts == 0)
        return "qwen35";
    return archs[s->family]; /* llama4 is the last */
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n > n_end && strcmp(text + n - n_end, end) == 0 &&
           (text[n - n_end - 1] == '.' || strchr(end, '.') != NULL);
}

static const char *v4_name(const char *name)
{
    for (size_t i = 0; i < sizeof v4_names / sizeof v4_names[0]; i++)
        if (strcmp(v4_names[i][0], name) == 0)
            return v4_names[i][1];
    mf_rc_die("%s: no name in GGUF", name);
}

static const char *layer_name(const mf_rc_shape *s, const char *name)
{
    const bool has_post_norm =
        !mf_rc_is_deepseek(s) &&
        (!mf_rc_is_grouped(s) || s->family == MF_RC_GLM4_MOE || s->family == MF_RC_GPT_OSS);
    if (mf_rc_is_v4(s))
        return v4_name(strchr(name + strlen("layers."), '.') + 1);
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
                 mf_rc_is_v4(s)                            ? v4_name(t->name)
                 : strstr(t->name, "embed_tokens") != NULL ? "token_embd.weight"
                 : strstr(t->name, "lm_head") != NULL      ? "output.weight"
                                                           : "output_norm.weight");
    snprintf(t->name, sizeof t->name, "%s", name);
}

/* ------------------------------------------------------------------------------------- types -- */

/* What llama.cpp keeps in float32: vectors, routers, biases, the convolution, and what is published
 * so.
 */
static bool stays_float(const mf_rc_tensor *t)
{
    return t->n_dims == 1 || strcmp(t->dtype, "F32") == 0 || ends_with(t->name, ".bias") ||
           strstr(t->name, "ffn_gate_inp") != NULL || strstr(t->name, "ssm_conv1d") != NULL;
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
    if (p->kind == MF_RC_TABLE) {
        p->kind = MF_RC_TABLE_I32;
        t->dtype = "I32";
        t->n_bytes = p->bytes = t->n_bytes / 2;
        return;
    }
    if (type != NULL && n_cols % type->n_values != 0)
        type = mf_rc_block_type_of(fallback);
    if (type == NULL || n_cols % type->n_values != 0)
        return; /* floats, as they are */
    t->block = p->block = type;
    p->kind = MF_RC_BLOCKS;
    p->a = p->a / sqrtf(3.0f) / type->rms; /* from a range to a spread */
    t->n_bytes = p->bytes = t->n_bytes / 2 / type->n_values * type->n_bytes;
}

/* What stands beside a matrix of NVFP4: a factor, of stacked ones for each, and one for its inputs.
 */
static void add_factor(mf_rc_tensors *tensors, size_t of, const char *what)
{
    mf_rc_tensor factor = tensors->items[of];
    const uint64_t n = factor.n_dims == 3 ? factor.dims[0] : 1;
    char name[sizeof factor.name];
    snprintf(name, sizeof name, "%.*s.%s", (int)(strlen(factor.name) - strlen(".weight")),
             factor.name, what);
    snprintf(factor.name, sizeof factor.name, "%s", name);
    factor.n_dims = 1;
    factor.dims[0] = n;
    factor.dtype = "F32";
    factor.block = factor.parts[0].block = NULL;
    factor.parts[0].kind = MF_RC_E4M3_SCALES;
    factor.parts[0].key = mf_rc_key(factor.parts[0].key, what);
    factor.n_bytes = factor.parts[0].bytes = 4 * n;
    if (tensors->count == tensors->capacity) {
        tensors->capacity *= 2;
        tensors->items = mf_rc_alloc(tensors->items, tensors->capacity * sizeof *tensors->items);
    }
    tensors->items[tensors->count++] = factor;
}

static void add_factors(mf_rc_tensors *tensors)
{
    const size_t count = tensors->count;
    for (size_t i = 0; i < count; i++) {
        const mf_rc_block_type *type = tensors->items[i].block;
        if (type == NULL || type->scales != MF_RC_SCALE_E4M3)
            continue;
        add_factor(tensors, i, "scale");
        add_factor(tensors, i, "input_scale");
    }
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
        if (stays_float(t) || strcmp(o->float_type, "F32") == 0)
            make_float32(t);
        else
            make_blocks(t, o->block);
        if (t->dtype[0] == 'B' && t->block == NULL && strcmp(o->float_type, "F16") == 0) {
            t->dtype = o->float_type;
            t->parts[0].kind = MF_RC_UNIFORM_F16;
        }
    }
    add_factors(tensors);
}
