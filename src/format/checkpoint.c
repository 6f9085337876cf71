/* SPDX-License-Identifier: MIT */
/* Recognising and opening checkpoint directories. */
#include "format/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_MANIFEST_BYTES ((size_t)256 << 20)

static bool dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static mf_status check_directory(const char *dir, mf_error *error)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno,
                          "%s: cannot open directory", dir);
    closedir(d);
    return MF_OK;
}

/* Where a part of the prepared form lies. */
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
    MF_TRY(choose_packed(c, packed_bits, error));
    MF_TRY(part_path(c, "artifacts/", "model_weights.bin", path, sizeof path, error));
    MF_TRY(mf_tensor_table_add_file(&c->table, path, &file, error));
    MF_TRY(part_path(c, "artifacts/", "model_weights.json", path, sizeof path, error));
    mf_json manifest = {0};
    MF_TRY(mf_json_read(&c->allocator, path, MAX_MANIFEST_BYTES, &manifest, error));
    mf_status status =
        mf_manifest_parse(&c->table, file, &manifest, c->table.files[file].n_bytes, error);
    mf_json_free(&manifest);
    return status;
}

static mf_status read_config(mf_checkpoint *c, mf_error *error)
{
    char path[MF_MAX_PATH];
    MF_TRY(part_path(c, "mlx/", "config.json", path, sizeof path, error));
    if (c->is_packed && !mf_file_exists(path)) {
        MF_TRY(part_path(c, "artifacts/", "model_weights.json", path, sizeof path, error));
        c->config_from_manifest = true;
    }
    return mf_config_read(&c->allocator, path, c->config_from_manifest, &c->config, error);
}

mf_status mf_checkpoint_read(const mf_allocator *a, const char *dir, uint32_t packed_bits,
                             mf_checkpoint *out, mf_error *error)
{
    mf_status status;
    char path[MF_MAX_PATH];
    *out = (mf_checkpoint){.allocator = *a};
    mf_tensor_table_init(&out->table, a);
    if (strlen(dir) >= sizeof out->dir)
        return mf_fail(error, MF_ERR_ARGUMENT, "path longer than %d bytes: %.64s...", MF_MAX_PATH,
                       dir);
    snprintf(out->dir, sizeof out->dir, "%s", dir);
    MF_TRY_GOTO(check_directory(dir, error));
    MF_TRY_GOTO(mf_path_join(path, sizeof path, dir, "artifacts/model_weights.json", error));
    out->is_split = mf_file_exists(path);
    MF_TRY_GOTO(part_path(out, "artifacts/", "model_weights.json", path, sizeof path, error));
    out->is_packed = mf_file_exists(path);
    MF_TRY_GOTO(read_config(out, error));
    if (out->is_packed)
        MF_TRY_GOTO(read_packed(out, packed_bits, error));
    else
        MF_TRY_GOTO(mf_safetensors_add_dir(&out->table, dir, error));
    return MF_OK;
fail:
    mf_checkpoint_free(out);
    return status;
}

void mf_checkpoint_free(mf_checkpoint *checkpoint)
{
    mf_config_free(&checkpoint->config);
    mf_tensor_table_free(&checkpoint->table);
    *checkpoint = (mf_checkpoint){0};
}

mf_status mf_checkpoint_layer_file(const mf_checkpoint *checkpoint, uint32_t layer, char *path,
                                   size_t capacity, mf_error *error)
{
    char name[64];
    snprintf(name, sizeof name, "%s/layer_%02u.bin", packed_dir_name(checkpoint->packed_bits),
             layer);
    return part_path(checkpoint, "root/", name, path, capacity, error);
}
