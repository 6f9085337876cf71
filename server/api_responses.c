/* SPDX-License-Identifier: MIT */
/*
 * OpenAI's responses. One answer, of up to two items: thoughts and a message. Items are opened when
 * their first text comes and closed when the other begins.
 */
#include "api.h"

#include <inttypes.h>
#include <string.h>

static const mf_srv_field fields[] = {{"input", MF_SRV_FIELD_USED},
                                      {"instructions", MF_SRV_FIELD_USED},
                                      {"max_output_tokens", MF_SRV_FIELD_USED},
                                      {"reasoning", MF_SRV_FIELD_USED},
                                      {"text", MF_SRV_FIELD_USED},
                                      {"tool_choice", MF_SRV_FIELD_USED},
                                      {"truncation", MF_SRV_FIELD_USED},
                                      {"stop", MF_SRV_FIELD_USED},
                                      {"chat_template_kwargs", MF_SRV_FIELD_USED},
                                      {"stream_options", MF_SRV_FIELD_HARMLESS},
                                      {"include", MF_SRV_FIELD_HARMLESS},
                                      {"parallel_tool_calls", MF_SRV_FIELD_USED},
                                      {"max_tool_calls", MF_SRV_FIELD_HARMLESS},
                                      {"tools", MF_SRV_FIELD_USED},
                                      {"previous_response_id", MF_SRV_FIELD_REFUSED},
                                      {"conversation", MF_SRV_FIELD_REFUSED},
                                      {"prompt", MF_SRV_FIELD_REFUSED},
                                      {"background", MF_SRV_FIELD_REFUSED},
                                      {"top_logprobs", MF_SRV_FIELD_REFUSED},
                                      {NULL, MF_SRV_FIELD_USED}};

/* ----------------------------------------------------------------------------------------- objects
 * --
 */

static const char *random_part(const mf_srv_job *job)
{
    return job->id + strlen(job->protocol->id_prefix);
}

static const char *bytes_or_empty(const mf_srv_bytes *b)
{
    return b->data ? b->data : "";
}

static void put_thoughts_item(const mf_srv_job *job, mf_srv_bytes *out, bool is_done)
{
    const mf_srv_bytes *text = &job->choices[0].thoughts;
    mf_srv_printf(out, "{\"type\":\"reasoning\",\"id\":\"rs_%s\",\"summary\":[],\"content\":[",
                  random_part(job));
    if (is_done) {
        mf_srv_puts(out, "{\"type\":\"reasoning_text\",\"text\":");
        mf_srv_put_json(out, bytes_or_empty(text), text->n_bytes);
        mf_srv_puts(out, "}");
    }
    mf_srv_printf(out, "],\"encrypted_content\":null,\"status\":\"%s\"}",
                  is_done ? "completed" : "in_progress");
}

static void put_text_part(mf_srv_bytes *out, const char *text, size_t n_bytes)
{
    mf_srv_puts(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
    mf_srv_put_json(out, text, n_bytes);
    mf_srv_puts(out, "}");
}

static bool is_cut(const mf_srv_job *job)
{
    mf_srv_finish finish = job->choices[0].finish;
    return finish == MF_SRV_LENGTH || finish == MF_SRV_CONTEXT;
}

static void put_message_item(const mf_srv_job *job, mf_srv_bytes *out, bool is_done)
{
    const mf_srv_bytes *text = &job->choices[0].content;
    mf_srv_printf(
        out,
        "{\"type\":\"message\",\"id\":\"msg_%s\",\"role\":\"assistant\",\"status\":\"%s\","
        "\"content\":[",
        random_part(job),
        !is_done      ? "in_progress"
        : is_cut(job) ? "incomplete"
                      : "completed");
    if (is_done)
        put_text_part(out, bytes_or_empty(text), text->n_bytes);
    mf_srv_puts(out, "]}");
}

static void put_usage(const mf_srv_job *job, mf_srv_bytes *out)
{
    const mf_srv_usage u = mf_srv_job_usage(job);
    mf_srv_printf(out,
                  "{\"input_tokens\":%zu,\"input_tokens_details\":{\"cached_tokens\":%zu},"
                  "\"output_tokens\":%zu,\"output_tokens_details\":{\"reasoning_tokens\":%zu},"
                  "\"total_tokens\":%zu}",
                  u.n_prompt, u.n_cached, u.n_answer, u.n_thought, u.n_prompt + u.n_answer);
}

/* status: "in_progress", "completed", "incomplete" or "failed". */
static void put_response(const mf_srv_job *job, mf_srv_bytes *out, const char *status,
                         const mf_srv_refusal *refusal)
{
    const mf_srv_params *p = &job->params;
    const bool is_over = *status != 'i' || strcmp(status, "incomplete") == 0;
    mf_srv_printf(out,
                  "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64
                  ",\"status\":\"%s\",\"background\":false,\"error\":",
                  job->id, job->created, status);
    if (refusal) {
        mf_srv_printf(
            out, "{\"code\":\"%s\",\"message\":", refusal->code ? refusal->code : "server_error");
        mf_srv_puts_json(out, refusal->message);
        mf_srv_puts(out, "}");
    } else {
        mf_srv_puts(out, "null");
    }
    mf_srv_printf(out, ",\"incomplete_details\":%s,\"instructions\":null",
                  strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}"
                                                    : "null");
    mf_srv_put_text_field(out, "model", job->model);
    mf_srv_puts(out, ",\"max_output_tokens\":");
    if (p->n_max_tokens == SIZE_MAX)
        mf_srv_puts(out, "null");
    else
        mf_srv_printf(out, "%zu", p->n_max_tokens);
    mf_srv_puts(out, ",\"output\":[");
    if (is_over && !refusal) {
        if (job->has_thought || job->choices[0].thoughts.n_bytes > 0) {
            put_thoughts_item(job, out, true);
            mf_srv_puts(out, ",");
        }
        put_message_item(job, out, true);
    }
    mf_srv_printf(out,
                  "],\"parallel_tool_calls\":true,\"previous_response_id\":null,\"reasoning\":"
                  "{\"effort\":null,\"summary\":null},\"store\":false,\"temperature\":%.6g,"
                  "\"text\":{\"format\":{\"type\":\"text\"}},\"tool_choice\":\"auto\",\"tools\":[],"
                  "\"top_p\":%.6g,\"truncation\":\"disabled\",\"user\":null,\"metadata\":{},"
                  "\"usage\":",
                  (double)p->sampler.temperature, (double)p->sampler.top_p);
    if (is_over && !refusal)
        put_usage(job, out);
    else
        mf_srv_puts(out, "null");
    mf_srv_puts(out, "}");
}

