/* SPDX-License-Identifier: MIT */
/* What the tests of the expert store share: random maps over scratch files, stores over them. */
#ifndef MF_TESTS_EXPERT_FIXTURE_H
#define MF_TESTS_EXPERT_FIXTURE_H

#include "experts/store_impl.h"
#include "io_fixture.h"

#define N_FILES 3u
#define MAX_LAYERS 3u
#define MAX_EXPERTS 12u

/* A random map over random files, with the tables it borrows. */
typedef struct world {
    scratch_file files[N_FILES];
    mf_expert_map map;
    mf_expert_part parts[MAX_LAYERS * MF_MAX_EXPERT_PARTS];
    uint32_t each_file[MAX_LAYERS][MF_MAX_EXPERT_PARTS][MAX_EXPERTS];
    uint64_t each_offset[MAX_LAYERS][MF_MAX_EXPERT_PARTS][MAX_EXPERTS];
    uint8_t form_of[MAX_LAYERS][MAX_EXPERTS];
    uint64_t form_bytes[MAX_LAYERS * MF_MAX_EXPERT_PARTS][MF_MAP_FORMS];
    uint64_t random;
} world;

static uint64_t below(uint64_t *random, uint64_t n)
{
    return test_random(random) % n;
}

static uint64_t random_part_bytes(world *w)
{
    switch (below(&w->random, 8)) {
    case 0:
        return 1 + below(&w->random, 100);
    case 1:
        return 4096 * (1 + below(&w->random, 4));
    case 2:
        return w->random % 4 == 0 ? 1200000 + below(&w->random, 1500000) : 5000; /* is cut */
    default:
        return 1 + below(&w->random, 40000);
    }
}

/* One of: strided with gaps anywhere; ending at the file's last byte; a place for each expert. */
static void random_part(world *w, uint32_t layer, uint32_t p)
{
    uint32_t n_experts = w->map.n_experts;
    uint32_t number = (uint32_t)below(&w->random, N_FILES);
    mf_expert_part *part = &w->parts[layer * w->map.n_parts + p];
    *part = (mf_expert_part){.file = number, .n_bytes = random_part_bytes(w)};
    if (part->n_bytes * n_experts + 100 > w->files[number].n_bytes)
        part->n_bytes = (w->files[number].n_bytes - 100) / n_experts;
    uint64_t slack = w->files[number].n_bytes - part->n_bytes * n_experts;
    part->stride = part->n_bytes + below(&w->random, slack / n_experts);
    uint64_t span = part->stride * (n_experts - 1) + part->n_bytes;
    part->offset = below(&w->random, w->files[number].n_bytes - span + 1);
    if (below(&w->random, 4) == 0)
        part->offset = w->files[number].n_bytes - span;
    if (below(&w->random, 3) != 0)
        return;
    for (uint32_t e = 0; e < n_experts; e++) {
        uint32_t file = (uint32_t)below(&w->random, N_FILES);
        if (w->files[file].n_bytes < part->n_bytes)
            file = number;
        w->each_file[layer][p][e] = file;
        w->each_offset[layer][p][e] = below(&w->random, w->files[file].n_bytes - part->n_bytes + 1);
    }
    part->each_file = w->each_file[layer][p];
    part->each_offset = w->each_offset[layer][p];
}

/* The packed form: an expert's parts one after another, experts one after another. */
static void packed_layer(world *w, uint32_t layer)
{
    uint32_t number = layer % N_FILES;
    mf_expert_part *parts = &w->parts[layer * w->map.n_parts];
    uint64_t at = below(&w->random, 3) * 4096;
    for (uint32_t p = 0; p < w->map.n_parts; p++) {
        uint64_t n_bytes = 1 + below(&w->random, 20000);
        parts[p] = (mf_expert_part){.file = number, .offset = at, .n_bytes = n_bytes};
        at += n_bytes;
    }
    for (uint32_t p = 0; p < w->map.n_parts; p++)
        parts[p].stride = at - parts[0].offset;
}

