/* SPDX-License-Identifier: MIT */
/* moeflux pull: fetches a model of the hub into the cache that other programs share. */
#include "commands.h"

#include "hub_inspect.h"
#include "interrupt.h"
#include "json.h"
#include "model_json.h"
#include "verdict.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: moeflux pull ORG/NAME[@REVISION][:FILE | :QUANT] [OPTION]...\n"
    "Fetches a model of the hub into the cache that Hugging Face's own programs use, and prints\n"
    "where it lies. run, serve, info and the others then take ORG/NAME. Only what runs is "
    "fetched:\n"
    "one form of the weights (safetensors, or one GGUF model: a file, or a quantisation like\n"
    "Q4_K_M), configs, tokenizer and templates. What was interrupted goes on where it was, and "
    "the\n"
    "hash of each file is checked.\n"
    "\n"
    "  --revision REVISION    a branch, a tag or a commit (default main)\n"
    "  --dry-run              say what it would cost and whether it will run here; fetch nothing\n"
    "  --json                 with --dry-run: one JSON object\n"
    "  --check                hash what the cache holds already again; fetch anew what is wrong\n"
    "  --force                fetch it even if it will not run here\n"
    "  --connections N        requests at once (default 8)\n"
    "  --retries N            failures in a row before it is given up (default 10)\n"
    "\n"
    "Environment: HF_ENDPOINT, HF_TOKEN or the token file, HF_HUB_CACHE, HF_HOME,\n"
    "HF_HUB_OFFLINE (nothing is fetched).\n"
    "\n" //
    MF_MODEL_OPTIONS_HELP;

enum {
    OPT_REVISION = MF_OPT_OWN,
    OPT_DRY_RUN,
    OPT_JSON,
    OPT_CHECK,
    OPT_FORCE,
    OPT_CONNECTIONS,
    OPT_RETRIES
};

static const struct option long_options[] = {
    {"revision", required_argument, NULL, OPT_REVISION},
    {"dry-run", no_argument, NULL, OPT_DRY_RUN},
    {"json", no_argument, NULL, OPT_JSON},
    {"check", no_argument, NULL, OPT_CHECK},
    {"force", no_argument, NULL, OPT_FORCE},
    {"connections", required_argument, NULL, OPT_CONNECTIONS},
    {"retries", required_argument, NULL, OPT_RETRIES},
    MF_MODEL_LONG_OPTIONS,
    {0}};

typedef struct pull_args {
    mf_cli_engine_args engine;
    mf_hub_options hub;
    mf_hub_name name;
    const char *given, *revision;
    bool is_dry, has_json, checks, is_forced;
    mf_cli_pull_progress progress;
} pull_args;

static const mf_cli_number numbers[] = {
    {OPT_CONNECTIONS, "connections", offsetof(pull_args, hub.n_connections), 1, 64},
    {OPT_RETRIES, "retries", offsetof(pull_args, hub.n_retries), 0, 1000000},
};

static int own_option(void *ctx, const mf_cli_parser *parser, int option)
{
    pull_args *args = ctx;
    int exit_code = MF_EXIT_OK;
    if (mf_cli_take_number(parser, numbers, sizeof numbers / sizeof *numbers, option, args,
                           &exit_code))
        return exit_code;
    const mf_cli_flag flags[] = {{OPT_DRY_RUN, &args->is_dry},
                                 {OPT_JSON, &args->has_json},
                                 {OPT_CHECK, &args->checks},
                                 {OPT_FORCE, &args->is_forced},
                                 {0, NULL}};
    if (mf_cli_take_flag(flags, option))
        return exit_code;
    args->revision = optarg;
    if (!mf_hub_is_revision(optarg))
        return mf_cli_bad_value(parser, "revision", optarg, "a branch, a tag or a commit");
    return exit_code;
}

/* False: the program ends with *exit_code. */
static bool parse(pull_args *args, int argc, char **argv, int *exit_code)
{
    const mf_cli_parser parser = {
        "pull", help, argc, argv, ":" MF_ENGINE_SHORT_OPTIONS, long_options, &args->engine};
    if (!mf_cli_parse(&parser, own_option, args, exit_code))
        return false;
    args->given = mf_cli_positional(&parser, "ORG/NAME", false, exit_code);
    if (!args->given)
        return false;
    if (!mf_hub_name_parse(args->given, &args->name)) {
        *exit_code = mf_cli_usage_error(
            "pull", "pull: '%s' is not ORG/NAME[@REVISION][:FILE or :QUANT]", args->given);
        return false;
    }
    if (args->has_json && !args->is_dry) {
        *exit_code = mf_cli_usage_error("pull", "pull: --json wants --dry-run");
        return false;
    }
    if (args->checks && args->is_dry) {
        *exit_code = mf_cli_usage_error("pull", "pull: --check and --dry-run exclude each other");
        return false;
    }
    if (args->revision && args->given[strcspn(args->given, "@:")] == '@') {
        *exit_code =
            mf_cli_usage_error("pull", "pull: --revision and @REVISION exclude each other");
        return false;
    }
    if (args->revision)
        snprintf(args->name.revision, sizeof args->name.revision, "%s", args->revision);
    return true;
}

