/* SPDX-License-Identifier: MIT */
/* Filters that make strings and numbers. */
#include "text/jinja/jinja_strings.h"
#include "text/jinja/jinja_unicode.h"
#include "text/utf8.h"

#include <math.h>
#include <stdio.h>

/* What a filter is applied to, as a string; never NULL. */
static const mf_jstr *text_of(mf_jrun *j, mf_jval value)
{
    static const mf_jstr nothing = {.text = ""};
    mf_jval text = mf_j_str(j, value);
    return mf_j_ok(j) ? text.as.string : &nothing;
}

static const mf_jstr *string_or_null(mf_jrun *j, mf_jval value, const char *what)
{
    return mf_j_given(value) ? mf_j_want_string(j, value, what) : NULL;
}

static mf_jval filter_cased(mf_jrun *j, const mf_jcall *call)
{
    return mf_j_cased(j, text_of(j, call->self), call->variant);
}

static mf_jval filter_capitalize(mf_jrun *j, const mf_jcall *call)
{
    return mf_j_capitalized(j, text_of(j, call->self));
}

static bool starts_word(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || mf_utf8_is_blank(c);
}

static mf_jval filter_title(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *s = text_of(j, call->self);
    mf_jtext text = {.run = j};
    for (size_t at = 0; at < s->n_bytes && mf_j_ok(j);) {
        uint32_t c = mf_j_next_char(s, &at);
        if (starts_word(c)) {
            mf_j_put_char(&text, c);
            continue;
        }
        size_t start = at, end = at;
        while (at < s->n_bytes && !starts_word(mf_j_next_char(s, &at)))
            end = at;
        at = end;
        const mf_jstr rest = {.text = s->text + start, .n_bytes = end - start};
        mf_j_put_cased(&text, c, MF_J_UPPER);
        mf_j_put_string_cased(&text, &rest, MF_J_LOWER);
    }
    return mf_j_derived(&text, s);
}

static mf_jval filter_trim(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *chars = string_or_null(j, call->arg[0], "trim");
    return mf_j_strip(j, text_of(j, call->self), chars, MF_J_STRIP_LEFT | MF_J_STRIP_RIGHT);
}

static mf_jval filter_string(mf_jrun *j, const mf_jcall *call)
{
    return mf_j_str(j, call->self);
}

static mf_jval as_markup(mf_jrun *j, mf_jval value)
{
    mf_jstr *string = mf_j_take(j, sizeof *string);
    if (string == NULL || value.kind != MF_J_STRING)
        return value;
    *string = *value.as.string;
    string->is_markup = true;
    value.as.string = string;
    return value;
}

static mf_jval filter_safe(mf_jrun *j, const mf_jcall *call)
{
    return as_markup(j, mf_j_str(j, call->self));
}

