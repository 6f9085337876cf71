/* SPDX-License-Identifier: MIT */
/*
 * The store on disk: entries come back as written, from another opening of the directory too; the
 * limit and who is evicted; damage is set aside; a full disk, a directory that may not be written,
 * reads that fail; two stores over one directory; every allocation failing once.
 */
#include "failing_alloc.h"
#include "io/io_fault.h"
#include "state/state_store_impl.h"
#include "store_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static entry_kind kind_of(uint32_t number)
{
    return (entry_kind){number, 100, 3, 5000, 0};
}

static void test_round_trip(void)
{
    const char *dir = fresh_dir();
    mf_error error = {0};
    mf_store_stats stats;
    mf_store *store = store_open(dir, 0);
    entry_kind k = kind_of(1), large = {2, 5000, 7, 700001, 0}, small = {3, 1, 0, 8, 0};
    CHECK_STATUS(entry_read(store, &k, &error), MF_ERR_NOT_FOUND);
    const entry_kind *all[] = {&k, &large, &small};
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(entry_add(store, all[i], &error), &error);
        REQUIRE_OK(entry_read(store, all[i], &error), &error);
        REQUIRE_OK(entry_add(store, all[i], &error), &error); /* once is enough */
    }
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_entries == 3 && stats.n_hits == 3 && stats.n_misses == 1);
    CHECK(stats.n_evicted == 0 && stats.n_set_aside == 0 && stats.n_bytes > 7 * 700001);
    mf_store_close(&store);
    CHECK(store == NULL);
    mf_store_close(&store);
    store = store_open(dir, 0);
    for (int i = 0; i < 3; i++)
        REQUIRE_OK(entry_read(store, all[i], &error), &error);
    CHECK_U64(count_files(dir, "tmp-", "", NULL), 0);
    mf_store_close(&store);
}

static void test_find(void)
{
    mf_error error = {0};
    mf_store *store = store_open(fresh_dir(), 0);
    entry_kind k = kind_of(1);
    mf_store_match m;
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    int32_t *t = entry_tokens(&k), more[120];
    memcpy(more, t, 100 * sizeof *t);
    memset(more + 100, 0, 20 * sizeof *t);
    CHECK(find_tokens(store, more, 120, true, 99, &m) && m.n_common == 100);
    CHECK(!find_tokens(store, more, 120, true, 100, &m));
    CHECK(!find_tokens(store, more, 99, true, 0, &m));
    CHECK(find_tokens(store, more, 99, false, 98, &m) && m.n_common == 99);
    more[60] ^= 1;
    CHECK(find_tokens(store, more, 120, false, 0, &m) && m.n_common == 60);
    CHECK(m.n_tokens == 100 && !m.has_logits);
    mf_snapshot_key other = fixture_key;
    other.fingerprint[15] ^= 1;
    CHECK(
        !mf_store_find(store, &(mf_store_query){.key = &other, .tokens = t, .n_tokens = 100}, &m));
    other = fixture_key;
    other.kv_type = 1;
    CHECK(
        !mf_store_find(store, &(mf_store_query){.key = &other, .tokens = t, .n_tokens = 100}, &m));
    free(t);
    mf_store_close(&store);
}

/* An entry is found at its marks too, also by another opening; when it goes, so do they. */
static void test_marks(void)
{
    static const size_t at[][2] = {{99, 75}, {75, 75}, {74, 50}, {50, 50}, {49, 25}, {25, 25}};
    const char *dir = fresh_dir();
    mf_error error = {0};
    entry_kind k = {1, 100, 5, 5000, 3}; /* at 25, 50, 75 */
    mf_store_match m;
    int32_t *t = entry_tokens(&k);
    mf_store *store = store_open(dir, 0);
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    for (int reopen = 0; reopen < 2; reopen++) {
        REQUIRE_OK(entry_read(store, &k, &error), &error);
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            CHECK(find_tokens(store, t, at[i][0], true, 0, &m));
            CHECK(m.n_common == at[i][1] && m.n_tokens == 100 && m.n_marks == 3);
            CHECK_U64(m.state_end, 4096 + 2 * 5008);
        }
        CHECK(!find_tokens(store, t, 24, true, 0, &m));
        CHECK(!find_tokens(store, t, 99, true, 75, &m));
        mf_store_close(&store);
        store = store_open(dir, 0);
    }
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, m.name);
    REQUIRE(unlink(path) == 0);
    CHECK(!find_tokens(store, t, 99, true, 0, &m));
    free(t);
    mf_store_close(&store);
}

