/* SPDX-License-Identifier: MIT */
/*
 * Slots, the cache and fetches.
 *
 * A slot is empty, being read into, or holds an expert; slot_of and slots[].key agree at all times.
 * Slots of the open fetch's experts are pinned until released, and only unpinned slots that hold an
 * expert can be emptied. An item of a fetch goes WAITING -> READING -> READY -> HANDED_OUT ->
 * RELEASED; hits start at READY.
 *
 * The place for prediction: a predicted expert would take an unpinned slot and be READING without
 * an item, its reads put into the batch only while no item waits; begin would then adopt the slot.
 */
#include "experts/store_impl.h"

#include "base/checked.h"
#include "base/clock.h"

#include <assert.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- open -- */

uint64_t mf_expert_slot_bytes(const mf_expert_map *map, const mf_io *io)
{
    (void)io;
    uint64_t most = 0;
    for (uint32_t layer = 0; layer < map->n_layers; layer++) {
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

typedef struct store_layout {
    size_t n_keys, slot_of, slots, empty, policy, items, ready, seen_in, total;
} store_layout;

static bool add_array(size_t n, size_t size, size_t *bytes, size_t *total)
{
    /* The arena rounds each array up to 64 bytes. */
    return mf_mul_size(n, size, bytes) && mf_add_size(*total, 64, total) &&
           mf_add_size(*total, *bytes, total);
}

static bool lay_out(const mf_expert_map *map, uint64_t n_slots, const mf_cache_policy *policy,
                    store_layout *out)
{
    size_t store;
    *out = (store_layout){0};
    if (n_slots >= MF_NO_SLOT || !mf_mul_size(map->n_layers, map->n_experts, &out->n_keys))
        return false;
    size_t n_experts = map->n_experts;
    return add_array(1, sizeof(mf_expert_store), &store, &out->total) &&
           add_array(out->n_keys, sizeof(uint32_t), &out->slot_of, &out->total) &&
           add_array(n_slots, sizeof(mf_expert_slot), &out->slots, &out->total) &&
           add_array(n_slots, sizeof(uint32_t), &out->empty, &out->total) &&
           add_array(1, policy->state_bytes((uint32_t)n_slots), &out->policy, &out->total) &&
           add_array(n_experts, sizeof(mf_fetch_item), &out->items, &out->total) &&
           add_array(n_experts, sizeof(uint32_t), &out->ready, &out->total) &&
           add_array(n_experts, sizeof(uint64_t), &out->seen_in, &out->total);
}

uint64_t mf_expert_store_bytes(const mf_expert_map *map, uint64_t n_slots)
{
    store_layout layout;
    if (!lay_out(map, n_slots, &mf_cache_policy_lru, &layout))
        return UINT64_MAX;
    return layout.total + 64; /* the arena aligns its start */
}

/* Every byte of every expert lies inside its file. */
static mf_status check_expert(const mf_expert_store_options *options, uint32_t layer,
                              uint32_t expert, mf_error *error)
{
    mf_expert_plan plan;
    if (!mf_expert_plan_make(&options->map, layer, expert, &plan))
        return mf_fail(error, MF_ERR_FORMAT, "expert %u of layer %u: its offset overflows", expert,
                       layer);
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

static mf_status check_options(const mf_expert_store_options *options, uint64_t *slot_bytes,
                               uint64_t *n_slots, mf_error *error)
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
    *slot_bytes = mf_expert_slot_bytes(map, options->io);
    if (*slot_bytes == 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "an expert map without a byte");
    *n_slots = options->pool_bytes / *slot_bytes;
    if (*n_slots == 0 || ((uintptr_t)options->pool & (MF_IO_ALIGN - 1)) != 0)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "a slot pool of %zu bytes where one slot takes %llu, aligned to %u",
                       options->pool_bytes, (unsigned long long)*slot_bytes, MF_IO_ALIGN);
    return MF_OK;
}

static void forget_all(mf_expert_store *store)
{
    for (uint32_t slot = 0; slot < store->n_slots; slot++) {
        store->slots[slot] = (mf_expert_slot){0};
        store->empty[slot] = store->n_slots - 1 - slot; /* slot 0 is taken first */
    }
    store->n_empty = store->n_slots;
    size_t n_keys = (size_t)store->map.n_layers * store->map.n_experts;
    for (size_t key = 0; key < n_keys; key++)
        store->slot_of[key] = MF_NO_SLOT;
    store->policy->init(store->policy_state, store->n_slots);
}

mf_status mf_expert_store_open(const mf_expert_store_options *options, mf_expert_store **out,
                               mf_error *error)
{
    uint64_t slot_bytes = 0, n_slots = 0;
    MF_TRY(check_options(options, &slot_bytes, &n_slots, error));
    const mf_cache_policy *policy =
        options->policy != NULL ? options->policy : &mf_cache_policy_lru;
    store_layout layout;
    if (!lay_out(&options->map, n_slots, policy, &layout))
        return mf_fail_memory(error, SIZE_MAX, "the expert store");
    mf_allocator allocator = mf_allocator_or_default(&options->allocator);
    mf_arena arena;
    MF_TRY(mf_arena_create(&allocator, layout.total, "the expert store", &arena, error));

    mf_expert_store *store = mf_arena_take(&arena, sizeof *store);
    store->io = options->io;
    store->map = options->map;
    store->pool = options->pool;
    store->slot_bytes = slot_bytes;
    store->n_slots = (uint32_t)n_slots;
    store->policy = policy;
    store->slot_of = mf_arena_take(&arena, layout.slot_of);
    store->slots = mf_arena_take(&arena, layout.slots);
    store->empty = mf_arena_take(&arena, layout.empty);
    store->policy_state = mf_arena_take(&arena, layout.policy);
    store->items = mf_arena_take(&arena, layout.items);
    store->ready = mf_arena_take(&arena, layout.ready);
    store->seen_in = mf_arena_take(&arena, layout.seen_in);
    store->arena = arena;
    forget_all(store);
    *out = store;
    return MF_OK;
}

void mf_expert_store_close(mf_expert_store **store)
{
    if (*store == NULL)
        return;
    mf_expert_store_end(*store);
    mf_arena arena = (*store)->arena; /* the store lies in it */
    mf_arena_free(&arena);
    *store = NULL;
}

/* ---------------------------------------------------------------------------------- slots -- */

static bool is_evictable(void *ctx, uint32_t slot)
{
    const mf_expert_store *store = ctx;
    return store->slots[slot].state == MF_SLOT_HELD && !store->slots[slot].is_pinned;
}

void mf_expert_empty_slot(mf_expert_store *store, uint32_t slot)
{
    store->slot_of[store->slots[slot].key] = MF_NO_SLOT;
    store->slots[slot] = (mf_expert_slot){0};
    store->policy->forget(store->policy_state, slot);
    store->empty[store->n_empty++] = slot;
}

uint32_t mf_expert_take_slot(mf_expert_store *store, uint64_t key)
{
    if (store->n_empty == 0) {
        uint32_t victim = store->policy->victim(store->policy_state, is_evictable, store);
        if (victim == MF_NO_SLOT)
            return MF_NO_SLOT;
        mf_expert_empty_slot(store, victim);
    }
    uint32_t slot = store->empty[--store->n_empty];
    store->slots[slot] = (mf_expert_slot){key, MF_SLOT_READING, true};
    store->slot_of[key] = slot;
    store->policy->touch(store->policy_state, slot);
    return slot;
}

static uint64_t key_of(const mf_expert_store *store, uint32_t expert)
{
    return (uint64_t)store->layer * store->map.n_experts + expert;
}

static unsigned char *slot_memory(const mf_expert_store *store, uint32_t slot)
{
    return store->pool + (size_t)slot * store->slot_bytes;
}

/* ---------------------------------------------------------------------------------- reads -- */

static void mark_ready(mf_expert_store *store, uint32_t index)
{
    mf_fetch_item *item = &store->items[index];
    item->state = MF_ITEM_READY;
    store->slots[item->slot].state = MF_SLOT_HELD;
    store->ready[store->ready_end++] = index;
}

/* Gives the next waiting item a slot and puts its reads into the batch; false if no item waits or
 * no slot is left. */
static bool start_next_item(mf_expert_store *store)
{
    while (store->first_waiting < store->n_items &&
           store->items[store->first_waiting].state != MF_ITEM_WAITING)
        store->first_waiting++;
    if (store->first_waiting == store->n_items)
        return false;
    uint32_t index = store->first_waiting;
    mf_fetch_item *item = &store->items[index];
    uint32_t slot = mf_expert_take_slot(store, key_of(store, item->expert));
    if (slot == MF_NO_SLOT)
        return false;
    /* Every plan was made once at open, so this one cannot overflow. */
    (void)mf_expert_plan_make(&store->map, store->layer, item->expert, &store->batch.plan);
    mf_expert_batch_put(&store->batch, slot_memory(store, slot), index);
    item->slot = slot;
    item->n_pending = store->batch.plan.n_reads;
    item->state = MF_ITEM_READING;
    if (item->n_pending == 0)
        mark_ready(store, index);
    return true;
}

/* Submits as many of the waiting reads as slots and the engine's depth allow. */
static void submit_reads(mf_expert_store *store)
{
    while (store->failure == MF_OK) {
        while (mf_expert_batch_wants(&store->batch) && start_next_item(store))
            continue;
        mf_expert_sent sent;
        store->failure =
            mf_expert_batch_submit(&store->batch, store->io, &sent, &store->failure_error);
        if (store->failure != MF_OK)
            store->is_broken = true;
        if (sent.n_reads == 0)
            return;
        if (store->n_in_flight == 0)
            store->reading_since_us = mf_now_us();
        store->n_in_flight += sent.n_reads;
        store->stats.n_reads += sent.n_reads;
        store->stats.read_bytes += sent.n_bytes;
    }
}

static void take_in(mf_expert_store *store, const mf_io_done *done)
{
    uint32_t index = (uint32_t)done->tag;
    mf_fetch_item *item = &store->items[index];
    if (done->status != MF_OK) {
        /* The item keeps a pending read for good, so it never becomes ready. */
        if (store->failure == MF_OK)
            store->failure = mf_io_fail(store->io, done, &store->failure_error);
        return;
    }
    if (--item->n_pending == 0)
        mark_ready(store, index);
}

/* Takes in the reads that have completed; with wait, at least one. */
static void collect_reads(mf_expert_store *store, bool wait)
{
    mf_io_done done[32];
    uint32_t n = 0;
    do {
        if (store->n_in_flight == 0)
            return;
        mf_error error;
        mf_status status = mf_io_collect(store->io, wait, done, 32, &n, &error);
        if (status != MF_OK) {
            store->is_broken = true;
            if (store->failure == MF_OK) {
                store->failure = status;
                store->failure_error = error;
            }
            return;
        }
        for (uint32_t i = 0; i < n; i++)
            take_in(store, &done[i]);
        store->n_in_flight -= n;
        if (store->n_in_flight == 0)
            store->stats.reading_us += mf_now_us() - store->reading_since_us;
        wait = false;
    } while (n == 32);
}

/* ---------------------------------------------------------------------------------- fetch -- */

static mf_status check_fetch(mf_expert_store *store, uint32_t layer, const uint32_t *experts,
                             uint32_t n, mf_error *error)
{
    if (store->is_broken)
        return mf_fail(error, MF_ERR_STATE, "expert store: an earlier failure stopped all reads");
    if (store->is_open)
        return mf_fail(error, MF_ERR_STATE, "expert store: a fetch is open already");
    if (layer >= store->map.n_layers || n == 0 || n > store->map.n_experts)
        return mf_fail(error, MF_ERR_ARGUMENT, "expert store: %u experts of layer %u asked for", n,
                       layer);
    store->n_fetches++;
    for (uint32_t i = 0; i < n; i++) {
        if (experts[i] >= store->map.n_experts || store->seen_in[experts[i]] == store->n_fetches)
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "expert store: expert %u of layer %u is out of range or named twice",
                           experts[i], layer);
        store->seen_in[experts[i]] = store->n_fetches;
    }
    return MF_OK;
}

