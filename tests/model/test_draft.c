/* SPDX-License-Identifier: MIT */
/*
 * Tokens proposed and evaluated ahead. What the layer proposes, against its published definition
 * (tools/make_draft_goldens.py); the same bits with proposals as without, whether they are taken or
 * not, of one session and of several, with marks, forks, truncations and reads that fail; the same
 * choices by sampler and seed; and when proposals are thought to pay.
 */
#include "golden.h"

#include "io/io_fault.h"
#include "session/session.h"

#define N_SECOND 8u

static const char *const cases[] = {"draft_next_bf16", "draft_v3_bf16"};
#define N_CASES (sizeof cases / sizeof *cases)
/* Other families, and the same numbers as GGUF. */
static const char *const forms[] = {"draft_glm4_bf16",       "draft_v32_bf16", "draft_glm5_bf16",
                                    "draft_next_gguf",       "draft_v3_gguf",  "draft_glm4_gguf",
                                    "draft_qwen35_mlx_4bit", "draft_v4_bf16"};
#define N_FORMS (sizeof forms / sizeof *forms)

typedef struct drafts {
    uint32_t n_tokens, n_vocab;
    const int32_t *tokens;
    const float *proposals; /* [n_tokens - 1, n_vocab] */
    const float *logits;    /* [n_tokens, n_vocab] */
    const int32_t *firsts;  /* [N_SECOND] */
    const float *seconds;   /* [N_SECOND, n_vocab] */
    unsigned char *file;
} drafts;

static drafts read_drafts(const char *name)
{
    const char *gguf = strstr(name, "_gguf"); /* the same numbers as the published form */
    char path[256], published[64];
    size_t n_bytes;
    drafts d = {0};
    const int n = gguf != NULL ? (int)(gguf - name) : (int)strlen(name);
    snprintf(published, sizeof published, "%.*s%s", n, name, gguf != NULL ? "_bf16" : "");
    snprintf(path, sizeof path, "%s/draft.bin", golden_path(published));
    d.file = read_file(path, &n_bytes);
    REQUIRE(n_bytes > 16 && memcmp(d.file, "MFDRAFT1", 8) == 0);
    memcpy(&d.n_tokens, d.file + 8, 4);
    memcpy(&d.n_vocab, d.file + 12, 4);
    d.tokens = (const int32_t *)(const void *)(d.file + 16);
    d.proposals = (const float *)(const void *)(d.tokens + d.n_tokens);
    d.logits = d.proposals + (size_t)(d.n_tokens - 1) * d.n_vocab;
    d.firsts = (const int32_t *)(const void *)(d.logits + (size_t)d.n_tokens * d.n_vocab);
    d.seconds = (const float *)(const void *)(d.firsts + N_SECOND);
    const unsigned char *end = (const unsigned char *)(d.seconds + (size_t)N_SECOND * d.n_vocab);
    REQUIRE(end == d.file + n_bytes);
    return d;
}

typedef struct setup {
    uint32_t n_draft, n_threads, n_chunk, n_sessions;
    uint64_t state_bytes;
    mf_io_fault *fault;
} setup;

static mf_engine *open_it(const char *name, const setup *s)
{
    mf_error error = {0};
    mf_engine *engine = NULL;
    mf_engine_options options;
    mf_engine_hooks hooks = {0};
    mf_engine_options_default(&options);
    options.n_context_tokens = 160;
    options.expert_cache_bytes = 0;
    options.n_threads = s->n_threads;
    options.n_chunk_tokens = s->n_chunk;
    options.n_sessions = s->n_sessions != 0 ? s->n_sessions : 1;
    options.n_draft_tokens = s->n_draft;
    options.state_bytes = s->state_bytes;
    options.draft = MF_DRAFT_ALWAYS;
    if (s->fault != NULL) {
        hooks.io_engine = &mf_io_engine_fault;
        hooks.io_arg = s->fault;
    }
    REQUIRE_OK(mf_engine_open_with(golden_path(name), &options, &hooks, &engine, &error), &error);
    return engine;
}

static void eval(mf_session *session, const int32_t *tokens, size_t n)
{
    mf_error error = {0};
    REQUIRE_OK(mf_session_eval(session, tokens, n, &error), &error);
}

