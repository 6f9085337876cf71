/* SPDX-License-Identifier: MIT */
/*
 * Connections are few threads' and waited for by poll; one that waits for the scheduler is
 * suspended. Then nobody polls its socket: the watch does, for peers that have gone.
 */
#include "http.h"

#include "background.h"
#include "body.h"
#include "decode.h"
#include "encode.h"
#include "listen.h"
#include "peer.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* A refused request's body is read to its end up to here, so that its sender reads the answer. */
#define MAX_SWALLOWED_BYTES ((uint64_t)1 << 20)
/* Of the bodies of all connections together: so many of the largest. */
#define MAX_BODIES 8
#define SEND_BYTES (128 << 10)
/* Smaller answers are sent as they are. */
#define MIN_GZIP_BYTES 1024

typedef struct mf_srv_exchange {
    mf_srv_request request;
    struct MHD_Connection *connection;
    mf_srv_peer *peer;
    const mf_srv_route *route;
    char *path;         /* from malloc; the request's, where it is not the connection's */
    mf_srv_shape shape; /* of refusals */
    mf_srv_bytes body;
    uint64_t n_body; /* seen, kept or not */
    uint64_t n_held; /* of the server's n_body_bytes */
    yyjson_doc *document;
    char id[MF_SRV_ID_BYTES];           /* where there is no job */
    char methods[MF_SRV_METHODS_BYTES]; /* of its path, where it has another; else empty */
    bool is_unframed;                   /* nobody knows where its body ends */
    bool is_refused, is_preflight, is_submitted, allows_origin;
    bool may_gzip, is_gzip; /* the answer is another for those who take gzip; it is compressed */
    mf_srv_refusal refusal;
} mf_srv_exchange;

const char *mf_srv_argument(const mf_srv_request *request, const char *name)
{
    return request->connection
               ? MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name)
               : NULL;
}

static const char *header(const mf_srv_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

/* ----------------------------------------------------------------------------------- answers -- */

static const char *id_of(const mf_srv_exchange *x)
{
    return x->request.job ? x->request.job->id : x->id;
}

static void add_headers(const mf_srv_exchange *x, struct MHD_Response *response, const char *type)
{
    const mf_srv_server *server = x->request.server;
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control",
                            x->request.cache_control ? x->request.cache_control : "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "request-id", id_of(x));
    MHD_add_response_header(response, "x-request-id", id_of(x));
    if (x->allows_origin) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", header(x, "Origin"));
        MHD_add_response_header(response, "Access-Control-Expose-Headers",
                                "request-id, x-request-id, Retry-After");
        MHD_add_response_header(response, "Vary", "Origin");
    }
    if (__atomic_load_n(&server->is_draining, __ATOMIC_RELAXED))
        MHD_add_response_header(response, "Connection", "close");
    for (const mf_srv_header *h = x->request.headers; h && h->name; h++)
        MHD_add_response_header(response, h->name, h->value);
}