/* The first 50 tokens of an entry that has a mark there, with logits. */
static mf_status write_first_half(void *ctx, mf_byte_sink *sink, mf_error *error)
{
    const float logits = 1;
    mf_snapshot_head head = {.key = fixture_key,
                             .n_tokens = 50,
                             .n_layers = 1,
                             .n_vocab = ENTRY_VOCAB,
                             .page_tokens = 1,
                             .has_logits = true,
                             .n_parts = 1,
                             .parts_bytes = sizeof logits};
    MF_TRY(mf_snapshot_write_head(sink, &head, ctx, error));
    return mf_snapshot_write_part(sink, &head, 0, &logits, sizeof logits, error);
}

/* Where several entries serve, the one that holds no more than is asked for: it has the logits. */
static void test_exact_entry(void)
{
    mf_error error = {0};
    entry_kind k = {1, 100, 5, 5000, 3}; /* at 25, 50, 75 */
    mf_store_match m;
    int32_t *t = entry_tokens(&k);
    const mf_store_addition half = {&fixture_key,     t, 50, 4096 + sizeof(float) + 8,
                                    write_first_half, t};
    for (int half_first = 0; half_first < 2; half_first++) {
        mf_store *store = store_open(fresh_dir(), 0);
        if (half_first == 1)
            REQUIRE_OK(mf_store_add(store, &half, &error), &error);
        REQUIRE_OK(entry_add(store, &k, &error), &error);
        if (half_first == 0)
            REQUIRE_OK(mf_store_add(store, &half, &error), &error);
        CHECK(find_tokens(store, t, 50, true, 0, &m));
        CHECK(m.n_common == 50 && m.n_tokens == 50 && m.has_logits);
        CHECK(find_tokens(store, t, 80, true, 0, &m));
        CHECK(m.n_common == 75 && m.n_tokens == 100 && !m.has_logits);
        mf_store_close(&store);
    }
    free(t);
}

/* Parts `from` to `to` - 1 passed over: the others are as written, and no whole block between was
 * read. */
static void check_gap(mf_store *store, mf_io_fault *fault, const entry_kind *k, uint32_t from,
                      uint32_t to)
{
    mf_error error = {0};
    mf_state_reader *reader;
    mf_store_match m;
    mf_snapshot_head head;
    int32_t *t = entry_tokens(k);
    unsigned char *want = malloc(k->part_bytes), *got = malloc(k->part_bytes);
    REQUIRE(want != NULL && got != NULL);
    REQUIRE(find_tokens(store, t, k->n_tokens, true, 0, &m));
    REQUIRE_OK(mf_store_read_begin(store, &m, &reader, &error), &error);
    REQUIRE_OK(mf_snapshot_read_header(&reader->source, &head, &error), &error);
    REQUIRE_OK(mf_snapshot_read_tokens(&reader->source, &head, t, &error), &error);
    uint64_t gap = mf_snapshot_part_offset(&head, from, from * k->part_bytes);
    uint64_t gap_end = mf_snapshot_part_offset(&head, to, to * k->part_bytes);
    fault->fail_offset = (gap + gap_end) / 2;
    fault->fail_at_offset = gap_end - gap > 3 * MF_IO_ALIGN;
    fault->fail_errno = EIO;
    mf_state_reader_skip(reader, gap, gap_end);
    mf_state_reader_extend(reader, mf_snapshot_total_bytes(&head));
    for (uint32_t i = 0; i < k->n_parts; i++) {
        if (i >= from && i < to)
            continue;
        entry_part(k, i, want);
        REQUIRE_OK(mf_snapshot_read_part(&reader->source, &head, i, got, k->part_bytes, &error),
                   &error);
        CHECK_BYTES(got, want, k->part_bytes);
    }
    CHECK_STATUS(reader->source.read(&reader->source, got, MF_IO_ALIGN + 8, &error),
                 MF_ERR_FORMAT); /* nothing but the number of hits is left */
    mf_store_read_end(store, &m, MF_OK);
    fault->fail_at_offset = false;
    free(want);
    free(got);
    free(t);
}

