/* SPDX-License-Identifier: MIT */
/* Operations on strings that filters and methods share. */
#include "text/jinja/jinja_strings.h"

#include "base/digits.h"
#include "format/json.h"
#include "text/jinja/jinja_unicode.h"
#include "text/utf8.h"

#include <math.h>

static bool is_any_of(uint32_t c, const mf_jstr *chars)
{
    if (chars == NULL)
        return mf_utf8_is_blank(c);
    for (size_t at = 0; at < chars->n_bytes;)
        if (mf_j_next_char(chars, &at) == c)
            return true;
    return false;
}

mf_jval mf_j_strip(mf_jrun *j, const mf_jstr *s, const mf_jstr *chars, int sides)
{
    size_t start = 0, end = s->n_bytes;
    /* Each character on a side is looked for among all of them. */
    const size_t n_each = 1 + (chars == NULL ? 0 : MF_J_LOOKED_UP(chars->n_bytes));
    while ((sides & MF_J_STRIP_LEFT) != 0 && start < end && mf_j_spend(j, n_each)) {
        size_t next = start;
        if (!is_any_of(mf_j_next_char(s, &next), chars))
            break;
        start = next;
    }
    while ((sides & MF_J_STRIP_RIGHT) != 0 && end > start && mf_j_spend(j, n_each)) {
        size_t last = end - 1, next;
        while (last > start && ((unsigned char)s->text[last] & 0xC0) == 0x80)
            last--;
        next = last;
        if (!is_any_of(mf_j_next_char(s, &next), chars))
            break;
        end = last;
    }
    return mf_j_part(j, s, start, end);
}

mf_jval mf_j_cased(mf_jrun *j, const mf_jstr *s, int to)
{
    mf_jtext text = {.run = j};
    mf_j_put_string_cased(&text, s, (mf_jcase)to);
    return mf_j_derived(&text, s);
}

mf_jval mf_j_capitalized(mf_jrun *j, const mf_jstr *s)
{
    mf_jtext text = {.run = j};
    size_t at = 0;
    if (s->n_bytes != 0)
        mf_j_put_cased(&text, mf_j_next_char(s, &at), MF_J_TITLE);
    const mf_jstr rest = {.text = s->text + at, .n_bytes = s->n_bytes - at};
    mf_j_put_string_cased(&text, &rest, MF_J_LOWER);
    return mf_j_derived(&text, s);
}

static void put_part(mf_jtext *text, const mf_jstr *s, size_t start, size_t end)
{
    const mf_jstr part = {.text = s->text + start,
                          .n_bytes = end - start,
                          .foreign = s->foreign == NULL ? NULL : s->foreign + start};
    mf_j_put_string(text, &part);
}

mf_jval mf_j_replace(mf_jrun *j, const mf_jstr *s, const mf_jstr *old, const mf_jstr *with,
                     int64_t n_most)
{
    mf_jtext text = {.run = j};
    size_t at = 0, start = 0;
    mf_j_spend(j, MF_J_WALKED(s->n_bytes));
    for (int64_t n = 0; n != n_most && at <= s->n_bytes && mf_j_ok(j); n++) {
        if (old->n_bytes == 0) { /* before each character and at the end */
            size_t next = at;
            mf_j_put_string(&text, with);
            if (at < s->n_bytes)
                mf_j_next_char(s, &next);
            put_part(&text, s, at, next);
            start = next;
            at = next == at ? at + 1 : next;
            continue;
        }
        const char *found = at + old->n_bytes > s->n_bytes
                                ? NULL
                                : memmem(s->text + at, s->n_bytes - at, old->text, old->n_bytes);
        if (found == NULL)
            break;
        put_part(&text, s, start, (size_t)(found - s->text));
        mf_j_put_string(&text, with);
        start = at = (size_t)(found - s->text) + old->n_bytes;
    }
    put_part(&text, s, start, s->n_bytes);
    return mf_j_take_text(&text);
}

size_t mf_j_find_last(mf_jrun *j, const mf_jstr *s, size_t end, const mf_jstr *word)
{
    const size_t n = word->n_bytes;
    for (size_t at = end < n ? 0 : end - n + 1; at-- > 0;) {
        if (s->text[at] != word->text[0] || s->text[at + n - 1] != word->text[n - 1])
            continue;
        if (!mf_j_spend(j, MF_J_COMPARED(
                               n))) /* of words that nearly are there, each may be compared whole */
            break;
        if (memcmp(s->text + at, word->text, n) == 0)
            return at;
    }
    return SIZE_MAX;
}

mf_jval mf_j_split_lines(mf_jrun *j, const mf_jstr *s, bool keeps_ends)
{
    mf_jval lines = mf_j_list(j, MF_J_PLAIN);
    size_t start = 0;
    for (size_t at = 0; at < s->n_bytes && mf_j_ok(j);) {
        size_t end = at;
        uint32_t c = mf_j_next_char(s, &at);
        if (!mf_j_ends_line(c))
            continue;
        if (c == '\r' && at < s->n_bytes && s->text[at] == '\n')
            at++;
        mf_j_push(j, lines, mf_j_part(j, s, start, keeps_ends ? at : end));
        start = at;
    }
    if (start < s->n_bytes)
        mf_j_push(j, lines, mf_j_part(j, s, start, s->n_bytes));
    return lines;
}

