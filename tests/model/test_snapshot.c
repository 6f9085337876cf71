/* SPDX-License-Identifier: MIT */
/*
 * Snapshots of sessions: what continues from one has the bits of what never stopped, in every kind
 * of family and cache; what does not fit is refused with its reason, and the session is as before.
 */
#include "failing_alloc.h"
#include "golden.h"
#include "scratch_dir.h"

#include <fcntl.h>
#include <unistd.h>

static mf_session *new_session(mf_engine *engine)
{
    mf_session *s = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(engine, &s, &error), &error);
    return s;
}

static mf_engine *open_with(const golden_case *c, mf_kv_type kv_type)
{
    mf_engine_options options = golden_options(c);
    options.kv_type = kv_type;
    options.n_sessions = 3;
    options.n_chunk_tokens = 16;
    return golden_open(c, &options);
}

static void eval(mf_session *s, const int32_t *tokens, size_t n)
{
    mf_error error = {0};
    REQUIRE_OK(mf_session_eval(s, tokens, n, &error), &error);
}

static unsigned char *save(const mf_session *s, size_t *n_bytes)
{
    mf_error error = {0};
    *n_bytes = (size_t)mf_snapshot_bytes(s);
    unsigned char *bytes = malloc(*n_bytes + 1);
    REQUIRE(bytes != NULL);
    bytes[*n_bytes] = 0xa5;
    REQUIRE_OK(mf_snapshot_save(s, bytes, *n_bytes, &error), &error);
    CHECK(bytes[*n_bytes] == 0xa5);
    return bytes;
}

/* The session goes on to the golden's end with the same bits as `want`. */
static void check_goes_on(mf_session *s, const golden *g, const float *want, const char *what)
{
    size_t at = mf_session_position(s);
    eval(s, g->tokens + at, g->n_tokens - at);
    CHECK_MSG(memcmp(mf_session_logits(s), want, g->n_vocab * sizeof *want) == 0,
              "%s: other logits after token %zu", what, at);
}

static float *last_logits(mf_engine *engine, const golden *g)
{
    float *want = malloc(g->n_vocab * sizeof *want);
    mf_session *s = new_session(engine);
    eval(s, g->tokens, g->n_tokens);
    memcpy(want, mf_session_logits(s), g->n_vocab * sizeof *want);
    mf_session_free(&s);
    return want;
}

static void check_position(mf_engine *one, mf_engine *two, const golden *g, size_t n,
                           const float *want, const char *name)
{
    mf_error error = {0};
    size_t n_bytes, n_again;
    mf_session *s = new_session(one), *t = new_session(two);
    eval(s, g->tokens, n);
    unsigned char *bytes = save(s, &n_bytes), *again;
    eval(t, g->tokens + 3, 5); /* something else, which is then gone */
    REQUIRE_OK(mf_snapshot_load(t, bytes, n_bytes, &error), &error);
    CHECK(mf_session_position(t) == n && mf_session_logits(t) == NULL);
    CHECK(n == 0 || memcmp(mf_session_tokens(t), g->tokens, n * sizeof *g->tokens) == 0);
    again = save(t, &n_again);
    CHECK(n_again == n_bytes && memcmp(again, bytes, n_bytes) == 0);
    check_goes_on(t, g, want, name);
    check_goes_on(s, g, want, name); /* saving changed nothing */
    free(bytes);
    free(again);
    mf_session_free(&s);
    mf_session_free(&t);
}

static void check_files(mf_engine *engine, const golden *g, const float *want)
{
    mf_error error = {0};
    FILE *f = tmpfile();
    REQUIRE(f != NULL);
    int fd = fileno(f);
    mf_session *s = new_session(engine), *t = new_session(engine);
    REQUIRE(write(fd, "before", 6) == 6);
    eval(s, g->tokens, 20);
    off_t first = 6 + (off_t)mf_snapshot_bytes(s);
    REQUIRE_OK(mf_snapshot_save_fd(s, fd, &error), &error);
    CHECK(lseek(fd, 0, SEEK_CUR) == first);
    eval(s, g->tokens + 20, 7);
    REQUIRE_OK(mf_snapshot_save_fd(s, fd, &error), &error);
    REQUIRE(lseek(fd, 6, SEEK_SET) == 6);
    REQUIRE_OK(mf_snapshot_load_fd(t, fd, &error), &error);
    CHECK(mf_session_position(t) == 20 && lseek(fd, 0, SEEK_CUR) == first);
    REQUIRE_OK(mf_snapshot_load_fd(t, fd, &error), &error);
    CHECK_U64(mf_session_position(t), 27);
    CHECK_STATUS(mf_snapshot_load_fd(t, fd, &error), MF_ERR_FORMAT); /* the end of the file */
    CHECK_U64(mf_session_position(t), 27);
    check_goes_on(t, g, want, "from a file");
    CHECK_STATUS(mf_snapshot_save_fd(s, 1000000, &error), MF_ERR_IO);
    CHECK_STATUS(mf_snapshot_load_fd(s, 1000000, &error), MF_ERR_IO);
    CHECK_STATUS(mf_snapshot_save_fd(s, -1, &error), MF_ERR_ARGUMENT);
    check_goes_on(s, g, want, "after failures");
    fclose(f);
    mf_session_free(&s);
    mf_session_free(&t);
}

