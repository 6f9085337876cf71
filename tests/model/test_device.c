/* SPDX-License-Identifier: MIT */
/*
 * Engines on a device of their own memory: what does not fit it is refused at open; a device that
 * is lost, at any moment of a life, is an error and nothing else; states are saved and loaded by
 * one thread while another evaluates. And what becomes of a device that "auto" chose in vain.
 */
#include "failing_alloc.h"
#include "golden.h"
#include "session/engine.h"
#include "strict_backend.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

static mf_engine_options device_options(const golden_case *c)
{
    mf_engine_options options = golden_options(c);
    options.n_chunk_tokens = 16;
    options.n_sessions = 2;
    options.n_threads = 1;
    return options;
}

/* Of an engine's two devices, those that are strict; the other is the CPU. */
typedef enum strict_side { STRICT_ALL, STRICT_DENSE, STRICT_EXPERTS } strict_side;

static strict_side side; /* of the engines that are opened */

static mf_status open_cpu(void *ctx, const mf_backend_options *options, mf_backend **out,
                          mf_error *error)
{
    (void)ctx;
    return mf_backend_open(options, out, error);
}

static uint64_t device_bytes;  /* promised of the engines that are opened */
static mf_allocator allocator; /* theirs; default where it has no functions */

static mf_status open_on(const golden_case *c, strict_options *strict, mf_engine **out,
                         mf_error *error)
{
    mf_engine_options options = device_options(c);
    options.device_bytes = device_bytes;
    options.allocator = allocator;
    mf_engine_hooks hooks = {.open_backend = strict_backend_open, .backend_ctx = strict};
    if (side == STRICT_DENSE)
        hooks.open_experts = open_cpu;
    if (side == STRICT_EXPERTS)
        hooks = (mf_engine_hooks){.open_experts = strict_backend_open, .experts_ctx = strict};
    return mf_engine_open_with(golden_path(c->name), &options, &hooks, out, error);
}

/* What the strict side of an engine must hold. */
static uint64_t least_memory(const mf_engine *e)
{
    const mf_runner *r = &e->runner;
    const uint64_t slots = e->info.n_experts_per_token * e->info.slot_bytes;
    if (side == STRICT_EXPERTS)
        return mf_expert_scales_bytes(&r->h, &r->weights) + r->plan.expert_act_bytes + slots;
    return r->resident_bytes + r->plan.act_bytes + mf_plan_slabs_bytes(&r->plan) +
           (side == STRICT_ALL ? slots : 0);
}

static void check_budget(const golden_case *c)
{
    mf_engine *engine = NULL;
    mf_error error = {0};
    strict_options strict = {.memory_bytes = 200000};
    CHECK_STATUS(open_on(c, &strict, &engine, &error), MF_ERR_BUDGET);
    CHECK(engine == NULL);
    CHECK_CONTAINS(error.message, "strict device");
    CHECK_CONTAINS(error.message, "200000");
    strict.memory_bytes = (uint64_t)1 << 30;
    REQUIRE_OK(open_on(c, &strict, &engine, &error), &error);
    /* before anything is created, to the byte, with the fewest slots */
    strict.memory_bytes = least_memory(engine) - 1;
    mf_engine_close(&engine);
    CHECK_STATUS(open_on(c, &strict, &engine, &error), MF_ERR_BUDGET);
    strict.memory_bytes++;
    REQUIRE_OK(open_on(c, &strict, &engine, &error), &error);
    if (side != STRICT_DENSE)
        CHECK_U64(engine->info.n_slots, engine->info.n_experts_per_token);
    mf_engine_close(&engine);
}

