/* SPDX-License-Identifier: MIT */
/* The expert store: opening, closing, polling, figures. */
#include "base/checked.h"
#include "base/clock.h"
#include "experts/store_impl.h"

#include <assert.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- sizes -- */

/* The most that reading an expert takes, of layers whose experts are made. */
static uint64_t made_bytes(const mf_expert_map *map)
{
    uint64_t most = 0;
    for (uint32_t layer = 0; layer < map->n_layers; layer++) {
        if (!mf_expert_is_made(map, layer))
            continue;
        for (uint32_t expert = 0; expert < map->n_experts; expert++) {
            mf_expert_plan plan;
            if (!mf_expert_plan_make(map, layer, expert, &plan))
                return 0;
            if (plan.n_bytes > most)
                most = plan.n_bytes;
        }
    }
    return most;
}

static uint64_t largest_slot(const mf_expert_map *map, bool anywhere)
{
    uint64_t most = 0;
    for (uint32_t layer = 0; layer < map->n_layers; layer++) {
        const uint64_t n_bytes = mf_slot_layer_bytes(map, layer, anywhere);
        if (n_bytes == 0)
            return 0;
        most = n_bytes > most ? n_bytes : most;
    }
    return most;
}

uint64_t mf_expert_slot_bytes(const mf_expert_map *map)
{
    return largest_slot(map, false);
}

uint64_t mf_expert_slot_bytes_anywhere(const mf_expert_map *map)
{
    return largest_slot(map, true);
}

void mf_expert_map_cost(const mf_expert_map *map, uint32_t *n_reads, uint64_t *n_bytes)
{
    const uint64_t n = (uint64_t)map->n_layers * map->n_experts;
    uint64_t all_reads = 0, all_bytes = 0;
    for (uint64_t i = 0; i < n; i++) {
        mf_expert_plan plan = {0};
        (void)mf_expert_plan_make(map, (uint32_t)(i / map->n_experts),
                                  (uint32_t)(i % map->n_experts), &plan);
        all_reads += plan.n_extents;
        all_bytes += plan.n_bytes;
    }
    *n_reads = n == 0 ? 0 : (uint32_t)((all_reads + n / 2) / n);
    *n_bytes = n == 0 ? 0 : all_bytes / n;
}

_Static_assert(MF_SLOT_SIZES <= MF_CACHE_KINDS, "a policy knows each size of slots");

typedef struct store_layout {
    size_t slot_of, slots, empty, versions, policy, loads, items, ready, seen_in, missed;
    size_t slot_at, slot_size, key_size, sizes_in;
    size_t shown, n_asked, read;
    size_t places, place_of, empty_places, place_policy, whole_at; /* 0: none */
    size_t total;
} store_layout;

static bool add_array(size_t n, size_t size, size_t *bytes, size_t *total)
{
    /* The arena rounds each array up to 64 bytes. */
    return mf_mul_size(n, size, bytes) && mf_add_size(*total, 64, total) &&
           mf_add_size(*total, *bytes, total);
}

static bool lay_out_places(const mf_expert_map *map, uint64_t n_places,
                           const mf_cache_policy *policy, store_layout *out)
{
    const mf_cache_shape shape = {(uint32_t)n_places, map->n_layers, map->n_experts};
    if (n_places == 0)
        return true;
    return add_array(n_places, sizeof(mf_expert_place), &out->places, &out->total) &&
           add_array((size_t)map->n_layers * map->n_experts, sizeof(uint32_t), &out->place_of,
                     &out->total) &&
           add_array(n_places, sizeof(uint32_t), &out->empty_places, &out->total) &&
           add_array(map->n_layers, sizeof(uint32_t), &out->whole_at, &out->total) &&
           add_array(1, policy->state_bytes(&shape), &out->place_policy, &out->total);
}

