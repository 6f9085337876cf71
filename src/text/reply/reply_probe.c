/* SPDX-License-Identifier: MIT */
/* Rendering known calls, thoughts and content, and reading calls back. */
#include "text/reply/reply_probe.h"

#include "text/reply/reply_scan.h"

#include <stdio.h>
#include <string.h>

static const char probe_tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"" MF_PROBE_NAME
    "\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", \"properties\": "
    "{\"place\": {\"type\": \"string\", \"description\": \"p\"}, \"days\": {\"type\": \"integer\", "
    "\"description\": \"n\"}}, \"required\": [\"place\"]}}},"
    "{\"type\": \"function\", \"function\": {\"name\": \"" MF_PROBE_OTHER
    "\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}}]";

static void write_call(char *out, size_t capacity, const mf_probe *p, unsigned i)
{
    const char *name = i == 0 ? MF_PROBE_NAME : MF_PROBE_OTHER;
    const char *arguments = i == 0 ? MF_PROBE_ARGUMENTS : "{}";
    const char *text = i == 0 ? "\"{\\\"place\\\": \\\"Old Town\\\", \\\"days\\\": 3}\"" : "\"{}\"";
    char id[64];
    if (p->has_names_in_ids)
        snprintf(id, sizeof id, "functions.%s:%u", name, i);
    else
        snprintf(id, sizeof id, MF_PROBE_ID "%u", i);
    snprintf(out, capacity,
             "{\"id\": \"%s\", \"type\": \"function\", \"function\": {\"name\": \"%s\", "
             "\"arguments\": %s}}",
             id, name, p->is_text ? text : arguments);
}

/* A member of a message, if it has it. */
static void write_member(char *out, size_t capacity, const char *name, const char *text)
{
    if (text != NULL)
        snprintf(out, capacity, ", \"%s\": \"%s\"", name, text);
}

static void write_messages(char *out, size_t capacity, const mf_probe *p)
{
    char calls[2][512] = {"", ""}, thought[64] = "";
    for (unsigned i = 0; i < p->n_calls; i++)
        write_call(calls[i], sizeof calls[i], p, i);
    write_member(thought, sizeof thought, "reasoning_content", p->thought);
    int n =
        snprintf(out, capacity, "[{\"role\": \"user\", \"content\": \"" MF_PROBE_QUESTION "\"}");
    if (!p->is_question)
        n += snprintf(out + n, capacity - (size_t)n,
                      ", {\"role\": \"assistant\", \"content\": \"%s\"%s",
                      p->content == NULL ? "" : p->content, thought);
    if (p->n_calls != 0)
        n += snprintf(out + n, capacity - (size_t)n, ", \"tool_calls\": [%s%s%s]", calls[0],
                      p->n_calls > 1 ? ", " : "", calls[1]);
    snprintf(out + n, capacity - (size_t)n, p->is_question ? "]" : "}]");
}

/* ----------------------------------------------------------------------------------- reading -- */

typedef struct probe_seen {
    unsigned n_begun, n_ended;
    bool is_wrong, has_rest;
    mf_buffer arguments;
} probe_seen;

static mf_status same_json(const mf_allocator *a, const mf_buffer *text, const char *expected,
                           bool *is_same)
{
    mf_json got = {0}, want = {0};
    mf_status status =
        mf_json_parse(a, "arguments", (const char *)text->data, text->n_bytes, &got, NULL);
    if (status == MF_OK)
        status = mf_json_parse(a, "arguments", expected, strlen(expected), &want, NULL);
    *is_same = status == MF_OK && yyjson_equals(got.root, want.root);
    mf_json_free(&got);
    mf_json_free(&want);
    return status == MF_ERR_NO_MEMORY ? status : MF_OK;
}

