/* SPDX-License-Identifier: MIT */
/* Which syntax a template writes: known calls are rendered by it, and the row whose reader gives
 * them back is the one. */
#include "text/reply/reply_scan.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

#define PROBE_NAME "probe_first"
#define PROBE_OTHER "probe_other"
#define PROBE_ARGUMENTS "{\"place\": \"Old Town\", \"days\": 3}"
#define PROBE_QUESTION "probe question"

static const char probe_tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"" PROBE_NAME
    "\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", \"properties\": "
    "{\"place\": {\"type\": \"string\", \"description\": \"p\"}, \"days\": {\"type\": \"integer\", "
    "\"description\": \"n\"}}, \"required\": [\"place\"]}}},"
    "{\"type\": \"function\", \"function\": {\"name\": \"" PROBE_OTHER
    "\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}}]";

/* What differs between templates: whether arguments come as text, how ids look, and how many calls
 * a message may have. */
typedef struct probe {
    bool is_text, has_names_in_ids;
    unsigned n_calls;
} probe;

static void write_call(char *out, size_t capacity, const probe *p, unsigned i)
{
    const char *name = i == 0 ? PROBE_NAME : PROBE_OTHER;
    const char *arguments = i == 0 ? PROBE_ARGUMENTS : "{}";
    const char *text = i == 0 ? "\"{\\\"place\\\": \\\"Old Town\\\", \\\"days\\\": 3}\"" : "\"{}\"";
    char id[64];
    if (p->has_names_in_ids)
        snprintf(id, sizeof id, "functions.%s:%u", name, i);
    else
        snprintf(id, sizeof id, "abcdefgh%u", i);
    snprintf(out, capacity,
             "{\"id\": \"%s\", \"type\": \"function\", \"function\": {\"name\": \"%s\", "
             "\"arguments\": %s}}",
             id, name, p->is_text ? text : arguments);
}

static void write_messages(char *out, size_t capacity, const probe *p)
{
    char calls[2][512] = {"", ""};
    for (unsigned i = 0; i < p->n_calls; i++)
        write_call(calls[i], sizeof calls[i], p, i);
    snprintf(out, capacity,
             "[{\"role\": \"user\", \"content\": \"" PROBE_QUESTION
             "\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [%s%s%s]}]",
             calls[0], p->n_calls > 1 ? ", " : "", calls[1]);
}

/* ------------------------------------------------------------------------------------- reading --
 */

typedef struct probe_seen {
    unsigned n_begun, n_ended;
    bool is_wrong;
    mf_buffer arguments;
} probe_seen;

static bool same_json(const mf_allocator *a, const mf_buffer *text, const char *expected)
{
    mf_json got = {0}, want = {0};
    bool is_same =
        mf_json_parse(a, "arguments", (const char *)text->data, text->n_bytes, &got, NULL) ==
            MF_OK &&
        mf_json_parse(a, "arguments", expected, strlen(expected), &want, NULL) == MF_OK &&
        yyjson_equals(got.root, want.root);
    mf_json_free(&got);
    mf_json_free(&want);
    return is_same;
}

static void see(probe_seen *seen, const mf_allocator *a, const mf_reply_event *event)
{
    const bool is_first = seen->n_begun <= 1;
    switch (event->kind) {
    case MF_REPLY_CALL:
        seen->is_wrong |= strcmp(event->name, seen->n_begun == 0 ? PROBE_NAME : PROBE_OTHER) != 0;
        seen->n_begun++;
        seen->arguments.n_bytes = 0;
        break;
    case MF_REPLY_CALL_ARGUMENTS:
        seen->is_wrong |= mf_buffer_append(&seen->arguments, event->text, event->n_bytes,
                                           "a tool call", NULL) != MF_OK;
        break;
    case MF_REPLY_CALL_END:
        seen->n_ended++;
        seen->is_wrong |= !same_json(a, &seen->arguments, is_first ? PROBE_ARGUMENTS : "{}");
        break;
    case MF_REPLY_CALL_BROKEN:
        seen->is_wrong = true;
        break;
    default:
        break;
    }
}

/* Whether a row's reader finds the probe's calls in the text. */
static mf_status reads(const mf_allocator *a, const mf_reply_row *row, const char *text,
                       unsigned n_calls, bool *is_read)
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
        see(&seen, a, &event);
    *is_read = !seen.is_wrong && seen.n_ended == n_calls;
    mf_buffer_free(&seen.arguments);
    mf_reply_free(&reply);
    mf_reply_syntax_free(&syntax);
    return status;
}

/* ----------------------------------------------------------------------------------- rendering --
 */

typedef struct detection {
    const mf_chat_set *chat;
    const mf_allocator *a;
    const char *template_name;
    mf_reply_syntax *found;
} detection;

