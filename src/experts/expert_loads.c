/* SPDX-License-Identifier: MIT */
/*
 * Loads: experts on their way into their slots. A load waits in one of two queues, demanded or
 * foreseen, until its last read is cut; each lane (a drive) takes from them the first that has
 * reads for it, demanded ones before foreseen ones, and cuts it to its end. An expert with parts on
 * two drives is cut by both.
 *
 * Where the host reaches the slots, reads land in them. Elsewhere they land in a place, and when
 * they have completed, the upload is put into the stream: the expert is held then, by the slot and
 * by the place, and the load is free again.
 */
#include "base/clock.h"
#include "experts/store_impl.h"

#include <assert.h>
#include <string.h>

#define READS_AT_ONCE 64u
#define DONE_AT_ONCE 32u

/* ---------------------------------------------------------------------------------- queues -- */

static void append(mf_expert_store *store, mf_load_queue *queue, uint32_t load)
{
    store->loads[load].before = queue->last;
    store->loads[load].after = MF_NONE;
    if (queue->last != MF_NONE)
        store->loads[queue->last].after = load;
    else
        queue->first = load;
    queue->last = load;
}

static void take_out(mf_expert_store *store, mf_load_queue *queue, uint32_t load)
{
    const mf_expert_load *l = &store->loads[load];
    if (l->before != MF_NONE)
        store->loads[l->before].after = l->after;
    else
        queue->first = l->after;
    if (l->after != MF_NONE)
        store->loads[l->after].before = l->before;
    else
        queue->last = l->before;
}

static mf_load_queue *queue_of(mf_expert_store *store, const mf_expert_load *load)
{
    return load->is_demanded ? &store->demanded : &store->foreseen;
}

static uint32_t number_of(const mf_expert_store *store, const mf_expert_load *load)
{
    return (uint32_t)(load - store->loads);
}

static void leave_queue(mf_expert_store *store, mf_expert_load *load)
{
    if (!load->is_in_queue)
        return;
    take_out(store, queue_of(store, load), number_of(store, load));
    load->is_in_queue = false;
}

void mf_expert_loads_init(mf_expert_store *store)
{
    const mf_load_queue none = {MF_NONE, MF_NONE};
    store->free_loads = store->demanded = store->foreseen = none;
    for (uint32_t i = 0; i < store->n_loads; i++)
        append(store, &store->free_loads, i);
}

/* ----------------------------------------------------------------------------------- loads -- */

static void free_load(mf_expert_store *store, mf_expert_load *load)
{
    leave_queue(store, load);
    if (load->state == MF_LOAD_QUEUED)
        store->n_queued--;
    if (!load->is_demanded)
        store->n_foreseen--;
    load->state = MF_LOAD_FREE;
    append(store, &store->free_loads, number_of(store, load));
}

bool mf_expert_load_find(mf_expert_store *store, mf_cache_why why, uint32_t key)
{
    return store->free_loads.first != MF_NONE && mf_expert_place_find(store, why, key);
}

static unsigned char *memory_of(const mf_expert_store *store, const mf_expert_load *load)
{
    if (load->place == MF_NONE)
        return store->memory.host + store->slot_at[load->slot];
    return store->places[load->place].bytes;
}

static uint32_t count_reads(const mf_expert_plan *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_extents; i++)
        n += (plan->extents[i].n_bytes - 1) / MF_EXPERT_READ_BYTES + 1;
    return n;
}

static void give_up(mf_expert_store *store, mf_expert_load *load, const mf_error *error);

/* For the timeline: the expert was on its way until now. */
static void tell_load(const mf_expert_store *store, const mf_expert_load *load)
{
    static const mf_timeline_track track = {MF_TIMELINE_DRIVES, MF_TIMELINE_EXPERTS};
    const uint32_t key = store->slots[load->slot].key;
    const mf_timeline_note notes[MF_TIMELINE_NOTES] = {{"layer", key / store->map.n_experts},
                                                       {"expert", key % store->map.n_experts},
                                                       {"bytes", load->plan.n_bytes}};
    if (store->profile == NULL || store->profile->timeline == NULL || load->sent_ns == 0)
        return;
    mf_timeline_flight(store->profile->timeline, track,
                       store->slots[load->slot].is_hinted ? "expert foreseen" : "expert",
                       load->sent_ns, mf_now_ns(), notes);
}

