/* SPDX-License-Identifier: MIT */
/* Messages for what is not a checkpoint. */
#include "format/checkpoint_mistakes.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

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

mf_status mf_fail_lfs_pointer(const char *path, mf_error *error)
{
    return mf_fail(error, MF_ERR_FORMAT,
                   "%s: a Git LFS pointer instead of the file: fetch it with git lfs pull", path);
}

/* OWNER/NAME, or NAME:TAG. */
static bool is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    if (slash == NULL)
        return strchr(path, ':') != NULL;
    return slash != path && path[0] != '.' && strchr(slash + 1, '/') == NULL;
}

mf_status mf_fail_no_directory(const char *path, int os_errno, mf_error *error)
{
    if (os_errno == ENOTDIR)
        return mf_fail_os(error, MF_ERR_IO, os_errno,
                          "%s: expected the directory that config.json lies in, or a GGUF file",
                          path);
    if (os_errno == ENOENT && is_hub_name(path))
        return mf_fail_os(error, MF_ERR_NOT_FOUND, os_errno,
                          "%s: cannot open directory (for a model of a hub, give the directory "
                          "that it was downloaded to, with git clone or the hub's own program)",
                          path);
    return mf_fail_os(error, os_errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, os_errno,
                      "%s: cannot open directory", path);
}

mf_status mf_fail_no_config(const char *dir, const char *path, mf_error *error)
{
    const char *why = "";
    if (has_entry(dir, "snapshots", ""))
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
    if (has_entry(dir, "pytorch_model", "") || has_entry(dir, "", ".bin"))
        why = " (there are PyTorch's pickled weights, which are not supported: convert them to "
              "safetensors)";
    else if (has_entry(dir, "", ".safetensors"))
        why =
            " (there are safetensors of other names: model.safetensors.index.json must name them)";
    return mf_fail(error, MF_ERR_NOT_FOUND, "%s: cannot open: no such file%s", path, why);
}
