/* SPDX-License-Identifier: MIT */
/* Configuration and binding that are the same for every family. */
#ifndef MF_MODEL_ARCH_COMMON_H
#define MF_MODEL_ARCH_COMMON_H

#include "model/family.h"

#define MF_MAX_DIM (1u << 20)

/* Layers, hidden size, vocabulary, context, norm epsilon, tied embeddings, activation. */
mf_status mf_configure_common(const mf_config *c, mf_hparams *h, mf_error *error);
/* A field that only one value of is implemented: absent or that value. */
mf_status mf_require_string(const mf_config *config, const char *field, const char *only,
                            mf_error *error);

/* mf_bind_vector and mf_bind_matrix of PREFIXlayers.LAYER.suffix. */
mf_status mf_bind_layer_vector(mf_binder *b, uint32_t layer, const char *suffix, uint64_t n,
                               float add, mf_span *out, mf_error *error);
mf_status mf_bind_layer_matrix(mf_binder *b, uint32_t layer, const char *suffix, uint32_t n_rows,
                               uint32_t n_cols, mf_weight *out, mf_error *error);
/* Embedding, output head, final norm. */
mf_status mf_bind_ends(mf_binder *b, const mf_hparams *h, float norm_add, mf_model_weights *out,
                       mf_error *error);

#endif
