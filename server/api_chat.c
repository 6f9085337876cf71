/* SPDX-License-Identifier: MIT */
/* OpenAI's chat completions. */
#include "api.h"
#include "constraint.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const mf_srv_field fields[] = {{"messages", MF_SRV_FIELD_USED},
                                      {"max_tokens", MF_SRV_FIELD_USED},
                                      {"max_completion_tokens", MF_SRV_FIELD_USED},
                                      {"n", MF_SRV_FIELD_USED},
                                      {"stop", MF_SRV_FIELD_USED},
                                      {"logprobs", MF_SRV_FIELD_USED},
                                      {"top_logprobs", MF_SRV_FIELD_USED},
                                      {"stream_options", MF_SRV_FIELD_USED},
                                      {"reasoning_effort", MF_SRV_FIELD_USED},
                                      {"reasoning", MF_SRV_FIELD_USED},
                                      {"thinking", MF_SRV_FIELD_USED},
                                      {"enable_thinking", MF_SRV_FIELD_USED},
                                      {"thinking_budget", MF_SRV_FIELD_USED},
                                      {"chat_template_kwargs", MF_SRV_FIELD_USED},
                                      {"response_format", MF_SRV_FIELD_USED},
                                      {"modalities", MF_SRV_FIELD_USED},
                                      {"tool_choice", MF_SRV_FIELD_USED},
                                      {"function_call", MF_SRV_FIELD_USED},
                                      {"parallel_tool_calls", MF_SRV_FIELD_USED},
                                      {"documents", MF_SRV_FIELD_USED},
                                      {"prediction", MF_SRV_FIELD_HARMLESS},
                                      {"verbosity", MF_SRV_FIELD_HARMLESS},
                                      {"tools", MF_SRV_FIELD_USED},
                                      {"functions", MF_SRV_FIELD_USED},
                                      {"audio", MF_SRV_FIELD_REFUSED},
                                      {"moderation", MF_SRV_FIELD_REFUSED},
                                      {"web_search_options", MF_SRV_FIELD_UNHEARD},
                                      {NULL, MF_SRV_FIELD_USED}};

/* Some editors send what is a response's request, and expect a chat's answer. */
static const mf_srv_field item_fields[] = {{"input", MF_SRV_FIELD_USED},
                                           {"instructions", MF_SRV_FIELD_USED},
                                           {"max_output_tokens", MF_SRV_FIELD_USED},
                                           {"include", MF_SRV_FIELD_HARMLESS},
                                           {"text", MF_SRV_FIELD_USED},
                                           {"truncation", MF_SRV_FIELD_HARMLESS},
                                           {"previous_response_id", MF_SRV_FIELD_REFUSED},
                                           {"functions", MF_SRV_FIELD_REFUSED},
                                           {"function_call", MF_SRV_FIELD_REFUSED},
                                           {NULL, MF_SRV_FIELD_USED}};

/* ----------------------------------------------------------------------------------- answers -- */

static void put_logprobs(const mf_srv_job *job, mf_srv_bytes *out, const mf_srv_token *tokens,
                         size_t n_tokens)
{
    if (!job->params.has_logprobs) {
        mf_srv_puts(out, ",\"logprobs\":null");
        return;
    }
    mf_srv_puts(out, ",\"logprobs\":{\"content\":");
    mf_srv_put_scores(job, out, tokens, n_tokens);
    mf_srv_puts(out, ",\"refusal\":null}");
}

static void put_head(const mf_srv_job *job, mf_srv_bytes *out, const char *object)
{
    mf_srv_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64, job->id, object,
                  job->created);
    mf_srv_put_text_field(out, "model", job->model);
}

static void begin_chunk(const mf_srv_job *job, mf_srv_bytes *out, size_t index)
{
    mf_srv_puts(out, "data: ");
    put_head(job, out, "chat.completion.chunk");
    mf_srv_printf(out, ",\"choices\":[{\"index\":%zu,\"delta\":{", index);
}