/* The least promise that info names is accepted, and kept; less than what is needed is not. */
static void check_promise(const golden_case *c)
{
    mf_engine *engine = NULL;
    mf_error error = {0};
    mf_model_info info;
    strict_options strict = {.memory_bytes = (uint64_t)1 << 30};
    REQUIRE_OK(open_on(c, &strict, &engine, &error), &error);
    mf_engine_info(engine, &info);
    const uint64_t least = least_memory(engine);
    mf_engine_close(&engine);
    CHECK_U64(side == STRICT_EXPERTS ? info.device_floor_bytes : info.expert_device_floor_bytes, 0);
    device_bytes =
        side == STRICT_EXPERTS ? info.expert_device_floor_bytes : info.device_floor_bytes;
    CHECK_U64(device_bytes, least);
    REQUIRE_OK(open_on(c, &strict, &engine, &error), &error);
    if (side != STRICT_DENSE)
        CHECK_U64(engine->info.n_slots, info.n_experts_per_token);
    mf_session *session = NULL;
    const int32_t tokens[] = {1, 2, 3};
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_session_eval(session, tokens, 3, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    device_bytes = least - 1;
    CHECK_STATUS(open_on(c, &strict, &engine, &error), MF_ERR_BUDGET);
    device_bytes = 0;
}

/* One evaluation, then the same again; the counters after either. */
static void evaluate_twice(mf_engine *engine, const golden *g, float *logits, mf_stats stats[2])
{
    mf_session *session = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    for (int i = 0; i < 2; i++) {
        mf_session_clear(session);
        REQUIRE_OK(mf_session_eval(session, g->tokens, 24, &error), &error);
        mf_engine_stats(engine, &stats[i]);
    }
    memcpy(logits, mf_session_logits(session), g->n_vocab * sizeof *logits);
    mf_session_free(&session);
    CHECK(stats[1].n_expert_host_hits <= stats[1].n_expert_misses);
    CHECK(stats[1].upload_bytes > stats[0].upload_bytes);
}

/* How often another way is named for experts that are in RAM and not on the device. */
static void count_hybrid(void *user, mf_log_level level, const char *line)
{
    if (level == MF_LOG_INFO && strstr(line, "hybrid:auto") != NULL)
        ++*(int *)user;
}

/* What the promise of RAM leaves beyond its floor holds experts, which are not read again: the
 * floor is accepted to the byte, with the fewest; with all in RAM each is read once. The bits are
 * the same. */
static void check_host_slots(const golden_case *c)
{
    golden g;
    golden_read(c, &g);
    mf_error error = {0};
    float *logits = malloc(2 * g.n_vocab * sizeof *logits);
    REQUIRE(logits != NULL);
    const strict_options strict = {.memory_bytes = (uint64_t)1 << 30, .seed = 21};
    const mf_engine_hooks hooks = {.open_backend = strict_backend_open,
                                   .backend_ctx = (void *)&strict};
    mf_engine_options options = device_options(c);
    mf_engine *engine = NULL;
    mf_model_info info;
    mf_stats stats[2];
    int n_named = 0;
    options.expert_cache_bytes = MF_EXPERT_CACHE_AUTO;
    options.log = count_hybrid;
    options.log_user = &n_named;
    REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error),
               &error);
    mf_engine_info(engine, &info);
    mf_engine_close(&engine);
    CHECK(n_named == 0); /* all are there */
    const uint64_t n_all = (uint64_t)info.n_moe_layers * info.n_experts;
    CHECK_U64(info.n_slots, n_all);
    CHECK(info.n_host_slots == n_all && n_all <= 64);
    /* A sanitizer keeps what is freed: the least moves from one opening to the next. */
    const uint32_t n_rams = TEST_IS_SANITIZED ? 1 : 3;
    const uint64_t rams[] = {0, info.floor_bytes, info.floor_bytes + ((uint64_t)5 << 20),
                             TEST_IS_SANITIZED ? info.floor_bytes / 2 : info.floor_bytes - 1};
    const uint64_t least[] = {n_all, 16, 17}, most[] = {n_all, 16, n_all};
    options.device_bytes = info.device_floor_bytes;
    for (uint32_t i = 0; i < n_rams; i++) {
        options.ram_bytes = rams[i];
        REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error),
                   &error);
        mf_engine_info(engine, &info);
        CHECK(n_named == (info.n_host_slots + info.n_slots >= n_all));
        n_named = 0;
        CHECK_U64(info.n_slots, info.n_experts_per_token);
        CHECK(info.n_host_slots >= least[i] && info.n_host_slots <= most[i]);
        evaluate_twice(engine, &g, logits + (i == 0 ? 0 : g.n_vocab), stats);
        CHECK_BYTES(logits + (i == 0 ? 0 : g.n_vocab), logits, g.n_vocab * sizeof *logits);
        CHECK_U64(stats[1].n_host_slots, info.n_host_slots);
        CHECK((stats[1].n_reads == stats[0].n_reads) == (info.n_host_slots == n_all));
        mf_engine_close(&engine);
    }
    options.ram_bytes = rams[3];
    CHECK_STATUS(mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error),
                 MF_ERR_BUDGET);
    free(logits);
    golden_free(&g);
}

