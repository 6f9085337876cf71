/* SPDX-License-Identifier: MIT */
/*
 * The head of a GGUF file, from bytes to bound weights. An input is read twice: as
 * a whole file, and as the first bytes of one of a tebibyte, so that a small input can describe a
 * large model.
 */
#include "base/alloc.h"
#include "base/checked.h"
#include "format/gguf_source.h"
#include "model/family.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LARGE ((uint64_t)1 << 40)

/* What a complete table promises. */
static void check_tensors(const mf_tensor_table *table, uint64_t file_bytes)
{
    for (size_t i = 0; i < table->n_tensors; i++) {
        const mf_tensor *t = &table->tensors[i];
        uint64_t end;
        if (!mf_add_u64(t->offset, t->n_bytes, &end) || end > file_bytes || t->n_dims == 0 ||
            t->n_dims > MF_MAX_DIMS || mf_tensor_find(table, t->name) == NULL)
            abort();
    }
}

/* Binding, for models small enough that many run in a second. */
static void bind(mf_source *source)
{
    const mf_family *family;
    mf_hparams h;
    mf_error error;
    mf_binder binder = {0};
    mf_layer_weights layers[8];
    mf_model_weights weights = {.layers = layers};
    memset(layers, 0, sizeof layers);
    if (mf_family_find(source, &family, &error) != MF_OK ||
        family->configure(source, &h, &error) != MF_OK || h.n_layers > 8 || h.n_experts > 64)
        return;
    mf_binder_init(&binder, &source->allocator, source);
    if (family->bind(&binder, &h, &weights, &error) == MF_OK)
        (void)!mf_bind_finish(&binder, &h, &error);
    mf_binder_free(&binder);
}

static void take(const uint8_t *data, size_t size, uint64_t file_bytes)
{
    const mf_allocator a = mf_allocator_default();
    mf_gguf gguf = {0};
    mf_gguf_source source = {.arch = NULL};
    mf_error error;
    /* Any regular file serves: its size is not looked at. */
    if (mf_gguf_parse(&a, "/proc/self/exe", data, size, file_bytes, &gguf, &error) != MF_OK)
        return;
    mf_status status = mf_gguf_source_take(&source, &gguf, &error);
    if (status == MF_OK) {
        check_tensors(&source.source.table, file_bytes);
        bind(&source.source);
    }
    mf_gguf_source_clear(&source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    take(data, size, size);
    take(data, size, LARGE);
    return 0;
}
