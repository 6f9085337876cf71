/* SPDX-License-Identifier: MIT */
/* Which keywords there are, what a reference points to, and which schemas exclude each other. */
#include "grammar/schema.h"

#include "base/digits.h"

#include <stdlib.h>

typedef enum keyword_kind {
    IS_READ,   /* it says what is valid, and is understood */
    IS_REMARK, /* it says nothing of what is valid */
    IS_REFUSED
} keyword_kind;

typedef struct keyword {
    const char *name;
    keyword_kind kind;
} keyword;

static const keyword keywords[] = {{"type", IS_READ},
                                   {"enum", IS_READ},
                                   {"const", IS_READ},
                                   {"$ref", IS_READ},
                                   {"allOf", IS_READ},
                                   {"anyOf", IS_READ},
                                   {"oneOf", IS_READ},
                                   {"properties", IS_READ},
                                   {"required", IS_READ},
                                   {"additionalProperties", IS_READ},
                                   {"patternProperties", IS_READ},
                                   {"propertyNames", IS_READ},
                                   {"minProperties", IS_READ},
                                   {"maxProperties", IS_READ},
                                   {"items", IS_READ},
                                   {"prefixItems", IS_READ},
                                   {"minItems", IS_READ},
                                   {"maxItems", IS_READ},
                                   {"uniqueItems", IS_READ},
                                   {"minLength", IS_READ},
                                   {"maxLength", IS_READ},
                                   {"pattern", IS_READ},
                                   {"format", IS_READ},
                                   {"minimum", IS_READ},
                                   {"maximum", IS_READ},
                                   {"exclusiveMinimum", IS_READ},
                                   {"exclusiveMaximum", IS_READ},
                                   {"multipleOf", IS_READ},
                                   {"$defs", IS_REMARK},
                                   {"definitions", IS_REMARK},
                                   {"$schema", IS_REMARK},
                                   {"$id", IS_REMARK},
                                   {"$comment", IS_REMARK},
                                   {"title", IS_REMARK},
                                   {"description", IS_REMARK},
                                   {"default", IS_REMARK},
                                   {"examples", IS_REMARK},
                                   {"example", IS_REMARK},
                                   {"deprecated", IS_REMARK},
                                   {"readOnly", IS_REMARK},
                                   {"writeOnly", IS_REMARK},
                                   {"discriminator", IS_REMARK},
                                   {"contentEncoding", IS_REMARK},
                                   {"contentMediaType", IS_REMARK},
                                   {"strict", IS_REMARK}};

static keyword_kind kind_of(yyjson_val *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (yyjson_equals_str(name, keywords[i].name))
            return keywords[i].kind;
    return strncmp(yyjson_get_str(name), "x-", 2) == 0 ? IS_REMARK : IS_REFUSED;
}

/* "uniqueItems": false and the like say nothing. */
static bool is_idle(yyjson_val *name, yyjson_val *value)
{
    return yyjson_equals_str(name, "uniqueItems") && yyjson_is_false(value);
}

/* Lists compared with each other: their lengths multiply. Some 0.1 s. */
#define MAX_COMPARED 10000000
#define KEYWORD_STEPS 16 /* a keyword is looked for among all that there are */

/* May n more be compared? */
static bool may_compare(mf_schema_reader *s, size_t n)
{
    s->rules->n_compared += n;
    if (s->rules->n_compared <= MAX_COMPARED)
        return true;
    (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                         "its lists of values and names are too long to be compared");
    return false;
}

bool mf_schema_check_keywords(mf_schema_reader *s, yyjson_val *schema)
{
    size_t i, n;
    yyjson_val *name, *value;
    /* It is looked through for each value that it has a part in. */
    if (!may_compare(s, KEYWORD_STEPS * yyjson_obj_size(schema)))
        return false;
    yyjson_obj_foreach(schema, i, n, name, value)
    {
        const bool is_foreign_id = yyjson_equals_str(name, "$id") && schema != s->json->root;
        if (kind_of(name) != IS_REFUSED && !is_foreign_id)
            continue;
        (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED, "the keyword \"%.100s\" is not supported%s",
                             yyjson_get_str(name), is_foreign_id ? " below the root" : "");
        return false;
    }
    return true;
}

