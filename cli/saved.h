/* SPDX-License-Identifier: MIT */
/*
 * Conversations in files: $XDG_STATE_HOME/moeflux/chats/NAME.json, or below ~/.local/state, each an
 * array of messages as the clients of chat servers send them, readable by their user only. A file
 * is replaced as a whole or not at all, and one that is anything else is refused.
 */
#ifndef MF_CLI_SAVED_H
#define MF_CLI_SAVED_H

#include "conversation.h"

#define MF_CLI_NAME_BYTES 101

/* All print their error; return an exit code. */

/* MF_EXIT_ERROR: no file may have this name. */
int mf_cli_saved_check(const char *name);
int mf_cli_saved_write(const char *name, const mf_cli_conversation *conversation);
/* Takes the place of the conversation, which stays as it is where the file is refused. */
int mf_cli_saved_read(const char *name, mf_cli_conversation *conversation);
/* The name of the one that was written last. */
int mf_cli_saved_newest(char name[MF_CLI_NAME_BYTES]);
/* The names, the newest first, with the time of each. */
int mf_cli_saved_list(FILE *out);

#endif
