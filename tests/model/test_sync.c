/* SPDX-License-Identifier: MIT */
/*
 * mf_session_sync: after any history of sessions, marks and entries of the store the logits
 * are those of evaluating the tokens from the start, and the result tells what was reused and from
 * where. On families with and without recurrent layers.
 */
#include "golden.h"
#include "session/session.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_TOKENS 100
#define N_SESSIONS 4

static char dir[256];

static void remove_store(void)
{
    char path[600];
    DIR *d = opendir(dir);
    if (d == NULL)
        return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    closedir(d);
    rmdir(dir);
}

static void fresh_store_dir(void)
{
    const char *tmp = getenv("TMPDIR");
    remove_store();
    snprintf(dir, sizeof dir, "%s/moeflux-sync-XXXXXX", tmp != NULL ? tmp : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
}

static mf_store *open_store(uint64_t min_tokens)
{
    mf_store *store = NULL;
    mf_error error = {0};
    mf_store_options options;
    mf_store_options_default(&options);
    options.min_tokens = min_tokens;
    REQUIRE_OK(mf_store_open(dir, &options, &store, &error), &error);
    return store;
}

static mf_engine *open_engine(const golden_case *c)
{
    mf_engine_options options = golden_options(c);
    options.n_sessions = N_SESSIONS;
    options.n_chunk_tokens = 16;
    options.state_bytes = 64 << 20;
    return golden_open(c, &options);
}

/* By sync, or else by reuse and an evaluation of the rest, in turn: the same. */
static void bring(mf_session *s, const int32_t *tokens, size_t n, mf_sync_result *r)
{
    static int n_calls;
    mf_error error = {0};
    if (n_calls++ % 2 == 0) {
        REQUIRE_OK(mf_session_sync(s, tokens, n, r, &error), &error);
        return;
    }
    REQUIRE_OK(mf_session_reuse(s, tokens, n, r, &error), &error);
    CHECK_U64(mf_session_position(s), r->n_reused);
    CHECK(r->n_evaluated == 0);
    CHECK(r->n_reused < n || mf_session_logits(s) != NULL);
    r->n_evaluated = n - r->n_reused;
    REQUIRE_OK(mf_session_eval(s, tokens + r->n_reused, r->n_evaluated, &error), &error);
}

/* Syncs and holds position, tokens and logits against a session that is evaluated from nothing. */
static mf_sync_result check_sync(mf_session *s, mf_engine *reference, const int32_t *tokens,
                                 size_t n, const char *name)
{
    mf_error error = {0};
    mf_sync_result r = {0};
    mf_model_info info;
    mf_engine_info(reference, &info);
    bring(s, tokens, n, &r);
    CHECK(r.n_reused + r.n_evaluated == n);
    CHECK((r.n_reused == 0) == (r.source == MF_SYNC_NONE));
    CHECK_U64(mf_session_position(s), n);
    CHECK_BYTES(mf_session_tokens(s), tokens, n * sizeof *tokens);
    mf_session *plain = golden_session(reference);
    REQUIRE_OK(mf_session_eval(plain, tokens, n, &error), &error);
    CHECK_MSG(mf_session_logits(s) != NULL && memcmp(mf_session_logits(s), mf_session_logits(plain),
                                                     info.n_vocab * sizeof(float)) == 0,
              "%s: %zu tokens, %zu reused from %d: other logits", name, n, r.n_reused,
              (int)r.source);
    mf_session_free(&plain);
    return r;
}

#define CHECK_REUSE(expr, source_, n_reused_)                                                \
    do {                                                                                     \
        mf_sync_result test_r_ = (expr);                                                     \
        test_check(test_r_.source == (source_) && test_r_.n_reused == (n_reused_), __FILE__, \
                   __LINE__, "reused %zu from %d, expected %zu from %d", test_r_.n_reused,   \
                   (int)test_r_.source, (size_t)(n_reused_), (int)(source_));                \
    } while (0)

/* The cases one by one. */
static void check_sources(const golden_case *c, const golden *g, bool is_recurrent)
{
    mf_engine *e = open_engine(c), *reference = open_engine(c);
    mf_session *s = golden_session(e), *t = golden_session(e);
    mf_error error = {0};
    const int32_t *tokens = g->tokens;
    int32_t other[MAX_TOKENS];
    CHECK_REUSE(check_sync(s, reference, tokens, 20, c->name), MF_SYNC_NONE, 0);
    CHECK_REUSE(check_sync(s, reference, tokens, 20, c->name), MF_SYNC_SELF, 20);
    CHECK_REUSE(check_sync(s, reference, tokens, 37, c->name), MF_SYNC_SELF, 20);
    /* all of another session, then a part of it */
    CHECK_REUSE(check_sync(t, reference, tokens, 37, c->name), MF_SYNC_SESSION, 37);
    CHECK_REUSE(check_sync(t, reference, tokens, 36, c->name),
                is_recurrent ? MF_SYNC_NONE : MF_SYNC_SELF, is_recurrent ? 0 : 35);
    /* a mark, its own and another's */
    REQUIRE_OK(mf_mark_save(t, &error), &error); /* at 36 */
    memcpy(other, tokens, 36 * sizeof *other);
    for (int i = 36; i < 60; i++)
        other[i] = (tokens[i % (int)g->n_tokens] + 1) % (int32_t)g->n_vocab;
    CHECK_REUSE(check_sync(t, reference, other, 50, c->name), MF_SYNC_SELF, 36);
    CHECK_REUSE(check_sync(t, reference, tokens, 36, c->name), MF_SYNC_SELF, 36);
    REQUIRE_OK(mf_session_sync(t, other, 50, NULL, &error), &error);
    mf_session_clear(s);
    other[40]++;
    if (other[40] >= (int32_t)g->n_vocab)
        other[40] = 0;
    CHECK_REUSE(check_sync(s, reference, other, 50, c->name), MF_SYNC_SESSION,
                is_recurrent ? 36 : 40);
    /* nothing in common */
    other[0] = (other[0] + 1) % (int32_t)g->n_vocab;
    CHECK_REUSE(check_sync(s, reference, other, 30, c->name), MF_SYNC_NONE, 0);
    CHECK_STATUS(mf_session_sync(s, other, 0, NULL, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_session_sync(s, NULL, 5, NULL, &error), MF_ERR_ARGUMENT);
    other[29] = -1;
    CHECK_STATUS(mf_session_sync(s, other, 30, NULL, &error), MF_ERR_ARGUMENT);
    CHECK_U64(mf_session_position(s), 30);
    mf_session_free(&s);
    mf_session_free(&t);
    mf_engine_close(&e);
    mf_engine_close(&reference);
}

/* What a session holds is found as it is now, of whatever length it was before. */
static void check_index(const golden_case *c, const golden *g, bool is_recurrent)
{
    mf_engine *e = open_engine(c), *reference = open_engine(c);
    mf_session *s = golden_session(e), *t = golden_session(e), *u = golden_session(e);
    mf_error error = {0};
    const int32_t *tokens = g->tokens;
    int32_t other[20];
    size_t n_kept, n_bytes;
    for (int i = 0; i < 20; i++)
        other[i] = (tokens[i] + 1) % (int32_t)g->n_vocab;
    REQUIRE_OK(mf_session_eval(s, tokens, 20, &error), &error);
    REQUIRE_OK(mf_session_eval(t, other, 20, &error), &error);
    /* who asks for what it holds itself is found by others afterwards */
    CHECK_REUSE(check_sync(s, reference, tokens, 20, c->name), MF_SYNC_SELF, 20);
    CHECK_REUSE(check_sync(u, reference, tokens, 20, c->name), MF_SYNC_SESSION, 20);
    mf_session_clear(u);
    CHECK_REUSE(check_sync(u, reference, tokens, 20, c->name), MF_SYNC_SESSION, 20);
    mf_session_clear(u);
    /* other tokens from a snapshot, as many */
    n_bytes = (size_t)mf_snapshot_bytes(t);
    unsigned char *bytes = malloc(n_bytes);
    REQUIRE(bytes != NULL);
    REQUIRE_OK(mf_snapshot_save(t, bytes, n_bytes, &error), &error);
    REQUIRE_OK(mf_snapshot_load(s, bytes, n_bytes, &error), &error);
    CHECK_REUSE(check_sync(u, reference, tokens, 20, c->name), MF_SYNC_NONE, 0);
    mf_session_clear(u);
    mf_session_clear(t);
    CHECK_REUSE(check_sync(u, reference, other, 20, c->name), MF_SYNC_SESSION, 20);
    mf_session_clear(u);
    /* back, and on with other tokens to the same length */
    REQUIRE_OK(mf_session_truncate(s, is_recurrent ? 0 : 10, &n_kept, &error), &error);
    REQUIRE_OK(mf_session_eval(s, tokens + n_kept, 20 - n_kept, &error), &error);
    CHECK_REUSE(check_sync(u, reference, other, 20, c->name),
                is_recurrent ? MF_SYNC_NONE : MF_SYNC_SESSION, is_recurrent ? 0 : 10);
    free(bytes);
    mf_session_free(&s);
    mf_session_free(&t);
    mf_session_free(&u);
    mf_engine_close(&e);
    mf_engine_close(&reference);
}

/* Of the only entry but the one at the path `not_this`. */
static const char *entry_path(char *path, size_t capacity, const char *not_this)
{
    DIR *d = opendir(dir);
    unsigned n_found = 0;
    char found[600];
    REQUIRE(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        snprintf(found, sizeof found, "%s/%s", dir, e->d_name);
        if (strlen(e->d_name) != strlen(".mfstate") + 32 || strcmp(found, not_this) == 0)
            continue;
        snprintf(path, capacity, "%s", found);
        n_found++;
    }
    closedir(d);
    REQUIRE(n_found == 1);
    return path;
}

/* A bit of every entry: at this byte, from its end where negative. */
static void damage_all(off_t at)
{
    char path[600];
    DIR *d = opendir(dir);
    REQUIRE(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (strlen(e->d_name) != strlen(".mfstate") + 32) /* no entry */
            continue;
        unsigned char byte;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        int fd = open(path, O_RDWR);
        off_t place = at < 0 ? lseek(fd, 0, SEEK_END) + at : at;
        REQUIRE(fd >= 0 && pread(fd, &byte, 1, place) == 1);
        byte ^= 1;
        REQUIRE(pwrite(fd, &byte, 1, place) == 1);
        close(fd);
    }
    closedir(d);
}

/* From the disk, in another engine. */
static void check_store(const golden_case *c, const golden *g, bool is_recurrent)
{
    mf_error error = {0};
    mf_store_stats stats;
    fresh_store_dir();
    mf_store *store = open_store(10);
    mf_engine *e = open_engine(c), *reference = open_engine(c);
    mf_session *s = golden_session(e);
    REQUIRE_OK(mf_session_eval(s, g->tokens, 5, &error), &error);
    REQUIRE_OK(mf_store_put(store, s, &error), &error); /* too short to be kept */
    CHECK_STATUS(mf_store_put(NULL, s, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_store_put(store, NULL, &error), MF_ERR_ARGUMENT);
    mf_store_get_stats(store, &stats);
    CHECK_U64(stats.n_entries, 0);
    REQUIRE_OK(mf_session_eval(s, g->tokens + 5, 33, &error), &error);
    REQUIRE_OK(mf_store_put(store, s, &error), &error); /* 38 tokens with logits */
    REQUIRE_OK(mf_store_put(store, s, &error), &error);
    mf_store_get_stats(store, &stats);
    CHECK_U64(stats.n_entries, 1);
    CHECK(mf_session_position(s) == 38 && mf_session_logits(s) != NULL);
    mf_session_free(&s);
    mf_engine_close(&e);
    mf_store_close(&store);

    store = open_store(10);
    e = open_engine(c);
    s = golden_session(e);
    CHECK_REUSE(check_sync(s, reference, g->tokens, 38, c->name), MF_SYNC_NONE, 0);
    mf_session_clear(s);
    mf_engine_set_store(e, store);
    CHECK_REUSE(check_sync(s, reference, g->tokens, 38, c->name), MF_SYNC_STORE, 38);
    mf_session_clear(s);
    CHECK_REUSE(check_sync(s, reference, g->tokens, 40, c->name), MF_SYNC_STORE, 38);
    static const size_t parts[] = {37, 33, 32, 20, 2};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) { /* only the first tokens of it */
        mf_session_clear(s);
        CHECK_REUSE(check_sync(s, reference, g->tokens, parts[i], c->name),
                    is_recurrent ? MF_SYNC_NONE : MF_SYNC_STORE, is_recurrent ? 0 : parts[i] - 1);
    }
    mf_session_clear(s);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_hits == (is_recurrent ? 2u : 7u) && stats.n_set_aside == 0);
    damage_all(5000);
    CHECK_REUSE(check_sync(s, reference, g->tokens, 40, c->name), MF_SYNC_NONE, 0);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_set_aside == 1 && stats.n_entries == 0);
    mf_engine_set_store(e, NULL);
    mf_session_free(&s);
    mf_engine_close(&e);
    mf_engine_close(&reference);
    mf_store_close(&store);
}

