/* SPDX-License-Identifier: MIT */
/*
 * Layers with a window give their old pages back: what a session holds of them is bounded, pages
 * that were given back are never read (others write over them meanwhile), and going back further
 * than the window needs a mark. What comes of it is the same bits as with everything held.
 */
#include "golden.h"
#include "scratch_dir.h"

#include "session/session.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_TOKENS = 400, N_CONTEXT = 512, STEP = 7 };

typedef struct fixture {
    const golden_case *c;
    int32_t tokens[N_TOKENS];
    size_t n_vocab;
    float *whole; /* [N_TOKENS, n_vocab], evaluated at once: every page held meanwhile */
} fixture;

static mf_engine *open_engine(const fixture *f, uint32_t n_chunk)
{
    mf_engine_options options = golden_options(f->c);
    options.n_context_tokens = N_CONTEXT;
    options.n_chunk_tokens = n_chunk;
    options.n_sessions = 4;
    return golden_open(f->c, &options);
}

static mf_session *new_session(mf_engine *e)
{
    mf_session *s = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(e, &s, &error), &error);
    return s;
}

static void read_fixture(const char *name, fixture *f)
{
    golden g;
    mf_error error = {0};
    f->c = golden_case_find(name);
    golden_read(f->c, &g);
    for (size_t i = 0; i < N_TOKENS; i++)
        f->tokens[i] = g.tokens[(i * 5 + i / 11) % g.n_tokens];
    f->n_vocab = g.n_vocab;
    f->whole = malloc(N_TOKENS * f->n_vocab * sizeof *f->whole);
    REQUIRE(f->whole != NULL);
    mf_engine *e = open_engine(f, N_CONTEXT);
    mf_session *s = new_session(e);
    REQUIRE_OK(golden_eval(s, f->tokens, N_TOKENS, f->n_vocab, f->whole, &error), &error);
    mf_session_free(&s);
    mf_engine_close(&e);
    golden_free(&g);
}

static void check_logits(const fixture *f, const mf_session *s)
{
    const size_t n = mf_session_position(s);
    REQUIRE(mf_session_logits(s) != NULL);
    CHECK_MSG(memcmp(mf_session_logits(s), f->whole + (n - 1) * f->n_vocab,
                     f->n_vocab * sizeof *f->whole) == 0,
              "%s: logits after %zu tokens differ", f->c->name, n);
}

static void eval_to(const fixture *f, mf_session *s, size_t end)
{
    mf_error error = {0};
    const size_t at = mf_session_position(s);
    REQUIRE_OK(mf_session_eval(s, f->tokens + at, end - at, &error), &error);
    check_logits(f, s);
}

/* The most pages of windows that a session ever needs, its chunk included. */
static uint32_t most_pages(const mf_engine *e, uint32_t n_chunk)
{
    const uint32_t block = MF_WINDOW_PAGES * MF_PAGE_TOKENS;
    return mf_pages_of(e->runner.plan.window + MF_WINDOW_SLACK + block + n_chunk) + 1;
}

/* Two sessions take turns, each writing over what the other gives back. */
static void check_bounded(const fixture *f)
{
    mf_engine *e = open_engine(f, 32);
    mf_session *s[2] = {new_session(e), new_session(e)};
    const mf_state_units *units = &e->pool.kinds[MF_UNIT_WINDOW];
    uint32_t most = 0;
    for (size_t end = STEP; end <= N_TOKENS; end += STEP)
        for (int i = 0; i < 2; i++) {
            eval_to(f, s[i], end);
            most = units->n_used > most ? units->n_used : most;
        }
    CHECK_MSG(most <= 2 * most_pages(e, STEP), "%u pages of windows", most);
    CHECK_U64(mf_session_state_bytes(s[0]),
              s[0]->pages[MF_UNIT_PAGE].n * e->runner.plan.page_bytes +
                  units->n_used / 2 * e->runner.plan.window_bytes);
    CHECK(units->n_used < 2 * mf_pages_of(N_TOKENS));
    for (int i = 0; i < 2; i++)
        mf_session_free(&s[i]);
    CHECK_U64(units->n_used, 0);
    mf_engine_close(&e);
}