static float worst_of(const float *a, const float *b, size_t n)
{
    float worst = 0;
    for (size_t i = 0; i < n; i++) {
        const float off = a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];
        worst = off <= worst ? worst : off; /* a NaN is the worst */
    }
    return worst;
}

/* ---------------------------------------- what is proposed ---------------------------------- */

typedef struct watched {
    const drafts *golden;
    uint32_t n_first, n_second;
    float worst[2];
} watched;

static void compare(void *ctx, const mf_session *session, uint32_t round, const float *logits)
{
    watched *w = ctx;
    const drafts *d = w->golden;
    const uint32_t at = (uint32_t)mf_session_position(session); /* of the token it follows */
    const uint32_t first_second = d->n_tokens - N_SECOND;
    const float *expected = d->proposals + (size_t)(at - 1) * d->n_vocab;
    if (round == 0) {
        w->n_first++;
    } else if (round == 1 && at >= first_second &&
               session->draft.tokens[1] == d->firsts[at - first_second]) {
        expected = d->seconds + (size_t)(at - first_second) * d->n_vocab;
        w->n_second++;
    } else {
        return;
    }
    const float off = worst_of(logits, expected, d->n_vocab);
    w->worst[round] = off <= w->worst[round] ? w->worst[round] : off;
}

/* The first n_prompt tokens in calls of at most n_each, and the others one by one. */
static void check_proposals(const char *name, const drafts *d, uint32_t n_prompt, uint32_t n_each)
{
    const setup s = {.n_draft = 2, .n_threads = 2, .n_chunk = 16};
    mf_engine *engine = open_it(name, &s);
    mf_session *session = golden_session(engine);
    watched w = {.golden = d};
    float worst = 0;
    engine->draft_watch = compare;
    engine->draft_watch_ctx = &w;
    for (uint32_t i = 0; i < n_prompt; i += n_each)
        eval(session, d->tokens + i, i + n_each < n_prompt ? n_each : n_prompt - i);
    for (uint32_t i = n_prompt; i < d->n_tokens; i++) {
        eval(session, d->tokens + i, 1);
        const float off =
            worst_of(mf_session_logits(session), d->logits + (size_t)i * d->n_vocab, d->n_vocab);
        worst = off <= worst ? worst : off;
    }
    CHECK_MSG(worst < 1e-4f, "%s: logits off by %g", name, (double)worst);
    CHECK_MSG(w.worst[0] < 1e-4f && w.worst[1] < 1e-4f, "%s: proposals off by %g and %g", name,
              (double)w.worst[0], (double)w.worst[1]);
    CHECK_MSG(w.n_first + 2 >= d->n_tokens - n_prompt && w.n_second >= N_SECOND - 2,
              "%s: %u and %u proposals of %u tokens", name, w.n_first, w.n_second,
              d->n_tokens - n_prompt);
    mf_session_free(&session);
    mf_engine_close(&engine);
}

/* ------------------------------------ the same bits ---------------------------------------- -- */

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

/* The token that was evaluated ahead, where chance says so, or any. */
static int32_t choose(const mf_session *s, uint32_t n_vocab, uint64_t *random)
{
    const mf_session_draft *d = &s->draft;
    const int32_t any = (int32_t)random_below(random, n_vocab);
    return d->n_done < d->n && random_below(random, 4) != 0 ? d->tokens[d->n_done] : any;
}

/* What may be done to a session between two tokens, in both engines alike. */
static void disturb(mf_session *s, mf_session *plain, uint32_t what)
{
    const size_t n_bytes = s->engine->runner.h.n_vocab * sizeof(float);
    mf_error error = {0};
    size_t kept[2] = {0, 0};
    mf_session *forks[2] = {NULL, NULL};
    switch (what) {
    case 0:
        REQUIRE_OK(mf_mark_save(s, &error), &error);
        REQUIRE_OK(mf_mark_save(plain, &error), &error);
        break;
    case 1:
        if (mf_session_truncate(s, mf_session_position(s) - 1, &kept[0], NULL) !=
            mf_session_truncate(plain, mf_session_position(plain) - 1, &kept[1], NULL))
            CHECK_MSG(false, "one was truncated, the other was not");
        CHECK(kept[0] == kept[1]);
        break;
    case 2:
        REQUIRE_OK(mf_session_fork(s, &forks[0], &error), &error);
        REQUIRE_OK(mf_session_fork(plain, &forks[1], &error), &error);
        for (int32_t i = 0; i < 3; i++) {
            eval(forks[0], &i, 1);
            eval(forks[1], &i, 1);
        }
        CHECK(memcmp(mf_session_logits(forks[0]), mf_session_logits(forks[1]), n_bytes) == 0);
        mf_session_free(&forks[0]);
        mf_session_free(&forks[1]);
        break;
    default:
        break;
    }
}

