/* SPDX-License-Identifier: MIT */
/* From what was typed to what is opened. */
#include "model_path.h"

#include "hub.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof((mf_cli_model_path *)0)->text == MF_HUB_PATH_CHARS, "paths of the same size");

bool mf_cli_is_path(const char *given)
{
    return access(given, F_OK) == 0;
}

int mf_cli_model_find(const char *given, mf_cli_model_path *path)
{
    mf_hub_places places;
    mf_hub_name name;
    char why[256] = "";
    path->given = given;
    path->is_hub_name = !mf_cli_is_path(given) && mf_hub_name_parse(given, &name);
    if (!path->is_hub_name) {
        if (strlen(given) >= sizeof path->text)
            return mf_cli_error("path longer than %zu bytes: %.64s...", sizeof path->text, given);
        snprintf(path->text, sizeof path->text, "%s", given);
        return MF_EXIT_OK;
    }
    mf_hub_places_read(&places);
    const char *when = places.is_offline ? ", where HF_HUB_OFFLINE is not set" : "";
    switch (mf_hub_find(&places, &name, path->text, why)) {
    case MF_HUB_HELD:
        return MF_EXIT_OK;
    case MF_HUB_PARTIAL:
        return mf_cli_error("%s: the hub's cache (%s) has not all of it: %s; 'moeflux pull %s' "
                            "fetches what is missing%s",
                            given, places.cache, why, given, when);
    default:
        return mf_cli_error("%s: neither a path nor a model in the hub's cache (%s); 'moeflux pull "
                            "%s' fetches it%s",
                            given, places.cache, given, when);
    }
}

const char *mf_cli_positional_model(const mf_cli_parser *parser, bool more, mf_cli_model_path *path,
                                    int *exit_code)
{
    const char *given = mf_cli_positional(parser, "MODEL", more, exit_code);
    if (!given)
        return NULL;
    *exit_code = mf_cli_model_find(given, path);
    return *exit_code == MF_EXIT_OK ? path->text : NULL;
}
