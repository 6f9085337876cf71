/* SPDX-License-Identifier: MIT */
/* Buffers, whole files, and token ids of a text. */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool mf_cli_buffer_reserve(mf_cli_buffer *buffer, size_t n_bytes)
{
    if (n_bytes >= SIZE_MAX / 2 - buffer->n_bytes)
        return false;
    size_t needed = buffer->n_bytes + n_bytes + 1;
    if (needed <= buffer->capacity)
        return true;
    size_t capacity = needed < 256 ? 256 : needed + needed / 2;
    char *data = realloc(buffer->data, capacity);
    if (!data)
        return false;
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

bool mf_cli_buffer_append(mf_cli_buffer *buffer, const char *bytes, size_t n_bytes)
{
    if (!mf_cli_buffer_reserve(buffer, n_bytes))
        return false;
    if (n_bytes > 0)
        memcpy(buffer->data + buffer->n_bytes, bytes, n_bytes);
    buffer->n_bytes += n_bytes;
    buffer->data[buffer->n_bytes] = '\0';
    return true;
}

void mf_cli_buffer_clear(mf_cli_buffer *buffer)
{
    buffer->n_bytes = 0;
    if (buffer->data)
        buffer->data[0] = '\0';
}

void mf_cli_buffer_free(mf_cli_buffer *buffer)
{
    free(buffer->data);
    *buffer = (mf_cli_buffer){0};
}

size_t mf_cli_text_bytes(uint32_t n_context_tokens)
{
    return ((size_t)1 << 20) + (size_t)32 * (n_context_tokens > 0 ? n_context_tokens : 4096);
}

static int read_all(FILE *file, const char *name, size_t max_bytes, mf_cli_buffer *out)
{
    mf_cli_buffer_clear(out);
    while (!feof(file)) {
        if (!mf_cli_buffer_reserve(out, 65536))
            return mf_cli_error("%s: no memory for its text", name);
        out->n_bytes += fread(out->data + out->n_bytes, 1, 65536, file);
        out->data[out->n_bytes] = '\0';
        if (ferror(file))
            return mf_cli_error("%s: cannot read: %s", name, strerror(errno));
        if (out->n_bytes > max_bytes)
            return mf_cli_error("%s: a text of more than %zu bytes, the most that is taken here",
                                name, max_bytes);
    }
    return MF_EXIT_OK;
}

int mf_cli_read_file(const char *path, size_t max_bytes, mf_cli_buffer *out)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    FILE *file = is_stdin ? stdin : fopen(path, "re");
    if (!file)
        return mf_cli_error("%s: cannot open: %s", name, strerror(errno));
    int status = read_all(file, name, max_bytes, out);
    if (!is_stdin)
        fclose(file);
    return status;
}

/* Without waiting for anybody, as opening a FIFO would. NULL: said why. */
static FILE *open_regular(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool is_open = fd >= 0 && fstat(fd, &st) == 0;
    bool is_regular = is_open && S_ISREG(st.st_mode);
    FILE *file = is_regular ? fdopen(fd, "r") : NULL;
    if (file)
        return file;
    if (is_open && !is_regular)
        mf_cli_error("%s: not a regular file", path);
    else
        mf_cli_error("%s: cannot open: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return NULL;
}

int mf_cli_read_regular(const char *path, size_t max_bytes, mf_cli_buffer *out)
{
    FILE *file = open_regular(path);
    if (!file)
        return MF_EXIT_ERROR;
    int status = read_all(file, path, max_bytes, out);
    fclose(file);
    return status;
}

mf_status mf_cli_encode_text(const mf_tokenizer *tokenizer, const char *text, size_t n_bytes,
                             bool parse_special, mf_cli_ids *out, mf_error *error)
{
    /* one token a byte is the most that byte-level BPE gives, but for what NFC may add: ask again
     * if it was not enough */
    size_t capacity = n_bytes / 3 + 16, n = 0;
    int32_t *ids = NULL;
    for (;;) {
        int32_t *grown = realloc(ids, capacity * sizeof *ids);
        mf_status status = MF_ERR_NO_MEMORY;
        if (grown) {
            ids = grown;
            status = mf_tokenizer_encode(tokenizer, text, n_bytes, parse_special, ids, capacity, &n,
                                         error);
        }
        if (status != MF_OK) {
            free(ids);
            return status;
        }
        if (n <= capacity)
            break;
        capacity = n;
    }
    *out = (mf_cli_ids){ids, n};
    return MF_OK;
}

int mf_cli_encode(const mf_tokenizer *tokenizer, const char *text, size_t n_bytes,
                  bool parse_special, mf_cli_ids *out)
{
    mf_error error = {0};
    mf_status status = mf_cli_encode_text(tokenizer, text, n_bytes, parse_special, out, &error);
    return status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
}
