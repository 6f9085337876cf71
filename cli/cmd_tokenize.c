/* SPDX-License-Identifier: MIT */
/* moeflux tokenize: text to token ids, and back. */
#include "commands.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: moeflux tokenize MODEL [-p TEXT | -f FILE] [OPTION]...\n"
    "       moeflux tokenize MODEL --decode [ID]...\n"
    "Prints the token ids of a text (without -p and -f: of standard input), one a line with the\n"
    "text that it stands for; or the text of token ids.\n"
    "\n"
    "  -p, --prompt TEXT  the text\n"
    "  -f, --file FILE    the text is in FILE; -: on standard input\n"
    "  --ids              the ids alone, on one line\n"
    "  --json             one JSON object\n"
    "  --parse-special    special tokens written in the text are those tokens\n"
    "  --decode           the text of the ids given, or of those on standard input (or -p, -f)\n"
    "  -h, --help         this text\n";

enum { OPT_IDS = MF_OPT_OWN, OPT_JSON, OPT_SPECIAL, OPT_DECODE };

static const struct option long_options[] = {{"prompt", required_argument, NULL, 'p'},
                                             {"file", required_argument, NULL, 'f'},
                                             {"ids", no_argument, NULL, OPT_IDS},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {"parse-special", no_argument, NULL, OPT_SPECIAL},
                                             {"decode", no_argument, NULL, OPT_DECODE},
                                             {"help", no_argument, NULL, 'h'},
                                             {0}};

typedef struct tokenize_args {
    const char *model;
    mf_cli_model_path model_path;
    const char *text;
    const char *file;
    char **ids; /* what follows MODEL */
    size_t n_ids;
    bool has_ids, has_json, parse_special, decode;
} tokenize_args;

static int own_option(void *ctx, const mf_cli_parser *parser, int option)
{
    tokenize_args *args = ctx;
    const mf_cli_text texts[] = {{'p', &args->text}, {'f', &args->file}, {0, NULL}};
    const mf_cli_flag flags[] = {{OPT_IDS, &args->has_ids},
                                 {OPT_JSON, &args->has_json},
                                 {OPT_SPECIAL, &args->parse_special},
                                 {OPT_DECODE, &args->decode},
                                 {0, NULL}};
    (void)parser;
    (void)(mf_cli_take_text(texts, option) || mf_cli_take_flag(flags, option));
    return MF_EXIT_OK;
}

/* False: the program ends with *exit_code. */
static bool parse(tokenize_args *args, int argc, char **argv, int *exit_code)
{
    const mf_cli_parser parser = {"tokenize", help, argc, argv, ":p:f:h", long_options, NULL};
    if (!mf_cli_parse(&parser, own_option, args, exit_code))
        return false;
    args->model = mf_cli_positional_model(&parser, args->decode, &args->model_path, exit_code);
    if (!args->model)
        return false;
    args->ids = argv + optind;
    args->n_ids = (size_t)(argc - optind);
    if ((args->text != NULL) + (args->file != NULL) + (args->n_ids > 0) > 1)
        *exit_code = mf_cli_usage_error("tokenize", "tokenize: more than one text is given");
    else if (args->has_ids && args->has_json)
        *exit_code =
            mf_cli_usage_error("tokenize", "tokenize: --ids and --json exclude each other");
    else if (args->decode && (args->has_ids || args->parse_special))
        *exit_code =
            mf_cli_usage_error("tokenize", "tokenize: --decode excludes --ids and --parse-special");
    else
        return true;
    return false;
}

static void print_token(const mf_tokenizer *tokenizer, int32_t token)
{
    size_t n_bytes = 0;
    const char *piece = mf_tokenizer_piece(tokenizer, token, &n_bytes);
    printf("%" PRId32 "\t", token);
    mf_cli_json_quote(stdout, piece ? piece : "", n_bytes);
    putchar('\n');
}

static void print_tokens(const tokenize_args *args, const mf_tokenizer *tokenizer,
                         const int32_t *tokens, size_t n_tokens)
{
    if (args->has_json) {
        mf_cli_json json = mf_cli_json_begin(stdout);
        mf_cli_json_integer(&json, "n_tokens", n_tokens);
        mf_cli_json_ids(&json, "ids", tokens, n_tokens);
        mf_cli_json_end(&json);
    } else if (args->has_ids) {
        for (size_t i = 0; i < n_tokens; i++)
            printf("%s%" PRId32, i ? " " : "", tokens[i]);
        putchar('\n');
    } else {
        for (size_t i = 0; i < n_tokens; i++)
            print_token(tokenizer, tokens[i]);
    }
}

