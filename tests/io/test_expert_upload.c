/* SPDX-License-Identifier: MIT */
/*
 * Slots that the host cannot reach, on a made device: its operations wait in a stream and are done
 * late, in any order that the stream's meaning allows. An upload copies what lies in its place when
 * it is done, not when it is asked for; what uses an expert looks at its bytes when it is done,
 * too. So a place or a slot that is written to too early shows. Places are the level below the
 * slots: what they hold is not read again.
 */
#include "expert_fixture.h"

#include "experts/store_impl.h"

#include <errno.h>

#define OPS_MAX 4096u

typedef struct device_op {
    uint32_t slot;
    uint32_t n_pieces; /* of an upload; 0: a use */
    mf_slot_piece pieces[MF_MAX_EXPERT_PARTS];
    uint32_t layer, expert;
    mf_expert_ready ready;
    bool is_done;
} device_op;

typedef struct device {
    rig *r;
    unsigned char *memory;        /* the slots */
    const mf_expert_store *store; /* also while it is closed */
    device_op ops[OPS_MAX];
    uint32_t n_ops, n_all_done; /* all before that one are done */
    uint64_t random;
    uint32_t laziness; /* a question does nothing in so many of 1000 */
    uint64_t n_uploads, fail_upload_at;
    bool is_lost;
} device;

static void do_op(device *d, device_op *op)
{
    const world *w = d->r->w;
    for (uint32_t i = 0; i < op->n_pieces; i++)
        memcpy(d->memory + op->pieces[i].slot_at, op->pieces[i].from, op->pieces[i].n_bytes);
    for (uint32_t p = 0; p < w->map.n_parts && op->n_pieces == 0; p++)
        CHECK_MSG(memcmp(d->memory + op->ready.part_at[p], true_bytes(w, op->layer, op->expert, p),
                         mf_expert_part_bytes(&w->parts[op->layer * w->map.n_parts + p],
                                              op->expert)) == 0,
                  "layer %u expert %u part %u differs when it is used", op->layer, op->expert, p);
    op->is_done = true;
    while (d->n_all_done < d->n_ops && d->ops[d->n_all_done].is_done)
        d->n_all_done++;
}

/* Operations on the same slot keep their order. */
static bool can_do(const device *d, uint32_t i)
{
    if (d->ops[i].is_done)
        return false;
    for (uint32_t j = d->n_all_done; j < i; j++) {
        if (!d->ops[j].is_done && d->ops[j].slot == d->ops[i].slot)
            return false;
    }
    return true;
}

static void do_some(device *d, uint32_t n)
{
    while (n-- > 0 && d->n_all_done < d->n_ops) {
        uint32_t i = d->n_all_done + (uint32_t)below(&d->random, d->n_ops - d->n_all_done);
        while (!can_do(d, i))
            i = i + 1 < d->n_ops ? i + 1 : d->n_all_done;
        do_op(d, &d->ops[i]);
    }
}

/* A ticket is one more than its operation. An upload's is done with it and the uploads before it, a
 * use's with all up to it: tickets of either are done in their order. */
static bool is_done(const device *d, mf_ticket ticket)
{
    if (d->ops[ticket - 1].n_pieces == 0)
        return d->n_all_done >= ticket;
    for (uint32_t i = d->n_all_done; i < ticket; i++)
        if (d->ops[i].n_pieces > 0 && !d->ops[i].is_done)
            return false;
    return true;
}

static bool device_is_done(void *ctx, mf_ticket ticket)
{
    device *d = ctx;
    REQUIRE(ticket > 0 && ticket <= d->n_ops);
    if (below(&d->random, 1000) >= d->laziness)
        do_some(d, 1 + (uint32_t)below(&d->random, 3));
    return is_done(d, ticket);
}

/* What this upload copied from has been uploaded once more since: its place waits for that one. */
static bool is_uploaded_again(const device *d, uint32_t i)
{
    for (uint32_t j = i + 1; j < d->n_ops; j++)
        if (d->ops[j].n_pieces > 0 && d->ops[j].pieces[0].from == d->ops[i].pieces[0].from)
            return true;
    return false;
}

