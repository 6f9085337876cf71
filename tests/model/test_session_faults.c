/* SPDX-License-Identifier: MIT */
/*
 * Sessions when things fail: each allocation in turn, once or for good, and each of many reads,
 * over batches, forks, marks and states. A call that fails says why and leaves every session
 * at a boundary of chunks, from which it goes on with the right bits; nothing leaks.
 */
#include "failing_alloc.h"
#include "golden.h"

#include "io/io_fault.h"
#include "session/session.h"

#include <errno.h>

enum { CHUNK = 12 };

typedef struct play {
    const golden_case *c;
    const golden *g;
    const float *base; /* logits of every position of g's tokens, which every session holds */
    mf_engine *engine;
    mf_session *a, *b, *third;
    mf_status expected; /* what a failure is called */
    uint64_t n_failures;
} play;

/* True if the call went well; a failure must be the expected one. */
static bool went_well(play *p, mf_status status, const mf_error *error)
{
    if (status == MF_OK)
        return true;
    p->n_failures++;
    CHECK_MSG(status == p->expected && error->code == status && error->message[0] != 0,
              "%s: %s: %s", p->c->name, mf_status_name(status), error->message);
    return false;
}

static void check_session(const play *p, const mf_session *s)
{
    if (s == NULL)
        return;
    size_t n = mf_session_position(s);
    CHECK(memcmp(mf_session_tokens(s), p->g->tokens, n * sizeof(int32_t)) == 0);
    const float *logits = mf_session_logits(s);
    CHECK_MSG(logits == NULL || (n > 0 && memcmp(logits, p->base + (n - 1) * p->g->n_vocab,
                                                 p->g->n_vocab * sizeof *logits) == 0),
              "%s: other logits after %zu tokens", p->c->name, n);
}

static void check_all(const play *p)
{
    check_session(p, p->a);
    check_session(p, p->b);
    check_session(p, p->third);
}

/* Brings the sessions that are there to n tokens together, trying again after a failure. */
static bool reach(play *p, size_t n)
{
    mf_session *const all[] = {p->a, p->b, p->third};
    for (int attempt = 0; attempt < 2; attempt++) {
        mf_batch_item items[3];
        size_t n_items = 0;
        mf_error error = {0};
        for (size_t i = 0; i < 3; i++) {
            size_t at = all[i] == NULL ? n : mf_session_position(all[i]);
            if (at < n)
                items[n_items++] = (mf_batch_item){all[i], p->g->tokens + at, n - at};
        }
        mf_status status = n_items == 0 ? MF_OK : mf_engine_eval(p->engine, items, n_items, &error);
        check_all(p);
        if (went_well(p, status, &error))
            return true;
    }
    return false;
}

/* Copies a state by its bytes and gives it to the session. */
static bool copy_to(play *p, mf_session *from, mf_session *to)
{
    mf_error error = {0};
    mf_state *state = NULL, *copy = NULL;
    mf_status status = mf_state_hold(from, mf_session_position(from), &state, &error);
    if (status == MF_OK)
        status = mf_state_create(p->engine, state->tokens, state->position, false, &copy, &error);
    mf_backend *be = p->engine->runner.backend;
    for (uint32_t i = 0; copy != NULL && i < mf_state_n_parts(p->engine, state->position); i++)
        be->ops->copy(be, mf_state_part_at(copy, i).span, mf_state_part_at(state, i).span,
                      mf_state_part_bytes(p->engine, state->position, i));
    if (status == MF_OK)
        status = mf_session_adopt(to, copy, &error);
    mf_state_release(&state);
    mf_state_release(&copy);
    check_all(p);
    return went_well(p, status, &error);
}

/* Goes on as far as failures allow. */
static void run_script(play *p)
{
    mf_error error = {0};
    size_t kept = 0;
    if (!went_well(p, mf_session_create(p->engine, &p->a, &error), &error) &&
        !went_well(p, mf_session_create(p->engine, &p->a, &error), &error))
        return;
    mf_mark_auto(p->a, 1, 1); /* what does not fit is left out */
    if (!reach(p, 17) || !went_well(p, mf_mark_save(p->a, &error), &error) || !reach(p, 40))
        return;
    (void)went_well(p, mf_session_fork(p->a, &p->b, &error), &error);
    (void)went_well(p, mf_session_create(p->engine, &p->third, &error), &error);
    check_all(p);
    if (!reach(p, 45) || !went_well(p, mf_session_truncate(p->a, 30, &kept, &error), &error))
        return;
    CHECK(kept <= 30);
    check_all(p);
    if (!reach(p, 50))
        return;
    if (p->b != NULL && p->third != NULL && copy_to(p, p->b, p->third))
        CHECK_U64(mf_session_position(p->third), 50);
    (void)reach(p, p->g->n_tokens);
}

