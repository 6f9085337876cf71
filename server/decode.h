/* SPDX-License-Identifier: MIT */
/* Bodies that come compressed. */
#ifndef MF_SERVER_DECODE_H
#define MF_SERVER_DECODE_H

#include "refusal.h"

/* True if the coding is one that mf_srv_decode knows. NULL and "identity" are. */
bool mf_srv_knows_coding(const char *coding);

/* Puts what the body stands for in its place: at most max_bytes. False: 413, or 400 where it is
 * not what it says. */
bool mf_srv_decode(const char *coding, mf_srv_bytes *body, size_t max_bytes, mf_srv_refusal *r);

#endif
