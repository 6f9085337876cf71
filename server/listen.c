/* SPDX-License-Identifier: MIT */
/*
 * Where connections come in: sockets that systemd hands over, a socket in the file system, or
 * addresses; with TLS or without.
 */
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define N_THREADS 4
/* What a connection keeps of its head; heads that are longer get 431. */
#define HEAD_BYTES ((size_t)32 << 10)
#define BACKLOG 128
/* Of a certificate or a key. */
#define MAX_PEM_BYTES ((size_t)1 << 20)
/* ASCII's character in place of one that is not valid. */
#define SUBSTITUTE '\x1a'

static void be_silent(void *context, const char *format, va_list arguments)
{
    (void)context;
    (void)format;
    (void)arguments;
}

/* Paths and arguments are strings to libmicrohttpd and to us: behind a NUL there would be something
 * that a proxy has seen and that is not asked for here. It is what nothing is called, then. */
static size_t unescape(void *context, struct MHD_Connection *connection, char *text)
{
    const size_t n = MHD_http_unescape(text);
    (void)context;
    (void)connection;
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\0')
            text[i] = SUBSTITUTE;
    return n;
}

static bool fail(mf_error *error, const char *what, const char *where)
{
    error->code = MF_ERR_IO;
    error->os_errno = errno;
    snprintf(error->message, sizeof error->message, "%s: %s: %s", where, what, strerror(errno));
    return false;
}

/* Connections of this socket, which is the daemon's from then on. */
static bool serve_socket(mf_srv_server *server, int fd)
{
    const bool has_tls = server->certificate != NULL;
    /* A stranger has a share; behind a loopback address all are one, or a proxy. */
    const unsigned n_of_one =
        server->guard.is_loopback ? 0 : (server->config->n_connections + 3) / 4;
    const struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, server->certificate},
                                         {MHD_OPTION_HTTPS_MEM_KEY, 0, server->key},
                                         {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    /* Not epoll: MHD_quiesce_daemon and a thread of the daemon then both take the listening socket
     * out of its set, and the library ends the process for the second (seen in 0.9.75, rarely). */
    const unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_SUSPEND_RESUME |
                           MHD_USE_ERROR_LOG | (has_tls ? MHD_USE_TLS : 0);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, mf_srv_on_request, server, MHD_OPTION_EXTERNAL_LOGGER, be_silent,
        NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)N_THREADS,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)server->config->n_connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, n_of_one, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        HEAD_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, 120u, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_NOTIFY_COMPLETED,
        mf_srv_on_completed, server, MHD_OPTION_NOTIFY_CONNECTION, mf_srv_on_connection, server,
        MHD_OPTION_ARRAY, has_tls ? tls : none, MHD_OPTION_END);
    if (daemon) {
        server->listeners[server->n_daemons] = -1;
        server->daemons[server->n_daemons++] = daemon;
    }
    return daemon != NULL;
}

/* A socket bound to the address; -1: errno says why not. */
static int bind_at(const struct sockaddr *address, socklen_t n_bytes)
{
    const int on = 1;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (address->sa_family == AF_UNIX)
        (void)fchmod(fd, 0600); /* of the file, once bound */
    else
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, address, n_bytes) == 0 &&
        (address->sa_family != AF_UNIX || listen(fd, BACKLOG) == 0))
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int bind_v4(const mf_srv_server *server, struct in_addr address)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = address};
    at.sin_port = htons((uint16_t)server->port);
    return bind_at((const struct sockaddr *)(const void *)&at, sizeof at);
}

static int bind_v6(const mf_srv_server *server, struct in6_addr address)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = address};
    at.sin6_port = htons((uint16_t)server->port);
    return bind_at((const struct sockaddr *)(const void *)&at, sizeof at);
}

