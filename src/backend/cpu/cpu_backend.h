/* SPDX-License-Identifier: MIT */
/*
 * The CPU backend: runs every operation when it is recorded, on its own thread pool, through the
 * kernel table.
 */
#ifndef MF_BACKEND_CPU_CPU_BACKEND_H
#define MF_BACKEND_CPU_CPU_BACKEND_H

#include "backend/backend.h"

mf_status mf_cpu_backend_create(const mf_backend_options *options, mf_backend **out,
                                mf_error *error);
/* See mf_backend_host_bytes. */
uint64_t mf_cpu_host_bytes(uint64_t n_rows, uint64_t n_cols);

#endif
