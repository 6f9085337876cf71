/* SPDX-License-Identifier: MIT */
/* moeflux run: one answer to a prompt, or the chat. */
#include "commands.h"

#include "interrupt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: moeflux run MODEL [-p PROMPT | -f FILE] [OPTION]...\n"
    "Writes the model's answer to standard output as it comes. Without a prompt: a chat; there\n"
    "/help lists the commands, and Ctrl-C stops an answer. A model without a chat template\n"
    "continues the prompt as it stands.\n"
    "\n"
    "Prompt:\n"
    "  -p, --prompt TEXT      the prompt\n"
    "  -f, --file FILE        the prompt is in FILE; -: on standard input\n"
    "  --system TEXT          system message\n"
    "  --think on|off         ask for, or suppress, the model's thinking (default: the "
    "template's)\n"
    "  --raw                  no chat template\n"
    "  --show-prompt          the prompt as the model gets it, on standard error\n"
    "  --no-history           do not keep the chat's lines for the next one\n"
    "  --no-wrap              lines on a terminal end where it ends them, not between words\n"
    "  --color WHEN           dim thoughts and remarks: auto (on a terminal, unless NO_COLOR is\n"
    "                         set), always or never\n"
    "Answer (defaults from generation_config.json):\n"
    "  -n, --max-tokens N     at most N tokens (default: until the context is full)\n"
    "  --temp T               temperature; 0: always the most likely token\n"
    "  --top-k K              among the K most likely; 0: off\n"
    "  --top-p P              among the most likely that sum to P; 1: off\n"
    "  --min-p P              among those at least P times the likeliest; 0: off\n"
    "  --repeat-penalty R     divide the score of what was there already by R; 1: off\n"
    "  -s, --seed N           of the random choices; the same seed gives the same text (default:\n"
    "                         another each time, which is said on standard error)\n"
    "  --ignore-eos           go on after an end token\n"
    "  --json                 with a prompt: the answer and the run's figures as one JSON object\n"
    "  --stats[=json[:FILE]]  the run's figures at the end, on standard error or in FILE\n"
    "Reuse:\n"
    "  --state-dir DIR        keep what was evaluated in DIR, and begin from what is there\n"
    "  --state-dir-size SIZE  at most so much of it (default 8G)\n" //
    MF_ENGINE_OPTIONS_HELP;

enum {
    OPT_SYSTEM = MF_OPT_OWN,
    OPT_THINK,
    OPT_RAW,
    OPT_SHOW_PROMPT,
    OPT_NO_HISTORY,
    OPT_NO_WRAP,
    OPT_COLOR,
    OPT_TEMP,
    OPT_TOP_K,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_PENALTY,
    OPT_IGNORE_EOS,
    OPT_JSON,
    OPT_STATS,
    OPT_STATE_DIR,
    OPT_STATE_DIR_SIZE
};

static const struct option long_options[] = {
    {"prompt", required_argument, NULL, 'p'},
    {"file", required_argument, NULL, 'f'},
    {"max-tokens", required_argument, NULL, 'n'},
    {"system", required_argument, NULL, OPT_SYSTEM},
    {"think", required_argument, NULL, OPT_THINK},
    {"raw", no_argument, NULL, OPT_RAW},
    {"show-prompt", no_argument, NULL, OPT_SHOW_PROMPT},
    {"no-history", no_argument, NULL, OPT_NO_HISTORY},
    {"no-wrap", no_argument, NULL, OPT_NO_WRAP},
    {"color", required_argument, NULL, OPT_COLOR},
    {"temp", required_argument, NULL, OPT_TEMP},
    {"top-k", required_argument, NULL, OPT_TOP_K},
    {"top-p", required_argument, NULL, OPT_TOP_P},
    {"min-p", required_argument, NULL, OPT_MIN_P},
    {"repeat-penalty", required_argument, NULL, OPT_PENALTY},
    {"seed", required_argument, NULL, 's'},
    {"ignore-eos", no_argument, NULL, OPT_IGNORE_EOS},
    {"json", no_argument, NULL, OPT_JSON},
    {"stats", optional_argument, NULL, OPT_STATS},
    {"state-dir", required_argument, NULL, OPT_STATE_DIR},
    {"state-dir-size", required_argument, NULL, OPT_STATE_DIR_SIZE},
    MF_ENGINE_LONG_OPTIONS,
    {0}};