static void check_same(const char *name, const setup *s, bool is_disturbed)
{
    const setup without = {.n_threads = 1, .n_chunk = 8, .n_sessions = 2};
    const drafts d = read_drafts(name);
    mf_engine *engine = open_it(name, s), *plain = open_it(name, &without);
    mf_session *session = golden_session(engine), *other = golden_session(plain);
    uint64_t random = 1;
    mf_stats stats;
    eval(session, d.tokens, 5);
    eval(other, d.tokens, 5);
    for (uint32_t i = 0; i < 100 && mf_session_position(session) < 150; i++) {
        const int32_t token = choose(session, d.n_vocab, &random);
        eval(session, &token, 1);
        eval(other, &token, 1);
        CHECK_MSG(mf_session_position(session) == mf_session_position(other) &&
                      memcmp(mf_session_logits(session), mf_session_logits(other),
                             d.n_vocab * sizeof(float)) == 0,
                  "%s: other logits with %u proposals, step %u", name, s->n_draft, i);
        if (is_disturbed)
            disturb(session, other, random_below(&random, 12));
    }
    mf_engine_stats(engine, &stats);
    CHECK_MSG(stats.n_kept > 20 && stats.n_kept < stats.n_proposed, "%s: %llu of %llu kept", name,
              (unsigned long long)stats.n_kept, (unsigned long long)stats.n_proposed);
    CHECK(is_disturbed || stats.n_tokens == 105);
    mf_session_free(&session);
    mf_session_free(&other);
    mf_engine_close(&engine);
    mf_engine_close(&plain);
    free(d.file);
}

/* Several sessions in one batch, each with proposals or without as it comes. */
static void check_batch(const char *name, uint32_t n_chunk, uint32_t n_steps)
{
    enum { N = 3 };
    const setup with = {.n_draft = 3, .n_threads = 2, .n_chunk = n_chunk, .n_sessions = N};
    const setup without = {.n_threads = 2, .n_chunk = n_chunk, .n_sessions = N};
    const drafts d = read_drafts(name);
    mf_engine *engines[2] = {open_it(name, &with), open_it(name, &without)};
    mf_session *sessions[2][N];
    uint64_t random = 2;
    mf_error error = {0};
    for (uint32_t e = 0; e < 2; e++)
        for (uint32_t i = 0; i < N; i++)
            sessions[e][i] = golden_session(engines[e]);
    for (uint32_t step = 0; step < n_steps; step++) {
        int32_t tokens[N][4];
        mf_batch_item items[2][N];
        bool is_full = false;
        for (uint32_t i = 0; i < N; i++) {
            size_t n = random_below(&random, 5) == 0 ? 3 : 1;
            const size_t left = 160 - mf_session_position(sessions[0][i]);
            n = n < left ? n : left;
            is_full = is_full || n == 0;
            for (size_t j = 0; j < n; j++)
                tokens[i][j] = choose(sessions[0][i], d.n_vocab, &random);
            for (uint32_t e = 0; e < 2; e++)
                items[e][i] = (mf_batch_item){sessions[e][i], tokens[i], n};
        }
        if (is_full)
            break;
        for (uint32_t e = 0; e < 2; e++)
            REQUIRE_OK(mf_engine_eval(engines[e], items[e], N, &error), &error);
        for (uint32_t i = 0; i < N; i++)
            CHECK_MSG(memcmp(mf_session_logits(sessions[0][i]), mf_session_logits(sessions[1][i]),
                             d.n_vocab * sizeof(float)) == 0,
                      "%s: other logits of session %u, step %u", name, i, step);
    }
    mf_stats stats;
    mf_engine_stats(engines[0], &stats);
    CHECK(stats.n_kept > 5);
    for (uint32_t e = 0; e < 2; e++) {
        for (uint32_t i = 0; i < N; i++)
            mf_session_free(&sessions[e][i]);
        mf_engine_close(&engines[e]);
    }
    free(d.file);
}

