/* SPDX-License-Identifier: MIT */
/*
 * moeflux bench: speed, reads and memory of a checkpoint, and beside them what the drive, the
 * memory and the cores can do, measured in the same rounds so that ratios mean something on a noisy
 * machine. Token ids are pseudo-random over the vocabulary: routing varies as much as it can, and
 * no tokenizer is needed.
 */
#include "bench_report.h"
#include "commands.h"
#include "interrupt.h"
#include "model_path.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char help[] =
    "Usage: moeflux bench MODEL [OPTION]...\n"
    "Measures prefill and decode on random token ids (no tokenizer is needed), and beside them\n"
    "the bandwidth of the drive on the model's own files, that of memory, and the multiply-adds\n"
    "of the cores; and how near each phase came to the limit that they set for the bytes and\n"
    "multiply-adds that it must move. Figures are medians over the rounds, the least and the\n"
    "most beside them.\n"
    "\n"
    "  --prompt-tokens N      tokens of the prompt (default 512)\n"
    "  --gen-tokens N         tokens decoded (default 64)\n"
    "  --repeat R             rounds (default 3)\n"
    "  --warmup R             rounds before them that do not count (default 1)\n"
    "  --measure-ms N         time for each measurement of the machine (default 1000; 0: none)\n"
    "  --operations           one round more, in which a GPU's time is taken by operations\n"
    "  --layers               where time went by layer, and what was asked for there\n"
    "  --seed N               of the token ids (default 1)\n"
    "  --trace FILE           record which experts the router chooses (moeflux replay)\n"
    "  --routing TRACE        choose the experts that a trace has, so that reads are as local as\n"
    "                         those of the text that it is of\n"
    "  --json                 one JSON object\n" //
    MF_ENGINE_OPTIONS_HELP;

enum {
    OPT_PROMPT_TOKENS = MF_OPT_OWN,
    OPT_GEN_TOKENS,
    OPT_REPEAT,
    OPT_WARMUP,
    OPT_MEASURE,
    OPT_SEED,
    OPT_OPERATIONS,
    OPT_LAYERS,
    OPT_TRACE,
    OPT_ROUTING,
    OPT_JSON
};

static const struct option long_options[] = {
    {"prompt-tokens", required_argument, NULL, OPT_PROMPT_TOKENS},
    {"gen-tokens", required_argument, NULL, OPT_GEN_TOKENS},
    {"repeat", required_argument, NULL, OPT_REPEAT},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"measure-ms", required_argument, NULL, OPT_MEASURE},
    {"seed", required_argument, NULL, OPT_SEED},
    {"operations", no_argument, NULL, OPT_OPERATIONS},
    {"layers", no_argument, NULL, OPT_LAYERS},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"routing", required_argument, NULL, OPT_ROUTING},
    {"json", no_argument, NULL, OPT_JSON},
    MF_ENGINE_LONG_OPTIONS,
    {0}};

typedef struct bench_args {
    mf_cli_engine_args engine;
    const char *model;
    mf_cli_model_path model_path;
    const char *trace, *routing; /* NULL: none */
    uint32_t n_prompt_tokens, n_gen_tokens, n_rounds, n_warmup, measure_ms;
    uint64_t seed;
    bool has_json, has_operations, has_layers;
} bench_args;

typedef struct bench {
    const bench_args *args;
    mf_bench_setup setup;
    mf_engine *engine;
    mf_session *session;
    mf_routing *routing;
    int32_t *tokens; /* [max(n_prompt_tokens, 1)] */
    uint64_t random;
} bench;

