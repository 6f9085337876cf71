/* SPDX-License-Identifier: MIT */
/*
 * moeflux perplexity: how well a model predicts a text. Protocol: the text is tokenised without
 * special tokens and cut into windows; each window is evaluated from the empty state, and the mean
 * is over the negative log-likelihoods of its tokens but the first.
 */
#include "commands.h"
#include "interrupt.h"
#include "json.h"
#include "model_path.h"
#include "score.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char help[] =
    "Usage: moeflux perplexity MODEL FILE [OPTION]...\n"
    "Prints the mean negative log-likelihood of a text's tokens and its exponential. The text is\n"
    "one window if it fits --ctx (default: what it needs, up to the model's limit), else several,\n"
    "each evaluated from the start; the first token of a window is not predicted.\n"
    "\n"
    "  --tokens N             only the first N tokens\n"
    "  --skip N               do not score the first N tokens of a window\n"
    "  --trace FILE           record which experts the router chooses (moeflux replay)\n"
    "  --json                 one JSON object\n" //
    MF_ENGINE_OPTIONS_HELP;

enum { OPT_TOKENS = MF_OPT_OWN, OPT_SKIP, OPT_TRACE, OPT_JSON };

static const struct option long_options[] = {{"tokens", required_argument, NULL, OPT_TOKENS},
                                             {"skip", required_argument, NULL, OPT_SKIP},
                                             {"trace", required_argument, NULL, OPT_TRACE},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             MF_ENGINE_LONG_OPTIONS,
                                             {0}};

typedef struct perplexity_args {
    mf_cli_engine_args engine;
    const char *model;
    mf_cli_model_path model_path;
    const char *file;
    const char *trace;  /* NULL: none */
    uint64_t n_tokens;  /* at most */
    uint64_t n_skipped; /* of each window */
    bool has_json;
} perplexity_args;

static int own_option(void *ctx, const mf_cli_parser *parser, int option)
{
    perplexity_args *args = ctx;
    if (option == OPT_JSON)
        args->has_json = true;
    else if (option == OPT_TRACE)
        args->trace = optarg;
    else if (option == OPT_SKIP) {
        if (!mf_cli_parse_u64(optarg, 0, UINT32_MAX, &args->n_skipped))
            return mf_cli_bad_value(parser, "skip", optarg, "a number of tokens");
    } else if (!mf_cli_parse_u64(optarg, 2, UINT32_MAX, &args->n_tokens))
        return mf_cli_bad_value(parser, "tokens", optarg, "a number above one");
    return MF_EXIT_OK;
}

/* False: the program ends with *exit_code. */
static bool parse(perplexity_args *args, int argc, char **argv, int *exit_code)
{
    const mf_cli_parser parser = {
        "perplexity", help, argc, argv, ":" MF_ENGINE_SHORT_OPTIONS, long_options, &args->engine};
    if (!mf_cli_parse(&parser, own_option, args, exit_code))
        return false;
    if (args->engine.options.n_context_tokens == 1) {
        *exit_code = mf_cli_bad_value(&parser, "ctx", "1", "a window that predicts anything");
        return false;
    }
    args->model = mf_cli_positional_model(&parser, true, &args->model_path, exit_code);
    args->file = args->model ? mf_cli_positional(&parser, "FILE", false, exit_code) : NULL;
    return args->file != NULL;
}

static void print_score(const perplexity_args *args, const mf_cli_score *s, size_t n_tokens,
                        double seconds)
{
    double mean = s->sum_nll / (double)s->n_scored;
    if (args->has_json) {
        mf_cli_json json = mf_cli_json_begin(stdout);
        mf_cli_json_integer(&json, "n_tokens", n_tokens);
        mf_cli_json_integer(&json, "n_scored", s->n_scored);
        mf_cli_json_integer(&json, "n_windows", s->n_windows);
        mf_cli_json_number(&json, "mean_nll", mean);
        mf_cli_json_number(&json, "perplexity", exp(mean));
        mf_cli_json_number(&json, "tokens_per_s", (double)n_tokens / seconds);
        mf_cli_json_integer(&json, "peak_rss_bytes", mf_cli_peak_rss_bytes());
        mf_cli_json_end(&json);
        return;
    }
    printf("tokens      %zu (%zu predicted, %zu window%s)\n", n_tokens, s->n_scored, s->n_windows,
           s->n_windows == 1 ? "" : "s");
    printf("mean NLL    %.6f\n", mean);
    printf("perplexity  %.6f\n", exp(mean));
}

