/* SPDX-License-Identifier: MIT */
/* The expert store over random maps: every part byte for byte, the cache against a plain model of
 * LRU, failures of every read, every allocation. */
#include "expert_fixture.h"
#include "failing_alloc.h"

#include <errno.h>

/* Runs an open fetch to its end: every expert is handed out once with the right bytes. Keeps up to
 * n_slots - 1 of them unreleased for a while. */
static mf_status run_fetch(rig *r, mf_expert_fetch *f, uint32_t layer, const uint32_t *experts,
                           uint32_t n, mf_error *error)
{
    bool seen[MAX_EXPERTS] = {false};
    mf_expert_ready kept[MAX_EXPERTS];
    uint32_t n_kept = 0, n_seen = 0;
    uint64_t n_slots = mf_expert_store_n_slots(r->store);
    for (;;) {
        mf_expert_ready ready[4];
        uint32_t n_ready = 0;
        MF_TRY(
            mf_expert_fetch_next(f, ready, 1 + (uint32_t)below(&r->w->random, 4), &n_ready, error));
        if (n_ready == 0)
            break;
        for (uint32_t i = 0; i < n_ready; i++) {
            REQUIRE(ready[i].index < n && !seen[ready[i].index]);
            seen[ready[i].index] = true;
            n_seen++;
            check_expert(r, layer, experts[ready[i].index], &ready[i]);
            kept[n_kept++] = ready[i];
        }
        while (n_kept > 0 && (n_kept >= n_slots || below(&r->w->random, 2) == 0)) {
            n_kept--; /* its bytes must not have changed meanwhile */
            check_expert(r, layer, experts[kept[n_kept].index], &kept[n_kept]);
            mf_expert_fetch_release(f, kept[n_kept].index, 0);
        }
    }
    CHECK_U64(n_seen, n);
    return MF_OK;
}

static mf_status fetch(rig *r, uint32_t layer, const uint32_t *experts, uint32_t n, mf_error *error)
{
    mf_expert_fetch *f = NULL;
    MF_TRY(mf_expert_fetch_begin(r->store, layer, experts, n, &f, error));
    mf_status status = run_fetch(r, f, layer, experts, n, error);
    mf_expert_fetch_end(f, 0);
    return status;
}

static void random_fetches(rig *r, uint32_t n_fetches)
{
    mf_error error;
    uint32_t experts[MAX_EXPERTS];
    uint64_t n_asked = 0;
    bool was_idle = mf_io_in_flight(r->io) == 0; /* nothing left by a fetch that failed */
    mf_expert_store_stats_reset(r->store);
    for (uint32_t i = 0; i < n_fetches; i++) {
        uint32_t layer = (uint32_t)below(&r->w->random, r->w->map.n_layers);
        uint32_t n = 1 + (uint32_t)below(&r->w->random, r->w->map.n_experts);
        random_choice(r->w, experts, n);
        n_asked += n;
        REQUIRE_OK(fetch(r, layer, experts, n, &error), &error);
    }
    mf_expert_stats stats;
    mf_expert_store_stats(r->store, &stats);
    CHECK_U64(stats.n_hits + stats.n_misses, n_asked);
    CHECK(!was_idle || stats.n_reads >= stats.n_misses);
    CHECK(stats.read_bytes >= stats.n_reads * 4096);
}

static void test_random_maps(const io_case *c, const char *dir, uint64_t seed)
{
    world *w = world_create(dir, seed);
    uint32_t n_all = w->map.n_layers * w->map.n_experts;
    const uint32_t slots[] = {1, 2, n_all < 5 ? n_all : 5, n_all};
    const uint32_t depths[] = {1, 7, 0, 0};
    for (int i = 0; i < 4; i++) {
        rig r;
        rig_open(&r, c, w, slots[i], depths[i]);
        break_a_little(&r);
        random_fetches(&r, 25);
        rig_close(&r);
    }
    world_free(w);
}