/* Who waits for any place waits for the first whose upload is not done. */
static void check_first_upload(const device *d, mf_ticket ticket)
{
    for (uint32_t i = 0; i + 1 < ticket && d->ops[ticket - 1].n_pieces > 0; i++)
        CHECK_MSG(d->ops[i].n_pieces == 0 || d->ops[i].is_done || is_uploaded_again(d, i),
                  "upload %llu is waited for before upload %u", (unsigned long long)ticket, i + 1);
}

static mf_status device_wait_for(void *ctx, mf_ticket ticket, mf_error *error)
{
    device *d = ctx;
    if (d->is_lost)
        return mf_fail(error, MF_ERR_IO, "the device is lost");
    check_first_upload(d, ticket);
    while (!is_done(d, ticket))
        do_some(d, 1);
    return MF_OK;
}

static device_op *add_op(device *d)
{
    REQUIRE(d->n_ops < OPS_MAX);
    d->ops[d->n_ops] = (device_op){.n_pieces = 0};
    return &d->ops[d->n_ops++];
}

static uint32_t slot_at(const mf_expert_store *store, uint64_t at)
{
    uint32_t slot = 0;
    while (store->slot_at[slot + 1] <= at)
        slot++;
    return slot;
}

static mf_status device_upload(void *ctx, const mf_slot_piece *pieces, uint32_t n,
                               mf_ticket *ticket, mf_error *error)
{
    device *d = ctx;
    if (++d->n_uploads == d->fail_upload_at)
        return mf_fail(error, MF_ERR_IO, "the device takes no upload");
    device_op *op = add_op(d);
    REQUIRE(n > 0 && n <= MF_MAX_EXPERT_PARTS);
    const uint64_t *bounds = d->store->slot_at;
    op->slot = slot_at(d->store, pieces->slot_at);
    op->n_pieces = n;
    for (uint32_t i = 0; i < n; i++) {
        op->pieces[i] = pieces[i];
        CHECK(pieces[i].n_bytes > 0 && pieces[i].slot_at % 64 == 0);
        CHECK(pieces[i].slot_at >= bounds[op->slot]);
        CHECK(pieces[i].slot_at + pieces[i].n_bytes <= bounds[op->slot + 1]);
    }
    *ticket = d->n_ops;
    return MF_OK;
}

/* Two rooms, the second with a place or two and bytes that are none. */
static void cut_rooms(unsigned char *bytes, uint64_t n_places, uint64_t slot_bytes,
                      mf_expert_room rooms[2])
{
    const uint64_t n_second = n_places / 3;
    const uint64_t first = (n_places - n_second) * slot_bytes;
    rooms[0] = (mf_expert_room){bytes, first};
    rooms[1] = (mf_expert_room){bytes + first, n_second * slot_bytes + slot_bytes - 1};
}

/* The store of a rig, over a device, with places for n experts; slots of these sizes, or of one. */
static device *device_open_sized(rig *r, uint32_t n_places, const mf_slot_sizes *sizes)
{
    mf_error error = {0};
    device *d = calloc(1, sizeof *d);
    mf_expert_store_close(&r->store);
    free(r->pool);
    r->slot_bytes = mf_expert_slot_bytes_anywhere(&r->w->map);
    r->pool = aligned_alloc(4096, r->slot_bytes * r->n_slots);
    unsigned char *bytes = aligned_alloc(4096, (n_places + 1) * r->slot_bytes);
    mf_expert_room rooms[2];
    REQUIRE(d != NULL && bytes != NULL && r->pool != NULL);
    cut_rooms(bytes, n_places, r->slot_bytes, rooms);
    d->r = r;
    d->random = n_places * 77 + 5;
    d->laziness = 900;
    d->memory = r->pool;
    r->rooms = bytes;
    mf_expert_store_options options = rig_options(r);
    options.memory = (mf_slot_memory){.n_bytes = r->slot_bytes * r->n_slots,
                                      .ctx = d,
                                      .is_done = device_is_done,
                                      .wait_for = device_wait_for,
                                      .upload = device_upload};
    options.rooms = rooms;
    options.n_rooms = 2;
    options.sizes = sizes;
    REQUIRE_OK(mf_expert_store_open(&options, &r->store, &error), &error);
    CHECK_U64(mf_expert_store_n_places(r->store), n_places);
    d->store = r->store;
    return d;
}

