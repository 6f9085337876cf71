/* SPDX-License-Identifier: MIT */
/*
 * A hub for the tests: hub_server ROOT READY LOG. Two ports of loopback: the hub, which redirects
 * large files, and the store it redirects to. READY gets "HUB STORE" once both listen, LOG a line a
 * request. ROOT/api/ORG/NAME/...          what the API answers, byte for byte
 *   ROOT/files/ORG/NAME/PATH       files; ROOT/etags/ORG/NAME/PATH: their hash, which the test
 * wrote GET /control?fault=KIND&n=N&match=TEXT: the next N answers whose URL contains TEXT go
 * wrong: drop: half of it, then the connection ends    range: other bytes than were asked for 429,
 * 503, 403, 416: that status               norange: all of the file, as if nothing were asked etag:
 * another ETag                            linked: another X-Linked-Etag flip: a bit is wrong long:
 * more than was asked for loop, file, nowhere: redirected to itself, to file:///, to no URL slow:
 * its first part, and the rest when there are no more faults   drip: 64 KiB every 10 ms endless: an
 * answer without end
 * GET /control?gate=TEXT: answers to URLs that contain TEXT wait, from now on, in the order in
 * which they are asked for (that of LOG); /control?open=N lets the next N go, open=all all of them
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LARGE_BYTES 4096
#define SLOW_BYTES ((1u << 20) + (1u << 16))

typedef struct fault {
    char kind[16], match[128];
    long n;
} fault;

static struct server {
    const char *root;
    FILE *log;
    unsigned hub_port, store_port;
    pthread_mutex_t lock;
    fault faults[16];
    size_t n_faults;
    char gate[128]; /* "": there is none */
    unsigned long n_gates, n_arrived, n_open;
    pthread_cond_t opened;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

/* One answer of a file's bytes. */
typedef struct body {
    int fd;
    uint64_t begin, n_bytes; /* of the file */
    uint64_t stop;           /* the connection ends there */
    bool is_flipped, is_slow, is_dripping, is_endless;
} body;

static void take_fault(const char *url, char kind[16])
{
    kind[0] = '\0';
    pthread_mutex_lock(&server.lock);
    for (size_t i = 0; i < server.n_faults; i++) {
        fault *f = &server.faults[i];
        if (f->n > 0 && strstr(url, f->match)) {
            f->n--;
            memcpy(kind, f->kind, sizeof f->kind);
            break;
        }
    }
    pthread_mutex_unlock(&server.lock);
}

static enum MHD_Result send_text(struct MHD_Connection *c, unsigned status, const char *name,
                                 const char *value)
{
    static char text[] = "no\n";
    struct MHD_Response *r = MHD_create_response_from_buffer(3, text, MHD_RESPMEM_PERSISTENT);
    if (name)
        MHD_add_response_header(r, name, value);
    MHD_add_response_header(r, "X-Error-Message", "said by the hub \033[31mred");
    const enum MHD_Result sent = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return sent;
}

/* Of a fault like 429 when to come again: a second; 429date: the date of the third from now. */
static enum MHD_Result send_status(struct MHD_Connection *c, const char *kind, unsigned status)
{
    char date[64];
    struct tm parts;
    const time_t then = time(NULL) + 3;
    const bool has_date = strstr(kind, "date") != NULL;
    gmtime_r(&then, &parts);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    return send_text(c, status, status == 429 ? "Retry-After" : NULL, has_date ? date : "1");
}

/* ---- the gate, under the lock ---- */

static void set_gate(const char *gate)
{
    snprintf(server.gate, sizeof server.gate, "%s", gate);
    server.n_gates++;
    server.n_arrived = server.n_open = 0;
    pthread_cond_broadcast(&server.opened);
}

static void open_gate(const char *n)
{
    if (strcmp(n, "all") == 0)
        set_gate("");
    server.n_open += strtoul(n, NULL, 10);
    pthread_cond_broadcast(&server.opened);
}

