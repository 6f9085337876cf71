/* SPDX-License-Identifier: MIT */
/* Slots of several sizes: their order and how many fit, and a store whose pool has exactly so many
 * bytes as they take, with maps whose layers differ, and the experts of a layer. */
#include "expert_fixture.h"

#include <unistd.h>

#define GUARD 4096u

/* -------------------------------------------------------------------------------- arithmetic -- */

static void test_order(void)
{
    const mf_slot_sizes sizes = {
        .n = 3, .n_first = 5, .bytes = {20480, 12288, 8192}, .n_experts = {16, 16, 32}};
    mf_slot_order order = {.sizes = &sizes};
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < 64; i++) {
        CHECK_U64(mf_slot_sizes_bytes(&sizes, i), n_bytes);
        CHECK_U64(mf_slot_sizes_fit(&sizes, n_bytes + 7 * i, 7, 64), i);
        CHECK_U64(mf_slot_sizes_fit(&sizes, n_bytes + 7 * i + 8192 + 6, 7, i + 1), i);
        const uint32_t size = mf_slot_order_next(&order);
        n_bytes += sizes.bytes[size];
        CHECK(size == 0 || i >= 5);
        for (uint32_t j = 0; j < 3; j++) { /* in its share, but for those that came first */
            const uint64_t all = (uint64_t)(i + 1) * sizes.n_experts[j];
            CHECK(64 * order.n_of[j] <= all + (j == 0 ? 5u : 1u) * 64);
            CHECK(64 * order.n_of[j] + (j == 0 ? 1u : 5u) * 64 >= all);
        }
    }
    CHECK(order.n_of[0] == 16 && order.n_of[1] == 16 && order.n_of[2] == 32);
    CHECK_U64(n_bytes, 16 * 20480 + 16 * 12288 + 32 * 8192);
    CHECK_U64(mf_slot_sizes_fit(&sizes, UINT64_MAX, 0, 1000), 1000);
    CHECK_U64(mf_slot_sizes_mean(&sizes), n_bytes / 64);
    CHECK_U64(mf_slot_sizes_find(&sizes, 1), 2);
    CHECK_U64(mf_slot_sizes_find(&sizes, 8192), 2);
    CHECK_U64(mf_slot_sizes_find(&sizes, 8193), 1);
    CHECK_U64(mf_slot_sizes_find(&sizes, 20480), 0);
    const mf_slot_sizes even = mf_slot_sizes_even(4096);
    CHECK_U64(mf_slot_sizes_bytes(&even, 10), 40960);
    CHECK_U64(mf_slot_sizes_fit(&even, 40959, 0, 100), 9);
    CHECK_U64(mf_slot_sizes_fit(&even, 40960, 4096, 100), 5);
    CHECK_U64(mf_slot_sizes_bytes(&even, UINT64_MAX / 2), UINT64_MAX);
}

/* A map of layers of two experts each, of one part of these bytes. */
static mf_expert_map map_of(const uint64_t *n_bytes, uint32_t n_layers, mf_expert_part *parts)
{
    for (uint32_t i = 0; i < n_layers; i++)
        parts[i] = (mf_expert_part){.n_bytes = n_bytes[i], .stride = n_bytes[i]};
    return (mf_expert_map){.n_layers = n_layers, .n_experts = 2, .n_parts = 1, .parts = parts};
}