static world *world_create(const char *dir, uint64_t seed)
{
    world *w = calloc(1, sizeof *w);
    REQUIRE(w != NULL);
    w->random = seed * 0x9e3779b97f4a7c15u + 1;
    for (uint32_t i = 0; i < N_FILES; i++)
        w->files[i] = scratch_create(dir, 3000000 + below(&w->random, 2000000), &w->random);
    w->map = (mf_expert_map){.n_layers = 1 + (uint32_t)below(&w->random, MAX_LAYERS),
                             .n_experts = 1 + (uint32_t)below(&w->random, MAX_EXPERTS),
                             .n_parts = 1 + (uint32_t)below(&w->random, MF_MAX_EXPERT_PARTS),
                             .parts = w->parts};
    for (uint32_t layer = 0; layer < w->map.n_layers; layer++) {
        bool is_packed = below(&w->random, 3) == 0;
        for (uint32_t p = 0; p < w->map.n_parts && !is_packed; p++)
            random_part(w, layer, p);
        if (is_packed)
            packed_layer(w, layer);
    }
    return w;
}

/* Of two layers in three the experts have forms of their own, with fewer bytes but for one. */
__attribute__((unused)) static void give_forms(world *w)
{
    for (uint32_t i = 0; i < w->map.n_layers * w->map.n_parts; i++) {
        const uint32_t layer = i / w->map.n_parts, n_forms = 2 + layer % 2;
        mf_expert_part *part = &w->parts[i];
        if (layer % 3 == 2)
            continue;
        for (uint32_t e = 0; e < w->map.n_experts && i % w->map.n_parts == 0; e++)
            w->form_of[layer][e] = (uint8_t)below(&w->random, n_forms);
        for (uint32_t f = 0; f < n_forms; f++)
            w->form_bytes[i][f] = (part->n_bytes + f) / (f + 1);
        part->form_of = w->form_of[layer];
        part->form_bytes = w->form_bytes[i];
    }
}

static void world_free(world *w)
{
    for (uint32_t i = 0; i < N_FILES; i++)
        scratch_remove(&w->files[i]);
    free(w);
}

static const unsigned char *true_bytes(const world *w, uint32_t layer, uint32_t expert, uint32_t p)
{
    const mf_expert_part *part = &w->parts[layer * w->map.n_parts + p];
    if (part->each_file != NULL)
        return w->files[part->each_file[expert]].bytes + part->each_offset[expert];
    return w->files[part->file].bytes + part->offset + part->stride * expert;
}

/* A store over a world. */
typedef struct rig {
    world *w;
    mf_io_fault fault;
    mf_io *io;
    mf_expert_store *store;
    unsigned char *pool, *rooms;
    uint64_t slot_bytes;
    uint32_t n_slots;
    const mf_cache_policy *policy;
} rig;

static void add_files(rig *r)
{
    mf_error error;
    for (uint32_t i = 0; i < N_FILES; i++) {
        uint32_t number;
        REQUIRE_OK(mf_io_add_file(r->io, r->w->files[i].path, &number, &error), &error);
        REQUIRE(number == i);
    }
}

static mf_expert_store_options rig_options(const rig *r)
{
    return (mf_expert_store_options){
        .io = r->io,
        .map = r->w->map,
        .memory = {.n_bytes = r->slot_bytes * r->n_slots, .host = r->pool},
        .policy = r->policy};
}

static void rig_open_store(rig *r)
{
    mf_error error;
    mf_expert_store_options options = rig_options(r);
    REQUIRE_OK(mf_expert_store_open(&options, &r->store, &error), &error);
}

