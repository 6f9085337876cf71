/* SPDX-License-Identifier: MIT */
/* Python's two ways to format: "%5.2f" % values, and "{}".format(values) with the same in "{:5}".
 */
#include "text/jinja/jinja_strings.h"
#include "text/jinja/jinja_unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define MAX_WIDTH 4096

/* One conversion. */
typedef struct field {
    bool is_left, is_zero, is_plus, is_space, is_hash, is_centred;
    int width, precision; /* precision -1: not given */
    const char *fill;     /* NULL: a space */
    char kind;
} field;

static void put_padded(mf_jtext *text, mf_jval value, const field *f, size_t n_sign)
{
    if (!mf_j_ok(text->run))
        return;
    int64_t n = mf_j_length(text->run, value), n_pad = f->width > n ? f->width - n : 0;
    const mf_jstr *s = value.as.string;
    int64_t n_left = f->is_left ? 0 : f->is_centred ? n_pad / 2 : n_pad;
    if (f->is_zero && !f->is_left) { /* behind the sign */
        mf_j_put_bytes(text, s->text, n_sign);
        for (int64_t i = 0; i < n_pad; i++)
            mf_j_put_c(text, "0");
        mf_j_put_bytes(text, s->text + n_sign, s->n_bytes - n_sign);
        return;
    }
    for (int64_t i = 0; i < n_left; i++)
        mf_j_put_bytes(text, f->fill == NULL ? " " : f->fill, 1);
    mf_j_put_string(text, s);
    for (int64_t i = n_left; i < n_pad; i++)
        mf_j_put_bytes(text, f->fill == NULL ? " " : f->fill, 1);
}

/* What a conversion ('s', 'r', 'a') makes of a value. */
static mf_jval converted(mf_jrun *j, mf_jval value, char kind)
{
    mf_jtext repr = {.run = j}, ascii = {.run = j};
    if (kind == 's')
        return mf_j_str(j, value);
    mf_j_put_repr(&repr, value);
    value = mf_j_take_text(&repr);
    if (kind == 'r' || !mf_j_ok(j))
        return value;
    for (size_t at = 0; at < value.as.string->n_bytes && mf_j_ok(j);) {
        char escape[16];
        const size_t begin = at;
        const uint32_t c = mf_j_next_char(value.as.string, &at);
        if (c < 0x80) {
            mf_j_put_bytes(&ascii, value.as.string->text + begin, 1);
            continue;
        }
        snprintf(escape, sizeof escape,
                 c < 0x100     ? "\\x%02" PRIx32
                 : c < 0x10000 ? "\\u%04" PRIx32
                               : "\\U%08" PRIx32,
                 c);
        mf_j_put_c(&ascii, escape);
    }
    return mf_j_take_text(&ascii);
}

static void put_string_field(mf_jtext *text, mf_jval value, const field *f)
{
    value = converted(text->run, value, f->kind);
    if (f->precision >= 0) {
        const mf_jval bounds[3] = {mf_j_none(), mf_j_int(f->precision), mf_j_none()};
        value = mf_j_get_slice(text->run, value, bounds);
    }
    field plain = *f;
    plain.is_zero = false;
    put_padded(text, value, &plain, 0);
}

static void put_sign(char out[2], bool is_negative, const field *f)
{
    out[0] = is_negative ? '-' : f->is_plus ? '+' : f->is_space ? ' ' : '\0';
    out[1] = '\0';
}

