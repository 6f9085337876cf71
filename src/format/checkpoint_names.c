/* SPDX-License-Identifier: MIT */
/* The names of tensors: Hugging Face's, MLX's, and those of the packed form, which are the same
 * behind another prefix. */
#include "format/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 512
#define N_NAMES 7 /* that a role may have */

/* Where a name goes on from: the prefix of the text model, that of a layer, or nothing. What a
 * layer that predicts further tokens has besides has two names: as a layer among the others, and
 * where such layers are apart. */
typedef enum name_base { OF_LAYER, OF_TEXT, OF_NOTHING, OF_DRAFT } name_base;

typedef struct role_names {
    const char *names[N_NAMES]; /* the first that exists is meant */
    name_base base;
} role_names;

static const role_names roles[MF_N_ROLES] = {
    [MF_ROLE_EMBED] = {{"embed_tokens.weight", "embed.weight"}, OF_TEXT},
    [MF_ROLE_HEAD] = {{"lm_head.weight", "language_model.lm_head.weight", "head.weight"},
                      OF_NOTHING},
    [MF_ROLE_FINAL_NORM] = {{"norm.weight"}, OF_TEXT},
    [MF_ROLE_INPUT_NORM] = {{"input_layernorm.weight", "attn_norm.weight"}, OF_LAYER},
    [MF_ROLE_POST_NORM] = {{"post_attention_layernorm.weight", "ffn_norm.weight"}, OF_LAYER},
    [MF_ROLE_Q] = {{"self_attn.q_proj.weight"}, OF_LAYER},
    [MF_ROLE_K] = {{"self_attn.k_proj.weight"}, OF_LAYER},
    [MF_ROLE_V] = {{"self_attn.v_proj.weight"}, OF_LAYER},
    [MF_ROLE_O] = {{"self_attn.o_proj.weight"}, OF_LAYER},
    [MF_ROLE_Q_NORM] = {{"self_attn.q_norm.weight", "self_attn.query_layernorm.weight"}, OF_LAYER},
    [MF_ROLE_K_NORM] = {{"self_attn.k_norm.weight", "self_attn.key_layernorm.weight"}, OF_LAYER},
    [MF_ROLE_Q_BIAS] = {{"self_attn.q_proj.bias"}, OF_LAYER},
    [MF_ROLE_K_BIAS] = {{"self_attn.k_proj.bias"}, OF_LAYER},
    [MF_ROLE_V_BIAS] = {{"self_attn.v_proj.bias"}, OF_LAYER},
    [MF_ROLE_O_BIAS] = {{"self_attn.o_proj.bias"}, OF_LAYER},
    [MF_ROLE_SINKS] = {{"self_attn.sinks", "attn.attn_sink"}, OF_LAYER},
    [MF_ROLE_LINEAR_QKV] = {{"linear_attn.in_proj_qkv.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_Z] = {{"linear_attn.in_proj_z.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_B] = {{"linear_attn.in_proj_b.weight", "self_attn.b_proj.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_A] = {{"linear_attn.in_proj_a.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_QKVZ] = {{"linear_attn.in_proj_qkvz.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_BA] = {{"linear_attn.in_proj_ba.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_CONV] = {{"linear_attn.conv1d.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_A_LOG] = {{"linear_attn.A_log", "self_attn.A_log"}, OF_LAYER},
    [MF_ROLE_LINEAR_DT_BIAS] = {{"linear_attn.dt_bias", "self_attn.dt_bias"}, OF_LAYER},
    [MF_ROLE_LINEAR_NORM] = {{"linear_attn.norm.weight", "self_attn.o_norm.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_OUT] = {{"linear_attn.out_proj.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_Q_A] = {{"self_attn.q_a_proj.weight", "attn.wq_a.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_Q_A_NORM] = {{"self_attn.q_a_layernorm.weight", "self_attn.q_a_norm.weight",
                                  "attn.q_norm.weight"},
                                 OF_LAYER},
    [MF_ROLE_LATENT_Q_B] = {{"self_attn.q_b_proj.weight", "attn.wq_b.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_KV_A] = {{"self_attn.kv_a_proj_with_mqa.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_KV_A_NORM] = {{"self_attn.kv_a_layernorm.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_KV_B] = {{"self_attn.kv_b_proj.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_K_UP] = {{"self_attn.embed_q.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_V_UP] = {{"self_attn.unembed_out.weight"}, OF_LAYER},
    [MF_ROLE_INDEX_Q] = {{"self_attn.indexer.wq_b.weight",
                          "self_attn.compressor.indexer.q_b_proj.weight",
                          "attn.indexer.wq_b.weight"},
                         OF_LAYER},
    [MF_ROLE_INDEX_K] = {{"self_attn.indexer.wk.weight"}, OF_LAYER},
    [MF_ROLE_INDEX_WEIGHTS] = {{"self_attn.indexer.weights_proj.weight",
                                "self_attn.compressor.indexer.scorer.weights_proj.weight",
                                "attn.indexer.weights_proj.weight"},
                               OF_LAYER},
    [MF_ROLE_INDEX_NORM] = {{"self_attn.indexer.k_norm.weight"}, OF_LAYER},
    [MF_ROLE_INDEX_NORM_BIAS] = {{"self_attn.indexer.k_norm.bias"}, OF_LAYER},
    [MF_ROLE_ENTRY_KV] = {{"self_attn.kv_proj.weight", "attn.wkv.weight"}, OF_LAYER},
    [MF_ROLE_ENTRY_KV_NORM] = {{"self_attn.kv_norm.weight", "attn.kv_norm.weight",
                                "attn.norm.weight"},
                               OF_LAYER},
    [MF_ROLE_ENTRY_O_A] = {{"self_attn.o_a_proj.weight", "attn.wo_a.weight"}, OF_LAYER},
    [MF_ROLE_ENTRY_O_B] = {{"self_attn.o_b_proj.weight", "attn.wo_b.weight"}, OF_LAYER},
    [MF_ROLE_COMPRESS_KV] = {{"self_attn.compressor.kv_proj.weight", "attn.compressor.wkv.weight"},
                             OF_LAYER},
    [MF_ROLE_COMPRESS_GATE] = {{"self_attn.compressor.gate_proj.weight",
                                "attn.compressor.wgate.weight"},
                               OF_LAYER},
    [MF_ROLE_COMPRESS_BIAS] = {{"self_attn.compressor.position_bias", "attn.compressor.ape"},
                               OF_LAYER},
    [MF_ROLE_COMPRESS_NORM] = {{"self_attn.compressor.kv_norm.weight",
                                "attn.compressor.norm.weight"},
                               OF_LAYER},
    [MF_ROLE_INDEX_COMPRESS_KV] = {{"self_attn.compressor.indexer.kv_proj.weight",
                                    "attn.indexer.compressor.wkv.weight"},
                                   OF_LAYER},
    [MF_ROLE_INDEX_COMPRESS_GATE] = {{"self_attn.compressor.indexer.gate_proj.weight",
                                      "attn.indexer.compressor.wgate.weight"},
                                     OF_LAYER},
    [MF_ROLE_INDEX_COMPRESS_BIAS] = {{"self_attn.compressor.indexer.position_bias",
                                      "attn.indexer.compressor.ape"},
                                     OF_LAYER},
    [MF_ROLE_INDEX_COMPRESS_NORM] = {{"self_attn.compressor.indexer.kv_norm.weight",
                                      "attn.indexer.compressor.norm.weight"},
                                     OF_LAYER},
    [MF_ROLE_ATTENTION_STREAMS] = {{"attn_hc.fn", "hc_attn_fn"}, OF_LAYER},
    [MF_ROLE_ATTENTION_STREAMS_BASE] = {{"attn_hc.base", "hc_attn_base"}, OF_LAYER},
    [MF_ROLE_ATTENTION_STREAMS_SCALE] = {{"attn_hc.scale", "hc_attn_scale"}, OF_LAYER},
    [MF_ROLE_MLP_STREAMS] = {{"ffn_hc.fn", "hc_ffn_fn"}, OF_LAYER},
    [MF_ROLE_MLP_STREAMS_BASE] = {{"ffn_hc.base", "hc_ffn_base"}, OF_LAYER},
    [MF_ROLE_MLP_STREAMS_SCALE] = {{"ffn_hc.scale", "hc_ffn_scale"}, OF_LAYER},
    [MF_ROLE_HEAD_STREAMS] = {{"hc_head.hc_fn", "hc_head_fn"}, OF_TEXT},
    [MF_ROLE_HEAD_STREAMS_BASE] = {{"hc_head.hc_base", "hc_head_base"}, OF_TEXT},
    [MF_ROLE_HEAD_STREAMS_SCALE] = {{"hc_head.hc_scale", "hc_head_scale"}, OF_TEXT},
    [MF_ROLE_KEYED_Q_CONV] = {{"self_attn.q_conv1d.weight"}, OF_LAYER},
    [MF_ROLE_KEYED_K_CONV] = {{"self_attn.k_conv1d.weight"}, OF_LAYER},
    [MF_ROLE_KEYED_V_CONV] = {{"self_attn.v_conv1d.weight"}, OF_LAYER},
    [MF_ROLE_KEYED_F_A] = {{"self_attn.f_a_proj.weight"}, OF_LAYER},
    [MF_ROLE_KEYED_F_B] = {{"self_attn.f_b_proj.weight"}, OF_LAYER},
    [MF_ROLE_KEYED_G_A] = {{"self_attn.g_a_proj.weight"}, OF_LAYER},
    [MF_ROLE_KEYED_G_B] = {{"self_attn.g_b_proj.weight"}, OF_LAYER},
    [MF_ROLE_GATE] = {{"mlp.gate_proj.weight", "feed_forward.gate_proj.weight",
                       "block_sparse_moe.gate_proj.weight"},
                      OF_LAYER},
    [MF_ROLE_UP] = {{"mlp.up_proj.weight", "feed_forward.up_proj.weight",
                     "block_sparse_moe.up_proj.weight"},
                    OF_LAYER},
    [MF_ROLE_DOWN] = {{"mlp.down_proj.weight", "feed_forward.down_proj.weight",
                       "block_sparse_moe.down_proj.weight"},
                      OF_LAYER},
    [MF_ROLE_SHARED_GATE] =
        {{"mlp.shared_expert.gate_proj.weight", "mlp.shared_experts.gate_proj.weight",
          "mlp.shared_mlp.gate_proj.weight", "feed_forward.shared_expert.gate_proj.weight",
          "block_sparse_moe.shared_experts.gate_proj.weight", "ffn.shared_experts.w1.weight"},
         OF_LAYER},
    [MF_ROLE_SHARED_UP] = {{"mlp.shared_expert.up_proj.weight", "mlp.shared_experts.up_proj.weight",
                            "mlp.shared_mlp.up_proj.weight",
                            "feed_forward.shared_expert.up_proj.weight",
                            "block_sparse_moe.shared_experts.up_proj.weight",
                            "ffn.shared_experts.w3.weight"},
                           OF_LAYER},
    [MF_ROLE_SHARED_DOWN] =
        {{"mlp.shared_expert.down_proj.weight", "mlp.shared_experts.down_proj.weight",
          "mlp.shared_mlp.down_proj.weight", "feed_forward.shared_expert.down_proj.weight",
          "block_sparse_moe.shared_experts.down_proj.weight", "ffn.shared_experts.w2.weight"},
         OF_LAYER},
    [MF_ROLE_SHARED_ROUTER] = {{"mlp.shared_expert_gate.weight"}, OF_LAYER},
    [MF_ROLE_ROUTER] = {{"mlp.gate.weight", "block_sparse_moe.gate.weight", "mlp.router.weight",
                         "mlp.gate.wg.weight", "feed_forward.router.weight", "ffn.gate.weight"},
                        OF_LAYER},
    [MF_ROLE_ROUTER_LOGIT_BIAS] = {{"mlp.router.bias"}, OF_LAYER},
    [MF_ROLE_ROUTER_BIAS] = {{"mlp.gate.e_score_correction_bias",
                              "block_sparse_moe.e_score_correction_bias",
                              "mlp.moe_statics.e_score_correction_bias",
                              "block_sparse_moe.gate.e_score_correction_bias", "ffn.gate.bias",
                              "mlp.e_score_correction_bias",
                              "mlp.gate.moe_statics.e_score_correction_bias"},
                             OF_LAYER},
    [MF_ROLE_ROUTER_TABLE] = {{"mlp.gate.tid2eid", "ffn.gate.tid2eid"}, OF_LAYER},
    [MF_ROLE_EXPERT_GATE] = {{"mlp.switch_mlp.gate_proj.weight", "mlp.experts.gate_proj.weight",
                              "block_sparse_moe.switch_mlp.gate_proj.weight",
                              "feed_forward.experts.gate_proj.weight"},
                             OF_LAYER},
    [MF_ROLE_EXPERT_UP] = {{"mlp.switch_mlp.up_proj.weight", "mlp.experts.up_proj.weight",
                            "block_sparse_moe.switch_mlp.up_proj.weight",
                            "feed_forward.experts.up_proj.weight"},
                           OF_LAYER},
    [MF_ROLE_EXPERT_DOWN] = {{"mlp.switch_mlp.down_proj.weight", "mlp.experts.down_proj",
                              "mlp.experts.down_proj.weight", "mlp.experts.down_proj_blocks",
                              "block_sparse_moe.switch_mlp.down_proj.weight",
                              "feed_forward.experts.down_proj.weight",
                              "feed_forward.experts.down_proj"},
                             OF_LAYER},
    [MF_ROLE_EXPERT_GATE_UP] = {{"mlp.experts.gate_up_proj", "feed_forward.experts.gate_up_proj"},
                                OF_LAYER},
    [MF_ROLE_EXPERT_PAIRS] = {{"mlp.experts.gate_up_proj_blocks"}, OF_LAYER},
    [MF_ROLE_EXPERT_GATE_BIAS] = {{"mlp.experts.gate_proj.bias"}, OF_LAYER},
    [MF_ROLE_EXPERT_UP_BIAS] = {{"mlp.experts.up_proj.bias"}, OF_LAYER},
    [MF_ROLE_EXPERT_DOWN_BIAS] = {{"mlp.experts.down_proj.bias", "mlp.experts.down_proj_bias"},
                                  OF_LAYER},
    [MF_ROLE_EXPERT_PAIRS_BIAS] = {{"mlp.experts.gate_up_proj_bias"}, OF_LAYER},
    [MF_ROLE_DRAFT_EMBED_NORM] = {{"enorm.weight", "pre_fc_norm_embedding.weight"}, OF_DRAFT},
    [MF_ROLE_DRAFT_HIDDEN_NORM] = {{"hnorm.weight", "pre_fc_norm_hidden.weight"}, OF_DRAFT},
    [MF_ROLE_DRAFT_IN] = {{"eh_proj.weight", "fc.weight"}, OF_DRAFT},
    [MF_ROLE_DRAFT_NORM] = {{"shared_head.norm.weight", "norm.weight"}, OF_DRAFT},
    [MF_ROLE_DRAFT_EMBED_IN] = {{"e_proj.weight"}, OF_DRAFT},
    [MF_ROLE_DRAFT_STATE_IN] = {{"h_proj.weight"}, OF_DRAFT},
    [MF_ROLE_DRAFT_STREAMS] = {{"hc_head_fn"}, OF_DRAFT},
    [MF_ROLE_DRAFT_STREAMS_BASE] = {{"hc_head_base"}, OF_DRAFT},
    [MF_ROLE_DRAFT_STREAMS_SCALE] = {{"hc_head_scale"}, OF_DRAFT},
};

/* The names under which text models are stored: MLX, raw Hugging Face with a vision tower,
 * DeepSeek's own, plain. */
static const char *const prefixes[] = {"language_model.model.", "model.language_model.", "",
                                       "model."};

/* Layers that predict further tokens, where they are apart from the others: one of their names,
 * and what comes before their number and before what they alone have. Of the Qwen families, as
 * published and as conversions have them that keep them; of DeepSeek-V4. */
static const mf_mtp_names mtp_names[] = {
    {"mtp.fc.weight", "mtp.layers.", "mtp."},
    {"language_model.mtp.fc.weight", "language_model.mtp.layers.", "language_model.mtp."},
    {"mtp.0.h_proj.weight", "mtp.", "mtp.0."}};

static const mf_checkpoint *checkpoint_of(const mf_source *source)
{
    return (const mf_checkpoint *)source;
}

/* One expert's: the i-th way to call it; false if there is none. */
static bool expert_name(mf_tensor_id id, size_t i, char *name, size_t capacity)
{
    static const struct {
        const char *folder, *matrices[3];
    } ways[] = {
        {"mlp.experts", {"gate_proj", "up_proj", "down_proj"}},
        {"block_sparse_moe.experts", {"w1", "w3", "w2"}}, /* Mixtral, MiniMax */
        {"feed_forward.experts", {"gate_proj", "up_proj", "down_proj"}},
        {"ffn.experts", {"w1", "w3", "w2"}}, /* DeepSeek-V4 */
    };
    if (i >= sizeof ways / sizeof *ways)
        return false;
    snprintf(name, capacity, "%s.%u.%s.weight", ways[i].folder, id.expert,
             ways[i].matrices[id.role - MF_ROLE_EXPERT_GATE]);
    return true;
}

/* The i-th name of a tensor; false if it has no further one. */
static bool name_of(const mf_checkpoint *c, mf_tensor_id id, size_t i, char *name, size_t capacity)
{
    const role_names *r = &roles[id.role];
    bool is_each = id.expert != MF_ALL_EXPERTS;
    char of_expert[64];
    const char *own = r->names[i];
    if (is_each)
        own = expert_name(id, i, of_expert, sizeof of_expert) ? of_expert : NULL;
    if (own == NULL)
        return false;
    const bool is_apart = id.layer >= c->first_mtp_layer;
    if (r->base == OF_DRAFT && is_apart) {
        own = r->names[i == 0 && r->names[1] != NULL ? 1 : 0];
        return i < 2 && snprintf(name, capacity, "%s%s", c->mtp->own, own) > 0;
    }
    if (r->base == OF_DRAFT && i > 0)
        return false;
    if (is_apart && r->base == OF_LAYER)
        snprintf(name, capacity, "%s%u.%s", c->mtp->layers, id.layer - c->first_mtp_layer, own);
    else if (r->base == OF_LAYER || r->base == OF_DRAFT)
        snprintf(name, capacity, "%slayers.%u.%s", c->prefix, id.layer, own);
    else
        snprintf(name, capacity, "%s%s", r->base == OF_TEXT ? c->prefix : "", own);
    return true;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

mf_tensor *mf_checkpoint_tensor(const mf_checkpoint *c, mf_tensor_id id)
{
    char name[NAME_BYTES];
    mf_tensor *tensor = NULL;
    for (size_t i = 0; tensor == NULL && i < N_NAMES && name_of(c, id, i, name, sizeof name - 8);
         i++) {
        tensor = mf_tensor_find(&c->source.table, name);
        if (tensor == NULL && ends_with(name, ".weight")) {
            char *end = name + strlen(name);
            memcpy(end, "_packed", sizeof "_packed"); /* compressed-tensors */
            tensor = mf_tensor_find(&c->source.table, name);
            memcpy(end - strlen("weight"), "qweight", sizeof "qweight"); /* GPTQ, AWQ */
            tensor = tensor != NULL ? tensor : mf_tensor_find(&c->source.table, name);
        }
    }
    return tensor;
}

static mf_status missing(const mf_checkpoint *c, mf_tensor_id id, mf_error *error)
{
    char first[NAME_BYTES], second[NAME_BYTES];
    name_of(c, id, 0, first, sizeof first);
    bool has_second = name_of(c, id, 1, second, sizeof second);
    return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s%s%s is missing", c->dir, first,
                   has_second ? " or " : "", has_second ? second : "");
}

static bool has(const mf_source *source, mf_tensor_id id)
{
    return mf_checkpoint_tensor(checkpoint_of(source), id) != NULL;
}

static mf_status find(mf_source *source, mf_tensor_id id, mf_stored *out, mf_error *error)
{
    const mf_checkpoint *c = checkpoint_of(source);
    mf_stored s = {.data = mf_checkpoint_tensor(c, id)};
    if (s.data == NULL)
        return missing(c, id, error);
    s.data->used = true;
    MF_TRY(mf_checkpoint_stored(c, &s, error));
    *out = s;
    return MF_OK;
}

static mf_expert_layout expert_layout(const mf_source *source, uint32_t layer)
{
    const mf_tensor_id first = {MF_ROLE_EXPERT_GATE, layer, 0};
    if (checkpoint_of(source)->is_packed)
        return MF_EXPERTS_PACKED;
    if (mf_source_has(source, MF_ROLE_EXPERT_PAIRS, layer))
        return MF_EXPERTS_PAIRS;
    if (mf_source_has(source, MF_ROLE_EXPERT_GATE_UP, layer))
        return MF_EXPERTS_FUSED;
    return has(source, first) ? MF_EXPERTS_EACH : MF_EXPERTS_STACKED;
}

/* What a tensor is of that is skipped, and its name or the beginning of it; what is too small to
 * speak of has no name. */
typedef struct skipped_part {
    const char *what, *name;
} skipped_part;

/* Tensors that a text model does not need: the vision tower and the multi-token-prediction head;
 * an indexer that is not in force; what other
 * programs quantise activations and caches by; shapes, which follow from the config. */
static bool is_skipped(const char *name, skipped_part *part)
{
    static const skipped_part parts[] = {{MF_LEFT_DRAFT, "mtp."},
                                         {MF_LEFT_DRAFT, "mtp_"},
                                         {"vision tower", "visual."},
                                         {"indexer", "indexer."},
                                         {"vision tower", "vision_tower."},
                                         {"vision tower", "vision_model."},
                                         {"vision projector", "multi_modal_projector."},
                                         {"vision projector", "mm_projector."},
                                         {NULL, "rotary_emb.inv_freq"}};
    static const char *const ends[] = {".weight_shape",     ".input_scale", ".input_global_scale",
                                       ".activation_scale", ".k_scale",     ".v_scale"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(name, parts[i].name);
        if (at == NULL || (at != name && at[-1] != '.'))
            continue;
        *part = parts[i];
        return true;
    }
    *part = (skipped_part){0};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i]))
            return true;
    return false;
}

/* Names begin with what stands before the part's, but for parts that every layer has. */
static void leave_out(mf_source *source, const mf_tensor *t, const skipped_part *part)
{
    const char *at = part->what == NULL ? NULL : strstr(t->name, part->name);
    if (at == NULL)
        return;
    const bool is_of_layers = strstr(t->name, "layers.") != NULL && strstr(t->name, "layers.") < at;
    const char *from = is_of_layers ? at : t->name;
    mf_source_leave_out(source, t, part->what, from, (size_t)(at - from) + strlen(part->name));
}

/* The layer that a tensor belongs to; UINT32_MAX if to none. */
static uint32_t layer_of(const mf_checkpoint *c, const char *name)
{
    size_t n_prefix = strlen(c->prefix);
    if (strncmp(name, c->prefix, n_prefix) != 0 || strncmp(name + n_prefix, "layers.", 7) != 0)
        return UINT32_MAX;
    char *end;
    unsigned long layer = strtoul(name + n_prefix + 7, &end, 10);
    return *end == '.' && layer < UINT16_MAX ? (uint32_t)layer : UINT32_MAX;
}

static mf_status check_unused(mf_source *source, uint32_t n_layers, uint32_t n_extra,
                              uint32_t *n_skipped, mf_error *error)
{
    uint32_t end = n_layers;
    for (size_t i = 0; i < source->table.n_tensors; i++) {
        const mf_tensor *t = &source->table.tensors[i];
        const uint32_t layer = layer_of(checkpoint_of(source), t->name);
        const bool is_extra = layer >= n_layers && layer < n_layers + n_extra;
        skipped_part part;
        if (t->used)
            continue;
        if (!is_extra && is_skipped(t->name, &part)) {
            leave_out(source, t, &part);
            continue;
        }
        if (!is_extra)
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: tensor %s belongs to nothing in this model (surplus)",
                           mf_source_path_of(source, t), t->name);
        end = layer + 1 > end ? layer + 1 : end;
        const char *number = strstr(t->name, "layers.") + strlen("layers.");
        mf_source_leave_out(source, t, MF_LEFT_DRAFT, t->name,
                            (size_t)(strchr(number, '.') + 1 - t->name));
    }
    *n_skipped = end - n_layers;
    return MF_OK;
}

/* The published checkpoints keep conv1d.weight as [channels, 1, width]; every conversion makes it
 * [channels, width, 1] and adds one to the norms at the same time. Where no layer has one, it is
 * MLX's if experts are named so or weights are quantised so; GPTQ and AWQ, which quantise what is
 * published, say scales too. */
static bool is_as_published(const mf_tensor_table *table)
{
    bool is_converted = false, has_scales = false, has_qweight = false;
    for (size_t i = 0; i < table->n_tensors; i++) {
        const mf_tensor *t = &table->tensors[i];
        if (strstr(t->name, "mtp.") == NULL &&
            strstr(t->name, ".linear_attn.conv1d.weight") != NULL && t->n_dims == 3)
            return t->shape[2] != 1;
        is_converted |= strstr(t->name, ".switch_mlp.") != NULL;
        has_scales |= ends_with(t->name, ".scales");
        has_qweight |= ends_with(t->name, ".qweight");
    }
    return !is_converted && (!has_scales || has_qweight);
}

static bool find_mtp_names(mf_checkpoint *c)
{
    for (size_t i = 0; i < sizeof mtp_names / sizeof *mtp_names; i++) {
        c->mtp = &mtp_names[i];
        if (mf_tensor_find(&c->source.table, c->mtp->one) != NULL)
            return true;
    }
    return false;
}

void mf_checkpoint_find_names(mf_checkpoint *c)
{
    c->source.norms_as_published = is_as_published(&c->source.table);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        c->prefix = prefixes[i];
        if (mf_source_has(&c->source, MF_ROLE_EMBED, 0))
            break; /* else the last: who asks for the embedding learns that it is missing */
    }
    mf_hparam_value n_layers = {0};
    if (!find_mtp_names(c))
        return;
    mf_config_get(&c->config, "num_hidden_layers", MF_HPARAM_WHOLE, &n_layers);
    if (n_layers.kind == MF_HPARAM_NUMBER && n_layers.number >= 1 && n_layers.number < UINT16_MAX)
        c->first_mtp_layer = (uint32_t)n_layers.number;
}

static void hparam(const mf_source *source, const char *name, uint32_t index, mf_hparam_value *out)
{
    const mf_config *config = &checkpoint_of(source)->config;
    mf_config_get(config, name, index, out);
    if (strcmp(name, "tie_word_embeddings") != 0)
        return;
    /* The head is tied where there is none, if nothing is said, as transformers 4 says nothing of a
     * family's default, or both, as transformers 5 writes its defaults in two places. */
    const bool is_open = out->kind == MF_HPARAM_ABSENT ||
                         (out->kind == MF_HPARAM_BOOL && mf_config_disagrees(config, name));
    if (is_open || (out->kind == MF_HPARAM_BOOL && checkpoint_of(source)->has_own_head))
        *out = (mf_hparam_value){.kind = MF_HPARAM_BOOL,
                                 .boolean = !mf_source_has(source, MF_ROLE_HEAD, 0)};
}

const mf_source_ops mf_checkpoint_ops = {
    .hparam = hparam,
    .has = has,
    .find = find,
    .check_affine = mf_checkpoint_check_affine,
    .expert_layout = expert_layout,
    .packed_experts = mf_checkpoint_packed_experts,
    .check_unused = check_unused,
    .close = mf_checkpoint_close,
};