/* A promise about memory that there is none of. */
static void check_no_promise(const golden_case *c)
{
    mf_engine_options options = device_options(c);
    options.device_bytes = (uint64_t)1 << 30;
    mf_engine *engine = NULL;
    mf_model_info info;
    mf_error error = {0};
    CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &engine, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "device_bytes is 1073741824, but device cpu");
    CHECK_STATUS(mf_model_inspect(golden_path(c->name), &options, &info, &error), MF_ERR_ARGUMENT);
}

/* Least budget of the process: without what a device with memory of its own holds, and with what
 * is on its way there. */
static void check_own_memory(const golden_case *c)
{
    mf_engine_options options = device_options(c);
    options.state_bytes = (uint64_t)512 << 20;
    mf_model_info here, there;
    mf_engine *engine = NULL;
    mf_error error = {0};
    strict_options strict = {.memory_bytes = (uint64_t)1 << 30};
    mf_engine_hooks hooks = {.open_backend = strict_backend_open, .backend_ctx = &strict};
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &here, &error), &error);
    options.ram_bytes = here.floor_bytes - ((uint64_t)256 << 20); /* the state alone is more */
    CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &engine, &error), MF_ERR_BUDGET);
    REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error),
               &error);
    mf_engine_info(engine, &there);
    CHECK(there.floor_bytes < options.ram_bytes);
    CHECK(there.n_slots >= here.n_experts_per_token);
    options.ram_bytes = there.floor_bytes - ((uint64_t)16 << 20);
    mf_engine_close(&engine);
    CHECK_STATUS(mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error),
                 MF_ERR_BUDGET);
    CHECK_CONTAINS(error.message, "on the way to devices");
    hooks = (mf_engine_hooks){.open_experts = strict_backend_open, .experts_ctx = &strict};
    options.ram_bytes = here.floor_bytes - ((uint64_t)256 << 20); /* now the state is here */
    CHECK_STATUS(mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error),
                 MF_ERR_BUDGET);
}

/* Open, evaluate, save, load into another session, evaluate there. */
static mf_status live(const golden_case *c, const golden *g, strict_options *strict, float *logits,
                      mf_error *error)
{
    mf_engine *engine = NULL;
    mf_session *first = NULL, *second = NULL;
    unsigned char *snapshot = NULL;
    size_t n = 20;
    mf_status status = open_on(c, strict, &engine, error);
    if (status == MF_OK)
        status = mf_session_create(engine, &first, error);
    if (status == MF_OK)
        status = mf_session_create(engine, &second, error);
    if (status == MF_OK)
        status = mf_session_eval(first, g->tokens, n, error);
    if (status == MF_OK) {
        size_t n_bytes = (size_t)mf_snapshot_bytes(first);
        snapshot = malloc(n_bytes);
        REQUIRE(snapshot != NULL);
        status = mf_snapshot_save(first, snapshot, n_bytes, error);
        if (status == MF_OK)
            status = mf_snapshot_load(second, snapshot, n_bytes, error);
    }
    if (status == MF_OK)
        status = mf_session_eval(second, g->tokens + n, 3, error);
    if (status == MF_OK)
        memcpy(logits, mf_session_logits(second), g->n_vocab * sizeof *logits);
    free(snapshot);
    mf_session_free(&first);
    mf_session_free(&second);
    mf_engine_close(&engine);
    return status;
}

