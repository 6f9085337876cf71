/* SPDX-License-Identifier: MIT */
/* The bound weights of a model: what the forward pass multiplies with, by name and checked shape.
 */
#ifndef MF_MODEL_WEIGHTS_H
#define MF_MODEL_WEIGHTS_H

#include "backend/backend.h"
#include "experts/store.h"
#include "model/layer_kind.h"

/* Softmax attention. What a model does not have is left zero: a gate (with no rows), norms of the
 * heads, biases, sinks (buffer id 0). */
typedef struct mf_full_weights {
    mf_weight q, k, v, o;
    mf_weight gate;                 /* like q, of the output */
    mf_span q_norm, k_norm;         /* float32 [head_dim] */
    mf_span q_bias, k_bias, v_bias; /* float32, as many as rows */
    mf_span o_bias;
    mf_span sinks; /* float32 [n_heads] */
} mf_full_weights;

typedef struct mf_linear_weights {
    mf_weight qkv, z, b, a, out;
    mf_span conv;           /* float32 [channels, width] */
    mf_span a_log, dt_bias; /* float32 [v_heads] */
    mf_span norm;           /* float32 [value_dim] */
} mf_linear_weights;

typedef struct mf_latent_weights {
    mf_weight q_a, q_b; /* without q_rank q_b alone, from the layer's input */
    mf_weight kv_a, o;
    mf_head_weight key, value; /* absorbed: [kv_rank, nope_dim] and [value_head_dim, kv_rank] */
    mf_span q_norm, kv_norm;   /* float32 [q_rank], [kv_rank] */
} mf_latent_weights;

/* A gated MLP: the shared expert, or all of a dense layer. */
typedef struct mf_mlp_weights {
    mf_weight gate, up, down;
} mf_mlp_weights;

/* Experts of a layer: the shapes of the three matrices; their bytes come from the store at run
 * time. */
typedef struct mf_expert_shape {
    /* Spans unset, but for FP8 scales that are kept resident: then scales is that of expert 0. */
    mf_weight gate, up, down;
    bool has_resident_scales;
} mf_expert_shape;

/* Resident scales on a device of the experts' own: a matrix's, of n experts, from byte `at` on;
 * returns where the next may begin. The first: so that there is never nothing. */
#define MF_EXPERT_SCALES_FIRST ((uint64_t)64)
uint64_t mf_expert_scales_place(mf_weight *w, uint32_t n_experts, uint64_t at);

/* Where the experts of all layers lie in their files; see mf_expert_part. */
typedef struct mf_expert_tables {
    mf_expert_part *parts; /* [n_moe_layers][MF_MAX_EXPERT_PARTS] */
    size_t parts_bytes;
    /* [n_moe_layers][MF_MAX_EXPERT_PARTS][n_experts] where experts have tensors of their own */
    uint32_t *each_file;
    uint64_t *each_offset;
    size_t each_count;
} mf_expert_tables;

/* Takes a zeroed one. */
void mf_expert_tables_free(mf_expert_tables *tables, const mf_allocator *a);

typedef struct mf_layer_weights {
    mf_span input_norm, post_norm; /* float32 [hidden] */
    union {
        mf_full_weights full;
        mf_linear_weights linear;
        mf_latent_weights latent;
    } u;
    mf_mlp_weights mlp;
    mf_weight router, shared_router; /* [experts, hidden], [1, hidden] */
    mf_span router_bias;             /* float32 [experts] */
    mf_expert_shape experts;
} mf_layer_weights;

typedef struct mf_model_weights {
    mf_weight embed, lm_head; /* [vocab, hidden] */
    mf_span final_norm;
    mf_layer_weights *layers; /* [n_layers] */
} mf_model_weights;

/* Bytes of all that mf_expert_scales_place is asked for. */
uint64_t mf_expert_scales_bytes(const mf_hparams *h, const mf_model_weights *weights);

#endif
