/* SPDX-License-Identifier: MIT */
/*
 * Sessions against a model of them: random evaluations, batches, steps, forks, truncations,
 * marks, prefixes taken over, states copied out and in, cancels and limits, over 64 sessions
 * of one engine. After each
 * step the sessions touched hold the tokens that the model says, and their logits are, to the bit,
 * those of the same tokens simply evaluated from the beginning by an engine of its own.
 *
 * test_sessions [STEPS [SEED]]
 */
#include "golden.h"

#include "session/session.h"

enum { N_SESSIONS = 64, MAX_TOKENS = 150, N_CHUNK = 48, N_MEMO = 1 << 16 };

/* Of each setting, on the CPU. */
#define USUAL_STEPS 150u

/* ---------------------------------------------------------------- what evaluation must give -- */

typedef struct memo {
    uint64_t prefix, logits; /* hashes; prefix 0: empty */
} memo;

typedef struct world {
    const golden_case *c;
    golden g;
    mf_engine *engine, *plain; /* under test; for reference */
    mf_session *reference;
    memo *memos; /* [N_MEMO] */
    uint64_t random;
    bool is_recurrent;
    uint64_t n_limits, n_cancelled, n_not_found, n_checked, n_bounds, n_reused;
} world;

static uint64_t mix(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_tokens(const int32_t *tokens, size_t n)
{
    uint64_t h = mix(UINT64_C(0xcbf29ce484222325), tokens, n * sizeof *tokens);
    return h == 0 ? 1 : h;
}

static memo *memo_find(world *w, uint64_t prefix)
{
    size_t at = (size_t)(prefix >> 20) % N_MEMO;
    while (w->memos[at].prefix != 0 && w->memos[at].prefix != prefix)
        at = (at + 1) % N_MEMO;
    return &w->memos[at];
}

typedef struct filling {
    world *w;
    const int32_t *tokens;
} filling;

static int fill_memo(void *user, size_t index, const float *logits)
{
    filling *f = user;
    memo *m = memo_find(f->w, hash_tokens(f->tokens, index + 1));
    m->prefix = hash_tokens(f->tokens, index + 1);
    m->logits = mix(1, logits, f->w->g.n_vocab * sizeof *logits);
    return 0;
}

static uint64_t expected_logits(world *w, const int32_t *tokens, size_t n)
{
    if (memo_find(w, hash_tokens(tokens, n))->prefix == 0) {
        filling f = {w, tokens};
        mf_error error = {0};
        mf_session_clear(w->reference);
        REQUIRE_OK(mf_session_eval_each(w->reference, tokens, n, fill_memo, &f, &error), &error);
    }
    return memo_find(w, hash_tokens(tokens, n))->logits;
}

/* -------------------------------------------------------------------------------- the model -- */

typedef struct lane {
    mf_session *session;
    int32_t tokens[MAX_TOKENS];
    size_t n;
    bool has_logits;
} lane;

static lane lanes[N_SESSIONS];

static uint32_t pick(world *w, uint32_t n)
{
    return (uint32_t)(test_random(&w->random) >> 33) % n;
}

static lane *any_lane(world *w)
{
    return &lanes[pick(w, N_SESSIONS)];
}

/* Few continuations, so that sequences share prefixes and references are met again. */
static void next_tokens(world *w, const lane *l, int32_t *out, size_t n)
{
    uint32_t stream = l->n == 0 ? pick(w, 3) : (uint32_t)l->tokens[0] % 3;
    for (size_t i = 0; i < n; i++) {
        size_t p = l->n + i;
        uint32_t turn = pick(w, 24) == 0;
        out[i] = w->g.tokens[(p + (size_t)turn * 31 + 7 * (size_t)stream) % w->g.n_tokens];
        if (p == 0)
            out[i] = (int32_t)(3 * (uint32_t)pick(w, 2) + stream) % (int32_t)w->g.n_vocab;
    }
}

/* Where bounds are known they are of these logits. */
static void check_bounds(world *w, const lane *l, const float *logits)
{
    const float *bounds = mf_session_bounds(l->session);
    float highest = 0;
    for (size_t i = 0; i < w->g.n_vocab && bounds != NULL; i++) {
        highest = i % MF_LOGITS_BLOCK == 0 || logits[i] > highest ? logits[i] : highest;
        if ((i + 1) % MF_LOGITS_BLOCK == 0 || i + 1 == w->g.n_vocab)
            CHECK(bounds[i / MF_LOGITS_BLOCK] == highest);
    }
    w->n_bounds += bounds != NULL;
}

static void check_lane(world *w, lane *l)
{
    if (l->session == NULL)
        return;
    size_t positions[64];
    CHECK_U64(mf_session_position(l->session), l->n);
    CHECK(memcmp(mf_session_tokens(l->session), l->tokens, l->n * sizeof *l->tokens) == 0);
    size_t n = mf_mark_list(l->session, positions, 64);
    for (size_t i = 0; i < n && i < 64; i++)
        CHECK(positions[i] <= l->n && (i == 0 || positions[i] > positions[i - 1]));
    const float *logits = mf_session_logits(l->session);
    CHECK_MSG((logits != NULL) == l->has_logits, "%s: logits %d, expected %d at %zu", w->c->name,
              logits != NULL, l->has_logits, l->n);
    if (logits == NULL || !l->has_logits)
        return;
    uint64_t got = mix(1, logits, w->g.n_vocab * sizeof *logits);
    uint64_t want = expected_logits(w, l->tokens, l->n);
    w->n_checked++;
    check_bounds(w, l, logits);
    if (!CHECK_MSG(got == want, "%s: other logits after %zu tokens", w->c->name, l->n))
        exit(test_result());
}

/* After a call that may have ended early: the session holds the tokens and a prefix of the new. */
static void accept(lane *l, const int32_t *added, size_t n_added, bool is_done)
{
    size_t position = mf_session_position(l->session);
    CHECK(position >= l->n && position <= l->n + n_added);
    CHECK(!is_done || position == l->n + n_added);
    if (position == l->n)
        return;
    memcpy(l->tokens + l->n, added, (position - l->n) * sizeof *added);
    l->n = position;
    l->has_logits = is_done ? true : mf_session_logits(l->session) != NULL;
}

static bool is_limit(world *w, mf_status status, const mf_error *error)
{
    w->n_limits += status == MF_ERR_BUDGET;
    w->n_cancelled += status == MF_ERR_CANCELLED;
    return CHECK_MSG(status == MF_OK || status == MF_ERR_BUDGET || status == MF_ERR_CANCELLED,
                     "%s: %s", w->c->name, error->message);
}

/* -------------------------------------------------------------------------------- the steps -- */

static void ensure_open(world *w, lane *l)
{
    mf_error error = {0};
    if (l->session == NULL) {
        REQUIRE_OK(mf_session_create(w->engine, &l->session, &error), &error);
        l->n = 0;
        l->has_logits = false;
    }
}

static void step_batch(world *w, uint32_t n_wanted, size_t most)
{
    mf_batch_item items[N_SESSIONS];
    static int32_t added[N_SESSIONS][MAX_TOKENS];
    lane *of[N_SESSIONS];
    uint32_t n = 0, start = pick(w, N_SESSIONS);
    for (uint32_t i = 0; i < N_SESSIONS && n < n_wanted; i++) {
        lane *l = &lanes[(start + 7 * i) % N_SESSIONS];
        ensure_open(w, l);
        size_t room = MAX_TOKENS - l->n, count = 1 + pick(w, (uint32_t)most);
        if (room == 0)
            continue;
        count = count > room ? room : count;
        next_tokens(w, l, added[n], count);
        items[n] = (mf_batch_item){l->session, added[n], count};
        of[n++] = l;
    }
    if (n == 0)
        return;
    mf_error error = {0};
    mf_cancel cancel = {0};
    uint32_t trick = pick(w, 12);
    mf_session *one = of[pick(w, n)]->session;
    mf_session_cancel(one); /* too early: no call of it is running */
    mf_session_set_cancel(one, &cancel);
    if (trick == 0)
        mf_cancel_request(&cancel);
    if (trick == 1)
        mf_session_set_deadline(of[0]->session, 1);
    mf_status status = mf_engine_eval(w->engine, items, n, &error);
    mf_session_set_deadline(of[0]->session, 0);
    mf_session_set_cancel(one, NULL);
    CHECK(trick > 1 || status != MF_OK);
    if (!is_limit(w, status, &error))
        return;
    for (uint32_t i = 0; i < n; i++) {
        accept(of[i], added[i], items[i].n_tokens, status == MF_OK);
        check_lane(w, of[i]);
    }
}

/* An item of a step and what the model says of it. */
typedef struct planned {
    lane *of;
    int32_t added[MAX_TOKENS + 1];
    mf_cancel cancel;
    mf_status status; /* MF_OK: it gets a share */
} planned;

static planned plans[N_SESSIONS];

static void plan_item(world *w, lane *l, planned *p, mf_step_item *item)
{
    uint32_t trick = pick(w, 16);
    size_t room = MAX_TOKENS - l->n, n = pick(w, 4) == 0 ? pick(w, 90) : pick(w, 3);
    *p = (planned){.of = l, .status = trick == 0 ? MF_ERR_CANCELLED : MF_OK};
    n = n > room ? room : n;
    next_tokens(w, l, p->added, n);
    if (trick == 0)
        mf_cancel_request(&p->cancel);
    if (trick == 1) {
        p->added[n++] = -1;
        p->status = l->n + n > MAX_TOKENS ? MF_ERR_CONTEXT : MF_ERR_ARGUMENT;
    }
    if (n == 0)
        p->status = MF_OK; /* nothing to cancel */
    *item = (mf_step_item){.struct_bytes = sizeof *item,
                           .session = l->session,
                           .tokens = p->added,
                           .n_tokens = n,
                           .cancel = pick(w, 2) == 0 || trick == 0 ? &p->cancel : NULL,
                           .flags = pick(w, 3) == 0 ? MF_STEP_NO_LOGITS : 0,
                           .status = MF_ERR_STATE,
                           .n_done = 12345};
}

static void check_item(world *w, const planned *p, const mf_step_item *item)
{
    lane *l = p->of;
    size_t n = item->n_done;
    w->n_limits += item->status == MF_ERR_BUDGET;
    w->n_cancelled += item->status == MF_ERR_CANCELLED;
    CHECK_MSG(item->status == p->status || (p->status == MF_OK && item->status == MF_ERR_BUDGET),
              "%s: item is %s, expected %s", w->c->name, mf_status_name(item->status),
              mf_status_name(p->status));
    REQUIRE(n <= item->n_tokens && (item->status == MF_OK || n == 0));
    memcpy(l->tokens + l->n, p->added, n * sizeof *l->tokens);
    l->n += n;
    if (n > 0)
        l->has_logits = n == item->n_tokens && (item->flags & MF_STEP_NO_LOGITS) == 0;
    check_lane(w, l);
}

/* The chunk is as full as it can be, and nobody gets fewer rows than another who had no fewer left,
 * but for the odd one. */
static void check_shares(const mf_step_item *items, size_t n_items)
{
    size_t n_wanted = 0, n_done = 0, most = 0;
    for (size_t i = 0; i < n_items; i++) {
        n_wanted += items[i].status == MF_OK ? items[i].n_tokens : 0;
        n_done += items[i].n_done;
        most = items[i].n_done > most ? items[i].n_done : most;
    }
    CHECK_U64(n_done, n_wanted < N_CHUNK ? n_wanted : N_CHUNK);
    for (size_t i = 0; i < n_items; i++)
        CHECK(items[i].status != MF_OK || items[i].n_done == items[i].n_tokens ||
              items[i].n_done + 1 >= most);
}

static void step_together(world *w)
{
    mf_step_item items[N_SESSIONS];
    uint32_t n_wanted = pick(w, 3) == 0 ? N_SESSIONS : 1 + pick(w, 8), start = pick(w, N_SESSIONS);
    mf_status status = MF_OK, first = MF_OK;
    mf_error error = {0};
    bool is_full = true;
    for (uint32_t i = 0; i < n_wanted; i++) {
        lane *l = &lanes[(start + 5 * i) % N_SESSIONS];
        ensure_open(w, l);
        plan_item(w, l, &plans[i], &items[i]);
    }
    status = mf_engine_step(w->engine, items, n_wanted, &error);
    for (uint32_t i = 0; i < n_wanted; i++) {
        check_item(w, &plans[i], &items[i]);
        first = first == MF_OK ? items[i].status : first;
        is_full = is_full && items[i].status != MF_ERR_BUDGET;
    }
    CHECK((status == MF_OK) == (first == MF_OK) && (status == MF_OK || error.code == status));
    if (is_full)
        check_shares(items, n_wanted);
}

/* Tokens that a lane begins with, and others; what is held of them is taken over. */
static void step_reuse(world *w)
{
    lane *to = any_lane(w), *from = any_lane(w);
    int32_t tokens[MAX_TOKENS];
    size_t n_same = from->session == NULL ? 0 : pick(w, (uint32_t)from->n + 1), best = 0;
    size_t n = 1 + pick(w, MAX_TOKENS);
    ensure_open(w, to);
    n = n < n_same ? n_same : n;
    next_tokens(w, from, tokens, n);
    memcpy(tokens, from->tokens, n_same * sizeof *tokens);
    for (size_t i = 0; i < N_SESSIONS; i++) {
        const lane *l = &lanes[i];
        size_t common = 0, end = l->session == NULL ? 0 : l->n < n ? l->n : n;
        while (common < end && l->tokens[common] == tokens[common])
            common++;
        if (w->is_recurrent && common < l->n)
            common = 0; /* but for its marks */
        if (common == n && !(l->n == n && l->has_logits))
            common = w->is_recurrent ? 0 : n - 1;
        best = common > best ? common : best;
    }
    mf_sync_result result;
    mf_error error = {0};
    REQUIRE_OK(mf_session_reuse(to->session, tokens, n, &result, &error), &error);
    CHECK_MSG(result.n_reused >= best && result.n_reused <= n, "%s: %zu of %zu tokens, %zu held",
              w->c->name, result.n_reused, n, best);
    CHECK(result.n_evaluated == 0 && (result.source == MF_SYNC_NONE) == (result.n_reused == 0));
    memcpy(to->tokens, tokens, result.n_reused * sizeof *tokens);
    to->n = result.n_reused;
    to->has_logits = mf_session_logits(to->session) != NULL;
    CHECK(to->n < n || to->has_logits);
    w->n_reused += result.n_reused;
    check_lane(w, to);
}

static int cancel_later(void *user, uint64_t n_done, uint64_t n_total)
{
    (void)n_done;
    (void)n_total;
    uint32_t *left = user;
    return *left == 0 || --*left == 0;
}

static void step_cancelled(world *w)
{
    lane *l = any_lane(w);
    ensure_open(w, l);
    int32_t added[MAX_TOKENS];
    size_t n = MAX_TOKENS - l->n;
    uint32_t after = 1 + pick(w, 20);
    mf_error error = {0};
    next_tokens(w, l, added, n);
    mf_session_set_progress(l->session, cancel_later, &after);
    mf_status status = mf_session_eval(l->session, added, n, &error);
    mf_session_set_progress(l->session, NULL, NULL);
    if (is_limit(w, status, &error))
        accept(l, added, n, status == MF_OK);
    check_lane(w, l);
}

static void step_fork(world *w)
{
    lane *from = any_lane(w), *to = any_lane(w);
    mf_error error = {0};
    if (from == to)
        return;
    ensure_open(w, from);
    mf_session_free(&to->session);
    uint64_t taken = w->engine->pool.touched_bytes;
    REQUIRE_OK(mf_session_fork(from->session, &to->session, &error), &error);
    CHECK(w->engine->pool.touched_bytes <= taken);
    memcpy(to->tokens, from->tokens, sizeof from->tokens);
    to->n = from->n;
    to->has_logits = from->has_logits;
    check_lane(w, to);
    check_lane(w, from);
}

static void step_truncate(world *w)
{
    lane *l = any_lane(w);
    if (l->session == NULL)
        return;
    mf_error error = {0};
    size_t to = pick(w, (uint32_t)l->n + 1), kept = 12345, positions[64], newest = 0;
    size_t n = mf_mark_list(l->session, positions, 64);
    for (size_t i = 0; i < n; i++)
        newest = positions[i] <= to ? positions[i] : newest;
    mf_status status = mf_session_truncate(l->session, to, &kept, &error);
    size_t want = to == l->n || !w->is_recurrent ? to : newest;
    if (want == 0 && to != 0) {
        CHECK_STATUS(status, MF_ERR_NOT_FOUND);
        CHECK_U64(kept, 12345);
        w->n_not_found++;
    } else {
        CHECK_STATUS(status, MF_OK);
        CHECK_U64(kept, want);
        l->has_logits = l->has_logits && want == l->n;
        l->n = want;
    }
    check_lane(w, l);
    CHECK_STATUS(mf_session_truncate(l->session, l->n + 1, &kept, &error), MF_ERR_ARGUMENT);
}

static void step_mark(world *w)
{
    lane *l = any_lane(w);
    ensure_open(w, l);
    mf_error error = {0};
    size_t positions[64], n;
    mf_status status = mf_mark_save(l->session, &error);
    if (!is_limit(w, status, &error) || status != MF_OK)
        return;
    n = mf_mark_list(l->session, positions, 64);
    CHECK(n > 0 && positions[n - 1] == l->n);
    if (pick(w, 4) == 0)
        mf_mark_auto(l->session, pick(w, 3) * 16, (int)pick(w, 2));
}

static void step_restore(world *w)
{
    lane *l = any_lane(w);
    if (l->session == NULL)
        return;
    mf_error error = {0};
    size_t positions[64], n = mf_mark_list(l->session, positions, 64);
    if (n == 0) {
        CHECK_STATUS(mf_mark_restore(l->session, l->n, &error), MF_ERR_NOT_FOUND);
        return;
    }
    size_t to = positions[pick(w, (uint32_t)(n < 64 ? n : 64))];
    if (pick(w, 4) == 0) {
        CHECK_STATUS(mf_mark_drop(l->session, to, &error), MF_OK);
        CHECK_STATUS(mf_mark_drop(l->session, to, &error), MF_ERR_NOT_FOUND);
    } else {
        REQUIRE_OK(mf_mark_restore(l->session, to, &error), &error);
        l->n = to;
        l->has_logits = mf_session_logits(l->session) != NULL;
    }
    check_lane(w, l);
}

/* The bytes of a state, copied into a new one. */
static mf_status copy_state(world *w, const mf_state *from, mf_state **out, mf_error *error)
{
    mf_status status =
        mf_state_create(w->engine, from->tokens, from->position, from->logits != NULL, out, error);
    if (status != MF_OK)
        return status;
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < mf_state_n_parts(w->engine, from->position); i++) {
        mf_state_part a = mf_state_part_at(from, i), b = mf_state_part_at(*out, i);
        CHECK(a.n_bytes == b.n_bytes &&
              (a.span.buffer.id != b.span.buffer.id || a.span.offset != b.span.offset) &&
              a.n_bytes == mf_state_part_bytes(w->engine, from->position, i));
        mf_backend *be = w->engine->runner.backend;
        be->ops->copy(be, b.span, a.span, a.n_bytes);
        n_bytes += a.n_bytes;
    }
    CHECK_U64(mf_state_bytes(w->engine, from->position), n_bytes);
    if (from->logits != NULL)
        memcpy((*out)->logits, from->logits, w->g.n_vocab * sizeof(float));
    return MF_OK;
}

