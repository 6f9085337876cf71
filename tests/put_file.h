/* SPDX-License-Identifier: MIT */
/* Made-up trees of files, as those of /sys. */
#ifndef MF_TESTS_PUT_FILE_H
#define MF_TESTS_PUT_FILE_H

#include "test.h"

#include <sys/stat.h>

/* Writes root/path, making its directories below root. */
static inline void put_file(const char *root, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    REQUIRE(file != NULL);
    REQUIRE(fputs(text, file) >= 0);
    REQUIRE(fclose(file) == 0);
}

#endif