static enum MHD_Result queue(mf_srv_exchange *x, int status, struct MHD_Response *response)
{
    mf_srv_counts *counts = &x->request.server->stats.counts;
    if (!response)
        return MHD_NO;
    if (status >= 400)
        mf_srv_stats_add(&x->request.server->stats,
                         status >= 500 ? &counts->n_failed : &counts->n_refused, 1);
    enum MHD_Result result = MHD_queue_response(x->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

/* Takes the bytes over. */
static enum MHD_Result answer(mf_srv_exchange *x, int status, const char *type, mf_srv_bytes *bytes)
{
    if (bytes->has_failed) {
        mf_srv_bytes_free(bytes);
        return MHD_NO;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(bytes->n_bytes, bytes->data, MHD_RESPMEM_MUST_FREE);
    if (!response)
        mf_srv_bytes_free(bytes);
    *bytes = (mf_srv_bytes){0};
    if (response) {
        add_headers(x, response, type);
        if (x->refusal.retry_after_s > 0) {
            char seconds[16];
            snprintf(seconds, sizeof seconds, "%u", x->refusal.retry_after_s);
            MHD_add_response_header(response, "Retry-After", seconds);
        }
        if (x->methods[0] != '\0')
            MHD_add_response_header(response, "Allow", x->methods);
        if (status == 401)
            MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
        if (x->is_gzip)
            MHD_add_response_header(response, "Content-Encoding", "gzip");
        if (x->may_gzip)
            MHD_add_response_header(response, "Vary", "Accept-Encoding");
    }
    return queue(x, status, response);
}

/* What a handler answered at once. Figures, lists and the page are sent compressed to those who
 * take that. */
static enum MHD_Result answer_at_once(mf_srv_exchange *x)
{
    mf_srv_request *request = &x->request;
    x->may_gzip = !x->route->takes_json && request->answer.n_bytes >= MIN_GZIP_BYTES;
    x->is_gzip = x->may_gzip && !request->answer.has_failed &&
                 mf_srv_takes_gzip(header(x, "Accept-Encoding")) && mf_srv_gzip(&request->answer);
    return answer(x, request->status != 0 ? request->status : 200,
                  request->content_type ? request->content_type : "application/json",
                  &request->answer);
}

static enum MHD_Result answer_refusal(mf_srv_exchange *x)
{
    mf_srv_bytes bytes = {0};
    mf_srv_put_refusal(&bytes, x->shape, &x->refusal, id_of(x));
    return answer(x, x->refusal.status, "application/json", &bytes);
}

static void add_safe_header(struct MHD_Response *response, const char *name, const char *value)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
    if (value && value[strspn(value, safe)] == '\0')
        MHD_add_response_header(response, name, value);
}

static enum MHD_Result answer_preflight(mf_srv_exchange *x)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    add_headers(x, response, "text/plain");
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    add_safe_header(response, "Access-Control-Allow-Headers",
                    header(x, "Access-Control-Request-Headers"));
    if (header(x, "Access-Control-Request-Private-Network"))
        MHD_add_response_header(response, "Access-Control-Allow-Private-Network", "true");
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    return queue(x, 204, response);
}

static ssize_t read_stream(void *job, uint64_t position, char *buffer, size_t capacity)
{
    (void)position;
    ssize_t n = mf_srv_channel_take(&((mf_srv_job *)job)->channel, buffer, capacity);
    if (n == -1)
        return MHD_CONTENT_READER_END_OF_STREAM;
    return n == -2 ? MHD_CONTENT_READER_END_WITH_ERROR : n;
}

static void free_stream(void *job)
{
    mf_srv_job_drop(job);
}

static enum MHD_Result answer_stream(mf_srv_exchange *x)
{
    mf_srv_job_hold(x->request.job);
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, 16384, read_stream, x->request.job, free_stream);
    if (!response) {
        mf_srv_job_drop(x->request.job);
        return MHD_NO;
    }
    add_headers(x, response, "text/event-stream; charset=utf-8");
    MHD_add_response_header(response, "X-Accel-Buffering", "no");
    return queue(x, 200, response);
}

/* The scheduler's answer in one piece; the connection sleeps until it is there. */
static enum MHD_Result answer_document(mf_srv_exchange *x)
{
    mf_srv_channel *channel = &x->request.job->channel;
    mf_srv_bytes bytes;
    if (!mf_srv_channel_is_whole(channel))
        return MHD_YES;
    pthread_mutex_lock(&channel->lock);
    bool is_broken = channel->is_broken;
    int status = channel->status;
    bytes = channel->out;
    channel->out = (mf_srv_bytes){0};
    pthread_mutex_unlock(&channel->lock);
    if (!is_broken && status != 499)
        return answer(x, status, "application/json", &bytes);
    mf_srv_bytes_free(&bytes);
    return MHD_NO;
}

/* ------------------------------------------------------------------------------------ asking -- */

/* Changes what this request holds of all bodies to n_bytes. False: it is too much. */
static bool hold_body(mf_srv_exchange *x, uint64_t n_bytes)
{
    mf_srv_server *server = x->request.server;
    const uint64_t more = n_bytes - x->n_held; /* may be less, and wraps */
    const uint64_t n = __atomic_add_fetch(&server->n_body_bytes, more, __ATOMIC_RELAXED);
    x->n_held = n_bytes;
    if (n_bytes == 0 || n <= MAX_BODIES * server->config->max_body_bytes)
        return true;
    mf_srv_refuse(&x->refusal, 503, "too many large requests come in at once");
    x->refusal.retry_after_s = 2;
    return false;
}

static void let_go_of_body(mf_srv_exchange *x)
{
    yyjson_doc_free(x->document);
    x->document = NULL;
    x->request.json = NULL;
    mf_srv_bytes_free(&x->body);
    (void)hold_body(x, 0);
}

