/* SPDX-License-Identifier: MIT */
/* moeflux run: one answer to a prompt, or the chat. */
#include "commands.h"

#include "answer_json.h"
#include "chat_text.h"
#include "interrupt.h"
#include "profile.h"
#include "pulling.h"

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
    "  --messages FILE        instead of a prompt: a conversation, a JSON array of messages\n"
    "  --tools FILE           a JSON array of tools, for the template; in a chat /result answers\n"
    "                         the model's calls\n"
    "  --set NAME=JSON        a variable of the template; repeatable\n"
    "  --system TEXT          system message\n"
    "  --think on|off         ask for, or suppress, the model's thinking (default: the "
    "template's)\n"
    "  --no-think             the same as --think off\n"
    "  --raw                  no chat template\n"
    "  --show-prompt          the prompt as the model gets it, on standard error\n"
    "  --resume NAME          the chat goes on with a saved conversation (/save, /list)\n"
    "  --continue             the same, with the one that was saved last\n"
    "  --no-history           do not keep the chat's lines for the next one\n"
    "  --no-wrap              lines on a terminal end where it ends them, not between words\n"
    "  --color WHEN           dim thoughts and remarks: auto (on a terminal, unless NO_COLOR is\n"
    "                         set), always or never\n"
    "Answer:\n"
    "  -n, --max-tokens N     at most N tokens (default: until the context is full)\n"
    "  --stop TEXT            the answer ends before TEXT, which is not shown; repeatable\n"
    "  --ignore-eos           go on after an end token\n"
    "  --json-schema SCHEMA   the answer is JSON that satisfies SCHEMA: a file, or the schema "
    "itself,\n"
    "                         which begins with '{'\n"
    "  --grammar FILE         the answer is what the GBNF grammar in FILE allows\n"
    "  --thoughts WHAT        dim them (default; on a terminal), show them plainly, or hide "
    "them\n"
    "  --think-budget N       after N tokens of thoughts they are ended, and the answer begins\n"
    "  --logprobs N           what the model thought of each token, and of the N likeliest (0 to\n"
    "                         20): with --json in it, else on standard error\n"
    "  --json                 with a prompt: the answer and the run's figures as one JSON object\n"
    "  --trace FILE           record which experts the router chooses (moeflux replay)\n"
    "  --stats[=layers]       the run's figures at the end, on standard error; by layer as well\n"
    "  --stats=json[:FILE]    the same as one JSON object, on standard error or in FILE\n" //
    MF_SAMPLING_OPTIONS_HELP                                                               //
    "Reuse:\n"
    "  --state-dir DIR        keep what was evaluated in DIR, and begin from what is there\n"
    "  --state-dir-size SIZE  at most so much of it (default 8G)\n" MF_PULLING_HELP //
        MF_ENGINE_OPTIONS_HELP;

enum {
    OPT_SYSTEM = MF_OPT_OWN,
    OPT_THINK,
    OPT_JSON_SCHEMA,
    OPT_GRAMMAR,
    OPT_RAW,
    OPT_SHOW_PROMPT,
    OPT_MESSAGES,
    OPT_TOOLS,
    OPT_SET,
    OPT_RESUME,
    OPT_CONTINUE,
    OPT_NO_HISTORY,
    OPT_NO_WRAP,
    OPT_COLOR,
    OPT_NO_THINK,
    OPT_THOUGHTS,
    OPT_THINK_BUDGET,
    OPT_STOP,
    OPT_LOGPROBS,
    OPT_IGNORE_EOS,
    OPT_JSON,
    OPT_STATS,
    OPT_TRACE,
    OPT_STATE_DIR,
    OPT_STATE_DIR_SIZE,
    OPT_WHILE_PULLING
};

