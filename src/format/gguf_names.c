/* SPDX-License-Identifier: MIT */
/* Tensors' names in GGUF, as llama.cpp's converters give them. */
#include "format/gguf_source.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 96
#define N_NAMES 2 /* that a role may have: the first that exists is meant */

/* Those with a '.' at the front are of a layer. */
static const char *const names[MF_N_ROLES][N_NAMES] = {
    [MF_ROLE_EMBED] = {"token_embd.weight"},
    [MF_ROLE_HEAD] = {"output.weight"},
    [MF_ROLE_FINAL_NORM] = {"output_norm.weight"},
    [MF_ROLE_INPUT_NORM] = {".attn_norm.weight"},
    [MF_ROLE_POST_NORM] = {".post_attention_norm.weight", ".ffn_norm.weight"},
    [MF_ROLE_Q] = {".attn_q.weight"},
    [MF_ROLE_K] = {".attn_k.weight"},
    [MF_ROLE_V] = {".attn_v.weight"},
    [MF_ROLE_O] = {".attn_output.weight"},
    [MF_ROLE_Q_NORM] = {".attn_q_norm.weight"},
    [MF_ROLE_K_NORM] = {".attn_k_norm.weight"},
    [MF_ROLE_Q_BIAS] = {".attn_q.bias"},
    [MF_ROLE_K_BIAS] = {".attn_k.bias"},
    [MF_ROLE_V_BIAS] = {".attn_v.bias"},
    [MF_ROLE_O_BIAS] = {".attn_output.bias"},
    [MF_ROLE_SINKS] = {".attn_sinks.weight"},
    [MF_ROLE_LINEAR_QKV] = {".attn_qkv.weight"},
    [MF_ROLE_LINEAR_Z] = {".attn_gate.weight"},
    [MF_ROLE_LINEAR_B] = {".ssm_beta.weight"},
    [MF_ROLE_LINEAR_A] = {".ssm_alpha.weight"},
    [MF_ROLE_LINEAR_QKVZ] = {".ssm_in.weight"},
    [MF_ROLE_LINEAR_BA] = {".ssm_ba.weight"},
    [MF_ROLE_LINEAR_CONV] = {".ssm_conv1d.weight"},
    [MF_ROLE_LINEAR_A_LOG] = {".ssm_a"},
    [MF_ROLE_LINEAR_DT_BIAS] = {".ssm_dt.bias", ".ssm_dt"},
    [MF_ROLE_LINEAR_NORM] = {".ssm_norm.weight"},
    [MF_ROLE_LINEAR_OUT] = {".ssm_out.weight"},
    [MF_ROLE_KEYED_Q_CONV] = {".ssm_conv1d_q.weight"},
    [MF_ROLE_KEYED_K_CONV] = {".ssm_conv1d_k.weight"},
    [MF_ROLE_KEYED_V_CONV] = {".ssm_conv1d_v.weight"},
    [MF_ROLE_KEYED_F_A] = {".ssm_f_a.weight"},
    [MF_ROLE_KEYED_F_B] = {".ssm_f_b.weight"},
    [MF_ROLE_KEYED_G_A] = {".ssm_g_a.weight"},
    [MF_ROLE_KEYED_G_B] = {".ssm_g_b.weight"},
    [MF_ROLE_LATENT_Q_A] = {".attn_q_a.weight"},
    [MF_ROLE_LATENT_Q_A_NORM] = {".attn_q_a_norm.weight"},
    [MF_ROLE_LATENT_Q_B] = {".attn_q_b.weight"},
    [MF_ROLE_LATENT_KV_A] = {".attn_kv_a_mqa.weight"},
    [MF_ROLE_LATENT_KV_A_NORM] = {".attn_kv_a_norm.weight"},
    [MF_ROLE_LATENT_KV_B] = {".attn_kv_b.weight"},
    [MF_ROLE_LATENT_K_UP] = {".attn_k_b.weight"},
    [MF_ROLE_LATENT_V_UP] = {".attn_v_b.weight"},
    [MF_ROLE_INDEX_Q] = {".indexer.attn_q_b.weight"},
    [MF_ROLE_INDEX_K] = {".indexer.attn_k.weight"},
    [MF_ROLE_INDEX_WEIGHTS] = {".indexer.proj.weight"},
    [MF_ROLE_INDEX_NORM] = {".indexer.k_norm.weight"},
    [MF_ROLE_INDEX_NORM_BIAS] = {".indexer.k_norm.bias"},
    [MF_ROLE_ENTRY_KV] = {".attn_kv.weight"},
    [MF_ROLE_ENTRY_KV_NORM] = {".attn_kv_a_norm.weight"},
    [MF_ROLE_ENTRY_O_A] = {".attn_output_a.weight"},
    [MF_ROLE_ENTRY_O_B] = {".attn_output_b.weight"},
    [MF_ROLE_COMPRESS_KV] = {".attn_compressor_kv.weight"},
    [MF_ROLE_COMPRESS_GATE] = {".attn_compressor_gate.weight"},
    [MF_ROLE_COMPRESS_BIAS] = {".attn_compressor_ape.weight"},
    [MF_ROLE_COMPRESS_NORM] = {".attn_compressor_norm.weight"},
    [MF_ROLE_INDEX_COMPRESS_KV] = {".indexer_compressor_kv.weight"},
    [MF_ROLE_INDEX_COMPRESS_GATE] = {".indexer_compressor_gate.weight"},
    [MF_ROLE_INDEX_COMPRESS_BIAS] = {".indexer_compressor_ape.weight"},
    [MF_ROLE_INDEX_COMPRESS_NORM] = {".indexer_compressor_norm.weight"},
    [MF_ROLE_ATTENTION_STREAMS] = {".hc_attn_fn.weight"},
    [MF_ROLE_ATTENTION_STREAMS_BASE] = {".hc_attn_base.weight"},
    [MF_ROLE_ATTENTION_STREAMS_SCALE] = {".hc_attn_scale.weight"},
    [MF_ROLE_MLP_STREAMS] = {".hc_ffn_fn.weight"},
    [MF_ROLE_MLP_STREAMS_BASE] = {".hc_ffn_base.weight"},
    [MF_ROLE_MLP_STREAMS_SCALE] = {".hc_ffn_scale.weight"},
    [MF_ROLE_HEAD_STREAMS] = {"output_hc_fn.weight"},
    [MF_ROLE_HEAD_STREAMS_BASE] = {"output_hc_base.weight"},
    [MF_ROLE_HEAD_STREAMS_SCALE] = {"output_hc_scale.weight"},
    [MF_ROLE_ROUTER_TABLE] = {".ffn_gate_tid2eid.weight"},
    [MF_ROLE_GATE] = {".ffn_gate.weight"},
    [MF_ROLE_UP] = {".ffn_up.weight"},
    [MF_ROLE_DOWN] = {".ffn_down.weight"},
    [MF_ROLE_SHARED_GATE] = {".ffn_gate_shexp.weight"},
    [MF_ROLE_SHARED_UP] = {".ffn_up_shexp.weight"},
    [MF_ROLE_SHARED_DOWN] = {".ffn_down_shexp.weight"},
    [MF_ROLE_SHARED_ROUTER] = {".ffn_gate_inp_shexp.weight"},
    [MF_ROLE_ROUTER] = {".ffn_gate_inp.weight"},
    [MF_ROLE_ROUTER_BIAS] = {".exp_probs_b.bias", ".exp_probs_b"},
    [MF_ROLE_ROUTER_LOGIT_BIAS] = {".ffn_gate_inp.bias"},
    [MF_ROLE_EXPERT_GATE_BIAS] = {".ffn_gate_exps.bias"},
    [MF_ROLE_EXPERT_UP_BIAS] = {".ffn_up_exps.bias"},
    [MF_ROLE_EXPERT_DOWN_BIAS] = {".ffn_down_exps.bias"},
    [MF_ROLE_EXPERT_GATE] = {".ffn_gate_exps.weight"},
    [MF_ROLE_EXPERT_UP] = {".ffn_up_exps.weight"},
    [MF_ROLE_EXPERT_DOWN] = {".ffn_down_exps.weight"},
    [MF_ROLE_EXPERT_GATE_UP] = {".ffn_gate_up_exps.weight"},
    [MF_ROLE_DRAFT_EMBED_NORM] = {".nextn.enorm.weight"},
    [MF_ROLE_DRAFT_HIDDEN_NORM] = {".nextn.hnorm.weight"},
    [MF_ROLE_DRAFT_IN] = {".nextn.eh_proj.weight"},
    [MF_ROLE_DRAFT_NORM] = {".nextn.shared_head_norm.weight"},
};

