/* SPDX-License-Identifier: MIT */
/* Hyper-parameters of a model, read from its config at run time. Every field is checked before
 * anything is sized by it. */
#ifndef MF_MODEL_HPARAMS_H
#define MF_MODEL_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#define MF_MAX_LAYERS 512
#define MF_MAX_ROPE_PAIRS 512

typedef enum mf_layer_kind {
    MF_LAYER_FULL = 1,    /* softmax attention over a key/value cache */
    MF_LAYER_LINEAR = 2,  /* gated delta rule with a recurrent state */
    MF_LAYER_LATENT = 3,  /* multi-head latent attention over a cache of latents */
    MF_LAYER_KEYED = 4,   /* delta rule whose state decays key by key */
    MF_LAYER_ENTRIES = 5, /* a window of positions, and entries for runs of earlier ones */
    MF_N_LAYER_KINDS
} mf_layer_kind;

typedef struct mf_rope {
    double theta;
    bool interleaved; /* pairs (2i, 2i + 1) instead of (i, i + n / 2) */
    /* YaRN, arXiv 2309.00071 */
    bool is_yarn, truncate;
    double factor, n_original, beta_fast, beta_slow;
    double attention_factor; /* of cosine and sine; 1 without YaRN */
    /* as Llama 3.1 has it, with factor and n_original */
    bool is_llama3;
    double low_factor, high_factor;
    uint32_t n_factors;               /* n_rot / 2, or 0 */
    float factors[MF_MAX_ROPE_PAIRS]; /* that pairs' frequencies are divided by */
} mf_rope;

/* How experts are chosen; see MF_OP_ROUTE. */
typedef struct mf_router {
    uint32_t n_groups, k_groups;
    bool is_sigmoid; /* scores, instead of softmax */
    bool is_sqrt_softplus;
    bool has_logit_bias; /* of the projection, before anything */
    bool has_bias; /* noaux_tc: a correction that only the choice sees, groups by their two best */
    bool normalise;
    bool scales_input; /* of the one expert that is chosen, and not what comes of it */
    float eps, scale;
} mf_router;

