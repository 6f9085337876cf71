/* SPDX-License-Identifier: MIT */
/* Schemas: references, conjunctions, alternatives, constants, types. */
#include "grammar/schema.h"

#include "grammar/grammar.h"

#include <stdarg.h>
#include <stdio.h>

/* Conjunctions that are read for one schema: what is refused beyond is a schema whose alternatives
 * multiply. */
#define MAX_READS 50000

mf_expr mf_schema_fail(mf_schema_reader *s, mf_status code, const char *format, ...)
{
    char reason[512];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    mf_rules_fail(s->rules, code, "%s: #%s: %s", s->what, s->path, reason);
    return MF_EXPR_NOTHING;
}

mf_expr mf_schema_shared(mf_schema_reader *s, mf_expr e)
{
    mf_rules *r = s->rules;
    if (r->status != MF_OK || r->nodes[e].kind == MF_EXPR_IS_RULE || e == MF_EXPR_NOTHING ||
        e == MF_EXPR_EMPTY)
        return e;
    const uint32_t rule = mf_rules_add(r, NULL, 0);
    mf_rules_define(r, rule, e);
    return mf_expr_rule(r, rule);
}

void mf_conjunction_add(mf_schema_reader *s, mf_conjunction *c, yyjson_val *schema)
{
    if (yyjson_is_true(schema))
        return;
    if (!yyjson_is_obj(schema) && !yyjson_is_false(schema)) {
        (void)mf_schema_fail(s, MF_ERR_FORMAT, "expected a schema: an object, true or false");
        return;
    }
    for (size_t i = 0; i < c->n; i++)
        if (c->parts[i].schema == schema)
            return;
    if (c->n == MF_MAX_PARTS) {
        (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED, "more than %d schemas apply to one value",
                             MF_MAX_PARTS);
        return;
    }
    c->parts[c->n++] = (mf_schema_part){.schema = schema};
}

uint32_t mf_schema_count(mf_schema_reader *s, const mf_conjunction *c, const char *keyword,
                         bool is_max, uint32_t otherwise)
{
    uint32_t found = otherwise;
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *v = yyjson_obj_get(c->parts[i].schema, keyword);
        if (v == NULL)
            continue;
        const double n = mf_json_raw_number(v);
        if (!(n >= 0.0) || n > 1e9 || n != (double)(uint32_t)n) {
            (void)mf_schema_fail(s, MF_ERR_FORMAT, "%s: expected a whole number from 0 to 10^9",
                                 keyword);
            return found;
        }
        if (is_max ? (uint32_t)n < found : (uint32_t)n > found)
            found = (uint32_t)n;
    }
    return found;
}

/* -------------------------------------------------------------------------------- references -- */

/* The rule of a schema that is referred to; it is made when it is first needed. */
static mf_expr read_target(mf_schema_reader *s, yyjson_val *target)
{
    mf_rules *r = s->rules;
    for (size_t i = 0; i < s->n_targets; i++)
        if (s->targets[i].schema == target)
            return mf_expr_rule(r, s->targets[i].rule);
    const uint32_t rule = mf_rules_add(r, NULL, 0);
    if (!mf_rules_grow(r, (void **)&s->targets, &s->target_capacity, s->n_targets,
                       sizeof *s->targets))
        return MF_EXPR_NOTHING;
    s->targets[s->n_targets++] = (mf_schema_target){target, rule};
    mf_conjunction c = {0};
    mf_conjunction_add(s, &c, target);
    mf_rules_define(r, rule, mf_schema_value(s, &c, target == s->json->root ? NULL : "/$ref"));
    return mf_expr_rule(r, rule);
}

static yyjson_val *target_of(mf_schema_reader *s, yyjson_val *ref)
{
    yyjson_val *target = NULL;
    if (yyjson_is_str(ref))
        target = mf_schema_resolve(s, yyjson_get_str(ref), yyjson_get_len(ref));
    if (target == NULL)
        (void)mf_schema_fail(s, MF_ERR_FORMAT,
                             "$ref: expected the place of a schema in this document, \"#/...\"");
    return target;
}