typedef struct run_args {
    mf_cli_generate_args generate;
    const char *model;
    const char *prompt;
    const char *file;
    bool has_json;
    bool has_stats;
    bool has_json_stats;
    const char *stats_file; /* NULL: standard error */
} run_args;

/* The options of the sampler. False: not one of them. */
static bool sampler_option(mf_cli_generate_args *g, int option, const char **name, bool *good)
{
    mf_sampler_options *s = &g->sampler;
    switch (option) {
    case OPT_TEMP:
        *name = "temp";
        *good = g->has_temperature = mf_cli_parse_float(optarg, 0, 1000, &s->temperature);
        return true;
    case OPT_TOP_K:
        *name = "top-k";
        *good = g->has_top_k = mf_cli_parse_u32(optarg, 0, UINT32_MAX, &s->top_k);
        return true;
    case OPT_TOP_P:
        *name = "top-p";
        *good = g->has_top_p = mf_cli_parse_float(optarg, 1e-6f, 1, &s->top_p);
        return true;
    case OPT_MIN_P:
        *name = "min-p";
        *good = g->has_min_p = mf_cli_parse_float(optarg, 0, 1, &s->min_p);
        return true;
    case OPT_PENALTY:
        *name = "repeat-penalty";
        *good = g->has_penalty = mf_cli_parse_float(optarg, 1e-6f, 1000, &s->repetition_penalty);
        return true;
    case 's':
        *name = "seed";
        *good = g->has_seed = mf_cli_parse_u64(optarg, 0, UINT64_MAX, &s->seed);
        return true;
    default:
        return false;
    }
}

static bool parse_thinking(const char *text, mf_thinking *out)
{
    static const char *const names[] = {"on", "off"};
    int i = mf_cli_parse_name(text, names, 2);
    if (i >= 0)
        *out = i == 0 ? MF_THINKING_ON : MF_THINKING_OFF;
    return i >= 0;
}

static bool parse_color(const char *text, mf_cli_color *out)
{
    static const char *const names[] = {"auto", "always", "never"};
    int i = mf_cli_parse_name(text, names, 3);
    if (i >= 0)
        *out = (mf_cli_color)i;
    return i >= 0;
}

/* What --stats= is followed by; NULL: nothing. False: it is nothing that there is. */
static bool take_stats(run_args *args, const char *text)
{
    static const char file[] = "json:";
    bool has_file = text && strncmp(text, file, sizeof file - 1) == 0 && text[sizeof file - 1];
    args->has_stats = true;
    args->has_json_stats = text != NULL;
    args->stats_file = has_file ? text + sizeof file - 1 : NULL;
    return !text || has_file || strcmp(text, "json") == 0;
}

/* The options without a value. False: not one of them. */
static bool flag_option(run_args *args, int option)
{
    mf_cli_generate_args *g = &args->generate;
    const struct {
        int option;
        bool *flag;
    } flags[] = {{OPT_RAW, &g->raw},
                 {OPT_SHOW_PROMPT, &g->shows_prompt},
                 {OPT_NO_HISTORY, &g->no_history},
                 {OPT_NO_WRAP, &g->no_wrap},
                 {OPT_IGNORE_EOS, &g->ignore_end},
                 {OPT_JSON, &args->has_json}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].option == option) {
            *flags[i].flag = true;
            return true;
        }
    return false;
}

/* One option of run's own; an exit code. */
static int own_option(void *ctx, const mf_cli_parser *parser, int option)
{
    run_args *args = ctx;
    const char *name = "", *expected = "a number in range";
    mf_cli_generate_args *g = &args->generate;
    bool good = true;
    if (sampler_option(g, option, &name, &good))
        return good ? MF_EXIT_OK : mf_cli_bad_value(parser, name, optarg, expected);
    if (flag_option(args, option))
        return MF_EXIT_OK;
    switch (option) {
    case 'p':
        args->prompt = optarg;
        break;
    case 'f':
        args->file = optarg;
        break;
    case 'n':
        name = "max-tokens";
        good = mf_cli_parse_u64(optarg, 0, UINT32_MAX, &g->n_max_tokens);
        break;
    case OPT_SYSTEM:
        g->system = optarg;
        break;
    case OPT_THINK:
        name = "think", expected = "on or off";
        good = parse_thinking(optarg, &g->thinking);
        break;
    case OPT_COLOR:
        name = "color", expected = "auto, always or never";
        good = parse_color(optarg, &g->color);
        break;
    case OPT_STATS:
        name = "stats", expected = "json or json:FILE";
        good = take_stats(args, optarg);
        break;
    case OPT_STATE_DIR:
        g->state_dir = optarg;
        break;
    case OPT_STATE_DIR_SIZE:
        name = "state-dir-size", expected = "a size above zero, like 512M or 3G";
        good = mf_cli_parse_size(optarg, &g->state_dir_bytes) && g->state_dir_bytes > 0;
        break;
    }
    return good ? MF_EXIT_OK : mf_cli_bad_value(parser, name, optarg, expected);
}

