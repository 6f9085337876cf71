/* SPDX-License-Identifier: MIT */
/* Text from a model on its way to a standard stream, and what the user types meanwhile. */
#ifndef MF_CLI_TERMINAL_H
#define MF_CLI_TERMINAL_H

#include "input.h"

#include <stdio.h>
#include <termios.h>

/*
 * Writes all of it, whatever signals come. On a terminal control characters, which could rewrite
 * the screen or drive the terminal, are shown as \x1b or \u009b; tabs and line ends are not, and a
 * file or a pipe gets the bytes as they are. `scratch` is the caller's. Returns 0 or an errno.
 */
int mf_cli_show(FILE *out, const char *text, size_t n_bytes, mf_cli_buffer *scratch);
/* The same through stdio, whose end finds what could not be written; without memory for it false.
 */
bool mf_cli_put_text(FILE *out, const char *text, size_t n_bytes);
/* Its parts: the text as a terminal is to get it (false: no memory), and bytes as they are (0 or an
 * errno). */
bool mf_cli_escape(const char *text, size_t n_bytes, mf_cli_buffer *out);
int mf_cli_write_all(FILE *out, const char *bytes, size_t n_bytes);

/* Characters are UTF-8 from here on, whatever the environment says; numbers stay in the C locale.
 */
void mf_cli_use_utf8(void);

/* The terminal on standard input while nobody reads from it: what is typed is kept for the next
 * prompt and not echoed into the output. */
typedef struct mf_cli_silence {
    struct termios before;
    bool is_on;
} mf_cli_silence;

void mf_cli_silence_begin(mf_cli_silence *silence);
void mf_cli_silence_end(mf_cli_silence *silence);

#endif