/* Adds what $ref and allOf of the parts say. */
static void flatten(mf_schema_reader *s, mf_conjunction *c)
{
    for (size_t i = 0; i < c->n && s->rules->status == MF_OK; i++) {
        mf_schema_part *part = &c->parts[i];
        yyjson_val *ref = yyjson_obj_get(part->schema, "$ref");
        yyjson_val *all = yyjson_obj_get(part->schema, "allOf");
        size_t k, n;
        yyjson_val *item;
        if (yyjson_is_obj(part->schema) && !mf_schema_check_keywords(s, part->schema))
            return;
        if (ref != NULL && !part->has_ref) {
            part->has_ref = true;
            mf_conjunction_add(s, c, target_of(s, ref));
        }
        if (all == NULL || part->has_all)
            continue;
        part->has_all = true;
        if (!yyjson_is_arr(all) || yyjson_arr_size(all) == 0)
            (void)mf_schema_fail(s, MF_ERR_FORMAT, "allOf: expected a list of schemas");
        yyjson_arr_foreach(all, k, n, item)
        {
            mf_conjunction_add(s, c, item);
        }
    }
}

/* ------------------------------------------------------------------------------ alternatives -- */

/* The first part that has alternatives which are not yet chosen from; NULL: none. */
static yyjson_val *choose(mf_schema_reader *s, mf_conjunction *c, const char **name)
{
    for (size_t i = 0; i < c->n; i++) {
        mf_schema_part *part = &c->parts[i];
        yyjson_val *any = yyjson_obj_get(part->schema, "anyOf");
        yyjson_val *one = yyjson_obj_get(part->schema, "oneOf");
        bool *has = any != NULL && !part->has_any   ? &part->has_any
                    : one != NULL && !part->has_one ? &part->has_one
                                                    : NULL;
        if (has == NULL)
            continue;
        *has = true;
        yyjson_val *list = has == &part->has_any ? any : one;
        *name = list == any ? "anyOf" : "oneOf";
        if (!yyjson_is_arr(list) || yyjson_arr_size(list) == 0)
            (void)mf_schema_fail(s, MF_ERR_FORMAT, "%s: expected a list of schemas", *name);
        else if (list == one && !mf_schema_are_disjoint(s, one))
            (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                                 "oneOf: its schemas are not seen to exclude each other (by type, "
                                 "or by a required property that is a constant); use anyOf");
        return list;
    }
    return NULL;
}

/* Drops parts that say nothing beyond what was added already. */
static void drop_spent(mf_conjunction *c)
{
    static const char *const all[] = {"$ref", "allOf", "anyOf", "oneOf", NULL};
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const mf_schema_part part = c->parts[i];
        const bool is_spent = yyjson_is_obj(part.schema) &&
                              (part.has_ref || !yyjson_obj_get(part.schema, "$ref")) &&
                              (part.has_all || !yyjson_obj_get(part.schema, "allOf")) &&
                              (part.has_any || !yyjson_obj_get(part.schema, "anyOf")) &&
                              (part.has_one || !yyjson_obj_get(part.schema, "oneOf")) &&
                              !mf_schema_says_more(part.schema, all);
        if (!is_spent)
            c->parts[n++] = part;
    }
    c->n = n;
}

static mf_expr read_alternatives(mf_schema_reader *s, const mf_conjunction *c, yyjson_val *list,
                                 const char *name)
{
    mf_expr all = MF_EXPR_NOTHING;
    size_t i, n;
    yyjson_val *item;
    char place[32];
    yyjson_arr_foreach(list, i, n, item)
    {
        if (s->rules->status != MF_OK)
            break;
        mf_conjunction branch = *c;
        snprintf(place, sizeof place, "/%s/%zu", name, i);
        mf_conjunction_add(s, &branch, item);
        all = mf_expr_alt(s->rules, all, mf_schema_value(s, &branch, place));
    }
    return all;
}

/* --------------------------------------------------------------------------------- constants -- */

static mf_expr write_constant(mf_schema_reader *s, yyjson_val *v, unsigned depth);

