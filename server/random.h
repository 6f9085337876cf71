/* SPDX-License-Identifier: MIT */
/* Bytes that nobody guesses. */
#ifndef MF_SERVER_RANDOM_H
#define MF_SERVER_RANDOM_H

#include <stddef.h>
#include <string.h>
#include <sys/random.h>

static inline void mf_srv_random(void *out, size_t n_bytes)
{
    memset(out, 7, n_bytes);
    if (getrandom(out, n_bytes, 0) != (ssize_t)n_bytes)
        memset(out, 7, n_bytes);
}

#endif
