/* SPDX-License-Identifier: MIT */
/* Metrics of a bench: how they follow from the counters, and how they are printed. */
#include "bench_report.h"

#include "profile.h"

#include "json.h"
#include "nodes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ROUNDS 1000

/* A rate's unit decides how the table prints it. */
typedef enum unit { UNIT_PLAIN, UNIT_BYTES, UNIT_RATE, UNIT_PERCENT, UNIT_MS, UNIT_GFMA } unit;

static const struct metric {
    const char *key;
    const char *name;
    unit unit;
} metrics[MF_BENCH_N_METRICS] = {
    [MF_BENCH_PREFILL_TPS] = {"prefill_tokens_per_s", "prefill, tokens/s", UNIT_PLAIN},
    [MF_BENCH_DECODE_TPS] = {"decode_tokens_per_s", "decode, tokens/s", UNIT_PLAIN},
    [MF_BENCH_WEIGHT_PER_TOKEN] = {"weight_bytes_per_token", "weights touched a token", UNIT_BYTES},
    [MF_BENCH_READ_PER_TOKEN] = {"read_bytes_per_token", "read a token", UNIT_BYTES},
    [MF_BENCH_HIT_RATE] = {"hit_rate", "hit rate", UNIT_PERCENT},
    [MF_BENCH_READ_RATE] = {"read_bytes_per_s", "read rate while reading", UNIT_RATE},
    [MF_BENCH_WAIT_PER_TOKEN] = {"wait_us_per_token", "waiting for reads a token", UNIT_MS},
    [MF_BENCH_WAIT_FRACTION] = {"wait_fraction", "waiting, of decode's time", UNIT_PERCENT},
    [MF_BENCH_WEIGHT_RATE] = {"weight_bytes_per_s", "weights touched a second", UNIT_RATE},
    [MF_BENCH_HOST_HIT_RATE] = {"host_hit_rate", "misses held in RAM", UNIT_PERCENT},
    [MF_BENCH_UPLOAD_PER_TOKEN] = {"upload_bytes_per_token", "uploaded a token", UNIT_BYTES},
    [MF_BENCH_UPLOAD_RATE] = {"upload_bytes_per_s", "uploaded a second", UNIT_RATE},
    [MF_BENCH_PREFILL_HOST_HIT_RATE] = {"prefill_host_hit_rate", "prefill: misses held in RAM",
                                        UNIT_PERCENT},
    [MF_BENCH_PREFILL_UPLOAD_RATE] = {"prefill_upload_bytes_per_s", "prefill: uploaded a second",
                                      UNIT_RATE},
    [MF_BENCH_PREFILL_READ_BYTES] = {"prefill_read_bytes", "prefill: read", UNIT_BYTES},
    [MF_BENCH_PREFILL_READ_RATE] = {"prefill_read_bytes_per_s", "prefill: read rate", UNIT_RATE},
    [MF_BENCH_PREFILL_WAIT_FRACTION] = {"prefill_wait_fraction", "prefill: waiting, of its time",
                                        UNIT_PERCENT},
    [MF_BENCH_PREFILL_MISSES] = {"prefill_expert_misses", "prefill: experts read", UNIT_PLAIN},
    [MF_BENCH_PREFILL_READS_PER_EXPERT] = {"prefill_reads_per_expert_and_chunk",
                                           "prefill: reads an expert and chunk", UNIT_PLAIN},
    [MF_BENCH_PREFILL_FMA_RATE] = {"prefill_fma_per_s", "prefill: multiply-adds a second",
                                   UNIT_GFMA},
    [MF_BENCH_RAW_READ_RATE] = {"raw_read_bytes_per_s", "drive: raw direct reads", UNIT_RATE},
    [MF_BENCH_RAW_READ_LATENCY] = {"raw_read_latency_us", "drive: before an expert's bytes",
                                   UNIT_MS},
    [MF_BENCH_DRAM_RATE] = {"dram_bytes_per_s", "memory: sequential reads", UNIT_RATE},
    [MF_BENCH_FMA_PEAK] = {"fma_per_s", "cores or device: multiply-adds/s", UNIT_GFMA},
    [MF_BENCH_LINK_TO_RATE] = {"link_to_bytes_per_s", "link: to the device", UNIT_RATE},
    [MF_BENCH_LINK_FROM_RATE] = {"link_from_bytes_per_s", "link: from the device", UNIT_RATE},
    [MF_BENCH_WEIGHT_OVER_DRAM] = {"weight_over_dram", "decode weights / memory", UNIT_PERCENT},
    [MF_BENCH_READ_OVER_RAW] = {"read_over_raw", "decode reads / drive", UNIT_PERCENT},
    [MF_BENCH_PREFILL_READ_OVER_RAW] = {"prefill_read_over_raw", "prefill reads / drive",
                                        UNIT_PERCENT},
    [MF_BENCH_PREFILL_FMA_OVER_PEAK] = {"prefill_fma_over_peak", "prefill / cores", UNIT_PERCENT},
    [MF_BENCH_STATE_PER_TOKEN] = {"state_bytes_per_token", "caches and states touched a token",
                                  UNIT_BYTES},
    [MF_BENCH_FMA_PER_TOKEN] = {"fma_per_token", "multiply-adds a token", UNIT_GFMA},
    [MF_BENCH_DECODE_LIMIT] = {"decode_limit_tokens_per_s", "decode: limit, tokens/s", UNIT_PLAIN},
    [MF_BENCH_DECODE_OVER_LIMIT] = {"decode_over_limit", "decode / limit", UNIT_PERCENT},
    [MF_BENCH_PREFILL_BYTES] = {"prefill_bytes", "prefill: weights and states touched", UNIT_BYTES},
    [MF_BENCH_PREFILL_FMA] = {"prefill_fma", "prefill: multiply-adds", UNIT_GFMA},
    [MF_BENCH_PREFILL_LIMIT] = {"prefill_limit_tokens_per_s", "prefill: limit, tokens/s",
                                UNIT_PLAIN},
    [MF_BENCH_PREFILL_OVER_LIMIT] = {"prefill_over_limit", "prefill / limit", UNIT_PERCENT},
};