static int evaluate(perplexity_args *args, const int32_t *tokens, size_t n_tokens,
                    const mf_model_info *info)
{
    mf_engine_options *options = &args->engine.options;
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    size_t n_context = options->n_context_tokens;
    if (n_context == 0) {
        size_t limit = info->n_context_tokens_model > 0 ? info->n_context_tokens_model : 1u << 30;
        n_context = n_tokens < limit ? n_tokens : limit;
        options->n_context_tokens = (uint32_t)n_context;
    }
    if (args->n_skipped >=
        (n_tokens < n_context ? n_tokens : n_context)) /* of the longest window */
        return mf_cli_error("%s: --skip leaves no token to score", args->file);
    mf_status status = mf_engine_open(args->model, options, &engine, &error);
    if (status == MF_OK)
        status = mf_session_create(engine, &session, &error);
    if (status == MF_OK && args->trace)
        status = mf_engine_record_routing(engine, args->trace, &error);
    int exit_code = status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
    if (exit_code == MF_EXIT_OK) {
        mf_cli_interrupt_session(session); /* the trace of what was evaluated is kept */
        mf_cli_score s = {.n_vocab = info->n_vocab, .n_skipped = (size_t)args->n_skipped};
        double started = mf_cli_now();
        exit_code = mf_cli_score_windows(session, tokens, n_tokens, n_context, &s);
        if (exit_code == MF_EXIT_OK)
            print_score(args, &s, n_tokens, mf_cli_now() - started);
        exit_code = mf_cli_end_trace(engine, args->trace, exit_code);
    }
    mf_session_free(&session);
    mf_engine_close(&engine);
    return exit_code;
}

/* The text and its ids, before the engine is opened, must leave room within the budget. */
static size_t most_text(const mf_engine_options *options)
{
    uint64_t share = options->ram_bytes / 16;
    return options->ram_bytes == 0 || share > MF_CLI_MAX_TEXT_BYTES ? MF_CLI_MAX_TEXT_BYTES
                                                                    : (size_t)share;
}

static int perplexity(perplexity_args *args)
{
    mf_tokenizer *tokenizer = NULL;
    mf_cli_buffer text = {0};
    mf_model_info info;
    mf_error error = {0};
    mf_cli_ids ids = {0};
    mf_status status = mf_model_inspect(args->model, NULL, &info, &error);
    if (status == MF_OK)
        status = mf_tokenizer_open(args->model, NULL, &tokenizer, &error);
    int exit_code = status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
    if (exit_code == MF_EXIT_OK)
        exit_code = mf_cli_read_file(args->file, most_text(&args->engine.options), &text);
    if (exit_code == MF_EXIT_OK)
        exit_code = mf_cli_encode(tokenizer, text.data, text.n_bytes, false, &ids);
    mf_tokenizer_free(&tokenizer); /* done with: the engine may have the memory */
    mf_cli_buffer_free(&text);
    if (ids.n_tokens > args->n_tokens)
        ids.n_tokens = args->n_tokens;
    if (exit_code == MF_EXIT_OK)
        exit_code = mf_cli_score_check(args->model, args->file, &ids, info.n_vocab);
    if (exit_code == MF_EXIT_OK)
        exit_code = evaluate(args, ids.tokens, ids.n_tokens, &info);
    free(ids.tokens);
    return mf_cli_finish(exit_code);
}

int mf_cmd_perplexity(int argc, char **argv)
{
    perplexity_args args = {.n_tokens = UINT64_MAX};
    int exit_code = MF_EXIT_OK;
    mf_cli_engine_args_init(&args.engine);
    return parse(&args, argc, argv, &exit_code) ? perplexity(&args) : exit_code;
}
