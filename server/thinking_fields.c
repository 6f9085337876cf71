/* SPDX-License-Identifier: MIT */
/* How much is thought, by all the names that clients have for it, and what templates take beside.
 */
#include "conversation.h"

#include <stdlib.h>
#include <string.h>

static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                      "high", "xhigh",   "max", NULL};

static bool get_effort(yyjson_val *object, const char *name, mf_srv_conversation *c,
                       mf_srv_refusal *r)
{
    int word = -1;
    if (!mf_srv_get_word(object, name, efforts, &word, r))
        return false;
    if (word >= 0) {
        c->thinking = word == 0 ? MF_THINKING_OFF : MF_THINKING_ON;
        c->effort = word == 0 ? NULL : efforts[word];
    }
    return true;
}

/* Variables that published templates look at. Others would be ignored in silence. */
static const mf_srv_field variables[] = {
    {"enable_thinking", MF_SRV_FIELD_USED},   {"thinking", MF_SRV_FIELD_USED},
    {"preserve_thinking", MF_SRV_FIELD_USED}, {"clear_thinking", MF_SRV_FIELD_USED},
    {"reasoning_effort", MF_SRV_FIELD_USED},  {"thinking_budget", MF_SRV_FIELD_USED},
    {"model_identity", MF_SRV_FIELD_USED},    {"date_string", MF_SRV_FIELD_USED},
    {"builtin_tools", MF_SRV_FIELD_USED},     {"tools_in_user_message", MF_SRV_FIELD_USED},
    {"add_vision_id", MF_SRV_FIELD_USED},     {NULL, MF_SRV_FIELD_USED}};

static bool put_variable(yyjson_val *key, yyjson_val *value, mf_srv_bytes *out, mf_srv_refusal *r)
{
    size_t n = 0;
    char *text = yyjson_val_write(value, 0, &n);
    if (!text)
        return mf_srv_refuse(r, 503, "out of memory for the template's variables");
    mf_srv_puts(out, out->n_bytes > 0 ? "," : "");
    mf_srv_puts_json(out, yyjson_get_str(key));
    mf_srv_puts(out, ":");
    mf_srv_put(out, text, n);
    free(text);
    return true;
}

static bool get_variables(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    static const mf_srv_field *const tables[] = {variables, NULL};
    yyjson_val *v = mf_srv_field_of(object, "chat_template_kwargs"), *key, *value;
    bool is_on = c->thinking == MF_THINKING_ON;
    size_t i, n;
    if (!v)
        return true;
    if (!yyjson_is_obj(v))
        return mf_srv_refuse_field(r, "chat_template_kwargs", "expected an object");
    if (!mf_srv_check_fields(v, "chat_template_kwargs", tables, r) ||
        !mf_srv_get_bool(v, "enable_thinking", &is_on, r) ||
        !mf_srv_get_bool(v, "thinking", &is_on, r))
        return false;
    if (mf_srv_field_of(v, "enable_thinking") || mf_srv_field_of(v, "thinking"))
        c->thinking = is_on ? MF_THINKING_ON : MF_THINKING_OFF;
    yyjson_obj_foreach(v, i, n, key, value)
    {
        if (!yyjson_is_null(value) && !yyjson_equals_str(key, "enable_thinking") &&
            !yyjson_equals_str(key, "thinking") && !put_variable(key, value, &c->variables, r))
            return false;
    }
    return true;
}

static bool get_thinking_object(yyjson_val *object, mf_thinking *out, size_t *budget,
                                mf_srv_refusal *r)
{
    static const char *const words[] = {"disabled", "enabled", "adaptive", "between_tools", NULL};
    static const mf_srv_field fields[] = {{"type", MF_SRV_FIELD_USED},
                                          {"display", MF_SRV_FIELD_HARMLESS},
                                          {"budget_tokens", MF_SRV_FIELD_USED},
                                          {NULL, MF_SRV_FIELD_USED}};
    static const mf_srv_field *const tables[] = {fields, NULL};
    yyjson_val *v = mf_srv_field_of(object, "thinking");
    int word = -1;
    if (yyjson_is_bool(v)) {
        *out = yyjson_get_bool(v) ? MF_THINKING_ON : MF_THINKING_OFF;
        return true;
    }
    if (v && !yyjson_is_obj(v))
        return mf_srv_refuse_field(r, "thinking", "expected an object");
    if (!mf_srv_check_fields(v, "thinking", tables, r) ||
        !mf_srv_get_word(v, "type", words, &word, r) ||
        !mf_srv_get_count(v, "budget_tokens", 0, INT32_MAX, budget, r))
        return false;
    if (word == 0 || word == 1)
        *out = word == 0 ? MF_THINKING_OFF : MF_THINKING_ON;
    return true;
}

bool mf_srv_read_thinking(yyjson_val *object, mf_srv_conversation *c, size_t *budget,
                          mf_srv_refusal *r)
{
    static const mf_srv_field fields[] = {{"effort", MF_SRV_FIELD_USED},
                                          {"summary", MF_SRV_FIELD_HARMLESS},
                                          {"generate_summary", MF_SRV_FIELD_HARMLESS},
                                          {NULL, MF_SRV_FIELD_USED}};
    static const mf_srv_field *const tables[] = {fields, NULL};
    yyjson_val *reasoning = mf_srv_field_of(object, "reasoning");
    if (reasoning && !yyjson_is_obj(reasoning))
        return mf_srv_refuse_field(r, "reasoning", "expected an object");
    return (!reasoning || (mf_srv_check_fields(reasoning, "reasoning", tables, r) &&
                           get_effort(reasoning, "effort", c, r))) &&
           get_effort(object, "reasoning_effort", c, r) &&
           get_thinking_object(object, &c->thinking, budget, r) && get_variables(object, c, r);
}

bool mf_srv_read_documents(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *documents = mf_srv_field_of(object, "documents"), *document;
    size_t i, n;
    if (!documents)
        return true;
    if (!yyjson_is_arr(documents))
        return mf_srv_refuse_field(r, "documents", "expected an array of objects");
    yyjson_arr_foreach(documents, i, n, document)
    {
        if (!yyjson_is_obj(document))
            return mf_srv_refuse_field(r, "documents", "expected an array of objects");
    }
    char *text = yyjson_val_write(documents, 0, &n);
    if (!text)
        return mf_srv_refuse(r, 503, "out of memory for the documents");
    mf_srv_put(&c->documents, text, n);
    free(text);
    return true;
}
