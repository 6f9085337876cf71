/* SPDX-License-Identifier: MIT */
/*
 * OpenAI's responses. One answer, whose parts are its items.
 */
#include "api_responses.h"
#include "api_responses_asked.h"
#include "constraint.h"
#include "model.h"
#include "seal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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
                                      {"include", MF_SRV_FIELD_USED},
                                      {"parallel_tool_calls", MF_SRV_FIELD_USED},
                                      {"max_tool_calls", MF_SRV_FIELD_USED},
                                      {"tools", MF_SRV_FIELD_USED},
                                      {"previous_response_id", MF_SRV_FIELD_USED},
                                      {"conversation", MF_SRV_FIELD_USED},
                                      {"prompt", MF_SRV_FIELD_REFUSED},
                                      {"background", MF_SRV_FIELD_USED},
                                      {"moderation", MF_SRV_FIELD_REFUSED},
                                      {"context_management", MF_SRV_FIELD_HARMLESS},
                                      {"top_logprobs", MF_SRV_FIELD_USED},
                                      {NULL, MF_SRV_FIELD_USED}};

/* ----------------------------------------------------------------------------------- objects -- */

static const char *random_part(const mf_srv_job *job)
{
    return job->id + strlen(job->protocol->id_prefix);
}

/* Of the tokens whose text ends within a part. */
static void put_part_scores(const mf_srv_job *job, const mf_srv_part *part, size_t n_bytes,
                            mf_srv_bytes *out)
{
    const mf_srv_choice *c = &job->choices[0];
    size_t first = 0, end;
    while (first < c->n_released && c->infos[first].end <= part->begin)
        first++;
    for (end = first; end < c->n_released && c->infos[end].end <= part->begin + n_bytes;)
        end++;
    mf_srv_put_scores(job, out, c->infos ? c->infos + first : NULL, end - first);
}

static void put_text_part(const mf_srv_job *job, const mf_srv_part *part, mf_srv_bytes *out,
                          bool is_done)
{
    size_t n = 0;
    const char *text = mf_srv_part_text(&job->choices[0], part, &n);
    n = is_done ? n : 0;
    mf_srv_puts(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":");
    put_part_scores(job, part, n, out);
    mf_srv_puts(out, ",\"text\":");
    mf_srv_put_json(out, text, n);
    mf_srv_puts(out, "}");
}

static bool is_cut(const mf_srv_job *job)
{
    mf_srv_finish finish = job->choices[0].finish;
    return finish == MF_SRV_LENGTH || finish == MF_SRV_CONTEXT ||
           (finish == MF_SRV_RUNNING && job->is_over);
}

/* An item's place is its part's. */
static size_t index_of(const mf_srv_job *job, const mf_srv_part *part)
{
    return (size_t)(part - job->choices[0].parts);
}

static bool is_custom(const mf_srv_job *job, const mf_srv_part *part)
{
    return part->kind == MF_SRV_CALL && mf_srv_is_custom(job, &job->choices[0].calls[part->call]);
}

/* The answer's letters, and the place in it. */
static void put_item_id(const mf_srv_job *job, const mf_srv_part *part, mf_srv_bytes *out)
{
    static const char *const prefixes[] = {
        [MF_SRV_TEXT] = "msg", [MF_SRV_THOUGHT] = "rs", [MF_SRV_CALL] = "fc"};
    mf_srv_printf(out, "\"%s_%s_%zu\"", is_custom(job, part) ? "ctc" : prefixes[part->kind],
                  random_part(job), index_of(job, part));
}

static void put_thoughts(const mf_srv_job *job, mf_srv_bytes *out, const char *text, size_t n_bytes,
                         bool is_done)
{
    mf_srv_puts(out, "\"type\":\"reasoning\",\"summary\":[],\"content\":[");
    if (is_done) {
        mf_srv_puts(out, "{\"type\":\"reasoning_text\",\"text\":");
        mf_srv_put_json(out, text, n_bytes);
        mf_srv_puts(out, "}");
    }
    mf_srv_puts(out, "],\"encrypted_content\":");
    if (is_done && job->seals_thoughts)
        mf_srv_put_sealed(out, text, n_bytes);
    else
        mf_srv_puts(out, "null");
}