static bool parse_body(mf_srv_exchange *x)
{
    x->document = mf_srv_parse_body(&x->body, &x->refusal);
    x->request.json = yyjson_doc_get_root(x->document);
    return x->document != NULL;
}

/* The job's bytes are this connection's, which the watch looks after. */
static void attach(mf_srv_exchange *x, mf_srv_job *job)
{
    job->channel.connection = x->connection;
    mf_srv_peer_set_job(x->request.server, x->peer, job);
}

static bool submit(mf_srv_exchange *x)
{
    mf_srv_server *server = x->request.server;
    mf_srv_job *job = x->request.job;
    job->client = x->request.client;
    if (server->config->time_limit_s > 0)
        job->deadline_us = job->arrived_us + (uint64_t)server->config->time_limit_s * 1000000;
    if (!job->is_background)
        attach(x, job);
    switch (mf_srv_scheduler_submit(server->scheduler, job)) {
    case MF_SRV_TAKEN:
        x->is_submitted = !job->is_background;
        return true;
    case MF_SRV_FULL:
        mf_srv_refuse(&x->refusal, 429, "too many requests are waiting; try again in 2s");
        x->refusal.code = "rate_limit_exceeded";
        x->refusal.retry_after_s = 2;
        break;
    case MF_SRV_CLOSED:
        mf_srv_refuse(&x->refusal, 503, "the server is shutting down");
        x->refusal.retry_after_s = 5;
        break;
    }
    mf_srv_peer_set_job(server, x->peer, NULL);
    return false;
}

/* The answer is made from now on, and this connection gets what it is yet, or what it says. */
static enum MHD_Result answer_background(mf_srv_exchange *x)
{
    mf_srv_request *request = &x->request;
    mf_srv_job *job = request->job, *reader = NULL;
    if (!mf_srv_background_begin(request, &reader, &x->refusal))
        return answer_refusal(x);
    if (!submit(x)) {
        mf_srv_background_undo(request, &reader);
        return answer_refusal(x);
    }
    request->job = reader;
    mf_srv_job_drop(job);
    if (!reader)
        return answer_at_once(x);
    attach(x, reader);
    return answer_stream(x);
}

static enum MHD_Result answer_job(mf_srv_exchange *x)
{
    mf_srv_job *job = x->request.job;
    if (job->is_background)
        return answer_background(x);
    if (job->follows) {
        attach(x, job);
        return answer_stream(x);
    }
    if (!submit(x))
        return answer_refusal(x);
    return job->params.streams ? answer_stream(x) : answer_document(x);
}

static enum MHD_Result handle(mf_srv_exchange *x)
{
    mf_srv_request *request = &x->request;
    mf_srv_put(&x->body, "", 0);
    if (!mf_srv_decode(header(x, "Content-Encoding"), &x->body,
                       (size_t)request->server->config->max_body_bytes, &x->refusal))
        return answer_refusal(x);
    if (x->body.has_failed)
        return MHD_NO;
    request->if_none_match = header(x, "If-None-Match");
    request->connection = x->connection;
    request->body = x->body.data;
    request->n_body = x->body.n_bytes;
    const bool is_good =
        (!x->route->takes_json || parse_body(x)) && x->route->handler(request, &x->refusal);
    let_go_of_body(x); /* long answers, and readers that are slow, need it no more */
    if (!is_good)
        return answer_refusal(x);
    return request->job ? answer_job(x) : answer_at_once(x);
}

/* ------------------------------------------------------------------------------------- heads -- */

typedef struct framing {
    int n_lengths, n_codings, n_hosts;
    bool is_odd;
} framing;

/* A name that is one, and no more than that of a header that says where the body ends.
 * (libmicrohttpd takes "Transfer-Encoding :" for another name, and puts a folded line behind it.)
 */
static bool is_good_name(const char *name)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789"
                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char length[] = "Content-Length", coding[] = "Transfer-Encoding";
    return *name && name[strspn(name, token)] == '\0' &&
           (strncasecmp(name, length, sizeof length - 1) != 0 || !name[sizeof length - 1]) &&
           (strncasecmp(name, coding, sizeof coding - 1) != 0 || !name[sizeof coding - 1]);
}

