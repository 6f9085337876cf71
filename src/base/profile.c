/* SPDX-License-Identifier: MIT */
#include "base/profile.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

const char *mf_stage_name(mf_stage stage)
{
    static const char *const names[MF_N_STAGES] = {
        "other", "attention", "router",  "shared expert", "experts",
        "head",  "waiting",   "copying", "device",        "foretelling"};
    return (uint32_t)stage < MF_N_STAGES ? names[stage] : NULL;
}

mf_status mf_profile_create(const mf_allocator *allocator, const mf_profile_shape *shape,
                            mf_profile **out, mf_error *error)
{
    const size_t n_keys = (size_t)shape->n_moe_layers * shape->n_experts;
    const size_t spent_bytes = ((size_t)shape->n_layers + 1) * MF_N_STAGES * sizeof(uint64_t);
    const size_t requests_bytes = shape->n_moe_layers * sizeof(mf_profile_requests);
    const size_t n_bytes = sizeof(mf_profile) + spent_bytes + requests_bytes +
                           2 * n_keys * sizeof(uint32_t) + (size_t)6 * 64;
    mf_arena arena;
    MF_TRY(mf_arena_create(allocator, n_bytes, "a profile", &arena, error));
    mf_profile *p = mf_arena_take(&arena, sizeof *p);
    p->shape = *shape;
    p->spent_ns = mf_arena_take(&arena, spent_bytes);
    p->requests = mf_arena_take(&arena, requests_bytes);
    p->n_asked = mf_arena_take(&arena, n_keys * sizeof *p->n_asked);
    p->last_turn = mf_arena_take(&arena, n_keys * sizeof *p->last_turn);
    p->arena = arena;
    p->layer = shape->n_layers;
    *out = p;
    return MF_OK;
}

void mf_profile_free(mf_profile **profile)
{
    mf_profile *p = *profile;
    if (p == NULL)
        return;
    *profile = NULL;
    mf_arena arena = p->arena;
    mf_arena_free(&arena);
}

/* What was done since the last change is of the stage and layer at hand. */
static void settle(mf_profile *p, uint64_t now_ns)
{
    static const mf_timeline_track track = {MF_TIMELINE_THREADS, 0};
    const mf_timeline_note notes[MF_TIMELINE_NOTES] = {
        {p->layer < p->shape.n_layers ? "layer" : NULL, p->layer}};
    p->spent_ns[p->layer][p->stage] += now_ns - p->since_ns;
    p->all_ns[p->stage] += now_ns - p->since_ns;
    if (p->timeline != NULL && now_ns > p->since_ns)
        mf_timeline_span(p->timeline, track, mf_stage_name(p->stage), p->since_ns, now_ns, notes);
    p->since_ns = now_ns;
}

void mf_profile_begin(mf_profile *p)
{
    if (p == NULL)
        return;
    p->since_ns = p->began_ns = mf_now_ns();
    p->stage = MF_STAGE_OTHER;
    p->layer = p->shape.n_layers;
}

void mf_profile_end(mf_profile *p, uint32_t n_rows)
{
    static const mf_timeline_track track = {MF_TIMELINE_THREADS, 0};
    const mf_timeline_note notes[MF_TIMELINE_NOTES] = {{"tokens", n_rows}};
    if (p == NULL || p->began_ns == 0)
        return;
    settle(p, mf_now_ns());
    if (p->timeline != NULL)
        mf_timeline_span(p->timeline, track, "pass", p->began_ns, p->since_ns, notes);
    p->began_ns = 0;
}

void mf_profile_layer(mf_profile *p, uint32_t layer)
{
    if (p == NULL || p->began_ns == 0)
        return;
    settle(p, mf_now_ns());
    p->layer = layer;
    p->stage = MF_STAGE_OTHER;
}

mf_stage mf_profile_enter(mf_profile *p, mf_stage stage)
{
    if (p == NULL || p->began_ns == 0 || p->stage == stage)
        return stage;
    const mf_stage before = p->stage;
    settle(p, mf_now_ns());
    p->stage = stage;
    return before;
}

void mf_profile_asked(mf_profile *p, uint32_t moe_layer, const uint32_t *experts, uint32_t n)
{
    mf_profile_requests *r = mf_profile_of(p, moe_layer);
    if (r == NULL)
        return;
    const size_t first = (size_t)moe_layer * p->shape.n_experts;
    r->n_turns++;
    r->n += n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *last = &p->last_turn[first + experts[i]];
        r->n_repeated += *last != 0 && *last + 1 == r->n_turns;
        *last = r->n_turns;
        p->n_asked[first + experts[i]]++;
    }
}

static int compare_falling(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

double mf_profile_most_used(const mf_profile *p, uint32_t moe_layer, uint32_t *scratch,
                            uint32_t *n_used)
{
    const uint32_t n = p->shape.n_experts;
    uint64_t all = 0, most = 0;
    memcpy(scratch, p->n_asked + (size_t)moe_layer * n, n * sizeof *scratch);
    qsort(scratch, n, sizeof *scratch, compare_falling);
    *n_used = 0;
    for (uint32_t i = 0; i < n; i++) {
        *n_used += scratch[i] != 0;
        all += scratch[i];
        most += i < (n + 9) / 10 ? scratch[i] : 0;
    }
    return all > 0 ? (double)most / (double)all : 0;
}
