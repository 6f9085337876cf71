/* SPDX-License-Identifier: MIT */
/*
 * The safetensors header, from bytes to bound weights. An input is read twice: as the first bytes
 * of a file (8 bytes of header length, then the header), and with those 8 bytes as the size that
 * the file is said to have, so that a small input can describe gigabytes. What survives parsing is
 * bound to a small fixed model, which takes it through every check of shape, dtype, bits and group.
 */
#include "check_table.h"

#include "base/alloc.h"
#include "format/checkpoint.h"
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What seed `bound` is the header of. */
static const char hybrid_text[] =
    "{\"model_type\":\"qwen3_5_moe\",\"quantization\":{\"bits\":4,\"group_size\":64,"
    "\"language_model.model.layers.0.mlp.gate\":{\"bits\":8,\"group_size\":64},"
    "\"language_model.model.layers.0.mlp.shared_expert_gate\":{\"bits\":8,\"group_size\":64},"
    "\"language_model.model.layers.1.mlp.gate\":{\"bits\":8,\"group_size\":64},"
    "\"language_model.model.layers.1.mlp.shared_expert_gate\":{\"bits\":8,\"group_size\":64}},"
    "\"text_config\":{\"hidden_size\":64,\"num_hidden_layers\":2,\"full_attention_interval\":2,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,\"vocab_size\":64,"
    "\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":64,"
    "\"shared_expert_intermediate_size\":64,\"linear_num_value_heads\":2,"
    "\"linear_num_key_heads\":1,\"linear_key_head_dim\":32,\"linear_value_head_dim\":32,"
    "\"linear_conv_kernel_dim\":4,\"rms_norm_eps\":1e-6,\"max_position_embeddings\":4096,"
    "\"rope_parameters\":{\"rope_theta\":10000,\"partial_rotary_factor\":0.25}}}";

/* A dense layer, then one with experts. */
static const char deepseek_text[] =
    "{\"model_type\":\"deepseek_v3\",\"hidden_size\":64,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":2,\"q_lora_rank\":32,\"kv_lora_rank\":32,\"qk_nope_head_dim\":32,"
    "\"qk_rope_head_dim\":8,\"v_head_dim\":16,\"intermediate_size\":96,\"vocab_size\":64,"
    "\"moe_intermediate_size\":64,\"n_routed_experts\":4,\"num_experts_per_tok\":2,"
    "\"n_group\":2,\"topk_group\":1,\"n_shared_experts\":1,\"first_k_dense_replace\":1,"
    "\"rms_norm_eps\":1e-6,\"max_position_embeddings\":4096,\"rope_theta\":10000,"
    "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}}";

static uint64_t part_bytes(const mf_expert_shape *e, const mf_weight *w, uint32_t part)
{
    const mf_weight_format *format = mf_weight_format_of(&w->shape);
    if (part < format->n_arrays && e->has_resident_scales && format->arrays[part].is_float32)
        return 0;
    return mf_weight_array_bytes(&w->shape, part);
}

/* Every part of an expert that its shape promises has a place. */
static void check_experts(const mf_binder *binder, const mf_hparams *h,
                          const mf_layer_weights *layers)
{
    for (size_t i = 0; i < 2; i++) {
        if (h->is_dense[i])
            continue;
        const mf_expert_shape *e = &layers[i].experts;
        const mf_weight *matrices[3] = {&e->gate, &e->up, &e->down};
        const mf_expert_part *parts = binder->experts.parts + h->moe_index[i] * MF_MAX_EXPERT_PARTS;
        for (uint32_t j = 0; j < MF_MAX_EXPERT_PARTS; j++) {
            if (parts[j].n_bytes !=
                part_bytes(e, matrices[j / MF_MAX_WEIGHT_ARRAYS], j % MF_MAX_WEIGHT_ARRAYS))
                abort();
        }
    }
}

static void bind(mf_checkpoint *checkpoint)
{
    const mf_family *family;
    mf_hparams h;
    mf_error error;
    mf_layer_weights layers[2];
    mf_model_weights weights = {.layers = layers};
    mf_binder binder = {0};
    memset(layers, 0, sizeof layers);
    if (mf_family_find(&checkpoint->source, &family, &error) != MF_OK ||
        family->configure(&checkpoint->source, &h, &error) != MF_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort(); /* config_text is right */
    }
    mf_checkpoint_find_names(checkpoint);
    mf_binder_init(&binder, &checkpoint->source.allocator, &checkpoint->source);
    if (family->bind(&binder, &h, &weights, &error) == MF_OK &&
        mf_bind_finish(&binder, &h, &error) == MF_OK)
        check_experts(&binder, &h, layers);
    mf_binder_free(&binder);
}

static void parse_as_header(const mf_allocator *a, const char *config_text, const uint8_t *data,
                            size_t size)
{
    mf_checkpoint checkpoint;
    mf_json json = {0};
    mf_error error;
    uint64_t file_bytes;
    uint32_t file;
    memcpy(&file_bytes, data, 8);
    mf_checkpoint_init(&checkpoint, a);
    if (mf_json_parse(a, "config.json", config_text, strlen(config_text), &json, &error) != MF_OK ||
        mf_config_from_json(&json, false, &checkpoint.config, &error) != MF_OK)
        abort();
    /* Any regular file serves: its size is not looked at. */
    if (mf_tensor_table_add_file(&checkpoint.source.table, "/proc/self/exe", &file, &error) ==
            MF_OK &&
        mf_safetensors_parse(&checkpoint.source.table, file, "fuzz",
                             (mf_json_piece){(const char *)data + 8, size - 8, 8}, file_bytes,
                             &error) == MF_OK &&
        mf_tensor_table_finish(&checkpoint.source.table, &error) == MF_OK) {
        check_table(&checkpoint.source.table, file_bytes);
        bind(&checkpoint);
    }
    mf_checkpoint_clear(&checkpoint);
}

static void parse_as_file(const mf_allocator *a, const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0)
        return;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mf_tensor_table table;
    mf_tensor_table_init(&table, a);
    mf_error error;
    if (write(fd, data, size) == (ssize_t)size &&
        mf_safetensors_add_file(&table, path, &error) == MF_OK &&
        mf_tensor_table_finish(&table, &error) == MF_OK)
        check_table(&table, size);
    mf_tensor_table_free(&table);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const mf_allocator a = mf_allocator_default();
    if (size >= 8) {
        parse_as_header(&a, hybrid_text, data, size);
        parse_as_header(&a, deepseek_text, data, size);
    }
    parse_as_file(&a, data, size);
    return 0;
}
