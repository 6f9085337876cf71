/* SPDX-License-Identifier: MIT */
/*
 * A client without manners, for the tests of the server: sends its standard input to a port of this
 * machine as it is and prints what comes back until the other closes.
 *
 *     server_raw PORT           reads to the end
 *     server_raw PORT leave     closes at once after sending
 *     server_raw PORT half      closes its sending half, then reads
 *     server_raw PORT deaf N    reads nothing until a line comes on descriptor 3, then all; prints
 *                               how many bytes
 *
 *     server_raw PATH notify    is the socket that a service tells its state, at PATH: prints what
 *                               comes, until the service says that it is ending
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int open_connection(const char *port, int is_deaf)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    at.sin_port = htons((unsigned short)atoi(port));
    if (fd >= 0 && is_deaf)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (fd < 0 || connect(fd, (const struct sockaddr *)(const void *)&at, sizeof at) != 0)
        return -1;
    return fd;
}

static int send_input(int fd)
{
    char buffer[65536];
    ssize_t n;
    while ((n = read(STDIN_FILENO, buffer, sizeof buffer)) > 0)
        for (ssize_t sent = 0, k; sent < n; sent += k)
            if ((k = send(fd, buffer + sent, (size_t)(n - sent), MSG_NOSIGNAL)) <= 0)
                return -1;
    return 0;
}

static long read_all(int fd, int prints)
{
    char buffer[65536];
    long n_all = 0;
    ssize_t n;
    while ((n = read(fd, buffer, sizeof buffer)) > 0) {
        n_all += n;
        if (prints)
            fwrite(buffer, 1, (size_t)n, stdout);
    }
    return n_all;
}

static int be_notified(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char message[4096];
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0 || strlen(path) >= sizeof at.sun_path)
        return 1;
    memcpy(at.sun_path, path, strlen(path) + 1);
    if (bind(fd, (const struct sockaddr *)(const void *)&at, sizeof at) != 0)
        return 1;
    for (;;) {
        ssize_t n = recv(fd, message, sizeof message - 1, 0);
        if (n <= 0)
            return 1;
        message[n] = '\0';
        puts(message);
        fflush(stdout);
        if (strstr(message, "STOPPING=1"))
            return 0;
    }
}

int main(int argc, char **argv)
{
    const char *how = argc > 2 ? argv[2] : "";
    const int is_deaf = strcmp(how, "deaf") == 0;
    char line;
    if (strcmp(how, "notify") == 0)
        return be_notified(argv[1]);
    int fd = argc > 1 ? open_connection(argv[1], is_deaf) : -1;
    if (fd < 0)
        return 1;
    (void)send_input(fd); /* the other may have closed: what it said is read all the same */
    if (strcmp(how, "leave") == 0)
        return 0;
    if (strcmp(how, "half") == 0)
        shutdown(fd, SHUT_WR);
    if (is_deaf && read(3, &line, 1) < 0)
        return 1;
    long n = read_all(fd, !is_deaf);
    if (is_deaf)
        printf("%ld\n", n);
    close(fd);
    return 0;
}
