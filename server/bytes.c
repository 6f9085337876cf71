/* SPDX-License-Identifier: MIT */
/* Growing bytes and JSON. */
#include "bytes.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(mf_srv_bytes *b, size_t n_more)
{
    if (b->has_failed || n_more > SIZE_MAX / 4 - b->n_bytes) {
        b->has_failed = true;
        return false;
    }
    size_t wanted = b->n_bytes + n_more + 1;
    if (wanted <= b->capacity)
        return true;
    size_t capacity = b->capacity * 2 > wanted ? b->capacity * 2 : wanted + 64;
    char *data = realloc(b->data, capacity);
    if (!data) {
        b->has_failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void mf_srv_put(mf_srv_bytes *b, const char *data, size_t n_bytes)
{
    if (!reserve(b, n_bytes))
        return;
    if (n_bytes > 0)
        memcpy(b->data + b->n_bytes, data, n_bytes);
    b->n_bytes += n_bytes;
    b->data[b->n_bytes] = '\0';
}

void mf_srv_puts(mf_srv_bytes *b, const char *text)
{
    mf_srv_put(b, text, strlen(text));
}

void mf_srv_printf(mf_srv_bytes *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !reserve(b, (size_t)n))
        return;
    va_start(args, format);
    vsnprintf(b->data + b->n_bytes, (size_t)n + 1, format, args);
    va_end(args);
    b->n_bytes += (size_t)n;
}

static bool is_continuation(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

size_t mf_srv_utf8_length(const char *text, size_t n_bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    if (n_bytes == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n_bytes < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if (!is_continuation(s[i]))
            return 0;
    /* longer than needed, a surrogate, or beyond U+10FFFF */
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return n;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* One character of text[n_bytes], n_bytes > 0. Returns its length. */
static size_t put_character(mf_srv_bytes *b, const char *text, size_t n_bytes)
{
    static const char escapes[] = "\"\"\\\\\nn\tt\rr\bb\ff";
    for (const char *e = escapes; *e; e += 2)
        if (*text == *e) {
            const char pair[] = {'\\', e[1]};
            mf_srv_put(b, pair, 2);
            return 1;
        }
    if ((unsigned char)*text < 0x20) {
        mf_srv_printf(b, "\\u%04x", (unsigned)*text);
        return 1;
    }
    size_t n = mf_srv_utf8_length(text, n_bytes);
    mf_srv_put(b, n > 0 ? text : "\xEF\xBF\xBD", n > 0 ? n : 3);
    return n > 0 ? n : 1;
}

void mf_srv_put_json(mf_srv_bytes *b, const char *text, size_t n_bytes)
{
    mf_srv_put(b, "\"", 1);
    for (size_t i = 0; i < n_bytes;) {
        size_t n = 0;
        while (i + n < n_bytes && is_plain((unsigned char)text[i + n]))
            n++;
        mf_srv_put(b, text + i, n);
        i += n;
        if (i < n_bytes)
            i += put_character(b, text + i, n_bytes - i);
    }
    mf_srv_put(b, "\"", 1);
}

void mf_srv_puts_json(mf_srv_bytes *b, const char *text)
{
    mf_srv_put_json(b, text, strlen(text));
}

void mf_srv_put_number(mf_srv_bytes *b, double value)
{
    if (!isfinite(value))
        mf_srv_puts(b, "null");
    else
        mf_srv_printf(b, "%.9g", value);
}

bool mf_srv_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

const char *mf_srv_trim(const char *text, size_t *n_bytes)
{
    const char *end = text + *n_bytes;
    while (text < end && mf_srv_is_blank(*text))
        text++;
    while (end > text && mf_srv_is_blank(end[-1]))
        end--;
    *n_bytes = (size_t)(end - text);
    return text;
}

bool mf_srv_put_value(mf_srv_bytes *b, const yyjson_val *value)
{
    size_t n = 0;
    char *text = yyjson_val_write(value, 0, &n);
    if (text)
        mf_srv_put(b, text, n);
    free(text);
    return text && !b->has_failed;
}

void mf_srv_drop(mf_srv_bytes *b, size_t n_bytes)
{
    if (n_bytes == 0)
        return;
    memmove(b->data, b->data + n_bytes, b->n_bytes - n_bytes + 1);
    b->n_bytes -= n_bytes;
}

void mf_srv_bytes_free(mf_srv_bytes *b)
{
    free(b->data);
    *b = (mf_srv_bytes){0};
}
