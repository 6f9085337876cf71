/* SPDX-License-Identifier: MIT */
/*
 * What the cache holds of a model. CACHE/models--ORG--NAME has blobs/ (files by the hash of their
 * content), refs/ (the commit of a branch or tag) and snapshots/COMMIT/ (names, as links to blobs).
 */
#include "hub.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 4 };

/* a/b; false: too long. */
static bool join(char path[MF_HUB_PATH_CHARS], const char *a, const char *b)
{
    const int n = snprintf(path, MF_HUB_PATH_CHARS, "%s/%s", a, b);
    return n > 0 && n < MF_HUB_PATH_CHARS;
}

static bool exists(const char *dir, const char *name)
{
    char path[MF_HUB_PATH_CHARS];
    return join(path, dir, name) && access(path, F_OK) == 0;
}

bool mf_hub_folder(const mf_hub_places *places, const mf_hub_name *name, const char *rest,
                   char path[MF_HUB_PATH_CHARS])
{
    const char *slash = strchr(name->repo, '/');
    const int n =
        snprintf(path, MF_HUB_PATH_CHARS, "%s/models--%.*s--%s%s%s", places->cache,
                 (int)(slash - name->repo), name->repo, slash + 1, *rest ? "/" : "", rest);
    return places->cache[0] != '\0' && n > 0 && n < MF_HUB_PATH_CHARS;
}

/* The commit that a branch or tag is at, as far as the cache knows. */
static bool read_ref(const char *folder, const char *revision, char commit[41])
{
    char path[MF_HUB_PATH_CHARS], text[64] = "", below[MF_HUB_REVISION_CHARS + 8];
    if (mf_hub_is_commit(revision)) {
        snprintf(commit, 41, "%.40s", revision);
        return true;
    }
    snprintf(below, sizeof below, "refs/%s", revision);
    if (!join(path, folder, below))
        return false;
    /* without waiting for anybody, as opening a FIFO would */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    struct stat st;
    const bool is_read =
        fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read(fd, text, sizeof text - 1) > 0;
    (void)close(fd);
    text[strcspn(text, "\r\n")] = '\0';
    if (!is_read || !mf_hub_is_commit(text))
        return false;
    snprintf(commit, 41, "%.40s", text);
    return true;
}

/* A GGUF model being looked for in a snapshot: the best one's first part. */
typedef struct gguf_search {
    const char *choice;
    char found[MF_HUB_PATH_CHARS]; /* within the snapshot */
    size_t n_found;
    bool is_missing_parts;
} gguf_search;

static void consider(gguf_search *search, const char *snapshot, const char *file)
{
    char path[MF_HUB_PATH_CHARS];
    uint32_t part;
    const uint32_t n_parts = mf_hub_parts_of(file, &part);
    if (!mf_hub_is_gguf(file) || part != 1 ||
        (*search->choice && !mf_hub_is_chosen(file, search->choice)))
        return;
    for (uint32_t i = 2; i <= n_parts; i++) {
        const size_t n_stem = strlen(file) - 20;
        snprintf(path, sizeof path, "%.*s-%05u-of-%05u.gguf", (int)n_stem, file, i, n_parts);
        if (!exists(snapshot, path)) {
            search->is_missing_parts = true;
            return;
        }
    }
    search->n_found++;
    snprintf(search->found, sizeof search->found, "%s", file);
}

/* Looks through below ("" for all) of the snapshot. */
static void search_gguf(gguf_search *search, const char *snapshot, const char *below, int depth)
{
    char dir[MF_HUB_PATH_CHARS], file[MF_HUB_PATH_CHARS];
    if (*below ? !join(dir, snapshot, below) : !join(dir, snapshot, "."))
        return;
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        struct stat st;
        const int n = snprintf(file, sizeof file, "%s%s%s", below, *below ? "/" : "", e->d_name);
        if (e->d_name[0] == '.' || n < 0 || (size_t)n >= sizeof file ||
            !mf_hub_is_safe_path(file) || fstatat(dirfd(d), e->d_name, &st, 0) != 0)
            continue;
        if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH)
            search_gguf(search, snapshot, file, depth + 1);
        else if (S_ISREG(st.st_mode))
            consider(search, snapshot, file);
    }
    closedir(d);
}

