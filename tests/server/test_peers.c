/* SPDX-License-Identifier: MIT */
/*
 * The watch over connections, on a clock of the test's: who is late is shut out, at the time that
 * the phase gives, and nobody else. What connections do while the watch looks at its clock happens
 * here in that moment, where the watch's lock lets it: as on a machine that is busy.
 */
#include "peer.h"
#include "test.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND 1000000ull

static mf_srv_server server;
static mf_srv_peer *peer;
static int ends[2];             /* the server's, the client's */
static uint64_t clock_us;       /* what it is */
static void (*meanwhile)(void); /* to be done at the next look at the clock; NULL: nothing */

uint64_t __wrap_mf_srv_now_us(void);
uint64_t __wrap_mf_srv_now_us(void)
{
    const uint64_t now = clock_us;
    void (*action)(void) = meanwhile;
    if (action && pthread_mutex_trylock(&server.peers_lock) == 0) {
        pthread_mutex_unlock(&server.peers_lock);
        meanwhile = NULL;
        clock_us++;
        action();
    }
    return now;
}

static void connect_peer(void)
{
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    peer = mf_srv_peer_add(&server, ends[0]);
    REQUIRE(peer != NULL);
}

static void begin_body(void)
{
    mf_srv_peer_set_phase(&server, peer, MF_SRV_SENDS_BODY);
}

static void disconnect_peer(void)
{
    mf_srv_peer_remove(&server, peer);
    close(ends[0]);
    close(ends[1]);
}

static bool is_shut_out(void)
{
    struct pollfd p = {.fd = ends[1], .events = POLLIN | POLLRDHUP};
    return poll(&p, 1, 0) > 0;
}

/* The watch after so many seconds. */
static bool shuts_out_after(uint64_t seconds)
{
    clock_us += seconds * SECOND;
    mf_srv_watch(&server);
    return is_shut_out();
}

/* What begins while the watch looks at its clock is later than what the watch sees there, not
 * older than everything. */
static void test_new_ones(void)
{
    meanwhile = connect_peer;
    mf_srv_watch(&server);
    if (meanwhile) { /* the lock did not let it in */
        meanwhile = NULL;
        connect_peer();
    }
    CHECK(!is_shut_out());
    meanwhile = begin_body;
    mf_srv_watch(&server);
    meanwhile = NULL;
    CHECK(!is_shut_out());
    CHECK(!shuts_out_after(0));
    disconnect_peer();
}

static void test_late_ones(void)
{
    connect_peer();
    CHECK(!shuts_out_after(15)); /* the first head */
    CHECK(shuts_out_after(1));
    disconnect_peer();

    connect_peer();
    begin_body();
    CHECK(!shuts_out_after(60 + 2)); /* a second for each 64 KiB that a body may have */
    CHECK(shuts_out_after(1));
    disconnect_peer();

    connect_peer();
    mf_srv_peer_set_phase(&server, peer, MF_SRV_IS_ANSWERED);
    CHECK(!shuts_out_after(1000));
    mf_srv_peer_set_phase(&server, peer, MF_SRV_SENDS_HEAD);
    CHECK(!shuts_out_after(120)); /* a further head */
    CHECK(shuts_out_after(1));
    disconnect_peer();
}

/* One that closed its half while it was answered will send no further head. */
static void test_half_closed(void)
{
    connect_peer();
    mf_srv_peer_set_phase(&server, peer, MF_SRV_IS_ANSWERED);
    REQUIRE(shutdown(ends[1], SHUT_WR) == 0);
    CHECK(!shuts_out_after(5));
    mf_srv_peer_set_phase(&server, peer, MF_SRV_SENDS_HEAD);
    CHECK(!shuts_out_after(1));
    CHECK(shuts_out_after(1));
    disconnect_peer();
}

int main(void)
{
    const mf_srv_config config = {.max_body_bytes = 128 << 10};
    server.config = &config;
    clock_us = 1000 * SECOND;
    REQUIRE(pthread_mutex_init(&server.peers_lock, NULL) == 0);
    REQUIRE(pthread_mutex_init(&server.stats.lock, NULL) == 0);
    test_new_ones();
    test_late_ones();
    test_half_closed();
    CHECK(mf_srv_stats_get(&server.stats).n_connections == 0);
    pthread_mutex_destroy(&server.stats.lock);
    pthread_mutex_destroy(&server.peers_lock);
    return test_result();
}
