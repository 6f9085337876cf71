/* SPDX-License-Identifier: MIT */
/* The chat's history and its file, which only the user may read. */
#include "history.h"
#include "user_dirs.h"

#include <fcntl.h>
#include <histedit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LINES 500
#define MAX_PATH_BYTES 4096

struct mf_cli_history {
    History *events;
    char path[MAX_PATH_BYTES]; /* empty: no file */
};

static void find_file(mf_cli_history *history)
{
    if (!mf_cli_user_path("XDG_STATE_HOME", ".local/state", "history", history->path,
                          sizeof history->path)) {
        history->path[0] = '\0';
        return;
    }
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

/* Under a name of its own, for chats elsewhere may write theirs, and then renamed. */
static void write_file(const mf_cli_history *h)
{
    HistEvent event;
    char next[MAX_PATH_BYTES + 16];
    snprintf(next, sizeof next, "%s.XXXXXX", h->path);
    const int fd = mkostemp(next, O_CLOEXEC); /* 0600 */
    if (fd < 0)
        return;
    (void)close(fd);
    if (history(h->events, &event, H_SAVE, next) < 0 || rename(next, h->path) != 0)
        (void)unlink(next);
}

void mf_cli_history_add(mf_cli_history *h, const char *line)
{
    HistEvent event;
    history(h->events, &event, H_ENTER, line);
    if (h->path[0] == '\0')
        return;
    mf_cli_make_folders(h->path);
    write_file(h);
}
