/* SPDX-License-Identifier: MIT */
/* Anthropic's messages. An answer's parts are its blocks. */
#include "api.h"
#include "constraint.h"

#include <string.h>

static const mf_srv_field fields[] = {{"messages", MF_SRV_FIELD_USED},
                                      {"system", MF_SRV_FIELD_USED},
                                      {"max_tokens", MF_SRV_FIELD_USED},
                                      {"stop_sequences", MF_SRV_FIELD_USED},
                                      {"thinking", MF_SRV_FIELD_USED},
                                      {"output_config", MF_SRV_FIELD_USED},
                                      {"output_format", MF_SRV_FIELD_USED},
                                      {"tool_choice", MF_SRV_FIELD_USED},
                                      {"context_management", MF_SRV_FIELD_USED},
                                      {"diagnostics", MF_SRV_FIELD_HARMLESS},
                                      {"speed", MF_SRV_FIELD_HARMLESS},
                                      {"cache_control", MF_SRV_FIELD_HARMLESS},
                                      {"inference_geo", MF_SRV_FIELD_HARMLESS},
                                      {"betas", MF_SRV_FIELD_HARMLESS},
                                      {"tools", MF_SRV_FIELD_USED},
                                      {"billing_policy", MF_SRV_FIELD_HARMLESS},
                                      {"fallback_credit_token", MF_SRV_FIELD_HARMLESS},
                                      {"fallbacks", MF_SRV_FIELD_HARMLESS},
                                      {"user_profile_id", MF_SRV_FIELD_HARMLESS},
                                      {"workspace_id", MF_SRV_FIELD_HARMLESS},
                                      {"compaction", MF_SRV_FIELD_REFUSED},
                                      {"thread", MF_SRV_FIELD_REFUSED},
                                      {"mcp_servers", MF_SRV_FIELD_REFUSED},
                                      {"container", MF_SRV_FIELD_REFUSED},
                                      {NULL, MF_SRV_FIELD_USED}};

/* Clients keep thoughts only with one; any will do, and any is taken back. */
#define SIGNATURE "moeflux"

/* ----------------------------------------------------------------------------------- answers -- */

static const char *stop_reason(const mf_srv_choice *c)
{
    switch (c->finish) {
    case MF_SRV_STOP:
        return "stop_sequence";
    case MF_SRV_LENGTH:
        return "max_tokens";
    case MF_SRV_CONTEXT:
        return "model_context_window_exceeded";
    default:
        return c->n_calls > 0 ? "tool_use" : "end_turn";
    }
}

static void put_usage(const mf_srv_job *job, mf_srv_bytes *out)
{
    const mf_srv_usage u = mf_srv_job_usage(job);
    mf_srv_printf(out,
                  "{\"input_tokens\":%zu,\"cache_creation_input_tokens\":0,"
                  "\"cache_read_input_tokens\":%zu,\"output_tokens\":%zu}",
                  u.n_prompt - u.n_cached, u.n_cached, u.n_answer);
}

static void put_stop(const mf_srv_choice *c, mf_srv_bytes *out)
{
    mf_srv_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(c));
    if (c->stopped_by)
        mf_srv_puts_json(out, c->stopped_by);
    else
        mf_srv_puts(out, "null");
}

/* Nothing of the conversation is ever cleared here, but for thoughts, by the template. */
static void put_edits(const mf_srv_job *job, mf_srv_bytes *out)
{
    if (job->has_context_edits)
        mf_srv_puts(out, ",\"context_management\":{\"applied_edits\":[]}");
}

static void put_head(const mf_srv_job *job, mf_srv_bytes *out)
{
    mf_srv_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\"", job->id);
    mf_srv_put_text_field(out, "model", job->model);
}

