/* SPDX-License-Identifier: MIT */
/*
 * Linked into a test of models with --wrap, so that every engine that it opens runs on the strict
 * backend: device memory out of the host's reach, work that waits, shuffled order. Every engine
 * has another order. With STRICT_EXPERTS the experts alone are on it and the rest is on the CPU,
 * with STRICT_DENSE the other way round.
 */
#include "session/engine.h"
#include "strict_backend.h"
#include "test.h"

#include <stdatomic.h>
#include <unistd.h>

static atomic_ullong n_opened;

/* A program that opens its engines by another way would pass on the CPU. */
__attribute__((destructor)) static void check_opened(void)
{
    if (atomic_load(&n_opened) != 0)
        return;
    fputs("no engine was opened on the strict backend\n", stderr);
    _exit(1);
}

mf_status __real_mf_engine_open_with(const char *path, const mf_engine_options *options,
                                     const mf_engine_hooks *hooks, mf_engine **out,
                                     mf_error *error);
mf_status __wrap_mf_engine_open_with(const char *path, const mf_engine_options *options,
                                     const mf_engine_hooks *hooks, mf_engine **out,
                                     mf_error *error);
mf_status __real_mf_engine_open(const char *path, const mf_engine_options *options, mf_engine **out,
                                mf_error *error);
mf_status __wrap_mf_engine_open(const char *path, const mf_engine_options *options, mf_engine **out,
                                mf_error *error);

#if defined STRICT_EXPERTS || defined STRICT_DENSE
static mf_status open_cpu(void *ctx, const mf_backend_options *options, mf_backend **out,
                          mf_error *error)
{
    (void)ctx;
    return mf_backend_open(options, out, error);
}
#endif

static void put_backends(mf_engine_hooks *hooks, strict_options *strict)
{
#ifdef STRICT_EXPERTS
    hooks->open_backend = open_cpu;
    hooks->open_experts = strict_backend_open;
    hooks->experts_ctx = strict;
#else
    hooks->open_backend = strict_backend_open;
    hooks->backend_ctx = strict;
#ifdef STRICT_DENSE
    hooks->open_experts = open_cpu;
#endif
#endif
}

mf_status __wrap_mf_engine_open_with(const char *path, const mf_engine_options *options,
                                     const mf_engine_hooks *hooks, mf_engine **out, mf_error *error)
{
    uint64_t seed = ++n_opened;
    strict_options strict = {.seed = seed, .runs_ahead = seed % 2 == 0};
    mf_engine_hooks with = *hooks;
    if (with.open_backend == NULL && with.open_experts == NULL)
        put_backends(&with, &strict);
    return __real_mf_engine_open_with(path, options, &with, out, error);
}

mf_status __wrap_mf_engine_open(const char *path, const mf_engine_options *options, mf_engine **out,
                                mf_error *error)
{
    const mf_engine_hooks none = {0};
    if (path == NULL || out == NULL)
        return __real_mf_engine_open(path, options, out, error);
    return __wrap_mf_engine_open_with(path, options, &none, out, error);
}