/* A session at 32 tokens without logits: cut there, or gone back to a mark that was made in
 * the middle of an evaluation. */
static mf_session *session_without_logits(mf_engine *e, const golden *g, bool is_recurrent)
{
    mf_error error = {0};
    size_t n_kept = 0;
    mf_session *s = golden_session(e);
    if (is_recurrent)
        mf_mark_auto(s, 16, 0);
    REQUIRE_OK(mf_session_eval(s, g->tokens, 40, &error), &error);
    REQUIRE_OK(mf_session_truncate(s, 32, &n_kept, &error), &error);
    REQUIRE(n_kept == 32 && mf_session_position(s) == 32 && mf_session_logits(s) == NULL);
    return s;
}

/* An entry without logits serves all of its tokens only where others follow: they are what sync
 * promises. */
static void check_store_without_logits(const golden_case *c, const golden *g, bool is_recurrent)
{
    mf_error error = {0};
    fresh_store_dir();
    mf_store *store = open_store(8);
    mf_engine *e = open_engine(c), *reference = open_engine(c);
    mf_session *s = session_without_logits(e, g, is_recurrent);
    REQUIRE_OK(mf_store_put(store, s, &error), &error);
    mf_session_free(&s);
    mf_engine_close(&e);
    e = open_engine(c);
    mf_engine_set_store(e, store);
    s = golden_session(e); /* with recurrent layers the mark at 16 is the next best */
    CHECK_REUSE(check_sync(s, reference, g->tokens, 32, c->name), MF_SYNC_STORE,
                is_recurrent ? 16 : 31);
    mf_session_clear(s);
    CHECK_REUSE(check_sync(s, reference, g->tokens, 33, c->name), MF_SYNC_STORE, 32);
    CHECK_U64(mf_mark_list(s, NULL, 0), 0); /* none was asked for */
    mf_session_free(&s);
    mf_engine_close(&e);
    mf_engine_close(&reference);
    mf_store_close(&store);
}

