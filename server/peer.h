/* SPDX-License-Identifier: MIT */
/* Connections as the watch sees them. */
#ifndef MF_SERVER_PEER_H
#define MF_SERVER_PEER_H

#include "http.h"

typedef enum mf_srv_phase { MF_SRV_SENDS_HEAD, MF_SRV_SENDS_BODY, MF_SRV_IS_ANSWERED } mf_srv_phase;

typedef struct mf_srv_peer {
    int fd;
    mf_srv_phase phase;
    uint64_t since_us; /* of the phase */
    bool is_known;     /* has had an answer before */
    mf_srv_job *job;   /* held; NULL: none */
    struct mf_srv_peer *next, *previous;
} mf_srv_peer;

/* NULL: no memory; the others take that. */
mf_srv_peer *mf_srv_peer_add(mf_srv_server *server, int fd);
void mf_srv_peer_remove(mf_srv_server *server, mf_srv_peer *peer);
void mf_srv_peer_set_phase(mf_srv_server *server, mf_srv_peer *peer, mf_srv_phase phase);
void mf_srv_peer_set_job(mf_srv_server *server, mf_srv_peer *peer, mf_srv_job *job);

#endif