/* A division that says "not measured" where there is nothing to divide by. */
static double ratio(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

/*
 * Parameters that a token meets: all but the experts it is not routed to, and but the two
 * vocabulary tables (the input's is a lookup, the output's is evaluated for one token of the
 * prompt). Where the two tables are one this takes one too many away, and attention's own products
 * are left out: the figure is a lower bound.
 */
double mf_bench_fma_per_token(const mf_model_info *info)
{
    double expert = 3.0 * info->hidden_size * info->expert_hidden_size;
    double idle = (double)info->n_moe_layers * expert *
                  ((double)info->n_experts - (double)info->n_experts_per_token);
    double tables = 2.0 * info->n_vocab * info->hidden_size;
    double active = (double)info->n_parameters - idle;
    double experts = (double)info->n_moe_layers * info->n_experts_per_token * expert;
    return active - tables > experts ? active - tables : experts;
}

/* The figures of experts that are uploaded; NAN where they never are. */
static void fill_uploads(double *v, const mf_bench_setup *setup, const mf_cli_phase *prefill,
                         const mf_cli_phase *decode)
{
    const mf_stats *p = &prefill->stats, *d = &decode->stats;
    const bool are_uploaded = setup->info.n_host_slots > 0;
    v[MF_BENCH_HOST_HIT_RATE] = ratio((double)d->n_expert_host_hits, (double)d->n_expert_misses);
    v[MF_BENCH_PREFILL_HOST_HIT_RATE] =
        ratio((double)p->n_expert_host_hits, (double)p->n_expert_misses);
    v[MF_BENCH_UPLOAD_PER_TOKEN] =
        are_uploaded ? ratio((double)d->upload_bytes, (double)decode->n_tokens) : NAN;
    v[MF_BENCH_UPLOAD_RATE] = are_uploaded ? ratio((double)d->upload_bytes, decode->seconds) : NAN;
    v[MF_BENCH_PREFILL_UPLOAD_RATE] =
        are_uploaded ? ratio((double)p->upload_bytes, prefill->seconds) : NAN;
    if (!are_uploaded)
        v[MF_BENCH_HOST_HIT_RATE] = v[MF_BENCH_PREFILL_HOST_HIT_RATE] = NAN;
}

/* Of a phase of no tokens, which takes a moment all the same, there is none. */
static double wait_share(const mf_cli_phase *phase)
{
    return phase->n_tokens > 0 ? ratio(1e-6 * (double)phase->stats.wait_us, phase->seconds) : NAN;
}

static void fill_decode(double *v, const mf_cli_phase *decode)
{
    const mf_stats *s = &decode->stats;
    double n_tokens = (double)decode->n_tokens;
    v[MF_BENCH_DECODE_TPS] = mf_cli_phase_tokens_per_second(decode);
    v[MF_BENCH_WEIGHT_PER_TOKEN] = ratio((double)s->weight_bytes_touched, n_tokens);
    v[MF_BENCH_READ_PER_TOKEN] = ratio((double)s->read_bytes, n_tokens);
    v[MF_BENCH_HIT_RATE] = mf_cli_hit_rate(s);
    v[MF_BENCH_READ_RATE] = ratio((double)s->read_bytes, 1e-6 * (double)s->reading_us);
    v[MF_BENCH_WAIT_PER_TOKEN] = ratio((double)s->wait_us, n_tokens);
    v[MF_BENCH_WAIT_FRACTION] = wait_share(decode);
    v[MF_BENCH_WEIGHT_RATE] =
        n_tokens > 0 ? ratio((double)s->weight_bytes_touched, decode->seconds) : NAN;
}

static void fill_prefill(double *v, const mf_bench_setup *setup, const mf_cli_phase *prefill)
{
    const mf_stats *s = &prefill->stats;
    uint32_t n_chunks =
        (setup->n_prompt_tokens + setup->n_chunk_tokens - 1) / setup->n_chunk_tokens;
    double n_experts = (double)setup->info.n_moe_layers * setup->info.n_experts;
    double tps = mf_cli_phase_tokens_per_second(prefill);
    /* what was read ahead and is there when it is asked for is no miss */
    double n_read = (double)(s->n_expert_misses + s->n_hints_useful + s->n_hints_wasted);
    v[MF_BENCH_PREFILL_TPS] = tps;
    v[MF_BENCH_PREFILL_READ_BYTES] = prefill->n_tokens > 0 ? (double)s->read_bytes : NAN;
    v[MF_BENCH_PREFILL_READ_RATE] = ratio((double)s->read_bytes, 1e-6 * (double)s->reading_us);
    v[MF_BENCH_PREFILL_WAIT_FRACTION] = wait_share(prefill);
    v[MF_BENCH_PREFILL_MISSES] = prefill->n_tokens > 0 ? n_read : NAN;
    v[MF_BENCH_PREFILL_READS_PER_EXPERT] = ratio(n_read, n_experts * (double)n_chunks);
    v[MF_BENCH_PREFILL_FMA_RATE] = tps * setup->prefill_fma_per_token;
}

/* The least that a phase takes: what memory, cores or drive need for all that it must move and
 * multiply, were each at its measured best and nothing beside it in the way. */
static double least_seconds(const mf_cli_phase *phase, const mf_bench_machine *machine,
                            mf_bench_bound *bound)
{
    const mf_stats *s = &phase->stats;
    const double n_bytes = (double)s->weight_bytes_touched + (double)s->state_bytes_touched;
    const double seconds[] = {
        [MF_BENCH_BOUND_MEMORY] = ratio(n_bytes, machine->dram_bytes),
        [MF_BENCH_BOUND_CORES] = ratio((double)s->n_multiply_adds, machine->fma),
        [MF_BENCH_BOUND_DRIVE] = ratio((double)s->read_bytes, machine->read_bytes)};
    double most = NAN;
    for (int i = MF_BENCH_BOUND_MEMORY; i <= MF_BENCH_BOUND_DRIVE; i++)
        if (phase->n_tokens > 0 && isfinite(seconds[i]) && !(seconds[i] <= most)) {
            most = seconds[i];
            *bound = (mf_bench_bound)i;
        }
    return most;
}

static void fill_limits(double *v, mf_bench_setup *setup, const mf_cli_phase *prefill,
                        const mf_cli_phase *decode, const mf_bench_machine *machine)
{
    const mf_stats *p = &prefill->stats, *d = &decode->stats;
    const double n_tokens = (double)decode->n_tokens;
    v[MF_BENCH_STATE_PER_TOKEN] = ratio((double)d->state_bytes_touched, n_tokens);
    v[MF_BENCH_FMA_PER_TOKEN] = ratio((double)d->n_multiply_adds, n_tokens);
    double seconds = least_seconds(decode, machine, &setup->decode_bound);
    v[MF_BENCH_DECODE_LIMIT] = ratio(n_tokens, seconds);
    v[MF_BENCH_DECODE_OVER_LIMIT] = ratio(seconds, decode->seconds);
    const bool is_there = prefill->n_tokens > 0;
    v[MF_BENCH_PREFILL_BYTES] =
        is_there ? (double)p->weight_bytes_touched + (double)p->state_bytes_touched : NAN;
    v[MF_BENCH_PREFILL_FMA] = is_there ? (double)p->n_multiply_adds : NAN;
    seconds = least_seconds(prefill, machine, &setup->prefill_bound);
    v[MF_BENCH_PREFILL_LIMIT] = ratio((double)prefill->n_tokens, seconds);
    v[MF_BENCH_PREFILL_OVER_LIMIT] = ratio(seconds, prefill->seconds);
}

void mf_bench_round_fill(mf_bench_round *round, mf_bench_setup *setup, const mf_cli_phase *prefill,
                         const mf_cli_phase *decode, const mf_bench_machine *machine)
{
    double *v = round->value;
    fill_prefill(v, setup, prefill);
    fill_decode(v, decode);
    fill_uploads(v, setup, prefill, decode);
    fill_limits(v, setup, prefill, decode, machine);
    v[MF_BENCH_RAW_READ_RATE] = machine->read_bytes;
    v[MF_BENCH_RAW_READ_LATENCY] = machine->latency_us;
    v[MF_BENCH_DRAM_RATE] = machine->dram_bytes;
    v[MF_BENCH_FMA_PEAK] = machine->fma;
    v[MF_BENCH_LINK_TO_RATE] = machine->link_to > 0 ? machine->link_to : NAN;
    v[MF_BENCH_LINK_FROM_RATE] = machine->link_from > 0 ? machine->link_from : NAN;
    v[MF_BENCH_WEIGHT_OVER_DRAM] = ratio(v[MF_BENCH_WEIGHT_RATE], machine->dram_bytes);
    v[MF_BENCH_READ_OVER_RAW] = ratio(v[MF_BENCH_READ_RATE], machine->read_bytes);
    v[MF_BENCH_PREFILL_READ_OVER_RAW] = ratio(v[MF_BENCH_PREFILL_READ_RATE], machine->read_bytes);
    v[MF_BENCH_PREFILL_FMA_OVER_PEAK] = ratio(v[MF_BENCH_PREFILL_FMA_RATE], machine->fma);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A metric over the rounds in which it is a number; all NAN if there is none. */
typedef struct spread {
    double median, min, max;
} spread;

static spread spread_of(const mf_bench_setup *setup, const mf_bench_round *rounds, int metric)
{
    double values[MAX_ROUNDS];
    size_t n = 0;
    for (uint32_t i = 0; i < setup->n_rounds && i < MAX_ROUNDS; i++)
        if (isfinite(rounds[i].value[metric]))
            values[n++] = rounds[i].value[metric];
    if (n == 0)
        return (spread){NAN, NAN, NAN};
    qsort(values, n, sizeof *values, compare_doubles);
    double median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    return (spread){median, values[0], values[n - 1]};
}

/* A table cell; "-" for what is no number. */
static const char *cell(char text[MF_CLI_SIZE_CHARS], unit kind, double value)
{
    char size[MF_CLI_SIZE_CHARS];
    const size_t n = MF_CLI_SIZE_CHARS;
    if (!isfinite(value))
        return "-";
    switch (kind) {
    case UNIT_PLAIN:
        snprintf(text, n, "%.2f", value);
        break;
    case UNIT_BYTES:
        return mf_cli_size(text, value);
    case UNIT_RATE:
        snprintf(text, n, "%.*s/s", (int)n - 3, mf_cli_size(size, value));
        break;
    case UNIT_PERCENT:
        snprintf(text, n, "%.1f %%", 100 * value);
        break;
    case UNIT_MS:
        snprintf(text, n, "%.2f ms", 1e-3 * value);
        break;
    case UNIT_GFMA:
        snprintf(text, n, "%.2f billion", 1e-9 * value);
        break;
    }
    return text;
}

static void print_metrics(const mf_bench_setup *setup, const mf_bench_round *rounds)
{
    char median[MF_CLI_SIZE_CHARS], min[MF_CLI_SIZE_CHARS], max[MF_CLI_SIZE_CHARS];
    printf("%-36s %16s %16s %16s\n", "", "median", "least", "most");
    for (int i = 0; i < MF_BENCH_N_METRICS; i++) {
        const spread s = spread_of(setup, rounds, i);
        const unit u = metrics[i].unit;
        if (setup->info.n_host_slots == 0 && i >= MF_BENCH_HOST_HIT_RATE &&
            i <= MF_BENCH_PREFILL_UPLOAD_RATE)
            continue;
        printf("%-36s %16s %16s %16s\n", metrics[i].name, cell(median, u, s.median),
               cell(min, u, s.min), cell(max, u, s.max));
    }
}

static void json_metrics(mf_cli_json *json, const mf_bench_setup *setup,
                         const mf_bench_round *rounds)
{
    char key[64];
    for (int i = 0; i < MF_BENCH_N_METRICS; i++) {
        const spread s = spread_of(setup, rounds, i);
        mf_cli_json_number(json, metrics[i].key, s.median);
        snprintf(key, sizeof key, "%s_min", metrics[i].key);
        mf_cli_json_number(json, key, s.min);
        snprintf(key, sizeof key, "%s_max", metrics[i].key);
        mf_cli_json_number(json, key, s.max);
    }
}

/* By mf_bench_bound. */
static const char *const bounds[] = {"-", "memory", "cores or device", "drive"};

static double total_of(const mf_operation_time *list, size_t n)
{
    double seconds = 0;
    for (size_t i = 0; i < n; i++)
        seconds += list[i].seconds;
    return seconds;
}

/* Kinds of operations that only one of the two has are rare: each has its own rows. */
static void print_times(const char *phase, const mf_operation_time *list, size_t n,
                        uint64_t n_tokens)
{
    const double total = total_of(list, n);
    if (n == 0 || n_tokens == 0)
        return;
    printf("%s: the device's time, a token\n", phase);
    for (size_t i = 0; i < n; i++)
        printf("  %-34s %13.1f us %14.1f %% %12" PRIu64 "\n", list[i].name,
               1e6 * list[i].seconds / (double)n_tokens,
               total > 0 ? 100 * list[i].seconds / total : 0, list[i].n);
    printf("  %-34s %13.1f us\n", "all", 1e6 * total / (double)n_tokens);
}

static void json_times(mf_cli_json *json, const char *key, const mf_operation_time *list, size_t n,
                       uint64_t n_tokens)
{
    mf_cli_json_key(json, key);
    mf_cli_json times = mf_cli_json_begin(json->out);
    for (size_t i = 0; i < n && n_tokens != 0; i++)
        mf_cli_json_number(&times, list[i].name, 1e6 * list[i].seconds / (double)n_tokens);
    mf_cli_json_end_value(&times);
}

enum { MAX_NODES = 64 };

/* Where there are several nodes. */
static void print_nodes(void)
{
    mf_cli_node nodes[MAX_NODES];
    char size[MF_CLI_SIZE_CHARS], name[64];
    const size_t n_nodes = mf_cli_count_nodes(MF_CLI_NODE_FOLDER);
    const size_t n = n_nodes > 1 ? mf_cli_read_nodes(MF_CLI_NODE_MAPS, nodes, MAX_NODES) : 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "memory on node %" PRIu32 " of %zu", nodes[i].id, n_nodes);
        printf("%-36s %16s\n", name, mf_cli_size(size, (double)nodes[i].n_bytes));
    }
}

