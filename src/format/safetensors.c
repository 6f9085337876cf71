/* SPDX-License-Identifier: MIT */
/*
 * safetensors: an 8-byte little-endian header length, a JSON header {name: {dtype, shape,
 * data_offsets}}, then the data. Checks everything that the header claims against the file's size
 * before anything is believed.
 */
#include "format/tensors.h"

#include "base/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The reference implementation's own limit on headers. */
#define MAX_HEADER_BYTES ((uint64_t)100000000)
#define MAX_INDEX_BYTES ((size_t)256 << 20)

static mf_status parse_shape(const char *path, const char *name, yyjson_val *shape, mf_tensor *out,
                             uint64_t *n_elements, mf_error *error)
{
    if (!yyjson_is_arr(shape))
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s: shape is not an array", path, name);
    size_t n_dims = yyjson_arr_size(shape);
    uint64_t product = 1;
    size_t i, n;
    yyjson_val *dim;
    yyjson_arr_foreach(shape, i, n, dim)
    {
        if (!yyjson_is_uint(dim) || !mf_mul_u64(product, yyjson_get_uint(dim), &product))
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: tensor %s: shape[%zu] is not a size, or overflows", path, name, i);
        if (i < MF_MAX_DIMS)
            out->shape[i] = yyjson_get_uint(dim);
    }
    /* Tensors of more dimensions (vision convolutions) exist; nothing here binds one, so their
     * shape need not be kept. */
    out->n_dims = (uint32_t)(n_dims > MF_MAX_DIMS ? MF_MAX_DIMS + 1 : n_dims);
    *n_elements = product;
    return MF_OK;
}

static mf_status parse_offsets(const char *path, const char *name, yyjson_val *offsets,
                               uint64_t data_start, uint64_t data_bytes, mf_tensor *out,
                               mf_error *error)
{
    if (!yyjson_is_arr(offsets) || yyjson_arr_size(offsets) != 2 ||
        !yyjson_is_uint(yyjson_arr_get(offsets, 0)) || !yyjson_is_uint(yyjson_arr_get(offsets, 1)))
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s: data_offsets is not [begin, end]",
                       path, name);
    uint64_t begin = yyjson_get_uint(yyjson_arr_get(offsets, 0));
    uint64_t end = yyjson_get_uint(yyjson_arr_get(offsets, 1));
    if (begin > end || end > data_bytes)
        return mf_fail_at(error, MF_ERR_FORMAT, data_start,
                          "%s: tensor %s: data_offsets [%llu, %llu] reach past the file's %llu "
                          "bytes of data (truncated?)",
                          path, name, (unsigned long long)begin, (unsigned long long)end,
                          (unsigned long long)data_bytes);
    out->offset = data_start + begin;
    out->n_bytes = end - begin;
    return MF_OK;
}

static mf_status parse_entry(const char *path, const char *name, yyjson_val *entry,
                             uint64_t data_start, uint64_t data_bytes, mf_tensor *out,
                             mf_error *error)
{
    if (!yyjson_is_obj(entry))
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s: not an object", path, name);
    const char *type = yyjson_get_str(yyjson_obj_get(entry, "dtype"));
    uint32_t eighths;
    if (type == NULL || !mf_tensor_type_parse(type, &out->type, &eighths))
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s: unknown dtype %s", path, name,
                       type == NULL ? "(none)" : type);
    snprintf(out->type_name, sizeof out->type_name, "%s", type);
    uint64_t n_elements = 0, n_bits = 0; /* gcc 13 does not see that a failure leaves before use */
    MF_TRY(parse_shape(path, name, yyjson_obj_get(entry, "shape"), out, &n_elements, error));
    MF_TRY(parse_offsets(path, name, yyjson_obj_get(entry, "data_offsets"), data_start, data_bytes,
                         out, error));
    if (!mf_mul_u64(n_elements, eighths, &n_bits) || n_bits % 8 != 0 || n_bits / 8 != out->n_bytes)
        return mf_fail(
            error, MF_ERR_FORMAT,
            "%s: tensor %s: data_offsets span %llu bytes, which is not shape times dtype %s", path,
            name, (unsigned long long)out->n_bytes, type);
    return MF_OK;
}

mf_status mf_safetensors_parse(mf_tensor_table *table, uint32_t file, const char *path,
                               const char *header, size_t header_bytes, uint64_t file_bytes,
                               mf_error *error)
{
    mf_json json = {0};
    MF_TRY(mf_json_parse(&table->allocator, path, header, header_bytes, &json, error));
    mf_status status = MF_OK;
    if (!yyjson_is_obj(json.root)) {
        mf_json_free(&json);
        return mf_fail(error, MF_ERR_FORMAT, "%s: header is not a JSON object", path);
    }
    uint64_t data_start = 8 + (uint64_t)header_bytes;
    uint64_t data_bytes = file_bytes > data_start ? file_bytes - data_start : 0;
    size_t i, n;
    yyjson_val *key, *entry;
    yyjson_obj_foreach(json.root, i, n, key, entry)
    {
        if (yyjson_equals_str(key, "__metadata__"))
            continue;
        mf_tensor tensor = {.name = yyjson_get_str(key), .file = file};
        MF_TRY_GOTO(parse_entry(path, tensor.name, entry, data_start, data_bytes, &tensor, error));
        MF_TRY_GOTO(mf_tensor_table_add(table, &tensor, strlen(tensor.name), error));
    }
fail:
    mf_json_free(&json);
    return status;
}

