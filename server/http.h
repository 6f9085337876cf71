/* SPDX-License-Identifier: MIT */
/*
 * HTTP, by libmicrohttpd: connections, bodies, answers. What is asked and answered is in the API's
 * files; who may ask, in guard.h.
 */
#ifndef MF_SERVER_HTTP_H
#define MF_SERVER_HTTP_H

#include "guard.h"
#include "model.h"
#include "scheduler.h"
#include "serve.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#define MF_SRV_MAX_DAEMONS 4

typedef struct mf_srv_server {
    const mf_srv_config *config;
    mf_srv_model model;
    mf_srv_stats stats;
    mf_srv_scheduler *scheduler;
    mf_srv_guard guard;
    int sockets[MF_SRV_MAX_DAEMONS]; /* bound, and not yet a daemon's */
    size_t n_sockets;
    bool has_path; /* there is a socket of ours in the file system */
    struct MHD_Daemon *daemons[MF_SRV_MAX_DAEMONS];
    int listeners[MF_SRV_MAX_DAEMONS]; /* of those that do not listen any more; else -1 */
    bool is_given;                     /* systemd listens too, and goes on with it */
    size_t n_daemons;
    unsigned port;
    char *certificate, *key; /* of TLS; NULL: none */
    int is_draining;         /* atomic */
    pthread_mutex_t peers_lock;
    struct mf_srv_peer *peers;
    uint64_t started_us;
    uint64_t n_body_bytes; /* atomic: of all bodies that are not yet answered */
} mf_srv_server;

typedef struct mf_srv_header {
    const char *name, *value; /* NULL: the end */
} mf_srv_header;

/* A request as an API's function gets it, and what it makes of it: an answer, or a job. */
typedef struct mf_srv_request {
    mf_srv_server *server;
    const char *path; /* below the route's */
    const char *body; /* NUL-terminated */
    size_t n_body;
    yyjson_val *json;                  /* the body, an object; NULL where the route takes none */
    const char *if_none_match;         /* NULL: not given */
    struct MHD_Connection *connection; /* for mf_srv_argument */
    uint64_t client;
    size_t key; /* whose it is; 0: there are none */

    mf_srv_bytes answer;
    int status;                   /* 0: 200 */
    const char *content_type;     /* NULL: JSON */
    const char *cache_control;    /* NULL: no-store */
    const mf_srv_header *headers; /* further ones; NULL: none */
    mf_srv_job *job;              /* prepared, not submitted */
} mf_srv_request;

/* Of the query; NULL: it is not there. */
const char *mf_srv_argument(const mf_srv_request *request, const char *name);

/* False: the refusal says why. */
typedef bool (*mf_srv_handler)(mf_srv_request *request, mf_srv_refusal *refusal);

typedef struct mf_srv_route {
    const char *method;
    const char *path; /* without /v1; a star: any name; a slash at the end: all below it */
    mf_srv_handler handler;
    bool takes_json;
    bool is_open; /* without a key */
} mf_srv_route;

/* How errors are told to who asks for a path. */
mf_srv_shape mf_srv_shape_at(const char *path);
/* The route of a path, whatever its method; *other: one with another method. NULL: none. *rest: the
 * path below the route's. */
const mf_srv_route *mf_srv_find_route(const char *method, const char *path, bool *is_known,
                                      const char **rest);
/* The methods that a path takes, as the header Allow lists them, into so many bytes. */
#define MF_SRV_METHODS_BYTES 64
void mf_srv_methods_at(const char *path, char *out);

/* Before the model is loaded: sockets and the certificate. Callers are refused until the start, but
 * at a socket in the file system, where they wait: one that nobody listens at would be taken for
 * stale. */
bool mf_srv_http_bind(mf_srv_server *server, mf_error *error);
bool mf_srv_http_start(mf_srv_server *server, mf_error *error);
/* No new connections. */
void mf_srv_http_quiesce(mf_srv_server *server);
void mf_srv_http_stop(mf_srv_server *server);

/* Looks after all connections: those who are slow, silent or gone. To be called several times a
 * second. */
void mf_srv_watch(mf_srv_server *server);
/* Some connection has not yet been sent all of its answer. */
bool mf_srv_is_sending(mf_srv_server *server);

#endif