static void test_gaps(void)
{
    static const size_t sizes[] = {50, 5000, 4088, 700001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        mf_io_fault fault = {.inner = &mf_io_engine_pool, .seed = 3, .hold_chance = 300};
        entry_kind k = {1, 100, 7, sizes[i], 0};
        mf_error error = {0};
        mf_store *store = NULL;
        REQUIRE_OK(
            mf_store_open_with_io(fresh_dir(), NULL, &mf_io_engine_fault, &fault, &store, &error),
            &error);
        REQUIRE_OK(entry_add(store, &k, &error), &error);
        for (uint32_t from = 0; from < k.n_parts; from++)
            for (uint32_t to = from; to <= k.n_parts; to++)
                check_gap(store, &fault, &k, from, to);
        mf_store_close(&store);
    }
}

/* mtime of an entry, so that ages do not depend on how fast the test runs. */
static void set_age(const char *dir, const char *name, time_t age_s)
{
    char path[600];
    struct timespec times[2] = {{time(NULL) - age_s, 0}, {time(NULL) - age_s, 0}};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    REQUIRE(utimensat(AT_FDCWD, path, times, 0) == 0);
}

static void test_eviction(void)
{
    const char *dir = fresh_dir();
    mf_error error = {0};
    mf_store_stats stats;
    mf_store_match m;
    entry_kind k0 = kind_of(0);
    mf_snapshot_head head = entry_head(&k0);
    uint64_t one = mf_snapshot_total_bytes(&head) + 8;
    mf_store *store = store_open(dir, 3 * one + one / 2);
    char names[3][MF_STORE_NAME_CHARS];
    for (uint32_t i = 0; i < 3; i++) {
        entry_kind k = kind_of(i);
        REQUIRE_OK(entry_add(store, &k, &error), &error);
        int32_t *t = entry_tokens(&k);
        REQUIRE(find_tokens(store, t, k.n_tokens, true, 0, &m));
        memcpy(names[i], m.name, sizeof m.name);
        free(t);
    }
    for (int i = 0; i < 20; i++) { /* the oldest is hit often */
        entry_kind k = kind_of(0);
        REQUIRE_OK(entry_read(store, &k, &error), &error);
    }
    set_age(dir, names[0], 3000);
    set_age(dir, names[1], 2000);
    set_age(dir, names[2], 1000);
    entry_kind k3 = kind_of(3);
    REQUIRE_OK(entry_add(store, &k3, &error), &error);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_entries == 3 && stats.n_evicted == 1 && stats.n_bytes == 3 * one);
    entry_kind gone = kind_of(1);
    CHECK_STATUS(entry_read(store, &gone, &error), MF_ERR_NOT_FOUND);
    for (uint32_t i = 0; i < 4; i++) {
        entry_kind k = kind_of(i);
        if (i != 1)
            REQUIRE_OK(entry_read(store, &k, &error), &error);
    }
    entry_kind huge = {9, 100, 20, 5000, 0};
    CHECK_STATUS(entry_add(store, &huge, &error), MF_ERR_BUDGET);
    CHECK_CONTAINS(error.message, "limit");
    mf_store_get_stats(store, &stats);
    CHECK_U64(stats.n_entries, 3);
    mf_store_close(&store);
}

/* A store that is opened with a smaller limit is within it at once, unless another process is at
 * it: then that one, or the next that is written, sees to it. */
static void test_smaller_limit(void)
{
    const char *dir = fresh_dir();
    char path[300];
    mf_error error = {0};
    mf_store_stats stats;
    entry_kind k = kind_of(0);
    mf_snapshot_head head = entry_head(&k);
    const uint64_t one = mf_snapshot_total_bytes(&head) + 8;
    mf_store *store = store_open(dir, 0);
    for (uint32_t i = 0; i < 4; i++) {
        k = kind_of(i);
        REQUIRE_OK(entry_add(store, &k, &error), &error);
    }
    mf_store_close(&store);
    snprintf(path, sizeof path, "%s/" MF_STORE_LOCK, dir);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0 && flock(fd, LOCK_EX) == 0);
    store = store_open(dir, 2 * one);
    CHECK_U64(count_files(dir, "", ".mfstate", NULL), 4);
    mf_store_close(&store);
    close(fd);
    store = store_open(dir, 2 * one);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_entries == 2 && stats.n_evicted == 2 && stats.n_bytes == 2 * one);
    CHECK_U64(count_files(dir, "", ".mfstate", NULL), 2);
    mf_store_close(&store);
    store = store_open(dir, 0);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_entries == 2 && stats.n_evicted == 0);
    mf_store_close(&store);
}

