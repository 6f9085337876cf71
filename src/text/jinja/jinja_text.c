/* SPDX-License-Identifier: MIT */
/* Text that is being put together; str and repr. */
#include "text/jinja/jinja_text.h"

#include "format/json.h"
#include "text/jinja/jinja_eval.h"
#include "text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <utf8proc.h>

#define LEAST_BYTES ((size_t)64)

/* Room for n_more bytes. */
static bool reserve(mf_jtext *text, size_t n_more)
{
    mf_jrun *j = text->run;
    if (!mf_j_spend(j, n_more / 64 + 1))
        return false;
    if (text->max_bytes != 0 && n_more > text->max_bytes - text->n_bytes) {
        mf_j_fail(j, MF_ERR_UNSUPPORTED, "the text becomes longer than %zu bytes", text->max_bytes);
        return false;
    }
    if (n_more <= text->capacity - text->n_bytes)
        return true;
    size_t capacity = text->capacity < LEAST_BYTES ? LEAST_BYTES : 2 * text->capacity;
    if (capacity < text->n_bytes + n_more)
        capacity = text->n_bytes + n_more;
    if (text->data != NULL && mf_jarena_extend(j->arena, text->data, text->capacity, capacity)) {
        text->capacity = capacity;
        return true;
    }
    char *data = mf_j_take(j, capacity);
    if (data == NULL)
        return false;
    if (text->data != NULL)
        memcpy(data, text->data, text->n_bytes);
    text->data = data;
    text->capacity = capacity;
    return true;
}

void mf_j_put_bytes(mf_jtext *text, const char *bytes, size_t n_bytes)
{
    if (n_bytes == 0 || !reserve(text, n_bytes))
        return;
    memcpy(text->data + text->n_bytes, bytes, n_bytes);
    if (text->foreign != NULL && text->n_bytes + n_bytes <= text->foreign_capacity)
        memset(text->foreign + text->n_bytes, 0, n_bytes);
    text->n_bytes += n_bytes;
}

/* Flags for all that there is room for. */
static bool reserve_flags(mf_jtext *text)
{
    if (text->foreign != NULL && text->foreign_capacity >= text->n_bytes)
        return true;
    unsigned char *foreign = mf_j_take(text->run, text->capacity);
    if (foreign == NULL)
        return false;
    memset(foreign, 0, text->capacity);
    if (text->foreign != NULL)
        memcpy(foreign, text->foreign, text->foreign_capacity);
    text->foreign = foreign;
    text->foreign_capacity = text->capacity;
    return true;
}

void mf_j_mark(mf_jtext *text, size_t start)
{
    if (start < text->n_bytes && reserve_flags(text) && text->foreign != NULL)
        memset(text->foreign + start, 1, text->n_bytes - start);
}

void mf_j_put_string(mf_jtext *text, const mf_jstr *string)
{
    size_t start = text->n_bytes;
    mf_j_put_bytes(text, string->text, string->n_bytes);
    if (string->foreign != NULL && text->n_bytes == start + string->n_bytes && reserve_flags(text))
        memcpy(text->foreign + start, string->foreign, string->n_bytes);
}

void mf_j_put_char(mf_jtext *text, uint32_t code_point)
{
    unsigned char bytes[4];
    mf_j_put_bytes(text, (const char *)bytes, mf_utf8_put(code_point, bytes));
}

mf_jval mf_j_take_text(mf_jtext *text)
{
    mf_jstr *string = mf_j_take(text->run, sizeof *string);
    if (string == NULL || (text->foreign != NULL && !reserve_flags(text)))
        return mf_j_undefined(NULL);
    *string = (mf_jstr){text->data == NULL ? "" : text->data, text->n_bytes, text->foreign, false};
    return (mf_jval){.kind = MF_J_STRING, .as.string = string};
}

bool mf_j_is_foreign(const mf_jstr *string)
{
    return string->foreign != NULL && memchr(string->foreign, 1, string->n_bytes) != NULL;
}

mf_jval mf_j_derived(mf_jtext *text, const mf_jstr *from)
{
    if (mf_j_is_foreign(from))
        mf_j_mark(text, 0);
    return mf_j_take_text(text);
}

/* ------------------------------------------------------------------------------------- repr -- */