/* Of two sessions that hold the tokens the one that has logits, too, whichever came first. */
static void check_logits_of_another(const golden_case *c, const golden *g, bool is_recurrent)
{
    mf_error error = {0};
    for (int first = 0; first < 2; first++) {
        mf_engine *e = open_engine(c);
        mf_session *without = first == 0 ? session_without_logits(e, g, is_recurrent) : NULL;
        mf_session *with = golden_session(e), *third;
        mf_sync_result r = {0};
        REQUIRE_OK(mf_session_eval(with, g->tokens, 32, &error), &error);
        if (without == NULL)
            without = session_without_logits(e, g, is_recurrent);
        third = golden_session(e);
        REQUIRE_OK(mf_session_reuse(third, g->tokens, 32, &r, &error), &error);
        CHECK_REUSE(r, MF_SYNC_SESSION, 32);
        CHECK(mf_session_logits(third) != NULL);
        mf_session_free(&third);
        mf_session_free(&with);
        mf_session_free(&without);
        mf_engine_close(&e);
    }
}

/* Another sound entry under an entry's name, put there after the directory was looked through. */
static void check_exchanged_entry(const golden_case *c, const golden *g)
{
    mf_error error = {0};
    mf_store_stats stats;
    int32_t tokens[2][40];
    char paths[2][600];
    fresh_store_dir();
    mf_store *store = open_store(8);
    mf_engine *e = open_engine(c), *reference = open_engine(c);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 40; i++)
            tokens[k][i] = (int32_t)((size_t)(g->tokens[i] + k) % g->n_vocab);
        mf_session *s = golden_session(e);
        REQUIRE_OK(mf_session_eval(s, tokens[k], 40, &error), &error);
        REQUIRE_OK(mf_store_put(store, s, &error), &error);
        mf_session_free(&s);
        entry_path(paths[k], sizeof paths[k], k == 1 ? paths[0] : "");
    }
    REQUIRE(rename(paths[1], paths[0]) == 0);
    mf_engine_set_store(e, store);
    mf_session *s = golden_session(e);
    CHECK_REUSE(check_sync(s, reference, tokens[0], 40, c->name), MF_SYNC_NONE, 0);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_set_aside == 1 && stats.n_entries == 0);
    mf_session_free(&s);
    mf_engine_close(&e);
    mf_engine_close(&reference);
    mf_store_close(&store);
}

