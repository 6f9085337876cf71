/* SPDX-License-Identifier: MIT */
/*
 * Where time goes: stages add up to the time that evaluations took, layers to stages, requests to
 * what is counted; a timeline is JSON whose events lie within it; neither changes a bit, and what
 * cannot be written is told.
 */
#include "golden.h"

#include "base/clock.h"
#include "failing_alloc.h"
#include "io/io_fault.h"
#include "session/engine.h"
#include "session/session.h"

#include <unistd.h>
#include <yyjson.h>

#define N_TOKENS 24u

typedef struct opened {
    golden g;
    mf_io_fault drive; /* no read is there before it is waited for: a clock does not decide it */
    mf_engine *engine;
    mf_session *session;
    mf_model_info info;
} opened;

static void open_case(opened *o, const char *name, const char *timeline)
{
    const golden_case *c = golden_case_find(name);
    mf_engine_options options = golden_options(c);
    mf_error error = {0};
    *o = (opened){.drive = {.inner = &mf_io_engine_pool, .seed = 1, .hold_chance = 1000}};
    const mf_engine_hooks hooks = {.io_engine = &mf_io_engine_fault, .io_arg = &o->drive};
    golden_read(c, &o->g);
    options.expert_cache_bytes = 0;
    options.n_threads = 2;
    options.timeline = timeline;
    REQUIRE_OK(mf_engine_open_with(golden_path(name), &options, &hooks, &o->engine, &error),
               &error);
    mf_engine_info(o->engine, &o->info);
    REQUIRE_OK(mf_session_create(o->engine, &o->session, &error), &error);
}

static void close_case(opened *o)
{
    mf_session_free(&o->session);
    mf_engine_close(&o->engine);
    golden_free(&o->g);
}

/* A chunk and then single tokens; the last logits to be freed. */
static float *evaluate(opened *o)
{
    mf_error error = {0};
    const size_t n = o->g.n_vocab;
    float *logits = malloc(n * sizeof *logits);
    REQUIRE(logits != NULL);
    mf_session_clear(o->session);
    REQUIRE_OK(mf_session_eval(o->session, o->g.tokens, N_TOKENS / 2, &error), &error);
    for (uint32_t i = N_TOKENS / 2; i < N_TOKENS; i++)
        REQUIRE_OK(mf_session_eval(o->session, o->g.tokens + i, 1, &error), &error);
    memcpy(logits, mf_session_logits(o->session), n * sizeof *logits);
    return logits;
}

static double stages_of(const mf_stats *s)
{
    uint64_t us = 0;
    for (int i = 0; i < MF_STAGES; i++)
        us += s->stage_us[i];
    return 1e-6 * (double)us;
}

static void check_layers(opened *o, const mf_stats *stats, double all)
{
    mf_error error = {0};
    mf_layer_profile l;
    uint64_t n_requests = 0, n_hits = 0, n_hints = 0;
    double seconds = 0;
    for (uint32_t i = 0; i <= o->info.n_layers; i++) {
        REQUIRE_OK(mf_engine_layer_profile(o->engine, i, &l, &error), &error);
        for (int s = 0; s < MF_STAGES; s++)
            seconds += l.seconds[s];
        n_requests += l.n_requests;
        n_hits += l.n_hits;
        n_hints += l.n_hints;
        CHECK(l.n_repeated <= l.n_requests && l.n_experts_used <= o->info.n_experts);
        CHECK(l.most_used_share >= 0 && l.most_used_share <= 1);
        CHECK((l.n_requests > 0) == (l.n_experts_used > 0));
        CHECK(l.n_hints_useful + l.n_hints_late + l.n_hints_wasted <= l.n_hints);
        CHECK(i == o->info.n_layers || l.seconds[MF_STAGE_ATTENTION] > 0);
    }
    CHECK_U64(n_requests, stats->n_expert_hits + stats->n_expert_misses);
    CHECK_U64(n_hits, stats->n_expert_hits);
    CHECK_U64(n_hints, stats->n_hints);
    CHECK_MSG(seconds > all - 1e-4 && seconds < all + 1e-4, "layers %f, stages %f", seconds, all);
    CHECK_STATUS(mf_engine_layer_profile(o->engine, o->info.n_layers + 1, &l, &error),
                 MF_ERR_ARGUMENT);
}

