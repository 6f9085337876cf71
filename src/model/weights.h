/* SPDX-License-Identifier: MIT */
/* The bound weights of a model: what the forward pass multiplies with, by name and checked shape.
 */
#ifndef MF_MODEL_WEIGHTS_H
#define MF_MODEL_WEIGHTS_H

#include "backend/backend.h"
#include "base/weight_repack.h"
#include "experts/store.h"
#include "model/layer_kind.h"

/* Softmax attention. What a model does not have is left zero: a gate (with no rows), norms of the
 * heads, biases, sinks (buffer id 0). */
typedef struct mf_full_weights {
    mf_weight q, k, v, o;
    mf_weight gate;                 /* like q, of the output */
    mf_span q_norm, k_norm;         /* float32 [head_dim]; of all heads where the norm is whole */
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

typedef struct mf_keyed_weights {
    mf_weight q, k, v, b, out;
    mf_weight f_a, f_b, g_a, g_b;   /* by a low rank: of decays, and of the output's gate */
    mf_span q_conv, k_conv, v_conv; /* float32 [channels, width] */
    mf_span a_log, dt_bias;         /* float32 [heads], [heads * key_dim] */
    mf_span norm;                   /* float32 [value_dim] */
} mf_keyed_weights;

typedef struct mf_latent_weights {
    mf_weight q_a, q_b; /* without q_rank q_b alone, from the layer's input */
    mf_weight kv_a, o;
    mf_head_weight key, value; /* absorbed: [kv_rank, nope_dim] and [value_head_dim, kv_rank] */
    mf_span q_norm, kv_norm;   /* float32 [q_rank], [kv_rank] */
    /* of an indexer: queries of q_rank, keys and the heads' weights of the layer's input */
    mf_weight index_q, index_k, index_w;
    mf_span index_norm, index_norm_bias; /* float32 [index_dim] */
} mf_latent_weights;

/* What makes entries of a layer's input: [n_series * dim, hidden] matrices. */
typedef struct mf_compress_weights {
    mf_weight kv, gate;
    mf_span bias, norm; /* float32 [rate, n_series * dim], [dim] */
} mf_compress_weights;

/* Attention to a window and to entries: one key for all heads, which is the value too. */
typedef struct mf_entry_weights {
    mf_weight q_a, q_b, kv, o;
    mf_head_weight o_a;             /* for each group of heads [o_rank, dims of the group] */
    mf_span q_norm, kv_norm, sinks; /* float32 [q_rank], [head_dim], [n_heads] */
    mf_compress_weights entries;    /* of layers that have them */
    mf_compress_weights index;      /* of those that choose of them: its keys */
    mf_weight index_q, index_w;     /* and as mf_latent_weights has them */
} mf_entry_weights;

/* What mixes the streams before a block, or, first alone, after all. */
typedef struct mf_stream_weights {
    mf_weight fn;        /* [(2 + n) n, n * hidden], or [n, ...] */
    mf_span base, scale; /* float32, as many as fn has rows; [3], or [1] */
} mf_stream_weights;

/* A gated MLP: the shared expert, or all of a dense layer. */
typedef struct mf_mlp_weights {
    mf_weight gate, up, down;
} mf_mlp_weights;

/* One form that experts of a layer have. */
typedef struct mf_expert_form {
    mf_weight_shape gate, up, down;
} mf_expert_form;

/* Experts of a layer: the shapes of the three matrices; their bytes come from the store at run
 * time. */
typedef struct mf_expert_shape {
    /* Spans unset, but for FP8 scales that are kept resident: then scales is that of expert 0. */
    mf_weight gate, up, down;
    bool has_resident_scales;
    mf_expert_steps steps; /* biases are resident */
    /* Where experts differ: their forms, of which those above are the first, and which each has.
     * Otherwise n_forms is 0. Both are of the model's expert tables. */
    uint32_t n_forms;
    const mf_expert_form *forms;
    const uint8_t *form_of; /* [n_experts] */
} mf_expert_shape;

/* That of experts of one form; form 0 where all are alike. */
mf_expert_shape mf_expert_shape_of(const mf_expert_shape *shape, uint32_t form);
static inline uint32_t mf_expert_form_of(const mf_expert_shape *shape, uint32_t expert)
{
    return shape->n_forms != 0 ? shape->form_of[expert] : 0;
}

/* Resident scales on a device of the experts' own: a matrix's, of n experts, from byte `at` on;
 * returns where the next may begin. The first: so that there is never nothing. */
#define MF_EXPERT_SCALES_FIRST ((uint64_t)64)
uint64_t mf_expert_scales_place(mf_weight *w, uint32_t n_experts, uint64_t at);

/* The same of their biases, which follow. */
uint64_t mf_expert_biases_place(mf_expert_shape *shape, uint32_t n_experts, uint64_t at);

/* What a layer's experts are made of that are not stored as slots have them. */
typedef struct mf_expert_recipe {
    mf_repack matrices[MF_EXPERT_MATRICES]; /* packing 0: they are as they are stored */
    bool up_is_in_gate;                     /* of what is read */
} mf_expert_recipe;

/* As mf_expert_map.make, of recipes [n_moe_layers]. */
mf_status mf_expert_recipe_make(const void *recipes, uint32_t layer,
                                const unsigned char *const *stored, unsigned char *const *parts,
                                mf_error *error);

/* Where the experts of all layers lie in their files; see mf_expert_part. */
typedef struct mf_expert_tables {
    mf_expert_part *parts; /* [n_moe_layers][MF_MAX_EXPERT_PARTS] */
    size_t parts_bytes;
    /* [n_moe_layers][MF_MAX_EXPERT_PARTS][n_experts] where experts have tensors of their own */
    uint32_t *each_file;
    uint64_t *each_offset;
    size_t each_count;
    /* Where experts of a layer differ: [n_moe_layers][MF_EXPERT_FORMS],
     * [n_moe_layers][MF_MAX_EXPERT_PARTS][MF_EXPERT_FORMS] and [n_moe_layers][n_experts] */
    mf_expert_form *forms;
    uint64_t *form_bytes;
    uint8_t *form_of;
    size_t n_form_layers, n_form_experts;
    /* Where slots have what is made of the files: [n_moe_layers][MF_MAX_STORED_PARTS], recipes
     * [n_moe_layers], and [n_moe_layers][MF_MAX_STORED_PARTS][n_experts] */
    mf_expert_part *stored;
    mf_expert_recipe *recipes;
    uint32_t *stored_file;
    uint64_t *stored_offset;
    size_t n_stored_layers, n_stored_each;
} mf_expert_tables;

/* The map of them, which borrows. */
mf_expert_map mf_expert_tables_map(const mf_expert_tables *tables, const mf_hparams *h);

/* Takes a zeroed one. */
void mf_expert_tables_free(mf_expert_tables *tables, const mf_allocator *a);

typedef struct mf_layer_weights {
    mf_span input_norm, post_norm; /* float32 [hidden] */
    union {
        mf_full_weights full;
        mf_linear_weights linear;
        mf_latent_weights latent;
        mf_keyed_weights keyed;
        mf_entry_weights entries;
    } u;
    mf_stream_weights attention_streams, mlp_streams;
    mf_mlp_weights mlp;
    mf_weight router, shared_router; /* [experts, hidden], [1, hidden] */
    mf_span router_bias;             /* float32 [experts] */
    mf_span router_logit_bias;       /* likewise */
    mf_span router_table;            /* int32 [vocab, experts a token]: those of each token */
    mf_expert_shape experts;
} mf_layer_weights;

/* What a layer that proposes tokens has besides. */
typedef struct mf_draft_weights {
    mf_span embed_norm, hidden_norm; /* float32 [hidden] */
    mf_weight in;                    /* [hidden, 2 hidden]: of the embedding, then the state */
    /* Where the residual stream is several, in its place: of the embedding and of each stream,
     * [hidden, hidden]; and what joins the layer's streams. */
    mf_weight embed_in, state_in;
    mf_stream_weights streams;
    mf_span norm; /* before the model's own head */
} mf_draft_weights;

typedef struct mf_model_weights {
    mf_weight embed, lm_head; /* [vocab, hidden] */
    mf_span final_norm;
    mf_stream_weights head_streams;
    mf_layer_weights *layers; /* [mf_all_layers] */
    mf_draft_weights draft;   /* of the last of them, if it is such a layer */
} mf_model_weights;

/* Bytes of all that mf_expert_scales_place is asked for. */
uint64_t mf_expert_scales_bytes(const mf_hparams *h, const mf_model_weights *weights);

#endif