/* A little back without a mark, further with one, else refused and the session as it was. */
static void check_back(const fixture *f)
{
    mf_engine *e = open_engine(f, 64);
    mf_session *s = new_session(e);
    mf_error error = {0};
    size_t n_kept = 0;
    eval_to(f, s, 70);
    REQUIRE_OK(mf_mark_save(s, &error), &error);
    eval_to(f, s, 350);
    REQUIRE_OK(mf_session_truncate(s, 350 - 40, &n_kept, &error), &error);
    CHECK_U64(n_kept, 310);
    eval_to(f, s, 390);
    REQUIRE_OK(mf_session_truncate(s, 200, &n_kept, &error), &error);
    CHECK_U64(n_kept, 70);
    eval_to(f, s, 330);
    REQUIRE_OK(mf_mark_restore(s, 70, &error), &error);
    check_logits(f, s);
    eval_to(f, s, 340);
    REQUIRE_OK(mf_mark_drop(s, 70, &error), &error);
    CHECK_STATUS(mf_session_truncate(s, 100, &n_kept, &error), MF_ERR_NOT_FOUND);
    CHECK(strstr(error.message, "window") != NULL);
    eval_to(f, s, 345);
    REQUIRE_OK(mf_session_truncate(s, 0, &n_kept, &error), &error);
    eval_to(f, s, 60);
    mf_session_free(&s);
    CHECK_U64(e->pool.kinds[MF_UNIT_WINDOW].n_used + e->pool.kinds[MF_UNIT_PAGE].n_used, 0);
    mf_engine_close(&e);
}

/* Forks, what other sessions hold, and snapshots. */
static void check_shared(const fixture *f)
{
    mf_engine *e = open_engine(f, 64);
    mf_session *s = new_session(e), *fork = NULL, *other = new_session(e);
    mf_error error = {0};
    mf_sync_result result = {0};
    eval_to(f, s, 90);
    REQUIRE_OK(mf_mark_save(s, &error), &error);
    eval_to(f, s, 300);
    REQUIRE_OK(mf_session_fork(s, &fork, &error), &error);
    eval_to(f, s, 380);
    eval_to(f, fork, 400);
    /* of two sessions and a mark, the one that can be held furthest */
    REQUIRE_OK(mf_session_sync(other, f->tokens, 370, &result, &error), &error);
    CHECK_U64(result.n_reused, 369);
    check_logits(f, other);
    REQUIRE_OK(mf_session_sync(other, f->tokens, 200, &result, &error), &error);
    CHECK_U64(result.n_reused, 90);
    check_logits(f, other);
    const size_t n_bytes = (size_t)mf_snapshot_bytes(s);
    void *bytes = malloc(n_bytes);
    REQUIRE(bytes != NULL);
    REQUIRE_OK(mf_snapshot_save(s, bytes, n_bytes, &error), &error);
    mf_session_free(&s);
    mf_session_free(&fork);
    REQUIRE_OK(mf_snapshot_load(other, bytes, n_bytes, &error), &error);
    check_logits(f, other);
    eval_to(f, other, 400);
    free(bytes);
    mf_session_free(&other);
    CHECK_U64(e->pool.kinds[MF_UNIT_WINDOW].n_used + e->pool.kinds[MF_UNIT_PAGE].n_used, 0);
    mf_engine_close(&e);
}

/* Of two sessions that share the same beginning with the tokens, that whose window still reaches
 * there, whichever of the two it is. */
static void check_reaching(const fixture *f, int near)
{
    mf_engine *e = open_engine(f, 64);
    mf_session *s[2] = {new_session(e), new_session(e)}, *third = new_session(e);
    mf_error error = {0};
    mf_sync_result result = {0};
    eval_to(f, s[!near], 390);
    eval_to(f, s[near], 200);
    REQUIRE_OK(mf_session_eval(s[near], f->tokens, 10, &error), &error);
    REQUIRE_OK(mf_session_sync(third, f->tokens, 200, &result, &error), &error);
    CHECK_MSG(result.n_reused == 199 && result.source == MF_SYNC_SESSION,
              "%s: %zu tokens reused instead of 199 of session %d", f->c->name, result.n_reused,
              near);
    check_logits(f, third);
    mf_session_free(&third);
    for (int i = 0; i < 2; i++)
        mf_session_free(&s[i]);
    mf_engine_close(&e);
}

