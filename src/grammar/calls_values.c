/* SPDX-License-Identifier: MIT */
/*
 * Arguments in syntaxes that write values in their own way: bare (Gemma 4: {key:value}, strings
 * between marks), as elements within elements (MiniMax-M3), as Python. Schemas are followed through
 * objects, lists, references and alternatives; numbers are the schema's to the digit, strings those
 * of an enum or any. Each schema is a rule, so that those which refer to themselves end.
 */
#include "grammar/calls.h"

#include <stdio.h>

#define MAX_SHAPES 2000
#define MAX_NAME 256

typedef struct shape {
    yyjson_val *schema;
    uint32_t rule;
} shape;

typedef struct writer {
    mf_schema_reader *schema;
    const mf_vocabulary *vocabulary;
    const mf_reply_form *form;
    mf_reply_arguments style;
    mf_expr text;  /* of a string, without what stands around it */
    uint32_t any;  /* the rule of any value */
    char mark[64]; /* elements: before each tag */
    shape shapes[MAX_SHAPES];
    size_t n_shapes;
} writer;

static mf_expr value_of(writer *w, yyjson_val *schema);

static mf_rules *rules_of(const writer *w)
{
    return w->schema->rules;
}

static mf_expr marked(const writer *w, const char *text)
{
    return mf_expr_marked(rules_of(w), w->vocabulary, text, strlen(text));
}

static mf_expr around(const writer *w, const char *open, mf_expr inside, const char *close)
{
    mf_rules *r = rules_of(w);
    return mf_expr_seq(r, mf_expr_seq(r, marked(w, open), inside), marked(w, close));
}

/* ----------------------------------------------------------------------------------- scalars -- */

/* A string of this text; MF_EXPR_NOTHING: it cannot be written. */
static mf_expr literal(const writer *w, const char *text, size_t n_bytes)
{
    mf_rules *r = rules_of(w);
    if (w->style == MF_REPLY_ARGUMENTS_BARE)
        return around(w, w->form->quote, mf_expr_bytes(r, text, n_bytes), w->form->quote);
    if (w->style == MF_REPLY_ARGUMENTS_ELEMENTS)
        return mf_expr_bytes(r, text, n_bytes);
    return mf_json_literal(r, text, n_bytes);
}

static mf_expr any_string(const writer *w)
{
    if (w->style == MF_REPLY_ARGUMENTS_BARE)
        return around(w, w->form->quote, w->text, w->form->quote);
    return w->style == MF_REPLY_ARGUMENTS_ELEMENTS ? w->text : around(w, "\"", w->text, "\"");
}

/* Of a string of Python, in which escapes are fewer than in JSON. */
static mf_expr python_text(mf_rules *r)
{
    mf_char_range not_plain[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}, plain[5];
    mf_char_range escaped[] = {{'"', '"'}, {'\\', '\\'}, {'n', 'n'}, {'t', 't'}};
    const size_t n = mf_char_ranges_invert(not_plain, 3, plain);
    mf_expr one = mf_expr_seq(r, mf_expr_text(r, "\\"), mf_expr_chars(r, escaped, 4));
    return mf_expr_repeat(r, mf_expr_alt(r, mf_expr_chars(r, plain, n), one), 0, MF_NO_LIMIT);
}

static mf_expr word(const writer *w, const char *json)
{
    static const char *const words[][2] = {{"true", "True"}, {"false", "False"}, {"null", "None"}};
    for (size_t i = 0; i < 3 && w->style == MF_REPLY_ARGUMENTS_PYTHON; i++)
        if (strcmp(json, words[i][0]) == 0)
            json = words[i][1];
    return mf_expr_text(rules_of(w), json);
}

