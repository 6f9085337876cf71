/* SPDX-License-Identifier: MIT */
/* Python's two ways to format: "%5.2f" % values, and "{}".format(values) with the same in "{:5}".
 */
#include "text/jinja/jinja_strings.h"

#include <inttypes.h>
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

static void put_string_field(mf_jtext *text, mf_jval value, const field *f)
{
    mf_jtext repr = {.run = text->run};
    if (f->kind == 'r') {
        mf_j_put_repr(&repr, value);
        value = mf_j_take_text(&repr);
    } else {
        value = mf_j_str(text->run, value);
    }
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
    int precision = f->precision > 100 ? 100 : f->precision < 0 ? 1 : f->precision;
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
    f.kind = *at < s->n_bytes ? s->text[(*at)++] : '\0';
    if (f.kind == '%') {
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

/* The value that a field names: by place, by name, or the next one. */
static mf_jval named_value(mf_jrun *j, const mf_jstr *name, const mf_jarguments *arguments,
                           size_t *n_taken)
{
    const mf_jlist *plain = arguments->plain.as.list;
    size_t at = 0;
    int place = read_number(name, &at, -1);
    if (name->n_bytes == 0)
        place = (int)(*n_taken)++;
    if (name->n_bytes == 0 || at == name->n_bytes)
        return place >= 0 && (size_t)place < plain->n_items
                   ? plain->items[place]
                   : mf_j_fail(j, MF_ERR_ARGUMENT, "format: too few arguments");
    const mf_jval *found = arguments->named.kind == MF_J_DICT
                               ? mf_j_find_text(arguments->named.as.dict, name->text, name->n_bytes)
                               : NULL;
    if (found == NULL)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "format: no argument '%.*s'",
                         name->n_bytes < 60 ? (int)name->n_bytes : 60, name->text);
    return *found;
}

/* The part behind a field's ':'. */
static field read_spec(mf_jrun *j, const mf_jstr *s, mf_jval value)
{
    size_t at = 0;
    bool is_number = value.kind == MF_J_INT || value.kind == MF_J_FLOAT;
    field f = {.precision = -1, .is_left = !is_number};
    if (s->n_bytes > 1 && strchr("<>^", s->text[1]) != NULL && s->text[1] != '\0')
        f.fill = &s->text[at++];
    if (at < s->n_bytes && s->text[at] != '\0' && strchr("<>^", s->text[at]) != NULL) {
        f.is_left = s->text[at] == '<';
        f.is_centred = s->text[at++] == '^';
    }
    if (at < s->n_bytes && (s->text[at] == '+' || s->text[at] == ' '))
        f.is_plus = s->text[at++] == '+';
    if (at < s->n_bytes && s->text[at] == '0') {
        f.is_zero = true;
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

static void put_brace_field(mf_jtext *text, const mf_jstr *inner, const mf_jarguments *arguments,
                            size_t *n_taken)
{
    mf_jrun *j = text->run;
    size_t n_name = 0;
    while (n_name < inner->n_bytes && strchr(":!.[", inner->text[n_name]) == NULL)
        n_name++;
    const mf_jstr name = {.text = inner->text, .n_bytes = n_name};
    mf_jval value = named_value(j, &name, arguments, n_taken);
    char conversion = '\0';
    if (n_name + 1 < inner->n_bytes && inner->text[n_name] == '!') {
        conversion = inner->text[n_name + 1];
        n_name += 2;
    }
    if (n_name < inner->n_bytes && inner->text[n_name] != ':') {
        mf_j_fail(j, MF_ERR_UNSUPPORTED, "format: a field that is not known here");
        return;
    }
    n_name += n_name < inner->n_bytes;
    const mf_jstr spec = {.text = inner->text + n_name, .n_bytes = inner->n_bytes - n_name};
    field f = read_spec(j, &spec, value);
    bool is_text = f.kind == '\0' || f.kind == 's';
    if (is_text)
        f.kind = conversion == 'r' ? 'r' : 's';
    if (!mf_j_ok(j))
        return;
    if (is_text && value.kind == MF_J_INT && spec.n_bytes > 0)
        f.kind = 'd';
    if (is_text && value.kind == MF_J_FLOAT && f.precision >= 0)
        mf_j_fail(j, MF_ERR_UNSUPPORTED, "format: a specification that is not known here");
    put_field(text, value, &f);
}

mf_jval mf_j_braces(mf_jrun *j, const mf_jstr *s, const mf_jarguments *arguments)
{
    mf_jtext text = {.run = j};
    size_t n_taken = 0;
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
        put_brace_field(&text, &inner, arguments, &n_taken);
        at = (size_t)(close - s->text) + 1;
    }
    return mf_j_take_text(&text);
}