static void check_lost(const golden_case *c)
{
    golden g;
    golden_read(c, &g);
    float *whole = malloc(g.n_vocab * sizeof *whole), *got = malloc(g.n_vocab * sizeof *got);
    REQUIRE(whole != NULL && got != NULL);
    mf_error error = {0};
    strict_options strict = {.seed = 5};
    REQUIRE_OK(live(c, &g, &strict, whole, &error), &error);
    uint64_t n = 1;
    for (bool done = false; n < 2000 && !done; n++) {
        error = (mf_error){0};
        strict.lost_at_run = n;
        mf_status status = live(c, &g, &strict, got, &error);
        done = status == MF_OK;
        if (!done) {
            CHECK_STATUS(status, MF_ERR_IO);
            CHECK_CONTAINS(error.message, "lost");
        }
    }
    /* of experts alone few: a run takes all that is waiting */
    CHECK_MSG(n > (side == STRICT_EXPERTS ? 4 : 20) && n < 2000, "%s: %u runs", c->name,
              (unsigned)n);
    CHECK_BYTES(got, whole, g.n_vocab * sizeof *got);
    printf("%s: lost at each of %u runs\n", c->name, (unsigned)n - 2);
    free(whole);
    free(got);
    golden_free(&g);
}

/* A pass that ends early leaves no work behind: what it wrote to can be given back at once. */
static void check_ended(const golden_case *c)
{
    golden g;
    golden_read(c, &g);
    mf_error error = {0};
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    strict_options strict = {.seed = 9};
    strict_stats stats;
    REQUIRE_OK(open_on(c, &strict, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    const uint32_t n_layers = engine->info.n_layers;
    for (uint64_t at = 1; at <= n_layers; at++) {
        golden_stopper s = {.at = at};
        mf_session_set_progress(session, golden_stop, &s);
        CHECK_STATUS(mf_session_eval(session, g.tokens, 10, &error), MF_ERR_CANCELLED);
        CHECK_U64(s.n_asked, at);
        strict_backend_stats(engine->runner.backend, &stats);
        CHECK_U64(stats.n_pending, 0);
        CHECK_U64(mf_session_position(session), 0);
    }
    mf_session_set_progress(session, NULL, NULL);
    REQUIRE_OK(mf_session_eval(session, g.tokens, 10, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    golden_free(&g);
}

/* On a device that works in the host's memory, reads land in slots that work still waits to use:
 * only tickets keep them apart. */
static void check_shared(const golden_case *c)
{
    golden g;
    golden_read(c, &g);
    mf_error error = {0};
    float *want = malloc(g.n_vocab * sizeof *want);
    REQUIRE(want != NULL);
    for (uint64_t seed = 0; seed < 4; seed++) {
        mf_engine *engine = NULL;
        mf_session *session = NULL;
        strict_options strict = {.seed = seed, .shares_memory = true, .runs_ahead = seed == 3};
        mf_engine_options options = device_options(c);
        options.expert_cache_bytes = 0; /* the fewest slots: a chunk wants more experts */
        const mf_engine_hooks hooks = {.open_backend = seed == 0 ? NULL : strict_backend_open,
                                       .backend_ctx = &strict};
        REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error),
                   &error);
        CHECK(engine->info.n_slots < engine->info.n_experts);
        REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
        REQUIRE_OK(mf_session_eval(session, g.tokens, 24, &error), &error);
        if (seed == 0)
            memcpy(want, mf_session_logits(session), g.n_vocab * sizeof *want);
        CHECK_BYTES(mf_session_logits(session), want, g.n_vocab * sizeof *want);
        mf_session_free(&session);
        mf_engine_close(&engine);
    }
    free(want);
    golden_free(&g);
}

/* The devices' own names. */
static void check_names(const golden_case *c)
{
    mf_engine *engine = NULL;
    mf_error error = {0};
    mf_model_info info;
    strict_options strict = {0};
    REQUIRE_OK(open_on(c, &strict, &engine, &error), &error);
    mf_engine_info(engine, &info);
    CHECK_STR(info.device, side == STRICT_EXPERTS ? "cpu" : "strict");
    CHECK_STR(info.expert_device, side == STRICT_DENSE ? "cpu" : "strict");
    mf_engine_close(&engine);
}

static uint64_t weight_bytes_touched(const golden_case *c, strict_side where)
{
    const strict_side apart = side;
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_stats stats;
    mf_error error = {0};
    strict_options strict = {.seed = 3};
    const int32_t token = 1; /* of several, an expert may be read for each, or once for all */
    side = where;
    REQUIRE_OK(open_on(c, &strict, &engine, &error), &error);
    side = apart;
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_session_eval(session, &token, 1, &error), &error);
    mf_engine_stats(engine, &stats);
    CHECK(stats.weight_bytes_touched > stats.expert_bytes_touched);
    mf_session_free(&session);
    mf_engine_close(&engine);
    return stats.weight_bytes_touched;
}

/* Both devices end with their engine, and with one that could not be opened. */
static void check_given_back(const golden_case *c)
{
    failing counted = {.n_calls = 0};
    mf_engine *engine = NULL;
    mf_error error = {0};
    strict_options strict = {.memory_bytes = (uint64_t)1 << 30};
    allocator = failing_allocator(&counted);
    REQUIRE_OK(open_on(c, &strict, &engine, &error), &error);
    mf_engine_close(&engine);
    failing_check_end(&counted, "an engine of two devices");
    strict.memory_bytes = 200000;
    CHECK_STATUS(open_on(c, &strict, &engine, &error), MF_ERR_BUDGET);
    failing_check_end(&counted, "an engine of two devices that one is too small for");
    allocator = (mf_allocator){NULL, NULL, NULL, NULL};
}

static void check_near(const float *got, const float *want, size_t n)
{
    float most = 0.0f, apart = 0.0f;
    for (size_t i = 0; i < n; i++) {
        most = fmaxf(most, fabsf(want[i]));
        apart = fmaxf(apart, fabsf(got[i] - want[i]));
    }
    CHECK(apart <= 1e-5f * most);
}

/* Experts apart, under the same kernels: what one device gives, resident scales or none, but for
 * the order of a sum, since experts are summed before the shared one is added. The same bits
 * however the devices run. */
static void check_same_bits(void)
{
    static const char *const names[] = {"mlx_4bit", "k2_fp8", "v3_fp8_bf16_scales"};
    const strict_side apart = side;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const golden_case *c = golden_case_find(names[i]);
        golden g;
        golden_read(c, &g);
        float *logits = malloc(3 * g.n_vocab * sizeof *logits);
        REQUIRE(logits != NULL);
        mf_error error = {0};
        strict_options strict = {.seed = 11 + i, .runs_ahead = true};
        REQUIRE_OK(live(c, &g, &strict, logits, &error), &error);
        strict = (strict_options){.seed = 5 + i};
        REQUIRE_OK(live(c, &g, &strict, logits + g.n_vocab, &error), &error);
        side = STRICT_ALL;
        REQUIRE_OK(live(c, &g, &strict, logits + 2 * g.n_vocab, &error), &error);
        side = apart;
        CHECK_BYTES(logits, logits + g.n_vocab, g.n_vocab * sizeof *logits);
        check_near(logits, logits + 2 * g.n_vocab, g.n_vocab);
        free(logits);
        golden_free(&g);
    }
}

