/* SPDX-License-Identifier: MIT */
/*
 * Sessions of one engine on several threads, each evaluating, forking, going back and taking over
 * what the others hold, while another thread cancels and asks for statistics: the same bits as
 * alone. Made for the thread sanitizer.
 */
#include "golden.h"

#include "base/clock.h"
#include "session/session.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { N_THREADS = 4, N_ROUNDS = 25 };

typedef struct shared {
    const golden_case *c;
    golden g;
    float *base;
    mf_engine *engine;
    mf_session *sessions[N_THREADS];
    atomic_uint n_begun, n_done, n_cancelled; /* evaluations */
    atomic_uint n_wrong;
    atomic_bool is_over;
    mf_cancel first; /* of sessions[0]: one evaluation at least is cancelled */
} shared;

typedef struct worker {
    shared *shared;
    uint32_t index;
    pthread_t thread;
} worker;

static void look(shared *s, const mf_session *session)
{
    size_t n = mf_session_position(session);
    const float *logits = mf_session_logits(session);
    if (logits != NULL &&
        memcmp(logits, s->base + (n - 1) * s->g.n_vocab, s->g.n_vocab * sizeof *logits) != 0)
        s->n_wrong++;
    if (memcmp(mf_session_tokens(session), s->g.tokens, n * sizeof(int32_t)) != 0)
        s->n_wrong++;
}

static void go_on(shared *s, mf_session *session, size_t n)
{
    size_t at = mf_session_position(session);
    n = n < s->g.n_tokens - at ? n : s->g.n_tokens - at;
    s->n_begun++;
    mf_status status = mf_session_eval(session, s->g.tokens + at, n, NULL);
    s->n_done += status == MF_OK;
    s->n_cancelled += status == MF_ERR_CANCELLED;
    if (session == s->sessions[0])
        mf_cancel_reset(&s->first);
    s->n_wrong += status != MF_OK && status != MF_ERR_CANCELLED;
    look(s, session);
}

/* What any session holds furthest. */
static mf_state *hold_furthest(shared *s)
{
    mf_session *best = NULL;
    mf_state *state = NULL;
    mf_engine_lock(s->engine);
    for (mf_session *i = mf_engine_next_session(s->engine, NULL); i != NULL;
         i = mf_engine_next_session(s->engine, i))
        if (best == NULL ||
            mf_session_position_held(i, UINT64_MAX) > mf_session_position_held(best, UINT64_MAX))
            best = i;
    uint64_t position = mf_session_position_held(best, UINT64_MAX);
    mf_status status = mf_state_hold_locked(best, position, &state, NULL);
    mf_engine_unlock(s->engine);
    s->n_wrong += status != MF_OK;
    return state;
}

static void *work(void *user)
{
    worker *w = user;
    shared *s = w->shared;
    mf_session *mine = s->sessions[w->index], *fork = NULL;
    uint64_t random = 17 + w->index;
    for (int round = 0; round < N_ROUNDS; round++) {
        go_on(s, mine, 1 + test_random(&random) % 30);
        if (mf_session_fork(mine, &fork, NULL) == MF_OK)
            go_on(s, fork, 3);
        else
            s->n_wrong++;
        s->n_wrong += mf_mark_save(mine, NULL) != MF_OK;
        size_t kept;
        (void)!mf_session_truncate(mine, mf_session_position(mine) / 2, &kept, NULL);
        look(s, mine);
        mf_session_free(&fork);
        mf_state *state = hold_furthest(s);
        if (state != NULL && round % 3 == 0)
            s->n_wrong += mf_session_adopt(mine, state, NULL) != MF_OK;
        mf_state_release(&state);
        look(s, mine);
        if (mf_session_position(mine) > s->g.n_tokens - 8)
            mf_session_clear(mine);
    }
    return NULL;
}

/* Cancels once for every four evaluations that begin, however fast they are; each falls where that
 * session happens to be. */
