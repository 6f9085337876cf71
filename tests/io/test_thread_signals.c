/* SPDX-License-Identifier: MIT */
/* The library's threads take no signals: the program's handlers run on its own. Read from /proc. */
#include "base/threads.h"
#include "io/io.h"
#include "test.h"

#include <ctype.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define THREADS_MAX 64u

static uint32_t list_threads(long *ids)
{
    uint32_t n = 0;
    DIR *dir = opendir("/proc/self/task");
    REQUIRE(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (isdigit((unsigned char)entry->d_name[0]) && n < THREADS_MAX)
            ids[n++] = strtol(entry->d_name, NULL, 10);
    }
    closedir(dir);
    return n;
}

static bool read_status(long id, char *state, unsigned long long *blocked)
{
    char path[64], line[256];
    bool found = false;
    snprintf(path, sizeof path, "/proc/self/task/%ld/status", id);
    FILE *file = fopen(path, "r");
    REQUIRE(file != NULL);
    while (!found && fgets(line, sizeof line, file) != NULL) {
        (void)!sscanf(line, "State: %c", state);
        found = sscanf(line, "SigBlk: %llx", blocked) == 1;
    }
    fclose(file);
    return found;
}

/* Once the thread sleeps: while it starts, the C library blocks everything. */
static unsigned long long blocked_signals(long id)
{
    unsigned long long blocked = 0;
    char state = 0;
    do {
        REQUIRE(read_status(id, &state, &blocked));
    } while (state != 'S' && id != (long)getpid());
    return blocked;
}

/* Those that are there now and were not before. */
static void check_new_threads(const long *before, uint32_t n_before, uint32_t n_expected)
{
    static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGUSR1, SIGUSR2,
                                  SIGALRM, SIGCHLD, SIGPIPE, SIGQUIT, SIGWINCH};
    long ids[THREADS_MAX];
    uint32_t n = list_threads(ids), n_new = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool is_new = true;
        for (uint32_t j = 0; j < n_before; j++)
            is_new = is_new && before[j] != ids[i];
        if (!is_new)
            continue;
        n_new++;
        unsigned long long mask = blocked_signals(ids[i]);
        for (size_t s = 0; s < sizeof signals / sizeof *signals; s++)
            CHECK_MSG((mask >> (signals[s] - 1) & 1) != 0, "signal %d is not blocked", signals[s]);
    }
    CHECK_U64(n_new, n_expected);
}

static void *do_nothing(void *ctx)
{
    return ctx;
}

/* A sanitizer starts a thread of its own beside the program's first. */
static void start_sanitizer(void)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, do_nothing, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

int main(void)
{
    mf_error error = {0};
    long before[THREADS_MAX];
    mf_thread_pool *pool = NULL;
    mf_io *io = NULL;
    const mf_allocator a = mf_allocator_default();
    if (access("/proc/self/task", R_OK) != 0)
        return TEST_SKIPPED;
    start_sanitizer();
    uint32_t n = list_threads(before);
    unsigned long long own = blocked_signals((long)getpid());
    REQUIRE_OK(mf_thread_pool_create(&a, 4, &pool, &error), &error);
    check_new_threads(before, n, 3);
    mf_thread_pool_free(&pool);
    REQUIRE_OK(mf_io_open(&(mf_io_options){.kind = MF_IO_POOL, .depth = 5}, &io, &error), &error);
    check_new_threads(before, n, 5);
    mf_io_close(&io);
    CHECK_U64(blocked_signals((long)getpid()), own); /* as it was */
    return test_result();
}
