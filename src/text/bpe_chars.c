/* SPDX-License-Identifier: MIT */
/* Vocabularies of characters. What is unknown is treated as the "tokenizers" package treats it. */
#include "text/bpe_chars.h"

#include "text/bpe_tables.h"
#include "text/utf8.h"

#include <string.h>

/* Words are cut from here on. */
#define CUT_BYTES ((size_t)32 << 10)
/* Of two characters in no token few are taken for two that are in one, which only means a cut at
 * the next. */
#define BITS_A_BYTE ((size_t)8)
#define LEAST_BITS ((size_t)1 << 13)
#define MOST_BITS ((size_t)1 << 23)

size_t mf_char_bytes(const unsigned char *text, size_t n_bytes)
{
    size_t n = 1;
    while (n < n_bytes && (text[n] & 0xC0) == 0x80)
        n++;
    return n;
}

bool mf_begins_with_mark(const unsigned char *text, size_t n_bytes)
{
    return n_bytes >= MF_BLANK_MARK_BYTES && memcmp(text, MF_BLANK_MARK, MF_BLANK_MARK_BYTES) == 0;
}

mf_status mf_blanks_mark(const unsigned char *text, size_t n_bytes, mf_buffer *out,
                         const char *what, mf_error *error)
{
    for (size_t at = 0; at < n_bytes;) {
        const unsigned char *blank = memchr(text + at, ' ', n_bytes - at);
        const size_t end = blank != NULL ? (size_t)(blank - text) : n_bytes;
        MF_TRY(mf_buffer_append(out, text + at, end - at, what, error));
        if (blank != NULL)
            MF_TRY(mf_buffer_append(out, MF_BLANK_MARK, MF_BLANK_MARK_BYTES, what, error));
        at = end + 1;
    }
    return MF_OK;
}

size_t mf_blanks_unmark(const unsigned char *text, size_t n_bytes, unsigned char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes;) {
        const bool is_mark = mf_begins_with_mark(text + i, n_bytes - i);
        out[n++] = is_mark ? ' ' : text[i];
        i += is_mark ? MF_BLANK_MARK_BYTES : 1;
    }
    return n;
}

static mf_status note_own_blank(mf_bpe *bpe, size_t at, mf_error *error)
{
    const size_t n_bytes = bpe->bytes_capacity / 8 + 1;
    if (bpe->own_blanks == NULL)
        bpe->own_blanks = mf_alloc_zeroed(&bpe->allocator, n_bytes);
    if (bpe->own_blanks == NULL)
        return mf_fail_memory(error, n_bytes, "a vocabulary's blanks");
    bpe->own_blanks[at / 8] |= (unsigned char)(1u << at % 8);
    return MF_OK;
}

/* Text becomes bytes[at...], where it may lie already. */
static mf_status write_text(mf_bpe *bpe, size_t at, const unsigned char *text, size_t n_bytes,
                            size_t *n_out, mf_error *error)
{
    unsigned char *const out = bpe->bytes + at;
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; n++) {
        const bool is_mark = mf_begins_with_mark(text + i, n_bytes - i);
        if (text[i] == ' ')
            MF_TRY(note_own_blank(bpe, at + n, error));
        out[n] = is_mark ? ' ' : text[i];
        i += is_mark ? MF_BLANK_MARK_BYTES : 1;
    }
    *n_out = n;
    return MF_OK;
}

mf_status mf_bpe_write_text(mf_bpe *bpe, const char *text, size_t n_bytes, size_t *n_out,
                            mf_error *error)
{
    return write_text(bpe, bpe->n_bytes, (const unsigned char *)text, n_bytes, n_out, error);
}

mf_status mf_bpe_unmark_keys(mf_bpe *bpe, size_t n_key_bytes, mf_error *error)
{
    for (size_t id = 0; bpe->marks_blanks && id < bpe->n_ids; id++) {
        mf_piece *p = &bpe->pieces[id];
        size_t n;
        if (p->n_bytes == 0 || !p->is_raw || p->offset >= n_key_bytes)
            continue;
        MF_TRY(write_text(bpe, p->offset, bpe->bytes + p->offset, p->n_bytes, &n, error));
        p->n_bytes = (uint32_t)n;
    }
    return MF_OK;
}

/* -1 where it is none */
static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool mf_bpe_is_byte_key(const char *key, size_t n_bytes, unsigned char *byte)
{
    if (n_bytes != 6 || memcmp(key, "<0x", 3) != 0 || key[5] != '>')
        return false;
    const int high = hex_digit(key[3]), low = hex_digit(key[4]);
    if (high < 0 || low < 0)
        return false;
    *byte = (unsigned char)(high << 4 | low);
    return true;
}

bool mf_bpe_keep_key(const mf_bpe *bpe, const char *key, size_t n_bytes, unsigned char *out,
                     size_t *n_out)
{
    if (bpe->marks_blanks && memchr(key, ' ', n_bytes) != NULL)
        return false;
    *n_out = n_bytes;
    if (bpe->marks_blanks)
        *n_out = mf_blanks_unmark((const unsigned char *)key, n_bytes, out);
    else
        memcpy(out, key, n_bytes);
    return true;
}

bool mf_bpe_has_bytes(const mf_bpe *bpe, const unsigned char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        if (bpe->byte_ids[text[i]] == MF_BPE_NONE)
            return false;
    return true;
}

