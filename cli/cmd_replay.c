/* SPDX-License-Identifier: MIT */
/* moeflux replay: what another cache, drive or budget would make of a recorded routing, over a grid
 * of sizes, policies and ways to foresee. */
#include "commands.h"
#include "json.h"
#include "replay_plot.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: moeflux replay TRACE [OPTION]...\n"
    "Runs the engine's expert store over a trace of routing (run, bench and perplexity record one\n"
    "with --trace) on a machine that is not here, and says which experts it would find, what it\n"
    "would read, and how fast it would be. LIST is one value or several with commas between.\n"
    "\n"
    "  --slots LIST           expert slots: numbers, or shares of all experts as 25% (default\n"
    "                         10%,25%,50%,75%)\n"
    "  --ram LIST             memory of the whole process, instead of --slots\n"
    "  --drive RATE           bytes a second (default 3.5G)\n"
    "  --latency TIME         of a read before its first byte (default 80us)\n"
    "  --compute TIME         of a token, in us, ms or s (default: as recorded)\n"
    "  --policy LIST          of the cache: next-use (the engine's own), lru, lfu,\n"
    "                         s3-fifo\n"
    "  --predict LIST         what is read ahead: off (default), auto, next-layer (where the\n"
    "                         trace has it), last-token, frequency, wrong\n"
    "  --warmup N             evaluations that fill the cache and do not count (default 0)\n"
    "  --svg FILE             draw it, too\n"
    "  --json                 one JSON object a line\n"
    "  -h, --help             this text\n";

enum {
    OPT_SLOTS = MF_OPT_OWN,
    OPT_RAM,
    OPT_DRIVE,
    OPT_LATENCY,
    OPT_COMPUTE,
    OPT_POLICY,
    OPT_PREDICT,
    OPT_WARMUP,
    OPT_SVG,
    OPT_JSON
};

static const struct option long_options[] = {{"slots", required_argument, NULL, OPT_SLOTS},
                                             {"ram", required_argument, NULL, OPT_RAM},
                                             {"drive", required_argument, NULL, OPT_DRIVE},
                                             {"latency", required_argument, NULL, OPT_LATENCY},
                                             {"compute", required_argument, NULL, OPT_COMPUTE},
                                             {"policy", required_argument, NULL, OPT_POLICY},
                                             {"predict", required_argument, NULL, OPT_PREDICT},
                                             {"warmup", required_argument, NULL, OPT_WARMUP},
                                             {"svg", required_argument, NULL, OPT_SVG},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {"help", no_argument, NULL, 'h'},
                                             {0}};

#define MAX_LIST 32

typedef struct list {
    char text[512];
    const char *items[MAX_LIST];
    size_t n;
} list;

typedef struct replay_args {
    const char *trace, *svg;
    list slots, ram, policies, predicts;
    double drive, latency_us, compute_us;
    uint64_t n_warmup;
    bool has_json;
} replay_args;

/* Cut at commas, nothing empty. */
static bool parse_list(const char *text, list *out)
{
    if (strlen(text) >= sizeof out->text)
        return false;
    memcpy(out->text, text, strlen(text) + 1);
    out->n = 0;
    for (char *at = out->text; at;) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma++ = '\0';
        if (!*at || out->n == MAX_LIST)
            return false;
        out->items[out->n++] = at;
        at = comma;
    }
    return true;
}

/* "80us", "3.5ms", "1s"; microseconds. */
static bool parse_time(const char *text, double *out)
{
    static const struct {
        const char *name;
        double us;
    } units[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}};
    char digits[32];
    float value;
    const size_t n = strspn(text, "0123456789.");
    if (n == 0 || n >= sizeof digits)
        return false;
    memcpy(digits, text, n);
    digits[n] = '\0';
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(text + n, units[i].name) == 0 && mf_cli_parse_float(digits, 0, 1e12f, &value)) {
            *out = (double)value * units[i].us;
            return true;
        }
    return false;
}

static bool parse_rate(const char *text, double *out)
{
    uint64_t n_bytes;
    if (!mf_cli_parse_size(text, &n_bytes) || n_bytes == 0)
        return false;
    *out = (double)n_bytes;
    return true;
}

