/* SPDX-License-Identifier: MIT */
/* Literals of Python, and untyped text. */
#include "text/reply/reply_value.h"

#include "base/digits.h"
#include "text/reply/reply_json.h"
#include "text/reply/reply_tools.h"
#include "text/utf8.h"

#include <string.h>

#define MAX_DEPTH 64

typedef struct python {
    const char *text;
    size_t n_bytes, at;
    mf_buffer *out;
    mf_value_result result; /* the first failure */
} python;

static bool fail(python *p, mf_value_result result)
{
    if (p->result == MF_VALUE_OK)
        p->result = result;
    return false;
}

static bool put(python *p, const char *bytes, size_t n)
{
    return mf_buffer_append(p->out, bytes, n, "a tool call", NULL) == MF_OK ||
           fail(p, MF_VALUE_NO_MEMORY);
}

static bool put_quoted(python *p, const char *bytes, size_t n)
{
    return mf_json_quote(bytes, n, p->out) == MF_OK || fail(p, MF_VALUE_NO_MEMORY);
}

static int peek(python *p)
{
    while (p->at < p->n_bytes && mf_reply_is_blank(p->text[p->at]))
        p->at++;
    return p->at == p->n_bytes ? -1 : (unsigned char)p->text[p->at];
}

/* ----------------------------------------------------------------------------------- strings -- */

/* n digits of base 16 at the position; false: they are not there. */
static bool read_hex(python *p, size_t n, uint32_t *out)
{
    uint32_t value = 0;
    if (p->n_bytes - p->at < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const char c = p->text[p->at + i];
        if (!mf_is_hex(c))
            return false;
        value = value * 16 + (uint32_t)mf_digit_of(c);
    }
    p->at += n;
    *out = value;
    return true;
}

/* \xhh, \uhhhh, \Uhhhhhhhh, the letter already taken; two halves of a pair are one character. */
static bool put_code(python *p, size_t n_digits)
{
    uint32_t c, low;
    unsigned char bytes[4];
    if (!read_hex(p, n_digits, &c))
        return fail(p, MF_VALUE_BAD);
    const size_t before = p->at;
    if (c >= 0xD800 && c < 0xDC00 && p->n_bytes - p->at >= 6 && p->text[p->at] == '\\' &&
        p->text[p->at + 1] == 'u') {
        p->at += 2;
        if (read_hex(p, 4, &low) && low >= 0xDC00 && low < 0xE000)
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        else
            p->at = before;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        c = MF_UTF8_REPLACEMENT;
    return put_quoted(p, (const char *)bytes, mf_utf8_put(c, bytes));
}

static bool put_escape(python *p, char c)
{
    static const char letters[] = "nrtbfav0\\'\"/", names[] = "\n\r\t\b\f\a\v\0\\'\"/";
    if (c == 'x' || c == 'u' || c == 'U')
        return put_code(p, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    if (c == '\n')
        return true; /* a line that goes on */
    const char *at = c == '\0' ? NULL : strchr(letters, c);
    if (at != NULL)
        return put_quoted(p, &names[at - letters], 1);
    return put_quoted(p, "\\", 1) && put_quoted(p, &c, 1);
}

bool mf_reply_ends_string(char next)
{
    return next != '\0' && strchr(",)]}:", next) != NULL;
}

/* Whether the quote at the position ends the string: templates write others within, unescaped. */
static bool is_last_quote(const python *p)
{
    size_t at = p->at + 1;
    while (at < p->n_bytes && mf_reply_is_blank(p->text[at]))
        at++;
    return at == p->n_bytes || mf_reply_ends_string(p->text[at]);
}

static bool put_string(python *p)
{
    const char quote = p->text[p->at++];
    if (!put(p, "\"", 1))
        return false;
    while (p->at < p->n_bytes && (p->text[p->at] != quote || !is_last_quote(p))) {
        const char c = p->text[p->at++];
        if (c == '\\' && p->at == p->n_bytes)
            break;
        if (c == '\\' ? !put_escape(p, p->text[p->at++]) : !put_quoted(p, &c, 1))
            return false;
    }
    if (p->at == p->n_bytes)
        return fail(p, MF_VALUE_BAD);
    p->at++;
    return put(p, "\"", 1);
}

/* ------------------------------------------------------------------------------------ values -- */

/* A word or a number. */
static bool put_word(python *p)
{
    static const struct {
        const char *word, *json;
    } words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                 {"true", "true"}, {"false", "false"}, {"null", "null"}};
    const size_t start = p->at;
    while (p->at < p->n_bytes && strchr(" \t\r\n,:)]}", p->text[p->at]) == NULL)
        p->at++;
    const size_t n = p->at - start;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n == strlen(words[i].word) && memcmp(p->text + start, words[i].word, n) == 0)
            return put(p, words[i].json, strlen(words[i].json));
    const char first = n == 0 ? '\0' : p->text[start];
    mf_json_result result = first == '-' || (first >= '0' && first <= '9')
                                ? mf_json_scan_text(p->text + start, n, p->out)
                                : MF_JSON_BAD;
    if (result == MF_JSON_WHOLE)
        return true;
    return fail(p, result == MF_JSON_NO_MEMORY ? MF_VALUE_NO_MEMORY : MF_VALUE_BAD);
}