static mf_jval filter_escape(mf_jrun *j, const mf_jcall *call)
{
    static const char chars[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const mf_jstr *s = text_of(j, call->self);
    mf_jtext text = {.run = j};
    if (s->is_markup && call->variant == 0)
        return call->self;
    for (size_t i = 0; i < s->n_bytes && mf_j_ok(j); i++) {
        const char *at = s->text[i] == '\0' ? NULL : strchr(chars, s->text[i]);
        if (at != NULL)
            mf_j_put_c(&text, names[at - chars]);
        else
            mf_j_put_bytes(&text, s->text + i, 1);
    }
    return as_markup(j, mf_j_derived(&text, s));
}

static mf_jval filter_replace(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *s = text_of(j, call->self), *old = text_of(j, call->arg[0]);
    int64_t n_most = -1;
    if (mf_j_given(call->arg[2]) && !mf_j_want_int(j, call->arg[2], "replace", &n_most))
        return mf_j_undefined(NULL);
    return mf_j_replace(j, s, old, text_of(j, call->arg[1]), n_most);
}

static mf_jval filter_indent(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *s = mf_j_want_string(j, call->self, "indent"), *unit = NULL;
    int64_t width = 4;
    mf_jtext text = {.run = j};
    if (call->arg[0].kind == MF_J_STRING)
        unit = call->arg[0].as.string;
    else if (call->arg[0].kind != MF_J_MISSING && !mf_j_want_int(j, call->arg[0], "indent", &width))
        return mf_j_undefined(NULL);
    mf_jval spaces = mf_j_padded(j, &(mf_jstr){.text = ""}, unit == NULL ? width : 0, 0, NULL);
    if (!mf_j_ok(j))
        return spaces;
    unit = unit == NULL ? spaces.as.string : unit;
    mf_jval ended = mf_j_concat(j, s, &(mf_jstr){.text = "\n", .n_bytes = 1});
    if (!mf_j_ok(j))
        return ended;
    const mf_jval split = mf_j_split_lines(j, ended.as.string, false);
    const mf_jlist *lines = mf_j_items(j, split);
    for (size_t i = 0; i < lines->n_items && mf_j_ok(j); i++) {
        const mf_jstr *line = lines->items[i].as.string;
        bool is_indented =
            i == 0 ? mf_j_flag(call->arg[1]) : line->n_bytes != 0 || mf_j_flag(call->arg[2]);
        mf_j_put_c(&text, i == 0 ? "" : "\n");
        if (is_indented)
            mf_j_put_string(&text, unit);
        mf_j_put_string(&text, line);
    }
    return mf_j_take_text(&text);
}

static mf_jval filter_wordcount(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *s = text_of(j, call->self);
    int64_t n = 0;
    bool is_inside = false;
    mf_j_spend(j, MF_J_LOOKED_UP(s->n_bytes));
    for (size_t at = 0; at < s->n_bytes && mf_j_ok(j);) {
        uint32_t c = mf_j_next_char(s, &at);
        bool is_word = c == '_' || mf_j_is_alpha(c) || mf_j_is_numeric(c);
        n += is_word && !is_inside;
        is_inside = is_word;
    }
    return mf_j_int(n);
}

static mf_jval filter_center(mf_jrun *j, const mf_jcall *call)
{
    int64_t width = 80;
    if (call->arg[0].kind != MF_J_MISSING && !mf_j_want_int(j, call->arg[0], "center", &width))
        return mf_j_undefined(NULL);
    return mf_j_centered(j, text_of(j, call->self), width, NULL);
}

/* s[:n] of a string. */
static const mf_jstr *beginning(mf_jrun *j, const mf_jstr *s, int64_t n)
{
    const mf_jval bounds[3] = {mf_j_none(), mf_j_int(n), mf_j_none()};
    mf_jval part = mf_j_get_slice(j, (mf_jval){.kind = MF_J_STRING, .as.string = s}, bounds);
    return text_of(j, part);
}

static mf_jval filter_truncate(mf_jrun *j, const mf_jcall *call)
{
    static const mf_jstr dots = {.text = "...", .n_bytes = 3};
    const mf_jstr *s;
    const mf_jstr *end = call->arg[2].kind == MF_J_STRING ? call->arg[2].as.string : &dots;
    int64_t length = 255, leeway = 5, most;
    if ((mf_j_given(call->arg[0]) && !mf_j_want_int(j, call->arg[0], "truncate", &length)) ||
        (mf_j_given(call->arg[3]) && !mf_j_want_int(j, call->arg[3], "truncate", &leeway)))
        return mf_j_undefined(NULL);
    const mf_jval whole = call->self;
    const mf_jval tail = {.kind = MF_J_STRING, .as.string = end};
    int64_t n_end = mf_j_length(j, tail), n_whole = mf_j_length(j, whole);
    if (length < n_end || leeway < 0)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "truncate: expected length >= %lld and leeway >= 0",
                         (long long)n_end);
    if (__builtin_add_overflow(length, leeway, &most) || n_whole <= most)
        return whole;
    s = mf_j_want_string(j, whole, "truncate");
    const mf_jstr *start = beginning(j, s, length - n_end);
    mf_jtext text = {.run = j};
    size_t n = start->n_bytes;
    while (!mf_j_flag(call->arg[1]) && n > 0 && start->text[n - 1] != ' ')
        n--;
    if (mf_j_flag(call->arg[1]) || n == 0)
        n = start->n_bytes;
    else
        n--;
    mf_j_put_str(&text, mf_j_part(j, start, 0, n));
    mf_j_put_string(&text, end);
    return mf_j_take_text(&text);
}

