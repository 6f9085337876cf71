/* SPDX-License-Identifier: MIT */
/* Reading a model of the aligned form back, against its checksums. */
#include "base/checksum.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/sized.h"
#include "convert/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM_BYTES ((size_t)4 << 20)

typedef struct verification {
    mf_allocator allocator;
    mf_convert_options options;
    mf_model model;
    unsigned char *room;
    uint32_t layer;
    uint64_t n_bytes, n_bytes_done, reported_us;
} verification;

static mf_status report(verification *v, uint64_t n_bytes, mf_error *error)
{
    v->n_bytes_done += n_bytes;
    const uint64_t now = mf_now_us();
    if (v->options.on_progress == NULL ||
        (now - v->reported_us < 100000 && v->n_bytes_done != v->n_bytes))
        return MF_OK;
    v->reported_us = now;
    const mf_convert_progress progress = {sizeof progress, v->n_bytes_done, v->n_bytes, v->layer,
                                          v->model.h.n_moe_layers};
    if (v->options.on_progress(v->options.user, &progress) == 0)
        return MF_OK;
    return mf_fail(error, MF_ERR_CANCELLED, "the check was stopped");
}

/* A run of a file, and what it should sum to. */
static mf_status check_run(verification *v, int fd, const char *path, uint64_t at, uint64_t n_bytes,
                           uint64_t *sum, mf_error *error)
{
    mf_checksum c;
    mf_checksum_begin(&c, 0);
    for (uint64_t done = 0; done < n_bytes;) {
        const uint64_t left = n_bytes - done;
        const size_t n = left < ROOM_BYTES ? (size_t)left : ROOM_BYTES;
        MF_TRY(mf_read_at(fd, path, v->room, n, at + done, "", error));
        mf_checksum_add(&c, v->room, n);
        MF_TRY(report(v, n, error));
        done += n;
    }
    *sum = mf_checksum_end(&c);
    return MF_OK;
}

static mf_status open_file(const char *path, int *fd, mf_error *error)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return *fd >= 0 ? MF_OK : mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot open", path);
}

/* ---------------------------------------------------------------------------------- dense -- */

static mf_status check_tensor(verification *v, int fd, const mf_tensor *t, const char *expected,
                              mf_error *error)
{
    const char *path = mf_source_path_of(v->model.source, t);
    uint64_t sum = 0;
    char text[20];
    MF_TRY(check_run(v, fd, path, t->offset, t->n_bytes, &sum, error));
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    if (expected != NULL && strcmp(text, expected) == 0)
        return MF_OK;
    return mf_fail_at(error, MF_ERR_FORMAT, t->offset,
                      "%s: tensor %s at byte %llu is damaged (checksum %s, expected %s)", path,
                      t->name, (unsigned long long)t->offset, text,
                      expected != NULL ? expected : "one");
}

static mf_status check_dense(verification *v, mf_error *error)
{
    const mf_tensor_table *table = &v->model.source->table;
    const mf_aligned *c = (const mf_aligned *)v->model.source;
    yyjson_val *tensors = yyjson_obj_get(c->manifest.root, "tensors");
    int fd = -1;
    if (table->n_tensors == 0)
        return MF_OK;
    MF_TRY(open_file(table->files[table->tensors[0].file].path, &fd, error));
    mf_status status = MF_OK;
    for (size_t i = 0; i < table->n_tensors && status == MF_OK; i++) {
        const mf_tensor *t = &table->tensors[i];
        yyjson_val *sum = yyjson_obj_get(yyjson_obj_get(tensors, t->name), "xxh3");
        status = check_tensor(v, fd, t, yyjson_get_str(sum), error);
    }
    close(fd);
    return status;
}

/* -------------------------------------------------------------------------------- experts -- */

static mf_status check_entries(verification *v, const char *path, const mf_aligned_head *head,
                               const mf_aligned_entry *entries, mf_error *error)
{
    int fd;
    MF_TRY(open_file(path, &fd, error));
    mf_status status = MF_OK;
    for (uint32_t i = 0; i < head->n_experts && status == MF_OK; i++) {
        const mf_aligned_entry *e = &entries[i];
        uint64_t sum = 0;
        status = check_run(v, fd, path, e->offset, e->n_bytes, &sum, error);
        if (status == MF_OK && sum != e->checksum)
            status = mf_fail_at(error, MF_ERR_FORMAT, e->offset,
                                "%s: expert %u at byte %llu is damaged (checksum)", path, e->expert,
                                (unsigned long long)e->offset);
    }
    close(fd);
    return status;
}

static mf_status check_file(verification *v, const char *path, mf_error *error)
{
    mf_aligned_head head;
    mf_aligned_entry *entries = NULL;
    MF_TRY(mf_aligned_file_read(&v->allocator, path, &head, &entries, error));
    mf_status status = check_entries(v, path, &head, entries, error);
    mf_free(&v->allocator, entries, head.n_experts * sizeof *entries);
    return status;
}

/* The first file of the table is the dense one; the others were added layer by layer. */
static mf_status check_all(verification *v, mf_error *error)
{
    const mf_tensor_table *table = &v->model.source->table;
    for (size_t i = 0; i < table->n_files; i++)
        v->n_bytes += table->files[i].n_bytes;
    MF_TRY(check_dense(v, error));
    for (size_t i = 1; i < table->n_files; i++) {
        v->layer = (uint32_t)((i - 1) * v->model.h.n_moe_layers / (table->n_files - 1));
        MF_TRY(check_file(v, table->files[i].path, error));
    }
    v->n_bytes_done = v->n_bytes;
    return report(v, 0, error);
}

mf_status mf_convert_verify(const char *path, const mf_convert_options *options, mf_error *error)
{
    verification v = {0};
    mf_source *source = NULL;
    if (path == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_convert_verify: path is NULL");
    mf_convert_options_default(&v.options);
    if (options != NULL)
        MF_TRY(mf_sized_get(&v.options, sizeof v.options, options, "mf_convert_options", error));
    MF_TRY(mf_allocator_take(&v.options.allocator, &v.allocator, error));
    if (!mf_aligned_is_there(path))
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "%s: has no " MF_ALIGNED_MANIFEST ": only models that were converted have "
                       "checksums",
                       path);
    MF_TRY(mf_aligned_open(&v.allocator, path, &source, error));
    MF_TRY(mf_model_bind(&v.allocator, source, &v.model, error));
    v.room = mf_alloc(&v.allocator, ROOM_BYTES);
    mf_status status =
        v.room != NULL ? check_all(&v, error) : mf_fail_memory(error, ROOM_BYTES, "reading back");
    mf_free(&v.allocator, v.room, ROOM_BYTES);
    mf_model_release(&v.model);
    return status;
}
