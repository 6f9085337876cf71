/* SPDX-License-Identifier: MIT */
/*
 * Experts asked for most, from one run to the next: a run leaves a list; the next reads what it
 * says before it is asked, fills its slots with nothing else, and has the same bits; what is
 * damaged, of another model or no file at all is refused as a whole and said.
 */
#include "golden.h"

#include "experts/store_impl.h"
#include "session/session.h"
#include "state/hot_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_TOKENS 12u

static char dir[] = "/tmp/mf_hot_XXXXXX";

typedef struct log_lines {
    char last[512];
    uint32_t n;
} log_lines;

static void take_line(void *user, mf_log_level level, const char *line)
{
    log_lines *l = user;
    if (level != MF_LOG_WARNING || strstr(line, "asked for most") == NULL)
        return;
    snprintf(l->last, sizeof l->last, "%s", line);
    l->n++;
}

static mf_engine *open_it(const golden_case *c, const char *hot_dir, uint32_t percent,
                          log_lines *lines)
{
    mf_engine_options options = golden_options(c);
    mf_model_info info;
    mf_error error = {0};
    options.hot_dir = hot_dir;
    options.log = take_line;
    options.log_user = lines;
    options.predict = MF_PREDICT_OFF; /* what it reads in time differs from run to run */
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    options.expert_cache_bytes =
        (uint64_t)info.n_moe_layers * info.n_experts * info.slot_bytes * percent / 100;
    return golden_open(c, &options);
}

/* Each token by itself; the last one's logits, to be freed. */
static float *evaluate(mf_engine *engine, const golden *g)
{
    mf_error error = {0};
    mf_session *session = NULL;
    float *logits = malloc(g->n_vocab * sizeof *logits);
    REQUIRE(logits != NULL);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        REQUIRE_OK(mf_session_eval(session, g->tokens + i, 1, &error), &error);
    memcpy(logits, mf_session_logits(session), g->n_vocab * sizeof *logits);
    mf_session_free(&session);
    return logits;
}

/* The list's path; the directory has nothing else. */
static bool find_list(char *path, size_t size)
{
    DIR *d = opendir(dir);
    uint32_t n = 0;
    REQUIRE(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.')
            continue;
        CHECK_MSG(strncmp(e->d_name, "hot-", 4) == 0, "%s is left there", e->d_name);
        snprintf(path, size, "%s/%.200s", dir, e->d_name);
        n++;
    }
    closedir(d);
    CHECK(n <= 1);
    return n == 1;
}

static void write_file(const char *path, const unsigned char *bytes, size_t n_bytes)
{
    FILE *f = fopen(path, "wb");
    REQUIRE(f != NULL);
    CHECK(fwrite(bytes, 1, n_bytes, f) == n_bytes);
    CHECK(fclose(f) == 0);
}

static void wait_for_reads(mf_expert_store *store)
{
    for (uint32_t i = 0; i < 600000 && (store->next_warm < store->n_warm || store->n_foreseen > 0);
         i++) {
        mf_expert_store_poll(store);
        usleep(100);
    }
}

/* The slots hold the first of the list, as many as there are. */
static void check_held(mf_engine *engine)
{
    const mf_expert_store *store = engine->runner.store;
    const uint32_t n = store->n_warm < store->n_slots ? store->n_warm : store->n_slots;
    uint32_t n_held = 0;
    for (uint32_t i = 0; i < n; i++)
        n_held += store->slot_of[store->warm[i]] != MF_NONE;
    CHECK_MSG(n > 0 && n_held == n, "%u of the first %u are held", n_held, n);
}

static void test_two_runs(const golden_case *c, const golden *g, uint32_t percent)
{
    char path[256];
    log_lines lines = {0};
    mf_stats cold, warm;
    mf_engine *plain = open_it(c, NULL, percent, &lines);
    float *expected = evaluate(plain, g);
    mf_engine_stats(plain, &cold);
    mf_engine_close(&plain);
    CHECK(!find_list(path, sizeof path));
    mf_engine *engine = open_it(c, dir, percent, &lines);
    mf_engine_close(&engine);
    CHECK(!find_list(path, sizeof path)); /* nothing was asked for */
    for (int run = 0; run < 2; run++) {
        engine = open_it(c, dir, percent, &lines);
        if (run == 1) {
            wait_for_reads(engine->runner.store);
            check_held(engine);
        }
        float *got = evaluate(engine, g);
        mf_engine_stats(engine, &warm);
        CHECK(memcmp(got, expected, g->n_vocab * sizeof *got) == 0);
        free(got);
        mf_engine_close(&engine);
        REQUIRE(find_list(path, sizeof path));
    }
    CHECK_MSG(warm.n_expert_hits > cold.n_expert_hits, "%llu hits, %llu without the list",
              (unsigned long long)warm.n_expert_hits, (unsigned long long)cold.n_expert_hits);
    CHECK_U64(lines.n, 0);
    free(expected);
    REQUIRE(unlink(path) == 0);
}