/* A session whose states wait for the layer that proposes, and another that fills the chunk: when
 * the layer follows both, it has no more rows than a chunk. */
static void check_full_chunk(const char *name)
{
    enum { N_CHUNK = 16, N_STEPS = 6, N_OTHER = N_CHUNK - 1 };
    const setup with = {.n_draft = 2, .n_threads = 1, .n_chunk = N_CHUNK, .n_sessions = 2};
    const setup without = {.n_threads = 1, .n_chunk = N_CHUNK, .n_sessions = 2};
    const drafts d = read_drafts(name);
    mf_engine *engines[2] = {open_it(name, &with), open_it(name, &without)};
    mf_session *sessions[2][2];
    mf_error error = {0};
    int32_t tokens[N_OTHER];
    for (int32_t i = 0; i < N_OTHER; i++)
        tokens[i] = (int32_t)d.n_vocab - 1 - i;
    for (uint32_t e = 0; e < 2; e++)
        for (uint32_t i = 0; i < 2; i++)
            sessions[e][i] = golden_session(engines[e]);
    for (uint32_t step = 0; step < N_STEPS; step++) {
        for (uint32_t e = 0; e < 2; e++) {
            const mf_batch_item items[] = {{sessions[e][0], tokens + step, 1},
                                           {sessions[e][1], tokens, N_OTHER}};
            REQUIRE_OK(mf_engine_eval(engines[e], items, 2, &error), &error);
        }
        for (uint32_t i = 0; i < 2; i++)
            CHECK_MSG(memcmp(mf_session_logits(sessions[0][i]), mf_session_logits(sessions[1][i]),
                             d.n_vocab * sizeof(float)) == 0,
                      "%s: other logits of session %u after chunk %u", name, i, step);
    }
    for (uint32_t e = 0; e < 2; e++) {
        for (uint32_t i = 0; i < 2; i++)
            mf_session_free(&sessions[e][i]);
        mf_engine_close(&engines[e]);
    }
    free(d.file);
}

/* ---------------------------------------- steps ---------------------------------------- */

static int cancel(void *user, uint64_t n_done, uint64_t n_total)
{
    (void)user;
    (void)n_done;
    (void)n_total;
    return 1;
}

/* An item that is cancelled has done nothing, though its first token was evaluated ahead; one that
 * is evaluated ahead as a whole is done. */
static void check_step(const char *name)
{
    const setup with = {.n_draft = 2, .n_threads = 1, .n_chunk = 8};
    mf_engine *engine = open_it(name, &with);
    mf_session *session = golden_session(engine);
    const mf_session_draft *d = &session->draft;
    mf_error error = {0};
    for (int32_t token = 1; token < 5; token++)
        eval(session, &token, 1);
    REQUIRE(d->n_done < d->n);
    const int32_t tokens[] = {d->tokens[d->n_done], 1, 2, 3};
    mf_step_item item = {.struct_bytes = sizeof item, .session = session, .tokens = tokens};
    item.n_tokens = 4;
    mf_session_set_progress(session, cancel, NULL);
    CHECK_STATUS(mf_engine_step(engine, &item, 1, &error), MF_ERR_CANCELLED);
    CHECK_U64(item.n_done, 0);
    CHECK_U64(mf_session_position(session), 4);
    mf_session_set_progress(session, NULL, NULL);
    for (int32_t token = 1; d->n_done == d->n && token < 9; token++)
        eval(session, &token, 1);
    REQUIRE(d->n_done < d->n);
    const int32_t next = d->tokens[d->n_done];
    const size_t position = mf_session_position(session);
    item.tokens = &next;
    item.n_tokens = 1;
    mf_session_set_progress(session, cancel, NULL); /* nothing is evaluated, nobody asked */
    REQUIRE_OK(mf_engine_step(engine, &item, 1, &error), &error);
    CHECK_U64(item.n_done, 1);
    CHECK_U64(mf_session_position(session), position + 1);
    mf_session_free(&session);
    mf_engine_close(&engine);
}