static void put_message(const mf_srv_job *job, const mf_srv_part *part, mf_srv_bytes *out,
                        bool is_done)
{
    mf_srv_puts(out, "\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
    if (is_done)
        put_text_part(job, part, out, true);
    mf_srv_puts(out, "]");
}

/* The client's name for the tool that is called. */
static const char *own_name(const mf_srv_job *job, const mf_srv_made_call *call)
{
    const mf_srv_odd_tool *odd = mf_srv_odd_of(job, call);
    return odd && odd->own ? odd->own : call->name;
}

static void put_call(const mf_srv_job *job, const mf_srv_part *part, mf_srv_bytes *out,
                     bool is_done)
{
    const mf_srv_made_call *call = &job->choices[0].calls[part->call];
    const mf_srv_odd_tool *odd = mf_srv_odd_of(job, call);
    size_t n = 0;
    const char *text = mf_srv_part_text(&job->choices[0], part, &n);
    mf_srv_printf(out, "\"type\":\"%s\",\"call_id\":",
                  is_custom(job, part) ? "custom_tool_call" : "function_call");
    mf_srv_puts_json(out, call->id);
    mf_srv_put_text_field(out, "name", own_name(job, call));
    if (odd && odd->space)
        mf_srv_put_text_field(out, "namespace", odd->space);
    mf_srv_puts(out, is_custom(job, part) ? ",\"input\":" : ",\"arguments\":");
    if (is_done && is_custom(job, part))
        mf_srv_put_input(out, text, n);
    else
        mf_srv_put_json(out, text, is_done ? n : 0);
}

static void put_item(const mf_srv_job *job, const mf_srv_part *part, mf_srv_bytes *out,
                     bool is_done)
{
    const mf_srv_choice *c = &job->choices[0];
    const bool is_last = index_of(job, part) + 1 == c->n_parts;
    size_t n = 0;
    const char *text = mf_srv_part_text(c, part, &n);
    mf_srv_puts(out, "{\"id\":");
    put_item_id(job, part, out);
    if (!is_custom(job, part)) /* that one has none */
        mf_srv_printf(out, ",\"status\":\"%s\"",
                      !is_done                                                 ? "in_progress"
                      : is_last && part->kind != MF_SRV_THOUGHT && is_cut(job) ? "incomplete"
                                                                               : "completed");
    mf_srv_puts(out, ",");
    if (part->kind == MF_SRV_THOUGHT)
        put_thoughts(job, out, text, n, is_done);
    else if (part->kind == MF_SRV_TEXT)
        put_message(job, part, out, is_done);
    else
        put_call(job, part, out, is_done);
    mf_srv_puts(out, "}");
}

static void put_usage(const mf_srv_job *job, mf_srv_bytes *out)
{
    const mf_srv_usage u = mf_srv_job_usage(job);
    mf_srv_printf(out,
                  "{\"input_tokens\":%zu,\"input_tokens_details\":{\"cached_tokens\":%zu,\"cache_"
                  "write_tokens\":0},"
                  "\"output_tokens\":%zu,\"output_tokens_details\":{\"reasoning_tokens\":%zu},"
                  "\"total_tokens\":%zu}",
                  u.n_prompt, u.n_cached, u.n_answer, u.n_thought, u.n_prompt + u.n_answer);
}

/* What was asked for. */
static void put_request(const mf_srv_job *job, mf_srv_bytes *out)
{
    const mf_sampler_options *sampler = &job->params.sampler;
    mf_srv_printf(out, ",\"parallel_tool_calls\":%s,\"temperature\":%.6g,\"top_p\":%.6g",
                  job->has_one_call ? "false" : "true", (double)sampler->temperature,
                  (double)sampler->top_p);
    mf_srv_printf(out, ",\"top_logprobs\":%u,\"store\":%s", job->params.n_top,
                  __atomic_load_n(&job->is_kept, __ATOMIC_RELAXED) ? "true" : "false");
    mf_srv_put(out, job->echo.data ? job->echo.data : "", job->echo.n_bytes);
}

/* What comes before the output. */
static void put_head(const mf_srv_job *job, mf_srv_bytes *out, const char *status,
                     const mf_srv_refusal *refusal)
{
    const mf_srv_params *p = &job->params;
    mf_srv_printf(out,
                  "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64
                  ",\"status\":\"%s\",\"background\":%s,\"error\":",
                  job->id, job->created, status, job->is_background ? "true" : "false");
    if (refusal) {
        mf_srv_printf(
            out, "{\"code\":\"%s\",\"message\":", refusal->code ? refusal->code : "server_error");
        mf_srv_puts_json(out, refusal->message);
        mf_srv_puts(out, "}");
    } else {
        mf_srv_puts(out, "null");
    }
    mf_srv_printf(out, ",\"incomplete_details\":%s",
                  strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}"
                                                    : "null");
    mf_srv_put_text_field(out, "model", job->model);
    mf_srv_puts(out, ",\"max_output_tokens\":");
    if (p->n_max_tokens == SIZE_MAX)
        mf_srv_puts(out, "null");
    else
        mf_srv_printf(out, "%zu", p->n_max_tokens);
}