/* One session takes over what another holds somewhere, shared or as a copy. */
static void step_adopt(world *w)
{
    lane *from = any_lane(w), *to = any_lane(w);
    ensure_open(w, from);
    ensure_open(w, to);
    mf_error error = {0};
    mf_state *state = NULL, *copy = NULL;
    mf_engine_lock(w->engine);
    uint64_t at = mf_session_position_held(from->session, pick(w, (uint32_t)from->n + 1));
    mf_engine_unlock(w->engine);
    REQUIRE_OK(mf_state_hold(from->session, at, &state, &error), &error);
    CHECK(at == state->position);
    if (pick(w, 2) == 0) {
        if (is_limit(w, copy_state(w, state, &copy, &error), &error) && copy != NULL) {
            mf_state_release(&state);
            state = copy;
        }
    }
    REQUIRE_OK(mf_session_adopt(to->session, state, &error), &error);
    memmove(to->tokens, from->tokens, at * sizeof *to->tokens);
    to->n = (size_t)at;
    to->has_logits = state->logits != NULL;
    mf_state_release(&state);
    check_lane(w, to);
    check_lane(w, from);
}

static void step_end(world *w)
{
    lane *l = any_lane(w);
    if (l->session == NULL)
        return;
    if (pick(w, 2) == 0) {
        mf_session_free(&l->session);
        return;
    }
    mf_session_clear(l->session);
    l->n = 0;
    l->has_logits = false;
    CHECK_U64(mf_session_state_bytes(l->session), 0);
    CHECK_U64(mf_mark_list(l->session, NULL, 0), 0);
    check_lane(w, l);
}

