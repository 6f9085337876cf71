/* SPDX-License-Identifier: MIT */
/* JSON byte by byte, and strings in and out of quotes. */
#include "text/reply/reply_json.h"

#include "base/digits.h"
#include "text/utf8.h"

#include <stdio.h>
#include <string.h>

static mf_json_result put(mf_buffer *out, const char *bytes, size_t n)
{
    return mf_buffer_append(out, bytes, n, "a tool call", NULL) == MF_OK ? MF_JSON_MORE
                                                                         : MF_JSON_NO_MEMORY;
}

static mf_json_result put_byte(mf_buffer *out, unsigned char c)
{
    const char byte = (char)c;
    return put(out, &byte, 1);
}

/* --------------------------------------------------------------------------------- structure -- */

static mf_json_result open_group(mf_json_scan *s, bool is_object, mf_buffer *out)
{
    if (s->depth == MF_REPLY_JSON_DEPTH)
        return MF_JSON_BAD;
    const unsigned char bit = (unsigned char)(1u << (s->depth % 8));
    if (is_object)
        s->is_object[s->depth / 8] |= bit;
    else
        s->is_object[s->depth / 8] &= (unsigned char)~bit;
    s->depth++;
    s->state = is_object ? MF_JSON_KEY_OR_END : MF_JSON_ITEM_OR_END;
    return put_byte(out, is_object ? '{' : '[');
}

static bool in_object(const mf_json_scan *s)
{
    return s->depth > 0 && (s->is_object[(s->depth - 1) / 8] >> ((s->depth - 1) % 8) & 1) != 0;
}

static mf_json_result after_value(mf_json_scan *s)
{
    s->state = s->depth == 0 ? MF_JSON_DONE : MF_JSON_NEXT;
    return s->depth == 0 ? MF_JSON_WHOLE : MF_JSON_MORE;
}

static mf_json_result close_group(mf_json_scan *s, unsigned char c, mf_buffer *out)
{
    if ((c == '}') != in_object(s))
        return MF_JSON_BAD;
    mf_json_result result = put_byte(out, c);
    s->depth--;
    return result != MF_JSON_MORE ? result : after_value(s);
}

enum {
    NUMBER_SIGN,
    NUMBER_ZERO,
    NUMBER_WHOLE,
    NUMBER_POINT,
    NUMBER_FRACTION,
    NUMBER_E,
    NUMBER_E_SIGN,
    NUMBER_EXPONENT
};

static mf_json_result begin_value(mf_json_scan *s, unsigned char c, mf_buffer *out)
{
    if (c == '{' || c == '[')
        return open_group(s, c == '{', out);
    if (c == '"') {
        s->state = MF_JSON_STRING;
        s->is_key = false;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        s->state = MF_JSON_NUMBER;
        s->phase = c == '-' ? NUMBER_SIGN : c == '0' ? NUMBER_ZERO : NUMBER_WHOLE;
    } else if (c == 't' || c == 'f' || c == 'n') {
        s->state = MF_JSON_WORD;
        s->word = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
    } else {
        return MF_JSON_BAD;
    }
    return put_byte(out, c);
}

static mf_json_result begin_key(mf_json_scan *s, unsigned char c, mf_buffer *out)
{
    if (c != '"')
        return MF_JSON_BAD;
    s->state = MF_JSON_STRING;
    s->is_key = true;
    return put_byte(out, c);
}

static mf_json_result structure_byte(mf_json_scan *s, unsigned char c, mf_buffer *out)
{
    if (mf_reply_is_blank(c))
        return s->depth == 0 ? MF_JSON_MORE : put_byte(out, c);
    switch (s->state) {
    case MF_JSON_ITEM_OR_END:
        return c == ']' ? close_group(s, c, out) : begin_value(s, c, out);
    case MF_JSON_KEY_OR_END:
        return c == '}' ? close_group(s, c, out) : begin_key(s, c, out);
    case MF_JSON_KEY:
        return begin_key(s, c, out);
    case MF_JSON_COLON:
        s->state = MF_JSON_VALUE;
        return c == ':' ? put_byte(out, c) : MF_JSON_BAD;
    case MF_JSON_NEXT:
        if (c == '}' || c == ']')
            return close_group(s, c, out);
        s->state = in_object(s) ? MF_JSON_KEY : MF_JSON_VALUE;
        return c == ',' ? put_byte(out, c) : MF_JSON_BAD;
    default:
        return begin_value(s, c, out);
    }
}

/* ----------------------------------------------------------------------------------- scalars -- */

static bool number_ends(unsigned char phase)
{
    return phase == NUMBER_ZERO || phase == NUMBER_WHOLE || phase == NUMBER_FRACTION ||
           phase == NUMBER_EXPONENT;
}

