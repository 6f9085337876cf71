/* SPDX-License-Identifier: MIT */
/* Between saved.c and saved_read.c. */
#ifndef MF_CLI_SAVED_FILES_H
#define MF_CLI_SAVED_FILES_H

#include "user_dirs.h"

#define MF_CLI_PATH_BYTES 4096

/* Of a conversation's file; of the folder where name is empty. Prints the error; an exit code. */
int mf_cli_saved_path(const char *name, char path[MF_CLI_PATH_BYTES]);

#endif
