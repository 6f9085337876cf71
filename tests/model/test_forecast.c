/* SPDX-License-Identifier: MIT */
/*
 * How long a prompt takes, said beforehand: its chunks and what they read are counted as they then
 * are; rates are measured where they are not known, and learned; progress goes as the time does,
 * not as the tokens. No check is decided by how fast the machine is.
 */
#include "golden.h"

#include "session/session.h"

#define N_CHUNK 16u

static mf_engine *open_it(mf_session **session)
{
    const golden_case *c = golden_case_find("mlx_4bit");
    mf_engine_options options = golden_options(c);
    mf_error error = {0};
    options.n_chunk_tokens = N_CHUNK;
    options.expert_cache_bytes = 0; /* the least: nothing stays */
    options.predict = MF_PREDICT_OFF;
    mf_engine *engine = golden_open(c, &options);
    REQUIRE_OK(mf_session_create(engine, session, &error), &error);
    return engine;
}

static void close_it(mf_engine **engine, mf_session **session)
{
    mf_session_free(session);
    mf_engine_close(engine);
}

static void test_counts(void)
{
    mf_session *session = NULL;
    mf_engine *engine = open_it(&session);
    golden g;
    golden_read(golden_case_find("mlx_4bit"), &g);
    mf_forecast f;
    mf_stats before, after;
    mf_error error = {0};
    const size_t n = 2 * N_CHUNK + 1;
    REQUIRE(g.n_tokens >= n);
    REQUIRE_OK(mf_session_forecast(session, n, 0, &f, &error), &error);
    CHECK(f.struct_bytes == sizeof f && f.n_chunks == 3 && f.read_bytes > 0);
    CHECK(f.seconds == 0 && f.read_bytes_per_second == 0); /* nothing is known */
    REQUIRE_OK(mf_session_forecast(session, n, 5, &f, &error), &error);
    CHECK(f.read_bytes_per_second > 0 && f.computing_seconds > 0 && f.reading_seconds > 0);
    CHECK(f.seconds >= fmax(f.computing_seconds, f.reading_seconds) * 0.999 &&
          f.seconds <= (f.computing_seconds + f.reading_seconds) * 1.001);
    CHECK(f.n_chunks == 3);
    mf_engine_stats(engine, &before);
    REQUIRE_OK(mf_session_eval(session, g.tokens, n, &error), &error);
    mf_engine_stats(engine, &after);
    const double read = (double)(after.read_bytes - before.read_bytes);
    CHECK_MSG((double)f.read_bytes > 0.6 * read && (double)f.read_bytes < 1.5 * read,
              "%" PRIu64 " bytes foretold, %.0f read", f.read_bytes, read);
    /* one session more: it knows by itself */
    REQUIRE_OK(mf_session_forecast(session, n, 0, &f, &error), &error);
    CHECK(f.seconds > 0 && f.n_chunks == 3);
    CHECK_STATUS(mf_session_forecast(session, 1u << 20, 0, &f, &error), MF_ERR_CONTEXT);
    const size_t room = 160 - mf_session_position(session);
    REQUIRE_OK(mf_session_forecast(session, room, 0, &f, &error), &error);
    CHECK_STATUS(mf_session_forecast(session, room + 1, 0, &f, &error), MF_ERR_CONTEXT);
    CHECK_STATUS(mf_session_forecast(NULL, 1, 0, &f, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_session_forecast(session, 1, 0, NULL, &error), MF_ERR_ARGUMENT);
    golden_free(&g);
    close_it(&engine, &session);
}

/* What is seen is what is foretold afterwards; few rows teach nothing. */
static void test_learning(void)
{
    mf_session *session = NULL;
    mf_engine *engine = open_it(&session);
    mf_forecast_rates rates;
    mf_forecast_init(&rates);
    mf_forecast_chunk c = {.n_rows = 4 * N_CHUNK};
    (void)mf_forecast_cost(engine, &rates, &c);
    const uint64_t n_wanted = (uint64_t)engine->info.n_moe_layers * engine->info.n_experts;
    const mf_forecast_seen computed = {.n_us = 2000000, .wait_us = 500000, .n_wanted = n_wanted};
    const mf_forecast_seen read = {.n_us = 4000000,
                                   .wait_us = 2500000,
                                   .reading_us = 4000000,
                                   .read_bytes = (uint64_t)100 << 20,
                                   .n_wanted = n_wanted};
    mf_forecast_chunk few = c;
    few.n_rows = 4;
    mf_forecast_learn(engine, &rates, &few, &computed);
    CHECK(rates.slowness == 0 && rates.read == 0);
    mf_forecast_learn(engine, &rates, &c, &computed);
    CHECK(fabs(mf_forecast_cost(engine, &rates, &c) - 1.5) < 1e-6 && rates.read == 0);
    mf_forecast_learn(engine, &rates, &c, &read);
    (void)mf_forecast_cost(engine, &rates, &c);
    CHECK(fabs(c.computing - 1.5) < 1e-6);
    CHECK(fabs(rates.read - (double)((uint64_t)25 << 20)) < 1);
    /* a drive that waits for its readers is not slower for it */
    const mf_forecast_seen idle = {.n_us = 4000000,
                                   .wait_us = 1000,
                                   .reading_us = 4000000,
                                   .read_bytes = (uint64_t)10 << 20,
                                   .n_wanted = n_wanted};
    mf_forecast_learn(engine, &rates, &c, &idle);
    CHECK(fabs(rates.read - (double)((uint64_t)25 << 20)) < 1);
    close_it(&engine, &session);
}

typedef struct seen_progress {
    mf_session *session;
    uint64_t n, last, total, after_first; /* n_done when the first chunk was through */
    uint32_t n_layers;
    bool is_rising, is_refused;
} seen_progress;

static int watch(void *user, uint64_t n_done, uint64_t n_total)
{
    seen_progress *s = user;
    mf_forecast f;
    s->is_rising = s->is_rising && n_done >= s->last && n_done <= n_total;
    s->last = n_done;
    s->total = n_total;
    s->after_first = ++s->n == s->n_layers ? n_done : s->after_first;
    /* it may not measure; once the first chunk has taught it, it need not */
    s->is_refused = s->is_refused && mf_session_forecast(s->session, 1, 1, &f, NULL) ==
                                         (s->n <= s->n_layers ? MF_ERR_STATE : MF_OK);
    return 0;
}

/* A whole chunk and one token after it: where reading takes the time, they take about as long. */
static void test_progress(double read, double part_least, double part_most)
{
    mf_session *session = NULL;
    mf_engine *engine = open_it(&session);
    golden g;
    golden_read(golden_case_find("mlx_4bit"), &g);
    mf_error error = {0};
    seen_progress s = {.session = session,
                       .n_layers = engine->info.n_layers,
                       .is_rising = true,
                       .is_refused = true};
    engine->rates.read = read;
    mf_session_set_progress(session, watch, &s);
    REQUIRE_OK(mf_session_eval(session, g.tokens, N_CHUNK + 1, &error), &error);
    CHECK(s.is_rising && s.is_refused && s.last == s.total && s.n == 2 * s.n_layers);
    const double part = (double)s.after_first / (double)s.total;
    CHECK_MSG(part >= part_least && part <= part_most, "%.3f after the first chunk", part);
    golden_free(&g);
    close_it(&engine, &session);
}

int main(void)
{
    test_counts();
    test_learning();
    test_progress(1, 0.4, 0.85); /* experts for one token, for all of the chunk's */
    test_progress(1e15, 0.5, 1);
    return test_result();
}
