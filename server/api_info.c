/* SPDX-License-Identifier: MIT */
/* What the server and its model are, and how they do. */
#include "api.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

static void put_model(const mf_srv_server *server, mf_srv_bytes *out)
{
    const mf_srv_model *m = &server->model;
    char created[32] = "";
    time_t t = (time_t)m->created;
    struct tm utc;
    if (gmtime_r(&t, &utc))
        strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
    mf_srv_puts(out, "{\"id\":");
    mf_srv_puts_json(out, m->name);
    mf_srv_printf(out, ",\"object\":\"model\",\"type\":\"model\",\"created\":%" PRId64, m->created);
    mf_srv_put_text_field(out, "display_name", m->name);
    mf_srv_put_text_field(out, "created_at", created);
    mf_srv_put_text_field(out, "owned_by", "moeflux");
    mf_srv_printf(out, ",\"context_length\":%lu,\"max_model_len\":%lu}",
                  (unsigned long)m->info.n_context_tokens, (unsigned long)m->info.n_context_tokens);
}

bool mf_srv_api_models(mf_srv_request *request, mf_srv_refusal *r)
{
    mf_srv_bytes *out = &request->answer;
    (void)r;
    mf_srv_puts(out, "{\"object\":\"list\",\"data\":[");
    put_model(request->server, out);
    mf_srv_puts(out, "],\"models\":[],\"has_more\":false,\"first_id\":");
    mf_srv_puts_json(out, request->server->model.name);
    mf_srv_puts(out, ",\"last_id\":");
    mf_srv_puts_json(out, request->server->model.name);
    mf_srv_puts(out, "}");
    return true;
}

bool mf_srv_api_model(mf_srv_request *request, mf_srv_refusal *r)
{
    if (strcmp(request->path, request->server->model.name) != 0) {
        mf_srv_refuse(r, 404, "the model '%.100s' does not exist", request->path);
        r->code = "model_not_found";
        return false;
    }
    put_model(request->server, &request->answer);
    return true;
}

bool mf_srv_api_health(mf_srv_request *request, mf_srv_refusal *r)
{
    if (__atomic_load_n(&request->server->is_draining, __ATOMIC_RELAXED))
        return mf_srv_refuse(r, 503, "the server is shutting down");
    mf_srv_puts(&request->answer, "{\"status\":\"ok\"}");
    return true;
}

bool mf_srv_api_probe(mf_srv_request *request, mf_srv_refusal *r)
{
    (void)r;
    request->content_type = "text/plain";
    mf_srv_put(&request->answer, "", 0);
    return true;
}

bool mf_srv_api_props(mf_srv_request *request, mf_srv_refusal *r)
{
    const mf_srv_model *m = &request->server->model;
    mf_srv_bytes *out = &request->answer;
    (void)r;
    mf_srv_printf(out, "{\"default_generation_settings\":{\"n_ctx\":%lu},\"total_slots\":%lu",
                  (unsigned long)m->info.n_context_tokens, (unsigned long)m->info.n_sessions);
    mf_srv_put_text_field(out, "model_alias", m->name);
    mf_srv_printf(
        out,
        ",\"chat_template_caps\":{\"supports_tools\":%s},\"modalities\":{\"vision\":false,"
        "\"audio\":false},\"build_info\":\"moeflux %s\"}",
        m->shows_tools ? "true" : "false", mf_version());
    return true;
}

/* -------------------------------------------------------------------------------- statistics -- */