static void step(world *w)
{
    static const uint32_t batches[] = {1, 2, 17, 64};
    uint32_t what = pick(w, 122);
    if (what < 40)
        step_batch(w,
                   batches[pick(w, golden_is_short() ? 2
                                   : what < 4        ? 4
                                                     : 3)],
                   pick(w, 4) == 0 ? 70 : 3);
    else if (what < 45)
        step_cancelled(w);
    else if (what < 58)
        step_fork(w);
    else if (what < 68)
        step_truncate(w);
    else if (what < 78)
        step_mark(w);
    else if (what < 86)
        step_restore(w);
    else if (what < 94)
        step_adopt(w);
    else if (what < 106)
        step_together(w);
    else if (what < 116)
        step_reuse(w);
    else
        step_end(w);
}

/* ------------------------------------------------------------------------------------- runs -- */

typedef struct setting {
    const char *name;
    mf_kv_type kv_type;
    uint32_t state_share; /* of what all sessions might want; 0: room for all */
} setting;

static mf_engine_options options_of(const golden_case *c, const setting *s)
{
    mf_engine_options options = golden_options(c);
    options.n_context_tokens = MAX_TOKENS;
    options.n_sessions = N_SESSIONS;
    options.n_chunk_tokens = N_CHUNK;
    options.kv_type = s->kv_type;
    options.n_threads = 2;
    return options;
}

