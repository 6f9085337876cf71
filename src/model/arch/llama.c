/* SPDX-License-Identifier: MIT */
/* Llama (2 to 3.3), Mistral, and Mixtral, which is Mistral with experts (arXiv 2401.04088). */
#include "model/arch/common.h"
#include "model/arch/grouped.h"

static mf_status configure_attention(const mf_source *s, double theta, mf_hparams *h,
                                     mf_error *error)
{
    MF_TRY(mf_configure_common(s, h, error));
    MF_TRY(mf_grouped_heads(s, h, error));
    MF_TRY(mf_grouped_rope(s, theta, 1.0, h, error));
    MF_TRY(mf_require_false(s, "mlp_bias", error));
    MF_TRY(mf_hparam_bool_or(s, "attention_bias", false, &h->has_qkv_bias, error));
    h->has_o_bias = h->has_qkv_bias;
    return MF_OK;
}

static mf_status configure_llama(const mf_source *s, mf_hparams *out, mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(configure_attention(s, 1e4, &h, error));
    MF_TRY(mf_grouped_dense(s, &h, error));
    *out = h;
    return MF_OK;
}

static bool is_any(uint32_t layer, uint32_t unused)
{
    (void)layer;
    (void)unused;
    return true;
}

/* Ministral 3: queries grow with the position, past the length of the first training. */
static mf_status configure_growth(const mf_source *s, mf_hparams *h, mf_error *error)
{
    static const char beta[] = "rope.llama_4_scaling_beta";
    MF_TRY(mf_hparam_double_or(s, beta, 0.0, (mf_range){0, 1e3}, &h->query_growth, error));
    if (h->query_growth == 0)
        return MF_OK;
    MF_TRY(mf_hparam_double_or(s, "rope.original_max_position_embeddings", 0.0, (mf_range){1, 1e9},
                               &h->query_floor, error));
    if (h->query_floor == 0)
        return mf_hparam_fail(s, beta, MF_ERR_FORMAT, error,
                              "is %g: original_max_position_embeddings is needed as well",
                              h->query_growth);
    h->rotated_queries_grow = true;
    return MF_OK;
}

static mf_status configure_mistral_by(const mf_source *s, uint32_t window, mf_hparams *out,
                                      mf_error *error)
{
    mf_hparams h = {0};
    MF_TRY(configure_attention(s, 1e4, &h, error));
    MF_TRY(configure_growth(s, &h, error));
    MF_TRY(mf_grouped_windows(s, window, is_any, 0, &h, error));
    MF_TRY(mf_grouped_dense(s, &h, error));
    *out = h;
    return MF_OK;
}

static mf_status configure_mistral(const mf_source *s, mf_hparams *out, mf_error *error)
{
    return configure_mistral_by(s, 4096, out, error);
}

/* The window that the first Mistral has by default went with the second. */
static mf_status configure_mistral3(const mf_source *s, mf_hparams *out, mf_error *error)
{
    return configure_mistral_by(s, 0, out, error);
}

static mf_status configure_mixtral(const mf_source *s, mf_hparams *out, mf_error *error)
{
    const mf_grouped_names names = {"num_local_experts", "intermediate_size", NULL};
    mf_hparams h = {0};
    MF_TRY(configure_attention(s, 1e6, &h, error));
    MF_TRY(mf_grouped_windows(s, 0, is_any, 0, &h, error));
    MF_TRY(mf_grouped_experts(s, &names, &h, error));
    h.router.normalise = true;
    mf_number_moe_layers(&h);
    *out = h;
    return MF_OK;
}

const mf_family mf_family_llama = {
    .name = "llama", .configure = configure_llama, .bind = mf_grouped_bind};

const mf_family mf_family_mistral = {
    .name = "mistral", .configure = configure_mistral, .bind = mf_grouped_bind};

/* Mistral-Small-3.1 and later and Ministral 3, which see: the text tower. */
const mf_family mf_family_mistral3 = {.name = "mistral3",
                                      .text_name = "ministral3",
                                      .configure = configure_mistral3,
                                      .bind = mf_grouped_bind};

const mf_family mf_family_mixtral = {
    .name = "mixtral", .configure = configure_mixtral, .bind = mf_grouped_bind};
