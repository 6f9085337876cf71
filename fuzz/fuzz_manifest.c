/* SPDX-License-Identifier: MIT */
/*
 * The packed form's manifest. The first 8 bytes of an input are the size that model_weights.bin
 * is said to have; the rest is model_weights.json, whose config then has its tensors bound.
 */
#include "check_table.h"

#include "base/alloc.h"
#include "format/checkpoint.h"
#include "model/family.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Binding, for models small enough that many run in a second. */
static void bind(mf_checkpoint *checkpoint)
{
    const mf_family *family;
    mf_hparams h;
    mf_error error;
    mf_binder binder = {0};
    mf_layer_weights layers[8];
    mf_model_weights weights = {.layers = layers};
    memset(layers, 0, sizeof layers);
    if (mf_family_find(&checkpoint->source, &family, &error) != MF_OK ||
        family->configure(&checkpoint->source, &h, &error) != MF_OK || h.n_layers > 8 ||
        h.n_experts > 64)
        return;
    mf_checkpoint_find_names(checkpoint);
    mf_binder_init(&binder, &checkpoint->source.allocator, &checkpoint->source);
    if (family->bind(&binder, &h, &weights, &error) == MF_OK)
        (void)!mf_bind_finish(&binder, &h, &error);
    mf_binder_free(&binder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const mf_allocator a = mf_allocator_default();
    mf_checkpoint checkpoint;
    mf_json json = {0};
    mf_error error;
    uint64_t file_bytes;
    uint32_t file;
    if (size < 8)
        return 0;
    memcpy(&file_bytes, data, 8);
    if (mf_json_parse(&a, "fuzz", (const char *)data + 8, size - 8, &json, &error) != MF_OK)
        return 0;
    mf_checkpoint_init(&checkpoint, &a);
    checkpoint.is_packed = true;
    checkpoint.packed_bits = 4;
    /* Any regular file serves: its size is not looked at. */
    bool whole =
        mf_tensor_table_add_file(&checkpoint.source.table, "/proc/self/exe", &file, &error) ==
            MF_OK &&
        mf_manifest_parse(&checkpoint.source.table, file, &json, file_bytes, &error) == MF_OK;
    if (whole)
        check_table(&checkpoint.source.table, file_bytes);
    if (mf_config_from_json(&json, true, &checkpoint.config, &error) == MF_OK) {
        if (whole)
            bind(&checkpoint);
    } else {
        mf_json_free(&json);
    }
    mf_checkpoint_clear(&checkpoint);
    return 0;
}
