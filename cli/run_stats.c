/* SPDX-License-Identifier: MIT */
/* The figures of a run as a table and as JSON. */
#include "run_stats.h"

#include "profile.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

void mf_cli_phase_add(mf_cli_phase *phase, const mf_stats *before, const mf_stats *after,
                      double seconds)
{
    mf_stats *s = &phase->stats;
    phase->n_tokens += after->n_tokens - before->n_tokens;
    phase->seconds += seconds;
    s->n_tokens += after->n_tokens - before->n_tokens;
    s->n_expert_hits += after->n_expert_hits - before->n_expert_hits;
    s->n_expert_misses += after->n_expert_misses - before->n_expert_misses;
    s->n_reads += after->n_reads - before->n_reads;
    s->read_bytes += after->read_bytes - before->read_bytes;
    s->expert_bytes_touched += after->expert_bytes_touched - before->expert_bytes_touched;
    s->weight_bytes_touched += after->weight_bytes_touched - before->weight_bytes_touched;
    s->wait_us += after->wait_us - before->wait_us;
    s->reading_us += after->reading_us - before->reading_us;
    s->n_multiply_adds += after->n_multiply_adds - before->n_multiply_adds;
    s->state_bytes_touched += after->state_bytes_touched - before->state_bytes_touched;
    s->n_read_calls += after->n_read_calls - before->n_read_calls;
    s->n_proposed += after->n_proposed - before->n_proposed;
    s->n_kept += after->n_kept - before->n_kept;
    s->n_hints += after->n_hints - before->n_hints;
    s->n_hints_useful += after->n_hints_useful - before->n_hints_useful;
    s->n_hints_late += after->n_hints_late - before->n_hints_late;
    s->n_hints_cancelled += after->n_hints_cancelled - before->n_hints_cancelled;
    s->n_hints_wasted += after->n_hints_wasted - before->n_hints_wasted;
    s->hint_wasted_us += after->hint_wasted_us - before->hint_wasted_us;
    s->hint_saved_us += after->hint_saved_us - before->hint_saved_us;
    s->hint_wasted_bytes += after->hint_wasted_bytes - before->hint_wasted_bytes;
    s->hint_bytes += after->hint_bytes - before->hint_bytes;
    for (int i = 0; i < MF_STAGES; i++)
        s->stage_us[i] += after->stage_us[i] - before->stage_us[i];
    if (after->device_bytes_taken > s->device_bytes_taken)
        s->device_bytes_taken = after->device_bytes_taken;
    s->n_expert_host_hits += after->n_expert_host_hits - before->n_expert_host_hits;
    s->upload_bytes += after->upload_bytes - before->upload_bytes;
    s->n_slots = after->n_slots;
    s->slot_bytes = after->slot_bytes;
    s->n_host_slots = after->n_host_slots;
}

mf_cli_phase mf_cli_phase_sum(const mf_cli_phase *a, const mf_cli_phase *b)
{
    const mf_stats zero = {0};
    mf_cli_phase sum = *a;
    mf_cli_phase_add(&sum, &zero, &b->stats, b->seconds);
    return sum;
}

double mf_cli_phase_tokens_per_second(const mf_cli_phase *phase)
{
    return phase->n_tokens > 0 && phase->seconds > 0 ? (double)phase->n_tokens / phase->seconds
                                                     : NAN;
}

double mf_cli_hit_rate(const mf_stats *stats)
{
    uint64_t n = stats->n_expert_hits + stats->n_expert_misses;
    return n > 0 ? (double)stats->n_expert_hits / (double)n : NAN;
}

static double per_token(double value, const mf_cli_phase *phase)
{
    return phase->n_tokens > 0 ? value / (double)phase->n_tokens : NAN;
}

/* Of which runs the table has a row. */
typedef enum row_shown {
    SHOWN_ALWAYS,
    SHOWN_WITH_HOST_SLOTS, /* experts are on a device with memory of its own */
    SHOWN_WITH_PROPOSALS,
    SHOWN_WITH_HINTS
} row_shown;

/* A row: a counter of mf_stats, or what value makes of the phase. */
typedef struct table_row {
    const char *name;
    row_shown shown;
    const char *format; /* of a number; NULL: bytes */
    size_t counter;     /* its place in mf_stats, a uint64_t */
    double scale;       /* 0: 1 */
    bool is_per_token;
    double (*value)(const mf_cli_phase *phase); /* NULL: the counter */
} table_row;

