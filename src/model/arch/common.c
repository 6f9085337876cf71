/* SPDX-License-Identifier: MIT */
/* Configuration and binding that are the same for every family. */
#include "model/arch/common.h"

#include <math.h>
#include <string.h>

mf_status mf_require_string(const mf_source *source, const char *name, const char *only,
                            mf_error *error)
{
    const char *value = NULL;
    MF_TRY(mf_hparam_string(source, name, &value, error));
    if (value != NULL && strcmp(value, only) != 0)
        return mf_hparam_fail(source, name, MF_ERR_UNSUPPORTED, error,
                              "is %.64s; only %s is supported", value, only);
    return MF_OK;
}

mf_status mf_require_false(const mf_source *source, const char *name, mf_error *error)
{
    bool value = false;
    MF_TRY(mf_hparam_bool_or(source, name, false, &value, error));
    if (value)
        return mf_hparam_fail(source, name, MF_ERR_UNSUPPORTED, error,
                              "is true; only false is supported");
    return MF_OK;
}

mf_status mf_configure_common(const mf_source *s, mf_hparams *h, mf_error *error)
{
    double eps;
    MF_TRY(
        mf_hparam_u32(s, "num_hidden_layers", (mf_range){1, MF_MAX_LAYERS}, &h->n_layers, error));
    MF_TRY(mf_hparam_u32(s, "hidden_size", (mf_range){1, MF_MAX_DIM}, &h->hidden_size, error));
    MF_TRY(mf_hparam_u32(s, "vocab_size", (mf_range){1, 1 << 24}, &h->n_vocab, error));
    MF_TRY(mf_hparam_u32_or(s, "max_position_embeddings", 262144, (mf_range){1, 1 << 28},
                            &h->n_context, error));
    MF_TRY(mf_hparam_double_or(s, "rms_norm_eps", 1e-6, (mf_range){0, 1}, &eps, error));
    MF_TRY(mf_hparam_bool_or(s, "tie_word_embeddings", false, &h->tie_embeddings, error));
    h->rms_eps = (float)eps;
    return mf_require_string(s, "hidden_act", "silu", error);
}

double mf_yarn_mscale(double factor, double m)
{
    return factor <= 1.0 ? 1.0 : 0.1 * m * log(factor) + 1.0;
}

/* A number of turns: 0 counts as absent, as in the publishers' code, and less than a millionth is
 * no number of turns but an overflow of the ramp's ends. */
static mf_status configure_beta(const mf_source *s, const char *name, double fallback, double *out,
                                mf_error *error)
{
    MF_TRY(mf_hparam_double_or(s, name, fallback, (mf_range){0, 1e6}, out, error));
    if (*out == 0.0)
        *out = fallback;
    if (*out < 1e-6)
        return mf_hparam_fail(s, name, MF_ERR_FORMAT, error, "is %g; expected 0 or 1e-06 to 1e+06",
                              *out);
    return MF_OK;
}

/* The frequencies' fields, and the factor of cosine and sine: arXiv 2309.00071, sections 3.2 to
 * 3.4. */
static mf_status configure_yarn(const mf_source *s, mf_hparams *h, mf_error *error)
{
    mf_rope *r = &h->rope;
    double part, all;
    r->is_yarn = true;
    if (r->theta == 1.0)
        return mf_hparam_fail(s, "rope.theta", MF_ERR_FORMAT, error,
                              "is 1: with YaRN more than 1 is needed");
    MF_TRY(mf_hparam_double_or(s, "rope.original_max_position_embeddings", h->n_context,
                               (mf_range){1, 1e9}, &r->n_original, error));
    MF_TRY(mf_hparam_double_or(s, "rope.factor", h->n_context / r->n_original,
                               (mf_range){1e-3, 1e6}, &r->factor, error));
    MF_TRY(configure_beta(s, "rope.beta_fast", 32.0, &r->beta_fast, error));
    MF_TRY(configure_beta(s, "rope.beta_slow", 1.0, &r->beta_slow, error));
    MF_TRY(mf_hparam_bool_or(s, "rope.truncate", true, &r->truncate, error));
    MF_TRY(mf_hparam_double_or(s, "rope.mscale", 0.0, (mf_range){0, 1e3}, &part, error));
    MF_TRY(mf_hparam_double_or(s, "rope.mscale_all_dim", 0.0, (mf_range){0, 1e3}, &all, error));
    double cos_sin = mf_yarn_mscale(r->factor, 1.0);
    if (part != 0.0 && all != 0.0)
        cos_sin = mf_yarn_mscale(r->factor, part) / mf_yarn_mscale(r->factor, all);
    return mf_hparam_double_or(s, "rope.attention_factor", cos_sin, (mf_range){0, 1e6},
                               &r->attention_factor, error);
}

mf_status mf_configure_rope(const mf_source *s, double theta, mf_hparams *h, mf_error *error)
{
    const char *type = NULL;
    h->rope.attention_factor = 1.0;
    MF_TRY(mf_hparam_double_or(s, "rope.theta", theta, (mf_range){1, 1e12}, &h->rope.theta, error));
    MF_TRY(mf_hparam_string(s, "rope.type", &type, error));
    if (type == NULL || strcmp(type, "default") == 0)
        return MF_OK;
    if (strcmp(type, "yarn") == 0)
        return configure_yarn(s, h, error);
    return mf_hparam_fail(s, "rope.type", MF_ERR_UNSUPPORTED, error,
                          "is %.64s; supported are default and yarn", type);
}

mf_status mf_bind_layer_matrix(mf_binder *b, mf_tensor_id id, uint32_t n_rows, uint32_t n_cols,
                               mf_weight *out, mf_error *error)
{
    return mf_bind_matrix(b, id, (mf_matrix_shape){0, n_rows, n_cols}, out, error);
}

mf_status mf_bind_mlp(mf_binder *b, const mf_hparams *h, mf_tensor_id gate, uint32_t hidden,
                      mf_mlp_weights *out, mf_error *error)
{
    mf_tensor_id up = gate, down = gate;
    up.role = gate.role + 1;
    down.role = gate.role + 2;
    MF_TRY(mf_bind_layer_matrix(b, gate, hidden, h->hidden_size, &out->gate, error));
    MF_TRY(mf_bind_layer_matrix(b, up, hidden, h->hidden_size, &out->up, error));
    return mf_bind_layer_matrix(b, down, h->hidden_size, hidden, &out->down, error);
}

/* A tied head may be stored all the same and is then left out. */
static mf_status bind_head(mf_binder *b, const mf_hparams *h, mf_model_weights *out,
                           mf_error *error)
{
    const mf_tensor_id head = mf_tensor_of(MF_ROLE_HEAD, 0);
    mf_stored unused;
    if (!h->tie_embeddings)
        return mf_bind_layer_matrix(b, head, h->n_vocab, h->hidden_size, &out->lm_head, error);
    out->lm_head = out->embed;
    return b->source->ops->has(b->source, head)
               ? b->source->ops->find(b->source, head, &unused, error)
               : MF_OK;
}

mf_status mf_bind_ends(mf_binder *b, const mf_hparams *h, float norm_centre, mf_model_weights *out,
                       mf_error *error)
{
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_EMBED, 0), h->n_vocab, h->hidden_size,
                                &out->embed, error));
    MF_TRY(bind_head(b, h, out, error));
    return mf_bind_norm(b, mf_tensor_of(MF_ROLE_FINAL_NORM, 0), h->hidden_size, norm_centre,
                        &out->final_norm, error);
}
