/* SPDX-License-Identifier: MIT */
/* A job in the making is in the list of responses; its events are in its log. */
#include "background.h"

#include "api_responses.h"
#include "conversation_items.h"
#include "item_list.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(mf_srv_refusal *r)
{
    return mf_srv_refuse(r, 503, "out of memory for the response");
}

mf_srv_job *mf_srv_background_reader(mf_srv_job *job, size_t n_skip)
{
    mf_srv_job *reader = mf_srv_job_new(job->served, job->protocol);
    if (!reader)
        return NULL;
    memcpy(reader->id, job->id, sizeof reader->id);
    reader->params.streams = true;
    reader->channel.place.n_skip = n_skip;
    if (!mf_srv_log_join(job->log, &reader->channel)) {
        mf_srv_job_drop(reader);
        return NULL;
    }
    reader->channel.source = job->log;
    mf_srv_job_hold(job);
    reader->follows = job;
    return reader;
}

static void drop_reader(mf_srv_job **reader)
{
    if (*reader)
        mf_srv_channel_leave(&(*reader)->channel);
    mf_srv_job_drop(*reader);
    *reader = NULL;
}

/* A log with what is said before the job's turn comes. */
static bool begin_log(mf_srv_job *job)
{
    mf_srv_bytes out = {0};
    job->log = mf_srv_log_new();
    if (!job->log)
        return false;
    job->channel.sink = job->log;
    mf_srv_put_queued_events(job, &out);
    mf_srv_log_put(job->log, &out);
    const bool is_good = !out.has_failed;
    mf_srv_bytes_free(&out);
    return is_good;
}

/* What is kept of any that is made of it; the rest is left for what else a response has. */
static bool check_size(const mf_srv_job *job, mf_srv_refusal *r)
{
    const size_t most = MF_SRV_RESPONSE_BYTES - ((size_t)64 << 10);
    return job->items.n_bytes + job->echo.n_bytes <= most ||
           mf_srv_refuse_field(r, "background",
                               "the input, with what came before, has more than the %zu bytes that "
                               "can be kept",
                               most);
}

bool mf_srv_background_begin(mf_srv_request *request, mf_srv_job **reader, mf_srv_refusal *r)
{
    mf_srv_job *job = request->job;
    *reader = NULL;
    if (!check_size(job, r))
        return false;
    if (job->params.streams) {
        if (!begin_log(job) || !(*reader = mf_srv_background_reader(job, 0)))
            return no_memory(r);
    } else {
        mf_srv_put_response_yet(job, "queued", &request->answer);
    }
    if (mf_srv_responses_begin(job->served->responses, job))
        return true;
    drop_reader(reader);
    mf_srv_refuse(r, 429, "too many responses are in the making");
    r->code = "rate_limit_exceeded";
    r->retry_after_s = 2;
    return false;
}

void mf_srv_background_undo(mf_srv_request *request, mf_srv_job **reader)
{
    const mf_srv_job *job = request->job;
    drop_reader(reader);
    mf_srv_bytes_free(&request->answer);
    (void)mf_srv_responses_drop(job->served->responses, job->id, job->key);
}

/* ------------------------------------------------------------------------------- by their id -- */

static bool refuse_unknown(const char *id, mf_srv_refusal *r)
{
    return mf_srv_refuse(r, 404, "Response with id '%.60s' not found.", id);
}

/* stream and starting_after of the query. *n_skip: events that the client has. */
static bool get_query(const mf_srv_request *request, bool *streams, size_t *n_skip,
                      mf_srv_refusal *r)
{
    const char *stream = mf_srv_argument(request, "stream");
    const char *after = mf_srv_argument(request, "starting_after");
    *streams = stream && strcmp(stream, "true") == 0;
    *n_skip = 0;
    if (stream && !*streams && strcmp(stream, "false") != 0)
        return mf_srv_refuse_field(r, "stream", "expected true or false");
    if (!after)
        return true;
    if (!*streams)
        return mf_srv_refuse_field(r, "starting_after", "wants stream=true");
    const size_t n = strlen(after);
    if (n == 0 || n > 9 || strspn(after, "0123456789") != n)
        return mf_srv_refuse_field(r, "starting_after", "expected the number of an event");
    *n_skip = (size_t)strtoul(after, NULL, 10) + 1;
    return true;
}

static bool refuse_stream(mf_srv_refusal *r)
{
    return mf_srv_refuse_field(r, "stream",
                               "only a response that was asked for with background and stream, and "
                               "of no more than 8 MiB of events, can be streamed again");
}

/* Takes the reference to the job over. */
static bool get_running(mf_srv_request *request, mf_srv_job *job, bool is_cancelled, bool streams,
                        size_t n_skip, mf_srv_refusal *r)
{
    bool is_good = true;
    if (streams && !job->log) {
        is_good = refuse_stream(r);
    } else if (streams) {
        request->job = mf_srv_background_reader(job, n_skip);
        is_good = request->job || no_memory(r);
    } else {
        const bool has_begun = __atomic_load_n(&job->has_begun, __ATOMIC_RELAXED);
        mf_srv_put_response_yet(job,
                                is_cancelled ? "cancelled"
                                : has_begun  ? "in_progress"
                                             : "queued",
                                &request->answer);
    }
    mf_srv_job_drop(job);
    return is_good;
}

