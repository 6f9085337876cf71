/* SPDX-License-Identifier: MIT */
/*
 * Experts that were asked for most, from one run to the next: read when the engine opens, so that
 * the cache knows what is worth keeping before it has seen it, and what is held of them is read
 * while nothing else is; written when the engine closes, this run weighed against those before.
 */
#include "session/session.h"
#include "state/hot_file.h"

#include <stdio.h>
#include <string.h>

/* Turns of a layer after which a run weighs as much as those before. */
#define TURNS_AS_MUCH 256.0f

struct mf_engine_hot {
    char *directory;
    size_t directory_bytes;
    mf_hot_shape shape;
    mf_hot_list list; /* what was known at the start */
};

static size_t n_keys_of(const mf_engine *e)
{
    return (size_t)e->runner.h.n_moe_layers * e->runner.h.n_experts;
}

static void warn(const mf_engine *e, const mf_error *error)
{
    char line[sizeof error->message + 64];
    snprintf(line, sizeof line, "experts asked for most: %s", error->message);
    if (e->options.log != NULL)
        e->options.log(e->options.log_user, MF_LOG_WARNING, line);
}

static void release(mf_engine *e)
{
    struct mf_engine_hot *hot = e->hot;
    e->hot = NULL;
    mf_free(&e->allocator, hot->list.shares, n_keys_of(e) * sizeof *hot->list.shares);
    mf_free(&e->allocator, hot->list.keys, n_keys_of(e) * sizeof *hot->list.keys);
    mf_free(&e->allocator, hot->directory, hot->directory_bytes);
    mf_free(&e->allocator, hot, sizeof *hot);
}

static mf_status make(mf_engine *e, const char *directory, mf_error *error)
{
    const size_t n_bytes = n_keys_of(e) * sizeof(float);
    struct mf_engine_hot *hot = mf_alloc_zeroed(&e->allocator, sizeof *hot);
    if (hot == NULL)
        return mf_fail_memory(error, sizeof *hot, "experts asked for most");
    e->hot = hot;
    hot->directory_bytes = strlen(directory) + 1;
    hot->directory = mf_alloc(&e->allocator, hot->directory_bytes);
    hot->list.shares = mf_alloc_zeroed(&e->allocator, n_bytes);
    hot->list.keys = mf_alloc_zeroed(&e->allocator, n_bytes);
    if (hot->directory == NULL || hot->list.shares == NULL || hot->list.keys == NULL) {
        release(e);
        return mf_fail_memory(error, n_bytes, "experts asked for most");
    }
    memcpy(hot->directory, directory, hot->directory_bytes);
    hot->shape.n_layers = e->runner.h.n_moe_layers;
    hot->shape.n_experts = e->runner.h.n_experts;
    mf_status status = mf_engine_dense_fingerprint(e, hot->shape.fingerprint, error);
    if (status != MF_OK)
        release(e);
    return status;
}

/* What a device has for good is not read again. */
static void leave_out_given(const mf_engine *e, mf_hot_list *list)
{
    const uint32_t n_given = e->runner.plan.n_given * e->runner.h.n_experts;
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        if (list->keys[i] >= n_given)
            list->keys[n++] = list->keys[i];
    list->n = n;
}

mf_status mf_engine_hot_begin(mf_engine *e, const char *directory, mf_error *error)
{
    mf_error why = {0};
    if (directory == NULL || n_keys_of(e) == 0 || n_keys_of(e) > MF_HOT_KEYS_MAX)
        return MF_OK;
    MF_TRY(make(e, directory, error));
    struct mf_engine_hot *hot = e->hot;
    mf_status status = mf_hot_load(&e->allocator, directory, &hot->shape, &hot->list, &why);
    if (status == MF_OK) {
        leave_out_given(e, &hot->list);
        mf_expert_store_warm(e->runner.store, hot->list.shares, hot->list.keys, hot->list.n);
        return MF_OK;
    }
    hot->list.n = 0;
    memset(hot->list.shares, 0, n_keys_of(e) * sizeof *hot->list.shares);
    if (status != MF_ERR_NOT_FOUND)
        warn(e, &why);
    return MF_OK;
}

/* The layer's shares: those of this run, as k experts a turn, and those before. */
static bool weigh(const mf_engine *e, uint32_t layer, uint32_t *n_asked, float *shares)
{
    const uint32_t n = e->runner.h.n_experts;
    const float k = (float)e->runner.plan.k;
    float sum = 0;
    mf_expert_store_look(e->runner.store, layer, NULL, n_asked, n);
    for (uint32_t i = 0; i < n; i++)
        sum += (float)n_asked[i];
    const float weight = sum / (sum + TURNS_AS_MUCH * k);
    for (uint32_t i = 0; i < n && sum > 0; i++) {
        const float share = k * (float)n_asked[i] / sum;
        shares[i] += weight * ((share < 1 ? share : 1) - shares[i]);
    }
    return sum > 0;
}

void mf_engine_hot_end(mf_engine *e)
{
    struct mf_engine_hot *hot = e->hot;
    const uint32_t n = e->runner.h.n_experts;
    mf_error error = {0};
    bool was_asked = false;
    if (hot == NULL)
        return;
    mf_expert_store_warm(e->runner.store, NULL, NULL, 0); /* the keys are not read any more */
    for (uint32_t i = 0; i < e->runner.h.n_moe_layers; i++)
        was_asked |= weigh(e, i, hot->list.keys, hot->list.shares + (size_t)i * n);
    if (was_asked &&
        mf_hot_save(&e->allocator, hot->directory, &hot->shape, &hot->list, &error) != MF_OK)
        warn(e, &error);
    release(e);
}