static void put_int_field(mf_jtext *text, mf_jval value, const field *f)
{
    char digits[128], sign[2], all[160];
    int64_t n = 0;
    if (value.kind == MF_J_FLOAT && (f->kind == 'd' || f->kind == 'i' || f->kind == 'u') &&
        value.as.real > -9.2e18 && value.as.real < 9.2e18)
        value = mf_j_int((int64_t)value.as.real);
    if (!mf_j_want_int(text->run, value, "a format of integers", &n))
        return;
    uint64_t magnitude = n < 0 ? -(uint64_t)n : (uint64_t)n;
    int precision = f->precision > 100 ? 100 : f->precision < 1 ? 1 : f->precision;
    const char *prefix = !f->is_hash      ? ""
                         : f->kind == 'x' ? "0x"
                         : f->kind == 'X' ? "0X"
                         : f->kind == 'o' ? "0o"
                                          : "";
    if (f->kind == 'x')
        snprintf(digits, sizeof digits, "%.*" PRIx64, precision, magnitude);
    else if (f->kind == 'X')
        snprintf(digits, sizeof digits, "%.*" PRIX64, precision, magnitude);
    else if (f->kind == 'o')
        snprintf(digits, sizeof digits, "%.*" PRIo64, precision, magnitude);
    else
        snprintf(digits, sizeof digits, "%.*" PRIu64, precision, magnitude);
    put_sign(sign, n < 0, f);
    snprintf(all, sizeof all, "%s%s%s", sign, prefix, digits);
    put_padded(text, mf_j_copy(text->run, all, strlen(all)), f, strlen(sign) + strlen(prefix));
}

static void put_float_field(mf_jtext *text, mf_jval value, const field *f)
{
    char format[8] = {'%', '.', '*', f->kind, '\0'}, digits[512], sign[2], all[520];
    double real = 0;
    if (!mf_j_as_float(value, &real)) {
        mf_j_fail_type(text->run, "a format of numbers", value);
        return;
    }
    int precision = f->precision < 0 ? 6 : f->precision > 100 ? 100 : f->precision;
    bool is_negative = real < 0 || (real == 0 && 1 / real < 0);
    if (f->is_hash)
        memcpy(format, (char[]){'%', '#', '.', '*', f->kind, '\0'}, 6);
        /* the format is one of "%.*e", "%.*f", "%.*g" */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int n = snprintf(digits, sizeof digits, format, precision, is_negative ? -real : real);
#pragma GCC diagnostic pop
    bool is_finite = real - real == 0;
    for (int i = 0; is_finite && i < n && i < (int)sizeof digits; i++) /* the locale's point */
        if ((unsigned char)digits[i] > '9' + 64 ? false : strchr(",;'", digits[i]) != NULL)
            digits[i] = '.';
    put_sign(sign, is_negative, f);
    snprintf(all, sizeof all, "%s%s", sign, digits);
    put_padded(text, mf_j_copy(text->run, all, strlen(all)), f, strlen(sign));
}

static void put_char_field(mf_jtext *text, mf_jval value, const field *f)
{
    int64_t n;
    mf_jtext one = {.run = text->run};
    field plain = *f;
    plain.is_zero = false;
    if (value.kind == MF_J_STRING && mf_j_length(text->run, value) == 1) {
        put_padded(text, value, &plain, 0);
    } else if (mf_j_as_int(value, &n) && n >= 0 && n < 0x110000 && (n < 0xD800 || n > 0xDFFF)) {
        mf_j_put_char(&one, (uint32_t)n);
        put_padded(text, mf_j_take_text(&one), &plain, 0);
    } else {
        mf_j_fail_type(text->run, "%c", value);
    }
}

static void put_field(mf_jtext *text, mf_jval value, const field *f)
{
    if (value.kind == MF_J_UNDEFINED && f->kind != 's' && f->kind != 'r')
        mf_j_fail_type(text->run, "a format", value);
    else if (f->kind == 's' || f->kind == 'r' || f->kind == 'a')
        put_string_field(text, value, f);
    else if (f->kind == 'c')
        put_char_field(text, value, f);
    else if (f->kind != '\0' && strchr("eEfFgG", f->kind) != NULL)
        put_float_field(text, value, f);
    else if (f->kind != '\0' && strchr("diuxXo", f->kind) != NULL)
        put_int_field(text, value, f);
    else
        mf_j_fail(text->run, MF_ERR_ARGUMENT, "a format of unknown kind");
}

