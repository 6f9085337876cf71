/* SPDX-License-Identifier: MIT */
/* The choice of a backend: the CPU is the only one so far. */
#include "backend/backend.h"

#include "backend/cpu/cpu_backend.h"

mf_status mf_backend_open(const mf_backend_options *options, mf_backend **out, mf_error *error)
{
    return mf_cpu_backend_create(options, out, error);
}
