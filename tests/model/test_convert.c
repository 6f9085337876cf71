/* SPDX-License-Identifier: MIT */
/* Checkpoints converted to the engine's own form: the same logits bit for bit as from every golden
 * case, by every tier; split over directories too; read back; and what is damaged is found. */
#include "golden.h"

#include "base/checksum.h"
#include "base/cpu.h"
#include "session/session.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64] = "/tmp/mf_convert_XXXXXX";

static void remove_all(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    REQUIRE(system(command) == 0);
}

/* A path below the scratch directory; static storage, valid until the next call but seven. */
static const char *below(const char *name)
{
    static char paths[8][160];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

/* The case's, or of what was made of it, which is no packed form any more. */
static mf_engine_options options_in(const char *dir, const golden_case *c)
{
    mf_engine_options options = golden_options(c);
    if (strcmp(dir, golden_path(c->name)) != 0)
        options.packed_expert_bits = 0;
    return options;
}

static float *logits_of(const char *dir, const golden_case *c, const golden *g, mf_cpu_tier tier)
{
    mf_engine_options options = options_in(dir, c);
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    float *out = malloc((size_t)g->n_tokens * g->n_vocab * sizeof *out);
    options.cpu_tier = mf_cpu_tier_name(tier);
    REQUIRE(out != NULL);
    REQUIRE_OK(mf_engine_open(dir, &options, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(golden_eval(session, g->tokens, g->n_tokens, g->n_vocab, out, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    return out;
}

static void check_same_logits(const golden_case *c, const golden *g, const char *a, const char *b)
{
    const size_t n_bytes = (size_t)g->n_tokens * g->n_vocab * sizeof(float);
    float *one = logits_of(a, c, g, MF_CPU_BEST), *other = logits_of(b, c, g, MF_CPU_BEST);
    CHECK(memcmp(one, other, n_bytes) == 0);
    free(one);
    free(other);
}

static void check_same(const golden_case *c, const golden *g, const char *dir)
{
    static const mf_cpu_tier tiers[] = {MF_CPU_SCALAR, MF_CPU_BEST};
    for (size_t i = 0; i < 2; i++) {
        float *want = logits_of(golden_path(c->name), c, g, tiers[i]);
        float *got = logits_of(dir, c, g, tiers[i]);
        CHECK_MSG(memcmp(got, want, (size_t)g->n_tokens * g->n_vocab * sizeof *got) == 0,
                  "%s/%s: converted, the logits differ (tier %d)", c->name, c->golden,
                  (int)tiers[i]);
        free(want);
        free(got);
    }
}

static mf_convert_options options_of(const golden_case *c)
{
    mf_convert_options options;
    mf_convert_options_default(&options);
    options.packed_expert_bits = c->packed_bits;
    return options;
}

/* What a model has for text, its conversion has. */
static void check_texts(const char *from, const char *to)
{
    mf_tokenizer *one = NULL, *other = NULL;
    mf_error error = {0};
    CHECK_STATUS(mf_tokenizer_open(from, NULL, &one, &error),
                 mf_tokenizer_open(to, NULL, &other, &error));
    mf_tokenizer_free(&one);
    mf_tokenizer_free(&other);
}

static void check_case(const golden_case *c, uint32_t number)
{
    const mf_convert_options options = options_of(c);
    mf_convert_result result;
    mf_model_info from, to;
    mf_error error = {0};
    golden g;
    char name[32];
    snprintf(name, sizeof name, "case_%u", number);
    const char *dir = below(name);
    mf_engine_options before = golden_options(c), after = options_in(dir, c);
    golden_read(c, &g);
    REQUIRE_OK(mf_convert(golden_path(c->name), dir, &options, &result, &error), &error);
    REQUIRE_OK(mf_convert_verify(dir, NULL, &error), &error);
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &before, &from, &error), &error);
    REQUIRE_OK(mf_model_inspect(dir, &after, &to, &error), &error);
    CHECK(strcmp(to.form, "moeflux") == 0 && strcmp(to.family, from.family) == 0);
    CHECK(to.n_parameters == from.n_parameters && to.expert_bits == from.expert_bits);
    const uint32_t n_least = from.n_moe_layers != 0; /* a dense model has none to read */
    CHECK(result.n_layers == from.n_moe_layers && result.reads_per_expert == n_least);
    CHECK(result.n_layers_kept == 0 && result.source_reads_per_expert >= n_least);
    check_same(c, &g, dir);
    check_texts(golden_path(c->name), dir);
    golden_free(&g);
}

/* Over three directories, by shares. */
static void check_split(const char *name)
{
    const golden_case *c = golden_case_find(name);
    const char *drives[] = {below("split_1"), below("split_2")};
    const double shares[] = {2, 1, 1};
    mf_convert_options options = options_of(c);
    mf_convert_result result;
    mf_error error = {0};
    golden g;
    struct stat st;
    options.drives = drives;
    options.drive_shares = shares;
    options.n_drives = 2;
    golden_read(c, &g);
    REQUIRE_OK(mf_convert(golden_path(c->name), below("split"), &options, &result, &error), &error);
    CHECK(stat(below("split/drive_1/layer_00.bin"), &st) == 0 ||
          stat(below("split/drive_1/layer_01.bin"), &st) == 0);
    REQUIRE_OK(mf_convert_verify(below("split"), NULL, &error), &error);
    check_same(c, &g, below("split"));
    golden_free(&g);
    remove_all();
    REQUIRE(mkdir(root, 0700) == 0);
}

/* The root of the mean square of what the logits are off by, as a share of their own. */
static double off_by(const golden_case *c, const golden *g, const char *dir)
{
    float *want = logits_of(golden_path(c->name), c, g, MF_CPU_SCALAR);
    float *got = logits_of(dir, c, g, MF_CPU_SCALAR);
    double error = 0, signal = 0;
    for (size_t i = 0; i < (size_t)g->n_tokens * g->n_vocab; i++) {
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        signal += (double)want[i] * (double)want[i];
    }
    free(want);
    free(got);
    return sqrt(error / signal);
}

/* Fewer bits, more error, in the weights and in the logits, from every form; and what has the bits
 * already stays as it is. */
static void check_quantised(const char *name)
{
    static const uint32_t bits[] = {8, 6, 5, 4, 3, 2};
    const golden_case *c = golden_case_find(name);
    double weights_off = 0, logits_off = 0;
    mf_error error = {0};
    golden g;
    golden_read(c, &g);
    for (size_t i = 0; i < 6; i++) {
        mf_convert_options options = options_of(c);
        mf_convert_result result;
        mf_model_info info;
        char dir[32];
        snprintf(dir, sizeof dir, "%s_%u", name, bits[i]);
        options.bits = bits[i];
        options.group = 32;
        REQUIRE_OK(mf_convert(golden_path(name), below(dir), &options, &result, &error), &error);
        REQUIRE_OK(mf_convert_verify(below(dir), NULL, &error), &error);
        REQUIRE_OK(mf_model_inspect(below(dir), NULL, &info, &error), &error);
        CHECK(info.expert_bits == bits[i]);
        const double off = off_by(c, &g, below(dir));
        CHECK_MSG(result.relative_error > weights_off && off > logits_off,
                  "%s, %u bits: weights off by %g, logits by %g", name, bits[i],
                  result.relative_error, off);
        weights_off = result.relative_error;
        logits_off = off;
        CHECK_MSG(bits[i] != 8 || (weights_off < 0.005 && off < 0.02), "%s: 8 bits: %g, %g", name,
                  weights_off, off);
        if (bits[i] == 3) { /* once more: nothing to do */
            options.packed_expert_bits = 0;
            REQUIRE_OK(mf_convert(below(dir), below("again"), &options, &result, &error), &error);
            CHECK(result.relative_error == 0);
            check_same_logits(c, &g, below(dir), below("again"));
        }
    }
    golden_free(&g);
    remove_all();
    REQUIRE(mkdir(root, 0700) == 0);
}

/* Layers of bits of their own. */
static void check_rules(void)
{
    const mf_convert_rule rules[] = {{1, 1, 6}, {2, 2, 0}};
    mf_convert_options options;
    mf_convert_result all, some;
    mf_error error = {0};
    mf_convert_options_default(&options);
    options.is_dry_run = 1;
    options.bits = 3;
    options.group = 32;
    const char *from = golden_path("mlx_4bit");
    REQUIRE_OK(mf_convert(from, below("x"), &options, &all, &error), &error);
    options.rules = rules;
    options.n_rules = 2;
    REQUIRE_OK(mf_convert(from, below("x"), &options, &some, &error), &error);
    const uint64_t one = all.expert_bytes / 3; /* 4 bits a weight, with its scales */
    CHECK(all.n_layers == 3 && one * 3 == all.expert_bytes);
    CHECK(some.expert_bytes == one + one / 4 * 7 + some.source_expert_bytes / 3);
    options.group = 128;
    CHECK_STATUS(mf_convert(from, below("x"), &options, &some, &error), MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "groups of 128");
    options.group = 0;
    options.bits = 7;
    CHECK_STATUS(mf_convert(from, below("x"), &options, &some, &error), MF_ERR_ARGUMENT);
}

/* A trace of one pass of the case's tokens. */
static mf_routing *record(const golden_case *c, const golden *g)
{
    mf_engine_options options = golden_options(c);
    mf_engine *engine = golden_open(c, &options);
    mf_session *session = NULL;
    mf_routing *routing = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, below("trace"), &error), &error);
    REQUIRE_OK(mf_session_eval(session, g->tokens, g->n_tokens, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, NULL, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    REQUIRE_OK(mf_routing_open(below("trace"), NULL, &routing, &error), &error);
    return routing;
}

static void check_variant(const golden_case *c, const golden *g, uint32_t chunk, const float *want)
{
    mf_engine_options options = golden_options(c);
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    const size_t n = (size_t)g->n_tokens * g->n_vocab;
    float *got = malloc(n * sizeof *got);
    options.n_chunk_tokens = chunk;
    options.n_threads = 1 + chunk % 2;
    options.expert_cache_bytes = chunk == 8 ? MF_EXPERT_CACHE_AUTO : 0;
    REQUIRE(got != NULL);
    REQUIRE_OK(mf_engine_open(below("hot"), &options, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(golden_eval(session, g->tokens, g->n_tokens, g->n_vocab, got, &error), &error);
    CHECK_MSG(memcmp(got, want, n * sizeof *got) == 0, "%s: other logits with chunks of %u",
              c->name, chunk);
    mf_session_free(&session);
    mf_engine_close(&engine);
    free(got);
}

/* What has several forms in a layer is converted like any other: as it is, over drives, it has the
 * same bits; all of one form is one that its cold experts have, or another. */
static void check_hot_again(const golden_case *c, const golden *g, const mf_convert_result *hot,
                            uint64_t least, const mf_routing *routing, const float *base)
{
    const size_t n = (size_t)g->n_tokens * g->n_vocab * sizeof *base;
    const char *const drives[] = {below("other")};
    mf_convert_options options = options_of(c);
    mf_convert_result result;
    mf_error error = {0};
    options.drives = drives;
    options.n_drives = 1;
    REQUIRE_OK(mf_convert(below("hot"), below("again"), &options, &result, &error), &error);
    CHECK(result.expert_bytes == hot->expert_bytes &&
          result.source_expert_bytes == result.expert_bytes);
    REQUIRE_OK(mf_convert_verify(below("again"), NULL, &error), &error);
    float *again = logits_of(below("again"), c, g, MF_CPU_BEST);
    CHECK_MSG(memcmp(again, base, n) == 0, "%s: converted again, the logits differ", c->name);
    free(again);
    options = options_of(c);
    options.group = 32;
    options.bits = 2;
    REQUIRE_OK(mf_convert(below("hot"), below("even"), &options, &result, &error), &error);
    CHECK(result.expert_bytes == least && result.source_expert_bytes == hot->expert_bytes);
    REQUIRE_OK(mf_convert_verify(below("even"), NULL, &error), &error);
    const double even = off_by(c, g, below("even"));
    CHECK_MSG(even > 0, "%s: off by %g", c->name, even);
    options.bits = 0;
    options.routing = routing;
    options.hot_bits = 4;
    options.hot_share = 0.25; /* of those with many bits: a third form */
    REQUIRE_OK(mf_convert(below("hot"), below("three"), &options, &result, &error), &error);
    CHECK(result.expert_bytes > least && result.expert_bytes < hot->expert_bytes);
    REQUIRE_OK(mf_convert_verify(below("three"), NULL, &error), &error);
    const double three = off_by(c, g, below("three"));
    CHECK_MSG(three > 0 && three < even, "%s: off by %g, all of 2 bits by %g", c->name, three,
              even);
}

/* Experts of two forms in each layer: half of them, those that are used most, with more bits, take
 * more than half of the error away; and the bits are the same for every cache, chunk and number of
 * threads. */
static void check_hot(const char *name)
{
    const golden_case *c = golden_case_find(name);
    mf_convert_options options = options_of(c);
    mf_convert_result result;
    mf_error error = {0};
    golden g;
    golden_read(c, &g);
    mf_routing *routing = record(c, &g);
    options.group = 32;
    options.bits = 2;
    REQUIRE_OK(mf_convert(golden_path(name), below("cold"), &options, &result, &error), &error);
    const uint64_t least = result.expert_bytes;
    options.routing = routing;
    options.hot_bits = 8;
    options.hot_share = 0.5;
    REQUIRE_OK(mf_convert(golden_path(name), below("hot"), &options, &result, &error), &error);
    REQUIRE_OK(mf_convert_verify(below("hot"), NULL, &error), &error);
    CHECK(result.expert_bytes == 2 * least); /* 9 bits and 3, of each half */
    const double cold = off_by(c, &g, below("cold")), hot = off_by(c, &g, below("hot"));
    CHECK_MSG(hot > 0 && hot < 0.8 * cold, "%s: off by %g, all of 2 bits by %g", name, hot, cold);
    float *base = logits_of(below("hot"), c, &g, MF_CPU_BEST);
    check_hot_again(c, &g, &result, least, routing, base);
    for (uint32_t chunk = 1; chunk <= 64; chunk *= 8)
        check_variant(c, &g, chunk, base);
    free(base);
    mf_routing_close(&routing);
    golden_free(&g);
    remove_all();
    REQUIRE(mkdir(root, 0700) == 0);
}

/* What the experts are given over the case's tokens, in chunks of so many. */
static double *input_squares(const golden_case *c, const golden *g, uint32_t chunk, uint64_t *n)
{
    mf_engine_options options = golden_options(c);
    mf_model_info info;
    mf_session *session = NULL;
    mf_error error = {0};
    options.n_chunk_tokens = chunk;
    mf_engine *engine = golden_open(c, &options);
    mf_engine_info(engine, &info);
    *n = (uint64_t)info.n_moe_layers * info.hidden_size;
    double *sums = calloc(*n, sizeof *sums);
    REQUIRE(sums != NULL);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_engine_sum_inputs(engine, sums, &error), &error);
    REQUIRE_OK(mf_session_eval(session, g->tokens, g->n_tokens - 1, &error), &error);
    REQUIRE_OK(mf_engine_sum_inputs(engine, NULL, &error), &error);
    const double before = sums[0]; /* no more is added */
    REQUIRE_OK(mf_session_eval(session, g->tokens + g->n_tokens - 1, 1, &error), &error);
    CHECK(sums[0] == before);
    mf_session_free(&session);
    mf_engine_close(&engine);
    return sums;
}

/* Weighed by what comes through the columns, the logits are off by less; the same sums whatever
 * the chunks. */
static void check_calibrated(const char *name)
{
    const golden_case *c = golden_case_find(name);
    mf_convert_options options = options_of(c);
    mf_convert_result result;
    mf_error error = {0};
    uint64_t n, n_other;
    golden g;
    golden_read(c, &g);
    double *sums = input_squares(c, &g, 512, &n), *others = input_squares(c, &g, 1, &n_other);
    REQUIRE(n == n_other);
    for (uint64_t i = 0; i < n; i++)
        CHECK_MSG(sums[i] > 0 && fabs(sums[i] - others[i]) <= 1e-9 * sums[i], "column %d", (int)i);
    options.bits = 2;
    options.group = 32;
    REQUIRE_OK(mf_convert(golden_path(name), below("plain"), &options, &result, &error), &error);
    for (uint64_t i = 0; i < n; i++) /* so that it shows */
        sums[i] = i % 2 == 0 ? sums[i] : 0;
    options.input_squares = sums;
    options.n_input_squares = n - 1;
    CHECK_STATUS(mf_convert(golden_path(name), below("other"), &options, &result, &error),
                 MF_ERR_ARGUMENT);
    options.n_input_squares = n;
    REQUIRE_OK(mf_convert(golden_path(name), below("other"), &options, &result, &error), &error);
    options.input_squares = others;
    REQUIRE_OK(mf_convert(golden_path(name), below("weighed"), &options, &result, &error), &error);
    const double plain = off_by(c, &g, below("plain")), other = off_by(c, &g, below("other"));
    const double weighed = off_by(c, &g, below("weighed"));
    CHECK_MSG(weighed < 1.05 * plain && plain < other, "%s: off by %g, weighed %g, half %g", name,
              plain, weighed, other);
    free(sums);
    free(others);
    golden_free(&g);
    remove_all();
    REQUIRE(mkdir(root, 0700) == 0);
}

/* ---- a layer that proposes tokens goes with the others ---- */

typedef struct proposals {
    uint64_t sum;
    uint32_t n;
} proposals;

static void add_proposal(void *ctx, const mf_session *session, uint32_t round, const float *logits)
{
    proposals *p = ctx;
    p->sum =
        mf_checksum_of(logits, session->engine->runner.h.n_vocab * sizeof *logits, p->sum + round);
    p->n++;
}

static proposals proposals_of(const char *dir)
{
    mf_engine_options options;
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    proposals p = {0};
    mf_engine_options_default(&options);
    options.expert_cache_bytes = 0;
    options.n_draft_tokens = 2;
    options.draft = MF_DRAFT_ALWAYS;
    REQUIRE_OK(mf_engine_open(dir, &options, &engine, &error), &error);
    engine->draft_watch = add_proposal;
    engine->draft_watch_ctx = &p;
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    for (int32_t i = 0; i < 24; i++) {
        const int32_t token = i * 37 % 128;
        REQUIRE_OK(mf_session_eval(session, &token, 1, &error), &error);
    }
    mf_session_free(&session);
    mf_engine_close(&engine);
    return p;
}

static mf_routing *record_main_layers(const char *dir, const char *path)
{
    mf_engine_options options;
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_routing *routing = NULL;
    mf_error error = {0};
    static const int32_t tokens[] = {3, 1, 4, 1, 5, 9, 2, 6};
    mf_engine_options_default(&options);
    REQUIRE_OK(mf_engine_open(dir, &options, &engine, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, path, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_session_eval(session, tokens, 8, &error), &error);
    REQUIRE_OK(mf_engine_record_routing(engine, NULL, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    REQUIRE_OK(mf_routing_open(path, NULL, &routing, &error), &error);
    return routing;
}

static void check_draft(const char *name)
{
    mf_convert_options options;
    mf_convert_result result;
    mf_model_info info;
    mf_error error = {0};
    char from[256], folder[64];
    snprintf(from, sizeof from, "%s", golden_path(name));
    snprintf(folder, sizeof folder, "%s.made", name);
    const char *dir = below(folder), *trace = below("draft.trace");
    mf_routing *routing = record_main_layers(from, trace);
    mf_convert_options_default(&options);
    options.routing = routing;
    REQUIRE_OK(mf_convert(from, dir, &options, &result, &error), &error);
    mf_routing_close(&routing);
    REQUIRE_OK(mf_convert_verify(dir, NULL, &error), &error);
    REQUIRE_OK(mf_model_inspect(dir, NULL, &info, &error), &error);
    CHECK_MSG(info.n_skipped_layers == 1 && result.n_layers == info.n_moe_layers + 1,
              "%s: %u skipped, %u of %u layers", name, info.n_skipped_layers, result.n_layers,
              info.n_moe_layers);
    const proposals want = proposals_of(from), got = proposals_of(dir);
    CHECK_MSG(want.n > 20 && got.n == want.n && got.sum == want.sum,
              "%s: %u and %u proposals, or others", name, want.n, got.n);
}

int main(int argc, char **argv)
{
    REQUIRE(mkdtemp(root) != NULL);
    for (size_t i = 0; i < n_golden_cases; i++)
        if (golden_is_asked_for(&golden_cases[i], argc, argv))
            check_case(&golden_cases[i], (uint32_t)i);
    check_split("mlx_4bit");
    check_split("v3_fp8_bf16_scales");
    check_quantised("v3_fp8_bf16_scales");
    check_quantised("mlx_8bit_tied");
    check_quantised("gpt_oss_mxfp4");
    check_rules();
    check_calibrated("mlx_8bit_tied");
    check_calibrated("v3_fp8_bf16_scales");
    check_hot("mlx_8bit_tied");
    check_hot("v3_fp8_bf16_scales");
    check_draft("draft_next_bf16");
    check_draft("draft_v3_bf16");
    check_draft("draft_glm4_gguf");
    check_draft("draft_qwen35_mlx_4bit");
    check_draft("draft_v4_bf16");
    remove_all();
    return test_result();
}