static const struct option long_options[] = {
    {"prompt", required_argument, NULL, 'p'},
    {"file", required_argument, NULL, 'f'},
    {"max-tokens", required_argument, NULL, 'n'},
    {"system", required_argument, NULL, OPT_SYSTEM},
    {"think", required_argument, NULL, OPT_THINK},
    {"json-schema", required_argument, NULL, OPT_JSON_SCHEMA},
    {"grammar", required_argument, NULL, OPT_GRAMMAR},
    {"raw", no_argument, NULL, OPT_RAW},
    {"show-prompt", no_argument, NULL, OPT_SHOW_PROMPT},
    {"messages", required_argument, NULL, OPT_MESSAGES},
    {"tools", required_argument, NULL, OPT_TOOLS},
    {"set", required_argument, NULL, OPT_SET},
    {"resume", required_argument, NULL, OPT_RESUME},
    {"continue", no_argument, NULL, OPT_CONTINUE},
    {"no-history", no_argument, NULL, OPT_NO_HISTORY},
    {"no-wrap", no_argument, NULL, OPT_NO_WRAP},
    {"color", required_argument, NULL, OPT_COLOR},
    {"no-think", no_argument, NULL, OPT_NO_THINK},
    {"thoughts", required_argument, NULL, OPT_THOUGHTS},
    {"think-budget", required_argument, NULL, OPT_THINK_BUDGET},
    {"stop", required_argument, NULL, OPT_STOP},
    {"logprobs", required_argument, NULL, OPT_LOGPROBS},
    {"ignore-eos", no_argument, NULL, OPT_IGNORE_EOS},
    {"json", no_argument, NULL, OPT_JSON},
    {"stats", optional_argument, NULL, OPT_STATS},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"state-dir", required_argument, NULL, OPT_STATE_DIR},
    {"state-dir-size", required_argument, NULL, OPT_STATE_DIR_SIZE},
    {"while-pulling", no_argument, NULL, OPT_WHILE_PULLING},
    MF_SAMPLING_LONG_OPTIONS,
    MF_ENGINE_LONG_OPTIONS,
    {0}};

typedef struct run_args {
    mf_cli_generate_args generate;
    const char *model;
    mf_cli_model_path model_path;
    const char *prompt;
    const char *file;
    const char *messages; /* a file, as the next */
    const char *tools;
    mf_cli_buffer tools_text, variables;
    bool has_stats;
    bool has_json_stats, has_layer_stats;
    const char *stats_file; /* NULL: standard error */
    mf_cli_pulling pulling;
} run_args;

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

static bool parse_thoughts(const char *text, mf_cli_thoughts *out)
{
    static const char *const names[] = {"dim", "show", "hide"};
    int i = mf_cli_parse_name(text, names, 3);
    if (i >= 0)
        *out = (mf_cli_thoughts)i;
    return i >= 0;
}

static int add_stop(mf_cli_generate_args *g, const mf_cli_parser *parser)
{
    if (*optarg == '\0')
        return mf_cli_bad_value(parser, "stop", optarg, "a text");
    if (g->n_stops == MF_CLI_MAX_STOP_STRINGS)
        return mf_cli_usage_error(parser->command, "--stop: more than %d of them",
                                  MF_CLI_MAX_STOP_STRINGS);
    g->stops[g->n_stops++] = optarg;
    return MF_EXIT_OK;
}

/* What --stats= is followed by; NULL: nothing. False: it is nothing that there is. */
static bool take_stats(run_args *args, const char *text)
{
    static const char file[] = "json:";
    bool has_file = text && strncmp(text, file, sizeof file - 1) == 0 && text[sizeof file - 1];
    args->has_stats = args->generate.has_forecast = true;
    args->has_layer_stats = text && strcmp(text, "layers") == 0;
    args->has_json_stats = text && !args->has_layer_stats;
    args->stats_file = has_file ? text + sizeof file - 1 : NULL;
    return !text || has_file || args->has_layer_stats || strcmp(text, "json") == 0;
}

/* The options without a value. False: not one of them. */
static bool flag_option(run_args *args, int option)
{
    mf_cli_generate_args *g = &args->generate;
    const mf_cli_flag flags[] = {{OPT_RAW, &g->raw},
                                 {OPT_SHOW_PROMPT, &g->shows_prompt},
                                 {OPT_CONTINUE, &g->continues},
                                 {OPT_NO_HISTORY, &g->no_history},
                                 {OPT_NO_WRAP, &g->no_wrap},
                                 {OPT_IGNORE_EOS, &g->ignore_end},
                                 {OPT_JSON, &g->is_silent},
                                 {OPT_WHILE_PULLING, &args->pulling.is_wanted},
                                 {0, NULL}};
    if (mf_cli_take_flag(flags, option))
        return true;
    if (option == OPT_NO_THINK)
        g->thinking = MF_THINKING_OFF;
    return option == OPT_NO_THINK;
}