static bool lay_out(const mf_expert_map *map, uint64_t n_slots, uint64_t n_places,
                    const mf_cache_policy *policy, store_layout *out)
{
    size_t store, n_keys;
    *out = (store_layout){0};
    if (n_slots >= MF_NONE || n_places >= MF_NONE ||
        !mf_mul_size(map->n_layers, map->n_experts, &n_keys) ||
        n_keys >= MF_NONE / MF_EXPERT_FETCHES)
        return false;
    const mf_cache_shape shape = {(uint32_t)n_slots, map->n_layers, map->n_experts};
    size_t n_items = (size_t)map->n_experts * MF_EXPERT_FETCHES;
    return add_array(1, sizeof(mf_expert_store), &store, &out->total) &&
           add_array(n_keys, sizeof(uint32_t), &out->slot_of, &out->total) &&
           add_array(n_slots, sizeof(mf_expert_slot), &out->slots, &out->total) &&
           add_array(n_slots + 1, sizeof(uint64_t), &out->slot_at, &out->total) &&
           add_array(n_slots, sizeof(uint8_t), &out->slot_size, &out->total) &&
           add_array(n_keys, sizeof(uint8_t), &out->key_size, &out->total) &&
           add_array(map->n_layers, sizeof(uint8_t), &out->sizes_in, &out->total) &&
           add_array(n_slots, sizeof(uint32_t), &out->empty, &out->total) &&
           add_array(map->n_layers, sizeof(uint64_t), &out->versions, &out->total) &&
           add_array(1, policy->state_bytes(&shape), &out->policy, &out->total) &&
           add_array(MF_EXPERT_LOADS, sizeof(mf_expert_load), &out->loads, &out->total) &&
           add_array(n_items, sizeof(mf_fetch_item), &out->items, &out->total) &&
           add_array(n_items, sizeof(uint32_t), &out->ready, &out->total) &&
           add_array(map->n_experts, sizeof(uint64_t), &out->seen_in, &out->total) &&
           add_array(map->n_experts, sizeof(uint32_t), &out->missed, &out->total) &&
           add_array(n_keys, sizeof(atomic_uchar), &out->shown, &out->total) &&
           add_array(n_keys, sizeof(atomic_uint), &out->n_asked, &out->total) &&
           add_array(map->stored != NULL ? made_bytes(map) : 0, 1, &out->read, &out->total) &&
           lay_out_places(map, n_places, policy, out);
}

uint64_t mf_expert_store_bytes(const mf_expert_map *map, uint64_t n_slots, uint64_t n_places)
{
    store_layout layout;
    if (!lay_out(map, n_slots, n_places, &mf_cache_policy_next_use, &layout))
        return UINT64_MAX;
    return layout.total + 64; /* the arena aligns its start */
}

/* ----------------------------------------------------------------------------------- open -- */

/* Every byte of every expert lies inside its file. */
static mf_status check_expert(const mf_expert_store_options *options, uint32_t layer,
                              uint32_t expert, mf_error *error)
{
    mf_expert_plan plan;
    if (!mf_expert_plan_make(&options->map, layer, expert, &plan))
        return mf_fail(error, MF_ERR_FORMAT,
                       "expert %u of layer %u: its offset overflows, or it has 4 GiB", expert,
                       layer);
    if (plan.n_bytes == 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "expert %u of layer %u has no bytes", expert, layer);
    for (uint32_t i = 0; i < plan.n_extents; i++) {
        const mf_expert_extent *extent = &plan.extents[i];
        if (extent->file >= mf_io_n_files(options->io))
            return mf_fail(error, MF_ERR_ARGUMENT, "expert %u of layer %u: no file %u", expert,
                           layer, extent->file);
        uint64_t end = extent->offset + extent->n_needed;
        uint64_t file_bytes = mf_io_file_bytes(options->io, extent->file);
        if (end > file_bytes)
            return mf_fail_at(error, MF_ERR_FORMAT, file_bytes,
                              "%s: file ends at byte %llu, expected at least %llu bytes (expert %u "
                              "of layer %u)",
                              mf_io_file_path(options->io, extent->file),
                              (unsigned long long)file_bytes, (unsigned long long)end, expert,
                              layer);
    }
    return MF_OK;
}

static bool is_aligned(const unsigned char *memory)
{
    return ((uintptr_t)memory & (MF_IO_ALIGN - 1)) == 0;
}

/* Places that the rooms hold; 0 also where one of them is not aligned. */
static uint64_t count_places(const mf_expert_store_options *options, uint64_t slot_bytes)
{
    uint64_t n = 0;
    if (options->memory.host != NULL)
        return 0;
    for (uint32_t i = 0; i < options->n_rooms; i++) {
        if (options->rooms[i].bytes == NULL || !is_aligned(options->rooms[i].bytes))
            return 0;
        n += options->rooms[i].n_bytes / slot_bytes;
    }
    return n;
}

