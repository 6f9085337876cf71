/* SPDX-License-Identifier: MIT */
/*
 * Whether foresight pays, judged by a clock that is a number: trials of passes with it and without,
 * on machines whose passes take what a formula says, noise, drift and hold-ups included; then the
 * whole of it over a store whose drive is numbers, beside the same store without foresight.
 */
#include "test.h"

#include "experts/foresight.h"
#include "experts/foresight_trial.h"
#include "experts/store_impl.h"
#include "routing/drive_sim.h"

#include <math.h>
#include <sys/mman.h>

static double unit(uint64_t *random)
{
    return (double)(test_random(random) >> 11) / 9007199254740992.0;
}

/* ---------------------------------------------------------------------------------- trials -- */

typedef struct machine {
    double ratio;       /* of a pass with foresight over one without */
    double ratio_later; /* from the middle on */
    double noise;       /* a pass takes up to so much more or less */
    double held_up;     /* so often it takes six times as long */
    double first;       /* a pass at the beginning takes so many times as long as later on */
    double needed;      /* of a pass's time without foresight, experts that its text asks for: few
                           here, many there */
} machine;

typedef struct times {
    double own, on, off, best;
} times;

static times run_machine(const machine *m, uint64_t seed, uint32_t n_passes)
{
    mf_foresight_trial trial;
    times sum = {0};
    uint64_t random = seed;
    mf_foresight_trial_init(&trial);
    for (uint32_t i = 0; i < n_passes; i++) {
        const double ratio = i < n_passes / 2 ? m->ratio : m->ratio_later;
        const double way = 1 + (m->first - 1) * exp(-(double)i / 20);
        const double odd = unit(&random) < m->held_up ? 6 : 1;
        const double n_needed = (double)(uint32_t)(9 * unit(&random) * unit(&random));
        const double text = 1 - m->needed + m->needed * n_needed / 2;
        const double off = 1000 * way * odd * text * (1 + m->noise * (2 * unit(&random) - 1));
        const double own = trial.is_on ? ratio * off : off;
        sum.own += own;
        sum.off += off;
        sum.on += ratio * off;
        sum.best += ratio < 1 ? ratio * off : off;
        mf_foresight_trial_add(&trial, (mf_trial_pass){own, n_needed}, true);
    }
    return sum;
}

#define N_SEEDS 16u

/* The mean over seeds of the time over that of the faster way. */
static double excess(const machine *m, uint32_t n_passes)
{
    double sum = 0;
    for (uint32_t i = 0; i < N_SEEDS; i++) {
        const times t = run_machine(m, 1 + i * 7919u, n_passes);
        sum += t.own / t.best / N_SEEDS;
    }
    return sum;
}

/* On any machine 2 % at most are lost to trials and to those that erred. */
static void test_machines(void)
{
    static const double ratios[] = {0.5, 0.6, 0.8, 0.95, 0.99, 1, 1.01, 1.03, 1.1, 1.3, 1.6};
    static const machine kinds[] = {{.first = 1},
                                    {.first = 1, .noise = 0.2, .held_up = 0.05},
                                    {.first = 5, .noise = 0.1},
                                    {.first = 1, .noise = 0.1, .needed = 0.8}};
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++)
        for (size_t j = 0; j < sizeof kinds / sizeof *kinds; j++) {
            machine m = kinds[j];
            m.ratio = m.ratio_later = ratios[i];
            const double lost = excess(&m, 4000);
            CHECK_MSG(lost <= 1.02, "machine %zu, ratio %.2f: %.4f of the faster way's time", j,
                      ratios[i], lost);
        }
}

/* What paid does not any more, or the other way round: it is found out. */
static void test_changes(void)
{
    static const double ratios[][2] = {{0.7, 1.3}, {1.3, 0.7}, {0.9, 1.1}};
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        const machine m = {
            .ratio = ratios[i][0], .ratio_later = ratios[i][1], .noise = 0.1, .first = 1};
        const double lost = excess(&m, 8000);
        CHECK_MSG(lost <= 1.05, "from %.1f to %.1f: %.4f of the faster way's time", ratios[i][0],
                  ratios[i][1], lost);
    }
}

