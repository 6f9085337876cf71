/* SPDX-License-Identifier: MIT */
/*
 * The same bits, byte for byte, whatever the chunk size, the threads, the I/O engine, the expert
 * cache, the split of the tokens over calls, and the stored form of the same weights.
 */
#include "golden.h"

#include "base/cpu.h"

typedef enum cache_size { CACHE_LEAST, CACHE_QUARTER, CACHE_ALL } cache_size;
static const char *const cache_names[] = {"one layer's slots", "a quarter", "everything"};

typedef struct variant {
    uint32_t chunk, threads, tier;
    mf_io_kind io;
    cache_size cache;
} variant;

static bool have_uring;

static mf_engine_options variant_options(const golden_case *c, const variant *v)
{
    mf_engine_options options = golden_options(c);
    options.n_chunk_tokens = v->chunk;
    options.n_threads = v->threads;
    options.cpu_tier = mf_cpu_tier_name(v->tier);
    options.io = v->io;
    mf_model_info info;
    mf_error error = {0};
    options.expert_cache_bytes = 0;
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    uint64_t all_bytes = (uint64_t)info.n_layers * info.n_experts * info.slot_bytes;
    if (v->cache == CACHE_QUARTER)
        options.expert_cache_bytes = all_bytes / 4;
    else if (v->cache == CACHE_ALL)
        options.expert_cache_bytes = all_bytes;
    return options;
}

static float *run_variant(const golden_case *c, const golden *g, const variant *v)
{
    mf_engine_options options = variant_options(c, v);
    mf_error error = {0};
    float *logits = golden_run(c, g, &options, &error);
    CHECK_MSG(logits != NULL, "%s: %s", c->name, error.message);
    return logits;
}

static void check_same(const golden_case *c, const golden *g, const variant *v, const float *base)
{
    float *logits = run_variant(c, g, v);
    if (logits == NULL)
        return;
    size_t n = (size_t)g->n_tokens * g->n_vocab, at = 0;
    while (at < n && memcmp(&logits[at], &base[at], sizeof(float)) == 0)
        at++;
    CHECK_MSG(at == n,
              "%s/%s: chunk %u, %u threads, tier %u, %s, cache of %s: logits differ first at "
              "position %zu, token %zu",
              c->name, c->golden, v->chunk, v->threads, v->tier,
              v->io == MF_IO_URING ? "io_uring" : "pool", cache_names[v->cache], at / g->n_vocab,
              at % g->n_vocab);
    free(logits);
}

static const uint32_t chunks[] = {1, 7, 64, 512};
static const mf_io_kind io_kinds[] = {MF_IO_POOL, MF_IO_URING};

/* Every chunk with every cache, and each of these with every number of threads and way to read, or,
 * where it is to be short, with one: the four in turn. */
static void check_grid(const golden_case *c, const golden *g, uint32_t tier, bool is_short)
{
    const uint32_t n_ways = have_uring ? 4 : 2;
    variant plain = {512, 1, tier, MF_IO_POOL, CACHE_ALL};
    float *base = run_variant(c, g, &plain);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t cache = CACHE_LEAST; cache <= CACHE_ALL; cache++)
            for (uint32_t way = 0; way < n_ways; way++) {
                variant v = {chunks[i], 1 + way % 2, tier, io_kinds[way / 2], (cache_size)cache};
                if (!is_short || way == (i + cache) % n_ways)
                    check_same(c, g, &v, base);
            }
    free(base);
}

/* The extremes only. */
static void check_corners(const golden_case *c, const golden *g, uint32_t tier)
{
    variant plain = {512, 1, tier, MF_IO_POOL, CACHE_ALL};
    float *base = run_variant(c, g, &plain);
    mf_io_kind other = have_uring ? MF_IO_URING : MF_IO_POOL;
    const variant corners[] = {
        {1, 2, tier, other, CACHE_LEAST},
        {7, 2, tier, MF_IO_POOL, CACHE_QUARTER},
        {64, 2, tier, other, CACHE_ALL},
        {7, 3, tier, other, CACHE_LEAST},
    };
    for (size_t i = 0; i < sizeof corners / sizeof *corners; i++)
        check_same(c, g, &corners[i], base);
    free(base);
}

