/* SPDX-License-Identifier: MIT */
/*
 * Tools as the APIs name them, brought into the form that templates know:
 * {"type":"function","function":{"name","description","parameters"}}, in this order whatever the
 * client's, so that the same tools are the same prompt.
 */
#include "conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOOLS 1024
/* With those of groups, and those that are said again in the middle of a conversation. */
#define MAX_ALL_TOOLS 4096
#define MAX_NAME_BYTES 256

static bool refuse_unsupported(mf_srv_refusal *r, const char *field, const char *what)
{
    mf_srv_refuse_field(r, field, "%s", what);
    r->code = "unsupported_parameter";
    return false;
}

static bool put_value(yyjson_val *value, mf_srv_bytes *out, mf_srv_refusal *r)
{
    return mf_srv_put_value(out, value) || mf_srv_refuse(r, 503, "out of memory for the tools");
}

static bool is_named(const mf_srv_conversation *c, const char *name)
{
    const mf_srv_bytes *all = &c->names;
    for (size_t at = 0; at < all->n_bytes; at += strlen(all->data + at) + 1)
        if (strcmp(all->data + at, name) == 0)
            return true;
    return false;
}

/* Whether a tool of the list that is in no group has that name: it keeps it, wherever it stands. */
static bool is_plain(yyjson_val *list, const char *name)
{
    size_t i, n;
    yyjson_val *tool;
    yyjson_arr_foreach(list, i, n, tool)
    {
        if (yyjson_equals_str(yyjson_obj_get(tool, "name"), name) &&
            (yyjson_equals_str(yyjson_obj_get(tool, "type"), "function") ||
             yyjson_equals_str(yyjson_obj_get(tool, "type"), "custom")))
            return true;
    }
    return false;
}

/* The beginning of a tool up to its name, with its group's where another one has that name. space:
 * the group; NULL: none. */
static void begin_tool(const char *name, const char *space, mf_srv_conversation *c)
{
    mf_srv_bytes *out = &c->tools, shown = {0};
    const bool is_taken = space && (is_plain(c->listed, name) || is_named(c, name));
    mf_srv_printf(&shown, "%s%s%s", is_taken ? space : "", is_taken ? "__" : "", name);
    c->last_name = c->names.n_bytes;
    mf_srv_put(&c->names, shown.data ? shown.data : "", shown.n_bytes + (shown.data != NULL));
    mf_srv_puts(out, out->n_bytes > 1 ? "," : "");
    mf_srv_puts(out, "{\"type\":\"function\",\"function\":{\"name\":");
    mf_srv_puts_json(out, shown.data ? shown.data : "");
    out->has_failed = out->has_failed || shown.has_failed || c->names.has_failed;
    mf_srv_bytes_free(&shown);
}

/* A name that every syntax of calls writes as it is and reads as it was. */
static bool check_name(yyjson_val *name, const char *place, mf_srv_refusal *r)
{
    char field[MF_SRV_PARAM_BYTES];
    snprintf(field, sizeof field, "%.60s.name", place);
    if (!mf_srv_is_text(name, field, r))
        return false;
    if (yyjson_get_len(name) == 0 || yyjson_get_len(name) > MAX_NAME_BYTES)
        return mf_srv_refuse_field(r, field, "expected 1 to %d bytes", MAX_NAME_BYTES);
    for (const char *s = yyjson_get_str(name); *s; s++)
        if ((unsigned char)*s < 0x20 || strchr("\"\\<>", *s))
            return mf_srv_refuse_field(r, field,
                                       "expected no quotes, backslashes, < and >, nor control "
                                       "characters");
    return true;
}

