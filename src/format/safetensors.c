/* SPDX-License-Identifier: MIT */
/*
 * safetensors: an 8-byte little-endian header length, a JSON header {name: {dtype, shape,
 * data_offsets}}, then the data. Checks everything that the header claims against the file's size
 * before anything is believed.
 */
#include "format/tensors.h"

#include "base/checked.h"
#include "base/files.h"
#include "format/checkpoint_mistakes.h"
#include "format/json_members.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A model of 700e9 parameters with a tensor for each matrix of each expert, all in one file, has a
 * header of some 20 MB. */
#define MAX_HEADER_BYTES ((uint64_t)32 << 20)
#define MAX_INDEX_BYTES ((size_t)32 << 20)

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

/* A file under way: where its data lies. */
typedef struct data_run {
    const char *path;
    uint64_t start, n_bytes;
} data_run;

static mf_status parse_offsets(const data_run *data, yyjson_val *offsets, mf_tensor *out,
                               mf_error *error)
{
    const char *path = data->path, *name = out->name;
    if (!yyjson_is_arr(offsets) || yyjson_arr_size(offsets) != 2 ||
        !yyjson_is_uint(yyjson_arr_get(offsets, 0)) || !yyjson_is_uint(yyjson_arr_get(offsets, 1)))
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s: data_offsets is not [begin, end]",
                       path, name);
    uint64_t begin = yyjson_get_uint(yyjson_arr_get(offsets, 0));
    uint64_t end = yyjson_get_uint(yyjson_arr_get(offsets, 1));
    if (begin > end || end > data->n_bytes)
        return mf_fail_at(error, MF_ERR_FORMAT, data->start,
                          "%s: tensor %s: data_offsets [%llu, %llu] reach past the file's %llu "
                          "bytes of data (truncated?)",
                          path, name, (unsigned long long)begin, (unsigned long long)end,
                          (unsigned long long)data->n_bytes);
    out->offset = data->start + begin;
    out->n_bytes = end - begin;
    return MF_OK;
}

/* out->name is known. */
static mf_status parse_entry(const data_run *data, yyjson_val *entry, mf_tensor *out,
                             mf_error *error)
{
    const char *path = data->path, *name = out->name;
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
    MF_TRY(parse_offsets(data, yyjson_obj_get(entry, "data_offsets"), out, error));
    if (!mf_mul_u64(n_elements, eighths, &n_bits) || n_bits % 8 != 0 || n_bits / 8 != out->n_bytes)
        return mf_fail(
            error, MF_ERR_FORMAT,
            "%s: tensor %s: data_offsets span %llu bytes, which is not shape times dtype %s", path,
            name, (unsigned long long)out->n_bytes, type);
    return MF_OK;
}

static mf_status parse_members(mf_tensor_table *table, uint32_t file, mf_json_members *members,
                               uint64_t file_bytes, mf_error *error)
{
    uint64_t start = 8 + (uint64_t)members->object.n_bytes;
    const data_run data = {members->path, start, file_bytes > start ? file_bytes - start : 0};
    for (;;) {
        mf_tensor tensor = {.file = file};
        mf_json_piece piece;
        yyjson_val *entry = NULL;
        MF_TRY(mf_json_next(members, &tensor.name, &piece, error));
        if (tensor.name == NULL)
            return MF_OK;
        if (strcmp(tensor.name, "__metadata__") == 0)
            continue;
        MF_TRY(mf_json_value(members, tensor.name, &piece, &entry, error));
        MF_TRY(parse_entry(&data, entry, &tensor, error));
        MF_TRY(mf_tensor_table_add(table, &tensor, strlen(tensor.name), error));
    }
}

mf_status mf_safetensors_parse(mf_tensor_table *table, uint32_t file, const char *path,
                               mf_json_piece header, uint64_t file_bytes, mf_error *error)
{
    mf_json_members *members = mf_alloc(&table->allocator, sizeof *members);
    if (members == NULL)
        return mf_fail_memory(error, sizeof *members, path);
    mf_json_members_init(members, path, header);
    mf_status status = parse_members(table, file, members, file_bytes, error);
    mf_free(&table->allocator, members, sizeof *members);
    return status;
}

#define IN_HEADER " inside the header"

static mf_status read_header(mf_tensor_table *table, int fd, uint32_t file, mf_error *error)
{
    const char *path = table->files[file].path;
    uint64_t file_bytes = table->files[file].n_bytes;
    unsigned char length_bytes[8];
    MF_TRY(mf_read_at(fd, path, length_bytes, sizeof length_bytes, 0, IN_HEADER, error));
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | length_bytes[i];
    if (memcmp(length_bytes, MF_LFS_POINTER, sizeof length_bytes) == 0)
        return mf_fail_lfs_pointer(path, error);
    if (length <= file_bytes && length > MAX_HEADER_BYTES)
        return mf_fail_at(error, MF_ERR_FORMAT, 0,
                          "%s: header length %llu, expected at most %llu bytes", path,
                          (unsigned long long)length, (unsigned long long)MAX_HEADER_BYTES);
    if (length > file_bytes || length + 8 > file_bytes)
        return mf_fail_at(error, MF_ERR_FORMAT, 0,
                          "%s: header length %llu, but the file has %llu bytes", path,
                          (unsigned long long)length, (unsigned long long)file_bytes);
    char *header = mf_alloc(&table->allocator, (size_t)length);
    if (header == NULL)
        return mf_fail_memory(error, (size_t)length, path);
    mf_status status = mf_read_at(fd, path, header, (size_t)length, 8, IN_HEADER, error);
    if (status == MF_OK)
        status = mf_safetensors_parse(table, file, path, (mf_json_piece){header, (size_t)length, 8},
                                      file_bytes, error);
    mf_free(&table->allocator, header, (size_t)length);
    return status;
}

