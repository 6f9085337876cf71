/* SPDX-License-Identifier: MIT */
/* moeflux plan: what this machine would make of models, before they are fetched or opened. */
#include "commands.h"

#include "hub.h"
#include "json.h"
#include "machine.h"
#include "model_json.h"
#include "model_path.h"
#include "verdict.h"
#ifdef MF_HAS_PULL
#include "hub_inspect.h"
#include "interrupt.h"
#endif

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: moeflux plan MODEL... [OPTION]...\n"
    "Says what this machine would make of a model: bytes a token, memory, and the speed to expect\n"
    "of several budgets, from its measured drive and memory. MODEL may be ORG/NAME of a hub: only\n"
    "the headers of its weights are fetched. Several models, or forms of one (ORG/NAME:Q4_K_M), "
    "are\n"
    "compared.\n"
    "\n"
    "  --drive RATE           bytes a second that the drive reads (default: measured)\n"
    "  --memory RATE          bytes a second that memory reads (default: measured)\n"
    "  --json                 a JSON object for each model\n" //
    MF_MODEL_OPTIONS_HELP;

enum { OPT_JSON = MF_OPT_OWN, OPT_DRIVE, OPT_MEMORY, N_BUDGETS = 5 };

static const struct option long_options[] = {{"json", no_argument, NULL, OPT_JSON},
                                             {"drive", required_argument, NULL, OPT_DRIVE},
                                             {"memory", required_argument, NULL, OPT_MEMORY},
                                             MF_MODEL_LONG_OPTIONS,
                                             {0}};

/* A model with one budget. */
typedef struct budget {
    uint64_t ram_bytes;
    double held; /* of the experts */
    double read_bytes;
    double tokens_per_second; /* 0: a rate is not known, or it does not run */
} budget;

typedef struct plan_args {
    mf_cli_engine_args engine;
    uint64_t drive, memory; /* given */
    bool has_json, has_drive;
    double drive_rate, memory_rate;
} plan_args;

/* One model looked at. */
typedef struct plan {
    const plan_args *args;
    const char *given;
    mf_model_info info;
    mf_status text;      /* of its vocabulary */
    mf_error text_error; /* why it cannot be read */
    budget here, budgets[N_BUDGETS];
    uint32_t n_budgets;
} plan;

static int own_option(void *ctx, const mf_cli_parser *parser, int option)
{
    plan_args *args = ctx;
    uint64_t *rate = option == OPT_DRIVE ? &args->drive : &args->memory;
    if (option == OPT_JSON)
        args->has_json = true;
    else if (!mf_cli_parse_size(optarg, rate) || *rate == 0)
        return mf_cli_bad_value(parser, option == OPT_DRIVE ? "drive" : "memory", optarg,
                                "bytes a second, like 3.5G");
    return MF_EXIT_OK;
}

/* Of info, which is of this budget. */
static budget budget_of(const mf_model_info *info)
{
    budget b = {.ram_bytes = info->ram_bytes};
    b.held = info->n_moe_layers == 0 ? 1 : mf_cli_cacheable_fraction(info);
    b.read_bytes = mf_cli_read_bytes(info);
    return b;
}

static mf_status look(void *user, const char *path, mf_error *error)
{
    plan *p = user;
    mf_engine_options options = p->args->engine.options;
    mf_model_info info;
    mf_status status = mf_model_inspect(path, &options, &p->info, error);
    if (status != MF_OK)
        return status;
    p->here = budget_of(&p->info);
    const uint64_t floor = p->info.floor_bytes,
                   all = p->info.slot_bytes * p->info.n_experts * (uint64_t)p->info.n_moe_layers;
    for (uint32_t i = 0; i < N_BUDGETS; i++) {
        options.ram_bytes = floor + all / 4 * i + (i == N_BUDGETS - 1 ? all % 4 : 0);
        if (i > 0 && all == 0)
            break;
        status = mf_model_inspect(path, &options, &info, error);
        if (status != MF_OK)
            return status;
        p->budgets[p->n_budgets++] = budget_of(&info);
    }
    p->text = mf_cli_look_at_text(path, &p->text_error);
    return MF_OK;
}

#ifdef MF_HAS_PULL
static int look_at_hub(plan *p, const mf_hub_places *places, const mf_hub_name *name)
{
    mf_cli_pull_progress progress = {.verbosity = &p->args->engine.verbosity};
    const mf_hub_options options = {
        .n_connections = 8, .n_retries = 4, .tick = mf_cli_pull_tick, .user = &progress};
    mf_hub_model *model = NULL;
    mf_error error = {0};
    bool fetched = false;
    mf_status status = MF_ERR_IO;
    mf_cli_interrupt_install();
    if (mf_hub_open(places, name, &options, &model, &error))
        status = mf_cli_hub_look(model, look, p, &fetched, &error);
    mf_hub_close(&model);
    return status == MF_OK ? MF_EXIT_OK : mf_cli_fail_of(p->given, &error);
}
#endif