static void *disturb(void *user)
{
    shared *s = user;
    mf_stats stats;
    uint8_t states[64];
    uint32_t n_uses[64];
    for (uint32_t i = 0; !s->is_over; i++) {
        uint32_t n_begun = s->n_begun;
        mf_session_cancel(s->sessions[i % N_THREADS]);
        mf_engine_stats(s->engine, &stats);
        if (mf_engine_expert_states(s->engine, 0, states, n_uses, 64) == 0)
            s->n_wrong++;
        while (!s->is_over && s->n_begun - n_begun < 4)
            sched_yield();
    }
    return NULL;
}

static void run(const char *name)
{
    shared s = {.c = golden_case_find(name)};
    worker workers[N_THREADS];
    pthread_t other;
    mf_error error = {0};
    golden_read(s.c, &s.g);
    mf_engine_options options = golden_options(s.c);
    options.n_chunk_tokens = 8;
    options.n_sessions = 2 * N_THREADS;
    options.n_threads = 2;
    s.base = golden_run(s.c, &s.g, &options, &error);
    REQUIRE(s.base != NULL);
    s.engine = golden_open(s.c, &options);
    for (uint32_t i = 0; i < N_THREADS; i++)
        REQUIRE_OK(mf_session_create(s.engine, &s.sessions[i], &error), &error);
    mf_cancel_request(&s.first);
    mf_session_set_cancel(s.sessions[0], &s.first);
    REQUIRE(pthread_create(&other, NULL, disturb, &s) == 0);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        workers[i] = (worker){.shared = &s, .index = i};
        REQUIRE(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (uint32_t i = 0; i < N_THREADS; i++)
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
    s.is_over = true;
    CHECK(pthread_join(other, NULL) == 0);
    CHECK_U64(s.n_wrong, 0);
    CHECK(s.n_done > 0 && s.n_cancelled > 0);
    fprintf(stderr, "%s: %u evaluations done, %u cancelled\n", name, (unsigned)s.n_done,
            (unsigned)s.n_cancelled);
    for (uint32_t i = 0; i < N_THREADS; i++)
        mf_session_free(&s.sessions[i]);
    CHECK_U64(s.engine->pool.kinds[MF_UNIT_PAGE].n_used, 0);
    mf_engine_close(&s.engine);
    free(s.base);
    golden_free(&s.g);
}

/* -------------------------------------------------- waiting for another evaluation's turn */

/* An evaluation that is held within its first layer until the test lets it go. */
typedef struct held {
    mf_session *session;
    const int32_t *tokens;
    size_t n_tokens;
    mf_status status;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_inside, may_go;
} held;

static void hold_layer(void *user, uint32_t layer, uint64_t first_position, uint32_t n_tokens,
                       const float *hidden)
{
    held *h = user;
    (void)layer, (void)first_position, (void)n_tokens, (void)hidden;
    pthread_mutex_lock(&h->mutex);
    h->is_inside = true;
    pthread_cond_broadcast(&h->changed);
    while (!h->may_go)
        pthread_cond_wait(&h->changed, &h->mutex);
    pthread_mutex_unlock(&h->mutex);
}

static void *evaluate(void *user)
{
    held *h = user;
    h->status = mf_session_eval(h->session, h->tokens, h->n_tokens, NULL);
    return NULL;
}

static void held_start(held *h, mf_session *session, const int32_t *tokens, size_t n)
{
    *h = (held){.session = session, .tokens = tokens, .n_tokens = n, .status = MF_ERR_STATE};
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->changed, NULL);
    mf_error error = {0};
    REQUIRE_OK(mf_session_set_trace(session, hold_layer, h, &error), &error);
    REQUIRE(pthread_create(&h->thread, NULL, evaluate, h) == 0);
    pthread_mutex_lock(&h->mutex);
    while (!h->is_inside)
        pthread_cond_wait(&h->changed, &h->mutex);
    pthread_mutex_unlock(&h->mutex);
}

