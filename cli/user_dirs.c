/* SPDX-License-Identifier: MIT */
/* Paths of a user's files, and the folders before them. */
#include "user_dirs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool mf_cli_user_path(const char *variable, const char *fallback, const char *rest, char *path,
                      size_t capacity)
{
    const char *base = getenv(variable), *home = getenv("HOME");
    const char *slash = *rest != '\0' ? "/" : "";
    int n = 0;
    if (base && *base == '/')
        n = snprintf(path, capacity, "%s/moeflux%s%s", base, slash, rest);
    else if (home && *home == '/')
        n = snprintf(path, capacity, "%s/%s/moeflux%s%s", home, fallback, slash, rest);
    return n > 0 && (size_t)n < capacity;
}

void mf_cli_make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}
