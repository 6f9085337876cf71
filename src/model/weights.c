/* SPDX-License-Identifier: MIT */
/* The bound weights: their memory, and walking over them. */
#include "model/weights.h"

void mf_expert_tables_free(mf_expert_tables *t, const mf_allocator *a)
{
    mf_free(a, t->parts, t->parts_bytes);
    mf_free(a, t->each_file, t->each_count * sizeof *t->each_file);
    mf_free(a, t->each_offset, t->each_count * sizeof *t->each_offset);
    *t = (mf_expert_tables){0};
}

enum { N_FULL = 5, N_LINEAR = 5, N_LATENT = 6, N_MOE = 5 }; /* matrices of a layer's parts */

static void place(mf_weight *w, mf_buffer buffer)
{
    w->data.buffer = buffer;
    w->scales.buffer = buffer;
    w->biases.buffer = buffer;
}

static void place_full(mf_full_weights *w, mf_buffer buffer)
{
    mf_weight *const matrices[N_FULL] = {&w->q, &w->gate, &w->k, &w->v, &w->o};
    for (size_t i = 0; i < N_FULL; i++)
        place(matrices[i], buffer);
    w->q_norm.buffer = w->k_norm.buffer = buffer;
}

static void place_linear(mf_linear_weights *w, mf_buffer buffer)
{
    mf_weight *const matrices[N_LINEAR] = {&w->qkv, &w->z, &w->b, &w->a, &w->out};
    for (size_t i = 0; i < N_LINEAR; i++)
        place(matrices[i], buffer);
    w->conv.buffer = w->a_log.buffer = w->dt_bias.buffer = w->norm.buffer = buffer;
}

static void place_latent(mf_latent_weights *w, mf_buffer buffer)
{
    mf_weight *const matrices[N_LATENT] = {&w->q_a, &w->q_b,        &w->kv_a,
                                           &w->o,   &w->key.weight, &w->value.weight};
    for (size_t i = 0; i < N_LATENT; i++)
        place(matrices[i], buffer);
    w->q_norm.buffer = w->kv_norm.buffer = buffer;
}

void mf_weights_set_buffer(mf_model_weights *weights, const mf_hparams *h, mf_buffer buffer)
{
    place(&weights->embed, buffer);
    place(&weights->lm_head, buffer);
    weights->final_norm.buffer = buffer;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        mf_layer_weights *w = &weights->layers[i];
        mf_weight *const matrices[N_MOE] = {&w->router, &w->shared_router, &w->mlp.gate, &w->mlp.up,
                                            &w->mlp.down};
        for (size_t j = 0; j < N_MOE; j++)
            place(matrices[j], buffer);
        w->input_norm.buffer = w->post_norm.buffer = w->router_bias.buffer = buffer;
        if (h->layer_kind[i] == MF_LAYER_FULL)
            place_full(&w->u.full, buffer);
        else if (h->layer_kind[i] == MF_LAYER_LATENT)
            place_latent(&w->u.latent, buffer);
        else
            place_linear(&w->u.linear, buffer);
    }
}
