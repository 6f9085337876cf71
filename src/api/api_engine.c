/* SPDX-License-Identifier: MIT */
/* Public entry points of engines: defaults, validation, information. */
#include "model/engine.h"

void mf_engine_options_default(mf_engine_options *options)
{
    *options = (mf_engine_options){.expert_cache_bytes = MF_EXPERT_CACHE_AUTO, .n_sessions = 1};
}

mf_status mf_model_inspect(const char *path, const mf_engine_options *options, mf_model_info *out,
                           mf_error *error)
{
    if (path == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_model_inspect: path or out is NULL");
    mf_engine_options given;
    mf_engine_options_default(&given);
    if (options != NULL)
        given = *options;
    const mf_allocator a = mf_allocator_or_default(&given.allocator);
    mf_model m;
    MF_TRY(mf_model_read(&a, path, &given, &m, error));
    mf_model_describe(&m, &given, out);
    mf_model_release(&m);
    return MF_OK;
}

mf_status mf_engine_open(const char *path, const mf_engine_options *options, mf_engine **out,
                         mf_error *error)
{
    if (path == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_open: path or out is NULL");
    mf_engine_options given;
    mf_engine_options_default(&given);
    return mf_engine_open_with_io(path, options != NULL ? options : &given, NULL, NULL, out, error);
}

void mf_engine_info(const mf_engine *engine, mf_model_info *out)
{
    *out = engine->info;
}