/*
 * An unknown character waits: the next unknown one may join it, and the next known one comes after
 * it. What goes as bytes does not, though it follows.
 */
size_t mf_bpe_char_symbols(const mf_bpe *bpe, const unsigned char *word, size_t n_bytes,
                           uint32_t *ids)
{
    size_t n = 0;
    bool waits = false;
    for (size_t at = 0, n_char; at < n_bytes; at += n_char) {
        n_char = mf_char_bytes(word + at, n_bytes - at);
        const uint32_t id = mf_bpe_find(bpe, word + at, n_char, false);
        if (id != MF_BPE_NONE) {
            if (waits)
                ids[n++] = bpe->unknown;
            waits = false;
            ids[n++] = id;
            continue;
        }
        const bool is_mark = bpe->marks_go_as_bytes && word[at] == ' ';
        const unsigned char *const c = is_mark ? (const unsigned char *)MF_BLANK_MARK : word + at;
        const size_t n_c = is_mark ? MF_BLANK_MARK_BYTES : n_char;
        if (bpe->falls_to_bytes && (is_mark || !bpe->marks_blanks || word[at] != ' ') &&
            mf_bpe_has_bytes(bpe, c, n_c)) {
            for (size_t i = 0; i < n_c; i++)
                ids[n++] = bpe->byte_ids[c[i]];
        } else if (bpe->unknown != MF_BPE_NONE) {
            if (waits && !bpe->fuses_unknown)
                ids[n++] = bpe->unknown;
            waits = true;
        }
    }
    if (waits)
        ids[n++] = bpe->unknown;
    return n;
}

/* ---------------------------------------------------------------------------------- long words --
 */

static size_t joint_of(const mf_bpe *bpe, uint32_t left, uint32_t right)
{
    return mf_bpe_hash_pair(left, right) & (bpe->n_joint_bits - 1);
}

static uint32_t first_char(const unsigned char *text, size_t n_bytes)
{
    uint32_t c = MF_UTF8_REPLACEMENT;
    size_t n;
    (void)mf_utf8_next(text, n_bytes, &c, &n);
    return c;
}

/* Of the bytes before `end`. */
static uint32_t last_char(const unsigned char *text, size_t end)
{
    size_t start = end - 1;
    while (start > 0 && (text[start] & 0xC0) == 0x80)
        start--;
    return first_char(text + start, end - start);
}

/* What is found by its bytes; the others never come out of a merge. */
static bool is_merged(const mf_bpe *bpe, size_t id)
{
    return bpe->pieces[id].n_bytes != 0 && !bpe->pieces[id].is_raw;
}

static void note_joints(mf_bpe *bpe, const unsigned char *text, size_t n_bytes)
{
    size_t at = mf_char_bytes(text, n_bytes);
    for (size_t n; at < n_bytes; at += n) {
        const size_t bit = joint_of(bpe, last_char(text, at), first_char(text + at, n_bytes - at));
        n = mf_char_bytes(text + at, n_bytes - at);
        bpe->joints[bit / 8] |= (unsigned char)(1u << bit % 8);
    }
}

mf_status mf_bpe_index_characters(mf_bpe *bpe, mf_error *error)
{
    static const unsigned char mark[] = MF_BLANK_MARK, blank[] = " ";
    size_t n_bytes = 0, n_bits = LEAST_BITS;
    bpe->marks_go_as_bytes = bpe->marks_blanks && bpe->falls_to_bytes &&
                             mf_bpe_find(bpe, blank, 1, false) == MF_BPE_NONE &&
                             mf_bpe_has_bytes(bpe, mark, MF_BLANK_MARK_BYTES);
    for (size_t id = 0; id < bpe->n_ids; id++)
        n_bytes += is_merged(bpe, id) ? bpe->pieces[id].n_bytes : 0;
    while (n_bits < MOST_BITS && n_bits / BITS_A_BYTE < n_bytes)
        n_bits *= 2;
    bpe->joints = mf_alloc_zeroed(&bpe->allocator, n_bits / 8);
    if (bpe->joints == NULL)
        return mf_fail_memory(error, n_bits / 8, "a vocabulary");
    bpe->n_joint_bits = n_bits;
    for (size_t id = 0; id < bpe->n_ids; id++)
        if (is_merged(bpe, id))
            note_joints(bpe, bpe->bytes + bpe->pieces[id].offset, bpe->pieces[id].n_bytes);
    return MF_OK;
}

size_t mf_bpe_find_cut(const mf_bpe *bpe, const unsigned char *word, size_t n_bytes)
{
    size_t at = CUT_BYTES;
    if (n_bytes <= 2 * CUT_BYTES)
        return n_bytes;
    while (at < n_bytes && (word[at] & 0xC0) == 0x80)
        at++;
    for (size_t n_char; at < n_bytes; at += n_char) {
        n_char = mf_char_bytes(word + at, n_bytes - at);
        const size_t bit = joint_of(bpe, last_char(word, at), first_char(word + at, n_bytes - at));
        if ((bpe->joints[bit / 8] >> bit % 8 & 1) == 0 &&
            (bpe->cuts_before_unknown || mf_bpe_find(bpe, word + at, n_char, false) != MF_BPE_NONE))
            return at;
    }
    return n_bytes;
}
