/* SPDX-License-Identifier: MIT */
/* Lines that the user types: edited and remembered on a terminal, plain where input is a file or a
 * pipe (then without a prompt, so that a chat can be scripted). */
#ifndef MF_CLI_LINES_H
#define MF_CLI_LINES_H

typedef struct mf_cli_lines mf_cli_lines;

typedef enum mf_cli_line_result {
    MF_LINE_READ,
    MF_LINE_END,         /* end of input */
    MF_LINE_INTERRUPTED, /* Ctrl-C */
    MF_LINE_FAILED       /* input cannot be read; errno says why */
} mf_cli_line_result;

/* NULL: no memory. */
mf_cli_lines *mf_cli_lines_open(void);
void mf_cli_lines_close(mf_cli_lines **lines);
/* Non-zero if a person is typing. */
int mf_cli_lines_is_terminal(const mf_cli_lines *lines);
/* *line is without its newline and valid until the next call. */
mf_cli_line_result mf_cli_lines_next(mf_cli_lines *lines, const char **line);

#endif