static device *device_open(rig *r, uint32_t n_places)
{
    return device_open_sized(r, n_places, NULL);
}

static void device_close(rig *r, device *d)
{
    d->is_lost = false;
    mf_expert_store_close(&r->store);
    for (uint32_t i = 0; i < d->n_ops; i++)
        CHECK(d->ops[i].is_done || d->ops[i].n_pieces == 0); /* closing waits for uploads */
    do_some(d, OPS_MAX);
    free(r->rooms);
    free(d);
    rig_close(r);
}

/* Uses each expert as it comes: a use is recorded, and its ticket keeps the slot. */
static mf_status use_all(device *d, uint32_t layer, const uint32_t *experts, uint32_t n,
                         mf_error *error)
{
    mf_expert_fetch *f = NULL;
    uint32_t n_ready = 1, n_used = 0;
    mf_status status = mf_expert_fetch_begin(d->r->store, layer, experts, n, &f, error);
    if (status != MF_OK)
        return status;
    while (n_ready > 0) {
        mf_expert_ready ready[3];
        status = mf_expert_fetch_next(f, ready, 3, &n_ready, error);
        if (status != MF_OK)
            break;
        for (uint32_t i = 0; i < n_ready; i++) {
            device_op *op = add_op(d);
            op->layer = layer;
            op->expert = experts[ready[i].index];
            op->ready = ready[i];
            op->slot = ready[i].slot;
        }
        for (uint32_t i = 0; i < n_ready; i++)
            mf_expert_fetch_release(f, ready[i].index, d->n_ops - n_ready + i + 1);
        n_used += n_ready;
    }
    CHECK(status != MF_OK || n_used == n);
    mf_expert_fetch_end(f, 0);
    return status;
}

/* Which place has what; a place whose upload may not be done is not read into. */
static void check_places(const mf_expert_store *s)
{
    uint32_t n_empty = 0, n_reading = 0;
    check_look(s);
    for (uint32_t i = 0; i < s->n_places; i++) {
        const mf_expert_place *place = &s->places[i];
        n_empty += place->state == MF_PLACE_EMPTY;
        n_reading += place->state == MF_PLACE_READING;
        CHECK(place->state != MF_PLACE_HELD || s->place_of[place->key] == i);
    }
    CHECK_U64(n_empty, s->n_empty_places);
    for (uint32_t i = 0; i < s->n_loads; i++) {
        const mf_expert_load *load = &s->loads[i];
        n_reading -= load->state != MF_LOAD_FREE;
        CHECK(load->state == MF_LOAD_FREE || s->places[load->place].state == MF_PLACE_READING);
    }
    CHECK_U64(n_reading, 0);
    for (uint32_t key = 0; key < s->map.n_layers * s->map.n_experts; key++) {
        const uint32_t place = s->place_of[key];
        CHECK(place == MF_NONE ||
              (s->places[place].key == key && (s->places[place].state == MF_PLACE_HELD ||
                                               s->places[place].state == MF_PLACE_READING)));
    }
}