/* A number in the format; *at moves behind it. */
static int read_number(const mf_jstr *s, size_t *at, int otherwise)
{
    int n = otherwise;
    for (; *at < s->n_bytes && s->text[*at] >= '0' && s->text[*at] <= '9'; (*at)++) {
        n = (n < 0 || n == otherwise ? 0 : n) * 10 + (s->text[*at] - '0');
        n = n > MAX_WIDTH ? MAX_WIDTH : n;
    }
    return n;
}

static field read_flags(const mf_jstr *s, size_t *at)
{
    field f = {.precision = -1};
    for (; *at < s->n_bytes; (*at)++) {
        switch (s->text[*at]) {
        case '-':
            f.is_left = true;
            continue;
        case '0':
            f.is_zero = true;
            continue;
        case '+':
            f.is_plus = true;
            continue;
        case ' ':
            f.is_space = true;
            continue;
        case '#':
            f.is_hash = true;
            continue;
        default:
            break;
        }
        break;
    }
    return f;
}

/* The values of a format: a tuple's items one after the other, else the value itself once. */
typedef struct source {
    mf_jval values;
    size_t n_taken;
} source;

static mf_jval next_value(mf_jrun *j, source *from)
{
    size_t i = from->n_taken++;
    if (!mf_j_is_tuple(from->values) && i == 0)
        return from->values;
    if (mf_j_is_tuple(from->values) && i < from->values.as.list->n_items)
        return from->values.as.list->items[i];
    return mf_j_fail(j, MF_ERR_ARGUMENT, "not enough arguments for format string");
}

/* What follows a '%'. */
static void put_percent(mf_jtext *text, const mf_jstr *s, size_t *at, source *from)
{
    mf_jrun *j = text->run;
    mf_jval value = (mf_jval){0};
    const size_t begin = *at;
    if (*at < s->n_bytes && s->text[*at] == '(') {
        const char *end = memchr(s->text + *at, ')', s->n_bytes - *at);
        if (end == NULL || from->values.kind != MF_J_DICT) {
            mf_j_fail(j, MF_ERR_ARGUMENT, "a format by name wants a mapping");
            return;
        }
        const mf_jval key = mf_j_part(j, s, *at + 1, (size_t)(end - s->text));
        const mf_jval *found = mf_j_ok(j) ? mf_j_find(j, from->values.as.dict, key) : NULL;
        value = found != NULL ? *found : mf_j_fail(j, MF_ERR_ARGUMENT, "a format's key is missing");
        *at = (size_t)(end - s->text) + 1;
        from->n_taken = 1;
    }
    field f = read_flags(s, at);
    f.width = read_number(s, at, 0);
    if (*at < s->n_bytes && s->text[*at] == '.') {
        (*at)++;
        f.precision = read_number(s, at, -1);
        f.precision = f.precision < 0 ? 0 : f.precision;
    }
    if (*at < s->n_bytes && s->text[*at] != '\0' && strchr("hlL", s->text[*at]) != NULL)
        (*at)++; /* C's sizes say nothing */
    f.kind = *at < s->n_bytes ? s->text[(*at)++] : '\0';
    if (f.kind == '%' && *at == begin + 1) {
        mf_j_put_c(text, "%");
        return;
    }
    if (value.kind == MF_J_MISSING)
        value = next_value(j, from);
    if (mf_j_ok(j))
        put_field(text, value, &f);
}

mf_jval mf_j_percent(mf_jrun *j, const mf_jstr *s, mf_jval values)
{
    mf_jtext text = {.run = j};
    source from = {.values = values};
    for (size_t at = 0; at < s->n_bytes && mf_j_ok(j);) {
        const char *p = memchr(s->text + at, '%', s->n_bytes - at);
        size_t end = p == NULL ? s->n_bytes : (size_t)(p - s->text);
        mf_j_put_str(&text, mf_j_part(j, s, at, end));
        at = end;
        if (p != NULL) {
            at++;
            put_percent(&text, s, &at, &from);
        }
    }
    bool takes_all = mf_j_is_tuple(values)
                         ? from.n_taken >= values.as.list->n_items
                         : from.n_taken > 0 || values.kind == MF_J_DICT || values.kind == MF_J_LIST;
    if (mf_j_ok(j) && !takes_all)
        mf_j_fail(j, MF_ERR_ARGUMENT, "not all arguments converted during string formatting");
    return mf_j_take_text(&text);
}