/* The tokens in several calls, on a session that was used and cleared before. */
static void check_splits(const golden_case *c, const golden *g)
{
    static const uint32_t splits[] = {1, 30, 1, 1, 17, 3};
    variant plain = {16, 2, 0, MF_IO_AUTO, CACHE_QUARTER};
    float *base = run_variant(c, g, &plain);
    mf_engine_options options = variant_options(c, &plain);
    mf_engine *engine = golden_open(c, &options);
    mf_session *session = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    CHECK(mf_session_logits(session) == NULL);
    REQUIRE_OK(mf_session_eval(session, g->tokens + 5, 9, &error), &error);
    mf_session_clear(session);
    CHECK(mf_session_position(session) == 0 && mf_session_logits(session) == NULL);
    size_t done = 0;
    for (size_t i = 0; done < g->n_tokens; i++) {
        size_t n = i < sizeof splits / sizeof *splits ? splits[i] : g->n_tokens - done;
        REQUIRE_OK(mf_session_eval(session, g->tokens + done, n, &error), &error);
        done += n;
        CHECK_U64(mf_session_position(session), done);
        const float *want = base + (done - 1) * g->n_vocab;
        CHECK_MSG(memcmp(mf_session_logits(session), want, g->n_vocab * sizeof(float)) == 0,
                  "%s: logits differ after %zu tokens in several calls", c->name, done);
    }
    mf_session_free(&session);
    mf_engine_close(&engine);
    free(base);
}

/* Two stored forms of the same weights. */
static void check_forms(const golden_case *one, const golden_case *two)
{
    golden g;
    golden_read(one, &g);
    for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++) {
        if (!golden_has_tier(tier))
            continue;
        variant v = {7, 2, tier, MF_IO_AUTO, CACHE_LEAST};
        float *a = run_variant(one, &g, &v), *b = run_variant(two, &g, &v);
        size_t n_bytes = (size_t)g.n_tokens * g.n_vocab * sizeof(float);
        CHECK_MSG(a != NULL && b != NULL && memcmp(a, b, n_bytes) == 0, "%s and %s differ, tier %u",
                  one->name, two->name, tier);
        free(a);
        free(b);
    }
    golden_free(&g);
}

static void probe_uring(void)
{
    const golden_case *c = golden_case_find("mlx_4bit");
    mf_engine_options options = golden_options(c);
    options.io = MF_IO_URING;
    mf_engine *engine = NULL;
    have_uring = mf_engine_open(golden_path(c->name), &options, &engine, NULL) == MF_OK;
    mf_engine_close(&engine);
    if (!have_uring)
        fprintf(stderr, "no io_uring on this machine: its part is skipped\n");
}

/* On a device, which may be one in software: of each kind of family and of weights one case. */
static bool is_left_out(const golden_case *c)
{
    static const char *const few[] = {"mlx_4bit", "next_bf16", "v3_fp8"};
    static const char *const more[] = {
        "hf_bf16",     "mlx_mixed_3_6", "mlx_10_of_512",     "packed",
        "k2_mlx_4bit", "v2_lite_bf16",  "v3_mlx_4bit_split", "kimi_linear_bf16"};
    if (!GOLDEN_ON_DEVICE)
        return false;
    for (size_t i = 0; i < sizeof few / sizeof *few; i++)
        if (strcmp(c->name, few[i]) == 0)
            return c->n_experts_per_token != 0;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (strcmp(c->name, more[i]) == 0)
            return golden_is_short() || c->packed_bits != 0;
    return true;
}

/* The cases asked for by name, or all. */
int main(int argc, char **argv)
{
    static const char *const in_full[] = {"hf_bf16", "next_bf16", "mlx_4bit", "mlx_mixed_3_6",
                                          "packed",  "v3_bf16",   "v3_fp8",   "v3_mlx_4bit_split"};
    probe_uring();
    for (size_t i = 0; i < n_golden_cases; i++) {
        const golden_case *c = &golden_cases[i];
        golden g;
        if (is_left_out(c) || !golden_is_asked_for(c, argc, argv))
            continue;
        golden_read(c, &g);
        if (g.has_few) { /* long: other cases say the same in less time */
            golden_free(&g);
            continue;
        }
        bool full = false;
        for (size_t k = 0; !GOLDEN_ON_DEVICE && k < sizeof in_full / sizeof *in_full; k++)
            full = full || (strcmp(c->name, in_full[k]) == 0 && c->n_experts_per_token == 0);
        if (full)
            check_grid(c, &g, 0, argc > 1);
        for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++)
            if (golden_has_tier(tier))
                check_corners(c, &g, tier);
        check_splits(c, &g);
        golden_free(&g);
    }
    static const golden_case packed_2bit = {"packed", "golden_2bit.bin", 2, 0, 0};
    check_forms(golden_case_find("mlx_4bit"), golden_case_find("packed"));
    if (golden_is_short())
        return test_result();
    check_forms(golden_case_find("packed_no_config"), &packed_2bit);
    check_forms(golden_case_find("v3_mlx_4bit_whole"), golden_case_find("v3_packed"));
    check_forms(golden_case_find("v3_packed_no_config"), golden_case_find("v3_packed"));
    return test_result();
}