/* The shortest digits that give this number, and the exponent of the first of them. */
static size_t shortest_digits(double real, char digits[40], int *exponent)
{
    _Alignas(16) char memory[512];
    yyjson_alc alc;
    yyjson_val value = {0};
    size_t n = 0, n_digits = 0, n_before = 0;
    yyjson_alc_pool_init(&alc, memory, sizeof memory);
    yyjson_set_real(&value, real);
    const char *text = yyjson_val_write_opts(&value, YYJSON_WRITE_NOFLAG, &alc, &n, NULL);
    bool is_behind = false;
    *exponent = 0;
    for (size_t i = 0; text != NULL && i < n; i++) {
        if (text[i] == 'e' || text[i] == 'E') {
            *exponent += (int)strtol(text + i + 1, NULL, 10);
            break;
        }
        is_behind = is_behind || text[i] == '.';
        if (text[i] < '0' || text[i] > '9')
            continue;
        n_before += !is_behind;
        if (n_digits != 0 || text[i] != '0')
            digits[n_digits++] = text[i];
        else
            *exponent -= 1; /* a leading zero */
    }
    *exponent += (int)n_before - 1;
    while (n_digits > 1 && digits[n_digits - 1] == '0')
        n_digits--;
    return n_digits;
}

static void put_zeros(mf_jtext *text, int n)
{
    for (int i = 0; i < n; i++)
        mf_j_put_c(text, "0");
}

void mf_j_put_float(mf_jtext *text, double real)
{
    char digits[40], tail[16];
    int exponent;
    if (real != real || real - real != 0) {
        mf_j_put_c(text, real != real ? "nan" : real > 0 ? "inf" : "-inf");
        return;
    }
    if (real < 0 || (real == 0 && 1 / real < 0))
        mf_j_put_c(text, "-");
    if (real == 0) {
        mf_j_put_c(text, "0.0");
        return;
    }
    size_t n = shortest_digits(real < 0 ? -real : real, digits, &exponent);
    if (exponent < -4 || exponent >= 16) {
        mf_j_put_bytes(text, digits, 1);
        mf_j_put_c(text, n > 1 ? "." : "");
        mf_j_put_bytes(text, digits + 1, n - 1);
        snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        mf_j_put_c(text, tail);
    } else if (exponent < 0) {
        mf_j_put_c(text, "0.");
        put_zeros(text, -exponent - 1);
        mf_j_put_bytes(text, digits, n);
    } else {
        size_t n_whole = (size_t)exponent + 1;
        mf_j_put_bytes(text, digits, n < n_whole ? n : n_whole);
        put_zeros(text, n < n_whole ? (int)(n_whole - n) : 0);
        mf_j_put_c(text, ".");
        if (n > n_whole)
            mf_j_put_bytes(text, digits + n_whole, n - n_whole);
        else
            mf_j_put_c(text, "0");
    }
}

static bool is_printable(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default:
        return true;
    }
}

