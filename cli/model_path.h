/* SPDX-License-Identifier: MIT */
/* The MODEL of a command line: a path, or the name of a model that the hub's cache holds. */
#ifndef MF_CLI_MODEL_PATH_H
#define MF_CLI_MODEL_PATH_H

#include "options.h"

typedef struct mf_cli_model_path {
    const char *given; /* as the user has it */
    bool is_hub_name;
    char text[4096];
} mf_cli_model_path;

/* As mf_cli_positional; returns path->text, which the engine can open. A path that is there is
 * taken as it stands, and so is what cannot be ORG/NAME. NULL: what the cache lacks was said. */
const char *mf_cli_positional_model(const mf_cli_parser *parser, bool more, mf_cli_model_path *path,
                                    int *exit_code);
/* A file or a folder has this name. */
bool mf_cli_is_path(const char *given);
/* The same of a text. An exit code. */
int mf_cli_model_find(const char *given, mf_cli_model_path *path);

#endif