/* has_output: all of the answer, which nobody changes meanwhile. */
static void put_object(const mf_srv_job *job, mf_srv_bytes *out, const char *status,
                       const mf_srv_refusal *refusal, bool has_output)
{
    put_head(job, out, status, refusal);
    mf_srv_puts(out, ",\"output\":[");
    if (has_output) {
        for (size_t i = 0; i < job->choices[0].n_parts; i++) {
            mf_srv_puts(out, i > 0 ? "," : "");
            put_item(job, &job->choices[0].parts[i], out, true);
        }
    }
    mf_srv_puts(out, "]");
    put_request(job, out);
    mf_srv_puts(out, ",\"usage\":");
    if (has_output)
        put_usage(job, out);
    else
        mf_srv_puts(out, "null");
    mf_srv_puts(out, "}");
}

/* What became of it. status: "completed", "incomplete", "failed" or "cancelled". */
static void put_response(const mf_srv_job *job, mf_srv_bytes *out, const char *status,
                         const mf_srv_refusal *refusal)
{
    put_object(job, out, status, refusal, job->is_over && !refusal);
}

void mf_srv_put_response_yet(const mf_srv_job *job, const char *status, mf_srv_bytes *out)
{
    put_object(job, out, status, NULL, false);
}

/* ------------------------------------------------------------------------------------ events -- */

static void begin_event(mf_srv_job *job, mf_srv_bytes *out, const char *name)
{
    mf_srv_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%lu", name, name,
                  job->sequence++);
}

static void end_event(mf_srv_bytes *out)
{
    mf_srv_puts(out, "}\n\n");
}

static void put_early_event(mf_srv_job *job, mf_srv_bytes *out, const char *name,
                            const char *status)
{
    begin_event(job, out, name);
    mf_srv_puts(out, ",\"response\":");
    mf_srv_put_response_yet(job, status, out);
    end_event(out);
}

static void put_last_event(mf_srv_job *job, mf_srv_bytes *out, const char *name, const char *status,
                           const mf_srv_refusal *refusal)
{
    begin_event(job, out, name);
    mf_srv_puts(out, ",\"response\":");
    put_response(job, out, status, refusal);
    end_event(out);
}

void mf_srv_put_queued_events(mf_srv_job *job, mf_srv_bytes *out)
{
    put_early_event(job, out, "response.created", "queued");
    put_early_event(job, out, "response.queued", "queued");
}

static void on_begin(mf_srv_job *job, mf_srv_bytes *out)
{
    if (!job->is_background)
        put_early_event(job, out, "response.created", "in_progress");
    put_early_event(job, out, "response.in_progress", "in_progress");
}