static enum MHD_Result look_at_header(void *context, enum MHD_ValueKind kind, const char *name,
                                      const char *value)
{
    framing *f = context;
    (void)kind;
    (void)value;
    f->n_lengths += strcasecmp(name, "Content-Length") == 0;
    f->n_codings += strcasecmp(name, "Transfer-Encoding") == 0;
    f->n_hosts += strcasecmp(name, "Host") == 0;
    f->is_odd = f->is_odd || !is_good_name(name);
    return MHD_YES;
}

/* Heads that two readers could read in two ways. */
static bool check_framing(mf_srv_exchange *x)
{
    const char *coding = header(x, "Transfer-Encoding");
    const char *content_coding = header(x, "Content-Encoding");
    framing f = {0};
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, look_at_header, &f);
    if (f.is_odd)
        return mf_srv_refuse(&x->refusal, 400, "a header's name is not one, or its line is folded");
    if (f.n_lengths + f.n_codings > 1)
        return mf_srv_refuse(&x->refusal, 400, "the body's length is given twice");
    if (f.n_hosts > 1)
        return mf_srv_refuse(&x->refusal, 400, "Host is given twice");
    if (f.n_codings > 0 && (!coding || strcasecmp(coding, "chunked") != 0))
        return mf_srv_refuse(&x->refusal, 400, "Transfer-Encoding: only chunked is understood");
    if (!mf_srv_knows_coding(content_coding))
        return mf_srv_refuse(&x->refusal, 415,
                             "Content-Encoding: only gzip and zstd are understood");
    return true;
}

static bool too_large(mf_srv_exchange *x)
{
    return mf_srv_refuse(&x->refusal, 413, "the body is larger than %llu bytes",
                         (unsigned long long)x->request.server->config->max_body_bytes);
}

/* The path below the route's, without the slash at its end. */
static const char *path_below(mf_srv_exchange *x, const char *rest)
{
    const size_t n = strlen(rest);
    if (n == 0 || rest[n - 1] != '/')
        return rest;
    x->path = strndup(rest, n - 1);
    return x->path ? x->path : rest;
}

static bool check_route(mf_srv_exchange *x, const char *method, const char *path)
{
    bool is_known;
    const char *rest = "";
    x->route = mf_srv_find_route(method, path, &is_known, &rest);
    x->request.path = path_below(x, rest);
    if (x->route && is_known)
        return true;
    if (x->route) {
        mf_srv_methods_at(path, x->methods);
        return mf_srv_refuse(&x->refusal, 405, "%s is not for %s", path, method);
    }
    return mf_srv_refuse(&x->refusal, 404, "there is nothing at %.200s", path);
}

static uint64_t client_of(const mf_srv_exchange *x, size_t key)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    uint64_t hash = 1469598103934665603u + key;
    const unsigned char *bytes = NULL;
    size_t n = 0;
    if (address && address->sa_family == AF_INET) {
        bytes =
            (const unsigned char *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
        n = 4;
    } else if (address && address->sa_family == AF_INET6) {
        bytes =
            (const unsigned char *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        n = 16;
    }
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

/* Who asks below /messages, or names a version of Anthropic's API, reads errors in its form. */
static mf_srv_shape shape_of(const mf_srv_exchange *x, const char *path)
{
    return header(x, "anthropic-version") ? MF_SRV_ANTHROPIC : mf_srv_shape_at(path);
}

/* The path of a target that is a whole URL, as proxies are sent them; it names the host once more.
 */
static bool find_path(mf_srv_exchange *x, const char *host, const char **path)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        const size_t n_scheme = strlen(schemes[i]), n_host = host ? strlen(host) : 0;
        const char *place = *path + n_scheme;
        if (strncasecmp(*path, schemes[i], n_scheme) != 0)
            continue;
        if (n_host == 0 || strcspn(place, "/") != n_host || strncasecmp(place, host, n_host) != 0)
            return mf_srv_refuse(&x->refusal, 400, "the target names another host than Host");
        *path = place[n_host] ? place + n_host : "/";
        break;
    }
    return true;
}