/* What the hub has, as far as it can be looked at from here. */
typedef struct prospect {
    const mf_engine_options *options;
    mf_status status; /* of mf_model_inspect */
    mf_model_info info;
    mf_error error;
    mf_status text; /* of its vocabulary */
    mf_error text_error;
} prospect;

static mf_status look(void *user, const char *path, mf_error *error)
{
    prospect *p = user;
    const mf_status status = mf_model_inspect(path, p->options, &p->info, error);
    if (status == MF_OK)
        p->text = mf_cli_look_at_text(path, &p->text_error);
    return status;
}

static const char *verdict_of(const prospect *p)
{
    if (p->status == MF_OK)
        return mf_cli_verdict(&p->info, p->text);
    return p->error.message;
}

static void print_json(const pull_args *args, const mf_hub_model *model, const prospect *p)
{
    const mf_hub_listing *listing = mf_hub_model_listing(model);
    mf_hub_cost cost;
    mf_hub_model_cost(model, &cost);
    mf_cli_json json = mf_cli_json_begin(stdout);
    mf_cli_json_string(&json, "model", args->name.repo);
    mf_cli_json_string(&json, "commit", listing->commit);
    mf_cli_json_integer(&json, "n_files", cost.n_files);
    mf_cli_json_integer(&json, "bytes", cost.n_bytes);
    mf_cli_json_integer(&json, "missing_bytes", cost.n_missing_bytes);
    mf_cli_json_integer(&json, "free_bytes", cost.n_free_bytes);
    if (p->status == MF_OK)
        mf_cli_json_left_out(&json, &p->info);
    mf_cli_json_bool(&json, "runs",
                     p->status == MF_OK && p->text == MF_OK && mf_cli_runs(&p->info));
    mf_cli_json_string(&json, "verdict", verdict_of(p));
    mf_cli_json_key(&json, "files");
    putchar('[');
    for (size_t i = 0, n = 0; i < listing->n_files; i++)
        if (listing->files[i].is_wanted) {
            fputs(n++ ? ", " : "", stdout);
            mf_cli_json_quote(stdout, listing->files[i].path, strlen(listing->files[i].path));
        }
    putchar(']');
    mf_cli_json_end(&json);
}

/* Beside GGUF models what sees has files of its own, which are not fetched. */
static void print_projectors(const mf_hub_listing *listing)
{
    char size[MF_CLI_SIZE_CHARS];
    for (size_t i = 0; i < listing->n_files; i++) {
        const char *path = listing->files[i].path, *slash = strrchr(path, '/');
        if (strncmp(slash ? slash + 1 : path, "mmproj", strlen("mmproj")) == 0)
            printf("%-22s vision projector (%s, %s: not fetched)\n", "left out", path,
                   mf_cli_size(size, (double)listing->files[i].n_bytes));
    }
}

static void print_cost(const pull_args *args, const mf_hub_model *model, const prospect *p)
{
    const mf_hub_listing *listing = mf_hub_model_listing(model);
    mf_hub_cost cost;
    char size[MF_CLI_SIZE_CHARS];
    mf_hub_model_cost(model, &cost);
    for (size_t i = 0; i < listing->n_files; i++) {
        const mf_hub_file *file = &listing->files[i];
        if (file->is_wanted)
            printf("%12s  %s%s\n", mf_cli_size(size, (double)file->n_bytes), file->path,
                   file->is_held ? "  (held)" : "");
    }
    printf("%-22s %s at %s\n", "model", args->name.repo, listing->commit);
    printf("%-22s %zu of %zu\n", "files", cost.n_files, listing->n_files);
    printf("%-22s %s\n", "size", mf_cli_size(size, (double)cost.n_bytes));
    printf("%-22s %s\n", "to be fetched", mf_cli_size(size, (double)cost.n_missing_bytes));
    printf("%-22s %s\n", "free on the drive", mf_cli_size(size, (double)cost.n_free_bytes));
    print_projectors(listing);
    if (p->status == MF_OK) {
        mf_cli_print_left_out(&p->info);
        printf("%-22s %s\n", "least --ram", mf_cli_size_up(size, p->info.floor_bytes));
        printf("%-22s %s\n", "budget", mf_cli_size(size, (double)p->info.ram_bytes));
        mf_cli_print_verdict(&p->info, p->text, &p->text_error);
    } else {
        printf("%-22s does not run: ", "verdict");
        mf_cli_put_plain(stdout, p->error.message);
        putchar('\n');
    }
}