/* One option of bench's own; an exit code. */
static int own_option(void *ctx, const mf_cli_parser *parser, int option)
{
    bench_args *args = ctx;
    int exit_code = MF_EXIT_OK;
    static const mf_cli_number numbers[] = {
        {OPT_PROMPT_TOKENS, "prompt-tokens", offsetof(bench_args, n_prompt_tokens), 0, 1u << 28},
        {OPT_GEN_TOKENS, "gen-tokens", offsetof(bench_args, n_gen_tokens), 0, 1u << 28},
        {OPT_REPEAT, "repeat", offsetof(bench_args, n_rounds), 1, 1000},
        {OPT_WARMUP, "warmup", offsetof(bench_args, n_warmup), 0, 1000},
        {OPT_MEASURE, "measure-ms", offsetof(bench_args, measure_ms), 0, 600000},
    };
    if (option == OPT_JSON) {
        args->has_json = true;
        return MF_EXIT_OK;
    }
    if (option == OPT_TRACE || option == OPT_ROUTING) {
        *(option == OPT_TRACE ? &args->trace : &args->routing) = optarg;
        return MF_EXIT_OK;
    }
    if (option == OPT_OPERATIONS || option == OPT_LAYERS) {
        *(option == OPT_LAYERS ? &args->has_layers : &args->has_operations) = true;
        return MF_EXIT_OK;
    }
    if (option == OPT_SEED)
        return mf_cli_parse_u64(optarg, 0, UINT64_MAX, &args->seed)
                   ? MF_EXIT_OK
                   : mf_cli_bad_value(parser, "seed", optarg, "a whole number from 0 to 2^64 - 1");
    (void)mf_cli_take_number(parser, numbers, sizeof numbers / sizeof *numbers, option, args,
                             &exit_code);
    return exit_code;
}

/* False: the program ends with *exit_code. */
static bool parse(bench_args *args, int argc, char **argv, int *exit_code)
{
    const mf_cli_parser parser = {
        "bench", help, argc, argv, ":" MF_ENGINE_SHORT_OPTIONS, long_options, &args->engine};
    if (!mf_cli_parse(&parser, own_option, args, exit_code))
        return false;
    args->model = mf_cli_positional_model(&parser, false, &args->model_path, exit_code);
    if (!args->model)
        return false;
    uint32_t needed = args->n_prompt_tokens + args->n_gen_tokens;
    if (needed == 0 && args->measure_ms == 0) {
        *exit_code = mf_cli_usage_error("bench", "bench: --prompt-tokens, --gen-tokens and "
                                                 "--measure-ms are 0: nothing is measured");
        return false;
    }
    mf_engine_options *options = &args->engine.options;
    if (options->n_context_tokens > 0 && options->n_context_tokens < needed) {
        *exit_code = mf_cli_usage_error("bench", "bench: --ctx is below the %u tokens to evaluate",
                                        (unsigned)needed);
        return false;
    }
    if (options->n_context_tokens == 0)
        options->n_context_tokens = needed > 0 ? needed : 1;
    return true;
}

/* splitmix64 (Steele, Lea, Flood 2014): small, seedable by any number, the same everywhere. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int32_t random_token(bench *b)
{
    return (int32_t)(next_random(&b->random) % b->setup.info.n_vocab);
}

/* The counters' growth is that since their reset. */
static void phase_end(bench *b, mf_cli_phase *phase, double started)
{
    const mf_stats zero = {0};
    mf_stats stats;
    double seconds = mf_cli_now() - started;
    mf_engine_stats(b->engine, &stats);
    mf_cli_phase_add(phase, &zero, &stats, seconds);
}

static mf_status run_prefill(bench *b, mf_cli_phase *phase, mf_error *error)
{
    for (uint32_t i = 0; i < b->args->n_prompt_tokens; i++)
        b->tokens[i] = random_token(b);
    mf_session_clear(b->session);
    mf_engine_stats_reset(b->engine);
    double started = mf_cli_now();
    mf_status status = mf_session_eval(b->session, b->tokens, b->args->n_prompt_tokens, error);
    phase_end(b, phase, started);
    return status;
}