/* Of equal size and without hits, the one that was used longest ago goes, whatever it is called. */
static void test_oldest_goes(void)
{
    enum { N = 6 };
    static const time_t ages[N] = {5000, 9000, 3000, 8000, 4000, 7000};
    static const uint32_t order[] = {1, 3, 5, 0};
    const char *dir = fresh_dir();
    mf_error error = {0};
    entry_kind first = kind_of(0);
    mf_snapshot_head head = entry_head(&first);
    mf_store *store = store_open(dir, N * (mf_snapshot_total_bytes(&head) + 8));
    for (uint32_t i = 0; i < N; i++) {
        entry_kind k = kind_of(i);
        mf_store_match m;
        int32_t *t = entry_tokens(&k);
        REQUIRE_OK(entry_add(store, &k, &error), &error);
        REQUIRE(find_tokens(store, t, k.n_tokens, true, 0, &m));
        set_age(dir, m.name, ages[i]);
        free(t);
    }
    for (uint32_t n = 0; n < sizeof order / sizeof *order; n++) {
        entry_kind k = kind_of(N + n);
        REQUIRE_OK(entry_add(store, &k, &error), &error);
        for (uint32_t i = 0; i < N; i++) {
            entry_kind old = kind_of(i);
            bool is_gone = false;
            mf_store_match m;
            int32_t *t = entry_tokens(&old);
            for (uint32_t j = 0; j <= n; j++)
                is_gone = is_gone || order[j] == i;
            bool is_there = find_tokens(store, t, old.n_tokens, true, 99, &m);
            CHECK_MSG(is_there != is_gone, "entry %u after %u more", i, n + 1);
            free(t);
        }
    }
    mf_store_close(&store);
}

/* The hits survive, and count after reopening: the same choice as above. */
static void test_hits_survive(void)
{
    const char *dir = fresh_dir();
    mf_error error = {0};
    entry_kind a = kind_of(0), b = kind_of(1), c = kind_of(2);
    mf_snapshot_head head = entry_head(&a);
    uint64_t limit = 2 * (mf_snapshot_total_bytes(&head) + 8);
    mf_store *store = store_open(dir, limit);
    REQUIRE_OK(entry_add(store, &a, &error), &error);
    REQUIRE_OK(entry_add(store, &b, &error), &error);
    for (int i = 0; i < 50; i++)
        REQUIRE_OK(entry_read(store, &b, &error), &error);
    mf_store_close(&store);
    store = store_open(dir, limit);
    REQUIRE_OK(entry_add(store, &c, &error), &error);
    CHECK_STATUS(entry_read(store, &a, &error), MF_ERR_NOT_FOUND);
    REQUIRE_OK(entry_read(store, &b, &error), &error);
    mf_store_close(&store);
}

static unsigned n_warnings;

static void count_warning(void *user, mf_log_level level, const char *line)
{
    (void)user;
    if (level == MF_LOG_WARNING && strstr(line, "set aside") != NULL)
        n_warnings++;
}

/* Flips a byte of the only entry, or cuts it. */
static void damage(const char *dir, off_t at, off_t cut)
{
    char name[300], path[600];
    unsigned char byte;
    REQUIRE(count_files(dir, "", ".mfstate", name) == 1);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDWR);
    REQUIRE(fd >= 0);
    if (cut > 0) {
        REQUIRE(ftruncate(fd, cut) == 0);
    } else {
        REQUIRE(pread(fd, &byte, 1, at) == 1);
        byte ^= 4;
        REQUIRE(pwrite(fd, &byte, 1, at) == 1);
    }
    close(fd);
}

static void keep_line(void *user, mf_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 600, "%s", line);
}