/* False: the program ends with *exit_code. */
static bool parse(run_args *args, int argc, char **argv, int *exit_code)
{
    const mf_cli_parser parser = {"run",
                                  help,
                                  argc,
                                  argv,
                                  ":f:n:p:s:" MF_ENGINE_SHORT_OPTIONS,
                                  long_options,
                                  &args->generate.engine};
    if (!mf_cli_parse(&parser, own_option, args, exit_code))
        return false;
    args->model = mf_cli_positional(&parser, "MODEL", false, exit_code);
    if (!args->model)
        return false;
    if (args->prompt && args->file)
        *exit_code = mf_cli_usage_error("run", "run: -p and -f exclude each other");
    else if (args->generate.raw && args->generate.system)
        *exit_code = mf_cli_usage_error("run", "run: --raw and --system exclude each other");
    else if (args->has_json && !args->prompt && !args->file)
        *exit_code = mf_cli_usage_error("run", "run: --json wants a prompt: -p or -f");
    else {
        args->generate.is_chat = !args->prompt && !args->file;
        return true;
    }
    return false;
}

/* The tokens to evaluate: those of the text itself, or of a conversation with it as user turn. */
static int make_prompt(const mf_cli_generator *g, const run_args *args, const mf_cli_buffer *text,
                       mf_cli_prompt *out)
{
    mf_cli_generate_args const *how = &args->generate;
    mf_error error = {0};
    if (how->raw || !mf_tokenizer_has_chat(g->tokenizer)) {
        if (how->system)
            mf_cli_log((void *)&how->engine.verbosity, MF_LOG_WARNING,
                       "--system is not used: the model has no chat template");
        mf_cli_ids ids = {0};
        int status = mf_cli_encode(g->tokenizer, text->data, text->n_bytes, true, &ids);
        if (status == MF_EXIT_OK)
            status = mf_cli_add_start(g, &ids);
        *out = (mf_cli_prompt){.tokens = ids.tokens, .n_tokens = ids.n_tokens};
        return status;
    }
    if (memchr(text->data, '\0', text->n_bytes))
        return mf_cli_error("%s: the prompt contains a NUL byte",
                            args->file ? args->file : args->model);
    const mf_chat_message messages[2] = {{MF_ROLE_SYSTEM, how->system}, {MF_ROLE_USER, text->data}};
    size_t first = how->system ? 0 : 1;
    mf_status status = mf_cli_chat_tokens(g, messages + first, 2 - first, true, out, &error);
    return status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
}

static int evaluate_and_answer(mf_cli_generator *g, const run_args *args,
                               const mf_cli_prompt *prompt, mf_cli_stop *stop)
{
    *stop = MF_STOP_ERROR;
    const char *name = args->file ? args->file : args->model;
    if (prompt->n_tokens == 0)
        return mf_cli_error("%s: the prompt is empty", name);
    if (!mf_cli_fits(g, prompt->n_tokens))
        return mf_cli_error("%s: the prompt is %zu tokens long, but the context holds %zu (--ctx)",
                            name, prompt->n_tokens, g->n_context_tokens);
    mf_cli_interrupt_install();
    mf_status status = mf_cli_prefill(g, prompt);
    if (status == MF_ERR_CANCELLED)
        *stop = MF_STOP_INTERRUPTED;
    if (status != MF_OK)
        return *stop == MF_STOP_INTERRUPTED ? MF_EXIT_INTERRUPTED : MF_EXIT_ERROR;
    *stop = mf_cli_answer(g, NULL, NULL);
    if (*stop != MF_STOP_ERROR)
        mf_cli_keep(g);
    switch (*stop) {
    case MF_STOP_ERROR:
        return MF_EXIT_ERROR;
    case MF_STOP_INTERRUPTED:
        return MF_EXIT_INTERRUPTED;
    case MF_STOP_CONTEXT:
        mf_cli_log((void *)&args->generate.engine.verbosity, MF_LOG_WARNING,
                   "the answer ends here: the context is full (--ctx)");
        return MF_EXIT_OK;
    default:
        return MF_EXIT_OK;
    }
}

