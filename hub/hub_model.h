/* SPDX-License-Identifier: MIT */
/* What the parts of a model of the hub share. */
#ifndef MF_HUB_MODEL_H
#define MF_HUB_MODEL_H

#include "hub_client.h"

struct mf_hub_model {
    mf_hub_places places;
    mf_hub_name name;
    mf_hub_options options;
    mf_hub_client *client;
    mf_hub_listing listing;
    char prefix[256]; /* of the URLs of files */
};

bool mf_hub_blob_path(const mf_hub_model *model, const mf_hub_file *file,
                      char path[MF_HUB_PATH_CHARS]);
/* A length in a file, little-endian. */
static inline uint64_t mf_hub_length(const unsigned char bytes[8])
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | bytes[i];
    return n;
}
/* A file of experts of the aligned form, which begins with where they lie: */
bool mf_hub_has_expert_head(const mf_hub_file *file);
/* how long that is, by the file's first MF_HUB_EXPERT_START bytes; no longer than the file. */
#define MF_HUB_EXPERT_START 48
uint64_t mf_hub_expert_head_bytes(const mf_hub_file *file,
                                  const unsigned char start[MF_HUB_EXPERT_START]);
/* A GGUF file's header is longer than the bytes that are there of it. Most are shorter than the
 * first so many bytes; one longer than the last is not sketched. */
bool mf_hub_gguf_goes_on(const void *bytes, size_t n_bytes);
#define MF_HUB_GGUF_BYTES ((uint64_t)16 << 20)
#define MF_HUB_MAX_HEADER_BYTES ((uint64_t)128 << 20)
/* What of a model in dir the engine is to be given. */
bool mf_hub_name_model(const mf_hub_model *model, const char *dir, char path[MF_HUB_PATH_CHARS],
                       mf_error *error);
/* A small file's content, from the cache or the hub, its hash checked where it came from there. The
 * caller frees *data, which ends with a NUL. */
bool mf_hub_read_file(mf_hub_model *model, const mf_hub_file *file, size_t n_max_bytes, char **data,
                      mf_error *error);

#endif
