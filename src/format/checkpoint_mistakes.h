/* SPDX-License-Identifier: MIT */
/* What people commonly give instead of a checkpoint, recognised so that the message says what to do
 * about it. */
#ifndef MF_FORMAT_CHECKPOINT_MISTAKES_H
#define MF_FORMAT_CHECKPOINT_MISTAKES_H

#include "base/status.h"

/* What a Git LFS pointer file begins with. */
#define MF_LFS_POINTER "version https://git-lfs"

/* MF_ERR_FORMAT: a pointer stands where the file is to be. */
mf_status mf_fail_lfs_pointer(const char *path, mf_error *error);
/* `path` cannot be opened as a directory, for os_errno. */
mf_status mf_fail_no_directory(const char *path, int os_errno, mf_error *error);
/* dir has no config.json (or no weights) at `path`. */
mf_status mf_fail_no_config(const char *dir, const char *path, mf_error *error);
mf_status mf_fail_no_weights(const char *dir, const char *path, mf_error *error);

#endif
