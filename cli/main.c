/* SPDX-License-Identifier: MIT */
/* The program's entry: its own options, then one subcommand. */
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: moeflux COMMAND MODEL [OPTION]...\n"
    "Runs Mixture-of-Experts language models that are larger than memory: the experts are read\n"
    "from disk as they are needed. MODEL is the directory of a checkpoint.\n"
    "\n"
    "Commands:\n"
    "  run         answer a prompt, or chat\n"
    "  info        say what a checkpoint is and what it needs\n"
    "  tokenize    turn text into token ids and back\n"
    "  perplexity  measure how well a model predicts a text\n"
    "  bench       measure speed, reads and memory\n"
    "\n"
    "  -h, --help  this text; 'moeflux COMMAND --help' for a command's options\n"
    "  --version   the version\n"
    "\n"
    "Exit codes: 0 done, 1 error, 2 wrong usage, 130 answer interrupted.\n";

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", mf_cmd_run},           {"info", mf_cmd_info},
    {"tokenize", mf_cmd_tokenize}, {"perplexity", mf_cmd_perplexity},
    {"bench", mf_cmd_bench},
};

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

int main(int argc, char **argv)
{
    if (!fill_standard_streams())
        return MF_EXIT_ERROR;
    if (argc < 2)
        return mf_cli_usage_error(NULL, "a command is missing");
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        fputs(help, stdout);
        return mf_cli_finish(MF_EXIT_OK);
    }
    if (strcmp(name, "--version") == 0) {
        printf("moeflux %s\n", mf_version());
        return mf_cli_finish(MF_EXIT_OK);
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return mf_cli_usage_error(NULL, "'%s' is not %s", name,
                              *name == '-' ? "an option" : "a command");
}