static void put_repr_char(mf_jtext *text, uint32_t c, char quote)
{
    char escaped[16];
    if (c == (unsigned char)quote || c == '\\')
        snprintf(escaped, sizeof escaped, "\\%c", (char)c);
    else if (c == '\n' || c == '\r' || c == '\t')
        snprintf(escaped, sizeof escaped, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (is_printable(c)) {
        mf_j_put_char(text, c);
        return;
    } else
        snprintf(escaped, sizeof escaped,
                 c < 0x100     ? "\\x%02" PRIx32
                 : c < 0x10000 ? "\\u%04" PRIx32
                               : "\\U%08" PRIx32,
                 c);
    mf_j_put_c(text, escaped);
}

static void put_repr_string(mf_jtext *text, const mf_jstr *s)
{
    bool has_single = s->n_bytes != 0 && memchr(s->text, '\'', s->n_bytes) != NULL;
    bool has_double = s->n_bytes != 0 && memchr(s->text, '"', s->n_bytes) != NULL;
    const char *quote = has_single && !has_double ? "\"" : "'";
    mf_j_put_c(text, quote);
    size_t start = text->n_bytes;
    for (size_t i = 0; i < s->n_bytes && mf_j_ok(text->run);) {
        uint32_t c = MF_UTF8_REPLACEMENT;
        size_t n;
        mf_utf8_next((const unsigned char *)s->text + i, s->n_bytes - i, &c, &n);
        put_repr_char(text, c, *quote);
        i += n;
    }
    if (mf_j_is_foreign(s))
        mf_j_mark(text, start);
    mf_j_put_c(text, quote);
}

static void put_repr_items(mf_jtext *text, const mf_jlist *list)
{
    for (size_t i = 0; i < list->n_items && mf_j_ok(text->run); i++) {
        mf_j_put_c(text, i == 0 ? "" : ", ");
        mf_j_put_repr(text, list->items[i]);
    }
}

static void put_repr_list(mf_jtext *text, const mf_jlist *list)
{
    static const char *const open[] = {"[", "(", "", "dict_keys([", "dict_values([", "dict_items([",
                                       "",  "("};
    static const char *const close[] = {"]", ")", "", "])", "])", "])", "", ")"};
    char range[80];
    if (list->flavour == MF_J_RANGE) {
        int n =
            snprintf(range, sizeof range, "range(%" PRId64 ", %" PRId64, list->start, list->stop);
        if (list->step != 1)
            snprintf(range + n, sizeof range - (size_t)n, ", %" PRId64, list->step);
        mf_j_put_c(text, range);
        mf_j_put_c(text, ")");
        return;
    }
    if (list->flavour == MF_J_ITERATOR) { /* Python prints an address */
        mf_j_fail(text->run, MF_ERR_ARGUMENT,
                  "a generator is printed: it wants a filter as 'list'");
        return;
    }
    mf_j_put_c(text, open[list->flavour]);
    put_repr_items(text, list);
    if (list->n_items == 1 && (list->flavour == MF_J_TUPLE || list->flavour == MF_J_GROUP))
        mf_j_put_c(text, ",");
    mf_j_put_c(text, close[list->flavour]);
}

static void put_repr_dict(mf_jtext *text, const mf_jdict *dict)
{
    mf_j_put_c(text, "{");
    for (size_t i = 0; i < dict->n_entries && mf_j_ok(text->run); i++) {
        mf_j_put_c(text, i == 0 ? "" : ", ");
        mf_j_put_repr(text, dict->entries[i].key);
        mf_j_put_c(text, ": ");
        mf_j_put_repr(text, dict->entries[i].value);
    }
    mf_j_put_c(text, "}");
}

static void put_repr_object(mf_jtext *text, mf_jval value)
{
    if (value.kind == MF_J_NAMESPACE) {
        mf_j_put_c(text, "<Namespace ");
        put_repr_dict(text, value.as.dict);
        mf_j_put_c(text, ">");
    } else if (value.kind == MF_J_LOOP) {
        char loop[80];
        snprintf(loop, sizeof loop, "<LoopContext %zu/%zu>", value.as.loop->index + 1,
                 value.as.loop->items->n_items);
        mf_j_put_c(text, loop);
    } else if (value.kind == MF_J_MACRO) {
        mf_j_put_c(text, "<Macro ");
        mf_j_put_repr(text, mf_j_macro_name(value.as.macro));
        mf_j_put_c(text, ">");
    } else {
        mf_j_fail(text->run, MF_ERR_ARGUMENT, "a value of type '%s' cannot be printed",
                  mf_j_type_name(value));
    }
}

static void put_repr_atom(mf_jtext *text, mf_jval value)
{
    char integer[32];
    switch (value.kind) {
    case MF_J_NONE:
        mf_j_put_c(text, "None");
        break;
    case MF_J_BOOL:
        mf_j_put_c(text, value.as.truth ? "True" : "False");
        break;
    case MF_J_INT:
        snprintf(integer, sizeof integer, "%" PRId64, value.as.integer);
        mf_j_put_c(text, integer);
        break;
    case MF_J_BIG:
        mf_j_put_string(text, value.as.string);
        break;
    case MF_J_FLOAT:
        mf_j_put_float(text, value.as.real);
        break;
    case MF_J_UNDEFINED:
        mf_j_put_c(text, "Undefined");
        break;
    default:
        put_repr_object(text, value);
    }
}

void mf_j_put_repr(mf_jtext *text, mf_jval value)
{
    if (!mf_j_enter(text->run))
        return;
    if (value.kind == MF_J_STRING && value.as.string->is_markup) {
        mf_j_put_c(text, "Markup(");
        put_repr_string(text, value.as.string);
        mf_j_put_c(text, ")");
    } else if (value.kind == MF_J_STRING)
        put_repr_string(text, value.as.string);
    else if (value.kind == MF_J_LIST)
        put_repr_list(text, value.as.list);
    else if (value.kind == MF_J_DICT)
        put_repr_dict(text, value.as.dict);
    else
        put_repr_atom(text, value);
    mf_j_leave(text->run);
}

void mf_j_put_str(mf_jtext *text, mf_jval value)
{
    if (value.kind == MF_J_STRING)
        mf_j_put_string(text, value.as.string);
    else if (value.kind != MF_J_UNDEFINED)
        mf_j_put_repr(text, value);
}

mf_jval mf_j_str(mf_jrun *j, mf_jval value)
{
    mf_jtext text = {.run = j};
    if (value.kind == MF_J_STRING)
        return value;
    mf_j_put_str(&text, value);
    return mf_j_take_text(&text);
}
