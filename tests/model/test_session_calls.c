/* SPDX-License-Identifier: MIT */
/*
 * Calls that evaluate: what a step gives each item, whom a cancel stops, what a callback may not
 * do, what marks outlive others, and what is counted meanwhile.
 */
#include "golden.h"

#include "session/session_call.h"

enum { N_SESSIONS = 16, N_CHUNK = 24 };

typedef struct scene {
    const golden_case *c;
    golden g;
    float *base; /* logits of every token, [n_tokens, n_vocab] */
    mf_engine *engine;
    mf_session *sessions[N_SESSIONS];
} scene;

static void scene_open(scene *s, const char *name, uint32_t n_chunk, uint64_t mark_bytes)
{
    mf_error error = {0};
    *s = (scene){.c = golden_case_find(name)};
    golden_read(s->c, &s->g);
    mf_engine_options options = golden_options(s->c);
    options.n_sessions = N_SESSIONS + 2;
    s->base = golden_run(s->c, &s->g, &options, &error);
    REQUIRE(s->base != NULL && s->g.n_tokens >= 40);
    options.n_chunk_tokens = n_chunk;
    options.state_bytes = 256 << 20;
    options.mark_bytes = mark_bytes;
    s->engine = golden_open(s->c, &options);
    for (int i = 0; i < N_SESSIONS; i++)
        REQUIRE_OK(mf_session_create(s->engine, &s->sessions[i], &error), &error);
}

static void scene_close(scene *s)
{
    for (int i = 0; i < N_SESSIONS; i++)
        mf_session_free(&s->sessions[i]);
    CHECK_U64(s->engine->pool.kinds[MF_UNIT_PAGE].n_used, 0);
    CHECK_U64(s->engine->pool.kinds[MF_UNIT_RECURRENT].n_used, 0);
    mf_engine_close(&s->engine);
    CHECK(s->engine == NULL);
    free(s->base);
    golden_free(&s->g);
}

/* The session holds n tokens of the golden text, and their logits if it has any. */
static void check_at(const scene *s, const mf_session *session, size_t n, bool has_logits)
{
    const float *logits = mf_session_logits(session);
    CHECK_U64(mf_session_position(session), n);
    CHECK_MSG((logits != NULL) == has_logits, "%s: logits %d after %zu tokens", s->c->name,
              logits != NULL, n);
    CHECK_BYTES(mf_session_tokens(session), s->g.tokens, n * sizeof(int32_t));
    if (logits != NULL && n > 0)
        CHECK_BYTES(logits, s->base + (n - 1) * s->g.n_vocab, s->g.n_vocab * sizeof *logits);
}

/* Tokens of the golden text behind those that the session holds. */
static mf_step_item item_of(const scene *s, int i, size_t n_tokens)
{
    mf_session *session = s->sessions[i];
    return (mf_step_item){.struct_bytes = sizeof(mf_step_item),
                          .session = session,
                          .tokens = s->g.tokens + mf_session_position(session),
                          .n_tokens = n_tokens};
}

static void go_to(const scene *s, mf_session *session, size_t n)
{
    mf_error error = {0};
    size_t at = mf_session_position(session);
    REQUIRE_OK(mf_session_eval(session, s->g.tokens + at, n - at, &error), &error);
}

/* ---------------------------------------- steps ---------------------------------------- */

/* A long prompt among single tokens, wherever it stands, gets all the rows that they leave. */
static void check_shares(const char *name)
{
    for (int at = 0; at < N_SESSIONS; at += N_SESSIONS - 1) {
        scene s;
        mf_step_item items[N_SESSIONS];
        mf_error error = {0};
        scene_open(&s, name, N_CHUNK, 0);
        for (int i = 0; i < N_SESSIONS; i++)
            items[i] = item_of(&s, i, i == at ? 40 : 1);
        REQUIRE_OK(mf_engine_step(s.engine, items, N_SESSIONS, &error), &error);
        for (int i = 0; i < N_SESSIONS; i++) {
            CHECK_U64(items[i].n_done, i == at ? N_CHUNK - (N_SESSIONS - 1) : 1);
            CHECK_STATUS(items[i].status, MF_OK);
            check_at(&s, s.sessions[i], items[i].n_done, i != at);
        }
        const mf_step_item rest[] = {item_of(&s, at, 31)};
        items[0] = rest[0];
        REQUIRE_OK(mf_engine_step(s.engine, items, 1, &error), &error); /* all of the chunk */
        CHECK_U64(items[0].n_done, N_CHUNK);
        items[0] = item_of(&s, at, 7);
        REQUIRE_OK(mf_engine_step(s.engine, items, 1, &error), &error);
        check_at(&s, s.sessions[at], 40, true);
        scene_close(&s);
    }
}

