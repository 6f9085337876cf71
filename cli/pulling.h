/* SPDX-License-Identifier: MIT */
/* --while-pulling: a model of the hub that is run while it is fetched. */
#ifndef MF_CLI_PULLING_H
#define MF_CLI_PULLING_H

#include "model_path.h"

typedef struct mf_cli_pulling {
    bool is_wanted; /* the option was given */
    struct mf_hub_model *model;
    struct mf_hub_ahead *ahead; /* NULL: nothing is being fetched */
    const mf_cli_verbosity *verbosity;
    const char *given;
} mf_cli_pulling;

#define MF_PULLING_HELP                                                                       \
    "  --while-pulling        of ORG/NAME: fetch what the cache lacks, and begin meanwhile; " \
    "what\n"                                                                                  \
    "                         a token needs comes first\n"

/* As mf_cli_positional_model. A model that the cache has not all of is fetched, if that is wanted,
 * by a thread, which the parser's engine options are told of. */
const char *mf_cli_pulling_model(const mf_cli_parser *parser, mf_cli_pulling *pulling,
                                 mf_cli_model_path *path, int *exit_code);
/* Before the engine is closed: reads that wait are given up. */
void mf_cli_pulling_cancel(mf_cli_pulling *pulling);
/* After it was; says how much is there. */
void mf_cli_pulling_end(mf_cli_pulling *pulling);

#endif