/* A file's first bytes pass by themselves: who opens it waits for them, whenever they are asked
 * for. */
static void pass_gate(struct MHD_Connection *c, const char *url)
{
    const char *range = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Range");
    if (server.gate[0] == '\0' || !strstr(url, server.gate) ||
        (range && strncmp(range, "bytes=0-", 8) == 0))
        return;
    const unsigned long gate = server.n_gates, number = server.n_arrived++;
    while (gate == server.n_gates && number >= server.n_open)
        pthread_cond_wait(&server.opened, &server.lock);
}

static enum MHD_Result control(struct MHD_Connection *c)
{
    const char *gate = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "gate");
    const char *open = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "open");
    const char *kind = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "fault");
    const char *n = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "n");
    const char *match = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "match");
    pthread_mutex_lock(&server.lock);
    if (gate) {
        set_gate(gate);
    } else if (open) {
        open_gate(open);
    } else if (!kind) {
        server.n_faults = 0;
    } else if (server.n_faults < 16) {
        fault *f = &server.faults[server.n_faults++];
        snprintf(f->kind, sizeof f->kind, "%s", kind);
        snprintf(f->match, sizeof f->match, "%s", match ? match : "");
        f->n = n ? strtol(n, NULL, 10) : 1;
    }
    pthread_mutex_unlock(&server.lock);
    return send_text(c, 200, NULL, NULL);
}

static bool has_faults(void)
{
    pthread_mutex_lock(&server.lock);
    const bool has = server.n_faults > 0;
    pthread_mutex_unlock(&server.lock);
    return has;
}

