/* SPDX-License-Identifier: MIT */
/* The chat's history and its file, which only the user may read. */
#include "history.h"
#include "user_dirs.h"

#include <histedit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LINES 500
#define MAX_PATH_BYTES 4096

struct mf_cli_history {
    History *events;
    char path[MAX_PATH_BYTES]; /* empty: no file */
    char next[MAX_PATH_BYTES]; /* written, then renamed */
};

static void find_file(mf_cli_history *history)
{
    if (!mf_cli_user_path("XDG_STATE_HOME", ".local/state", "history", history->path,
                          sizeof history->path)) {
        history->path[0] = '\0';
        return;
    }
    int n = snprintf(history->next, sizeof history->next, "%s.%ld", history->path, (long)getpid());
    if (n >= (int)sizeof history->next)
        history->path[0] = '\0';
}

mf_cli_history *mf_cli_history_open(bool in_file)
{
    HistEvent event;
    mf_cli_history *h = calloc(1, sizeof *h);
    if (h)
        h->events = history_init();
    if (!h || !h->events) {
        free(h);
        return NULL;
    }
    history(h->events, &event, H_SETSIZE, MAX_LINES);
    history(h->events, &event, H_SETUNIQUE, 1);
    if (in_file)
        find_file(h);
    if (h->path[0] != '\0')
        history(h->events, &event, H_LOAD, h->path);
    return h;
}

void mf_cli_history_close(mf_cli_history **history)
{
    if (*history) {
        history_end((*history)->events);
        free(*history);
    }
    *history = NULL;
}

void *mf_cli_history_events(mf_cli_history *history)
{
    return history->events;
}

void mf_cli_history_add(mf_cli_history *h, const char *line)
{
    HistEvent event;
    history(h->events, &event, H_ENTER, line);
    if (h->path[0] == '\0')
        return;
    mf_cli_make_folders(h->path);
    mode_t before = umask(0077);
    bool is_written = history(h->events, &event, H_SAVE, h->next) >= 0;
    (void)umask(before);
    if (!is_written || rename(h->next, h->path) != 0)
        (void)unlink(h->next);
}