static void test_random_uses(const io_case *c, const char *dir, uint64_t seed)
{
    mf_error error = {0};
    world *w = world_create(dir, seed);
    if (seed % 2 == 0)
        give_forms(w);
    uint32_t n_all = w->map.n_layers * w->map.n_experts, experts[MAX_EXPERTS];
    const uint32_t slots[] = {1, 3, n_all / 2 + 1, n_all, 1, n_all / 3 + 1};
    const uint32_t places[] = {8, 3, 2, 1, n_all, n_all / 2 + 1};
    for (int k = 0; k < 6; k++) {
        rig r;
        rig_open(&r, c, w, slots[k], 0);
        mf_slot_sizes sizes;
        mf_slot_sizes_of(&w->map, true, 1, &sizes);
        device *d = device_open_sized(&r, places[k], k % 2 == 0 ? &sizes : NULL);
        break_a_little(&r);
        for (int i = 0; i < 60; i++) {
            uint32_t layer = (uint32_t)below(&w->random, w->map.n_layers);
            uint32_t n = 1 + (uint32_t)below(&w->random, w->map.n_experts);
            random_choice(w, experts, n);
            if (below(&w->random, 3) == 0)
                mf_expert_store_hint(r.store, (layer + 1) % w->map.n_layers, experts, n);
            REQUIRE_OK(use_all(d, layer, experts, n, &error), &error);
            check_places(r.store);
        }
        mf_expert_stats s;
        mf_expert_store_stats(r.store, &s);
        CHECK(d->n_uploads > 0 && s.n_place_hits <= s.n_misses);
        CHECK(s.n_reads >= d->n_uploads - s.n_place_hits - s.n_hints);
        device_close(&r, d);
    }
    world_free(w);
}

static uint64_t part_bytes(const world *w, uint32_t layer)
{
    uint64_t n_bytes = 0;
    for (uint32_t p = 0; p < w->map.n_parts; p++)
        n_bytes += w->parts[layer * w->map.n_parts + p].n_bytes;
    return n_bytes;
}

/* Places for all experts, slots for few: each is read once, by demand or by foresight, and uploaded
 * whenever a slot does not hold it. */
static void test_read_once(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir);
    const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    mf_expert_stats first, s;
    rig r;
    rig_open(&r, c, w, 3, 0);
    device *d = device_open(&r, 16);
    mf_expert_store_hint(r.store, 0, all, 2);
    for (uint32_t i = 0; i < 4; i++)
        REQUIRE_OK(use_all(d, i % 2, all, 8, &error), &error);
    mf_expert_store_stats(r.store, &first);
    CHECK(first.n_place_hits > 0);
    for (uint32_t i = 0; i < 30; i++) {
        mf_expert_store_hint(r.store, (i + 1) % 2, all, 3);
        REQUIRE_OK(use_all(d, i % 2, all, 8, &error), &error);
        check_places(r.store);
    }
    mf_expert_store_stats(r.store, &s);
    CHECK_U64(s.n_reads, first.n_reads);
    CHECK_U64(s.read_bytes, first.read_bytes);
    CHECK_U64(s.n_hits + s.n_misses, 34 * 8);
    CHECK_U64(s.n_place_hits - first.n_place_hits, s.n_misses - first.n_misses);
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < d->n_ops; i++)
        for (uint32_t p = 0; p < d->ops[i].n_pieces; p++)
            n_bytes += d->ops[i].pieces[p].n_bytes;
    CHECK_U64(s.upload_bytes, n_bytes);
    CHECK(n_bytes >= s.n_misses * part_bytes(w, 0));
    /* measuring reads them again, where they lie, and counts nothing */
    double rate = 0;
    REQUIRE_OK(mf_expert_store_measure(r.store, 3, 20, &rate, &error), &error);
    CHECK(rate > 0);
    check_places(r.store);
    mf_expert_store_stats(r.store, &first);
    CHECK_U64(first.upload_bytes, s.upload_bytes);
    CHECK_U64(first.n_place_hits, s.n_place_hits);
    REQUIRE_OK(use_all(d, 0, all, 8, &error), &error);
    REQUIRE_OK(use_all(d, 1, all, 8, &error), &error);
    mf_expert_store_stats(r.store, &s);
    CHECK_U64(s.n_reads, first.n_reads);
    device_close(&r, d);
    world_free(w);
}