/* One option; an exit code. */
static int own_option(void *ctx, const mf_cli_parser *parser, int option)
{
    replay_args *a = ctx;
    const struct {
        const char *name;
        list *items;
    } lists[] = {[0] = {"slots", &a->slots},
                 [OPT_RAM - OPT_SLOTS] = {"ram", &a->ram},
                 [OPT_POLICY - OPT_SLOTS] = {"policy", &a->policies},
                 [OPT_PREDICT - OPT_SLOTS] = {"predict", &a->predicts}};
    switch (option) {
    case OPT_DRIVE:
        return parse_rate(optarg, &a->drive)
                   ? MF_EXIT_OK
                   : mf_cli_bad_value(parser, "drive", optarg, "bytes a second, like 3.5G");
    case OPT_LATENCY:
        return parse_time(optarg, &a->latency_us)
                   ? MF_EXIT_OK
                   : mf_cli_bad_value(parser, "latency", optarg, "a time, like 80us or 1ms");
    case OPT_COMPUTE:
        return parse_time(optarg, &a->compute_us) && a->compute_us > 0
                   ? MF_EXIT_OK
                   : mf_cli_bad_value(parser, "compute", optarg, "a time above zero, like 90ms");
    case OPT_WARMUP:
        return mf_cli_parse_u64(optarg, 0, UINT64_MAX, &a->n_warmup)
                   ? MF_EXIT_OK
                   : mf_cli_bad_value(parser, "warmup", optarg, "a number");
    case OPT_SVG:
        a->svg = optarg;
        return MF_EXIT_OK;
    case OPT_JSON:
        a->has_json = true;
        return MF_EXIT_OK;
    default:
        return parse_list(optarg, lists[option - OPT_SLOTS].items)
                   ? MF_EXIT_OK
                   : mf_cli_bad_value(parser, lists[option - OPT_SLOTS].name, optarg,
                                      "a list of values with commas between");
    }
}

/* ------------------------------------------------------------------------------------ grid -- */

typedef struct grid {
    const replay_args *args;
    mf_routing *routing;
    mf_routing_info info;
    mf_replay_options sizes[MAX_LIST]; /* rising */
    size_t n_sizes;
    mf_replay_result *results; /* [policy][predict][size] */
} grid;

/* A number, or a share of all experts. */
static bool parse_slots(const char *text, uint64_t n_all, uint64_t *out)
{
    double share;
    if (!mf_cli_parse_share(text, &share))
        return mf_cli_parse_u64(text, 1, UINT32_MAX, out);
    /* 0.29 of 100 is a little less than 29 as a fraction, and 29 all the same */
    *out = (uint64_t)((double)n_all * share * (1 + 4 * DBL_EPSILON));
    *out = *out < n_all ? *out : n_all;
    return *out > 0;
}

static int compare_sizes(const void *a, const void *b)
{
    const mf_replay_options *x = a, *y = b;
    if (x->ram_bytes != y->ram_bytes)
        return x->ram_bytes < y->ram_bytes ? -1 : 1;
    return (x->n_slots > y->n_slots) - (x->n_slots < y->n_slots);
}

static int take_sizes(grid *g)
{
    const replay_args *a = g->args;
    const list *items = a->ram.n > 0 ? &a->ram : &a->slots;
    const uint64_t n_all = (uint64_t)g->info.n_layers * g->info.n_experts;
    for (size_t i = 0; i < items->n; i++) {
        mf_replay_options *o = &g->sizes[i];
        mf_replay_options_default(o);
        const bool good = a->ram.n > 0 ? mf_cli_parse_size(items->items[i], &o->ram_bytes)
                                       : parse_slots(items->items[i], n_all, &o->n_slots);
        if (!good)
            return mf_cli_usage_error("replay", "--%s: '%s' is not %s",
                                      a->ram.n > 0 ? "ram" : "slots", items->items[i],
                                      a->ram.n > 0 ? "a size" : "a number of slots or a share");
        o->drive_bytes_per_second = a->drive;
        o->latency_us = a->latency_us;
        o->compute_us = a->compute_us;
        o->n_passes_before = a->n_warmup;
    }
    g->n_sizes = items->n;
    qsort(g->sizes, g->n_sizes, sizeof *g->sizes, compare_sizes);
    return MF_EXIT_OK;
}

static size_t place(const grid *g, size_t policy, size_t predict)
{
    return (policy * g->args->predicts.n + predict) * g->n_sizes;
}

