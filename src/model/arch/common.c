/* SPDX-License-Identifier: MIT */
/* Configuration and binding that are the same for every family. */
#include "model/arch/common.h"

#include <math.h>
#include <string.h>

#define MAX_CONTEXT (1u << 28)

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

mf_status mf_layer_word(const mf_source *s, const char *name, uint32_t n, uint32_t layer,
                        const char *yes, const char *no, bool *is_yes, mf_error *error)
{
    const char *word = layer < n ? mf_hparam_element(s, name, layer) : NULL;
    const bool is_it = word != NULL && strcmp(word, yes) == 0;
    if (!is_it && (word == NULL || strcmp(word, no) != 0))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: field %s[%u] is %.64s; supported are %s and %s", s->hparam_path, name,
                       layer,
                       word != NULL ? word
                       : layer < n  ? "not a string"
                                    : "missing",
                       yes, no);
    *is_yes = is_it;
    return MF_OK;
}

mf_status mf_layer_list(const mf_source *s, const char *name, const mf_hparams *h, uint32_t *n,
                        mf_error *error)
{
    MF_TRY(mf_hparam_list(s, name, n, error));
    if (*n != MF_HPARAM_WHOLE && *n != h->n_layers)
        return mf_hparam_fail(s, name, MF_ERR_FORMAT, error,
                              "is not an array of num_hidden_layers = %u entries", h->n_layers);
    return MF_OK;
}

