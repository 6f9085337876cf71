/* SPDX-License-Identifier: MIT */
/* Items with ids. */
#include "conversation_items.h"

#include "job.h"

#include <string.h>

static bool is_message(yyjson_val *item)
{
    yyjson_val *type = yyjson_obj_get(item, "type");
    return !type || yyjson_is_null(type) || yyjson_equals_str(type, "message");
}

/* What an id of such an item begins with. */
static const char *prefix_of(yyjson_val *item)
{
    static const char *const prefixes[][2] = {{"reasoning", "rs_"},
                                              {"function_call", "fc_"},
                                              {"function_call_output", "fco_"},
                                              {"custom_tool_call", "ctc_"},
                                              {"custom_tool_call_output", "ctco_"}};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (yyjson_equals_str(yyjson_obj_get(item, "type"), prefixes[i][0]))
            return prefixes[i][1];
    return is_message(item) ? "msg_" : "item_";
}

/* A text as the one part of a message. */
static void put_part(yyjson_val *text, bool is_answer, mf_srv_bytes *out)
{
    mf_srv_puts(out, is_answer ? "[{\"type\":\"output_text\",\"annotations\":[],\"text\":"
                               : "[{\"type\":\"input_text\",\"text\":");
    mf_srv_put_json(out, yyjson_get_str(text), yyjson_get_len(text));
    mf_srv_puts(out, "}]");
}

static bool put_member(yyjson_val *key, yyjson_val *value, yyjson_val *item, mf_srv_bytes *out)
{
    const bool is_answer = yyjson_equals_str(yyjson_obj_get(item, "role"), "assistant");
    mf_srv_puts(out, ",");
    mf_srv_put_json(out, yyjson_get_str(key), yyjson_get_len(key));
    mf_srv_puts(out, ":");
    if (!is_message(item) || !yyjson_equals_str(key, "content") || !yyjson_is_str(value))
        return mf_srv_put_value(out, value);
    put_part(value, is_answer, out);
    return !out->has_failed;
}

bool mf_srv_put_item(yyjson_val *item, mf_srv_bytes *out)
{
    char made[MF_SRV_ID_BYTES];
    size_t i, n;
    yyjson_val *key, *value, *id = yyjson_obj_get(item, "id");
    if (!yyjson_is_obj(item))
        return mf_srv_put_value(out, item);
    mf_srv_make_id(made, prefix_of(item));
    mf_srv_puts(out, "{\"id\":");
    if (yyjson_is_str(id) && yyjson_get_len(id) > 0)
        mf_srv_put_json(out, yyjson_get_str(id), yyjson_get_len(id));
    else
        mf_srv_puts_json(out, made);
    if (is_message(item)) {
        mf_srv_puts(out, ",\"type\":\"message\"");
        if (!yyjson_obj_get(item, "status"))
            mf_srv_puts(out, ",\"status\":\"completed\"");
    }
    yyjson_obj_foreach(item, i, n, key, value)
    {
        const bool is_there =
            yyjson_equals_str(key, "id") || (is_message(item) && yyjson_equals_str(key, "type"));
        if (!is_there && !put_member(key, value, item, out))
            return false;
    }
    mf_srv_puts(out, "}");
    return !out->has_failed;
}

bool mf_srv_put_user_item(yyjson_val *text, mf_srv_bytes *out)
{
    char made[MF_SRV_ID_BYTES];
    mf_srv_make_id(made, "msg_");
    mf_srv_printf(out,
                  "{\"id\":\"%s\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\","
                  "\"content\":",
                  made);
    put_part(text, false, out);
    mf_srv_puts(out, "}");
    return !out->has_failed;
}

yyjson_doc *mf_srv_parse_items(const mf_srv_bytes *text)
{
    mf_srv_bytes array = {0};
    mf_srv_puts(&array, "[");
    mf_srv_put(&array, text->data ? text->data : "", text->n_bytes);
    mf_srv_puts(&array, "]");
    yyjson_doc *doc = array.has_failed ? NULL : yyjson_read(array.data, array.n_bytes, 0);
    mf_srv_bytes_free(&array);
    return doc;
}
