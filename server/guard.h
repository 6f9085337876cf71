/* SPDX-License-Identifier: MIT */
/* Who may ask: keys, names of hosts, origins of pages. */
#ifndef MF_SERVER_GUARD_H
#define MF_SERVER_GUARD_H

#include "refusal.h"
#include "serve.h"

#define MF_SRV_MAX_KEYS 64

typedef struct mf_srv_guard {
    const mf_srv_config *config;
    char *keys[MF_SRV_MAX_KEYS];
    size_t n_keys;
    char host_name[256]; /* this machine's */
    bool is_loopback;    /* nobody else can reach it */
} mf_srv_guard;

/* Refuses a host that is no address, and one that others can reach without keys. */
bool mf_srv_guard_open(mf_srv_guard *g, const mf_srv_config *config, mf_error *error);
void mf_srv_guard_close(mf_srv_guard *g);

/* Others can reach it: then keys are needed. */
bool mf_srv_guard_opens_to_others(mf_srv_guard *g, const char *where, mf_error *error);

/* What a request says of itself; any may be NULL. */
typedef struct mf_srv_claims {
    const char *host, *origin, *authorization, *api_key;
} mf_srv_claims;

/* Host and Origin. 403 where they are not allowed: a page elsewhere, or a name that was made to
 * point here. */
bool mf_srv_guard_place(const mf_srv_guard *g, const mf_srv_claims *claims, mf_srv_refusal *r);
/* The key. 401; *who: which key. */
bool mf_srv_guard_key(const mf_srv_guard *g, const mf_srv_claims *claims, size_t *who,
                      mf_srv_refusal *r);

/* True where the address is one that only this machine reaches. */
bool mf_srv_is_loopback(const char *host);

#endif
