/* SPDX-License-Identifier: MIT */
/* Files to measure a drive's reads with. */
#include "machine_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Blocks that no drive compresses. */
static bool fill(int fd)
{
    enum { PIECE = 1 << 20 };
    uint64_t *piece = malloc(PIECE), x = 88172645463325252u;
    bool good = piece != NULL;
    for (uint64_t at = 0; good && at < MF_CLI_FILE_BYTES; at += PIECE) {
        for (size_t i = 0; i < PIECE / sizeof *piece; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            piece[i] = x;
        }
        good = write(fd, piece, PIECE) == PIECE;
    }
    free(piece);
    return good && fdatasync(fd) == 0;
}

/* Of the folder, or of the nearest above it; nothing of it is left whatever ends the program. */
static int make_nameless(const char *dir)
{
    char part[4096], path[4200];
    snprintf(part, sizeof part, "%s", dir);
    for (char *slash; access(part, F_OK) != 0; *slash = '\0')
        if (!(slash = strrchr(part, '/')) || slash == part)
            return -1;
    snprintf(path, sizeof path, "%s/.moeflux-doctor-XXXXXX", part);
    const int fd = mkstemp(path);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

int mf_cli_open_made(const char *dir, int *cached)
{
    char self[64];
    int direct = -1;
    if (cached)
        *cached = -1;
    const int fd = make_nameless(dir);
    if (fd < 0)
        return -1;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (fill(fd)) {
        direct = open(self, O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (cached && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0)
            *cached = open(self, O_RDONLY | O_CLOEXEC);
    }
    close(fd);
    return direct;
}

/* Keeps path if it is the largest file so far. */
static void keep_larger(const char *path, char largest[4200], uint64_t *n_bytes)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size <= *n_bytes)
        return;
    *n_bytes = (uint64_t)st.st_size;
    snprintf(largest, 4200, "%s", path);
}

int mf_cli_open_largest(const char *model, uint64_t *n_file_bytes)
{
    char path[4200], largest[4200] = "";
    uint64_t n_bytes = 0;
    DIR *d = opendir(model);
    keep_larger(model, largest, &n_bytes);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        const int n = snprintf(path, sizeof path, "%s/%s", model, e->d_name);
        if (n > 0 && (size_t)n < sizeof path)
            keep_larger(path, largest, &n_bytes);
    }
    if (d)
        closedir(d);
    *n_file_bytes = n_bytes / MF_CLI_FILE_UNIT * MF_CLI_FILE_UNIT;
    return n_bytes < MF_CLI_FILE_BYTES ? -1 : open(largest, O_RDONLY | O_DIRECT | O_CLOEXEC);
}