/* An upload from a place that is refused leaves the expert in its place, for whoever asks next. */
static void test_refused_from_place(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir);
    const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    mf_expert_stats before, after;
    rig r;
    rig_open(&r, c, w, 2, 0);
    device *d = device_open(&r, 16);
    for (uint32_t i = 0; i < 2; i++)
        REQUIRE_OK(use_all(d, i, all, 8, &error), &error);
    mf_expert_store_stats(r.store, &before);
    for (uint64_t nth = 1; nth < 8; nth++) {
        d->fail_upload_at = d->n_uploads + nth;
        CHECK_STATUS(use_all(d, nth % 2, all, 8, &error), MF_ERR_IO);
        CHECK_CONTAINS(error.message, "takes no upload");
        check_places(r.store);
        d->fail_upload_at = d->n_uploads + 1;
        mf_expert_store_hint(r.store, nth % 2, all + nth, 1); /* whom nobody tells */
        d->fail_upload_at = 0;
        REQUIRE_OK(use_all(d, nth % 2, all, 8, &error), &error);
        check_places(r.store);
    }
    mf_expert_store_stats(r.store, &after);
    CHECK_U64(after.n_reads, before.n_reads);
    device_close(&r, d);
    world_free(w);
}

/* An upload that is refused, a device that is lost: the fetch says so, and the next ones work. */
static void test_failures(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    rig r;
    rig_open(&r, c, w, 4, 0);
    device *d = device_open(&r, 2);
    for (uint64_t nth = 1; nth < 9; nth++) {
        d->fail_upload_at = d->n_uploads + nth;
        mf_status status = use_all(d, nth % 2, experts, 8, &error);
        if (d->n_uploads >= d->fail_upload_at) {
            CHECK_STATUS(status, MF_ERR_IO);
            CHECK_CONTAINS(error.message, "takes no upload");
        }
        d->fail_upload_at = 0;
        REQUIRE_OK(use_all(d, nth % 2, experts, 8, &error), &error);
    }
    d->laziness = 1000;
    d->is_lost = true;
    CHECK_STATUS(use_all(d, 0, experts, 8, &error), MF_ERR_IO);
    CHECK_CONTAINS(error.message, "lost");
    d->is_lost = false;
    REQUIRE_OK(use_all(d, 1, experts, 8, &error), &error);
    if (c->inner != NULL) {
        for (uint64_t nth = 1; nth < 20; nth += 3) {
            r.fault.break_at = r.fault.n_calls + nth;
            (void)!use_all(d, 0, experts, 8, &error);
            r.fault.break_at = 0;
            REQUIRE_OK(use_all(d, 0, experts, 8, &error), &error);
            REQUIRE_OK(use_all(d, 1, experts, 8, &error), &error);
        }
    }
    double rate = 0;
    REQUIRE_OK(mf_expert_store_measure(r.store, 2, 10, &rate, &error), &error);
    CHECK(rate > 0);
    REQUIRE_OK(use_all(d, 0, experts, 8, &error), &error);
    device_close(&r, d);
    world_free(w);
}

/* An engine that cannot be started anew may still write to places that reads were going to: none of
 * them is used until it can, and then all of them. */
static void test_stays_broken(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error = {0};
    world *w = plain_world(dir);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (uint64_t nth = 1; nth < 14; nth += 3) {
        rig r;
        rig_open(&r, c, w, 4, 0);
        device *d = device_open(&r, 3);
        r.fault.hold_chance = 500;
        REQUIRE_OK(use_all(d, 1, experts, 8, &error), &error);
        r.fault.reset_fails = true;
        r.fault.break_at = r.fault.n_calls + nth;
        (void)!use_all(d, 0, experts, 8, &error);
        if (r.fault.n_calls >= r.fault.break_at) {
            const uint64_t n_uploads = d->n_uploads;
            for (int i = 0; i < 2; i++)
                CHECK_STATUS(use_all(d, 0, experts, 8, &error), MF_ERR_IO);
            mf_expert_store_hint(r.store, 1, experts, 8);
            CHECK_U64(d->n_uploads, n_uploads);
            uint32_t n_lost = 0;
            for (uint32_t i = 0; i < 3; i++)
                n_lost += r.store->places[i].state == MF_PLACE_LOST;
            CHECK(n_lost > 0);
            check_places(r.store);
        }
        r.fault.reset_fails = false;
        REQUIRE_OK(use_all(d, 0, experts, 8, &error), &error);
        REQUIRE_OK(use_all(d, 1, experts, 8, &error), &error);
        mf_expert_loads_drain(r.store);
        check_places(r.store);
        for (uint32_t i = 0; i < 3; i++)
            CHECK(r.store->places[i].state == MF_PLACE_HELD);
        CHECK_U64(mf_expert_store_n_slots(r.store), 4);
        device_close(&r, d);
    }
    world_free(w);
}