/* ------------------------------------------------ prompts that diverge from what is on disk */

#define MAX_ENTRIES 12

/* What the store is expected to have: tokens, and the positions that they can be taken up at. */
typedef struct model_entry {
    int32_t tokens[MAX_TOKENS];
    size_t n, n_kept, kept[4];
} model_entry;

/* The rule of docs/FORMATS.md: all marks before the end if they are at most four, else the
 * newest of them, the last in the first 7/8, 3/4 and half. */
static void expect_kept(model_entry *m, const mf_session *s)
{
    size_t positions[64], n = mf_mark_list(s, positions, 64);
    size_t most[4] = {m->n / 2, m->n * 3 / 4, m->n * 7 / 8, m->n - 1};
    REQUIRE(n <= 64);
    m->n_kept = 0;
    while (n > 0 && positions[n - 1] >= m->n)
        n--;
    for (size_t k = 0; n <= 4 && k < n; k++)
        m->kept[m->n_kept++] = positions[k];
    if (n <= 4)
        return;
    for (int i = 0; i < 4; i++) {
        size_t best = 0;
        for (size_t k = 0; k < n; k++)
            best = positions[k] <= most[i] ? positions[k] : best;
        if (best != 0 && (m->n_kept == 0 || m->kept[m->n_kept - 1] != best))
            m->kept[m->n_kept++] = best;
    }
}

