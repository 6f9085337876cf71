/* SPDX-License-Identifier: MIT */
/* SipHash-2-4 with 128 bits. */
#include "digest.h"

#include <string.h>

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void mix(uint64_t v[4], int n_rounds)
{
    for (int i = 0; i < n_rounds; i++) {
        v[0] += v[1];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[0] = rotate(v[0], 32);
        v[2] += v[3];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

static void take(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v, 2);
    v[0] ^= word;
}

mf_srv_digest mf_srv_digest_of(const mf_srv_digest_key *key, const void *data, size_t n_bytes)
{
    const unsigned char *bytes = data;
    const uint64_t a = key->words[0], b = key->words[1];
    uint64_t v[4] = {a ^ 0x736f6d6570736575u, b ^ 0x646f72616e646f6du ^ 0xee,
                     a ^ 0x6c7967656e657261u, b ^ 0x7465646279746573u};
    uint64_t word;
    mf_srv_digest out;
    size_t i = 0;
    for (; i + 8 <= n_bytes; i += 8) {
        memcpy(&word, bytes + i, 8);
        take(v, word);
    }
    word = (uint64_t)n_bytes << 56;
    for (size_t k = 0; i + k < n_bytes; k++)
        word |= (uint64_t)bytes[i + k] << (8 * k);
    take(v, word);
    v[2] ^= 0xee;
    mix(v, 4);
    out.words[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    mix(v, 4);
    out.words[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
    return out;
}