static mf_status check_memory(const mf_expert_store_options *options, uint64_t slot_bytes,
                              mf_error *error)
{
    const mf_slot_memory *memory = &options->memory;
    if (memory->n_bytes < slot_bytes || !is_aligned(memory->host))
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "a slot pool of %llu bytes where one slot takes %llu, aligned to %u",
                       (unsigned long long)memory->n_bytes, (unsigned long long)slot_bytes,
                       MF_IO_ALIGN);
    if (memory->host != NULL)
        return MF_OK;
    if (memory->upload == NULL || memory->is_done == NULL || memory->wait_for == NULL ||
        count_places(options, slot_bytes) == 0)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "slots of a device without uploads, or without host memory for one expert, "
                       "aligned to %u",
                       MF_IO_ALIGN);
    return MF_OK;
}

static mf_status find_sizes(const mf_expert_store_options *options, mf_slot_sizes *sizes,
                            mf_error *error)
{
    const uint64_t needed = options->memory.host != NULL
                                ? mf_expert_slot_bytes(&options->map)
                                : mf_expert_slot_bytes_anywhere(&options->map);
    if (needed == 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "an expert map without a byte");
    *sizes = mf_slot_sizes_even(options->slot_bytes > needed ? options->slot_bytes : needed);
    if (options->sizes == NULL)
        return MF_OK;
    *sizes = *options->sizes;
    if (sizes->n != 0 && sizes->bytes[0] >= needed)
        return MF_OK;
    return mf_fail(error, MF_ERR_ARGUMENT,
                   "an expert map whose experts take %llu bytes, for slots of %llu",
                   (unsigned long long)needed, (unsigned long long)sizes->bytes[0]);
}

static mf_status check_options(const mf_expert_store_options *options, mf_slot_sizes *sizes,
                               mf_error *error)
{
    const mf_expert_map *map = &options->map;
    if (map->n_layers == 0 || map->n_experts == 0 || map->n_parts == 0 ||
        map->n_parts > MF_MAX_EXPERT_PARTS)
        return mf_fail(error, MF_ERR_ARGUMENT, "an expert map of %u layers, %u experts, %u parts",
                       map->n_layers, map->n_experts, map->n_parts);
    for (uint32_t layer = 0; layer < map->n_layers; layer++) {
        for (uint32_t expert = 0; expert < map->n_experts; expert++)
            MF_TRY(check_expert(options, layer, expert, error));
    }
    MF_TRY(find_sizes(options, sizes, error));
    return check_memory(options, sizes->bytes[0], error);
}

static void take_arrays(mf_expert_store *store, const store_layout *layout)
{
    mf_arena *arena = &store->arena;
    store->slot_of = mf_arena_take(arena, layout->slot_of);
    store->slots = mf_arena_take(arena, layout->slots);
    store->slot_at = mf_arena_take(arena, layout->slot_at);
    store->slot_size = mf_arena_take(arena, layout->slot_size);
    store->key_size = mf_arena_take(arena, layout->key_size);
    store->sizes_in = mf_arena_take(arena, layout->sizes_in);
    store->empty = mf_arena_take(arena, layout->empty);
    store->versions = mf_arena_take(arena, layout->versions);
    store->policy_state = mf_arena_take(arena, layout->policy);
    store->loads = mf_arena_take(arena, layout->loads);
    store->items = mf_arena_take(arena, layout->items);
    uint32_t *ready = mf_arena_take(arena, layout->ready);
    store->seen_in = mf_arena_take(arena, layout->seen_in);
    store->missed = mf_arena_take(arena, layout->missed);
    store->shown = mf_arena_take(arena, layout->shown);
    store->n_asked = mf_arena_take(arena, layout->n_asked);
    store->read = mf_arena_take(arena, layout->read);
    store->places = mf_arena_take(arena, layout->places);
    store->place_of = mf_arena_take(arena, layout->place_of);
    store->empty_places = mf_arena_take(arena, layout->empty_places);
    store->whole_at = mf_arena_take(arena, layout->whole_at);
    store->place_policy = mf_arena_take(arena, layout->place_policy);
    assert(store->place_policy != NULL);
    for (uint32_t i = 0; i < MF_EXPERT_FETCHES; i++) {
        uint32_t first = i * store->map.n_experts;
        store->fetches[i] = (mf_expert_fetch){.store = store,
                                              .first_item = first,
                                              .items = store->items + first,
                                              .ready = ready + first};
    }
}

/* How many of the slots are in force. */
static void take_bounds(mf_expert_store *store, const mf_expert_store_options *options)
{
    const bool are_all = options->n_slots == 0 || options->n_slots > store->n_slots;
    const uint32_t n = are_all ? store->n_slots : (uint32_t)options->n_slots;
    store->n_least = options->n_slots_least > 0 && options->n_slots_least < n
                         ? (uint32_t)options->n_slots_least
                         : n;
    atomic_init(&store->n_active, n);
    atomic_init(&store->n_wanted, n);
}

