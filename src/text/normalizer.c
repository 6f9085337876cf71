/* SPDX-License-Identifier: MIT */
/* The normalizer as a list of steps, each of which writes what the next reads. */
#include "text/normalizer.h"

#include "text/base64.h"
#include "text/bpe_chars.h"
#include "text/utf8.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#define WHAT "normalised text"
#define MAX_WHERE_BYTES 512
/* A grapheme is looked for in the map as a whole if it is shorter. */
#define MAX_WHOLE_BYTES ((size_t)6)

/* ----------------------------------------------------------------------------------- loading -- */

/* A normalizer under way. */
typedef struct normal_loader {
    mf_normalizer *n;
    const mf_allocator *allocator;
    const mf_json *json;
    mf_error *error;
} normal_loader;

static mf_status add(const normal_loader *l, mf_normal_step step)
{
    if (l->n->n_steps == MF_MAX_NORMAL_STEPS)
        return mf_fail(l->error, MF_ERR_UNSUPPORTED, "%s: normalizer: more than %d steps",
                       l->json->path, MF_MAX_NORMAL_STEPS);
    l->n->steps[l->n->n_steps++] = step;
    return MF_OK;
}

static mf_status load_prepend(const normal_loader *l, yyjson_val *step)
{
    if (!yyjson_equals_str(yyjson_obj_get(step, "prepend"), MF_BLANK_MARK))
        return mf_fail(l->error, MF_ERR_UNSUPPORTED,
                       "%s: normalizer.prepend: expected \"" MF_BLANK_MARK "\"", l->json->path);
    return add(l, MF_NORMAL_PREPEND_MARK);
}

static mf_status load_replace(const normal_loader *l, yyjson_val *step)
{
    yyjson_val *pattern = yyjson_obj_get(step, "pattern"), *to = yyjson_obj_get(step, "content");
    const bool is_mark = yyjson_equals_str(to, MF_BLANK_MARK);
    if (is_mark && yyjson_equals_str(yyjson_obj_get(pattern, "String"), " "))
        return add(l, MF_NORMAL_MARK_BLANKS);
    if ((is_mark || yyjson_equals_str(to, " ")) &&
        yyjson_equals_str(yyjson_obj_get(pattern, "Regex"), " {2,}"))
        return add(l, is_mark ? MF_NORMAL_JOIN_TO_MARK : MF_NORMAL_JOIN_BLANKS);
    return mf_fail(l->error, MF_ERR_UNSUPPORTED,
                   "%s: normalizer.pattern: expected {\"String\": \" \"} with content "
                   "\"" MF_BLANK_MARK "\", or {\"Regex\": \" {2,}\"} with that or \" \"",
                   l->json->path);
}

static mf_status load_strip(const normal_loader *l, yyjson_val *step)
{
    if (yyjson_get_bool(yyjson_obj_get(step, "strip_left")))
        MF_TRY(add(l, MF_NORMAL_STRIP_LEFT));
    if (yyjson_get_bool(yyjson_obj_get(step, "strip_right")))
        MF_TRY(add(l, MF_NORMAL_STRIP_RIGHT));
    return MF_OK;
}

static mf_status load_map(const normal_loader *l, yyjson_val *step)
{
    yyjson_val *coded = yyjson_obj_get(step, "precompiled_charsmap");
    char where[MAX_WHERE_BYTES];
    mf_buffer bytes;
    snprintf(where, sizeof where, "%.400s: normalizer.precompiled_charsmap", l->json->path);
    if (l->n->map.n_units != 0)
        return mf_fail(l->error, MF_ERR_UNSUPPORTED, "%s: expected one", where);
    mf_buffer_init(&bytes, l->allocator);
    mf_status status = mf_buffer_reserve(&bytes, yyjson_get_len(coded), WHAT, l->error);
    if (status == MF_OK &&
        !(yyjson_is_str(coded) && mf_base64_decode(yyjson_get_str(coded), yyjson_get_len(coded),
                                                   bytes.data, &bytes.n_bytes)))
        status = mf_fail(l->error, MF_ERR_FORMAT, "%s: expected base64", where);
    if (status == MF_OK)
        status =
            mf_charsmap_load(&l->n->map, l->allocator, where, bytes.data, bytes.n_bytes, l->error);
    mf_buffer_free(&bytes);
    return status == MF_OK ? add(l, MF_NORMAL_MAP) : status;
}

