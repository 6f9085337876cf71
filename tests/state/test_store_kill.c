/* SPDX-License-Identifier: MIT */
/*
 * A process that writes entries is killed at random moments, 250 times, while another goes on using
 * the directory: it opens every time, every entry that the killed process had been told is written
 * is there as written, nothing damaged is served or left in the way, nothing temporary stays.
 *
 * The moments follow the killed process, which reports what it does and how long it took, so that
 * they fall the same on a machine of any speed: after some of its reports and a part of the time
 * that it takes for the next step (opening, or an entry), or, every third, where it waits for its
 * death at a chosen byte of an entry.
 */
#include "store_fixture.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#define N_KILLS 252
#define MOST_REPORTS 4u

static entry_kind kind_of(uint32_t number)
{
    /* of different sizes, so that the kill falls into all kinds of moments */
    return (entry_kind){number, 100 + number % 7, 1 + number % 4, 2000 + 9000 * (number % 5),
                        number % 4};
}

/* When a child dies. */
typedef struct moment {
    uint32_t n_reports; /* entries that it has reported */
    bool is_inside;     /* waiting, with n_bytes of the next entry written */
    uint64_t n_bytes;
    uint64_t random;
} moment;

typedef struct report {
    uint32_t number;
    bool is_waiting; /* inside that entry; otherwise it is written */
    uint64_t us;     /* since the report before, or the child's beginning */
} report;

/* -------------------------------------------------------------------------------- the child */

typedef struct reporter {
    int fd;
    uint64_t last_us;
} reporter;

static void send_report(reporter *r, uint32_t number, bool is_waiting)
{
    report message;
    uint64_t now_us = mf_now_us();
    memset(&message, 0, sizeof message);
    message.number = number;
    message.is_waiting = is_waiting;
    message.us = now_us - r->last_us;
    r->last_us = now_us;
    if (write(r->fd, &message, sizeof message) != sizeof message)
        _exit(1);
}

/* Passes n_left bytes on, says so, and waits to be killed. */
typedef struct waiting_sink {
    mf_byte_sink sink;
    mf_byte_sink *to;
    uint64_t n_left;
    entry_kind kind;
    reporter *reporter;
} waiting_sink;

static mf_status write_and_wait(mf_byte_sink *self, const void *data, size_t n_bytes,
                                mf_error *error)
{
    waiting_sink *s = (waiting_sink *)(void *)self;
    size_t n = n_bytes <= s->n_left ? n_bytes : (size_t)s->n_left;
    mf_status status = s->to->write(s->to, data, n, error);
    s->n_left -= n;
    if (status != MF_OK || n == n_bytes)
        return status;
    send_report(s->reporter, s->kind.number, true);
    for (;;)
        pause();
}

static mf_status entry_write_waiting(void *ctx, mf_byte_sink *sink, mf_error *error)
{
    waiting_sink *s = ctx;
    s->to = sink;
    return entry_write(&s->kind, &s->sink, error);
}

/* Writes entries from `first` on and reports each, until it is killed. */
static void child(const char *dir, uint32_t first, const moment *m, reporter r)
{
    mf_store *store = NULL;
    if (mf_store_open(dir, NULL, &store, NULL) != MF_OK)
        _exit(1);
    for (uint32_t i = first;; i++) {
        entry_kind k = kind_of(i);
        waiting_sink s = {{.write = write_and_wait}, NULL, m->n_bytes, k, &r};
        bool waits = m->is_inside && i == first + m->n_reports;
        if (entry_add_by(store, &k, waits ? entry_write_waiting : entry_write,
                         waits ? (void *)&s : (void *)&k, NULL) != MF_OK)
            _exit(1);
        send_report(&r, i, false);
    }
}

/* ------------------------------------------------------------------------------- the parent */