/* ------------------------------------------------------------------------------------ LRU -- */

typedef struct lru_model {
    uint32_t keys[64]; /* oldest first */
    uint32_t n, n_max;
} lru_model;

static bool model_drop(lru_model *m, uint32_t key)
{
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->keys[i] == key) {
            memmove(m->keys + i, m->keys + i + 1, (m->n - i - 1) * sizeof *m->keys);
            m->n--;
            return true;
        }
    }
    return false;
}

/* Hits move to the end first, then misses come in; as a fetch has no more experts than there are
 * slots, the oldest are never its own. */
static uint32_t model_fetch(lru_model *m, const uint32_t *keys, uint32_t n)
{
    bool is_hit[MAX_EXPERTS];
    uint32_t n_hits = 0;
    for (uint32_t i = 0; i < n; i++) {
        is_hit[i] = model_drop(m, keys[i]);
        n_hits += is_hit[i];
        if (is_hit[i])
            m->keys[m->n++] = keys[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        if (is_hit[i])
            continue;
        if (m->n == m->n_max)
            model_drop(m, m->keys[0]);
        m->keys[m->n++] = keys[i];
    }
    return n_hits;
}

static void test_lru(const io_case *c, const char *dir)
{
    mf_error error;
    world *w = world_create(dir, 4242);
    w->map.n_layers = 2;
    w->map.n_experts = MAX_EXPERTS;
    w->map.n_parts = 2;
    for (uint32_t i = 0; i < 4; i++)
        w->parts[i] = (mf_expert_part){
            .file = i % N_FILES, .offset = 1000 * i + 3, .stride = 7001, .n_bytes = 6999};
    for (uint32_t n_slots = 1; n_slots <= 2 * MAX_EXPERTS; n_slots += 4) {
        rig r;
        rig_open(&r, c, w, n_slots, 0);
        r.policy = &mf_cache_policy_lru;
        rig_forget(&r);
        break_a_little(&r);
        lru_model model = {.n_max = n_slots};
        for (int i = 0; i < 120; i++) {
            uint32_t experts[MAX_EXPERTS], keys[MAX_EXPERTS];
            uint32_t layer = (uint32_t)below(&w->random, 2);
            uint32_t n_most = n_slots < 6 ? n_slots : 6;
            uint32_t n = random_choice(w, experts, 1 + (uint32_t)below(&w->random, n_most));
            for (uint32_t k = 0; k < n; k++)
                keys[k] = layer * MAX_EXPERTS + experts[k];
            mf_expert_store_stats_reset(r.store);
            REQUIRE_OK(fetch(&r, layer, experts, n, &error), &error);
            mf_expert_stats stats;
            mf_expert_store_stats(r.store, &stats);
            uint32_t n_hits = model_fetch(&model, keys, n);
            CHECK_U64(stats.n_hits, n_hits);
            CHECK_U64(stats.n_misses, n - n_hits);
        }
        rig_close(&r);
    }
    world_free(w);
}

/* -------------------------------------------------------------------------- request counts -- */

/* Parts that lie one after another are one read; parts apart are one each; long ones are cut. */
static void test_requests(const io_case *c, const char *dir)
{
    mf_error error;
    world *w = world_create(dir, 99);
    w->map = (mf_expert_map){.n_layers = 3, .n_experts = 2, .n_parts = 3, .parts = w->parts};
    for (uint32_t p = 0; p < 3; p++) {
        w->parts[p] = (mf_expert_part){0, 5000 + p * 10000, 30000, 10000, NULL, NULL, NULL, NULL};
        w->parts[3 + p] = (mf_expert_part){1, 3 + p * 100000, 50000, 100, NULL, NULL, NULL, NULL};
        w->parts[6 + p] = (mf_expert_part){p, 0, 65536, 65536, NULL, NULL, NULL, NULL};
    }
    w->parts[6].n_bytes = w->parts[6].stride = 1 << 20;
    rig r;
    rig_open(&r, c, w, 2, 0);
    /* [5000, 35000): blocks 1 to 8. A miss of expert 0 alone. */
    const uint64_t n_reads[] = {1, 3, 3}, n_bytes[] = {32768, 3 * 4096, (1 << 20) + 2 * 65536};
    for (uint32_t layer = 0; layer < 3; layer++) {
        mf_expert_stats stats;
        mf_expert_store_stats_reset(r.store);
        REQUIRE_OK(fetch(&r, layer, &(uint32_t){0}, 1, &error), &error);
        REQUIRE_OK(fetch(&r, layer, &(uint32_t){0}, 1, &error), &error);
        mf_expert_store_stats(r.store, &stats);
        CHECK_U64(stats.n_hits, 1);
        CHECK_U64(stats.n_misses, 1);
        CHECK_U64(stats.n_reads, n_reads[layer]);
        CHECK_U64(stats.read_bytes, n_bytes[layer]);
    }
    CHECK_U64(r.slot_bytes, (1 << 20) + 2 * 65536);
    rig_close(&r);
    world_free(w);
}

/* Two parts in every position to each other that makes a difference: one read where their blocks
 * overlap or touch, two where a block lies between; the bytes right in each. */
static void test_touching_parts(const io_case *c, const char *dir)
{
    mf_error error;
    static const struct {
        uint64_t first_bytes, second_at, second_bytes;
        uint32_t n_reads;
        uint64_t n_bytes;
    } cases[] = {
        {8192, 8192, 4096, 1, 12288},               /* the next block */
        {8192, 12288, 4096, 2, 12288},              /* a block between */
        {8191, 8191, 1, 1, 8192},                   /* the last byte of a block */
        {8193, 12288, 4096, 1, 16384},              /* one byte into the block before */
        {8192, 12287, 1, 1, 12288},                 /* the last byte of the next block */
        {8192, 4096, 8192, 1, 12288},               /* overlapping by a block */
        {8192, 8191, 100, 1, 12288},                /* by a byte */
        {8192, 0, 8192, 1, 8192},                   /* the same bytes */
        {8192, 100, 200, 1, 8192},                  /* within */
        {1 << 20, 1 << 20, 1, 2, (1 << 20) + 4096}, /* touching, and cut */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t swapped = 0; swapped < 2; swapped++) {
            world *w = world_create(dir, 99);
            w->map =
                (mf_expert_map){.n_layers = 1, .n_experts = 1, .n_parts = 2, .parts = w->parts};
            w->parts[swapped] = (mf_expert_part){.n_bytes = cases[i].first_bytes};
            w->parts[1 - swapped] =
                (mf_expert_part){.offset = cases[i].second_at, .n_bytes = cases[i].second_bytes};
            rig r;
            rig_open(&r, c, w, 1, 0);
            CHECK_U64(r.slot_bytes, cases[i].n_bytes);
            REQUIRE_OK(fetch(&r, 0, &(uint32_t){0}, 1, &error), &error);
            mf_expert_stats stats;
            mf_expert_store_stats(r.store, &stats);
            CHECK_MSG(stats.n_reads == cases[i].n_reads && stats.read_bytes == cases[i].n_bytes,
                      "case %zu: %llu reads of %llu bytes", i, (unsigned long long)stats.n_reads,
                      (unsigned long long)stats.read_bytes);
            rig_close(&r);
            world_free(w);
        }
    }
}