/* More sessions than rows: all get their turn within as many steps as that takes. */
static void check_turns(const char *name)
{
    enum { N_ROWS = 3 };
    scene s;
    mf_error error = {0};
    mf_step_item items[N_SESSIONS];
    scene_open(&s, name, N_ROWS, 0);
    for (int step = 0; step < (N_SESSIONS + N_ROWS - 1) / N_ROWS; step++) {
        size_t n_done = 0;
        for (int i = 0; i < N_SESSIONS; i++)
            items[i] = item_of(&s, i, 5);
        REQUIRE_OK(mf_engine_step(s.engine, items, N_SESSIONS, &error), &error);
        for (int i = 0; i < N_SESSIONS; i++)
            n_done += items[i].n_done;
        CHECK_U64(n_done, N_ROWS);
    }
    for (int i = 0; i < N_SESSIONS; i++)
        CHECK_MSG(mf_session_position(s.sessions[i]) >= 1, "%s: session %d got no row", name, i);
    scene_close(&s);
}

/* Items that fail by themselves, each in its own way, and leave the others alone. */
static void check_failures(const char *name)
{
    scene s;
    mf_error error = {0};
    mf_step_item items[5];
    const int32_t outside[] = {1, 2, -7};
    int32_t many[200];
    mf_cancel cancel = {0};
    scene_open(&s, name, N_CHUNK, 0);
    for (size_t i = 0; i < 200; i++)
        many[i] = s.g.tokens[i % s.g.n_tokens];
    for (int i = 0; i < 5; i++)
        items[i] = item_of(&s, i, 3);
    items[1].tokens = outside;
    items[2].tokens = many; /* the context has 160 */
    items[2].n_tokens = 200;
    items[3].cancel = &cancel;
    items[4].n_tokens = 0;
    mf_cancel_request(&cancel);
    CHECK_STATUS(mf_engine_step(s.engine, items, 5, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "item 1: token 2 is -7");
    static const mf_status want[] = {MF_OK, MF_ERR_ARGUMENT, MF_ERR_CONTEXT, MF_ERR_CANCELLED,
                                     MF_OK};
    for (int i = 0; i < 5; i++) {
        CHECK_STATUS(items[i].status, want[i]);
        CHECK_U64(items[i].n_done, i == 0 ? 3 : 0);
        check_at(&s, s.sessions[i], items[i].n_done, i == 0);
    }
    mf_cancel_reset(&cancel);
    items[3] = item_of(&s, 3, 3);
    items[3].cancel = &cancel;
    REQUIRE_OK(mf_engine_step(s.engine, &items[3], 1, &error), &error);
    check_at(&s, s.sessions[3], 3, true);
    scene_close(&s);
}

/* What is wrong with the call itself changes nothing, the items' results neither. */
static void check_refused(const char *name)
{
    scene s, other;
    mf_error error = {0};
    scene_open(&s, name, N_CHUNK, 0);
    scene_open(&other, name, N_CHUNK, 0);
    mf_step_item good = item_of(&s, 0, 2), items[3];
    good.n_done = 77;
    for (int trick = 0; trick < 6; trick++) {
        items[0] = good;
        items[1] = item_of(&s, 1, 2);
        items[2] = item_of(&s, 2, 2);
        items[2].session = trick == 0 ? NULL : trick == 1 ? s.sessions[0] : s.sessions[2];
        items[2].session = trick == 2 ? other.sessions[2] : items[2].session;
        items[2].tokens = trick == 3 ? NULL : items[2].tokens;
        items[2].flags = trick == 4 ? 8 : 0;
        items[2].struct_bytes = trick == 5 ? 8 : sizeof *items;
        CHECK_STATUS(mf_engine_step(s.engine, items, 3, &error), MF_ERR_ARGUMENT);
        CHECK_CONTAINS(error.message, "item 2");
        CHECK_U64(items[0].n_done, 77);
        check_at(&s, s.sessions[0], 0, false);
    }
    REQUIRE_OK(mf_engine_step(s.engine, items, 2, &error), &error); /* nothing was left behind */
    check_at(&s, s.sessions[1], 2, true);
    items[0].struct_bytes = offsetof(mf_step_item, n_done); /* where its results would lie */
    CHECK_STATUS(mf_engine_step(s.engine, items, 1, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "item 0: struct_bytes");
    CHECK_STATUS(mf_engine_step(s.engine, NULL, 1, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_engine_step(s.engine, NULL, 0, &error), MF_OK);
    CHECK_STATUS(mf_engine_eval(s.engine, NULL, 0, &error), MF_OK);
    scene_close(&other);
    scene_close(&s);
}

/* Items of a program that was built against a later header, which has one more field. */
static void check_larger_items(const char *name)
{
    typedef struct later_item {
        mf_step_item item;
        uint64_t later;
    } later_item;
    scene s;
    mf_error error = {0};
    later_item items[3] = {0};
    scene_open(&s, name, N_CHUNK, 0);
    for (int i = 0; i < 3; i++) {
        items[i].item = item_of(&s, i, 2 + (size_t)i);
        items[i].item.struct_bytes = sizeof items[i];
    }
    REQUIRE_OK(mf_engine_step(s.engine, &items[0].item, 3, &error), &error);
    for (int i = 0; i < 3; i++)
        check_at(&s, s.sessions[i], 2 + (size_t)i, true);
    items[1].later = 1;
    CHECK_STATUS(mf_engine_step(s.engine, &items[0].item, 3, &error), MF_ERR_ARGUMENT);
    scene_close(&s);
}

/* Where nobody wants logits the head is not computed. */
static void check_head(const char *name)
{
    scene s;
    mf_error error = {0};
    mf_stats stats;
    uint64_t touched[2];
    scene_open(&s, name, 64, 0);
    for (int i = 0; i < 2; i++) {
        mf_step_item item = item_of(&s, i, 9);
        item.flags = i == 0 ? MF_STEP_NO_LOGITS : 0;
        mf_engine_stats_reset(s.engine);
        REQUIRE_OK(mf_engine_step(s.engine, &item, 1, &error), &error);
        mf_engine_stats(s.engine, &stats);
        touched[i] = stats.weight_bytes_touched;
        check_at(&s, s.sessions[i], 9, i != 0);
    }
    CHECK_U64(touched[1] - touched[0], mf_weight_bytes(&s.engine->runner.weights.lm_head.shape));
    go_to(&s, s.sessions[0], 10);
    check_at(&s, s.sessions[0], 10, true);
    scene_close(&s);
}

/* ---------------------------------------- cancels ---------------------------------------- */

/* What a progress callback does in the midst of a chunk. */
typedef struct midst {
    mf_cancel *request;
    mf_session *cancel, *late;
    int stops;
    uint64_t n_calls, n_done, n_total;
} midst;

static int in_the_midst(void *user, uint64_t n_done, uint64_t n_total)
{
    midst *m = user;
    m->n_calls++;
    m->n_done = n_done;
    m->n_total = n_total;
    if (m->n_calls != 2)
        return 0;
    if (m->request != NULL)
        mf_cancel_request(m->request);
    if (m->cancel != NULL)
        mf_session_cancel(m->cancel);
    if (m->late != NULL)
        mf_session_set_deadline(m->late, 1);
    return m->stops;
}

/* Stopped between two layers, in each way: the rows of that session are discarded, those of the
 * others committed, and the next call of that session is not hit. */
static void check_midst(const char *name)
{
    scene s;
    mf_error error = {0};
    mf_step_item items[3];
    scene_open(&s, name, N_CHUNK, 0);
    for (int way = 0; way < 4; way++) {
        mf_cancel cancel = {0};
        size_t at = mf_session_position(s.sessions[0]);
        midst m = {.request = way == 0 ? &cancel : NULL,
                   .cancel = way == 1 ? s.sessions[1] : NULL,
                   .late = way == 2 ? s.sessions[1] : NULL,
                   .stops = way == 3};
        for (int i = 0; i < 3; i++)
            items[i] = item_of(&s, i, 5);
        items[1].cancel = &cancel;
        mf_session_set_progress(s.sessions[way == 3 ? 1 : 0], in_the_midst, &m);
        CHECK_STATUS(mf_engine_step(s.engine, items, 3, &error), MF_ERR_CANCELLED);
        CHECK_CONTAINS(error.message, "item 1");
        mf_session_set_progress(s.sessions[way == 3 ? 1 : 0], NULL, NULL);
        mf_session_set_deadline(s.sessions[1], 0);
        CHECK(items[0].status == MF_OK && items[2].status == MF_OK);
        CHECK(items[1].status == MF_ERR_CANCELLED && items[1].n_done == 0);
        CHECK_U64(s.sessions[1]->pages[MF_UNIT_PAGE].n,
                  mf_pages_of(at)); /* what it took is given back */
        check_at(&s, s.sessions[0], at + 5, true);
        check_at(&s, s.sessions[2], at + 5, true);
        items[1] = item_of(&s, 1, 5);
        REQUIRE_OK(mf_engine_step(s.engine, &items[1], 1, &error), &error);
        check_at(&s, s.sessions[1], at + 5, true);
    }
    scene_close(&s);
}

/* A cancel of one call is not one of the next; one that was asked for too early never hits; one
 * that belongs to a request hits whatever of the request runs next. */
static void check_cancels(const char *name)
{
    scene s;
    mf_error error = {0};
    mf_cancel cancel = {0};
    scene_open(&s, name, N_CHUNK, 0);
    mf_session *session = s.sessions[0];
    mf_session_cancel(session);
    go_to(&s, session, 4);
    mf_session_cancel(session);
    mf_sync_result result;
    REQUIRE_OK(mf_session_sync(session, s.g.tokens, 9, &result, &error), &error);
    check_at(&s, session, 9, true);
    mf_session_set_cancel(session, &cancel);
    mf_cancel_request(&cancel);
    CHECK(mf_cancel_is_requested(&cancel) != 0);
    const mf_batch_item item = {session, s.g.tokens + 9, 2};
    CHECK_STATUS(mf_session_eval(session, s.g.tokens + 9, 2, &error), MF_ERR_CANCELLED);
    CHECK_STATUS(mf_session_eval(session, s.g.tokens + 9, 2, &error), MF_ERR_CANCELLED);
    CHECK_STATUS(mf_session_sync(session, s.g.tokens, 12, &result, &error), MF_ERR_CANCELLED);
    CHECK_STATUS(mf_engine_eval(s.engine, &item, 1, &error), MF_ERR_CANCELLED);
    check_at(&s, session, 9, true);
    go_to(&s, s.sessions[1], 3);          /* nobody else's */
    mf_session_set_cancel(session, NULL); /* the session's next user */
    go_to(&s, session, 12);
    check_at(&s, session, 12, true);
    CHECK(mf_cancel_is_requested(&cancel) != 0);
    mf_cancel_reset(&cancel);
    CHECK(mf_cancel_is_requested(&cancel) == 0);
    scene_close(&s);
}

/* Progress is that of the call: every layer of every chunk, up to all of it. */
static void check_progress(const char *name)
{
    scene s;
    mf_error error = {0};
    midst m = {0};
    scene_open(&s, name, N_CHUNK, 0);
    const uint64_t n_layers = s.g.n_layers;
    mf_session_set_progress(s.sessions[0], in_the_midst, &m);
    REQUIRE_OK(mf_session_eval(s.sessions[0], s.g.tokens, N_CHUNK + 3, &error), &error);
    CHECK_U64(m.n_calls, 2 * n_layers);
    CHECK_U64(m.n_total, (N_CHUNK + 3) * n_layers);
    CHECK_U64(m.n_done, m.n_total);
    m = (midst){0};
    mf_step_item item = item_of(&s, 0, 5);
    REQUIRE_OK(mf_engine_step(s.engine, &item, 1, &error), &error);
    CHECK(m.n_calls == n_layers && m.n_done == 5 * n_layers && m.n_total == 5 * n_layers);
    m = (midst){0}; /* of a step: what it does, not what is asked for */
    mf_session_set_progress(s.sessions[1], in_the_midst, &m);
    item = item_of(&s, 1, N_CHUNK + 6);
    REQUIRE_OK(mf_engine_step(s.engine, &item, 1, &error), &error);
    CHECK(item.n_done == N_CHUNK && m.n_done == m.n_total && m.n_total == N_CHUNK * n_layers);
    scene_close(&s);
}

/* ---------------------------------------- callbacks ---------------------------------------- */

/* Everything that a callback may not do, and some things that it may. */
typedef struct intruder {
    scene *s;
    mf_session *mine, *idle; /* being evaluated; not */
    mf_session *fork;
    unsigned char *snapshot;
    size_t n_snapshot, position, idle_position;
    int n_calls;
} intruder;

static void try_changes(const intruder *t, mf_session *session)
{
    size_t kept = 99;
    mf_sync_result result = {.n_reused = 99};
    mf_error error = {0};
    mf_session *same = session;
    const int32_t *tokens = t->s->g.tokens;
    CHECK_STATUS(mf_session_truncate(session, 1, &kept, &error), MF_ERR_STATE);
    CHECK_STATUS(mf_session_truncate(session, 0, &kept, NULL), MF_ERR_STATE);
    CHECK_STATUS(mf_session_reuse(session, tokens + 5, 3, &result, &error), MF_ERR_STATE);
    CHECK_STATUS(mf_mark_restore(session, 3, &error), MF_ERR_STATE);
    CHECK_STATUS(mf_mark_drop(session, 3, &error), MF_ERR_STATE);
    CHECK_STATUS(mf_mark_save(session, &error), MF_ERR_STATE);
    CHECK_STATUS(mf_snapshot_load(session, t->snapshot, t->n_snapshot, &error), MF_ERR_STATE);
    mf_session_clear(session);
    mf_session_free(&same);
    CHECK(same == session && kept == 99 && result.n_reused == 99);
}

static void try_evaluations(const intruder *t, mf_session *session)
{
    mf_sync_result result;
    mf_error error = {0};
    const int32_t *tokens = t->s->g.tokens;
    const mf_batch_item item = {session, tokens, 2};
    mf_step_item step = {
        .struct_bytes = sizeof step, .session = session, .tokens = tokens, .n_tokens = 2};
    double rate[2];
    CHECK_STATUS(mf_session_eval(session, tokens, 2, &error), MF_ERR_STATE);
    CHECK_STATUS(mf_session_sync(session, tokens + 1, 4, &result, &error), MF_ERR_STATE);
    CHECK_STATUS(mf_engine_eval(t->s->engine, &item, 1, &error), MF_ERR_STATE);
    CHECK_STATUS(mf_engine_step(t->s->engine, &step, 1, &error), MF_ERR_STATE);
    CHECK_STATUS(mf_engine_measure_drive(t->s->engine, 1, rate, &error), MF_ERR_STATE);
    CHECK_STATUS(mf_engine_measure_latency(t->s->engine, 1, rate, &error), MF_ERR_STATE);
    CHECK_STATUS(mf_engine_measure_compute(t->s->engine, 1, rate, rate + 1, &error), MF_ERR_STATE);
}

static void intrude(intruder *t)
{
    mf_stats stats;
    mf_error error = {0};
    mf_engine *engine = t->s->engine;
    t->n_calls++;
    try_changes(t, t->mine);
    try_evaluations(t, t->mine);
    try_evaluations(t, t->idle);
    mf_engine_close(&engine);
    CHECK(engine != NULL);
    CHECK_U64(mf_session_position(t->mine), t->position);
    check_at(t->s, t->idle, t->idle_position, true);
    mf_engine_stats(engine, &stats);
    CHECK(stats.n_sessions >= N_SESSIONS && stats.state_bytes_used > 0);
    /* what holds the committed state is allowed, and what changes another session */
    mf_session_free(&t->fork);
    REQUIRE_OK(mf_session_fork(t->mine, &t->fork, &error), &error);
    if (t->n_calls > 1)
        return;
    CHECK_STATUS(mf_mark_save(t->idle, &error), MF_OK);
    CHECK_STATUS(mf_snapshot_load(t->idle, t->snapshot, t->n_snapshot, &error), MF_OK);
    t->idle_position = mf_session_position(t->idle);
    CHECK_U64(t->idle_position, 3);
}

static int intrude_progress(void *user, uint64_t n_done, uint64_t n_total)
{
    (void)n_done, (void)n_total;
    intrude(user);
    return 0;
}

static int intrude_logits(void *user, size_t index, const float *logits)
{
    (void)logits;
    intruder *t = user;
    if (index % N_CHUNK == 1)
        intrude(t);
    t->position = index + 1 >= N_CHUNK ? 3 + N_CHUNK : 3;
    return 0;
}

/* The evaluation during which all this was tried gives the bits that it gives alone. */
static void check_callbacks(const char *name)
{
    for (int of_logits = 0; of_logits < 2; of_logits++) {
        scene s;
        mf_error error = {0};
        scene_open(&s, name, N_CHUNK, 0);
        intruder t = {.s = &s, .mine = s.sessions[0], .idle = s.sessions[1], .position = 3};
        go_to(&s, t.mine, 3);
        REQUIRE_OK(mf_mark_save(t.mine, &error), &error);
        t.n_snapshot = (size_t)mf_snapshot_bytes(t.mine);
        t.snapshot = malloc(t.n_snapshot);
        REQUIRE(t.snapshot != NULL);
        REQUIRE_OK(mf_snapshot_save(t.mine, t.snapshot, t.n_snapshot, &error), &error);
        go_to(&s, t.idle, 5);
        t.idle_position = 5;
        if (of_logits) {
            REQUIRE_OK(mf_session_eval_each(t.mine, s.g.tokens + 3, 33, intrude_logits, &t, &error),
                       &error);
            CHECK_U64(t.n_calls, 2);
        } else {
            mf_session_set_progress(t.mine, intrude_progress, &t);
            REQUIRE_OK(mf_session_eval(t.mine, s.g.tokens + 3, 20, &error), &error);
            mf_session_set_progress(t.mine, NULL, NULL);
            CHECK_U64(t.n_calls, s.g.n_layers);
        }
        check_at(&s, t.mine, of_logits ? 36 : 23, true);
        CHECK_U64(mf_mark_list(t.mine, NULL, 0), 1);
        go_to(&s, t.fork, 30); /* from the midst of it */
        check_at(&s, t.fork, 30, true);
        go_to(&s, t.idle, 7);
        check_at(&s, t.idle, 7, true);
        go_to(&s, t.mine, 38);
        check_at(&s, t.mine, 38, true);
        mf_session_free(&t.fork);
        free(t.snapshot);
        scene_close(&s);
    }
}

/* A session of a batch of which this chunk has no row may not be changed either. */
static void check_callback_of_batch(const char *name)
{
    scene s;
    mf_error error = {0};
    mf_batch_item items[2];
    scene_open(&s, name, 1, 0);
    intruder t = {.s = &s, .mine = s.sessions[1], .idle = s.sessions[2], .position = 3};
    go_to(&s, s.sessions[0], 2);
    go_to(&s, t.mine, 3);
    go_to(&s, t.idle, 3);
    t.idle_position = 3;
    t.n_snapshot = (size_t)mf_snapshot_bytes(t.mine);
    t.snapshot = malloc(t.n_snapshot);
    REQUIRE(t.snapshot != NULL);
    REQUIRE_OK(mf_snapshot_save(t.mine, t.snapshot, t.n_snapshot, &error), &error);
    items[0] = (mf_batch_item){s.sessions[0], s.g.tokens + 2, 1};
    items[1] = (mf_batch_item){t.mine, s.g.tokens + 3, 1};
    mf_session_set_progress(s.sessions[0], intrude_progress, &t);
    REQUIRE_OK(mf_engine_eval(s.engine, items, 2, &error), &error);
    mf_session_set_progress(s.sessions[0], NULL, NULL);
    CHECK_U64(t.n_calls, s.g.n_layers);
    check_at(&s, s.sessions[0], 3, true);
    check_at(&s, t.mine, 4, true);
    mf_session_free(&t.fork);
    free(t.snapshot);
    scene_close(&s);
}

/* ---------------------------------------- marks ---------------------------------------- */

static void save_at(const scene *s, int i, size_t n)
{
    mf_error error = {0};
    go_to(s, s->sessions[i], n);
    REQUIRE_OK(mf_mark_save(s->sessions[i], &error), &error);
}

static void check_list(const scene *s, int i, size_t n, size_t first, size_t second)
{
    size_t positions[4] = {0};
    CHECK_U64(mf_mark_list(s->sessions[i], positions, 4), n);
    CHECK_U64(positions[0], first);
    CHECK_U64(positions[1], second);
}

/* At the ends of evaluations marks come by themselves, but not at each token's. */
static void check_at_end(const char *name)
{
    scene s;
    scene_open(&s, name, N_CHUNK, 0);
    mf_mark_auto(s.sessions[0], 0, 1);
    go_to(&s, s.sessions[0], 5);
    check_list(&s, 0, 1, 5, 0);
    go_to(&s, s.sessions[0], 6);
    check_list(&s, 0, 1, 5, 0);
    go_to(&s, s.sessions[0], 8);
    check_list(&s, 0, 2, 5, 8);
    scene_close(&s);
}

static uint64_t one_mark(const char *name)
{
    mf_model_info info;
    scene s;
    scene_open(&s, name, N_CHUNK, 0);
    mf_engine_info(s.engine, &info);
    scene_close(&s);
    return info.one_mark_bytes;
}

/* One of exactly the limit fits, one of a byte more does not; each session keeps its newest. */
static void check_limit(const char *name)
{
    const uint64_t one = one_mark(name);
    scene s;
    mf_error error = {0};
    mf_stats stats;
    scene_open(&s, name, N_CHUNK, one - 1);
    go_to(&s, s.sessions[0], 10);
    CHECK_STATUS(mf_mark_save(s.sessions[0], &error), MF_ERR_BUDGET);
    scene_close(&s);
    scene_open(&s, name, N_CHUNK, one);
    save_at(&s, 0, 10);
    save_at(&s, 1, 10);
    check_list(&s, 0, 1, 10, 0);
    check_list(&s, 1, 1, 10, 0);
    mf_engine_stats(s.engine, &stats);
    CHECK_U64(stats.mark_bytes_used, 2 * one);
    save_at(&s, 0, 20); /* the first is not the newest any more */
    check_list(&s, 0, 1, 20, 0);
    check_list(&s, 1, 1, 10, 0);
    scene_close(&s);
}

/* The least recently used goes; going back to one, in either way, is a use. */
static void check_last_use(const char *name, bool by_truncating)
{
    scene s;
    mf_error error = {0};
    size_t kept = 0;
    scene_open(&s, name, N_CHUNK, 4 * one_mark(name));
    save_at(&s, 0, 10);
    save_at(&s, 1, 10);
    save_at(&s, 1, 20);
    go_to(&s, s.sessions[0], 18);
    if (by_truncating)
        REQUIRE_OK(mf_session_truncate(s.sessions[0], 12, &kept, &error), &error);
    else
        REQUIRE_OK(mf_mark_restore(s.sessions[0], 10, &error), &error);
    check_at(&s, s.sessions[0], 10, !by_truncating);
    CHECK(!by_truncating || kept == 10);
    save_at(&s, 0, 20);
    check_list(&s, 0, 2, 10, 20);
    check_list(&s, 1, 2, 10, 20);
    save_at(&s, 1, 30);
    check_list(&s, 0, 2, 10, 20);
    check_list(&s, 1, 2, 20, 30);
    scene_close(&s);
}

/* Whoever needs a unit gets it from the oldest marks, from as many as it takes: the first gives
 * none, as it stands at the end of a page. */
static void check_marks_give_way(void)
{
    const golden_case *c = golden_case_find("v2_lite_bf16"); /* pages alone */
    golden g;
    golden_read(c, &g);
    mf_engine_options options = golden_options(c);
    mf_model_info info;
    mf_error error = {0};
    size_t positions[4];
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    options.n_sessions = 2;
    options.state_bytes = options.mark_bytes = 4 * info.page_bytes;
    mf_engine *e = golden_open(c, &options);
    mf_session *s[2];
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(mf_session_create(e, &s[i], &error), &error);
    static const size_t at[] = {0, MF_PAGE_TOKENS, MF_PAGE_TOKENS + 8, 2 * MF_PAGE_TOKENS};
    for (int i = 1; i < 4; i++) {
        for (size_t k = at[i - 1]; k < at[i]; k++)
            REQUIRE_OK(mf_session_eval(s[0], g.tokens + k % g.n_tokens, 1, &error), &error);
        REQUIRE_OK(mf_mark_save(s[0], &error), &error);
    }
    CHECK_U64(e->pool.kinds[MF_UNIT_PAGE].n_used, 3); /* two, and the second's beginning */
    CHECK_U64(mf_mark_list(s[0], positions, 4), 3);
    for (size_t k = 0; k <= MF_PAGE_TOKENS; k++)
        REQUIRE_OK(mf_session_eval(s[1], g.tokens + k % g.n_tokens, 1, &error), &error);
    CHECK_U64(mf_mark_list(s[0], positions, 4), 1);
    CHECK_U64(positions[0], at[3]);
    for (int i = 0; i < 2; i++)
        mf_session_free(&s[i]);
    mf_engine_close(&e);
    golden_free(&g);
}

/* Who was refused for want of room is in no chunk any more: its spare state is there for others. */
static void check_refused_is_idle(void)
{
    const golden_case *c = golden_case_find("mlx_4bit");
    golden g;
    golden_read(c, &g);
    mf_engine_options options = golden_options(c);
    mf_model_info info;
    mf_error error = {0};
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    options.n_sessions = 2;
    options.state_bytes = 2 * (info.page_bytes + info.recurrent_bytes);
    mf_engine *e = golden_open(c, &options);
    mf_session *s[2];
    int32_t tokens[3 * MF_PAGE_TOKENS];
    for (size_t i = 0; i < 3 * MF_PAGE_TOKENS; i++)
        tokens[i] = g.tokens[i % g.n_tokens];
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(mf_session_create(e, &s[i], &error), &error);
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(mf_session_eval(s[0], tokens, 2, &error), &error);
    CHECK_U64(mf_session_state_bytes(s[0]), info.page_bytes + 2 * info.recurrent_bytes);
    CHECK_STATUS(mf_session_eval(s[0], tokens, 3 * MF_PAGE_TOKENS, &error), MF_ERR_BUDGET);
    CHECK_U64(mf_session_state_bytes(s[0]), info.page_bytes + 2 * info.recurrent_bytes);
    REQUIRE_OK(mf_session_eval(s[1], tokens, 2, &error), &error);
    CHECK_U64(mf_session_state_bytes(s[0]), info.page_bytes + info.recurrent_bytes);
    for (int i = 0; i < 2; i++)
        mf_session_free(&s[i]);
    mf_engine_close(&e);
    golden_free(&g);
}

/* A fork makes marks by itself where its origin did, and has none of its origin's. */
static void check_fork(const char *name)
{
    scene s;
    mf_error error = {0};
    mf_session *fork = NULL;
    scene_open(&s, name, N_CHUNK, 0);
    mf_mark_auto(s.sessions[0], 0, 1);
    go_to(&s, s.sessions[0], 10);
    check_list(&s, 0, 1, 10, 0);
    REQUIRE_OK(mf_session_fork(s.sessions[0], &fork, &error), &error);
    CHECK_U64(mf_mark_list(fork, NULL, 0), 0);
    go_to(&s, fork, 15);
    CHECK_U64(mf_mark_list(fork, NULL, 0), 1);
    mf_mark_auto(s.sessions[1], 8, 0);
    mf_session *second = NULL;
    REQUIRE_OK(mf_session_fork(s.sessions[1], &second, &error), &error);
    go_to(&s, second, 9);
    CHECK_U64(mf_mark_list(second, NULL, 0), 1);
    mf_session_free(&second);
    mf_session_free(&fork);
    scene_close(&s);
}

/* What is freed may be NULL, or what it stands in. */
static void check_null_handles(void)
{
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_store *store = NULL;
    mf_routing *routing = NULL;
    mf_engine_close(NULL);
    mf_engine_close(&engine);
    mf_session_free(NULL);
    mf_session_free(&session);
    mf_store_close(NULL);
    mf_store_close(&store);
    mf_routing_close(NULL);
    mf_routing_close(&routing);
    CHECK(engine == NULL && session == NULL && store == NULL && routing == NULL);
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "v2_lite_bf16"};
    check_null_handles();
    for (size_t i = 0; i < 2; i++) {
        check_shares(names[i]);
        check_turns(names[i]);
        check_failures(names[i]);
        check_refused(names[i]);
        check_head(names[i]);
        check_midst(names[i]);
        check_cancels(names[i]);
        check_progress(names[i]);
        check_callbacks(names[i]);
        check_callback_of_batch(names[i]);
        check_at_end(names[i]);
        check_limit(names[i]);
        check_last_use(names[i], false);
        check_fork(names[i]);
    }
    check_larger_items("mlx_4bit");
    check_marks_give_way();
    check_refused_is_idle();
    check_last_use("mlx_4bit", true);
    return test_result();
}
