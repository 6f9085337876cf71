/* SPDX-License-Identifier: MIT */
/*
 * Runs a fuzz target over files and folders instead of generated input, so that corpora (and the
 * inputs of past crashes) are replayed by every compiler as ordinary tests. Fails if there was
 * nothing to replay.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long n_replayed;

static int replay_file(const char *path, size_t n_bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes =
        malloc(n_bytes == 0 ? 1 : n_bytes); /* exact, so that sanitizers see overreads */
    int result = 1;
    if (file != NULL && bytes != NULL && fread(bytes, 1, n_bytes, file) == n_bytes) {
        (void)LLVMFuzzerTestOneInput(bytes, n_bytes);
        n_replayed++;
        result = 0;
    } else {
        fprintf(stderr, "cannot read %s\n", path);
    }
    free(bytes);
    if (file != NULL)
        fclose(file);
    return result;
}

static int replay_path(const char *path);

static int replay_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        fprintf(stderr, "cannot open folder %s\n", path);
        return 1;
    }
    int result = 0;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char inner[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        result |= replay_path(inner);
    }
    closedir(folder);
    return result;
}

static int replay_path(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        fprintf(stderr, "no such input: %s\n", path);
        return 1;
    }
    return S_ISDIR(info.st_mode) ? replay_folder(path) : replay_file(path, (size_t)info.st_size);
}

int main(int argc, char **argv)
{
    int result = 0;
    for (int i = 1; i < argc; i++)
        result |= replay_path(argv[i]);
    printf("%lu inputs replayed\n", n_replayed);
    return n_replayed == 0 ? 1 : result;
}