static mf_expr write_members(mf_schema_reader *s, yyjson_val *v, unsigned depth)
{
    mf_rules *r = s->rules;
    const bool is_object = yyjson_is_obj(v);
    const mf_expr ws = mf_json_space(r);
    mf_expr all = mf_expr_text(r, is_object ? "{" : "[");
    size_t i, n;
    yyjson_val *key, *item;
    all = mf_expr_seq(r, all, ws);
    if (is_object) {
        yyjson_obj_foreach(v, i, n, key, item)
        {
            mf_expr name = mf_json_literal(r, yyjson_get_str(key), yyjson_get_len(key));
            all = mf_expr_seq(r, all, i > 0 ? mf_expr_seq(r, mf_expr_text(r, ","), ws) : 0);
            all =
                mf_expr_seq(r, mf_expr_seq(r, all, name), mf_expr_seq(r, mf_expr_text(r, ":"), ws));
            all = mf_expr_seq(r, all, write_constant(s, item, depth + 1));
        }
    } else {
        yyjson_arr_foreach(v, i, n, item)
        {
            all = mf_expr_seq(r, all, i > 0 ? mf_expr_seq(r, mf_expr_text(r, ","), ws) : 0);
            all = mf_expr_seq(r, all, write_constant(s, item, depth + 1));
        }
    }
    if (n > 0)
        all = mf_expr_seq(r, all, ws);
    return mf_expr_seq(r, all, mf_expr_text(r, is_object ? "}" : "]"));
}

static mf_expr write_constant(mf_schema_reader *s, yyjson_val *v, unsigned depth)
{
    mf_rules *r = s->rules;
    if (depth > MF_MAX_SCHEMA_DEPTH)
        return mf_schema_fail(s, MF_ERR_UNSUPPORTED, "a constant is nested too deep");
    switch (yyjson_get_type(v)) {
    case YYJSON_TYPE_NULL:
        return mf_expr_text(r, "null");
    case YYJSON_TYPE_BOOL:
        return mf_expr_text(r, yyjson_is_true(v) ? "true" : "false");
    case YYJSON_TYPE_RAW:
        return mf_expr_bytes(r, yyjson_get_raw(v), yyjson_get_len(v));
    case YYJSON_TYPE_STR:
        return mf_json_literal(r, yyjson_get_str(v), yyjson_get_len(v));
    default:
        return write_members(s, v, depth);
    }
}

/* ------------------------------------------------------------------------------------- types -- */

enum {
    IS_NULL = 1,
    IS_BOOLEAN = 2,
    IS_INTEGER = 4,
    IS_NUMBER = 8, /* any, whole ones too */
    IS_STRING = 16,
    IS_ARRAY = 32,
    IS_OBJECT = 64,
    IS_ANYTHING = 127
};