static size_t expect_reuse(const model_entry *all, size_t n_all, const int32_t *tokens, size_t n,
                           bool is_recurrent)
{
    size_t best = 0;
    for (size_t i = 0; i < n_all; i++) {
        const model_entry *m = &all[i];
        size_t common = 0, usable = 0;
        while (common < n && common < m->n && tokens[common] == m->tokens[common])
            common++;
        if (common == m->n)
            usable = m->n; /* with logits: of use even where they are all */
        else if (!is_recurrent)
            usable = common < n ? common : n - 1;
        else
            for (size_t k = 0; k < m->n_kept; k++)
                usable = m->kept[k] <= common && m->kept[k] < n ? m->kept[k] : usable;
        best = usable > best ? usable : best;
    }
    return best;
}

/* Prompts with the same beginning and another end, each in an engine that holds nothing else. */
static void check_diverging(const golden_case *c, const golden *g, bool is_recurrent)
{
    static model_entry all[MAX_ENTRIES];
    uint64_t seed = 31;
    unsigned n_partial = 0;
    mf_error error = {0};
    fresh_store_dir();
    mf_store *store = open_store(8);
    mf_engine *e = open_engine(c), *reference = open_engine(c);
    mf_engine_set_store(e, store);
    for (size_t i = 0; i < MAX_ENTRIES; i++) {
        model_entry *m = &all[i];
        m->n = 20 + test_random(&seed) % (MAX_TOKENS - 19);
        for (size_t k = 0; k < m->n; k++)
            m->tokens[k] = (int32_t)(test_random(&seed) % g->n_vocab);
        const model_entry *from = &all[test_random(&seed) % (i + 1)];
        size_t shared = test_random(&seed) % (from->n < m->n ? from->n : m->n);
        if (from != m)
            memcpy(m->tokens, from->tokens, shared * sizeof *m->tokens);
        mf_session *s = golden_session(e);
        mf_mark_auto(s, 1 + test_random(&seed) % 20, 1);
        size_t expected = expect_reuse(all, i, m->tokens, m->n, is_recurrent);
        CHECK_REUSE(check_sync(s, reference, m->tokens, m->n, c->name),
                    expected == 0 ? MF_SYNC_NONE : MF_SYNC_STORE, expected);
        n_partial += expected != 0;
        expect_kept(m, s);
        REQUIRE_OK(mf_store_put(store, s, &error), &error);
        mf_session_free(&s);
        for (int k = 0; k < 4; k++) { /* the same tokens again, cut or not, and with others after */
            int32_t tokens[MAX_TOKENS];
            size_t n = k == 0 ? m->n : 1 + test_random(&seed) % m->n;
            memcpy(tokens, m->tokens, n * sizeof *tokens);
            for (size_t j = n; k > 1 && j < MAX_TOKENS && j < n + 9; j++, n++)
                tokens[j] = (int32_t)(test_random(&seed) % g->n_vocab);
            s = golden_session(e);
            expected = expect_reuse(all, i + 1, tokens, n, is_recurrent);
            CHECK_REUSE(check_sync(s, reference, tokens, n, c->name),
                        expected == 0 ? MF_SYNC_NONE : MF_SYNC_STORE, expected);
            mf_session_free(&s);
        }
    }
    CHECK(n_partial > 2);
    mf_engine_close(&e);
    mf_engine_close(&reference);
    mf_store_close(&store);
}