static void json_nodes(mf_cli_json *json)
{
    mf_cli_node nodes[MAX_NODES];
    char name[32];
    const size_t n = mf_cli_read_nodes(MF_CLI_NODE_MAPS, nodes, MAX_NODES);
    mf_cli_json_integer(json, "n_nodes", mf_cli_count_nodes(MF_CLI_NODE_FOLDER));
    mf_cli_json_key(json, "node_bytes");
    mf_cli_json bytes = mf_cli_json_begin(json->out);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%" PRIu32, nodes[i].id);
        mf_cli_json_integer(&bytes, name, nodes[i].n_bytes);
    }
    mf_cli_json_end_value(&bytes);
}

void mf_bench_print(const mf_bench_setup *setup, const mf_bench_round *rounds)
{
    char a[MF_CLI_SIZE_CHARS], b[MF_CLI_SIZE_CHARS];
    const mf_model_info *info = &setup->info;
    mf_cli_put_plain(stdout, setup->model);
    printf(": %s, %s; %s, %s\n", info->family, info->form, setup->io_name, setup->cpu_name);
    printf("%" PRIu32 " prompt tokens, %" PRIu32 " generated, %" PRIu32 " rounds; %" PRIu64
           " expert slots of %s, budget %s; opened in %.2f s\n",
           setup->n_prompt_tokens, setup->n_gen_tokens, setup->n_rounds, info->n_slots,
           mf_cli_size(a, (double)info->slot_bytes), mf_cli_size(b, (double)info->ram_bytes),
           setup->open_seconds);
    printf("%" PRIu32 " experts a token (the model's own: %" PRIu32 ") in %" PRIu32 " of %" PRIu32
           " layers\n",
           info->n_experts_per_token, info->n_experts_per_token_model, info->n_moe_layers,
           info->n_layers);
    print_metrics(setup, rounds);
    printf("%-36s %16s\n", "prefill is bound by", bounds[setup->prefill_bound]);
    printf("%-36s %16s\n", "decode is bound by", bounds[setup->decode_bound]);
    printf("%-36s %16s\n", "peak memory", mf_cli_size(a, (double)mf_cli_peak_rss_bytes()));
    print_nodes();
    if (setup->device_bytes_taken != 0)
        printf("%-36s %16s\n", "device memory", mf_cli_size(a, (double)setup->device_bytes_taken));
    mf_cli_stages_table(stdout, &setup->prefill, &setup->decode);
    if (setup->has_layers)
        mf_cli_layers_table(stdout, setup->engine);
    const mf_bench_times *t = &setup->times;
    print_times("prefill", t->prefill, t->n_prefill, t->n_prefill_tokens);
    print_times("decode", t->decode, t->n_decode, t->n_decode_tokens);
}

