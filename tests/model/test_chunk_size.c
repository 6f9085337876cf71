/* SPDX-License-Identifier: MIT */
/*
 * How large a chunk is where the options leave it open: 512 where all experts are held, where there
 * are several sessions, or where it has to be paid for with too many slots; larger where a small
 * part of the slots pays for it, and never more than the context. The floor does not move, and
 * the bits are those of any other chunk.
 */
#include "golden.h"

#include "forward/forward.h"
#include "model/model.h"

typedef struct setup {
    uint32_t n_chunk, n_context, n_sessions;
    uint64_t expert_bytes; /* about so many, as if each had them */
    bool are_all_held;
} setup;

static void resize_experts(mf_model *m, uint64_t n_bytes)
{
    for (uint32_t i = 0; i < m->h.n_moe_layers * MF_MAX_EXPERT_PARTS; i++)
        m->binder.experts.parts[i].n_bytes = n_bytes / MF_MAX_EXPERT_PARTS;
}

/* The chunk that comes of it. */
static uint32_t chunk_of(const setup *s)
{
    const mf_allocator a = mf_allocator_default();
    const mf_budget_place place = {0};
    mf_engine_options options;
    mf_model m;
    mf_budget budget;
    mf_model_info info;
    mf_error error = {0};
    mf_engine_options_default(&options);
    options.n_chunk_tokens = s->n_chunk;
    options.n_context_tokens = s->n_context;
    options.n_sessions = s->n_sessions;
    options.ram_bytes = (uint64_t)64 << 30;
    REQUIRE_OK(
        mf_model_read(&a, golden_path("mlx_4bit"), &options, mf_layer_kind_table, &m, &error),
        &error);
    const uint64_t n_all = (uint64_t)m.h.n_moe_layers * m.h.n_experts;
    resize_experts(&m, s->expert_bytes);
    mf_model_describe(&m, &options, &place, &budget, &info);
    CHECK_U64(budget.n_slots, n_all);
    const uint64_t floor_bytes = info.floor_bytes;
    if (!s->are_all_held)
        options.expert_cache_bytes = (n_all - 1) * info.slot_bytes;
    mf_model_fit(&m, &options, &place, &budget, &info);
    CHECK_U64(budget.n_slots, s->are_all_held ? n_all : n_all - 1);
    CHECK_U64(info.floor_bytes, floor_bytes);
    CHECK_U64(budget.floor_bytes, floor_bytes);
    CHECK(info.n_chunk_tokens == m.plan.n_chunk && m.plan.n_chunk == m.plan_options.n_chunk);
    const uint32_t n_chunk = m.plan.n_chunk;
    mf_model_release(&m);
    return n_chunk;
}

static void test_sizes(void)
{
    const uint64_t large = (uint64_t)1 << 30;
    CHECK_U64(chunk_of(&(setup){0, 4096, 1, large, false}), 4096);
    CHECK_U64(chunk_of(&(setup){0, 2500, 1, large, false}), 2048);
    CHECK_U64(chunk_of(&(setup){0, 300, 1, large, false}), 300);
    CHECK_U64(chunk_of(&(setup){0, 4096, 1, large, true}), 512);
    CHECK_U64(chunk_of(&(setup){0, 4096, 4, large, false}), 512);
    CHECK_U64(chunk_of(&(setup){100, 4096, 1, large, false}), 100);
    CHECK_U64(chunk_of(&(setup){0, 4096, 1, 1000, false}), 512);
    uint32_t before = 512;
    for (uint64_t bytes = 1 << 16; bytes < large; bytes *= 2) { /* little by little */
        const uint32_t n = chunk_of(&(setup){0, 4096, 1, bytes, false});
        CHECK_MSG(n >= before && n <= 4096, "a chunk of %u after one of %u", n, before);
        before = n;
    }
}

int main(void)
{
    test_sizes();
    return test_result();
}