/* Where in output the item is. */
static void put_place(const mf_srv_job *job, const mf_srv_part *part, mf_srv_bytes *out)
{
    mf_srv_puts(out, ",\"item_id\":");
    put_item_id(job, part, out);
    mf_srv_printf(out, ",\"output_index\":%zu", index_of(job, part));
    if (part->kind != MF_SRV_CALL)
        mf_srv_puts(out, ",\"content_index\":0");
}

static void put_item_event(mf_srv_job *job, const mf_srv_part *part, mf_srv_bytes *out,
                           bool is_done)
{
    begin_event(job, out, is_done ? "response.output_item.done" : "response.output_item.added");
    mf_srv_printf(out, ",\"output_index\":%zu,\"item\":", index_of(job, part));
    put_item(job, part, out, is_done);
    end_event(out);
}

static void put_part_event(mf_srv_job *job, const mf_srv_part *part, mf_srv_bytes *out,
                           bool is_done)
{
    begin_event(job, out, is_done ? "response.content_part.done" : "response.content_part.added");
    put_place(job, part, out);
    mf_srv_puts(out, ",\"part\":");
    put_text_part(job, part, out, is_done);
    end_event(out);
}

static void on_open(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_part *part,
                    mf_srv_bytes *out)
{
    (void)choice;
    put_item_event(job, part, out, false);
    if (part->kind == MF_SRV_TEXT)
        put_part_event(job, part, out, false);
}

/* A custom tool's text comes as one piece: it is known when its arguments are whole. */
static void put_input_events(mf_srv_job *job, const mf_srv_part *part, mf_srv_bytes *out)
{
    static const char *const names[][2] = {{"delta", "delta"}, {"done", "input"}};
    size_t n = 0;
    const char *text = mf_srv_part_text(&job->choices[0], part, &n);
    char name[64];
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "response.custom_tool_call_input.%s", names[i][0]);
        begin_event(job, out, name);
        put_place(job, part, out);
        mf_srv_printf(out, ",\"%s\":", names[i][1]);
        mf_srv_put_input(out, text, n);
        end_event(out);
    }
}

static void put_done_event(mf_srv_job *job, const mf_srv_choice *choice, const mf_srv_part *part,
                           mf_srv_bytes *out)
{
    static const char *const names[] = {[MF_SRV_TEXT] = "response.output_text.done",
                                        [MF_SRV_THOUGHT] = "response.reasoning_text.done",
                                        [MF_SRV_CALL] = "response.function_call_arguments.done"};
    size_t n = 0;
    const char *text = mf_srv_part_text(choice, part, &n);
    begin_event(job, out, names[part->kind]);
    put_place(job, part, out);
    if (part->kind == MF_SRV_CALL)
        mf_srv_put_text_field(out, "name", own_name(job, &choice->calls[part->call]));
    if (part->kind == MF_SRV_TEXT) {
        mf_srv_puts(out, ",\"logprobs\":");
        put_part_scores(job, part, n, out);
    }
    mf_srv_puts(out, part->kind == MF_SRV_CALL ? ",\"arguments\":" : ",\"text\":");
    mf_srv_put_json(out, text, n);
    end_event(out);
}

static void on_close(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_part *part,
                     mf_srv_bytes *out)
{
    if (is_custom(job, part))
        put_input_events(job, part, out);
    else
        put_done_event(job, choice, part, out);
    if (part->kind == MF_SRV_TEXT)
        put_part_event(job, part, out, true);
    put_item_event(job, part, out, true);
}