void mf_bench_print_json(const mf_bench_setup *setup, const mf_bench_round *rounds)
{
    const mf_model_info *info = &setup->info;
    mf_cli_json json = mf_cli_json_begin(stdout);
    mf_cli_json_string(&json, "model", setup->model);
    mf_cli_json_string(&json, "family", info->family);
    mf_cli_json_string(&json, "form", info->form);
    mf_cli_json_string(&json, "io", setup->io_name);
    mf_cli_json_string(&json, "cpu", setup->cpu_name);
    mf_cli_json_string(&json, "device", info->device);
    mf_cli_json_string(&json, "expert_device", info->expert_device);
    mf_cli_json_integer(&json, "prompt_tokens", setup->n_prompt_tokens);
    mf_cli_json_integer(&json, "gen_tokens", setup->n_gen_tokens);
    mf_cli_json_integer(&json, "rounds", setup->n_rounds);
    mf_cli_json_integer(&json, "prefill_chunk", setup->n_chunk_tokens);
    mf_cli_json_integer(&json, "ram_bytes", info->ram_bytes);
    mf_cli_json_integer(&json, "n_slots", info->n_slots);
    mf_cli_json_integer(&json, "slot_bytes", info->slot_bytes);
    mf_cli_json_integer(&json, "n_host_slots", info->n_host_slots);
    mf_cli_json_integer(&json, "working_set_bytes", info->working_set_bytes);
    mf_cli_json_integer(&json, "n_moe_layers", info->n_moe_layers);
    mf_cli_json_integer(&json, "experts_per_token", info->n_experts_per_token);
    mf_cli_json_integer(&json, "experts_per_token_model", info->n_experts_per_token_model);
    mf_cli_json_number(&json, "open_seconds", setup->open_seconds);
    mf_cli_json_number(&json, "prefill_fma_per_token", setup->prefill_fma_per_token);
    json_metrics(&json, setup, rounds);
    mf_cli_json_string(&json, "prefill_bound", bounds[setup->prefill_bound]);
    mf_cli_json_string(&json, "decode_bound", bounds[setup->decode_bound]);
    mf_cli_json_integer(&json, "peak_rss_bytes", mf_cli_peak_rss_bytes());
    json_nodes(&json);
    mf_cli_json_integer(&json, "device_bytes_taken", setup->device_bytes_taken);
    mf_cli_stages_json(&json, "prefill_stage_us", &setup->prefill);
    mf_cli_stages_json(&json, "decode_stage_us", &setup->decode);
    mf_cli_layers_json(&json, setup->engine);
    if (setup->times.is_there) {
        const mf_bench_times *t = &setup->times;
        json_times(&json, "prefill_operation_us", t->prefill, t->n_prefill, t->n_prefill_tokens);
        json_times(&json, "decode_operation_us", t->decode, t->n_decode, t->n_decode_tokens);
    }
    mf_cli_json_end(&json);
}