static char dir[256];

static void remove_store(void)
{
    char path[600];
    DIR *d = opendir(dir);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    if (d != NULL)
        closedir(d);
    rmdir(dir);
}

static mf_store *open_store(void)
{
    const char *tmp = getenv("TMPDIR");
    mf_store *store = NULL;
    mf_error error = {0};
    remove_store();
    snprintf(dir, sizeof dir, "%s/moeflux-windows-XXXXXX", tmp != NULL ? tmp : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
    REQUIRE_OK(mf_store_open(dir, NULL, &store, &error), &error);
    return store;
}

/* The entry as what mf_snapshot_save writes, its marks checked and left. */
static void load_entry(const fixture *f, mf_engine *e)
{
    char path[600];
    mf_error error = {0};
    mf_session *s = new_session(e);
    DIR *d = opendir(dir);
    REQUIRE(d != NULL);
    for (struct dirent *i = readdir(d); i != NULL; i = readdir(d)) {
        if (strstr(i->d_name, ".mfstate") == NULL)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, i->d_name);
        const int fd = open(path, O_RDONLY);
        REQUIRE(fd >= 0);
        REQUIRE_OK(mf_snapshot_load_fd(s, fd, &error), &error);
        CHECK(lseek(fd, 0, SEEK_CUR) + 8 == lseek(fd, 0, SEEK_END));
        close(fd);
    }
    closedir(d);
    check_logits(f, s);
    mf_session_free(&s);
}

/* Tokens that part from the fixture's after n_same: what is found in the store is the same as
 * evaluated. */
static void check_parted(const fixture *f, mf_engine *e, size_t n_same, size_t n_reused)
{
    int32_t tokens[N_TOKENS];
    mf_session *s = new_session(e), *fresh = new_session(e);
    mf_sync_result result = {0};
    mf_error error = {0};
    const size_t n = n_same + 9;
    memcpy(tokens, f->tokens, n * sizeof *tokens);
    for (size_t i = n_same; i < n; i++)
        tokens[i] = (tokens[i] + 1) % (int32_t)f->n_vocab;
    REQUIRE_OK(mf_session_sync(s, tokens, n, &result, &error), &error);
    CHECK_MSG(result.n_reused == n_reused && (n_reused == 0 || result.source == MF_SYNC_STORE),
              "%s: parted after %zu tokens, %zu reused instead of %zu", f->c->name, n_same,
              result.n_reused, n_reused);
    REQUIRE_OK(mf_session_eval(fresh, tokens, n, &error), &error);
    CHECK_BYTES(mf_session_logits(s), mf_session_logits(fresh), f->n_vocab * sizeof(float));
    mf_session_free(&s);
    mf_session_free(&fresh);
}

/* An entry is taken up where its own windows still reach, at its marks, and as a whole; and is
 * a snapshot. */
static void check_stored(const fixture *f)
{
    enum { N_STORED = 380 };
    mf_engine *e = open_engine(f, 64);
    mf_session *s = new_session(e);
    mf_store *store = open_store();
    mf_store_stats stats;
    mf_error error = {0};
    const size_t marks[] = {70, 250};
    for (size_t i = 0; i < 2; i++) {
        eval_to(f, s, marks[i]);
        REQUIRE_OK(mf_mark_save(s, &error), &error);
    }
    eval_to(f, s, N_STORED);
    REQUIRE_OK(mf_store_put(store, s, &error), &error);
    mf_session_free(&s);
    mf_engine_set_store(e, store);
    const uint32_t window = e->runner.plan.window;
    const size_t at[] = {N_STORED, N_STORED - 1, 330, 251, 249, 100, 70, 60};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        const bool reaches = mf_window_first(window, at[i]) >= mf_window_first(window, N_STORED);
        check_parted(f, e, at[i], reaches ? at[i] : at[i] >= 250 ? 250 : at[i] >= 70 ? 70 : 0);
    }
    CHECK(mf_window_first(window, N_STORED - 1) >= mf_window_first(window, N_STORED));
    load_entry(f, e);
    mf_store_get_stats(store, &stats);
    CHECK_U64(stats.n_set_aside, 0);
    mf_engine_set_store(e, NULL);
    mf_store_close(&store);
    mf_engine_close(&e);
}

