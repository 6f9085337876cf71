/* SPDX-License-Identifier: MIT */
/* Writing to a terminal and silencing it. */
#include "terminal.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Not by stdio, which drops what an interrupted write leaves over. */
int mf_cli_write_all(FILE *out, const char *bytes, size_t n_bytes)
{
    int fd = fileno(out);
    if (fflush(out) != 0)
        return errno;
    while (n_bytes > 0) {
        ssize_t n = write(fd, bytes, n_bytes);
        if (n >= 0) {
            bytes += n;
            n_bytes -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd ready = {.fd = fd, .events = POLLOUT};
            (void)poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* How many bytes the control character at text takes, 0 if there is none; *code is its number. C1
 * stands in UTF-8, as all that a decoder gives. */
static size_t control_at(const unsigned char *text, size_t n_bytes, unsigned *code)
{
    *code = text[0];
    if (text[0] < 0x20 || text[0] == 0x7f)
        return text[0] != '\n' && text[0] != '\t';
    if (text[0] != 0xc2 || n_bytes < 2 || text[1] < 0x80 || text[1] > 0x9f)
        return 0;
    *code = text[1];
    return 2;
}

bool mf_cli_escape(const char *text, size_t n_bytes, mf_cli_buffer *out)
{
    mf_cli_buffer_clear(out);
    for (size_t at = 0; at < n_bytes;) {
        unsigned code;
        char shown[8];
        size_t n = control_at((const unsigned char *)text + at, n_bytes - at, &code);
        if (n > 0)
            snprintf(shown, sizeof shown, n == 1 ? "\\x%02x" : "\\u%04x", code);
        if (!mf_cli_buffer_append(out, n > 0 ? shown : text + at, n > 0 ? strlen(shown) : 1))
            return false;
        at += n > 0 ? n : 1;
    }
    return true;
}

/* Puts what `out` is to get in the text's place: on a terminal what scratch has then. False: no
 * memory. */
static bool prepare(FILE *out, const char **text, size_t *n_bytes, mf_cli_buffer *scratch)
{
    if (!isatty(fileno(out)))
        return true;
    if (!mf_cli_escape(*text, *n_bytes, scratch))
        return false;
    *text = scratch->data;
    *n_bytes = scratch->n_bytes;
    return true;
}

int mf_cli_show(FILE *out, const char *text, size_t n_bytes, mf_cli_buffer *scratch)
{
    return prepare(out, &text, &n_bytes, scratch) ? mf_cli_write_all(out, text, n_bytes) : ENOMEM;
}

bool mf_cli_put_text(FILE *out, const char *text, size_t n_bytes)
{
    mf_cli_buffer escaped = {0};
    const bool has_memory = prepare(out, &text, &n_bytes, &escaped);
    if (has_memory && n_bytes > 0)
        fwrite(text, 1, n_bytes, out);
    mf_cli_buffer_free(&escaped);
    return has_memory;
}

void mf_cli_use_utf8(void)
{
    const char *set = setlocale(LC_CTYPE, "");
    if (!set || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

/* Not from the background, where setting a terminal stops the process. */
void mf_cli_silence_begin(mf_cli_silence *silence)
{
    silence->is_on =
        tcgetpgrp(STDIN_FILENO) == getpgrp() && tcgetattr(STDIN_FILENO, &silence->before) == 0;
    if (!silence->is_on)
        return;
    struct termios silent = silence->before;
    silent.c_lflag &= ~(tcflag_t)ECHO;
    silence->is_on = tcsetattr(STDIN_FILENO, TCSANOW, &silent) == 0;
}

void mf_cli_silence_end(mf_cli_silence *silence)
{
    if (silence->is_on && tcgetpgrp(STDIN_FILENO) == getpgrp())
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &silence->before);
    silence->is_on = false;
}