static const struct counter {
    const char *name, *help;
    size_t offset;
    bool is_gauge;
} counters[] = {
    {"requests_total", "Requests whose head was read.", offsetof(mf_srv_counts, n_requests), false},
    {"requests_refused_total", "Requests answered with 4xx.", offsetof(mf_srv_counts, n_refused),
     false},
    {"requests_failed_total", "Requests answered with 5xx, or that failed later.",
     offsetof(mf_srv_counts, n_failed), false},
    {"jobs_total", "Requests for answers that were taken in.", offsetof(mf_srv_counts, n_jobs),
     false},
    {"jobs_finished_total", "Of these, answered to the end.", offsetof(mf_srv_counts, n_finished),
     false},
    {"jobs_cancelled_total", "Of these, given up by their clients.",
     offsetof(mf_srv_counts, n_cancelled), false},
    {"jobs_rejected_total", "Requests for answers that found the queue full.",
     offsetof(mf_srv_counts, n_rejected), false},
    {"preemptions_total", "Answers put back for lack of memory.",
     offsetof(mf_srv_counts, n_preempted), false},
    {"prompt_tokens_total", "Tokens of prompts.", offsetof(mf_srv_counts, n_prompt_tokens), false},
    {"cached_tokens_total", "Of these, found evaluated.", offsetof(mf_srv_counts, n_cached_tokens),
     false},
    {"evaluated_tokens_total", "Tokens evaluated, of prompts and answers.",
     offsetof(mf_srv_counts, n_evaluated_tokens), false},
    {"answer_tokens_total", "Tokens of answers.", offsetof(mf_srv_counts, n_answer_tokens), false},
    {"forced_tokens_total",
     "Of these, the only ones that a grammar left: taken without a step of their own.",
     offsetof(mf_srv_counts, n_forced_tokens), false},
    {"steps_total", "Steps of the engine.", offsetof(mf_srv_counts, n_steps), false},
    {"step_microseconds_total", "Time within steps of the engine.",
     offsetof(mf_srv_counts, n_step_us), false},
    {"busy_microseconds_total", "The same with what the scheduler does between them.",
     offsetof(mf_srv_counts, n_busy_us), false},
    {"sessions_stored_total", "Sessions written to the store.", offsetof(mf_srv_counts, n_stored),
     false},
    {"answers_waiting", "Answers that wait for a session.", offsetof(mf_srv_counts, n_waiting),
     true},
    {"answers_running", "Answers in the making.", offsetof(mf_srv_counts, n_running), true},
    {"answers_paused", "Of these, waiting for slow readers.", offsetof(mf_srv_counts, n_paused),
     true},
    {"connections", "Open connections.", offsetof(mf_srv_counts, n_connections), true},
    {"sessions_idle", "Sessions kept for prompts to come.",
     offsetof(mf_srv_counts, n_sessions_idle), true},
};

#define ENGINE_COUNTERS(X)                                                                        \
    X(n_tokens, "tokens_total", "Tokens the engine evaluated.", false)                            \
    X(n_expert_hits, "expert_hits_total", "Experts found in memory.", false)                      \
    X(n_expert_misses, "expert_misses_total", "Experts read from the drive.", false)              \
    X(n_reads, "reads_total", "Reads sent to the drive.", false)                                  \
    X(read_bytes, "read_bytes_total", "Bytes of these.", false)                                   \
    X(wait_us, "wait_microseconds_total", "Time that computing stood still for reads.", false)    \
    X(reading_us, "reading_microseconds_total", "Time with a read in flight.", false)             \
    X(n_slots, "expert_slots", "Experts that memory holds.", true)                                \
    X(n_sessions, "sessions", "Sessions open.", true)                                             \
    X(state_bytes_used, "state_bytes_used", "Held by sessions and marks.", true)                  \
    X(state_bytes_free, "state_bytes_free", "Free for sessions and marks.", true)                 \
    X(mark_bytes_used, "mark_bytes_used", "Held by marks.", true)                                 \
    X(n_queued, "experts_queued", "Experts that wait for the drive.", true)                       \
    X(n_hints, "hints_total", "Experts foreseen, and taken.", false)                              \
    X(n_hints_useful, "hints_useful_total", "Of these, held when asked for.", false)              \
    X(n_hints_late, "hints_late_total", "Of these, on their way when asked for.", false)          \
    X(n_hints_cancelled, "hints_cancelled_total", "Of these, given up unread.", false)            \
    X(n_hints_wasted, "hints_wasted_total", "Of these, read for nothing.", false)                 \
    X(n_expert_host_hits, "expert_host_hits_total", "Misses of a device found in memory.", false) \
    X(upload_bytes, "upload_bytes_total", "Bytes uploaded to a device's slots.", false)           \
    X(weight_bytes_touched, "weight_bytes_total", "Bytes of weights multiplied with.", false)     \
    X(slot_bytes, "expert_slot_bytes", "Bytes of one of them.", true)                             \
    X(n_host_slots, "expert_host_slots", "Experts that memory holds below a device.", true)       \
    X(device_bytes_taken, "device_bytes_taken", "Taken of GPUs' memory.", true)