static ssize_t read_body(void *user, uint64_t position, char *buffer, size_t n)
{
    body *b = user;
    if (b->is_endless) {
        memset(buffer, ' ', n);
        return (ssize_t)n;
    }
    if (position >= b->stop)
        return b->stop < b->n_bytes ? MHD_CONTENT_READER_END_WITH_ERROR
                                    : MHD_CONTENT_READER_END_OF_STREAM;
    if (n > b->stop - position)
        n = (size_t)(b->stop - position);
    if (b->is_slow) {
        while (position >= SLOW_BYTES && has_faults())
            usleep(10000);
        n = n < 65536 ? n : 65536;
    }
    if (b->is_dripping) {
        usleep(10000);
        n = n < 65536 ? n : 65536;
    }
    const ssize_t got = pread(b->fd, buffer, n, (off_t)(b->begin + position));
    if (got > 0 && b->is_flipped && position == 0)
        buffer[0] ^= 1;
    return got > 0 ? got : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void free_body(void *user)
{
    body *b = user;
    close(b->fd);
    free(b);
}

static bool read_line(const char *folder, const char *path, char *line, size_t n)
{
    char name[2048];
    snprintf(name, sizeof name, "%s/%s/%s", server.root, folder, path);
    FILE *in = fopen(name, "re");
    line[0] = '\0';
    if (!in)
        return false;
    const bool good = fgets(line, (int)n, in) != NULL;
    fclose(in);
    line[strcspn(line, "\n")] = '\0';
    return good;
}

static struct MHD_Response *response_of(body *b, const char *kind)
{
    const bool is_plain = kind[0] == '\0' || strcmp(kind, "etag") == 0 ||
                          strcmp(kind, "norange") == 0 || strcmp(kind, "range") == 0;
    if (is_plain && b->n_bytes > 0) {
        struct MHD_Response *r =
            MHD_create_response_from_fd_at_offset64(b->n_bytes, b->fd, b->begin);
        free(b);
        return r;
    }
    return MHD_create_response_from_callback(b->is_endless ? MHD_SIZE_UNKNOWN : b->n_bytes, 1 << 16,
                                             read_body, b, free_body);
}

/* The range that was asked for; false: all of the file. */
static bool asked_range(struct MHD_Connection *c, uint64_t n_bytes, uint64_t *begin, uint64_t *end)
{
    const char *range = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Range");
    uint64_t first, last;
    if (!range || sscanf(range, "bytes=%" SCNu64 "-%" SCNu64, &first, &last) != 2 ||
        first >= n_bytes || last < first)
        return false;
    *begin = first;
    *end = last + 1 < n_bytes ? last + 1 : n_bytes;
    return true;
}

static enum MHD_Result send_file(struct MHD_Connection *c, const char *folder, const char *path,
                                 const char *kind)
{
    char name[2048], etag[128], quoted[160], range[128];
    struct stat st;
    snprintf(name, sizeof name, "%s/%s/%s", server.root, folder, path);
    const int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (fd >= 0)
            close(fd);
        return send_text(c, 404, "X-Error-Code", "EntryNotFound");
    }
    const uint64_t n_bytes = (uint64_t)st.st_size;
    uint64_t begin = 0, end = n_bytes;
    const bool has_range = strcmp(kind, "norange") != 0 && asked_range(c, n_bytes, &begin, &end);
    if (strcmp(kind, "range") == 0 && begin >= 1048576)
        begin -= 1048576, end -= 1048576;
    else if (strcmp(kind, "range") == 0)
        begin += end > begin + 1;
    if (strcmp(kind, "long") == 0 && end < n_bytes)
        end++;
    body *b = calloc(1, sizeof *b);
    *b = (body){.fd = fd, .begin = begin, .n_bytes = end - begin, .stop = end - begin};
    b->is_flipped = strcmp(kind, "flip") == 0;
    b->is_slow = strcmp(kind, "slow") == 0;
    b->is_dripping = strcmp(kind, "drip") == 0;
    b->is_endless = strcmp(kind, "endless") == 0;
    if (strcmp(kind, "drop") == 0)
        b->stop /= 2;
    struct MHD_Response *r = response_of(b, kind);
    read_line("etags", path, etag, sizeof etag);
    snprintf(quoted, sizeof quoted, "\"%s%s\"", strcmp(kind, "etag") == 0 ? "other" : "", etag);
    MHD_add_response_header(r, "ETag", quoted);
    MHD_add_response_header(r, "Accept-Ranges", "bytes");
    if (strstr(path, "/"))
        MHD_add_response_header(r, "X-Repo-Commit", "0123456789abcdef0123456789abcdef01234567");
    snprintf(range, sizeof range, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, begin, end - 1,
             n_bytes);
    if (has_range)
        MHD_add_response_header(r, "Content-Range", range);
    const enum MHD_Result sent = MHD_queue_response(c, has_range ? 206 : 200, r);
    MHD_destroy_response(r);
    return sent;
}

static enum MHD_Result redirect(struct MHD_Connection *c, const char *url, const char *path,
                                const char *kind)
{
    static char nothing[] = "";
    char target[2048], etag[128], quoted[160], size[32];
    struct stat st;
    struct MHD_Response *r = MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT);
    /* another host name as well, for loopback */
    snprintf(target, sizeof target, "http://localhost:%u/store/%s?signature=1", server.store_port,
             path);
    if (strcmp(kind, "loop") == 0)
        snprintf(target, sizeof target, "http://127.0.0.1:%u%s", server.hub_port, url);
    else if (strcmp(kind, "file") == 0)
        snprintf(target, sizeof target, "file:///etc/hostname");
    else if (strcmp(kind, "nowhere") == 0)
        snprintf(target, sizeof target, "http://");
    MHD_add_response_header(r, "Location", target);
    read_line("etags", path, etag, sizeof etag);
    if (strcmp(kind, "linked") == 0)
        etag[0] = etag[0] == '0' ? '1' : '0';
    snprintf(quoted, sizeof quoted, "\"%s\"", etag);
    MHD_add_response_header(r, "X-Linked-Etag", quoted);
    char name[2048];
    snprintf(name, sizeof name, "%s/files/%s", server.root, path);
    if (stat(name, &st) == 0) {
        snprintf(size, sizeof size, "%lld", (long long)st.st_size);
        MHD_add_response_header(r, "X-Linked-Size", size);
    }
    MHD_add_response_header(r, "X-Repo-Commit", "0123456789abcdef0123456789abcdef01234567");
    const enum MHD_Result sent = MHD_queue_response(c, 302, r);
    MHD_destroy_response(r);
    return sent;
}