/* Those about thoughts and what is kept of an answer. False: not one of them. */
static bool answer_option(mf_cli_generate_args *g, int option, const char **name,
                          const char **expected, bool *good)
{
    switch (option) {
    case OPT_THINK:
        *name = "think", *expected = "on or off";
        *good = parse_thinking(optarg, &g->thinking);
        return true;
    case OPT_THOUGHTS:
        *name = "thoughts", *expected = "show, dim or hide";
        *good = parse_thoughts(optarg, &g->thoughts);
        return true;
    case OPT_THINK_BUDGET:
        *name = "think-budget";
        *good = mf_cli_parse_u64(optarg, 0, UINT32_MAX, &g->n_thought_max);
        return true;
    case OPT_LOGPROBS:
        *name = "logprobs", *expected = "a number from 0 to 20";
        *good = mf_cli_parse_u32(optarg, 0, MF_CLI_MAX_LOGPROBS, &g->n_logprobs);
        g->has_logprobs = true;
        return true;
    default:
        return false;
    }
}

/* One option of run's own; an exit code. */
static int own_option(void *ctx, const mf_cli_parser *parser, int option)
{
    run_args *args = ctx;
    const char *name = "", *expected = "a whole number from 0 to 4294967295";
    mf_cli_generate_args *g = &args->generate;
    bool good = true;
    int exit_code = MF_EXIT_OK;
    if (mf_cli_take_sampling(parser, &g->sampling, option, &exit_code))
        return exit_code;
    const mf_cli_text texts[] = {{'p', &args->prompt},
                                 {'f', &args->file},
                                 {OPT_SYSTEM, &g->system},
                                 {OPT_JSON_SCHEMA, &g->json_schema},
                                 {OPT_GRAMMAR, &g->grammar},
                                 {OPT_MESSAGES, &args->messages},
                                 {OPT_TOOLS, &args->tools},
                                 {OPT_RESUME, &g->resume},
                                 {OPT_TRACE, &g->trace},
                                 {OPT_STATE_DIR, &g->state_dir},
                                 {0, NULL}};
    if (flag_option(args, option) || mf_cli_take_text(texts, option))
        return MF_EXIT_OK;
    if (answer_option(g, option, &name, &expected, &good))
        return good ? MF_EXIT_OK : mf_cli_bad_value(parser, name, optarg, expected);
    switch (option) {
    case 'n':
        name = "max-tokens";
        good = mf_cli_parse_u64(optarg, 0, UINT32_MAX, &g->n_max_tokens);
        break;
    case OPT_SET:
        return mf_cli_add_variable(parser, optarg, &args->variables);
    case OPT_STOP:
        return add_stop(g, parser);
    case OPT_COLOR:
        name = "color", expected = "auto, always or never";
        good = parse_color(optarg, &g->color);
        break;
    case OPT_STATS:
        name = "stats", expected = "layers, json or json:FILE";
        good = take_stats(args, optarg);
        break;
    case OPT_STATE_DIR_SIZE:
        return mf_cli_take_size(parser, "state-dir-size", &g->state_dir_bytes);
    }
    return good ? MF_EXIT_OK : mf_cli_bad_value(parser, name, optarg, expected);
}

/* True: something else that is asked for does not go with a saved conversation. */
static bool excludes_resume(const run_args *args, int *exit_code)
{
    const mf_cli_generate_args *g = &args->generate;
    const char *name = g->resume ? "--resume" : "--continue";
    if (!g->resume && !g->continues)
        return false;
    if (g->resume && g->continues)
        *exit_code = mf_cli_usage_error("run", "run: --resume and --continue exclude each other");
    else if (!g->is_chat)
        *exit_code = mf_cli_usage_error("run", "run: %s is for a chat, without -p and -f", name);
    else if (g->raw || g->system)
        *exit_code = mf_cli_usage_error("run", "run: %s excludes --raw and --system", name);
    else
        return false;
    return true;
}

