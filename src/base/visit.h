/* SPDX-License-Identifier: MIT */
/* Bytes handed to a function, or made by one, where they lie or on their way. */
#ifndef MF_BASE_VISIT_H
#define MF_BASE_VISIT_H

#include "base/status.h"

/* Gets runs of bytes in order, each valid during the call. Anything but MF_OK ends the visit. */
typedef mf_status (*mf_visit_fn)(void *ctx, const unsigned char *bytes, size_t n_bytes,
                                 mf_error *error);

/* Makes runs of bytes, in order. Anything but MF_OK ends it. */
typedef mf_status (*mf_produce_fn)(void *ctx, unsigned char *bytes, size_t n_bytes,
                                   mf_error *error);

/* Bytes of a run at most: they stay in the caches while they are hashed and copied. */
#define MF_VISIT_BYTES ((size_t)256 << 10)

#endif
