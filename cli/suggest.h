/* SPDX-License-Identifier: MIT */
/* What somebody may have meant. */
#ifndef MF_CLI_SUGGEST_H
#define MF_CLI_SUGGEST_H

#include <stddef.h>

/* The one of n names that word is most like: a letter in three at most has to be put in, left out
 * or exchanged, or one begins with the other. NULL: it is like none. */
const char *mf_cli_nearest(const char *word, const char *const *names, size_t n);

#endif