mf_status mf_expert_store_open(const mf_expert_store_options *options, mf_expert_store **out,
                               mf_error *error)
{
    const mf_cache_policy *policy =
        options->policy != NULL ? options->policy : &mf_cache_policy_next_use;
    mf_slot_sizes sizes;
    store_layout layout;
    mf_arena arena;
    MF_TRY(check_options(options, &sizes, error));
    const uint64_t n_slots = mf_slot_sizes_fit(&sizes, options->memory.n_bytes, 0, MF_NONE);
    const uint64_t n_places = count_places(options, sizes.bytes[0]);
    if (!lay_out(&options->map, n_slots, n_places, policy, &layout))
        return mf_fail(error, MF_ERR_ARGUMENT, "expert store: too many experts or slots");
    const mf_allocator allocator = mf_allocator_or_default(&options->allocator);
    MF_TRY(mf_arena_create(&allocator, layout.total, "the expert store", &arena, error));
    mf_expert_store *store = mf_arena_take(&arena, sizeof *store);
    store->arena = arena;
    store->io = options->io;
    store->map = options->map;
    store->memory = options->memory;
    store->sizes = sizes;
    store->slot_bytes = sizes.bytes[0];
    store->n_slots = (uint32_t)n_slots;
    take_bounds(store, options);
    store->policy = policy;
    store->n_places = (uint32_t)n_places;
    store->n_loads =
        n_places != 0 && n_places < MF_EXPERT_LOADS ? (uint32_t)n_places : MF_EXPERT_LOADS;
    take_arrays(store, &layout);
    mf_expert_loads_init(store);
    mf_expert_slots_init(store);
    mf_expert_places_init(store, options->rooms, options->n_rooms);
    if (pthread_mutex_init(&store->stats_lock, NULL) != 0) {
        arena = store->arena;
        mf_arena_free(&arena);
        return mf_fail(error, MF_ERR_NO_MEMORY, "no memory for a lock");
    }
    *out = store;
    return MF_OK;
}

void mf_expert_store_close(mf_expert_store **store_ptr)
{
    mf_expert_store *store = *store_ptr;
    if (store == NULL)
        return;
    *store_ptr = NULL;
    while (store->n_open > 0)
        mf_expert_fetch_end(store->open[0], 0);
    mf_expert_hints_drop(store, MF_NONE);
    mf_expert_loads_drain(store);
    (void)pthread_mutex_destroy(&store->stats_lock);
    mf_arena arena = store->arena;
    mf_arena_free(&arena);
}

void mf_expert_store_poll(mf_expert_store *store)
{
    mf_expert_loads_collect(store, false);
    (void)mf_expert_store_resize(store);
    mf_expert_store_advance(store, NULL);
}

/* -------------------------------------------------------------------------------- figures -- */

void mf_expert_count(mf_expert_store *store, uint64_t *counter, uint64_t n)
{
    if (store->is_uncounted || n == 0)
        return;
    pthread_mutex_lock(&store->stats_lock);
    *counter += n;
    pthread_mutex_unlock(&store->stats_lock);
}

void mf_expert_store_stats(mf_expert_store *store, mf_expert_stats *out)
{
    if (store == NULL) {
        *out = (mf_expert_stats){0};
        return;
    }
    pthread_mutex_lock(&store->stats_lock);
    *out = store->stats;
    if (store->reading_since_us != 0)
        out->reading_us += mf_now_us() - store->reading_since_us;
    pthread_mutex_unlock(&store->stats_lock);
}

void mf_expert_store_stats_reset(mf_expert_store *store)
{
    pthread_mutex_lock(&store->stats_lock);
    uint64_t n_queued = store->stats.n_queued;
    store->stats = (mf_expert_stats){.n_queued = n_queued};
    if (store->reading_since_us != 0)
        store->reading_since_us = mf_now_us();
    pthread_mutex_unlock(&store->stats_lock);
}

void mf_expert_store_profile(mf_expert_store *store, mf_profile *profile)
{
    store->profile = profile;
    mf_io_watch(store->io, profile != NULL ? profile->timeline : NULL);
}

uint64_t mf_expert_store_n_slots(const mf_expert_store *store)
{
    return store != NULL ? atomic_load(&store->n_active) : 0;
}

uint64_t mf_expert_store_n_slots_most(const mf_expert_store *store)
{
    return store->n_slots;
}

uint64_t mf_expert_store_n_places(const mf_expert_store *store)
{
    return store->n_places;
}
