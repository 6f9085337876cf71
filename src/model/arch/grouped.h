/* SPDX-License-Identifier: MIT */
/* Families of grouped-query softmax attention, each with an MLP or a mixture of experts: what their
 * configs share, and the binding of all of them, which the hyper-parameters alone decide. */
#ifndef MF_MODEL_ARCH_GROUPED_H
#define MF_MODEL_ARCH_GROUPED_H

#include "model/family.h"

/* Heads, all of them softmax attention over all positions; rms_eps and the like are not read. */
mf_status mf_grouped_heads(const mf_source *source, mf_hparams *h, mf_error *error);
/* The rotation (rope_interleave: of neighbours), of `part` of a head's dims where
 * rope.partial_rotary_factor does not say. */
mf_status mf_grouped_rope(const mf_source *source, double theta, double part, mf_hparams *h,
                          mf_error *error);
/* No layer has experts; their MLPs are of intermediate_size. */
mf_status mf_grouped_dense(const mf_source *source, mf_hparams *h, mf_error *error);
/* Layers without experts: those that mlp_only_layers names, and all but every
 * decoder_sparse_step-th. */
mf_status mf_grouped_sparse_steps(const mf_source *source, mf_hparams *h, mf_error *error);
/* The first first_k_dense_replace layers are without experts. */
mf_status mf_grouped_first_dense(const mf_source *source, mf_hparams *h, mf_error *error);

/* How a config calls its experts' numbers. */
typedef struct mf_grouped_names {
    const char *n_experts, *expert_hidden;
    const char *n_per_token; /* NULL: num_experts_per_tok */
} mf_grouped_names;
mf_status mf_grouped_experts(const mf_source *source, const mf_grouped_names *names, mf_hparams *h,
                             mf_error *error);
/* Once is_dense is known; where no layer has experts, `field` is to blame. */
mf_status mf_grouped_number_layers(const mf_source *source, mf_hparams *h, const char *field,
                                   mf_error *error);
/* Layers attend to `sliding_window` positions (`fallback` where the config leaves it out; 0: all)
 * where layer_types says sliding_attention; without layer_types those that `is_windowed` says. */
typedef bool (*mf_is_windowed_fn)(uint32_t layer, uint32_t parameter);
mf_status mf_grouped_windows(const mf_source *source, uint32_t fallback,
                             mf_is_windowed_fn is_windowed, uint32_t parameter, mf_hparams *h,
                             mf_error *error);

mf_status mf_grouped_bind(mf_binder *binder, const mf_hparams *h, mf_model_weights *out,
                          mf_error *error);

#endif
