/* SPDX-License-Identifier: MIT */
/* Requests for responses: earlier ones that they go on from, and what answers repeat of them. */
#include "api_responses_asked.h"

#include "conversation_items.h"
#include "item_list.h"
#include "model.h"

#include <stdio.h>
#include <string.h>

/* What is searched for a request's references: about a second's work, where each that leads to one
 * conversation with all others takes next to none. */
#define MAX_LOOKED_AT ((size_t)1 << 30)
#define ITEM_BYTES 32 /* looking at an item takes as long as so many bytes of text */

static bool no_memory(mf_srv_refusal *r)
{
    return mf_srv_refuse(r, 503, "out of memory for the items");
}

/* ----------------------------------------------------------------------------------- earlier -- */

/* conversation: its id, or an object that has it. */
static bool put_conversation(mf_srv_request *request, mf_srv_asked *asked, mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(request->json, "conversation");
    yyjson_val *id = yyjson_is_obj(v) ? yyjson_obj_get(v, "id") : v;
    if (!v)
        return true;
    if (!mf_srv_is_text(id, "conversation", r))
        return false;
    if (mf_srv_field_of(request->json, "previous_response_id"))
        return mf_srv_refuse_field(r, "conversation", "excludes previous_response_id");
    const char *text = yyjson_get_str(id);
    if (strlen(text) >= sizeof asked->conversation ||
        !mf_srv_responses_find(request->server->model.conversations, text, request->key,
                               &asked->text, NULL, NULL)) {
        mf_srv_refuse_field(r, "conversation", "Conversation with id '%.60s' not found.", text);
        r->status = 404;
        return false;
    }
    snprintf(asked->conversation, sizeof asked->conversation, "%s", text);
    return !asked->text.has_failed || no_memory(r);
}

static bool put_previous(mf_srv_request *request, mf_srv_bytes *out, mf_srv_refusal *r)
{
    const char *id = NULL;
    if (!mf_srv_get_string(request->json, "previous_response_id", &id, r))
        return false;
    if (!id)
        return true;
    if (mf_srv_responses_find(request->server->model.responses, id, request->key, out, NULL, NULL))
        return !out->has_failed || no_memory(r);
    mf_srv_refuse_field(r, "previous_response_id",
                        "Previous response with id '%.60s' not found: this server keeps those of "
                        "requests that do not say store false, the latest of them, until it ends",
                        id);
    r->code = "previous_response_not_found";
    return false;
}

/* The item of that id among those that were looked at last. False: it is not there. */
static bool put_found(mf_srv_asked *asked, const char *id, mf_srv_bytes *out)
{
    yyjson_val *item;
    size_t i, n;
    yyjson_arr_foreach(yyjson_doc_get_root(asked->looked_at), i, n, item)
    {
        asked->n_looked_at += ITEM_BYTES;
        if (mf_srv_is_item(item, id))
            return mf_srv_put_value(out, item);
    }
    return false;
}

/* The item of that id among all that is kept for the key: what was said to a model, what it said,
 * and what a conversation was given. False: there is none. A request's references mostly lead to
 * one conversation, which is read once. */
static bool put_referred(mf_srv_request *request, const char *id, mf_srv_asked *asked)
{
    mf_srv_responses *const lists[] = {request->server->model.responses,
                                       request->server->model.conversations};
    mf_srv_bytes begin = {0};
    bool is_found = put_found(asked, id, &asked->text);
    mf_srv_puts(&begin, "{\"id\":"); /* as mf_srv_put_item writes it */
    mf_srv_puts_json(&begin, id);
    for (size_t i = 0; i < sizeof lists / sizeof *lists && !begin.has_failed; i++) {
        mf_srv_bytes items = {0};
        size_t n_seen = 0;
        while (!is_found && mf_srv_responses_search(lists[i], request->key, begin.data, &n_seen,
                                                    &asked->n_looked_at, &items)) {
            yyjson_doc_free(asked->looked_at);
            asked->looked_at = items.has_failed ? NULL : mf_srv_parse_items(&items);
            is_found = put_found(asked, id, &asked->text);
            mf_srv_bytes_free(&items);
        }
    }
    mf_srv_bytes_free(&begin);
    return is_found;
}

static bool is_reference(yyjson_val *item)
{
    return yyjson_equals_str(yyjson_obj_get(item, "type"), "item_reference");
}