/* Options that do not go together; NULL: they do. */
static const char *contradiction(const run_args *args)
{
    const mf_cli_generate_args *g = &args->generate;
    if (args->prompt && args->file)
        return "-p and -f exclude each other";
    if (args->messages && (args->prompt || args->file || g->system))
        return "--messages excludes -p, -f and --system";
    if (g->raw && g->system)
        return "--raw and --system exclude each other";
    if (g->raw && args->messages)
        return "--raw and --messages exclude each other";
    if (g->raw && args->tools)
        return "--raw and --tools exclude each other";
    if (g->raw && args->variables.n_bytes > 0)
        return "--raw and --set exclude each other";
    if (g->raw && g->thinking != MF_THINKING_DEFAULT)
        return "--raw and --think exclude each other";
    if (g->json_schema && g->grammar)
        return "--json-schema and --grammar exclude each other";
    if (g->is_silent && g->is_chat)
        return "--json wants a prompt: -p, -f or --messages";
    if (args->pulling.is_wanted && g->state_dir)
        return "--while-pulling and --state-dir exclude each other";
    if (g->state_dir_bytes > 0 && !g->state_dir)
        return "--state-dir-size needs --state-dir";
    return NULL;
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
    args->generate.is_chat = !args->prompt && !args->file && !args->messages;
    args->generate.has_profile = args->has_stats || args->generate.is_silent;
    const char *excluded = contradiction(args);
    if (excluded)
        *exit_code = mf_cli_usage_error("run", "run: %s", excluded);
    if (excluded || excludes_resume(args, exit_code))
        return false;
    args->model = mf_cli_pulling_model(&parser, &args->pulling, &args->model_path, exit_code);
    return args->model != NULL;
}

/* The tokens to evaluate: those of the text itself, or of a conversation with it as user turn. */
static int make_prompt(const mf_cli_generator *g, const run_args *args, const mf_cli_buffer *text,
                       mf_cli_prompt *out)
{
    mf_cli_generate_args const *how = &args->generate;
    mf_error error = {0};
    const bool has_chat = !how->raw && mf_tokenizer_has_chat(g->tokenizer);
    if (!has_chat && (args->messages || args->tools))
        return mf_cli_error("%s: --messages and --tools want a chat template", args->model);
    if (!has_chat) {
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
    if (args->messages) {
        mf_status of_json = mf_cli_chat_json_tokens(g, text->data ? text->data : "", out, &error);
        return of_json == MF_OK ? MF_EXIT_OK : mf_cli_fail(of_json, &error);
    }
    const mf_cli_message messages[2] = {
        {.role = MF_CLI_SYSTEM,
         .content = {(char *)how->system, how->system ? strlen(how->system) : 0, 0}},
        {.role = MF_CLI_USER, .content = *text}};
    size_t first = how->system ? 0 : 1;
    mf_status status = mf_cli_chat_tokens(g, messages + first, 2 - first, true, out, &error);
    return status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
}

static int exit_code_of(const mf_cli_generator *g, mf_cli_stop stop)
{
    if (stop == MF_STOP_CONTEXT)
        mf_cli_log((void *)&g->args->engine.verbosity, MF_LOG_WARNING,
                   "the answer ends here: the context is full (--ctx)");
    if (stop == MF_STOP_INTERRUPTED)
        return MF_EXIT_INTERRUPTED;
    return stop == MF_STOP_ERROR ? MF_EXIT_ERROR : MF_EXIT_OK;
}

static int evaluate_and_answer(mf_cli_generator *g, const run_args *args,
                               const mf_cli_prompt *prompt, mf_cli_answer *answer)
{
    answer->stop = MF_STOP_ERROR;
    const char *name = args->file ? args->file : args->model;
    if (prompt->n_tokens == 0)
        return mf_cli_error("%s: the prompt is empty", name);
    if (!mf_cli_fits(g, prompt->n_tokens))
        return mf_cli_error("%s: the prompt is %zu tokens long, but the context holds %zu (--ctx)",
                            name, prompt->n_tokens, g->n_context_tokens);
    mf_cli_interrupt_install();
    mf_status status = mf_cli_prefill(g, prompt);
    if (status == MF_ERR_CANCELLED)
        answer->stop = MF_STOP_INTERRUPTED;
    if (status != MF_OK)
        return status == MF_ERR_CANCELLED ? MF_EXIT_INTERRUPTED : MF_EXIT_ERROR;
    if (mf_cli_answer_make(g, answer) != MF_STOP_ERROR)
        mf_cli_keep(g);
    return exit_code_of(g, answer->stop);
}

static int answer_once(mf_cli_generator *g, const run_args *args, const mf_cli_buffer *text)
{
    mf_cli_prompt prompt = {0};
    mf_cli_answer answer = {.stop = MF_STOP_ERROR};
    int status = make_prompt(g, args, text, &prompt);
    if (status == MF_EXIT_OK)
        status = evaluate_and_answer(g, args, &prompt, &answer);
    if (answer.stop != MF_STOP_ERROR && args->generate.is_silent) {
        mf_cli_answer_json(g, &answer, prompt.n_tokens);
    } else if (answer.stop != MF_STOP_ERROR && args->generate.has_logprobs) {
        mf_cli_answer_print_logprobs(g, &answer);
    }
    mf_cli_answer_free(&answer);
    free(prompt.tokens);
    return status;
}

static void print_json_stats(FILE *out, const mf_cli_generator *g)
{
    mf_cli_json json = mf_cli_json_begin(out);
    mf_cli_run_stats_json(&json, &g->stats);
    mf_cli_layers_json(&json, g->engine);
    mf_cli_json_end(&json);
}

/* The figures that were asked for, where they were asked for. An exit code. */
static int report(const run_args *args, const mf_cli_generator *g)
{
    if (!args->stats_file) {
        if (args->has_json_stats)
            print_json_stats(stderr, g);
        else if (args->has_stats)
            mf_cli_run_stats_table(stderr, &g->stats);
        if (args->has_layer_stats)
            mf_cli_layers_table(stderr, g->engine);
        return MF_EXIT_OK;
    }
    FILE *file = fopen(args->stats_file, "we");
    if (!file)
        return mf_cli_error("%s: cannot open: %s", args->stats_file, strerror(errno));
    print_json_stats(file, g);
    bool is_bad = ferror(file) != 0;
    if (fclose(file) != 0 || is_bad)
        return mf_cli_error("%s: cannot write: %s", args->stats_file, strerror(errno));
    return MF_EXIT_OK;
}

/* All that comes from files and other options. An exit code. */
static int read_texts(run_args *args, mf_cli_buffer *text)
{
    const char *file = args->messages ? args->messages : args->file;
    int status = mf_cli_read_json(args->tools, &args->tools_text, &args->generate.tools);
    if (status == MF_EXIT_OK)
        status = mf_cli_end_variables(&args->variables, &args->generate.variables);
    if (status != MF_EXIT_OK)
        return status;
    if (file)
        return mf_cli_read_file(
            file, mf_cli_text_bytes(args->generate.engine.options.n_context_tokens), text);
    if (mf_cli_buffer_append(text, args->prompt ? args->prompt : "",
                             args->prompt ? strlen(args->prompt) : 0))
        return MF_EXIT_OK;
    return mf_cli_error("no memory for the prompt");
}

/* Of a model without a template, what is for one. */
static void warn_of_unused(const mf_cli_generator *g)
{
    const mf_cli_generate_args *a = g->args;
    const struct {
        bool is_given;
        const char *option;
    } options[] = {{a->system != NULL, "--system"},
                   {a->variables != NULL, "--set"},
                   {a->thinking != MF_THINKING_DEFAULT, "--think"}};
    char line[96];
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (!options[i].is_given || mf_tokenizer_has_chat(g->tokenizer))
            continue;
        snprintf(line, sizeof line, "%s is not used: the model has no chat template",
                 options[i].option);
        mf_cli_log((void *)&a->engine.verbosity, MF_LOG_WARNING, line);
    }
}

