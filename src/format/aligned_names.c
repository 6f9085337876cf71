/* SPDX-License-Identifier: MIT */
/* The names that the aligned form has for roles, arrays, files and types. They are written into
 * files: none is ever changed. */
#include "format/aligned.h"

#include <stdio.h>
#include <string.h>

static const char *const role_names[MF_N_ROLES] = {
    [MF_ROLE_EMBED] = "embed",
    [MF_ROLE_HEAD] = "head",
    [MF_ROLE_FINAL_NORM] = "final_norm",
    [MF_ROLE_INPUT_NORM] = "input_norm",
    [MF_ROLE_POST_NORM] = "post_norm",
    [MF_ROLE_Q] = "q",
    [MF_ROLE_K] = "k",
    [MF_ROLE_V] = "v",
    [MF_ROLE_O] = "o",
    [MF_ROLE_Q_NORM] = "q_norm",
    [MF_ROLE_K_NORM] = "k_norm",
    [MF_ROLE_Q_BIAS] = "q_bias",
    [MF_ROLE_K_BIAS] = "k_bias",
    [MF_ROLE_V_BIAS] = "v_bias",
    [MF_ROLE_O_BIAS] = "o_bias",
    [MF_ROLE_SINKS] = "sinks",
    [MF_ROLE_LINEAR_QKV] = "linear_qkv",
    [MF_ROLE_LINEAR_Z] = "linear_z",
    [MF_ROLE_LINEAR_B] = "linear_b",
    [MF_ROLE_LINEAR_A] = "linear_a",
    [MF_ROLE_LINEAR_QKVZ] = "linear_qkvz",
    [MF_ROLE_LINEAR_BA] = "linear_ba",
    [MF_ROLE_LINEAR_CONV] = "linear_conv",
    [MF_ROLE_LINEAR_A_LOG] = "linear_a_log",
    [MF_ROLE_LINEAR_DT_BIAS] = "linear_dt_bias",
    [MF_ROLE_LINEAR_NORM] = "linear_norm",
    [MF_ROLE_LINEAR_OUT] = "linear_out",
    [MF_ROLE_LATENT_Q_A] = "latent_q_a",
    [MF_ROLE_LATENT_Q_A_NORM] = "latent_q_a_norm",
    [MF_ROLE_LATENT_Q_B] = "latent_q_b",
    [MF_ROLE_LATENT_KV_A] = "latent_kv_a",
    [MF_ROLE_LATENT_KV_A_NORM] = "latent_kv_a_norm",
    [MF_ROLE_LATENT_KV_B] = "latent_kv_b",
    [MF_ROLE_LATENT_K_UP] = "latent_k_up",
    [MF_ROLE_LATENT_V_UP] = "latent_v_up",
    [MF_ROLE_INDEX_Q] = "index_q",
    [MF_ROLE_INDEX_K] = "index_k",
    [MF_ROLE_INDEX_WEIGHTS] = "index_weights",
    [MF_ROLE_INDEX_NORM] = "index_norm",
    [MF_ROLE_INDEX_NORM_BIAS] = "index_norm_bias",
    [MF_ROLE_ENTRY_KV] = "entry_kv",
    [MF_ROLE_ENTRY_KV_NORM] = "entry_kv_norm",
    [MF_ROLE_ENTRY_O_A] = "entry_o_a",
    [MF_ROLE_ENTRY_O_B] = "entry_o_b",
    [MF_ROLE_COMPRESS_KV] = "compress_kv",
    [MF_ROLE_COMPRESS_GATE] = "compress_gate",
    [MF_ROLE_COMPRESS_BIAS] = "compress_bias",
    [MF_ROLE_COMPRESS_NORM] = "compress_norm",
    [MF_ROLE_INDEX_COMPRESS_KV] = "index_compress_kv",
    [MF_ROLE_INDEX_COMPRESS_GATE] = "index_compress_gate",
    [MF_ROLE_INDEX_COMPRESS_BIAS] = "index_compress_bias",
    [MF_ROLE_INDEX_COMPRESS_NORM] = "index_compress_norm",
    [MF_ROLE_ATTENTION_STREAMS] = "attention_streams",
    [MF_ROLE_ATTENTION_STREAMS_BASE] = "attention_streams_base",
    [MF_ROLE_ATTENTION_STREAMS_SCALE] = "attention_streams_scale",
    [MF_ROLE_MLP_STREAMS] = "mlp_streams",
    [MF_ROLE_MLP_STREAMS_BASE] = "mlp_streams_base",
    [MF_ROLE_MLP_STREAMS_SCALE] = "mlp_streams_scale",
    [MF_ROLE_HEAD_STREAMS] = "head_streams",
    [MF_ROLE_HEAD_STREAMS_BASE] = "head_streams_base",
    [MF_ROLE_HEAD_STREAMS_SCALE] = "head_streams_scale",
    [MF_ROLE_KEYED_Q_CONV] = "keyed_q_conv",
    [MF_ROLE_KEYED_K_CONV] = "keyed_k_conv",
    [MF_ROLE_KEYED_V_CONV] = "keyed_v_conv",
    [MF_ROLE_KEYED_F_A] = "keyed_f_a",
    [MF_ROLE_KEYED_F_B] = "keyed_f_b",
    [MF_ROLE_KEYED_G_A] = "keyed_g_a",
    [MF_ROLE_KEYED_G_B] = "keyed_g_b",
    [MF_ROLE_GATE] = "gate",
    [MF_ROLE_UP] = "up",
    [MF_ROLE_DOWN] = "down",
    [MF_ROLE_SHARED_GATE] = "shared_gate",
    [MF_ROLE_SHARED_UP] = "shared_up",
    [MF_ROLE_SHARED_DOWN] = "shared_down",
    [MF_ROLE_SHARED_ROUTER] = "shared_router",
    [MF_ROLE_ROUTER] = "router",
    [MF_ROLE_ROUTER_BIAS] = "router_bias",
    [MF_ROLE_ROUTER_LOGIT_BIAS] = "router_logit_bias",
    [MF_ROLE_ROUTER_TABLE] = "router_table",
    [MF_ROLE_EXPERT_GATE_BIAS] = "expert_gate_bias",
    [MF_ROLE_EXPERT_UP_BIAS] = "expert_up_bias",
    [MF_ROLE_EXPERT_DOWN_BIAS] = "expert_down_bias",
    [MF_ROLE_EXPERT_PAIRS_BIAS] = "expert_pairs_bias",
    [MF_ROLE_DRAFT_EMBED_NORM] = "draft_embed_norm",
    [MF_ROLE_DRAFT_HIDDEN_NORM] = "draft_hidden_norm",
    [MF_ROLE_DRAFT_IN] = "draft_in",
    [MF_ROLE_DRAFT_NORM] = "draft_norm",
    [MF_ROLE_DRAFT_EMBED_IN] = "draft_embed_in",
    [MF_ROLE_DRAFT_STATE_IN] = "draft_state_in",
    [MF_ROLE_DRAFT_STREAMS] = "draft_streams",
    [MF_ROLE_DRAFT_STREAMS_BASE] = "draft_streams_base",
    [MF_ROLE_DRAFT_STREAMS_SCALE] = "draft_streams_scale",
};