/* Where its slot or place has what was read, the expert's parts are made of it. */
static mf_status make_parts(mf_expert_store *store, const mf_expert_load *load, mf_error *error)
{
    const mf_expert_slot *slot = &store->slots[load->slot];
    const uint32_t layer = slot->key / store->map.n_experts;
    const unsigned char *stored[MF_MAX_STORED_PARTS];
    unsigned char *parts[MF_MAX_EXPERT_PARTS], *memory = memory_of(store, load);
    mf_error why = {0};
    if (!mf_expert_is_made(&store->map, layer))
        return MF_OK;
    memcpy(store->read, memory, load->plan.n_bytes);
    for (uint32_t p = 0; p < MF_MAX_STORED_PARTS; p++)
        stored[p] = store->read + load->plan.part_at[p];
    for (uint32_t p = 0; p < MF_MAX_EXPERT_PARTS; p++)
        parts[p] = memory + slot->part_at[p];
    const mf_status status = store->map.make(store->map.make_ctx, layer, stored, parts, &why);
    if (status == MF_OK)
        return MF_OK;
    return mf_fail(error, status, "%s: expert %u of layer %u: %s",
                   mf_io_file_path(store->io, load->plan.extents[0].file),
                   slot->key % store->map.n_experts, layer, why.message);
}

/* All reads have completed: the slot holds the expert, or the upload is its last leg. */
static void complete(mf_expert_store *store, mf_expert_load *load)
{
    mf_error error = {0};
    leave_queue(store, load);
    tell_load(store, load);
    load->failure = make_parts(store, load, &error);
    if (load->failure == MF_OK && load->place != MF_NONE)
        load->failure = mf_expert_place_upload(store, load->place, load->slot, &load->plan, &error);
    if (load->failure != MF_OK) {
        give_up(store, load, &error);
        return;
    }
    mf_expert_slot_hold(store, load->slot);
    store->slots[load->slot].read_us = (uint32_t)(mf_io_now_us(store->io) - load->sent_us);
    store->slots[load->slot].n_read_bytes = load->plan.n_bytes;
    mf_expert_fetch_loaded(store, load, NULL);
    free_load(store, load);
}

/* Who waits for the expert fails. Who asks for it from now on gets it read anew. */
static void fail_waiting(mf_expert_store *store, mf_expert_load *load, const mf_error *error)
{
    mf_expert_fetch_loaded(store, load, error);
    mf_expert_slot_disown(store, load->slot);
    mf_expert_place_disown(store, load->place);
    if (load->is_measured && store->measure_failure == MF_OK) {
        store->measure_failure = load->failure;
        store->measure_error = *error;
    }
}

/* The expert does not come, and nothing of it is in flight. */
static void give_up(mf_expert_store *store, mf_expert_load *load, const mf_error *error)
{
    fail_waiting(store, load, error);
    mf_expert_slot_empty(store, load->slot);
    mf_expert_place_empty(store, load->place);
    free_load(store, load);
}

/* Where the slot has the parts of its expert. */
static void place_parts(mf_expert_store *store, mf_expert_slot *slot, const mf_expert_plan *plan)
{
    const uint32_t n = store->map.n_experts, layer = slot->key / n;
    if (store->memory.host == NULL)
        mf_expert_place_lay(store, slot->key, plan, slot->part_at);
    else if (mf_expert_is_made(&store->map, layer))
        (void)mf_expert_lay_parts(&store->map, layer, slot->key % n, slot->part_at);
    else
        memcpy(slot->part_at, plan->part_at, sizeof slot->part_at);
}