static bool put_value(python *p, unsigned depth);

/* One item of a list, or one member of a dict. */
static bool put_item(python *p, bool is_dict, unsigned depth)
{
    int c = peek(p);
    if (is_dict) {
        if ((c != '"' && c != '\'') || !put_string(p) || peek(p) != ':' || !put(p, ": ", 2))
            return fail(p, MF_VALUE_BAD);
        p->at++;
    }
    return put_value(p, depth + 1);
}

static bool put_group(python *p, char close, unsigned depth)
{
    const bool is_dict = close == '}';
    p->at++;
    if (depth == MAX_DEPTH || !put(p, is_dict ? "{" : "[", 1))
        return fail(p, MF_VALUE_BAD);
    for (bool is_first = true; peek(p) != close; is_first = false) {
        if (!is_first && (peek(p) != ',' || (p->at++, false)))
            return fail(p, MF_VALUE_BAD);
        if (!is_first && peek(p) == close)
            break; /* a comma behind the last */
        if ((!is_first && !put(p, ", ", 2)) || !put_item(p, is_dict, depth))
            return fail(p, MF_VALUE_BAD);
    }
    p->at++;
    return put(p, is_dict ? "}" : "]", 1);
}

static bool put_value(python *p, unsigned depth)
{
    switch (peek(p)) {
    case -1:
        return fail(p, MF_VALUE_BAD);
    case '"':
    case '\'':
        return put_string(p);
    case '{':
        return put_group(p, '}', depth);
    case '[':
        return put_group(p, ']', depth);
    case '(':
        return put_group(p, ')', depth);
    default:
        return put_word(p);
    }
}

mf_value_result mf_reply_python_value(const char *text, size_t n_bytes, mf_buffer *out)
{
    python p = {.text = text, .n_bytes = n_bytes, .out = out};
    if (put_value(&p, 0) && peek(&p) != -1)
        return MF_VALUE_BAD;
    return p.result;
}

/* ------------------------------------------------------------------------------------- typed -- */

/* What a JSON value is, by its first byte. */
static unsigned type_of(char first)
{
    switch (first) {
    case '{':
        return MF_TYPE_OBJECT;
    case '[':
        return MF_TYPE_ARRAY;
    case '"':
        return MF_TYPE_STRING;
    case 't':
    case 'f':
        return MF_TYPE_BOOLEAN;
    case 'n':
        return MF_TYPE_NULL;
    default:
        return MF_TYPE_NUMBER;
    }
}

mf_value_result mf_reply_typed_value(const char *text, size_t n_bytes, unsigned types,
                                     mf_buffer *out)
{
    const size_t before = out->n_bytes;
    size_t start = 0;
    while (start < n_bytes && mf_reply_is_blank(text[start]))
        start++;
    /* JSON and Python differ in words and quotes: JSON is asked first */
    for (int i = 0; i < 2 && start < n_bytes && types != MF_TYPE_STRING; i++) {
        bool is_good;
        if (i == 0) {
            mf_json_result result = mf_json_scan_text(text + start, n_bytes - start, out);
            if (result == MF_JSON_NO_MEMORY)
                return MF_VALUE_NO_MEMORY;
            is_good = result == MF_JSON_WHOLE;
        } else {
            mf_value_result result = mf_reply_python_value(text + start, n_bytes - start, out);
            if (result == MF_VALUE_NO_MEMORY)
                return result;
            is_good = result == MF_VALUE_OK;
        }
        const unsigned type = is_good ? type_of((char)out->data[before]) : 0;
        /* a string in quotes is one without them only where no string can stand bare */
        if (is_good && (type & types) != 0 && type != MF_TYPE_STRING)
            return MF_VALUE_OK;
        out->n_bytes = before;
    }
    if (mf_buffer_append(out, "\"", 1, "a tool call", NULL) != MF_OK ||
        mf_json_quote(text, n_bytes, out) != MF_OK ||
        mf_buffer_append(out, "\"", 1, "a tool call", NULL) != MF_OK)
        return MF_VALUE_NO_MEMORY;
    return MF_VALUE_OK;
}