/* ------------------------------------------------------------------------------------- auto -- */

static void choose_gpu(const mf_device_needs *needs, mf_device_place *out,
                       char why[MF_DEVICE_WHY_BYTES])
{
    *out = (mf_device_place){.name = "vulkan:0",
                             .takes_promise = true,
                             .has_memory = true,
                             .n_bytes = needs->least_bytes};
    snprintf(why, MF_DEVICE_WHY_BYTES, "a device of this test");
}

/* Opens nothing on the GPU, and on the CPU only where that is not broken too. */
static mf_status open_cpu_alone(void *ctx, const mf_backend_options *options, mf_backend **out,
                                mf_error *error)
{
    const bool is_broken = *(const bool *)ctx;
    if (is_broken || strcmp(options->device, "cpu") != 0)
        return mf_fail(error, MF_ERR_FORMAT, "a tensor is missing");
    return mf_backend_open(options, out, error);
}

typedef struct warnings {
    int n;
    char last[256];
} warnings;

static void take_warning(void *user, mf_log_level level, const char *line)
{
    warnings *w = user;
    if (level != MF_LOG_WARNING || strstr(line, "cannot be used") == NULL)
        return;
    w->n++;
    snprintf(w->last, sizeof w->last, "%s", line);
}

/* What "auto" chose cannot be opened: a word about it where the CPU can, and none where the CPU
 * fails likewise, since then it is not the device. */
