/* SPDX-License-Identifier: MIT */
/* Token ids back to text, one at a time, in whole UTF-8 characters. */
#include "text/tokenizer.h"
#include "text/utf8.h"

#include <string.h>

const char *mf_text_piece(const mf_tokenizer *t, int32_t token, size_t *n_bytes)
{
    if (token < 0 || (size_t)token >= t->bpe.n_ids || t->bpe.pieces[token].n_bytes == 0) {
        *n_bytes = 0;
        return NULL;
    }
    const mf_piece *p = &t->bpe.pieces[token];
    *n_bytes = p->n_bytes;
    return (const char *)t->bpe.bytes + p->offset;
}

/* The bytes held back followed by a piece, as one text. */
typedef struct mf_joined {
    const unsigned char *held, *piece;
    size_t n_held, n_bytes; /* n_bytes counts both */
} mf_joined;

/* Up to four bytes at `at`. */
static size_t look(const mf_joined *text, size_t at, unsigned char window[4])
{
    size_t n = 0;
    for (; n < 4 && at + n < text->n_bytes; n++)
        window[n] = at + n < text->n_held ? text->held[at + n] : text->piece[at + n - text->n_held];
    return n;
}

/* Writes the whole characters of the text if out is not NULL, returns their length, and sets
 * *n_used to where the unfinished rest begins. */
static size_t write_whole(const mf_joined *text, bool flush, char *out, size_t *n_used)
{
    size_t n_out = 0, at = 0;
    while (at < text->n_bytes) {
        unsigned char window[4], encoded[4];
        uint32_t c;
        size_t n_char;
        mf_utf8_kind kind = mf_utf8_next(window, look(text, at, window), &c, &n_char);
        if (kind == MF_UTF8_PARTIAL && !flush)
            break;
        size_t n_encoded = mf_utf8_put(kind == MF_UTF8_CHAR ? c : MF_UTF8_REPLACEMENT, encoded);
        if (out != NULL)
            memcpy(out + n_out, encoded, n_encoded);
        n_out += n_encoded;
        at += n_char;
    }
    *n_used = at;
    return n_out;
}

mf_status mf_text_decode(const mf_tokenizer *t, mf_decoder *decoder, int32_t token, char *text,
                         size_t capacity, size_t *n_bytes)
{
    mf_joined joined = {.held = decoder->pending, .n_held = decoder->n_pending};
    size_t n_piece = 0, n_used;
    if (token >= 0)
        joined.piece = (const unsigned char *)mf_text_piece(t, token, &n_piece);
    joined.n_bytes = joined.n_held + n_piece;
    size_t n_out = write_whole(&joined, token < 0, NULL, &n_used);
    if (n_out > capacity)
        return MF_ERR_ARGUMENT;
    (void)write_whole(&joined, token < 0, text, &n_used);
    unsigned char rest[4];
    size_t n_rest = look(&joined, n_used, rest);
    memcpy(decoder->pending, rest, n_rest);
    decoder->n_pending = (unsigned char)n_rest;
    *n_bytes = n_out;
    return MF_OK;
}
