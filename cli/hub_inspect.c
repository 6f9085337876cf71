/* SPDX-License-Identifier: MIT */
/* A sketch of a model in a temporary folder, and the line that shows how far a fetch is. */
#include "hub_inspect.h"

#include "interrupt.h"

#include <errno.h>
#include <ftw.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

static const char *message_after(const char *message, const char *dir)
{
    const size_t n = strlen(dir);
    const char *found = strstr(message, dir);
    return found && found[n] == '/' ? found + n + 1 : NULL;
}

/* The folder is nothing that the user knows. */
static void forget_folder(mf_error *error, const char *dir)
{
    const char *rest = message_after(error->message, dir);
    if (rest)
        memmove(error->message, rest, strlen(rest) + 1);
}

mf_status mf_cli_hub_look(mf_hub_model *model, mf_cli_look_fn look, void *user, bool *fetched,
                          mf_error *error)
{
    char dir[1024], path[MF_HUB_PATH_CHARS];
    const char *base = getenv("TMPDIR");
    const int n =
        snprintf(dir, sizeof dir, "%s/moeflux-XXXXXX", base && *base == '/' ? base : "/tmp");
    *fetched = false;
    if (n < 0 || (size_t)n >= sizeof dir || !mkdtemp(dir)) {
        snprintf(error->message, sizeof error->message, "%.900s: cannot make this folder: %s", dir,
                 strerror(errno));
        return MF_ERR_IO;
    }
    mf_status status = MF_ERR_IO;
    *fetched = mf_hub_sketch(model, dir, path, error);
#ifdef __GLIBC__
    malloc_trim(0); /* what this process holds already counts in what a model needs */
#endif
    if (*fetched)
        status = look(user, path, error);
    if (*fetched && status != MF_OK)
        forget_folder(error, dir);
    (void)nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}

typedef struct inspection {
    const mf_engine_options *options;
    mf_model_info *info;
} inspection;

static mf_status inspect(void *user, const char *path, mf_error *error)
{
    const inspection *i = user;
    return mf_model_inspect(path, i->options, i->info, error);
}

mf_status mf_cli_hub_inspect(mf_hub_model *model, const mf_engine_options *options,
                             mf_model_info *info, bool *fetched, mf_error *error)
{
    inspection i = {options, info};
    return mf_cli_hub_look(model, inspect, &i, fetched, error);
}

static void end_line(mf_cli_pull_progress *p)
{
    if (p->has_line)
        fputs("\r\033[K", stderr);
    p->has_line = false;
}

void mf_cli_pull_progress_end(mf_cli_pull_progress *p)
{
    end_line(p);
}

/* A failure that is tried again, said once. */
static void say_why(mf_cli_pull_progress *p, const mf_hub_progress *progress)
{
    char line[512];
    if (!progress->why || strncmp(p->last_why, progress->why, sizeof p->last_why - 1) == 0)
        return;
    snprintf(p->last_why, sizeof p->last_why, "%s", progress->why);
    if (progress->why[0] == '\0')
        return;
    end_line(p);
    snprintf(line, sizeof line, "%s; tried again in %.0f s", progress->why,
             progress->waits_seconds + 0.5);
    mf_cli_log((void *)p->verbosity, MF_LOG_WARNING, line);
}

static void say_time(char *text, size_t n, double seconds)
{
    const unsigned long s = seconds < 1e8 ? (unsigned long)(seconds + 0.5) : 99999999;
    if (s < 100)
        snprintf(text, n, "%lu s", s);
    else if (s < 7200)
        snprintf(text, n, "%lu min", (s + 30) / 60);
    else
        snprintf(text, n, "%lu h %02lu min", s / 3600, s / 60 % 60);
}

/* Bytes that are all there have still to be checked. */
static bool is_last(const mf_hub_progress *now)
{
    return now->n_files_done == now->n_files;
}

static void print_line(mf_cli_pull_progress *p, const mf_hub_progress *now, double seconds)
{
    char done[MF_CLI_SIZE_CHARS], all[MF_CLI_SIZE_CHARS], speed[MF_CLI_SIZE_CHARS], left[48] = "?";
    const double rate = (double)now->n_bytes_came / (seconds > 0.1 ? seconds : 0.1);
    const unsigned percent =
        now->n_bytes ? (unsigned)(100 * (double)now->n_bytes_done / (double)now->n_bytes) : 100;
    const unsigned tenth = is_last(now) ? 10 : percent < 90 ? percent / 10 : 9;
    if (rate > 0)
        say_time(left, sizeof left, (double)(now->n_bytes - now->n_bytes_done) / rate);
    if (!p->is_terminal && tenth == p->last_tenth)
        return;
    p->last_tenth = tenth;
    fprintf(stderr, "%s%s of %s (%u %%), %s/s, %s left, %zu of %zu files checked%s",
            p->is_terminal ? "\r\033[K" : "moeflux: ", mf_cli_size(done, (double)now->n_bytes_done),
            mf_cli_size(all, (double)now->n_bytes), percent, mf_cli_size(speed, rate), left,
            now->n_files_done, now->n_files, p->is_terminal ? "" : "\n");
    p->has_line = p->is_terminal;
    fflush(stderr);
}

bool mf_cli_pull_tick(void *user, const mf_hub_progress *progress)
{
    mf_cli_pull_progress *p = user;
    const double now = mf_cli_now();
    if (p->began == 0)
        p->began = now;
    if (!p->verbosity->quiet) {
        say_why(p, progress);
        if (progress->n_bytes > 0 && (now - p->last > 0.2 || is_last(progress))) {
            p->last = now;
            print_line(p, progress, now - p->began);
        }
    }
    return !mf_cli_interrupted();
}