mf_status mf_configure_common(const mf_source *s, mf_hparams *h, mf_error *error)
{
    double eps;
    MF_TRY(
        mf_hparam_u32(s, "num_hidden_layers", (mf_range){1, MF_MAX_LAYERS}, &h->n_layers, error));
    MF_TRY(mf_hparam_u32(s, "hidden_size", (mf_range){1, MF_MAX_DIM}, &h->hidden_size, error));
    MF_TRY(mf_hparam_u32(s, "vocab_size", (mf_range){1, 1 << 24}, &h->n_vocab, error));
    MF_TRY(mf_hparam_u32_or(s, "max_position_embeddings", 262144, (mf_range){1, MAX_CONTEXT},
                            &h->n_context, error));
    MF_TRY(mf_hparam_double_or(s, "rms_norm_eps", -1.0, (mf_range){0, 1}, &eps, error));
    if (eps < 0) /* some families' code has 1e-5 for it, some 1e-6 */
        return mf_hparam_fail(s, "rms_norm_eps", MF_ERR_FORMAT, error, "is missing");
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

/* Who turns YaRN on as model cards say leaves max_position_embeddings as it is. */
static void stretch_context(mf_hparams *h)
{
    const double reach = h->rope.n_original * h->rope.factor;
    if (reach > h->n_context)
        h->n_context = reach < MAX_CONTEXT ? (uint32_t)reach : MAX_CONTEXT;
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
    stretch_context(h);
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

/* "dynamic" with a fixed alpha (Hunyuan): theta is stretched once and for all. Without one the
 * frequencies would depend on how much there is. */
static mf_status configure_alpha(const mf_source *s, mf_hparams *h, mf_error *error)
{
    double alpha;
    MF_TRY(mf_hparam_double_or(s, "rope.alpha", 0.0, (mf_range){0, 1e6}, &alpha, error));
    if (alpha == 0.0 || h->n_rot <= 2)
        return mf_hparam_fail(s, "rope.type", MF_ERR_UNSUPPORTED, error,
                              "is dynamic without a fixed alpha; supported are default, linear, "
                              "yarn, llama3, and dynamic with alpha");
    h->rope.theta *= pow(alpha, h->n_rot / (h->n_rot - 2.0));
    if (h->rope.theta > 1e12 || h->rope.theta < 1.0)
        return mf_hparam_fail(s, "rope.alpha", MF_ERR_FORMAT, error,
                              "%g makes theta %g; expected 1 to 1e12", alpha, h->rope.theta);
    return MF_OK;
}

/* One that has no default. */
static mf_status require_number(const mf_source *s, const char *type, const char *name, double *out,
                                mf_error *error)
{
    MF_TRY(mf_hparam_double_or(s, name, -1.0, (mf_range){1e-3, 1e9}, out, error));
    return *out > 0.0
               ? MF_OK
               : mf_hparam_fail(s, name, MF_ERR_FORMAT, error, "is missing: %s needs it", type);
}

/* Position interpolation, arXiv 2306.15595: positions are divided by the factor, which is the same
 * as all frequencies being. */
static mf_status configure_linear(const mf_source *s, mf_hparams *h, mf_error *error)
{
    mf_rope *r = &h->rope;
    MF_TRY(require_number(s, "linear", "rope.factor", &r->factor, error));
    r->n_factors = h->n_rot / 2;
    for (uint32_t i = 0; i < r->n_factors; i++)
        r->factors[i] = (float)r->factor;
    return MF_OK;
}

/* As Llama 3.1: its code, and its model card. */
static mf_status configure_llama3(const mf_source *s, mf_hparams *h, mf_error *error)
{
    static const char type[] = "llama3";
    mf_rope *r = &h->rope;
    r->is_llama3 = true;
    MF_TRY(require_number(s, type, "rope.factor", &r->factor, error));
    MF_TRY(require_number(s, type, "rope.low_freq_factor", &r->low_factor, error));
    MF_TRY(require_number(s, type, "rope.high_freq_factor", &r->high_factor, error));
    MF_TRY(require_number(s, type, "rope.original_max_position_embeddings", &r->n_original, error));
    if (r->high_factor < r->low_factor)
        return mf_hparam_fail(s, "rope.high_freq_factor", MF_ERR_FORMAT, error,
                              "is %g; expected at least low_freq_factor, %g", r->high_factor,
                              r->low_factor);
    return MF_OK;
}

/* A factor for each pair, where there is a list of them (GGUF has Llama 3.1's so). */
static mf_status configure_factors(const mf_source *s, mf_hparams *h, mf_error *error)
{
    static const char name[] = "rope.factors";
    mf_hparam_value v;
    s->ops->hparam(s, name, MF_HPARAM_WHOLE, &v);
    if (v.kind == MF_HPARAM_ABSENT)
        return MF_OK;
    if (v.kind != MF_HPARAM_LIST || v.n_elements != h->n_rot / 2 ||
        v.n_elements > MF_MAX_ROPE_PAIRS)
        return mf_hparam_fail(s, name, MF_ERR_FORMAT, error,
                              "is no list of %u: one for each pair of rotated dimensions",
                              h->n_rot / 2);
    for (uint32_t i = 0; i < v.n_elements; i++) {
        mf_hparam_value factor;
        s->ops->hparam(s, name, i, &factor);
        if (factor.kind != MF_HPARAM_NUMBER || !(factor.number >= 1e-6 && factor.number <= 1e6))
            return mf_hparam_fail(s, name, MF_ERR_FORMAT, error,
                                  "element %u is no number from 1e-6 to 1e6", i);
        h->rope.factors[i] = (float)factor.number;
    }
    h->rope.n_factors = v.n_elements;
    return MF_OK;
}

/* Factors are all there is of the rotation: llama.cpp would take both, and no published model has
 * them. */
static mf_status refuse_factors(const mf_source *s, const char *type, mf_error *error)
{
    mf_hparam_value v;
    s->ops->hparam(s, "rope.factors", MF_HPARAM_WHOLE, &v);
    return v.kind == MF_HPARAM_ABSENT
               ? MF_OK
               : mf_hparam_fail(s, "rope.type", MF_ERR_UNSUPPORTED, error,
                                "is %.64s; with factors of each pair (%s) only default is "
                                "supported",
                                type, v.field);
}

mf_status mf_configure_rope(const mf_source *s, double theta, mf_hparams *h, mf_error *error)
{
    const char *type = NULL;
    h->rope.attention_factor = 1.0;
    MF_TRY(mf_hparam_double_or(s, "rope.theta", theta, (mf_range){1, 1e12}, &h->rope.theta, error));
    MF_TRY(mf_hparam_string(s, "rope.type", &type, error));
    if (type == NULL || strcmp(type, "default") == 0)
        return configure_factors(s, h, error);
    MF_TRY(refuse_factors(s, type, error));
    if (strcmp(type, "yarn") == 0)
        return configure_yarn(s, h, error);
    if (strcmp(type, "dynamic") == 0)
        return configure_alpha(s, h, error);
    if (strcmp(type, "llama3") == 0)
        return configure_llama3(s, h, error);
    if (strcmp(type, "linear") == 0)
        return configure_linear(s, h, error);
    return mf_hparam_fail(s, "rope.type", MF_ERR_UNSUPPORTED, error,
                          "is %.64s; supported are default, linear, yarn and llama3", type);
}

mf_status mf_configure_experts(const mf_source *s, const char *n_experts, const char *n_per_token,
                               const char *hidden, mf_hparams *h, mf_error *error)
{
    MF_TRY(mf_hparam_u32(s, n_experts, (mf_range){1, 65535}, &h->n_experts, error));
    MF_TRY(
        mf_hparam_u32(s, n_per_token, (mf_range){1, h->n_experts}, &h->n_experts_per_token, error));
    return mf_hparam_u32(s, hidden, (mf_range){1, MF_MAX_DIM}, &h->expert_hidden, error);
}

/* A token's experts must find room in the groups that are kept: the router chooses among no others.
 */
mf_status mf_configure_groups(const mf_source *s, const char *name, uint32_t k_usual, mf_hparams *h,
                              mf_error *error)
{
    mf_router *r = &h->router;
    MF_TRY(mf_hparam_u32_or(s, name, 1, (mf_range){1, MF_MAX_GROUPS}, &r->n_groups, error));
    MF_TRY(mf_hparam_u32_or(s, "topk_group", r->n_groups == 1 ? 1 : k_usual,
                            (mf_range){1, r->n_groups}, &r->k_groups, error));
    if (r->k_groups == 0)
        return mf_hparam_fail(s, "topk_group", MF_ERR_FORMAT, error,
                              "is missing: of %u groups (%s) some are kept", r->n_groups, name);
    const uint32_t n_each = h->n_experts / r->n_groups;
    if (h->n_experts % r->n_groups != 0 || r->k_groups * n_each < h->n_experts_per_token)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: fields %s %u and topk_group %u do not fit %u experts, of which %u are "
                       "taken",
                       s->hparam_path, name, r->n_groups, r->k_groups, h->n_experts,
                       h->n_experts_per_token);
    return MF_OK;
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

static mf_status bind_draft_streams(mf_binder *b, const mf_hparams *h, mf_draft_weights *w,
                                    mf_error *error)
{
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_DRAFT_EMBED_IN, h->n_layers),
                                h->hidden_size, h->hidden_size, &w->embed_in, error));
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_DRAFT_STATE_IN, h->n_layers),
                                h->hidden_size, h->hidden_size, &w->state_in, error));
    return mf_bind_streams(b, h, mf_tensor_of(MF_ROLE_DRAFT_STREAMS, h->n_layers), true,
                           &w->streams, error);
}

