/* SPDX-License-Identifier: MIT */
/* Tools as clients write them: {"function": {...}}, or the function itself. */
#include "text/reply/reply_tools.h"

#include <string.h>

mf_status mf_reply_tools_read(const mf_allocator *a, const char *text, mf_reply_tools *out,
                              mf_error *error)
{
    mf_json json = {0};
    size_t i, n;
    yyjson_val *item;
    if (text == NULL)
        return MF_OK;
    MF_TRY(mf_json_parse_exact(a, "tools", text, strlen(text), &json, error));
    mf_status status = yyjson_is_arr(json.root)
                           ? MF_OK
                           : mf_fail(error, MF_ERR_FORMAT, "tools: expected an array");
    yyjson_arr_foreach(json.root, i, n, item)
    {
        if (status == MF_OK && !yyjson_is_obj(item))
            status = mf_fail(error, MF_ERR_FORMAT, "tools: item %zu: expected an object", i);
    }
    if (status != MF_OK) {
        mf_json_free(&json);
        return status;
    }
    out->json = json;
    return MF_OK;
}

void mf_reply_tools_free(mf_reply_tools *tools)
{
    mf_json_free(&tools->json);
}

static yyjson_val *function_of(yyjson_val *tool)
{
    yyjson_val *function = yyjson_obj_get(tool, "function");
    return yyjson_is_obj(function) ? function : tool;
}

static yyjson_val *find(const mf_reply_tools *tools, const char *name, size_t n_bytes)
{
    size_t i, n;
    yyjson_val *item;
    if (tools->json.doc == NULL)
        return NULL;
    yyjson_arr_foreach(tools->json.root, i, n, item)
    {
        yyjson_val *function = function_of(item);
        if (yyjson_equals_strn(yyjson_obj_get(function, "name"), name, n_bytes))
            return function;
    }
    return NULL;
}

bool mf_reply_tools_has(const mf_reply_tools *tools, const char *name, size_t n_bytes)
{
    return find(tools, name, n_bytes) != NULL;
}

/* ------------------------------------------------------------------------------------- types -- */

/* Schemas that are looked at for one argument: a schema may refer to itself. */
#define MAX_SCHEMAS 256

static unsigned type_of_name(yyjson_val *name)
{
    static const struct {
        const char *name;
        unsigned types;
    } known[] = {{"string", MF_TYPE_STRING}, {"integer", MF_TYPE_NUMBER},
                 {"number", MF_TYPE_NUMBER}, {"boolean", MF_TYPE_BOOLEAN},
                 {"null", MF_TYPE_NULL},     {"object", MF_TYPE_OBJECT},
                 {"array", MF_TYPE_ARRAY},   {"any", MF_TYPE_ANY}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (yyjson_equals_str(name, known[i].name))
            return known[i].types;
    return 0;
}

static unsigned type_of_value(yyjson_val *value)
{
    switch (yyjson_get_type(value)) {
    case YYJSON_TYPE_NULL:
        return MF_TYPE_NULL;
    case YYJSON_TYPE_BOOL:
        return MF_TYPE_BOOLEAN;
    case YYJSON_TYPE_STR:
        return MF_TYPE_STRING;
    case YYJSON_TYPE_ARR:
        return MF_TYPE_ARRAY;
    case YYJSON_TYPE_OBJ:
        return MF_TYPE_OBJECT;
    default:
        return MF_TYPE_NUMBER;
    }
}

/* All types of a list, each found by `one`. */
static unsigned types_of_list(yyjson_val *list, unsigned (*one)(yyjson_val *))
{
    size_t i, n;
    yyjson_val *item;
    unsigned types = 0;
    yyjson_arr_foreach(list, i, n, item)
    {
        types |= one(item);
    }
    return types;
}

/* "#/$defs/name" and its like within the tool's parameters. */
static yyjson_val *follow(yyjson_val *root, yyjson_val *schema)
{
    const char *ref = yyjson_get_str(yyjson_obj_get(schema, "$ref"));
    return ref == NULL || ref[0] != '#' ? NULL : yyjson_ptr_get(root, ref + 1);
}

static unsigned types_of(yyjson_val *root, yyjson_val *schema, unsigned *n_left)
{
    static const char *const several[] = {"anyOf", "oneOf", "allOf"};
    size_t i, n;
    yyjson_val *item, *type = yyjson_obj_get(schema, "type");
    yyjson_val *constant = yyjson_obj_get(schema, "const");
    unsigned types = yyjson_is_str(type) ? type_of_name(type) : types_of_list(type, type_of_name);
    if (types != 0 || *n_left == 0)
        return types;
    --*n_left;
    types = types_of_list(yyjson_obj_get(schema, "enum"), type_of_value);
    if (constant != NULL)
        types |= type_of_value(constant);
    for (size_t k = 0; k < sizeof several / sizeof *several; k++) {
        yyjson_arr_foreach(yyjson_obj_get(schema, several[k]), i, n, item)
        {
            types |= types_of(root, item, n_left);
        }
    }
    if (yyjson_obj_get(schema, "properties") != NULL)
        types |= MF_TYPE_OBJECT;
    if (yyjson_obj_get(schema, "items") != NULL)
        types |= MF_TYPE_ARRAY;
    yyjson_val *target = follow(root, schema);
    return target == NULL ? types : types | types_of(root, target, n_left);
}

unsigned mf_reply_schema_types(mf_reply_schema schema)
{
    unsigned n_left = MAX_SCHEMAS;
    return schema.schema == NULL ? 0 : types_of(schema.root, schema.schema, &n_left);
}

mf_reply_schema mf_reply_tools_schema(const mf_reply_tools *tools, const char *name, size_t n_name,
                                      const char *key, size_t n_key)
{
    static const char *const schemas[] = {"parameters", "input_schema"};
    yyjson_val *tool = find(tools, name, n_name);
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        yyjson_val *root = yyjson_obj_get(tool, schemas[i]);
        yyjson_val *schema = yyjson_obj_getn(yyjson_obj_get(root, "properties"), key, n_key);
        if (schema != NULL)
            return (mf_reply_schema){root, schema};
    }
    return (mf_reply_schema){NULL, NULL};
}

static yyjson_val *child_of(yyjson_val *root, yyjson_val *schema, const char *key, size_t n_key,
                            unsigned *n_left)
{
    static const char *const several[] = {"anyOf", "oneOf", "allOf"};
    size_t i, n;
    yyjson_val *item;
    yyjson_val *child = key == NULL
                            ? yyjson_obj_get(schema, "items")
                            : yyjson_obj_getn(yyjson_obj_get(schema, "properties"), key, n_key);
    if (child != NULL || schema == NULL || *n_left == 0)
        return child;
    --*n_left;
    for (size_t k = 0; k < sizeof several / sizeof *several; k++) {
        yyjson_arr_foreach(yyjson_obj_get(schema, several[k]), i, n, item)
        {
            child = child == NULL ? child_of(root, item, key, n_key, n_left) : child;
        }
    }
    return child != NULL ? child : child_of(root, follow(root, schema), key, n_key, n_left);
}

mf_reply_schema mf_reply_schema_child(mf_reply_schema schema, const char *key, size_t n_key)
{
    unsigned n_left = MAX_SCHEMAS;
    return (mf_reply_schema){schema.root,
                             child_of(schema.root, schema.schema, key, n_key, &n_left)};
}

unsigned mf_reply_tools_types(const mf_reply_tools *tools, const char *name, size_t n_name,
                              const char *key, size_t n_key)
{
    return mf_reply_schema_types(mf_reply_tools_schema(tools, name, n_name, key, n_key));
}
