/* SPDX-License-Identifier: MIT */
/* What the Qwen families share: gated attention every few layers, the gated delta rule in the
 * others, a sparse MoE in all, or an MLP. */
#ifndef MF_MODEL_ARCH_HYBRID_H
#define MF_MODEL_ARCH_HYBRID_H

#include "model/family.h"

mf_status mf_hybrid_configure(const mf_source *source, mf_hparams *out, mf_error *error);
/* One MLP in each layer instead. */
mf_status mf_hybrid_configure_dense(const mf_source *source, mf_hparams *out, mf_error *error);

/* How a family stores the input projections of a linear-attention layer. */
typedef mf_status (*mf_bind_in_proj_fn)(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                                        mf_linear_weights *out, mf_error *error);

/* Two of them, and the other two. */
mf_status mf_hybrid_bind_qkv_z(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                               mf_linear_weights *out, mf_error *error);
mf_status mf_hybrid_bind_b_a(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                             mf_linear_weights *out, mf_error *error);
/* Apart, as Qwen3.5-MoE publishes them. */
mf_status mf_hybrid_bind_in_proj(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                                 mf_linear_weights *out, mf_error *error);

mf_status mf_hybrid_bind(mf_binder *binder, const mf_hparams *h, mf_bind_in_proj_fn bind_in_proj,
                         mf_model_weights *out, mf_error *error);

#endif
