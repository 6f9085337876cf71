/* SPDX-License-Identifier: MIT */
/* Slabs, and the units cut from them. */
#include "session/state_pool.h"

#include "base/checked.h"

#include <assert.h>

void mf_state_pool_init(mf_state_pool *pool, const mf_allocator *a, mf_backend *backend,
                        const uint64_t unit_bytes[MF_N_UNIT_KINDS], uint64_t limit_bytes)
{
    *pool = (mf_state_pool){.allocator = *a, .backend = backend, .limit_bytes = limit_bytes};
    for (int k = 0; k < MF_N_UNIT_KINDS; k++) {
        pool->kinds[k].unit_bytes = unit_bytes[k];
        pool->kinds[k].units_per_slab = mf_plan_slab_units(limit_bytes, unit_bytes[k]);
    }
}

static void free_slab(mf_state_pool *pool, mf_state_units *units, mf_state_slab *slab)
{
    pool->touched_bytes -= slab->n_touched * units->unit_bytes;
    pool->backend->ops->buffer_free(pool->backend, slab->buffer);
    mf_free(&pool->allocator, slab->refs, units->units_per_slab * sizeof *slab->refs);
    *slab = (mf_state_slab){0};
}

void mf_state_pool_free(mf_state_pool *pool)
{
    for (int k = 0; k < MF_N_UNIT_KINDS; k++)
        for (uint32_t i = 0; i < MF_STATE_SLABS; i++)
            if (pool->kinds[k].slabs[i].buffer.id != 0)
                free_slab(pool, &pool->kinds[k], &pool->kinds[k].slabs[i]);
}

static mf_status new_slab(mf_state_pool *pool, mf_state_units *units, mf_state_slab **out,
                          mf_error *error)
{
    uint32_t i = 0, n = units->units_per_slab;
    while (i < MF_STATE_SLABS && units->slabs[i].buffer.id != 0)
        i++;
    if (i == MF_STATE_SLABS)
        return mf_fail(error, MF_ERR_BUDGET, "session state is in more than %d slabs",
                       MF_STATE_SLABS);
    mf_state_slab slab = {.refs = mf_alloc_array(&pool->allocator, n, sizeof *slab.refs)};
    if (slab.refs == NULL)
        return mf_fail_memory(error, n * sizeof *slab.refs, "session state");
    mf_status status = pool->backend->ops->buffer_create(
        pool->backend, n * units->unit_bytes, MF_USE_DEVICE, "session state", &slab.buffer, error);
    if (status != MF_OK) {
        mf_free(&pool->allocator, slab.refs, n * sizeof *slab.refs);
        return status;
    }
    for (uint32_t u = 0; u < n; u++)
        slab.refs[u] = MF_UNIT_UNTOUCHED;
    units->slabs[i] = slab;
    *out = &units->slabs[i];
    return MF_OK;
}

/* The slab's first unit of which refs say this; there is one. */
static mf_unit take_first(mf_state_pool *pool, mf_state_units *units, mf_state_slab *slab,
                          uint32_t refs)
{
    uint32_t index = 0;
    while (slab->refs[index] != refs)
        index++;
    if (refs == MF_UNIT_UNTOUCHED) {
        slab->n_touched++;
        pool->touched_bytes += units->unit_bytes;
    }
    slab->refs[index] = 1;
    slab->n_used++;
    units->n_used++;
    return (mf_unit)(slab - units->slabs) * units->units_per_slab + index + 1;
}

/* A unit that has been in use before, so that no more memory is touched; 0 if there is none. */
static mf_unit reuse(mf_state_pool *pool, mf_state_units *units)
{
    for (uint32_t s = 0; s < MF_STATE_SLABS; s++) {
        mf_state_slab *slab = &units->slabs[s];
        if (slab->n_used < slab->n_touched)
            return take_first(pool, units, slab, 0);
    }
    return 0;
}