static double hit_percent(const mf_cli_phase *phase)
{
    return 100 * mf_cli_hit_rate(&phase->stats);
}

#define COUNTER(member) .counter = offsetof(mf_stats, member)

static const table_row table_rows[] = {
    {"tokens evaluated", .format = "%.0f", COUNTER(n_tokens)},
    {"tokens/s", .format = "%.2f", .value = mf_cli_phase_tokens_per_second},
    {"expert hits", .format = "%.0f", COUNTER(n_expert_hits)},
    {"expert misses", .format = "%.0f", COUNTER(n_expert_misses)},
    {"hit rate", .format = "%.1f %%", .value = hit_percent},
    {"misses held in RAM", SHOWN_WITH_HOST_SLOTS, "%.0f", COUNTER(n_expert_host_hits)},
    {"uploaded", SHOWN_WITH_HOST_SLOTS, COUNTER(upload_bytes)},
    {"read", COUNTER(read_bytes)},
    {"read a token", COUNTER(read_bytes), .is_per_token = true},
    {"system calls for it", .format = "%.0f", COUNTER(n_read_calls)},
    {"  a token", .format = "%.2f", COUNTER(n_read_calls), .is_per_token = true},
    {"waiting for reads", .format = "%.3f s", COUNTER(wait_us), .scale = 1e-6},
    {"waiting a token", .format = "%.3f ms", COUNTER(wait_us), .scale = 1e-3, .is_per_token = true},
    {"tokens proposed", SHOWN_WITH_PROPOSALS, "%.0f", COUNTER(n_proposed)},
    {"  kept", SHOWN_WITH_PROPOSALS, "%.0f", COUNTER(n_kept)},
    {"foreseen", SHOWN_WITH_HINTS, "%.0f", COUNTER(n_hints)},
    {"  in time", SHOWN_WITH_HINTS, "%.0f", COUNTER(n_hints_useful)},
    {"  late", SHOWN_WITH_HINTS, "%.0f", COUNTER(n_hints_late)},
    {"  for nothing", SHOWN_WITH_HINTS, "%.0f", COUNTER(n_hints_wasted)},
    {"read ahead", SHOWN_WITH_HINTS, COUNTER(hint_bytes)},
    {"  for nothing", SHOWN_WITH_HINTS, COUNTER(hint_wasted_bytes)},
    {"  of use, took", SHOWN_WITH_HINTS, "%.3f s", COUNTER(hint_saved_us), .scale = 1e-6},
    {"  for nothing, took", SHOWN_WITH_HINTS, "%.3f s", COUNTER(hint_wasted_us), .scale = 1e-6},
};

#undef COUNTER

/* NAN: there is none. */
static double row_value(const table_row *row, const mf_cli_phase *phase)
{
    uint64_t counted = 0;
    if (row->value != NULL)
        return row->value(phase);
    memcpy(&counted, (const char *)&phase->stats + row->counter, sizeof counted);
    const double value = (row->scale > 0 ? row->scale : 1) * (double)counted;
    return row->is_per_token ? per_token(value, phase) : value;
}

static void print_cell(FILE *out, const table_row *row, const mf_cli_phase *phase)
{
    const double value = row_value(row, phase);
    char text[64] = "-", size[MF_CLI_SIZE_CHARS];
    if (isfinite(value) && row->format != NULL)
        snprintf(text, sizeof text, row->format, value);
    else if (isfinite(value))
        snprintf(text, sizeof text, "%s", mf_cli_size(size, value));
    fprintf(out, " %14s", text);
}

static bool is_shown(const table_row *row, const mf_cli_run_stats *stats, const mf_stats *total)
{
    switch (row->shown) {
    case SHOWN_WITH_HOST_SLOTS:
        return stats->n_host_slots > 0;
    case SHOWN_WITH_PROPOSALS:
        return total->n_proposed > 0;
    case SHOWN_WITH_HINTS:
        return total->n_hints > 0;
    case SHOWN_ALWAYS:
    default:
        return true;
    }
}

static void print_counters(FILE *out, const mf_cli_run_stats *stats, const mf_cli_phase *total)
{
    fprintf(out, "%-20s %14s %14s %14s\n", "", "prompt", "answer", "total");
    for (size_t i = 0; i < sizeof table_rows / sizeof *table_rows; i++) {
        const table_row *row = &table_rows[i];
        if (!is_shown(row, stats, &total->stats))
            continue;
        fprintf(out, "%-20s", row->name);
        print_cell(out, row, &stats->prefill);
        print_cell(out, row, &stats->decode);
        print_cell(out, row, total);
        fputc('\n', out);
    }
}

