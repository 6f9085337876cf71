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
    size_t n_held, n_bytes;  /* n_bytes counts both */
    bool flushes;            /* nothing follows */
    bool replaces_each;      /* of what is no character each byte is U+FFFD */
    bool drops_blanks;       /* all of them */
    size_t n_blanks_dropped; /* at the beginning, at most */
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
static size_t write_whole(const mf_joined *text, char *out, size_t *n_used)
{
    size_t n_out = 0, at = 0;
    unsigned char window[4], encoded[4];
    while (at < text->n_blanks_dropped && look(text, at, window) > 0 && window[0] == ' ')
        at++;
    while (at < text->n_bytes) {
        uint32_t c;
        size_t n_char;
        mf_utf8_kind kind = mf_utf8_next(window, look(text, at, window), &c, &n_char);
        if (kind == MF_UTF8_PARTIAL && !text->flushes)
            break;
        if (kind != MF_UTF8_CHAR && text->replaces_each)
            n_char = 1;
        at += n_char;
        if (text->drops_blanks && window[0] == ' ')
            continue;
        size_t n_encoded = mf_utf8_put(kind == MF_UTF8_CHAR ? c : MF_UTF8_REPLACEMENT, encoded);
        if (out != NULL)
            memcpy(out + n_out, encoded, n_encoded);
        n_out += n_encoded;
    }
    *n_used = at;
    return n_out;
}

/* SentencePiece's package leaves out marks, of which a byte is none. */
static bool is_blank_byte(const mf_tokenizer *t, int32_t token)
{
    return t->spm.scores != NULL && token >= 0 && (uint32_t)token == t->bpe.byte_ids[' '];
}

/* Where a text begins its first blanks may be none of it. The decoder's last byte says that it has
 * begun: no more than three are ever held back. */
static void begin_text(const mf_tokenizer *t, int32_t token, mf_joined *text)
{
    if (is_blank_byte(t, token))
        return;
    switch (t->decoding.strip) {
    case MF_STRIP_NONE:
        break;
    case MF_STRIP_BLANK:
    case MF_STRIP_BLANKS:
        text->n_blanks_dropped = 1;
        break;
    case MF_STRIP_FIRST_TOKEN:
        text->drops_blanks = text->piece != NULL && !t->bpe.pieces[token].is_raw;
        break;
    }
}

static bool has_begun(const mf_tokenizer *t, size_t n_used, size_t n_out)
{
    return t->decoding.strip == MF_STRIP_BLANKS ? n_out > 0 : n_used > 0;
}

mf_status mf_text_decode(const mf_tokenizer *t, mf_decoder *decoder, int32_t token, char *text,
                         size_t capacity, size_t *n_bytes)
{
    mf_joined joined = {.held = decoder->pending,
                        .n_held = decoder->n_pending,
                        .flushes = token < 0,
                        .replaces_each = t->decoding.joins_bytes};
    unsigned char *const begun = &decoder->pending[sizeof decoder->pending - 1];
    size_t n_piece = 0, n_used;
    if (token >= 0)
        joined.piece = (const unsigned char *)mf_text_piece(t, token, &n_piece);
    joined.n_bytes = joined.n_held + n_piece;
    if (*begun == 0)
        begin_text(t, token, &joined);
    size_t n_out = write_whole(&joined, NULL, &n_used);
    if (n_out > capacity)
        return MF_ERR_ARGUMENT;
    (void)write_whole(&joined, text, &n_used);
    unsigned char rest[4];
    size_t n_rest = look(&joined, n_used, rest);
    memcpy(decoder->pending, rest, n_rest);
    decoder->n_pending = (unsigned char)n_rest;
    *begun = *begun != 0 || has_begun(t, n_used, n_out);
    *n_bytes = n_out;
    return MF_OK;
}
