/* SPDX-License-Identifier: MIT */
/* The tensor table itself: growth, names, sorting, and the checks that span entries. */
#include "format/tensors.h"

#include "base/checked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STRING_BLOCK_BYTES ((size_t)1 << 16)

typedef struct mf_string_block {
    struct mf_string_block *next;
    size_t n_bytes, used_bytes;
    char bytes[];
} mf_string_block;

void mf_tensor_table_init(mf_tensor_table *table, const mf_allocator *a)
{
    *table = (mf_tensor_table){.allocator = *a};
}

void mf_tensor_table_free(mf_tensor_table *table)
{
    const mf_allocator a = table->allocator;
    if (a.free == NULL)
        return;
    mf_free(&a, table->tensors, table->capacity * sizeof *table->tensors);
    for (size_t i = 0; i < table->n_files; i++)
        mf_free(&a, table->files[i].path, table->files[i].path_bytes);
    mf_free(&a, table->files, table->files_capacity * sizeof *table->files);
    for (mf_string_block *block = table->strings; block != NULL;) {
        mf_string_block *next = block->next;
        mf_free(&a, block, sizeof *block + block->n_bytes);
        block = next;
    }
    *table = (mf_tensor_table){0};
}

static const char *keep_string(mf_tensor_table *table, const char *text, size_t n_bytes)
{
    mf_string_block *block = table->strings;
    if (block == NULL || block->n_bytes - block->used_bytes < n_bytes + 1) {
        size_t size = n_bytes + 1 > STRING_BLOCK_BYTES ? n_bytes + 1 : STRING_BLOCK_BYTES;
        block = mf_alloc(&table->allocator, sizeof *block + size);
        if (block == NULL)
            return NULL;
        *block = (mf_string_block){table->strings, size, 0};
        table->strings = block;
    }
    char *copy = block->bytes + block->used_bytes;
    memcpy(copy, text, n_bytes);
    copy[n_bytes] = '\0';
    block->used_bytes += n_bytes + 1;
    return copy;
}

/* Doubles an array when it is full. */
static mf_status grow(const mf_allocator *a, void **array, size_t n, size_t *capacity,
                      size_t element_bytes, mf_error *error)
{
    if (n < *capacity)
        return MF_OK;
    size_t wanted = *capacity == 0 ? 64 : *capacity * 2;
    void *grown = mf_realloc(a, *array, *capacity * element_bytes, wanted * element_bytes);
    if (grown == NULL)
        return mf_fail_memory(error, wanted * element_bytes, "the tensor table");
    *array = grown;
    *capacity = wanted;
    return MF_OK;
}

mf_status mf_tensor_table_add_file(mf_tensor_table *table, const char *path, uint32_t *file,
                                   mf_error *error)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno,
                          "%s: cannot open", path);
    if (!S_ISREG(st.st_mode))
        return mf_fail(error, MF_ERR_FORMAT, "%s: not a regular file", path);
    if (table->n_files >= MF_MAX_SHARDS)
        return mf_fail(error, MF_ERR_FORMAT, "%s: more than %d weight files", path, MF_MAX_SHARDS);
    void *files = table->files;
    mf_status status = grow(&table->allocator, &files, table->n_files, &table->files_capacity,
                            sizeof *table->files, error);
    table->files = files;
    MF_TRY(status);
    size_t n = strlen(path) + 1;
    char *copy = mf_alloc(&table->allocator, n);
    if (copy == NULL)
        return mf_fail_memory(error, n, path);
    memcpy(copy, path, n);
    *file = (uint32_t)table->n_files;
    table->files[table->n_files++] = (mf_tensor_file){copy, n, (uint64_t)st.st_size};
    return MF_OK;
}