static void learn_port(mf_srv_server *server, int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;
    if (getsockname(fd, (struct sockaddr *)(void *)&at, &n) != 0)
        return;
    if (at.ss_family == AF_INET)
        server->port = ntohs(((const struct sockaddr_in *)(const void *)&at)->sin_port);
    else if (at.ss_family == AF_INET6)
        server->port = ntohs(((const struct sockaddr_in6 *)(const void *)&at)->sin6_port);
}

#define PLACE_CHARS 96

/* What a server at an address is called; at one of IPv6 beside it, too. */
static const char *address_name(const mf_srv_server *server, char name[PLACE_CHARS])
{
    const char *host = server->config->host;
    snprintf(name, PLACE_CHARS, "%.60s, port %u", host ? host : "127.0.0.1", server->port);
    return name;
}

static void hold(mf_srv_server *server, int fd)
{
    server->sockets[server->n_sockets++] = fd;
}

static bool bind_addresses(mf_srv_server *server, mf_error *error)
{
    const char *host = server->config->host;
    struct in_addr v4 = {.s_addr = htonl(INADDR_LOOPBACK)};
    struct in6_addr v6 = in6addr_loopback;
    const bool is_default = !host || strcasecmp(host, "localhost") == 0;
    const bool is_v6 = !is_default && inet_pton(AF_INET6, host, &v6) == 1;
    char name[PLACE_CHARS];
    const char *where = address_name(server, name);
    if (!is_default && !is_v6)
        (void)inet_pton(AF_INET, host, &v4); /* an address, as the guard has seen */
    int fd = is_v6 ? bind_v6(server, v6) : bind_v4(server, v4);
    if (fd < 0)
        return fail(error, "cannot listen", where);
    learn_port(server, fd);
    hold(server, fd);
    fd = is_default ? bind_v6(server, v6) : -1; /* where there is one; clients try both */
    if (fd >= 0)
        hold(server, fd);
    else if (is_default && errno == EADDRINUSE && server->config->port != 0) {
        snprintf(name, sizeof name, "::1, port %u", server->port); /* localhost is somebody else */
        return fail(error, "cannot listen", name);
    }
    return true;
}

/* A socket file that a server left behind which is no more. */
static void remove_stale(const struct sockaddr_un *at)
{
    struct stat st;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && lstat(at->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
        connect(fd, (const struct sockaddr *)(const void *)at, sizeof *at) != 0 &&
        errno == ECONNREFUSED)
        unlink(at->sun_path);
    if (fd >= 0)
        close(fd);
}

static bool bind_path(mf_srv_server *server, const char *path, mf_error *error)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path) {
        errno = ENAMETOOLONG;
        return fail(error, "cannot listen", path);
    }
    memcpy(at.sun_path, path, strlen(path) + 1);
    remove_stale(&at);
    int fd = bind_at((const struct sockaddr *)(const void *)&at, sizeof at);
    if (fd < 0)
        return fail(error, "cannot listen", path);
    server->has_path = true;
    hold(server, fd);
    return true;
}

/* Only this machine reaches the socket? */
static bool is_near(int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;
    if (getsockname(fd, (struct sockaddr *)(void *)&at, &n) != 0)
        return false;
    if (at.ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)&at)->sin_addr.s_addr) >> 24 == 127;
    if (at.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)&at)->sin6_addr);
    return at.ss_family == AF_UNIX;
}

static bool take_given(mf_srv_server *server, int n, mf_error *error)
{
    for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + n; fd++) {
        if (server->n_sockets == MF_SRV_MAX_DAEMONS || sd_is_socket(fd, 0, SOCK_STREAM, 1) <= 0) {
            snprintf(error->message, sizeof error->message,
                     "of systemd: expected up to %d listening sockets", MF_SRV_MAX_DAEMONS);
            return false;
        }
        if (!is_near(fd) &&
            !mf_srv_guard_opens_to_others(&server->guard, "the socket of systemd", error))
            return false;
        learn_port(server, fd);
        hold(server, fd);
    }
    return true;
}