/* A trial that foresaw nothing says nothing; one that is broken off begins anew. */
static void test_says_nothing(void)
{
    mf_foresight_trial trial;
    mf_foresight_trial_init(&trial);
    for (uint32_t i = 0; i < 2000; i++)
        mf_foresight_trial_add(&trial, (mf_trial_pass){trial.is_on ? 2000 : 1000, 1}, false);
    CHECK(trial.pays && trial.ratio == 0);
    mf_foresight_trial_init(&trial);
    for (uint32_t i = 0; i < 2000; i++) {
        CHECK(i % 5 != 0 || trial.is_on);
        mf_foresight_trial_add(&trial, (mf_trial_pass){trial.is_on ? 2000 : 1000, 1}, true);
        if (i % 5 == 4)
            mf_foresight_trial_restart(&trial);
    }
    CHECK(trial.pays && trial.ratio == 0);
    for (uint32_t i = 0; i < 2000; i++)
        mf_foresight_trial_add(&trial, (mf_trial_pass){trial.is_on ? 2000 : 1000, 1}, true);
    CHECK(!trial.pays && fabs(trial.ratio - 2) < 1e-9);
}

/* --------------------------------------------------------------------------- a whole store -- */

#define N_LAYERS 12u
#define N_EXPERTS 64u
#define K 4u
#define N_FORETOLD (2 * K)
#define N_PASSES 700u
#define LAYER_US 1000.0
#define EXPERT_BYTES 65536u

typedef struct setting {
    double reading; /* what all experts of a layer take to read, of what it takes to compute it */
    double recall;  /* of those foretold */
    double router;  /* what asking a router costs, of what a layer takes */
    uint32_t n_slots;
    bool is_off;
    uint32_t passes_between_resets; /* of the store's counters; 0: none */
} setting;

typedef struct rig {
    setting set;
    mf_drive_sim drive;
    mf_io *io;
    mf_expert_store *store;
    mf_foresight *foresight;
    mf_expert_part parts[N_LAYERS];
    void *slots;
    size_t slots_bytes;
    uint64_t random;
    int32_t chosen[N_LAYERS][K];
    uint64_t n_clock_reads;
} rig;

static uint64_t rig_us(void *clock)
{
    rig *r = clock;
    r->n_clock_reads++;
    return (uint64_t)r->drive.now_us;
}

static void open_rig(rig *r, const setting *set)
{
    mf_error error = {0};
    uint32_t file;
    const uint64_t layer_bytes = (N_EXPERTS + 1) * (uint64_t)(EXPERT_BYTES + 4096);
    *r = (rig){.set = *set, .random = 5};
    r->drive.bytes_per_us = K * EXPERT_BYTES / (set->reading * LAYER_US);
    r->drive.latency_us = 50;
    const mf_io_options io = {.engine = &mf_io_engine_sim, .engine_arg = &r->drive};
    REQUIRE_OK(mf_io_open(&io, &r->io, &error), &error);
    REQUIRE_OK(mf_io_add_made_up(r->io, N_LAYERS * layer_bytes, &file, &error), &error);
    for (uint32_t i = 0; i < N_LAYERS; i++)
        r->parts[i] = (mf_expert_part){.file = file,
                                       .offset = i * layer_bytes,
                                       .stride = EXPERT_BYTES + 4096,
                                       .n_bytes = EXPERT_BYTES};
    mf_expert_store_options options = {
        .io = r->io,
        .map = {.n_layers = N_LAYERS, .n_experts = N_EXPERTS, .n_parts = 1, .parts = r->parts}};
    r->slots_bytes = set->n_slots * mf_expert_slot_bytes(&options.map);
    r->slots =
        mmap(NULL, r->slots_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(r->slots != MAP_FAILED);
    options.memory = (mf_slot_memory){.n_bytes = r->slots_bytes, .host = r->slots};
    REQUIRE_OK(mf_expert_store_open(&options, &r->store, &error), &error);
    const mf_foresight_options foresight = {.store = r->store,
                                            .n_layers = N_LAYERS,
                                            .n_experts = N_EXPERTS,
                                            .k = K,
                                            .predict = MF_PREDICT_AUTO,
                                            .depth = 1,
                                            .now_us = rig_us,
                                            .clock = r};
    if (!set->is_off)
        REQUIRE_OK(mf_foresight_open(&foresight, &r->foresight, &error), &error);
}

static void close_rig(rig *r)
{
    mf_foresight_close(&r->foresight);
    mf_expert_store_close(&r->store);
    mf_io_close(&r->io);
    (void)munmap(r->slots, r->slots_bytes);
}

/* Of a layer some experts are chosen more often than others, other ones in each. */
static int32_t draw(rig *r, uint32_t layer)
{
    const double u = unit(&r->random);
    return (int32_t)(((uint32_t)(N_EXPERTS * u * u) + 17 * layer) % N_EXPERTS);
}

static bool has(const int32_t *list, uint32_t n, int32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == id)
            return true;
    return false;
}

