/* SPDX-License-Identifier: MIT */
/* Files whose bytes are still coming: who is asked before they are read. */
#ifndef MF_BASE_AWAIT_H
#define MF_BASE_AWAIT_H

#include <stdint.h>

/* As mf_engine_options.await_bytes has it; fn NULL: all is there. */
typedef struct mf_await {
    int (*fn)(void *user, int fd, uint64_t offset, uint64_t n_bytes);
    void *user;
} mf_await;

/* 0, or an errno. */
static inline int mf_await_bytes(const mf_await *await, int fd, uint64_t offset, uint64_t n_bytes)
{
    return await->fn == 0 ? 0 : await->fn(await->user, fd, offset, n_bytes);
}

#endif