typedef struct mf_hparams {
    uint32_t n_layers, hidden_size, n_vocab, n_context;
    bool context_is_indexed; /* n_context is where an indexer would begin to choose positions */
    uint8_t layer_kind[MF_MAX_LAYERS]; /* mf_layer_kind */
    /* full attention */
    uint32_t n_heads, n_kv_heads, head_dim, n_rot;
    mf_rope rope;
    float attention_scale;
    bool has_qkv_bias, has_o_bias;  /* of the projections */
    bool has_sinks;                 /* one for each head */
    bool has_head_norms;            /* of queries and keys */
    bool head_norm_is_last;         /* after the rotation, not before */
    bool head_norm_is_whole;        /* over all heads together, not over each by itself */
    uint32_t window[MF_MAX_LAYERS]; /* positions that a layer attends to; 0: all */
    bool windows_are_chunks; /* those of the row's own run of so many, not the last so many */
    bool is_unrotated[MF_MAX_LAYERS]; /* the layer's queries and keys are not rotated */
    bool never_rotates;               /* no layer does; n_rot dims are cached apart all the same */
    bool has_unit_norms;              /* of rotated queries and keys, without weights */
    /* Where not rotated, or everywhere, queries grow by ln(floor((position + first) / floor) + 1) *
     * growth; 0: not. */
    double query_first, query_floor, query_growth;
    bool rotated_queries_grow;
    /* latent attention: n_heads heads, whose keys have nope_dim + n_rot = head_dim dims */
    uint32_t q_rank; /* 0: queries are projected at once */
    uint32_t kv_rank, nope_dim, value_head_dim;
    /* Which positions latent attention sees: index_most of them, as an indexer of index_heads heads
     * of index_dim dims chooses them (0: there is none); in force where the context is longer. */
    uint32_t index_heads, index_dim, index_most;
    uint32_t index_rate; /* positions that each thing to choose stands for; 0: one */
    bool index_is_interleaved, is_indexed;
    /* Attention to a window and to entries; window[] is what has to be kept of positions. */
    uint32_t attended_window;
    uint32_t entry_rate[MF_MAX_LAYERS];  /* positions that one stands for; 0: it has none */
    bool entries_overlap[MF_MAX_LAYERS]; /* made of two runs each; these are what is chosen of */
    mf_rope entry_rope;                  /* of layers that have entries */
    uint32_t o_groups, o_rank;           /* the output goes through so many matrices of that rank */
    /* The residual stream is several, which each block mixes; 0: one, as it is. */
    uint32_t n_streams, stream_iterations;
    float stream_eps;
    /* linear attention */
    uint32_t n_k_heads, n_v_heads, key_dim, value_dim, conv_width;
    bool v_heads_are_tiled; /* see mf_gated_delta_params */
    /* mixture of experts */
    bool is_dense[MF_MAX_LAYERS];      /* one MLP of dense_hidden instead of experts */
    uint16_t moe_index[MF_MAX_LAYERS]; /* of the layers that have experts, in order */
    uint32_t n_moe_layers;
    uint32_t n_experts, n_experts_per_token, expert_hidden, dense_hidden;
    uint32_t shared_hidden; /* 0: no shared expert */
    bool shared_is_gated;
    bool experts_have_biases; /* of all three matrices */
    /* Where gate and up are one tensor: it and that of down are published transposed, and their
     * rows take turns. */
    bool experts_are_turned, experts_are_paired;
    bool is_hashed[MF_MAX_LAYERS]; /* tokens name the layer's experts */
    float silu_limit;              /* of what goes into every SwiGLU; 0: none */
    bool experts_are_clamped;      /* as mf_expert_steps has it */
    float expert_limit, expert_alpha;
    mf_router router;
    bool tie_embeddings;
    uint32_t n_mtp_layers; /* multi-token-prediction layers that may follow the n_layers */
    /* Of these, asked for: a layer with the number n_layers, which only proposes tokens. It is
     * counted among the layers with experts. */
    uint32_t n_draft_layers; /* 0 or 1 */
    bool draft_feeds_normed; /* what it makes of a token is normed before it is its own input */
    float rms_eps;
} mf_hparams;

/* Values of a position's cosines. */
static inline uint32_t mf_rotated_pairs(const mf_hparams *h)
{
    return h->never_rotates ? 0 : h->n_rot / 2;
}

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

/* Positions within which an indexer chooses all that there is. */
static inline uint64_t mf_index_reach(const mf_hparams *h)
{
    return (uint64_t)h->index_most * (h->index_rate != 0 ? h->index_rate : 1);
}

/* Columns of the state that a layer which proposes tokens is given of a position: the normed one,
 * or all streams before they are joined. */
static inline uint32_t mf_draft_width(const mf_hparams *h)
{
    return h->hidden_size * (h->n_streams != 0 ? h->n_streams : 1);
}

/* With those that propose tokens. */
static inline uint32_t mf_all_layers(const mf_hparams *h)
{
    return h->n_layers + h->n_draft_layers;
}

/* Of the layers with experts, those of every pass. */
static inline uint32_t mf_main_moe_layers(const mf_hparams *h)
{
    return h->n_moe_layers - (h->n_draft_layers != 0 && !h->is_dense[h->n_layers] ? 1 : 0);
}

/* Numbers the layers with experts; to be called once is_dense is known. */
static inline void mf_number_moe_layers(mf_hparams *h)
{
    h->n_moe_layers = 0;
    for (uint32_t i = 0; i < mf_all_layers(h); i++) {
        h->moe_index[i] = (uint16_t)h->n_moe_layers;
        h->n_moe_layers += !h->is_dense[i];
    }
}

#endif