/* All that can be said before the body. */
static bool check_head(mf_srv_exchange *x, const char *method, const char *path)
{
    mf_srv_server *server = x->request.server;
    const mf_srv_claims claims = {header(x, "Host"), header(x, "Origin"),
                                  header(x, "Authorization"), header(x, "x-api-key")};
    const char *length = header(x, "Content-Length");
    size_t key = 0;
    x->is_unframed = !check_framing(x) || !find_path(x, claims.host, &path);
    x->shape = shape_of(x, path);
    if (x->is_unframed || !mf_srv_guard_place(&server->guard, &claims, &x->refusal))
        return false;
    x->allows_origin = claims.origin != NULL;
    x->is_preflight = strcmp(method, "OPTIONS") == 0;
    if (x->is_preflight)
        return true;
    if (!check_route(x, method, path) ||
        (!x->route->is_open && !mf_srv_guard_key(&server->guard, &claims, &key, &x->refusal)))
        return false;
    if (length && strtoull(length, NULL, 10) > server->config->max_body_bytes)
        return too_large(x);
    x->request.client = client_of(x, key);
    x->request.key = key;
    return true;
}

static bool body_is_large(const mf_srv_exchange *x)
{
    const char *length = header(x, "Content-Length");
    return length && strtoull(length, NULL, 10) > MAX_SWALLOWED_BYTES;
}

static enum MHD_Result begin(mf_srv_server *server, struct MHD_Connection *connection,
                             const char *path, const char *method, void **context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    mf_srv_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return MHD_NO;
    x->connection = connection;
    x->peer = info ? info->socket_context : NULL;
    x->request.server = server;
    *context = x;
    mf_srv_make_id(x->id, "req_");
    mf_srv_stats_add(&server->stats, &server->stats.counts.n_requests, 1);
    mf_srv_peer_set_phase(server, x->peer, MF_SRV_SENDS_BODY);
    x->is_refused = !check_head(x, method, path);
    return x->is_refused && (x->is_unframed || body_is_large(x)) ? answer_refusal(x) : MHD_YES;
}

static enum MHD_Result take_body(mf_srv_exchange *x, const char *data, size_t *n_bytes)
{
    const uint64_t most = x->request.server->config->max_body_bytes;
    x->n_body += *n_bytes;
    if (!x->is_refused && x->n_body > most)
        x->is_refused = !too_large(x);
    if (!x->is_refused && !x->is_preflight)
        x->is_refused = !hold_body(x, x->n_body);
    if (x->is_refused || x->is_preflight) {
        let_go_of_body(x);
        if (x->n_body > most + MAX_SWALLOWED_BYTES)
            return MHD_NO;
    } else {
        mf_srv_put(&x->body, data, *n_bytes);
    }
    *n_bytes = 0;
    return x->body.has_failed ? MHD_NO : MHD_YES;
}

enum MHD_Result mf_srv_on_request(void *server, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_bytes, void **context)
{
    mf_srv_exchange *x = *context;
    (void)version;
    if (!x)
        return begin(server, connection, path, method, context);
    if (*n_bytes > 0)
        return take_body(x, data, n_bytes);
    if (x->is_submitted)
        return answer_document(x);
    mf_srv_peer_set_phase(server, x->peer, MF_SRV_IS_ANSWERED);
    if (x->is_refused)
        return answer_refusal(x);
    return x->is_preflight ? answer_preflight(x) : handle(x);
}

void mf_srv_on_completed(void *context, struct MHD_Connection *connection, void **exchange,
                         enum MHD_RequestTerminationCode why)
{
    mf_srv_server *server = context;
    mf_srv_exchange *x = *exchange;
    (void)connection;
    (void)why;
    if (!x)
        return;
    *exchange = NULL;
    mf_srv_peer_set_job(server, x->peer, NULL);
    mf_srv_peer_set_phase(server, x->peer, MF_SRV_SENDS_HEAD);
    if (x->request.job) {
        mf_srv_channel_leave(&x->request.job->channel);
        mf_cancel_request(&x->request.job->cancel); /* of what is over by now, mostly */
        mf_srv_scheduler_wake(server->scheduler);
        mf_srv_job_drop(x->request.job);
    }
    let_go_of_body(x);
    mf_srv_bytes_free(&x->request.answer);
    free(x->path);
    free(x);
}

void mf_srv_on_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    const union MHD_ConnectionInfo *info;
    const int send_bytes = SEND_BYTES;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        mf_srv_peer_remove(context, *socket_context);
        *socket_context = NULL;
        return;
    }
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info) /* what a slow reader takes of the system's memory is bounded, too */
        (void)setsockopt(info->connect_fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    *socket_context = info ? mf_srv_peer_add(context, info->connect_fd) : NULL;
}