static void test_all_slots_in_use(const io_case *c, const char *dir)
{
    mf_error error;
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 2, 0);
    break_a_little(&r);
    const uint32_t experts[] = {5, 1, 3, 0};
    mf_expert_fetch *f = NULL;
    REQUIRE_OK(mf_expert_fetch_begin(r.store, 1, experts, 4, &f, &error), &error);
    mf_expert_ready ready[4];
    uint32_t n = 0, n_handed = 0;
    while (n_handed < 2) {
        REQUIRE_OK(mf_expert_fetch_next(f, ready + n_handed, 4, &n, &error), &error);
        n_handed += n;
    }
    CHECK_U64(n_handed, 2);
    CHECK_STATUS(mf_expert_fetch_next(f, ready + 2, 2, &n, &error), MF_ERR_STATE);
    CHECK_CONTAINS(error.message, "none released");
    mf_expert_fetch_release(f, ready[0].index, 0);
    REQUIRE_OK(mf_expert_fetch_next(f, ready + 2, 2, &n, &error), &error);
    CHECK_U64(n, 1);
    check_expert(&r, 1, experts[ready[1].index], &ready[1]);
    check_expert(&r, 1, experts[ready[2].index], &ready[2]);
    mf_expert_fetch_end(f, 0); /* gives up the rest, two unreleased */
    random_fetches(&r, 10);
    rig_close(&r);
    world_free(w);
}

