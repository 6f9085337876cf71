/* SPDX-License-Identifier: MIT */
/* mf_convert: from a checkpoint's descriptors to a directory in the aligned form. */
#include "convert/convert.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/sized.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_THREADS 1024u
/* Threads that wait for drives while others compute. */
#define WAITING_THREADS 2u

void mf_convert_options_init(mf_convert_options *options, size_t struct_bytes)
{
    const mf_convert_options defaults = {0};
    mf_sized_init(options, struct_bytes, &defaults, sizeof defaults);
}

mf_status mf_convert_report(mf_conversion *c, uint32_t layer, uint64_t n_bytes, mf_error *error)
{
    c->n_bytes_done += n_bytes;
    const uint64_t now = mf_now_us();
    const bool is_due = now - c->reported_us > 100000 || c->n_bytes_done == c->result.n_bytes;
    if (c->options.on_progress == NULL || !is_due)
        return MF_OK;
    c->reported_us = now;
    const mf_convert_progress progress = {.struct_bytes = sizeof progress,
                                          .n_bytes_done = c->n_bytes_done,
                                          .n_bytes = c->result.n_bytes,
                                          .layer = layer,
                                          .n_layers = c->result.n_layers};
    if (c->options.on_progress(c->options.user, &progress) == 0)
        return MF_OK;
    return mf_fail(error, MF_ERR_CANCELLED, "the conversion was stopped");
}

static mf_status check_array(const char *name, const void *array, uint64_t n, mf_error *error)
{
    if (n != 0 && array == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "n_%s %llu, but %s is NULL", name,
                       (unsigned long long)n, name);
    return MF_OK;
}

static bool is_bits(uint32_t bits)
{
    return bits == 0 || (bits >= 2 && bits <= 8 && bits != 7);
}

static mf_status check_quantisation(const mf_convert_options *o, mf_error *error)
{
    uint32_t bad = is_bits(o->bits) ? 0 : o->bits;
    MF_TRY(check_array("rules", o->rules, o->n_rules, error));
    MF_TRY(check_array("input_squares", o->input_squares, o->n_input_squares, error));
    for (uint32_t i = 0; i < o->n_rules; i++) {
        bad = is_bits(o->rules[i].bits) ? bad : o->rules[i].bits;
        if (o->rules[i].first_layer > o->rules[i].last_layer)
            return mf_fail(error, MF_ERR_ARGUMENT, "rules[%u] is of layers %u to %u", i,
                           o->rules[i].first_layer, o->rules[i].last_layer);
    }
    bad = is_bits(o->hot_bits) ? bad : o->hot_bits;
    if (o->hot_bits != 0 && (o->routing == NULL || !(o->hot_share > 0 && o->hot_share <= 1)))
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "hot_bits needs a trace of routing and a hot_share above 0, at most 1");
    if (bad != 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "bits %u; known are 2, 3, 4, 5, 6 and 8", bad);
    if (o->group != 0 && o->group != 32 && o->group != 64 && o->group != 128)
        return mf_fail(error, MF_ERR_ARGUMENT, "group %u is not 32, 64 or 128", o->group);
    return MF_OK;
}

static mf_status check_options(const mf_convert_options *o, mf_error *error)
{
    double all = 0;
    if (o->n_threads > MAX_THREADS)
        return mf_fail(error, MF_ERR_ARGUMENT, "n_threads %u is more than %u", o->n_threads,
                       MAX_THREADS);
    MF_TRY(check_array("drives", o->drives, o->n_drives, error));
    if (o->n_drives >= MF_CONVERT_MAX_DRIVES)
        return mf_fail(error, MF_ERR_ARGUMENT, "n_drives %u is more than %u", o->n_drives,
                       MF_CONVERT_MAX_DRIVES - 1);
    for (uint32_t i = 0; o->drive_shares != NULL && i <= o->n_drives; i++) {
        if (!(o->drive_shares[i] >= 0 && o->drive_shares[i] <= 1e6))
            return mf_fail(error, MF_ERR_ARGUMENT, "drive_shares[%u] is not a share", i);
        all += o->drive_shares[i];
    }
    if (o->drive_shares != NULL && all <= 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "drive_shares: no drive has a share");
    if (o->packed_expert_bits != 0 && o->packed_expert_bits != 2 && o->packed_expert_bits != 4)
        return mf_fail(error, MF_ERR_ARGUMENT, "packed_expert_bits %u is not 0, 2 or 4",
                       o->packed_expert_bits);
    return check_quantisation(o, error);
}

