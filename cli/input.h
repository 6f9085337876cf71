/* SPDX-License-Identifier: MIT */
/* Text that comes in: growing byte buffers, whole files, and token ids of a text. */
#ifndef MF_CLI_INPUT_H
#define MF_CLI_INPUT_H

#include "output.h"

/* Bytes that grow; always NUL-terminated once something was appended. Zero-initialise. */
typedef struct mf_cli_buffer {
    char *data;
    size_t n_bytes;
    size_t capacity;
} mf_cli_buffer;

/* False: no memory. */
bool mf_cli_buffer_append(mf_cli_buffer *buffer, const char *bytes, size_t n_bytes);
/* Makes room for n_bytes more behind the end. */
bool mf_cli_buffer_reserve(mf_cli_buffer *buffer, size_t n_bytes);
void mf_cli_buffer_clear(mf_cli_buffer *buffer);
void mf_cli_buffer_free(mf_cli_buffer *buffer);

/* The most that a text for such a context (0: the default) may have, so that it and what encoding
 * it takes stay within what a memory budget has for texts: more than its tokens can stand for. */
size_t mf_cli_text_bytes(uint32_t n_context_tokens);
/* Of a text that is not for a context. */
#define MF_CLI_MAX_TEXT_BYTES ((size_t)256 << 20)

/* The whole file, "-" for standard input; longer ones are refused. Prints the error; returns an
 * exit code. */
int mf_cli_read_file(const char *path, size_t max_bytes, mf_cli_buffer *out);
/* The same, but of a regular file alone: what others write to could keep the program waiting. */
int mf_cli_read_regular(const char *path, size_t max_bytes, mf_cli_buffer *out);

/* Token ids, owned by the caller (free). */
typedef struct mf_cli_ids {
    int32_t *tokens;
    size_t n_tokens;
} mf_cli_ids;

mf_status mf_cli_encode_text(const mf_tokenizer *tokenizer, const char *text, size_t n_bytes,
                             bool parse_special, mf_cli_ids *out, mf_error *error);
/* The same. Prints the error; returns an exit code. */
int mf_cli_encode(const mf_tokenizer *tokenizer, const char *text, size_t n_bytes,
                  bool parse_special, mf_cli_ids *out);

#endif