/* A path, what the cache holds, or else what the hub has. An exit code. */
static int look_at(plan *p)
{
    mf_hub_places places;
    mf_hub_name name;
    mf_cli_model_path path;
    mf_error error = {0};
    char found[MF_HUB_PATH_CHARS], why[256];
    mf_hub_places_read(&places);
#ifdef MF_HAS_PULL
    if (!mf_cli_is_path(p->given) && mf_hub_name_parse(p->given, &name) &&
        mf_hub_find(&places, &name, found, why) != MF_HUB_HELD)
        return look_at_hub(p, &places, &name);
#else
    (void)name, (void)found, (void)why;
#endif
    if (mf_cli_model_find(p->given, &path) != MF_EXIT_OK)
        return MF_EXIT_ERROR;
    const mf_status status = look(p, path.text, &error);
    return status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
}

static void set_speed(const plan *p, budget *b)
{
    b->tokens_per_second = mf_cli_tokens_per_second(mf_cli_token_bytes(&p->info), b->read_bytes,
                                                    p->args->drive_rate, p->args->memory_rate);
}

/* The rates that were not given, once. The drive's is of the model, or of the place that models are
 * fetched to. */
static void measure(plan_args *args, const plan *p)
{
    mf_hub_places places;
    mf_hub_places_read(&places);
    if (args->memory_rate <= 0)
        args->memory_rate = args->memory != 0
                                ? (double)args->memory
                                : mf_cli_measure_memory(args->engine.options.n_threads);
    if (args->has_drive || (args->drive == 0 && p->info.n_moe_layers == 0))
        return;
    args->has_drive = true;
    args->drive_rate = (double)args->drive;
    if (args->drive == 0)
        args->drive_rate = mf_cli_measure_drive(mf_cli_is_path(p->given) ? p->given : NULL,
                                                places.cache, p->info.one_expert_bytes);
}

static void print_rate(const char *name, double rate, bool is_given)
{
    char size[MF_CLI_SIZE_CHARS];
    if (rate > 0)
        printf("%-22s %s/s (%s)\n", name, mf_cli_size(size, rate), is_given ? "given" : "measured");
    else
        printf("%-22s not measured here (--%s)\n", name, name);
}

static void print_budget(const budget *b, const char *what)
{
    char ram[MF_CLI_SIZE_CHARS], reads[MF_CLI_SIZE_CHARS], speed[MF_CLI_SIZE_CHARS] = "-";
    if (b->tokens_per_second > 0)
        snprintf(speed, sizeof speed, "%.2f", b->tokens_per_second);
    printf("%12s %12.1f %% %14s %12s%s\n", mf_cli_size_up(ram, b->ram_bytes), 100 * b->held,
           mf_cli_size(reads, b->read_bytes), speed, what);
}

static void print_plan(const plan *p)
{
    const mf_model_info *info = &p->info;
    char size[MF_CLI_SIZE_CHARS];
    mf_cli_row("model", p->given);
    printf("%-22s %s, %s\n", "family, form", info->family, info->form);
    printf("%-22s %s\n", "parameters", mf_cli_count(size, (double)info->n_parameters));
    printf("%-22s %s\n", "dense weights", mf_cli_size(size, (double)info->resident_bytes));
    printf("%-22s %s\n", "experts", mf_cli_size(size, (double)info->expert_bytes));
    printf("%-22s %s\n", "bytes a token", mf_cli_size(size, mf_cli_token_bytes(info)));
    mf_cli_print_left_out(info);
    if (info->n_moe_layers > 0)
        print_rate("drive", p->args->drive_rate, p->args->drive != 0);
    print_rate("memory", p->args->memory_rate, p->args->memory != 0);
    printf("\n%12s %14s %14s %12s\n", "--ram", "experts held", "read a token", "tokens/s");
    for (uint32_t i = 0; i < p->n_budgets; i++)
        print_budget(&p->budgets[i], i == 0 ? "  the least" : "");
    print_budget(&p->here, "  this machine's");
    putchar('\n');
    mf_cli_print_verdict(info, p->text, &p->text_error);
}

