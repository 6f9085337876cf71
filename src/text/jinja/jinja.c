/* SPDX-License-Identifier: MIT */
/* Templates and their rendering: the memory of both, variables, messages of errors. */
#include "text/jinja/jinja.h"

#include "text/jinja/jinja_eval.h"
#include "text/jinja/jinja_json.h"
#include "text/utf8.h"

#include <stdio.h>

#define MAX_TEMPLATE_BYTES ((size_t)1 << 20)
#define MAX_PARSED_BYTES ((size_t)64 << 20)
#define MAX_PARSE_STEPS ((uint64_t)20000000)
#define PARSE_DEPTH 150
/* Of the same, gone through once more: operators are levels then, too. */
#define NAMES_DEPTH 1000
/* What one rendering may take, unless the caller says otherwise. */
#define MAX_STEPS ((uint64_t)100000000)
#define MAX_DEPTH 400
#define MAX_MEMORY_BYTES ((size_t)256 << 20)
#define MAX_OUTPUT_BYTES ((size_t)64 << 20)

struct mf_jinja {
    mf_jarena memory;
    char *name;
    const mf_jnode *first;
};

static mf_status report(const mf_jrun *j, const char *name, mf_error *error)
{
    if (j->is_asked)
        return mf_fail(error, j->status, "%s: line %u: the template refuses: %s", name, j->line,
                       j->reason);
    return mf_fail(error, j->status, "%s: line %u: %s", name, j->line, j->reason);
}

/* The text with one kind of line ends, without the last one, as Jinja reads it. */
static char *take_source(mf_jrun *j, const char *text, size_t n_bytes, size_t *n_out)
{
    char *source = mf_j_take(j, n_bytes);
    size_t n = 0;
    for (size_t i = 0; source != NULL && i < n_bytes; i++) {
        if (text[i] == '\r') {
            source[n++] = '\n';
            i += i + 1 < n_bytes && text[i + 1] == '\n';
        } else {
            source[n++] = text[i];
        }
    }
    *n_out = n - (n > 0 && source[n - 1] == '\n');
    return source;
}

static void parse(mf_jrun *j, mf_jinja *jinja, const char *name, const char *text, size_t n_bytes)
{
    size_t n = 0, n_name = strlen(name) + 1;
    j->line = 1;
    jinja->name = mf_j_take(j, n_name);
    if (jinja->name == NULL)
        return;
    memcpy(jinja->name, name, n_name);
    if (n_bytes > MAX_TEMPLATE_BYTES) {
        mf_j_fail(j, MF_ERR_UNSUPPORTED, "%zu bytes, expected at most %zu", n_bytes,
                  MAX_TEMPLATE_BYTES);
        return;
    }
    if (!mf_utf8_is_valid((const unsigned char *)text, n_bytes)) {
        mf_j_fail(j, MF_ERR_FORMAT, "not UTF-8");
        return;
    }
    const char *source = take_source(j, text, n_bytes, &n);
    if (source != NULL)
        jinja->first = mf_j_parse(j, source, n);
    j->depth = NAMES_DEPTH;
    mf_j_check_names(j, jinja->first);
}

mf_status mf_jinja_parse(const mf_allocator *a, const char *name, const char *text, size_t n_bytes,
                         mf_jinja **out, mf_error *error)
{
    mf_jinja *jinja = mf_alloc_zeroed(a, sizeof *jinja);
    if (jinja == NULL)
        return mf_fail_memory(error, sizeof *jinja, name);
    mf_jarena_init(&jinja->memory, a, MAX_PARSED_BYTES);
    mf_jrun j = {.arena = &jinja->memory, .n_steps = MAX_PARSE_STEPS, .depth = PARSE_DEPTH};
    parse(&j, jinja, name, text, n_bytes);
    if (!mf_j_ok(&j)) {
        mf_status status = report(&j, name, error);
        mf_jinja_free(&jinja);
        return status;
    }
    *out = jinja;
    return MF_OK;
}

void mf_jinja_free(mf_jinja **jinja)
{
    if (*jinja == NULL)
        return;
    const mf_allocator a = (*jinja)->memory.allocator;
    mf_jarena_free(&(*jinja)->memory);
    mf_free(&a, *jinja, sizeof **jinja);
    *jinja = NULL;
}

/* --------------------------------------------------------------------------------- variables -- */

/* The names that a message's thoughts go by: the first is what templates read. */
static const char *const thought_names[] = {"reasoning_content", "thinking", "reasoning"};

static mf_jval find_thoughts(mf_jval message)
{
    for (size_t i = 0; i < sizeof thought_names / sizeof *thought_names; i++) {
        const mf_jval *found =
            mf_j_find_text(message.as.dict, thought_names[i], strlen(thought_names[i]));
        if (found != NULL && found->kind != MF_J_NONE)
            return *found;
    }
    return (mf_jval){0};
}

