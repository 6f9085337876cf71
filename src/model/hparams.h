/* SPDX-License-Identifier: MIT */
/* Hyper-parameters of a model, read from its config at run time. Every field is checked before
 * anything is sized by it. */
#ifndef MF_MODEL_HPARAMS_H
#define MF_MODEL_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#define MF_MAX_LAYERS 512

typedef enum mf_layer_kind {
    MF_LAYER_FULL = 1,   /* softmax attention over a key/value cache */
    MF_LAYER_LINEAR = 2, /* gated delta rule with a recurrent state */
    MF_LAYER_LATENT = 3, /* multi-head latent attention over a cache of latents */
    MF_N_LAYER_KINDS
} mf_layer_kind;

typedef struct mf_rope {
    double theta;
    bool interleaved; /* pairs (2i, 2i + 1) instead of (i, i + n / 2) */
    /* YaRN, arXiv 2309.00071 */
    bool is_yarn, truncate;
    double factor, n_original, beta_fast, beta_slow;
    double attention_factor; /* of cosine and sine; 1 without YaRN */
} mf_rope;

/* How experts are chosen; see MF_OP_ROUTE. */
typedef struct mf_router {
    uint32_t n_groups, k_groups;
    bool is_sigmoid; /* scores, instead of softmax */
    bool has_bias; /* noaux_tc: a correction that only the choice sees, groups by their two best */
    bool normalise;
    float eps, scale;
} mf_router;

typedef struct mf_hparams {
    uint32_t n_layers, hidden_size, n_vocab, n_context;
    uint8_t layer_kind[MF_MAX_LAYERS]; /* mf_layer_kind */
    /* full attention */
    uint32_t n_heads, n_kv_heads, head_dim, n_rot;
    mf_rope rope;
    float attention_scale;
    uint32_t window[MF_MAX_LAYERS];   /* positions that a layer attends to; 0: all */
    bool is_unrotated[MF_MAX_LAYERS]; /* the layer's queries and keys are not rotated */
    /* latent attention: n_heads heads, whose keys have nope_dim + n_rot = head_dim dims */
    uint32_t q_rank; /* 0: queries are projected at once */
    uint32_t kv_rank, nope_dim, value_head_dim;
    /* linear attention */
    uint32_t n_k_heads, n_v_heads, key_dim, value_dim, conv_width;
    /* mixture of experts */
    bool is_dense[MF_MAX_LAYERS];      /* one MLP of dense_hidden instead of experts */
    uint16_t moe_index[MF_MAX_LAYERS]; /* of the layers that have experts, in order */
    uint32_t n_moe_layers;
    uint32_t n_experts, n_experts_per_token, expert_hidden, dense_hidden;
    uint32_t shared_hidden; /* 0: no shared expert */
    bool shared_is_gated;
    mf_router router;
    bool tie_embeddings;
    uint32_t n_mtp_layers; /* multi-token-prediction layers that may follow: left out */
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

static inline uint32_t mf_latent_width(const mf_hparams *h)
{
    return h->kv_rank + h->n_rot;
}

static inline uint32_t mf_kv_width(const mf_hparams *h)
{
    return h->n_kv_heads * h->head_dim;
}

/* Numbers the layers with experts; to be called once is_dense is known. */
static inline void mf_number_moe_layers(mf_hparams *h)
{
    h->n_moe_layers = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        h->moe_index[i] = (uint16_t)h->n_moe_layers;
        h->n_moe_layers += !h->is_dense[i];
    }
}

#endif
