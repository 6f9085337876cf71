/* SPDX-License-Identifier: MIT */
/*
 * Many connections that were served once and stay open: what they take of the server's memory, and
 * that another one is served beside them.
 *
 *     server_idle CONNECTIONS MIB PROGRAM serve MODEL [OPTION...]
 */
#include "server_child.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_CONNECTIONS 4096u

/* True: as many descriptors as there may be are enough; the server inherits it. */
static bool allow_descriptors(rlim_t n)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= n;
}

/* A connection that was answered; -1: it was not. */
static int open_one(const mf_st_server *s)
{
    static const char health[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    mf_st_answer a = {0};
    int fd = mf_st_connect(s, 0);
    if (fd >= 0 && mf_st_send(fd, health, sizeof health - 1))
        mf_st_read(fd, SIZE_MAX / 2, &a);
    const bool is_good = a.status == 200 && a.keeps_open;
    mf_st_answer_free(&a);
    if (!is_good && fd >= 0)
        close(fd);
    return is_good ? fd : -1;
}

static bool answers(const mf_st_server *s)
{
    mf_st_answer a;
    mf_st_ask(s, "/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":3,\"ignore_eos\":true}",
              &a);
    const bool is_good = a.status == 200 && mf_st_number(a.body, "completion_tokens") == 3;
    mf_st_answer_free(&a);
    return is_good;
}

int main(int argc, char **argv)
{
    static int fds[MAX_CONNECTIONS];
    mf_st_server server = {0};
    if (argc < 6)
        return 2;
    const size_t n = strtoul(argv[1], NULL, 10);
    const long most_kib = strtol(argv[2], NULL, 10) * 1024;
    if (n < 1 || n > MAX_CONNECTIONS || !allow_descriptors(n + 256)) {
        fprintf(stderr, "skipped: not so many descriptors\n");
        return 77;
    }
    if (!mf_st_start(&server, argv + 3))
        return 1;
    bool is_good = answers(&server); /* what the first answer takes is the engine's */
    const long before = mf_st_memory_kib(&server);
    size_t n_open = 0;
    while (is_good && n_open < n && (fds[n_open] = open_one(&server)) >= 0)
        n_open++;
    const long more = mf_st_memory_kib(&server) - before;
    printf("%zu connections open: %ld KiB more than the %ld before\n", n_open, more, before);
    is_good = is_good && n_open == n && (getenv("MF_NO_MEMORY_CHECK") || more <= most_kib) &&
              mf_st_figure(&server, "connections") >= (long)n && answers(&server);
    for (size_t i = 0; i < n_open; i++)
        close(fds[i]);
    is_good = is_good && mf_st_stop(&server, SIGTERM) == 0;
    puts(is_good ? "passed" : "FAILED");
    return is_good ? 0 : 1;
}