/* The events of a response that is over, behind those that the client has. */
static bool get_events(mf_srv_request *request, size_t n_skip, mf_srv_refusal *r)
{
    mf_srv_bytes events = {0};
    mf_srv_log_place place = {.n_skip = n_skip};
    bool is_good = mf_srv_responses_find(request->server->model.responses, request->path,
                                         request->key, NULL, NULL, &events) ||
                   refuse_unknown(request->path, r);
    if (is_good && events.n_bytes == 0)
        is_good = refuse_stream(r);
    if (is_good) {
        mf_srv_skip_events(events.data, events.n_bytes, &place);
        place.at = place.n_skip > 0 ? events.n_bytes : place.at;
        mf_srv_put(&request->answer, events.data + place.at, events.n_bytes - place.at);
        request->content_type = "text/event-stream; charset=utf-8";
    }
    mf_srv_bytes_free(&events);
    return is_good;
}

bool mf_srv_api_response(mf_srv_request *request, mf_srv_refusal *r)
{
    mf_srv_responses *all = request->server->model.responses;
    bool streams, is_cancelled = false;
    size_t n_skip;
    if (!get_query(request, &streams, &n_skip, r))
        return false;
    mf_srv_job *job = mf_srv_responses_running(all, request->path, request->key, &is_cancelled);
    if (job)
        return get_running(request, job, is_cancelled, streams, n_skip, r);
    if (streams)
        return get_events(request, n_skip, r);
    return mf_srv_responses_find(all, request->path, request->key, NULL, &request->answer, NULL) ||
           refuse_unknown(request->path, r);
}

bool mf_srv_api_response_drop(mf_srv_request *request, mf_srv_refusal *r)
{
    if (!mf_srv_responses_drop(request->server->model.responses, request->path, request->key))
        return refuse_unknown(request->path, r);
    mf_srv_scheduler_wake(request->server->scheduler); /* it may have been in the making */
    mf_srv_puts(&request->answer, "{\"id\":");
    mf_srv_puts_json(&request->answer, request->path);
    mf_srv_puts(&request->answer, ",\"object\":\"response\",\"deleted\":true}");
    return true;
}

/* One that is over is as it is, if it was made in the background. */
static bool cancel_none(mf_srv_request *request, const char *id, mf_srv_refusal *r)
{
    if (!mf_srv_responses_find(request->server->model.responses, id, request->key, NULL,
                               &request->answer, NULL))
        return refuse_unknown(id, r);
    yyjson_doc *doc = yyjson_read(request->answer.data, request->answer.n_bytes, 0);
    const bool is_background =
        yyjson_is_true(yyjson_obj_get(yyjson_doc_get_root(doc), "background"));
    yyjson_doc_free(doc);
    return is_background || mf_srv_refuse(r, 400, "Cannot cancel a synchronous response.");
}

/* The id that the path begins with. */
static bool get_id(const mf_srv_request *request, char id[MF_SRV_ID_BYTES], mf_srv_refusal *r)
{
    const size_t n = strcspn(request->path, "/");
    if (n >= MF_SRV_ID_BYTES)
        return refuse_unknown(request->path, r);
    memcpy(id, request->path, n);
    id[n] = '\0';
    return true;
}

/* How many of the items come before those of the answer, which are the last of them where it is
 * over. */
static size_t n_before_output(yyjson_val *items, const mf_srv_bytes *response)
{
    yyjson_doc *doc = yyjson_read(response->data ? response->data : "", response->n_bytes, 0);
    yyjson_val *output = yyjson_obj_get(yyjson_doc_get_root(doc), "output");
    size_t n = yyjson_arr_size(items), n_output = yyjson_arr_size(output);
    if (n_output > 0 && n_output <= n) {
        yyjson_val *first = yyjson_arr_get(items, n - n_output);
        if (yyjson_equals(yyjson_obj_get(first, "id"),
                          yyjson_obj_get(yyjson_arr_get_first(output), "id")))
            n -= n_output;
    }
    yyjson_doc_free(doc);
    return n;
}

bool mf_srv_api_response_items(mf_srv_request *request, mf_srv_refusal *r)
{
    char id[MF_SRV_ID_BYTES];
    mf_srv_bytes text = {0}, response = {0};
    if (!get_id(request, id, r))
        return false;
    if (!mf_srv_responses_find_input(request->server->model.responses, id, request->key, &text,
                                     &response))
        return refuse_unknown(id, r);
    yyjson_doc *doc = mf_srv_parse_items(&text);
    yyjson_val *items = yyjson_doc_get_root(doc);
    const bool is_good =
        doc ? mf_srv_list_items(request, items, n_before_output(items, &response), r)
            : no_memory(r);
    yyjson_doc_free(doc);
    mf_srv_bytes_free(&text);
    mf_srv_bytes_free(&response);
    return is_good;
}

bool mf_srv_api_response_cancel(mf_srv_request *request, mf_srv_refusal *r)
{
    char id[MF_SRV_ID_BYTES];
    if (!get_id(request, id, r))
        return false;
    mf_srv_job *job = mf_srv_responses_cancel(request->server->model.responses, id, request->key);
    if (!job)
        return cancel_none(request, id, r);
    mf_cancel_request(&job->cancel);
    mf_srv_scheduler_wake(request->server->scheduler);
    mf_srv_put_response_yet(job, "cancelled", &request->answer);
    mf_srv_job_drop(job);
    return true;
}
