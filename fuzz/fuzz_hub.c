/* SPDX-License-Identifier: MIT */
/*
 * A hub's listing and a shards' index from anywhere: the first byte says where the one ends and the
 * other begins, in 256ths, and which choice a user has. What is wanted is safe to make a path of.
 * The same bytes are the beginning of a GGUF file.
 */
#include "hub_model.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check_listing(const mf_hub_listing *listing)
{
    if (!mf_hub_is_commit(listing->commit))
        abort();
    for (size_t i = 0; i < listing->n_files; i++) {
        const mf_hub_file *file = &listing->files[i];
        const size_t n = strlen(file->blob);
        if (!mf_hub_is_safe_path(file->path) || strspn(file->blob, "0123456789abcdef") != n ||
            (n != 40 && n != 64))
            abort();
    }
}

static void check_name(const uint8_t *data, size_t n_bytes)
{
    char text[512];
    mf_hub_name name;
    const size_t n = n_bytes < sizeof text - 1 ? n_bytes : sizeof text - 1;
    memcpy(text, data, n);
    text[n] = '\0';
    if (mf_hub_name_parse(text, &name) &&
        (strstr(name.repo, "..") || !strchr(name.repo, '/') || !mf_hub_is_revision(name.revision) ||
         (name.choice[0] != '\0' && !mf_hub_is_safe_path(name.choice))))
        abort();
}

/* A GGUF file's header that has ended goes on for no beginning that is longer. */
static void check_header(const uint8_t *data, size_t n_bytes)
{
    if (!mf_hub_gguf_goes_on(data, n_bytes / 2) && mf_hub_gguf_goes_on(data, n_bytes))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char *const names[] = {"org/x", "org/x:Q4_K_M", "org/x:a/b.gguf"};
    mf_hub_listing listing;
    mf_hub_name name;
    mf_error error;
    if (n_bytes < 1)
        return 0;
    const size_t n_index = (n_bytes - 1) * data[0] / 256, n_listing = n_bytes - 1 - n_index;
    check_name(data + 1, n_bytes - 1);
    check_header(data, n_bytes);
    if (!mf_hub_name_parse(names[data[0] % 3], &name))
        abort();
    if (!mf_hub_listing_parse((const char *)data + 1, n_listing, &listing, &error))
        return 0;
    check_listing(&listing);
    const bool has_index = mf_hub_index_of(&listing, &name) != NULL;
    (void)mf_hub_choose(&listing, &name, has_index ? (const char *)data + 1 + n_listing : NULL,
                        has_index ? n_index : 0, &error);
    mf_hub_listing_free(&listing);
    return 0;
}