static unsigned type_named(yyjson_val *name)
{
    static const char *const names[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    for (unsigned i = 0; i < 7; i++)
        if (yyjson_equals_str(name, names[i]))
            return i == 3 ? IS_NUMBER | IS_INTEGER : 1u << i;
    return 0;
}

/* The types that a schema's "type" allows. */
static unsigned types_of(mf_schema_reader *s, yyjson_val *schema)
{
    yyjson_val *type = yyjson_obj_get(schema, "type"), *item;
    unsigned types = 0;
    size_t i, n;
    if (type == NULL)
        return IS_ANYTHING;
    if (!yyjson_is_arr(type))
        types = type_named(type);
    else
        yyjson_arr_foreach(type, i, n, item)
        {
            const unsigned one = type_named(item);
            if (one == 0) {
                types = 0;
                break;
            }
            types |= one;
        }
    if (types == 0)
        (void)mf_schema_fail(s, MF_ERR_FORMAT,
                             "type: expected null, boolean, integer, number, string, array or "
                             "object, or a list of them");
    return types;
}

/* Without "type" a schema that speaks of objects alone means objects, and so on: what comes out is
 * valid in any case. */
static unsigned types_meant(yyjson_val *schema)
{
    static const struct {
        const char *keyword;
        unsigned type;
    } words[] = {{"properties", IS_OBJECT},
                 {"required", IS_OBJECT},
                 {"additionalProperties", IS_OBJECT},
                 {"patternProperties", IS_OBJECT},
                 {"propertyNames", IS_OBJECT},
                 {"minProperties", IS_OBJECT},
                 {"maxProperties", IS_OBJECT},
                 {"items", IS_ARRAY},
                 {"prefixItems", IS_ARRAY},
                 {"minItems", IS_ARRAY},
                 {"maxItems", IS_ARRAY},
                 {"uniqueItems", IS_ARRAY},
                 {"pattern", IS_STRING},
                 {"format", IS_STRING},
                 {"minLength", IS_STRING},
                 {"maxLength", IS_STRING},
                 {"minimum", IS_NUMBER | IS_INTEGER},
                 {"maximum", IS_NUMBER | IS_INTEGER},
                 {"exclusiveMinimum", IS_NUMBER | IS_INTEGER},
                 {"exclusiveMaximum", IS_NUMBER | IS_INTEGER},
                 {"multipleOf", IS_NUMBER | IS_INTEGER}};
    unsigned types = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (yyjson_obj_get(schema, words[i].keyword) != NULL)
            types |= words[i].type;
    return types != 0 ? types : IS_ANYTHING;
}

/* What it may be, whatever its parts say. */
static unsigned types_at_most(const mf_conjunction *c)
{
    return c->is_name ? IS_STRING : c->is_arguments ? IS_OBJECT : IS_ANYTHING;
}

static unsigned types_of_all(mf_schema_reader *s, const mf_conjunction *c)
{
    unsigned types = types_at_most(c);
    bool has_type = types != IS_ANYTHING;
    for (size_t i = 0; i < c->n; i++) {
        has_type = has_type || yyjson_obj_get(c->parts[i].schema, "type") != NULL;
        types &= types_of(s, c->parts[i].schema);
    }
    for (size_t i = 0; i < c->n && !has_type; i++)
        types &= types_meant(c->parts[i].schema);
    return types;
}

static unsigned type_of_value(yyjson_val *v)
{
    switch (yyjson_get_type(v)) {
    case YYJSON_TYPE_NULL:
        return IS_NULL;
    case YYJSON_TYPE_BOOL:
        return IS_BOOLEAN;
    case YYJSON_TYPE_RAW: {
        const double d = mf_json_raw_number(v);
        return (d < 1e15 && d > -1e15 && d == (double)(long long)d) ||
                       strpbrk(yyjson_get_raw(v), ".eE") == NULL
                   ? IS_INTEGER
                   : IS_NUMBER;
    }
    case YYJSON_TYPE_STR:
        return IS_STRING;
    case YYJSON_TYPE_ARR:
        return IS_ARRAY;
    default:
        return IS_OBJECT;
    }
}

/* Is it one of the constants that a part allows? Those of the part itself need no search: values
 * lie one after another. */
static bool is_among(mf_schema_reader *s, yyjson_val *schema, yyjson_val *v)
{
    yyjson_val *constant = yyjson_obj_get(schema, "const");
    yyjson_val *list = yyjson_obj_get(schema, "enum"), *item;
    size_t i, n;
    if (constant != NULL && !mf_schema_equal(s, constant, v))
        return false;
    if (list == NULL || (v > list && v < unsafe_yyjson_get_next(list)))
        return true;
    yyjson_arr_foreach(list, i, n, item)
    {
        if (mf_schema_equal(s, item, v))
            return true;
    }
    return false;
}

static mf_expr add_constant(mf_schema_reader *s, const mf_conjunction *c, yyjson_val *v,
                            mf_expr all)
{
    unsigned types = types_at_most(c);
    for (size_t i = 0; i < c->n; i++) {
        types &= types_of(s, c->parts[i].schema);
        if (!is_among(s, c->parts[i].schema, v))
            return all;
    }
    if ((types & type_of_value(v)) == 0)
        return all;
    return mf_expr_alt(s->rules, all, write_constant(s, v, 0));
}

mf_expr mf_schema_constant(mf_schema_reader *s, const mf_conjunction *c, yyjson_val *value)
{
    return add_constant(s, c, value, MF_EXPR_NOTHING);
}

/* Strings share what they begin with. */
static mf_expr write_strings(mf_schema_reader *s, yyjson_val *list)
{
    mf_rules *r = s->rules;
    const size_t n = yyjson_arr_size(list);
    size_t n_text = 0, at = 0, i, k;
    yyjson_val *item;
    yyjson_arr_foreach(list, i, k, item)
    {
        n_text += 6 * yyjson_get_len(item) + 1;
    }
    char *text = mf_alloc(&r->allocator, n_text);
    mf_word *words = mf_alloc_array(&r->allocator, n, sizeof *words);
    mf_expr e = MF_EXPR_NOTHING;
    if (text == NULL || words == NULL) {
        mf_rules_fail(r, MF_ERR_NO_MEMORY, "out of memory for a grammar");
    } else {
        yyjson_arr_foreach(list, i, k, item)
        {
            const size_t n_bytes =
                mf_json_escape(yyjson_get_str(item), yyjson_get_len(item), text + at);
            text[at + n_bytes] = '"';
            words[i] = (mf_word){text + at, n_bytes + 1};
            at += n_bytes + 1;
        }
        e = mf_expr_seq(r, mf_expr_text(r, "\""), mf_expr_words(r, words, n));
    }
    mf_free(&r->allocator, text, n_text);
    mf_free(&r->allocator, words, n * sizeof *words);
    return e;
}

static bool are_strings(yyjson_val *list)
{
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(list, i, n, item)
    {
        if (!yyjson_is_str(item))
            return false;
    }
    return true;
}

/* Values that are listed. What else the schemas say of them but the type is refused: it would
 * have to be tried on each. */
static mf_expr read_constants(mf_schema_reader *s, const mf_conjunction *c, yyjson_val *schema)
{
    static const char *const fine[] = {"type",  "enum",  "const", "$ref",
                                       "allOf", "anyOf", "oneOf", NULL};
    yyjson_val *constant = yyjson_obj_get(schema, "const");
    yyjson_val *list = yyjson_obj_get(schema, "enum"), *item;
    mf_expr all = MF_EXPR_NOTHING;
    size_t i, n;
    for (i = 0; i < c->n; i++)
        if (mf_schema_says_more(c->parts[i].schema, fine))
            return mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                                  "%s together with other keywords than type is not supported",
                                  constant != NULL ? "const" : "enum");
    if (constant != NULL)
        return add_constant(s, c, constant, all);
    if (!yyjson_is_arr(list) || yyjson_arr_size(list) == 0)
        return mf_schema_fail(s, MF_ERR_FORMAT, "enum: expected a list of values");
    if (c->n == 1 && are_strings(list) && (types_of(s, schema) & types_at_most(c) & IS_STRING) != 0)
        return write_strings(s, list);
    yyjson_arr_foreach(list, i, n, item)
    {
        all = add_constant(s, c, item, all);
    }
    return all;
}