static mf_jval filter_format(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *plain = call->all->plain.as.list;
    if (call->all->named.kind == MF_J_DICT) {
        if (plain->n_items != 0)
            return mf_j_fail(j, MF_ERR_ARGUMENT, "format: values by place and by name at once");
        return mf_j_percent(j, text_of(j, call->self), call->all->named);
    }
    mf_jval values = mf_j_list(j, MF_J_TUPLE);
    for (size_t i = 0; i < plain->n_items && mf_j_ok(j); i++)
        mf_j_push(j, values, plain->items[i]);
    return mf_j_percent(j, text_of(j, call->self), values);
}

/* in_query: for a form, where blanks are plus signs and slashes are nothing special. */
static void put_quoted(mf_jtext *text, const mf_jstr *s, bool in_query)
{
    char escaped[4];
    for (size_t i = 0; i < s->n_bytes && mf_j_ok(text->run); i++) {
        unsigned char c = (unsigned char)s->text[i];
        bool is_plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
        snprintf(escaped, sizeof escaped, "%%%02X", c);
        if ((is_plain && c < 0x80) || (c != '\0' && strchr(in_query ? "_.-~" : "_.-~/", c) != NULL))
            mf_j_put_bytes(text, s->text + i, 1);
        else
            mf_j_put_c(text, in_query && c == ' ' ? "+" : escaped);
    }
}

static void put_query(mf_jrun *j, mf_jtext *text, mf_jval key, mf_jval value)
{
    if (text->n_bytes > 0)
        mf_j_put_c(text, "&");
    put_quoted(text, text_of(j, key), true);
    mf_j_put_c(text, "=");
    put_quoted(text, text_of(j, value), true);
}

/* A dictionary, or pairs, are a query: key=value&key=value. */
static mf_jval filter_urlencode(mf_jrun *j, const mf_jcall *call)
{
    mf_jtext text = {.run = j};
    if (call->self.kind == MF_J_DICT) {
        const mf_jdict *dict = call->self.as.dict;
        for (size_t i = 0; i < dict->n_entries && mf_j_ok(j); i++)
            put_query(j, &text, dict->entries[i].key, dict->entries[i].value);
        return mf_j_take_text(&text);
    }
    if (call->self.kind != MF_J_LIST) {
        const mf_jstr *s = text_of(j, call->self);
        put_quoted(&text, s, false);
        return mf_j_derived(&text, s);
    }
    const mf_jlist *items = mf_j_items(j, call->self);
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        const mf_jval pair = items->items[i];
        if (pair.kind != MF_J_LIST || pair.as.list->n_items != 2)
            return mf_j_fail_type(j, "urlencode", call->self);
        put_query(j, &text, pair.as.list->items[0], pair.as.list->items[1]);
    }
    return mf_j_take_text(&text);
}

/* ------------------------------------------------------------------------------------ tojson -- */

static const mf_jstr *separator(mf_jrun *j, mf_jval separators, size_t i, const char *usual)
{
    if (!mf_j_given(separators))
        return text_of(j, mf_j_text(j, usual));
    const mf_jlist *items = mf_j_items(j, separators);
    if (items->n_items == 2)
        return mf_j_want_string(j, items->items[i], "tojson's separators");
    mf_j_fail(j, MF_ERR_ARGUMENT, "tojson: separators are two strings");
    return text_of(j, mf_j_text(j, ""));
}