static void test_stages(const char *name)
{
    opened o;
    open_case(&o, name, NULL);
    mf_error error = {0};
    mf_layer_profile l;
    mf_stats stats;
    float *plain = evaluate(&o);
    mf_engine_stats(o.engine, &stats);
    CHECK(stages_of(&stats) == 0);
    CHECK_STATUS(mf_engine_layer_profile(o.engine, 0, &l, &error), MF_ERR_STATE);
    REQUIRE_OK(mf_engine_profile(o.engine, 1, &error), &error);
    mf_engine_stats_reset(o.engine);
    const uint64_t began_us = mf_now_us();
    float *profiled = evaluate(&o);
    const double took = 1e-6 * (double)(mf_now_us() - began_us);
    mf_engine_stats(o.engine, &stats);
    const double all = stages_of(&stats);
    CHECK_MSG(all > 0 && all <= took + 1e-3, "stages took %f s of %f", all, took);
    CHECK(stats.stage_us[MF_STAGE_ATTENTION] > 0 && stats.stage_us[MF_STAGE_EXPERTS] > 0);
    /* each wait is counted in whole microseconds, and no expert is waited for twice */
    CHECK(stats.stage_us[MF_STAGE_WAITING] <= stats.wait_us + stats.n_expert_misses);
    check_layers(&o, &stats, all);
    CHECK(memcmp(plain, profiled, o.g.n_vocab * sizeof *plain) == 0);
    REQUIRE_OK(mf_engine_profile(o.engine, 0, &error), &error);
    mf_engine_stats(o.engine, &stats);
    CHECK(stages_of(&stats) == 0 && o.engine->profile == NULL && o.engine->runner.profile == NULL);
    free(plain);
    free(profiled);
    close_case(&o);
}

/* ------------------------------------------------------------------------------- timelines -- */

typedef struct seen {
    uint64_t n_passes, n_waits, n_reads, n_experts, n_others;
    int64_t n_open; /* flights */
    double first, last;
} seen;

static bool is_named(yyjson_val *event, const char *name)
{
    return yyjson_equals_str(yyjson_obj_get(event, "name"), name);
}

static void take_event(seen *s, yyjson_val *event)
{
    const char *kind = yyjson_get_str(yyjson_obj_get(event, "ph"));
    const double at = yyjson_get_num(yyjson_obj_get(event, "ts"));
    REQUIRE(kind != NULL);
    CHECK(yyjson_is_num(yyjson_obj_get(event, "pid")));
    if (*kind == 'M')
        return;
    CHECK(*kind == 'X' || *kind == 'b' || *kind == 'e');
    s->n_open += *kind == 'b' ? 1 : *kind == 'e' ? -1 : 0;
    s->n_passes += is_named(event, "pass");
    s->n_waits += is_named(event, "waiting");
    s->n_reads += *kind == 'b' && is_named(event, "read");
    s->n_experts +=
        *kind == 'b' && (is_named(event, "expert") || is_named(event, "expert foreseen"));
    s->first = s->first == 0 || at < s->first ? at : s->first;
    s->last = at > s->last ? at : s->last;
}

static seen read_timeline(const char *path)
{
    seen s = {0};
    size_t n_bytes, i, n;
    yyjson_val *event;
    unsigned char *bytes = read_file(path, &n_bytes);
    yyjson_doc *doc = yyjson_read((const char *)bytes, n_bytes, 0);
    REQUIRE(doc != NULL && yyjson_is_arr(yyjson_doc_get_root(doc)));
    yyjson_arr_foreach(yyjson_doc_get_root(doc), i, n, event)
    {
        take_event(&s, event);
    }
    yyjson_doc_free(doc);
    free(bytes);
    return s;
}

