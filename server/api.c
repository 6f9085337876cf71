/* SPDX-License-Identifier: MIT */
/* Routes, and what the APIs share. */
#include "api.h"
#include "constraint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const mf_srv_route routes[] = {
    {"POST", "/chat/completions", mf_srv_api_chat, true, false},
    {"POST", "/completions", mf_srv_api_completions, true, false},
    {"POST", "/responses", mf_srv_api_responses, true, false},
    {"POST", "/responses/input_tokens", mf_srv_api_responses_count, true, false},
    {"POST", "/responses/compact", mf_srv_api_responses_compact, false, false},
    {"GET", "/responses/*", mf_srv_api_response, false, false},
    {"DELETE", "/responses/*", mf_srv_api_response_drop, false, false},
    {"GET", "/responses/*/input_items", mf_srv_api_response_items, false, false},
    {"POST", "/responses/*/cancel", mf_srv_api_response_cancel, false, false},
    {"POST", "/conversations", mf_srv_api_conversation_new, true, false},
    {"GET", "/conversations/*", mf_srv_api_conversation, false, false},
    {"POST", "/conversations/*", mf_srv_api_conversation_change, true, false},
    {"DELETE", "/conversations/*", mf_srv_api_conversation_drop, false, false},
    {"GET", "/conversations/*/items", mf_srv_api_items, false, false},
    {"POST", "/conversations/*/items", mf_srv_api_items_add, true, false},
    {"GET", "/conversations/*/items/*", mf_srv_api_item, false, false},
    {"DELETE", "/conversations/*/items/*", mf_srv_api_item_drop, false, false},
    {"POST", "/messages", mf_srv_api_messages, true, false},
    {"POST", "/messages/count_tokens", mf_srv_api_messages_count, true, false},
    {"POST", "/tokenize", mf_srv_api_tokenize, true, false},
    {"POST", "/detokenize", mf_srv_api_detokenize, true, false},
    {"POST", "/apply-template", mf_srv_api_template, true, false},
    {"GET", "/models", mf_srv_api_models, false, false},
    {"GET", "/models/", mf_srv_api_model, false, false},
    {"GET", "/health", mf_srv_api_health, false, true},
    {"GET", "/props", mf_srv_api_props, false, false},
    {"GET", "/metrics", mf_srv_api_metrics, false, false},
    {"GET", "/moeflux/stats", mf_srv_api_stats, false, false},
    {"GET", "/moeflux/experts", mf_srv_api_experts, false, false},
    {"GET", "/", mf_srv_api_page, false, true},
    {"HEAD", "/api/hello", mf_srv_api_probe, false, true},
};

mf_srv_shape mf_srv_shape_at(const char *path)
{
    static const char messages[] = "/messages";
    const size_t n = sizeof messages - 1;
    path += strncmp(path, "/v1/", 4) == 0 ? 3 : 0;
    return strncmp(path, messages, n) == 0 && (path[n] == '\0' || path[n] == '/') ? MF_SRV_ANTHROPIC
                                                                                  : MF_SRV_OPENAI;
}

/* How many bytes of path[n_path] from i on a letter of a route stands for; 0: it is another. */
static size_t n_matched(char letter, const char *path, size_t n_path, size_t i)
{
    if (letter != '*')
        return i < n_path && path[i] == letter;
    const char *end = memchr(path + i, '/', n_path - i);
    return end ? (size_t)(end - path) - i : n_path - i;
}

/* path[n_path] is the route's; *rest, only then: what is below it, or from its first star on. */
static bool is_at(const mf_srv_route *route, const char *path, size_t n_path, const char **rest)
{
    const char *r = route->path, *below = NULL;
    size_t i = 0;
    for (; *r; r++) {
        const size_t n = n_matched(*r, path, n_path, i);
        if (n == 0)
            return false;
        if (*r == '*' && !below)
            below = path + i;
        i += n;
    }
    if (i != n_path && (i == 1 || r[-1] != '/'))
        return false;
    *rest = below ? below : path + i;
    return true;
}

/* A path as routes have it: without /v1 and the slash at its end. *n_path: its bytes. */
static const char *short_path(const char *path, size_t *n_path)
{
    path += strncmp(path, "/v1/", 4) == 0 ? 3 : 0;
    *n_path = strlen(path);
    *n_path -= *n_path > 1 && path[*n_path - 1] == '/';
    return path;
}

const mf_srv_route *mf_srv_find_route(const char *method, const char *path, bool *is_known,
                                      const char **rest)
{
    const mf_srv_route *other = NULL;
    size_t n;
    path = short_path(path, &n);
    for (const mf_srv_route *r = routes; r < routes + sizeof routes / sizeof *routes; r++) {
        if (!is_at(r, path, n, rest))
            continue;
        *is_known = strcmp(r->method, method) == 0 ||
                    (strcmp(method, "HEAD") == 0 && strcmp(r->method, "GET") == 0);
        if (*is_known)
            return r;
        other = r;
    }
    *is_known = false;
    return other;
}