/* The phase behind c; -1: c does not belong to the number. */
static int number_phase(unsigned char phase, unsigned char c)
{
    const bool is_digit = c >= '0' && c <= '9';
    switch (phase) {
    case NUMBER_SIGN:
        return c == '0' ? NUMBER_ZERO : is_digit ? NUMBER_WHOLE : -1;
    case NUMBER_POINT:
        return is_digit ? NUMBER_FRACTION : -1;
    case NUMBER_E:
        return is_digit ? NUMBER_EXPONENT : c == '+' || c == '-' ? NUMBER_E_SIGN : -1;
    case NUMBER_E_SIGN:
    case NUMBER_EXPONENT:
        return is_digit ? NUMBER_EXPONENT : -1;
    default:
        if (c == 'e' || c == 'E')
            return NUMBER_E;
        if (c == '.' && phase != NUMBER_FRACTION)
            return NUMBER_POINT;
        return is_digit && phase != NUMBER_ZERO ? phase : -1;
    }
}

static mf_json_result number_byte(mf_json_scan *s, unsigned char c, mf_buffer *out)
{
    int phase = number_phase(s->phase, c);
    if (phase >= 0) {
        s->phase = (unsigned char)phase;
        return put_byte(out, c);
    }
    if (!number_ends(s->phase))
        return MF_JSON_BAD;
    if (after_value(s) == MF_JSON_WHOLE)
        return MF_JSON_ENDED;
    return structure_byte(s, c, out);
}

static mf_json_result word_byte(mf_json_scan *s, unsigned char c, mf_buffer *out)
{
    if (c != (unsigned char)*s->word)
        return MF_JSON_BAD;
    s->word++;
    mf_json_result result = put_byte(out, c);
    return result != MF_JSON_MORE || *s->word != '\0' ? result : after_value(s);
}

/* ----------------------------------------------------------------------------------- strings -- */

static mf_json_result put_unit(mf_buffer *out, unsigned unit)
{
    char text[8];
    snprintf(text, sizeof text, "\\u%04x", unit & 0xFFFF);
    return put(out, text, 6);
}

