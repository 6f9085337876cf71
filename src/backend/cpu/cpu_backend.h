/* SPDX-License-Identifier: MIT */
/* The CPU backend: runs every operation when it is recorded, on its own thread pool, through the
 * kernel table. */
#ifndef MF_BACKEND_CPU_CPU_BACKEND_H
#define MF_BACKEND_CPU_CPU_BACKEND_H

#include "backend/backend.h"

typedef struct mf_cpu_backend_options {
    mf_allocator allocator;
    uint32_t n_threads;  /* 0: one per available CPU */
    uint32_t tier_limit; /* as mf_kernels_get */
} mf_cpu_backend_options;

mf_status mf_cpu_backend_create(const mf_cpu_backend_options *options, mf_backend **out,
                                mf_error *error);
const char *mf_cpu_backend_tier_name(const mf_backend *be);

#endif
