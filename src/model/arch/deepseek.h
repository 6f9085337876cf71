/* SPDX-License-Identifier: MIT */
/* The DeepSeek families: multi-head latent attention, a few dense layers, then experts beside an
 * ungated shared one. DeepSeek-V2 (arXiv 2405.04434), DeepSeek-V3 (arXiv 2412.19437). */
#ifndef MF_MODEL_ARCH_DEEPSEEK_H
#define MF_MODEL_ARCH_DEEPSEEK_H

#include "model/family.h"

/* The routers that a family's published code implements. */
typedef struct mf_deepseek_rules {
    bool has_indexer; /* sparse attention (V3.2) */
    bool index_is_interleaved;
    bool is_noaux; /* noaux_tc over sigmoid scores; else softmax, greedy or group_limited_greedy */
    uint32_t
        n_dense_usual;  /* layers without experts at the beginning, where the config is silent */
    double scale_usual; /* of the experts' weights, likewise; 0: what the router's kind has */
} mf_deepseek_rules;

/* Heads and ranks of latent attention, in all layers. */
mf_status mf_deepseek_attention(const mf_source *source, mf_hparams *h, mf_error *error);
/* The first first_k_dense_replace layers are dense (n_dense_usual where that is absent), and of the
 * others all but every moe_layer_freq-th; or those that mlp_layer_types names. */
mf_status mf_deepseek_layers(const mf_source *source, uint32_t n_dense_usual, mf_hparams *h,
                             mf_error *error);
/* A layer's latent attention. */
mf_status mf_deepseek_bind_latent(mf_binder *b, const mf_hparams *h, uint32_t layer,
                                  mf_layer_weights *of, mf_error *error);

mf_status mf_deepseek_configure(const mf_source *source, const mf_deepseek_rules *rules,
                                mf_hparams *out, mf_error *error);

#endif