static void draw_distinct(rig *r, uint32_t layer, int32_t *list, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < n; i++) {
        do
            list[i] = draw(r, layer);
        while (has(list, i, list[i]));
    }
}

/* What the token's routers choose, and what was foretold: the same draws whoever wants to know. */
static void draw_pass(rig *r, int32_t foretold[N_LAYERS][N_FORETOLD])
{
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        uint32_t n = 0;
        draw_distinct(r, layer, r->chosen[layer], 0, K);
        for (uint32_t i = 0; i < K; i++)
            if (unit(&r->random) < r->set.recall)
                foretold[layer][n++] = r->chosen[layer][i];
        draw_distinct(r, layer, foretold[layer], n, N_FORETOLD);
    }
}

static void run_layer(rig *r, uint32_t layer, int32_t foretold[N_LAYERS][N_FORETOLD])
{
    mf_error error = {0};
    mf_expert_fetch *fetch = NULL;
    mf_expert_ready ready[K];
    uint32_t wanted[K];
    r->drive.now_us += LAYER_US / 2;
    mf_expert_store_poll(r->store);
    for (uint32_t i = 0; i < K; i++)
        wanted[i] = (uint32_t)r->chosen[layer][i];
    if (r->foresight != NULL)
        mf_foresight_chosen(r->foresight, layer, r->chosen[layer]);
    REQUIRE_OK(mf_expert_fetch_begin(r->store, layer, wanted, K, &fetch, &error), &error);
    if (r->foresight != NULL && layer + 1 < N_LAYERS) {
        const bool is_asked = mf_foresight_wants_router(r->foresight, layer + 1);
        r->drive.now_us += is_asked ? r->set.router * LAYER_US : 0;
        mf_foresight_hint(r->foresight, layer + 1, is_asked ? foretold[layer + 1] : NULL,
                          N_FORETOLD);
    }
    for (uint32_t done = 0, n; done < K; done += n) {
        REQUIRE_OK(mf_expert_fetch_next(fetch, ready, K, &n, &error), &error);
        r->drive.now_us += LAYER_US / 2 * n / K;
        for (uint32_t i = 0; i < n; i++)
            mf_expert_fetch_release(fetch, ready[i].index, 0);
    }
    mf_expert_fetch_end(fetch, 0);
}

static void run_pass(rig *r)
{
    int32_t foretold[N_LAYERS][N_FORETOLD];
    draw_pass(r, foretold);
    if (r->foresight != NULL)
        mf_foresight_begin(r->foresight, 1);
    for (uint32_t layer = 0; layer < N_LAYERS; layer++)
        run_layer(r, layer, foretold);
    if (r->foresight != NULL)
        mf_foresight_end(r->foresight, true);
}

/* The time of all passes, microseconds. */
static double run_set(const setting *set)
{
    rig r;
    open_rig(&r, set);
    for (uint32_t i = 0; i < N_PASSES; i++) {
        if (set->passes_between_resets != 0 && i % set->passes_between_resets == 0)
            mf_expert_store_stats_reset(r.store);
        run_pass(&r);
    }
    const double us = r.drive.now_us;
    close_rig(&r);
    return us;
}

static double gain_of(setting set)
{
    const double with = run_set(&set);
    set.is_off = true;
    return run_set(&set) / with;
}

/* Whatever the drive, the routers' time and how often they are right, it is not slower than without
 * by more than 2 %; where they are right and there is time to read in, it is faster. */