__attribute__((unused)) static void rig_open(rig *r, const io_case *c, world *w, uint32_t n_slots,
                                             uint32_t depth)
{
    *r = (rig){.w = w, .fault = {.seed = n_slots}};
    r->io = open_case(c, &r->fault, depth, NULL);
    add_files(r);
    r->slot_bytes = mf_expert_slot_bytes(&w->map);
    CHECK_U64(r->slot_bytes % 4096, 0);
    r->pool = aligned_alloc(4096, r->slot_bytes * n_slots);
    REQUIRE(r->pool != NULL);
    r->n_slots = n_slots;
    rig_open_store(r);
    CHECK_U64(mf_expert_store_n_slots(r->store), n_slots);
}

/* The same with nothing held. */
__attribute__((unused)) static void rig_forget(rig *r)
{
    mf_expert_store_close(&r->store);
    rig_open_store(r);
}

static void rig_close(rig *r)
{
    mf_expert_store_close(&r->store);
    CHECK(r->store == NULL);
    mf_io_close(&r->io);
    free(r->pool);
}

__attribute__((unused)) static void break_a_little(rig *r)
{
    r->fault.short_chance = 200;
    r->fault.interrupt_chance = 100;
    r->fault.hold_chance = 400;
    r->fault.shuffle = 1;
}

__attribute__((unused)) static void check_expert(const rig *r, uint32_t layer, uint32_t expert,
                                                 const mf_expert_ready *got)
{
    for (uint32_t p = 0; p < r->w->map.n_parts; p++) {
        const mf_expert_part *part = &r->w->parts[layer * r->w->map.n_parts + p];
        CHECK_MSG(memcmp(r->pool + got->part_at[p], true_bytes(r->w, layer, expert, p),
                         mf_expert_part_bytes(part, expert)) == 0,
                  "layer %u expert %u part %u differs", layer, expert, p);
    }
}

__attribute__((unused)) static uint32_t random_choice(world *w, uint32_t *experts, uint32_t n)
{
    for (uint32_t e = 0; e < w->map.n_experts; e++)
        experts[e] = e;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = i + (uint32_t)below(&w->random, w->map.n_experts - i);
        uint32_t t = experts[i];
        experts[i] = experts[j];
        experts[j] = t;
    }
    return n;
}

/* What others may see of the store is what it is. */
__attribute__((unused)) static void check_look(const mf_expert_store *s)
{
    uint8_t seen[MAX_LAYERS * MAX_EXPERTS], real[MAX_LAYERS * MAX_EXPERTS] = {0};
    const uint32_t n = s->map.n_experts;
    for (uint32_t layer = 0; layer < s->map.n_layers; layer++)
        mf_expert_store_look(s, layer, seen + layer * n, NULL, n);
    for (uint32_t i = 0; i < s->n_places; i++)
        if (s->places[i].state == MF_PLACE_HELD)
            real[s->places[i].key] = MF_EXPERT_BELOW;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        const mf_expert_slot *slot = &s->slots[i];
        if (slot->state == MF_SLOT_HELD)
            real[slot->key] = MF_EXPERT_HELD;
        else if (slot->state == MF_SLOT_LOADING && s->slot_of[slot->key] == i)
            real[slot->key] =
                s->loads[slot->load].state == MF_LOAD_QUEUED ? MF_EXPERT_QUEUED : MF_EXPERT_READING;
    }
    for (uint32_t key = 0; key < s->map.n_layers * n; key++)
        CHECK_U64(seen[key], real[key]);
}

/* A map for the tests of failures: eight experts, three parts apart, small. */
static world *plain_world(const char *dir)
{
    world *w = world_create(dir, 7);
    w->map = (mf_expert_map){.n_layers = 2, .n_experts = 8, .n_parts = 3, .parts = w->parts};
    for (uint32_t i = 0; i < 6; i++)
        w->parts[i] = (mf_expert_part){
            i % N_FILES, 100000u * i + 17, 20000, 9000 + 1000 * (i % 3), NULL, NULL, NULL, NULL};
    return w;
}

#endif