bool mf_schema_says_more(yyjson_val *schema, const char *const *but)
{
    size_t i, n;
    yyjson_val *name, *value;
    yyjson_obj_foreach(schema, i, n, name, value)
    {
        bool is_listed = kind_of(name) == IS_REMARK || is_idle(name, value);
        for (const char *const *word = but; *word != NULL && !is_listed; word++)
            is_listed = yyjson_equals_str(name, *word);
        if (!is_listed)
            return true;
    }
    return false;
}

/* -------------------------------------------------------------------------------- references -- */

/* A step of a JSON pointer, with %XX, ~0 and ~1 as what they stand for. */
static size_t read_step(const char **at, const char *end, char *out, size_t capacity)
{
    size_t n = 0;
    const char *c = *at;
    while (c < end && *c != '/' && n < capacity) {
        char byte = *c++;
        if (byte == '%' && end - c >= 2 && mf_is_hex(c[0]) && mf_is_hex(c[1])) {
            byte = (char)(mf_digit_of(c[0]) * 16 + mf_digit_of(c[1]));
            c += 2;
        }
        if (byte == '~' && c < end && (*c == '0' || *c == '1'))
            byte = *c++ == '0' ? '~' : '/';
        out[n++] = byte;
    }
    *at = c;
    return n;
}

static yyjson_val *step_into(mf_schema_reader *s, yyjson_val *at, const char *name, size_t n)
{
    if (yyjson_is_obj(at))
        return may_compare(s, yyjson_obj_size(at)) ? yyjson_obj_getn(at, name, n) : NULL;
    char number[12] = {0}, *stop;
    if (!yyjson_is_arr(at) || n == 0 || n >= sizeof number || name[0] < '0' || name[0] > '9')
        return NULL;
    memcpy(number, name, n);
    const unsigned long i = strtoul(number, &stop, 10);
    return *stop == '\0' ? yyjson_arr_get(at, i) : NULL;
}

yyjson_val *mf_schema_resolve(mf_schema_reader *s, const char *ref, size_t n_bytes)
{
    const char *at = ref, *end = ref + n_bytes;
    yyjson_val *v = s->json->root;
    yyjson_val *id = yyjson_obj_get(v, "$id");
    char name[512];
    if (yyjson_is_str(id) && yyjson_get_len(id) > 0 && n_bytes > yyjson_get_len(id) &&
        memcmp(ref, yyjson_get_str(id), yyjson_get_len(id)) == 0)
        at += yyjson_get_len(id);
    if (at == end || *at++ != '#')
        return NULL;
    while (at < end && v != NULL) {
        if (*at++ != '/')
            return NULL;
        const size_t n = read_step(&at, end, name, sizeof name);
        v = n < sizeof name ? step_into(s, v, name, n) : NULL;
    }
    return yyjson_is_obj(v) || yyjson_is_bool(v) ? v : NULL;
}

yyjson_val *mf_schema_follow(mf_schema_reader *s, yyjson_val *schema)
{
    for (int i = 0; i < 16; i++) {
        yyjson_val *ref = yyjson_obj_get(schema, "$ref");
        if (!yyjson_is_str(ref))
            break;
        yyjson_val *to = mf_schema_resolve(s, yyjson_get_str(ref), yyjson_get_len(ref));
        if (to == NULL)
            break;
        schema = to;
    }
    return schema;
}

/* -----------------------------------------------------------------------------------------
 * equality --
 */

