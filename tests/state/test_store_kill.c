/* SPDX-License-Identifier: MIT */
/*
 * A process that writes entries is killed at random moments, 250 times, while another goes on using
 * the directory: it opens every time, every entry that the killed process had been told is written
 * is there as written, nothing damaged is served or left in the way, nothing temporary stays.
 */
#include "store_fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#define N_KILLS 250

static entry_kind kind_of(uint32_t number)
{
    /* of different sizes, so that the kill falls into all kinds of moments */
    return (entry_kind){number, 100 + number % 7, 1 + number % 4, 2000 + 9000 * (number % 5),
                        number % 4};
}

/* Writes entries from `first` on and reports each, until it is killed. */
static void child(const char *dir, uint32_t first, int report)
{
    mf_store *store = NULL;
    if (mf_store_open(dir, NULL, &store, NULL) != MF_OK)
        _exit(1);
    for (uint32_t i = first;; i++) {
        entry_kind k = kind_of(i);
        if (entry_add(store, &k, NULL) != MF_OK || write(report, &i, sizeof i) != sizeof i)
            _exit(1);
    }
}

/* The last number that was reported; first - 1 if none was. */
static uint32_t run_and_kill(const char *dir, uint32_t first, useconds_t us)
{
    int fds[2], status;
    uint32_t last = first - 1, number;
    REQUIRE(pipe(fds) == 0);
    fflush(NULL);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        child(dir, first, fds[1]);
    }
    close(fds[1]);
    usleep(us);
    REQUIRE(kill(pid, SIGKILL) == 0);
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    while (read(fds[0], &number, sizeof number) == sizeof number)
        last = number;
    close(fds[0]);
    return last;
}

static void check_store(mf_store *store, uint32_t first, uint32_t last)
{
    mf_store_stats stats;
    mf_error error = {0};
    for (uint32_t i = first; i != last + 1; i++) {
        entry_kind k = kind_of(i);
        CHECK_MSG(entry_read(store, &k, &error) == MF_OK, "entry %u: %s", i, error.message);
    }
    entry_kind next = kind_of(last + 1); /* was being written: all of it is there, or nothing */
    mf_status status = entry_read(store, &next, &error);
    CHECK_MSG(status == MF_OK || status == MF_ERR_NOT_FOUND, "entry %u: %s", last + 1,
              error.message);
    mf_store_get_stats(store, &stats);
    CHECK_U64(stats.n_set_aside, 0);
}

int main(void)
{
    const char *dir = fresh_dir();
    uint64_t seed = 77;
    uint32_t first = 1, n_written = 0;
    mf_store *witness = store_open(dir, 0);
    for (int i = 0; i < N_KILLS; i++) {
        uint32_t last = run_and_kill(dir, first, (useconds_t)(test_random(&seed) % 12000));
        n_written += last + 1 - first;
        mf_store *store = store_open(dir, 0);
        check_store(store, first, last);
        CHECK_U64(count_files(dir, "tmp-", "", NULL), 0);
        CHECK_U64(count_files(dir, "bad-", "", NULL), 0);
        mf_store_close(&store);
        if (i % 10 == 0)
            check_store(witness, first, last);
        first = last + 2;
        if (i % 50 == 49) { /* not too many at once */
            mf_store_close(&witness);
            dir = fresh_dir();
            witness = store_open(dir, 0);
        }
    }
    mf_store_close(&witness);
    remove_dir(fresh_dir());
    printf("%d kills, %u entries written\n", N_KILLS, n_written);
    CHECK(n_written > N_KILLS / 10);
    return test_result();
}
