/* SPDX-License-Identifier: MIT */
/*
 * Snapshots of sessions: what continues from one has the bits of what never stopped, in every kind
 * of family and cache, and can be sampled from at once; what does not fit is refused with its
 * reason, and the session is as before.
 */
#include "failing_alloc.h"
#include "golden.h"
#include "kernels/kernels.h"
#include "scratch_dir.h"
#include "session/engine.h"
#include "session/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

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
    mf_session *s = golden_session(engine);
    eval(s, g->tokens, g->n_tokens);
    memcpy(want, mf_session_logits(s), g->n_vocab * sizeof *want);
    mf_session_free(&s);
    return want;
}

/* The same logits, or none, in both. */
static void check_same_logits(const mf_session *a, const mf_session *b, const golden *g,
                              const char *what)
{
    const float *x = mf_session_logits(a), *y = mf_session_logits(b);
    CHECK_MSG((x == NULL) == (y == NULL) &&
                  (x == NULL || memcmp(x, y, g->n_vocab * sizeof *x) == 0),
              "%s: other logits at token %zu", what, mf_session_position(a));
}

static void check_position(mf_engine *one, mf_engine *two, const golden *g, size_t n,
                           const float *want, const char *name)
{
    mf_error error = {0};
    size_t n_bytes, n_again;
    mf_session *s = golden_session(one), *t = golden_session(two);
    eval(s, g->tokens, n);
    unsigned char *bytes = save(s, &n_bytes), *again;
    eval(t, g->tokens + 3, 5); /* something else, which is then gone */
    REQUIRE_OK(mf_snapshot_load(t, bytes, n_bytes, &error), &error);
    CHECK(mf_session_position(t) == n && (mf_session_logits(t) == NULL) == (n == 0));
    check_same_logits(s, t, g, name);
    CHECK(n == 0 || memcmp(mf_session_tokens(t), g->tokens, n * sizeof *g->tokens) == 0);
    again = save(t, &n_again);
    CHECK(n_again == n_bytes && memcmp(again, bytes, n_bytes) == 0);
    if (n > 0) { /* nothing is left to evaluate */
        mf_sync_result r = {0};
        REQUIRE_OK(mf_session_sync(t, g->tokens, n, &r, &error), &error);
        CHECK(r.source == MF_SYNC_SELF && r.n_reused == n && r.n_evaluated == 0);
    }
    check_goes_on(t, g, want, name);
    check_goes_on(s, g, want, name); /* saving changed nothing */
    free(bytes);
    free(again);
    mf_session_free(&s);
    mf_session_free(&t);
}

/* A session that has no logits is saved without, and takes them from who loads it. */
static void check_without_logits(mf_engine *engine, const golden *g, const float *want)
{
    mf_error error = {0};
    size_t n_with, n_without, n_kept;
    mf_session *s = golden_session(engine), *t = golden_session(engine);
    eval(s, g->tokens, 33);
    free(save(s, &n_with));
    eval(s, g->tokens + 33, 2);
    REQUIRE_OK(mf_session_truncate(s, 33, &n_kept, &error), &error);
    REQUIRE(n_kept == 33 && mf_session_logits(s) == NULL);
    unsigned char *bytes = save(s, &n_without);
    CHECK_U64(n_with - n_without, g->n_vocab * sizeof(float) + 8); /* and their checksum */
    eval(t, g->tokens, 5);
    REQUIRE_OK(mf_snapshot_load(t, bytes, n_without, &error), &error);
    CHECK(mf_session_position(t) == 33 && mf_session_logits(t) == NULL);
    check_goes_on(t, g, want, "without logits");
    free(bytes);
    mf_session_free(&s);
    mf_session_free(&t);
}