/* In the order of the first, which mostly is that of the second. */
static bool equal_members(mf_schema_reader *s, yyjson_val *a, yyjson_val *b)
{
    size_t i, n;
    yyjson_val *key, *value;
    if (!yyjson_is_obj(b) || yyjson_obj_size(a) != yyjson_obj_size(b))
        return false;
    yyjson_val *next = unsafe_yyjson_get_first(b);
    yyjson_obj_foreach(a, i, n, key, value)
    {
        yyjson_val *other = next + 1;
        if (!yyjson_equals(key, next)) {
            if (!may_compare(s, n))
                return true;
            other = yyjson_obj_getn(b, yyjson_get_str(key), yyjson_get_len(key));
        }
        if (other == NULL || !mf_schema_equal(s, value, other))
            return false;
        next = i + 1 < n ? unsafe_yyjson_get_next(next + 1) : next;
    }
    return true;
}

static bool equal_items(mf_schema_reader *s, yyjson_val *a, yyjson_val *b)
{
    size_t i, n;
    yyjson_val *item, *other = yyjson_arr_get_first(b);
    if (yyjson_arr_size(a) != yyjson_arr_size(b))
        return false;
    yyjson_arr_foreach(a, i, n, item)
    {
        if (!mf_schema_equal(s, item, other))
            return false;
        other = unsafe_yyjson_get_next(other);
    }
    return true;
}

#define NUMBER_STEPS 8 /* reading two numbers takes as long as so many other comparisons */

/* A number that could not be written otherwise, but with an exponent or more zeros: without an
 * exponent, and its last digit behind a point is none. */
static bool is_plain_number(const char *text)
{
    const char *const first = text + (*text == '-'), *c = first;
    while (*c >= '0' && *c <= '9')
        c++;
    if (*c == '\0') /* "-0" is zero, too */
        return *first != '0' || first == text;
    if (*c++ != '.')
        return false;
    while (*c >= '0' && *c <= '9')
        c++;
    return *c == '\0' && c[-1] != '0';
}

/* Of two plain ones another text is another number. */
static bool equal_numbers(mf_schema_reader *s, yyjson_val *a, yyjson_val *b)
{
    const char *x = yyjson_get_raw(a), *y = yyjson_get_raw(b);
    if (strcmp(x, y) == 0)
        return true;
    if (is_plain_number(x) && is_plain_number(y))
        return false;
    return !may_compare(s, NUMBER_STEPS) || mf_json_raw_number(a) == mf_json_raw_number(b);
}

bool mf_schema_equal(mf_schema_reader *s, yyjson_val *a, yyjson_val *b)
{
    if (a == b || !may_compare(s, 1))
        return true;
    if (yyjson_get_type(a) != yyjson_get_type(b))
        return false;
    switch (yyjson_get_type(a)) {
    case YYJSON_TYPE_RAW:
        return equal_numbers(s, a, b);
    case YYJSON_TYPE_BOOL:
        return yyjson_is_true(a) == yyjson_is_true(b);
    case YYJSON_TYPE_STR:
        return yyjson_get_len(a) == yyjson_get_len(b) &&
               memcmp(yyjson_get_str(a), yyjson_get_str(b), yyjson_get_len(a)) == 0;
    case YYJSON_TYPE_ARR:
        return equal_items(s, a, b);
    case YYJSON_TYPE_OBJ:
        return equal_members(s, a, b);
    default:
        return true;
    }
}

static bool is_required(mf_schema_reader *s, yyjson_val *schema, const char *name, size_t n_bytes)
{
    size_t i, n;
    yyjson_val *item, *required = yyjson_obj_get(schema, "required");
    if (!may_compare(s, yyjson_arr_size(required)))
        return true;
    yyjson_arr_foreach(required, i, n, item)
    {
        if (yyjson_get_len(item) == n_bytes && memcmp(yyjson_get_str(item), name, n_bytes) == 0)
            return true;
    }
    return false;
}

bool mf_schema_is_required(mf_schema_reader *s, yyjson_val *schema, yyjson_val *name)
{
    return is_required(s, schema, yyjson_get_str(name), yyjson_get_len(name));
}

/* ---------------------------------------------------------------------------------- disjoint -- */

#define MAX_ALTERNATIVES 200