/* The whole file, NUL-terminated, from malloc. */
static char *read_file(const char *path, mf_error *error)
{
    FILE *f = fopen(path, "re");
    char *text = f ? malloc(MAX_PEM_BYTES) : NULL;
    size_t n = text ? fread(text, 1, MAX_PEM_BYTES - 1, f) : 0;
    if (!text || ferror(f)) {
        (void)fail(error, "cannot read", path);
        free(text);
        text = NULL;
    } else {
        text[n] = '\0';
    }
    if (f)
        fclose(f);
    return text;
}

/* By a daemon that serves nobody: the library says no more of certificates that it cannot take. */
static bool check_certificate(const mf_srv_server *server, mf_error *error)
{
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_TLS | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, NULL, NULL,
                         mf_srv_on_request, NULL, MHD_OPTION_EXTERNAL_LOGGER, be_silent, NULL,
                         MHD_OPTION_HTTPS_MEM_CERT, server->certificate, MHD_OPTION_HTTPS_MEM_KEY,
                         server->key, MHD_OPTION_END);
    if (daemon) {
        MHD_stop_daemon(daemon);
        return true;
    }
    error->code = MF_ERR_IO;
    snprintf(error->message, sizeof error->message,
             "%s: cannot serve: --tls-cert and --tls-key are no certificate and its key, in PEM",
             server->config->certificate_file);
    return false;
}

static bool read_certificate(mf_srv_server *server, mf_error *error)
{
    const mf_srv_config *c = server->config;
    if (!c->certificate_file)
        return true;
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
        snprintf(error->message, sizeof error->message, "this libmicrohttpd was built without TLS");
        return false;
    }
    server->certificate = read_file(c->certificate_file, error);
    server->key = server->certificate ? read_file(c->key_file, error) : NULL;
    return server->key && check_certificate(server, error);
}

bool mf_srv_http_bind(mf_srv_server *server, mf_error *error)
{
    const int n_given = sd_listen_fds(1);
    server->port = server->config->port;
    if (!read_certificate(server, error))
        return false;
    server->is_given = n_given > 0;
    if (n_given > 0)
        return take_given(server, n_given, error);
    if (server->config->socket_path)
        return bind_path(server, server->config->socket_path, error);
    return bind_addresses(server, error);
}

bool mf_srv_http_start(mf_srv_server *server, mf_error *error)
{
    char name[PLACE_CHARS];
    const char *place = server->is_given   ? "the socket of systemd"
                        : server->has_path ? server->config->socket_path
                                           : address_name(server, name);
    while (server->n_sockets > 0) {
        const int fd = server->sockets[server->n_sockets - 1];
        if (!server->is_given && listen(fd, BACKLOG) != 0)
            return fail(error, "cannot listen", place);
        if (!serve_socket(server, fd))
            return fail(error, "cannot serve", place);
        server->n_sockets--;
    }
    return true;
}

static void remove_path(mf_srv_server *server)
{
    if (server->has_path)
        unlink(server->config->socket_path);
    server->has_path = false;
}

/* A daemon's thread may still use the socket: closed, it would end the process. */
void mf_srv_http_quiesce(mf_srv_server *server)
{
    __atomic_store_n(&server->is_draining, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < server->n_daemons; i++) {
        server->listeners[i] = MHD_quiesce_daemon(server->daemons[i]);
        if (server->listeners[i] != MHD_INVALID_SOCKET && !server->is_given)
            (void)shutdown(server->listeners[i], SHUT_RDWR); /* who calls is refused */
    }
    remove_path(server);
}

void mf_srv_http_stop(mf_srv_server *server)
{
    while (server->n_daemons > 0) {
        MHD_stop_daemon(server->daemons[--server->n_daemons]);
        if (server->listeners[server->n_daemons] >= 0)
            close(server->listeners[server->n_daemons]);
    }
    while (server->n_sockets > 0)
        close(server->sockets[--server->n_sockets]);
    remove_path(server);
    if (server->key)
        explicit_bzero(server->key, strlen(server->key));
    free(server->certificate);
    free(server->key);
    server->certificate = server->key = NULL;
}