/* A message with its thoughts under the names that templates know, as transformers does it. */
static mf_jval with_thoughts(mf_jrun *j, mf_jval message)
{
    mf_jval thoughts = find_thoughts(message);
    if (thoughts.kind == MF_J_MISSING)
        return message;
    mf_jval copy = mf_j_dict(j);
    mf_j_put_text(j, copy, "thinking", thoughts);
    for (size_t i = 0; i < message.as.dict->n_entries && mf_j_ok(j); i++)
        mf_j_put(j, copy, message.as.dict->entries[i].key, message.as.dict->entries[i].value);
    mf_j_put_text(j, copy, "reasoning_content", thoughts);
    return copy;
}

/* What the model and the program say themselves; all else is from outside. */
static bool is_trusted(yyjson_val *message)
{
    static const char *const roles[] = {"system", "developer", "assistant", "model"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (yyjson_equals_str(yyjson_obj_get(message, "role"), roles[i]))
            return true;
    return false;
}

/* A foreign message: its role stays what templates compare and print. */
static mf_jval message_of(mf_jrun *j, yyjson_val *json)
{
    mf_jval message = mf_j_dict(j);
    bool is_foreign = !is_trusted(json);
    size_t i, n;
    yyjson_val *key, *item;
    yyjson_obj_foreach(json, i, n, key, item)
    {
        if (!mf_j_ok(j))
            break;
        bool is_role = yyjson_equals_str(key, "role") || yyjson_equals_str(key, "type");
        mf_j_put(j, message, mf_j_of_json(j, key, false),
                 mf_j_of_json(j, item, is_foreign && !is_role));
    }
    return mf_j_ok(j) ? with_thoughts(j, message) : message;
}

static mf_jval messages_of(mf_jrun *j, yyjson_val *json)
{
    mf_jval list = mf_j_list(j, MF_J_PLAIN);
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(json, i, n, item)
    {
        if (!yyjson_is_obj(item))
            mf_j_fail(j, MF_ERR_ARGUMENT, "message %zu is no object", i);
        if (!mf_j_ok(j))
            break;
        mf_j_push(j, list, message_of(j, item));
    }
    return list;
}

static void put_variables(mf_jrun *j, const mf_jinja_input *input, mf_jval context)
{
    for (size_t i = 0; i < input->n_variables && mf_j_ok(j); i++) {
        const mf_jinja_variable *variable = &input->variables[i];
        bool is_messages = strcmp(variable->name, "messages") == 0;
        mf_jval value = is_messages && yyjson_is_arr(variable->json)
                            ? messages_of(j, variable->json)
                            : mf_j_of_json(j, variable->json, variable->is_foreign);
        mf_j_put_text(j, context, variable->name, value);
    }
}

/* ------------------------------------------------------------------------------------ render -- */

static size_t or_usual(size_t given, size_t usual)
{
    return given != 0 && given < usual ? given : usual;
}

static void render(mf_jrun *j, const mf_jinja *jinja, const mf_jinja_input *input,
                   mf_jinja_output *out)
{
    mf_jtext text = {.run = j, .max_bytes = or_usual(input->limits.output_bytes, MAX_OUTPUT_BYTES)};
    mf_jval context = mf_j_dict(j);
    mf_jscope scope = {0};
    if (!mf_j_ok(j))
        return;
    put_variables(j, input, context);
    j->context = context.as.dict;
    j->scope = &scope;
    j->out = &text;
    if (mf_j_ok(j))
        mf_j_exec(j, jinja->first);
    mf_jval result = mf_j_take_text(&text);
    if (!mf_j_ok(j))
        return;
    out->text = result.as.string->text;
    out->n_bytes = result.as.string->n_bytes;
    out->foreign = result.as.string->foreign;
}

mf_status mf_jinja_render(const mf_jinja *jinja, const mf_jinja_input *input, mf_jinja_output *out,
                          mf_error *error)
{
    const mf_allocator *a = &jinja->memory.allocator;
    const mf_jinja_limits *limits = &input->limits;
    mf_jarena *memory = mf_alloc(a, sizeof *memory);
    if (memory == NULL)
        return mf_fail_memory(error, sizeof *memory, jinja->name);
    mf_jarena_init(memory, a, or_usual(limits->memory_bytes, MAX_MEMORY_BYTES));
    mf_jrun j = {.arena = memory,
                 .now_seconds = input->now_seconds,
                 .n_steps = or_usual(limits->n_steps, MAX_STEPS),
                 .depth = (unsigned)or_usual(limits->depth, MAX_DEPTH)};
    mf_jinja_output result = {.memory = memory, .allocator = *a};
    render(&j, jinja, input, &result);
    if (mf_j_ok(&j)) {
        *out = result;
        return MF_OK;
    }
    mf_status status = report(&j, jinja->name, error);
    mf_jinja_output_free(&result);
    return status;
}

void mf_jinja_output_free(mf_jinja_output *output)
{
    if (output->memory == NULL)
        return;
    mf_jarena_free(output->memory);
    mf_free(&output->allocator, output->memory, sizeof *output->memory);
    *output = (mf_jinja_output){0};
}
