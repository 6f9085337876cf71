/* SPDX-License-Identifier: MIT */
/* Hyper-parameters of a model, read from its config at run time. Every field is checked before
 * anything is sized by it. */
#ifndef MF_MODEL_HPARAMS_H
#define MF_MODEL_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#define MF_MAX_LAYERS 512

typedef enum mf_layer_kind {
    MF_LAYER_FULL = 1,  /* softmax attention over a key/value cache */
    MF_LAYER_LINEAR = 2 /* gated delta rule with a recurrent state */
} mf_layer_kind;

typedef struct mf_hparams {
    uint32_t n_layers, hidden_size, n_vocab, n_context;
    uint8_t layer_kind[MF_MAX_LAYERS]; /* mf_layer_kind */
    /* full attention */
    uint32_t n_heads, n_kv_heads, head_dim, n_rot;
    double rope_theta;
    /* linear attention */
    uint32_t n_k_heads, n_v_heads, key_dim, value_dim, conv_width;
    /* mixture of experts */
    uint32_t n_experts, n_experts_per_token, expert_hidden, shared_hidden;
    bool normalise_top_k;
    bool tie_embeddings;
    float rms_eps;
} mf_hparams;

static inline uint32_t mf_conv_channels(const mf_hparams *h)
{
    return 2 * h->n_k_heads * h->key_dim + h->n_v_heads * h->value_dim;
}

static inline uint32_t mf_value_width(const mf_hparams *h)
{
    return h->n_v_heads * h->value_dim;
}

static inline uint32_t mf_query_width(const mf_hparams *h)
{
    return h->n_heads * h->head_dim;
}

static inline uint32_t mf_kv_width(const mf_hparams *h)
{
    return h->n_kv_heads * h->head_dim;
}

#endif
