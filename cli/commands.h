/* SPDX-License-Identifier: MIT */
/* The subcommands. Each takes argc and argv from its own name on, and returns the exit code. */
#ifndef MF_CLI_COMMANDS_H
#define MF_CLI_COMMANDS_H

#include "generate.h"

int mf_cmd_run(int argc, char **argv);
int mf_cmd_info(int argc, char **argv);
int mf_cmd_devices(int argc, char **argv);
int mf_cmd_tokenize(int argc, char **argv);
int mf_cmd_template(int argc, char **argv);
int mf_cmd_perplexity(int argc, char **argv);
int mf_cmd_bench(int argc, char **argv);
int mf_cmd_convert(int argc, char **argv);
int mf_cmd_replay(int argc, char **argv);
int mf_cmd_serve(int argc, char **argv);
int mf_cmd_pull(int argc, char **argv);
int mf_cmd_plan(int argc, char **argv);
int mf_cmd_doctor(int argc, char **argv);

/* run without a prompt: a conversation, line by line. */
int mf_cli_chat(mf_cli_generator *g);

#endif
