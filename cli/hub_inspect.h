/* SPDX-License-Identifier: MIT */
/* Looking at a model of the hub before it is fetched. */
#ifndef MF_CLI_HUB_INSPECT_H
#define MF_CLI_HUB_INSPECT_H

#include "output.h"

#include "hub_pull.h"

/* Calls look(user, path) with a model of which only the descriptors were fetched, into a temporary
 * folder that is gone afterwards. *fetched: they came; the status is then look's. */
typedef mf_status (*mf_cli_look_fn)(void *user, const char *path, mf_error *error);
mf_status mf_cli_hub_look(mf_hub_model *model, mf_cli_look_fn look, void *user, bool *fetched,
                          mf_error *error);
/* mf_model_inspect of it. */
mf_status mf_cli_hub_inspect(mf_hub_model *model, const mf_engine_options *options,
                             mf_model_info *info, bool *fetched, mf_error *error);

/* Progress of a fetch, on standard error: one line on a terminal, now and then a line elsewhere. */
typedef struct mf_cli_pull_progress {
    const mf_cli_verbosity *verbosity;
    bool is_terminal, has_line;
    double began, last;
    unsigned last_tenth;
    char last_why[160];
} mf_cli_pull_progress;

/* user is an mf_cli_pull_progress *; false once the user has interrupted. */
bool mf_cli_pull_tick(void *user, const mf_hub_progress *progress);
/* Ends the line. */
void mf_cli_pull_progress_end(mf_cli_pull_progress *progress);

#endif
