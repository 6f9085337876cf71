/* SPDX-License-Identifier: MIT */
/* Files of conversations: names, lists, writing. saved_read.c reads them. */
#include "saved.h"

#include "saved_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX ".json"

/* ------------------------------------------------------------------------------------- names -- */

/* In one folder, seen by ls, and nothing that a terminal would obey. */
static bool is_name(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n >= MF_CLI_NAME_BYTES || *name == '.' || *name == '-')
        return false;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 0x20 || *c == 0x7f || *c == '/' || (*c == 0xc2 && c[1] < 0xa0))
            return false;
    return true;
}

int mf_cli_saved_check(const char *name)
{
    if (is_name(name))
        return MF_EXIT_OK;
    return mf_cli_error(
        "'%.120s' cannot be a conversation's name: expected 1 to %d bytes, no slash, "
        "no dot or dash at the beginning",
        name, MF_CLI_NAME_BYTES - 1);
}

int mf_cli_saved_path(const char *name, char path[MF_CLI_PATH_BYTES])
{
    char rest[MF_CLI_NAME_BYTES + 16];
    if (*name != '\0' && mf_cli_saved_check(name) != MF_EXIT_OK)
        return MF_EXIT_ERROR;
    snprintf(rest, sizeof rest, "chats/%s%s", name, *name != '\0' ? SUFFIX : "");
    if (mf_cli_user_path("XDG_STATE_HOME", ".local/state", rest, path, MF_CLI_PATH_BYTES))
        return MF_EXIT_OK;
    return mf_cli_error("there is no place for conversations: HOME is not set");
}

/* ------------------------------------------------------------------------------------- lists -- */

typedef struct saved {
    char name[MF_CLI_NAME_BYTES];
    struct timespec written;
} saved;

static int compare_saved(const void *a_ptr, const void *b_ptr)
{
    const saved *a = a_ptr, *b = b_ptr;
    if (a->written.tv_sec != b->written.tv_sec)
        return a->written.tv_sec < b->written.tv_sec ? 1 : -1;
    if (a->written.tv_nsec != b->written.tv_nsec)
        return a->written.tv_nsec < b->written.tv_nsec ? 1 : -1;
    return strcmp(a->name, b->name);
}

/* False: it is no conversation's file. */
static bool take_entry(int folder, const char *file, saved *out)
{
    struct stat st;
    size_t n = strlen(file), n_suffix = sizeof SUFFIX - 1;
    if (n <= n_suffix || n - n_suffix >= sizeof out->name ||
        strcmp(file + n - n_suffix, SUFFIX) != 0 ||
        fstatat(folder, file, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return false;
    memcpy(out->name, file, n - n_suffix);
    out->name[n - n_suffix] = '\0';
    out->written = st.st_mtim;
    return is_name(out->name);
}

/* All of them, the newest first; from malloc. No folder is an empty one. */
static int find_all(saved **out, size_t *n_out)
{
    char path[MF_CLI_PATH_BYTES];
    saved *all = NULL;
    size_t n = 0;
    *out = NULL;
    *n_out = 0;
    if (mf_cli_saved_path("", path) != MF_EXIT_OK)
        return MF_EXIT_ERROR;
    DIR *folder = opendir(path);
    if (!folder)
        return errno == ENOENT ? MF_EXIT_OK
                               : mf_cli_error("%s: cannot open: %s", path, strerror(errno));
    for (struct dirent *e; (e = readdir(folder)) != NULL;) {
        saved *grown = realloc(all, (n + 1) * sizeof *all);
        if (!grown)
            break;
        all = grown;
        n += take_entry(dirfd(folder), e->d_name, &all[n]);
    }
    closedir(folder);
    if (n > 0)
        qsort(all, n, sizeof *all, compare_saved);
    *out = all;
    *n_out = n;
    return MF_EXIT_OK;
}

int mf_cli_saved_newest(char name[MF_CLI_NAME_BYTES])
{
    saved *all;
    size_t n;
    int status = find_all(&all, &n);
    if (status == MF_EXIT_OK && n == 0)
        status = mf_cli_error("there is no saved conversation");
    if (status == MF_EXIT_OK)
        memcpy(name, all[0].name, MF_CLI_NAME_BYTES);
    free(all);
    return status;
}

int mf_cli_saved_list(FILE *out)
{
    saved *all;
    size_t n;
    int status = find_all(&all, &n);
    for (size_t i = 0; i < n; i++) {
        char when[32] = "";
        struct tm local;
        if (localtime_r(&all[i].written.tv_sec, &local))
            strftime(when, sizeof when, "%Y-%m-%d %H:%M", &local);
        fprintf(out, "%s  %s\n", when, all[i].name);
    }
    if (status == MF_EXIT_OK && n == 0)
        fputs("no saved conversations\n", out);
    free(all);
    return status;
}

/* ----------------------------------------------------------------------------------- writing -- */

/* Under another name, which is then given up for the right one. */
static int write_file(const char *path, const mf_cli_conversation *c)
{
    char next[MF_CLI_PATH_BYTES + 16];
    snprintf(next, sizeof next, "%s.XXXXXX", path);
    int fd = mkostemp(next, O_CLOEXEC); /* 0600 */
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file) {
        int status = mf_cli_error("%s: cannot write: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
            (void)unlink(next);
        }
        return status;
    }
    mf_cli_messages_json(file, c->messages, c->n_messages, MF_CLI_WAY_TEXT_ARGUMENTS);
    bool is_good = fflush(file) == 0 && !ferror(file) && fsync(fd) == 0;
    int why = errno;
    if (fclose(file) != 0 && is_good) {
        is_good = false;
        why = errno;
    }
    if (is_good && rename(next, path) == 0)
        return MF_EXIT_OK;
    why = is_good ? errno : why;
    (void)unlink(next);
    return mf_cli_error("%s: cannot write: %s", path, strerror(why));
}

int mf_cli_saved_write(const char *name, const mf_cli_conversation *c)
{
    char path[MF_CLI_PATH_BYTES];
    if (mf_cli_saved_path(name, path) != MF_EXIT_OK)
        return MF_EXIT_ERROR;
    mf_cli_make_folders(path);
    return write_file(path, c);
}
