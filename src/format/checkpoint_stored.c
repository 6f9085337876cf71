/* SPDX-License-Identifier: MIT */
/*
 * In which form a tensor is stored, by what lies beside it under Hugging Face's and MLX's names:
 *
 *   X.scales, X.biases           MLX, affine; without biases mxfp4 or nvfp4, as the config says
 *   X.weight_scale_inv           FP8 in blocks, or by tensor where it is one value; X_scale_inv of
 *                                experts in one tensor X
 *   X.weight_scale               FP8 by row, by tensor or in blocks; NVFP4 of modelopt with
 *                                X.weight_scale_2
 *   X_blocks, X_scales           MXFP4 of gpt-oss
 *   X.scale                      DeepSeek-V4: FP8 in blocks; beside I8, MXFP4
 *   X.weight_packed              compressed-tensors: integers with X.weight_scale,
 * X.weight_zero_point and X.weight_g_idx; bytes: MXFP4, or NVFP4 with X.weight_global_scale
 *   X.weight of I8               compressed-tensors, with X.weight_scale, X.weight_zero_point
 *   X.qweight, .scales           GPTQ or AWQ, as the config says; X.qzeros, X.g_idx
 */
#include "format/checkpoint.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 512

/* A tensor's name without ".weight" or ".weight_packed", which quantisation is declared of. */
static void module_of(const mf_tensor *data, char *module, size_t capacity)
{
    static const char *const suffixes[] = {".weight", ".weight_packed", ".qweight"};
    size_t n = strlen(data->name);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t n_suffix = strlen(suffixes[i]);
        if (n > n_suffix && strcmp(data->name + n - n_suffix, suffixes[i]) == 0) {
            n -= n_suffix;
            break;
        }
    }
    snprintf(module, capacity, "%.*s", (int)n, data->name);
}

mf_status mf_checkpoint_check_affine(const mf_source *source, const mf_stored *s, uint32_t bits,
                                     uint32_t group, mf_error *error)
{
    const mf_checkpoint *c = (const mf_checkpoint *)source;
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
    if (q.mode != NULL && !q.mode_is_general && strcmp(q.mode, "affine") != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: quantization of %s: mode %s has no biases, but %s.biases exists in %s",
                       path, module, q.mode, module, mf_source_path_of(source, s->biases));
    if (q.disabled)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: quantization.%s is false, but %s.scales exists in %s", path, module,
                       module, mf_source_path_of(source, s->scales));
    if (q.bits != 0 && q.bits != bits)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: quantization of %s: bits %u, but the tensor in %s has %u bits", path,
                       module, q.bits, mf_source_path_of(source, s->data), bits);
    if (q.group != 0 && q.group != group)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: quantization of %s: group_size %u, but the scales in %s have %u", path,
                       module, q.group, mf_source_path_of(source, s->scales), group);
    return MF_OK;
}

/* A module's tensor; NULL if there is none. */
static mf_tensor *beside(const mf_checkpoint *c, const char *module, const char *end)
{
    char name[NAME_BYTES + 32];
    snprintf(name, sizeof name, "%s%s", module, end);
    return mf_tensor_find(&c->source.table, name);
}

static mf_status need(const mf_checkpoint *c, const char *module, const char *end, mf_tensor **out,
                      mf_error *error)
{
    *out = beside(c, module, end);
    if (*out == NULL)
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s%s is missing", c->dir, module, end);
    (*out)->used = true;
    return MF_OK;
}

/* A module's tensor that need not be there, and counts as used. */
static mf_tensor *may_have(const mf_checkpoint *c, const char *module, const char *end)
{
    mf_tensor *t = beside(c, module, end);
    if (t != NULL)
        t->used = true;
    return t;
}

/* GPTQ and AWQ. What the config says to say nothing is left alone. */
static mf_status stored_words(const mf_checkpoint *c, const char *module, mf_stored *s,
                              mf_error *error)
{
    mf_config_packed p;
    mf_tensor *index, *zeros;
    MF_TRY(mf_config_packing(&c->config, &p, error));
    MF_TRY(need(c, module, ".scales", &s->scales, error));
    if (p.has_zeros)
        MF_TRY(need(c, module, ".qzeros", &s->zeros, error));
    zeros = may_have(c, module, ".qzeros");
    index = may_have(c, module, ".g_idx");
    s->zeros = p.has_zeros ? zeros : NULL;
    s->index = p.has_index ? index : NULL;
    s->data->packing = p.packing;
    return MF_OK;
}

/* MLX: with biases affine, otherwise the mode that the config states. */
static mf_status stored_mlx(const mf_checkpoint *c, const char *module, mf_stored *s,
                            mf_error *error)
{
    mf_quantization q = {0};
    MF_TRY(need(c, module, ".scales", &s->scales, error));
    if (!c->is_packed)
        MF_TRY(mf_config_quantization(&c->config, module, &q, error));
    if (beside(c, module, ".biases") != NULL || q.mode == NULL || strcmp(q.mode, "affine") == 0)
        return need(c, module, ".biases", &s->biases, error);
    s->data->kind = strcmp(q.mode, "mxfp4") == 0   ? MF_WEIGHT_MXFP4
                    : strcmp(q.mode, "mxfp8") == 0 ? MF_WEIGHT_MXFP8
                                                   : MF_WEIGHT_NVFP4_PLAIN;
    return MF_OK;
}

static bool is_one_value(const mf_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims && i < MF_MAX_DIMS; i++)
        n *= t->shape[i];
    return n == 1;
}