static mf_jval filter_tojson(mf_jrun *j, const mf_jcall *call)
{
    mf_jval indent = call->arg[1];
    int64_t width = 0;
    mf_jjson_style style = {.is_ascii = mf_j_flag(call->arg[0]),
                            .sorts_keys = mf_j_flag(call->arg[3]),
                            .has_lines = mf_j_given(indent)};
    if (indent.kind != MF_J_STRING && style.has_lines &&
        !mf_j_want_int(j, indent, "tojson", &width))
        return mf_j_undefined(NULL);
    mf_jval spaces = mf_j_padded(j, &(mf_jstr){.text = ""}, width, 0, NULL);
    style.indent = text_of(j, indent.kind == MF_J_STRING ? indent : spaces);
    style.between_items = separator(j, call->arg[2], 0, style.has_lines ? "," : ", ");
    style.between_key_and_value = separator(j, call->arg[2], 1, ": ");
    mf_jtext text = {.run = j};
    if (mf_j_ok(j))
        mf_j_put_json(&text, call->self, &style);
    return mf_j_take_text(&text);
}

/* ----------------------------------------------------------------------------------- numbers -- */

static mf_jval filter_int(mf_jrun *j, const mf_jcall *call)
{
    mf_jval value = call->self, otherwise = call->arg[0];
    int64_t n, base = 10;
    double real;
    if (otherwise.kind == MF_J_MISSING)
        otherwise = mf_j_int(0);
    if (call->arg[1].kind != MF_J_MISSING && !mf_j_want_int(j, call->arg[1], "int", &base))
        return mf_j_undefined(NULL);
    if (value.kind == MF_J_UNDEFINED)
        return mf_j_fail_type(j, "int", value);
    if (value.kind == MF_J_STRING)
        mf_j_spend(j, MF_J_WALKED(value.as.string->n_bytes));
    if (value.kind == MF_J_STRING && mf_j_parse_int(value.as.string, (int)base, &n))
        return mf_j_int(n);
    if (mf_j_as_int(value, &n))
        return mf_j_int(n);
    if (value.kind == MF_J_FLOAT)
        real = value.as.real;
    else if (value.kind != MF_J_STRING || !mf_j_parse_float(value.as.string, &real))
        return value.kind == MF_J_BIG ? value : otherwise;
    if (!(real > -9.2e18 && real < 9.2e18))
        return real - real != 0
                   ? otherwise
                   : mf_j_fail(j, MF_ERR_UNSUPPORTED, "an integer of more than 64 bits");
    return mf_j_int((int64_t)real);
}

static mf_jval filter_float(mf_jrun *j, const mf_jcall *call)
{
    double real;
    if (call->self.kind == MF_J_UNDEFINED)
        return mf_j_fail_type(j, "float", call->self);
    if (call->self.kind == MF_J_STRING)
        mf_j_spend(j, MF_J_WALKED(call->self.as.string->n_bytes));
    if (call->self.kind == MF_J_BIG)
        return mf_j_parse_float(call->self.as.string, &real)
                   ? mf_j_float(real)
                   : mf_j_fail(j, MF_ERR_UNSUPPORTED, "an integer too large for a float");
    if (mf_j_as_float(call->self, &real) ||
        (call->self.kind == MF_J_STRING && mf_j_parse_float(call->self.as.string, &real)))
        return mf_j_float(real);
    return call->arg[0].kind == MF_J_MISSING ? mf_j_float(0) : call->arg[0];
}

static mf_jval filter_abs(mf_jrun *j, const mf_jcall *call)
{
    int64_t n;
    if (call->self.kind == MF_J_FLOAT)
        return mf_j_float(fabs(call->self.as.real));
    if (!mf_j_want_int(j, call->self, "abs", &n))
        return mf_j_undefined(NULL);
    return n < 0 ? mf_j_unary(j, '-', mf_j_int(n)) : mf_j_int(n);
}