static void test_never_slower(void)
{
    static const double readings[] = {0.1, 0.5, 1, 2, 8}, recalls[] = {0, 0.45, 0.8};
    static const double routers[] = {0.005, 0.1};
    for (size_t i = 0; i < sizeof readings / sizeof *readings; i++)
        for (size_t j = 0; j < sizeof recalls / sizeof *recalls; j++)
            for (size_t k = 0; k < sizeof routers / sizeof *routers; k++) {
                const setting s = {.reading = readings[i],
                                   .recall = recalls[j],
                                   .router = routers[k],
                                   .n_slots = N_LAYERS * N_EXPERTS / 4};
                const double gain = gain_of(s);
                CHECK_MSG(gain >= 1 / 1.02,
                          "reading %.1f, recall %.2f, router %.3f: %.3f times as fast", s.reading,
                          s.recall, s.router, gain);
                CHECK(s.recall < 0.8 || s.router > 0.01 || s.reading < 1 || s.reading > 2 ||
                      gain > 1.1);
            }
}

/* Counters that begin anew, as a bench has them do, change nothing. */
static void test_resets(void)
{
    setting s = {.reading = 1, .recall = 0.8, .router = 0.01, .n_slots = N_LAYERS * N_EXPERTS / 4};
    const double us = run_set(&s);
    s.passes_between_resets = 45;
    CHECK(run_set(&s) == us);
}

/* Where nothing is missed any more, no router is asked and no clock is read. */
static void test_idle(void)
{
    const setting s = {.reading = 1, .recall = 0.8, .n_slots = N_LAYERS * N_EXPERTS};
    rig r;
    open_rig(&r, &s);
    for (uint32_t i = 0; i < N_PASSES; i++)
        run_pass(&r);
    const uint64_t n = r.n_clock_reads;
    CHECK(n > 0);
    for (uint32_t i = 0; i < N_PASSES; i++) {
        run_pass(&r);
        CHECK(!mf_foresight_asks(r.foresight));
    }
    CHECK_U64(r.n_clock_reads, n);
    close_rig(&r);
}

/* A pass of many rows wants nearly all of each layer: what is all but certain is read at the
 * drive's full depth, what is only likely a little at a time, what is not is not read. */
static void test_sweep(void)
{
    const setting s = {.reading = 1, .n_slots = N_LAYERS * N_EXPERTS};
    int32_t ids[200 * K];
    rig r;
    open_rig(&r, &s);
    mf_foresight_begin(r.foresight, 200);
    mf_foresight_hint(r.foresight, 1, NULL, 0);
    CHECK_U64(mf_io_in_flight(r.io), N_EXPERTS); /* nothing is known yet: each by many */
    mf_expert_stats stats;
    for (uint32_t pass = 0; pass < 6; pass++) { /* half of the experts, and now and then another */
        for (uint32_t i = 0; i < 200 * K; i++)
            ids[i] = (int32_t)(i % (N_EXPERTS / 2));
        for (uint32_t i = 0; i < 32 && pass == 5; i++)
            ids[i] = (int32_t)(N_EXPERTS / 2 + i % 16);
        mf_foresight_chosen(r.foresight, 2, ids);
        mf_foresight_end(r.foresight, true);
        mf_foresight_begin(r.foresight, 200);
    }
    mf_expert_loads_drain(r.store);
    mf_expert_store_stats(r.store, &stats);
    const uint64_t n_before = stats.n_hints;
    mf_foresight_hint(r.foresight, 2, NULL, 0);
    mf_expert_store_stats(r.store, &stats);
    CHECK_U64(mf_io_in_flight(r.io), N_EXPERTS / 2);
    CHECK_U64(stats.n_hints, n_before + N_EXPERTS / 2);
    CHECK_U64(r.store->n_hints, 16);
    while (mf_io_in_flight(r.io) > 0) {
        mf_expert_loads_collect(r.store, true);
        mf_expert_store_poll(r.store);
    }
    mf_expert_store_stats(r.store, &stats);
    CHECK_U64(stats.n_hints, n_before + N_EXPERTS / 2 + 16);
    close_rig(&r);
}

int main(void)
{
    test_machines();
    test_changes();
    test_says_nothing();
    test_never_slower();
    test_resets();
    test_idle();
    test_sweep();
    return test_result();
}