void mf_srv_methods_at(const char *path, char *out)
{
    const char *rest;
    size_t n, n_out = 0;
    *out = '\0';
    path = short_path(path, &n);
    for (const mf_srv_route *r = routes; r < routes + sizeof routes / sizeof *routes; r++)
        if (is_at(r, path, n, &rest) && n_out < MF_SRV_METHODS_BYTES)
            n_out += (size_t)snprintf(out + n_out, MF_SRV_METHODS_BYTES - n_out, "%s%s%s",
                                      n_out > 0 ? ", " : "", r->method,
                                      strcmp(r->method, "GET") == 0 ? ", HEAD" : "");
}

/* -------------------------------------------------------------------------------------- jobs -- */

mf_srv_job *mf_srv_api_job(mf_srv_request *request, const mf_srv_protocol *protocol,
                           mf_srv_refusal *r)
{
    const mf_srv_model *model = &request->server->model;
    mf_srv_job *job = mf_srv_job_new(model, protocol);
    request->job = job;
    if (!job) {
        mf_srv_refuse(r, 503, "out of memory");
        return NULL;
    }
    if (mf_srv_get_model(request->json, job, r) &&
        mf_srv_get_sampling(request->json, model->info.n_vocab, &job->params, r) &&
        mf_srv_get_dry(request->json, model, &job->params, r))
        return job;
    return NULL;
}

bool mf_srv_api_add_prompt(mf_srv_job *job, mf_srv_prompt *prompt, mf_srv_refusal *r)
{
    const size_t most = job->served->info.n_context_tokens;
    const size_t n_needed = prompt->n_tokens + (job->params.n_max_tokens > 0);
    mf_srv_prompt *prompts = NULL;
    if (n_needed > most) {
        mf_srv_refuse_context(r, job->protocol->shape, n_needed, most);
    } else if (prompt->n_tokens == 0) {
        mf_srv_refuse(r, 400, "the prompt is empty");
    } else {
        prompts = realloc(job->prompts, (job->n_prompts + 1) * sizeof *prompts);
        if (!prompts)
            mf_srv_refuse(r, 503, "out of memory for the prompt");
    }
    if (!prompts) {
        mf_srv_prompt_free(prompt);
        return false;
    }
    job->prompts = prompts;
    prompts[job->n_prompts++] = *prompt;
    return true;
}

bool mf_srv_api_add_chat(mf_srv_job *job, mf_srv_conversation *c, mf_srv_refusal *r)
{
    mf_srv_prompt prompt = {0};
    bool is_good = mf_srv_read_calls(c, job, r) && mf_srv_prompt_chat(job->served, c, &prompt, r);
    for (size_t i = 0; i < c->n_messages; i++)
        job->n_earlier_calls += (uint32_t)c->messages[i].n_calls;
    job->has_one_call = c->has_one_call;
    job->has_functions = c->has_functions;
    job->tools = c->tools;
    job->odd = c->odd;
    c->tools = (mf_srv_bytes){0};
    c->odd = (mf_srv_odd_tools){0};
    mf_srv_conversation_free(c);
    return is_good && mf_srv_api_add_prompt(job, &prompt, r);
}

bool mf_srv_api_finish(mf_srv_job *job, mf_srv_refusal *r)
{
    if (job->n_prompts * job->params.n_choices > MF_SRV_MAX_CHOICES)
        return mf_srv_refuse(r, 400, "more than %d answers are asked for", MF_SRV_MAX_CHOICES);
    return mf_srv_job_prepare(job) || mf_srv_refuse(r, 503, "out of memory for the prompt");
}

bool mf_srv_api_count(mf_srv_request *request, mf_srv_read_fn read, size_t *n_tokens,
                      mf_srv_refusal *r)
{
    mf_srv_conversation c = {0};
    mf_srv_prompt prompt = {0};
    size_t n_thought_max = 0;
    bool is_good = read(request, &c, &n_thought_max, r) &&
                   mf_srv_prompt_chat(&request->server->model, &c, &prompt, r);
    *n_tokens = prompt.n_tokens;
    mf_srv_prompt_free(&prompt);
    mf_srv_conversation_free(&c);
    return is_good;
}

/* ----------------------------------------------------------------------------------- answers -- */

void mf_srv_put_text_field(mf_srv_bytes *out, const char *name, const char *text)
{
    mf_srv_printf(out, ",\"%s\":", name);
    mf_srv_puts_json(out, text);
}

void mf_srv_put_usage(const mf_srv_job *job, mf_srv_bytes *out)
{
    const mf_srv_usage u = mf_srv_job_usage(job);
    mf_srv_printf(out,
                  "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":%zu},"
                  "\"completion_tokens_details\":{\"reasoning_tokens\":%zu}}",
                  u.n_prompt, u.n_answer, u.n_prompt + u.n_answer, u.n_cached, u.n_thought);
}