/* ------------------------------------------------------------------------------------ braces -- */

/* Places of fields, which are all numbered or all not. */
typedef struct places {
    size_t n_taken;
    bool are_numbered;
} places;

static mf_jval value_at(mf_jrun *j, const mf_jlist *plain, int place)
{
    return place >= 0 && (size_t)place < plain->n_items
               ? plain->items[place]
               : mf_j_fail(j, MF_ERR_ARGUMENT, "format: too few arguments");
}

/* The value that a field names: by place, by name, or the next one. */
static mf_jval named_value(mf_jrun *j, const mf_jstr *name, const mf_jarguments *arguments,
                           places *taken)
{
    size_t at = 0;
    const int place = read_number(name, &at, -1);
    if (at == name->n_bytes) {
        if (name->n_bytes == 0 ? taken->are_numbered : taken->n_taken != 0)
            return mf_j_fail(j, MF_ERR_ARGUMENT, "format: fields with numbers and without");
        taken->are_numbered = name->n_bytes != 0;
        return value_at(j, arguments->plain.as.list,
                        taken->are_numbered ? place : (int)taken->n_taken++);
    }
    const mf_jval *found = arguments->named.kind == MF_J_DICT
                               ? mf_j_find_text(arguments->named.as.dict, name->text, name->n_bytes)
                               : NULL;
    if (found == NULL)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "format: no argument '%.*s'",
                         name->n_bytes < 60 ? (int)name->n_bytes : 60, name->text);
    return *found;
}

static bool is_one_of(const mf_jstr *s, size_t at, const char *chars)
{
    return at < s->n_bytes && s->text[at] != '\0' && strchr(chars, s->text[at]) != NULL;
}

/* The part behind a field's ':', of a number or of text. */
static field read_spec(mf_jrun *j, const mf_jstr *s, bool is_number)
{
    size_t at = 0;
    field f = {.precision = -1, .is_left = !is_number};
    if (is_one_of(s, 1, "<>^"))
        f.fill = &s->text[at++];
    const bool is_aligned = is_one_of(s, at, "<>^");
    if (is_aligned) {
        f.is_left = s->text[at] == '<';
        f.is_centred = s->text[at++] == '^';
    }
    if (is_number && is_one_of(s, at, "+- ")) {
        f.is_plus = s->text[at] == '+';
        f.is_space = s->text[at++] == ' ';
    }
    if (is_one_of(s, at, "0")) { /* behind the sign, but where it is said where the value stands */
        f.is_zero = is_number && !is_aligned;
        f.fill = f.fill == NULL ? &s->text[at] : f.fill;
        at++;
    }
    f.width = read_number(s, &at, 0);
    if (at < s->n_bytes && s->text[at] == '.') {
        at++;
        f.precision = read_number(s, &at, -1);
    }
    f.kind = at < s->n_bytes ? s->text[at++] : '\0';
    if (at != s->n_bytes)
        mf_j_fail(j, MF_ERR_UNSUPPORTED, "format: a specification that is not known here");
    return f;
}

/* A float without a kind: as it is printed. */
static void put_plain_float(mf_jtext *text, mf_jval value, const field *f)
{
    mf_jtext out = {.run = text->run};
    char sign[2];
    const bool is_negative = signbit(value.as.real) != 0;
    if (f->precision >= 0) {
        mf_j_fail(text->run, MF_ERR_UNSUPPORTED, "format: a specification that is not known here");
        return;
    }
    put_sign(sign, is_negative, f);
    mf_j_put_c(&out, sign);
    mf_j_put_float(&out, is_negative ? -value.as.real : value.as.real);
    put_padded(text, mf_j_take_text(&out), f, strlen(sign));
}