static void write_name(mf_tensor_id id, const char *name, char *out, size_t capacity)
{
    if (name[0] == '.')
        snprintf(out, capacity, "blk.%u%s", id.layer, name);
    else
        snprintf(out, capacity, "%s", name);
}

void mf_gguf_role_name(mf_tensor_id id, char *name, size_t capacity)
{
    const char *first = names[id.role][0];
    write_name(id, first != NULL ? first : "(none)", name, capacity);
}

mf_tensor *mf_gguf_find_beside(const mf_gguf_source *gguf, const mf_tensor *tensor,
                               const char *what)
{
    static const char ending[] = ".weight";
    char name[NAME_BYTES];
    const size_t n = strlen(tensor->name), n_ending = sizeof ending - 1;
    if (n < n_ending || strcmp(tensor->name + n - n_ending, ending) != 0)
        return NULL;
    snprintf(name, sizeof name, "%.*s.%s", (int)(n - n_ending), tensor->name, what);
    return mf_tensor_find(&gguf->source.table, name);
}

mf_tensor *mf_gguf_find_role(const mf_gguf_source *gguf, mf_tensor_id id)
{
    mf_tensor *tensor = NULL;
    if (id.expert != MF_ALL_EXPERTS)
        return NULL;
    for (size_t i = 0; i < N_NAMES && names[id.role][i] != NULL && tensor == NULL; i++) {
        char name[NAME_BYTES];
        write_name(id, names[id.role][i], name, sizeof name);
        tensor = mf_tensor_find(&gguf->source.table, name);
    }
    return tensor;
}