mf_status mf_bind_draft(mf_binder *b, const mf_hparams *h, float norm_centre, mf_draft_weights *w,
                        mf_error *error)
{
    const struct {
        mf_role role;
        mf_span *out;
    } norms[] = {{MF_ROLE_DRAFT_EMBED_NORM, &w->embed_norm},
                 {MF_ROLE_DRAFT_HIDDEN_NORM, &w->hidden_norm},
                 {MF_ROLE_DRAFT_NORM, &w->norm}};
    if (h->n_draft_layers == 0)
        return MF_OK;
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        MF_TRY(mf_bind_norm(b, mf_tensor_of(norms[i].role, h->n_layers), h->hidden_size,
                            norm_centre, norms[i].out, error));
    if (h->n_streams != 0)
        return bind_draft_streams(b, h, w, error);
    return mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_DRAFT_IN, h->n_layers), h->hidden_size,
                                2 * h->hidden_size, &w->in, error);
}

mf_status mf_bind_moe(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_layer_weights *w,
                      mf_error *error)
{
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_ROUTER, layer), h->n_experts,
                                h->hidden_size, &w->router, error));
    if (h->router.has_logit_bias)
        MF_TRY(mf_bind_vector(b, mf_tensor_of(MF_ROLE_ROUTER_LOGIT_BIAS, layer), h->n_experts,
                              &w->router_logit_bias, error));
    if (h->router.has_bias && !h->is_hashed[layer])
        MF_TRY(mf_bind_vector(b, mf_tensor_of(MF_ROLE_ROUTER_BIAS, layer), h->n_experts,
                              &w->router_bias, error));
    if (h->is_hashed[layer])
        MF_TRY(mf_bind_table(b, mf_tensor_of(MF_ROLE_ROUTER_TABLE, layer),
                             (mf_matrix_shape){0, h->n_vocab, h->n_experts_per_token}, h->n_experts,
                             &w->router_table, error));
    if (h->shared_is_gated)
        MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_SHARED_ROUTER, layer), 1,
                                    h->hidden_size, &w->shared_router, error));
    if (h->shared_hidden != 0)
        MF_TRY(mf_bind_mlp(b, h, mf_tensor_of(MF_ROLE_SHARED_GATE, layer), h->shared_hidden,
                           &w->mlp, error));
    return mf_bind_experts(b, h, layer, &w->experts, error);
}