/* The values that a schema lists; *one is used for a constant. */
static size_t listed(yyjson_val *schema, yyjson_val **first)
{
    yyjson_val *constant = yyjson_obj_get(schema, "const");
    yyjson_val *list = yyjson_obj_get(schema, "enum");
    *first = constant != NULL ? constant : yyjson_arr_get_first(list);
    return constant != NULL ? 1 : yyjson_arr_size(list);
}

static bool list_apart(mf_schema_reader *s, yyjson_val *a, yyjson_val *b)
{
    yyjson_val *x, *y;
    const size_t n_x = listed(a, &x), n_y = listed(b, &y);
    for (size_t i = 0; i < n_x; i++, x = unsafe_yyjson_get_next(x)) {
        yyjson_val *other = y;
        for (size_t k = 0; k < n_y; k++, other = unsafe_yyjson_get_next(other))
            if (mf_schema_equal(s, x, other))
                return false;
    }
    return n_x > 0 && n_y > 0;
}

/* A bit a type; integers are numbers. 0: it does not say. */
static unsigned type_bits(yyjson_val *type)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    unsigned bits = 0;
    size_t i, n;
    yyjson_val *item;
    for (unsigned k = 0; k < 6; k++)
        if (yyjson_equals_str(type, names[k]))
            bits |= 1u << k;
    if (yyjson_equals_str(type, "integer"))
        bits |= 4;
    yyjson_arr_foreach(type, i, n, item)
    {
        bits |= type_bits(item);
    }
    return bits;
}

static unsigned types_said(yyjson_val *schema)
{
    static const unsigned bit_of[] = {
        [YYJSON_TYPE_NULL] = 1, [YYJSON_TYPE_BOOL] = 2, [YYJSON_TYPE_RAW] = 4,
        [YYJSON_TYPE_STR] = 8,  [YYJSON_TYPE_ARR] = 16, [YYJSON_TYPE_OBJ] = 32};
    yyjson_val *type = yyjson_obj_get(schema, "type"), *v;
    if (type != NULL)
        return type_bits(type);
    unsigned bits = 0;
    const size_t n = listed(schema, &v);
    for (size_t i = 0; i < n; i++, v = unsafe_yyjson_get_next(v)) {
        const yyjson_type t = yyjson_get_type(v);
        bits |= t < sizeof bit_of / sizeof *bit_of ? bit_of[t] : 0;
    }
    return bits;
}

/* Both are objects that must have a property, and it has no value in common. */
static bool properties_apart(mf_schema_reader *s, yyjson_val *a, yyjson_val *b)
{
    size_t i, n;
    yyjson_val *key, *value, *properties = yyjson_obj_get(a, "properties");
    yyjson_val *others = yyjson_obj_get(b, "properties");
    if (!yyjson_is_obj(properties))
        return false;
    yyjson_obj_foreach(properties, i, n, key, value)
    {
        const char *name = yyjson_get_str(key);
        const size_t n_name = yyjson_get_len(key);
        if (!may_compare(s, yyjson_obj_size(others)))
            return false;
        yyjson_val *other = yyjson_obj_getn(others, name, n_name);
        if (other != NULL && is_required(s, a, name, n_name) && is_required(s, b, name, n_name) &&
            list_apart(s, mf_schema_follow(s, value), mf_schema_follow(s, other)))
            return true;
    }
    return false;
}

static bool are_apart(mf_schema_reader *s, yyjson_val *a, yyjson_val *b)
{
    const unsigned x = types_said(a), y = types_said(b);
    if (x != 0 && y != 0 && (x & y) == 0)
        return true;
    return list_apart(s, a, b) || (x == 32 && y == 32 && properties_apart(s, a, b));
}

bool mf_schema_are_disjoint(mf_schema_reader *s, yyjson_val *list)
{
    const size_t n = yyjson_arr_size(list);
    if (n > MAX_ALTERNATIVES)
        return false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++)
            if (!are_apart(s, mf_schema_follow(s, yyjson_arr_get(list, i)),
                           mf_schema_follow(s, yyjson_arr_get(list, k))))
                return false;
    return true;
}