static void check_auto(const golden_case *c)
{
    for (int i = 0; i < 2; i++) {
        bool is_broken = i == 1;
        mf_engine *engine = NULL;
        mf_error error = {0};
        warnings seen = {0};
        mf_engine_options options = device_options(c);
        const mf_engine_hooks hooks = {
            .open_backend = open_cpu_alone, .backend_ctx = &is_broken, .choose_device = choose_gpu};
        options.device = "auto";
        options.log = take_warning;
        options.log_user = &seen;
        const mf_status status =
            mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error);
        CHECK_STATUS(status, is_broken ? MF_ERR_FORMAT : MF_OK);
        CHECK(seen.n == (is_broken ? 0 : 1));
        if (is_broken) {
            CHECK_STR(error.message, "a tensor is missing");
            CHECK(engine == NULL);
        } else {
            CHECK_STR(seen.last, "vulkan:0 cannot be used: a tensor is missing");
            CHECK_STR(engine->info.device_why, seen.last);
            CHECK_STR(engine->info.device, "cpu");
        }
        mf_engine_close(&engine);
    }
}

/* ---------------------------------------------------------------------------------- threads -- */

typedef struct saver {
    mf_session *from, *to;
    unsigned char *snapshot;
    size_t n_bytes;
    atomic_bool is_over;
    uint32_t n_wrong, n_rounds;
} saver;

/* Saves one session and loads it into another, again and again: the same bytes each time. */
static void *save_and_load(void *ctx)
{
    saver *s = ctx;
    mf_error error = {0};
    unsigned char *again = malloc(s->n_bytes);
    if (again == NULL)
        exit(1);
    do {
        s->n_wrong += mf_snapshot_load(s->to, s->snapshot, s->n_bytes, &error) != MF_OK;
        s->n_wrong += mf_snapshot_save(s->to, again, s->n_bytes, &error) != MF_OK;
        s->n_wrong += memcmp(again, s->snapshot, s->n_bytes) != 0;
        s->n_wrong += mf_snapshot_save(s->from, again, s->n_bytes, &error) != MF_OK;
        s->n_wrong += memcmp(again, s->snapshot, s->n_bytes) != 0;
        s->n_rounds++;
    } while (!atomic_load(&s->is_over));
    free(again);
    return NULL;
}