mf_jval mf_j_padded(mf_jrun *j, const mf_jstr *s, int64_t n_left, int64_t n_right,
                    const mf_jstr *fill)
{
    static const mf_jstr space = {.text = " ", .n_bytes = 1};
    mf_jtext text = {.run = j};
    fill = fill == NULL ? &space : fill;
    for (int64_t i = 0; i < n_left && mf_j_ok(j); i++)
        mf_j_put_string(&text, fill);
    mf_j_put_string(&text, s);
    for (int64_t i = 0; i < n_right && mf_j_ok(j); i++)
        mf_j_put_string(&text, fill);
    return mf_j_take_text(&text);
}

mf_jval mf_j_centered(mf_jrun *j, const mf_jstr *s, int64_t width, const mf_jstr *fill)
{
    mf_jval value = {.kind = MF_J_STRING, .as.string = s};
    int64_t n = mf_j_length(j, value), n_more = width > n ? width - n : 0;
    int64_t n_left = n_more / 2 + (n_more & width & 1);
    return mf_j_padded(j, s, n_left, n_more - n_left, fill);
}

/* ----------------------------------------------------------------------------------- numbers -- */

static mf_jstr without_blanks(const mf_jstr *s)
{
    size_t start = 0, end = s->n_bytes;
    while (start < end && (mf_utf8_is_blank((unsigned char)s->text[start]) &&
                           (unsigned char)s->text[start] < 0x80))
        start++;
    while (end > start && (mf_utf8_is_blank((unsigned char)s->text[end - 1]) &&
                           (unsigned char)s->text[end - 1] < 0x80))
        end--;
    return (mf_jstr){.text = s->text + start, .n_bytes = end - start};
}

bool mf_j_parse_int(const mf_jstr *s, int base, int64_t *out)
{
    const mf_jstr text = without_blanks(s);
    size_t at = 0;
    int64_t value = 0;
    bool is_negative = text.n_bytes > 0 && *text.text == '-', was_digit = false;
    at += text.n_bytes > 0 && (*text.text == '-' || *text.text == '+');
    if (text.n_bytes > at + 1 && text.text[at] == '0') {
        char kind = (char)(text.text[at + 1] | 0x20);
        int prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        if (prefix != 0 && (base == prefix || base == 0)) {
            base = prefix;
            at += 2;
            was_digit = true; /* an underscore may follow */
        }
    }
    base = base == 0 ? 10 : base;
    for (; at < text.n_bytes; at++) {
        if (text.text[at] == '_' && was_digit) {
            was_digit = false;
            continue;
        }
        int digit = mf_digit_of(text.text[at]);
        if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_sub_overflow(value, digit, &value))
            return false;
        was_digit = true;
    }
    if (!was_digit || text.n_bytes == 0 || mf_digit_of(text.text[text.n_bytes - 1]) >= base)
        return false;
    return is_negative ? (*out = value, true) : !__builtin_sub_overflow((int64_t)0, value, out);
}

static bool is_word(const mf_jstr *s, size_t at, const char *word)
{
    size_t n = strlen(word);
    if (s->n_bytes - at != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((s->text[at + i] | 0x20) != word[i])
            return false;
    return true;
}

/* The digits of a number into text; the number of them that there were. */
static size_t take_digits(const mf_jstr *s, size_t *at, char *text, size_t *n)
{
    size_t n_digits = 0;
    while (*at < s->n_bytes && *n < 300) {
        char c = s->text[*at];
        bool is_gap =
            c == '_' && n_digits > 0 && *at + 1 < s->n_bytes && mf_digit_of(s->text[*at + 1]) < 10;
        if (!is_gap && mf_digit_of(c) > 9)
            break;
        if (!is_gap)
            text[(*n)++] = c;
        n_digits += !is_gap;
        (*at)++;
    }
    return n_digits;
}

bool mf_j_parse_float(const mf_jstr *s, double *out)
{
    const mf_jstr from = without_blanks(s);
    char text[400];
    size_t at = 0, n = 0;
    bool is_negative = from.n_bytes > 0 && *from.text == '-';
    at += from.n_bytes > 0 && (*from.text == '-' || *from.text == '+');
    if (is_word(&from, at, "inf") || is_word(&from, at, "infinity") || is_word(&from, at, "nan")) {
        *out = is_word(&from, at, "nan") ? (double)NAN : is_negative ? -HUGE_VAL : HUGE_VAL;
        return true;
    }
    while (at + 1 < from.n_bytes && from.text[at] == '0' && mf_digit_of(from.text[at + 1]) < 10)
        at++; /* JSON has no leading zeros, and wants digits on both sides of a point */
    size_t n_digits = take_digits(&from, &at, text, &n);
    if (n_digits == 0)
        text[n++] = '0';
    if (at < from.n_bytes && from.text[at] == '.') {
        at++;
        text[n++] = '.';
        size_t n_behind = take_digits(&from, &at, text, &n);
        if (n_behind == 0)
            text[n++] = '0';
        n_digits += n_behind;
    }
    if (n_digits != 0 && at < from.n_bytes && (from.text[at] | 0x20) == 'e') {
        text[n++] = from.text[at++];
        if (at < from.n_bytes && (from.text[at] == '-' || from.text[at] == '+'))
            text[n++] = from.text[at++];
        if (take_digits(&from, &at, text, &n) == 0)
            return false;
    }
    text[n] = '\0';
    yyjson_val value = {0};
    if (n_digits == 0 || at != from.n_bytes ||
        yyjson_read_number(text, &value, YYJSON_READ_ALLOW_INF_AND_NAN, NULL, NULL) == NULL)
        return false;
    *out = is_negative ? -yyjson_get_num(&value) : yyjson_get_num(&value);
    return true;
}