/* What was written from `begin` on is an item that the request itself says. */
static bool take_own(mf_srv_asked *asked, size_t begin, bool is_good, mf_srv_refusal *r)
{
    if (!is_good || asked->text.has_failed)
        return no_memory(r);
    mf_srv_puts(&asked->own, asked->own.n_bytes > 0 ? "," : "");
    mf_srv_put(&asked->own, asked->text.data + begin, asked->text.n_bytes - begin);
    return true;
}

static bool put_item(mf_srv_request *request, yyjson_val *item, size_t i, mf_srv_asked *asked,
                     mf_srv_refusal *r)
{
    char name[MF_SRV_PARAM_BYTES];
    const char *id = yyjson_get_str(yyjson_obj_get(item, "id"));
    mf_srv_bytes *out = &asked->text;
    mf_srv_puts(out, out->n_bytes > 0 ? "," : "");
    if (!is_reference(item)) {
        const size_t begin = out->n_bytes;
        return take_own(asked, begin, mf_srv_put_item(item, out), r);
    }
    const size_t n_before = out->n_bytes;
    snprintf(name, sizeof name, "input[%zu].id", i);
    if (asked->n_looked_at > MAX_LOOKED_AT)
        return mf_srv_refuse_field(r, name, "too much is kept to look for so many items in it");
    if (!id || !put_referred(request, id, asked))
        return mf_srv_refuse_field(r, name, "Item with id '%.60s' not found.", id ? id : "");
    asked->n_referred += out->n_bytes - n_before;
    return asked->n_referred <= MF_SRV_RESPONSE_BYTES ||
           mf_srv_refuse_field(r, name,
                               "with this one, items that are referred to have more than "
                               "%zu bytes",
                               MF_SRV_RESPONSE_BYTES);
}

/* The request's own items, each with an id, behind what is there. */
static bool put_own(mf_srv_request *request, yyjson_val *input, mf_srv_asked *asked,
                    mf_srv_refusal *r)
{
    size_t i, n;
    yyjson_val *item;
    mf_srv_bytes *out = &asked->text;
    if (yyjson_is_str(input)) {
        mf_srv_puts(out, out->n_bytes > 0 ? "," : "");
        const size_t begin = out->n_bytes;
        return take_own(asked, begin, mf_srv_put_user_item(input, out), r);
    }
    yyjson_arr_foreach(input, i, n, item)
    {
        if (!put_item(request, item, i, asked, r))
            return false;
    }
    return true;
}

static bool refers(yyjson_val *input)
{
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(input, i, n, item)
    {
        if (is_reference(item))
            return true;
    }
    return false;
}

bool mf_srv_asked_open(mf_srv_request *request, mf_srv_asked *asked, mf_srv_refusal *r)
{
    yyjson_val *input = mf_srv_field_of(request->json, "input");
    asked->items = input;
    if (!put_conversation(request, asked, r) || !put_previous(request, &asked->text, r))
        return false;
    if (!asked->text.data && !refers(input))
        return true;
    const bool says_nothing = !input || (yyjson_is_arr(input) && yyjson_arr_size(input) == 0);
    if (!says_nothing && !yyjson_is_str(input) && !mf_srv_check_messages(input, "input", r))
        return false;
    yyjson_doc *earlier = mf_srv_parse_items(&asked->text);
    asked->n_earlier = yyjson_arr_size(yyjson_doc_get_root(earlier));
    yyjson_doc_free(earlier);
    if (!put_own(request, input, asked, r))
        return false;
    asked->doc = mf_srv_parse_items(&asked->text);
    asked->items = yyjson_doc_get_root(asked->doc);
    return asked->doc || no_memory(r);
}

void mf_srv_asked_free(mf_srv_asked *asked)
{
    yyjson_doc_free(asked->doc);
    yyjson_doc_free(asked->looked_at);
    mf_srv_bytes_free(&asked->text);
    mf_srv_bytes_free(&asked->own);
    *asked = (mf_srv_asked){0};
}

/* --------------------------------------------------------------------------------- repeating -- */

/* ,"name":VALUE, or what stands for none. */
static bool put_echo(yyjson_val *object, const char *name, const char *none, mf_srv_bytes *out)
{
    yyjson_val *value = mf_srv_field_of(object, name);
    mf_srv_printf(out, ",\"%s\":", name);
    if (value)
        return mf_srv_put_value(out, value);
    mf_srv_puts(out, none);
    return true;
}

