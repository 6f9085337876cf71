/* SPDX-License-Identifier: MIT */
/* Loading of resident matrices that are repacked (base/weight_repack.h): one after the other, each
 * read whole, made by all threads, and its rows put where they were placed. */
#ifndef MF_MODEL_LOAD_PACKED_H
#define MF_MODEL_LOAD_PACKED_H

#include "base/threads.h"
#include "model/binder.h"

typedef struct mf_packed_load {
    const mf_binder *binder;
    const int *fds; /* of the source's files */
    mf_thread_pool *pool;
    mf_backend *backend;
    mf_buffer resident;
    unsigned char *host;    /* the resident block's; NULL: bytes go through staging */
    unsigned char *staging; /* that nothing reads any more */
    uint64_t staging_bytes;
} mf_packed_load;

mf_status mf_load_packed(const mf_packed_load *load, mf_error *error);
/* Memory that it takes meanwhile. */
uint64_t mf_load_packed_bytes(const mf_binder *binder);

#endif