static void print_row(const plan *p)
{
    char dense[MF_CLI_SIZE_CHARS], experts[MF_CLI_SIZE_CHARS], token[MF_CLI_SIZE_CHARS];
    char least[MF_CLI_SIZE_CHARS], speed[MF_CLI_SIZE_CHARS] = "-";
    if (mf_cli_runs(&p->info) && p->here.tokens_per_second > 0)
        snprintf(speed, sizeof speed, "%.2f", p->here.tokens_per_second);
    printf("%10s %10s %13s %11s %8.1f %% %9s  ", mf_cli_size(dense, (double)p->info.resident_bytes),
           mf_cli_size(experts, (double)p->info.expert_bytes),
           mf_cli_size(token, mf_cli_token_bytes(&p->info)),
           mf_cli_size_up(least, p->info.floor_bytes), 100 * p->here.held, speed);
    mf_cli_put_plain(stdout, p->given);
    printf(" (%s%s)\n", p->info.form, p->text == MF_OK ? "" : "; no text");
    mf_cli_print_left_out(&p->info);
}

static void json_budget(FILE *out, const budget *b)
{
    mf_cli_json json = mf_cli_json_begin(out);
    mf_cli_json_integer(&json, "ram_bytes", b->ram_bytes);
    mf_cli_json_number(&json, "held", b->held);
    mf_cli_json_number(&json, "read_bytes_per_token", b->read_bytes);
    mf_cli_json_number(&json, "tokens_per_second", b->tokens_per_second);
    mf_cli_json_end_value(&json);
}

static void print_json(const plan *p)
{
    mf_cli_json json = mf_cli_json_begin(stdout);
    mf_cli_json_string(&json, "model", p->given);
    mf_cli_json_string(&json, "family", p->info.family);
    mf_cli_json_string(&json, "form", p->info.form);
    mf_cli_json_integer(&json, "n_parameters", p->info.n_parameters);
    mf_cli_json_integer(&json, "resident_bytes", p->info.resident_bytes);
    mf_cli_json_integer(&json, "expert_bytes", p->info.expert_bytes);
    mf_cli_json_integer(&json, "working_set_bytes", p->info.working_set_bytes);
    mf_cli_json_number(&json, "token_bytes", mf_cli_token_bytes(&p->info));
    mf_cli_json_number(&json, "drive_bytes_per_second", p->args->drive_rate);
    mf_cli_json_number(&json, "memory_bytes_per_second", p->args->memory_rate);
    mf_cli_json_left_out(&json, &p->info);
    mf_cli_json_bool(&json, "runs", mf_cli_runs(&p->info) && p->text == MF_OK);
    mf_cli_json_string(&json, "verdict", mf_cli_verdict(&p->info, p->text));
    mf_cli_json_key(&json, "here");
    json_budget(stdout, &p->here);
    mf_cli_json_key(&json, "budgets");
    for (uint32_t i = 0; i < p->n_budgets; i++) {
        fputs(i ? ", " : "[", stdout);
        json_budget(stdout, &p->budgets[i]);
    }
    putchar(']');
    mf_cli_json_end(&json);
}

static void print_one(plan *p, bool is_alone)
{
    if (mf_cli_runs(&p->info))
        set_speed(p, &p->here);
    for (uint32_t i = 0; i < p->n_budgets; i++)
        set_speed(p, &p->budgets[i]);
    if (p->args->has_json)
        print_json(p);
    else if (is_alone)
        print_plan(p);
    else
        print_row(p);
}

int mf_cmd_plan(int argc, char **argv)
{
    plan_args args = {0};
    int exit_code = MF_EXIT_OK;
    mf_cli_engine_args_init(&args.engine);
    const mf_cli_parser parser = {
        "plan", help, argc, argv, ":" MF_ENGINE_SHORT_OPTIONS, long_options, &args.engine};
    if (!mf_cli_parse(&parser, own_option, &args, &exit_code))
        return exit_code;
    const char *given = mf_cli_positional(&parser, "MODEL", true, &exit_code);
    const bool is_alone = given && optind >= argc;
    bool is_first = true;
    while (given) {
        plan p = {.args = &args, .given = given};
        const int looked = look_at(&p);
        if (looked == MF_EXIT_INTERRUPTED)
            return mf_cli_finish(looked);
        if (looked != MF_EXIT_OK) {
            exit_code = looked;
        } else {
            measure(&args, &p);
            if (is_first && !is_alone && !args.has_json)
                printf("%10s %10s %13s %11s %10s %9s\n", "dense", "experts", "bytes a token",
                       "least --ram", "held here", "tokens/s");
            is_first = false;
            print_one(&p, is_alone);
        }
        given = optind < argc ? argv[optind++] : NULL;
    }
    return mf_cli_finish(exit_code);
}
