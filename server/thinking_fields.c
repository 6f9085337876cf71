/* SPDX-License-Identifier: MIT */
/* How much is thought, by all the names that clients have for it, and what templates take beside.
 */
#include "conversation.h"

#include "model.h"

#include <stdio.h>
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

static bool get_switch(yyjson_val *object, const char *name, mf_srv_conversation *c,
                       mf_srv_refusal *r)
{
    bool is_on = false;
    if (!mf_srv_get_bool(object, name, &is_on, r))
        return false;
    if (mf_srv_field_of(object, name))
        c->thinking = is_on ? MF_THINKING_ON : MF_THINKING_OFF;
    return true;
}

/* Which thoughts the model sees again: all, or those that the template shows. */
static bool get_context(yyjson_val *reasoning, mf_srv_conversation *c, mf_srv_refusal *r)
{
    static const char *const words[] = {"auto", "current_turn", "all_turns", NULL};
    int word = 0;
    if (!mf_srv_get_word(reasoning, "reasoning.context", words, &word, r))
        return false;
    c->keeps_thoughts = c->keeps_thoughts || word == 2;
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
    mf_srv_puts(out, out->n_bytes > 0 ? "," : "");
    mf_srv_puts_json(out, yyjson_get_str(key));
    mf_srv_puts(out, ":");
    return mf_srv_put_value(out, value) ||
           mf_srv_refuse(r, 503, "out of memory for the template's variables");
}

static bool get_variables(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *v, *key, *value;
    bool is_on = c->thinking == MF_THINKING_ON;
    size_t i, n;
    if (!mf_srv_get_object(object, "chat_template_kwargs", variables, &v, r) ||
        !mf_srv_get_bool(v, "chat_template_kwargs.enable_thinking", &is_on, r) ||
        !mf_srv_get_bool(v, "chat_template_kwargs.thinking", &is_on, r))
        return false;
    if (mf_srv_field_of(v, "enable_thinking") || mf_srv_field_of(v, "thinking"))
        c->thinking = is_on ? MF_THINKING_ON : MF_THINKING_OFF;
    if (!v) /* the loop would step from it */
        return true;
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
                                          {"block_binding", MF_SRV_FIELD_HARMLESS},
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
        !mf_srv_get_word(v, "thinking.type", words, &word, r) ||
        !mf_srv_get_count(v, "thinking.budget_tokens", 0, INT32_MAX, budget, r))
        return false;
    if (word == 0 || word == 1)
        *out = word == 0 ? MF_THINKING_OFF : MF_THINKING_ON;
    return true;
}

/* ---------------------------------------------------------------------------------- defaults -- */

static bool is_switch(yyjson_val *key)
{
    return yyjson_equals_str(key, "enable_thinking") || yyjson_equals_str(key, "thinking");
}

/* The variables so far, as an object; NULL: no memory for it. */
static yyjson_doc *variables_of(const mf_srv_conversation *c)
{
    mf_srv_bytes text = {0};
    mf_srv_printf(&text, "{%s}", c->variables.data ? c->variables.data : "");
    yyjson_doc *doc = text.has_failed ? NULL : yyjson_read(text.data, text.n_bytes, 0);
    mf_srv_bytes_free(&text);
    return doc;
}

/* The request's own variables have one of that name. */
static bool has_variable(const mf_srv_conversation *c, const char *name)
{
    yyjson_doc *doc = variables_of(c);
    const bool has = yyjson_obj_get(yyjson_doc_get_root(doc), name) != NULL;
    yyjson_doc_free(doc);
    return has;
}

/* By the two switches that published templates have. */
static void keep_thoughts(mf_srv_conversation *c)
{
    static const char *const switches[][2] = {{"preserve_thinking", "true"},
                                              {"clear_thinking", "false"}};
    for (size_t i = 0; c->keeps_thoughts && i < sizeof switches / sizeof *switches; i++)
        if (!has_variable(c, switches[i][0]))
            mf_srv_printf(&c->variables, "%s\"%s\":%s", c->variables.n_bytes > 0 ? "," : "",
                          switches[i][0], switches[i][1]);
}