static int run_line(grid *g, size_t policy, size_t predict)
{
    const replay_args *a = g->args;
    mf_error error = {0};
    mf_predict kind;
    (void)mf_cli_parse_predict(a->predicts.items[predict], &kind); /* as check has */
    for (size_t i = 0; i < g->n_sizes; i++) {
        mf_replay_options options = g->sizes[i];
        options.cache_policy = a->policies.items[policy];
        options.predict = kind;
        mf_status status = mf_routing_replay(g->routing, &options,
                                             &g->results[place(g, policy, predict) + i], &error);
        if (status != MF_OK)
            return mf_cli_fail(status, &error);
    }
    return MF_EXIT_OK;
}

/* What else is wrong is known before the trace is replayed once. */
static int check(const replay_args *a, bool has_slots)
{
    mf_predict kind;
    if (has_slots && a->ram.n > 0)
        return mf_cli_usage_error("replay", "replay: --slots and --ram exclude each other");
    for (size_t i = 0; i < a->predicts.n; i++)
        if (!mf_cli_parse_predict(a->predicts.items[i], &kind))
            return mf_cli_usage_error("replay", "--predict: '%s' is not " MF_CLI_PREDICTS,
                                      a->predicts.items[i]);
    for (size_t i = 0; i < a->policies.n; i++)
        if (!mf_cli_is_policy(a->policies.items[i]))
            return mf_cli_usage_error("replay", "--policy: '%s' is not " MF_CLI_POLICIES,
                                      a->policies.items[i]);
    return a->svg ? mf_cli_may_write(a->svg) : MF_EXIT_OK;
}

/* ---------------------------------------------------------------------------------- output -- */

static double share(double part, double all)
{
    return all > 0 ? part / all : NAN;
}

static void print_row(const grid *g, const char *policy, const char *predict,
                      const mf_replay_result *r)
{
    char read[MF_CLI_SIZE_CHARS];
    const double asked = (double)(r->n_expert_hits + r->n_expert_misses);
    const double n = r->n_tokens > 0 ? (double)r->n_tokens : NAN;
    (void)g;
    printf("%8" PRIu64 " %-9s %-10s %8.1f %% %7.1f %% %10.2f %12s %8.1f %% %8.1f %%\n", r->n_slots,
           policy, predict, 100 * share((double)r->n_expert_hits, asked),
           100 * share((double)r->n_best_hits, asked), share(n, r->seconds),
           isfinite(n) ? mf_cli_size(read, (double)r->read_bytes / n) : "-",
           100 * share(r->wait_seconds, r->seconds), 100 * share(r->reading_seconds, r->seconds));
}

static void print_json(const char *policy, const char *predict, const mf_replay_result *r)
{
    mf_cli_json json = mf_cli_json_begin(stdout);
    mf_cli_json_string(&json, "policy", policy);
    mf_cli_json_string(&json, "predict", predict);
    mf_cli_json_integer(&json, "n_slots", r->n_slots);
    mf_cli_json_integer(&json, "tokens", r->n_tokens);
    mf_cli_json_integer(&json, "expert_hits", r->n_expert_hits);
    mf_cli_json_integer(&json, "expert_misses", r->n_expert_misses);
    mf_cli_json_integer(&json, "best_hits", r->n_best_hits);
    mf_cli_json_integer(&json, "reads", r->n_reads);
    mf_cli_json_integer(&json, "read_bytes", r->read_bytes);
    mf_cli_json_integer(&json, "hints", r->n_hints);
    mf_cli_json_integer(&json, "hints_useful", r->n_hints_useful);
    mf_cli_json_integer(&json, "hints_late", r->n_hints_late);
    mf_cli_json_integer(&json, "hints_cancelled", r->n_hints_cancelled);
    mf_cli_json_integer(&json, "hints_wasted", r->n_hints_wasted);
    mf_cli_json_number(&json, "seconds", r->seconds);
    mf_cli_json_number(&json, "wait_seconds", r->wait_seconds);
    mf_cli_json_number(&json, "reading_seconds", r->reading_seconds);
    mf_cli_json_number(&json, "tokens_per_s", share((double)r->n_tokens, r->seconds));
    mf_cli_json_end(&json);
}

