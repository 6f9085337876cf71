/* SPDX-License-Identifier: MIT */
/*
 * A head that is stored beside an embedding. Configs say that both are one where that is not so:
 * who trained, merged or quantised the head alone left the field as it was, since saving writes
 * them apart only where they are. So transformers 5 takes what is stored if it differs, and so is
 * it here; transformers 4 and mlx-lm take the embedding.
 */
#include "base/files.h"
#include "format/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, N_PAGES = 64 };

typedef struct tensor_bytes {
    const mf_tensor *tensor;
    const char *path;
    int fd;
} tensor_bytes;

static mf_status open_tensor(const mf_checkpoint *c, const mf_tensor *t, tensor_bytes *out,
                             mf_error *error)
{
    *out = (tensor_bytes){t, mf_source_path_of(&c->source, t), -1};
    out->fd = open(out->path, O_RDONLY | O_CLOEXEC);
    return out->fd >= 0 ? MF_OK : mf_fail_os(error, MF_ERR_IO, errno, "%s: cannot open", out->path);
}

static mf_status read_page(const tensor_bytes *b, uint64_t at, size_t n, unsigned char *out,
                           mf_error *error)
{
    return mf_read_at(b->fd, b->path, out, n, b->tensor->offset + at, " inside a tensor", error);
}

/* Zeros say nothing: rows that are no token's, and what a file that is still coming has not yet. */
static bool is_zero(const unsigned char *page, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (page[i] != 0)
            return false;
    return true;
}

/* What is trained changes nearly all of a head, so that pages here and there, the last among them,
 * are enough. */
static mf_status compare_pages(const tensor_bytes *a, const tensor_bytes *b, bool *differ,
                               mf_error *error)
{
    unsigned char of_a[PAGE], of_b[PAGE];
    const uint64_t n_bytes = a->tensor->n_bytes;
    const size_t n = n_bytes < PAGE ? (size_t)n_bytes : PAGE;
    bool found = false;
    for (uint64_t i = 0; i < N_PAGES && !found; i++) {
        const uint64_t at = (n_bytes - n) / (N_PAGES - 1) * i;
        MF_TRY(read_page(a, i + 1 < N_PAGES ? at : n_bytes - n, n, of_a, error));
        MF_TRY(read_page(b, i + 1 < N_PAGES ? at : n_bytes - n, n, of_b, error));
        found = memcmp(of_a, of_b, n) != 0 && !is_zero(of_a, n) && !is_zero(of_b, n);
    }
    *differ = found;
    return MF_OK;
}

mf_status mf_checkpoint_compare_head(mf_checkpoint *c, mf_error *error)
{
    const mf_tensor *embed = mf_checkpoint_tensor(c, mf_tensor_of(MF_ROLE_EMBED, 0));
    const mf_tensor *head = mf_checkpoint_tensor(c, mf_tensor_of(MF_ROLE_HEAD, 0));
    mf_hparam_value tied = {0};
    mf_config_get(&c->config, "tie_word_embeddings", MF_HPARAM_WHOLE, &tied);
    if (embed == NULL || head == NULL || tied.kind != MF_HPARAM_BOOL || !tied.boolean)
        return MF_OK;
    c->has_own_head =
        embed->n_bytes != head->n_bytes || strcmp(embed->type_name, head->type_name) != 0;
    if (c->has_own_head)
        return MF_OK;
    tensor_bytes a, b;
    MF_TRY(open_tensor(c, embed, &a, error));
    mf_status status = open_tensor(c, head, &b, error);
    if (status == MF_OK)
        status = compare_pages(&a, &b, &c->has_own_head, error);
    if (b.fd >= 0)
        close(b.fd);
    close(a.fd);
    return status;
}
