/* SPDX-License-Identifier: MIT */
/* Traces from files, and what is said of them. */
#include "routing/routing_format.h"

#include "base/files.h"
#include "base/sized.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static mf_status read_whole(int fd, const char *path, unsigned char *bytes, size_t n_bytes,
                            mf_error *error)
{
    const size_t n = mf_read_whole(fd, bytes, n_bytes, 0);
    if (n == n_bytes)
        return MF_OK;
    return errno != 0
               ? mf_fail_os(error, MF_ERR_IO, errno, "%s", path)
               : mf_fail_at(error, MF_ERR_FORMAT, n, "%s: byte %zu: the file ends here", path, n);
}

static mf_status check_file(int fd, const char *path, size_t *n_bytes, mf_error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return mf_fail(error, MF_ERR_FORMAT, "%s: not a regular file", path);
    if ((uint64_t)st.st_size > MF_ROUTING_MAX_FILE_BYTES)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: no trace of routing, or one of more than %llu bytes", path,
                       (unsigned long long)MF_ROUTING_MAX_FILE_BYTES);
    *n_bytes = (size_t)st.st_size;
    return MF_OK;
}

static mf_status open_descriptor(int fd, const char *path, const mf_allocator *a, mf_routing **out,
                                 mf_error *error)
{
    size_t n_bytes = 0;
    MF_TRY(check_file(fd, path, &n_bytes, error));
    unsigned char *bytes = mf_alloc(a, n_bytes + 1);
    if (bytes == NULL)
        return mf_fail_memory(error, n_bytes, "a trace of routing");
    mf_status status = read_whole(fd, path, bytes, n_bytes, error);
    if (status == MF_OK)
        status = mf_routing_read(a, bytes, n_bytes, path, out, error);
    mf_free(a, bytes, n_bytes + 1);
    return status;
}

mf_status mf_routing_open(const char *path, const mf_allocator *allocator, mf_routing **out,
                          mf_error *error)
{
    if (path == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_routing_open: path or out is NULL");
    mf_allocator a;
    MF_TRY(mf_allocator_take(allocator, &a, error));
    int fd = mf_open_apart(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0)
        return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno, "%s", path);
    mf_status status = open_descriptor(fd, path, &a, out, error);
    close(fd);
    return status;
}

void mf_routing_close(mf_routing **routing)
{
    if (routing != NULL)
        mf_routing_release(routing);
}

void mf_routing_get_info_sized(const mf_routing *t, mf_routing_info *out, size_t struct_bytes)
{
    mf_routing_info info = {.n_layers = t->head.n_layers,
                            .n_experts = t->head.n_experts,
                            .n_experts_per_token = t->head.k,
                            .n_passes = t->n_passes,
                            .n_tokens = t->n_rows,
                            .n_foretold = t->n_foretold,
                            .expert_bytes = t->head.expert_bytes,
                            .slot_bytes = t->head.slot_bytes,
                            .fixed_bytes = t->head.fixed_bytes};
    memcpy(info.family, t->head.family, sizeof info.family);
    for (size_t i = 0; i < t->n_passes; i++) {
        info.elapsed_us += t->passes[i].elapsed_us;
        info.waited_us += t->passes[i].waited_us;
    }
    mf_sized_put(out, struct_bytes, &info, sizeof info);
}