/* The same of two entries of the store. */
static void check_stored_reaching(const fixture *f, int near)
{
    mf_engine *e = open_engine(f, 64);
    mf_session *s = new_session(e);
    mf_store *store = open_store();
    mf_error error = {0};
    mf_sync_result result = {0};
    for (int i = 0; i < 2; i++) {
        mf_session_clear(s);
        eval_to(f, s, i == near ? 250 : 390);
        if (i == near)
            REQUIRE_OK(mf_session_eval(s, f->tokens, 5, &error), &error);
        REQUIRE_OK(mf_store_put(store, s, &error), &error);
    }
    mf_session_clear(s);
    mf_engine_set_store(e, store);
    REQUIRE_OK(mf_session_sync(s, f->tokens, 250, &result, &error), &error);
    CHECK_MSG(result.n_reused == 249 && result.source == MF_SYNC_STORE,
              "%s: %zu tokens reused instead of 249 of entry %d", f->c->name, result.n_reused,
              near);
    check_logits(f, s);
    mf_session_free(&s);
    mf_engine_set_store(e, NULL);
    mf_store_close(&store);
    mf_engine_close(&e);
}

/* A window of several pages, and a mark whose last pages the session still has, its first not any
 * more: a text that parts from the session's there takes all of the mark's. */
static void check_wide(void)
{
    enum { MARKED = 171, HELD = 338, PARTED = MARKED + 9 };
    fixture f = {.c = golden_case_find("mistral_window_bf16"), .n_vocab = 128};
    int32_t tokens[PARTED];
    mf_engine *e = NULL;
    mf_engine_options options = golden_options(f.c);
    mf_sync_result result = {0};
    mf_error error = {0};
    const char *path = scratch_copy(f.c->name);
    scratch_replace("config.json", "\"sliding_window\": 11", "\"sliding_window\": 100");
    options.n_context_tokens = N_CONTEXT;
    options.n_chunk_tokens = 64;
    options.n_sessions = 2;
    REQUIRE_OK(mf_engine_open(path, &options, &e, &error), &error);
    mf_session *s = new_session(e), *fresh = new_session(e);
    for (size_t i = 0; i < HELD; i++)
        f.tokens[i] = (int32_t)((i * 5 + i / 11) % f.n_vocab);
    memcpy(tokens, f.tokens, sizeof tokens);
    for (size_t i = MARKED; i < PARTED; i++)
        tokens[i] = (tokens[i] + 1) % (int32_t)f.n_vocab;
    REQUIRE_OK(mf_session_eval(s, f.tokens, MARKED, &error), &error);
    REQUIRE_OK(mf_mark_save(s, &error), &error);
    REQUIRE_OK(mf_session_eval(s, f.tokens + MARKED, HELD - MARKED, &error), &error);
    CHECK(s->pages[MF_UNIT_WINDOW].first > mf_window_first(e->runner.plan.window, MARKED));
    CHECK(s->pages[MF_UNIT_WINDOW].first < MARKED / MF_PAGE_TOKENS);
    REQUIRE_OK(mf_session_sync(s, tokens, PARTED, &result, &error), &error);
    CHECK_U64(result.n_reused, MARKED);
    REQUIRE_OK(mf_session_eval(fresh, tokens, PARTED, &error), &error);
    CHECK_BYTES(mf_session_logits(s), mf_session_logits(fresh), f.n_vocab * sizeof(float));
    mf_session_free(&s);
    mf_session_free(&fresh);
    mf_engine_close(&e);
}

int main(void)
{
    atexit(remove_store);
    atexit(scratch_remove);
    static const char *const names[] = {"gpt_oss_bf16", "mistral_window_bf16", "qwen2_window_f16",
                                        "llama4_mlx_bf16", "deepseek_v4_bf16"};
    const size_t n = golden_is_short() ? 1 : sizeof names / sizeof *names;
    for (size_t i = 0; i < n; i++) {
        fixture f = {0};
        read_fixture(names[i], &f);
        check_bounded(&f);
        check_back(&f);
        check_shared(&f);
        check_reaching(&f, 0);
        check_reaching(&f, 1);
        check_stored(&f);
        check_stored_reaching(&f, 0);
        check_stored_reaching(&f, 1);
        free(f.whole);
    }
    check_wide();
    return test_result();
}