void mf_srv_put_logprob(mf_srv_bytes *out, float logprob)
{
    if (isnan(logprob))
        mf_srv_puts(out, "null");
    else
        mf_srv_put_number(out, logprob > -9999.0f ? (double)logprob : -9999.0);
}

void mf_srv_put_token(const mf_srv_job *job, mf_srv_bytes *out, int32_t token)
{
    size_t n = 0;
    const char *piece = mf_tokenizer_piece(job->served->tokenizer, token, &n);
    mf_srv_put_json(out, piece ? piece : "", n);
}

const mf_srv_odd_tool *mf_srv_odd_of(const mf_srv_job *job, const mf_srv_made_call *call)
{
    for (size_t i = 0; i < job->odd.n; i++)
        if (strcmp(job->odd.list[i].name, call->name) == 0)
            return &job->odd.list[i];
    return NULL;
}

bool mf_srv_is_custom(const mf_srv_job *job, const mf_srv_made_call *call)
{
    const mf_srv_odd_tool *odd = mf_srv_odd_of(job, call);
    return odd && odd->is_custom;
}

/* The arguments of a call that was cut within its text, or behind it: as far as they were written.
 * NULL: they are not. */
static yyjson_doc *read_cut(const char *arguments, size_t n_bytes)
{
    static const char *const ends[] = {"\"}", "}"};
    const size_t max_escape = sizeof "\\ud83d\\ude0" - 1; /* which may be cut, too */
    yyjson_doc *doc = NULL;
    for (size_t i = 0; !doc && i < 2 * (max_escape + 1) && i / 2 < n_bytes; i++) {
        mf_srv_bytes text = {0};
        mf_srv_put(&text, arguments, n_bytes - i / 2);
        mf_srv_puts(&text, ends[i % 2]);
        doc = text.has_failed ? NULL : yyjson_read(text.data, text.n_bytes, 0);
        mf_srv_bytes_free(&text);
    }
    return doc;
}

void mf_srv_put_input(mf_srv_bytes *out, const char *arguments, size_t n_bytes)
{
    yyjson_doc *doc = yyjson_read(arguments, n_bytes, 0);
    if (!doc)
        doc = read_cut(arguments, n_bytes);
    yyjson_val *input = yyjson_obj_get(yyjson_doc_get_root(doc), "input");
    if (yyjson_is_str(input))
        mf_srv_put_json(out, yyjson_get_str(input), yyjson_get_len(input));
    else if (!memchr(arguments, ':', n_bytes)) /* cut before the text */
        mf_srv_puts(out, "\"\"");
    else
        mf_srv_put_json(out, arguments, n_bytes);
    yyjson_doc_free(doc);
}

/* "token":..,"logprob":..,"bytes":[..] */
static void put_score(const mf_srv_job *job, mf_srv_bytes *out, int32_t token, float logprob)
{
    size_t n = 0;
    const char *piece = mf_tokenizer_piece(job->served->tokenizer, token, &n);
    mf_srv_puts(out, "\"token\":");
    mf_srv_put_token(job, out, token);
    mf_srv_puts(out, ",\"logprob\":");
    mf_srv_put_logprob(out, logprob);
    mf_srv_puts(out, ",\"bytes\":[");
    for (size_t i = 0; piece && i < n; i++)
        mf_srv_printf(out, "%s%u", i > 0 ? "," : "", (unsigned)(unsigned char)piece[i]);
    mf_srv_puts(out, "]");
}

void mf_srv_put_scores(const mf_srv_job *job, mf_srv_bytes *out, const mf_srv_token *tokens,
                       size_t n_tokens)
{
    mf_srv_puts(out, "[");
    for (size_t i = 0; i < n_tokens; i++) {
        mf_srv_puts(out, i > 0 ? ",{" : "{");
        put_score(job, out, tokens[i].token, tokens[i].logprob);
        mf_srv_puts(out, ",\"top_logprobs\":[");
        for (unsigned k = 0; k < tokens[i].n_top; k++) {
            mf_srv_puts(out, k > 0 ? ",{" : "{");
            put_score(job, out, tokens[i].top[k].token, tokens[i].top[k].logprob);
            mf_srv_puts(out, "}");
        }
        mf_srv_puts(out, "]}");
    }
    mf_srv_puts(out, "]");
}

const char *mf_srv_finish_name(mf_srv_finish finish)
{
    return finish == MF_SRV_END || finish == MF_SRV_STOP ? "stop" : "length";
}

void mf_srv_put_error_event(mf_srv_job *job, const mf_srv_refusal *refusal, mf_srv_bytes *out)
{
    mf_srv_puts(out, "data: ");
    mf_srv_put_refusal(out, MF_SRV_OPENAI, refusal, job->id);
    mf_srv_puts(out, "\n\n");
}