/* ------------------------------------------------------------------------------------------ events
 * --
 */

static void begin_event(mf_srv_job *job, mf_srv_bytes *out, const char *name)
{
    mf_srv_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%lu", name, name,
                  job->sequence++);
}

static void end_event(mf_srv_bytes *out)
{
    mf_srv_puts(out, "}\n\n");
}

static void put_state_event(mf_srv_job *job, mf_srv_bytes *out, const char *name,
                            const char *status, const mf_srv_refusal *refusal)
{
    begin_event(job, out, name);
    mf_srv_puts(out, ",\"response\":");
    put_response(job, out, status, refusal);
    end_event(out);
}

static void on_begin(mf_srv_job *job, mf_srv_bytes *out)
{
    put_state_event(job, out, "response.created", "in_progress", NULL);
    put_state_event(job, out, "response.in_progress", "in_progress", NULL);
}

/* Where in output the item is, and where in it the text. */
static void put_place(const mf_srv_job *job, mf_srv_bytes *out, bool is_thought)
{
    mf_srv_printf(out, ",\"item_id\":\"%s_%s\",\"output_index\":%d,\"content_index\":0",
                  is_thought ? "rs" : "msg", random_part(job),
                  !is_thought && job->has_thought ? 1 : 0);
}

static void put_item_event(mf_srv_job *job, mf_srv_bytes *out, bool is_thought, bool is_done)
{
    begin_event(job, out, is_done ? "response.output_item.done" : "response.output_item.added");
    mf_srv_printf(out, ",\"output_index\":%d,\"item\":", !is_thought && job->has_thought ? 1 : 0);
    (is_thought ? put_thoughts_item : put_message_item)(job, out, is_done);
    end_event(out);
}

static void put_part_event(mf_srv_job *job, mf_srv_bytes *out, bool is_done)
{
    const mf_srv_bytes *text = &job->choices[0].content;
    begin_event(job, out, is_done ? "response.content_part.done" : "response.content_part.added");
    put_place(job, out, false);
    mf_srv_puts(out, ",\"part\":");
    put_text_part(out, is_done ? bytes_or_empty(text) : "", is_done ? text->n_bytes : 0);
    end_event(out);
}

static void close_thought(mf_srv_job *job, mf_srv_bytes *out)
{
    const mf_srv_bytes *text = &job->choices[0].thoughts;
    begin_event(job, out, "response.reasoning_text.done");
    put_place(job, out, true);
    mf_srv_puts(out, ",\"text\":");
    mf_srv_put_json(out, bytes_or_empty(text), text->n_bytes);
    end_event(out);
    put_item_event(job, out, true, true);
}

static void open_text(mf_srv_job *job, mf_srv_bytes *out)
{
    if (job->has_text)
        return;
    if (job->has_thought)
        close_thought(job, out);
    job->has_text = true;
    put_item_event(job, out, false, false);
    put_part_event(job, out, false);
}

