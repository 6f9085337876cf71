/* SPDX-License-Identifier: MIT */
/*
 * The aligned form's two parsers. An input that begins with "MFEXPERT" is the head of a file of
 * experts, of a file as long as it says, read once as it is and once with its checksum put right;
 * any other is a manifest, whose tensors are then bound.
 */
#include "check_table.h"

#include "base/checksum.h"
#include "format/aligned.h"
#include "model/family.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_head(const uint8_t *data, size_t size)
{
    mf_aligned_head head;
    mf_error error = {0};
    uint64_t file_bytes, least;
    memcpy(&file_bytes, data + 48, 8);
    if (mf_aligned_head_read(data, file_bytes, "fuzz", &head, &error) != MF_OK)
        return;
    if (head.first > size || head.first > head.file_bytes)
        return;
    mf_aligned_entry *entries = malloc(head.n_experts * sizeof *entries);
    if (entries == NULL)
        abort();
    least = head.first;
    if (mf_aligned_entries_read(data, &head, "fuzz", entries, &error) == MF_OK) {
        for (uint32_t i = 0; i < head.n_experts; i++) {
            if (entries[i].offset < least || entries[i].n_bytes > file_bytes ||
                entries[i].offset > file_bytes - entries[i].n_bytes)
                abort();
            least = entries[i].offset + entries[i].n_bytes;
        }
    }
    free(entries);
}

static void read_heads(const uint8_t *data, size_t size)
{
    uint32_t n;
    uint8_t *copy = malloc(size);
    if (copy == NULL)
        abort();
    read_head(data, size);
    memcpy(copy, data, size);
    memcpy(&n, copy + 32, 4);
    if (n <= MF_ALIGNED_MAX_EXPERTS && 64 + 32 * (size_t)n + 8 <= size) {
        const uint64_t sum = mf_checksum_of(copy, 64 + 32 * (size_t)n, 0);
        memcpy(copy + 64 + 32 * (size_t)n, &sum, 8);
        read_head(copy, size);
    }
    free(copy);
}

/* Binding, for models small enough that many run in a second. */
static void bind(mf_aligned *aligned)
{
    const mf_family *family;
    mf_hparams h;
    mf_error error = {0};
    mf_binder binder = {0};
    mf_layer_weights layers[8];
    mf_model_weights weights = {.layers = layers};
    memset(layers, 0, sizeof layers);
    if (mf_family_find(&aligned->source, &family, &error) != MF_OK ||
        family->configure(&aligned->source, &h, &error) != MF_OK || h.n_layers > 8 ||
        h.n_experts > 64)
        return;
    mf_binder_init(&binder, &aligned->source.allocator, &aligned->source);
    if (family->bind(&binder, &h, &weights, &error) == MF_OK)
        (void)!mf_bind_finish(&binder, &h, &error);
    mf_binder_free(&binder);
}

static void read_manifest(const uint8_t *data, size_t size)
{
    const mf_allocator a = mf_allocator_default();
    mf_aligned aligned;
    mf_json json = {0};
    mf_error error = {0};
    uint32_t file;
    if (mf_json_parse(&a, "fuzz", (const char *)data, size, &json, &error) != MF_OK)
        return;
    mf_aligned_init(&aligned, &a);
    strcpy(aligned.dir, "/proc/self");
    /* Any regular file serves: its bytes are not looked at. */
    if (mf_tensor_table_add_file(&aligned.source.table, "/proc/self/exe", &file, &error) == MF_OK &&
        mf_aligned_take_manifest(&aligned, &json, file, &error) == MF_OK) {
        check_table(&aligned.source.table, aligned.source.table.files[file].n_bytes);
        bind(&aligned);
    } else {
        mf_json_free(&json);
    }
    mf_aligned_clear(&aligned);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= MF_ALIGNED_HEAD_BYTES && memcmp(data, "MFEXPERT", 8) == 0)
        read_heads(data, size);
    else
        read_manifest(data, size);
    return 0;
}
