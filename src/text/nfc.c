/* SPDX-License-Identifier: MIT */
/*
 * NFC from utf8proc's character data. The reordering of combining marks is done here: utf8proc's
 * own takes quadratic time over a long run of marks. A long text is done in blocks, which end where
 * nothing of the one before can compose with or sort behind what follows: the scratch is that of a
 * block.
 */
#include "text/nfc.h"

#include "base/checked.h"
#include "text/nfc_newer.h"
#include "text/utf8.h"

#include <string.h>
#include <utf8proc.h>

#define WHAT "text in normalization form C"
/* The longest canonical decomposition of one character. */
#define MAX_DECOMPOSITION 4
/* A block is at least so long, unless it is the last. */
#define BLOCK_BYTES ((size_t)64 << 10)

void mf_nfc_scratch_init(mf_nfc_scratch *scratch, const mf_allocator *a)
{
    mf_buffer_init(&scratch->code_points, a);
    mf_buffer_init(&scratch->sorted, a);
}

void mf_nfc_scratch_free(mf_nfc_scratch *scratch)
{
    mf_buffer_free(&scratch->code_points);
    mf_buffer_free(&scratch->sorted);
}

bool mf_nfc_is_trivial(const unsigned char *text, size_t n_bytes)
{
    /* U+0300, from bytes CC 80 on, is the first character that composes with or sorts after
     * another. */
    for (size_t i = 0; i < n_bytes; i++)
        if (text[i] >= 0xCC)
            return false;
    return true;
}

/* A character that this normalization leaves alone. */
static bool is_newer(mf_nfc_age age, int32_t c)
{
    size_t first = 0, end = age == MF_NFC_OLD && c >= mf_nfc_newer[0].first ? mf_n_nfc_newer : 0;
    while (first < end) {
        const size_t middle = first + (end - first) / 2;
        if (c >= mf_nfc_newer[middle].first && c <= mf_nfc_newer[middle].last)
            return true;
        if (c > mf_nfc_newer[middle].last)
            first = middle + 1;
        else
            end = middle;
    }
    return false;
}

static unsigned combining_class(mf_nfc_age age, int32_t c)
{
    const unsigned found = c < 0x300 ? 0 : (unsigned)utf8proc_get_property(c)->combining_class;
    return found != 0 && is_newer(age, c) ? 0 : found;
}

/* Stable sort of a run of combining marks by class: insertion for the usual few, else by counting.
 */
static mf_status sort_marks(mf_nfc_scratch *scratch, int32_t *marks, size_t n, mf_error *error)
{
    const mf_nfc_age age = scratch->age;
    mf_buffer *const sorted = &scratch->sorted;
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            int32_t mark = marks[i];
            size_t j = i;
            for (; j > 0 && combining_class(age, marks[j - 1]) > combining_class(age, mark); j--)
                marks[j] = marks[j - 1];
            marks[j] = mark;
        }
        return MF_OK;
    }
    size_t starts[257] = {0};
    sorted->n_bytes = 0;
    MF_TRY(mf_buffer_reserve(sorted, n * sizeof *marks, WHAT, error));
    int32_t *out = (int32_t *)(void *)sorted->data;
    for (size_t i = 0; i < n; i++)
        starts[(combining_class(age, marks[i]) & 0xFF) + 1]++;
    for (size_t i = 1; i < 257; i++)
        starts[i] += starts[i - 1];
    for (size_t i = 0; i < n; i++)
        out[starts[combining_class(age, marks[i]) & 0xFF]++] = marks[i];
    memcpy(marks, out, n * sizeof *marks);
    return MF_OK;
}

static mf_status reorder(mf_nfc_scratch *scratch, int32_t *code_points, size_t n, mf_error *error)
{
    for (size_t i = 0; i < n;) {
        size_t start = i;
        while (i < n && combining_class(scratch->age, code_points[i]) != 0)
            i++;
        if (i - start > 1)
            MF_TRY(sort_marks(scratch, code_points + start, i - start, error));
        if (i == start)
            i++;
    }
    return MF_OK;
}