/* ORG/NAME/resolve/REVISION/PATH -> ORG/NAME/PATH; false: it is no such URL. */
static bool resolved(const char *url, char path[1024])
{
    const char *resolve = strstr(url, "/resolve/");
    const char *rest = resolve ? strchr(resolve + strlen("/resolve/"), '/') : NULL;
    if (!rest)
        return false;
    snprintf(path, 1024, "%.*s%s", (int)(resolve - url - 1), url + 1, rest);
    return true;
}

static bool is_large(const char *path)
{
    char name[2048];
    struct stat st;
    snprintf(name, sizeof name, "%s/files/%s", server.root, path);
    return stat(name, &st) == 0 && st.st_size > LARGE_BYTES;
}

static enum MHD_Result answer_hub(struct MHD_Connection *c, const char *url, const char *kind)
{
    char path[1024];
    if (strncmp(url, "/api/models/", 12) == 0)
        return send_file(c, "api", url + 12, kind);
    if (!resolved(url, path))
        return send_text(c, 404, "X-Error-Code", "RepoNotFound");
    const bool is_redirected = strcmp(kind, "loop") == 0 || strcmp(kind, "file") == 0 ||
                               strcmp(kind, "nowhere") == 0 || strcmp(kind, "linked") == 0;
    if (is_redirected || (is_large(path) && kind[0] == '\0'))
        return redirect(c, url, path, kind);
    return send_file(c, "files", path, kind);
}

static enum MHD_Result answer(void *user, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *n_data, void **state)
{
    char kind[16];
    const bool is_store = user != NULL;
    (void)version;
    (void)data;
    (void)n_data;
    (void)state;
    if (strcmp(url, "/control") == 0)
        return control(c);
    if (strstr(url, ".."))
        return send_text(c, 400, NULL, NULL);
    const char *token = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    const char *range = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Range");
    take_fault(url, kind);
    pthread_mutex_lock(&server.lock);
    fprintf(server.log, "%s %s %s %s %s %s\n", is_store ? "store" : "hub", method, url,
            range ? range : "all", token ? token : "no-token", kind[0] ? kind : "good");
    fflush(server.log);
    pass_gate(c, url);
    pthread_mutex_unlock(&server.lock);
    const unsigned status = (unsigned)strtoul(kind, NULL, 10);
    if (status != 0)
        return send_status(c, kind, status);
    if (!is_store)
        return answer_hub(c, url, kind);
    if (strncmp(url, "/store/", 7) == 0)
        return send_file(c, "files", url + 7, kind);
    return send_text(c, 404, NULL, NULL);
}

static struct MHD_Daemon *listen_at(unsigned *port, void *user)
{
    struct MHD_Daemon *d = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_DUAL_STACK, 0,
        NULL, NULL, answer, user, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = d ? MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    *port = info ? info->port : 0;
    return d;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    (void)signal(SIGPIPE, SIG_IGN);
    server.root = argv[1];
    server.log = fopen(argv[3], "ae");
    struct MHD_Daemon *hub = listen_at(&server.hub_port, NULL);
    struct MHD_Daemon *store = listen_at(&server.store_port, &server);
    if (!server.log || !hub || !store) {
        fprintf(stderr, "hub_server: cannot listen: %s\n", strerror(errno));
        return 77;
    }
    FILE *ready = fopen(argv[2], "we");
    if (!ready)
        return 1;
    fprintf(ready, "%u %u\n", server.hub_port, server.store_port);
    fclose(ready);
    for (;;)
        pause();
}
