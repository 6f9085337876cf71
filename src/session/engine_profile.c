/* SPDX-License-Identifier: MIT */
/* Where an engine's time goes: profiles and timelines, on and off. */
#include "base/profile.h"
#include "base/sized.h"
#include "session/session.h"

#include <stdio.h>

/* A timeline takes its stages from a profile, so that there is one while either is wanted. */
static mf_status make(mf_engine *e, mf_error *error)
{
    const mf_runner *r = &e->runner;
    const mf_profile_shape shape = {r->h.n_layers, r->h.n_moe_layers, r->h.n_experts};
    if (e->profile != NULL)
        return MF_OK;
    return mf_profile_create(&e->allocator, &shape, &e->profile, error);
}

/* Everybody who is watched knows of it, or not any more. */
static void tell_all(mf_engine *e)
{
    mf_runner *r = &e->runner;
    mf_backend *const both[] = {r->backend, r->experts};
    mf_timeline *timeline = e->timeline;
    if (e->profile != NULL)
        e->profile->timeline = timeline;
    r->profile = e->profile;
    if (r->store != NULL)
        mf_expert_store_profile(r->store, e->profile);
    for (int i = 0; i < 2; i++)
        if (both[i] != NULL && both[i]->ops->watch != NULL)
            both[i]->ops->watch(both[i], timeline);
}

static void leave_if_unwanted(mf_engine *e)
{
    mf_profile *unwanted = NULL;
    if (!e->is_profiled && e->timeline == NULL) {
        unwanted = e->profile;
        e->profile = NULL;
    }
    tell_all(e);
    mf_profile_free(&unwanted);
}

static void forget_stages(mf_engine *e)
{
    mf_engine_lock(e);
    for (uint32_t i = 0; i < MF_STAGES; i++)
        e->counted.stage_us[i] = e->counted_before.stage_us[i] = 0;
    mf_engine_unlock(e);
}

static mf_status profile(mf_engine *e, bool is_on, mf_error *error)
{
    mf_profile *before = e->profile;
    const bool was_on = e->is_profiled;
    e->profile = NULL;
    e->is_profiled = is_on;
    mf_status status = is_on || e->timeline != NULL ? make(e, error) : MF_OK;
    if (status != MF_OK) { /* as it was */
        e->profile = before;
        e->is_profiled = was_on;
    }
    tell_all(e);
    if (status == MF_OK) {
        mf_profile_free(&before);
        forget_stages(e);
    }
    return status;
}

mf_status mf_engine_profile(mf_engine *engine, int on, mf_error *error)
{
    if (engine == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_profile: engine is NULL");
    MF_TRY(mf_engine_take_turn(engine, error));
    mf_status status = profile(engine, on != 0, error);
    mf_engine_end_turn(engine);
    return status;
}

static mf_status stop_timeline(mf_engine *e, mf_error *error)
{
    mf_timeline *timeline = e->timeline;
    e->timeline = NULL;
    leave_if_unwanted(e);
    return mf_timeline_close(&timeline, error);
}

static mf_status start_timeline(mf_engine *e, const char *path, mf_error *error)
{
    MF_TRY(mf_timeline_open(&e->allocator, path, &e->timeline, error));
    mf_status status = make(e, error);
    if (status != MF_OK)
        (void)!mf_timeline_close(&e->timeline, NULL);
    leave_if_unwanted(e);
    return status;
}

mf_status mf_engine_timeline_begin(mf_engine *e, const char *path, mf_error *error)
{
    return path != NULL ? start_timeline(e, path, error) : MF_OK;
}

mf_status mf_engine_record_timeline(mf_engine *engine, const char *path, mf_error *error)
{
    if (engine == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_record_timeline: engine is NULL");
    MF_TRY(mf_engine_take_turn(engine, error));
    mf_status status = stop_timeline(engine, error);
    if (status == MF_OK && path != NULL)
        status = start_timeline(engine, path, error);
    mf_engine_end_turn(engine);
    return status;
}

void mf_engine_profile_free(mf_engine *e)
{
    mf_error error = {0};
    char line[sizeof error.message + 32];
    e->is_profiled = false;
    if (stop_timeline(e, &error) == MF_OK || e->options.log == NULL)
        return;
    snprintf(line, sizeof line, "the timeline is not whole: %s", error.message);
    e->options.log(e->options.log_user, MF_LOG_WARNING, line);
}

void mf_engine_count_stages(const mf_profile *p, mf_stats *out)
{
    for (uint32_t i = 0; i < MF_N_STAGES && p != NULL; i++)
        out->stage_us[i] = p->all_ns[i] / 1000;
}

static void describe_layer(const mf_engine *e, uint32_t layer, uint32_t *scratch,
                           mf_layer_profile *out)
{
    const mf_profile *p = e->profile;
    const mf_hparams *h = &e->runner.h;
    for (uint32_t i = 0; i < MF_N_STAGES; i++)
        out->seconds[i] = 1e-9 * (double)p->spent_ns[layer][i];
    if (layer == h->n_layers || h->is_dense[layer])
        return;
    const mf_profile_requests *r = &p->requests[h->moe_index[layer]];
    out->n_requests = r->n;
    out->n_hits = r->n_hits;
    out->n_repeated = r->n_repeated;
    out->n_hints = r->n_hints;
    out->n_hints_useful = r->n_useful;
    out->n_hints_late = r->n_late;
    out->n_hints_wasted = r->n_wasted;
    out->most_used_share =
        mf_profile_most_used(p, h->moe_index[layer], scratch, &out->n_experts_used);
}

static mf_status layer_profile(mf_engine *e, uint32_t layer, mf_layer_profile *out, mf_error *error)
{
    const size_t n_bytes = e->runner.h.n_experts * sizeof(uint32_t);
    if (layer > e->runner.h.n_layers)
        return mf_fail(error, MF_ERR_ARGUMENT, "layer %u of %u has no profile", layer,
                       e->runner.h.n_layers);
    if (!e->is_profiled)
        return mf_fail(error, MF_ERR_STATE, "no profile is taken (mf_engine_profile)");
    uint32_t *scratch = mf_alloc(&e->allocator, n_bytes);
    if (scratch == NULL)
        return mf_fail_memory(error, n_bytes, "a layer's profile");
    describe_layer(e, layer, scratch, out);
    mf_free(&e->allocator, scratch, n_bytes);
    return MF_OK;
}

mf_status mf_engine_layer_profile_sized(mf_engine *engine, uint32_t layer, mf_layer_profile *out,
                                        size_t struct_bytes, mf_error *error)
{
    mf_layer_profile found = {0};
    if (engine == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_layer_profile: engine or out is NULL");
    MF_TRY(mf_engine_take_turn(engine, error));
    mf_status status = layer_profile(engine, layer, &found, error);
    mf_engine_end_turn(engine);
    if (status == MF_OK)
        mf_sized_put(out, struct_bytes, &found, sizeof found);
    return status;
}