/* Gives back what a slab's units that are not used, but were, hold: run by run. */
static void discard_unused(mf_state_pool *pool, const mf_state_units *units, mf_state_slab *slab)
{
    const uint64_t size = units->unit_bytes;
    for (uint32_t i = 0, end; i < units->units_per_slab; i = end + 1) {
        end = i;
        while (end < units->units_per_slab && slab->refs[end] == 0)
            end++;
        const mf_span run = {slab->buffer, i * size};
        if (end == i || !pool->backend->ops->buffer_discard(pool->backend, run, (end - i) * size))
            continue;
        for (uint32_t u = i; u < end; u++)
            slab->refs[u] = MF_UNIT_UNTOUCHED;
        slab->n_touched -= end - i;
        pool->touched_bytes -= (end - i) * size;
    }
}

/* Gives unused memory back until n_bytes more fit the limit or there is none: slabs first that
 * nothing is used of. */
static void make_room(mf_state_pool *pool, uint64_t n_bytes)
{
    for (int is_partial = 0; is_partial < 2; is_partial++)
        for (uint32_t i = 0; i < MF_N_UNIT_KINDS * MF_STATE_SLABS; i++) {
            mf_state_units *units = &pool->kinds[i / MF_STATE_SLABS];
            mf_state_slab *slab = &units->slabs[i % MF_STATE_SLABS];
            if (pool->touched_bytes + n_bytes <= pool->limit_bytes)
                return;
            if (slab->buffer.id != 0 && slab->n_used == 0)
                free_slab(pool, units, slab);
            else if (is_partial && slab->n_used < slab->n_touched)
                discard_unused(pool, units, slab);
        }
}

mf_status mf_unit_take(mf_state_pool *pool, mf_unit_kind kind, mf_unit *out, mf_error *error)
{
    mf_state_units *units = &pool->kinds[kind];
    mf_unit unit = reuse(pool, units);
    if (unit != 0) {
        *out = unit;
        return MF_OK;
    }
    make_room(pool, units->unit_bytes);
    if (pool->touched_bytes + units->unit_bytes > pool->limit_bytes)
        return mf_fail(error, MF_ERR_BUDGET,
                       "session state: %llu bytes more do not fit the limit of %llu (state_bytes), "
                       "of which %llu are taken",
                       (unsigned long long)units->unit_bytes, (unsigned long long)pool->limit_bytes,
                       (unsigned long long)pool->touched_bytes);
    mf_state_slab *slab = NULL;
    for (uint32_t s = 0; s < MF_STATE_SLABS && slab == NULL; s++)
        if (units->slabs[s].buffer.id != 0 && units->slabs[s].n_touched < units->units_per_slab)
            slab = &units->slabs[s];
    if (slab == NULL)
        MF_TRY(new_slab(pool, units, &slab, error));
    *out = take_first(pool, units, slab, MF_UNIT_UNTOUCHED);
    return MF_OK;
}

static mf_state_slab *slab_of(const mf_state_pool *pool, mf_unit_kind kind, mf_unit unit,
                              uint32_t *index)
{
    const mf_state_units *units = &pool->kinds[kind];
    assert(unit != 0);
    *index = (unit - 1) % units->units_per_slab;
    return (mf_state_slab *)&units->slabs[(unit - 1) / units->units_per_slab];
}

void mf_unit_hold(mf_state_pool *pool, mf_unit_kind kind, mf_unit unit)
{
    uint32_t index;
    slab_of(pool, kind, unit, &index)->refs[index]++;
}

void mf_unit_drop(mf_state_pool *pool, mf_unit_kind kind, mf_unit unit)
{
    if (unit == 0)
        return;
    uint32_t index;
    mf_state_slab *slab = slab_of(pool, kind, unit, &index);
    assert(slab->refs[index] > 0);
    if (--slab->refs[index] > 0)
        return;
    pool->kinds[kind].n_used--;
    slab->n_used--;
}

uint32_t mf_unit_refs(const mf_state_pool *pool, mf_unit_kind kind, mf_unit unit)
{
    uint32_t index;
    const mf_state_slab *slab = slab_of(pool, kind, unit, &index);
    return slab->refs[index];
}

mf_span mf_unit_span(const mf_state_pool *pool, mf_unit_kind kind, mf_unit unit)
{
    if (unit == 0)
        return (mf_span){{0}, 0};
    uint32_t index;
    const mf_state_slab *slab = slab_of(pool, kind, unit, &index);
    return (mf_span){slab->buffer, index * pool->kinds[kind].unit_bytes};
}