mf_status mf_expert_load_from(mf_expert_store *store, uint32_t place, uint32_t number,
                              mf_error *error)
{
    mf_expert_slot *slot = &store->slots[number];
    mf_expert_plan plan;
    (void)mf_expert_plan_make(&store->map, slot->key / store->map.n_experts,
                              slot->key % store->map.n_experts, &plan);
    place_parts(store, slot, &plan);
    mf_status status = mf_expert_place_upload(store, place, number, &plan, error);
    if (status != MF_OK) {
        mf_expert_slot_empty(store, number);
        return status;
    }
    mf_expert_slot_hold(store, number);
    slot->read_us = slot->n_read_bytes = 0; /* no drive was asked */
    return MF_OK;
}

mf_expert_load *mf_expert_load_start(mf_expert_store *store, uint32_t slot, bool is_demanded)
{
    uint32_t number = store->free_loads.first;
    mf_expert_load *load = &store->loads[number];
    assert(number != MF_NONE);
    take_out(store, &store->free_loads, number);
    *load = (mf_expert_load){.slot = slot,
                             .first_item = MF_NONE,
                             .state = MF_LOAD_QUEUED,
                             .is_demanded = is_demanded,
                             .is_in_queue = true};
    mf_expert_slot *s = &store->slots[slot];
    /* Every plan was made once at open, so this one cannot overflow. */
    (void)mf_expert_plan_make(&store->map, s->key / store->map.n_experts,
                              s->key % store->map.n_experts, &load->plan);
    load->n_pending = load->n_reads = count_reads(&load->plan);
    load->lanes_left = mf_expert_plan_lanes(&load->plan, store->io);
    load->place = mf_expert_place_take(store, is_demanded ? MF_CACHE_MISS : MF_CACHE_HINT, s->key);
    place_parts(store, s, &load->plan);
    s->state = MF_SLOT_LOADING;
    s->load = number;
    if (!is_demanded)
        store->n_foreseen++;
    append(store, queue_of(store, load), number);
    store->n_queued++;
    return load;
}

void mf_expert_load_adopt(mf_expert_store *store, mf_expert_load *load)
{
    bool was_in_queue = load->is_in_queue;
    if (load->is_demanded)
        return;
    leave_queue(store, load);
    load->is_demanded = true;
    store->n_foreseen--;
    if (was_in_queue)
        append(store, &store->demanded, number_of(store, load));
    load->is_in_queue = was_in_queue;
}

/* What was foreseen is given up before all of it was sent, and so is not read for nothing. */
static void count_cancelled(mf_expert_store *store, const mf_expert_load *load)
{
    mf_expert_slot *slot = &store->slots[load->slot];
    if (slot->is_hinted)
        mf_expert_count(store, &store->stats.n_hints_cancelled, 1);
    slot->is_hinted = false;
}

void mf_expert_load_cancel(mf_expert_store *store, mf_expert_load *load)
{
    assert(load->state == MF_LOAD_QUEUED);
    count_cancelled(store, load);
    mf_expert_slot_empty(store, load->slot);
    mf_expert_place_empty(store, load->place);
    free_load(store, load);
}

mf_expert_load *mf_expert_load_last_foreseen(mf_expert_store *store, uint32_t size)
{
    for (uint32_t i = store->foreseen.last; i != MF_NONE; i = store->loads[i].before) {
        if (store->loads[i].state == MF_LOAD_QUEUED &&
            (size == MF_NONE || mf_expert_slot_fits(store, size, store->loads[i].slot)))
            return &store->loads[i];
    }
    return NULL;
}

/* --------------------------------------------------------------------------------- sending -- */

static uint32_t first_for(const mf_expert_store *store, const mf_load_queue *queue, uint32_t lane)
{
    uint32_t i = queue->first;
    while (i != MF_NONE && (store->loads[i].lanes_left >> lane & 1) == 0)
        i = store->loads[i].after;
    return i;
}

/* Whether the foreseen load's next read would keep a demand waiting for no longer than a read of
 * its own takes: so little is in flight. */
static bool is_modest(const mf_expert_load *load, uint32_t n_in_flight)
{
    const uint64_t read_bytes = load->plan.n_bytes / load->n_reads;
    return n_in_flight == 0 || (n_in_flight < MF_EXPERT_HINT_DEPTH &&
                                (n_in_flight + 1) * read_bytes <= MF_EXPERT_HINT_BYTES);
}

