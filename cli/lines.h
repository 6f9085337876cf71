/* SPDX-License-Identifier: MIT */
/*
 * What the user types: edited and remembered on a terminal, where a pasted text is one message,
 * plain where input is a file or a pipe (then without a prompt, so that a chat can be scripted). A
 * message is a line, or several between """ and """.
 */
#ifndef MF_CLI_LINES_H
#define MF_CLI_LINES_H

#include <stdbool.h>

typedef struct mf_cli_lines mf_cli_lines;

typedef enum mf_cli_line_result {
    MF_LINE_READ,
    MF_LINE_END,         /* end of input */
    MF_LINE_INTERRUPTED, /* Ctrl-C */
    MF_LINE_NO_TEXT,     /* a message with a NUL byte, which is not given */
    MF_LINE_FAILED       /* input cannot be read; errno says why */
} mf_cli_line_result;

/* keeps_history: on a terminal, in a file (see moeflux(1)) that the next chat reads. NULL: no
 * memory. */
mf_cli_lines *mf_cli_lines_open(bool keeps_history);
void mf_cli_lines_close(mf_cli_lines **lines);
/* Non-zero if a person is typing. */
int mf_cli_lines_is_terminal(const mf_cli_lines *lines);
/* *text is a message without its last newline, valid until the next call. *is_block: it stood
 * between """, and is no command whatever it begins with. */
mf_cli_line_result mf_cli_lines_next(mf_cli_lines *lines, const char **text, bool *is_block);

#endif
