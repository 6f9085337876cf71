/* SPDX-License-Identifier: MIT */
/*
 * config.json, from bytes to hyper-parameters and the sizes planned from them. Read as a config and
 * as a manifest that carries one.
 */
#include "base/alloc.h"
#include "format/checkpoint.h"
#include "forward/runner.h"
#include "model/rope.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the rest of the library builds on without looking again. */
static void check_hparams(const mf_hparams *h)
{
    if (h->n_layers == 0 || h->n_layers > MF_MAX_LAYERS || h->hidden_size == 0 || h->n_vocab == 0 ||
        h->n_kv_heads == 0 || h->n_heads % h->n_kv_heads != 0 ||
        h->n_experts_per_token > h->n_experts ||
        (h->n_experts_per_token == 0) != (h->n_moe_layers == 0) || h->n_rot > h->head_dim ||
        h->n_rot % 2 != 0)
        abort();
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const mf_layer_kind kind = h->layer_kind[i];
        if (h->kv_rank != 0
                ? kind != MF_LAYER_LATENT && kind != MF_LAYER_KEYED
                : kind != MF_LAYER_FULL && kind != MF_LAYER_LINEAR && kind != MF_LAYER_ENTRIES)
            abort();
        const uint32_t rate = h->entry_rate[i], n_series = h->entries_overlap[i] ? 2 : 1;
        if (kind == MF_LAYER_ENTRIES &&
            (h->attended_window == 0 || h->window[i] < h->attended_window ||
             h->window[i] < n_series * rate || h->n_heads % h->o_groups != 0 || h->n_streams == 0 ||
             h->n_streams > MF_MAX_STREAMS))
            abort();
        if (h->moe_index[i] > i || (!h->is_dense[i] && h->moe_index[i] >= h->n_moe_layers))
            abort();
    }
    const mf_router *r = &h->router;
    if (r->n_groups == 0 || r->n_groups > MF_MAX_GROUPS || h->n_experts % r->n_groups != 0 ||
        r->k_groups == 0 || r->k_groups > r->n_groups)
        abort();
}

/* Whatever a config says in the ranges that are accepted, no angle is NaN. */
static void check_frequencies(const mf_hparams *h, const mf_rope *rope)
{
    float frequencies[512];
    if (h->n_rot / 2 > sizeof frequencies / sizeof *frequencies)
        abort();
    mf_rope_frequencies(rope, h->n_rot, frequencies);
    for (uint32_t i = 0; i < h->n_rot / 2 && !h->never_rotates; i++) {
        if (!isfinite(frequencies[i]))
            abort();
    }
    if (!isfinite(rope->attention_factor) || !isfinite(h->attention_scale))
        abort();
}

static void use_config(mf_checkpoint *checkpoint)
{
    static const char *const modules[] = {"lm_head", "language_model.model.layers.0.mlp.gate"};
    const mf_family *family;
    mf_quantization quantization;
    mf_hparams h;
    mf_plan plan;
    mf_error error;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        (void)!mf_config_quantization(&checkpoint->config, modules[i], &quantization, &error);
    mf_config_packed packed;
    (void)!mf_config_check_quantization(&checkpoint->config, &error);
    (void)!mf_config_packing(&checkpoint->config, &packed, &error);
    if (mf_family_find(&checkpoint->source, &family, &error) == MF_OK &&
        family->configure(&checkpoint->source, &h, &error) == MF_OK) {
        check_hparams(&h);
        check_frequencies(&h, &h.rope);
        if (h.attended_window != 0)
            check_frequencies(&h, &h.entry_rope);
        const mf_plan_options options = {.n_chunk = 512,
                                         .n_context = h.n_context,
                                         .k = h.n_experts_per_token,
                                         .n_sessions = 64,
                                         .cache_type = MF_BF16,
                                         .kinds = mf_layer_kind_table};
        (void)!mf_plan_make(&h, &options, &plan);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const mf_allocator a = mf_allocator_default();
    for (int is_manifest = 0; is_manifest < 2; is_manifest++) {
        mf_checkpoint checkpoint;
        mf_checkpoint_init(&checkpoint, &a);
        mf_json json = {0};
        mf_error error;
        if (mf_json_parse(&a, "fuzz", (const char *)data, size, &json, &error) != MF_OK)
            return 0;
        if (mf_config_from_json(&json, is_manifest, &checkpoint.config, &error) != MF_OK) {
            mf_json_free(&json);
            continue;
        }
        use_config(&checkpoint);
        mf_checkpoint_clear(&checkpoint);
    }
    return 0;
}