static void on_piece(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_piece *piece,
                     mf_srv_bytes *out)
{
    static const char *const names[] = {[MF_SRV_TEXT] = "response.output_text.delta",
                                        [MF_SRV_THOUGHT] = "response.reasoning_text.delta",
                                        [MF_SRV_CALL] = "response.function_call_arguments.delta"};
    if (piece->n_bytes == 0 || is_custom(job, &choice->parts[choice->n_parts - 1]))
        return;
    begin_event(job, out, names[piece->kind]);
    put_place(job, &choice->parts[choice->n_parts - 1], out);
    if (piece->kind == MF_SRV_TEXT) {
        mf_srv_puts(out, ",\"logprobs\":");
        mf_srv_put_scores(job, out, piece->tokens, piece->n_tokens);
    }
    mf_srv_puts(out, ",\"delta\":");
    mf_srv_put_json(out, piece->text, piece->n_bytes);
    end_event(out);
}

/* The answer's, behind others. */
static void put_items(const mf_srv_job *job, mf_srv_bytes *out)
{
    const mf_srv_choice *c = &job->choices[0];
    for (size_t i = 0; i < c->n_parts; i++) {
        mf_srv_puts(out, out->n_bytes > 0 ? "," : "");
        put_item(job, &c->parts[i], out, true);
    }
}

/* What is kept of one that is over, but for its events. False: that is more than can be. */
static bool gather(mf_srv_job *job, const char *status, const mf_srv_refusal *refusal,
                   mf_srv_stored *kept)
{
    kept->items = job->items;
    job->items = (mf_srv_bytes){0};
    put_response(job, &kept->response, status, refusal);
    return mf_srv_responses_fit(job->served->responses, kept);
}

/* One that was made in the background is asked for by those who know nothing of it yet: that it
 * cannot be kept is said in its place. */
static void say_too_large(mf_srv_job *job, mf_srv_stored *kept)
{
    mf_srv_refusal why;
    mf_srv_bytes_free(&kept->items);
    mf_srv_bytes_free(&kept->response);
    mf_srv_refuse(&why, 500,
                  "the response is too large to be kept: with its input it has more "
                  "than %zu bytes",
                  MF_SRV_RESPONSE_BYTES);
    put_object(job, &kept->response, "failed", &why, false);
}

/* Of one that was made in the background, with its events, as far as there is room for them. last:
 * those that are not in its log yet. */
static void settle_background(mf_srv_job *job, mf_srv_stored *kept, const mf_srv_bytes *last)
{
    mf_srv_responses *all = job->served->responses;
    if (!mf_srv_responses_fit(all, kept))
        say_too_large(job, kept);
    if (job->log && mf_srv_log_copy(job->log, &kept->events))
        mf_srv_put(&kept->events, last && last->data ? last->data : "", last ? last->n_bytes : 0);
    else
        mf_srv_bytes_free(&kept->events);
    if (!mf_srv_responses_fit(all, kept))
        mf_srv_bytes_free(&kept->events);
    mf_srv_responses_settled(all, job, kept);
}

static mf_srv_wanted settle(const mf_srv_job *job)
{
    if (job->is_background)
        return mf_srv_responses_settle(job->served->responses, job);
    return job->is_kept ? MF_SRV_IS_WANTED : MF_SRV_IS_DROPPED;
}

/* What was said is added to the conversation that it was said in; who has deleted that meanwhile
 * does not want it. */
static bool extend_conversation(mf_srv_job *job, mf_srv_refusal *r)
{
    if (job->conversation[0] == '\0')
        return true;
    put_items(job, &job->own_items);
    switch (mf_srv_responses_add(job->served->conversations, job->conversation, job->key,
                                 &job->own_items)) {
    case MF_SRV_TOO_LARGE:
        return mf_srv_refuse_field(r, "conversation",
                                   "with this answer it would have more than %zu bytes",
                                   MF_SRV_RESPONSE_BYTES);
    case MF_SRV_NO_MEMORY:
        return mf_srv_refuse(r, 503, "out of memory for the conversation");
    default:
        return true;
    }
}

/* Whether it is kept is known before its client hears of it. In the background *kept is to be
 * settled then, since its events are kept, too. */
