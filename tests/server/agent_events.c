/* SPDX-License-Identifier: MIT */
#include "agent_events.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_ID_BYTES 6u

typedef struct kinds {
    char *text; /* from malloc */
    size_t n_bytes;
    char last[64];
} kinds;

static void add(kinds *k, const char *kind)
{
    if (!kind || strcmp(kind, k->last) == 0)
        return;
    snprintf(k->last, sizeof k->last, "%s", kind);
    const size_t n = strlen(kind);
    char *more = realloc(k->text, k->n_bytes + n + 2);
    if (!more)
        abort();
    k->text = more;
    k->n_bytes += (size_t)sprintf(more + k->n_bytes, "%s%s", k->n_bytes > 0 ? " " : "", kind);
}

static const char *text_of(yyjson_val *object, const char *key)
{
    return yyjson_get_str(yyjson_obj_get(object, key));
}

/* ----------------------------------------------------------------------------------- the kinds --
 */

static void add_chat(kinds *k, yyjson_val *event)
{
    size_t i, n, j, m;
    yyjson_val *choice, *key, *value;
    yyjson_arr_foreach(yyjson_obj_get(event, "choices"), i, n, choice)
    {
        yyjson_val *delta = yyjson_obj_get(choice, "delta");
        yyjson_val *part = delta ? delta : yyjson_obj_get(choice, "message");
        yyjson_obj_foreach(part, j, m, key, value)
        {
            const bool is_empty = yyjson_equals_str(key, "content") && yyjson_equals_str(value, "");
            if (!yyjson_is_null(value) && !is_empty)
                add(k, yyjson_get_str(key));
        }
        add(k, text_of(choice, "finish_reason"));
    }
    if (yyjson_is_obj(yyjson_obj_get(event, "usage")))
        add(k, "usage");
}

static void add_types(kinds *k, yyjson_val *list)
{
    size_t i, n;
    yyjson_val *part;
    yyjson_arr_foreach(list, i, n, part) add(k, text_of(part, "type"));
}

static void add_event(kinds *k, yyjson_val *event)
{
    const char *type = text_of(event, "type"), *object = text_of(event, "object");
    yyjson_val *content = yyjson_obj_get(event, "content"),
               *output = yyjson_obj_get(event, "output");
    if (yyjson_obj_get(event, "choices")) {
        add_chat(k, event);
        return;
    }
    if (type && strcmp(type, "content_block_start") == 0)
        add(k, text_of(yyjson_obj_get(event, "content_block"), "type"));
    else if (output && !type)
        add(k, object);
    else if (!type || strcmp(type, "ping") != 0)
        add(k, type ? type : object ? object : "answer");
    if (output && !type)
        add_types(k, output);
    else if (content && type && strcmp(type, "message") == 0)
        add_types(k, content);
}

/* --------------------------------------------------------------------------------------- usage --
 */

static void take_number(yyjson_val *object, const char *key, long *out)
{
    yyjson_val *value = yyjson_obj_get(object, key);
    if (yyjson_is_int(value))
        *out = (long)yyjson_get_sint(value);
}

static void take_usage(mf_agent_usage *u, yyjson_val *event)
{
    yyjson_val *inner = yyjson_obj_get(event, "message");
    inner = inner ? inner : yyjson_obj_get(event, "response");
    yyjson_val *usage = yyjson_obj_get(inner ? inner : event, "usage");
    if (!yyjson_is_obj(usage))
        return;
    take_number(usage, "prompt_tokens", &u->n_prompt);
    take_number(usage, "input_tokens", &u->n_prompt);
    take_number(usage, "completion_tokens", &u->n_answered);
    take_number(usage, "output_tokens", &u->n_answered);
    take_number(yyjson_obj_get(usage, "prompt_tokens_details"), "cached_tokens", &u->n_cached);
    take_number(yyjson_obj_get(usage, "input_tokens_details"), "cached_tokens", &u->n_cached);
    take_number(usage, "cache_read_input_tokens", &u->n_cached);
    if (yyjson_obj_get(usage, "cache_read_input_tokens") && yyjson_obj_get(usage, "input_tokens"))
        u->n_prompt += u->n_cached; /* Anthropic's are the others */
}

char *mf_agent_events(const char *body, mf_agent_usage *usage)
{
    kinds k = {0};
    const bool is_one = *body == '{';
    *usage = (mf_agent_usage){0};
    for (const char *line = body; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *json = is_one ? body : strncmp(line, "data: {", 7) == 0 ? line + 6 : NULL;
        if (strncmp(line, "data: [DONE]", 12) == 0)
            add(&k, "[DONE]");
        if (!json)
            continue;
        yyjson_doc *doc = yyjson_read(json, is_one ? strlen(json) : strcspn(json, "\n"), 0);
        add_event(&k, yyjson_doc_get_root(doc));
        take_usage(usage, yyjson_doc_get_root(doc));
        yyjson_doc_free(doc);
        if (is_one)
            break;
    }
    add(&k, k.text ? NULL : "nothing");
    return k.text;
}

/* ----------------------------------------------------------------------------------------- ids --
 */

char *mf_agent_id(const char *body, const char *key, size_t index)
{
    char mark[80];
    snprintf(mark, sizeof mark, "\"%s\":\"", key);
    const char *seen[256];
    size_t n_seen = 0;
    for (const char *at = strstr(body, mark); at; at = strstr(at, mark)) {
        at += strlen(mark);
        const size_t n = strcspn(at, "\"");
        bool is_new = n >= MIN_ID_BYTES && n_seen < sizeof seen / sizeof *seen;
        for (size_t i = 0; i < n_seen && is_new; i++)
            is_new = strncmp(seen[i], at, n + 1) != 0;
        if (!is_new)
            continue;
        if (n_seen == index)
            return strndup(at, n);
        seen[n_seen++] = at;
    }
    return NULL;
}