static void begin_event(mf_srv_bytes *out, const char *name)
{
    mf_srv_printf(out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void end_event(mf_srv_bytes *out)
{
    mf_srv_puts(out, "}\n\n");
}

static void on_begin(mf_srv_job *job, mf_srv_bytes *out)
{
    begin_event(out, "message_start");
    mf_srv_puts(out, ",\"message\":");
    put_head(job, out);
    mf_srv_puts(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    put_usage(job, out);
    mf_srv_puts(out, "}");
    end_event(out);
}

/* A block's place is its part's. */
static size_t index_of(const mf_srv_choice *c, const mf_srv_part *part)
{
    return (size_t)(part - c->parts);
}

static void on_open(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_part *part,
                    mf_srv_bytes *out)
{
    (void)job;
    begin_event(out, "content_block_start");
    mf_srv_printf(out, ",\"index\":%zu,\"content_block\":{", index_of(choice, part));
    if (part->kind == MF_SRV_CALL) {
        const mf_srv_made_call *call = &choice->calls[part->call];
        mf_srv_printf(out, "\"type\":\"tool_use\",\"id\":\"%s\"", call->id);
        mf_srv_put_text_field(out, "name", call->name);
        mf_srv_puts(out, ",\"input\":{}}");
    } else {
        mf_srv_puts(out, part->kind == MF_SRV_TEXT
                             ? "\"type\":\"text\",\"text\":\"\"}"
                             : "\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    }
    end_event(out);
}

static void on_close(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_part *part,
                     mf_srv_bytes *out)
{
    const size_t index = index_of(choice, part);
    (void)job;
    if (part->kind == MF_SRV_THOUGHT) {
        begin_event(out, "content_block_delta");
        mf_srv_printf(
            out, ",\"index\":%zu,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"%s\"}",
            index, SIGNATURE);
        end_event(out);
    }
    begin_event(out, "content_block_stop");
    mf_srv_printf(out, ",\"index\":%zu", index);
    end_event(out);
}

static void on_piece(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_piece *piece,
                     mf_srv_bytes *out)
{
    static const char *const names[] = {
        [MF_SRV_TEXT] = "text_delta\",\"text",
        [MF_SRV_THOUGHT] = "thinking_delta\",\"thinking",
        [MF_SRV_CALL] = "input_json_delta\",\"partial_json",
    };
    (void)job;
    if (piece->n_bytes == 0)
        return;
    begin_event(out, "content_block_delta");
    mf_srv_printf(out, ",\"index\":%zu,\"delta\":{\"type\":\"%s\":", choice->n_parts - 1,
                  names[piece->kind]);
    mf_srv_put_json(out, piece->text, piece->n_bytes);
    mf_srv_puts(out, "}");
    end_event(out);
}

static void on_end(mf_srv_job *job, mf_srv_bytes *out)
{
    begin_event(out, "message_delta");
    mf_srv_puts(out, ",\"delta\":{");
    put_stop(&job->choices[0], out);
    mf_srv_puts(out, "},\"usage\":");
    put_usage(job, out);
    put_edits(job, out);
    end_event(out);
    begin_event(out, "message_stop");
    end_event(out);
}

static void on_fail(mf_srv_job *job, const mf_srv_refusal *refusal, mf_srv_bytes *out)
{
    mf_srv_puts(out, "event: error\ndata: ");
    mf_srv_put_refusal(out, MF_SRV_ANTHROPIC, refusal, job->id);
    mf_srv_puts(out, "\n\n");
}

static void put_block(const mf_srv_choice *c, const mf_srv_part *part, mf_srv_bytes *out)
{
    size_t n = 0;
    const char *text = mf_srv_part_text(c, part, &n);
    const mf_srv_made_call *call = part->kind == MF_SRV_CALL ? &c->calls[part->call] : NULL;
    if (call) {
        mf_srv_printf(out, "{\"type\":\"tool_use\",\"id\":\"%s\"", call->id);
        mf_srv_put_text_field(out, "name", call->name);
        mf_srv_puts(out, ",\"input\":");
        mf_srv_put(out, n > 0 ? text : "{}", n > 0 ? n : 2);
    } else {
        const bool is_text = part->kind == MF_SRV_TEXT;
        mf_srv_puts(out, is_text ? "{\"type\":\"text\",\"text\":"
                                 : "{\"type\":\"thinking\",\"thinking\":");
        mf_srv_put_json(out, text, n);
        mf_srv_puts(out, is_text ? "" : ",\"signature\":\"" SIGNATURE "\"");
    }
    mf_srv_puts(out, "}");
}

static void on_document(mf_srv_job *job, mf_srv_bytes *out)
{
    const mf_srv_choice *c = &job->choices[0];
    put_head(job, out);
    mf_srv_puts(out, ",\"content\":[");
    for (size_t i = 0; i < c->n_parts; i++) {
        mf_srv_puts(out, i > 0 ? "," : "");
        put_block(c, &c->parts[i], out);
    }
    mf_srv_puts(out, "],");
    put_stop(c, out);
    mf_srv_puts(out, ",\"usage\":");
    put_usage(job, out);
    put_edits(job, out);
    mf_srv_puts(out, "}");
}

static const mf_srv_protocol protocol = {.name = "messages",
                                         .id_prefix = "msg_",
                                         .shape = MF_SRV_ANTHROPIC,
                                         .has_thoughts = true,
                                         .begin = on_begin,
                                         .open = on_open,
                                         .close = on_close,
                                         .piece = on_piece,
                                         .end = on_end,
                                         .fail = on_fail,
                                         .document = on_document};

/* ----------------------------------------------------------------------------------- request -- */

/* effort says how much is thought, a word for the template; thinking says whether. */
static bool read_output_config(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {{"effort", MF_SRV_FIELD_USED},
                                         {"task_budget", MF_SRV_FIELD_HARMLESS},
                                         {"format", MF_SRV_FIELD_USED},
                                         {NULL, MF_SRV_FIELD_USED}};
    static const char *const efforts[] = {"low", "medium", "high", "xhigh", "max", NULL};
    yyjson_val *v;
    int effort = -1;
    if (!mf_srv_get_object(object, "output_config", names, &v, r) ||
        !mf_srv_get_word(v, "output_config.effort", efforts, &effort, r))
        return false;
    c->effort = effort >= 0 ? efforts[effort] : NULL;
    return true;
}

/* Of the edits one is the template's to make: which thoughts stay. The others would clear results
 * of tools in very long conversations; they are not made, and the answer says so. */
static bool read_context_edits(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r)
{
    static const char thoughts[] = "clear_thinking_";
    yyjson_val *v = mf_srv_field_of(object, "context_management"), *edit;
    yyjson_val *edits = mf_srv_field_of(v, "edits");
    size_t i, n;
    if (v && (!yyjson_is_obj(v) || (edits && !yyjson_is_arr(edits))))
        return mf_srv_refuse_field(r, "context_management", "expected an object with edits");
    yyjson_arr_foreach(edits, i, n, edit)
    {
        const char *type = yyjson_get_str(yyjson_obj_get(edit, "type"));
        if (type && strncmp(type, thoughts, sizeof thoughts - 1) == 0 &&
            yyjson_equals_str(yyjson_obj_get(edit, "keep"), "all"))
            c->keeps_thoughts = true;
    }
    return true;
}

static bool read_conversation(mf_srv_request *request, mf_srv_conversation *c,
                              size_t *n_thought_max, mf_srv_refusal *r)
{
    static const mf_srv_field *const tables[] = {fields, mf_srv_sampling_fields,
                                                 mf_srv_harmless_fields, NULL};
    yyjson_val *object = request->json;
    return mf_srv_check_fields(object, "", tables, r) && read_output_config(object, c, r) &&
           read_context_edits(object, c, r) &&
           mf_srv_read_thinking(object, &request->server->model, c, n_thought_max, r) &&
           mf_srv_read_messages_tools(object, c, r) && mf_srv_read_messages(object, c, r);
}

/* What the answer looks like, by its name of now or the one before. */
static bool read_format(yyjson_val *object, mf_srv_job *job, mf_srv_refusal *r)
{
    yyjson_val *format = mf_srv_field_of(mf_srv_field_of(object, "output_config"), "format");
    yyjson_val *old = mf_srv_field_of(object, "output_format");
    return format || !old ? mf_srv_read_constraint(object, format, "output_config.format", job, r)
                          : mf_srv_read_constraint(object, old, "output_format", job, r);
}

bool mf_srv_api_messages(mf_srv_request *request, mf_srv_refusal *r)
{
    mf_srv_conversation c = {0};
    size_t n_thought_max = SIZE_MAX;
    mf_srv_job *job = NULL;
    if (read_conversation(request, &c, &n_thought_max, r))
        job = mf_srv_api_job(request, &protocol, r);
    bool is_good =
        job && read_format(request->json, job, r) &&
        mf_srv_get_count(request->json, "max_tokens", 1, INT32_MAX, &job->params.n_max_tokens, r) &&
        mf_srv_get_stops(request->json, "stop_sequences", &job->params, r);
    if (is_good && job->params.n_max_tokens == SIZE_MAX)
        is_good = mf_srv_refuse_field(r, "max_tokens", "is missing");
    if (!is_good) {
        mf_srv_conversation_free(&c);
        return false;
    }
    job->params.n_thought_max = n_thought_max;
    job->has_context_edits = mf_srv_field_of(request->json, "context_management") != NULL;
    return mf_srv_api_add_chat(job, &c, r) && mf_srv_api_finish(job, r);
}

bool mf_srv_api_messages_count(mf_srv_request *request, mf_srv_refusal *r)
{
    size_t n_tokens = 0;
    if (!mf_srv_api_count(request, read_conversation, &n_tokens, r))
        return false;
    mf_srv_printf(&request->answer, "{\"input_tokens\":%zu}", n_tokens);
    return true;
}