/* schema: the member with the parameters. place: of the object. space: its group; NULL: none. */
static bool put_function(yyjson_val *function, const char *schema, const char *place,
                         const char *space, mf_srv_conversation *c, mf_srv_refusal *r)
{
    mf_srv_bytes *out = &c->tools;
    char field[MF_SRV_PARAM_BYTES];
    yyjson_val *name = yyjson_obj_get(function, "name");
    yyjson_val *about = mf_srv_field_of(function, "description");
    yyjson_val *parameters = mf_srv_field_of(function, schema);
    bool is_strict = false;
    snprintf(field, sizeof field, "%.60s.strict", place);
    if (!check_name(name, place, r) || !mf_srv_get_bool(function, field, &is_strict, r))
        return false;
    snprintf(field, sizeof field, "%.60s.description", place);
    if (about && !mf_srv_is_text(about, field, r))
        return false;
    snprintf(field, sizeof field, "%.60s.%s", place, schema);
    if (parameters && !yyjson_is_obj(parameters))
        return mf_srv_refuse_field(r, field, "expected an object");
    begin_tool(yyjson_get_str(name), space, c);
    if (about) {
        mf_srv_puts(out, ",\"description\":");
        mf_srv_puts_json(out, yyjson_get_str(about));
    }
    mf_srv_puts(out, ",\"parameters\":");
    if (!parameters)
        mf_srv_puts(out, "{\"type\":\"object\",\"properties\":{}}");
    bool is_good = !parameters || put_value(parameters, out, r);
    mf_srv_puts(out, "}}");
    mf_srv_puts(&c->strict, is_strict ? "1" : "0");
    return is_good;
}

/* Fields of a function, whatever the API calls them; null in both tables: none. */
static const mf_srv_field function_fields[] = {
    {"type", MF_SRV_FIELD_USED},        {"name", MF_SRV_FIELD_USED},
    {"description", MF_SRV_FIELD_USED}, {"parameters", MF_SRV_FIELD_USED},
    {"strict", MF_SRV_FIELD_USED},      {NULL, MF_SRV_FIELD_USED}};
static const mf_srv_field flat_fields[] = {{"type", MF_SRV_FIELD_USED},
                                           {"name", MF_SRV_FIELD_USED},
                                           {"description", MF_SRV_FIELD_USED},
                                           {"parameters", MF_SRV_FIELD_USED},
                                           {"strict", MF_SRV_FIELD_USED},
                                           {"defer_loading", MF_SRV_FIELD_HARMLESS},
                                           {"allowed_callers", MF_SRV_FIELD_HARMLESS},
                                           {"output_schema", MF_SRV_FIELD_HARMLESS},
                                           {NULL, MF_SRV_FIELD_USED}};
static const mf_srv_field custom_fields[] = {{"type", MF_SRV_FIELD_USED},
                                             {"name", MF_SRV_FIELD_USED},
                                             {"description", MF_SRV_FIELD_USED},
                                             {"format", MF_SRV_FIELD_HARMLESS},
                                             {"defer_loading", MF_SRV_FIELD_HARMLESS},
                                             {"allowed_callers", MF_SRV_FIELD_HARMLESS},
                                             {NULL, MF_SRV_FIELD_USED}};
static const mf_srv_field chat_fields[] = {{"type", MF_SRV_FIELD_USED},
                                           {"function", MF_SRV_FIELD_USED},
                                           {"cache_control", MF_SRV_FIELD_HARMLESS},
                                           {NULL, MF_SRV_FIELD_USED}};
static const mf_srv_field chat_custom_fields[] = {
    {"type", MF_SRV_FIELD_USED}, {"custom", MF_SRV_FIELD_USED}, {NULL, MF_SRV_FIELD_USED}};
static const mf_srv_field anthropic_fields[] = {{"type", MF_SRV_FIELD_USED},
                                                {"name", MF_SRV_FIELD_USED},
                                                {"description", MF_SRV_FIELD_USED},
                                                {"input_schema", MF_SRV_FIELD_USED},
                                                {"strict", MF_SRV_FIELD_USED},
                                                {"cache_control", MF_SRV_FIELD_HARMLESS},
                                                {"defer_loading", MF_SRV_FIELD_HARMLESS},
                                                {"eager_input_streaming", MF_SRV_FIELD_HARMLESS},
                                                {"allowed_callers", MF_SRV_FIELD_HARMLESS},
                                                {"input_examples", MF_SRV_FIELD_HARMLESS},
                                                {NULL, MF_SRV_FIELD_USED}};

/* One tool of an API; what the API's own servers would run is left out, and no harm. */
typedef bool (*read_fn)(yyjson_val *tool, const char *place, mf_srv_conversation *c,
                        mf_srv_refusal *r);

