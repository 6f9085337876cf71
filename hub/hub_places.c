/* SPDX-License-Identifier: MIT */
/* The environment as huggingface_hub reads it: where the cache is, which hub, which token. */
#include "hub.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool is_true(const char *name)
{
    const char *value = variable(name);
    return value && (strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0 ||
                     strcasecmp(value, "yes") == 0 || strcasecmp(value, "on") == 0);
}

/* base[/rest], with ~ as the home. False: too long, or no home. */
static bool join(const char *base, const char *rest, char path[MF_HUB_PATH_CHARS])
{
    const char *home = "";
    if (base[0] == '~' && (base[1] == '/' || base[1] == '\0')) {
        home = variable("HOME");
        base++;
    }
    if (!home)
        return false;
    const int n = snprintf(path, MF_HUB_PATH_CHARS, "%s%s%s%s", home, base, *rest ? "/" : "", rest);
    return n > 0 && n < MF_HUB_PATH_CHARS;
}

/* $HF_HOME/rest. */
static bool below_home(const char *rest, char path[MF_HUB_PATH_CHARS])
{
    char below[64];
    const char *home = variable("HF_HOME"), *cache = variable("XDG_CACHE_HOME");
    if (home)
        return join(home, rest, path);
    snprintf(below, sizeof below, "huggingface/%s", rest);
    return join(cache ? cache : "~/.cache", below, path);
}

static void read_cache(char path[MF_HUB_PATH_CHARS])
{
    const char *cache = variable("HF_HUB_CACHE");
    if (!cache)
        cache = variable("HUGGINGFACE_HUB_CACHE");
    if (cache ? !join(cache, "", path) : !below_home("hub", path))
        path[0] = '\0';
}

/* Without blanks and newlines around it; one that cannot be a header's value is none. */
static void keep_token(const char *text, char token[MF_HUB_TOKEN_CHARS])
{
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strcspn(text, " \t\r\n\v\f");
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= 0x20 || (unsigned char)text[i] >= 0x7f)
            n = 0;
    if (n >= MF_HUB_TOKEN_CHARS)
        n = 0;
    memcpy(token, text, n);
    token[n] = '\0';
}

static void read_token(char token[MF_HUB_TOKEN_CHARS])
{
    char path[MF_HUB_PATH_CHARS], text[MF_HUB_TOKEN_CHARS] = "";
    const char *given = variable("HF_TOKEN"), *file = variable("HF_TOKEN_PATH");
    token[0] = '\0';
    if (!given)
        given = variable("HUGGING_FACE_HUB_TOKEN");
    if (given) {
        keep_token(given, token);
        return;
    }
    if (is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN") ||
        (file ? !join(file, "", path) : !below_home("token", path)))
        return;
    FILE *in = fopen(path, "re");
    if (!in)
        return;
    if (fgets(text, sizeof text, in))
        keep_token(text, token);
    (void)fclose(in);
}

void mf_hub_places_read(mf_hub_places *out)
{
    const char *endpoint = variable("HF_ENDPOINT");
    *out = (mf_hub_places){0};
    read_cache(out->cache);
    read_token(out->token);
    out->is_offline = is_true("HF_HUB_OFFLINE");
    snprintf(out->endpoint, sizeof out->endpoint, "%s",
             endpoint ? endpoint : "https://huggingface.co");
    for (size_t n = strlen(out->endpoint); n > 0 && out->endpoint[n - 1] == '/'; n--)
        out->endpoint[n - 1] = '\0';
}