static void test_timeline(const char *name)
{
    char dir[] = "/tmp/mf_timeline_XXXXXX";
    char path[64];
    mf_error error = {0};
    mf_stats stats;
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/timeline.json", dir);
    opened plain, o;
    open_case(&plain, name, NULL);
    open_case(&o, name, path);
    float *expected = evaluate(&plain);
    const double began = (double)mf_now_us();
    float *got = evaluate(&o);
    CHECK(memcmp(expected, got, o.g.n_vocab * sizeof *got) == 0);
    mf_engine_stats(o.engine, &stats);
    CHECK(stages_of(&stats) == 0); /* nobody has asked for them */
    REQUIRE_OK(mf_engine_record_timeline(o.engine, NULL, &error), &error);
    CHECK(o.engine->timeline == NULL && o.engine->profile == NULL);
    const seen s = read_timeline(path);
    CHECK_U64(s.n_passes, N_TOKENS / 2 + 1);
    CHECK_U64(s.n_reads, stats.n_reads);
    CHECK(s.n_experts > 0 && s.n_waits > 0 && s.n_open == 0);
    CHECK(s.first >= began && s.last <= (double)mf_now_us());
    /* once more, over the old one, and ended by closing */
    REQUIRE_OK(mf_engine_record_timeline(o.engine, path, &error), &error);
    free(got);
    got = evaluate(&o);
    close_case(&o);
    CHECK_U64(read_timeline(path).n_passes, N_TOKENS / 2 + 1);
    CHECK(remove(path) == 0 && remove(dir) == 0);
    free(expected);
    free(got);
    close_case(&plain);
}

static void take_line(void *user, mf_log_level level, const char *line)
{
    if (level == MF_LOG_WARNING && strstr(line, "timeline") != NULL)
        snprintf(user, 256, "%s", line);
}

static void test_not_written(const char *name)
{
    const golden_case *c = golden_case_find(name);
    mf_engine_options options = golden_options(c);
    mf_error error = {0};
    mf_engine *engine = NULL;
    char line[256] = "";
    options.timeline = "/no/such/place";
    options.log = take_line;
    options.log_user = line;
    CHECK_STATUS(mf_engine_open(golden_path(name), &options, &engine, &error), MF_ERR_IO);
    CHECK(engine == NULL && strstr(error.message, "/no/such/place") != NULL);
    if (access("/dev/full", W_OK) != 0)
        return;
    options.timeline = "/dev/full";
    REQUIRE_OK(mf_engine_open(golden_path(name), &options, &engine, &error), &error);
    CHECK_STATUS(mf_engine_record_timeline(engine, NULL, &error), MF_ERR_IO);
    CHECK_MSG(strncmp(error.message, "/dev/full: ", 11) == 0, "'%s'", error.message);
    REQUIRE_OK(mf_engine_record_timeline(engine, "/dev/full", &error), &error);
    mf_engine_close(&engine);
    CHECK_MSG(strstr(line, "is not whole") != NULL, "the log says '%s'", line);
}

/* A profile that there is no memory for is not on; one that was there before stays. */
static void test_no_memory(const char *name)
{
    failing memory = {0};
    const golden_case *c = golden_case_find(name);
    mf_engine_options options = golden_options(c);
    mf_layer_profile layer;
    mf_error error = {0};
    mf_engine *engine = NULL;
    options.allocator = failing_allocator(&memory);
    REQUIRE_OK(mf_engine_open(golden_path(name), &options, &engine, &error), &error);
    failing_arm(&memory, 1, false);
    CHECK_STATUS(mf_engine_profile(engine, 1, &error), MF_ERR_NO_MEMORY);
    CHECK(failing_disarm(&memory));
    CHECK_STATUS(mf_engine_layer_profile(engine, 0, &layer, &error), MF_ERR_STATE);
    REQUIRE_OK(mf_engine_profile(engine, 1, &error), &error);
    failing_arm(&memory, 1, false);
    CHECK_STATUS(mf_engine_profile(engine, 1, &error), MF_ERR_NO_MEMORY);
    CHECK(failing_disarm(&memory));
    REQUIRE_OK(mf_engine_layer_profile(engine, 0, &layer, &error), &error);
    mf_engine_close(&engine);
    failing_check_end(&memory, name);
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "v3_fp8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        test_stages(names[i]);
        test_timeline(names[i]);
        test_not_written(names[i]);
        test_no_memory(names[i]);
    }
    CHECK(strcmp(mf_stage_name(MF_STAGE_WAITING), "waiting") == 0);
    CHECK(mf_stage_name((mf_stage)MF_STAGES) == NULL);
    return test_result();
}