/* What of the text was asked for, with the format that it has where none was. */
static bool put_text(yyjson_val *object, mf_srv_bytes *out)
{
    yyjson_val *text = mf_srv_field_of(object, "text");
    mf_srv_puts(out, ",\"text\":{\"format\":");
    if (!mf_srv_field_of(text, "format"))
        mf_srv_puts(out, "{\"type\":\"text\"}");
    else if (!mf_srv_put_value(out, mf_srv_field_of(text, "format")))
        return false;
    const bool is_good =
        !mf_srv_field_of(text, "verbosity") || put_echo(text, "verbosity", "null", out);
    mf_srv_puts(out, "}");
    return is_good;
}

/* A function has all its members, others are as they came. */
static bool put_tool(yyjson_val *tool, mf_srv_bytes *out)
{
    if (!yyjson_equals_str(yyjson_obj_get(tool, "type"), "function"))
        return mf_srv_put_value(out, tool);
    mf_srv_puts(out, "{\"type\":\"function\"");
    const bool is_good =
        put_echo(tool, "name", "\"\"", out) && put_echo(tool, "description", "null", out) &&
        put_echo(tool, "parameters", "null", out) && put_echo(tool, "strict", "false", out);
    mf_srv_puts(out, "}");
    return is_good;
}

static bool put_tools(yyjson_val *object, mf_srv_bytes *out)
{
    size_t i, n;
    yyjson_val *tool;
    mf_srv_puts(out, ",\"tools\":[");
    yyjson_arr_foreach(mf_srv_field_of(object, "tools"), i, n, tool)
    {
        mf_srv_puts(out, i > 0 ? "," : "");
        if (!put_tool(tool, out))
            return false;
    }
    mf_srv_puts(out, "]");
    return true;
}

static bool put_request(yyjson_val *object, mf_srv_bytes *out)
{
    static const char *const fields[][2] = {{"instructions", "null"},
                                            {"previous_response_id", "null"},
                                            {"tool_choice", "\"auto\""},
                                            {"truncation", "\"disabled\""},
                                            {"max_tool_calls", "null"},
                                            {"metadata", "{}"},
                                            {"user", "null"},
                                            {"safety_identifier", "null"},
                                            {"prompt_cache_key", "null"},
                                            {"service_tier", "\"default\""},
                                            {"reasoning", "{\"effort\":null,\"summary\":null}"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!put_echo(object, fields[i][0], fields[i][1], out))
            return false;
    if (mf_srv_field_of(object, "conversation")) {
        yyjson_val *v = mf_srv_field_of(object, "conversation");
        mf_srv_puts(out, ",\"conversation\":{\"id\":");
        if (!mf_srv_put_value(out, yyjson_is_obj(v) ? yyjson_obj_get(v, "id") : v))
            return false;
        mf_srv_puts(out, "}");
    }
    return put_text(object, out) && put_tools(object, out);
}

bool mf_srv_asked_give(mf_srv_asked *asked, mf_srv_request *request, mf_srv_job *job,
                       mf_srv_refusal *r)
{
    job->is_kept = true;
    if (!mf_srv_get_bool(request->json, "store", &job->is_kept, r) ||
        !mf_srv_get_bool(request->json, "background", &job->is_background, r))
        return false;
    if (job->is_background && !job->is_kept)
        return mf_srv_refuse_field(r, "background", "wants a response that is stored");
    job->key = request->key;
    memcpy(job->conversation, asked->conversation, sizeof job->conversation);
    if (!put_request(request->json, &job->echo))
        return no_memory(r);
    const bool is_wanted = job->is_kept || job->conversation[0] != '\0';
    if (is_wanted && !asked->doc && !put_own(request, asked->items, asked, r))
        return false;
    job->items = asked->text;
    asked->text = (mf_srv_bytes){0};
    job->own_items = asked->own;
    asked->own = (mf_srv_bytes){0};
    return true;
}

bool mf_srv_asked_include(yyjson_val *object, mf_srv_job *job, mf_srv_refusal *r)
{
    yyjson_val *include = mf_srv_field_of(object, "include"), *word;
    size_t i, n;
    if (include && !yyjson_is_arr(include))
        return mf_srv_refuse_field(r, "include", "expected an array of strings");
    yyjson_arr_foreach(include, i, n, word)
    {
        if (!yyjson_is_str(word))
            return mf_srv_refuse_field(r, "include", "expected an array of strings");
        if (yyjson_equals_str(word, "message.output_text.logprobs"))
            job->params.has_logprobs = true;
        if (yyjson_equals_str(word, "reasoning.encrypted_content"))
            job->seals_thoughts = true;
    }
    return true;
}