static mf_expr constant(const writer *w, yyjson_val *schema, yyjson_val *v)
{
    mf_conjunction c = {0};
    if (yyjson_is_str(v))
        return literal(w, yyjson_get_str(v), yyjson_get_len(v));
    if (yyjson_is_bool(v) || yyjson_is_null(v))
        return word(w, yyjson_is_null(v) ? "null" : yyjson_get_bool(v) ? "true" : "false");
    if (yyjson_is_ctn(v))
        return mf_schema_fail(w->schema, MF_ERR_UNSUPPORTED,
                              "enum: lists and objects are not supported in this syntax");
    mf_conjunction_add(w->schema, &c, schema);
    return mf_schema_constant(w->schema, &c, v);
}

/* ---------------------------------------------------------------------------- lists, objects -- */

/* A row of items, or none. */
static mf_expr row(const writer *w, mf_expr item, uint32_t min, uint32_t max)
{
    mf_rules *r = rules_of(w);
    const bool is_element = w->style == MF_REPLY_ARGUMENTS_ELEMENTS;
    const char *comma = w->style == MF_REPLY_ARGUMENTS_PYTHON ? ", " : ",";
    if (min > max)
        return MF_EXPR_NOTHING;
    if (max == 0)
        return MF_EXPR_EMPTY;
    if (is_element)
        return mf_expr_repeat(r, item, min, max);
    mf_expr more = mf_expr_repeat(r, mf_expr_seq(r, mf_expr_text(r, comma), item),
                                  min > 0 ? min - 1 : 0, max == MF_NO_LIMIT ? max : max - 1);
    mf_expr all = mf_expr_seq(r, item, more);
    return min == 0 ? mf_expr_optional(r, all) : all;
}

/* A tag's or a key's name can stand in the syntax. */
static bool is_plain_name(const char *name, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
              (name[i] >= '0' && name[i] <= '9') || name[i] == '_' || (name[i] == '-' && i > 0)))
            return false;
    return n_bytes > 0 && n_bytes < MAX_NAME;
}

static mf_expr element(const writer *w, const char *name, mf_expr inside)
{
    char open[MAX_NAME + 80], close[MAX_NAME + 80];
    snprintf(open, sizeof open, "%s<%s>", w->mark, name);
    snprintf(close, sizeof close, "%s</%s>", w->mark, name);
    return around(w, open, inside, close);
}

/* is_top: an argument of the call itself. */
static mf_expr member(const writer *w, const char *name, size_t n_name, mf_expr value, bool is_top)
{
    mf_rules *r = rules_of(w);
    const bool is_plain = is_plain_name(name, n_name);
    const bool is_python = w->style == MF_REPLY_ARGUMENTS_PYTHON;
    if (!is_plain && (w->style == MF_REPLY_ARGUMENTS_ELEMENTS || (is_python && is_top)))
        return mf_schema_fail(w->schema, MF_ERR_UNSUPPORTED,
                              "the property \"%.60s\" cannot be written in this syntax", name);
    if (w->style == MF_REPLY_ARGUMENTS_ELEMENTS)
        return element(w, name, value);
    mf_expr key = is_plain && (is_top || !is_python) ? mf_expr_bytes(r, name, n_name)
                                                     : literal(w, name, n_name);
    const char *behind = !is_python ? ":" : is_top ? "=" : ": ";
    return mf_expr_seq(r, mf_expr_seq(r, key, mf_expr_text(r, behind)), value);
}

/* Objects whose names are free. */
static mf_expr map_of(const writer *w, mf_expr value)
{
    mf_rules *r = rules_of(w);
    mf_char_range first[] = {{'a', 'z'}, {'A', 'Z'}, {'_', '_'}},
                  more[] = {{'a', 'z'}, {'A', 'Z'}, {'_', '_'}, {'0', '9'}};
    mf_expr name = mf_expr_seq(r, mf_expr_chars(r, first, 3),
                               mf_expr_repeat(r, mf_expr_chars(r, more, 4), 0, MF_NO_LIMIT));
    if (w->style == MF_REPLY_ARGUMENTS_PYTHON)
        name = any_string(w);
    const char *behind = w->style == MF_REPLY_ARGUMENTS_PYTHON ? ": " : ":";
    mf_expr one = mf_expr_seq(r, mf_expr_seq(r, name, mf_expr_text(r, behind)), value);
    return around(w, "{", row(w, mf_schema_shared(w->schema, one), 0, MF_NO_LIMIT), "}");
}