static mf_status read_at(int fd, const char *path, void *dest, size_t n_bytes, uint64_t offset,
                         mf_error *error)
{
    unsigned char *out = dest;
    size_t done = 0;
    while (done < n_bytes) {
        ssize_t got = pread(fd, out + done, n_bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mf_fail_os(error, MF_ERR_IO, errno, "%s: read failed at byte %llu", path,
                              (unsigned long long)(offset + done));
        if (got == 0)
            return mf_fail_at(error, MF_ERR_FORMAT, offset + done,
                              "%s: file ends at byte %llu inside the header", path,
                              (unsigned long long)(offset + done));
        done += (size_t)got;
    }
    return MF_OK;
}

static mf_status read_header(mf_tensor_table *table, int fd, uint32_t file, mf_error *error)
{
    const char *path = table->files[file].path;
    uint64_t file_bytes = table->files[file].n_bytes;
    unsigned char length_bytes[8];
    MF_TRY(read_at(fd, path, length_bytes, sizeof length_bytes, 0, error));
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | length_bytes[i];
    if (length > MAX_HEADER_BYTES || length + 8 > file_bytes)
        return mf_fail_at(error, MF_ERR_FORMAT, 0,
                          "%s: header length %llu, but the file has %llu bytes", path,
                          (unsigned long long)length, (unsigned long long)file_bytes);
    char *header = mf_alloc(&table->allocator, (size_t)length);
    if (header == NULL)
        return mf_fail_memory(error, (size_t)length, path);
    mf_status status = read_at(fd, path, header, (size_t)length, 8, error);
    if (status == MF_OK)
        status = mf_safetensors_parse(table, file, path, header, (size_t)length, file_bytes, error);
    mf_free(&table->allocator, header, (size_t)length);
    return status;
}

mf_status mf_safetensors_add_file(mf_tensor_table *table, const char *path, mf_error *error)
{
    uint32_t file;
    MF_TRY(mf_tensor_table_add_file(table, path, &file, error));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot open", path);
    mf_status status = read_header(table, fd, file, error);
    close(fd);
    return status;
}

static bool has_file(const mf_tensor_table *table, const char *path)
{
    for (size_t i = 0; i < table->n_files; i++) {
        if (strcmp(table->files[i].path, path) == 0)
            return true;
    }
    return false;
}

static mf_status add_shards(mf_tensor_table *table, const char *dir, const mf_json *index,
                            mf_error *error)
{
    yyjson_val *map = yyjson_obj_get(index->root, "weight_map");
    if (!yyjson_is_obj(map))
        return mf_fail(error, MF_ERR_FORMAT, "%s: weight_map is missing or not an object",
                       index->path);
    size_t i, n;
    yyjson_val *key, *value;
    yyjson_obj_foreach(map, i, n, key, value)
    {
        const char *name = yyjson_get_str(value);
        if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL)
            return mf_fail(error, MF_ERR_FORMAT, "%s: weight_map.%s is not a file name",
                           index->path, yyjson_get_str(key));
        char path[MF_MAX_PATH];
        MF_TRY(mf_path_join(path, sizeof path, dir, name, error));
        if (!has_file(table, path))
            MF_TRY(mf_safetensors_add_file(table, path, error));
    }
    return MF_OK;
}

/* Every tensor that the index promises must be there; the shards' own headers say where. */
static mf_status check_index(const mf_tensor_table *table, const mf_json *index, mf_error *error)
{
    size_t i, n;
    yyjson_val *key, *value;
    yyjson_obj_foreach(yyjson_obj_get(index->root, "weight_map"), i, n, key, value)
    {
        if (mf_tensor_find(table, yyjson_get_str(key)) == NULL)
            return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s is in the index but in no shard",
                           index->path, yyjson_get_str(key));
    }
    return MF_OK;
}

mf_status mf_safetensors_add_dir(mf_tensor_table *table, const char *dir, mf_error *error)
{
    char path[MF_MAX_PATH];
    MF_TRY(mf_path_join(path, sizeof path, dir, "model.safetensors.index.json", error));
    if (!mf_file_exists(path)) {
        MF_TRY(mf_path_join(path, sizeof path, dir, "model.safetensors", error));
        MF_TRY(mf_safetensors_add_file(table, path, error));
        return mf_tensor_table_finish(table, error);
    }
    mf_json index = {0};
    MF_TRY(mf_json_read(&table->allocator, path, MAX_INDEX_BYTES, &index, error));
    mf_status status = add_shards(table, dir, &index, error);
    if (status == MF_OK)
        status = mf_tensor_table_finish(table, error);
    if (status == MF_OK)
        status = check_index(table, &index, error);
    mf_json_free(&index);
    return status;
}