static void check_files(mf_engine *engine, const golden *g, const float *want)
{
    mf_error error = {0};
    FILE *f = tmpfile();
    REQUIRE(f != NULL);
    int fd = fileno(f);
    mf_session *s = golden_session(engine), *t = golden_session(engine);
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
    int ends[2]; /* nobody reads: an error, and no signal */
    REQUIRE(pipe(ends) == 0 && close(ends[0]) == 0);
    CHECK_STATUS(mf_snapshot_save_fd(s, ends[1], &error), MF_ERR_IO);
    CHECK(error.os_errno == EPIPE);
    close(ends[1]);
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
    mf_session *s = golden_session(engine), *t = golden_session(engine);
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
    mf_session *s = golden_session(engine);
    size_t n_bytes;
    eval(s, g.tokens, 35);
    unsigned char *bytes = save(s, &n_bytes);
    for (int i = 1; i < 4; i++) {
        mf_engine *other = open_with(golden_case_find(names[i]), MF_KV_F32);
        mf_session *t = golden_session(other);
        eval(t, few, 4);
        check_refused(t, bytes, n_bytes, MF_ERR_UNSUPPORTED, "another model");
        mf_session_free(&t);
        mf_engine_close(&other);
    }
    mf_engine *other = open_with(c, MF_KV_BF16);
    mf_session *t = golden_session(other);
    eval(t, few, 4);
    check_refused(t, bytes, n_bytes, MF_ERR_UNSUPPORTED, "kv_type is f32, the engine's bf16");
    mf_session_free(&t);
    mf_engine_close(&other);
    mf_engine_options options = golden_options(c);
    options.n_experts_per_token = 1; /* the same weights, another model */
    other = golden_open(c, &options);
    t = golden_session(other);
    eval(t, few, 4);
    check_refused(t, bytes, n_bytes, MF_ERR_UNSUPPORTED, "another model");
    mf_session_free(&t);
    mf_engine_close(&other);
    options = golden_options(c);
    options.n_context_tokens = 34;
    other = golden_open(c, &options);
    t = golden_session(other);
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
    mf_session *s = golden_session(engine);
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
        s = golden_session(engine);
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

/* The same experts; one bit of the dense weights differs, wherever it lies. */
static void check_other_weights(void)
{
    static const int32_t few[] = {1, 2, 3, 4};
    const golden_case *c = golden_case_find("v3_packed");
    mf_error error = {0};
    size_t n_bytes;
    mf_engine *engine = open_at(c, scratch_copy("v3_packed"));
    mf_session *s = golden_session(engine);
    eval(s, few, 4);
    unsigned char *bytes = save(s, &n_bytes);
    mf_session_free(&s);
    mf_engine_close(&engine);
    for (int i = 0; i < 5; i++) {
        const char *dir = scratch_copy("v3_packed"), *file = scratch_path("model_weights.bin");
        struct stat info;
        REQUIRE(stat(file, &info) == 0);
        const off_t at[] = {0, info.st_size / 3, info.st_size / 2, info.st_size - 1};
        if (i < 4)
            flip(file, at[i], at[i] + 1);
        engine = open_at(c, dir);
        s = golden_session(engine);
        eval(s, few, 3);
        if (i < 4)
            check_refused(s, bytes, n_bytes, MF_ERR_UNSUPPORTED, "another model");
        else
            REQUIRE_OK(mf_snapshot_load(s, bytes, n_bytes, &error), &error);
        mf_session_free(&s);
        mf_engine_close(&engine);
    }
    free(bytes);
    scratch_remove();
}

/* The same weights under another config: other rotations, norms, routes. */
static void check_other_config(void)
{
    static const struct {
        const char *model, *from, *to;
    } cases[] = {
        {"mlx_4bit", "\"rope_theta\": 10000000.0", "\"rope_theta\": 10000001.0"},
        {"mlx_4bit", "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 0.5"},
        {"v3_yarn_f32", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 2e-06"},
        {"v3_yarn_f32", "\"rope_theta\": 100", "\"rope_theta\": 101"},
        {"v3_yarn_f32", "\"factor\": 40", "\"factor\": 41"},
        {"v3_yarn_f32", "\"original_max_position_embeddings\": 32",
         "\"original_max_position_embeddings\": 33"},
        {"v3_yarn_f32", "\"beta_fast\": 4", "\"beta_fast\": 5"},
        {"v3_yarn_f32", "\"beta_slow\": 0.25", "\"beta_slow\": 0.5"},
        {"v3_yarn_f32", "\"mscale\": 1.0", "\"mscale\": 2.0"},
        {"v3_yarn_f32", "\"mscale_all_dim\": 1.0", "\"mscale_all_dim\": 1.5"},
        {"v3_yarn_f32", "\"routed_scaling_factor\": 2.5", "\"routed_scaling_factor\": 2.0"},
        {"v3_yarn_f32", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"},
        {"v3_yarn_f32", "\"topk_group\": 2", "\"topk_group\": 3"},
        {"v3_yarn_f32", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 3"},
        {"deepseek_v4_types_f32", "\"swiglu_limit\": 1.5", "\"swiglu_limit\": 2.5"},
        {"deepseek_v4_types_f32", "\"hc_sinkhorn_iters\": 3", "\"hc_sinkhorn_iters\": 4"},
        {"deepseek_v4_types_f32", "\"hc_eps\": 0.001", "\"hc_eps\": 0.002"},
        {"deepseek_v4_types_f32", "\"rope_theta\": 90000.0", "\"rope_theta\": 90001.0"},
        {"deepseek_v4_types_f32", "\"factor\": 8.0", "\"factor\": 9.0"},
        {"deepseek_v4_types_f32", "\"attention_factor\": 1.1", "\"attention_factor\": 1.2"},
        {"deepseek_v4_types_f32", "\"sliding_window\": 33", "\"sliding_window\": 32"},
    };
    static const int32_t few[] = {1, 2, 3, 4};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const golden_case *c = golden_case_find(cases[i].model);
        mf_engine *engine = open_at(c, scratch_copy(cases[i].model));
        size_t n_bytes;
        mf_session *s = golden_session(engine);
        eval(s, few, 4);
        unsigned char *bytes = save(s, &n_bytes);
        mf_session_free(&s);
        mf_engine_close(&engine);
        scratch_replace("config.json", cases[i].from, cases[i].to);
        engine = open_at(c, scratch_path("."));
        s = golden_session(engine);
        eval(s, few, 3);
        mf_error error = {0};
        CHECK_MSG(mf_snapshot_load(s, bytes, n_bytes, &error) == MF_ERR_UNSUPPORTED &&
                      strstr(error.message, "another model") != NULL,
                  "%s with %s: %s", cases[i].model, cases[i].to, error.message);
        free(bytes);
        mf_session_free(&s);
        mf_engine_close(&engine);
    }
    scratch_remove();
}

#define FIELD(name)                                                      \
    {                                                                    \
#name, offsetof(mf_hparams, name), sizeof((mf_hparams *)0)->name \
    }

/* Every number that the state of a token depends on is part of the key, though no two models of the
 * same weights and another such number may exist yet. */
static void check_key(void)
{
    static const struct {
        const char *name;
        size_t at, n_bytes;
    } fields[] = {FIELD(layer_kind[1]),
                  FIELD(is_dense[1]),
                  FIELD(window[1]),
                  FIELD(is_unrotated[1]),
                  FIELD(n_rot),
                  FIELD(rope.theta),
                  FIELD(rope.interleaved),
                  FIELD(rope.is_yarn),
                  FIELD(rope.is_llama3),
                  FIELD(rope.truncate),
                  FIELD(rope.factor),
                  FIELD(rope.n_original),
                  FIELD(rope.beta_fast),
                  FIELD(rope.beta_slow),
                  FIELD(rope.attention_factor),
                  FIELD(attention_scale),
                  FIELD(q_rank),
                  FIELD(kv_rank),
                  FIELD(nope_dim),
                  FIELD(value_head_dim),
                  FIELD(n_k_heads),
                  FIELD(n_v_heads),
                  FIELD(key_dim),
                  FIELD(value_dim),
                  FIELD(conv_width),
                  FIELD(dense_hidden),
                  FIELD(shared_hidden),
                  FIELD(shared_is_gated),
                  FIELD(router.is_sigmoid),
                  FIELD(router.has_bias),
                  FIELD(router.normalise),
                  FIELD(router.eps),
                  FIELD(router.scale),
                  FIELD(rms_eps)};
    mf_error error = {0};
    mf_snapshot_key key, other;
    mf_engine *engine = open_with(golden_case_find("mlx_4bit"), MF_KV_F32);
    REQUIRE_OK(mf_engine_snapshot_key(engine, &key, &error), &error);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        unsigned char *field = (unsigned char *)&engine->runner.h + fields[i].at;
        field[fields[i].n_bytes > 1 ? fields[i].n_bytes - 2 : 0] ^= 1;
        engine->has_snapshot_key = false;
        REQUIRE_OK(mf_engine_snapshot_key(engine, &other, &error), &error);
        CHECK_MSG(memcmp(key.fingerprint, other.fingerprint, sizeof key.fingerprint) != 0,
                  "%s is not in the key", fields[i].name);
        field[fields[i].n_bytes > 1 ? fields[i].n_bytes - 2 : 0] ^= 1;
    }
    engine->has_snapshot_key = false;
    REQUIRE_OK(mf_engine_snapshot_key(engine, &other, &error), &error);
    CHECK_BYTES(key.fingerprint, other.fingerprint, sizeof key.fingerprint);
    mf_engine_close(&engine);
}

/* Whose roundings a state has is the backend's to say, not its display name's: another backend's
 * are another key, and those of one that does not say are not stored. */
static uint32_t roundings;

static uint32_t say_roundings(const mf_backend *be)
{
    (void)be;
    return roundings;
}

/* A device's have a number that no other backend has, the same each time. */
static void check_device_roundings(const golden_case *c)
{
    mf_error error = {0};
    mf_snapshot_key keys[2];
    for (int i = 0; i < 2; i++) {
        mf_engine *engine = open_with(c, MF_KV_F32);
        REQUIRE_OK(mf_engine_snapshot_key(engine, &keys[i], &error), &error);
        mf_engine_close(&engine);
    }
    CHECK(keys[0].cpu_tier >= 0x80000000u);
    CHECK_U64(keys[0].cpu_tier, keys[1].cpu_tier);
    mf_engine_options options = golden_options(c);
    options.device = "cpu";
    mf_engine *cpu = golden_open(c, &options);
    REQUIRE_OK(mf_engine_snapshot_key(cpu, &keys[1], &error), &error);
    CHECK_U64(keys[1].cpu_tier, mf_kernels_get(MF_CPU_BEST)->tier);
    CHECK_BYTES(keys[0].fingerprint, keys[1].fingerprint, sizeof keys[0].fingerprint);
    mf_engine_close(&cpu);
}

/* A device's snapshot is loaded on the CPU, and the CPU's on the device; each goes on, with the
 * other's roundings in its past. */
static void check_from_to(mf_engine *from, mf_engine *to, const golden *g)
{
    mf_error error = {0};
    size_t n_bytes;
    double largest = 0.0, difference = 0.0;
    mf_session *s = golden_session(from), *t = golden_session(to);
    eval(s, g->tokens, 35);
    unsigned char *bytes = save(s, &n_bytes);
    REQUIRE_OK(mf_snapshot_load(t, bytes, n_bytes, &error), &error);
    CHECK_U64(mf_session_position(t), 35);
    check_same_logits(s, t, g, "on another device");
    eval(s, g->tokens + 35, g->n_tokens - 35);
    eval(t, g->tokens + 35, g->n_tokens - 35);
    const float *want = mf_session_logits(s), *got = mf_session_logits(t);
    for (uint32_t i = 0; i < g->n_vocab; i++) {
        largest = fmax(largest, fabs((double)want[i]));
        difference = fmax(difference, fabs((double)got[i] - want[i]));
    }
    CHECK_MSG(difference <= 2e-4 * largest, "differs by %g of %g", difference, largest);
    free(bytes);
    mf_session_free(&s);
    mf_session_free(&t);
}

static void check_two_backends(const golden_case *c)
{
    golden g;
    mf_engine_options options = golden_options(c);
    options.device = "cpu";
    golden_read(c, &g);
    mf_engine *device = open_with(c, MF_KV_F32), *cpu = golden_open(c, &options);
    check_from_to(device, cpu, &g);
    check_from_to(cpu, device, &g);
    mf_engine_close(&device);
    mf_engine_close(&cpu);
    golden_free(&g);
}

static void check_roundings(void)
{
    const golden_case *c = golden_case_find("v3_bf16");
    mf_error error = {0};
    mf_snapshot_key key;
    for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++) {
        if (mf_kernels_get(tier) == NULL)
            continue;
        mf_engine_options options = golden_options(c);
        options.cpu_tier = mf_cpu_tier_name(tier);
        options.device = "cpu";
        mf_engine *engine = golden_open(c, &options);
        REQUIRE_OK(mf_engine_snapshot_key(engine, &key, &error), &error);
        CHECK_U64(key.cpu_tier, tier);
        mf_engine_close(&engine);
    }
    static const uint32_t others[] = {4, 1000, 0};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        mf_engine *engine = open_with(c, MF_KV_F32);
        mf_backend *be = engine->runner.backend;
        const mf_backend_ops *real = be->ops;
        mf_backend_ops ops = *real;
        ops.rounding = say_roundings;
        roundings = others[i];
        be->ops = &ops;
        mf_status status = mf_engine_snapshot_key(engine, &key, &error);
        CHECK_STATUS(status, others[i] != 0 ? MF_OK : MF_ERR_UNSUPPORTED);
        CHECK(status != MF_OK || key.cpu_tier == others[i]);
        be->ops = real;
        mf_engine_close(&engine);
    }
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
    mf_session *s = golden_session(engine), *t = golden_session(engine);
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
        const size_t before = mf_session_position(t);
        mf_status status = mf_snapshot_load(t, bytes, n_bytes, &error);
        done = !failing_disarm(&f);
        CHECK(status == MF_OK || (status == MF_ERR_NO_MEMORY && !done)); /* devices try again */
        CHECK(mf_session_position(t) == (status == MF_OK ? 35u : before));
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
    static const char *const names[] = {"kimi_linear_bf16",
                                        "mlx_4bit",
                                        "next_bf16",
                                        "v3_bf16",
                                        "k2_mlx_4bit",
                                        "deepseek_v32_index_f32",
                                        "deepseek_v4_types_f32"};
    static const size_t positions[] = {0, 1, 2, 31, 32, 33};
    for (size_t i = golden_is_short() ? 2 : 0; i < (golden_is_short() ? 4 : 7); i++) {
        const golden_case *c = golden_case_find(names[i]);
        golden g;
        golden_read(c, &g);
        REQUIRE(g.n_tokens > 36);
        const bool has_q8 = i != 6; /* entries are not made of 8 bits */
        for (mf_kv_type kv = MF_KV_F32; kv <= (has_q8 ? MF_KV_Q8 : MF_KV_BF16); kv++) {
            mf_engine *one = open_with(c, kv), *two = open_with(c, kv);
            float *want = last_logits(one, &g);
            for (size_t k = golden_is_short() ? 5 : 0; k < sizeof positions / sizeof *positions;
                 k++)
                check_position(one, two, &g, positions[k], want, c->name);
            check_position(one, two, &g, g.n_tokens - 1, want, c->name);
            if (i >= 3) /* families that can be truncated at any token */
                check_without_logits(one, &g, want);
            if (i % 2 == 1 && kv == MF_KV_F32) {
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
    check_other_weights();
    check_other_config();
    check_key();
    check_roundings();
    if (GOLDEN_ON_DEVICE) {
        check_device_roundings(golden_case_find("v3_bf16"));
        check_two_backends(golden_case_find("v3_bf16"));
        check_two_backends(golden_case_find("next_bf16"));
    }
    CHECK_U64(mf_snapshot_bytes(NULL), 0);
    return test_result();
}
