/* SPDX-License-Identifier: MIT */
/* Line input through libedit on a terminal, through getline elsewhere; blocks of lines. */
#include "lines.h"

#include "history.h"
#include "input.h"
#include "terminal.h"

#include <errno.h>
#include <histedit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FENCE "\"\"\""
#define FENCE_BYTES (sizeof FENCE - 1)

struct mf_cli_lines {
    EditLine *edit; /* NULL where input is no terminal */
    mf_cli_history *history;
    bool in_block;
    bool pastes;  /* the terminal marks what is pasted */
    bool has_nul; /* the message that is read, so that it is none */
    char *line;
    size_t capacity;
    mf_cli_buffer block, pasted;
};

static mf_cli_lines *lines_of(EditLine *edit)
{
    void *lines = NULL;
    el_get(edit, EL_CLIENTDATA, &lines);
    return lines;
}

static char *prompt_text(EditLine *edit)
{
    /* libedit's signature wants them writable; nobody writes them */
    static char prompt[] = ">>> ", in_block[] = "... ";
    return lines_of(edit)->in_block ? in_block : prompt;
}

/* --------------------------------------------------------------------------- bracketed paste -- */

/* A terminal that was asked to puts these around what is pasted, so that its line ends are not
 * taken for Enter. */
#define PASTE_BEGIN "\\e[200~"
static const char paste_end[] = "\033[201~";

static bool ends_with(const mf_cli_buffer *text, const char *end, size_t n_end)
{
    return text->n_bytes >= n_end && memcmp(text->data + text->n_bytes - n_end, end, n_end) == 0;
}

/* The terminal sends a carriage return for a line's end, or what the text had: two characters,
 * which libedit's settings of the terminal exchange for each other, are one end. Other control
 * characters but tabs are not text. */
static void clean(mf_cli_buffer *text)
{
    size_t n = 0;
    char half = '\0'; /* the first of two that may be one end */
    for (size_t i = 0; i < text->n_bytes; i++) {
        const char c = text->data[i];
        const bool is_end = c == '\r' || c == '\n', is_second = is_end && half != '\0' && half != c;
        half = is_end && !is_second ? c : '\0';
        if (is_end && !is_second)
            text->data[n++] = '\n';
        else if (((unsigned char)c >= 0x20 || c == '\t') && c != 0x7f)
            text->data[n++] = c;
    }
    text->n_bytes = n;
    if (text->data)
        text->data[n] = '\0';
}

/* Bound to the sequence that begins a paste: takes it in up to the one that ends it. */
static unsigned char on_paste(EditLine *edit, int key)
{
    mf_cli_buffer *pasted = &lines_of(edit)->pasted;
    const size_t n_end = sizeof paste_end - 1;
    char c;
    (void)key;
    mf_cli_buffer_clear(pasted);
    while (!ends_with(pasted, paste_end, n_end)) {
        if (el_getc(edit, &c) != 1)
            return CC_EOF;
        if (!mf_cli_buffer_append(pasted, &c, 1))
            return CC_ERROR;
    }
    pasted->n_bytes -= n_end;
    clean(pasted);
    if (pasted->n_bytes == 0)
        return CC_NORM;
    return el_insertstr(edit, pasted->data) == 0 ? CC_REFRESH : CC_ERROR;
}

