/* SPDX-License-Identifier: MIT */
/* Where a user's files are, as the XDG base directory specification has it. */
#ifndef MF_CLI_USER_DIRS_H
#define MF_CLI_USER_DIRS_H

#include <stdbool.h>
#include <stddef.h>

/* "$VARIABLE/moeflux/REST", or "$HOME/FALLBACK/moeflux/REST" without the variable; rest may be "".
 * False: there is neither (a relative path is none), or it is longer than the path may be. */
bool mf_cli_user_path(const char *variable, const char *fallback, const char *rest, char *path,
                      size_t capacity);
/* Makes the folders that the path goes through; their absence shows when the file is written. */
void mf_cli_make_folders(char *path);

#endif