static void print_device(FILE *out, const mf_cli_run_stats *stats, uint64_t taken_bytes)
{
    char taken[MF_CLI_SIZE_CHARS], most[MF_CLI_SIZE_CHARS], line[MF_CLI_EXPERT_DEVICE_CHARS];
    fprintf(out, "%-20s %14s", "device", stats->device);
    if (strcmp(stats->device, stats->expert_device) != 0)
        fprintf(out, ", experts on %s", mf_cli_expert_device(stats->expert_device, line));
    if (taken_bytes > 0)
        fprintf(out, ", %s taken", mf_cli_size(taken, (double)taken_bytes));
    if (stats->device_bytes > 0)
        fprintf(out, " of %s", mf_cli_size(most, (double)stats->device_bytes));
    if (stats->device_why[0] != '\0')
        fprintf(out, " (auto: %s)", stats->device_why);
    fputc('\n', out);
}

static void print_tokens(FILE *out, const mf_cli_run_stats *stats)
{
    fprintf(out, "%-20s %14" PRIu64 " tokens, %" PRIu64 " reused, %" PRIu64 " new\n", "prompts",
            stats->n_prompt, stats->n_reused, stats->n_new);
    if (stats->announced_seconds > 0)
        fprintf(out, "%-20s %12.1f s, took %.1f s\n", "  announced", stats->announced_seconds,
                stats->prefill.seconds);
    if (stats->n_from_store > 0)
        fprintf(out, "%-20s %14" PRIu64 " tokens\n", "from the store", stats->n_from_store);
    fprintf(out, "%-20s %14" PRIu64 " tokens\n", "generated", stats->n_generated);
    if (stats->n_forced > 0)
        fprintf(out, "%-20s %14" PRIu64 " tokens\n", "forced by a grammar", stats->n_forced);
    if (stats->is_random)
        fprintf(out, "%-20s %14" PRIu64 "\n", "seed", stats->seed);
    fprintf(out, "%-20s %14" PRIu32 " (the model's own: %" PRIu32 ")\n", "experts a token",
            stats->n_experts_per_token, stats->n_experts_per_token_model);
}

static void print_memory(FILE *out, const mf_cli_run_stats *stats, const mf_stats *total)
{
    char size[MF_CLI_SIZE_CHARS], slot[MF_CLI_SIZE_CHARS];
    fprintf(out, "%-20s %14" PRIu64 " of %s (%s, %s)\n", "expert slots", stats->n_slots,
            mf_cli_size(slot, (double)stats->slot_bytes), stats->io_name, stats->cpu_name);
    if (total->n_slots != stats->n_slots)
        fprintf(out, "%-20s %14" PRIu64 "\n", "  at the end", total->n_slots);
    print_device(out, stats, total->device_bytes_taken);
    if (stats->n_host_slots > 0)
        fprintf(out, "%-20s %14" PRIu64 " of %s\n", "expert slots in RAM", stats->n_host_slots,
                slot);
    fprintf(out, "%-20s %14s", "peak memory", mf_cli_size(size, (double)mf_cli_peak_rss_bytes()));
    if (stats->ram_bytes > 0)
        fprintf(out, " of a budget of %s", mf_cli_size(size, (double)stats->ram_bytes));
    fputc('\n', out);
}

void mf_cli_run_stats_table(FILE *out, const mf_cli_run_stats *stats)
{
    const mf_cli_phase total = mf_cli_phase_sum(&stats->prefill, &stats->decode);
    print_counters(out, stats, &total);
    mf_cli_stages_table(out, &stats->prefill, &stats->decode);
    print_tokens(out, stats);
    print_memory(out, stats, &total.stats);
}

