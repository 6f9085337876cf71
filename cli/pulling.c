/* SPDX-License-Identifier: MIT */
/* A fetch in the background of a command. */
#include "pulling.h"

#include <stdio.h>
#include <string.h>

#ifdef MF_HAS_PULL

#include "hub_inspect.h"
#include "hub_pull.h"
#include "interrupt.h"

static bool is_held(const char *given, mf_hub_name *name, mf_hub_places *places)
{
    char path[MF_HUB_PATH_CHARS], why[256] = "";
    if (mf_cli_is_path(given) || !mf_hub_name_parse(given, name))
        return true; /* or for mf_cli_model_find to refuse */
    mf_hub_places_read(places);
    if (mf_hub_find(places, name, path, why) != MF_HUB_HELD)
        return false;
    mf_hub_ahead_clear(places, name); /* of a run that was killed when all was there */
    return true;
}

/* Refuses what would be fetched in vain, as pull does. */
static int look_before(const mf_cli_pulling *p, const mf_engine_options *options)
{
    mf_error error = {0};
    mf_model_info info;
    bool fetched = false;
    const mf_status status = mf_cli_hub_inspect(p->model, options, &info, &fetched, &error);
    if (fetched && status == MF_OK)
        return MF_EXIT_OK;
    if (!fetched)
        return mf_cli_fail_of(p->given, &error);
    return mf_cli_error("%s: does not run, so it is not fetched: %s", p->given, error.message);
}

static int begin(mf_cli_pulling *p, mf_engine_options *options, const mf_hub_places *places,
                 const mf_hub_name *name, char path[MF_HUB_PATH_CHARS])
{
    /* until the fetching thread has its own */
    mf_cli_pull_progress progress = {.verbosity = p->verbosity};
    const mf_hub_options hub = {
        .n_connections = 8, .n_retries = 10, .tick = mf_cli_pull_tick, .user = &progress};
    mf_error error = {0};
    char line[200];
    mf_cli_interrupt_install();
    if (!mf_hub_open(places, name, &hub, &p->model, &error))
        return mf_cli_fail_of(p->given, &error);
    const int exit_code = look_before(p, options);
    if (exit_code != MF_EXIT_OK)
        return exit_code;
    if (!mf_hub_ahead_begin(p->model, mf_cli_interrupted, &p->ahead, path, &error))
        return mf_cli_fail_of(p->given, &error);
    options->await_bytes = mf_hub_ahead_await;
    options->await_user = p->ahead;
    snprintf(line, sizeof line, "%.100s is fetched meanwhile", p->given);
    mf_cli_log((void *)p->verbosity, MF_LOG_INFO, line);
    return MF_EXIT_OK;
}

const char *mf_cli_pulling_model(const mf_cli_parser *parser, mf_cli_pulling *p,
                                 mf_cli_model_path *path, int *exit_code)
{
    mf_hub_name name;
    mf_hub_places places;
    const char *given = mf_cli_positional(parser, "MODEL", false, exit_code);
    if (!given)
        return NULL;
    p->given = given;
    p->verbosity = &parser->engine->verbosity;
    if (p->is_wanted && parser->engine->options.n_mirrors > 0) {
        *exit_code = mf_cli_usage_error(parser->command,
                                        "%s: --while-pulling and --mirror exclude each other",
                                        parser->command);
        return NULL;
    }
    if (p->is_wanted && mf_cli_is_path(given)) {
        *exit_code = mf_cli_usage_error(parser->command,
                                        "%s: --while-pulling wants ORG/NAME, '%s' is a path",
                                        parser->command, given);
        return NULL;
    }
    if (!p->is_wanted || is_held(given, &name, &places)) {
        *exit_code = mf_cli_model_find(given, path);
        return *exit_code == MF_EXIT_OK ? path->text : NULL;
    }
    path->given = given;
    path->is_hub_name = true;
    *exit_code = begin(p, &parser->engine->options, &places, &name, path->text);
    if (*exit_code == MF_EXIT_OK)
        return path->text;
    mf_cli_pulling_end(p);
    return NULL;
}

void mf_cli_pulling_cancel(mf_cli_pulling *p)
{
    mf_hub_ahead_cancel(p->ahead);
}

static void say_end(const mf_cli_pulling *p)
{
    mf_hub_progress progress;
    mf_error error = {0};
    char line[1200];
    if (!mf_hub_ahead_look(p->ahead, &progress, &error))
        snprintf(line, sizeof line, "%.200s: %.900s", p->given, error.message);
    else if (progress.n_bytes_done < progress.n_bytes)
        snprintf(line, sizeof line,
                 "%.200s: %.1f %% of it is there; the same command, or 'moeflux pull %.200s', goes "
                 "on from here",
                 p->given, 100.0 * (double)progress.n_bytes_done / (double)progress.n_bytes,
                 p->given);
    else
        return;
    mf_cli_log((void *)p->verbosity, MF_LOG_WARNING, line);
}

void mf_cli_pulling_end(mf_cli_pulling *p)
{
    if (p->ahead)
        say_end(p);
    mf_hub_ahead_end(&p->ahead);
    if (p->model)
        mf_hub_close(&p->model);
}

#else

const char *mf_cli_pulling_model(const mf_cli_parser *parser, mf_cli_pulling *p,
                                 mf_cli_model_path *path, int *exit_code)
{
    if (!p->is_wanted)
        return mf_cli_positional_model(parser, false, path, exit_code);
    *exit_code = mf_cli_error("--while-pulling: this build fetches nothing (it was made without "
                              "libcurl)");
    return NULL;
}

void mf_cli_pulling_cancel(mf_cli_pulling *p)
{
    (void)p;
}

void mf_cli_pulling_end(mf_cli_pulling *p)
{
    (void)p;
}

#endif