mf_status mf_expert_store_begin(mf_expert_store *store, uint32_t layer, const uint32_t *experts,
                                uint32_t n, mf_error *error)
{
    MF_TRY(check_fetch(store, layer, experts, n, error));
    store->is_open = true;
    store->layer = layer;
    store->n_items = n;
    store->n_handed_out = 0;
    store->first_waiting = 0;
    store->ready_head = store->ready_end = 0;
    store->failure = MF_OK;
    mf_expert_batch_clear(&store->batch);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = store->slot_of[key_of(store, experts[i])];
        store->items[i] = (mf_fetch_item){.expert = experts[i], .slot = slot};
        if (slot == MF_NO_SLOT) {
            store->stats.n_misses++;
            continue;
        }
        store->stats.n_hits++;
        store->slots[slot].is_pinned = true;
        store->policy->touch(store->policy_state, slot);
        mark_ready(store, i);
    }
    submit_reads(store);
    if (store->failure == MF_OK)
        return MF_OK;
    mf_status status = store->failure;
    if (error != NULL)
        *error = store->failure_error;
    mf_expert_store_end(store);
    return status;
}

static void hand_out(mf_expert_store *store, uint32_t index, mf_expert_ready *out)
{
    mf_fetch_item *item = &store->items[index];
    const unsigned char *memory = slot_memory(store, item->slot);
    mf_expert_plan plan;
    (void)mf_expert_plan_make(&store->map, store->layer, item->expert, &plan);
    *out = (mf_expert_ready){.index = index};
    for (uint32_t p = 0; p < store->map.n_parts; p++)
        out->part[p] = memory + plan.part_at[p];
    item->state = MF_ITEM_HANDED_OUT;
    store->n_handed_out++;
}