static void json_phase(mf_cli_json *json, const char *prefix, const mf_cli_phase *phase)
{
    const mf_stats *s = &phase->stats;
    const struct {
        const char *key;
        double value;
    } members[] = {
        {"tokens", (double)phase->n_tokens},
        {"seconds", phase->seconds},
        {"tokens_per_s", mf_cli_phase_tokens_per_second(phase)},
        {"expert_hits", (double)s->n_expert_hits},
        {"expert_misses", (double)s->n_expert_misses},
        {"hit_rate", mf_cli_hit_rate(s)},
        {"expert_host_hits", (double)s->n_expert_host_hits},
        {"upload_bytes", (double)s->upload_bytes},
        {"reads", (double)s->n_reads},
        {"read_bytes", (double)s->read_bytes},
        {"read_bytes_per_token", per_token((double)s->read_bytes, phase)},
        {"weight_bytes_per_token", per_token((double)s->weight_bytes_touched, phase)},
        {"wait_us", (double)s->wait_us},
        {"wait_us_per_token", per_token((double)s->wait_us, phase)},
        {"reading_us", (double)s->reading_us},
    };
    char key[64];
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        snprintf(key, sizeof key, "%s%s", prefix, members[i].key);
        mf_cli_json_number(json, key, members[i].value);
    }
}

void mf_cli_seed_json(mf_cli_json *json, const mf_cli_run_stats *stats)
{
    mf_cli_json_key(json, "seed");
    if (stats->is_random)
        fprintf(json->out, "%" PRIu64, stats->seed);
    else
        fputs("null", json->out);
}

void mf_cli_run_stats_json(mf_cli_json *json, const mf_cli_run_stats *stats)
{
    mf_cli_phase total = mf_cli_phase_sum(&stats->prefill, &stats->decode);
    json_phase(json, "prefill_", &stats->prefill);
    json_phase(json, "decode_", &stats->decode);
    json_phase(json, "", &total);
    mf_cli_stages_json(json, "prefill_stage_us", &stats->prefill);
    mf_cli_stages_json(json, "decode_stage_us", &stats->decode);
    mf_cli_json_integer(json, "read_calls", total.stats.n_read_calls);
    mf_cli_json_integer(json, "proposed", total.stats.n_proposed);
    mf_cli_json_integer(json, "kept", total.stats.n_kept);
    mf_cli_json_integer(json, "hints", total.stats.n_hints);
    mf_cli_json_integer(json, "hints_useful", total.stats.n_hints_useful);
    mf_cli_json_integer(json, "hints_late", total.stats.n_hints_late);
    mf_cli_json_integer(json, "hints_cancelled", total.stats.n_hints_cancelled);
    mf_cli_json_integer(json, "hints_wasted", total.stats.n_hints_wasted);
    mf_cli_json_integer(json, "hint_wasted_us", total.stats.hint_wasted_us);
    mf_cli_json_integer(json, "hint_saved_us", total.stats.hint_saved_us);
    mf_cli_json_integer(json, "hint_wasted_bytes", total.stats.hint_wasted_bytes);
    mf_cli_json_integer(json, "hint_bytes", total.stats.hint_bytes);
    mf_cli_json_number(json, "prefill_announced_seconds", stats->announced_seconds);
    mf_cli_json_integer(json, "prompt_tokens", stats->n_prompt);
    mf_cli_json_integer(json, "prompt_reused_tokens", stats->n_reused);
    mf_cli_json_integer(json, "prompt_new_tokens", stats->n_new);
    mf_cli_json_integer(json, "store_tokens", stats->n_from_store);
    mf_cli_json_integer(json, "generated_tokens", stats->n_generated);
    mf_cli_json_integer(json, "forced_tokens", stats->n_forced);
    mf_cli_json_integer(json, "experts_per_token", stats->n_experts_per_token);
    mf_cli_json_integer(json, "experts_per_token_model", stats->n_experts_per_token_model);
    mf_cli_json_integer(json, "peak_rss_bytes", mf_cli_peak_rss_bytes());
    mf_cli_json_integer(json, "ram_bytes", stats->ram_bytes);
    mf_cli_json_integer(json, "n_slots", stats->n_slots);
    mf_cli_json_integer(json, "n_slots_end", total.stats.n_slots);
    mf_cli_json_integer(json, "slot_bytes", stats->slot_bytes);
    mf_cli_json_integer(json, "n_host_slots", stats->n_host_slots);
    mf_cli_json_string(json, "io", stats->io_name);
    mf_cli_json_string(json, "cpu", stats->cpu_name);
    mf_cli_json_string(json, "device", stats->device);
    mf_cli_json_string(json, "expert_device", stats->expert_device);
    mf_cli_json_string(json, "device_why", stats->device_why);
    mf_cli_json_integer(json, "device_bytes", stats->device_bytes);
    mf_cli_json_integer(json, "device_bytes_taken", total.stats.device_bytes_taken);
    mf_cli_seed_json(json, stats);
}