static uint64_t value_of(const mf_srv_counts *counts, const struct counter *c)
{
    uint64_t value;
    memcpy(&value, (const char *)counts + c->offset, sizeof value);
    return value;
}

static void put_metric(mf_srv_bytes *out, const char *name, const char *help, bool is_gauge,
                       uint64_t value)
{
    mf_srv_printf(out, "# HELP moeflux_%s %s\n# TYPE moeflux_%s %s\nmoeflux_%s %" PRIu64 "\n", name,
                  help, name, is_gauge ? "gauge" : "counter", name, value);
}

static void put_histogram(mf_srv_bytes *out, const char *name, const char *help,
                          const mf_srv_histogram *h)
{
    uint64_t n = 0;
    mf_srv_printf(out, "# HELP moeflux_%s %s\n# TYPE moeflux_%s histogram\n", name, help, name);
    for (int i = 0; i < MF_SRV_N_BUCKETS - 1; i++) {
        n += h->n[i];
        mf_srv_printf(out, "moeflux_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
                      mf_srv_bucket_bounds[i], n);
    }
    n += h->n[MF_SRV_N_BUCKETS - 1];
    mf_srv_printf(out,
                  "moeflux_%s_bucket{le=\"+Inf\"} %" PRIu64 "\nmoeflux_%s_sum %.9g\n"
                  "moeflux_%s_count %" PRIu64 "\n",
                  name, n, name, h->sum, name, n);
}

bool mf_srv_api_metrics(mf_srv_request *request, mf_srv_refusal *r)
{
    const mf_srv_counts counts = mf_srv_stats_get(&request->server->stats);
    mf_srv_bytes *out = &request->answer;
    mf_stats engine = {0};
    (void)r;
    mf_engine_stats(request->server->model.engine, &engine);
    request->content_type = "text/plain; version=0.0.4";
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        put_metric(out, counters[i].name, counters[i].help, counters[i].is_gauge,
                   value_of(&counts, &counters[i]));
    put_histogram(out, "first_token_seconds", "From the request to its first token.",
                  &counts.first_token);
    put_histogram(out, "between_tokens_seconds", "From one token of an answer to the next.",
                  &counts.between_tokens);
#define X(field, name, help, is_gauge) \
    put_metric(out, "engine_" name, help, is_gauge, engine.field);
    ENGINE_COUNTERS(X)
#undef X
    return true;
}

bool mf_srv_api_stats(mf_srv_request *request, mf_srv_refusal *r)
{
    const mf_srv_server *server = request->server;
    const mf_srv_counts counts = mf_srv_stats_get(&request->server->stats);
    mf_srv_bytes *out = &request->answer;
    mf_stats engine = {0};
    const char *comma = "";
    (void)r;
    mf_engine_stats(server->model.engine, &engine);
    mf_srv_printf(out, "{\"version\":\"%s\",\"model\":", mf_version());
    mf_srv_puts_json(out, server->model.name);
    mf_srv_printf(out, ",\"uptime_seconds\":%.3f,\"server\":{",
                  (double)(mf_srv_now_us() - server->started_us) * 1e-6);
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        mf_srv_printf(out, "%s\"%s\":%" PRIu64, i > 0 ? "," : "", counters[i].name,
                      value_of(&counts, &counters[i]));
    mf_srv_puts(out, "},\"engine\":{");
#define X(field, name, help, is_gauge)                                  \
    mf_srv_printf(out, "%s\"" name "\":%" PRIu64, comma, engine.field); \
    comma = ",";
    ENGINE_COUNTERS(X)
#undef X
    mf_srv_puts(out, "}");
    mf_srv_put_facts(server, out);
    mf_srv_puts(out, "}");
    return true;
}
