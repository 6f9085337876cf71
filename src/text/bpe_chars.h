/* SPDX-License-Identifier: MIT */
/*
 * Vocabularies of characters: how their keys are kept, what merging begins with, and where a long
 * word may be cut without a token less or more. For bpe.c and for loaders.
 */
#ifndef MF_TEXT_BPE_CHARS_H
#define MF_TEXT_BPE_CHARS_H

#include "text/bpe.h"

/* What stands for a blank, and its bytes. */
#define MF_BLANK_MARK "\xe2\x96\x81"
#define MF_BLANK_MARK_BYTES (sizeof MF_BLANK_MARK - 1)

/* A character's bytes, of valid UTF-8. */
size_t mf_char_bytes(const unsigned char *text, size_t n_bytes);
bool mf_begins_with_mark(const unsigned char *text, size_t n_bytes);
/* Appends text[n_bytes] with marks for blanks. `what` names the buffer for an error. */
mf_status mf_blanks_mark(const unsigned char *text, size_t n_bytes, mf_buffer *out,
                         const char *what, mf_error *error);
/* Writes text[n_bytes] with blanks for their marks to out, which may be text; returns its bytes. */
size_t mf_blanks_unmark(const unsigned char *text, size_t n_bytes, unsigned char *out);
/* Writes text[n_bytes] behind a vocabulary's pieces, with blanks for marks, and notes those blanks
 * that it has itself; *n_out is set, n_bytes of the vocabulary is not. */
mf_status mf_bpe_write_text(mf_bpe *bpe, const char *text, size_t n_bytes, size_t *n_out,
                            mf_error *error);
/* The same of the raw keys, which are as the file has them until all look-ups by name are done:
 * pieces of the first n_key_bytes. */
mf_status mf_bpe_unmark_keys(mf_bpe *bpe, size_t n_key_bytes, mf_error *error);
/* Whether the blank at bytes[at] stands for a mark. */
static inline bool mf_bpe_is_mark(const mf_bpe *bpe, size_t at)
{
    return bpe->own_blanks == NULL || (bpe->own_blanks[at / 8] >> at % 8 & 1) == 0;
}
/* Whether a key is a byte's, as "<0x0A>" is. */
bool mf_bpe_is_byte_key(const char *key, size_t n_bytes, unsigned char *byte);
/* Writes a key as it is kept, at most n_bytes; false if it is raw. */
bool mf_bpe_keep_key(const mf_bpe *bpe, const char *key, size_t n_bytes, unsigned char *out,
                     size_t *n_out);

/* Whether each of these bytes has a token. */
bool mf_bpe_has_bytes(const mf_bpe *bpe, const unsigned char *text, size_t n_bytes);

/* The ids of a word's characters: of each its own, or those of its bytes, or the unknown one. At
 * most an id a byte, or three where marks_go_as_bytes. */
size_t mf_bpe_char_symbols(const mf_bpe *bpe, const unsigned char *word, size_t n_bytes,
                           uint32_t *ids);
/* Sets marks_go_as_bytes, and notes which characters follow one another in tokens. Once, when all
 * tokens of the model are there. */
mf_status mf_bpe_index_characters(mf_bpe *bpe, mf_error *error);
/* Where a long word may be cut: the first place after some thousands of bytes at which no token
 * holds what lies on both sides; n_bytes where there is none. */
size_t mf_bpe_find_cut(const mf_bpe *bpe, const unsigned char *word, size_t n_bytes);

#endif