/* What the variables come to, whoever set them. A template that does not look at them drops
 * thoughts all the same: then they are kept without it (history.h). */
static void find_keeping(mf_srv_conversation *c)
{
    yyjson_doc *doc = variables_of(c);
    yyjson_val *all = yyjson_doc_get_root(doc);
    c->keeps_thoughts = yyjson_is_true(yyjson_obj_get(all, "preserve_thinking")) ||
                        yyjson_is_false(yyjson_obj_get(all, "clear_thinking"));
    yyjson_doc_free(doc);
}

static bool add_defaults(const mf_srv_model *model, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_doc *doc =
        model->variables ? yyjson_read(model->variables, strlen(model->variables), 0) : NULL;
    if (!doc) /* the loop would step from it */
        return true;
    yyjson_val *key, *value;
    size_t i, n;
    bool is_good = true;
    yyjson_obj_foreach(yyjson_doc_get_root(doc), i, n, key, value)
    {
        const char *name = yyjson_get_str(key);
        if (is_switch(key) && c->thinking == MF_THINKING_DEFAULT)
            c->thinking = yyjson_is_true(value) ? MF_THINKING_ON : MF_THINKING_OFF;
        else if (is_good && !is_switch(key) &&
                 !(c->effort && strcmp(name, "reasoning_effort") == 0) && !has_variable(c, name))
            is_good = put_variable(key, value, &c->variables, r);
    }
    yyjson_doc_free(doc);
    return is_good;
}

bool mf_srv_check_variables(const char *json, mf_error *error)
{
    yyjson_doc *doc = yyjson_read(json, strlen(json), 0);
    yyjson_val *root = yyjson_doc_get_root(doc), *key, *value;
    const char *what = yyjson_is_obj(root) ? NULL : "expected NAME=JSON with a value that is JSON";
    size_t i, n;
    if (!what) {
        yyjson_obj_foreach(root, i, n, key, value)
        {
            if (is_switch(key) && !yyjson_is_bool(value))
                what = "enable_thinking and thinking are true or false";
        }
    }
    yyjson_doc_free(doc);
    if (what)
        snprintf(error->message, sizeof error->message, "--set: %s", what);
    return !what;
}

static bool read_thinking(yyjson_val *object, mf_srv_conversation *c, size_t *budget,
                          mf_srv_refusal *r)
{
    static const mf_srv_field fields[] = {
        {"effort", MF_SRV_FIELD_USED},      {"enabled", MF_SRV_FIELD_USED},
        {"max_tokens", MF_SRV_FIELD_USED},  {"exclude", MF_SRV_FIELD_REFUSED},
        {"context", MF_SRV_FIELD_USED},     {"mode", MF_SRV_FIELD_HARMLESS},
        {"summary", MF_SRV_FIELD_HARMLESS}, {"generate_summary", MF_SRV_FIELD_HARMLESS},
        {NULL, MF_SRV_FIELD_USED}};
    yyjson_val *reasoning;
    return mf_srv_get_object(object, "reasoning", fields, &reasoning, r) &&
           get_context(reasoning, c, r) && get_switch(reasoning, "reasoning.enabled", c, r) &&
           mf_srv_get_count(reasoning, "reasoning.max_tokens", 0, INT32_MAX, budget, r) &&
           get_effort(reasoning, "reasoning.effort", c, r) &&
           get_switch(object, "enable_thinking", c, r) &&
           mf_srv_get_count(object, "thinking_budget", 0, INT32_MAX, budget, r) &&
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
    return mf_srv_put_value(&c->documents, documents) ||
           mf_srv_refuse(r, 503, "out of memory for the documents");
}

bool mf_srv_read_thinking(yyjson_val *object, const mf_srv_model *model, mf_srv_conversation *c,
                          size_t *budget, mf_srv_refusal *r)
{
    *budget = SIZE_MAX;
    if (!read_thinking(object, c, budget, r))
        return false;
    if (*budget == SIZE_MAX)
        *budget = model->n_thought_max;
    if (c->thinking == MF_THINKING_DEFAULT)
        c->thinking = model->thinking;
    keep_thoughts(c);
    if (!add_defaults(model, c, r))
        return false;
    find_keeping(c);
    return true;
}
