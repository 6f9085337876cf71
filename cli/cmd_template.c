/* SPDX-License-Identifier: MIT */
/* moeflux template: the text that a model's chat template makes of a conversation. */
#include "commands.h"

#include "chat_text.h"
#include "model_path.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: moeflux template MODEL --messages FILE [OPTION]...\n"
    "Prints the text that the model's chat template makes of a conversation, and nothing else. "
    "What\n"
    "the template refuses ends it with exit code 1, and its line and reason.\n"
    "\n"
    "  --messages FILE         the conversation: a JSON array of objects; -: standard input\n"
    "  --tools FILE            a JSON array of tools\n"
    "  --documents FILE        a JSON array of documents\n"
    "  --set NAME=JSON         a variable of the template, as in enable_thinking=false; "
    "repeatable\n"
    "  --template NAME         one of several templates (default: tool_use with tools, else "
    "default)\n"
    "  --no-generation-prompt  without the beginning of an answer at the end\n"
    "  -h, --help              this text\n";

enum {
    OPT_MESSAGES = MF_OPT_OWN,
    OPT_TOOLS,
    OPT_DOCUMENTS,
    OPT_SET,
    OPT_TEMPLATE,
    OPT_NO_GENERATION_PROMPT
};

static const struct option long_options[] = {
    {"messages", required_argument, NULL, OPT_MESSAGES},
    {"tools", required_argument, NULL, OPT_TOOLS},
    {"documents", required_argument, NULL, OPT_DOCUMENTS},
    {"set", required_argument, NULL, OPT_SET},
    {"template", required_argument, NULL, OPT_TEMPLATE},
    {"no-generation-prompt", no_argument, NULL, OPT_NO_GENERATION_PROMPT},
    {"help", no_argument, NULL, 'h'},
    {0}};

typedef struct template_args {
    mf_cli_model_path model_path;
    const char *model, *messages, *tools, *documents, *name;
    mf_cli_buffer variables; /* the beginning of a JSON object */
    bool has_no_opening;
} template_args;

static int own_option(void *ctx, const mf_cli_parser *parser, int option)
{
    template_args *args = ctx;
    const mf_cli_text texts[] = {{OPT_MESSAGES, &args->messages},
                                 {OPT_TOOLS, &args->tools},
                                 {OPT_DOCUMENTS, &args->documents},
                                 {OPT_TEMPLATE, &args->name},
                                 {0, NULL}};
    if (option == OPT_SET)
        return mf_cli_add_variable(parser, optarg, &args->variables);
    args->has_no_opening |= option == OPT_NO_GENERATION_PROMPT;
    (void)mf_cli_take_text(texts, option);
    return MF_EXIT_OK;
}

/* False: the program ends with *exit_code. */
static bool parse(template_args *args, int argc, char **argv, int *exit_code)
{
    const mf_cli_parser parser = {"template", help, argc, argv, ":h", long_options, NULL};
    if (!mf_cli_parse(&parser, own_option, args, exit_code))
        return false;
    args->model = mf_cli_positional_model(&parser, false, &args->model_path, exit_code);
    if (!args->model)
        return false;
    if (args->messages)
        return true;
    *exit_code = mf_cli_usage_error("template", "template: --messages is missing");
    return false;
}

static int print_text(const mf_tokenizer *tokenizer, const mf_chat_json_params *chat)
{
    mf_cli_buffer text = {0};
    mf_error error = {0};
    size_t n_bytes = 0;
    mf_status status = mf_chat_json_text(tokenizer, chat, NULL, 0, &n_bytes, &error);
    if (status == MF_OK && !mf_cli_buffer_reserve(&text, n_bytes + 1))
        status = MF_ERR_NO_MEMORY;
    if (status == MF_OK)
        status = mf_chat_json_text(tokenizer, chat, text.data, n_bytes, &n_bytes, &error);
    if (status == MF_OK && !mf_cli_put_text(stdout, text.data, n_bytes))
        status = MF_ERR_NO_MEMORY;
    mf_cli_buffer_free(&text);
    return status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
}

static int template(template_args *args)
{
    mf_tokenizer *tokenizer = NULL;
    mf_cli_buffer buffers[3] = {0};
    mf_chat_json_params chat;
    mf_error error = {0};
    mf_chat_json_params_default(&chat);
    chat.template_name = args->name;
    chat.add_generation_prompt = !args->has_no_opening;
    int exit_code = mf_cli_read_json(args->messages, &buffers[0], &chat.messages);
    if (exit_code == MF_EXIT_OK)
        exit_code = mf_cli_read_json(args->tools, &buffers[1], &chat.tools);
    if (exit_code == MF_EXIT_OK)
        exit_code = mf_cli_read_json(args->documents, &buffers[2], &chat.documents);
    if (exit_code == MF_EXIT_OK)
        exit_code = mf_cli_end_variables(&args->variables, &chat.variables);
    if (exit_code == MF_EXIT_OK) {
        mf_status status = mf_tokenizer_open(args->model, NULL, &tokenizer, &error);
        exit_code = status == MF_OK ? print_text(tokenizer, &chat) : mf_cli_fail(status, &error);
    }
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        mf_cli_buffer_free(&buffers[i]);
    mf_tokenizer_free(&tokenizer);
    return mf_cli_finish(exit_code);
}

int mf_cmd_template(int argc, char **argv)
{
    template_args args = {0};
    int exit_code = MF_EXIT_OK;
    if (parse(&args, argc, argv, &exit_code))
        exit_code = template(&args);
    mf_cli_buffer_free(&args.variables);
    return exit_code;
}