static mf_status load_step(const normal_loader *l, yyjson_val *step)
{
    yyjson_val *type = yyjson_obj_get(step, "type");
    if (yyjson_equals_str(type, "NFC"))
        return add(l, MF_NORMAL_NFC);
    if (yyjson_equals_str(type, "Prepend"))
        return load_prepend(l, step);
    if (yyjson_equals_str(type, "Replace"))
        return load_replace(l, step);
    if (yyjson_equals_str(type, "Strip"))
        return load_strip(l, step);
    if (yyjson_equals_str(type, "Precompiled"))
        return load_map(l, step);
    return mf_fail(l->error, MF_ERR_UNSUPPORTED,
                   "%s: normalizer.type: \"%.64s\", expected NFC, Prepend, Replace, Strip or "
                   "Precompiled",
                   l->json->path, yyjson_is_str(type) ? yyjson_get_str(type) : "?");
}

mf_status mf_normalizer_load(mf_normalizer *n, const mf_allocator *a, const mf_json *json,
                             mf_error *error)
{
    yyjson_val *root = yyjson_obj_get(json->root, "normalizer");
    const normal_loader l = {n, a, json, error};
    if (root == NULL || yyjson_is_null(root))
        return MF_OK;
    if (!yyjson_equals_str(yyjson_obj_get(root, "type"), "Sequence"))
        return load_step(&l, root);
    size_t i, n_steps;
    yyjson_val *step;
    yyjson_arr_foreach(yyjson_obj_get(root, "normalizers"), i, n_steps, step)
    {
        MF_TRY(load_step(&l, step));
    }
    return MF_OK;
}

void mf_normalizer_free(mf_normalizer *n)
{
    mf_charsmap_free(&n->map);
    *n = (mf_normalizer){0};
}

bool mf_normalizer_has(const mf_normalizer *n, mf_normal_step step)
{
    for (size_t i = 0; i < n->n_steps; i++)
        if (n->steps[i] == step)
            return true;
    return false;
}

/* ----------------------------------------------------------------------------------- running -- */

void mf_normal_scratch_init(mf_normal_scratch *scratch, const mf_allocator *a)
{
    mf_nfc_scratch_init(&scratch->nfc, a);
    mf_buffer_init(&scratch->buffers[0], a);
    mf_buffer_init(&scratch->buffers[1], a);
}

void mf_normal_scratch_free(mf_normal_scratch *scratch)
{
    mf_nfc_scratch_free(&scratch->nfc);
    mf_buffer_free(&scratch->buffers[0]);
    mf_buffer_free(&scratch->buffers[1]);
}

static uint32_t char_at(const unsigned char *text, size_t n_bytes, size_t *n_char)
{
    uint32_t c = MF_UTF8_REPLACEMENT;
    (void)mf_utf8_next(text, n_bytes, &c, n_char);
    return c;
}

/* Of the first grapheme cluster. */
static size_t grapheme_bytes(const unsigned char *text, size_t n_bytes)
{
    utf8proc_int32_t state = 0;
    size_t at, n_char;
    uint32_t c = char_at(text, n_bytes, &at);
    for (; at < n_bytes; at += n_char) {
        const uint32_t next = char_at(text + at, n_bytes - at, &n_char);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state))
            break;
        c = next;
    }
    return at;
}

/* Appends what a part of the text becomes. The tokenizers package replaces all of it by what its
 * shortest known beginning becomes; false: it has none, and nothing was appended. */
static mf_status append_mapped(const mf_charsmap *map, const unsigned char *part, size_t n_bytes,
                               bool *is_mapped, mf_buffer *out, mf_error *error)
{
    size_t n_used, n_to;
    const unsigned char *to = mf_charsmap_find_shortest(map, part, n_bytes, &n_used, &n_to);
    *is_mapped = n_used != 0;
    return *is_mapped ? mf_buffer_append(out, to, n_to, WHAT, error) : MF_OK;
}

static mf_status append_characters(const mf_charsmap *map, const unsigned char *text,
                                   size_t n_bytes, mf_buffer *out, mf_error *error)
{
    for (size_t at = 0, n_char; at < n_bytes; at += n_char) {
        bool is_mapped;
        n_char = mf_char_bytes(text + at, n_bytes - at);
        MF_TRY(append_mapped(map, text + at, n_char, &is_mapped, out, error));
        if (!is_mapped)
            MF_TRY(mf_buffer_append(out, text + at, n_char, WHAT, error));
    }
    return MF_OK;
}

static mf_status map_text(const mf_charsmap *map, mf_normal_scratch *scratch,
                          const unsigned char *text, size_t n_bytes, mf_buffer *out,
                          mf_error *error)
{
    for (size_t at = 0, n; at < n_bytes; at += n) {
        bool is_mapped = false;
        scratch->drops_start = scratch->drops_start || (at != 0 && out->n_bytes == 0);
        n = grapheme_bytes(text + at, n_bytes - at);
        if (n < MAX_WHOLE_BYTES)
            MF_TRY(append_mapped(map, text + at, n, &is_mapped, out, error));
        if (!is_mapped)
            MF_TRY(append_characters(map, text + at, n, out, error));
    }
    return MF_OK;
}

