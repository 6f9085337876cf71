/* SPDX-License-Identifier: MIT */
/* A plan of memory where there is room for more than it needs: longer chunks, and layers whose
 * experts the dense layers' device has for good. */
#include "model/model.h"

/* Of the memory of slots, what a larger chunk may cost; of what a device has left, where experts
 * are sent to it; and tokens that it may have. */
#define PART_FOR_CHUNK 8u
#define PART_THERE_FOR_CHUNK 4u
#define CHUNK_MOST 4096u

/* What a chunk takes of the process's memory and of the dense layers' device. */
typedef struct chunk_cost {
    uint64_t here, there;
} chunk_cost;

static chunk_cost cost_of_chunk(const mf_plan *p, const mf_budget_place *place)
{
    const uint64_t act = p->act_bytes + (mf_plan_lends(p) ? p->overhead_bytes : 0);
    const bool is_here = !place->dense.has_memory;
    return (chunk_cost){p->host_bytes + p->expert_act_bytes + (is_here ? act : 0), act};
}

static chunk_cost most_of_chunk(const mf_model *m, const mf_budget_place *place,
                                const mf_budget *budget, const mf_model_info *info)
{
    chunk_cost most = cost_of_chunk(&m->plan, place);
    const uint64_t known = place->dense.n_bytes, used = budget->device_floor_bytes;
    most.here += budget->n_slots * info->slot_bytes / PART_FOR_CHUNK;
    if (known == 0)
        most.there = UINT64_MAX;
    else if (known > used)
        most.there += (known - used) / PART_THERE_FOR_CHUNK;
    return most;
}

/* With so large a chunk; false: it is not worth it, or not to be had. */
static bool plan_chunk(mf_model *m, const mf_engine_options *o, uint32_t n_tokens,
                       const mf_budget_place *place, const chunk_cost *most)
{
    mf_engine_options larger = *o;
    larger.n_chunk_tokens = n_tokens;
    if (mf_model_plan(m, &larger, m->plan_options.kinds, m->plan_options.experts_apart, NULL) !=
        MF_OK)
        return false;
    const chunk_cost cost = cost_of_chunk(&m->plan, place);
    return cost.here <= most->here && cost.there <= most->there;
}

/* Whether each chunk reads experts, or sends them to a device. */
static bool is_chunk_dear(const mf_model *m, const mf_budget_place *place, const mf_budget *budget)
{
    const uint64_t all = (uint64_t)m->h.n_moe_layers * m->h.n_experts;
    const bool is_here = !place->dense.has_memory && !place->dense.runs_later &&
                         !place->experts.has_memory && !place->experts.runs_later;
    return (is_here && budget->n_slots < all) || (mf_plan_lends(&m->plan) && budget->n_slots != 0);
}

/* Plans a chunk as large as can be had; what was described is again. */
static void grow_chunk(mf_model *m, const mf_engine_options *o, const mf_budget_place *place,
                       mf_budget *budget, mf_model_info *info)
{
    const chunk_cost most = most_of_chunk(m, place, budget, info);
    const mf_plan before = m->plan;
    const mf_plan_options options_before = m->plan_options;
    mf_plan best = before;
    mf_plan_options best_options = options_before;
    if (o->n_chunk_tokens != 0 || o->n_sessions != 1 || !is_chunk_dear(m, place, budget))
        return;
    for (uint32_t n = 2 * before.n_chunk; n <= CHUNK_MOST && n <= before.n_context; n *= 2) {
        if (!plan_chunk(m, o, n, place, &most))
            break;
        best = m->plan;
        best_options = m->plan_options;
    }
    m->plan = best;
    m->plan_options = best_options;
    if (best.n_chunk != before.n_chunk)
        mf_model_describe(m, o, place, budget, info);
    if (budget->n_slots < budget->n_slots_min) { /* less is available by now */
        m->plan = before;
        m->plan_options = options_before;
        mf_model_describe(m, o, place, budget, info);
    }
}

/* Plans as many layers as the dense layers' device has room for; likewise described again. */
static void give_layers(mf_model *m, const mf_engine_options *o, const mf_budget_place *place,
                        mf_budget *budget, mf_model_info *info)
{
    const mf_expert_map map = mf_expert_tables_map(&m->binder.experts, &m->h);
    const uint64_t each = mf_expert_slot_bytes_anywhere(&map) * m->h.n_experts;
    const uint64_t known = place->dense.n_bytes, used = budget->device_floor_bytes;
    if (!mf_plan_lends(&m->plan) || mf_backend_given_layers(o->expert_device) != MF_GIVEN_AUTO)
        return;
    const uint64_t n = each != 0 && known > used ? (known - used) / each : 0;
    m->plan.n_given = n < m->h.n_moe_layers ? (uint32_t)n : m->h.n_moe_layers;
    m->plan_options.n_given = m->plan.n_given;
    mf_model_describe(m, o, place, budget, info);
}

void mf_model_fit(mf_model *m, const mf_engine_options *o, const mf_budget_place *place,
                  mf_budget *budget, mf_model_info *info)
{
    mf_model_describe(m, o, place, budget, info);
    const uint64_t floor_bytes = info->floor_bytes, there_bytes = info->device_floor_bytes;
    grow_chunk(m, o, place, budget, info);
    give_layers(m, o, place, budget, info);
    /* without what can be done without */
    budget->floor_bytes = info->floor_bytes = floor_bytes;
    info->device_floor_bytes = there_bytes;
}