/* What is remembered of it beside what the template gets. */
static bool add_odd(mf_srv_conversation *c, yyjson_val *name, const char *space, bool is_custom,
                    mf_srv_refusal *r)
{
    if (c->odd.n == MAX_ALL_TOOLS) /* all are looked at for each call of the history */
        return mf_srv_refuse_field(r, "tools", "more than %d custom tools and tools of groups",
                                   MAX_ALL_TOOLS);
    mf_srv_odd_tool *list =
        c->names.has_failed ? NULL : realloc(c->odd.list, (c->odd.n + 1) * sizeof *list);
    if (!list)
        return mf_srv_refuse(r, 503, "out of memory for the tools");
    c->odd.list = list;
    const char *own = yyjson_get_str(name), *shown = c->names.data + c->last_name;
    const bool is_own = strcmp(own, shown) == 0;
    mf_srv_odd_tool *tool = &list[c->odd.n++];
    *tool = (mf_srv_odd_tool){.name = strdup(shown),
                              .own = is_own ? NULL : strdup(own),
                              .space = space ? strdup(space) : NULL,
                              .is_custom = is_custom};
    return (tool->name && (tool->own || is_own) && (tool->space || !space)) ||
           mf_srv_refuse(r, 503, "out of memory for the tools");
}

/* One that takes a text: to the model a function with one parameter. */
static bool put_custom(yyjson_val *tool, const char *place, const char *space,
                       mf_srv_conversation *c, mf_srv_refusal *r)
{
    char field[MF_SRV_PARAM_BYTES];
    yyjson_val *name = yyjson_obj_get(tool, "name"), *about = mf_srv_field_of(tool, "description");
    mf_srv_bytes *out = &c->tools;
    if (!check_name(name, place, r))
        return false;
    snprintf(field, sizeof field, "%.60s.description", place);
    if (about && !mf_srv_is_text(about, field, r))
        return false;
    begin_tool(yyjson_get_str(name), space, c);
    mf_srv_puts(out, ",\"description\":");
    mf_srv_puts_json(out, about ? yyjson_get_str(about) : "");
    mf_srv_puts(out, ",\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":{\"type\":"
                     "\"string\"}},\"required\":[\"input\"]}}}");
    mf_srv_puts(&c->strict, "0");
    return true;
}

static bool read_chat_tool(yyjson_val *tool, const char *place, mf_srv_conversation *c,
                           mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    yyjson_val *function = yyjson_obj_get(tool, "function");
    yyjson_val *custom = yyjson_obj_get(tool, "custom");
    if (!yyjson_is_obj(tool))
        return mf_srv_refuse_field(r, place, "expected an object");
    if (yyjson_equals_str(yyjson_obj_get(tool, "type"), "custom")) {
        snprintf(name, sizeof name, "%.70s.custom", place);
        return mf_srv_check_object(tool, place, chat_custom_fields, r) &&
               mf_srv_check_object(custom, name, custom_fields, r) &&
               put_custom(custom, name, NULL, c, r) &&
               add_odd(c, yyjson_obj_get(custom, "name"), NULL, true, r);
    }
    snprintf(name, sizeof name, "%.70s.type", place);
    if (!yyjson_equals_str(yyjson_obj_get(tool, "type"), "function"))
        return refuse_unsupported(r, name,
                                  "only the types 'function' and 'custom' are supported by this "
                                  "server");
    snprintf(name, sizeof name, "%.70s.function", place);
    return mf_srv_check_object(tool, place, chat_fields, r) &&
           mf_srv_check_object(function, name, function_fields, r) &&
           put_function(function, "parameters", name, NULL, c, r);
}

/* Types of tools that OpenAI's own servers run, or that only its own models know. */
static bool is_hosted(const char *type)
{
    static const char *const hosted[] = {"web_search",
                                         "file_search",
                                         "code_interpreter",
                                         "image_generation",
                                         "tool_search",
                                         "local_shell",
                                         "shell",
                                         "computer",
                                         "mcp",
                                         "apply_patch"};
    for (size_t i = 0; i < sizeof hosted / sizeof *hosted; i++)
        if (strncmp(type, hosted[i], strlen(hosted[i])) == 0)
            return true;
    return false;
}

/* A tool, of a group or not. */
static bool read_flat_tool(yyjson_val *tool, const char *place, const char *space,
                           mf_srv_conversation *c, mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    yyjson_val *kind = yyjson_obj_get(tool, "type");
    const char *type = yyjson_get_str(kind);
    const bool is_custom = yyjson_equals_str(kind, "custom");
    snprintf(name, sizeof name, "%.70s.type", place);
    if (type && !mf_srv_is_text(kind, name, r))
        return false;
    if (type && is_hosted(type))
        return true;
    if (!is_custom && (!type || strcmp(type, "function") != 0))
        return refuse_unsupported(r, name, "expected 'function', 'custom' or 'namespace'");
    bool is_good = mf_srv_check_object(tool, place, is_custom ? custom_fields : flat_fields, r) &&
                   (is_custom ? put_custom(tool, place, space, c, r)
                              : put_function(tool, "parameters", place, space, c, r));
    return is_good && ((!is_custom && !space) ||
                       add_odd(c, yyjson_obj_get(tool, "name"), space, is_custom, r));
}

/* A tool, or a group of them: the model sees them by their own names. */
static bool read_responses_tool(yyjson_val *tool, const char *place, mf_srv_conversation *c,
                                mf_srv_refusal *r)
{
    char inner[MF_SRV_PARAM_BYTES];
    yyjson_val *space = yyjson_obj_get(tool, "name"), *item;
    size_t i, n;
    if (!yyjson_equals_str(yyjson_obj_get(tool, "type"), "namespace"))
        return read_flat_tool(tool, place, NULL, c, r);
    if (!check_name(space, place, r))
        return false;
    yyjson_arr_foreach(yyjson_obj_get(tool, "tools"), i, n, item)
    {
        snprintf(inner, sizeof inner, "%.60s.tools[%zu]", place, i);
        if (c->strict.n_bytes >= MAX_ALL_TOOLS) /* one for each; their names are compared */
            return mf_srv_refuse_field(r, inner, "more than %d tools", MAX_ALL_TOOLS);
        if (!read_flat_tool(item, inner, yyjson_get_str(space), c, r))
            return false;
    }
    return true;
}

/* Tools that clients run and of which Anthropic's models know the schema by a type with a date:
 * here the model is told of it. */
static const struct {
    const char *type; /* its beginning */
    const char *about, *parameters;
} client_tools[] = {
    {"bash_",
     "Runs a command in a shell that stays open between calls, and returns what it prints.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"description\":\"What "
     "to "
     "run; needed unless the shell is "
     "restarted\"},\"restart\":{\"type\":\"boolean\",\"description\":"
     "\"Start the shell anew\"}}}"},
    {"text_editor_", "Views, creates and edits text files.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"enum\":[\"view\","
     "\"create\",\"str_replace\",\"insert\"]},\"path\":{\"type\":\"string\",\"description\":\"Of a "
     "file; "
     "view takes a directory, "
     "too\"},\"view_range\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},"
     "\"description\":\"Of view: the first line and the last; -1: the file's "
     "last\"},\"file_text\":{"
     "\"type\":\"string\",\"description\":\"Of "
     "create\"},\"old_str\":{\"type\":\"string\",\"description\":"
     "\"Of str_replace: a text that is there exactly once\"},\"new_str\":{\"type\":\"string\","
     "\"description\":\"Of str_replace and insert: what stands there "
     "then\"},\"insert_line\":{\"type\":"
     "\"integer\",\"description\":\"Of insert: the line behind which; 0: the "
     "beginning\"},\"insert_text\":"
     "{\"type\":\"string\",\"description\":\"Of insert: the same as new_str\"}},\"required\":["
     "\"command\",\"path\"]}"},
    {"memory_", "Keeps notes in files below /memories, from one conversation to the next.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"enum\":[\"view\","
     "\"create\",\"str_replace\",\"insert\",\"delete\",\"rename\"]},\"path\":{\"type\":\"string\","
     "\"description\":\"Of all but "
     "rename\"},\"view_range\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"integer\"}},\"file_text\":{\"type\":\"string\"},\"old_str\":{\"type\":\"string\"},\"new_"
     "str\":{"
     "\"type\":\"string\"},\"insert_line\":{\"type\":\"integer\"},\"insert_text\":{\"type\":"
     "\"string\"},"
     "\"old_path\":{\"type\":\"string\",\"description\":\"Of rename\"},\"new_path\":{\"type\":"
     "\"string\",\"description\":\"Of rename\"}},\"required\":[\"command\"]}"}};

static bool put_client_tool(yyjson_val *tool, size_t which, const char *place,
                            mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *name = yyjson_obj_get(tool, "name");
    mf_srv_bytes *out = &c->tools;
    if (!check_name(name, place, r))
        return false;
    begin_tool(yyjson_get_str(name), NULL, c);
    mf_srv_puts(out, ",\"description\":");
    mf_srv_puts_json(out, client_tools[which].about);
    mf_srv_printf(out, ",\"parameters\":%s}}", client_tools[which].parameters);
    mf_srv_puts(&c->strict, "0");
    return true;
}

/* What Anthropic's own servers run is left out, and what wants to see a screen. */
static bool read_anthropic_tool(yyjson_val *tool, const char *place, mf_srv_conversation *c,
                                mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    yyjson_val *kind = mf_srv_field_of(tool, "type");
    const char *type = yyjson_get_str(kind);
    const size_t n = sizeof client_tools / sizeof *client_tools;
    snprintf(name, sizeof name, "%.70s.type", place);
    if (type && !mf_srv_is_text(kind, name, r))
        return false;
    if (!type || strcmp(type, "custom") == 0)
        return mf_srv_check_object(tool, place, anthropic_fields, r) &&
               put_function(tool, "input_schema", place, NULL, c, r);
    for (size_t i = 0; i < n; i++)
        if (strncmp(type, client_tools[i].type, strlen(client_tools[i].type)) == 0)
            return put_client_tool(tool, i, place, c, r);
    return true;
}

/* Whether the one tool that was added behind n_before bytes of names has that of another. */
static bool is_repeated(const mf_srv_conversation *c, size_t n_before)
{
    const mf_srv_bytes *all = &c->names;
    if (all->has_failed || c->last_name != n_before || n_before >= all->n_bytes)
        return false;
    for (size_t at = 0; at < n_before; at += strlen(all->data + at) + 1)
        if (strcmp(all->data + at, all->data + n_before) == 0)
            return true;
    return false;
}

/* A list of tools, behind those that there are; place: what the request calls it. may_repeat: as
 * clients do that say their tools again in the middle of a conversation. */
static bool add_tools(yyjson_val *tools, const char *where, bool may_repeat, read_fn read,
                      mf_srv_conversation *c, mf_srv_refusal *r)
{
    char place[MF_SRV_PARAM_BYTES];
    yyjson_val *tool;
    size_t i, n;
    if (!tools || (yyjson_is_arr(tools) && yyjson_arr_size(tools) == 0))
        return true;
    if (!yyjson_is_arr(tools) || yyjson_arr_size(tools) > MAX_TOOLS)
        return mf_srv_refuse_field(r, where, "expected an array of at most %d tools", MAX_TOOLS);
    if (!c->tools.data)
        mf_srv_puts(&c->tools, "[");
    c->listed = tools;
    yyjson_arr_foreach(tools, i, n, tool)
    {
        const size_t n_before = c->names.n_bytes;
        snprintf(place, sizeof place, "%.60s[%zu]", where, i);
        if (!read(tool, place, c, r))
            return false;
        if (!may_repeat && is_repeated(c, n_before))
            return mf_srv_refuse_field(r, place, "another tool is called '%.64s'",
                                       c->names.data + n_before);
    }
    return true;
}

static bool end_tools(mf_srv_conversation *c, mf_srv_refusal *r)
{
    if (!c->tools.data)
        return true;
    if (c->tools.n_bytes == 1) {
        mf_srv_bytes_free(&c->tools);
        return true;
    }
    mf_srv_puts(&c->tools, "]");
    return (!c->tools.has_failed && !c->strict.has_failed) ||
           mf_srv_refuse(r, 503, "out of memory for the tools");
}

static bool read_tools(yyjson_val *object, read_fn read, mf_srv_conversation *c, mf_srv_refusal *r)
{
    return add_tools(mf_srv_field_of(object, "tools"), "tools", false, read, c, r) &&
           end_tools(c, r);
}

/* A call must come; of that tool, if it is not NULL. */
static bool force(yyjson_val *name, mf_srv_conversation *c, mf_srv_refusal *r)
{
    if (!c->tools.data)
        return mf_srv_refuse_field(r, "tool_choice", "there are no tools to choose from");
    c->must_call = true;
    if (!name)
        return true;
    if (!mf_srv_is_text(name, "tool_choice", r))
        return false;
    c->only_tool = strdup(yyjson_get_str(name));
    return c->only_tool || mf_srv_refuse(r, 503, "out of memory for the tools");
}

/* The name in a choice or a tool of either of OpenAI's forms. */
static yyjson_val *name_in(yyjson_val *object)
{
    yyjson_val *inner = yyjson_obj_get(object, "function");
    inner = inner ? inner : yyjson_obj_get(object, "custom");
    return yyjson_obj_get(inner ? inner : object, "name");
}

static bool is_among(const char *name, yyjson_val *list)
{
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(list, i, n, item)
    {
        if (yyjson_equals_str(name_in(item), name))
            return true;
    }
    return false;
}

/* Of the tools those of a list are left, for the model to see and to call. */
static bool keep_allowed(yyjson_val *list, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_doc *doc = c->tools.data ? yyjson_read(c->tools.data, c->tools.n_bytes, 0) : NULL;
    mf_srv_bytes tools = {0}, strict = {0};
    size_t i, n;
    yyjson_val *tool;
    bool is_good = true;
    yyjson_arr_foreach(yyjson_doc_get_root(doc), i, n, tool)
    {
        const char *name = yyjson_get_str(name_in(tool));
        if (!name || !is_among(name, list))
            continue;
        mf_srv_puts(&tools, tools.n_bytes > 0 ? "," : "[");
        is_good = is_good && put_value(tool, &tools, r);
        mf_srv_put(&strict, c->strict.data + i, 1);
    }
    yyjson_doc_free(doc);
    mf_srv_bytes_free(&c->tools);
    mf_srv_bytes_free(&c->strict);
    c->tools = tools;
    c->strict = strict;
    if (!is_good || tools.has_failed || strict.has_failed)
        return mf_srv_refuse(r, 503, "out of memory for the tools");
    if (!tools.data)
        return mf_srv_refuse_field(r, "tool_choice",
                                   "none of the allowed tools is among the tools");
    mf_srv_puts(&c->tools, "]");
    return !c->tools.has_failed || mf_srv_refuse(r, 503, "out of memory for the tools");
}

/* {"mode":"auto" or "required","tools":[...]} */
static bool choose_allowed(yyjson_val *choice, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *inner = yyjson_obj_get(choice, "allowed_tools");
    yyjson_val *allowed = inner ? inner : choice, *mode = yyjson_obj_get(allowed, "mode");
    yyjson_val *list = yyjson_obj_get(allowed, "tools");
    const bool is_required = yyjson_equals_str(mode, "required");
    if (!is_required && !yyjson_equals_str(mode, "auto"))
        return mf_srv_refuse_field(r, "tool_choice", "expected the mode 'auto' or 'required'");
    if (!yyjson_is_arr(list) || yyjson_arr_size(list) > MAX_ALL_TOOLS)
        return mf_srv_refuse_field(r, "tool_choice",
                                   "expected an array of at most %d allowed tools", MAX_ALL_TOOLS);
    return keep_allowed(list, c, r) && (!is_required || force(NULL, c, r));
}

/* Without a choice the model is shown none. */
static bool choose_openai(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *choice = mf_srv_field_of(object, "tool_choice");
    yyjson_val *type = yyjson_obj_get(choice, "type");
    bool is_parallel = true;
    if (!mf_srv_get_bool(object, "parallel_tool_calls", &is_parallel, r))
        return false;
    c->has_one_call = !is_parallel;
    if (!choice || yyjson_equals_str(choice, "auto"))
        return true;
    if (yyjson_equals_str(choice, "required"))
        return force(NULL, c, r);
    if (yyjson_equals_str(type, "allowed_tools"))
        return choose_allowed(choice, c, r);
    if (yyjson_equals_str(type, "function") || yyjson_equals_str(type, "custom")) {
        c->has_one_call = true;
        return name_in(choice) ? force(name_in(choice), c, r)
                               : mf_srv_refuse_field(r, "tool_choice", "expected a tool's name");
    }
    if (!yyjson_equals_str(choice, "none"))
        return refuse_unsupported(r, "tool_choice",
                                  "only 'none', 'auto', 'required', allowed tools and a tool are "
                                  "supported by this server");
    mf_srv_bytes_free(&c->tools);
    return true;
}

/* The older form of a tool. */
static bool read_function(yyjson_val *function, const char *place, mf_srv_conversation *c,
                          mf_srv_refusal *r)
{
    return mf_srv_check_object(function, place, function_fields, r) &&
           put_function(function, "parameters", place, NULL, c, r);
}

/* function_call: 'none', 'auto', or {"name"}. */
static bool choose_function(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *choice = mf_srv_field_of(object, "function_call");
    c->has_one_call = true;
    if (!choice || yyjson_equals_str(choice, "auto"))
        return true;
    if (yyjson_equals_str(choice, "none")) {
        mf_srv_bytes_free(&c->tools);
        return true;
    }
    if (yyjson_obj_get(choice, "name"))
        return force(yyjson_obj_get(choice, "name"), c, r);
    return mf_srv_refuse_field(r, "function_call", "expected 'none', 'auto' or a name");
}

bool mf_srv_read_chat_tools(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    yyjson_val *functions = mf_srv_field_of(object, "functions");
    yyjson_val *tools = mf_srv_field_of(object, "tools"),
               *call = mf_srv_field_of(object, "function_call");
    yyjson_val *choice = mf_srv_field_of(object, "tool_choice");
    if (functions && tools)
        return mf_srv_refuse_field(r, "functions", "excludes tools");
    if (call && yyjson_arr_size(tools) > 0)
        return mf_srv_refuse_field(r, "function_call", "excludes tools");
    if (functions && choice && !yyjson_equals_str(choice, "auto"))
        return mf_srv_refuse_field(r, "tool_choice", "excludes functions");
    if (functions || call) {
        c->has_functions = true;
        return add_tools(functions, "functions", false, read_function, c, r) && end_tools(c, r) &&
               choose_function(object, c, r);
    }
    return read_tools(object, read_chat_tool, c, r) && choose_openai(object, c, r);
}

bool mf_srv_read_responses_tools(yyjson_val *object, yyjson_val *items, mf_srv_conversation *c,
                                 mf_srv_refusal *r)
{
    char where[MF_SRV_PARAM_BYTES];
    size_t i, n;
    yyjson_val *item;
    if (!add_tools(mf_srv_field_of(object, "tools"), "tools", false, read_responses_tool, c, r))
        return false;
    yyjson_arr_foreach(items, i, n, item)
    {
        snprintf(where, sizeof where, "input[%zu].tools", i);
        if (yyjson_equals_str(yyjson_obj_get(item, "type"), "additional_tools") &&
            !add_tools(mf_srv_field_of(item, "tools"), where, true, read_responses_tool, c, r))
            return false;
    }
    return end_tools(c, r) && choose_openai(object, c, r);
}

bool mf_srv_read_messages_tools(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {{"type", MF_SRV_FIELD_USED},
                                         {"disable_parallel_tool_use", MF_SRV_FIELD_USED},
                                         {"name", MF_SRV_FIELD_USED},
                                         {NULL, MF_SRV_FIELD_USED}};
    yyjson_val *choice = mf_srv_field_of(object, "tool_choice");
    yyjson_val *type = yyjson_obj_get(choice, "type");
    if (!read_tools(object, read_anthropic_tool, c, r))
        return false;
    if (!choice)
        return true;
    if (!mf_srv_check_object(choice, "tool_choice", names, r) ||
        !mf_srv_get_bool(choice, "tool_choice.disable_parallel_tool_use", &c->has_one_call, r))
        return false;
    if (yyjson_equals_str(type, "none"))
        mf_srv_bytes_free(&c->tools);
    else if (yyjson_equals_str(type, "any"))
        return force(NULL, c, r);
    else if (yyjson_equals_str(type, "tool"))
        return yyjson_obj_get(choice, "name")
                   ? force(yyjson_obj_get(choice, "name"), c, r)
                   : mf_srv_refuse_field(r, "tool_choice.name", "is missing");
    else if (!yyjson_equals_str(type, "auto"))
        return refuse_unsupported(r, "tool_choice",
                                  "only 'auto', 'any', 'tool' and 'none' are supported by this "
                                  "server");
    return true;
}