static void test_arguments(const io_case *c, const char *dir)
{
    mf_error error = {0};
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 4, 0);
    device *d = device_open(&r, 1);
    mf_expert_store *store = NULL;
    mf_expert_store_options good = rig_options(&r), bad;
    good.memory = (mf_slot_memory){.n_bytes = r.slot_bytes,
                                   .ctx = d,
                                   .is_done = device_is_done,
                                   .wait_for = device_wait_for,
                                   .upload = device_upload};
    const mf_expert_room room = {r.rooms, r.slot_bytes};
    good.rooms = &room;
    good.n_rooms = 1;
    for (int i = 0; i < 6; i++) {
        mf_expert_room other = room;
        bad = good;
        bad.rooms = &other;
        bad.memory.upload = i == 0 ? NULL : bad.memory.upload;
        bad.memory.is_done = i == 1 ? NULL : bad.memory.is_done;
        bad.memory.wait_for = i == 2 ? NULL : bad.memory.wait_for;
        other.bytes = i == 3 ? NULL : other.bytes + (i == 4 ? 8 : 0);
        other.n_bytes -= i == 5;
        CHECK_STATUS(mf_expert_store_open(&bad, &store, &error), MF_ERR_ARGUMENT);
    }
    REQUIRE_OK(mf_expert_store_open(&good, &store, &error), &error);
    mf_expert_store_close(&store);
    device_close(&r, d);
    world_free(w);
}

/* Where arrays lie after an upload: each at a multiple of 64, the same for all experts of a layer.
 */
static void test_places(void)
{
    const mf_expert_part parts[] = {{.n_bytes = 4000}, {.n_bytes = 1},  {.n_bytes = 0},
                                    {.n_bytes = 64},   {.n_bytes = 30}, {.n_bytes = 1}};
    const mf_expert_part large[] = {{.n_bytes = (uint64_t)3 << 30}, {.n_bytes = (uint64_t)1 << 30}};
    const uint32_t expected[] = {0, 4032, 4096};
    const mf_expert_map map = {.n_layers = 2, .n_experts = 7, .n_parts = 3, .parts = parts};
    const mf_expert_map too_large = {.n_layers = 1, .n_experts = 1, .n_parts = 2, .parts = large};
    uint32_t at[MF_MAX_EXPERT_PARTS];
    CHECK_U64(mf_expert_lay_parts(&map, 0, 0, at), 4096);
    for (uint32_t i = 0; i < 3; i++)
        CHECK_U64(at[i], expected[i]);
    CHECK_U64(mf_expert_lay_parts(&map, 1, 0, at), 192);
    CHECK(at[1] == 64 && at[2] == 128);
    const uint8_t form_of[] = {0, 1};
    const uint64_t form_bytes[][2] = {{4000, 100}, {30, 30}};
    const mf_expert_part formed[] = {
        {.n_bytes = 4000, .form_of = form_of, .form_bytes = form_bytes[0]},
        {.n_bytes = 30, .form_of = form_of, .form_bytes = form_bytes[1]}};
    const mf_expert_map forms = {.n_layers = 1, .n_experts = 2, .n_parts = 2, .parts = formed};
    CHECK(mf_expert_lay_parts(&forms, 0, 0, at) == 4096 && at[1] == 4032);
    CHECK(mf_expert_lay_parts(&forms, 0, 1, at) == 192 && at[1] == 128);
    CHECK(mf_expert_lay_parts(&too_large, 0, 0, at) == UINT64_MAX);
    CHECK_U64(mf_expert_slot_bytes_anywhere(&too_large), 0);
    const mf_expert_part tight[] = {{.n_bytes = 4095}, {.offset = 4095, .n_bytes = 4097}};
    const mf_expert_map packed = {.n_layers = 1, .n_experts = 1, .n_parts = 2, .parts = tight};
    CHECK_U64(mf_expert_slot_bytes(&packed), 8192);
    CHECK_U64(mf_expert_slot_bytes_anywhere(&packed), 12288);
}

