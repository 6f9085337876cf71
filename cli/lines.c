/* SPDX-License-Identifier: MIT */
/* Line input through libedit on a terminal, through getline elsewhere. */
#include "lines.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mf_cli_lines {
    EditLine *edit; /* NULL where input is no terminal */
    History *history;
    char *line;
    size_t capacity;
};

static char *prompt_text(EditLine *edit)
{
    static char prompt[] = ">>> "; /* libedit's signature wants it writable; nobody writes it */
    (void)edit;
    return prompt;
}

/* Characters only: numbers stay in the C locale. */
static void use_utf8_input(void)
{
    const char *set = setlocale(LC_CTYPE, "");
    if (!set || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static void open_editor(mf_cli_lines *lines)
{
    HistEvent event;
    use_utf8_input();
    lines->edit = el_init("moeflux", stdin, stdout, stderr);
    if (!lines->edit)
        return; /* an unknown TERM: plain lines will do */
    el_set(lines->edit, EL_PROMPT, prompt_text);
    el_set(lines->edit, EL_EDITOR, "emacs");
    el_set(lines->edit, EL_SIGNAL, 0);
    lines->history = history_init();
    if (lines->history) {
        history(lines->history, &event, H_SETSIZE, 500);
        el_set(lines->edit, EL_HIST, history, lines->history);
    }
    el_source(lines->edit, NULL);
}

mf_cli_lines *mf_cli_lines_open(void)
{
    mf_cli_lines *lines = calloc(1, sizeof *lines);
    if (lines && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        open_editor(lines);
    return lines;
}

void mf_cli_lines_close(mf_cli_lines **lines_ptr)
{
    mf_cli_lines *lines = *lines_ptr;
    if (!lines)
        return;
    if (lines->history)
        history_end(lines->history);
    if (lines->edit)
        el_end(lines->edit);
    free(lines->line);
    free(lines);
    *lines_ptr = NULL;
}

int mf_cli_lines_is_terminal(const mf_cli_lines *lines)
{
    return lines->edit != NULL;
}

static mf_cli_line_result ended(int error)
{
    if (error == EINTR)
        return MF_LINE_INTERRUPTED;
    return error ? MF_LINE_FAILED : MF_LINE_END;
}

static mf_cli_line_result next_edited(mf_cli_lines *lines, const char **line)
{
    int n_chars = 0;
    HistEvent event;
    errno = 0;
    const char *text = el_gets(lines->edit, &n_chars);
    if (!text || n_chars <= 0)
        return ended(n_chars < 0 ? errno : 0);
    if (lines->history && strspn(text, " \t\r\n") < (size_t)n_chars)
        history(lines->history, &event, H_ENTER, text);
    char *copy = strdup(text);
    if (!copy)
        return MF_LINE_FAILED;
    copy[strcspn(copy, "\r\n")] = '\0';
    free(lines->line);
    *line = lines->line = copy;
    return MF_LINE_READ;
}

mf_cli_line_result mf_cli_lines_next(mf_cli_lines *lines, const char **line)
{
    if (lines->edit)
        return next_edited(lines, line);
    errno = 0;
    ssize_t n = getline(&lines->line, &lines->capacity, stdin);
    if (n < 0) {
        int error = feof(stdin) ? 0 : errno;
        clearerr(stdin);
        return ended(error);
    }
    lines->line[strcspn(lines->line, "\r\n")] = '\0';
    *line = lines->line;
    return MF_LINE_READ;
}