const char *mf_aligned_role_name(mf_role role)
{
    return role_names[role];
}

void mf_aligned_tensor_name(mf_tensor_id id, uint32_t array, char *name, size_t capacity)
{
    static const char *const suffixes[MF_STORED_ARRAYS] = {"", ".scales", ".biases", ".zeros",
                                                           ".index"};
    const char *role = mf_aligned_role_name(id.role);
    snprintf(name, capacity, "%u.%s%s", id.layer, role != NULL ? role : "?", suffixes[array]);
}

void mf_aligned_expert_file(uint32_t layer, uint32_t drive, char *name, size_t capacity)
{
    if (drive == 0)
        snprintf(name, capacity, "experts/layer_%02u.bin", layer);
    else
        snprintf(name, capacity, "drive_%u/layer_%02u.bin", drive, layer);
}

const char *mf_aligned_dtype_name(mf_dtype type)
{
    return type == MF_F32 ? "F32" : type == MF_F16 ? "F16" : "BF16";
}

bool mf_aligned_dtype_parse(const char *name, mf_dtype *out)
{
    static const mf_dtype types[] = {MF_F32, MF_F16, MF_BF16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(name, mf_aligned_dtype_name(types[i])) == 0) {
            *out = types[i];
            return true;
        }
    }
    return false;
}