static mf_status see(probe_seen *seen, const mf_allocator *a, const mf_reply_event *event)
{
    const bool is_first = seen->n_begun <= 1;
    bool is_same = true;
    switch (event->kind) {
    case MF_REPLY_CALL:
        seen->is_wrong |=
            strcmp(event->name, seen->n_begun == 0 ? MF_PROBE_NAME : MF_PROBE_OTHER) != 0;
        seen->n_begun++;
        seen->arguments.n_bytes = 0;
        break;
    case MF_REPLY_CALL_ARGUMENTS:
        return mf_buffer_append(&seen->arguments, event->text, event->n_bytes, "a tool call", NULL);
    case MF_REPLY_CALL_END:
        seen->n_ended++;
        MF_TRY(same_json(a, &seen->arguments, is_first ? MF_PROBE_ARGUMENTS : "{}", &is_same));
        seen->is_wrong |= !is_same;
        break;
    case MF_REPLY_CALL_BROKEN:
        seen->is_wrong = true;
        break;
    default:
        seen->has_rest |= seen->n_begun == 0 && strspn(event->text, " \n\r\t") != event->n_bytes;
        break;
    }
    return MF_OK;
}

mf_status mf_probe_read(const mf_allocator *a, const mf_reply_row *row, const char *text,
                        unsigned n_calls, mf_probe_result *result)
{
    mf_reply_syntax *syntax = NULL;
    mf_reply *reply = NULL;
    mf_reply_options options;
    mf_reply_event event;
    probe_seen seen = {0};
    mf_buffer_init(&seen.arguments, a);
    mf_reply_options_default(&options);
    options.tools = probe_tools;
    mf_status status = mf_reply_syntax_make(a, row, &syntax, NULL);
    if (status == MF_OK)
        status = mf_reply_create(syntax, &options, &reply, NULL);
    if (status == MF_OK)
        status = mf_reply_push(reply, text, strlen(text), 0, NULL);
    if (status == MF_OK)
        status = mf_reply_finish(reply, 0, NULL);
    while (status == MF_OK && mf_reply_next(reply, &event))
        status = see(&seen, a, &event); /* no memory: no other row may be taken for this one */
    *result = seen.is_wrong || seen.n_ended != n_calls ? MF_PROBE_UNREAD
              : seen.has_rest                          ? MF_PROBE_WITH_REST
                                                       : MF_PROBE_READ;
    mf_buffer_free(&seen.arguments);
    mf_reply_free(&reply);
    mf_reply_syntax_free(&syntax);
    return status;
}

/* --------------------------------------------------------------------------------- rendering -- */

static const char *behind_last(const char *text, const char *mark)
{
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, mark)) != NULL; at += strlen(mark))
        found = at + strlen(mark);
    return found;
}

mf_status mf_probe_render(const mf_probe_target *target, const mf_probe *probe, mf_probe_text *out)
{
    char messages[2048];
    mf_chat_json_params params;
    mf_jinja_output text = {0};
    *out = (mf_probe_text){0};
    write_messages(messages, sizeof messages, probe);
    mf_chat_json_params_default(&params);
    params.messages = messages;
    params.tools = probe_tools;
    params.template_name = target->template_name;
    params.add_generation_prompt = probe->has_prompt;
    params.thinking = probe->thinking;
    params.now_seconds = 1;
    mf_status status = mf_chat_render_json(target->chat, &params, &text, NULL);
    if (status != MF_OK)
        return status == MF_ERR_NO_MEMORY ? status : MF_OK;
    char *whole = mf_alloc_zeroed(target->a, text.n_bytes + 1);
    if (whole != NULL && text.n_bytes != 0)
        memcpy(whole, text.text, text.n_bytes);
    *out = (mf_probe_text){whole, text.n_bytes + 1};
    mf_jinja_output_free(&text);
    if (whole == NULL)
        return MF_ERR_NO_MEMORY;
    const char *answer = behind_last(whole, MF_PROBE_QUESTION);
    if (answer == NULL)
        mf_probe_free(target, out);
    else
        memmove(whole, answer, strlen(answer) + 1);
    return MF_OK;
}

void mf_probe_free(const mf_probe_target *target, mf_probe_text *text)
{
    if (text->text != NULL)
        mf_free(target->a, text->text, text->n_bytes);
    *text = (mf_probe_text){0};
}