/* A bit flipped in the last mark's state: whoever begins elsewhere does not notice. */
static void check_damaged_mark(const golden_case *c, const golden *g)
{
    mf_error error = {0};
    mf_store_stats stats;
    int32_t tokens[MAX_TOKENS];
    fresh_store_dir();
    mf_store *store = open_store(8);
    mf_engine *e = open_engine(c), *reference = open_engine(c);
    mf_session *s = golden_session(e);
    mf_engine_set_store(e, store);
    for (int i = 0; i < 90; i++)
        tokens[i] = i % (int32_t)g->n_vocab;
    mf_mark_auto(s, 16, 1);
    REQUIRE_OK(mf_session_eval(s, tokens, 90, &error), &error); /* kept: 32, 64, 80 */
    REQUIRE_OK(mf_store_put(store, s, &error), &error);
    mf_session_clear(s);
    damage_all(-20); /* of the state at 80 */
    CHECK_REUSE(check_sync(s, reference, tokens, 90, c->name), MF_SYNC_STORE, 90);
    mf_session_clear(s);
    CHECK_REUSE(check_sync(s, reference, tokens, 79, c->name), MF_SYNC_STORE, 64);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_set_aside == 0 && stats.n_hits == 2);
    mf_session_clear(s);
    CHECK_REUSE(check_sync(s, reference, tokens, 89, c->name), MF_SYNC_NONE, 0);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_set_aside == 1 && stats.n_entries == 0);
    mf_session_free(&s);
    mf_engine_close(&e);
    mf_engine_close(&reference);
    mf_store_close(&store);
}

/* An entry of the store is a snapshot, also with marks: read whole, and checked whole. */
static void check_entry_as_snapshot(const golden_case *c, const golden *g)
{
    mf_error error = {0};
    char path[600];
    fresh_store_dir();
    mf_store *store = open_store(8);
    mf_engine *e = open_engine(c);
    mf_session *s = golden_session(e), *t = golden_session(e);
    mf_mark_auto(s, 16, 1);
    REQUIRE_OK(mf_session_eval(s, g->tokens, 38, &error), &error);
    REQUIRE_OK(mf_store_put(store, s, &error), &error);
    for (int damaged = 0; damaged < 2; damaged++) {
        int fd = open(entry_path(path, sizeof path, ""), O_RDONLY);
        REQUIRE(fd >= 0);
        CHECK_STATUS(mf_snapshot_load_fd(t, fd, &error), damaged == 1 ? MF_ERR_FORMAT : MF_OK);
        CHECK(mf_session_logits(t) != NULL &&
              memcmp(mf_session_logits(t), mf_session_logits(s), g->n_vocab * sizeof(float)) == 0);
        CHECK(damaged == 1 ? mf_session_position(t) == 38
                           : lseek(fd, 0, SEEK_CUR) + 8 == lseek(fd, 0, SEEK_END));
        close(fd);
        damage_all(-20);
    }
    REQUIRE_OK(mf_session_eval(s, g->tokens + 38, 2, &error), &error);
    REQUIRE_OK(mf_session_eval(t, g->tokens + 38, 2, &error), &error);
    CHECK_BYTES(mf_session_logits(t), mf_session_logits(s), g->n_vocab * sizeof(float));
    mf_session_free(&s);
    mf_session_free(&t);
    mf_engine_close(&e);
    mf_store_close(&store);
}