static void test_fetch_arguments(const io_case *c, const char *dir)
{
    mf_error error;
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 2, 0);
    mf_expert_fetch *f[MF_EXPERT_FETCHES], *none = NULL;
    const uint32_t twice[] = {1, 2, 1}, beyond[] = {1, 8};
    CHECK_STATUS(mf_expert_fetch_begin(r.store, 0, twice, 3, &none, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_expert_fetch_begin(r.store, 0, beyond, 2, &none, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_expert_fetch_begin(r.store, 2, twice, 2, &none, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_expert_fetch_begin(r.store, 0, twice, 0, &none, &error), MF_ERR_ARGUMENT);
    for (uint32_t i = 0; i < MF_EXPERT_FETCHES; i++)
        REQUIRE_OK(mf_expert_fetch_begin(r.store, i % 2, beyond, 1, &f[i], &error), &error);
    CHECK_STATUS(mf_expert_fetch_begin(r.store, 0, beyond, 1, &none, &error), MF_ERR_STATE);
    CHECK(none == NULL);
    for (uint32_t i = 0; i < MF_EXPERT_FETCHES; i++)
        mf_expert_fetch_end(f[i], 0);
    random_fetches(&r, 5);
    rig_close(&r);
    world_free(w);
}

static void check_open(rig *r, const mf_expert_store_options *options, mf_status expected)
{
    mf_error error;
    mf_expert_store *store = NULL;
    CHECK_STATUS(mf_expert_store_open(options, &store, &error), expected);
    CHECK((store != NULL) == (expected == MF_OK));
    CHECK(expected != MF_ERR_FORMAT || strstr(error.message, r->w->files[1].path) != NULL ||
          strstr(error.message, "overflows") != NULL);
    mf_expert_store_close(&store);
}

static void test_open_arguments(const io_case *c, const char *dir)
{
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 2, 0);
    mf_expert_store_options options = rig_options(&r);
    options.memory.n_bytes = r.slot_bytes - 1;
    check_open(&r, &options, MF_ERR_ARGUMENT);
    options.memory.n_bytes = 2 * r.slot_bytes;
    options.memory.host += 8;
    check_open(&r, &options, MF_ERR_ARGUMENT);
    options.memory.host -= 8;
    mf_expert_part good = w->parts[4];
    w->parts[4].file = N_FILES;
    check_open(&r, &options, MF_ERR_ARGUMENT);
    w->parts[4] = good;
    w->parts[4].offset = w->files[1].n_bytes - 7 * good.stride - good.n_bytes + 1;
    check_open(&r, &options, MF_ERR_FORMAT);
    w->parts[4].offset--;
    check_open(&r, &options, MF_OK);
    const uint64_t huge[] = {UINT64_MAX, UINT64_MAX - 100, (uint64_t)1 << 62, UINT64_MAX / 2};
    for (int i = 0; i < 12; i++) {
        w->parts[4] = good;
        uint64_t *fields[] = {&w->parts[4].offset, &w->parts[4].stride, &w->parts[4].n_bytes};
        *fields[i % 3] = huge[i / 3];
        check_open(&r, &options, MF_ERR_FORMAT);
    }
    w->parts[4] = good;
    options.map.n_parts = MF_MAX_EXPERT_PARTS + 1;
    check_open(&r, &options, MF_ERR_ARGUMENT);
    rig_close(&r);
    world_free(w);
}

/* ------------------------------------------------------------------------------- failures -- */

static void test_every_read_fails_once(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error;
    world *w = plain_world(dir);
    const uint32_t slots[] = {1, 3, 8, 16};
    for (int s = 0; s < 4; s++) {
        rig r;
        rig_open(&r, c, w, slots[s], 5);
        for (uint64_t nth = 1; nth <= 24; nth++) {
            uint32_t experts[MAX_EXPERTS];
            random_choice(w, experts, 8);
            rig_forget(&r);
            r.fault.hold_chance = 300;
            r.fault.shuffle = 1;
            r.fault.fail_errno = EIO;
            r.fault.fail_from = r.fault.n_reads + nth;
            r.fault.fail_count = 1;
            CHECK_STATUS(fetch(&r, nth % 2, experts, 8, &error), MF_ERR_IO);
            CHECK_U64(error.os_errno, EIO);
            CHECK_CONTAINS(error.message, "moeflux-io-");
            CHECK_CONTAINS(error.message, "offset ");
            r.fault.fail_errno = 0;
            random_fetches(&r, 3);
        }
        rig_close(&r);
    }
    world_free(w);
}

static void test_everything_fails(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error;
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 8, 0);
    const uint32_t experts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    r.fault.fail_errno = EIO;
    r.fault.fail_count = UINT64_MAX;
    double rate = -1;
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(fetch(&r, 0, experts, 8, &error), MF_ERR_IO);
        CHECK_STATUS(mf_expert_store_measure(r.store, 2, 20, &rate, &error), MF_ERR_IO);
    }
    CHECK(rate == -1);
    r.fault.fail_errno = 0;
    random_fetches(&r, 10);
    rig_close(&r);
    world_free(w);
}