static void run(const setting *s, unsigned long n_steps, uint64_t seed)
{
    world w = {.c = golden_case_find(s->name), .random = seed};
    mf_error error = {0};
    golden_read(w.c, &w.g);
    mf_engine_options options = options_of(w.c, s);
    w.memos = calloc(N_MEMO, sizeof *w.memos);
    REQUIRE(w.memos != NULL);
    w.plain = golden_open(w.c, &options);
    uint64_t each = w.plain->runner.plan.page_bytes * (MAX_TOKENS / MF_PAGE_TOKENS + 2) +
                    w.plain->runner.plan.recurrent_bytes * 6;
    options.state_bytes = each * N_SESSIONS / (s->state_share == 0 ? 1 : s->state_share);
    w.engine = golden_open(w.c, &options);
    w.is_recurrent = w.engine->runner.plan.recurrent_bytes != 0;
    REQUIRE_OK(mf_session_create(w.plain, &w.reference, &error), &error);
    for (unsigned long i = 0; i < n_steps; i++) {
        step(&w);
        CHECK(w.engine->pool.touched_bytes <= options.state_bytes);
        CHECK(w.engine->mark_bytes <= w.engine->mark_limit || !mf_mark_drop_oldest(w.engine));
    }
    fprintf(stderr,
            "%s%s: %lu steps, %llu logits compared, %llu at the limit, %llu cancelled, "
            "%llu refused truncations\n",
            s->name, s->kv_type == MF_KV_BF16 ? " bf16" : "", n_steps,
            (unsigned long long)w.n_checked, (unsigned long long)w.n_limits,
            (unsigned long long)w.n_cancelled, (unsigned long long)w.n_not_found);
    if (!GOLDEN_ON_DEVICE && n_steps >= USUAL_STEPS) { /* few do not come by everything */
        CHECK((w.n_limits > 0) == (s->state_share > 0) && w.n_cancelled > 0);
        CHECK((w.n_not_found > 0) == w.is_recurrent);
        CHECK(w.n_reused > 0);
    }
    CHECK(w.n_checked > 0 && w.n_bounds > 0);
    for (size_t i = 0; i < N_SESSIONS; i++)
        mf_session_free(&lanes[i].session);
    mf_session_free(&w.reference);
    CHECK_U64(w.engine->pool.kinds[MF_UNIT_PAGE].n_used, 0);
    CHECK_U64(w.engine->pool.kinds[MF_UNIT_RECURRENT].n_used, 0);
    CHECK_U64(w.engine->mark_bytes, 0);
    mf_engine_close(&w.engine);
    mf_engine_close(&w.plain);
    free(w.memos);
    golden_free(&w.g);
}