mf_status mf_safetensors_add_file(mf_tensor_table *table, const char *path, mf_error *error)
{
    uint32_t file;
    MF_TRY(mf_tensor_table_add_file(table, path, &file, error));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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

/* An index under way. */
typedef struct index_walk {
    mf_tensor_table *table;
    const char *dir;
    mf_json_members members;
} index_walk;

static mf_status add_shard(index_walk *w, const char *tensor, const mf_json_piece *piece,
                           mf_error *error)
{
    char path[MF_MAX_PATH];
    yyjson_val *value = NULL;
    MF_TRY(mf_json_value(&w->members, tensor, piece, &value, error));
    const char *name = yyjson_get_str(value);
    if (name == NULL || strlen(name) != yyjson_get_len(value) || !mf_name_is_below(name))
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: weight_map.%s is not a file name below the directory", w->members.path,
                       tensor);
    MF_TRY(mf_path_join(path, sizeof path, w->dir, name, error));
    return has_file(w->table, path) ? MF_OK : mf_safetensors_add_file(w->table, path, error);
}

/* Every tensor that the index promises must be there; the shards' own headers say where. */
static mf_status check_promised(index_walk *w, const char *tensor, const mf_json_piece *piece,
                                mf_error *error)
{
    (void)piece;
    if (mf_tensor_find(w->table, tensor) == NULL)
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s is in the index but in no shard",
                       w->members.path, tensor);
    return MF_OK;
}

typedef mf_status (*visit_fn)(index_walk *w, const char *tensor, const mf_json_piece *piece,
                              mf_error *error);

static mf_status for_each(index_walk *w, mf_json_piece map, visit_fn visit, mf_error *error)
{
    const char *tensor;
    mf_json_piece piece;
    mf_json_members_init(&w->members, w->members.path, map);
    for (;;) {
        MF_TRY(mf_json_next(&w->members, &tensor, &piece, error));
        if (tensor == NULL)
            return MF_OK;
        MF_TRY(visit(w, tensor, &piece, error));
    }
}

static mf_status find_map(index_walk *w, mf_json_piece *out, mf_error *error)
{
    const char *name;
    mf_json_piece piece;
    *out = (mf_json_piece){0};
    for (;;) {
        MF_TRY(mf_json_next(&w->members, &name, &piece, error));
        if (name == NULL)
            break;
        if (strcmp(name, "weight_map") != 0)
            continue;
        if (out->text != NULL)
            return mf_fail(error, MF_ERR_FORMAT, "%s: field weight_map is given twice",
                           w->members.path);
        *out = piece;
    }
    if (out->text == NULL || out->text[0] != '{')
        return mf_fail(error, MF_ERR_FORMAT, "%s: weight_map is missing or not an object",
                       w->members.path);
    return MF_OK;
}

static mf_status read_index(index_walk *w, mf_error *error)
{
    mf_json_piece map;
    MF_TRY(find_map(w, &map, error));
    MF_TRY(for_each(w, map, add_shard, error));
    MF_TRY(mf_tensor_table_finish(w->table, error));
    return for_each(w, map, check_promised, error);
}

static mf_status add_indexed(mf_tensor_table *table, const char *dir, const char *path,
                             mf_error *error)
{
    const mf_allocator *a = &table->allocator;
    char *text = NULL;
    size_t n_bytes = 0;
    MF_TRY(mf_file_read(a, path, MAX_INDEX_BYTES, &text, &n_bytes, error));
    index_walk *w = mf_alloc(a, sizeof *w);
    mf_status status = w == NULL ? mf_fail_memory(error, sizeof *w, path) : MF_OK;
    if (w != NULL) {
        w->table = table;
        w->dir = dir;
        mf_json_members_init(&w->members, path, (mf_json_piece){text, n_bytes, 0});
        status = read_index(w, error);
        mf_free(a, w, sizeof *w);
    }
    mf_free(a, text, n_bytes + 1);
    return status;
}

mf_status mf_safetensors_add_dir(mf_tensor_table *table, const char *dir, mf_error *error)
{
    char path[MF_MAX_PATH];
    MF_TRY(mf_path_join(path, sizeof path, dir, "model.safetensors.index.json", error));
    if (mf_file_exists(path))
        return add_indexed(table, dir, path, error);
    MF_TRY(mf_path_join(path, sizeof path, dir, "model.safetensors", error));
    if (!mf_file_exists(path))
        return mf_fail_no_weights(dir, path, error);
    MF_TRY(mf_safetensors_add_file(table, path, error));
    return mf_tensor_table_finish(table, error);
}