static void test_of_maps(void)
{
    /* five sizes, of which the first two differ by less than a part in 64 */
    static const uint64_t few[] = {8192, 409600, 405504, 8192, 204800, 16384};
    static const uint64_t many[] = {163840, 180224, 196608, 212992, 229376, 245760,
                                    262144, 278528, 294912, 311296, 327680, 163840};
    mf_expert_part parts[12];
    mf_slot_sizes sizes;
    mf_expert_map map = map_of(few, 6, parts);
    mf_slot_sizes_of(&map, false, 3, &sizes);
    CHECK(sizes.n == 4 && sizes.n_first == 3);
    CHECK(sizes.bytes[0] == 409600 && sizes.bytes[1] == 204800 && sizes.bytes[2] == 16384 &&
          sizes.bytes[3] == 8192);
    CHECK(sizes.n_experts[0] == 4 && sizes.n_experts[1] == 2 && sizes.n_experts[2] == 2 &&
          sizes.n_experts[3] == 4);

    map = map_of(many, 12, parts);
    mf_slot_sizes_of(&map, false, 0, &sizes);
    CHECK(sizes.n == MF_SLOT_SIZES && sizes.n_first == 1 && sizes.bytes[0] == 327680);
    uint64_t n_experts = 0, n_wasted = 0;
    for (uint32_t i = 0; i < sizes.n; i++) {
        CHECK(i == 0 || sizes.bytes[i] < sizes.bytes[i - 1]);
        n_experts += sizes.n_experts[i];
    }
    CHECK_U64(n_experts, 24);
    for (uint32_t i = 0; i < 12; i++) {
        const uint64_t bytes = sizes.bytes[mf_slot_sizes_find(&sizes, many[i])];
        CHECK(bytes >= many[i]);
        n_wasted += bytes - many[i];
    }
    CHECK(n_wasted <= 4 * 16384); /* four of twelve have slots of the next larger size */
    map.n_layers = 0;
    mf_slot_sizes_of(&map, true, 1, &sizes);
    CHECK(sizes.n == 0 && mf_slot_sizes_mean(&sizes) == 0);
}