static void keep(mf_srv_job *job, const char *status, const mf_srv_refusal *refusal,
                 mf_srv_stored *kept)
{
    if (!refusal)
        put_items(job, &job->items);
    const bool fits = gather(job, status, refusal, kept);
    if (!job->is_background)
        job->is_kept = mf_srv_responses_put(job->served->responses, job->id, job->key, kept);
    else if (!fits) /* somebody may ask for it right now */
        __atomic_store_n(&job->is_kept, false, __ATOMIC_RELAXED);
}

/* The answer is whole: it is kept before its client knows that, by the stream's last event or as a
 * document. */
static void settle_answer(mf_srv_job *job, bool is_stream, mf_srv_bytes *out)
{
    char name[64];
    mf_srv_refusal refusal = {0};
    mf_srv_stored kept = {0};
    const mf_srv_wanted wanted = settle(job);
    const bool is_cancelled = wanted == MF_SRV_IS_CANCELLED;
    const bool has_failed = !is_cancelled && !extend_conversation(job, &refusal);
    const mf_srv_refusal *why = has_failed ? &refusal : NULL;
    const char *status = is_cancelled  ? "cancelled"
                         : has_failed  ? "failed"
                         : is_cut(job) ? "incomplete"
                                       : "completed";
    if (wanted != MF_SRV_IS_DROPPED)
        keep(job, status, why, &kept);
    snprintf(name, sizeof name, "response.%s", status);
    if (is_stream && !is_cancelled)
        put_last_event(job, out, name, status, why);
    if (!is_stream)
        put_response(job, out, status, why);
    if (wanted != MF_SRV_IS_DROPPED && job->is_background)
        settle_background(job, &kept, is_stream ? out : NULL);
}

static void on_end(mf_srv_job *job, mf_srv_bytes *out)
{
    settle_answer(job, true, out);
}

/* Of one whose turn has not come, too: clients want to hear of a response before they hear of its
 * end. */
static void on_fail(mf_srv_job *job, const mf_srv_refusal *refusal, mf_srv_bytes *out)
{
    if (job->sequence == 0)
        on_begin(job, out);
    if (!job->is_background)
        job->is_kept = false; /* one that failed is not */
    put_last_event(job, out, "response.failed", "failed", refusal);
}

static void on_document(mf_srv_job *job, mf_srv_bytes *out)
{
    settle_answer(job, false, out);
}

/* In the background it is asked for all the same. */
static void on_drop(mf_srv_job *job, const mf_srv_refusal *refusal)
{
    if (!job->is_background)
        return;
    const mf_srv_wanted wanted = settle(job);
    const bool is_cancelled = !refusal || wanted == MF_SRV_IS_CANCELLED;
    mf_srv_stored kept = {0};
    if (wanted == MF_SRV_IS_DROPPED)
        return;
    (void)gather(job, is_cancelled ? "cancelled" : "failed", is_cancelled ? NULL : refusal, &kept);
    settle_background(job, &kept, NULL);
}

static const mf_srv_protocol protocol = {.name = "responses",
                                         .id_prefix = "resp_",
                                         .shape = MF_SRV_OPENAI,
                                         .has_thoughts = true,
                                         .begin = on_begin,
                                         .open = on_open,
                                         .close = on_close,
                                         .piece = on_piece,
                                         .end = on_end,
                                         .fail = on_fail,
                                         .drop = on_drop,
                                         .document = on_document};

/* ----------------------------------------------------------------------------------- request -- */

static bool check_text(yyjson_val *object, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {{"format", MF_SRV_FIELD_USED},
                                         {"verbosity", MF_SRV_FIELD_HARMLESS},
                                         {NULL, MF_SRV_FIELD_USED}};
    yyjson_val *v;
    return mf_srv_get_object(object, "text", names, &v, r);
}

/* auto would drop the beginning of what is too long; here that is refused, as with disabled. */
static bool check_words(yyjson_val *object, mf_srv_refusal *r)
{
    static const char *const truncations[] = {"disabled", "auto", NULL};
    int any;
    return mf_srv_get_word(object, "truncation", truncations, &any, r);
}

