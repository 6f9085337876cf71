/* SPDX-License-Identifier: MIT */
/* Measurements of about half a second each. */
#include "machine.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_READERS = 8, MAX_THREADS = 256, PAGE = 4096 };
#define FILE_BYTES ((uint64_t)256 << 20)
#define MAX_READ_BYTES ((uint64_t)16 << 20)
#define MEMORY_BYTES ((size_t)64 << 20)
#define SECONDS 0.5

typedef struct reader {
    pthread_t thread;
    int fd;
    uint64_t n_file_bytes;
    uint64_t n_bytes, seed; /* of a read */
    double until;
    uint64_t n_done; /* bytes */
    bool is_bad;
} reader;

static void *read_some(void *user)
{
    reader *r = user;
    void *buffer = NULL;
    if (posix_memalign(&buffer, PAGE, r->n_bytes) != 0) {
        r->is_bad = true;
        return NULL;
    }
    while (!r->is_bad && mf_cli_now() < r->until) {
        r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t at = (r->seed >> 20) % ((r->n_file_bytes - r->n_bytes) / PAGE + 1) * PAGE;
        const ssize_t n = pread(r->fd, buffer, r->n_bytes, (off_t)at);
        r->is_bad = n != (ssize_t)r->n_bytes;
        r->n_done += r->n_bytes;
    }
    free(buffer);
    return NULL;
}

/* Blocks that no drive compresses. */
static bool fill(int fd)
{
    enum { PIECE = 1 << 20 };
    uint64_t *piece = malloc(PIECE), x = 88172645463325252u;
    bool good = piece != NULL;
    for (uint64_t at = 0; good && at < FILE_BYTES; at += PIECE) {
        for (size_t i = 0; i < PIECE / sizeof *piece; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            piece[i] = x;
        }
        good = write(fd, piece, PIECE) == PIECE;
    }
    free(piece);
    return good && fdatasync(fd) == 0;
}

/* A file without a name, open for direct reads; -1: there is none. */
static int open_file(const char *dir)
{
    char part[4096], path[4200], self[64];
    snprintf(part, sizeof part, "%s", dir);
    for (char *slash; access(part, F_OK) != 0; *slash = '\0')
        if (!(slash = strrchr(part, '/')) || slash == part)
            return -1;
    snprintf(path, sizeof path, "%s/.moeflux-plan-XXXXXX", part);
    const int fd = mkstemp(path);
    if (fd < 0)
        return -1;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    const int direct = fill(fd) ? open(self, O_RDONLY | O_DIRECT | O_CLOEXEC) : -1;
    (void)unlink(path);
    close(fd);
    return direct;
}

/* Keeps path if it is the largest file so far. */
static void keep_larger(const char *path, char largest[4200], uint64_t *n_bytes)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size <= *n_bytes)
        return;
    *n_bytes = (uint64_t)st.st_size;
    snprintf(largest, 4200, "%s", path);
}

/* The model's largest file, if it is large enough to be read here and there; else -1. */
static int open_model(const char *model, uint64_t *n_file_bytes)
{
    char path[4200], largest[4200] = "";
    uint64_t n_bytes = 0;
    DIR *d = opendir(model);
    keep_larger(model, largest, &n_bytes);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        const int n = snprintf(path, sizeof path, "%s/%s", model, e->d_name);
        if (n > 0 && (size_t)n < sizeof path)
            keep_larger(path, largest, &n_bytes);
    }
    if (d)
        closedir(d);
    *n_file_bytes = n_bytes / PAGE * PAGE;
    return n_bytes < FILE_BYTES ? -1 : open(largest, O_RDONLY | O_DIRECT | O_CLOEXEC);
}

double mf_cli_measure_drive(const char *model, const char *dir, uint64_t n_bytes)
{
    reader readers[N_READERS];
    uint64_t n_done = 0, n_file_bytes = FILE_BYTES;
    bool is_bad = false;
    uint32_t n = 0;
    int fd = model ? open_model(model, &n_file_bytes) : -1;
    if (fd < 0) {
        n_file_bytes = FILE_BYTES;
        fd = open_file(dir);
    }
    if (fd < 0)
        return 0;
    n_bytes = (n_bytes + PAGE - 1) / PAGE * PAGE;
    n_bytes = n_bytes < PAGE ? PAGE : n_bytes > MAX_READ_BYTES ? MAX_READ_BYTES : n_bytes;
    const double began = mf_cli_now();
    for (; n < N_READERS; n++) {
        readers[n] = (reader){.fd = fd,
                              .n_file_bytes = n_file_bytes,
                              .n_bytes = n_bytes,
                              .seed = n * 7919u + 1,
                              .until = began + SECONDS};
        if (pthread_create(&readers[n].thread, NULL, read_some, &readers[n]) != 0)
            break;
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(readers[i].thread, NULL);
        n_done += readers[i].n_done;
        is_bad = is_bad || readers[i].is_bad;
    }
    close(fd);
    return is_bad || n == 0 ? 0 : (double)n_done / (mf_cli_now() - began);
}

typedef struct summer {
    pthread_t thread;
    double until;
    uint64_t n_done, sum;
} summer;

static void *sum_some(void *user)
{
    summer *s = user;
    uint64_t *data = malloc(MEMORY_BYTES);
    if (!data)
        return NULL;
    memset(data, 1, MEMORY_BYTES);
    while (mf_cli_now() < s->until) {
        for (size_t i = 0; i < MEMORY_BYTES / sizeof *data; i++)
            s->sum += data[i];
        s->n_done += MEMORY_BYTES;
    }
    free(data);
    return NULL;
}

double mf_cli_measure_memory(uint32_t n_threads)
{
    summer summers[MAX_THREADS];
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t n_done = 0;
    uint32_t n = 0;
    if (n_threads == 0)
        n_threads = n_cpus > 0 ? (uint32_t)n_cpus : 1;
    const double began = mf_cli_now();
    for (; n < n_threads && n < MAX_THREADS; n++) {
        summers[n] = (summer){.until = began + SECONDS};
        if (pthread_create(&summers[n].thread, NULL, sum_some, &summers[n]) != 0)
            break;
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(summers[i].thread, NULL);
        n_done += summers[i].n_done;
    }
    return (double)n_done / (mf_cli_now() - began);
}