mf_status mf_expert_store_next(mf_expert_store *store, mf_expert_ready *out, uint32_t max,
                               uint32_t *n, mf_error *error)
{
    if (!store->is_open)
        return mf_fail(error, MF_ERR_STATE, "expert store: no fetch is open");
    collect_reads(store, false);
    submit_reads(store);
    while (store->failure == MF_OK && store->ready_head == store->ready_end &&
           store->n_handed_out < store->n_items) {
        if (store->n_in_flight == 0)
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "expert store: all %u slots are handed out and none released",
                           store->n_slots);
        uint64_t start_us = mf_now_us();
        collect_reads(store, true);
        store->stats.wait_us += mf_now_us() - start_us;
        submit_reads(store);
    }
    if (store->failure != MF_OK) {
        if (error != NULL)
            *error = store->failure_error;
        return store->failure;
    }
    uint32_t n_out = 0;
    while (n_out < max && store->ready_head < store->ready_end)
        hand_out(store, store->ready[store->ready_head++], &out[n_out++]);
    *n = n_out;
    return MF_OK;
}

void mf_expert_store_release(mf_expert_store *store, uint32_t index)
{
    assert(store->is_open && index < store->n_items);
    mf_fetch_item *item = &store->items[index];
    assert(item->state == MF_ITEM_HANDED_OUT);
    item->state = MF_ITEM_RELEASED;
    store->slots[item->slot].is_pinned = false;
    /* Between two experts' computations: notes when reading ended, and keeps it going. */
    collect_reads(store, false);
    submit_reads(store);
}