/* In the schema's order; of those that may be left out the ones behind them come first then. */
static mf_expr named_members(writer *w, yyjson_val *schema, bool is_top)
{
    mf_rules *r = rules_of(w);
    const bool has_commas = w->style != MF_REPLY_ARGUMENTS_ELEMENTS;
    const char *comma = w->style == MF_REPLY_ARGUMENTS_PYTHON ? ", " : ",";
    yyjson_val *properties = yyjson_obj_get(schema, "properties");
    yyjson_obj_iter at = yyjson_obj_iter_with(properties);
    const size_t n = yyjson_obj_size(properties);
    mf_expr *all = mf_alloc_array(&r->allocator, n + 1, sizeof *all);
    bool *must = mf_alloc_array(&r->allocator, n + 1, sizeof *must);
    mf_expr first = MF_EXPR_EMPTY, more = MF_EXPR_EMPTY;
    const bool has_memory = all != NULL && must != NULL;
    if (!has_memory)
        mf_rules_fail(r, MF_ERR_NO_MEMORY, "out of memory for a grammar");
    for (size_t i = 0; has_memory && i < n && r->status == MF_OK; i++) {
        yyjson_val *name = yyjson_obj_iter_next(&at);
        const mf_expr value = value_of(w, yyjson_obj_iter_get_val(name));
        mf_expr one = member(w, yyjson_get_str(name), yyjson_get_len(name), value, is_top);
        all[i] = mf_schema_shared(w->schema, one);
        must[i] = mf_schema_is_required(w->schema, schema, name);
    }
    for (size_t i = n; has_memory && i-- > 0 && r->status == MF_OK;) {
        mf_expr with = mf_expr_seq(r, all[i], more), behind = with;
        if (has_commas)
            behind = mf_expr_seq(r, mf_expr_text(r, comma), with);
        first = must[i] ? with : mf_expr_alt(r, with, first);
        more = must[i] ? behind : mf_expr_alt(r, behind, more);
        more = mf_schema_shared(w->schema, more);
        first = mf_schema_shared(w->schema, first);
    }
    mf_free(&r->allocator, all, (n + 1) * sizeof *all);
    mf_free(&r->allocator, must, (n + 1) * sizeof *must);
    return first;
}

/* The properties that are named, and no others. */
static mf_expr members(writer *w, yyjson_val *schema, bool is_top)
{
    yyjson_val *properties = yyjson_obj_get(schema, "properties");
    if (properties != NULL && !yyjson_is_obj(properties))
        return mf_schema_fail(w->schema, MF_ERR_FORMAT, "properties: expected an object");
    return named_members(w, schema, is_top);
}

static mf_expr object(writer *w, yyjson_val *schema)
{
    yyjson_val *others = yyjson_obj_get(schema, "additionalProperties");
    mf_conjunction c = {0};
    const bool is_element = w->style == MF_REPLY_ARGUMENTS_ELEMENTS;
    if (yyjson_obj_size(yyjson_obj_get(schema, "properties")) > 0 || yyjson_is_false(others))
        return is_element ? members(w, schema, false)
                          : around(w, "{", members(w, schema, false), "}");
    if (!is_element)
        return map_of(w, value_of(w, others));
    mf_conjunction_add(w->schema, &c, schema); /* names are in no tag then: as JSON */
    return mf_schema_object(w->schema, &c);
}

