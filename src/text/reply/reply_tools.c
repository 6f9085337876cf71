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