/* ---------------------------------------- windows ---------------------------------------- */

/* Pages that no window reaches any more are given back, whether a pass proposes or not. */
static void check_window(const char *name)
{
    enum { N_PLAIN = 9, N = 158 };
    const setup with = {.n_draft = 2, .n_threads = 1, .n_chunk = 8};
    const drafts d = read_drafts(name);
    mf_engine *engine = open_it(name, &with);
    mf_session *session = golden_session(engine);
    const mf_page_table *t = &session->pages[MF_UNIT_WINDOW];
    uint64_t random = 3;
    eval(session, d.tokens, N_PLAIN);
    for (uint32_t i = N_PLAIN; i < N; i++) {
        const int32_t token = choose(session, d.n_vocab, &random);
        eval(session, &token, 1);
        CHECK_MSG(t->first >= mf_window_kept(engine->runner.plan.window, i + 1),
                  "%s: after %u tokens pages from %u on are held", name, i + 1, t->first);
    }
    CHECK(mf_window_kept(engine->runner.plan.window, N) > 0);
    mf_session_free(&session);
    mf_engine_close(&engine);
    free(d.file);
}

/* The next token as it was evaluated ahead; there is one. */
static void eval_ahead(mf_session *session)
{
    const mf_session_draft *d = &session->draft;
    REQUIRE(d->n_done < d->n);
    const int32_t token = d->tokens[d->n_done];
    eval(session, &token, 1);
}

/* A mark at a page's end, behind which tokens are evaluated ahead, has no part in the next page:
 * what is written there after going back to it leaves forks alone. */
static void check_mark(const char *name)
{
    enum { MARKED = 64 };
    const setup with = {.n_draft = 2, .n_threads = 1, .n_chunk = 8, .n_sessions = 3};
    const drafts d = read_drafts(name);
    mf_engine *engine = open_it(name, &with);
    mf_session *session = golden_session(engine), *fork = NULL, *fresh = golden_session(engine);
    mf_error error = {0};
    for (int32_t i = 0; i < MARKED; i++) {
        const int32_t token = i % 7;
        eval(session, &token, 1);
    }
    REQUIRE_OK(mf_mark_save(session, &error), &error);
    for (int i = 0; i < 2; i++)
        eval_ahead(session);
    REQUIRE_OK(mf_session_fork(session, &fork, &error), &error);
    REQUIRE_OK(mf_mark_restore(session, MARKED, &error), &error);
    CHECK_U64(session->pages[MF_UNIT_WINDOW].n, mf_pages_of(MARKED));
    eval(session, d.tokens, 5);
    eval(fork, d.tokens, 1);
    eval(fresh, mf_session_tokens(fork), mf_session_position(fork));
    CHECK_BYTES(mf_session_logits(fork), mf_session_logits(fresh), d.n_vocab * sizeof(float));
    mf_session_free(&session);
    mf_session_free(&fork);
    mf_session_free(&fresh);
    mf_engine_close(&engine);
    free(d.file);
}

/* What a session says that it holds has the states of tokens that were evaluated ahead. */
static void check_state_bytes(const char *name)
{
    const setup with = {.n_draft = 2, .n_threads = 1, .n_chunk = 8};
    const drafts d = read_drafts(name);
    mf_engine *engine = open_it(name, &with);
    mf_session *session = golden_session(engine);
    uint32_t n_most = 0;
    eval(session, d.tokens, 9);
    for (uint32_t i = 0; i < 5; i++) {
        uint64_t n_bytes = 0;
        eval(session, d.tokens + i, 1);
        for (int k = 0; k < MF_N_UNIT_KINDS; k++)
            n_bytes += engine->pool.kinds[k].n_used * engine->pool.kinds[k].unit_bytes;
        CHECK_U64(mf_session_state_bytes(session), n_bytes);
        const uint32_t n = engine->pool.kinds[MF_UNIT_RECURRENT].n_used;
        n_most = n > n_most ? n : n_most;
    }
    CHECK(n_most > 2);
    mf_session_free(&session);
    mf_engine_close(&engine);
    free(d.file);
}