static mf_status decompose(mf_nfc_scratch *scratch, const unsigned char *text, size_t n_bytes,
                           mf_error *error)
{
    mf_buffer *const out = &scratch->code_points;
    out->n_bytes = 0;
    for (size_t i = 0; i < n_bytes;) {
        uint32_t c;
        size_t n_char;
        (void)mf_utf8_next(text + i, n_bytes - i, &c, &n_char);
        i += n_char;
        int32_t parts[MAX_DECOMPOSITION] = {(int32_t)c};
        utf8proc_ssize_t n_parts = 1;
        if (c >= 0xC0)
            n_parts = utf8proc_decompose_char((int32_t)c, parts, MAX_DECOMPOSITION,
                                              UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, NULL);
        if (n_parts < 1 || n_parts > MAX_DECOMPOSITION ||
            (parts[0] != (int32_t)c && is_newer(scratch->age, (int32_t)c))) {
            parts[0] = (int32_t)c;
            n_parts = 1;
        }
        MF_TRY(mf_buffer_append(out, parts, (size_t)n_parts * sizeof *parts, WHAT, error));
    }
    return MF_OK;
}

/* True if neither the character nor what it decomposes into joins anything before it. Not all such
 * characters: those of most texts. */
static bool starts_anew(uint32_t c)
{
    return c < 0x300 ||                    /* Latin, and every white space and digit of ASCII */
           (c >= 0x3041 && c <= 0x3096) || /* Hiragana */
           (c >= 0x30A1 && c <= 0x30FA) || /* Katakana */
           (c >= 0x3400 && c <= 0x9FFF) || /* Han */
           (c >= 0xAC00 && c <= 0xD7A3);   /* Hangul syllables */
}

/* Where the block that begins the text ends. */
static size_t block_end(const unsigned char *text, size_t n_bytes)
{
    size_t at = BLOCK_BYTES, n_char;
    while (at < n_bytes && (text[at] & 0xC0) == 0x80)
        at++;
    for (; at < n_bytes; at += n_char) {
        uint32_t c;
        (void)mf_utf8_next(text + at, n_bytes - at, &c, &n_char);
        if (starts_anew(c))
            return at;
    }
    return n_bytes;
}

/* Composes code_points[n], of which none is newer, and appends them. */
static mf_status compose(int32_t *code_points, size_t n, mf_buffer *out, mf_error *error)
{
    utf8proc_ssize_t n_composed =
        n == 0 ? 0
               : utf8proc_normalize_utf32(code_points, (utf8proc_ssize_t)n,
                                          UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (n_composed < 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "cannot normalize the text: %s",
                       utf8proc_errmsg(n_composed));
    for (utf8proc_ssize_t i = 0; i < n_composed; i++) {
        unsigned char encoded[4];
        size_t n_encoded = mf_utf8_put((uint32_t)code_points[i], encoded);
        MF_TRY(mf_buffer_append(out, encoded, n_encoded, WHAT, error));
    }
    return MF_OK;
}

/* Newer characters stand between what composes. */
static mf_status add_block(mf_nfc_scratch *scratch, const unsigned char *text, size_t n_bytes,
                           mf_buffer *out, mf_error *error)
{
    MF_TRY(decompose(scratch, text, n_bytes, error));
    int32_t *code_points = (int32_t *)(void *)scratch->code_points.data;
    const size_t n = scratch->code_points.n_bytes / sizeof *code_points;
    MF_TRY(reorder(scratch, code_points, n, error));
    for (size_t start = 0, end; start < n; start = end) {
        for (end = start; end < n && !is_newer(scratch->age, code_points[end]);)
            end++;
        MF_TRY(compose(code_points + start, end - start, out, error));
        for (unsigned char encoded[4]; end < n && is_newer(scratch->age, code_points[end]); end++) {
            const size_t n_encoded = mf_utf8_put((uint32_t)code_points[end], encoded);
            MF_TRY(mf_buffer_append(out, encoded, n_encoded, WHAT, error));
        }
    }
    return MF_OK;
}

mf_status mf_nfc(mf_nfc_scratch *scratch, mf_nfc_age age, const unsigned char *text, size_t n_bytes,
                 mf_buffer *out, mf_error *error)
{
    scratch->age = age;
    while (n_bytes != 0) {
        size_t n = block_end(text, n_bytes);
        MF_TRY(add_block(scratch, text, n, out, error));
        text += n;
        n_bytes -= n;
    }
    return MF_OK;
}