static mf_expr list(writer *w, yyjson_val *schema)
{
    mf_conjunction c = {0};
    mf_conjunction_add(w->schema, &c, schema);
    const uint32_t min = mf_schema_count(w->schema, &c, "minItems", false, 0);
    const uint32_t max = mf_schema_count(w->schema, &c, "maxItems", true, MF_NO_LIMIT);
    if (yyjson_obj_get(schema, "prefixItems") != NULL ||
        yyjson_is_true(yyjson_obj_get(schema, "uniqueItems")))
        return mf_schema_fail(w->schema, MF_ERR_UNSUPPORTED,
                              "prefixItems and uniqueItems are not supported in this syntax");
    mf_expr item = value_of(w, yyjson_obj_get(schema, "items"));
    if (w->style == MF_REPLY_ARGUMENTS_ELEMENTS)
        return row(w, mf_schema_shared(w->schema, element(w, "item", item)), min, max);
    return around(w, "[", row(w, mf_schema_shared(w->schema, item), min, max), "]");
}

/* ------------------------------------------------------------------------------------ values -- */

static mf_expr any_value(writer *w)
{
    mf_rules *r = rules_of(w);
    if (w->style == MF_REPLY_ARGUMENTS_ELEMENTS)
        return w->text;
    if (w->any != MF_NO_RULE)
        return mf_expr_rule(r, w->any);
    w->any = mf_rules_add(r, NULL, 0);
    const mf_expr self = mf_expr_rule(r, w->any);
    mf_expr all = mf_expr_alt(r, any_string(w), mf_json_any_number(r));
    all = mf_expr_alt(r, all, word(w, "true"));
    all = mf_expr_alt(r, all, word(w, "false"));
    all = mf_expr_alt(r, all, word(w, "null"));
    all = mf_expr_alt(r, all, around(w, "[", row(w, self, 0, MF_NO_LIMIT), "]"));
    all = mf_expr_alt(r, all, map_of(w, self));
    if (r->status == MF_OK)
        mf_rules_define(r, w->any, all);
    return self;
}

static mf_expr of_type(writer *w, yyjson_val *schema, const char *type)
{
    mf_rules *r = rules_of(w);
    mf_conjunction c = {0};
    mf_conjunction_add(w->schema, &c, schema);
    if (strcmp(type, "string") == 0)
        return any_string(w);
    if (strcmp(type, "object") == 0)
        return object(w, schema);
    if (strcmp(type, "array") == 0)
        return list(w, schema);
    if (strcmp(type, "boolean") == 0)
        return mf_expr_alt(r, word(w, "true"), word(w, "false"));
    if (strcmp(type, "null") == 0)
        return word(w, "null");
    if (strcmp(type, "integer") == 0 || strcmp(type, "number") == 0)
        return mf_schema_number(w->schema, &c, *type == 'i');
    return mf_schema_fail(w->schema, MF_ERR_FORMAT, "type: \"%.40s\" is none", type);
}

/* The constants, or the branches; *is_there false: the schema has none. */
static mf_expr alternatives(writer *w, yyjson_val *schema, bool *is_there)
{
    static const char *const lists[] = {"enum", "anyOf", "oneOf", "allOf"};
    mf_rules *r = rules_of(w);
    yyjson_val *one = yyjson_obj_get(schema, "const"), *item;
    size_t i, n;
    *is_there = true;
    if (one != NULL)
        return constant(w, schema, one);
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        yyjson_val *all_of = yyjson_obj_get(schema, lists[k]);
        mf_expr all = MF_EXPR_NOTHING;
        if (!yyjson_is_arr(all_of))
            continue;
        if (k == 3 && yyjson_arr_size(all_of) != 1)
            return mf_schema_fail(w->schema, MF_ERR_UNSUPPORTED,
                                  "allOf of several is not supported in this syntax");
        yyjson_arr_foreach(all_of, i, n, item)
        {
            all = mf_expr_alt(r, all, k == 0 ? constant(w, schema, item) : value_of(w, item));
        }
        return all;
    }
    *is_there = false;
    return MF_EXPR_NOTHING;
}