/* All that model.safetensors.index.json names, where there is one; why: what is not there. */
static bool has_shards(const char *snapshot, char why[256])
{
    char path[MF_HUB_PATH_CHARS];
    if (!exists(snapshot, "model.safetensors.index.json") ||
        !join(path, snapshot, "model.safetensors.index.json"))
        return true;
    yyjson_doc *doc = yyjson_read_file(path, YYJSON_READ_NOFLAG, NULL, NULL);
    yyjson_val *map = yyjson_obj_get(yyjson_doc_get_root(doc), "weight_map");
    yyjson_obj_iter it = yyjson_obj_iter_with(map);
    const char *last = "";
    bool whole = true;
    for (yyjson_val *key = yyjson_obj_iter_next(&it); key && whole;
         key = yyjson_obj_iter_next(&it)) {
        const char *file = yyjson_get_str(yyjson_obj_iter_get_val(key));
        if (!file || !mf_hub_is_safe_path(file) || strcmp(file, last) == 0)
            continue;
        whole = exists(snapshot, file);
        if (!whole)
            snprintf(why, 256, "%.200s is not there", file);
        last = file;
    }
    yyjson_doc_free(doc);
    return whole;
}

/* A directory of safetensors or of the packed form. */
static bool is_directory_form(const char *snapshot)
{
    return (exists(snapshot, "config.json") &&
            (exists(snapshot, "model.safetensors") ||
             exists(snapshot, "model.safetensors.index.json"))) ||
           exists(snapshot, "moeflux.json") || exists(snapshot, "model_weights.json") ||
           exists(snapshot, "artifacts/model_weights.json");
}

static mf_hub_state find_gguf(const char *snapshot, const char *choice, char *path, char why[256])
{
    gguf_search search = {.choice = choice};
    search_gguf(&search, snapshot, "", 0);
    if (search.n_found > 1 && *choice == '\0') { /* the one that is fetched without a choice */
        gguf_search usual = {.choice = MF_HUB_USUAL_GGUF};
        search_gguf(&usual, snapshot, "", 0);
        if (usual.n_found == 1)
            search = usual;
    }
    if (search.n_found == 1)
        return join(path, snapshot, search.found) ? MF_HUB_HELD : MF_HUB_PARTIAL;
    if (search.n_found > 1)
        snprintf(why, 256, "several GGUF files are; name one, as in ORG/NAME:Q4_K_M");
    else if (search.is_missing_parts)
        snprintf(why, 256, "parts of its GGUF file are missing");
    else
        snprintf(why, 256, "no %s weights are there", *choice ? "such" : "whole");
    return MF_HUB_PARTIAL;
}

mf_hub_state mf_hub_find(const mf_hub_places *places, const mf_hub_name *name, char *path,
                         char why[256])
{
    char folder[MF_HUB_PATH_CHARS], snapshot[MF_HUB_PATH_CHARS], commit[41], below[64];
    if (!mf_hub_folder(places, name, "", folder) || access(folder, F_OK) != 0)
        return MF_HUB_ABSENT;
    if (!read_ref(folder, name->revision, commit)) {
        snprintf(why, 256, "its revision '%.100s' is not there whole", name->revision);
        return MF_HUB_PARTIAL;
    }
    snprintf(below, sizeof below, "snapshots/%s", commit);
    if (!join(snapshot, folder, below) || access(snapshot, F_OK) != 0) {
        snprintf(why, 256, "commit %s is not there", commit);
        return MF_HUB_PARTIAL;
    }
    if (name->choice[0] != '\0' || !is_directory_form(snapshot))
        return find_gguf(snapshot, name->choice, path, why);
    if (!has_shards(snapshot, why))
        return MF_HUB_PARTIAL;
    snprintf(path, MF_HUB_PATH_CHARS, "%s", snapshot);
    return MF_HUB_HELD;
}