static void test_file_cut_short_while_running(const io_case *c, const char *dir)
{
    mf_error error;
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 4, 0);
    r.fault.short_chance = 300;
    random_fetches(&r, 10);
    rig_forget(&r);
    /* Part 0 of layer 0, of experts 4 to 7. */
    REQUIRE(truncate(w->files[0].path, 17 + 3 * 20000 + 9000) == 0);
    const uint32_t experts[] = {0, 3, 2, 4, 1};
    CHECK_STATUS(fetch(&r, 0, experts, 5, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, w->files[0].path);
    CHECK_CONTAINS(error.message, "file ends at byte 69017, expected at least 89017 bytes");
    REQUIRE_OK(fetch(&r, 0, experts, 3, &error), &error);
    CHECK_STATUS(fetch(&r, 0, experts + 3, 1, &error), MF_ERR_FORMAT);
    rig_close(&r);
    world_free(w);
}

static void test_allocations(const io_case *c, const char *dir)
{
    mf_error error;
    world *w = plain_world(dir);
    failing count = {0};
    rig r = {.w = w, .fault = {.seed = 3}};
    mf_allocator allocator = failing_allocator(&count);
    r.io = open_case(c, &r.fault, 0, &allocator);
    add_files(&r);
    r.slot_bytes = mf_expert_slot_bytes(&w->map);
    r.pool = aligned_alloc(4096, 3 * r.slot_bytes);
    REQUIRE(r.pool != NULL);
    r.n_slots = 3;
    mf_expert_store_options options = rig_options(&r);
    options.allocator = allocator;
    long long n_live = count.n_live, live_bytes = count.live_bytes;
    mf_status status = MF_ERR_NO_MEMORY;
    for (uint64_t nth = 1; status != MF_OK && nth < 20; nth++) {
        failing_arm(&count, nth, true);
        status = mf_expert_store_open(&options, &r.store, &error);
        CHECK(status == MF_OK || (status == MF_ERR_NO_MEMORY && count.n_live == n_live));
    }
    REQUIRE(status == MF_OK);
    CHECK_U64((uint64_t)(count.live_bytes - live_bytes), mf_expert_store_bytes(&w->map, 3, 0));
    uint64_t n_calls = count.n_calls;
    failing_disarm(&count);
    break_a_little(&r);
    random_fetches(&r, 30);
    CHECK_U64(count.n_calls, n_calls);
    rig_close(&r);
    failing_check_end(&count, "the store");
    world_free(w);
}

