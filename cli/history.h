/* SPDX-License-Identifier: MIT */
/* The lines entered at the chat's prompt, in memory and, where wanted, in a file:
 * $XDG_STATE_HOME/moeflux/history, or ~/.local/state/moeflux/history. */
#ifndef MF_CLI_HISTORY_H
#define MF_CLI_HISTORY_H

#include <stdbool.h>

typedef struct mf_cli_history mf_cli_history;

/* NULL: no memory. A file that cannot be read is an empty one. */
mf_cli_history *mf_cli_history_open(bool in_file);
void mf_cli_history_close(mf_cli_history **history);
/* libedit's own list, for EL_HIST. */
void *mf_cli_history_events(mf_cli_history *history);
/* Remembers a line, and writes the file anew: a closed window ends the program without a word. A
 * file that cannot be written is left as it is. */
void mf_cli_history_add(mf_cli_history *history, const char *line);

#endif
