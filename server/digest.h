/* SPDX-License-Identifier: MIT */
/*
 * Digests of 128 bits by a key of this process (SipHash-2-4): equal digests are equal texts, also
 * where somebody wants them not to be. (Aumasson and Bernstein, "SipHash: a fast short-input PRF".)
 */
#ifndef MF_SERVER_DIGEST_H
#define MF_SERVER_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mf_srv_digest {
    uint64_t words[2];
} mf_srv_digest;

typedef struct mf_srv_digest_key {
    uint64_t words[2];
} mf_srv_digest_key;

mf_srv_digest mf_srv_digest_of(const mf_srv_digest_key *key, const void *data, size_t n_bytes);

static inline bool mf_srv_digest_is(const mf_srv_digest *a, const mf_srv_digest *b)
{
    return a->words[0] == b->words[0] && a->words[1] == b->words[1];
}

#endif
