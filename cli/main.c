/* SPDX-License-Identifier: MIT */
/* The program's entry: its own options, then one subcommand. */
#include "build_facts.h"
#include "commands.h"
#include "suggest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: moeflux COMMAND MODEL [OPTION]...\n"
    "       moeflux devices | doctor\n"
    "Runs Mixture-of-Experts language models that are larger than memory: the experts are read\n"
    "from disk as they are needed. MODEL is the directory of a checkpoint, a GGUF file, or\n"
    "ORG/NAME of a model that was pulled from a hub.\n"
    "\n"
    "Commands:\n"
    "  run         answer a prompt, or chat\n"
    "  info        say what a checkpoint is and what it needs\n"
    "  devices     list what can compute here\n"
    "  tokenize    turn text into token ids and back\n"
    "  template    write a conversation as the model's chat template does\n"
    "  perplexity  measure how well a model predicts a text\n"
    "  bench       measure speed, reads and memory\n"
    "  convert     write a checkpoint anew so that an expert is one read\n"
    "  replay      say what another machine would make of a recorded routing\n"
    "  serve       answer clients of OpenAI's and Anthropic's APIs\n"
    "  pull        fetch a model of a hub\n"
    "  plan        say what this machine would make of a model, of a hub too\n"
    "  doctor      say what this machine has, and what to change\n"
    "\n"
    "  help [COMMAND]  this text, or a command's options; also -h, --help\n"
    "  version         what this program is; also -V, --version\n"
    "\n"
    "Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted.\n";

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", mf_cmd_run},           {"info", mf_cmd_info},         {"devices", mf_cmd_devices},
    {"tokenize", mf_cmd_tokenize}, {"template", mf_cmd_template}, {"perplexity", mf_cmd_perplexity},
    {"bench", mf_cmd_bench},       {"convert", mf_cmd_convert},   {"replay", mf_cmd_replay},
    {"serve", mf_cmd_serve},       {"pull", mf_cmd_pull},         {"plan", mf_cmd_plan},
    {"doctor", mf_cmd_doctor},
};

#ifndef MF_HAS_PULL
int mf_cmd_pull(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return mf_cli_error("this moeflux was built without pull, which wants libcurl and OpenSSL's "
                        "libcrypto");
}
#endif

#ifndef MF_HAS_SERVER
int mf_cmd_serve(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return mf_cli_error(
        "this moeflux was built without serve, which wants libmicrohttpd, libsystemd, "
        "libzstd and zlib");
}
#endif

/* A standard stream that was closed would be the next file opened. It is taken in the direction
 * that it is not for, so that using it fails as before. */
static bool fill_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

/* What others call what is done here. */
static const char *other_name(const char *word)
{
    static const char *const others[][2] = {
        {"chat", "run"},      {"generate", "run"}, {"complete", "run"},    {"server", "serve"},
        {"download", "pull"}, {"fetch", "pull"},   {"show", "info"},       {"inspect", "info"},
        {"detect", "doctor"}, {"check", "doctor"}, {"quantize", "convert"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(word, others[i][0]) == 0)
            return others[i][1];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[sizeof commands / sizeof *commands];
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        names[i] = commands[i].name;
    const char *meant = other_name(name);
    if (!meant)
        meant = mf_cli_nearest(name, names, sizeof names / sizeof *names);
    if (strcmp(name, "-v") == 0)
        return mf_cli_usage_error(NULL, "'%s' is not an option; did you mean --version?", name);
    if (*name == '-')
        return mf_cli_usage_error(NULL, "'%s' is not an option", name);
    if (meant)
        return mf_cli_usage_error(NULL, "'%s' is not a command; did you mean '%s'?", name, meant);
    if (strchr(name, '/') || access(name, F_OK) == 0)
        return mf_cli_usage_error(
            NULL, "'%s' is not a command; 'moeflux run %s' chats with a model", name, name);
    return mf_cli_usage_error(NULL, "'%s' is not a command", name);
}

static int run_command(const char *name, int argc, char **argv)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc, argv);
    return unknown_command(name);
}

static int print_help(int argc, char **argv)
{
    char option[] = "--help";
    char *command_line[] = {argc > 2 ? argv[2] : NULL, option, NULL};
    if (argc > 3)
        return mf_cli_usage_error(NULL, "help: unexpected argument '%s'", argv[3]);
    if (argc > 2)
        return run_command(argv[2], 2, command_line);
    fputs(help, stdout);
    return mf_cli_finish(MF_EXIT_OK);
}

/* True if word is one of the n names. */
static bool is_any(const char *word, const char *const *names, int n)
{
    return mf_cli_parse_name(word, names, n) >= 0;
}

int main(int argc, char **argv)
{
    static const char *const help_names[] = {"help", "--help", "-h"};
    static const char *const version_names[] = {"version", "--version", "-V"};
    if (!fill_standard_streams())
        return MF_EXIT_ERROR;
    if (argc < 2)
        return mf_cli_usage_error(NULL, "a command is missing");
    if (is_any(argv[1], help_names, 3))
        return print_help(argc, argv);
    if (is_any(argv[1], version_names, 3) && argc > 2)
        return mf_cli_usage_error(NULL, "version: unexpected argument '%s'", argv[2]);
    if (is_any(argv[1], version_names, 3)) {
        mf_cli_print_version(stdout);
        return mf_cli_finish(MF_EXIT_OK);
    }
    return run_command(argv[1], argc - 1, argv + 1);
}
