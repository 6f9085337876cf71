/* SPDX-License-Identifier: MIT */
/* The packed form's manifest, model_weights.json: {"tensors": {name: {offset, size, shape, dtype,
 * bits}}}. */
#include "format/tensors.h"

#include "base/checked.h"
#include "format/gguf.h"

#include <stdio.h>
#include <string.h>

typedef struct entry_type {
    uint64_t n_values, n_bits; /* of the least that there is of it */
} entry_type;

/* A dtype of safetensors, or a type of GGUF's. */
static bool parse_type(const char *name, mf_tensor *out, entry_type *type)
{
    mf_gguf_block block;
    uint32_t eighths;
    *type = (entry_type){1, 0};
    if (mf_tensor_type_parse(name, &out->type, &eighths)) {
        type->n_bits = eighths;
        return true;
    }
    if (!mf_gguf_block_named(name, &block))
        return false;
    out->type = block.type;
    out->kind = block.kind;
    *type = (entry_type){block.n_values, 8 * (uint64_t)block.n_bytes};
    return true;
}

/* In which form a matrix is stored, where its arrays do not say. */
static mf_status parse_form(const char *path, const char *name, yyjson_val *form, mf_tensor *out,
                            mf_error *error)
{
    if (form == NULL)
        return MF_OK;
    for (uint32_t kind = MF_WEIGHT_FLOAT; yyjson_is_str(form) && kind < MF_WEIGHT_KINDS; kind++) {
        if (strcmp(mf_weight_formats[kind].form, yyjson_get_str(form)) == 0) {
            out->kind = (mf_weight_kind)kind;
            return MF_OK;
        }
    }
    return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: tensors.%s: form %s is not known", path, name,
                   yyjson_is_str(form) ? yyjson_get_str(form) : "(no string)");
}

/* How its values are laid out, where it is repacked when it is read. */
static mf_status parse_packing(const char *path, const char *name, yyjson_val *packing,
                               mf_tensor *out, mf_error *error)
{
    const char *text = yyjson_get_str(packing);
    if (packing == NULL)
        return MF_OK;
    out->packing = text != NULL ? mf_packing_named(text) : MF_PACKING_NONE;
    if (out->packing != MF_PACKING_NONE)
        return MF_OK;
    return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: tensors.%s: packing %s is not known", path, name,
                   text != NULL ? text : "(no string)");
}

static mf_status parse_entry(const mf_json *manifest, const char *name, yyjson_val *entry,
                             uint64_t weights_bytes, mf_tensor *out, mf_error *error)
{
    const char *path = manifest->path;
    yyjson_val *offset = yyjson_obj_get(entry, "offset"), *size = yyjson_obj_get(entry, "size");
    yyjson_val *bits = yyjson_obj_get(entry, "bits"), *shape = yyjson_obj_get(entry, "shape");
    if (!yyjson_is_uint(offset) || !yyjson_is_uint(size))
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensors.%s: offset or size is missing", path,
                       name);
    const char *type = yyjson_get_str(yyjson_obj_get(entry, "dtype"));
    entry_type least;
    if (type == NULL || !parse_type(type, out, &least))
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensors.%s: unknown dtype %s", path, name,
                       type == NULL ? "(none)" : type);
    snprintf(out->type_name, sizeof out->type_name, "%s", type);
    if (!yyjson_is_arr(shape) || yyjson_arr_size(shape) == 0 ||
        yyjson_arr_size(shape) > MF_MAX_DIMS)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: tensors.%s: shape is not an array of 1 to %d sizes", path, name,
                       MF_MAX_DIMS);
    uint64_t n_elements = 1, n_bits, end;
    size_t i, n;
    yyjson_val *dim;
    yyjson_arr_foreach(shape, i, n, dim)
    {
        if (!yyjson_is_uint(dim) || !mf_mul_u64(n_elements, yyjson_get_uint(dim), &n_elements))
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: tensors.%s: shape[%zu] is not a size, or overflows", path, name, i);
        out->shape[i] = yyjson_get_uint(dim);
    }
    out->n_dims = (uint32_t)n;
    out->offset = yyjson_get_uint(offset);
    out->n_bytes = yyjson_get_uint(size);
    if (out->shape[n - 1] % least.n_values != 0 ||
        !mf_mul_u64(n_elements / least.n_values, least.n_bits, &n_bits) || n_bits % 8 != 0 ||
        n_bits / 8 != out->n_bytes)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: tensors.%s: size %llu is not shape times dtype %s", path, name,
                       (unsigned long long)out->n_bytes, type);
    if (!mf_add_u64(out->offset, out->n_bytes, &end) || end > weights_bytes)
        return mf_fail(
            error, MF_ERR_FORMAT,
            "%s: tensors.%s: bytes %llu + %llu lie outside the weights file of %llu bytes", path,
            name, (unsigned long long)out->offset, (unsigned long long)out->n_bytes,
            (unsigned long long)weights_bytes);
    out->is_negated_exp = yyjson_is_true(yyjson_obj_get(entry, "negated_exp"));
    out->bits =
        yyjson_is_uint(bits) && yyjson_get_uint(bits) <= 32 ? (uint32_t)yyjson_get_uint(bits) : 0;
    MF_TRY(parse_packing(path, name, yyjson_obj_get(entry, "packing"), out, error));
    return parse_form(path, name, yyjson_obj_get(entry, "form"), out, error);
}

mf_status mf_manifest_parse(mf_tensor_table *table, uint32_t file, const mf_json *manifest,
                            uint64_t weights_bytes, mf_error *error)
{
    yyjson_val *tensors = yyjson_obj_get(manifest->root, "tensors");
    if (!yyjson_is_obj(tensors))
        return mf_fail(error, MF_ERR_FORMAT, "%s: field tensors is missing or not an object",
                       manifest->path);
    size_t i, n;
    yyjson_val *key, *entry;
    yyjson_obj_foreach(tensors, i, n, key, entry)
    {
        mf_tensor tensor = {.name = yyjson_get_str(key), .file = file};
        MF_TRY(parse_entry(manifest, tensor.name, entry, weights_bytes, &tensor, error));
        MF_TRY(mf_tensor_table_add(table, &tensor, strlen(tensor.name), error));
    }
    return mf_tensor_table_finish(table, error);
}