/* A line of the log is one line of text, however the directory is called. */
static void test_log_is_one_line(void)
{
    char dir[400], line[600] = "";
    snprintf(dir, sizeof dir, "%s-a\nb\xff", fresh_dir());
    mf_error error = {0};
    entry_kind k = kind_of(1);
    mf_store_options options;
    mf_store_options_default(&options);
    options.log = keep_line;
    options.log_user = line;
    mf_store *store = store_open(dir, 0);
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    mf_store_close(&store);
    damage(dir, 8, 0);
    REQUIRE_OK(mf_store_open(dir, &options, &store, &error), &error);
    CHECK_STATUS(entry_read(store, &k, &error), MF_ERR_NOT_FOUND);
    CHECK_CONTAINS(line, "-a?b?/");
    CHECK_CONTAINS(line, "set aside");
    CHECK(strchr(line, '\n') == NULL);
    mf_store_close(&store);
    remove_dir(dir);
}

/* Damage done before opening (found in the head) and behind the store's back (found in reading). */
static void test_damage(void)
{
    static const struct {
        off_t at, cut;
        bool in_head;
    } cases[] = {{8, 0, true},     {30, 0, true},     {200, 0, true}, {4090, 0, true},
                 {5000, 0, false}, {12000, 0, false}, {0, 50, true},  {0, 4096, true},
                 {0, 9000, true},  {0, 8, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int reopen = 0; reopen < 2; reopen++) {
            const char *dir = fresh_dir();
            mf_error error = {0};
            mf_store_stats stats;
            entry_kind k = kind_of(1);
            mf_store *store = store_open(dir, 0);
            REQUIRE_OK(entry_add(store, &k, &error), &error);
            if (reopen == 1)
                mf_store_close(&store);
            damage(dir, cases[i].at, cases[i].cut);
            mf_store_options options;
            mf_store_options_default(&options);
            options.log = count_warning;
            n_warnings = 0;
            if (reopen == 1)
                REQUIRE_OK(mf_store_open(dir, &options, &store, &error), &error);
            mf_status status = entry_read(store, &k, &error);
            CHECK(status == (reopen == 1 && cases[i].in_head ? MF_ERR_NOT_FOUND : MF_ERR_FORMAT));
            CHECK(reopen == 0 || n_warnings == 1);
            CHECK_STATUS(entry_read(store, &k, &error), MF_ERR_NOT_FOUND);
            CHECK_U64(count_files(dir, "bad-", ".mfstate", NULL), 1);
            CHECK_U64(count_files(dir, "", ".mfstate", NULL), 1);
            mf_store_get_stats(store, &stats);
            CHECK(stats.n_set_aside == 1 && stats.n_entries == 0);
            REQUIRE_OK(entry_add(store, &k, &error), &error);
            REQUIRE_OK(entry_read(store, &k, &error), &error);
            mf_store_close(&store);
        }
    }
}

/* A limit on file sizes fails as a full disk does, without the signal that ends programs. */
static void test_full_disk(void)
{
    const char *dir = fresh_dir();
    mf_error error = {0};
    mf_store_stats stats;
    entry_kind a = kind_of(1), b = {2, 100, 3, 50000, 0};
    mf_store *store = store_open(dir, 0);
    REQUIRE_OK(entry_add(store, &a, &error), &error);
    struct rlimit old, limit;
    REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
    signal(SIGXFSZ, SIG_DFL);
    limit = old;
    limit.rlim_cur = 60000;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_STATUS(entry_add(store, &b, &error), MF_ERR_IO);
    CHECK_CONTAINS(error.message, dir);
    CHECK(error.os_errno != 0);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK_U64(count_files(dir, "tmp-", "", NULL), 0);
    mf_store_get_stats(store, &stats);
    CHECK_U64(stats.n_entries, 1);
    REQUIRE_OK(entry_read(store, &a, &error), &error);
    REQUIRE_OK(entry_add(store, &b, &error), &error);
    REQUIRE_OK(entry_read(store, &b, &error), &error);
    mf_store_close(&store);
}

/* A writer that fails half way leaves nothing. */
static mf_status fail_half_way(void *ctx, mf_byte_sink *sink, mf_error *error)
{
    MF_TRY(sink->write(sink, ctx, 100, error));
    return mf_fail(error, MF_ERR_CANCELLED, "enough");
}