/* The request but for its sampling. *asked is to be freed in any case. */
static bool read_asked(mf_srv_request *request, mf_srv_conversation *c, size_t *n_thought_max,
                       mf_srv_asked *asked, mf_srv_refusal *r)
{
    static const mf_srv_field *const tables[] = {fields, mf_srv_sampling_fields,
                                                 mf_srv_harmless_fields, NULL};
    yyjson_val *object = request->json;
    return mf_srv_check_fields(object, "", tables, r) && check_text(object, r) &&
           check_words(object, r) && mf_srv_asked_open(request, asked, r) &&
           mf_srv_read_thinking(object, &request->server->model, c, n_thought_max, r) &&
           mf_srv_read_responses_tools(object, asked->items, c, r) &&
           mf_srv_read_responses(object, asked->items, asked->n_earlier, c, r);
}

static bool read_conversation(mf_srv_request *request, mf_srv_conversation *c,
                              size_t *n_thought_max, mf_srv_refusal *r)
{
    mf_srv_asked asked = {0};
    const bool is_good = read_asked(request, c, n_thought_max, &asked, r);
    mf_srv_asked_free(&asked);
    return is_good;
}

/* What else of it says how it is answered. */
static bool read_answer(mf_srv_request *request, mf_srv_job *job, mf_srv_refusal *r)
{
    yyjson_val *text = mf_srv_field_of(request->json, "text");
    size_t n_top = 0;
    if (!mf_srv_get_count(request->json, "top_logprobs", 0, MF_SRV_MAX_TOP, &n_top, r) ||
        !mf_srv_asked_include(request->json, job, r))
        return false;
    if (!mf_srv_get_count(request->json, "max_tool_calls", 1, INT32_MAX, &job->params.n_max_calls,
                          r))
        return false;
    job->params.n_top = (unsigned)n_top;
    job->params.has_logprobs = job->params.has_logprobs || n_top > 0;
    return mf_srv_read_constraint(request->json, mf_srv_field_of(text, "format"), "text.format",
                                  job, r) &&
           mf_srv_get_token_limit(request->json, "max_output_tokens", 1, &job->params.n_max_tokens,
                                  r) &&
           mf_srv_get_stops(request->json, "stop", &job->params, r);
}

/* As OpenAI's own servers do it: what is too long for the context is an event of a stream, which
 * some clients look for there alone. */
static bool fail_in_stream(mf_srv_request *request, const mf_srv_refusal *r)
{
    mf_srv_job *job = request->job;
    if (!job || !job->params.streams || job->is_background || !r->code ||
        strcmp(r->code, "context_length_exceeded") != 0)
        return false;
    on_fail(job, r, &request->answer);
    request->content_type = "text/event-stream; charset=utf-8";
    request->job = NULL;
    mf_srv_job_drop(job);
    return true;
}

bool mf_srv_api_responses(mf_srv_request *request, mf_srv_refusal *r)
{
    mf_srv_conversation c = {0};
    mf_srv_asked asked = {0};
    size_t n_thought_max = SIZE_MAX;
    mf_srv_job *job = NULL;
    bool is_good = read_asked(request, &c, &n_thought_max, &asked, r);
    if (is_good)
        job = mf_srv_api_job(request, &protocol, r);
    is_good = job && read_answer(request, job, r) && mf_srv_asked_give(&asked, request, job, r);
    mf_srv_asked_free(&asked);
    if (!is_good) {
        mf_srv_conversation_free(&c);
        return false;
    }
    job->params.n_thought_max = n_thought_max;
    return (mf_srv_api_add_chat(job, &c, r) && mf_srv_api_finish(job, r)) ||
           fail_in_stream(request, r);
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

/* Clients ask there whether it can be done, and know by the 404 that it cannot: as the id of a
 * response the path would have other methods, and say 405. */
bool mf_srv_api_responses_compact(mf_srv_request *request, mf_srv_refusal *r)
{
    (void)request;
    return mf_srv_refuse(r, 404,
                         "there is nothing at /v1/responses/compact: nothing is compacted "
                         "by this server");
}
