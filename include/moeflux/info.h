/* SPDX-License-Identifier: MIT */
/* Part of <moeflux/moeflux.h>, which programs include and which states the conventions: what a
 * checkpoint is, what it needs, and what an engine's options come to. */
#ifndef MOEFLUX_INFO_H
#define MOEFLUX_INFO_H

#include <moeflux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of moeflux.h. */
struct mf_engine_options;

/* A part of a checkpoint that is there and not run. */
typedef struct mf_left_out {
    /* "vision tower", "vision projector", "multi-token prediction", "indexer" */
    char what[32];
    /* What its tensors' names have in common: "model.visual." */
    char names[64];
    uint64_t n_tensors;
    uint64_t n_bytes;
} mf_left_out;

#define MF_LEFT_OUT_MOST 8

/* What a checkpoint is, what it needs, and what the options come to. Sizes in bytes unless named
 * otherwise. */
typedef struct mf_model_info {
    size_t struct_bytes;
    /* config.json's model_type: "qwen3_5_moe", "deepseek_v3". */
    char family[32];
    /* How the checkpoint is stored: "safetensors", "fp8", "mlx-affine", "packed", "gguf q4_k". */
    char form[32];

    /* All, experts included. */
    uint64_t n_parameters;
    uint32_t n_vocab;
    uint32_t hidden_size;
    /* The model's own limit; n_context_tokens is what a session gets. */
    uint32_t n_context_tokens_model;

    uint32_t n_layers;
    uint32_t n_full_attention_layers;
    uint32_t n_linear_attention_layers;
    /* Multi-head latent attention. */
    uint32_t n_latent_attention_layers;
    /* Layers with experts; the others have one MLP, of dense_hidden_size. */
    uint32_t n_moe_layers;
    /* Multi-token-prediction layers, stored but not run. */
    uint32_t n_skipped_layers;

    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    /* These four 0 without latent attention; q_lora_rank also without one. */
    uint32_t q_lora_rank;
    uint32_t kv_lora_rank;
    uint32_t qk_rope_head_dim;
    uint32_t v_head_dim;

    uint32_t n_experts;
    /* In use; and what the model was trained with. */
    uint32_t n_experts_per_token;
    uint32_t n_experts_per_token_model;
    /* 1: the router chooses among all experts. */
    uint32_t n_expert_groups;
    uint32_t n_expert_groups_per_token;
    /* 16 or 32 where not quantised. */
    uint32_t expert_bits;
    uint32_t expert_hidden_size;
    uint32_t shared_expert_hidden_size;
    /* 0 where all layers have experts. */
    uint32_t dense_hidden_size;

    /* In force. */
    uint32_t n_context_tokens;
    uint32_t n_chunk_tokens;
    uint32_t n_sessions;
    /* Positions of a block of cached keys and values, or latents. */
    uint32_t page_tokens;

    /* Dense weights. */
    uint64_t resident_bytes;
    /* All experts of all layers; one; those that one token needs. */
    uint64_t expert_bytes;
    uint64_t one_expert_bytes;
    uint64_t working_set_bytes;
    /* Activations, at the chunk in force. */
    uint64_t scratch_bytes;

    /* One block of page_tokens positions, all layers without a window; 0: there are none. */
    uint64_t page_bytes;
    /* One recurrent state, all layers; 0: the family has none. */
    uint64_t recurrent_bytes;
    /* State of one session that fills its context, with one mark. */
    uint64_t session_bytes;
    /* The most that one mark holds by itself: a block, what windows reach, a recurrent state and
     * logits. */
    uint64_t one_mark_bytes;
    /* The limits in force, of all sessions and of all marks. */
    uint64_t state_bytes;
    uint64_t mark_bytes;

    /* The budget in force, and the least that the options allow. */
    uint64_t ram_bytes;
    uint64_t floor_bytes;
    /* Expert slots that fit the budget, 0 if it is below the floor or there are no experts
     * (n_moe_layers); one slot, with its alignment, the mean where layers' experts differ. */
    uint64_t n_slots;
    uint64_t slot_bytes;
    /* Memory that this machine (and its cgroup) had available. */
    uint64_t available_bytes;

    /* The devices in use: of the dense layers and sessions, and of the experts. */
    char device[32];
    char expert_device[32];
    /* The least device_bytes of each; 0: the CPU. Where both are one device, all is in the first.
     */
    uint64_t device_floor_bytes;
    uint64_t expert_device_floor_bytes;
    /* What may be taken of the device's memory; 0: not known or, where it is the process's, not
     * bounded but by ram_bytes. */
    uint64_t device_bytes;
    /* Why "auto" chose that device; empty: it was named. */
    char device_why[160];
    /* Where the experts' device has memory of its own: experts that the process's memory holds
     * besides, so that they are uploaded without being read, of slot_bytes each (the largest slot's
     * where they differ) and within ram_bytes; else 0. */
    uint64_t n_host_slots;
    /* Of layers with a window: positions of the widest, 0: none has one; one block of page_tokens
     * positions of them all, of which those that no window reaches any more are given back. */
    uint32_t window_tokens;
    uint64_t window_page_bytes;
    /* So many of the following are there; the last stands for all further ones of its kind. */
    uint64_t n_left_out;
    mf_left_out left_out[MF_LEFT_OUT_MOST];
} mf_model_info;

MF_API MF_MUST_CHECK mf_status mf_model_inspect_sized(const char *path,
                                                      const struct mf_engine_options *options,
                                                      mf_model_info *out, size_t struct_bytes,
                                                      mf_error *error);

/*
 * Reads a checkpoint's descriptors, loads no weights, and says what it is and needs under these
 * options. Errors: MF_ERR_ARGUMENT, _NO_MEMORY, _IO, _FORMAT, _UNSUPPORTED, _NOT_FOUND. A budget
 * below the floor is no error here: ram_bytes is less than floor_bytes. options may be NULL.
 */
MF_MUST_CHECK static inline mf_status mf_model_inspect(const char *path,
                                                       const struct mf_engine_options *options,
                                                       mf_model_info *out, mf_error *error)
{
    return mf_model_inspect_sized(path, options, out, sizeof *out, error);
}

/* As mf_model_inspect; the budget as it was at opening. */
MF_API void mf_engine_info_sized(const mf_engine *engine, mf_model_info *out, size_t struct_bytes);
static inline void mf_engine_info(const mf_engine *engine, mf_model_info *out)
{
    mf_engine_info_sized(engine, out, sizeof *out);
}

#ifdef __cplusplus
}
#endif
#endif