static void print_json(const mf_cli_generator *g, mf_cli_stop stop)
{
    static const char *const reasons[] = {[MF_STOP_END] = "end",
                                          [MF_STOP_LENGTH] = "length",
                                          [MF_STOP_CONTEXT] = "context",
                                          [MF_STOP_INTERRUPTED] = "cancelled"};
    const mf_cli_kept *kept = g->kept;
    mf_cli_json json = mf_cli_json_begin(stdout);
    mf_cli_json_key(&json, "text");
    mf_cli_json_quote(stdout, kept->text.data, kept->text.n_bytes);
    mf_cli_json_ids(&json, "tokens", (const int32_t *)(const void *)kept->tokens.data,
                    kept->tokens.n_bytes / sizeof(int32_t));
    mf_cli_json_string(&json, "finish_reason", reasons[stop]);
    mf_cli_seed_json(&json, &g->stats);
    mf_cli_json_key(&json, "stats");
    mf_cli_json stats = mf_cli_json_begin(stdout);
    mf_cli_run_stats_json(&stats, &g->stats);
    mf_cli_json_end_value(&stats);
    mf_cli_json_end(&json);
}

static int answer_once(mf_cli_generator *g, const run_args *args, const mf_cli_buffer *text)
{
    mf_cli_prompt prompt = {0};
    mf_cli_kept kept = {0};
    mf_cli_stop stop = MF_STOP_ERROR;
    g->kept = args->has_json ? &kept : NULL;
    int status = make_prompt(g, args, text, &prompt);
    if (status == MF_EXIT_OK)
        status = evaluate_and_answer(g, args, &prompt, &stop);
    if (g->kept && stop != MF_STOP_ERROR)
        print_json(g, stop);
    g->kept = NULL;
    mf_cli_buffer_free(&kept.text);
    mf_cli_buffer_free(&kept.tokens);
    free(prompt.tokens);
    return status;
}

static void print_json_stats(FILE *out, const mf_cli_run_stats *stats)
{
    mf_cli_json json = mf_cli_json_begin(out);
    mf_cli_run_stats_json(&json, stats);
    mf_cli_json_end(&json);
}

/* The figures that were asked for, where they were asked for. An exit code. */
static int report(const run_args *args, const mf_cli_run_stats *stats)
{
    if (!args->stats_file) {
        if (args->has_json_stats)
            print_json_stats(stderr, stats);
        else if (args->has_stats)
            mf_cli_run_stats_table(stderr, stats);
        return MF_EXIT_OK;
    }
    FILE *file = fopen(args->stats_file, "we");
    if (!file)
        return mf_cli_error("%s: cannot open: %s", args->stats_file, strerror(errno));
    print_json_stats(file, stats);
    bool is_bad = ferror(file) != 0;
    if (fclose(file) != 0 || is_bad)
        return mf_cli_error("%s: cannot write: %s", args->stats_file, strerror(errno));
    return MF_EXIT_OK;
}

static int run(const run_args *args)
{
    mf_cli_generator g = {0};
    mf_cli_buffer text = {0};
    int status = MF_EXIT_OK;
    if (args->file)
        status = mf_cli_read_file(
            args->file, mf_cli_text_bytes(args->generate.engine.options.n_context_tokens), &text);
    else if (!mf_cli_buffer_append(&text, args->prompt ? args->prompt : "",
                                   args->prompt ? strlen(args->prompt) : 0))
        status = mf_cli_error("no memory for the prompt");
    if (status == MF_EXIT_OK)
        status = mf_cli_generator_open(&g, args->model, &args->generate);
    if (status == MF_EXIT_OK) {
        status = args->generate.is_chat ? mf_cli_chat(&g) : answer_once(&g, args, &text);
        int reported = report(args, &g.stats);
        status = status == MF_EXIT_OK ? reported : status;
    }
    mf_cli_generator_close(&g);
    mf_cli_buffer_free(&text);
    return mf_cli_finish(status);
}

int mf_cmd_run(int argc, char **argv)
{
    run_args args = {.generate.n_max_tokens = UINT64_MAX};
    int exit_code = MF_EXIT_OK;
    mf_cli_engine_args_init(&args.generate.engine);
    return parse(&args, argc, argv, &exit_code) ? run(&args) : exit_code;
}