/* Of a layer's experts those that are larger come early, until all of them have slots. */
static void test_hot(void)
{
    static const uint8_t form_of[] = {0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const uint64_t form_bytes[] = {409600, 204800};
    const mf_expert_part parts[] = {
        {.n_bytes = 409600, .stride = 409600, .form_of = form_of, .form_bytes = form_bytes},
        {.n_bytes = 409600, .stride = 409600}}; /* a layer of large ones is no hotter than others */
    const mf_expert_map map = {.n_layers = 2, .n_experts = 16, .n_parts = 1, .parts = parts};
    const mf_expert_map one = {.n_layers = 1, .n_experts = 16, .n_parts = 1, .parts = parts};
    mf_slot_sizes sizes;
    mf_slot_forms forms;
    REQUIRE(mf_slot_forms_of(&map, 0, true, &forms));
    CHECK(forms.bytes[0] == 409600 && forms.bytes[1] == 204800);
    CHECK(forms.n_experts[0] == 2 && forms.n_experts[1] == 14 && forms.n_experts[2] == 0);
    CHECK_U64(mf_slot_layer_bytes(&map, 0, true), 409600);
    mf_slot_sizes_of(&map, true, 1, &sizes);
    CHECK(sizes.n == 2 && sizes.n_experts[0] == 18 && sizes.n_experts[1] == 14);
    CHECK(sizes.n_hot[0] == 2 && sizes.n_hot[1] == 0);

    mf_slot_sizes_of(&one, true, 1, &sizes);
    CHECK(sizes.n == 2 && sizes.n_experts[0] == 2 && sizes.n_hot[0] == 2);
    mf_slot_order order = {.sizes = &sizes};
    for (uint32_t i = 0; i < 4; i++) /* 2 that count as 16, of 30 */
        (void)mf_slot_order_next(&order);
    CHECK(order.n_of[0] == 2 && order.n_of[1] == 2);
    for (uint32_t i = 4; i < 16; i++)
        CHECK_U64(mf_slot_order_next(&order), 1);
    CHECK_U64(mf_slot_sizes_bytes(&sizes, 16), 2 * 409600 + 14 * 204800);
}

/* --------------------------------------------------------------------------------- the store -- */

typedef struct sized_rig {
    rig r;
    mf_slot_sizes sizes;
    uint64_t pool_bytes;
} sized_rig;

/* As memory that was given back: it reads as zeros. */
static bool discard(void *ctx, uint64_t at, uint64_t n_bytes)
{
    const sized_rig *s = ctx;
    memset(s->r.pool + at, 0, n_bytes);
    return true;
}

static void sized_open(sized_rig *s, const io_case *c, world *w, uint32_t n_first, uint32_t n_slots,
                       uint32_t n_least)
{
    mf_error error;
    rig *r = &s->r;
    *r = (rig){.w = w, .fault = {.seed = n_slots}, .n_slots = n_slots};
    r->io = open_case(c, &r->fault, 8, NULL);
    add_files(r);
    mf_slot_sizes_of(&w->map, true, n_first, &s->sizes);
    REQUIRE(s->sizes.n != 0);
    s->pool_bytes = mf_slot_sizes_bytes(&s->sizes, n_slots);
    r->pool = aligned_alloc(4096, s->pool_bytes + GUARD);
    REQUIRE(r->pool != NULL);
    memset(r->pool, 0, s->pool_bytes);
    memset(r->pool + s->pool_bytes, 0x5a, GUARD);
    mf_expert_store_options options = rig_options(r);
    options.sizes = &s->sizes;
    options.memory.n_bytes = s->pool_bytes;
    options.memory.ctx = s;
    options.memory.discard = discard;
    options.n_slots_least = n_least;
    REQUIRE_OK(mf_expert_store_open(&options, &r->store, &error), &error);
    CHECK_U64(mf_expert_store_n_slots_most(r->store), n_slots);
}

static void sized_close(sized_rig *s)
{
    for (uint32_t i = 0; i < GUARD; i++)
        CHECK(s->r.pool[s->pool_bytes + i] == 0x5a);
    rig_close(&s->r);
}

/* Of slots that are not in force and hold nothing the memory was given back. */
static void check_given_back(const sized_rig *s)
{
    const mf_expert_store *store = s->r.store;
    for (uint32_t i = (uint32_t)mf_expert_store_n_slots(store); i < store->n_slots; i++) {
        const unsigned char *slot = s->r.pool + store->slot_at[i];
        const uint64_t n_bytes = mf_expert_slot_bytes_of(store, i);
        uint64_t n_zero = 0;
        if (store->slots[i].state != MF_SLOT_EMPTY) /* may be being read into */
            continue;
        while (n_zero < n_bytes && slot[n_zero] == 0)
            n_zero++;
        CHECK_MSG(n_zero == n_bytes, "slot %u of %u still has memory", i, store->n_slots);
    }
}

/* Every expert's slot has room for it, slots follow one another, and what is counted is so. */
static void check_slots(const sized_rig *s)
{
    const mf_expert_store *store = s->r.store;
    uint32_t n_guests = 0, n_empty = 0, n_active_of[MF_SLOT_SIZES] = {0};
    const uint32_t n_active = (uint32_t)mf_expert_store_n_slots(store);
    for (uint32_t i = 0; i < store->n_slots; i++) {
        const mf_expert_slot *slot = &store->slots[i];
        CHECK_U64(mf_expert_slot_bytes_of(store, i), s->sizes.bytes[store->slot_size[i]]);
        n_active_of[store->slot_size[i]] += i < n_active;
        n_empty += i < n_active && slot->state == MF_SLOT_EMPTY;
        if (slot->state != MF_SLOT_HELD && slot->state != MF_SLOT_LOADING)
            continue;
        const uint32_t layer = slot->key / store->map.n_experts;
        const uint32_t expert = slot->key % store->map.n_experts;
        mf_slot_forms forms;
        REQUIRE(mf_slot_forms_of(&store->map, layer, false, &forms));
        CHECK(mf_expert_slot_bytes_of(store, i) >=
              forms.bytes[mf_expert_map_form(&store->map, layer, expert)]);
        n_guests += store->slot_size[i] != store->key_size[slot->key];
    }
    CHECK_U64(store->slot_at[store->n_slots], s->pool_bytes);
    CHECK_U64(store->n_guests, n_guests);
    CHECK_U64(store->n_empty, n_empty);
    for (uint32_t i = 0; i < s->sizes.n; i++)
        CHECK_U64(store->n_active_of[i], n_active_of[i]);
    check_given_back(s);
}

/* All that is asked for comes, whole, and is given back at once. */
static void fetch_some(sized_rig *s, uint32_t layer, uint32_t n)
{
    uint32_t experts[MAX_EXPERTS];
    mf_expert_fetch *f = NULL;
    mf_expert_ready ready[MAX_EXPERTS];
    mf_error error;
    uint32_t n_ready = 1, n_got = 0;
    random_choice(s->r.w, experts, n);
    REQUIRE_OK(mf_expert_fetch_begin(s->r.store, layer, experts, n, &f, &error), &error);
    while (n_got < n && n_ready > 0) {
        REQUIRE_OK(mf_expert_fetch_next(f, ready, MAX_EXPERTS, &n_ready, &error), &error);
        for (uint32_t i = 0; i < n_ready; i++) {
            check_expert(&s->r, layer, experts[ready[i].index], &ready[i]);
            mf_expert_fetch_release(f, ready[i].index, 0);
        }
        n_got += n_ready;
    }
    CHECK_U64(n_got, n);
    mf_expert_fetch_end(f, 0);
    check_slots(s);
}

static void hint_some(sized_rig *s)
{
    uint32_t experts[MAX_EXPERTS];
    world *w = s->r.w;
    const uint32_t n = random_choice(w, experts, 1 + (uint32_t)below(&w->random, w->map.n_experts));
    mf_expert_store_hint(s->r.store, (uint32_t)below(&w->random, w->map.n_layers), experts, n);
}

/* A chunk of work on a random map: fetches of any size, hints, pools that shrink and grow. */
static void test_any(const io_case *c, const char *dir, uint64_t seed)
{
    world *w = world_create(dir, seed);
    sized_rig s;
    if (seed % 2 == 1)
        give_forms(w);
    const uint32_t all = w->map.n_layers * w->map.n_experts;
    const uint32_t n_first = 1 + (uint32_t)below(&w->random, w->map.n_experts);
    const uint32_t n_slots = n_first + (uint32_t)below(&w->random, all - n_first + 1);
    sized_open(&s, c, w, n_first, n_slots, n_first);
    if (seed % 3 == 0)
        break_a_little(&s.r);
    for (uint32_t i = 0; i < 60; i++) {
        if (below(&w->random, 4) == 0)
            hint_some(&s);
        if (below(&w->random, 6) == 0)
            mf_expert_store_want_slots(s.r.store, below(&w->random, n_slots + 1));
        fetch_some(&s, (uint32_t)below(&w->random, w->map.n_layers),
                   1 + (uint32_t)below(&w->random, w->map.n_experts));
        check_look(s.r.store);
    }
    sized_close(&s);
    world_free(w);
}

/* Three layers of eight experts, of which the middle one has larger ones. */
static world *mixed_world(const char *dir)
{
    world *w = plain_world(dir);
    w->map.n_layers = 3;
    for (uint32_t i = 0; i < 9; i++)
        w->parts[i] = (mf_expert_part){.file = i % N_FILES,
                                       .offset = 16384u * i,
                                       .stride = 32768,
                                       .n_bytes = i / 3 == 1 ? 16384 : 8192};
    return w;
}

/* As many bytes as all experts take hold all of them, which slots of one size would not; where they
 * are is told in units. */
static void test_whole(const io_case *c, const char *dir)
{
    world *w = mixed_world(dir);
    sized_rig s;
    mf_error error;
    sized_open(&s, c, w, 4, 24, 0);
    CHECK(s.sizes.n == 2);
    CHECK_U64(s.pool_bytes, 8 * (16 * 3 * 1024 + 2 * 8 * 3 * 1024));
    REQUIRE_OK(mf_expert_store_fill(s.r.store, &error), &error);
    check_slots(&s);
    CHECK_U64(s.r.store->n_guests, 0);
    CHECK_U64(mf_expert_store_n_units(s.r.store) * mf_expert_store_unit_bytes(s.r.store),
              s.pool_bytes);
    for (uint32_t layer = 0; layer < 3; layer++) {
        uint32_t slots[8], held[8], part_at[MF_MAX_EXPERT_PARTS];
        REQUIRE(mf_expert_store_layer(s.r.store, layer, slots, part_at));
        mf_expert_store_held(s.r.store, layer, held, part_at);
        for (uint32_t e = 0; e < 8; e++) {
            mf_expert_ready at = {.slot = slots[e]};
            for (uint32_t p = 0; p < 3; p++)
                at.part_at[p] = slots[e] * mf_expert_store_unit_bytes(s.r.store) + part_at[p];
            check_expert(&s.r, layer, e, &at);
            CHECK_U64(held[e], slots[e]);
        }
    }
    CHECK_U64(mf_expert_store_n_given_up(s.r.store), 0);
    sized_close(&s);
    world_free(w);
}

/* A layer in which experts differ: all have a slot of their own size where there are so many bytes,
 * also if more large ones come first than there are large experts. */
static void test_whole_of_forms(const io_case *c, const char *dir, uint32_t n_large)
{
    world *w = mixed_world(dir);
    sized_rig s;
    mf_error error;
    w->map.n_layers = 1;
    for (uint32_t e = 0; e < 8; e++)
        w->form_of[0][e] = e >= n_large;
    for (uint32_t p = 0; p < 3; p++) {
        w->parts[p].n_bytes = w->form_bytes[p][0] = 16384;
        w->form_bytes[p][1] = 8192;
        w->parts[p].form_of = w->form_of[0];
        w->parts[p].form_bytes = w->form_bytes[p];
    }
    sized_open(&s, c, w, 4, 8, 0);
    CHECK(s.sizes.n == 2 && s.sizes.n_experts[0] == n_large);
    const uint32_t n_first = n_large > 4 ? n_large : 4;
    CHECK_U64(s.pool_bytes, 3 * (n_first * 16384 + (8 - n_first) * 8192));
    REQUIRE_OK(mf_expert_store_fill(s.r.store, &error), &error);
    check_slots(&s);
    for (uint32_t i = 0; i < 8; i++)
        CHECK(s.r.store->slots[i].state == MF_SLOT_HELD);
    CHECK_U64(mf_expert_store_n_given_up(s.r.store), 0);
    uint32_t slots[8], part_at[MF_MAX_EXPERT_PARTS]; /* tables are of experts that lie alike */
    CHECK(!mf_expert_store_layer(s.r.store, 0, slots, part_at));
    mf_expert_store_held(s.r.store, 0, slots, part_at);
    for (uint32_t e = 0; e < 8; e++) {
        mf_expert_ready at = {.slot = slots[e]};
        CHECK((slots[e] != UINT32_MAX) == (e < n_large));
        for (uint32_t p = 0; p < 3; p++)
            at.part_at[p] = slots[e] * mf_expert_store_unit_bytes(s.r.store) + part_at[p];
        if (slots[e] != UINT32_MAX)
            check_expert(&s.r, 0, e, &at);
    }
    sized_close(&s);
    world_free(w);
}

/* A pool that shrinks gives back the memory of slots that hold nothing any more, too. */
static void test_emptied(const io_case *c, const char *dir)
{
    world *w = mixed_world(dir);
    sized_rig s;
    mf_error error;
    sized_open(&s, c, w, 4, 24, 4);
    REQUIRE_OK(mf_expert_store_fill(s.r.store, &error), &error);
    for (uint32_t layer = 0; layer < 3; layer++)
        mf_expert_store_forget(s.r.store, layer);
    CHECK_U64(s.r.store->n_empty, 24);
    mf_expert_store_want_slots(s.r.store, 4);
    CHECK(mf_expert_store_resize(s.r.store));
    CHECK_U64(mf_expert_store_n_slots(s.r.store), 4);
    check_slots(&s);
    fetch_some(&s, 1, 8); /* what is in force serves on */
    sized_close(&s);
    world_free(w);
}

/* So few slots that all are of the largest size: small experts have them too, and leave them. */
static void test_few(const io_case *c, const char *dir)
{
    world *w = mixed_world(dir);
    sized_rig s;
    sized_open(&s, c, w, 4, 5, 0);
    for (uint32_t i = 0; i < 12; i++)
        fetch_some(&s, i % 3, 4);
    sized_close(&s);
    world_free(w);
}

/* Two fetches at once, of layers of different sizes, each of as many experts as come first. */
static void test_two(const io_case *c, const char *dir)
{
    static const uint32_t experts[] = {3, 5, 6, 1};
    world *w = mixed_world(dir);
    sized_rig s;
    mf_error error;
    sized_open(&s, c, w, 4, 12, 0);
    for (uint32_t i = 0; i < 6; i++) {
        mf_expert_fetch *f[2];
        mf_expert_ready ready[4];
        for (uint32_t j = 0; j < 2; j++)
            REQUIRE_OK(mf_expert_fetch_begin(s.r.store, (i + j) % 3, experts, 4, &f[j], &error),
                       &error);
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t n = 1, n_got = 0;
            for (; n_got < 4 && n > 0; n_got += n) {
                REQUIRE_OK(mf_expert_fetch_next(f[j], ready, 4, &n, &error), &error);
                for (uint32_t k = 0; k < n; k++)
                    check_expert(&s.r, (i + j) % 3, experts[ready[k].index], &ready[k]);
            }
            CHECK_U64(n_got, 4);
            mf_expert_fetch_end(f[j], 0);
        }
        check_slots(&s);
    }
    sized_close(&s);
    world_free(w);
}