static mf_expr read_types(mf_schema_reader *s, const mf_conjunction *c)
{
    mf_rules *r = s->rules;
    const unsigned types = types_of_all(s, c);
    mf_expr all = MF_EXPR_NOTHING;
    if (r->status != MF_OK)
        return MF_EXPR_NOTHING;
    if (types & IS_OBJECT)
        all = mf_expr_alt(r, all, mf_schema_object(s, c));
    if (types & IS_ARRAY)
        all = mf_expr_alt(r, all, mf_schema_array(s, c));
    if (types & IS_STRING)
        all = mf_expr_alt(r, all, mf_schema_string(s, c));
    if (types & (IS_NUMBER | IS_INTEGER))
        all = mf_expr_alt(r, all, mf_schema_number(s, c, (types & IS_NUMBER) == 0));
    if (types & IS_BOOLEAN)
        all =
            mf_expr_alt(r, all, mf_expr_alt(r, mf_expr_text(r, "true"), mf_expr_text(r, "false")));
    if (types & IS_NULL)
        all = mf_expr_alt(r, all, mf_expr_text(r, "null"));
    return all;
}

/* ------------------------------------------------------------------------------------ values -- */

static mf_expr read_flat(mf_schema_reader *s, mf_conjunction *c)
{
    const char *name;
    for (size_t i = 0; i < c->n; i++)
        if (yyjson_is_false(c->parts[i].schema))
            return MF_EXPR_NOTHING;
    yyjson_val *list = choose(s, c, &name);
    if (s->rules->status != MF_OK)
        return MF_EXPR_NOTHING;
    drop_spent(c);
    if (list != NULL)
        return read_alternatives(s, c, list, name);
    for (size_t i = 0; i < c->n; i++)
        if (yyjson_obj_get(c->parts[i].schema, "const") != NULL)
            return read_constants(s, c, c->parts[i].schema);
    for (size_t i = 0; i < c->n; i++)
        if (yyjson_obj_get(c->parts[i].schema, "enum") != NULL)
            return read_constants(s, c, c->parts[i].schema);
    static const char *const nothing[] = {"$ref", "allOf", "anyOf", "oneOf", NULL};
    bool says_more = types_at_most(c) != IS_ANYTHING;
    for (size_t i = 0; i < c->n; i++)
        says_more = says_more || mf_schema_says_more(c->parts[i].schema, nothing);
    return says_more ? read_types(s, c) : mf_json_any_value(s->rules);
}