/* Where reads put the parts of all experts of a layer at the same places, multiples of 64 from the
 * first one, an expert is uploaded in one piece; in the other layers part by part. */
static void test_in_one_piece(const io_case *c, const char *dir)
{
    static const uint64_t sizes[4] = {8192, 4096, 0, 12288};
    /* the first layer's parts lie alike within their blocks, and not in the files' order; the
     * second's one is off by 8; the third's strides are no blocks */
    static const uint64_t offsets[3][4] = {
        {400040, 200040, 0, 600104}, {400040, 200040, 0, 600112}, {400040, 200040, 0, 600104}};
    static const uint32_t all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    mf_error error = {0};
    mf_expert_stats s;
    world *w = plain_world(dir);
    rig r;
    w->map.n_layers = 3;
    w->map.n_parts = 4;
    for (uint32_t layer = 0; layer < 3; layer++)
        for (uint32_t p = 0; p < 4; p++)
            w->parts[layer * 4 + p] = (mf_expert_part){.file = p == 3,
                                                       .offset = offsets[layer][p],
                                                       .n_bytes = sizes[p],
                                                       .stride = sizes[p] + (layer == 2 ? 8 : 0)};
    rig_open(&r, c, w, 3, 0);
    device *d = device_open(&r, 24);
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t n_before = d->n_ops;
        REQUIRE_OK(use_all(d, i % 3, all, 8, &error), &error);
        for (uint32_t j = n_before; j < d->n_ops; j++)
            CHECK(d->ops[j].n_pieces == 0 ||
                  (i % 3 == 0 ? d->ops[j].n_pieces == 1 : d->ops[j].n_pieces > 1));
    }
    mf_expert_store_stats(r.store, &s);
    CHECK(s.n_place_hits > 0);
    /* all of it comes from places: there is nothing to read, but slots held little */
    mf_expert_fetch *f = NULL;
    REQUIRE_OK(mf_expert_fetch_begin(r.store, 0, all, 3, &f, &error), &error);
    CHECK(!mf_expert_fetch_was_held(f));
    mf_expert_ready ready[3];
    for (uint32_t n = 0, n_ready = 0; n < 3; n += n_ready)
        REQUIRE_OK(mf_expert_fetch_next(f, ready, 3, &n_ready, &error), &error);
    mf_expert_fetch_end(f, 0);
    REQUIRE_OK(mf_expert_fetch_begin(r.store, 0, all, 3, &f, &error), &error);
    CHECK(mf_expert_fetch_was_held(f) && mf_expert_fetch_is_ready(f));
    mf_expert_fetch_end(f, 0);
    device_close(&r, d);
    world_free(w);
}

int main(void)
{
    const char *dirs[2];
    io_case cases[4];
    uint32_t n_dirs = scratch_dirs(dirs), n_cases = io_cases(cases);
    test_places();
    for (uint32_t c = 0; c < n_cases; c++) {
        fprintf(stderr, "%s\n", cases[c].name);
        for (uint64_t seed = 1; seed <= 4; seed++)
            test_random_uses(&cases[c], dirs[seed % n_dirs], seed * 4 + c);
        test_failures(&cases[c], dirs[0]);
        test_read_once(&cases[c], dirs[0]);
        test_refused_from_place(&cases[c], dirs[0]);
        test_stays_broken(&cases[c], dirs[0]);
        test_in_one_piece(&cases[c], dirs[0]);
        test_arguments(&cases[c], dirs[0]);
    }
    return test_result();
}