/* The load whose next read the lane sends: what is demanded goes first, before each read. */
static uint32_t choose_load(const mf_expert_store *store, uint32_t lane, uint32_t n_in_flight)
{
    uint32_t load = first_for(store, &store->demanded, lane);
    if (load != MF_NONE)
        return load;
    load = first_for(store, &store->foreseen, lane);
    if (load == MF_NONE)
        return MF_NONE;
    const mf_expert_load *l = &store->loads[load];
    return l->is_sure || is_modest(l, n_in_flight) ? load : MF_NONE;
}

/* The lane's next read; false if there is none to be sent now. n_in_flight: of the lane, with those
 * cut before. */
static bool cut_read(mf_expert_store *store, uint32_t lane, uint32_t n_in_flight, mf_io_read *read)
{
    const uint32_t number = choose_load(store, lane, n_in_flight);
    if (number == MF_NONE)
        return false;
    mf_expert_load *load = &store->loads[number];
    mf_expert_cursor *cursor = &load->cursors[lane];
    if (load->state == MF_LOAD_QUEUED) {
        store->n_queued--;
        load->sent_us = mf_io_now_us(store->io);
        load->sent_ns = store->profile != NULL ? mf_now_ns() : 0;
    }
    load->state = MF_LOAD_READING;
    mf_expert_show(store, store->slots[load->slot].key);
    bool found =
        mf_expert_plan_next(&load->plan, store->io, lane, cursor, memory_of(store, load), read);
    assert(found);
    read->tag = number;
    load->n_in_flight++;
    if (!load->is_demanded && !load->is_warm)
        mf_expert_count(store, &store->stats.hint_bytes, read->n_bytes);
    if (!mf_expert_plan_has_next(&load->plan, store->io, lane, cursor)) {
        load->lanes_left &= ~(1u << lane);
        if (load->lanes_left == 0)
            leave_queue(store, load);
    }
    return found;
}

static void count_sent(mf_expert_store *store, const mf_io_read *reads, uint32_t n)
{
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        n_bytes += reads[i].n_bytes;
    pthread_mutex_lock(&store->stats_lock);
    if (!store->is_uncounted) {
        store->stats.n_reads += n;
        store->stats.read_bytes += n_bytes;
        if (store->reading_since_us == 0)
            store->reading_since_us = mf_now_us();
    }
    pthread_mutex_unlock(&store->stats_lock);
}

static void count_end_of_reading(mf_expert_store *store)
{
    pthread_mutex_lock(&store->stats_lock);
    if (store->reading_since_us != 0)
        store->stats.reading_us += mf_now_us() - store->reading_since_us;
    store->reading_since_us = 0;
    pthread_mutex_unlock(&store->stats_lock);
}

/* The engine failed. When it is started anew, no read can write any more: what was being read is
 * given up, what was only queued stays so. If it cannot be, all is given up, and the memory is not
 * touched until it can. */
static void take_failure(mf_expert_store *store, mf_status status, const mf_error *error)
{
    if (mf_io_reset(store->io, NULL) != MF_OK)
        store->is_broken = true;
    count_end_of_reading(store);
    for (uint32_t i = 0; i < store->n_loads; i++) {
        mf_expert_load *load = &store->loads[i];
        bool is_under_way =
            load->state == MF_LOAD_READING || (load->state == MF_LOAD_QUEUED && store->is_broken);
        if (!is_under_way)
            continue;
        if (load->state == MF_LOAD_QUEUED)
            count_cancelled(store, load);
        load->failure = status;
        give_up(store, load, error);
    }
}

static bool send_lane(mf_expert_store *store, uint32_t lane)
{
    mf_io_read reads[READS_AT_ONCE];
    uint32_t n = 0, n_sent = 0, n_room = mf_io_room(store->io, lane);
    uint32_t n_in_flight = mf_io_lane_in_flight(store->io, lane);
    while (n < READS_AT_ONCE && n < n_room && cut_read(store, lane, n_in_flight + n, &reads[n]))
        n++;
    if (n == 0)
        return false;
    mf_error error = {0};
    mf_status status = mf_io_submit(store->io, reads, n, &n_sent, &error);
    if (status != MF_OK) {
        take_failure(store, status, &error);
        return false;
    }
    assert(n_sent == n);
    count_sent(store, reads, n);
    return n == READS_AT_ONCE;
}