/* ---------------------------------------- sampling ---------------------------------------- */

/* The same sampler of the same seed chooses the same tokens: proposals are compared with what it
 * chose, and never enter its choice, so that the distribution is the same because each draw is. */
static void sample(const char *name, uint32_t n_draft, uint64_t seed, int32_t *out, uint32_t n)
{
    const setup s = {.n_draft = n_draft, .n_threads = 2, .n_chunk = 16};
    mf_engine *engine = open_it(name, &s);
    mf_session *session = golden_session(engine);
    mf_sampler *sampler = NULL;
    mf_sampler_options options;
    mf_error error = {0};
    mf_model_info info;
    mf_engine_info(engine, &info);
    mf_sampler_options_default(&options);
    options.temperature = seed % 3 == 0 ? 0.0f : 0.4f * (float)(seed % 3);
    options.seed = seed;
    REQUIRE_OK(mf_sampler_create(&options, info.n_vocab, NULL, &sampler, &error), &error);
    int32_t token = (int32_t)seed;
    for (uint32_t i = 0; i < n; i++) {
        eval(session, &token, 1);
        token = mf_sampler_sample(sampler, mf_session_logits(session));
        mf_sampler_accept(sampler, token);
        out[i] = token;
    }
    mf_sampler_free(&sampler);
    mf_session_free(&session);
    mf_engine_close(&engine);
}

static void check_sampling(const char *name)
{
    int32_t with[60], without[60];
    for (uint64_t seed = 1; seed <= 6; seed++) {
        sample(name, (uint32_t)(seed % 3) + 1, seed, with, 60);
        sample(name, 0, seed, without, 60);
        CHECK_MSG(memcmp(with, without, sizeof with) == 0, "%s: other tokens by seed %llu", name,
                  (unsigned long long)seed);
    }
}

/* ---------------------------------------- faults and profit --------------------------------- */

typedef struct failing {
    mf_io_fault *fault;
    uint32_t n_failing; /* reads */
} failing;

/* After the first proposal of a pass the next reads fail. */
static void fail_next(void *ctx, const mf_session *session, uint32_t round, const float *logits)
{
    const failing *f = ctx;
    (void)session;
    (void)logits;
    if (round == 0) {
        f->fault->fail_from = f->fault->n_reads + 1;
        f->fault->fail_count = f->n_failing;
    }
}

/* The first read is the proposing layer's: it is left alone from then on. Or it is one of the pass:
 * that is made again without what was proposed, so one failure fails nobody; where all reads fail
 * the call fails as any other, and can be made again. The bits are the same in any case. */
static void check_faults(const char *name, uint32_t n_draft)
{
    const setup plain = {.n_threads = 1, .n_chunk = 8};
    mf_io_fault fault = {.inner = &mf_io_engine_pool, .seed = 3, .fail_errno = 5};
    const setup faulty = {.n_draft = n_draft, .n_threads = 1, .n_chunk = 8, .fault = &fault};
    const drafts d = read_drafts(name);
    mf_engine *engines[2] = {open_it(name, &faulty), open_it(name, &plain)};
    mf_session *s[2] = {golden_session(engines[0]), golden_session(engines[1])};
    failing f = {.fault = &fault};
    engines[0]->draft_watch_ctx = &f;
    for (uint32_t i = 0; i < 40; i++) {
        mf_error error;
        const bool fails_all = i % 4 == 3;
        f.n_failing = fails_all ? UINT32_MAX : 1;
        engines[0]->draft_watch = fail_next;
        const mf_status status = mf_session_eval(s[0], d.tokens + i, 1, &error);
        fault.fail_count = 0;
        CHECK_MSG(status == MF_OK || (fails_all && status == MF_ERR_IO), "%s: step %u: %s", name, i,
                  error.message);
        CHECK(mf_session_position(s[0]) == i + (status == MF_OK));
        engines[0]->draft_watch = NULL;
        if (status != MF_OK)
            eval(s[0], d.tokens + i, 1);
        eval(s[1], d.tokens + i, 1);
        CHECK_MSG(memcmp(mf_session_logits(s[0]), mf_session_logits(s[1]),
                         d.n_vocab * sizeof(float)) == 0,
                  "%s: other logits after a failed read, step %u", name, i);
    }
    CHECK_MSG(engines[0]->has_draft_failed || fault.n_failed > 1, "%s: no read failed", name);
    for (int i = 0; i < 2; i++) {
        mf_session_free(&s[i]);
        mf_engine_close(&engines[i]);
    }
    free(d.file);
}

