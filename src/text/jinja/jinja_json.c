/* SPDX-License-Identifier: MIT */
/* json.dumps of values, and values of JSON. */
#include "text/jinja/jinja_text.h"

#include "text/jinja/jinja_json.h"
#include "text/utf8.h"

#include <inttypes.h>
#include <stdio.h>

static void put_unit(mf_jtext *text, uint32_t unit)
{
    char escaped[8];
    snprintf(escaped, sizeof escaped, "\\u%04" PRIx32, unit & 0xFFFF);
    mf_j_put_bytes(text, escaped, 6);
}

static void put_escaped(mf_jtext *text, uint32_t c, bool is_ascii)
{
    static const char names[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *at = c != 0 && c < 0x80 ? strchr(names, (int)c) : NULL;
    if (at != NULL) {
        const char escaped[2] = {'\\', letters[at - names]};
        mf_j_put_bytes(text, escaped, 2);
    } else if (c < 0x20 || (is_ascii && c > 0x7E && c < 0x10000)) {
        put_unit(text, c);
    } else if (is_ascii && c >= 0x10000) {
        put_unit(text, 0xD800 + ((c - 0x10000) >> 10));
        put_unit(text, 0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
        mf_j_put_char(text, c);
    }
}

static bool is_plain(unsigned char c, bool is_ascii)
{
    return c >= 0x20 && c != '"' && c != '\\' && (c < 0x7F || !is_ascii);
}

static void put_json_string(mf_jtext *text, const mf_jstr *s, bool is_ascii)
{
    mf_j_put_bytes(text, "\"", 1);
    size_t start = text->n_bytes;
    for (size_t i = 0; i < s->n_bytes && mf_j_ok(text->run);) {
        size_t n = 0;
        while (i + n < s->n_bytes && is_plain((unsigned char)s->text[i + n], is_ascii))
            n++;
        mf_j_put_bytes(text, s->text + i, n);
        i += n;
        if (i == s->n_bytes)
            break;
        uint32_t c = MF_UTF8_REPLACEMENT;
        mf_utf8_next((const unsigned char *)s->text + i, s->n_bytes - i, &c, &n);
        put_escaped(text, c, is_ascii);
        i += n;
    }
    if (mf_j_is_foreign(s))
        mf_j_mark(text, start);
    mf_j_put_bytes(text, "\"", 1);
}

static void put_line(mf_jtext *text, const mf_jjson_style *style, unsigned level)
{
    if (!style->has_lines)
        return;
    mf_j_put_bytes(text, "\n", 1);
    for (unsigned i = 0; i < level && mf_j_ok(text->run); i++)
        mf_j_put_string(text, style->indent);
}

static void put_value(mf_jtext *text, mf_jval value, const mf_jjson_style *style, unsigned level);

static void put_array(mf_jtext *text, const mf_jlist *list, const mf_jjson_style *style,
                      unsigned level)
{
    mf_j_put_bytes(text, "[", 1);
    for (size_t i = 0; i < list->n_items && mf_j_ok(text->run); i++) {
        if (i != 0)
            mf_j_put_string(text, style->between_items);
        put_line(text, style, level + 1);
        put_value(text, list->items[i], style, level + 1);
    }
    if (list->n_items != 0)
        put_line(text, style, level);
    mf_j_put_bytes(text, "]", 1);
}

static void put_number(mf_jtext *text, double real)
{
    if (real != real)
        mf_j_put_c(text, "NaN");
    else if (real - real != 0)
        mf_j_put_c(text, real > 0 ? "Infinity" : "-Infinity");
    else
        mf_j_put_float(text, real);
}

static void put_key(mf_jtext *text, mf_jval key, const mf_jjson_style *style)
{
    if (key.kind == MF_J_STRING) {
        put_json_string(text, key.as.string, style->is_ascii);
        return;
    }
    if (key.kind == MF_J_LIST || key.kind == MF_J_UNDEFINED || key.kind > MF_J_DICT) {
        mf_j_fail(text->run, MF_ERR_ARGUMENT, "tojson: a key of type '%s'", mf_j_type_name(key));
        return;
    }
    mf_j_put_bytes(text, "\"", 1);
    put_value(text, key, style, 0);
    mf_j_put_bytes(text, "\"", 1);
}

/* The keys in their order, as a sorted copy of the entries. */
static const mf_jentry *sorted(mf_jrun *j, const mf_jdict *dict)
{
    mf_jentry *copy = mf_j_take(j, dict->n_entries * sizeof *copy);
    if (copy == NULL || !mf_j_spend(j, dict->n_entries * dict->n_entries / 8))
        return NULL;
    for (size_t i = 0; i < dict->n_entries && mf_j_ok(j); i++) {
        size_t at = i;
        while (at > 0 && mf_j_compare(j, dict->entries[i].key, copy[at - 1].key) < 0) {
            copy[at] = copy[at - 1];
            at--;
        }
        copy[at] = dict->entries[i];
    }
    return mf_j_ok(j) ? copy : NULL;
}

static void put_object(mf_jtext *text, const mf_jdict *dict, const mf_jjson_style *style,
                       unsigned level)
{
    const mf_jentry *entries = style->sorts_keys ? sorted(text->run, dict) : dict->entries;
    mf_j_put_bytes(text, "{", 1);
    for (size_t i = 0; entries != NULL && i < dict->n_entries && mf_j_ok(text->run); i++) {
        if (i != 0)
            mf_j_put_string(text, style->between_items);
        put_line(text, style, level + 1);
        put_key(text, entries[i].key, style);
        mf_j_put_string(text, style->between_key_and_value);
        put_value(text, entries[i].value, style, level + 1);
    }
    if (dict->n_entries != 0)
        put_line(text, style, level);
    mf_j_put_bytes(text, "}", 1);
}

static void put_value(mf_jtext *text, mf_jval value, const mf_jjson_style *style, unsigned level)
{
    if (!mf_j_enter(text->run))
        return;
    switch (value.kind) {
    case MF_J_NONE:
        mf_j_put_c(text, "null");
        break;
    case MF_J_BOOL:
        mf_j_put_c(text, value.as.truth ? "true" : "false");
        break;
    case MF_J_INT:
    case MF_J_BIG:
        mf_j_put_str(text, value);
        break;
    case MF_J_FLOAT:
        put_number(text, value.as.real);
        break;
    case MF_J_STRING:
        put_json_string(text, value.as.string, style->is_ascii);
        break;
    case MF_J_DICT:
        put_object(text, value.as.dict, style, level);
        break;
    case MF_J_LIST:
        if (value.as.list->flavour == MF_J_PLAIN || mf_j_is_tuple(value)) {
            put_array(text, value.as.list, style, level);
            break;
        } /* fall through */
    default:
        mf_j_fail(text->run, MF_ERR_ARGUMENT, "tojson: a value of type '%s' has no JSON",
                  mf_j_type_name(value));
    }
    mf_j_leave(text->run);
}

void mf_j_put_json(mf_jtext *text, mf_jval value, const mf_jjson_style *style)
{
    put_value(text, value, style, 0);
}

/* ------------------------------------------------------------------------------------ input -- */

static mf_jval string_of(mf_jrun *j, yyjson_val *json, bool is_foreign)
{
    size_t n = yyjson_get_len(json);
    mf_jval value = mf_j_copy(j, yyjson_get_str(json), n);
    if (!is_foreign || n == 0 || !mf_j_ok(j))
        return value;
    unsigned char *foreign = mf_j_take(j, n);
    mf_jstr *string = mf_j_take(j, sizeof *string);
    if (foreign == NULL || string == NULL)
        return value;
    memset(foreign, 1, n);
    *string = (mf_jstr){value.as.string->text, n, foreign, false};
    value.as.string = string;
    return value;
}

/* A number that no 64 bits hold. */
static mf_jval raw_number(mf_jrun *j, yyjson_val *json)
{
    const char *text = yyjson_get_raw(json);
    size_t n = yyjson_get_len(json);
    if (memchr(text, '.', n) != NULL || memchr(text, 'e', n) != NULL ||
        memchr(text, 'E', n) != NULL)
        return mf_j_float(*text == '-' ? -(double)INFINITY : (double)INFINITY);
    mf_jval value = mf_j_copy(j, text, n);
    value.kind = mf_j_ok(j) ? MF_J_BIG : value.kind;
    return value;
}

static mf_jval number_of(mf_jrun *j, yyjson_val *json)
{
    char digits[32];
    if (yyjson_is_real(json))
        return mf_j_float(yyjson_get_real(json));
    if (yyjson_is_sint(json))
        return mf_j_int(yyjson_get_sint(json));
    if (yyjson_get_uint(json) <= INT64_MAX)
        return mf_j_int((int64_t)yyjson_get_uint(json));
    int n = snprintf(digits, sizeof digits, "%" PRIu64, yyjson_get_uint(json));
    mf_jval value = mf_j_copy(j, digits, (size_t)n);
    value.kind = mf_j_ok(j) ? MF_J_BIG : value.kind;
    return value;
}

static mf_jval list_of(mf_jrun *j, yyjson_val *json, bool is_foreign)
{
    mf_jval list = mf_j_list(j, MF_J_PLAIN);
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(json, i, n, item)
    {
        if (!mf_j_ok(j))
            break;
        mf_j_push(j, list, mf_j_of_json(j, item, is_foreign));
    }
    return list;
}

static mf_jval dict_of(mf_jrun *j, yyjson_val *json, bool is_foreign)
{
    mf_jval dict = mf_j_dict(j);
    size_t i, n;
    yyjson_val *key, *item;
    yyjson_obj_foreach(json, i, n, key, item)
    {
        if (!mf_j_ok(j))
            break;
        mf_jval name = string_of(j, key, is_foreign);
        mf_j_put(j, dict, name, mf_j_of_json(j, item, is_foreign));
    }
    return dict;
}

mf_jval mf_j_of_json(mf_jrun *j, yyjson_val *json, bool is_foreign)
{
    mf_jval value = mf_j_none();
    if (!mf_j_enter(j))
        return value;
    switch (yyjson_get_type(json)) {
    case YYJSON_TYPE_BOOL:
        value = mf_j_bool(yyjson_get_bool(json));
        break;
    case YYJSON_TYPE_NUM:
        value = number_of(j, json);
        break;
    case YYJSON_TYPE_RAW:
        value = raw_number(j, json);
        break;
    case YYJSON_TYPE_STR:
        value = string_of(j, json, is_foreign);
        break;
    case YYJSON_TYPE_ARR:
        value = list_of(j, json, is_foreign);
        break;
    case YYJSON_TYPE_OBJ:
        value = dict_of(j, json, is_foreign);
        break;
    default:
        break;
    }
    mf_j_leave(j);
    return value;
}
