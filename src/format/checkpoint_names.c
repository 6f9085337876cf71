/* SPDX-License-Identifier: MIT */
/* The names of tensors: Hugging Face's, MLX's, and those of the packed form, which are the same
 * behind another prefix. */
#include "format/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 512
#define N_NAMES 2 /* that a role may have */

/* Where a name goes on from: the prefix of the text model, that of a layer, or nothing. */
typedef enum name_base { OF_LAYER, OF_TEXT, OF_NOTHING } name_base;

typedef struct role_names {
    const char *names[N_NAMES]; /* the first that exists is meant */
    name_base base;
} role_names;

static const role_names roles[MF_N_ROLES] = {
    [MF_ROLE_EMBED] = {{"embed_tokens.weight"}, OF_TEXT},
    [MF_ROLE_HEAD] = {{"lm_head.weight", "language_model.lm_head.weight"}, OF_NOTHING},
    [MF_ROLE_FINAL_NORM] = {{"norm.weight"}, OF_TEXT},
    [MF_ROLE_INPUT_NORM] = {{"input_layernorm.weight"}, OF_LAYER},
    [MF_ROLE_POST_NORM] = {{"post_attention_layernorm.weight"}, OF_LAYER},
    [MF_ROLE_Q] = {{"self_attn.q_proj.weight"}, OF_LAYER},
    [MF_ROLE_K] = {{"self_attn.k_proj.weight"}, OF_LAYER},
    [MF_ROLE_V] = {{"self_attn.v_proj.weight"}, OF_LAYER},
    [MF_ROLE_O] = {{"self_attn.o_proj.weight"}, OF_LAYER},
    [MF_ROLE_Q_NORM] = {{"self_attn.q_norm.weight"}, OF_LAYER},
    [MF_ROLE_K_NORM] = {{"self_attn.k_norm.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_QKV] = {{"linear_attn.in_proj_qkv.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_Z] = {{"linear_attn.in_proj_z.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_B] = {{"linear_attn.in_proj_b.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_A] = {{"linear_attn.in_proj_a.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_QKVZ] = {{"linear_attn.in_proj_qkvz.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_BA] = {{"linear_attn.in_proj_ba.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_CONV] = {{"linear_attn.conv1d.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_A_LOG] = {{"linear_attn.A_log"}, OF_LAYER},
    [MF_ROLE_LINEAR_DT_BIAS] = {{"linear_attn.dt_bias"}, OF_LAYER},
    [MF_ROLE_LINEAR_NORM] = {{"linear_attn.norm.weight"}, OF_LAYER},
    [MF_ROLE_LINEAR_OUT] = {{"linear_attn.out_proj.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_Q_A] = {{"self_attn.q_a_proj.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_Q_A_NORM] = {{"self_attn.q_a_layernorm.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_Q_B] = {{"self_attn.q_b_proj.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_KV_A] = {{"self_attn.kv_a_proj_with_mqa.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_KV_A_NORM] = {{"self_attn.kv_a_layernorm.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_KV_B] = {{"self_attn.kv_b_proj.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_K_UP] = {{"self_attn.embed_q.weight"}, OF_LAYER},
    [MF_ROLE_LATENT_V_UP] = {{"self_attn.unembed_out.weight"}, OF_LAYER},
    [MF_ROLE_GATE] = {{"mlp.gate_proj.weight"}, OF_LAYER},
    [MF_ROLE_UP] = {{"mlp.up_proj.weight"}, OF_LAYER},
    [MF_ROLE_DOWN] = {{"mlp.down_proj.weight"}, OF_LAYER},
    [MF_ROLE_SHARED_GATE] = {{"mlp.shared_expert.gate_proj.weight",
                              "mlp.shared_experts.gate_proj.weight"},
                             OF_LAYER},
    [MF_ROLE_SHARED_UP] = {{"mlp.shared_expert.up_proj.weight",
                            "mlp.shared_experts.up_proj.weight"},
                           OF_LAYER},
    [MF_ROLE_SHARED_DOWN] = {{"mlp.shared_expert.down_proj.weight",
                              "mlp.shared_experts.down_proj.weight"},
                             OF_LAYER},
    [MF_ROLE_SHARED_ROUTER] = {{"mlp.shared_expert_gate.weight"}, OF_LAYER},
    [MF_ROLE_ROUTER] = {{"mlp.gate.weight"}, OF_LAYER},
    [MF_ROLE_ROUTER_BIAS] = {{"mlp.gate.e_score_correction_bias"}, OF_LAYER},
    [MF_ROLE_EXPERT_GATE] = {{"mlp.switch_mlp.gate_proj.weight"}, OF_LAYER},
    [MF_ROLE_EXPERT_UP] = {{"mlp.switch_mlp.up_proj.weight"}, OF_LAYER},
    [MF_ROLE_EXPERT_DOWN] = {{"mlp.switch_mlp.down_proj.weight", "mlp.experts.down_proj"},
                             OF_LAYER},
    [MF_ROLE_EXPERT_GATE_UP] = {{"mlp.experts.gate_up_proj"}, OF_LAYER},
};

/* The names under which text models are stored: MLX, raw Hugging Face with a vision tower, plain.
 */
static const char *const prefixes[] = {"language_model.model.", "model.language_model.", "model."};

static const mf_checkpoint *checkpoint_of(const mf_source *source)
{
    return (const mf_checkpoint *)source;
}

static void expert_name(mf_tensor_id id, char *name, size_t capacity)
{
    const char *matrix = id.role == MF_ROLE_EXPERT_GATE ? "gate_proj"
                         : id.role == MF_ROLE_EXPERT_UP ? "up_proj"
                                                        : "down_proj";
    snprintf(name, capacity, "mlp.experts.%u.%s.weight", id.expert, matrix);
}

/* The i-th name of a tensor; false if it has no further one. */
static bool name_of(const mf_checkpoint *c, mf_tensor_id id, size_t i, char *name, size_t capacity)
{
    const role_names *r = &roles[id.role];
    bool is_each = id.expert != MF_ALL_EXPERTS;
    char of_expert[64];
    const char *own = r->names[i];
    if (is_each) {
        expert_name(id, of_expert, sizeof of_expert);
        own = i == 0 ? of_expert : NULL;
    }
    if (own == NULL)
        return false;
    if (r->base == OF_LAYER)
        snprintf(name, capacity, "%slayers.%u.%s", c->prefix, id.layer, own);
    else
        snprintf(name, capacity, "%s%s", r->base == OF_TEXT ? c->prefix : "", own);
    return true;
}

static mf_tensor *find_role(const mf_checkpoint *c, mf_tensor_id id)
{
    char name[NAME_BYTES];
    mf_tensor *tensor = NULL;
    for (size_t i = 0; tensor == NULL && i < N_NAMES && name_of(c, id, i, name, sizeof name); i++)
        tensor = mf_tensor_find(&c->source.table, name);
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
    return find_role(checkpoint_of(source), id) != NULL;
}

static mf_status find_part(const mf_checkpoint *c, const char *name, mf_tensor **out,
                           mf_error *error)
{
    *out = mf_tensor_find(&c->source.table, name);
    if (*out == NULL)
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s is missing", c->dir, name);
    (*out)->used = true;
    return MF_OK;
}

/* A tensor's name without ".weight", which quantisation is declared of. */
static void module_of(const mf_tensor *data, char *module, size_t capacity)
{
    static const char suffix[] = ".weight";
    size_t n = strlen(data->name), n_suffix = sizeof suffix - 1;
    if (n > n_suffix && strcmp(data->name + n - n_suffix, suffix) == 0)
        n -= n_suffix;
    snprintf(module, capacity, "%.*s", (int)n, data->name);
}

static mf_status find(mf_source *source, mf_tensor_id id, mf_stored *out, mf_error *error)
{
    const mf_checkpoint *c = checkpoint_of(source);
    char module[NAME_BYTES], name[NAME_BYTES + 16];
    mf_stored s = {.data = find_role(c, id)};
    if (s.data == NULL)
        return missing(c, id, error);
    s.data->used = true;
    module_of(s.data, module, sizeof module);
    snprintf(name, sizeof name, "%s.scales", module);
    if (mf_tensor_find(&source->table, name) != NULL) {
        MF_TRY(find_part(c, name, &s.scales, error));
        snprintf(name, sizeof name, "%s.biases", module);
        MF_TRY(find_part(c, name, &s.biases, error));
    } else if (s.data->type == MF_TENSOR_F8_E4M3) {
        snprintf(name, sizeof name, "%s_scale_inv", s.data->name);
        MF_TRY(find_part(c, name, &s.scales, error));
    }
    *out = s;
    return MF_OK;
}

static const char *path_of(const mf_source *source, const mf_tensor *tensor)
{
    return source->table.files[tensor->file].path;
}

static mf_status check_affine(const mf_source *source, const mf_stored *s, uint32_t bits,
                              uint32_t group, mf_error *error)
{
    const mf_checkpoint *c = checkpoint_of(source);
    char module[NAME_BYTES];
    if (s->data->bits != 0 && s->data->bits != bits)
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s: bits %u, but its shape means %u",
                       c->dir, s->data->name, s->data->bits, bits);
    /* The packed form dropped a prefix from its tensors' names, so that the overrides of a
     * config.json beside it would be missed; its manifest states the bits instead. */
    if (c->is_packed)
        return MF_OK;
    mf_quantization q = {0};
    module_of(s->data, module, sizeof module);
    MF_TRY(mf_config_quantization(&c->config, module, &q, error));
    const char *path = c->config.json.path;
    if (q.disabled)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: quantization.%s is false, but %s.scales exists in %s", path, module,
                       module, path_of(source, s->scales));
    if (q.bits != 0 && q.bits != bits)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: quantization of %s: bits %u, but the tensor in %s has %u bits", path,
                       module, q.bits, path_of(source, s->data), bits);
    if (q.group != 0 && q.group != group)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: quantization of %s: group_size %u, but the scales in %s have %u", path,
                       module, q.group, path_of(source, s->scales), group);
    return MF_OK;
}

static mf_expert_layout expert_layout(const mf_source *source, uint32_t layer)
{
    const mf_tensor_id first = {MF_ROLE_EXPERT_GATE, layer, 0};
    if (checkpoint_of(source)->is_packed)
        return MF_EXPERTS_PACKED;
    if (mf_source_has(source, MF_ROLE_EXPERT_GATE_UP, layer))
        return MF_EXPERTS_FUSED;
    return has(source, first) ? MF_EXPERTS_EACH : MF_EXPERTS_STACKED;
}

/* Tensors that a text model does not need: the vision tower and the multi-token-prediction head. */
static bool is_skipped(const char *name)
{
    static const char *const parts[] = {"mtp.", "visual.", "vision_tower.", "rotary_emb.inv_freq"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(name, parts[i]);
        if (at != NULL && (at == name || at[-1] == '.'))
            return true;
    }
    return false;
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

static mf_status check_unused(const mf_source *source, uint32_t n_layers, uint32_t n_extra,
                              uint32_t *n_skipped, mf_error *error)
{
    uint32_t end = n_layers;
    for (size_t i = 0; i < source->table.n_tensors; i++) {
        const mf_tensor *t = &source->table.tensors[i];
        if (t->used || is_skipped(t->name))
            continue;
        uint32_t layer = layer_of(checkpoint_of(source), t->name);
        if (layer < n_layers || layer >= n_layers + n_extra)
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: tensor %s belongs to nothing in this model (surplus)",
                           path_of(source, t), t->name);
        end = layer + 1 > end ? layer + 1 : end;
    }
    *n_skipped = end - n_layers;
    return MF_OK;
}

/* The published checkpoints keep conv1d.weight as [channels, 1, width]; every conversion makes it
 * [channels, width, 1] and adds one to the norms at the same time. */
static bool is_as_published(const mf_tensor_table *table)
{
    for (size_t i = 0; i < table->n_tensors; i++) {
        const mf_tensor *t = &table->tensors[i];
        if (strstr(t->name, "mtp.") == NULL &&
            strstr(t->name, ".linear_attn.conv1d.weight") != NULL && t->n_dims == 3)
            return t->shape[2] != 1;
    }
    for (size_t i = 0; i < table->n_tensors; i++) {
        if (strstr(table->tensors[i].name, ".mlp.experts.") != NULL)
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
}

static void hparam(const mf_source *source, const char *name, uint32_t index, mf_hparam_value *out)
{
    mf_config_get(&checkpoint_of(source)->config, name, index, out);
}

const mf_source_ops mf_checkpoint_ops = {
    .hparam = hparam,
    .has = has,
    .find = find,
    .check_affine = check_affine,
    .expert_layout = expert_layout,
    .packed_experts = mf_checkpoint_packed_experts,
    .check_unused = check_unused,
    .close = mf_checkpoint_close,
};