static void end(play *p)
{
    mf_session_free(&p->a);
    mf_session_free(&p->b);
    mf_session_free(&p->third);
    CHECK_U64(p->engine->pool.kinds[MF_UNIT_PAGE].n_used, 0);
    CHECK_U64(p->engine->pool.kinds[MF_UNIT_RECURRENT].n_used, 0);
    mf_engine_close(&p->engine);
}

static mf_engine_options script_options(const golden_case *c)
{
    mf_engine_options options = golden_options(c);
    options.n_chunk_tokens = CHUNK;
    options.expert_cache_bytes = 0;
    options.n_threads = 1;
    options.n_sessions = 3;
    options.state_bytes = 16 << 20; /* room for every mark */
    options.io = MF_IO_POOL;
    options.predict = MF_PREDICT_OFF; /* each read is asked for: test_predict has the others */
    return options;
}

static void check_allocations(const golden_case *c, const golden *g, const float *base, bool once)
{
    const unsigned long long step = golden_is_short() ? 20 : GOLDEN_ON_DEVICE ? 5 : 1;
    unsigned long long n_failed = 0;
    for (unsigned long long n = 1;; n += step) {
        failing f = {0};
        mf_engine_options options = script_options(c);
        options.allocator = failing_allocator(&f);
        play p = {.c = c, .g = g, .base = base, .expected = MF_ERR_NO_MEMORY};
        p.engine = golden_open(c, &options); /* test_allocations.c has its failures */
        failing_arm(&f, n, once);
        run_script(&p);
        bool is_over = !failing_disarm(&f);
        CHECK(is_over ? p.n_failures == 0 : true);
        n_failed += p.n_failures > 0;
        end(&p);
        failing_check_end(&f, c->name);
        if (is_over)
            break;
    }
    fprintf(stderr, "%s: %llu allocations failed one by one\n", c->name, n_failed);
    CHECK(n_failed >= 10 / step + 1);
}

/* How many reads there are depends on the order in which experts come: of the last ones one may not
 * be reached, and then nothing fails. */
static void check_reads(const golden_case *c, const golden *g, const float *base)
{
    const uint64_t most = golden_is_short() ? 2 : GOLDEN_ON_DEVICE ? 10 : 40;
    uint64_t n_reads = 0, n_runs = 0, n_reached = 0;
    for (uint64_t n = 0; n == 0 || n < n_reads; n += n == 0 ? 1 : 1 + n_reads / most) {
        mf_io_fault fault = {.inner = &mf_io_engine_pool, .seed = 3, .hold_chance = 200};
        mf_engine_options options = script_options(c);
        play p = {.c = c, .g = g, .base = base, .expected = MF_ERR_IO};
        mf_error error = {0};
        const mf_engine_hooks hooks = {.io_engine = &mf_io_engine_fault, .io_arg = &fault};
        REQUIRE_OK(mf_engine_open_with(golden_path(c->name), &options, &hooks, &p.engine, &error),
                   &error);
        uint64_t before = fault.n_reads;
        fault.fail_from = n == 0 ? 0 : before + n;
        fault.fail_count = n == 0 ? 0 : 1;
        fault.fail_errno = n == 0 ? 0 : EIO;
        run_script(&p);
        CHECK_MSG((p.n_failures > 0) == (fault.n_failed > 0),
                  "%s: read %llu of %llu: %llu failures", c->name, (unsigned long long)n,
                  (unsigned long long)(fault.n_reads - before), (unsigned long long)p.n_failures);
        CHECK(n == 0 ? fault.n_failed == 0
                     : (fault.n_failed == 1) == (fault.n_reads - before >= n));
        n_runs += n != 0;
        n_reached += fault.n_failed;
        CHECK_U64(mf_session_position(p.a), g->n_tokens); /* one failure is got over */
        n_reads = n == 0 ? fault.n_reads - before : n_reads;
        end(&p);
    }
    fprintf(stderr, "%s: %llu failures among %llu reads\n", c->name, (unsigned long long)n_reached,
            (unsigned long long)n_reads);
    CHECK(n_reached * 10 >= n_runs * 9);
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "v2_lite_bf16"};
    for (size_t i = golden_is_short() ? 1 : 0; i < sizeof names / sizeof *names; i++) {
        const golden_case *c = golden_case_find(names[i]);
        golden g;
        golden_read(c, &g);
        mf_engine_options options = script_options(c);
        mf_error error = {0};
        float *base = golden_run(c, &g, &options, &error);
        REQUIRE(base != NULL);
        check_allocations(c, &g, base, true);
        check_allocations(c, &g, base, false);
        check_reads(c, &g, base);
        free(base);
        golden_free(&g);
    }
    return test_result();
}