static mf_status name_directories(mf_conversion *c, const char *out, mf_error *error)
{
    c->n_dirs = 1 + c->options.n_drives;
    for (uint32_t i = 0; i < c->n_dirs; i++) {
        mf_output_dir *d = &c->dirs[i];
        const char *path = i == 0 ? out : c->options.drives[i - 1];
        d->fd = d->mark_fd = -1;
        if (path == NULL || path[0] == '\0' || strlen(path) >= sizeof d->path)
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "a directory has no name, or one of more than %zu "
                           "bytes",
                           sizeof d->path - 1);
        snprintf(d->path, sizeof d->path, "%s", path);
    }
    return MF_OK;
}

static mf_status read_source(mf_conversion *c, const char *path, mf_error *error)
{
    mf_source *source = NULL;
    MF_TRY(mf_source_open(&c->allocator, path, c->options.packed_expert_bits, &source, error));
    mf_status status = mf_watch_begin(&c->watch, &c->allocator, source, error);
    if (status != MF_OK) {
        mf_source_close(&source);
        return status;
    }
    MF_TRY(mf_model_bind(&c->allocator, source, &c->source, error));
    return mf_watch_end(&c->watch, source, error);
}

static mf_status open_source_files(mf_conversion *c, mf_error *error)
{
    const mf_tensor_table *table = &c->source.source->table;
    c->source_fds = mf_alloc_array(&c->allocator, table->n_files, sizeof *c->source_fds);
    if (c->source_fds == NULL)
        return mf_fail_memory(error, table->n_files * sizeof *c->source_fds, "file descriptors");
    for (; c->n_source_fds < table->n_files; c->n_source_fds++) {
        const char *path = table->files[c->n_source_fds].path;
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot open", path);
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        c->source_fds[c->n_source_fds] = fd;
    }
    return MF_OK;
}

static mf_status write_all(mf_conversion *c, mf_error *error)
{
    const uint32_t n_threads = c->options.n_threads != 0 ? c->options.n_threads : mf_cpu_count();
    MF_TRY(open_source_files(c, error));
    MF_TRY(mf_thread_pool_create(&c->allocator, n_threads + WAITING_THREADS, &c->pool, error));
    MF_TRY(mf_convert_dense(c, error));
    MF_TRY(mf_convert_experts(c, error));
    MF_TRY(mf_convert_texts(c, error));
    MF_TRY(mf_convert_manifest(c, error));
    return mf_output_finish(c, error);
}

static mf_status run(mf_conversion *c, const char *path, const char *out, mf_error *error)
{
    MF_TRY(check_options(&c->options, error));
    MF_TRY(name_directories(c, out, error));
    MF_TRY(mf_output_check_free(c, error));
    MF_TRY(read_source(c, path, error));
    MF_TRY(mf_convert_plan(c, error));
    if (c->options.is_dry_run)
        return c->options.dry_run_wants_room ? mf_output_foresee_space(c, error) : MF_OK;
    mf_status status = mf_output_open(c, error);
    if (status == MF_OK)
        status = mf_output_check_space(c, error);
    if (status != MF_OK)
        mf_output_retract(c);
    return status == MF_OK ? write_all(c, error) : status;
}

static void release(mf_conversion *c)
{
    const mf_allocator *a = &c->allocator;
    const size_t n_experts = 2 * (size_t)c->source.h.n_moe_layers * c->source.h.n_experts;
    mf_output_close(c);
    mf_thread_pool_free(&c->pool);
    for (size_t i = 0; i < c->n_source_fds; i++)
        close(c->source_fds[i]);
    if (c->source_fds != NULL)
        mf_free(a, c->source_fds, c->source.source->table.n_files * sizeof *c->source_fds);
    mf_free(a, c->dense_at, c->watch.n_tensors * sizeof *c->dense_at);
    mf_free(a, c->dense_sums, c->watch.n_tensors * sizeof *c->dense_sums);
    mf_free(a, c->layers, c->source.h.n_moe_layers * sizeof *c->layers);
    mf_free(a, c->of_experts, n_experts);
    mf_watch_free(&c->watch);
    mf_model_release(&c->source);
}

mf_status mf_convert_sized(const char *path, const char *out, const mf_convert_options *options,
                           mf_convert_result *result, size_t struct_bytes, mf_error *error)
{
    if (path == NULL || out == NULL || result == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_convert: path, out or result is NULL");
    mf_convert_options given;
    mf_convert_options_default(&given);
    if (options != NULL)
        MF_TRY(mf_sized_get(&given, sizeof given, options, "mf_convert_options", error));
    mf_allocator a;
    MF_TRY(mf_allocator_take(&given.allocator, &a, error));
    mf_conversion *c = mf_alloc_zeroed(&a, sizeof *c);
    if (c == NULL)
        return mf_fail_memory(error, sizeof *c, "a conversion");
    c->allocator = a;
    c->options = given;
    mf_status status = run(c, path, out, error);
    if (status == MF_OK)
        mf_sized_put(result, struct_bytes, &c->result, sizeof c->result);
    release(c);
    mf_free(&a, c, sizeof *c);
    return status;
}