/* A byte of a string that is no JSON as it stands, or stands for itself. */
static mf_json_result put_char(mf_buffer *out, unsigned char c)
{
    static const char names[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
    const char *at = c == 0 ? NULL : strchr(names, c);
    if (at != NULL) {
        const char escaped[2] = {'\\', letters[at - names]};
        return put(out, escaped, 2);
    }
    return c < 0x20 ? put_unit(out, c) : put_byte(out, c);
}

static mf_json_result string_byte(mf_json_scan *s, unsigned char c, mf_buffer *out)
{
    if (c == '\\') {
        s->state = MF_JSON_ESCAPE;
        return MF_JSON_MORE;
    }
    if (c != '"')
        return put_char(out, c);
    mf_json_result result = put_byte(out, c);
    if (s->is_key)
        s->state = MF_JSON_COLON;
    else if (result == MF_JSON_MORE)
        result = after_value(s);
    return result;
}

static mf_json_result escape_byte(mf_json_scan *s, unsigned char c, mf_buffer *out)
{
    s->state = c == 'u' ? MF_JSON_UNICODE : MF_JSON_STRING;
    if (c == 'u') {
        s->unit = 0;
        s->phase = 0;
        return MF_JSON_MORE;
    }
    const char escaped[2] = {'\\', (char)c};
    if (c != 0 && strchr("\"\\/bfnrt", c) != NULL)
        return put(out, escaped, 2);
    /* the backslash escapes nothing: it is meant as one */
    mf_json_result result = put(out, "\\\\", 2);
    return result != MF_JSON_MORE ? result : put_char(out, c);
}

/* All four digits have been read. */
static mf_json_result put_whole_unit(mf_json_scan *s, mf_buffer *out)
{
    const bool is_low = s->unit >= 0xDC00 && s->unit < 0xE000;
    const unsigned high = s->high;
    mf_json_result result = MF_JSON_MORE;
    s->state = MF_JSON_STRING;
    s->high = 0;
    if (high != 0)
        result = put_unit(out, is_low ? high : MF_UTF8_REPLACEMENT);
    if (result != MF_JSON_MORE)
        return result;
    if (s->unit >= 0xD800 && s->unit < 0xDC00) {
        s->high = s->unit;
        s->state = MF_JSON_LOW;
        return MF_JSON_MORE;
    }
    return is_low && high == 0 ? put_unit(out, MF_UTF8_REPLACEMENT) : put_unit(out, s->unit);
}

static mf_json_result unicode_byte(mf_json_scan *s, unsigned char c, mf_buffer *out)
{
    if (!mf_is_hex((char)c))
        return MF_JSON_BAD;
    s->unit = s->unit * 16 + (unsigned)mf_digit_of((char)c);
    return ++s->phase == 4 ? put_whole_unit(s, out) : MF_JSON_MORE;
}

/* Behind a high surrogate: \u goes on, all else leaves it alone. */
static mf_json_result low_byte(mf_json_scan *s, unsigned char c, mf_buffer *out)
{
    if (s->state == MF_JSON_LOW && c == '\\') {
        s->state = MF_JSON_LOW_U;
        return MF_JSON_MORE;
    }
    if (s->state == MF_JSON_LOW_U && c == 'u')
        return escape_byte(s, c, out);
    const bool is_escape = s->state == MF_JSON_LOW_U;
    s->high = 0;
    mf_json_result result = put_unit(out, MF_UTF8_REPLACEMENT);
    if (result != MF_JSON_MORE)
        return result;
    s->state = MF_JSON_STRING;
    return is_escape ? escape_byte(s, c, out) : string_byte(s, c, out);
}

mf_json_result mf_json_scan_byte(mf_json_scan *s, unsigned char byte, mf_buffer *out)
{
    switch (s->state) {
    case MF_JSON_STRING:
        return string_byte(s, byte, out);
    case MF_JSON_ESCAPE:
        return escape_byte(s, byte, out);
    case MF_JSON_UNICODE:
        return unicode_byte(s, byte, out);
    case MF_JSON_LOW:
    case MF_JSON_LOW_U:
        return low_byte(s, byte, out);
    case MF_JSON_NUMBER:
        return number_byte(s, byte, out);
    case MF_JSON_WORD:
        return word_byte(s, byte, out);
    case MF_JSON_DONE:
        return MF_JSON_BAD;
    default:
        return structure_byte(s, byte, out);
    }
}

bool mf_json_scan_is_whole(const mf_json_scan *s)
{
    return s->state == MF_JSON_DONE ||
           (s->state == MF_JSON_NUMBER && s->depth == 0 && number_ends(s->phase));
}

mf_json_result mf_json_scan_text(const char *text, size_t n_bytes, mf_buffer *out)
{
    mf_json_scan scan = {0};
    while (n_bytes > 0 && mf_reply_is_blank(text[n_bytes - 1]))
        n_bytes--;
    for (size_t i = 0; i < n_bytes; i++) {
        mf_json_result result = mf_json_scan_byte(&scan, (unsigned char)text[i], out);
        if (result == MF_JSON_NO_MEMORY || result == MF_JSON_BAD || result == MF_JSON_ENDED)
            return result == MF_JSON_NO_MEMORY ? result : MF_JSON_BAD;
    }
    return mf_json_scan_is_whole(&scan) ? MF_JSON_WHOLE : MF_JSON_BAD;
}

static unsigned read_unit(const char *digits)
{
    unsigned unit = 0;
    for (int i = 0; i < 4; i++)
        unit = unit * 16 + (unsigned)mf_digit_of(digits[i]);
    return unit;
}

/* The escape at text[0]; returns its length. */
static size_t unescape(const char *text, unsigned char bytes[4], size_t *n)
{
    static const char letters[] = "bfnrt", names[] = "\b\f\n\r\t";
    const char *at = strchr(letters, text[1]);
    *n = 1;
    if (text[1] != 'u') {
        bytes[0] = (unsigned char)(at == NULL ? text[1] : names[at - letters]);
        return 2;
    }
    uint32_t c = read_unit(text + 2);
    const bool is_pair = c >= 0xD800 && c < 0xDC00;
    if (is_pair)
        c = 0x10000 + ((c - 0xD800) << 10) + (read_unit(text + 8) - 0xDC00);
    *n = mf_utf8_put(c, bytes);
    return is_pair ? 12 : 6;
}

mf_status mf_json_unquote(const char *text, size_t n_bytes, mf_buffer *out)
{
    for (size_t i = 1, n_taken; i + 1 < n_bytes; i += n_taken) {
        unsigned char bytes[4] = {(unsigned char)text[i]};
        size_t n = 1;
        n_taken = text[i] == '\\' ? unescape(text + i, bytes, &n) : 1;
        MF_TRY(mf_buffer_append(out, bytes, n, "a tool call", NULL));
    }
    return MF_OK;
}

mf_status mf_json_quote(const char *text, size_t n_bytes, mf_buffer *out)
{
    for (size_t i = 0; i < n_bytes; i++)
        if (put_char(out, (unsigned char)text[i]) != MF_JSON_MORE)
            return MF_ERR_NO_MEMORY;
    return MF_OK;
}