/* Token lists that share beginnings with what was there before. */
static size_t make_tokens(uint64_t *seed, const golden *g, int32_t pool[8][MAX_TOKENS],
                          size_t n_pool[8], int32_t *out)
{
    size_t from = test_random(seed) % 8;
    size_t n_kept = n_pool[from] > 0 ? test_random(seed) % (n_pool[from] + 1) : 0;
    if (test_random(seed) % 3 == 0)
        n_kept = n_pool[from];
    size_t n_new = test_random(seed) % 12 + (n_kept == 0);
    n_new = n_kept + n_new > MAX_TOKENS ? MAX_TOKENS - n_kept : n_new;
    memcpy(out, pool[from], n_kept * sizeof *out);
    for (size_t i = 0; i < n_new; i++)
        out[n_kept + i] = (int32_t)(test_random(seed) % (g->n_vocab < 50 ? g->n_vocab : 50));
    size_t n = n_kept + n_new, to = test_random(seed) % 8;
    memcpy(pool[to], out, n * sizeof *out);
    n_pool[to] = n;
    return n;
}

/* Any order of sync, eval, mark, truncate, fork, clear and put. */
static void check_random(const golden_case *c, const golden *g, int n_steps)
{
    static int32_t pool[8][MAX_TOKENS];
    size_t n_pool[8] = {0};
    unsigned n_from[4] = {0};
    uint64_t seed = 9;
    mf_error error = {0};
    fresh_store_dir();
    mf_store *store = open_store(8);
    mf_engine *e = open_engine(c), *reference = open_engine(c);
    mf_engine_set_store(e, store);
    mf_session *sessions[N_SESSIONS];
    for (int i = 0; i < N_SESSIONS; i++)
        sessions[i] = golden_session(e);
    for (int step = 0; step < n_steps; step++) {
        int32_t tokens[MAX_TOKENS];
        mf_session **s = &sessions[test_random(&seed) % N_SESSIONS];
        size_t kept;
        switch (test_random(&seed) % 10) {
        case 0:
            mf_session_clear(*s);
            break;
        case 1:
            REQUIRE_OK(mf_mark_save(*s, &error), &error);
            break;
        case 2:
            REQUIRE_OK(mf_store_put(store, *s, &error), &error);
            break;
        case 3: /* may be refused, for want of a mark */
            (void)!mf_session_truncate(*s, mf_session_position(*s) / 2, &kept, &error);
            break;
        case 4:
            mf_session_free(s);
            REQUIRE_OK(mf_session_fork(sessions[s == sessions ? 1 : 0], s, &error), &error);
            break;
        case 5:
            tokens[0] = (int32_t)(test_random(&seed) % 50 % g->n_vocab);
            if (mf_session_position(*s) < MAX_TOKENS)
                REQUIRE_OK(mf_session_eval(*s, tokens, 1, &error), &error);
            break;
        default: {
            size_t n = make_tokens(&seed, g, pool, n_pool, tokens);
            n_from[check_sync(*s, reference, tokens, n, c->name).source]++;
        }
        }
    }
    printf("%s: reused nothing %u, self %u, sessions %u, store %u times\n", c->name, n_from[0],
           n_from[1], n_from[2], n_from[3]);
    for (int i = 0; i < 4; i++)
        CHECK_MSG(n_from[i] > 0, "%s: source %d never occurred", c->name, i);
    for (int i = 0; i < N_SESSIONS; i++)
        mf_session_free(&sessions[i]);
    mf_engine_close(&e);
    mf_engine_close(&reference);
    mf_store_close(&store);
}

/* A change of a session's tokens, told on to who asked before. */
typedef struct change_watch {
    void (*tell)(void *user, mf_session *session, uint64_t n_kept);
    void *user;
    uint32_t n, n_unlocked;
} change_watch;

static void watch_change(void *user, mf_session *session, uint64_t n_kept)
{
    change_watch *w = user;
    w->n++;
    if (pthread_mutex_trylock(&session->engine->state_lock) == 0) {
        w->n_unlocked++;
        (void)pthread_mutex_unlock(&session->engine->state_lock);
    }
    if (w->tell != NULL)
        w->tell(w->user, session, n_kept);
}