/* The list as it is now, refused: the same bits, and it is said why. */
static void check_refused(const golden_case *c, const golden *g, const float *expected,
                          const char *what)
{
    log_lines lines = {0};
    mf_engine *engine = open_it(c, dir, 50, &lines);
    CHECK_MSG(lines.n == 1, "%s: the log says '%s'", what, lines.last);
    CHECK(engine->runner.store->n_warm == 0);
    float *got = evaluate(engine, g);
    CHECK(memcmp(got, expected, g->n_vocab * sizeof *got) == 0);
    free(got);
    mf_engine_close(&engine);
}

static void test_hostile(const golden_case *c, const golden *g)
{
    char path[256];
    log_lines lines = {0};
    size_t n_bytes;
    mf_engine *engine = open_it(c, dir, 50, &lines);
    float *expected = evaluate(engine, g);
    mf_engine_close(&engine);
    REQUIRE(find_list(path, sizeof path));
    unsigned char *bytes = read_file(path, &n_bytes);
    const size_t flips[] = {0, 8, 12, 16, 33, 36, 40, 43, 64, 70, n_bytes - 1};
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        bytes[flips[i]] ^= 0x41;
        write_file(path, bytes, n_bytes);
        bytes[flips[i]] ^= 0x41;
        check_refused(c, g, expected, "a flipped byte");
    }
    write_file(path, bytes, n_bytes - 1);
    check_refused(c, g, expected, "cut short");
    write_file(path, bytes, 0);
    check_refused(c, g, expected, "empty");
    REQUIRE(unlink(path) == 0 && symlink("/etc/passwd", path) == 0);
    check_refused(c, g, expected, "a link");
    REQUIRE(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    check_refused(c, g, expected, "a pipe");
    REQUIRE(unlink(path) == 0);
    free(bytes);
    free(expected);
}