/* Refusals. The session that refuses keeps its logits and goes on as if nothing had been tried. */
static void check_refused(mf_session *t, const unsigned char *bytes, size_t n_bytes,
                          mf_status expected, const char *why)
{
    mf_error error = {0};
    size_t position = mf_session_position(t);
    CHECK_STATUS(mf_snapshot_load(t, bytes, n_bytes, &error), expected);
    CHECK_CONTAINS(error.message, why);
    CHECK(mf_session_position(t) == position && mf_session_logits(t) != NULL);
}

static void check_damage(mf_engine *engine, const golden *g, const float *want)
{
    mf_error error = {0};
    uint64_t seed = 21;
    size_t n_bytes;
    mf_session *s = new_session(engine), *t = new_session(engine);
    eval(s, g->tokens, 35);
    eval(t, g->tokens, 9);
    unsigned char *bytes = save(s, &n_bytes);
    for (int i = 0; i < 400; i++) {
        size_t at = i < 128 ? (size_t)i : test_random(&seed) % n_bytes;
        unsigned char bit = (unsigned char)(1u << test_random(&seed) % 8);
        bytes[at] ^= bit;
        check_refused(t, bytes, n_bytes, MF_ERR_FORMAT, "");
        bytes[at] ^= bit;
    }
    for (int i = 0; i < 60; i++)
        check_refused(t, bytes, test_random(&seed) % n_bytes, MF_ERR_FORMAT, "");
    bytes = realloc(bytes, n_bytes + 1);
    REQUIRE(bytes != NULL);
    check_refused(t, bytes, n_bytes + 1, MF_ERR_FORMAT, "bytes long");
    check_refused(t, bytes, 0, MF_ERR_FORMAT, "truncated");
    CHECK_STATUS(mf_snapshot_save(s, bytes, n_bytes - 1, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_snapshot_load(t, NULL, n_bytes, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_snapshot_load(NULL, bytes, n_bytes, &error), MF_ERR_ARGUMENT);
    check_goes_on(t, g, want, "after damaged snapshots");
    free(bytes);
    mf_session_free(&s);
    mf_session_free(&t);
}

static void check_strangers(void)
{
    static const char *const names[] = {"mlx_4bit", "v3_bf16", "hf_bf16", "next_bf16"};
    static const int32_t few[] = {1, 2, 3, 4}; /* in every vocabulary */
    const golden_case *c = golden_case_find("mlx_4bit");
    golden g;
    golden_read(c, &g);
    mf_engine *engine = open_with(c, MF_KV_F32);
    mf_session *s = new_session(engine);
    size_t n_bytes;
    eval(s, g.tokens, 35);
    unsigned char *bytes = save(s, &n_bytes);
    for (int i = 1; i < 4; i++) {
        mf_engine *other = open_with(golden_case_find(names[i]), MF_KV_F32);
        mf_session *t = new_session(other);
        eval(t, few, 4);
        check_refused(t, bytes, n_bytes, MF_ERR_UNSUPPORTED, "another model");
        mf_session_free(&t);
        mf_engine_close(&other);
    }
    mf_engine *other = open_with(c, MF_KV_BF16);
    mf_session *t = new_session(other);
    eval(t, few, 4);
    check_refused(t, bytes, n_bytes, MF_ERR_UNSUPPORTED, "cache type");
    mf_session_free(&t);
    mf_engine_close(&other);
    mf_engine_options options = golden_options(c);
    options.n_experts_per_token = 1; /* the same weights, another model */
    other = golden_open(c, &options);
    t = new_session(other);
    eval(t, few, 4);
    check_refused(t, bytes, n_bytes, MF_ERR_UNSUPPORTED, "another model");
    mf_session_free(&t);
    mf_engine_close(&other);
    options = golden_options(c);
    options.n_context_tokens = 34;
    other = golden_open(c, &options);
    t = new_session(other);
    eval(t, few, 4);
    check_refused(t, bytes, n_bytes, MF_ERR_CONTEXT, "35 tokens");
    mf_session_free(&t);
    mf_engine_close(&other);
    free(bytes);
    mf_session_free(&s);
    mf_engine_close(&engine);
    golden_free(&g);
}

static mf_engine *open_at(const golden_case *c, const char *path)
{
    mf_engine_options options = golden_options(c);
    mf_engine *engine = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_engine_open(path, &options, &engine, &error), &error);
    return engine;
}

/* Flips the lowest bit of a file's bytes from..end. */
static void flip(const char *path, off_t from, off_t end)
{
    unsigned char byte;
    int fd = open(path, O_RDWR);
    REQUIRE(fd >= 0);
    for (off_t at = from; at < end && pread(fd, &byte, 1, at) == 1; at++) {
        byte ^= 1;
        REQUIRE(pwrite(fd, &byte, 1, at) == 1);
    }
    close(fd);
}

/* The same dense weights; other experts in one layer, all of them or a single one. */
static void check_other_experts(void)
{
    static const int32_t few[] = {1, 2, 3, 4};
    const golden_case *c = golden_case_find("v3_packed");
    mf_model_info info;
    mf_error error = {0};
    size_t n_bytes;
    mf_engine *engine = open_at(c, scratch_copy("v3_packed"));
    mf_session *s = new_session(engine);
    mf_engine_info(engine, &info);
    eval(s, few, 4);
    unsigned char *bytes = save(s, &n_bytes);
    mf_session_free(&s);
    mf_engine_close(&engine);
    REQUIRE(info.n_experts >= 4);
    off_t one = (off_t)info.one_expert_bytes;
    for (int i = 0; i < 4; i++) { /* unchanged; one layer; its last expert; a file cut short */
        const char *dir = scratch_copy("v3_packed");
        const char *file = scratch_path("packed_experts/layer_01.bin");
        off_t n_all = one * (off_t)info.n_experts;
        if (i == 1 || i == 2)
            flip(file, i == 1 ? 0 : n_all - one, n_all);
        engine = open_at(c, dir);
        s = new_session(engine);
        eval(s, few, 3);
        if (i == 3)
            REQUIRE(truncate(file, 100) == 0);
        if (i == 0)
            REQUIRE_OK(mf_snapshot_load(s, bytes, n_bytes, &error), &error);
        else
            check_refused(s, bytes, n_bytes, i == 3 ? MF_ERR_FORMAT : MF_ERR_UNSUPPORTED,
                          i == 3 ? "layer_01.bin" : "another model");
        if (i == 3) /* nor can its own be written, or its store be used */
            CHECK_STATUS(mf_snapshot_save(s, bytes, n_bytes, &error), MF_ERR_FORMAT);
        mf_session_free(&s);
        mf_engine_close(&engine);
    }
    free(bytes);
    scratch_remove();
}

static void check_allocations(const golden_case *c, const golden *g, const float *want)
{
    failing f = {0};
    mf_error error = {0};
    mf_engine_options options = golden_options(c);
    options.allocator = failing_allocator(&f);
    options.n_chunk_tokens = 16;
    options.n_sessions = 2;
    mf_engine *engine = golden_open(c, &options);
    mf_session *s = new_session(engine), *t = new_session(engine);
    eval(s, g->tokens, 35);
    eval(t, g->tokens, 9);
    size_t n_bytes;
    unsigned char *bytes = save(s, &n_bytes);
    int n = 0;
    for (bool done = false; !done; n++) {
        REQUIRE(n < 100);
        failing_arm(&f, (unsigned)n + 1, true);
        mf_status status = mf_snapshot_save(s, bytes, n_bytes, &error);
        CHECK(status == MF_OK || status == MF_ERR_NO_MEMORY);
        done = !failing_disarm(&f);
    }
    CHECK(n > 1);
    n = 0;
    for (bool done = false; !done; n++) {
        REQUIRE(n < 100);
        failing_arm(&f, (unsigned)n + 1, true);
        mf_status status = mf_snapshot_load(t, bytes, n_bytes, &error);
        done = !failing_disarm(&f);
        CHECK_STATUS(status, done ? MF_OK : MF_ERR_NO_MEMORY);
        CHECK(mf_session_position(t) == (done ? 35u : 9u));
    }
    CHECK(n > 2);
    check_goes_on(t, g, want, "after failed allocations");
    free(bytes);
    mf_session_free(&s);
    mf_session_free(&t);
    mf_engine_close(&engine);
    failing_check_end(&f, c->name);
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "next_bf16", "v3_bf16", "k2_mlx_4bit"};
    static const size_t positions[] = {0, 1, 2, 31, 32, 33};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const golden_case *c = golden_case_find(names[i]);
        golden g;
        golden_read(c, &g);
        REQUIRE(g.n_tokens > 36);
        for (mf_kv_type kv = MF_KV_F32; kv <= MF_KV_BF16; kv++) {
            mf_engine *one = open_with(c, kv), *two = open_with(c, kv);
            float *want = last_logits(one, &g);
            for (size_t k = 0; k < sizeof positions / sizeof *positions; k++)
                check_position(one, two, &g, positions[k], want, c->name);
            check_position(one, two, &g, g.n_tokens - 1, want, c->name);
            if (i % 2 == 0 && kv == MF_KV_F32) {
                check_files(one, &g, want);
                check_damage(one, &g, want);
                check_allocations(c, &g, want);
            }
            free(want);
            mf_engine_close(&one);
            mf_engine_close(&two);
        }
        golden_free(&g);
    }
    check_strangers();
    check_other_experts();
    CHECK_U64(mf_snapshot_bytes(NULL), 0);
    return test_result();
}