/* What others look through is changed under its lock, whatever a session takes over. */
static void check_locked(const golden_case *c, const golden *g)
{
    mf_engine *e = open_engine(c);
    mf_session *a = golden_session(e), *b = golden_session(e);
    mf_sync_result r;
    int32_t other[30];
    for (size_t i = 0; i < 30; i++)
        other[i] = (g->tokens[i] + 1) % (int32_t)g->n_vocab;
    bring(a, g->tokens, 30, &r);
    change_watch w = {e->tokens_changed, e->tokens_changed_user, 0, 0};
    e->tokens_changed = watch_change;
    e->tokens_changed_user = &w;
    bring(b, g->tokens, 30, &r); /* of another session */
    CHECK(r.source == MF_SYNC_SESSION);
    bring(a, other, 30, &r); /* of nobody */
    CHECK(r.source == MF_SYNC_NONE);
    bring(a, other, 20, &r); /* its own beginning, or nothing of it */
    mf_session_clear(b);
    CHECK(w.n >= 5);
    CHECK_U64(w.n_unlocked, 0);
    mf_session_free(&a);
    mf_session_free(&b);
    CHECK_U64(w.n_unlocked, 0);
    mf_engine_close(&e);
}

/* A call that fails leaves its result alone. */
static void check_untouched(const golden_case *c, const golden *g)
{
    mf_engine *e = open_engine(c);
    mf_session *s = golden_session(e);
    mf_sync_result r, was;
    mf_error error = {0};
    memset(&was, 0xa5, sizeof was);
    r = was;
    mf_session_set_deadline(s, 1); /* long ago */
    CHECK_STATUS(mf_session_sync(s, g->tokens, 20, &r, &error), MF_ERR_CANCELLED);
    CHECK_BYTES(&r, &was, sizeof r);
    mf_session_set_deadline(s, 0);
    REQUIRE_OK(mf_session_sync(s, g->tokens, 20, &r, &error), &error);
    CHECK_U64(r.n_evaluated, 20);
    mf_session_free(&s);
    mf_engine_close(&e);
}

/* Of more marks than are wanted, a state takes those near its end. */
static void check_near_end(const golden_case *c, const golden *g)
{
    static const size_t at[] = {8, 16, 24, 32, 40, 48, 56, 60, 64};
    static const uint64_t held[5][4] = {{0}, {60}, {56, 60}, {48, 56, 60}, {32, 48, 56, 60}};
    enum { N = sizeof at / sizeof *at };
    mf_engine *e = open_engine(c);
    mf_session *s = golden_session(e);
    mf_error error = {0};
    for (size_t i = 0, k = 0; i < N; i++) {
        for (; k < at[i]; k++)
            REQUIRE_OK(mf_session_eval(s, g->tokens + k % g->n_tokens, 1, &error), &error);
        if (i + 1 < N)
            REQUIRE_OK(mf_mark_save(s, &error), &error);
    }
    for (uint32_t n_max = 1; n_max <= 4; n_max++) {
        mf_state *state = NULL;
        REQUIRE_OK(mf_state_hold(s, 64, &state, &error), &error);
        mf_state_hold_marks(s, state, n_max);
        CHECK_U64(state->n_marks, n_max);
        for (uint32_t i = 0; i < n_max; i++)
            CHECK_U64(state->marks[i], held[n_max][i]);
        mf_state_release(&state);
    }
    mf_session_free(&s);
    mf_engine_close(&e);
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "next_bf16", "v3_bf16", "k2_mlx_4bit"};
    atexit(remove_store);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const golden_case *c = golden_case_find(names[i]);
        golden g;
        golden_read(c, &g);
        REQUIRE(g.n_tokens >= 40);
        check_sources(c, &g, i < 2);
        check_index(c, &g, i < 2);
        check_store(c, &g, i < 2);
        check_store_without_logits(c, &g, i < 2);
        check_logits_of_another(c, &g, i < 2);
        check_exchanged_entry(c, &g);
        check_diverging(c, &g, i < 2);
        check_locked(c, &g);
        check_untouched(c, &g);
        if (i < 2)
            check_near_end(c, &g);
        check_entry_as_snapshot(c, &g);
        if (i < 2)
            check_damaged_mark(c, &g);
        if (i % 2 == 0)
            check_random(c, &g, 400);
        golden_free(&g);
    }
    return test_result();
}
