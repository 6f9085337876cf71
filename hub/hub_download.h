/* SPDX-License-Identifier: MIT */
/* Fetching files in ranges, and checking them as they come. */
#ifndef MF_HUB_DOWNLOAD_H
#define MF_HUB_DOWNLOAD_H

#include "hub_client.h"

/* Brings all of files[n_files], none of which is held, into blobs_dir; prefix: of their URLs, as
 * mf_hub_url has it. Each that is whole and right is held from then on, whatever becomes of the
 * others. */
bool mf_hub_download(mf_hub_client *client, const mf_hub_options *options, const char *prefix,
                     const char *blobs_dir, mf_hub_file *const *files, size_t n_files,
                     mf_error *error);

#endif
