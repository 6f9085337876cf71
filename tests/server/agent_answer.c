/* SPDX-License-Identifier: MIT */
#include "agent_answer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append(char **text, yyjson_val *more)
{
    const char *added = yyjson_get_str(more);
    if (!added)
        return;
    const size_t n = *text ? strlen(*text) : 0, n_added = strlen(added);
    char *joined = realloc(*text, n + n_added + 1);
    if (!joined)
        abort();
    memcpy(joined + n, added, n_added + 1);
    *text = joined;
}

static void set(char *field, size_t n_bytes, yyjson_val *value)
{
    if (yyjson_is_str(value))
        snprintf(field, n_bytes, "%s", yyjson_get_str(value));
}

static long number(yyjson_val *object, const char *key)
{
    return (long)yyjson_get_sint(yyjson_obj_get(object, key));
}

/* --------------------------------------------------------------------------- what events say -- */

/* True: this one ends the answer. */
static bool take_chat(mf_agent_answer *a, yyjson_val *event)
{
    yyjson_val *choice = yyjson_arr_get_first(yyjson_obj_get(event, "choices"));
    yyjson_val *delta = yyjson_obj_get(choice, "delta"), *usage = yyjson_obj_get(event, "usage");
    yyjson_val *call = yyjson_arr_get_first(yyjson_obj_get(delta, "tool_calls"));
    yyjson_val *function = yyjson_obj_get(call, "function");
    append(&a->content, yyjson_obj_get(delta, "content"));
    append(&a->thoughts, yyjson_obj_get(delta, "reasoning_content"));
    append(&a->arguments, yyjson_obj_get(function, "arguments"));
    set(a->call_id, sizeof a->call_id, yyjson_obj_get(call, "id"));
    set(a->call_name, sizeof a->call_name, yyjson_obj_get(function, "name"));
    a->has_call = a->has_call || call;
    if (!yyjson_is_obj(usage))
        return false;
    a->n_prompt = number(usage, "prompt_tokens");
    a->n_answered = number(usage, "completion_tokens");
    a->n_cached = number(yyjson_obj_get(usage, "prompt_tokens_details"), "cached_tokens");
    return true;
}

static bool take_messages(mf_agent_answer *a, yyjson_val *event)
{
    yyjson_val *usage = yyjson_obj_get(yyjson_obj_get(event, "message"), "usage");
    yyjson_val *block = yyjson_obj_get(event, "content_block");
    yyjson_val *delta = yyjson_obj_get(event, "delta");
    append(&a->content, yyjson_obj_get(delta, "text"));
    append(&a->thoughts, yyjson_obj_get(delta, "thinking"));
    append(&a->signature, yyjson_obj_get(delta, "signature"));
    append(&a->arguments, yyjson_obj_get(delta, "partial_json"));
    if (yyjson_equals_str(yyjson_obj_get(block, "type"), "tool_use")) {
        a->has_call = true;
        set(a->call_id, sizeof a->call_id, yyjson_obj_get(block, "id"));
        set(a->call_name, sizeof a->call_name, yyjson_obj_get(block, "name"));
    }
    if (usage) {
        a->n_cached = number(usage, "cache_read_input_tokens");
        a->n_prompt = number(usage, "input_tokens") + a->n_cached +
                      number(usage, "cache_creation_input_tokens");
    }
    if (yyjson_equals_str(yyjson_obj_get(event, "type"), "message_delta"))
        a->n_answered = number(yyjson_obj_get(event, "usage"), "output_tokens");
    return yyjson_equals_str(yyjson_obj_get(event, "type"), "message_stop");
}

static bool take_responses(mf_agent_answer *a, yyjson_val *event)
{
    const char *type = yyjson_get_str(yyjson_obj_get(event, "type"));
    yyjson_val *response = yyjson_obj_get(event, "response"), *item;
    yyjson_val *usage = yyjson_obj_get(response, "usage");
    size_t i, n;
    if (!type ||
        (strcmp(type, "response.completed") != 0 && strcmp(type, "response.incomplete") != 0))
        return false;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_doc_set_root(doc, yyjson_val_mut_copy(doc, yyjson_obj_get(response, "output")));
    a->output = yyjson_mut_doc_imut_copy(doc, NULL);
    yyjson_mut_doc_free(doc);
    yyjson_arr_foreach(yyjson_doc_get_root(a->output), i, n, item)
    {
        if (!yyjson_equals_str(yyjson_obj_get(item, "type"), "function_call"))
            continue;
        a->has_call = true;
        set(a->call_id, sizeof a->call_id, yyjson_obj_get(item, "call_id"));
    }
    a->n_prompt = number(usage, "input_tokens");
    a->n_answered = number(usage, "output_tokens");
    a->n_cached = number(yyjson_obj_get(usage, "input_tokens_details"), "cached_tokens");
    return a->output != NULL;
}

bool mf_agent_read(mf_agent_form form, const char *events, mf_agent_answer *a)
{
    bool has_ended = false;
    for (const char *line = events; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "data: {", 7) != 0)
            continue;
        yyjson_doc *doc = yyjson_read(line + 6, strcspn(line + 6, "\n"), 0);
        yyjson_val *event = yyjson_doc_get_root(doc);
        const bool is_end = form == MF_AGENT_CHAT       ? take_chat(a, event)
                            : form == MF_AGENT_MESSAGES ? take_messages(a, event)
                                                        : take_responses(a, event);
        has_ended = has_ended || is_end;
        yyjson_doc_free(doc);
    }
    return has_ended;
}