/* False at the end: the child is dead. */
static bool next_report(int fd, report *out)
{
    ssize_t n;
    do {
        n = read(fd, out, sizeof *out);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *out;
}

/* Returns at the moment. *opening_us: what children take until their first report. */
static void wait_for(int fd, uint32_t first, const moment *m, uint64_t *opening_us)
{
    report got = {0};
    for (uint32_t i = 0; i < m->n_reports + m->is_inside; i++) {
        REQUIRE(next_report(fd, &got)); /* or it ended by itself */
        CHECK_U64(got.number, first + i);
        CHECK(got.is_waiting == (i == m->n_reports));
        if (i == 0)
            *opening_us = got.us;
    }
    /* A quarter more than the step before took: the kill falls behind an entry's end, too. */
    uint64_t step_us = m->n_reports > 0 ? got.us : *opening_us;
    if (!m->is_inside)
        usleep((useconds_t)(m->random % (step_us + step_us / 4 + 1)));
}

/* The last number that was reported as written; first - 1 if none was. */
static uint32_t run_and_kill(const char *dir, uint32_t first, const moment *m, uint64_t *opening_us)
{
    int fds[2], status;
    report got;
    REQUIRE(pipe(fds) == 0);
    fflush(NULL);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        child(dir, first, m, (reporter){fds[1], mf_now_us()});
    }
    close(fds[1]);
    wait_for(fds[0], first, m, opening_us);
    REQUIRE(kill(pid, SIGKILL) == 0);
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    uint32_t last = first + m->n_reports - 1;
    while (next_report(fds[0], &got))
        last = got.number;
    close(fds[0]);
    return last;
}

static moment choose_moment(int i, uint32_t first, uint64_t *seed)
{
    moment m = {.n_reports = (uint32_t)(test_random(seed) % (MOST_REPORTS + 1)),
                .is_inside = i % 3 == 2,
                .random = test_random(seed)};
    entry_kind k = kind_of(first + m.n_reports);
    mf_snapshot_head head = entry_head(&k);
    m.n_bytes = test_random(seed) % mf_snapshot_total_bytes(&head);
    return m;
}

static void check_store(mf_store *store, uint32_t first, uint32_t last, bool next_may_be_there)
{
    mf_store_stats stats;
    mf_error error = {0};
    for (uint32_t i = first; i != last + 1; i++) {
        entry_kind k = kind_of(i);
        CHECK_MSG(entry_read(store, &k, &error) == MF_OK, "entry %u: %s", i, error.message);
    }
    entry_kind next = kind_of(last + 1); /* was being written: all of it is there, or nothing */
    mf_status status = entry_read(store, &next, &error);
    CHECK_MSG(status == MF_ERR_NOT_FOUND || (status == MF_OK && next_may_be_there), "entry %u: %s",
              last + 1, error.message);
    mf_store_get_stats(store, &stats);
    CHECK_U64(stats.n_set_aside, 0);
}

/* The number to go on from. */
static uint32_t kill_once(const char *dir, uint32_t first, const moment *m, mf_store *witness,
                          uint64_t *opening_us, unsigned *n_left)
{
    uint32_t last = run_and_kill(dir, first, m, opening_us);
    CHECK(last + 1 >= first + m->n_reports);
    unsigned n_tmp = count_files(dir, "tmp-", "", NULL);
    CHECK(n_tmp <= 1 && (n_tmp == 1 || !m->is_inside));
    *n_left += n_tmp;
    mf_store *store = store_open(dir, 0);
    check_store(store, first, last, !m->is_inside);
    CHECK_U64(count_files(dir, "tmp-", "", NULL), 0);
    CHECK_U64(count_files(dir, "bad-", "", NULL), 0);
    mf_store_close(&store);
    if (witness != NULL)
        check_store(witness, first, last, !m->is_inside);
    return last + 2;
}

int main(void)
{
    const char *dir = fresh_dir();
    uint64_t seed = 77, opening_us = 0;
    uint32_t first = 1, n_written = 0, n_waited_for = 0;
    unsigned n_left = 0;
    mf_store *witness = store_open(dir, 0);
    for (int i = 0; i < N_KILLS; i++) {
        moment m = choose_moment(i, first, &seed);
        uint32_t next =
            kill_once(dir, first, &m, i % 10 == 0 ? witness : NULL, &opening_us, &n_left);
        n_written += next - 1 - first;
        n_waited_for += m.n_reports;
        first = next;
        if (i % 50 == 49) { /* not too many at once */
            mf_store_close(&witness);
            dir = fresh_dir();
            witness = store_open(dir, 0);
        }
    }
    mf_store_close(&witness);
    remove_dir(fresh_dir());
    printf("%d kills, %u entries written, %u left unfinished\n", N_KILLS, n_written, n_left);
    CHECK(n_written >= n_waited_for && n_waited_for > N_KILLS);
    CHECK(n_left >= N_KILLS / 3);
    return test_result();
}