static void on_piece(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_piece *piece,
                     mf_srv_bytes *out)
{
    (void)choice;
    if (piece->n_bytes == 0)
        return;
    if (!piece->is_thought) {
        open_text(job, out);
    } else if (!job->has_thought) {
        job->has_thought = true;
        put_item_event(job, out, true, false);
    }
    begin_event(job, out,
                piece->is_thought ? "response.reasoning_text.delta" : "response.output_text.delta");
    put_place(job, out, piece->is_thought);
    mf_srv_puts(out, ",\"delta\":");
    mf_srv_put_json(out, piece->text, piece->n_bytes);
    mf_srv_puts(out, piece->is_thought ? "" : ",\"logprobs\":[]");
    end_event(out);
}

static void on_end(mf_srv_job *job, mf_srv_bytes *out)
{
    const mf_srv_bytes *text = &job->choices[0].content;
    open_text(job, out);
    begin_event(job, out, "response.output_text.done");
    put_place(job, out, false);
    mf_srv_puts(out, ",\"logprobs\":[],\"text\":");
    mf_srv_put_json(out, bytes_or_empty(text), text->n_bytes);
    end_event(out);
    put_part_event(job, out, true);
    put_item_event(job, out, false, true);
    put_state_event(job, out, is_cut(job) ? "response.incomplete" : "response.completed",
                    is_cut(job) ? "incomplete" : "completed", NULL);
}

static void on_fail(mf_srv_job *job, const mf_srv_refusal *refusal, mf_srv_bytes *out)
{
    put_state_event(job, out, "response.failed", "failed", refusal);
}

static void on_document(mf_srv_job *job, mf_srv_bytes *out)
{
    put_response(job, out, is_cut(job) ? "incomplete" : "completed", NULL);
}

static const mf_srv_protocol protocol = {.name = "responses",
                                         .id_prefix = "resp_",
                                         .shape = MF_SRV_OPENAI,
                                         .has_thoughts = true,
                                         .begin = on_begin,
                                         .piece = on_piece,
                                         .end = on_end,
                                         .fail = on_fail,
                                         .document = on_document};

/* ----------------------------------------------------------------------------------------- request
 * --
 */

static bool check_text(yyjson_val *object, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {{"format", MF_SRV_FIELD_USED},
                                         {"verbosity", MF_SRV_FIELD_HARMLESS},
                                         {NULL, MF_SRV_FIELD_USED}};
    static const mf_srv_field *const tables[] = {names, NULL};
    yyjson_val *v = mf_srv_field_of(object, "text"), *format = mf_srv_field_of(v, "format");
    if (!v)
        return true;
    if (!yyjson_is_obj(v))
        return mf_srv_refuse_field(r, "text", "expected an object");
    if (!mf_srv_check_fields(v, "text", tables, r))
        return false;
    if (!format || yyjson_equals_str(yyjson_obj_get(format, "type"), "text"))
        return true;
    mf_srv_refuse_field(r, "text.format", "only the type 'text' is supported by this server");
    r->code = "unsupported_parameter";
    return false;
}

static bool check_words(yyjson_val *object, mf_srv_refusal *r)
{
    static const char *const truncations[] = {"disabled", NULL};
    int any;
    return mf_srv_get_word(object, "truncation", truncations, &any, r);
}

static bool read_conversation(mf_srv_request *request, mf_srv_conversation *c,
                              size_t *n_thought_max, mf_srv_refusal *r)
{
    static const mf_srv_field *const tables[] = {fields, mf_srv_sampling_fields,
                                                 mf_srv_harmless_fields, NULL};
    yyjson_val *object = request->json;
    return mf_srv_check_fields(object, "", tables, r) && check_text(object, r) &&
           check_words(object, r) && mf_srv_read_thinking(object, c, n_thought_max, r) &&
           mf_srv_read_responses_tools(object, c, r) && mf_srv_read_responses(object, c, r);
}

bool mf_srv_api_responses(mf_srv_request *request, mf_srv_refusal *r)
{
    mf_srv_conversation c = {0};
    size_t n_thought_max = SIZE_MAX;
    mf_srv_job *job = NULL;
    if (read_conversation(request, &c, &n_thought_max, r))
        job = mf_srv_api_job(request, &protocol, r);
    if (!job ||
        !mf_srv_get_count(request->json, "max_output_tokens", 1, INT32_MAX,
                          &job->params.n_max_tokens, r) ||
        !mf_srv_get_stops(request->json, "stop", &job->params, r)) {
        mf_srv_conversation_free(&c);
        return false;
    }
    job->params.n_thought_max = n_thought_max;
    return mf_srv_api_add_chat(job, &c, r) && mf_srv_api_finish(job, r);
}

bool mf_srv_api_responses_count(mf_srv_request *request, mf_srv_refusal *r)
{
    size_t n_tokens = 0;
    if (!mf_srv_api_count(request, read_conversation, &n_tokens, r))
        return false;
    mf_srv_printf(&request->answer, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}",
                  n_tokens);
    return true;
}
