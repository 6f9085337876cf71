/* SPDX-License-Identifier: MIT */
/* Conversations through a template: which one, and the variables that it sees. */
#include "text/chat.h"

#include "text/utf8.h"

#include <string.h>

#define MAX_VARIABLES 512
#define MAX_NAME_BYTES 256

/* As transformers chooses: by name, for tools the one for tools, else the default. */
static mf_status choose(const mf_chat_set *set, const char *name, bool has_tools,
                        const mf_jinja **out, mf_error *error)
{
    const mf_chat_template *found = NULL;
    const char *source = set->source == NULL ? "the checkpoint" : set->source;
    if (set->n_templates == 0)
        return mf_fail(error, MF_ERR_NOT_FOUND, "%s has no chat template", source);
    if (name != NULL)
        found = mf_chat_find(set, name);
    else if (has_tools)
        found = mf_chat_find(set, "tool_use");
    if (found == NULL && name == NULL)
        found = mf_chat_find(set, "default");
    if (found == NULL)
        return mf_fail(error, MF_ERR_NOT_FOUND, "%s has no chat template '%s'", source,
                       name == NULL ? "default" : name);
    if (found->jinja == NULL)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s", found->error.message);
    *out = found->jinja;
    return MF_OK;
}

bool mf_chat_is_usable(const mf_chat_set *set)
{
    const mf_jinja *jinja = NULL;
    return choose(set, NULL, false, &jinja, NULL) == MF_OK;
}

/* --------------------------------------------------------------------------------- variables -- */

typedef struct mf_variables {
    mf_jinja_variable *list;
    size_t n, capacity;
} mf_variables;

static void put(mf_variables *v, const char *name, yyjson_val *json, bool is_foreign)
{
    if (v->n < v->capacity)
        v->list[v->n++] = (mf_jinja_variable){name, json, is_foreign};
}

static void put_all(mf_variables *v, yyjson_val *object)
{
    size_t i, n;
    yyjson_val *key, *value;
    if (object == NULL) /* the loop would compute with it */
        return;
    yyjson_obj_foreach(object, i, n, key, value)
    {
        put(v, yyjson_get_str(key), value, false);
    }
}

/* Constants, as values that are read. */
typedef struct mf_constants {
    yyjson_val yes, no, nothing;
} mf_constants;

static mf_constants constants(void)
{
    return (mf_constants){.yes = {.tag = YYJSON_TYPE_BOOL | YYJSON_SUBTYPE_TRUE},
                          .no = {.tag = YYJSON_TYPE_BOOL | YYJSON_SUBTYPE_FALSE},
                          .nothing = {.tag = YYJSON_TYPE_NULL}};
}

/* What templates know thinking by. */
static void put_thinking(mf_variables *v, mf_thinking thinking, mf_constants *c)
{
    if (thinking == MF_THINKING_DEFAULT)
        return;
    yyjson_val *value = thinking == MF_THINKING_ON ? &c->yes : &c->no;
    put(v, "enable_thinking", value, false);
    put(v, "thinking", value, false);
}

/* The documents of one call. */
typedef struct mf_chat_documents {
    mf_json messages, tools, documents, variables;
} mf_chat_documents;

static void free_documents(mf_chat_documents *d)
{
    mf_json_free(&d->messages);
    mf_json_free(&d->tools);
    mf_json_free(&d->documents);
    mf_json_free(&d->variables);
}

static mf_status render(const mf_chat_set *set, const mf_chat_json_params *chat,
                        const mf_chat_documents *d, mf_jinja_output *out, mf_error *error)
{
    const mf_jinja *jinja = NULL;
    mf_constants c = constants();
    mf_jinja_variable list[MAX_VARIABLES];
    mf_variables v = {.list = list, .capacity = MAX_VARIABLES};
    yyjson_val *tools = d->tools.root != NULL ? d->tools.root : &c.nothing;
    MF_TRY(choose(set, chat->template_name, d->tools.root != NULL, &jinja, error));
    put_all(&v, set->variables.root);
    put_thinking(&v, chat->thinking, &c);
    put_all(&v, d->variables.root);
    put(&v, "messages", d->messages.root, true);
    put(&v, "tools", tools, true);
    put(&v, "documents", d->documents.root != NULL ? d->documents.root : &c.nothing, true);
    put(&v, "add_generation_prompt", chat->add_generation_prompt != 0 ? &c.yes : &c.no, false);
    if (v.n == v.capacity)
        return mf_fail(error, MF_ERR_ARGUMENT, "variables: more than %d", MAX_VARIABLES);
    const mf_jinja_input input = {
        .variables = v.list, .n_variables = v.n, .now_seconds = chat->now_seconds};
    return mf_jinja_render(jinja, &input, out, error);
}

/* -------------------------------------------------------------------------------------- JSON -- */