/* A conversation's text as a string of its own; NULL: the template refuses it. */
static mf_status render(const detection *d, const char *messages, bool has_prompt,
                        mf_thinking thinking, char **out, size_t *n_bytes)
{
    mf_chat_json_params params;
    mf_jinja_output text = {0};
    *out = NULL;
    mf_chat_json_params_default(&params);
    params.messages = messages;
    params.tools = probe_tools;
    params.template_name = d->template_name;
    params.add_generation_prompt = has_prompt;
    params.thinking = thinking;
    params.now_seconds = 1;
    mf_status status = mf_chat_render_json(d->chat, &params, &text, NULL);
    if (status != MF_OK)
        return status == MF_ERR_NO_MEMORY ? status : MF_OK;
    *out = mf_alloc(d->a, text.n_bytes + 1);
    if (*out != NULL) {
        if (text.n_bytes != 0)
            memcpy(*out, text.text, text.n_bytes);
        (*out)[text.n_bytes] = '\0';
    }
    *n_bytes = text.n_bytes;
    mf_jinja_output_free(&text);
    return *out == NULL ? MF_ERR_NO_MEMORY : MF_OK;
}

static void free_text(const detection *d, char *text, size_t n_bytes)
{
    if (text != NULL)
        mf_free(d->a, text, n_bytes + 1);
}

static const char *behind_last(const char *text, const char *mark)
{
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, mark)) != NULL; at += strlen(mark))
        found = at + strlen(mark);
    return found;
}

/* One way to ask: the first row that reads the answer. */
static mf_status try_probe(detection *d, const probe *p)
{
    char messages[2048];
    char *text;
    size_t n_bytes, n_rows;
    bool is_read = false;
    const mf_reply_row *rows = mf_reply_rows(&n_rows);
    write_messages(messages, sizeof messages, p);
    MF_TRY(render(d, messages, false, MF_THINKING_DEFAULT, &text, &n_bytes));
    const char *answer = text == NULL ? NULL : behind_last(text, PROBE_QUESTION);
    mf_status status = MF_OK;
    for (size_t i = 0; answer != NULL && i < n_rows && status == MF_OK && !is_read; i++) {
        if (rows[i].reader == MF_READ_NONE)
            continue;
        status = reads(d->a, &rows[i], answer, p->n_calls, &is_read);
        if (status == MF_OK && is_read)
            status = mf_reply_syntax_make(d->a, &rows[i], &d->found, NULL);
    }
    free_text(d, text, n_bytes);
    return status;
}

static mf_status try_probes(detection *d)
{
    static const probe probes[] = {
        {.n_calls = 2},
        {.n_calls = 2, .is_text = true},
        {.n_calls = 2, .has_names_in_ids = true},
        {.n_calls = 2, .has_names_in_ids = true, .is_text = true},
        {.n_calls = 1},
        {.n_calls = 1, .is_text = true},
    };
    for (size_t i = 0; i < sizeof probes / sizeof *probes && d->found == NULL; i++)
        MF_TRY(try_probe(d, &probes[i]));
    return MF_OK;
}

/* --------------------------------------------------------------------------------- the opening --
 */

/* What the generation prompt begins with, whether the model is to think or not. */
static mf_status find_opening(detection *d)
{
    static const char question[] = "[{\"role\": \"user\", \"content\": \"" PROBE_QUESTION "\"}]";
    char *text[3] = {NULL, NULL, NULL};
    size_t n_bytes[3] = {0, 0, 0}, n = 0;
    mf_status status = MF_OK;
    mf_reply_syntax *syntax = d->found;
    for (int i = 0; i < 3 && status == MF_OK; i++)
        status = render(d, question, i != 0, i == 2 ? MF_THINKING_OFF : MF_THINKING_ON, &text[i],
                        &n_bytes[i]);
    if (status == MF_OK && text[0] != NULL && text[1] != NULL && text[2] != NULL) {
        size_t start = 0;
        while (start < n_bytes[0] && text[0][start] == text[1][start])
            start++;
        const char *on = text[1] + start, *off = text[2] + start;
        const char *thought =
            syntax->thought_mark == NULL ? NULL : strstr(on, syntax->thought_mark);
        while (on[n] != '\0' && on + n != thought && on[n] == off[n])
            n++;
        while (n > 0 && mf_reply_is_blank((unsigned char)on[n - 1]))
            n--;
        syntax->opening = n == 0 ? NULL : mf_alloc_zeroed(d->a, n + 1);
        if (syntax->opening != NULL) {
            memcpy(syntax->opening, on, n);
            syntax->n_opening = n + 1;
        } else if (n != 0) {
            status = MF_ERR_NO_MEMORY;
        }
    }
    for (int i = 0; i < 3; i++)
        free_text(d, text[i], n_bytes[i]);
    return status;
}

static mf_status detect(detection *d)
{
    if (mf_chat_is_usable(d->chat))
        MF_TRY(try_probes(d));
    if (d->found == NULL)
        MF_TRY(mf_reply_syntax_make(d->a, mf_reply_row_find("plain"), &d->found, NULL));
    return mf_chat_is_usable(d->chat) ? find_opening(d) : MF_OK;
}

mf_status mf_reply_syntax_detect(const mf_tokenizer *tokenizer, const char *template_name,
                                 mf_reply_syntax **out, mf_error *error)
{
    if (tokenizer == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_reply_syntax_detect: a NULL argument");
    detection d = {
        .chat = &tokenizer->chat, .a = &tokenizer->allocator, .template_name = template_name};
    mf_status status = detect(&d);
    if (status != MF_OK) {
        mf_reply_syntax_free(&d.found);
        return mf_fail_memory(error, 0, "the syntax of replies");
    }
    *out = d.found;
    return MF_OK;
}