static int fail(pull_args *args, const mf_error *error)
{
    mf_cli_pull_progress_end(&args->progress);
    return mf_cli_fail_of(args->given, error);
}

/* Whether it would be fetched in vain. An exit code. */
static int look_before(pull_args *args, mf_hub_model *model, prospect *p)
{
    bool fetched = false;
    if (args->is_forced && !args->is_dry)
        return MF_EXIT_OK;
    p->options = &args->engine.options;
    p->status = mf_cli_hub_look(model, look, p, &fetched, &p->error);
    mf_cli_pull_progress_end(&args->progress);
    if (!fetched)
        return fail(args, &p->error);
    if (args->is_dry)
        return MF_EXIT_OK;
    if (p->status != MF_OK)
        return mf_cli_error("%s: does not run, so it is not fetched (--force): %s", args->given,
                            p->error.message);
    if (p->text != MF_OK && p->text != MF_ERR_NOT_FOUND)
        return mf_cli_error("%s: does not run, so it is not fetched (--force): its vocabulary "
                            "cannot be read: %s",
                            args->given, p->text_error.message);
    if (p->text != MF_OK || !mf_cli_runs(&p->info))
        mf_cli_log(&args->engine.verbosity, MF_LOG_WARNING, mf_cli_verdict(&p->info, p->text));
    return MF_EXIT_OK;
}

/* An exit code. */
static int check(pull_args *args, mf_hub_model *model)
{
    size_t n_bad = 0;
    mf_error error = {0};
    if (!args->checks)
        return MF_EXIT_OK;
    if (!mf_hub_check(model, &n_bad, &error))
        return fail(args, &error);
    if (n_bad > 0)
        mf_cli_log(&args->engine.verbosity, MF_LOG_WARNING,
                   "files in the cache had another content than the hub lists: fetched anew");
    return MF_EXIT_OK;
}

static int fetch(pull_args *args, mf_hub_model *model, const mf_hub_places *places)
{
    char path[MF_HUB_PATH_CHARS], why[256] = "";
    mf_error error = {0};
    args->progress.began = 0;
    if (!mf_hub_fetch(model, &error))
        return fail(args, &error);
    mf_cli_pull_progress_end(&args->progress);
    if (mf_hub_find(places, &args->name, path, why) != MF_HUB_HELD)
        return mf_cli_error("%s: %s", args->given, *why ? why : "not found in the cache");
    printf("%s\n", path);
    return MF_EXIT_OK;
}

/* What is there is what a pull would end with, if nothing may be asked. */
static bool has_offline(const pull_args *args, const mf_hub_places *places)
{
    char path[MF_HUB_PATH_CHARS], why[256];
    if (!places->is_offline || args->is_dry || args->checks ||
        mf_hub_find(places, &args->name, path, why) != MF_HUB_HELD)
        return false;
    printf("%s\n", path);
    return true;
}

static int pull(pull_args *args)
{
    mf_hub_places places;
    mf_hub_model *model = NULL;
    prospect p = {0};
    mf_error error = {0};
    mf_hub_places_read(&places);
    if (has_offline(args, &places))
        return mf_cli_finish(MF_EXIT_OK);
    if (!mf_hub_open(&places, &args->name, &args->hub, &model, &error))
        return fail(args, &error);
    int exit_code = check(args, model);
    if (exit_code == MF_EXIT_OK)
        exit_code = look_before(args, model, &p);
    if (exit_code == MF_EXIT_OK && args->has_json)
        print_json(args, model, &p);
    else if (exit_code == MF_EXIT_OK && args->is_dry)
        print_cost(args, model, &p);
    else if (exit_code == MF_EXIT_OK)
        exit_code = fetch(args, model, &places);
    mf_hub_close(&model);
    return mf_cli_finish(exit_code);
}

int mf_cmd_pull(int argc, char **argv)
{
    pull_args args = {.hub = {.n_connections = 8, .n_retries = 10}};
    int exit_code = MF_EXIT_OK;
    mf_cli_engine_args_init(&args.engine);
    if (!parse(&args, argc, argv, &exit_code))
        return exit_code;
    args.progress = (mf_cli_pull_progress){.verbosity = &args.engine.verbosity,
                                           .is_terminal = isatty(STDERR_FILENO) == 1};
    args.hub.tick = mf_cli_pull_tick;
    args.hub.user = &args.progress;
    mf_cli_interrupt_install();
    return pull(&args);
}
