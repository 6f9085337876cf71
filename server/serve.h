/* SPDX-License-Identifier: MIT */
/* The server as the program starts it: one model, answered over HTTP until a signal ends it. */
#ifndef MF_SERVER_SERVE_H
#define MF_SERVER_SERVE_H

#include <moeflux/moeflux.h>

#include <stdbool.h>
#include <stdint.h>

#define MF_SRV_MAX_NAMES 32

typedef struct mf_srv_config {
    const char *model; /* the checkpoint's directory */
    const char *name;  /* what clients call it; NULL: the directory's own name */
    mf_engine_options engine;
    const char *host;             /* an address; NULL: loopback, both kinds */
    uint32_t port;                /* 0: any */
    const char *socket_path;      /* instead of both; NULL: none */
    const char *certificate_file; /* of TLS; NULL: none */
    const char *key_file;
    const char *api_key_file;            /* NULL: no keys */
    const char *hosts[MF_SRV_MAX_NAMES]; /* further names that Host may have */
    uint32_t n_hosts;
    const char *origins[MF_SRV_MAX_NAMES]; /* of pages that may ask */
    uint32_t n_origins;
    uint32_t n_sessions;
    uint32_t n_waiting;    /* requests that may wait */
    uint32_t max_stall_ms; /* running answers may wait so long for a token while prompts come in */
    uint32_t n_connections;
    uint64_t max_body_bytes;
    uint32_t time_limit_s; /* of a request; 0: none */
    uint32_t drain_s;      /* given to requests under way when a signal comes */
    /* What requests that do not say get: */
    const char *variables; /* of the template, an object as JSON; NULL: none */
    mf_thinking thinking;  /* MF_THINKING_DEFAULT: as the template has it */
    uint32_t think_budget; /* tokens of thoughts; 0: any number */
    const char *state_dir; /* NULL: none */
    uint64_t state_dir_bytes;
} mf_srv_config;

/* Serves until SIGTERM or SIGINT. False: *error says why it could not. */
bool mf_serve(const mf_srv_config *config, mf_error *error);

#endif