static void test_measure(const io_case *c, const char *dir)
{
    mf_error error;
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, 3, 4);
    break_a_little(&r);
    mf_expert_stats before, after;
    random_fetches(&r, 4);
    mf_expert_store_stats(r.store, &before);
    double rate = 0;
    REQUIRE_OK(mf_expert_store_measure(r.store, 5, 20, &rate, &error), &error);
    CHECK(rate > 0);
    mf_expert_store_stats(r.store, &after);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK_STATUS(mf_expert_store_measure(r.store, 0, 20, &rate, &error), MF_ERR_ARGUMENT);
    random_fetches(&r, 10);
    rig_close(&r);
    world_free(w);
}

/* Measuring forgets nothing where everything is cached, and what it reads is what was there. */
static void test_measure_all_cached(const io_case *c, const char *dir)
{
    mf_error error;
    world *w = plain_world(dir);
    rig r;
    rig_open(&r, c, w, w->map.n_layers * w->map.n_experts, 0);
    uint32_t experts[MAX_EXPERTS];
    for (uint32_t i = 0; i < w->map.n_experts; i++)
        experts[i] = i;
    double rate = 0;
    for (int round = 0; round < 2; round++) {
        mf_expert_store_stats_reset(r.store);
        for (uint32_t layer = 0; layer < w->map.n_layers; layer++)
            REQUIRE_OK(fetch(&r, layer, experts, w->map.n_experts, &error), &error);
        mf_expert_stats stats;
        mf_expert_store_stats(r.store, &stats);
        CHECK_U64(round == 0 ? stats.n_hits : stats.n_misses, 0);
        REQUIRE_OK(mf_expert_store_measure(r.store, 4, 20, &rate, &error), &error);
        CHECK(rate > 0);
    }
    rig_close(&r);
    world_free(w);
}

int main(void)
{
    const char *dirs[2];
    io_case cases[4];
    uint32_t n_dirs = scratch_dirs(dirs), n_cases = io_cases(cases);
    for (uint32_t d = 0; d < n_dirs; d++) {
        for (uint32_t c = 0; c < n_cases; c++) {
            fprintf(stderr, "%s in %s\n", cases[c].name, dirs[d]);
            for (uint64_t seed = 1; seed <= 8; seed++)
                test_random_maps(&cases[c], dirs[d], seed * 4 + c);
            test_lru(&cases[c], dirs[d]);
            test_requests(&cases[c], dirs[d]);
            test_touching_parts(&cases[c], dirs[d]);
            test_all_slots_in_use(&cases[c], dirs[d]);
            test_fetch_arguments(&cases[c], dirs[d]);
            test_open_arguments(&cases[c], dirs[d]);
            test_every_read_fails_once(&cases[c], dirs[d]);
            test_everything_fails(&cases[c], dirs[d]);
            test_file_cut_short_while_running(&cases[c], dirs[d]);
            test_allocations(&cases[c], dirs[d]);
            test_measure(&cases[c], dirs[d]);
            test_measure_all_cached(&cases[c], dirs[d]);
        }
    }
    return test_result();
}