/* One id, decoded into text. An exit code. */
static int decode_word(const mf_tokenizer *tokenizer, mf_decoder *decoder, const char *word,
                       mf_cli_buffer *text)
{
    uint64_t id = 0;
    size_t n_piece = 0, n_bytes = 0;
    size_t n_vocab = mf_tokenizer_n_vocab(tokenizer);
    if (word) {
        if (!mf_cli_parse_u64(word, 0, INT32_MAX, &id))
            return mf_cli_usage_error("tokenize", "tokenize: '%s' is not a token id", word);
        if (id >= n_vocab || !mf_tokenizer_piece(tokenizer, (int32_t)id, &n_piece))
            return mf_cli_error("token id %s is not in the vocabulary (%zu entries)", word,
                                n_vocab);
    }
    if (!mf_cli_buffer_reserve(text, 3 * n_piece + 12))
        return mf_cli_error("no memory for the text");
    mf_status status =
        mf_tokenizer_decode(tokenizer, decoder, word ? (int32_t)id : -1, text->data + text->n_bytes,
                            text->capacity - text->n_bytes, &n_bytes);
    if (status != MF_OK)
        return mf_cli_fail(status, NULL);
    text->n_bytes += n_bytes;
    return MF_EXIT_OK;
}

static int print_text(const tokenize_args *args, const mf_cli_buffer *text)
{
    if (args->has_json) {
        mf_cli_json json = mf_cli_json_begin(stdout);
        mf_cli_json_key(&json, "text");
        mf_cli_json_quote(stdout, text->data, text->n_bytes);
        mf_cli_json_end(&json);
        return MF_EXIT_OK;
    }
    if (!mf_cli_put_text(stdout, text->data, text->n_bytes))
        return mf_cli_error("no memory for the text");
    if (isatty(STDOUT_FILENO)) /* elsewhere the text is exactly what the ids say */
        putchar('\n');
    return MF_EXIT_OK;
}

static int decode(const tokenize_args *args, const mf_tokenizer *tokenizer, mf_cli_buffer *input)
{
    mf_cli_buffer text = {0};
    mf_decoder decoder = {0};
    int status = MF_EXIT_OK;
    for (size_t i = 0; i < args->n_ids && status == MF_EXIT_OK; i++)
        status = decode_word(tokenizer, &decoder, args->ids[i], &text);
    char *rest = NULL;
    char *word = args->n_ids == 0 ? strtok_r(input->data, " \t\r\n,", &rest) : NULL;
    for (; word && status == MF_EXIT_OK; word = strtok_r(NULL, " \t\r\n,", &rest))
        status = decode_word(tokenizer, &decoder, word, &text);
    if (status == MF_EXIT_OK)
        status = decode_word(tokenizer, &decoder, NULL, &text);
    if (status == MF_EXIT_OK)
        status = print_text(args, &text);
    mf_cli_buffer_free(&text);
    return status;
}

static int encode(const tokenize_args *args, const mf_tokenizer *tokenizer,
                  const mf_cli_buffer *input)
{
    mf_cli_ids ids = {0};
    int status = mf_cli_encode(tokenizer, input->data, input->n_bytes, args->parse_special, &ids);
    if (status == MF_EXIT_OK)
        print_tokens(args, tokenizer, ids.tokens, ids.n_tokens);
    free(ids.tokens);
    return status;
}

static int tokenize(const tokenize_args *args)
{
    mf_tokenizer *tokenizer = NULL;
    mf_cli_buffer input = {0};
    mf_error error = {0};
    int exit_code = MF_EXIT_OK;
    mf_status status = mf_tokenizer_open(args->model, NULL, &tokenizer, &error);
    if (status != MF_OK)
        return mf_cli_fail(status, &error);
    if (args->text) {
        if (!mf_cli_buffer_append(&input, args->text, strlen(args->text)))
            exit_code = mf_cli_error("no memory for the text");
    } else if (args->n_ids == 0) {
        exit_code = mf_cli_read_file(args->file ? args->file : "-", MF_CLI_MAX_TEXT_BYTES, &input);
    }
    if (exit_code == MF_EXIT_OK)
        exit_code =
            args->decode ? decode(args, tokenizer, &input) : encode(args, tokenizer, &input);
    mf_cli_buffer_free(&input);
    mf_tokenizer_free(&tokenizer);
    return mf_cli_finish(exit_code);
}

int mf_cmd_tokenize(int argc, char **argv)
{
    tokenize_args args = {0};
    int exit_code = MF_EXIT_OK;
    return parse(&args, argc, argv, &exit_code) ? tokenize(&args) : exit_code;
}