mf_status mf_bind_streams(mf_binder *b, const mf_hparams *h, mf_tensor_id fn, bool is_last,
                          mf_stream_weights *w, mf_error *error)
{
    const uint32_t n = h->n_streams, n_rows = is_last ? n : (2 + n) * n;
    const mf_tensor_id base = mf_tensor_of(fn.role + 1, fn.layer);
    MF_TRY(mf_bind_layer_matrix(b, fn, n_rows, n * h->hidden_size, &w->fn, error));
    MF_TRY(mf_bind_vector(b, base, n_rows, &w->base, error));
    return mf_bind_vector(b, mf_tensor_of(base.role + 1, fn.layer), is_last ? 1 : 3, &w->scale,
                          error);
}

static mf_status bind_layer_streams(mf_binder *b, const mf_hparams *h, uint32_t layer,
                                    mf_layer_weights *w, mf_error *error)
{
    if (h->n_streams == 0)
        return MF_OK;
    MF_TRY(mf_bind_streams(b, h, mf_tensor_of(MF_ROLE_ATTENTION_STREAMS, layer), false,
                           &w->attention_streams, error));
    return mf_bind_streams(b, h, mf_tensor_of(MF_ROLE_MLP_STREAMS, layer), false, &w->mlp_streams,
                           error);
}

static mf_status bind_layer(mf_binder *b, const mf_hparams *h, uint32_t layer,
                            mf_bind_attention_fn bind_attention, mf_layer_weights *w,
                            mf_error *error)
{
    MF_TRY(mf_bind_vector(b, mf_tensor_of(MF_ROLE_INPUT_NORM, layer), h->hidden_size,
                          &w->input_norm, error));
    MF_TRY(mf_bind_vector(b, mf_tensor_of(MF_ROLE_POST_NORM, layer), h->hidden_size, &w->post_norm,
                          error));
    MF_TRY(bind_layer_streams(b, h, layer, w, error));
    MF_TRY(bind_attention(b, h, layer, w, error));
    if (h->is_dense[layer])
        return mf_bind_mlp(b, h, mf_tensor_of(MF_ROLE_GATE, layer), h->dense_hidden, &w->mlp,
                           error);
    return mf_bind_moe(b, h, layer, w, error);
}

mf_status mf_bind_all(mf_binder *b, const mf_hparams *h, mf_bind_attention_fn bind_attention,
                      mf_model_weights *out, mf_error *error)
{
    MF_TRY(mf_bind_ends(b, h, 0.0f, out, error));
    MF_TRY(mf_bind_draft(b, h, 0.0f, &out->draft, error));
    if (h->n_streams != 0)
        MF_TRY(mf_bind_streams(b, h, mf_tensor_of(MF_ROLE_HEAD_STREAMS, 0), true,
                               &out->head_streams, error));
    for (uint32_t i = 0; i < mf_all_layers(h); i++)
        MF_TRY(bind_layer(b, h, i, bind_attention, &out->layers[i], error));
    return MF_OK;
}