static void held_finish(held *h)
{
    pthread_mutex_lock(&h->mutex);
    h->may_go = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
    CHECK(pthread_join(h->thread, NULL) == 0);
    CHECK_STATUS(h->status, MF_OK);
    CHECK_STATUS(mf_session_set_trace(h->session, NULL, NULL, NULL), MF_OK);
    pthread_mutex_destroy(&h->mutex);
    pthread_cond_destroy(&h->changed);
}

/* While an evaluation is held: whoever asks is answered at once, with what is done so far. */
static void check_stats(mf_engine *e)
{
    mf_stats stats;
    mf_engine_stats(e, &stats);
    CHECK_U64(stats.n_tokens, 3);
    CHECK_U64(stats.n_sessions, 4);
    CHECK(stats.weight_bytes_touched > 0 && stats.n_slots > 0);
    CHECK(stats.state_bytes_used > 0);
    CHECK_U64(stats.state_bytes_used + stats.state_bytes_free, e->pool.limit_bytes);
    mf_engine_stats_reset(e);
    mf_engine_stats(e, &stats);
    CHECK(stats.n_tokens == 0 && stats.weight_bytes_touched == 0 && stats.n_sessions == 4);
}

/* Waits for its turn with nothing that could end that. */
/* Returns its argument if it could. Checks are counted by one thread alone. */
static void *measure(void *user)
{
    double rate;
    return mf_engine_measure_drive(user, 1, &rate, NULL) == MF_OK ? user : NULL;
}

/* A thread that waits, once it does. */
static void start_waiting(held *w, mf_engine *e, mf_session *session, const int32_t *tokens,
                          size_t n)
{
    uint32_t n_before = mf_turn_n_waiting(&e->turn);
    *w = (held){.session = session, .tokens = tokens, .n_tokens = n, .status = MF_ERR_STATE};
    REQUIRE(pthread_create(&w->thread, NULL, evaluate, w) == 0);
    while (mf_turn_n_waiting(&e->turn) == n_before)
        usleep(100);
}

/* Cancelled or late while another evaluation goes on, which is let go only after they returned: if
 * they waited for it, this would never end. */
static void check_waiting(const char *name)
{
    const golden_case *c = golden_case_find(name);
    mf_session *sessions[4];
    mf_error error = {0};
    golden g;
    held first, second, third;
    pthread_t measuring;
    void *measured = NULL;
    golden_read(c, &g);
    mf_engine_options options = golden_options(c);
    options.n_sessions = 4;
    float *base = golden_run(c, &g, &options, &error);
    mf_engine *e = golden_open(c, &options);
    REQUIRE(base != NULL && g.n_tokens > 12);
    for (int i = 0; i < 4; i++)
        REQUIRE_OK(mf_session_create(e, &sessions[i], &error), &error);
    REQUIRE_OK(mf_session_eval(sessions[1], g.tokens, 3, &error), &error);
    held_start(&first, sessions[0], g.tokens, 12);
    check_stats(e);

    mf_session_set_deadline(sessions[1], 1); /* long ago */
    CHECK_STATUS(mf_session_eval(sessions[1], g.tokens + 3, 2, &error), MF_ERR_CANCELLED);
    CHECK_CONTAINS(error.message, "deadline");
    mf_session_set_deadline(sessions[1], mf_now_us() + 20000); /* passes while it waits */
    CHECK_STATUS(mf_session_eval(sessions[1], g.tokens + 3, 2, &error), MF_ERR_CANCELLED);
    mf_session_set_deadline(sessions[1], 0);
    const mf_batch_item items[] = {{sessions[2], g.tokens, 2}, {sessions[3], g.tokens, 5}};
    mf_cancel cancel = {0};
    mf_cancel_request(&cancel);
    mf_session_set_cancel(sessions[3], &cancel); /* one of a batch */
    CHECK_STATUS(mf_engine_eval(e, items, 2, &error), MF_ERR_CANCELLED);
    CHECK_CONTAINS(error.message, "item 1");
    mf_session_set_cancel(sessions[3], NULL);
    start_waiting(&second, e, sessions[1], g.tokens + 3, 9);
    start_waiting(&third, e, sessions[2], g.tokens, 12);
    REQUIRE(pthread_create(&measuring, NULL, measure, e) == 0);
    while (mf_turn_n_waiting(&e->turn) < 3)
        usleep(100);
    mf_session_cancel(sessions[1]); /* the one before goes: the other stays and gets its turn */
    CHECK(pthread_join(second.thread, NULL) == 0);
    CHECK_STATUS(second.status, MF_ERR_CANCELLED);
    CHECK_U64(mf_turn_n_waiting(&e->turn), 2);
    CHECK(mf_session_position(sessions[1]) == 3 && mf_session_position(sessions[3]) == 0);

    held_finish(&first);
    CHECK(pthread_join(third.thread, NULL) == 0);
    CHECK(pthread_join(measuring, &measured) == 0);
    CHECK(measured == e);
    CHECK_STATUS(third.status, MF_OK);
    REQUIRE_OK(mf_session_eval(sessions[1], g.tokens + 3, 9, &error), &error);
    REQUIRE_OK(mf_session_eval(sessions[3], g.tokens, 12, &error), &error);
    for (int i = 0; i < 4; i++) {
        CHECK(mf_session_position(sessions[i]) == 12);
        CHECK_BYTES(mf_session_logits(sessions[i]), base + 11 * g.n_vocab,
                    g.n_vocab * sizeof *base);
        mf_session_free(&sessions[i]);
    }
    mf_engine_close(&e);
    free(base);
    golden_free(&g);
}

