/* SPDX-License-Identifier: MIT */
/*
 * The watch over connections. Sockets are looked at under the lock, which their closing waits for;
 * phases begin under it, so that none is older than the clock that the watch then asks;
 * what follows from the look is done outside it, on jobs that are held.
 */
#include "peer.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#define FIRST_HEAD_US (15 * 1000000ull)
#define NEXT_HEAD_US (120 * 1000000ull)
/* And a second for each so many bytes that a body may have. */
#define BODY_US (60 * 1000000ull)
#define MIN_BODY_RATE (64u << 10)
#define HALF_CLOSED_US 1000000ull
#define KEEP_ALIVE_US (2 * 1000000ull)
/* A reader that takes nothing for so long, though there is something, is given up. */
#define STALLED_US (60 * 1000000ull)

mf_srv_peer *mf_srv_peer_add(mf_srv_server *server, int fd)
{
    mf_srv_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->fd = fd;
    pthread_mutex_lock(&server->peers_lock);
    peer->since_us = mf_srv_now_us();
    peer->next = server->peers;
    if (peer->next)
        peer->next->previous = peer;
    server->peers = peer;
    pthread_mutex_unlock(&server->peers_lock);
    mf_srv_stats_add(&server->stats, &server->stats.counts.n_connections, 1);
    return peer;
}

void mf_srv_peer_remove(mf_srv_server *server, mf_srv_peer *peer)
{
    if (!peer)
        return;
    pthread_mutex_lock(&server->peers_lock);
    if (peer->previous)
        peer->previous->next = peer->next;
    else
        server->peers = peer->next;
    if (peer->next)
        peer->next->previous = peer->previous;
    pthread_mutex_unlock(&server->peers_lock);
    mf_srv_stats_add(&server->stats, &server->stats.counts.n_connections, UINT64_MAX);
    mf_srv_job_drop(peer->job);
    free(peer);
}

void mf_srv_peer_set_phase(mf_srv_server *server, mf_srv_peer *peer, mf_srv_phase phase)
{
    if (!peer)
        return;
    pthread_mutex_lock(&server->peers_lock);
    peer->is_known = peer->is_known || peer->phase == MF_SRV_IS_ANSWERED;
    peer->phase = phase;
    peer->since_us = mf_srv_now_us();
    pthread_mutex_unlock(&server->peers_lock);
}

void mf_srv_peer_set_job(mf_srv_server *server, mf_srv_peer *peer, mf_srv_job *job)
{
    if (!peer)
        return;
    if (job)
        mf_srv_job_hold(job);
    pthread_mutex_lock(&server->peers_lock);
    mf_srv_job *before = peer->job;
    peer->job = job;
    pthread_mutex_unlock(&server->peers_lock);
    mf_srv_job_drop(before);
}

static bool has_hung_up(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

static bool is_late(const mf_srv_server *server, const mf_srv_peer *peer, uint64_t now)
{
    uint64_t limit = peer->is_known ? NEXT_HEAD_US : FIRST_HEAD_US;
    if (peer->phase == MF_SRV_IS_ANSWERED)
        return false;
    /* It may have closed its half while it was answered, of which libmicrohttpd is told once. */
    if (now - peer->since_us > HALF_CLOSED_US && now - peer->since_us < 3 * HALF_CLOSED_US &&
        has_hung_up(peer->fd))
        return true;
    if (peer->phase == MF_SRV_SENDS_BODY)
        limit = BODY_US + server->config->max_body_bytes / MIN_BODY_RATE * 1000000;
    return now - peer->since_us > limit;
}

/* A sign of life, with how long the prompt will take if it is being read. */
static void put_comment(const mf_srv_job *job, uint64_t now, mf_srv_bytes *out)
{
    const mf_srv_reading r = mf_srv_job_reading(job);
    mf_srv_puts(out, ": keep-alive");
    if (r.n_done < r.n_all)
        mf_srv_printf(out, ", %llu of %llu tokens of the prompt read", (unsigned long long)r.n_done,
                      (unsigned long long)r.n_all);
    if (r.n_done < r.n_all && r.end_us > now)
        mf_srv_printf(out, ", about %.0f s left", 1e-6 * (double)(r.end_us - now));
    mf_srv_puts(out, "\n\n");
}

static uint64_t ago(uint64_t now, uint64_t us)
{
    return now > us ? now - us : 0;
}

/* Signs of life for a stream that is silent; the end of one that nobody reads. */
static void look_after(mf_srv_server *server, mf_srv_job *job, bool is_gone, uint64_t now)
{
    mf_srv_channel *channel = &job->channel;
    const mf_srv_channel_state state =
        mf_srv_channel_look(channel, ago(now, STALLED_US), ago(now, KEEP_ALIVE_US));
    if (is_gone || state.is_stalled) {
        mf_cancel_request(&job->cancel);
        mf_srv_channel_break(channel);
        mf_srv_scheduler_wake(server->scheduler);
    } else if (state.is_silent && job->params.streams) {
        mf_srv_bytes bytes = {0};
        put_comment(job->follows ? job->follows : job, now, &bytes);
        mf_srv_channel_put(channel, &bytes);
        mf_srv_channel_flush(channel);
        mf_srv_bytes_free(&bytes);
    }
}

typedef struct looked_at {
    mf_srv_job *job;
    bool is_gone;
} looked_at;

void mf_srv_watch(mf_srv_server *server)
{
    looked_at *jobs = NULL;
    size_t n = 0, n_jobs = 0;
    pthread_mutex_lock(&server->peers_lock);
    /* Within the lock: no phase began after it, whatever came between a look and the lock. */
    const uint64_t now = mf_srv_now_us();
    for (const mf_srv_peer *p = server->peers; p; p = p->next)
        n += p->job != NULL;
    jobs = n > 0 ? malloc(n * sizeof *jobs) : NULL;
    for (const mf_srv_peer *p = server->peers; p; p = p->next) {
        if (is_late(server, p, now))
            shutdown(p->fd, SHUT_RDWR);
        if (!p->job || !jobs)
            continue;
        mf_srv_job_hold(p->job);
        jobs[n_jobs++] = (looked_at){p->job, has_hung_up(p->fd)};
    }
    pthread_mutex_unlock(&server->peers_lock);
    for (size_t i = 0; i < n_jobs; i++) {
        look_after(server, jobs[i].job, jobs[i].is_gone, now);
        mf_srv_job_drop(jobs[i].job);
    }
    free(jobs);
}

bool mf_srv_is_sending(mf_srv_server *server)
{
    bool is_sending = false;
    pthread_mutex_lock(&server->peers_lock);
    for (const mf_srv_peer *p = server->peers; p && !is_sending; p = p->next)
        is_sending = p->phase == MF_SRV_IS_ANSWERED;
    pthread_mutex_unlock(&server->peers_lock);
    return is_sending;
}