/* round(real, precision): to the nearest, of the two that are as near the even one. */
static double rounded(double real, int64_t precision)
{
    char text[512];
    double result;
    if (real - real != 0 || precision > 300)
        return real;
    if (precision < -308)
        return copysign(0.0, real);
    if (precision < 0) {
        double power = pow(10, (double)-precision);
        return nearbyint(real / power) * power;
    }
    int n = snprintf(text, sizeof text, "%.*f", (int)precision, real);
    for (int i = 0; i < n; i++) /* whatever the locale's point is */
        if (text[i] != '-' && (text[i] < '0' || text[i] > '9'))
            text[i] = '.';
    const mf_jstr s = {.text = text, .n_bytes = n > 0 && n < (int)sizeof text ? (size_t)n : 0};
    return mf_j_parse_float(&s, &result) ? result : real;
}

/* round(integer, precision): an integer again. */
static mf_jval rounded_integer(mf_jrun *j, int64_t integer, int64_t precision)
{
    int64_t power = 1;
    if (precision >= 0)
        return mf_j_int(integer);
    if (precision < -18)
        return mf_j_fail(j, MF_ERR_UNSUPPORTED, "round: a precision below -18");
    for (; precision < 0; precision++)
        power *= 10;
    const int64_t rest = integer % power, twice = rest < 0 ? -2 * rest : 2 * rest;
    int64_t n = integer / power;
    if (twice > power || (twice == power && n % 2 != 0))
        n += integer < 0 ? -1 : 1;
    return mf_j_binary(j, '*', mf_j_int(n), mf_j_int(power));
}

static mf_jval filter_round(mf_jrun *j, const mf_jcall *call)
{
    int64_t precision = 0, integer;
    double real;
    mf_jval method = call->arg[1];
    if (call->arg[0].kind != MF_J_MISSING && !mf_j_want_int(j, call->arg[0], "round", &precision))
        return mf_j_undefined(NULL);
    if (!mf_j_as_float(call->self, &real))
        return mf_j_fail_type(j, "round", call->self);
    bool is_common = method.kind == MF_J_MISSING ||
                     (method.kind == MF_J_STRING && mf_j_is_text(method.as.string, "common"));
    if (is_common)
        return mf_j_as_int(call->self, &integer) ? rounded_integer(j, integer, precision)
                                                 : mf_j_float(rounded(real, precision));
    double power = pow(10, (double)precision);
    /* Python's ceil and floor are integers, which have no negative 0. */
    if (method.kind == MF_J_STRING && mf_j_is_text(method.as.string, "ceil"))
        return mf_j_float((ceil(real * power) + 0.0) / power);
    if (method.kind == MF_J_STRING && mf_j_is_text(method.as.string, "floor"))
        return mf_j_float((floor(real * power) + 0.0) / power);
    return mf_j_fail(j, MF_ERR_ARGUMENT, "round: method must be common, ceil or floor");
}

const mf_jbuiltin mf_j_text_filters[] = {
    {"trim", "chars", filter_trim, 0},
    {"tojson", "ensure_ascii indent separators sort_keys", filter_tojson, 0},
    {"string", "", filter_string, 0},
    {"safe", "", filter_safe, 0},
    {"escape", "", filter_escape, 0},
    {"e", "", filter_escape, 0},
    {"forceescape", "", filter_escape, 1},
    {"upper", "", filter_cased, MF_J_UPPER},
    {"lower", "", filter_cased, MF_J_LOWER},
    {"capitalize", "", filter_capitalize, 0},
    {"title", "", filter_title, 0},
    {"replace", "old! new! count", filter_replace, 0},
    {"indent", "width first blank", filter_indent, 0},
    {"wordcount", "", filter_wordcount, 0},
    {"center", "width", filter_center, 0},
    {"truncate", "length killwords end leeway", filter_truncate, 0},
    {"format", "*", filter_format, 0},
    {"urlencode", "", filter_urlencode, 0},
    {NULL, NULL, NULL, 0},
};

const mf_jbuiltin mf_j_number_filters[] = {
    {"int", "default base", filter_int, 0},
    {"float", "default", filter_float, 0},
    {"abs", "", filter_abs, 0},
    {"round", "precision method", filter_round, 0},
    {NULL, NULL, NULL, 0},
};
