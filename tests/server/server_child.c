/* SPDX-License-Identifier: MIT */
#include "server_child.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_ARGUMENTS 64
#define PATIENCE_S 300u

uint64_t mf_st_next(mf_st_random *r)
{
    uint64_t z = (r->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

size_t mf_st_below(mf_st_random *r, size_t n)
{
    return (size_t)(mf_st_next(r) % n);
}

double mf_st_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void mf_st_sleep(double seconds)
{
    const struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

/* -------------------------------------------------------------------------------- the server -- */

static void run_child(char *const *argv, int out)
{
    char *arguments[MAX_ARGUMENTS];
    char port_option[] = "--port", any[] = "0";
    size_t n = 0;
    for (; argv[n] && n < MAX_ARGUMENTS - 3; n++)
        arguments[n] = argv[n];
    arguments[n++] = port_option;
    arguments[n++] = any;
    arguments[n] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(out, STDOUT_FILENO) >= 0)
        execv(arguments[0], arguments);
    perror(arguments[0]);
    _exit(127);
}

/* "moeflux: NAME at http://ADDRESS:PORT (...)" */
static unsigned read_port(int fd)
{
    char line[512];
    size_t n = 0;
    while (n < sizeof line - 1 && read(fd, line + n, 1) == 1 && line[n] != '\n')
        n++;
    line[n] = '\0';
    const char *place = strstr(line, "://");
    const char *colon = place ? strrchr(place, ':') : NULL;
    const char *end = place ? strchr(place, ' ') : NULL;
    while (colon && end && colon > end) /* of what stands behind it */
        colon = memrchr(place, ':', (size_t)(colon - place));
    return colon ? (unsigned)strtoul(colon + 1, NULL, 10) : 0;
}

bool mf_st_start(mf_st_server *s, char *const *argv)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    s->pid = fork();
    if (s->pid == 0)
        run_child(argv, ends[1]);
    close(ends[1]);
    s->port = s->pid > 0 ? read_port(ends[0]) : 0;
    close(ends[0]);
    if (s->port != 0)
        return true;
    if (s->pid > 0)
        (void)mf_st_stop(s, SIGKILL);
    fprintf(stderr, "the server did not start\n");
    return false;
}

int mf_st_stop(mf_st_server *s, int signal_number)
{
    int status = 0;
    if (s->pid <= 0)
        return -1;
    kill(s->pid, signal_number);
    while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    s->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

long mf_st_memory_kib(const mf_st_server *s)
{
    char path[64], line[256];
    long kib = -1;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)s->pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

long mf_st_n_descriptors(const mf_st_server *s)
{
    char path[64];
    long n = 0;
    snprintf(path, sizeof path, "/proc/%ld/fd", (long)s->pid);
    DIR *d = opendir(path);
    if (!d)
        return -1;
    for (const struct dirent *e = readdir(d); e; e = readdir(d))
        n += *e->d_name != '.';
    closedir(d);
    return n;
}

/* ------------------------------------------------------------------------------- connections -- */

void mf_st_set_patience(int fd, unsigned seconds)
{
    const struct timeval t = {.tv_sec = seconds};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

int mf_st_connect(const mf_st_server *s, unsigned source)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + source)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_port = htons((uint16_t)s->port);
    if (fd < 0)
        return -1;
    mf_st_set_patience(fd, PATIENCE_S);
    if ((source == 0 || bind(fd, (const struct sockaddr *)(const void *)&from, sizeof from) == 0) &&
        connect(fd, (const struct sockaddr *)(const void *)&at, sizeof at) == 0)
        return fd;
    close(fd);
    return -1;
}

bool mf_st_send(int fd, const char *data, size_t n_bytes)
{
    while (n_bytes > 0) {
        ssize_t n = send(fd, data, n_bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        data += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

void mf_st_reset(int fd)
{
    const struct linger at_once = {1, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

/* ----------------------------------------------------------------------------------- answers -- */

static bool receive(int fd, mf_st_answer *a)
{
    if (a->capacity - a->n_raw < 16384) {
        a->capacity = a->capacity * 2 + 32768;
        char *raw = realloc(a->raw, a->capacity);
        if (!raw)
            abort();
        a->raw = raw;
    }
    ssize_t n = recv(fd, a->raw + a->n_raw, a->capacity - a->n_raw - 1, 0);
    if (n <= 0)
        return false;
    a->last_s = mf_st_now();
    if (a->n_raw == 0)
        a->first_s = a->last_s;
    a->n_raw += (size_t)n;
    a->raw[a->n_raw] = '\0';
    return true;
}

/* The value of a header in the head that ends at body; NULL: none. */
static const char *header(const char *head, const char *body, const char *name)
{
    const size_t n = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line && line + 2 < body;
         line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, n) == 0 && line[2 + n] == ':')
            return line + 3 + n + strspn(line + 3 + n, " ");
    return NULL;
}

/* The chunks at text, up to end, joined into out. True: the last one was there. */
static bool join_chunks(const char *text, const char *end, char *out, size_t *n_out)
{
    *n_out = 0;
    for (;;) {
        char *after;
        const char *line_end = memmem(text, (size_t)(end - text), "\r\n", 2);
        if (!line_end)
            return false;
        const size_t n = strtoul(text, &after, 16);
        text = line_end + 2;
        if (n == 0)
            return (size_t)(end - text) >= 2;
        if ((size_t)(end - text) < n + 2) {
            const size_t n_here = (size_t)(end - text) < n ? (size_t)(end - text) : n;
            memcpy(out + *n_out, text, n_here);
            *n_out += n_here;
            return false;
        }
        memcpy(out + *n_out, text, n);
        *n_out += n;
        text += n + 2;
    }
}

/* Looks at what has come. True: the answer is whole. */
static bool take(mf_st_answer *a)
{
    char *head_end = a->n_raw > 0 ? strstr(a->raw, "\r\n\r\n") : NULL;
    if (!head_end || strncmp(a->raw, "HTTP/1.1 ", 9) != 0)
        return false;
    const char *body = head_end + 4, *end = a->raw + a->n_raw;
    a->status = (int)strtol(a->raw + 9, NULL, 10);
    const char *length = header(a->raw, body, "Content-Length");
    const char *coding = header(a->raw, body, "Transfer-Encoding");
    const char *connection = header(a->raw, body, "Connection");
    a->keeps_open = !connection || strncasecmp(connection, "close", 5) != 0;
    free(a->body);
    a->body = calloc(1, (size_t)(end - body) + 1);
    if (!a->body)
        abort();
    if (coding) {
        a->is_whole = join_chunks(body, end, a->body, &a->n_body);
    } else {
        a->n_body = (size_t)(end - body);
        memcpy(a->body, body, a->n_body);
        a->is_whole = length && a->n_body >= strtoul(length, NULL, 10);
    }
    a->body[a->n_body] = '\0';
    return a->is_whole;
}

/* Whether what came may be the end: then it is worth looking at. */
static bool may_end(const mf_st_answer *a)
{
    static const char last_chunk[] = "\r\n0\r\n\r\n";
    const size_t n = sizeof last_chunk - 1;
    return !memmem(a->raw, a->n_raw < 4096 ? a->n_raw : 4096, "chunked", 7) ||
           (a->n_raw >= n && memcmp(a->raw + a->n_raw - n, last_chunk, n) == 0);
}

void mf_st_read(int fd, size_t n_most, mf_st_answer *a)
{
    while (a->n_raw <= n_most && receive(fd, a))
        if (may_end(a) && take(a))
            return;
    (void)take(a);
}

void mf_st_answer_free(mf_st_answer *a)
{
    free(a->raw);
    free(a->body);
    *a = (mf_st_answer){0};
}

char *mf_st_request(const char *path, const char *body, size_t *n_bytes)
{
    char *text = NULL;
    int n = body ? asprintf(&text,
                            "POST %s HTTP/1.1\r\nHost: localhost\r\n"
                            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                            path, strlen(body), body)
                 : asprintf(&text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    if (n < 0)
        abort();
    *n_bytes = (size_t)n;
    return text;
}

void mf_st_ask(const mf_st_server *s, const char *path, const char *body, mf_st_answer *a)
{
    size_t n;
    char *text = mf_st_request(path, body, &n);
    *a = (mf_st_answer){0};
    int fd = mf_st_connect(s, 0);
    if (fd >= 0 && mf_st_send(fd, text, n))
        mf_st_read(fd, SIZE_MAX / 2, a);
    if (fd >= 0)
        close(fd);
    free(text);
}

long mf_st_number(const char *json, const char *name)
{
    char key[80];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = json ? strstr(json, key) : NULL;
    return at ? strtol(at + strlen(key), NULL, 10) : -1;
}

long mf_st_figure(const mf_st_server *s, const char *name)
{
    mf_st_answer a;
    mf_st_ask(s, "/v1/moeflux/stats", NULL, &a);
    long n = a.status == 200 ? mf_st_number(a.body, name) : -1;
    mf_st_answer_free(&a);
    return n;
}

bool mf_st_wait_for(const mf_st_server *s, const char *name, long value, double seconds)
{
    const double until = mf_st_now() + seconds;
    while (mf_st_figure(s, name) != value) {
        if (mf_st_now() > until)
            return false;
        mf_st_sleep(0.05);
    }
    return true;
}
