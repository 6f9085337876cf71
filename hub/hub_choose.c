/* SPDX-License-Identifier: MIT */
/*
 * What of a repository is fetched: one form of the weights, and the small files beside it. The
 * aligned and the packed form before safetensors before GGUF; never pickles, never a second copy of
 * the same.
 */
#include "hub_fail.h"
#include "hub_pull.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <stdio.h>
#include <string.h>

#define INDEX "model.safetensors.index.json"
/* Small files are no larger than this. */
#define MAX_SMALL_BYTES ((uint64_t)256 << 20)

static bool begins_with(const char *text, const char *begin)
{
    return strncmp(text, begin, strlen(begin)) == 0;
}

/* Configs, tokenizers, templates. */
static bool is_small_file(const mf_hub_file *file)
{
    static const char *const names[] = {"tiktoken.model", "hy.tiktoken", "tokenizer.model",
                                        "merges.txt", "vocab.txt"};
    const char *path = file->path;
    if (file->n_bytes > MAX_SMALL_BYTES)
        return false;
    if (begins_with(path, "additional_chat_templates/"))
        return mf_hub_ends_with(path, ".jinja");
    if (strchr(path, '/'))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(path, names[i]) == 0)
            return true;
    if (mf_hub_ends_with(path, ".index.json"))
        return strcmp(path, INDEX) == 0;
    return mf_hub_ends_with(path, ".json") || mf_hub_ends_with(path, ".jinja");
}

/* Of the files that a vocabulary is read from the first alone, which is the one that is opened. */
static void want_one_vocabulary(const mf_hub_listing *listing)
{
    static const char *const names[] = {"tokenizer.json", "tiktoken.model", "hy.tiktoken",
                                        "tokenizer.model"};
    bool has_one = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mf_hub_file *file = mf_hub_listing_find(listing, names[i]);
        if (!file)
            continue;
        file->is_wanted = file->is_wanted && !has_one;
        has_one = has_one || file->is_wanted;
    }
}

static bool is_packed_file(const mf_hub_file *file)
{
    static const char *const folders[] = {
        "artifacts/",           "root/",    "mlx/",  "packed_experts/",
        "packed_experts_2bit/", "experts/", "drive_"};
    if (strcmp(file->path, "model_weights.bin") == 0 || strcmp(file->path, "dense.bin") == 0 ||
        strcmp(file->path, MF_HUB_TEXT_GGUF) == 0)
        return true;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (begins_with(file->path, folders[i]))
            return true;
    return false;
}

static bool is_packed(const mf_hub_listing *listing)
{
    return mf_hub_listing_find(listing, "moeflux.json") ||
           mf_hub_listing_find(listing, "model_weights.json") ||
           mf_hub_listing_find(listing, "artifacts/model_weights.json");
}

static bool has_safetensors(const mf_hub_listing *listing)
{
    return mf_hub_listing_find(listing, INDEX) || mf_hub_listing_find(listing, "model.safetensors");
}

mf_hub_file *mf_hub_index_of(const mf_hub_listing *listing, const mf_hub_name *name)
{
    return name->choice[0] != '\0' || is_packed(listing) ? NULL
                                                         : mf_hub_listing_find(listing, INDEX);
}

static bool want_shards(mf_hub_listing *listing, const char *index, size_t n_bytes, mf_error *error)
{
    yyjson_doc *doc = yyjson_read(index, n_bytes, YYJSON_READ_NOFLAG);
    yyjson_val *map = yyjson_obj_get(yyjson_doc_get_root(doc), "weight_map");
    yyjson_obj_iter it = yyjson_obj_iter_with(map);
    const char *last = "";
    bool good = yyjson_obj_size(map) > 0;
    if (!good)
        mf_hub_fail(error, MF_ERR_FORMAT, INDEX ": field weight_map: expected an object");
    for (yyjson_val *key = yyjson_obj_iter_next(&it); key && good;
         key = yyjson_obj_iter_next(&it)) {
        const char *path = yyjson_get_str(yyjson_obj_iter_get_val(key));
        if (path && strcmp(path, last) == 0)
            continue;
        mf_hub_file *file =
            path && mf_hub_is_safe_path(path) ? mf_hub_listing_find(listing, path) : NULL;
        good = file != NULL;
        if (good)
            file->is_wanted = true;
        else
            mf_hub_fail(error, MF_ERR_FORMAT,
                        INDEX ": field weight_map names a shard that the repository lacks: %.200s",
                        path && mf_hub_is_safe_path(path) ? path : "(not a path)");
        last = good ? path : last;
    }
    yyjson_doc_free(doc);
    return good;
}