static void check_beside(const golden_case *c)
{
    golden g;
    golden_read(c, &g);
    mf_error error = {0};
    mf_engine *engine = NULL;
    mf_session *busy = NULL;
    strict_options strict = {.seed = 7, .runs_ahead = true};
    mf_engine_options options = device_options(c);
    options.n_sessions = 3;
    const mf_engine_hooks hooks = {.open_backend = strict_backend_open, .backend_ctx = &strict};
    REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &engine, &error),
               &error);
    saver s = {0};
    atomic_init(&s.is_over, false);
    REQUIRE_OK(mf_session_create(engine, &busy, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &s.from, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &s.to, &error), &error);
    REQUIRE_OK(mf_session_eval(s.from, g.tokens, 21, &error), &error);
    s.n_bytes = (size_t)mf_snapshot_bytes(s.from);
    s.snapshot = malloc(s.n_bytes);
    REQUIRE(s.snapshot != NULL);
    REQUIRE_OK(mf_snapshot_save(s.from, s.snapshot, s.n_bytes, &error), &error);
    float *alone = malloc(g.n_vocab * sizeof *alone);
    REQUIRE(alone != NULL);
    pthread_t thread;
    for (int round = 0; round < 6; round++) {
        mf_session_clear(busy);
        if (round == 1)
            REQUIRE(pthread_create(&thread, NULL, save_and_load, &s) == 0);
        for (uint32_t i = 0; i < 40; i++)
            REQUIRE_OK(mf_session_eval(busy, g.tokens + i, 1, &error), &error);
        if (round == 0)
            memcpy(alone, mf_session_logits(busy), g.n_vocab * sizeof *alone);
        CHECK_BYTES(mf_session_logits(busy), alone, g.n_vocab * sizeof *alone);
    }
    atomic_store(&s.is_over, true);
    (void)pthread_join(thread, NULL);
    CHECK_U64(s.n_wrong, 0);
    CHECK(s.n_rounds > 0);
    free(s.snapshot);
    free(alone);
    mf_session_free(&s.from);
    mf_session_free(&s.to);
    mf_session_free(&busy);
    mf_engine_close(&engine);
    golden_free(&g);
}

int main(void)
{
    check_budget(golden_case_find("mlx_4bit"));
    check_own_memory(golden_case_find("mlx_4bit"));
    check_promise(golden_case_find("mlx_4bit"));
    check_no_promise(golden_case_find("mlx_4bit"));
    check_host_slots(golden_case_find("mlx_4bit"));
    check_host_slots(golden_case_find("v2_groups_f16"));
    check_lost(golden_case_find("mlx_4bit"));
    check_lost(golden_case_find("v3_mlx_4bit_split"));
    check_ended(golden_case_find("mlx_4bit"));
    check_ended(golden_case_find("v2_lite_bf16"));
    check_shared(golden_case_find("mlx_4bit"));
    check_shared(golden_case_find("v2_lite_bf16"));
    for (side = STRICT_DENSE; side <= STRICT_EXPERTS; side++) {
        check_budget(golden_case_find("mlx_4bit"));
        check_promise(golden_case_find("mlx_4bit"));
        check_promise(golden_case_find("k2_fp8"));
        check_lost(golden_case_find("mlx_4bit"));
        check_lost(golden_case_find("k2_fp8"));
        check_names(golden_case_find("mlx_4bit"));
        check_given_back(golden_case_find("mlx_4bit"));
        CHECK_U64(weight_bytes_touched(golden_case_find("mlx_4bit"), side),
                  weight_bytes_touched(golden_case_find("mlx_4bit"), STRICT_ALL));
        check_same_bits();
    }
    side = STRICT_ALL;
    check_auto(golden_case_find("mlx_4bit"));
    check_beside(golden_case_find("mlx_4bit"));
    check_beside(golden_case_find("v2_lite_bf16"));
    return test_result();
}
