/* SPDX-License-Identifier: MIT */
/* Recognising and opening checkpoint directories. */
#include "format/checkpoint.h"

#include "format/checkpoint_mistakes.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_MANIFEST_BYTES ((size_t)8 << 20)

static bool dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static mf_status check_directory(const char *dir, mf_error *error)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        return mf_fail_no_directory(dir, errno, error);
    closedir(d);
    return MF_OK;
}

/* Where a part of the packed form lies. */
static mf_status part_path(const mf_checkpoint *c, const char *folder, const char *name, char *path,
                           size_t capacity, mf_error *error)
{
    char below[96];
    snprintf(below, sizeof below, "%s%s", c->is_split ? folder : "", name);
    return mf_path_join(path, capacity, c->dir, below, error);
}

static const char *packed_dir_name(uint32_t bits)
{
    return bits == 2 ? "packed_experts_2bit" : "packed_experts";
}

static mf_status choose_packed(mf_checkpoint *c, uint32_t wanted, mf_error *error)
{
    static const uint32_t known[] = {4, 2};
    char path[MF_MAX_PATH];
    for (size_t i = 0; i < 2; i++) {
        if (wanted != 0 && wanted != known[i])
            continue;
        MF_TRY(part_path(c, "root/", packed_dir_name(known[i]), path, sizeof path, error));
        if (dir_exists(path)) {
            c->packed_bits = known[i];
            return MF_OK;
        }
    }
    return mf_fail(error, MF_ERR_NOT_FOUND, "%s: no %s directory beside model_weights.json", c->dir,
                   wanted == 2 ? "packed_experts_2bit" : "packed_experts");
}

static mf_status read_packed(mf_checkpoint *c, uint32_t packed_bits, mf_error *error)
{
    char path[MF_MAX_PATH];
    uint32_t file;
    mf_tensor_table *table = &c->source.table;
    MF_TRY(choose_packed(c, packed_bits, error));
    MF_TRY(part_path(c, "artifacts/", "model_weights.bin", path, sizeof path, error));
    MF_TRY(mf_tensor_table_add_file(table, path, &file, error));
    MF_TRY(part_path(c, "artifacts/", "model_weights.json", path, sizeof path, error));
    mf_json manifest = {0};
    MF_TRY(mf_json_read(&c->source.allocator, path, MAX_MANIFEST_BYTES, &manifest, error));
    mf_status status = mf_manifest_parse(table, file, &manifest, table->files[file].n_bytes, error);
    mf_json_free(&manifest);
    return status;
}

static mf_status read_config(mf_checkpoint *c, mf_error *error)
{
    char path[MF_MAX_PATH];
    bool is_manifest = false;
    MF_TRY(part_path(c, "mlx/", "config.json", path, sizeof path, error));
    if (c->is_packed && !mf_file_exists(path)) {
        MF_TRY(part_path(c, "artifacts/", "model_weights.json", path, sizeof path, error));
        is_manifest = true;
    }
    struct stat st;
    if (stat(path, &st) != 0 && errno == ENOENT)
        return mf_fail_no_config(c->dir, path, error);
    MF_TRY(mf_config_read(&c->source.allocator, path, is_manifest, &c->config, error));
    c->source.hparam_path = c->config.json.path;
    return mf_config_check_quantization(&c->config, error);
}

static mf_status read_directory(mf_checkpoint *c, uint32_t packed_bits, mf_error *error)
{
    char path[MF_MAX_PATH];
    MF_TRY(check_directory(c->dir, error));
    MF_TRY(mf_path_join(path, sizeof path, c->dir, "artifacts/model_weights.json", error));
    c->is_split = mf_file_exists(path);
    MF_TRY(part_path(c, "artifacts/", "model_weights.json", path, sizeof path, error));
    c->is_packed = mf_file_exists(path);
    c->source.form = c->is_packed ? "packed" : NULL;
    MF_TRY(read_config(c, error));
    if (c->is_packed)
        MF_TRY(read_packed(c, packed_bits, error));
    else
        MF_TRY(mf_safetensors_add_dir(&c->source.table, c->dir, error));
    mf_checkpoint_find_names(c);
    return mf_checkpoint_compare_head(c, error);
}

void mf_checkpoint_init(mf_checkpoint *checkpoint, const mf_allocator *a)
{
    *checkpoint = (mf_checkpoint){.source = {.ops = &mf_checkpoint_ops, .allocator = *a}};
    checkpoint->source.path = checkpoint->dir;
    checkpoint->source.hparam_path = checkpoint->dir;
    checkpoint->prefix = "";
    checkpoint->first_mtp_layer = UINT32_MAX;
    mf_tensor_table_init(&checkpoint->source.table, a);
}

mf_status mf_checkpoint_open(const mf_allocator *a, const char *dir, uint32_t packed_bits,
                             mf_source **out, mf_error *error)
{
    if (strlen(dir) >= MF_MAX_PATH)
        return mf_fail(error, MF_ERR_ARGUMENT, "path longer than %d bytes: %.64s...", MF_MAX_PATH,
                       dir);
    mf_checkpoint *c = mf_alloc(a, sizeof *c);
    if (c == NULL)
        return mf_fail_memory(error, sizeof *c, dir);
    mf_checkpoint_init(c, a);
    snprintf(c->dir, sizeof c->dir, "%s", dir);
    mf_status status = read_directory(c, packed_bits, error);
    if (status != MF_OK)
        mf_checkpoint_close(&c->source);
    else
        *out = &c->source;
    return status;
}

void mf_checkpoint_clear(mf_checkpoint *checkpoint)
{
    mf_config_free(&checkpoint->config);
    mf_tensor_table_free(&checkpoint->source.table);
}

void mf_checkpoint_close(mf_source *source)
{
    const mf_allocator a = source->allocator;
    mf_checkpoint_clear((mf_checkpoint *)source);
    mf_free(&a, source, sizeof(mf_checkpoint));
}

/* DIR/packed_experts[_2bit]/layer_NN.bin */
mf_status mf_checkpoint_packed_experts(mf_source *source, uint32_t layer, mf_packed_experts *out,
                                       mf_error *error)
{
    enum { GROUP = 64 };
    const mf_checkpoint *c = (const mf_checkpoint *)source;
    char name[64], path[MF_MAX_PATH];
    uint32_t file;
    snprintf(name, sizeof name, "%s/layer_%02u.bin", packed_dir_name(c->packed_bits), layer);
    MF_TRY(part_path(c, "root/", name, path, sizeof path, error));
    MF_TRY(mf_tensor_table_add_file(&source->table, path, &file, error));
    *out = (mf_packed_experts){.file = file, .bits = c->packed_bits, .group = GROUP};
    return MF_OK;
}