/* A document, if it is there, which is to be an array or an object. */
static mf_status read(const mf_allocator *a, const char *what, const char *text, bool is_array,
                      mf_json *out, mf_error *error)
{
    if (text == NULL)
        return MF_OK;
    MF_TRY(mf_json_parse_exact(a, what, text, strlen(text), out, error));
    if (is_array ? yyjson_is_arr(out->root) : yyjson_is_obj(out->root))
        return MF_OK;
    return mf_fail(error, MF_ERR_FORMAT, "%s: expected %s", what,
                   is_array ? "an array" : "an object");
}

static mf_status check_objects(const mf_json *json, const char *what, mf_error *error)
{
    size_t i, n;
    yyjson_val *item;
    if (json->doc == NULL)
        return MF_OK;
    yyjson_arr_foreach(json->root, i, n, item)
    {
        if (!yyjson_is_obj(item))
            return mf_fail(error, MF_ERR_FORMAT, "%s: item %zu: expected an object", what, i);
    }
    return MF_OK;
}

mf_status mf_chat_render_json(const mf_chat_set *set, const mf_chat_json_params *chat,
                              mf_jinja_output *out, mf_error *error)
{
    const mf_allocator *a = &set->allocator;
    mf_chat_documents d = {0};
    const mf_jinja *jinja = NULL;
    mf_status status;
    MF_TRY(choose(set, chat->template_name, chat->tools != NULL, &jinja, error));
    MF_TRY_GOTO(read(a, "messages", chat->messages, true, &d.messages, error));
    MF_TRY_GOTO(read(a, "tools", chat->tools, true, &d.tools, error));
    MF_TRY_GOTO(read(a, "documents", chat->documents, true, &d.documents, error));
    MF_TRY_GOTO(read(a, "variables", chat->variables, false, &d.variables, error));
    MF_TRY_GOTO(check_objects(&d.messages, "messages", error));
    MF_TRY_GOTO(check_objects(&d.tools, "tools", error));
    MF_TRY_GOTO(check_objects(&d.documents, "documents", error));
    MF_TRY_GOTO(render(set, chat, &d, out, error));
fail:
    free_documents(&d);
    return status;
}

/* ------------------------------------------------------------------------------- plain turns -- */

typedef struct mf_writer {
    char *text; /* NULL: only counted */
    size_t n_bytes;
} mf_writer;

static void write_bytes(mf_writer *w, const char *bytes, size_t n)
{
    if (w->text != NULL)
        memcpy(w->text + w->n_bytes, bytes, n);
    w->n_bytes += n;
}

/* As a JSON string; what is not UTF-8 is put right. */
static void write_string(mf_writer *w, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    size_t n_all = strlen(text);
    write_bytes(w, "\"", 1);
    for (size_t i = 0, n; i < n_all; i += n) {
        uint32_t c;
        unsigned char bytes[4], first = (unsigned char)text[i];
        const char escaped[6] = {'\\', 'u', '0', '0', hex[first >> 4], hex[first & 15]};
        n = 1;
        if (first < 0x20 || first == '"' || first == '\\')
            write_bytes(w, escaped, sizeof escaped);
        else if (mf_utf8_next((const unsigned char *)text + i, n_all - i, &c, &n) == MF_UTF8_CHAR)
            write_bytes(w, text + i, n);
        else
            write_bytes(w, (const char *)bytes, mf_utf8_put(MF_UTF8_REPLACEMENT, bytes));
    }
    write_bytes(w, "\"", 1);
}

static void write_messages(mf_writer *w, const mf_chat_params *chat)
{
    static const char *const roles[] = {
        [MF_ROLE_SYSTEM] = "system", [MF_ROLE_USER] = "user", [MF_ROLE_ASSISTANT] = "assistant"};
    static const char start[] = "{\"role\":\"", middle[] = "\",\"content\":";
    write_bytes(w, "[", 1);
    for (size_t i = 0; i < chat->n_messages; i++) {
        const char *role = roles[chat->messages[i].role];
        write_bytes(w, ",", i != 0);
        write_bytes(w, start, sizeof start - 1);
        write_bytes(w, role, strlen(role));
        write_bytes(w, middle, sizeof middle - 1);
        write_string(w, chat->messages[i].content);
        write_bytes(w, "}", 1);
    }
    write_bytes(w, "]", 2); /* with the NUL */
}

mf_status mf_chat_render(const mf_chat_set *set, const mf_chat_params *chat, mf_jinja_output *out,
                         mf_error *error)
{
    const mf_allocator *a = &set->allocator;
    const mf_jinja *jinja = NULL;
    mf_writer w = {0};
    mf_chat_json_params json;
    MF_TRY(choose(set, NULL, false, &jinja, error));
    write_messages(&w, chat);
    w.text = mf_alloc(a, w.n_bytes);
    if (w.text == NULL)
        return mf_fail_memory(error, w.n_bytes, "a conversation");
    size_t n_bytes = w.n_bytes;
    w.n_bytes = 0;
    write_messages(&w, chat);
    mf_chat_json_params_default(&json);
    json.messages = w.text;
    json.thinking = chat->thinking;
    json.add_generation_prompt = chat->add_generation_prompt;
    mf_status status = mf_chat_render_json(set, &json, out, error);
    mf_free(a, w.text, n_bytes);
    return status;
}
