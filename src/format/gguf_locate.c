/* SPDX-License-Identifier: MIT */
/* Which file is meant: a GGUF file itself, the one of a directory, and the parts of a split one. */
#include "format/gguf.h"

#include "format/json.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char suffix[] = ".gguf";

/* "-00001-of-00003.gguf" */
enum { DIGITS = 5, PART_BYTES = 1 + DIGITS + 4 + DIGITS + sizeof suffix - 1 };

static bool ends_with_suffix(const char *name)
{
    const size_t n = strlen(name), n_suffix = sizeof suffix - 1;
    return n > n_suffix && strcmp(name + n - n_suffix, suffix) == 0;
}

static bool are_digits(const char *text)
{
    for (size_t i = 0; i < DIGITS; i++)
        if (!isdigit((unsigned char)text[i]))
            return false;
    return true;
}

/* The end of a name that says which part of how many it is; NULL if it does not. */
static const char *find_part(const char *path)
{
    const size_t n = strlen(path);
    if (n <= PART_BYTES || !ends_with_suffix(path))
        return NULL;
    const char *part = path + n - PART_BYTES;
    const bool is_part = part[0] == '-' && are_digits(part + 1) &&
                         memcmp(part + 1 + DIGITS, "-of-", 4) == 0 && are_digits(part + 5 + DIGITS);
    return is_part ? part : NULL;
}

uint32_t mf_gguf_count_parts(const char *path)
{
    const char *part = find_part(path);
    const uint32_t n = part == NULL ? 1 : (uint32_t)strtoul(part + 5 + DIGITS, NULL, 10);
    return n == 0 ? 1 : n;
}

mf_status mf_gguf_part(const char *path, uint32_t i, char *part, size_t capacity, mf_error *error)
{
    const char *end = find_part(path);
    if (strlen(path) >= capacity)
        return mf_fail(error, MF_ERR_ARGUMENT, "path longer than %zu bytes: %.64s...", capacity,
                       path);
    snprintf(part, capacity, "%s", path);
    if (end != NULL) {
        char digits[16];
        snprintf(digits, sizeof digits, "%05u", i + 1);
        memcpy(part + (end - path) + 1, digits, DIGITS);
    }
    return MF_OK;
}

/* ------------------------------------------------------------------------------- directories -- */

/* Names of the models in a directory. */
typedef struct gguf_names {
    char first[256];
    char all[512]; /* for a message */
    uint32_t n;
} gguf_names;

static bool is_of_model(const char *name)
{
    return ends_with_suffix(name) && strncmp(name, "mmproj", 6) != 0 && name[0] != '.' &&
           strcmp(name, MF_GGUF_TEXT_FILE) != 0;
}

static bool is_later_part(const char *name)
{
    const char *part = find_part(name);
    return part != NULL && memcmp(part + 1, "00001", DIGITS) != 0;
}

static void add_name(gguf_names *names, const char *name)
{
    const size_t used = strlen(names->all);
    if (names->n == 0 || strcmp(name, names->first) < 0)
        snprintf(names->first, sizeof names->first, "%s", name);
    snprintf(names->all + used, sizeof names->all - used, "%s%s", names->n == 0 ? "" : ", ", name);
    names->n++;
}

static bool has_file(const char *dir, const char *name)
{
    char path[MF_MAX_PATH];
    struct stat st;
    const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool has_other_form(const char *dir)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "model_weights.json", "artifacts/model_weights.json",
                                        "moeflux.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has_file(dir, names[i]))
            return true;
    return false;
}

static mf_status locate_in(const char *dir, char *file, size_t capacity, bool *found,
                           mf_error *error)
{
    gguf_names names = {.n = 0};
    char part[sizeof names.first] = "", path[MF_MAX_PATH];
    DIR *d = has_other_form(dir) ? NULL : opendir(dir);
    if (d == NULL)
        return MF_OK;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (is_of_model(e->d_name) && strlen(e->d_name) < sizeof names.first) {
            if (is_later_part(e->d_name))
                snprintf(part, sizeof part, "%s", e->d_name);
            else
                add_name(&names, e->d_name);
        }
    closedir(d);
    if (names.n == 0 && part[0] == '\0')
        return MF_OK;
    if (names.n == 0) { /* that its first one is missing is then the error */
        *found = true;
        MF_TRY(mf_path_join(path, sizeof path, dir, part, error));
        return mf_gguf_part(path, 0, file, capacity, error);
    }
    if (names.n > 1)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "%s: holds several GGUF models; give the path of one: %s", dir, names.all);
    *found = true;
    return mf_path_join(file, capacity, dir, names.first, error);
}

mf_status mf_gguf_locate_text(const char *path, char *file, size_t capacity, bool *found,
                              mf_error *error)
{
    MF_TRY(mf_gguf_locate(path, file, capacity, found, error));
    *found = *found || has_file(path, MF_GGUF_TEXT_FILE);
    return *found && has_file(path, MF_GGUF_TEXT_FILE)
               ? mf_path_join(file, capacity, path, MF_GGUF_TEXT_FILE, error)
               : MF_OK;
}

mf_status mf_gguf_locate(const char *path, char *file, size_t capacity, bool *found,
                         mf_error *error)
{
    struct stat st;
    *found = false;
    if (stat(path, &st) != 0 || strlen(path) >= capacity)
        return MF_OK;
    if (S_ISDIR(st.st_mode))
        return locate_in(path, file, capacity, found, error);
    char magic[4] = "";
    FILE *f = S_ISREG(st.st_mode) ? fopen(path, "rbe") : NULL;
    *found = f != NULL && fread(magic, 1, sizeof magic, f) == sizeof magic &&
             memcmp(magic, "GGUF", sizeof magic) == 0;
    if (f != NULL)
        fclose(f);
    if (!*found && !(S_ISREG(st.st_mode) && ends_with_suffix(path)))
        return MF_OK;
    *found = true; /* by its name: that it is none, or cannot be read, is then the error */
    return mf_gguf_part(path, 0, file, capacity, error);
}