static void test_failing_writer(void)
{
    const char *dir = fresh_dir();
    mf_error error = {0};
    mf_store *store = store_open(dir, 0);
    static char bytes[100];
    const int32_t tokens[] = {1, 2, 3};
    const mf_store_addition addition = {&fixture_key, tokens, 3, 5000, fail_half_way, bytes};
    CHECK_STATUS(mf_store_add(store, &addition, &error), MF_ERR_CANCELLED);
    CHECK_U64(count_files(dir, "tmp-", "", NULL), 0);
    CHECK(!mf_store_has(store, &fixture_key, tokens, 3));
    mf_store_close(&store);
}

/* In a child that is not root. */
static int without_rights(const char *dir)
{
    mf_error error = {0};
    mf_store *store = NULL;
    entry_kind a = kind_of(1), b = kind_of(2);
    test_n_failed = 0; /* the parent counts its own */
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return TEST_SKIPPED;
    CHECK_STATUS(mf_store_open("/proc/moeflux", NULL, &store, &error), MF_ERR_IO);
    CHECK_CONTAINS(error.message, "/proc/moeflux");
    CHECK_STATUS(mf_store_open("/nonexistent/store", NULL, &store, &error), MF_ERR_IO);
    CHECK(store == NULL && error.os_errno != 0);
    store = store_open(dir, 0);
    REQUIRE_OK(entry_add(store, &a, &error), &error);
    REQUIRE(chmod(dir, 0555) == 0);
    CHECK_STATUS(entry_add(store, &b, &error), MF_ERR_IO); /* read-only since it was opened */
    CHECK_CONTAINS(error.message, dir);
    REQUIRE_OK(entry_read(store, &a, &error), &error);
    damage(dir, 5000, 0);
    CHECK_STATUS(entry_read(store, &a, &error), MF_ERR_FORMAT);
    CHECK_STATUS(entry_read(store, &a, &error), MF_ERR_NOT_FOUND); /* remembered, not renamed */
    CHECK_STATUS(entry_add(store, &a, &error), MF_ERR_IO); /* and not taken for one that is there */
    mf_store_close(&store);
    char path[600];
    REQUIRE(chmod(dir, 0755) == 0);
    snprintf(path, sizeof path, "%s/lock", dir);
    unlink(path);
    REQUIRE(chmod(dir, 0555) == 0);
    CHECK_STATUS(mf_store_open(dir, NULL, &store, &error),
                 MF_ERR_IO); /* read-only from the start */
    CHECK(store == NULL);
    REQUIRE(chmod(dir, 0755) == 0);
    return test_result();
}

static void test_read_only(void)
{
    const char *dir = fresh_dir();
    REQUIRE(mkdir(dir, 0777) == 0 && chmod(dir, 0777) == 0);
    if (getuid() == 0)
        REQUIRE(chown(dir, 65534, 65534) == 0);
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
        _exit(without_rights(dir));
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == TEST_SKIPPED));
    chmod(dir, 0755);
}

/* What one opening writes, evicts and damages, the other sees. */
static void test_two_openings(void)
{
    const char *dir = fresh_dir();
    mf_error error = {0};
    mf_store_stats stats;
    mf_store *one = store_open(dir, 0), *two = store_open(dir, 0);
    for (uint32_t i = 0; i < 20; i++) {
        entry_kind k = kind_of(i);
        REQUIRE_OK(entry_add(i % 2 == 0 ? one : two, &k, &error), &error);
        REQUIRE_OK(entry_read(i % 2 == 0 ? two : one, &k, &error), &error);
    }
    char name[300], path[600];
    REQUIRE(count_files(dir, "", ".mfstate", name) == 20);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    REQUIRE(unlink(path) == 0);
    mf_store_get_stats(one, &stats);
    CHECK_U64(stats.n_entries, 19);
    unsigned n_found = 0;
    for (uint32_t i = 0; i < 20; i++) {
        entry_kind k = kind_of(i);
        n_found += entry_read(two, &k, &error) == MF_OK;
    }
    CHECK_U64(n_found, 19);
    mf_store_close(&one);
    mf_store_close(&two);
}

static void set_time(const char *path, time_t when)
{
    const struct timespec times[2] = {{when, 0}, {when, 0}};
    REQUIRE(utimensat(AT_FDCWD, path, times, 0) == 0);
}