/* A scale for each 128 x 128 values, as compressed-tensors names them (strategy "block"). */
static bool is_in_blocks(const mf_tensor *data, const mf_tensor *scales)
{
    if (data->n_dims != 2 || scales->n_dims != 2)
        return false;
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t n = data->shape[i], is_more = n % MF_FP8_BLOCK != 0;
        if (scales->shape[i] != n / MF_FP8_BLOCK + is_more)
            return false;
    }
    return true;
}

static mf_status stored_fp8(const mf_checkpoint *c, const char *module, mf_stored *s,
                            mf_error *error)
{
    if (strcmp(s->data->name, module) == 0)
        return need(c, module, "_scale_inv", &s->scales, error);
    if (beside(c, module, ".weight_scale") == NULL) {
        MF_TRY(need(c, module, ".weight_scale_inv", &s->scales, error));
        if (is_one_value(s->scales) && !is_in_blocks(s->data, s->scales))
            s->data->kind = MF_WEIGHT_FP8_TENSOR; /* without a weight_block_size */
        return MF_OK;
    }
    MF_TRY(need(c, module, ".weight_scale", &s->scales, error));
    if (s->scales->type == MF_TENSOR_U8)
        s->data->kind = MF_WEIGHT_MXFP8;
    else if (is_one_value(s->scales))
        s->data->kind = MF_WEIGHT_FP8_TENSOR;
    else if (!is_in_blocks(s->data, s->scales))
        s->data->kind = MF_WEIGHT_FP8_CHANNEL;
    return MF_OK;
}

/* compressed-tensors: what is not symmetric has zero points; what was quantised in another order
 * of its columns, an index. */
static mf_status stored_packed(const mf_checkpoint *c, const char *module, mf_stored *s,
                               mf_error *error)
{
    MF_TRY(need(c, module, ".weight_scale", &s->scales, error));
    if (s->data->type != MF_TENSOR_U8) {
        s->zeros = may_have(c, module, ".weight_zero_point");
        s->index = may_have(c, module, ".weight_g_idx");
        s->data->kind = MF_WEIGHT_INT4; /* or others: that follows from the shape */
        return MF_OK;
    }
    s->data->kind = MF_WEIGHT_MXFP4;
    if (s->scales->type == MF_TENSOR_U8)
        return MF_OK;
    s->data->kind = MF_WEIGHT_NVFP4_DIVIDED;
    return need(c, module, ".weight_global_scale", &s->biases, error);
}

/* compressed-tensors' int-quantized: the values as they are, with a sign. */
static mf_status stored_bytes(const mf_checkpoint *c, const char *module, mf_stored *s,
                              mf_error *error)
{
    s->data->packing = MF_PACKING_BYTES;
    s->zeros = may_have(c, module, ".weight_zero_point");
    return need(c, module, ".weight_scale", &s->scales, error);
}

/* gpt-oss: X_blocks, X_scales. */
static mf_status stored_mxfp4(const mf_checkpoint *c, mf_stored *s, mf_error *error)
{
    const size_t n = strlen(s->data->name) - strlen("_blocks");
    char module[NAME_BYTES];
    snprintf(module, sizeof module, "%.*s", (int)n, s->data->name);
    s->data->kind = MF_WEIGHT_MXFP4;
    return need(c, module, "_scales", &s->scales, error);
}

/* DeepSeek-V4: of FP8 a scale for each block, of two values of e2m1 to a byte of MXFP4. */
static mf_status stored_scale(const mf_checkpoint *c, const char *module, mf_stored *s,
                              mf_error *error)
{
    if (s->data->type == MF_TENSOR_I8)
        s->data->kind = MF_WEIGHT_MXFP4;
    return need(c, module, ".scale", &s->scales, error);
}

static bool has_end(const char *name, const char *end)
{
    const size_t n = strlen(name), n_end = strlen(end);
    return n > n_end && strcmp(name + n - n_end, end) == 0;
}

mf_status mf_checkpoint_stored(const mf_checkpoint *c, mf_stored *s, mf_error *error)
{
    char module[NAME_BYTES];
    module_of(s->data, module, sizeof module);
    const size_t n_module = strlen(module);
    if (strcmp(s->data->name + n_module, ".qweight") == 0)
        return stored_words(c, module, s, error);
    if (beside(c, module, ".scales") != NULL)
        return stored_mlx(c, module, s, error);
    if (strcmp(s->data->name + n_module, ".weight_packed") == 0)
        return stored_packed(c, module, s, error);
    if (s->data->type == MF_TENSOR_U8 && has_end(s->data->name, "_blocks"))
        return stored_mxfp4(c, s, error);
    if ((s->data->type == MF_TENSOR_I8 || s->data->type == MF_TENSOR_F8_E4M3) &&
        beside(c, module, ".scale") != NULL)
        return stored_scale(c, module, s, error);
    if (s->data->type == MF_TENSOR_I8)
        return stored_bytes(c, module, s, error);
    if (s->data->type == MF_TENSOR_F8_E4M3)
        return stored_fp8(c, module, s, error);
    if (s->data->type != MF_TENSOR_U8 || beside(c, module, ".weight_scale_2") == NULL)
        return MF_OK;
    s->data->kind = MF_WEIGHT_NVFP4;
    MF_TRY(need(c, module, ".weight_scale", &s->scales, error));
    return need(c, module, ".weight_scale_2", &s->biases, error);
}