/* The only thing that a conjunction says: a reference, or the only schema of an allOf; NULL. */
static yyjson_val *said_alone(const mf_conjunction *c, const char *keyword)
{
    const char *const but[] = {keyword, NULL};
    if (c->n != 1 || !yyjson_is_obj(c->parts[0].schema) || c->parts[0].has_ref ||
        c->parts[0].has_all || mf_schema_says_more(c->parts[0].schema, but))
        return NULL;
    return yyjson_obj_get(c->parts[0].schema, keyword);
}

static mf_expr read_value(mf_schema_reader *s, const mf_conjunction *c)
{
    mf_conjunction flat = *c;
    yyjson_val *ref = said_alone(c, "$ref"), *all = said_alone(c, "allOf");
    /* a rule is for values of all kinds: where one alone may stand it is read anew */
    if (ref != NULL && types_at_most(c) == IS_ANYTHING &&
        mf_schema_check_keywords(s, c->parts[0].schema)) {
        yyjson_val *target = target_of(s, ref);
        return target == NULL ? MF_EXPR_NOTHING : read_target(s, target);
    }
    if (yyjson_arr_size(all) == 1 && mf_schema_check_keywords(s, c->parts[0].schema)) {
        flat.n = 0; /* a reference may stand in it */
        mf_conjunction_add(s, &flat, yyjson_arr_get_first(all));
        return mf_schema_value(s, &flat, "/allOf/0");
    }
    flatten(s, &flat);
    return s->rules->status == MF_OK ? read_flat(s, &flat) : MF_EXPR_NOTHING;
}

mf_expr mf_schema_value(mf_schema_reader *s, const mf_conjunction *c, const char *name)
{
    const size_t n_path = strlen(s->path);
    if (s->rules->status != MF_OK)
        return MF_EXPR_NOTHING;
    if (name != NULL)
        snprintf(s->path + n_path, sizeof s->path - n_path, "%s", name);
    mf_expr e;
    if (++s->depth > MF_MAX_SCHEMA_DEPTH)
        e = mf_schema_fail(s, MF_ERR_UNSUPPORTED, "schemas are nested more than %d deep",
                           MF_MAX_SCHEMA_DEPTH);
    else if (++s->n_reads > MAX_READS)
        e = mf_schema_fail(s, MF_ERR_UNSUPPORTED, "the schema's alternatives are too many");
    else
        e = read_value(s, c);
    s->depth--;
    s->path[n_path] = '\0';
    return e;
}

/* What calls are made of are objects, also where a schema allows more: {} says nothing of it. */
static mf_expr read_arguments(mf_schema_reader *s, yyjson_val *root)
{
    mf_conjunction c = {.is_arguments = true};
    mf_conjunction_add(s, &c, root);
    return mf_schema_value(s, &c, NULL);
}

mf_expr mf_schema_read(mf_rules *r, const char *text, size_t n_bytes, const char *what,
                       bool is_arguments)
{
    mf_json json = {0};
    mf_expr e = MF_EXPR_NOTHING;
    if (r->status != MF_OK)
        return e;
    mf_status status = mf_json_parse_raw(&r->allocator, what, text, n_bytes, &json, r->error);
    if (status == MF_OK)
        status = mf_json_check_names(&json, r->error);
    if (status == MF_OK) {
        mf_schema_reader s = {.rules = r, .json = &json, .what = what, .is_closed = is_arguments};
        yyjson_val *root = yyjson_doc_get_root(json.doc);
        if (yyjson_is_obj(root) || yyjson_is_bool(root))
            e = is_arguments ? read_arguments(&s, root) : read_target(&s, root);
        else
            (void)mf_schema_fail(&s, MF_ERR_FORMAT, "expected a schema: an object, true or false");
        mf_free(&r->allocator, s.targets, s.target_capacity * sizeof *s.targets);
    } else {
        r->status = status;
    }
    mf_json_free(&json);
    return e;
}

mf_expr mf_schema_any_object(mf_rules *r)
{
    return mf_json_any_object(r);
}