/* A value by a specification: Python has other kinds for each type. */
static void put_by_spec(mf_jtext *text, mf_jval value, field *f)
{
    const bool is_text = value.kind == MF_J_STRING, is_float = value.kind == MF_J_FLOAT;
    const char *kinds = is_text ? "s" : is_float ? "eEfFgG" : "dxXoceEfFgG";
    if (f->kind == '\0' && is_float) {
        put_plain_float(text, value, f);
        return;
    }
    f->kind = f->kind != '\0' ? f->kind : is_text ? 's' : 'd';
    const bool is_whole = strchr("dxXoc", f->kind) != NULL;
    if (strchr(kinds, f->kind) == NULL)
        mf_j_fail(text->run, MF_ERR_UNSUPPORTED, "format: a specification that is not known here");
    else if (is_whole && f->precision >= 0)
        mf_j_fail(text->run, MF_ERR_ARGUMENT, "format: integers have no precision");
    else
        put_field(text, value, f);
}

static void put_brace_field(mf_jtext *text, const mf_jstr *inner, const mf_jarguments *arguments,
                            places *taken)
{
    mf_jrun *j = text->run;
    size_t n_name = 0;
    while (n_name < inner->n_bytes && strchr(":!.[", inner->text[n_name]) == NULL)
        n_name++;
    const mf_jstr name = {.text = inner->text, .n_bytes = n_name};
    mf_jval value = named_value(j, &name, arguments, taken);
    if (n_name + 1 < inner->n_bytes && inner->text[n_name] == '!' &&
        is_one_of(inner, n_name + 1, "sra")) {
        value = converted(j, value, inner->text[n_name + 1]);
        n_name += 2;
    }
    if (n_name < inner->n_bytes && inner->text[n_name] != ':') {
        mf_j_fail(j, MF_ERR_UNSUPPORTED, "format: a field that is not known here");
        return;
    }
    n_name += n_name < inner->n_bytes;
    const mf_jstr spec = {.text = inner->text + n_name, .n_bytes = inner->n_bytes - n_name};
    if (spec.n_bytes == 0 || !mf_j_ok(j)) {
        mf_j_put_str(text, value);
        return;
    }
    const bool is_number =
        value.kind == MF_J_INT || value.kind == MF_J_FLOAT || value.kind == MF_J_BOOL;
    field f = read_spec(j, &spec, is_number);
    if (!is_number && value.kind != MF_J_STRING)
        mf_j_fail_type(j, "a format with a specification", value);
    if (mf_j_ok(j))
        put_by_spec(text, value, &f);
}

mf_jval mf_j_braces(mf_jrun *j, const mf_jstr *s, const mf_jarguments *arguments)
{
    mf_jtext text = {.run = j};
    places taken = {0};
    for (size_t at = 0; at < s->n_bytes && mf_j_ok(j);) {
        size_t end = at;
        while (end < s->n_bytes && s->text[end] != '{' && s->text[end] != '}')
            end++;
        mf_j_put_str(&text, mf_j_part(j, s, at, end));
        at = end;
        if (at == s->n_bytes)
            break;
        if (at + 1 < s->n_bytes && s->text[at + 1] == s->text[at]) {
            mf_j_put_bytes(&text, s->text + at, 1);
            at += 2;
            continue;
        }
        const char *close = memchr(s->text + at, '}', s->n_bytes - at);
        if (s->text[at] == '}' || close == NULL)
            return mf_j_fail(j, MF_ERR_ARGUMENT, "format: a single brace");
        const mf_jstr inner = {.text = s->text + at + 1,
                               .n_bytes = (size_t)(close - s->text) - at - 1};
        put_brace_field(&text, &inner, arguments, &taken);
        at = (size_t)(close - s->text) + 1;
    }
    return mf_j_take_text(&text);
}
