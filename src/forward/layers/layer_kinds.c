/* SPDX-License-Identifier: MIT */
/* The table of kinds of layers: a kind is its file and its row. */
#include "forward/forward.h"

extern const mf_layer_kind_ops mf_layer_softmax, mf_layer_linear, mf_layer_latent, mf_layer_keyed,
    mf_layer_entries;

const mf_layer_kind_ops *const mf_layer_kind_table[MF_N_LAYER_KINDS] = {
    [MF_LAYER_FULL] = &mf_layer_softmax,    [MF_LAYER_LINEAR] = &mf_layer_linear,
    [MF_LAYER_LATENT] = &mf_layer_latent,   [MF_LAYER_KEYED] = &mf_layer_keyed,
    [MF_LAYER_ENTRIES] = &mf_layer_entries,
};