static void print_all(const grid *g)
{
    const replay_args *a = g->args;
    if (!a->has_json) {
        mf_cli_put_plain(stdout, a->trace);
        printf(": %s, %" PRIu32 " layers of %" PRIu32 " experts, %" PRIu32 " a token; %" PRIu64
               " tokens in %" PRIu64 " evaluations\n",
               g->info.family, g->info.n_layers, g->info.n_experts, g->info.n_experts_per_token,
               g->info.n_tokens, g->info.n_passes);
        printf("%8s %-9s %-10s %10s %9s %10s %12s %10s %10s\n", "slots", "policy", "predict",
               "hits", "Belady", "tokens/s", "read a token", "waiting", "drive busy");
    }
    for (size_t i = 0; i < a->policies.n; i++)
        for (size_t j = 0; j < a->predicts.n; j++)
            for (size_t k = 0; k < g->n_sizes; k++) {
                const mf_replay_result *r = &g->results[place(g, i, j) + k];
                if (a->has_json)
                    print_json(a->policies.items[i], a->predicts.items[j], r);
                else
                    print_row(g, a->policies.items[i], a->predicts.items[j], r);
            }
}

static int plot(const grid *g)
{
    const replay_args *a = g->args;
    mf_replay_line lines[MAX_LIST * MAX_LIST];
    char title[1024], drive[MF_CLI_SIZE_CHARS];
    size_t n = 0;
    FILE *file = fopen(a->svg, "we");
    if (!file)
        return mf_cli_error("%s: cannot open: %s", a->svg, strerror(errno));
    for (size_t i = 0; i < a->policies.n; i++)
        for (size_t j = 0; j < a->predicts.n; j++) {
            lines[n] = (mf_replay_line){.policy = a->policies.items[i],
                                        .results = &g->results[place(g, i, j)]};
            (void)mf_cli_parse_predict(a->predicts.items[j], &lines[n++].predict);
        }
    snprintf(title, sizeof title, "%.600s: %" PRIu64 " tokens, a drive of %s/s and %.0f us",
             a->trace, g->info.n_tokens, mf_cli_size(drive, a->drive), a->latency_us);
    mf_replay_plot(file, title, lines, n, g->n_sizes);
    bool is_bad = ferror(file) != 0;
    if (fclose(file) != 0 || is_bad)
        return mf_cli_error("%s: cannot write: %s", a->svg, strerror(errno));
    return MF_EXIT_OK;
}

static int run_grid(grid *g)
{
    const replay_args *a = g->args;
    int exit_code = take_sizes(g);
    g->results = calloc(a->policies.n * a->predicts.n * g->n_sizes + 1, sizeof *g->results);
    if (!g->results)
        return mf_cli_error("no memory for the results");
    for (size_t i = 0; i < a->policies.n; i++)
        for (size_t j = 0; j < a->predicts.n && exit_code == MF_EXIT_OK; j++)
            exit_code = run_line(g, i, j);
    if (exit_code == MF_EXIT_OK)
        print_all(g);
    if (exit_code == MF_EXIT_OK && a->svg)
        exit_code = plot(g);
    free(g->results);
    return exit_code;
}

int mf_cmd_replay(int argc, char **argv)
{
    replay_args args = {.drive = 3.5 * (1u << 30), .latency_us = 80};
    const mf_cli_parser parser = {"replay", help, argc, argv, ":h", long_options, NULL};
    grid g = {.args = &args};
    mf_error error = {0};
    int exit_code = MF_EXIT_OK;
    (void)parse_list("next-use", &args.policies);
    (void)parse_list("off", &args.predicts);
    if (!mf_cli_parse(&parser, own_option, &args, &exit_code))
        return exit_code;
    args.trace = mf_cli_positional(&parser, "TRACE", false, &exit_code);
    if (!args.trace)
        return exit_code;
    exit_code = check(&args, args.slots.n > 0);
    if (exit_code != MF_EXIT_OK)
        return exit_code;
    if (args.slots.n == 0)
        (void)parse_list("10%,25%,50%,75%", &args.slots);
    mf_status status = mf_routing_open(args.trace, NULL, &g.routing, &error);
    if (status == MF_OK) {
        mf_routing_get_info(g.routing, &g.info);
        exit_code = args.n_warmup < g.info.n_passes
                        ? run_grid(&g)
                        : mf_cli_error("%s: --warmup leaves none of %" PRIu64 " evaluations",
                                       args.trace, g.info.n_passes);
    } else {
        exit_code = mf_cli_fail(status, &error);
    }
    mf_routing_close(&g.routing);
    return mf_cli_finish(exit_code);
}