static mf_status run_decode(bench *b, mf_cli_phase *phase, mf_error *error)
{
    mf_status status = MF_OK;
    mf_engine_stats_reset(b->engine);
    double started = mf_cli_now();
    for (uint32_t i = 0; i < b->args->n_gen_tokens && status == MF_OK; i++) {
        int32_t token = random_token(b);
        status = mf_session_eval(b->session, &token, 1, error);
    }
    phase_end(b, phase, started);
    return status;
}

/* What an interrupt does not end by itself, it ends here. */
static mf_status unless_interrupted(mf_status status)
{
    return status == MF_OK && mf_cli_interrupted() ? MF_ERR_CANCELLED : status;
}

static mf_status measure_machine(bench *b, mf_bench_machine *m, mf_error *error)
{
    mf_engine *e = b->engine;
    const uint32_t ms = b->args->measure_ms;
    mf_status status = unless_interrupted(mf_engine_measure_drive(e, ms, &m->read_bytes, error));
    if (status == MF_OK)
        status = unless_interrupted(mf_engine_measure_latency(e, ms / 2, &m->latency_us, error));
    if (status == MF_OK)
        status =
            unless_interrupted(mf_engine_measure_compute(e, ms, &m->dram_bytes, &m->fma, error));
    if (status == MF_OK)
        status =
            unless_interrupted(mf_engine_measure_link(e, ms, &m->link_to, &m->link_from, error));
    return status;
}

static mf_status run_round(bench *b, mf_bench_round *round, mf_error *error)
{
    mf_cli_phase prefill = {0}, decode = {0};
    mf_bench_machine machine = {NAN, NAN, NAN, NAN, NAN, NAN};
    mf_status status = run_prefill(b, &prefill, error);
    if (status == MF_OK)
        status = run_decode(b, &decode, error);
    if (status == MF_OK && round && b->args->measure_ms > 0)
        status = measure_machine(b, &machine, error);
    if (status == MF_OK && round) {
        mf_bench_round_fill(round, &b->setup, &prefill, &decode, &machine);
        b->setup.prefill = mf_cli_phase_sum(&b->setup.prefill, &prefill);
        b->setup.decode = mf_cli_phase_sum(&b->setup.decode, &decode);
    }
    return status;
}

static size_t take_times(bench *b, mf_operation_time *out)
{
    size_t n = mf_engine_operation_times(b->engine, out, MF_BENCH_MAX_OPERATIONS);
    return n < MF_BENCH_MAX_OPERATIONS ? n : MF_BENCH_MAX_OPERATIONS;
}

/* Timestamps cost a little: a round of their own. */
static mf_status run_timed(bench *b, mf_error *error)
{
    mf_cli_phase prefill = {0}, decode = {0};
    mf_bench_times *t = &b->setup.times;
    mf_status status = mf_engine_time_operations(b->engine, 1, error);
    if (status == MF_OK)
        status = run_prefill(b, &prefill, error);
    if (status == MF_OK)
        t->n_prefill = take_times(b, t->prefill);
    if (status == MF_OK)
        status = mf_engine_time_operations(b->engine, 1, error);
    if (status == MF_OK)
        status = run_decode(b, &decode, error);
    if (status == MF_OK)
        t->n_decode = take_times(b, t->decode);
    t->n_prefill_tokens = prefill.n_tokens;
    t->n_decode_tokens = decode.n_tokens;
    t->is_there = status == MF_OK;
    return status;
}

static void note_round(const bench *b, uint32_t i, bool counts)
{
    char line[64];
    snprintf(line, sizeof line, "bench: %s %u done", counts ? "round" : "warm-up", (unsigned)i + 1);
    mf_cli_log((void *)&b->args->engine.verbosity, MF_LOG_INFO, line);
}

