/* SPDX-License-Identifier: MIT */
/*
 * DeepSeek-V4 (Flash and Pro): attention to a window and to compressed entries, hyper-connections,
 * layers whose experts tokens name.
 */
#include "model/arch/deepseek_v4.h"

#include "model/arch/common.h"

/* What makes entries of `dim` columns, or of two series of them: values, gates, bias, norm. */
static mf_status bind_compress(mf_binder *b, const mf_hparams *h, mf_tensor_id kv, uint32_t dim,
                               mf_compress_weights *w, mf_error *error)
{
    const uint32_t layer = kv.layer, rate = h->entry_rate[layer];
    const uint32_t width = dim * (h->entries_overlap[layer] ? 2 : 1);
    MF_TRY(mf_bind_layer_matrix(b, kv, width, h->hidden_size, &w->kv, error));
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(kv.role + 1, layer), width, h->hidden_size,
                                &w->gate, error));
    MF_TRY(mf_bind_vector(b, mf_tensor_of(kv.role + 2, layer), (uint64_t)rate * width, &w->bias,
                          error));
    return mf_bind_vector(b, mf_tensor_of(kv.role + 3, layer), dim, &w->norm, error);
}

static mf_status bind_indexer(mf_binder *b, const mf_hparams *h, uint32_t layer,
                              mf_entry_weights *w, mf_error *error)
{
    MF_TRY(bind_compress(b, h, mf_tensor_of(MF_ROLE_INDEX_COMPRESS_KV, layer), h->index_dim,
                         &w->index, error));
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_INDEX_Q, layer),
                                h->index_heads * h->index_dim, h->q_rank, &w->index_q, error));
    return mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_INDEX_WEIGHTS, layer), h->index_heads,
                                h->hidden_size, &w->index_w, error);
}

/* The first step of the output: for each group of heads a matrix of its own, one below the other.
 */
static mf_status bind_output(mf_binder *b, const mf_hparams *h, uint32_t layer, mf_entry_weights *w,
                             mf_error *error)
{
    const uint32_t low = h->o_groups * h->o_rank;
    w->o_a = (mf_head_weight){.head_rows = h->o_rank, .n_rows = h->o_rank};
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_ENTRY_O_A, layer), low,
                                mf_query_width(h) / h->o_groups, &w->o_a.weight, error));
    return mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_ENTRY_O_B, layer), h->hidden_size, low,
                                &w->o, error);
}

static mf_status bind_attention(mf_binder *b, const mf_hparams *h, uint32_t layer,
                                mf_layer_weights *of, mf_error *error)
{
    mf_entry_weights *w = &of->u.entries;
    const uint32_t n = h->hidden_size;
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_LATENT_Q_A, layer), h->q_rank, n, &w->q_a,
                                error));
    MF_TRY(mf_bind_vector(b, mf_tensor_of(MF_ROLE_LATENT_Q_A_NORM, layer), h->q_rank, &w->q_norm,
                          error));
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_LATENT_Q_B, layer), mf_query_width(h),
                                h->q_rank, &w->q_b, error));
    MF_TRY(mf_bind_layer_matrix(b, mf_tensor_of(MF_ROLE_ENTRY_KV, layer), h->head_dim, n, &w->kv,
                                error));
    MF_TRY(mf_bind_vector(b, mf_tensor_of(MF_ROLE_ENTRY_KV_NORM, layer), h->head_dim, &w->kv_norm,
                          error));
    MF_TRY(mf_bind_vector(b, mf_tensor_of(MF_ROLE_SINKS, layer), h->n_heads, &w->sinks, error));
    MF_TRY(bind_output(b, h, layer, w, error));
    if (h->entry_rate[layer] != 0)
        MF_TRY(bind_compress(b, h, mf_tensor_of(MF_ROLE_COMPRESS_KV, layer), h->head_dim,
                             &w->entries, error));
    return h->entries_overlap[layer] ? bind_indexer(b, h, layer, w, error) : MF_OK;
}

static mf_status bind(mf_binder *b, const mf_hparams *h, mf_model_weights *out, mf_error *error)
{
    return mf_bind_all(b, h, bind_attention, out, error);
}

const mf_family mf_family_deepseek_v4 = {
    .name = "deepseek_v4",
    .configure = mf_deepseek_v4_configure,
    .bind = bind,
    .draft_kind = MF_LAYER_ENTRIES,
};