/* The first parts of GGUF models that the choice names, or of all: "a, b, c". */
static size_t list_gguf(const mf_hub_listing *listing, const char *choice, char *text,
                        size_t n_text)
{
    size_t n = 0, at = 0;
    uint32_t part;
    text[0] = '\0';
    for (size_t i = 0; i < listing->n_files; i++) {
        const char *path = listing->files[i].path;
        mf_hub_parts_of(path, &part);
        if (!mf_hub_is_gguf(path) || part != 1 || (*choice && !mf_hub_is_chosen(path, choice)))
            continue;
        if (at < n_text)
            at += (size_t)snprintf(text + at, n_text - at, "%s%s", n ? ", " : "", path);
        n++;
    }
    return n;
}

static bool want_gguf(mf_hub_listing *listing, const char *choice, mf_error *error)
{
    char names[800];
    size_t n = list_gguf(listing, choice, names, sizeof names);
    if (n > 1 && *choice == '\0') {
        const size_t n_usual = list_gguf(listing, MF_HUB_USUAL_GGUF, names, sizeof names);
        if (n_usual == 1)
            return want_gguf(listing, MF_HUB_USUAL_GGUF, error);
        list_gguf(listing, choice, names, sizeof names);
    }
    if (n > 1)
        return mf_hub_fail(error, MF_ERR_ARGUMENT,
                           "there are several GGUF models; name a file or a quantisation behind a "
                           "colon: %s",
                           names);
    if (n == 0) {
        list_gguf(listing, "", names, sizeof names);
        return mf_hub_fail(error, MF_ERR_NOT_FOUND, "there is no GGUF model '%s'%s%s", choice,
                           *names ? "; there are: " : "", names);
    }
    for (size_t i = 0; i < listing->n_files; i++) {
        mf_hub_file *file = &listing->files[i];
        file->is_wanted =
            mf_hub_is_gguf(file->path) && (*choice == '\0' || mf_hub_is_chosen(file->path, choice));
    }
    return true;
}

/* Of formats that nothing here reads. */
static const char *foreign_weights(const mf_hub_listing *listing)
{
    static const char *const ends[] = {".bin",     ".pt",   ".pth",        ".h5",
                                       ".msgpack", ".onnx", ".safetensors"};
    for (size_t i = 0; i < listing->n_files; i++)
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
            if (mf_hub_ends_with(listing->files[i].path, ends[k]))
                return listing->files[i].path;
    return NULL;
}

bool mf_hub_choose(mf_hub_listing *listing, const mf_hub_name *name, const char *index,
                   size_t n_index_bytes, mf_error *error)
{
    char names[8];
    const bool packed = is_packed(listing);
    for (size_t i = 0; i < listing->n_files; i++)
        listing->files[i].is_wanted = false;
    if (name->choice[0] != '\0')
        return want_gguf(listing, name->choice, error);
    if (!packed && !has_safetensors(listing)) {
        if (list_gguf(listing, "", names, sizeof names) > 0)
            return want_gguf(listing, "", error);
        const char *foreign = foreign_weights(listing);
        return mf_hub_fail(error, MF_ERR_UNSUPPORTED,
                           "%s has no weights that are read: expected safetensors, GGUF or the "
                           "packed form%s%s",
                           name->repo, foreign ? "; there is " : "", foreign ? foreign : "");
    }
    for (size_t i = 0; i < listing->n_files; i++) {
        mf_hub_file *file = &listing->files[i];
        file->is_wanted = is_small_file(file) || (packed && is_packed_file(file));
    }
    want_one_vocabulary(listing);
    mf_hub_file *whole = mf_hub_listing_find(listing, "model.safetensors");
    if (packed)
        return true;
    if (index)
        return want_shards(listing, index, n_index_bytes, error);
    whole->is_wanted = true;
    return true;
}