/* Checked beyond its checksum. */
static void test_parse(void)
{
    const mf_hot_shape shape = {{1, 2, 3}, 2, 4};
    float shares[8] = {0.5f, 0, 1, 0.25f, 0, 0, 0.75f, 1e-9f};
    uint32_t keys[8];
    char path[256];
    size_t n_bytes;
    mf_error error = {0};
    mf_hot_list list = {shares, keys, 0};
    const mf_allocator a = mf_allocator_default();
    REQUIRE_OK(mf_hot_save(&a, dir, &shape, &list, &error), &error);
    REQUIRE(find_list(path, sizeof path));
    unsigned char *bytes = read_file(path, &n_bytes);
    memset(shares, 0, sizeof shares);
    list.n = 0;
    REQUIRE_OK(mf_hot_load(&a, dir, &shape, &list, &error), &error);
    CHECK(list.n == 4 && keys[0] == 2 && keys[1] == 6 && keys[2] == 0 && keys[3] == 3);
    CHECK(shares[2] == 1 && fabsf(shares[6] - 0.75f) < 1e-4f && shares[7] == 0);
    const struct {
        size_t at;
        unsigned char value;
    } wrong[] = {{64, 8}, {64, 6}, {68 + 8, 0}, {69 + 24, 255}, {70, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        unsigned char copy[256];
        REQUIRE(n_bytes <= sizeof copy);
        memcpy(copy, bytes, n_bytes);
        copy[wrong[i].at] = wrong[i].value;
        if (i == 2)
            copy[wrong[i].at + 1] = 0; /* no share at all */
        const uint64_t sum = mf_checksum_of(copy, n_bytes - 8, 0);
        memcpy(copy + n_bytes - 8, &sum, 8);
        CHECK_STATUS(mf_hot_parse(copy, n_bytes, "list", &shape, &list, &error), MF_ERR_FORMAT);
        CHECK_MSG(strstr(error.message, "list: byte ") != NULL, "'%s'", error.message);
    }
    free(bytes);
    REQUIRE(unlink(path) == 0);
    const mf_hot_shape large = {{0}, 1u << 13, 1u << 13};
    CHECK_STATUS(mf_hot_save(&a, dir, &large, &list, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_hot_load(&a, "/no/such", &shape, &list, &error), MF_ERR_NOT_FOUND);
}

/* Files of a process that was killed go with the next start; one that is being written stays, and
 * so does what is not ours. */
static void test_stale(void)
{
    static const char *const names[] = {
        "tmp-7f-hot-00112233445566778899aabbccddeeff.mfhot",
        "tmp-80-hot-00112233445566778899aabbccddeeff.mfhot", /* locked */
        "tmp-81-hot-00112233445566778899aabbccddeef.mfhot",
        "tmp-hot-00112233445566778899aabbccddeeff.mfhot",
        "tmp-82-hot-00112233445566778899aabbccddeeff.mfhot.txt",
        "tmp-notes",
    };
    enum { N = sizeof names / sizeof *names };
    const mf_hot_shape shape = {{9, 9, 9}, 2, 4};
    float shares[8];
    uint32_t keys[8];
    mf_hot_list list = {.shares = shares, .keys = keys};
    char paths[N][256];
    for (int i = 0; i < N; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", dir, names[i]);
        write_file(paths[i], (const unsigned char *)"x", 1);
    }
    const int fd = open(paths[1], O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && flock(fd, LOCK_EX) == 0);
    CHECK(mf_hot_load(NULL, dir, &shape, &list, NULL) == MF_ERR_NOT_FOUND);
    for (int i = 0; i < N; i++)
        CHECK_MSG((access(paths[i], F_OK) == 0) == (i > 0), "%s", names[i]);
    close(fd);
    CHECK(mf_hot_load(NULL, dir, &shape, &list, NULL) == MF_ERR_NOT_FOUND);
    CHECK(access(paths[1], F_OK) != 0);
    for (int i = 2; i < N; i++)
        CHECK(unlink(paths[i]) == 0);
}

/* A file that another writes under this process's number, as in another container, is let be. */
static void test_same_number(void)
{
    const mf_hot_shape shape = {{5, 6}, 2, 4};
    const mf_allocator a = mf_allocator_default();
    float shares[8] = {0.5f, 0, 1};
    uint32_t keys[8];
    char other[256], path[256];
    mf_error error = {0};
    mf_hot_list list = {shares, keys, 0};
    snprintf(other, sizeof other, "%s/tmp-%llx-hot-05060000000000000000000000000000.mfhot", dir,
             (unsigned long long)getpid());
    write_file(other, (const unsigned char *)"x", 1);
    const int fd = open(other, O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && flock(fd, LOCK_EX) == 0);
    REQUIRE_OK(mf_hot_save(&a, dir, &shape, &list, &error), &error);
    CHECK(access(other, F_OK) == 0);
    CHECK(close(fd) == 0);
    REQUIRE_OK(mf_hot_save(&a, dir, &shape, &list, &error), &error); /* it is stale now */
    CHECK(access(other, F_OK) != 0);
    REQUIRE(find_list(path, sizeof path));
    REQUIRE_OK(mf_hot_load(&a, dir, &shape, &list, &error), &error);
    CHECK(list.n == 2 && keys[0] == 2 && keys[1] == 0);
    REQUIRE(unlink(path) == 0);
}

#define WRITES_AT_ONCE 200u
#define KEYS_AT_ONCE 1024u

typedef struct writer {
    float shares[KEYS_AT_ONCE];
    uint32_t keys[KEYS_AT_ONCE];
    mf_error error;
} writer;

/* Checks are not of threads: what is wrong is left in the error. */
static void *write_often(void *ctx)
{
    const mf_hot_shape shape = {{7, 8}, 4, KEYS_AT_ONCE / 4};
    const mf_allocator a = mf_allocator_default();
    writer *w = ctx;
    mf_hot_list list = {w->shares, w->keys, 0};
    for (uint32_t i = 0; i < KEYS_AT_ONCE; i++)
        w->shares[i] = 0.5f;
    for (uint32_t i = 0; i < WRITES_AT_ONCE && w->error.code == MF_OK; i++) {
        (void)!mf_hot_save(&a, dir, &shape, &list, &w->error);
        if (w->error.code == MF_OK) /* whole, whoever's it is; and it clears away what is stale */
            (void)!mf_hot_load(&a, dir, &shape, &list, &w->error);
    }
    return NULL;
}

/* Engines of one process that are closed at the same time. */
static void test_at_once(void)
{
    enum { N = 3 };
    static writer writers[N];
    pthread_t threads[N];
    char path[256];
    for (int i = 0; i < N; i++)
        REQUIRE(pthread_create(&threads[i], NULL, write_often, &writers[i]) == 0);
    for (int i = 0; i < N; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
        CHECK_MSG(writers[i].error.code == MF_OK, "'%s'", writers[i].error.message);
    }
    REQUIRE(find_list(path, sizeof path));
    REQUIRE(unlink(path) == 0);
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "v3_fp8"};
    REQUIRE(mkdtemp(dir) != NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const golden_case *c = golden_case_find(names[i]);
        golden g;
        golden_read(c, &g);
        test_two_runs(c, &g, 50);
        test_two_runs(c, &g, 100);
        test_hostile(c, &g);
        golden_free(&g);
    }
    test_parse();
    test_stale();
    test_same_number();
    test_at_once();
    CHECK(rmdir(dir) == 0);
    return test_result();
}