/* An entry that vanishes between the lookup and the reading is a miss, and then known to be gone,
 * also where the directory's time does not show it. */
static void test_vanishing(void)
{
    const time_t long_ago = time(NULL) - 1000;
    const char *dir = fresh_dir();
    mf_error error = {0};
    mf_store *store = store_open(dir, 0);
    entry_kind k = kind_of(4);
    mf_store_match m;
    char path[600];
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    int32_t *t = entry_tokens(&k);
    set_time(dir, long_ago);
    REQUIRE(find_tokens(store, t, k.n_tokens, true, 0, &m));
    snprintf(path, sizeof path, "%s/%s", dir, m.name);
    REQUIRE(unlink(path) == 0);
    set_time(dir, long_ago);
    CHECK(entry_read_match(store, &k, &m, &error) != MF_OK);
    CHECK(!find_tokens(store, t, k.n_tokens, true, 0, &m));
    free(t);
    mf_store_close(&store);
}

typedef struct user_thread {
    mf_store *store;
    uint32_t first;
    unsigned n_bad;
} user_thread;

static void *use_store(void *arg)
{
    user_thread *u = arg;
    uint64_t seed = u->first + 1;
    for (int i = 0; i < 60; i++) {
        entry_kind k = kind_of((uint32_t)(test_random(&seed) % 12));
        mf_error error = {0};
        if (test_random(&seed) % 2 == 0)
            u->n_bad += entry_add(u->store, &k, &error) != MF_OK;
        mf_status status = entry_read(u->store, &k, &error);
        /* another thread may evict between the lookup and the reading */
        u->n_bad += status != MF_OK && status != MF_ERR_NOT_FOUND && status != MF_ERR_IO;
    }
    return NULL;
}

/* Three threads over two openings, with room for half of what they write. */
static void test_threads(void)
{
    const char *dir = fresh_dir();
    entry_kind k = kind_of(0);
    mf_snapshot_head head = entry_head(&k);
    uint64_t limit = 6 * (mf_snapshot_total_bytes(&head) + 8);
    mf_store *one = NULL, *two = NULL;
    mf_error error = {0};
    mf_store_options options;
    mf_store_options_default(&options);
    options.max_bytes = limit;
    /* with threads that read: rings are mapped where the thread sanitizer does not see it */
    REQUIRE_OK(mf_store_open_with_io(dir, &options, &mf_io_engine_pool, NULL, &one, &error),
               &error);
    REQUIRE_OK(mf_store_open_with_io(dir, &options, &mf_io_engine_pool, NULL, &two, &error),
               &error);
    user_thread users[3] = {{one, 10, 0}, {one, 20, 0}, {two, 30, 0}};
    pthread_t threads[3];
    mf_store_stats stats;
    for (int i = 0; i < 3; i++)
        REQUIRE(pthread_create(&threads[i], NULL, use_store, &users[i]) == 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        CHECK_U64(users[i].n_bad, 0);
    }
    mf_store_get_stats(one, &stats);
    CHECK(stats.n_bytes <= limit && stats.n_set_aside == 0);
    mf_store_close(&one);
    mf_store_close(&two);
}

/* Open, look up, read and add with the n-th allocation failing, until none fails. */
static void test_failing_allocations(void)
{
    failing f = {0};
    mf_error error = {0};
    mf_store_options options;
    mf_store_options_default(&options);
    options.allocator = failing_allocator(&f);
    const entry_kind a = kind_of(1), b = kind_of(2);
    int n = 0;
    for (bool all_done = false; !all_done; n++) {
        REQUIRE(n < 200);
        const char *dir = fresh_dir();
        mf_store *store = store_open(dir, 0);
        REQUIRE_OK(entry_add(store, &a, &error), &error);
        mf_store_close(&store);
        failing_arm(&f, (unsigned)n + 1, true);
        mf_status status = mf_store_open(dir, &options, &store, &error);
        if (status != MF_OK) {
            CHECK_STATUS(status, MF_ERR_NO_MEMORY);
            CHECK(store == NULL);
            failing_check_end(&f, "a store that does not open");
            continue;
        }
        status = entry_read(store, &a, &error);
        CHECK(status == MF_OK || status == MF_ERR_NOT_FOUND || status == MF_ERR_NO_MEMORY ||
              status == MF_ERR_IO);
        status = entry_add(store, &b, &error);
        CHECK(status == MF_OK || status == MF_ERR_NO_MEMORY);
        all_done = !failing_disarm(&f);
        REQUIRE_OK(entry_read(store, &a, &error), &error);
        CHECK_STATUS(entry_read(store, &b, &error), status == MF_OK ? MF_OK : MF_ERR_NOT_FOUND);
        mf_store_close(&store);
        failing_check_end(&f, "the store");
        CHECK_U64(count_files(dir, "tmp-", "", NULL), 0);
        CHECK_U64(count_files(dir, "bad-", "", NULL), 0);
    }
    CHECK(n > 10);
}