static int measure(bench *b)
{
    const bench_args *args = b->args;
    mf_error error = {0};
    mf_status status = MF_OK;
    mf_bench_round *rounds = calloc(args->n_rounds, sizeof *rounds);
    b->tokens = calloc((size_t)args->n_prompt_tokens + 1, sizeof *b->tokens);
    if (!rounds || !b->tokens)
        status = MF_ERR_NO_MEMORY;
    mf_cli_interrupt_session(b->session); /* the trace of what was evaluated is kept */
    for (uint32_t i = 0; i < args->n_warmup && status == MF_OK; i++) {
        status = run_round(b, NULL, &error);
        if (status == MF_OK)
            note_round(b, i, false);
    }
    if (status == MF_OK)
        status = mf_engine_profile(b->engine, 1, &error);
    for (uint32_t i = 0; i < args->n_rounds && status == MF_OK; i++) {
        status = run_round(b, &rounds[i], &error);
        if (status == MF_OK)
            note_round(b, i, true);
    }
    if (status == MF_OK && args->has_operations)
        status = run_timed(b, &error);
    mf_stats stats = {0};
    mf_engine_stats(b->engine, &stats);
    b->setup.device_bytes_taken = stats.device_bytes_taken;
    if (status == MF_OK && args->has_json)
        mf_bench_print_json(&b->setup, rounds);
    else if (status == MF_OK)
        mf_bench_print(&b->setup, rounds);
    free(rounds);
    free(b->tokens);
    if (status == MF_ERR_CANCELLED)
        return MF_EXIT_INTERRUPTED;
    return status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
}

static void describe(bench *b, double open_seconds)
{
    mf_bench_setup *s = &b->setup;
    mf_engine_info(b->engine, &s->info);
    s->model = b->args->model;
    s->io_name = mf_engine_io_name(b->engine);
    s->cpu_name = mf_engine_cpu_name(b->engine);
    s->n_chunk_tokens = s->info.n_chunk_tokens;
    s->n_prompt_tokens = b->args->n_prompt_tokens;
    s->n_gen_tokens = b->args->n_gen_tokens;
    s->n_rounds = b->args->n_rounds;
    s->open_seconds = open_seconds;
    s->engine = b->engine;
    s->has_layers = b->args->has_layers;
    s->prefill_fma_per_token = mf_bench_fma_per_token(&s->info);
}

static mf_status open_bench(bench *b, mf_error *error)
{
    const bench_args *args = b->args;
    mf_status status = mf_engine_open(args->model, &args->engine.options, &b->engine, error);
    if (status == MF_OK)
        status = mf_session_create(b->engine, &b->session, error);
    if (status == MF_OK && args->routing)
        status = mf_routing_open(args->routing, NULL, &b->routing, error);
    if (status == MF_OK && args->routing)
        status = mf_engine_follow_routing(b->engine, b->routing, error);
    if (status == MF_OK && args->trace)
        status = mf_engine_record_routing(b->engine, args->trace, error);
    if (status == MF_OK && args->has_operations) /* whether they can be, before all rounds */
        status = mf_engine_time_operations(b->engine, 1, error);
    if (status == MF_OK && args->has_operations)
        status = mf_engine_time_operations(b->engine, 0, error);
    return status;
}

int mf_cmd_bench(int argc, char **argv)
{
    bench_args args = {.n_prompt_tokens = 512,
                       .n_gen_tokens = 64,
                       .n_rounds = 3,
                       .n_warmup = 1,
                       .measure_ms = 1000,
                       .seed = 1};
    int exit_code = MF_EXIT_OK;
    mf_cli_engine_args_init(&args.engine);
    if (!parse(&args, argc, argv, &exit_code))
        return exit_code;
    bench b = {.args = &args, .random = args.seed};
    mf_error error = {0};
    double started = mf_cli_now();
    mf_status status = open_bench(&b, &error);
    double open_seconds = mf_cli_now() - started;
    if (status == MF_OK) {
        describe(&b, open_seconds);
        exit_code = measure(&b);
        exit_code = mf_cli_end_trace(b.engine, args.trace, exit_code);
    } else {
        exit_code = mf_cli_fail(status, &error);
    }
    mf_session_free(&b.session);
    mf_engine_close(&b.engine);
    mf_routing_close(&b.routing);
    return mf_cli_finish(exit_code);
}
