/* SPDX-License-Identifier: MIT */
/* Configuration and binding that are the same for every family. */
#include "model/arch/common.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 512

mf_status mf_require_string(const mf_config *config, const char *field, const char *only,
                            mf_error *error)
{
    const char *value = mf_config_string(config, field);
    if (value != NULL && strcmp(value, only) != 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: field %s is %s; only %s is supported",
                       config->json.path, field, value, only);
    return MF_OK;
}

mf_status mf_configure_common(const mf_config *c, mf_hparams *h, mf_error *error)
{
    double eps;
    MF_TRY(mf_config_u32(c, "num_hidden_layers", 1, MF_MAX_LAYERS, &h->n_layers, error));
    MF_TRY(mf_config_u32(c, "hidden_size", 1, MF_MAX_DIM, &h->hidden_size, error));
    MF_TRY(mf_config_u32(c, "vocab_size", 1, 1u << 24, &h->n_vocab, error));
    MF_TRY(
        mf_config_u32_or(c, "max_position_embeddings", 262144, 1, 1u << 28, &h->n_context, error));
    MF_TRY(mf_config_double_or(c, "rms_norm_eps", 1e-6, 0.0, 1.0, &eps, error));
    MF_TRY(mf_config_bool_or(c, "tie_word_embeddings", false, &h->tie_embeddings, error));
    h->rms_eps = (float)eps;
    return mf_require_string(c, "hidden_act", "silu", error);
}

mf_status mf_bind_layer_vector(mf_binder *b, uint32_t layer, const char *suffix, uint64_t n,
                               float add, mf_span *out, mf_error *error)
{
    char name[NAME_BYTES];
    mf_layer_name(b, layer, suffix, name, sizeof name);
    return mf_bind_vector(b, name, n, add, out, error);
}

mf_status mf_bind_layer_matrix(mf_binder *b, uint32_t layer, const char *suffix, uint32_t n_rows,
                               uint32_t n_cols, mf_weight *out, mf_error *error)
{
    char name[NAME_BYTES];
    mf_layer_name(b, layer, suffix, name, sizeof name);
    return mf_bind_matrix(b, name, n_rows, n_cols, out, error);
}

/* The output head lies beside the text model, not inside it. A tied one may be stored all the same
 * and is then left out. */
static mf_status bind_head(mf_binder *b, const mf_hparams *h, mf_model_weights *out,
                           mf_error *error)
{
    static const char *const names[] = {"language_model.lm_head", "lm_head"};
    static const char *const suffixes[] = {".weight", ".scales", ".biases"};
    for (size_t i = 0; i < 2; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%s.weight", names[i]);
        if (mf_tensor_find(&b->checkpoint->table, name) == NULL)
            continue;
        if (!h->tie_embeddings)
            return mf_bind_matrix(b, names[i], h->n_vocab, h->hidden_size, &out->lm_head, error);
        for (size_t j = 0; j < 3; j++) {
            snprintf(name, sizeof name, "%s%s", names[i], suffixes[j]);
            mf_tensor *t = mf_tensor_find(&b->checkpoint->table, name);
            if (t != NULL)
                t->used = true;
        }
    }
    if (!h->tie_embeddings)
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor lm_head.weight is missing",
                       b->checkpoint->dir);
    out->lm_head = out->embed;
    return MF_OK;
}

mf_status mf_bind_ends(mf_binder *b, const mf_hparams *h, float norm_add, mf_model_weights *out,
                       mf_error *error)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%sembed_tokens", b->prefix);
    MF_TRY(mf_bind_matrix(b, name, h->n_vocab, h->hidden_size, &out->embed, error));
    MF_TRY(bind_head(b, h, out, error));
    snprintf(name, sizeof name, "%snorm.weight", b->prefix);
    return mf_bind_vector(b, name, h->hidden_size, norm_add, &out->final_norm, error);
}
