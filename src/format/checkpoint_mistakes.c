/* SPDX-License-Identifier: MIT */
/* Messages for what is not a checkpoint. */
#include "format/checkpoint_mistakes.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Does an entry of the directory begin and end like this? */
static bool has_entry(const char *dir, const char *begin, const char *end)
{
    DIR *d = opendir(dir);
    bool found = false;
    if (d == NULL)
        return false;
    for (struct dirent *e = readdir(d); e != NULL && !found; e = readdir(d))
        found = strncmp(e->d_name, begin, strlen(begin)) == 0 && ends_with(e->d_name, end);
    closedir(d);
    return found;
}

/* The entry of the directory, first by its name, in which a checkpoint lies; "" if there is none.
 */
static void find_below(const char *dir, char *name, size_t capacity)
{
    char path[4096];
    DIR *d = opendir(dir);
    name[0] = '\0';
    if (d == NULL)
        return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        const int n = snprintf(path, sizeof path, "%s/%s/config.json", dir, e->d_name);
        if (e->d_name[0] != '.' && n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0 &&
            strlen(e->d_name) < capacity && (name[0] == '\0' || strcmp(e->d_name, name) < 0))
            memcpy(name, e->d_name, strlen(e->d_name) + 1);
    }
    closedir(d);
}

mf_status mf_fail_lfs_pointer(const char *path, mf_error *error)
{
    return mf_fail(error, MF_ERR_FORMAT,
                   "%s: a Git LFS pointer instead of the file: fetch it with git lfs pull", path);
}

/* OWNER/NAME, NAME:TAG or a NAME alone. */
static bool is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    if (path[0] == '.')
        return false;
    return slash == NULL || (slash != path && strchr(slash + 1, '/') == NULL);
}

mf_status mf_fail_no_directory(const char *path, int os_errno, mf_error *error)
{
    if (os_errno == ENOTDIR)
        return mf_fail_os(error, MF_ERR_IO, os_errno,
                          "%s: expected the directory that config.json lies in, or a GGUF file",
                          path);
    if (os_errno == ENOENT && is_hub_name(path))
        return mf_fail_os(error, MF_ERR_NOT_FOUND, os_errno,
                          "%s: cannot open directory (a model of a hub is called ORG/NAME: "
                          "'moeflux pull ORG/NAME' fetches it and says where it lies)",
                          path);
    return mf_fail_os(error, os_errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, os_errno,
                      "%s: cannot open directory", path);
}

static const char dangling[] = " (a link to a file that is not there)";

static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

mf_status mf_fail_no_config(const char *dir, const char *path, mf_error *error)
{
    const char *why = "";
    char below[256];
    find_below(dir, below, sizeof below);
    if (below[0] != '\0')
        return mf_fail(error, MF_ERR_NOT_FOUND,
                       "%s: cannot open: no such file (a checkpoint lies in %s/%s)", path, dir,
                       below);
    if (is_link(path))
        why = dangling;
    else if (has_entry(dir, "snapshots", ""))
        why = " (this is a hub cache: give a directory below its snapshots/)";
    else if (has_entry(dir, "models--", ""))
        why = " (this is a hub cache: give a directory below models--NAME/snapshots/)";
    else if (has_entry(dir, "", ".gguf"))
        why = " (there are GGUF files as well: give the path of one)";
    return mf_fail(error, MF_ERR_NOT_FOUND, "%s: cannot open: no such file%s", path, why);
}

mf_status mf_fail_no_weights(const char *dir, const char *path, mf_error *error)
{
    const char *why = "";
    if (is_link(path))
        why = dangling;
    else if (has_entry(dir, "pytorch_model", "") || has_entry(dir, "", ".bin"))
        why = " (there are PyTorch's pickled weights, which are not supported: convert them to "
              "safetensors)";
    else if (has_entry(dir, "", ".safetensors"))
        why =
            " (there are safetensors of other names: model.safetensors.index.json must name them)";
    return mf_fail(error, MF_ERR_NOT_FOUND, "%s: cannot open: no such file%s", path, why);
}