typedef struct seen {
    const sized_rig *s;
    uint32_t n_of[3][8];
} seen;

static mf_status see(void *user, uint32_t layer, mf_expert_ready *ready, uint32_t n,
                     mf_error *error)
{
    seen *all = user;
    (void)error;
    for (uint32_t i = 0; i < n; i++) {
        all->n_of[layer][ready[i].index]++;
        check_expert(&all->s->r, layer, ready[i].index, &ready[i]);
    }
    return MF_OK;
}

/* However few slots there are, and whichever of them a layer's experts fit into. */
static void test_each(const io_case *c, const char *dir)
{
    world *w = mixed_world(dir);
    for (uint32_t n_slots = 1; n_slots <= 24; n_slots++) {
        sized_rig s;
        mf_error error;
        seen all = {.s = &s};
        sized_open(&s, c, w, 1, n_slots, 0);
        REQUIRE_OK(mf_expert_store_each(s.r.store, 0, 3, see, &all, &error), &error);
        for (uint32_t i = 0; i < 24; i++)
            CHECK_U64(all.n_of[i / 8][i % 8], 1);
        check_slots(&s);
        CHECK_U64(s.r.store->n_empty, n_slots);
        sized_close(&s);
    }
    world_free(w);
}

static void test_refused(const io_case *c, const char *dir)
{
    world *w = mixed_world(dir);
    sized_rig s;
    mf_error error;
    mf_expert_store *store = NULL;
    sized_open(&s, c, w, 1, 4, 0);
    mf_expert_store_options options = rig_options(&s.r);
    const mf_slot_sizes small = mf_slot_sizes_even(24576), none = {0};
    options.sizes = &small;
    CHECK_STATUS(mf_expert_store_open(&options, &store, &error), MF_ERR_ARGUMENT);
    options.sizes = &none;
    CHECK_STATUS(mf_expert_store_open(&options, &store, &error), MF_ERR_ARGUMENT);
    sized_close(&s);
    world_free(w);
}

int main(void)
{
    const char *dirs[2];
    io_case cases[4];
    const uint32_t n_dirs = scratch_dirs(dirs), n_cases = io_cases(cases);
    test_order();
    test_of_maps();
    test_hot();
    for (uint32_t c = 0; c < n_cases; c++) {
        for (uint64_t seed = 1; seed <= 12; seed++)
            test_any(&cases[c], dirs[n_dirs - 1], seed * 4 + c);
        test_whole(&cases[c], dirs[n_dirs - 1]);
        for (uint32_t n_large = 1; n_large < 8; n_large += 2)
            test_whole_of_forms(&cases[c], dirs[n_dirs - 1], n_large);
        test_few(&cases[c], dirs[n_dirs - 1]);
        test_emptied(&cases[c], dirs[n_dirs - 1]);
        test_two(&cases[c], dirs[n_dirs - 1]);
        test_each(&cases[c], dirs[n_dirs - 1]);
        test_refused(&cases[c], dirs[n_dirs - 1]);
    }
    return test_result();
}