static void ask_for_marks(const mf_cli_lines *lines, bool wanted)
{
    if (!lines->pastes)
        return;
    fputs(wanted ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

/* -------------------------------------------------------------------------------- the editor -- */

static void open_editor(mf_cli_lines *lines, bool keeps_history)
{
    const char *terminal = getenv("TERM");
    mf_cli_use_utf8();
    lines->edit = el_init("moeflux", stdin, stdout, stderr);
    if (!lines->edit)
        return; /* an unknown TERM: plain lines will do */
    el_set(lines->edit, EL_CLIENTDATA, lines);
    el_set(lines->edit, EL_PROMPT, prompt_text);
    el_set(lines->edit, EL_EDITOR, "emacs");
    el_set(lines->edit, EL_SIGNAL, 0);
    lines->history = mf_cli_history_open(keeps_history);
    if (lines->history)
        el_set(lines->edit, EL_HIST, history, mf_cli_history_events(lines->history));
    el_source(lines->edit, NULL);
    lines->pastes = terminal && strcmp(terminal, "dumb") != 0;
    el_set(lines->edit, EL_ADDFN, "moeflux-paste", "take in a pasted text", on_paste);
    el_set(lines->edit, EL_BIND, PASTE_BEGIN, "moeflux-paste", NULL);
}

mf_cli_lines *mf_cli_lines_open(bool keeps_history)
{
    mf_cli_lines *lines = calloc(1, sizeof *lines);
    if (lines && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        open_editor(lines, keeps_history);
    return lines;
}

void mf_cli_lines_close(mf_cli_lines **lines_ptr)
{
    mf_cli_lines *lines = *lines_ptr;
    if (!lines)
        return;
    if (lines->edit)
        el_end(lines->edit);
    mf_cli_history_close(&lines->history);
    mf_cli_buffer_free(&lines->block);
    mf_cli_buffer_free(&lines->pasted);
    free(lines->line);
    free(lines);
    *lines_ptr = NULL;
}

int mf_cli_lines_is_terminal(const mf_cli_lines *lines)
{
    return lines->edit != NULL;
}

/* ------------------------------------------------------------------------------------- lines -- */

static mf_cli_line_result ended(int error)
{
    if (error == EINTR)
        return MF_LINE_INTERRUPTED;
    return error ? MF_LINE_FAILED : MF_LINE_END;
}

static mf_cli_line_result next_edited(mf_cli_lines *lines)
{
    int n_chars = 0;
    errno = 0;
    ask_for_marks(lines, true);
    const char *text = el_gets(lines->edit, &n_chars);
    int error = errno;
    ask_for_marks(lines, false);
    if (!text || n_chars <= 0)
        return ended(n_chars < 0 ? error : 0);
    if (lines->history && strspn(text, " \t\r\n") < strlen(text))
        mf_cli_history_add(lines->history, text);
    char *copy = strdup(text);
    if (!copy)
        return MF_LINE_FAILED;
    free(lines->line);
    lines->line = copy;
    return MF_LINE_READ;
}

/* A line as it was entered, in lines->line; one that was pasted has others in it. */
static mf_cli_line_result next_line(mf_cli_lines *lines)
{
    mf_cli_line_result result = MF_LINE_READ;
    if (lines->edit) {
        result = next_edited(lines);
    } else {
        errno = 0;
        const ssize_t n_bytes = getline(&lines->line, &lines->capacity, stdin);
        if (n_bytes < 0) {
            int error = feof(stdin) ? 0 : errno;
            clearerr(stdin);
            result = ended(error);
        }
        char *at = lines->line;
        while (n_bytes > 0 && (at = memchr(at, '\0', (size_t)(lines->line + n_bytes - at)))) {
            *at = '?'; /* what ends a block behind it is seen */
            lines->has_nul = true;
        }
    }
    if (result != MF_LINE_READ)
        return result;
    size_t n = strlen(lines->line);
    if (n > 0 && lines->line[n - 1] == '\n')
        lines->line[--n] = '\0';
    if (n > 0 && lines->line[n - 1] == '\r')
        lines->line[n - 1] = '\0';
    return result;
}

/* Adds a line to the block, without the fence that ends it; *is_last: there was one. */
static bool add_to_block(mf_cli_lines *lines, const char *line, bool *is_last)
{
    size_t n = strlen(line);
    *is_last = n >= FENCE_BYTES && strcmp(line + n - FENCE_BYTES, FENCE) == 0;
    if (*is_last)
        n -= FENCE_BYTES;
    return mf_cli_buffer_append(&lines->block, line, n) &&
           (*is_last || mf_cli_buffer_append(&lines->block, "\n", 1));
}

/* The block that lines->line begins. What input ends in the middle of is taken as it is. */
static mf_cli_line_result next_block(mf_cli_lines *lines, const char **text)
{
    mf_cli_line_result result = MF_LINE_READ;
    const char *line = lines->line + FENCE_BYTES;
    bool is_last = false, has_memory = true;
    mf_cli_buffer_clear(&lines->block);
    if (*line != '\0') /* a fence by itself is no empty line */
        has_memory = add_to_block(lines, line, &is_last);
    lines->in_block = true;
    while (has_memory && !is_last && (result = next_line(lines)) == MF_LINE_READ)
        has_memory = add_to_block(lines, lines->line, &is_last);
    lines->in_block = false;
    size_t n = lines->block.n_bytes;
    if (n > 0 && lines->block.data[n - 1] == '\n')
        lines->block.data[--lines->block.n_bytes] = '\0';
    *text = lines->block.data ? lines->block.data : "";
    if (!has_memory) {
        errno = ENOMEM;
        return MF_LINE_FAILED;
    }
    return result == MF_LINE_END ? MF_LINE_READ : result;
}

mf_cli_line_result mf_cli_lines_next(mf_cli_lines *lines, const char **text, bool *is_block)
{
    lines->has_nul = false;
    mf_cli_line_result result = next_line(lines);
    *is_block = result == MF_LINE_READ && strncmp(lines->line, FENCE, FENCE_BYTES) == 0;
    *text = lines->line;
    if (*is_block)
        result = next_block(lines, text);
    return result == MF_LINE_READ && lines->has_nul ? MF_LINE_NO_TEXT : result;
}
