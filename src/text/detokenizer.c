/* SPDX-License-Identifier: MIT */
/* Token ids back to text, one at a time, in whole UTF-8 characters. */
#include "text/bpe_chars.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#include <string.h>

#define BLANK_MARK 0x2581u
#define NOTHING UINT32_MAX

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

/* What is left out of a text's beginning. */
typedef enum mf_drop {
    MF_DROP_NOTHING,
    MF_DROP_BLANK, /* one, with which it begins */
    MF_DROP_MARK,  /* the same if a mark stands for it */
    MF_DROP_MARKS  /* all blanks that marks stand for */
} mf_drop;

/* The bytes held back followed by a piece, as one text. */
typedef struct mf_joined {
    const mf_tokenizer *tokenizer;
    const unsigned char *held, *piece;
    size_t n_held, n_bytes; /* n_bytes counts both */
    bool flushes;           /* nothing follows */
    mf_drop drop;
} mf_joined;

/* Up to four bytes at `at`. */
static size_t look(const mf_joined *text, size_t at, unsigned char window[4])
{
    size_t n = 0;
    for (; n < 4 && at + n < text->n_bytes; n++)
        window[n] = at + n < text->n_held ? text->held[at + n] : text->piece[at + n - text->n_held];
    return n;
}

/* Whether the blank at `at` is none of the text. */
static bool is_dropped(const mf_joined *text, size_t at, bool is_mark)
{
    switch (text->drop) {
    case MF_DROP_BLANK:
        return at == 0;
    case MF_DROP_MARK:
        return at == 0 && is_mark;
    case MF_DROP_MARKS:
        return is_mark;
    default:
        return false;
    }
}

/* Whether the blank at `at` stands for a mark. */
static bool is_mark(const mf_joined *text, size_t at)
{
    const mf_bpe *bpe = &text->tokenizer->bpe;
    return mf_bpe_is_mark(bpe, (size_t)(text->piece - bpe->bytes) + at - text->n_held);
}

/* What to show of the character at `at`: itself, a blank for a mark, or NOTHING. */
static uint32_t shown(const mf_joined *text, size_t at, uint32_t c)
{
    const bool is_mark_of_bytes = c == BLANK_MARK && text->tokenizer->decoding.unmarks_bytes;
    if (c != ' ' && !is_mark_of_bytes)
        return c;
    if (text->drop != MF_DROP_NOTHING &&
        is_dropped(text, at, is_mark_of_bytes || is_mark(text, at)))
        return NOTHING;
    return ' ';
}

/* Writes the whole characters of the text if out is not NULL, returns their length, and sets
 * *n_used to where the unfinished rest begins. */
static size_t write_whole(const mf_joined *text, char *out, size_t *n_used)
{
    size_t n_out = 0, at = 0;
    unsigned char window[4], encoded[4];
    for (size_t n_char; at < text->n_bytes; at += n_char) {
        uint32_t c;
        mf_utf8_kind kind = mf_utf8_next(window, look(text, at, window), &c, &n_char);
        if (kind == MF_UTF8_PARTIAL && !text->flushes)
            break;
        if (kind != MF_UTF8_CHAR && text->tokenizer->decoding.joins_bytes)
            n_char = 1;
        c = kind == MF_UTF8_CHAR ? shown(text, at, c) : MF_UTF8_REPLACEMENT;
        if (c == NOTHING)
            continue;
        size_t n_encoded = mf_utf8_put(c, encoded);
        if (out != NULL)
            memcpy(out + n_out, encoded, n_encoded);
        n_out += n_encoded;
    }
    *n_used = at;
    return n_out;
}

static bool is_byte(const mf_tokenizer *t, int32_t token, const mf_joined *text)
{
    return t->decoding.joins_bytes && text->n_bytes - text->n_held == 1 &&
           t->bpe.byte_ids[text->piece[0]] == (uint32_t)token;
}

/* How far a text is, in the decoder's last byte: no more than three are ever held back. */
enum {
    BEFORE_TEXT,
    IN_TEXT,
    IN_FIRST_BYTES /* of all its tokens so far, which are one to a Metaspace */
};

/* Where a text begins its first blanks may be none of it. */
static mf_drop drop_of(const mf_tokenizer *t, unsigned char state, bool of_byte)
{
    if (state == IN_TEXT || (state == IN_FIRST_BYTES && !of_byte))
        return MF_DROP_NOTHING;
    switch (t->decoding.strip) {
    case MF_STRIP_BLANK:
        return MF_DROP_BLANK;
    case MF_STRIP_MARK:
    case MF_STRIP_MARKS:
        return MF_DROP_MARK;
    case MF_STRIP_FIRST_TOKEN:
        return MF_DROP_MARKS;
    default:
        return MF_DROP_NOTHING;
    }
}

static unsigned char next_state(const mf_tokenizer *t, unsigned char state, bool of_byte,
                                size_t n_used, size_t n_out)
{
    if (state == IN_TEXT)
        return state;
    switch (t->decoding.strip) {
    case MF_STRIP_MARKS:
        return n_out > 0 ? IN_TEXT : BEFORE_TEXT;
    case MF_STRIP_FIRST_TOKEN:
        return of_byte ? IN_FIRST_BYTES : IN_TEXT;
    default:
        return n_used > 0 ? IN_TEXT : BEFORE_TEXT;
    }
}

mf_status mf_text_decode(const mf_tokenizer *t, mf_decoder *decoder, int32_t token, char *text,
                         size_t capacity, size_t *n_bytes)
{
    mf_joined joined = {.tokenizer = t,
                        .held = decoder->pending,
                        .n_held = decoder->n_pending,
                        .flushes = token < 0};
    unsigned char *const state = &decoder->pending[sizeof decoder->pending - 1];
    size_t n_piece = 0, n_used;
    if (token >= 0)
        joined.piece = (const unsigned char *)mf_text_piece(t, token, &n_piece);
    joined.n_bytes = joined.n_held + n_piece;
    const bool of_byte = n_piece > 0 && is_byte(t, token, &joined);
    joined.drop = n_piece > 0 ? drop_of(t, *state, of_byte) : MF_DROP_NOTHING;
    size_t n_out = write_whole(&joined, NULL, &n_used);
    if (n_out > capacity)
        return MF_ERR_ARGUMENT;
    (void)write_whole(&joined, text, &n_used);
    unsigned char rest[4];
    size_t n_rest = look(&joined, n_used, rest);
    memcpy(decoder->pending, rest, n_rest);
    decoder->n_pending = (unsigned char)n_rest;
    if (n_piece > 0)
        *state = next_state(t, *state, of_byte, n_used, n_out);
    *n_bytes = n_out;
    return MF_OK;
}