/* ----------------------------------------------------------------------- how it is sent back -- */

/* What JavaScript makes of it: whole numbers have no fraction. */
static void make_whole(yyjson_mut_val *value)
{
    size_t i, n;
    yyjson_mut_val *key, *child;
    if (yyjson_mut_is_real(value) &&
        floor(yyjson_mut_get_real(value)) == yyjson_mut_get_real(value))
        yyjson_mut_set_sint(value, (int64_t)yyjson_mut_get_real(value));
    else if (yyjson_mut_is_obj(value))
        yyjson_mut_obj_foreach(value, i, n, key, child) make_whole(child);
}

/* The arguments, read and not yet written again; the first behind the others. */
static yyjson_mut_val *arguments_of(const mf_agent_answer *a, yyjson_mut_doc *doc)
{
    const char *text = a->arguments && *a->arguments ? a->arguments : "{}";
    yyjson_doc *read = yyjson_read(text, strlen(text), 0);
    yyjson_mut_val *value = yyjson_val_mut_copy(doc, yyjson_doc_get_root(read));
    yyjson_doc_free(read);
    if (!value)
        abort();
    yyjson_mut_obj_rotate(value, 1);
    make_whole(value);
    return value;
}

static void append_chat(const mf_agent_answer *a, yyjson_val *log, yyjson_mut_doc *doc,
                        yyjson_mut_val *history)
{
    yyjson_mut_val *message = yyjson_mut_arr_add_obj(doc, history);
    char *content = NULL;
    if (a->thoughts && yyjson_get_bool(yyjson_obj_get(log, "thoughts_in_content")) &&
        asprintf(&content, "<think>\n%s\n</think>\n%s", a->thoughts, a->content ? a->content : "") <
            0)
        abort();
    yyjson_mut_obj_add_str(doc, message, "role", "assistant");
    if (content || (a->content && *a->content))
        yyjson_mut_obj_add_strcpy(doc, message, "content", content ? content : a->content);
    else
        yyjson_mut_obj_add_val(
            doc, message, "content",
            yyjson_val_mut_copy(doc, yyjson_obj_get(log, "content_beside_calls")));
    free(content);
    if (!a->has_call)
        return;
    yyjson_mut_val *calls = yyjson_mut_obj_add_arr(doc, message, "tool_calls");
    yyjson_mut_val *call = yyjson_mut_arr_add_obj(doc, calls);
    yyjson_mut_obj_add_strcpy(doc, call, "id", a->call_id);
    yyjson_mut_obj_add_str(doc, call, "type", "function");
    yyjson_mut_val *function = yyjson_mut_obj_add_obj(doc, call, "function");
    yyjson_mut_obj_add_strcpy(doc, function, "name", a->call_name);
    char *arguments = yyjson_mut_val_write(arguments_of(a, doc), 0, NULL);
    yyjson_mut_obj_add_strcpy(doc, function, "arguments", arguments);
    free(arguments);
}

static void append_messages(const mf_agent_answer *a, yyjson_mut_doc *doc, yyjson_mut_val *history)
{
    yyjson_mut_val *message = yyjson_mut_arr_add_obj(doc, history), *block;
    yyjson_mut_obj_add_str(doc, message, "role", "assistant");
    yyjson_mut_val *content = yyjson_mut_obj_add_arr(doc, message, "content");
    if (a->thoughts) {
        block = yyjson_mut_arr_add_obj(doc, content);
        yyjson_mut_obj_add_str(doc, block, "type", "thinking");
        yyjson_mut_obj_add_strcpy(doc, block, "thinking", a->thoughts);
        yyjson_mut_obj_add_strcpy(doc, block, "signature", a->signature ? a->signature : "");
    }
    if (a->content && *a->content) {
        block = yyjson_mut_arr_add_obj(doc, content);
        yyjson_mut_obj_add_str(doc, block, "type", "text");
        yyjson_mut_obj_add_strcpy(doc, block, "text", a->content);
    }
    if (a->has_call) {
        block = yyjson_mut_arr_add_obj(doc, content);
        yyjson_mut_obj_add_str(doc, block, "type", "tool_use");
        yyjson_mut_obj_add_strcpy(doc, block, "id", a->call_id);
        yyjson_mut_obj_add_strcpy(doc, block, "name", a->call_name);
        yyjson_mut_obj_add_val(doc, block, "input", arguments_of(a, doc));
    }
}

static void append_responses(const mf_agent_answer *a, yyjson_mut_doc *doc, yyjson_mut_val *history)
{
    yyjson_val *item;
    size_t i, n;
    yyjson_arr_foreach(yyjson_doc_get_root(a->output), i, n, item)
    {
        yyjson_mut_val *copy = yyjson_val_mut_copy(doc, item);
        (void)yyjson_mut_obj_remove_key(copy, "id");
        (void)yyjson_mut_obj_remove_key(copy, "status");
        yyjson_mut_arr_append(history, copy);
    }
}

void mf_agent_append(mf_agent_form form, const mf_agent_answer *a, yyjson_val *log,
                     yyjson_mut_doc *doc, yyjson_mut_val *history)
{
    if (form == MF_AGENT_CHAT)
        append_chat(a, log, doc, history);
    else if (form == MF_AGENT_MESSAGES)
        append_messages(a, doc, history);
    else
        append_responses(a, doc, history);
}

void mf_agent_answer_free(mf_agent_answer *a)
{
    free(a->content);
    free(a->thoughts);
    free(a->signature);
    free(a->arguments);
    yyjson_doc_free(a->output);
    *a = (mf_agent_answer){0};
}