/* finish: NULL: it goes on. */
static void end_chunk(const mf_srv_job *job, mf_srv_bytes *out, const char *finish)
{
    mf_srv_puts(out, ",\"finish_reason\":");
    if (finish)
        mf_srv_puts_json(out, finish);
    else
        mf_srv_puts(out, "null");
    mf_srv_puts(out, job->params.has_usage_event ? "}],\"usage\":null}\n\n" : "}]}\n\n");
}

static void on_begin(mf_srv_job *job, mf_srv_bytes *out)
{
    for (size_t i = 0; i < job->n_choices; i++) {
        begin_chunk(job, out, i);
        mf_srv_puts(out, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null");
        end_chunk(job, out, NULL);
    }
}

/* "id":..,"type":"function","function":{"name":..,"arguments": or, in the older form,
 * "function_call":{"name":..,"arguments": */
static void begin_call(const mf_srv_job *job, const mf_srv_made_call *call, mf_srv_bytes *out)
{
    const bool is_custom = mf_srv_is_custom(job, call);
    const char *type = is_custom ? "custom" : "function";
    if (job->has_functions) {
        mf_srv_puts(out, "\"function_call\":{\"name\":");
    } else {
        mf_srv_puts(out, "\"id\":");
        mf_srv_puts_json(out, call->id);
        mf_srv_printf(out, ",\"type\":\"%s\",\"%s\":{\"name\":", type, type);
    }
    mf_srv_puts_json(out, call->name);
    mf_srv_puts(out, is_custom ? ",\"input\":" : ",\"arguments\":");
}

static const mf_srv_made_call *custom_of(const mf_srv_job *job, const mf_srv_choice *choice,
                                         size_t call)
{
    return mf_srv_is_custom(job, &choice->calls[call]) ? &choice->calls[call] : NULL;
}

/* A call's first chunk has all but its arguments. */
static void on_open(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_part *part,
                    mf_srv_bytes *out)
{
    if (part->kind != MF_SRV_CALL)
        return;
    begin_chunk(job, out, choice->index);
    if (!job->has_functions)
        mf_srv_printf(out, "\"tool_calls\":[{\"index\":%zu,", part->call);
    begin_call(job, &choice->calls[part->call], out);
    mf_srv_puts(out, job->has_functions ? "\"\"}}" : "\"\"}}]}");
    mf_srv_puts(out, ",\"logprobs\":null");
    end_chunk(job, out, NULL);
}

/* A custom tool's text comes as one piece: it is known when its arguments are whole. */
static void on_close(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_part *part,
                     mf_srv_bytes *out)
{
    size_t n = 0;
    const char *text = mf_srv_part_text(choice, part, &n);
    if (part->kind != MF_SRV_CALL || !custom_of(job, choice, part->call))
        return;
    begin_chunk(job, out, choice->index);
    mf_srv_printf(out, "\"tool_calls\":[{\"index\":%zu,\"custom\":{\"input\":", part->call);
    mf_srv_put_input(out, text, n);
    mf_srv_puts(out, "}}]},\"logprobs\":null");
    end_chunk(job, out, NULL);
}

static void on_piece(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_piece *piece,
                     mf_srv_bytes *out)
{
    if (piece->kind == MF_SRV_CALL && custom_of(job, choice, choice->n_calls - 1))
        return;
    begin_chunk(job, out, choice->index);
    if (piece->kind == MF_SRV_CALL && job->has_functions)
        mf_srv_puts(out, "\"function_call\":{\"arguments\":");
    else if (piece->kind == MF_SRV_CALL)
        mf_srv_printf(out, "\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":",
                      choice->n_calls - 1);
    else
        mf_srv_puts(out, piece->kind == MF_SRV_THOUGHT ? "\"reasoning_content\":" : "\"content\":");
    mf_srv_put_json(out, piece->text, piece->n_bytes);
    mf_srv_puts(out, piece->kind != MF_SRV_CALL ? "}" : job->has_functions ? "}}" : "}}]}");
    if (piece->kind == MF_SRV_TEXT)
        put_logprobs(job, out, piece->tokens, piece->n_tokens);
    else
        mf_srv_puts(out, ",\"logprobs\":null");
    end_chunk(job, out, NULL);
}

static const char *finish_name(const mf_srv_choice *c)
{
    if (c->n_calls == 0 || c->finish != MF_SRV_END)
        return mf_srv_finish_name(c->finish);
    return c->job->has_functions ? "function_call" : "tool_calls";
}

static void on_finish(mf_srv_job *job, mf_srv_choice *choice, mf_srv_bytes *out)
{
    begin_chunk(job, out, choice->index);
    mf_srv_puts(out, "},\"logprobs\":null");
    end_chunk(job, out, finish_name(choice));
}

static void on_end(mf_srv_job *job, mf_srv_bytes *out)
{
    if (job->params.has_usage_event) {
        mf_srv_puts(out, "data: ");
        put_head(job, out, "chat.completion.chunk");
        mf_srv_puts(out, ",\"choices\":[],\"usage\":");
        mf_srv_put_usage(job, out);
        mf_srv_puts(out, "}\n\n");
    }
    mf_srv_puts(out, "data: [DONE]\n\n");
}

static void put_choice(const mf_srv_job *job, const mf_srv_choice *c, mf_srv_bytes *out)
{
    mf_srv_printf(out, "{\"index\":%zu,\"message\":{\"role\":\"assistant\",\"content\":", c->index);
    if (c->n_calls > 0 && c->content.n_bytes == 0)
        mf_srv_puts(out, "null");
    else
        mf_srv_put_json(out, c->content.data ? c->content.data : "", c->content.n_bytes);
    mf_srv_puts(out, ",\"refusal\":null");
    if (c->thoughts.n_bytes > 0) {
        mf_srv_puts(out, ",\"reasoning_content\":");
        mf_srv_put_json(out, c->thoughts.data, c->thoughts.n_bytes);
    }
    for (size_t i = 0; i < c->n_calls; i++) {
        const mf_srv_bytes *arguments = &c->calls[i].arguments;
        mf_srv_puts(out, job->has_functions ? "," : i == 0 ? ",\"tool_calls\":[{" : ",{");
        begin_call(job, &c->calls[i], out);
        if (custom_of(job, c, i))
            mf_srv_put_input(out, arguments->data ? arguments->data : "", arguments->n_bytes);
        else
            mf_srv_put_json(out, arguments->data ? arguments->data : "", arguments->n_bytes);
        mf_srv_puts(out, job->has_functions ? "}" : i + 1 == c->n_calls ? "}}]" : "}}");
    }
    mf_srv_puts(out, "}");
    put_logprobs(job, out, c->infos, c->n_released);
    mf_srv_printf(out, ",\"finish_reason\":\"%s\"}", finish_name(c));
}

static void on_document(mf_srv_job *job, mf_srv_bytes *out)
{
    put_head(job, out, "chat.completion");
    mf_srv_puts(out, ",\"choices\":[");
    for (size_t i = 0; i < job->n_choices; i++) {
        mf_srv_puts(out, i > 0 ? "," : "");
        put_choice(job, &job->choices[i], out);
    }
    mf_srv_puts(out, "],\"usage\":");
    mf_srv_put_usage(job, out);
    mf_srv_puts(out, "}");
}

static const mf_srv_protocol protocol = {.name = "chat",
                                         .id_prefix = "chatcmpl-",
                                         .shape = MF_SRV_OPENAI,
                                         .has_thoughts = true,
                                         .begin = on_begin,
                                         .open = on_open,
                                         .close = on_close,
                                         .piece = on_piece,
                                         .finish = on_finish,
                                         .end = on_end,
                                         .fail = mf_srv_put_error_event,
                                         .document = on_document};

/* ----------------------------------------------------------------------------------- request -- */

static bool check_modalities(yyjson_val *object, mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(object, "modalities");
    if (!v || (yyjson_arr_size(v) == 1 && yyjson_equals_str(yyjson_arr_get_first(v), "text")))
        return true;
    return mf_srv_refuse_field(r, "modalities", "only text is supported by this server");
}

static bool get_logprobs(yyjson_val *object, mf_srv_params *p, mf_srv_refusal *r)
{
    size_t n_top = 0;
    if (!mf_srv_get_bool(object, "logprobs", &p->has_logprobs, r) ||
        !mf_srv_get_count(object, "top_logprobs", 0, MF_SRV_MAX_TOP, &n_top, r))
        return false;
    if (n_top > 0 && !p->has_logprobs)
        return mf_srv_refuse_field(r, "top_logprobs", "needs logprobs to be true");
    p->n_top = (unsigned)n_top;
    return true;
}

static bool has_items(yyjson_val *object)
{
    return mf_srv_field_of(object, "input") && !mf_srv_field_of(object, "messages");
}

static bool read_format(yyjson_val *object, mf_srv_job *job, mf_srv_refusal *r)
{
    yyjson_val *text = mf_srv_field_of(object, "text"), *format = mf_srv_field_of(text, "format");
    return has_items(object) && format
               ? mf_srv_read_constraint(object, format, "text.format", job, r)
               : mf_srv_read_constraint(object, mf_srv_field_of(object, "response_format"),
                                        "response_format", job, r);
}

/* Its messages and tools, in either form. */
static bool read_conversation(yyjson_val *object, mf_srv_job *job, mf_srv_conversation *c,
                              mf_srv_refusal *r)
{
    yyjson_val *items = mf_srv_field_of(object, "input");
    if (!has_items(object))
        return mf_srv_read_chat_tools(object, c, r) && mf_srv_read_chat(object, c, r);
    return mf_srv_get_token_limit(object, "max_output_tokens", 1, &job->params.n_max_tokens, r) &&
           mf_srv_read_responses_tools(object, items, c, r) &&
           mf_srv_read_responses(object, items, 0, c, r);
}

static bool read_request(yyjson_val *object, mf_srv_job *job, mf_srv_conversation *c,
                         mf_srv_refusal *r)
{
    mf_srv_params *p = &job->params;
    return mf_srv_get_token_limit(object, "max_tokens", 0, &p->n_max_tokens, r) &&
           mf_srv_get_token_limit(object, "max_completion_tokens", 0, &p->n_max_tokens, r) &&
           mf_srv_get_count(object, "n", 1, MF_SRV_MAX_CHOICES, &p->n_choices, r) &&
           mf_srv_get_stops(object, "stop", p, r) && get_logprobs(object, p, r) &&
           mf_srv_get_stream_options(object, p, r) && read_format(object, job, r) &&
           check_modalities(object, r) &&
           mf_srv_read_thinking(object, job->served, c, &p->n_thought_max, r) &&
           mf_srv_read_documents(object, c, r) && read_conversation(object, job, c, r);
}

bool mf_srv_api_chat(mf_srv_request *request, mf_srv_refusal *r)
{
    static const mf_srv_field *const tables[] = {fields, mf_srv_sampling_fields,
                                                 mf_srv_harmless_fields, NULL};
    static const mf_srv_field *const of_items[] = {item_fields, fields, mf_srv_sampling_fields,
                                                   mf_srv_harmless_fields, NULL};
    mf_srv_conversation c = {0};
    if (!mf_srv_check_fields(request->json, "", has_items(request->json) ? of_items : tables, r))
        return false;
    mf_srv_job *job = mf_srv_api_job(request, &protocol, r);
    if (!job || !read_request(request->json, job, &c, r)) {
        mf_srv_conversation_free(&c);
        return false;
    }
    return mf_srv_api_add_chat(job, &c, r) && mf_srv_api_finish(job, r);
}