/* Who takes a state over in the middle of a long run has none of it left: the tokens that follow
 * are not multiplied as those of long runs are. */
static void check_cut_run(void)
{
    enum { N = MAX_TOKENS - 10 };
    const setting s = {"mlx_4bit", MF_KV_F32, 0};
    const golden_case *c = golden_case_find(s.name);
    const mf_engine_options options = options_of(c, &s);
    mf_engine *engine = golden_open(c, &options);
    mf_session *from, *to;
    mf_state *state = NULL;
    mf_error error = {0};
    int32_t tokens[N] = {1, 2, 3};
    REQUIRE_OK(mf_session_create(engine, &from, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &to, &error), &error);
    REQUIRE_OK(mf_session_eval(from, tokens, 3, &error), &error);
    REQUIRE_OK(mf_state_hold(from, 3, &state, &error), &error);
    mf_step_item item = {
        .struct_bytes = sizeof item, .session = to, .tokens = tokens, .n_tokens = N};
    REQUIRE_OK(mf_engine_step(engine, &item, 1, &error), &error);
    CHECK(item.n_done < N && to->n_long_left == N - item.n_done);
    REQUIRE_OK(mf_session_adopt(to, state, &error), &error);
    CHECK_U64(to->n_long_left, 0);
    mf_state_release(&state);
    mf_session_free(&from);
    mf_session_free(&to);
    mf_engine_close(&engine);
}

int main(int argc, char **argv)
{
    static const setting settings[] = {
        {"mlx_4bit", MF_KV_F32, 0},         {"v2_lite_bf16", MF_KV_F32, 0},
        {"mlx_4bit", MF_KV_F32, 4},         {"v2_lite_bf16", MF_KV_BF16, 4},
        {"next_bf16", MF_KV_BF16, 0},       {"v3_fp8", MF_KV_F32, 8},
        {"kimi_linear_bf16", MF_KV_F32, 0},
    };
    const unsigned long usual = golden_is_short() ? 25 : GOLDEN_ON_DEVICE ? 60 : USUAL_STEPS;
    unsigned long n_steps = argc > 1 ? strtoul(argv[1], NULL, 10) : usual;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    for (size_t i = golden_is_short() ? 3 : 0; i < (golden_is_short() ? 5 : 7); i++)
        run(&settings[i], n_steps, seed + i);
    check_cut_run();
    return test_result();
}