/* Short, interrupted and reordered reads change nothing; a failed one is a miss, and no damage. */
static void test_faulty_reads(void)
{
    const char *dir = fresh_dir();
    mf_error error = {0};
    mf_store_stats stats;
    entry_kind k = {5, 2000, 5, 900000, 0};
    mf_store *store = store_open(dir, 0);
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    mf_store_close(&store);
    mf_io_fault fault = {.inner = &mf_io_engine_pool,
                         .seed = 3,
                         .short_chance = 300,
                         .interrupt_chance = 200,
                         .hold_chance = 300,
                         .shuffle = 1};
    REQUIRE_OK(mf_store_open_with_io(dir, NULL, &mf_io_engine_fault, &fault, &store, &error),
               &error);
    for (int i = 0; i < 5; i++)
        REQUIRE_OK(entry_read(store, &k, &error), &error);
    CHECK(fault.n_short > 0 && fault.n_held > 0 && fault.n_interrupted > 0);
    fault = (mf_io_fault){.inner = &mf_io_engine_pool, .seed = 3};
    REQUIRE_OK(entry_read(store, &k, &error), &error);
    uint64_t n_reads = fault.n_reads;
    CHECK(n_reads >= 4500000 / MF_READER_SLOT_BYTES);
    for (uint64_t n = 2; n <= n_reads; n++) { /* the first only asks whether direct I/O works */
        fault = (mf_io_fault){
            .inner = &mf_io_engine_pool, .fail_from = n, .fail_count = 1, .fail_errno = EIO};
        fault.seed = 1;
        mf_status status = entry_read(store, &k, &error);
        CHECK_MSG(status == MF_ERR_IO && error.os_errno == EIO, "read %" PRIu64 " of %" PRIu64, n,
                  n_reads);
    }
    fault = (mf_io_fault){.inner = &mf_io_engine_pool, .seed = 3};
    REQUIRE_OK(entry_read(store, &k, &error), &error);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_set_aside == 0 && stats.n_misses == n_reads - 1);
    mf_store_close(&store);
}

/* What is left zero, or not given at all, is the default. */
static void test_defaults(void)
{
    mf_store_options zeros = {.struct_bytes = sizeof zeros}, defaults;
    mf_error error = {0};
    mf_store_options_default(&defaults);
    CHECK(defaults.max_bytes != 0 && defaults.min_tokens != 0 && defaults.lock_wait_ms != 0);
    for (int i = 0; i < 2; i++) {
        mf_store *store = NULL;
        const char *dir = fresh_dir();
        REQUIRE_OK(mf_store_open(dir, i == 0 ? &zeros : NULL, &store, &error), &error);
        CHECK_U64(store->options.max_bytes, defaults.max_bytes);
        CHECK_U64(store->options.min_tokens, defaults.min_tokens);
        CHECK_U64(store->options.lock_wait_ms, defaults.lock_wait_ms);
        CHECK_U64(mf_store_max_bytes(store), defaults.max_bytes);
        CHECK_U64(mf_store_min_tokens(store), defaults.min_tokens);
        mf_store_close(&store);
    }
}

int main(void)
{
    test_defaults();
    test_round_trip();
    test_find();
    test_marks();
    test_exact_entry();
    test_gaps();
    test_eviction();
    test_smaller_limit();
    test_oldest_goes();
    test_hits_survive();
    test_damage();
    test_log_is_one_line();
    test_full_disk();
    test_failing_writer();
    test_read_only();
    test_two_openings();
    test_vanishing();
    test_threads();
    test_failing_allocations();
    test_faulty_reads();
    remove_dir(fresh_dir());
    return test_result();
}