/* A checkpoint that has no such layer says so, and one that has says nothing of it unasked. */
static void check_refusal(void)
{
    mf_error error = {0};
    mf_engine *engine = NULL;
    mf_engine_options options;
    mf_engine_options_default(&options);
    options.n_draft_tokens = 1;
    CHECK(mf_engine_open(golden_path("hf_saved_tied_f16"), &options, &engine, &error) ==
          MF_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(error.message, "multi-token-prediction") != NULL, "%s", error.message);
    options.n_draft_tokens = MF_DRAFT_TOKENS_MOST + 1;
    CHECK(mf_engine_open(golden_path(cases[0]), &options, &engine, &error) == MF_ERR_ARGUMENT);
}

/* Passes of a way that costs so much for a token; how many of the last hundred were on. */
static uint32_t run_profit(uint64_t bytes_without, uint64_t bytes_with, uint64_t us_without,
                           uint64_t us_with)
{
    mf_draft_profit p;
    uint32_t n_on = 0;
    mf_draft_profit_init(&p);
    for (uint32_t i = 0; i < 1100; i++) {
        const bool is_on = p.is_on;
        const mf_draft_cost cost = {1, is_on ? bytes_with : bytes_without,
                                    is_on ? us_with : us_without};
        n_on += i >= 1000 && is_on;
        mf_draft_profit_add(&p, &cost);
    }
    return n_on;
}

static void check_profit(void)
{
    CHECK(run_profit(1 << 20, 1 << 21, 100, 50) <= 16); /* more bytes, whatever the time */
    CHECK(run_profit(1 << 21, 1 << 20, 50, 100) >= 84);
    CHECK(run_profit(0, 0, 100, 120) <= 16); /* nothing is read: the time */
    CHECK(run_profit(100, 0, 100, 80) >= 84);
}

static void check_long(const char *name, const drafts *d)
{
    check_proposals(name, d, 40, 7);
    check_proposals(name, d, 2, 1);
    for (uint32_t n = 1; n <= 4; n += 3) {
        const setup s = {.n_draft = n, .n_threads = 1 + n, .n_chunk = 8, .n_sessions = 2};
        check_same(name, &s, false);
        check_same(name, &s, true);
    }
    check_batch(name, 7, 160); /* up to the context's end, in chunks too small for all */
    check_sampling(name);
    check_faults(name, 1);
    check_faults(name, 2);
}

int main(void)
{
    const setup s = {.n_draft = 2, .n_threads = 2, .n_chunk = 8, .n_sessions = 2};
    for (size_t i = 0; i < N_CASES; i++) {
        const drafts d = read_drafts(cases[i]);
        if (!golden_is_short() || i == 1) /* a device in software: of each check one case */
            check_proposals(cases[i], &d, 20, 20);
        if (!golden_is_short() || i == 0)
            check_same(cases[i], &s, true);
        if (!golden_is_short()) {
            check_same(cases[i], &s, false);
            check_batch(cases[i], 12, 30);
            check_full_chunk(cases[i]);
            check_long(cases[i], &d);
        }
        free(d.file);
    }
    for (size_t i = 0; i < N_FORMS && !golden_is_short(); i++) {
        const drafts d = read_drafts(forms[i]);
        check_proposals(forms[i], &d, 20, 7);
        check_same(forms[i], &s, false);
        free(d.file);
    }
    if (!golden_is_short()) {
        check_full_chunk("draft_v4_bf16");
        check_window("draft_v4_bf16");
        check_mark("draft_v4_bf16");
    }
    check_step(cases[0]);
    check_state_bytes(cases[0]);
    check_refusal();
    check_profit();
    return test_result();
}
