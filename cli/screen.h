/* SPDX-License-Identifier: MIT */
/*
 * An answer on its way to standard output. On a terminal control characters are shown, not sent;
 * lines end between words, at the terminal's width; thoughts are dim. A file or a pipe gets the
 * bytes as they are, and colours if asked for.
 */
#ifndef MF_CLI_SCREEN_H
#define MF_CLI_SCREEN_H

#include "input.h"

typedef enum mf_cli_color { MF_COLOR_AUTO, MF_COLOR_ALWAYS, MF_COLOR_NEVER } mf_cli_color;

typedef struct mf_cli_screen {
    bool has_color; /* standard output */
    bool has_error_color;
    bool wraps;
    bool is_dim;
    size_t column;       /* where the next character goes */
    size_t word_columns; /* of these, what the word takes that is being written */
    mf_cli_buffer word;  /* its text so far, to write it anew on the next line */
    mf_cli_buffer escaped, out;
} mf_cli_screen;

/* auto: on a terminal that knows colours, unless NO_COLOR is set. Zero-initialise. */
void mf_cli_screen_open(mf_cli_screen *screen, mf_cli_color color, bool wraps);
void mf_cli_screen_free(mf_cli_screen *screen);
/* 0 or an errno. */
int mf_cli_screen_write(mf_cli_screen *screen, const char *text, size_t n_bytes);
/* Writes dimly from here on, or no longer. */
int mf_cli_screen_dim(mf_cli_screen *screen, bool is_dim);
/* One line "(text)" on standard error. */
void mf_cli_screen_note(const mf_cli_screen *screen, const char *text);

#endif