static mf_expr write_value(writer *w, yyjson_val *schema)
{
    mf_rules *r = rules_of(w);
    yyjson_val *type = yyjson_obj_get(schema, "type"), *item;
    bool is_there;
    size_t i, n;
    if (!mf_schema_check_keywords(w->schema, schema))
        return MF_EXPR_NOTHING;
    mf_expr all = alternatives(w, schema, &is_there);
    if (is_there)
        return all;
    if (yyjson_is_str(type))
        return of_type(w, schema, yyjson_get_str(type));
    if (!yyjson_is_arr(type))
        return yyjson_obj_get(schema, "properties") != NULL ? object(w, schema)
               : yyjson_obj_get(schema, "items") != NULL    ? list(w, schema)
                                                            : any_value(w);
    yyjson_arr_foreach(type, i, n, item)
    {
        all = mf_expr_alt(r, all,
                          of_type(w, schema, yyjson_is_str(item) ? yyjson_get_str(item) : ""));
    }
    return all;
}

static mf_expr value_of(writer *w, yyjson_val *schema)
{
    mf_rules *r = rules_of(w);
    if (r->status != MF_OK || yyjson_is_false(schema))
        return MF_EXPR_NOTHING;
    if (schema == NULL || yyjson_is_true(schema))
        return any_value(w);
    if (!yyjson_is_obj(schema))
        return mf_schema_fail(w->schema, MF_ERR_FORMAT,
                              "expected a schema: an object, true or false");
    schema = mf_schema_follow(w->schema, schema);
    for (size_t i = 0; i < w->n_shapes; i++)
        if (w->shapes[i].schema == schema)
            return mf_expr_rule(r, w->shapes[i].rule);
    if (w->n_shapes == MAX_SHAPES || w->schema->depth == MF_MAX_SCHEMA_DEPTH)
        return mf_schema_fail(w->schema, MF_ERR_UNSUPPORTED, "too many schemas, or too deep");
    const uint32_t rule = mf_rules_add(r, NULL, 0);
    w->shapes[w->n_shapes++] = (shape){schema, rule};
    w->schema->depth++;
    const mf_expr all = write_value(w, schema);
    w->schema->depth--;
    if (r->status != MF_OK)
        return MF_EXPR_NOTHING;
    mf_rules_define(r, rule, all);
    return mf_expr_rule(r, rule);
}

/* What stands around the arguments, and what may stand in a string. */
static mf_expr write_arguments(writer *w, yyjson_val *schema)
{
    mf_rules *r = rules_of(w);
    const char *close = w->form->quote;
    if (w->style == MF_REPLY_ARGUMENTS_ELEMENTS) {
        const size_t n = strlen(w->form->key_open); /* the mark, and "<" */
        if (n < 2 || n > sizeof w->mark)
            return mf_schema_fail(w->schema, MF_ERR_UNSUPPORTED, "the tags have no mark");
        memcpy(w->mark, w->form->key_open, n - 1);
        close = w->mark;
    }
    w->text = w->style == MF_REPLY_ARGUMENTS_PYTHON ? mf_schema_shared(w->schema, python_text(r))
                                                    : mf_expr_text_without(r, close);
    schema = mf_schema_follow(w->schema, schema);
    if (w->style == MF_REPLY_ARGUMENTS_BARE)
        return object(w, schema);
    return members(w, schema, true);
}

mf_expr mf_schema_read_values(mf_rules *r, const mf_vocabulary *v, const mf_reply_form *form,
                              const mf_grammar_tool *tool, const char *what)
{
    mf_json json = {0};
    mf_schema_reader s;
    mf_expr e = MF_EXPR_NOTHING;
    if (!mf_schema_open(&s, r, tool, what, &json))
        return e;
    writer *w = mf_alloc_zeroed(&r->allocator, sizeof *w);
    if (w == NULL) {
        mf_rules_fail(r, MF_ERR_NO_MEMORY, "out of memory for a grammar");
    } else {
        w->schema = &s;
        w->vocabulary = v;
        w->form = form;
        w->style = form->arguments;
        w->any = MF_NO_RULE;
        e = write_arguments(w, json.root);
        mf_free(&r->allocator, w, sizeof *w);
    }
    mf_schema_close(&s, &json);
    return e;
}