void mf_expert_loads_send(mf_expert_store *store)
{
    for (uint32_t lane = 0; lane < mf_io_n_lanes(store->io); lane++) {
        while (!store->is_broken && send_lane(store, lane))
            continue;
    }
    if (store->n_queued_told == store->n_queued)
        return;
    pthread_mutex_lock(&store->stats_lock);
    store->stats.n_queued = store->n_queued_told = store->n_queued;
    pthread_mutex_unlock(&store->stats_lock);
}

/* ------------------------------------------------------------------------------ completion -- */

/* What was not sent of the load never is. */
static void stop_sending(mf_expert_store *store, mf_expert_load *load)
{
    leave_queue(store, load);
    load->lanes_left = 0;
    load->n_pending = load->n_in_flight;
}

void mf_expert_load_abandon(mf_expert_store *store, mf_expert_load *load)
{
    const mf_error none = {0};
    assert(load->state == MF_LOAD_READING && !load->is_demanded);
    if (load->lanes_left == 0)
        return; /* all of it is on its way: it is held then */
    count_cancelled(store, load);
    stop_sending(store, load);
    load->failure = MF_ERR_CANCELLED;
    fail_waiting(store, load, &none);
    if (load->n_in_flight == 0)
        give_up(store, load, &none);
}

/* The load's first failed read says why; its slot is given up when no other writes to it. */
static void take_in(mf_expert_store *store, const mf_io_done *done)
{
    mf_expert_load *load = &store->loads[done->tag];
    assert(load->state == MF_LOAD_READING && load->n_in_flight > 0);
    load->n_in_flight--;
    load->n_pending--;
    mf_error error = {0};
    if (done->status != MF_OK) {
        load->failure = mf_io_fail(store->io, done, &error);
        stop_sending(store, load);
        fail_waiting(store, load, &error);
    }
    if (load->n_pending > 0)
        return;
    if (load->failure != MF_OK)
        give_up(store, load, &error);
    else
        complete(store, load);
}

void mf_expert_loads_collect(mf_expert_store *store, bool wait)
{
    mf_io_done done[DONE_AT_ONCE];
    uint32_t n = 0;
    do {
        if (store->is_broken || mf_io_in_flight(store->io) == 0)
            return;
        mf_error error = {0};
        mf_status status = mf_io_collect(store->io, wait, done, DONE_AT_ONCE, &n, &error);
        if (status != MF_OK) {
            take_failure(store, status, &error);
            return;
        }
        for (uint32_t i = 0; i < n; i++)
            take_in(store, &done[i]);
        if (mf_io_in_flight(store->io) == 0)
            count_end_of_reading(store);
        wait = false;
    } while (n == DONE_AT_ONCE);
}

mf_status mf_expert_loads_recover(mf_expert_store *store, mf_error *error)
{
    if (!store->is_broken)
        return MF_OK;
    MF_TRY(mf_io_reset(store->io, error));
    store->is_broken = false;
    mf_expert_places_recover(store);
    for (uint32_t i = 0; i < store->n_slots; i++) {
        if (store->slots[i].state != MF_SLOT_LOST)
            continue;
        store->slots[i].state = MF_SLOT_EMPTY;
        if (i < atomic_load(&store->n_active))
            mf_expert_slot_put_empty(store, i);
        else
            mf_expert_slot_give_back(store, i);
    }
    return MF_OK;
}

void mf_expert_loads_drain(mf_expert_store *store)
{
    mf_expert_loads_send(store);
    while (!store->is_broken && mf_io_in_flight(store->io) > 0) {
        mf_expert_loads_collect(store, true);
        mf_expert_loads_send(store);
    }
    bool found = true;
    while (found && mf_expert_places_wait(store, &found, NULL) == MF_OK)
        continue;
}