void mf_expert_store_end(mf_expert_store *store)
{
    if (!store->is_open)
        return;
    mf_expert_batch_clear(&store->batch);
    while (store->n_in_flight > 0 && !store->is_broken)
        collect_reads(store, true);
    for (uint32_t i = 0; i < store->n_items; i++) {
        const mf_fetch_item *item = &store->items[i];
        if (item->slot == MF_NO_SLOT)
            continue;
        store->slots[item->slot].is_pinned = false;
        if (item->state == MF_ITEM_READING)
            mf_expert_empty_slot(store, item->slot);
    }
    store->is_open = false;
}

void mf_expert_store_clear(mf_expert_store *store)
{
    assert(!store->is_open);
    forget_all(store);
}

/* -------------------------------------------------------------------------------- figures -- */

void mf_expert_store_stats(const mf_expert_store *store, mf_expert_stats *out)
{
    *out = store->stats;
    if (store->n_in_flight > 0)
        out->reading_us += mf_now_us() - store->reading_since_us;
}

void mf_expert_store_stats_reset(mf_expert_store *store)
{
    store->stats = (mf_expert_stats){0};
    store->reading_since_us = mf_now_us();
}

uint64_t mf_expert_store_n_slots(const mf_expert_store *store)
{
    return store->n_slots;
}