mf_status mf_tensor_table_add(mf_tensor_table *table, const mf_tensor *tensor, size_t name_bytes,
                              mf_error *error)
{
    if (table->n_tensors >= MF_MAX_TENSORS)
        return mf_fail(error, MF_ERR_FORMAT, "more than %d tensors", MF_MAX_TENSORS);
    void *tensors = table->tensors;
    mf_status status = grow(&table->allocator, &tensors, table->n_tensors, &table->capacity,
                            sizeof *table->tensors, error);
    table->tensors = tensors;
    MF_TRY(status);
    mf_tensor *slot = &table->tensors[table->n_tensors];
    *slot = *tensor;
    slot->name = keep_string(table, tensor->name, name_bytes);
    if (slot->name == NULL)
        return mf_fail_memory(error, name_bytes, "a tensor name");
    table->n_tensors++;
    return MF_OK;
}

static int by_place(const void *a, const void *b)
{
    const mf_tensor *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const mf_tensor *)a)->name, ((const mf_tensor *)b)->name);
}

mf_status mf_tensor_table_finish(mf_tensor_table *table, mf_error *error)
{
    if (table->n_tensors == 0)
        return MF_OK;
    qsort(table->tensors, table->n_tensors, sizeof *table->tensors, by_place);
    for (size_t i = 1; i < table->n_tensors; i++) {
        const mf_tensor *a = &table->tensors[i - 1], *b = &table->tensors[i];
        if (a->file == b->file && a->offset + a->n_bytes > b->offset)
            return mf_fail_at(
                error, MF_ERR_FORMAT, b->offset, "%s: tensors %s and %s overlap at byte %llu",
                table->files[a->file].path, a->name, b->name, (unsigned long long)b->offset);
    }
    qsort(table->tensors, table->n_tensors, sizeof *table->tensors, by_name);
    for (size_t i = 1; i < table->n_tensors; i++) {
        const mf_tensor *a = &table->tensors[i - 1], *b = &table->tensors[i];
        if (strcmp(a->name, b->name) == 0)
            return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s is also in %s",
                           table->files[b->file].path, b->name, table->files[a->file].path);
    }
    return MF_OK;
}

mf_tensor *mf_tensor_find(const mf_tensor_table *table, const char *name)
{
    size_t low = 0, high = table->n_tensors;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, table->tensors[middle].name);
        if (order == 0)
            return &table->tensors[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

bool mf_tensor_type_parse(const char *name, mf_tensor_type *type, uint32_t *eighths)
{
    static const struct {
        const char *name;
        mf_tensor_type type;
        uint32_t eighths;
    } known[] = {
        {"F32", MF_TENSOR_F32, 32},      {"F16", MF_TENSOR_F16, 16},
        {"BF16", MF_TENSOR_BF16, 16},    {"U32", MF_TENSOR_U32, 32},
        {"I32", MF_TENSOR_I32, 32},      {"F64", MF_TENSOR_OTHER, 64},
        {"I64", MF_TENSOR_I64, 64},      {"U64", MF_TENSOR_OTHER, 64},
        {"I16", MF_TENSOR_OTHER, 16},    {"U16", MF_TENSOR_OTHER, 16},
        {"I8", MF_TENSOR_I8, 8},         {"U8", MF_TENSOR_U8, 8},
        {"BOOL", MF_TENSOR_OTHER, 8},    {"F8_E4M3", MF_TENSOR_F8_E4M3, 8},
        {"F8_E5M2", MF_TENSOR_OTHER, 8}, {"F8_E8M0", MF_TENSOR_U8, 8},
        {"F4", MF_TENSOR_OTHER, 4},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) == 0) {
            *type = known[i].type;
            *eighths = known[i].eighths;
            return true;
        }
    }
    return false;
}

void mf_shape_text(const uint64_t *shape, uint32_t n_dims, char *text, size_t capacity)
{
    size_t used = (size_t)snprintf(text, capacity, "[");
    for (uint32_t i = 0; i < n_dims && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%llu", i == 0 ? "" : ", ",
                                 (unsigned long long)shape[i]);
    if (used < capacity)
        snprintf(text + used, capacity - used, "]");
}