static int run(run_args *args)
{
    mf_cli_generator g = {0};
    mf_cli_buffer text = {0};
    int status = args->stats_file ? mf_cli_may_write(args->stats_file) : MF_EXIT_OK;
    if (status == MF_EXIT_OK)
        status = read_texts(args, &text);
    if (status == MF_EXIT_OK)
        status = mf_cli_generator_open(&g, args->model, &args->generate);
    if (status == MF_EXIT_OK) {
        warn_of_unused(&g);
        status = args->generate.is_chat ? mf_cli_chat(&g) : answer_once(&g, args, &text);
        status = mf_cli_end_trace(g.engine, args->generate.trace, status);
        int reported = report(args, &g);
        status = status == MF_EXIT_OK ? reported : status;
    }
    mf_cli_pulling_cancel(&args->pulling);
    mf_cli_generator_close(&g);
    mf_cli_pulling_end(&args->pulling);
    mf_cli_buffer_free(&text);
    mf_cli_buffer_free(&args->tools_text);
    return mf_cli_finish(status);
}

int mf_cmd_run(int argc, char **argv)
{
    run_args args = {.generate = {.n_max_tokens = UINT64_MAX, .n_thought_max = UINT64_MAX}};
    int exit_code = MF_EXIT_OK;
    mf_cli_engine_args_init(&args.generate.engine);
    if (parse(&args, argc, argv, &exit_code))
        exit_code = run(&args);
    mf_cli_buffer_free(&args.variables);
    return exit_code;
}
