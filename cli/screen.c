/* SPDX-License-Identifier: MIT */
/* Word wrap and colours. */
#include "screen.h"

#include "terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define DIM "\033[2m"
#define NOT_DIM "\033[22m"
/* Narrower terminals wrap for themselves. */
#define LEAST_COLUMNS 20

/* A terminal that understands sequences. */
static bool is_screen(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) && kind && *kind && strcmp(kind, "dumb") != 0;
}

static bool wants_color(mf_cli_color color, int fd)
{
    const char *no_color = getenv("NO_COLOR");
    if (color == MF_COLOR_AUTO)
        return is_screen(fd) && (!no_color || !*no_color);
    return color == MF_COLOR_ALWAYS;
}

void mf_cli_screen_open(mf_cli_screen *screen, mf_cli_color color, bool wraps)
{
    screen->has_color = wants_color(color, STDOUT_FILENO);
    screen->has_error_color = wants_color(color, STDERR_FILENO);
    screen->wraps = wraps && is_screen(STDOUT_FILENO);
    if (screen->wraps)
        mf_cli_use_utf8();
}

void mf_cli_screen_free(mf_cli_screen *screen)
{
    mf_cli_buffer_free(&screen->word);
    mf_cli_buffer_free(&screen->escaped);
    mf_cli_buffer_free(&screen->out);
}

/* How many columns of a line are used; 0: as many as the terminal likes. Not the last: behind it a
 * terminal's cursor is in no column. Asked for each time, since it may change. */
static size_t line_columns(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < LEAST_COLUMNS)
        return 0;
    return size.ws_col - 1u;
}

static void end_word(mf_cli_screen *s)
{
    mf_cli_buffer_clear(&s->word);
    s->word_columns = 0;
}

static bool end_line(mf_cli_screen *s)
{
    end_word(s);
    s->column = 0;
    return mf_cli_buffer_append(&s->out, "\n", 1);
}

/* The next character would not fit: takes the word that it belongs to back and begins the next line
 * with it, or cuts it where it alone is longer than a line. */
static bool go_on_below(mf_cli_screen *s, size_t n_needed, size_t n_columns)
{
    char back[40];
    size_t n_word = s->word_columns;
    if (n_word == 0 || n_word >= s->column || n_word + n_needed > n_columns)
        return end_line(s);
    snprintf(back, sizeof back, "\033[%zuD\033[K\n", n_word);
    s->column = n_word;
    return mf_cli_buffer_append(&s->out, back, strlen(back)) &&
           mf_cli_buffer_append(&s->out, s->word.data, s->word.n_bytes);
}

/* A character of the given columns that is no white space. After a wide one, as Chinese has them,
 * a line may end. */
static bool add_visible(mf_cli_screen *s, const char *at, size_t n_bytes, size_t n_columns)
{
    wchar_t c = 0;
    mbstate_t state = {0};
    size_t n = mbrtowc(&c, at, n_bytes, &state);
    int width = n == n_bytes ? wcwidth(c) : 1;
    size_t n_needed = width >= 0 ? (size_t)width : 1;
    if (s->column + n_needed > n_columns && !go_on_below(s, n_needed, n_columns))
        return false;
    s->column += n_needed;
    s->word_columns += n_needed;
    if (!mf_cli_buffer_append(&s->out, at, n_bytes) || !mf_cli_buffer_append(&s->word, at, n_bytes))
        return false;
    if (n_needed > 1)
        end_word(s);
    return true;
}

static bool add_blank(mf_cli_screen *s, char blank, size_t n_columns)
{
    size_t after = blank == '\t' ? s->column / 8 * 8 + 8 : s->column + 1;
    if (blank == '\n' || after > n_columns)
        return end_line(s);
    end_word(s);
    s->column = after;
    return mf_cli_buffer_append(&s->out, &blank, 1);
}

static size_t char_bytes(const char *text, size_t n_bytes)
{
    size_t n = 1;
    while (n < n_bytes && ((unsigned char)text[n] & 0xC0) == 0x80)
        n++;
    return n;
}

static bool wrap(mf_cli_screen *s, const mf_cli_buffer *text, size_t n_columns)
{
    mf_cli_buffer_clear(&s->out);
    for (size_t at = 0, n; at < text->n_bytes; at += n) {
        const char *c = text->data + at;
        n = char_bytes(c, text->n_bytes - at);
        bool is_blank = *c == ' ' || *c == '\t' || *c == '\n';
        if (!(is_blank ? add_blank(s, *c, n_columns) : add_visible(s, c, n, n_columns)))
            return false;
    }
    return true;
}

int mf_cli_screen_write(mf_cli_screen *s, const char *text, size_t n_bytes)
{
    size_t n_columns = s->wraps ? line_columns() : 0;
    if (n_columns == 0)
        return mf_cli_show(stdout, text, n_bytes, &s->escaped);
    if (!mf_cli_escape(text, n_bytes, &s->escaped) || !wrap(s, &s->escaped, n_columns))
        return ENOMEM;
    return mf_cli_write_all(stdout, s->out.data, s->out.n_bytes);
}

int mf_cli_screen_dim(mf_cli_screen *s, bool is_dim)
{
    const char *code = is_dim ? DIM : NOT_DIM;
    if (!s->has_color || s->is_dim == is_dim)
        return 0;
    s->is_dim = is_dim;
    return mf_cli_write_all(stdout, code, strlen(code));
}

void mf_cli_screen_note(const mf_cli_screen *s, const char *text)
{
    fprintf(stderr, "%s(%s)%s\n", s->has_error_color ? DIM : "", text,
            s->has_error_color ? NOT_DIM : "");
}