typedef struct taker {
    mf_turn *turn;
    pthread_mutex_t may_end; /* held by whoever keeps it from ending */
    mf_status status;
} taker;

static void *take_turn(void *user)
{
    taker *t = user;
    t->status = mf_turn_take(t->turn, NULL, NULL, NULL);
    pthread_mutex_lock(&t->may_end);
    pthread_mutex_unlock(&t->may_end);
    mf_turn_end(t->turn);
    return NULL;
}

static mf_status give_up(void *ctx, mf_error *error)
{
    (void)ctx;
    return mf_fail(error, MF_ERR_CANCELLED, "somebody else has the turn");
}

/* The turn is of who came first, also while it is free and the first has not woken yet: who comes
 * later does not slip in. */
static void check_order(void)
{
    mf_turn turn;
    mf_error error = {0};
    REQUIRE_OK(mf_turn_init(&turn, &error), &error);
    for (int i = 0; i < 30; i++) {
        taker t = {.turn = &turn, .status = MF_ERR_STATE};
        pthread_t thread;
        pthread_mutex_init(&t.may_end, NULL);
        pthread_mutex_lock(&t.may_end);
        REQUIRE_OK(mf_turn_take(&turn, NULL, NULL, &error), &error);
        REQUIRE(pthread_create(&thread, NULL, take_turn, &t) == 0);
        while (mf_turn_n_waiting(&turn) == 0)
            usleep(100);
        mf_turn_end(&turn);
        mf_status status = mf_turn_take(&turn, give_up, NULL, &error);
        CHECK_STATUS(status, MF_ERR_CANCELLED);
        if (status == MF_OK)
            mf_turn_end(&turn);
        pthread_mutex_unlock(&t.may_end);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_STATUS(t.status, MF_OK);
        pthread_mutex_destroy(&t.may_end);
        CHECK(!mf_turn_is_mine(&turn) && mf_turn_n_waiting(&turn) == 0);
    }
    mf_turn_destroy(&turn);
}

int main(void)
{
    check_order();
    check_waiting("mlx_4bit");
    check_waiting("v2_lite_bf16");
    run("mlx_4bit");
    run("v2_lite_bf16");
    return test_result();
}
