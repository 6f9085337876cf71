/* SPDX-License-Identifier: MIT */
/*
 * Linked into a test of models with --wrap, so that every engine that names no device runs on a
 * Vulkan device: MF_TEST_DEVICE, or the best there is. Where there is none the test is skipped.
 */
#include "backend/vulkan_open.h"
#include "session/engine.h"

#include <unistd.h>

#define SKIPPED 77

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

__attribute__((constructor)) static void check_device(void)
{
    if (!vulkan_is_there())
        _exit(SKIPPED);
}

mf_status __wrap_mf_engine_open_with(const char *path, const mf_engine_options *options,
                                     const mf_engine_hooks *hooks, mf_engine **out, mf_error *error)
{
    mf_engine_options with;
    if (options == NULL)
        mf_engine_options_default(&with);
    else
        with = *options;
    if (with.device == NULL)
        with.device = vulkan_test_device();
    if (with.precision == MF_PRECISION_AUTO) /* what tests compare is float32's: test_mixed.c */
        with.precision = MF_PRECISION_F32;
    return __real_mf_engine_open_with(path, &with, hooks, out, error);
}

mf_status __wrap_mf_engine_open(const char *path, const mf_engine_options *options, mf_engine **out,
                                mf_error *error)
{
    const mf_engine_hooks none = {0};
    if (path == NULL || out == NULL || options == NULL)
        return __real_mf_engine_open(path, options, out, error);
    return __wrap_mf_engine_open_with(path, options, &none, out, error);
}
