/* SPDX-License-Identifier: MIT */
/* Configuration and binding that are the same for every family. */
#ifndef MF_MODEL_ARCH_COMMON_H
#define MF_MODEL_ARCH_COMMON_H

#include "model/family.h"

#define MF_MAX_DIM (1u << 20)

/* Layers, hidden size, vocabulary, context, norm epsilon, tied embeddings, activation. */
mf_status mf_configure_common(const mf_source *source, mf_hparams *h, mf_error *error);
/* rope.theta and, where rope.type says so, YaRN or Llama 3's scaling; head_dim and n_context are
 * known. Nothing is refused but types other than default, linear, yarn and llama3,
 * and dynamic without a fixed alpha. */
mf_status mf_configure_rope(const mf_source *source, double theta, mf_hparams *h, mf_error *error);
/* How many experts there are, are chosen by a token, and their inner size, by the fields' names. */
mf_status mf_configure_experts(const mf_source *source, const char *n_experts,
                               const char *n_per_token, const char *hidden, mf_hparams *h,
                               mf_error *error);
/* The router's groups of experts (the field `name`, absent: one) and how many of them are kept
 * (topk_group, absent: k_usual; 0: it must not be, of several, since publishers' codes have
 * different ones); the experts and their number a token are known. */
mf_status mf_configure_groups(const mf_source *source, const char *name, uint32_t k_usual,
                              mf_hparams *h, mf_error *error);
/* YaRN's attention temperature for a factor and a multiplier. */
double mf_yarn_mscale(double factor, double m);

/* Fields that only one value of is implemented: absent or that value. */
mf_status mf_require_string(const mf_source *source, const char *name, const char *only,
                            mf_error *error);
mf_status mf_require_false(const mf_source *source, const char *name, mf_error *error);

/* A list `name` (n: its length by mf_hparam_list) that says of each layer one of two words:
 * *is_yes, whether the layer's is `yes`. MF_ERR_UNSUPPORTED: it is neither, or is not there. */
mf_status mf_layer_word(const mf_source *source, const char *name, uint32_t n, uint32_t layer,
                        const char *yes, const char *no, bool *is_yes, mf_error *error);
/* The length of a list of the layers, MF_HPARAM_WHOLE if absent; MF_ERR_FORMAT: another than
 * theirs. */
mf_status mf_layer_list(const mf_source *source, const char *name, const mf_hparams *h, uint32_t *n,
                        mf_error *error);

/* mf_bind_matrix of a layer's [n_rows, n_cols]. */
mf_status mf_bind_layer_matrix(mf_binder *b, mf_tensor_id id, uint32_t n_rows, uint32_t n_cols,
                               mf_weight *out, mf_error *error);
/* A gated MLP: gate and up [hidden, h->hidden_size], down the other way round. `gate` is the role
 * of the first; those of up and down follow it. */
mf_status mf_bind_mlp(mf_binder *b, const mf_hparams *h, mf_tensor_id gate, uint32_t hidden,
                      mf_mlp_weights *out, mf_error *error);
/* Embedding, output head, final norm (published minus `norm_centre`). */
mf_status mf_bind_ends(mf_binder *b, const mf_hparams *h, float norm_centre, mf_model_weights *out,
                       mf_error *error);

/* What a layer that proposes tokens has besides, if one was asked for. */
mf_status mf_bind_draft(mf_binder *b, const mf_hparams *h, float norm_centre, mf_draft_weights *w,
                        mf_error *error);
/* What mixes the streams of a residual: the matrix, base and scale of these roles. */
mf_status mf_bind_streams(mf_binder *b, const mf_hparams *h, mf_tensor_id fn, bool is_last,
                          mf_stream_weights *w, mf_error *error);
/* A layer's router with what its kind has beside it, the shared expert, the experts. */
mf_status mf_bind_moe(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_layer_weights *w,
                      mf_error *error);
/* What a layer's attention has, w->u. */
typedef mf_status (*mf_bind_attention_fn)(mf_binder *b, const mf_hparams *h, uint32_t layer,
                                          mf_layer_weights *w, mf_error *error);
/* A whole model whose layers are attention of one kind and a gated MLP or experts, each behind a
 * norm that is stored as it is used. */
mf_status mf_bind_all(mf_binder *b, const mf_hparams *h, mf_bind_attention_fn bind_attention,
                      mf_model_weights *out, mf_error *error);

#endif
