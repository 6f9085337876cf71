/* SPDX-License-Identifier: MIT */
/* Temporary copies of checkpoints. Any failure of the file system ends the program. */
#include "scratch_dir.h"

#include "golden.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[256];

static void must(bool done, const char *what, const char *path)
{
    if (done)
        return;
    perror(path);
    fprintf(stderr, "%s failed\n", what);
    exit(1);
}

static void write_all(const char *path, const void *data, size_t n_bytes)
{
    FILE *f = fopen(path, "wb");
    must(f != NULL && fwrite(data, 1, n_bytes, f) == n_bytes, "write", path);
    must(fclose(f) == 0, "close", path);
}

/* Calls fn for every entry but . and .. */
static void for_entries(const char *dir, void (*fn)(const char *dir, const char *name, void *arg),
                        void *arg)
{
    DIR *d = opendir(dir);
    must(d != NULL, "opendir", dir);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            fn(dir, e->d_name, arg);
    closedir(d);
}

static void copy_entry(const char *dir, const char *name, void *arg)
{
    char from[600], to[600];
    struct stat st;
    snprintf(from, sizeof from, "%s/%s", dir, name);
    snprintf(to, sizeof to, "%s/%s", (const char *)arg, name);
    must(stat(from, &st) == 0, "stat", from);
    if (S_ISDIR(st.st_mode)) {
        must(mkdir(to, 0700) == 0, "mkdir", to);
        for_entries(from, copy_entry, to);
        return;
    }
    size_t n_bytes;
    unsigned char *data = read_file(from, &n_bytes);
    write_all(to, data, n_bytes);
    free(data);
}

static void remove_entry(const char *dir, const char *name, void *arg)
{
    char path[600];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    must(lstat(path, &st) == 0, "stat", path);
    if (S_ISDIR(st.st_mode))
        for_entries(path, remove_entry, arg);
    must(remove(path) == 0, "remove", path);
}

const char *scratch_copy(const char *name)
{
    static bool registered;
    if (!registered)
        atexit(scratch_remove); /* a failed REQUIRE leaves nothing behind either */
    registered = true;
    scratch_remove();
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/moeflux-test-XXXXXX", tmp != NULL ? tmp : "/tmp");
    must(mkdtemp(scratch) != NULL, "mkdtemp", scratch);
    for_entries(golden_path(name), copy_entry, scratch);
    return scratch;
}

void scratch_remove(void)
{
    if (scratch[0] == 0)
        return;
    for_entries(scratch, remove_entry, NULL);
    must(rmdir(scratch) == 0, "rmdir", scratch);
    scratch[0] = 0;
}

const char *scratch_path(const char *file)
{
    static char paths[4][600];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, file);
    return path;
}

void scratch_write(const char *file, const void *data, size_t n_bytes)
{
    write_all(scratch_path(file), data, n_bytes);
}

void scratch_cut(const char *file, int64_t n_bytes)
{
    struct stat st;
    const char *path = scratch_path(file);
    must(stat(path, &st) == 0, "stat", path);
    must(truncate(path, n_bytes < 0 ? st.st_size + n_bytes : n_bytes) == 0, "truncate", path);
}

/* text[n_bytes] with the first `from` replaced; malloc'd, *n_out set. */
static char *replaced(const char *text, size_t n_bytes, const char *from, const char *to,
                      size_t *n_out)
{
    const char *at = memmem(text, n_bytes, from, strlen(from));
    must(at != NULL, "finding the text to replace", from);
    size_t before = (size_t)(at - text), after = n_bytes - before - strlen(from);
    *n_out = before + strlen(to) + after;
    char *out = malloc(*n_out + 1);
    must(out != NULL, "malloc", from);
    memcpy(out, text, before);
    memcpy(out + before, to, strlen(to));
    memcpy(out + before + strlen(to), at + strlen(from), after);
    out[*n_out] = 0;
    return out;
}

void scratch_replace(const char *file, const char *from, const char *to)
{
    size_t n_bytes, n_out;
    char *text = (char *)read_file(scratch_path(file), &n_bytes);
    char *out = replaced(text, n_bytes, from, to, &n_out);
    scratch_write(file, out, n_out);
    free(out);
    free(text);
}

void scratch_replace_in_header(const char *file, const char *from, const char *to)
{
    size_t n_bytes, n_header_out;
    uint64_t n_header;
    char *data = (char *)read_file(scratch_path(file), &n_bytes);
    memcpy(&n_header, data, 8);
    must(n_bytes >= 8 && n_header <= n_bytes - 8, "a sound header", file);
    char *header = replaced(data + 8, n_header, from, to, &n_header_out);
    size_t n_body = n_bytes - 8 - n_header;
    unsigned char *out = malloc(8 + n_header_out + n_body);
    must(out != NULL, "malloc", file);
    uint64_t n = n_header_out;
    memcpy(out, &n, 8);
    memcpy(out + 8, header, n_header_out);
    memcpy(out + 8 + n_header_out, data + 8 + n_header, n_body);
    scratch_write(file, out, 8 + n_header_out + n_body);
    free(out);
    free(header);
    free(data);
}

void scratch_unlink(const char *file)
{
    must(unlink(scratch_path(file)) == 0, "unlink", file);
}