/* Unicode's white space: without the four separators that Python counts, too. */
static bool is_white_space(uint32_t c)
{
    return mf_utf8_is_blank(c) && !(c >= 0x1C && c <= 0x1F);
}

/* Whether there was something to strip. */
static bool strip_left(const unsigned char **text, size_t *n_bytes)
{
    const size_t n_before = *n_bytes;
    for (size_t n; *n_bytes > 0 && is_white_space(char_at(*text, *n_bytes, &n)); *n_bytes -= n)
        *text += n;
    return *n_bytes != n_before;
}

static void strip_right(const unsigned char *text, size_t *n_bytes)
{
    while (*n_bytes > 0) {
        size_t at = *n_bytes - 1, n;
        while (at > 0 && (text[at] & 0xC0) == 0x80)
            at--;
        if (!is_white_space(char_at(text + at, *n_bytes - at, &n)))
            break;
        *n_bytes = at;
    }
}

static mf_status join_blanks(const unsigned char *text, size_t n_bytes, const char *joined,
                             mf_buffer *out, mf_error *error)
{
    for (size_t at = 0, n; at < n_bytes; at += n) {
        for (n = 0; at + n < n_bytes && text[at + n] == ' ';)
            n++;
        if (n >= 2) {
            MF_TRY(mf_buffer_append(out, joined, strlen(joined), WHAT, error));
            continue;
        }
        while (at + n < n_bytes && text[at + n] != ' ')
            n++;
        MF_TRY(mf_buffer_append(out, text + at, n, WHAT, error));
    }
    return MF_OK;
}

static bool is_trivial(const mf_normalizer *n, mf_normal_step step, const unsigned char *text,
                       size_t n_bytes)
{
    switch (step) {
    case MF_NORMAL_NFC:
    case MF_NORMAL_NFC_NEW:
        return mf_nfc_is_trivial(text, n_bytes);
    case MF_NORMAL_MARK_BLANKS:
    case MF_NORMAL_JOIN_BLANKS:
    case MF_NORMAL_JOIN_TO_MARK:
        return memchr(text, ' ', n_bytes) == NULL;
    case MF_NORMAL_MAP:
        return n->map.n_units == 0;
    default:
        return false;
    }
}

/* A step that writes a text. */
static mf_status write_step(const mf_normalizer *n, mf_normal_step step, mf_normal_scratch *scratch,
                            const unsigned char *text, size_t n_bytes, mf_buffer *out,
                            mf_error *error)
{
    switch (step) {
    case MF_NORMAL_NFC:
        return mf_nfc(&scratch->nfc, MF_NFC_OLD, text, n_bytes, out, error);
    case MF_NORMAL_NFC_NEW:
        return mf_nfc(&scratch->nfc, MF_NFC_NEW, text, n_bytes, out, error);
    case MF_NORMAL_MARK_BLANKS:
        return mf_blanks_mark(text, n_bytes, out, WHAT, error);
    case MF_NORMAL_PREPEND_MARK:
        MF_TRY(mf_buffer_append(out, MF_BLANK_MARK, MF_BLANK_MARK_BYTES, WHAT, error));
        return mf_buffer_append(out, text, n_bytes, WHAT, error);
    case MF_NORMAL_MAP:
        return map_text(&n->map, scratch, text, n_bytes, out, error);
    case MF_NORMAL_JOIN_BLANKS:
        return join_blanks(text, n_bytes, " ", out, error);
    case MF_NORMAL_JOIN_TO_MARK:
        return join_blanks(text, n_bytes, MF_BLANK_MARK, out, error);
    default:
        return MF_OK;
    }
}

mf_status mf_normalise(const mf_normalizer *n, mf_normal_scratch *scratch,
                       const unsigned char **text, size_t *n_bytes, mf_error *error)
{
    size_t i_out = 0;
    scratch->drops_start = false;
    for (size_t i = 0; *n_bytes > 0 && i < n->n_steps; i++) {
        const mf_normal_step step = n->steps[i];
        mf_buffer *out = &scratch->buffers[i_out];
        if (step == MF_NORMAL_STRIP_LEFT)
            scratch->drops_start = strip_left(text, n_bytes) || scratch->drops_start;
        else if (step == MF_NORMAL_STRIP_RIGHT)
            strip_right(*text, n_bytes);
        if (step == MF_NORMAL_STRIP_LEFT || step == MF_NORMAL_STRIP_RIGHT ||
            is_trivial(n, step, *text, *n_bytes))
            continue;
        out->n_bytes = 0;
        MF_TRY(write_step(n, step, scratch, *text, *n_bytes, out, error));
        *text = out->data;
        *n_bytes = out->n_bytes;
        i_out = 1 - i_out;
    }
    return MF_OK;
}
