/* SPDX-License-Identifier: MIT */
/* Files apart from the standard streams, and writes that fail without a signal. */
#include "base/files.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* With any of the standard descriptors closed. */
static void test_apart(void)
{
    char name[] = "/tmp/mf-test-files-XXXXXX";
    int made = mkstemp(name), kept[3];
    REQUIRE(made > 2);
    close(made);
    for (int i = 0; i < 3; i++)
        REQUIRE((kept[i] = fcntl(i, F_DUPFD_CLOEXEC, 10)) >= 10);
    for (int closed = 0; closed < 8; closed++) {
        struct stat wanted, got;
        for (int i = 0; i < 3; i++)
            if ((closed >> i & 1) != 0)
                close(i);
        int fd = mf_open_apart(AT_FDCWD, name, O_RDWR, 0);
        bool is_right = fd > 2 && fcntl(fd, F_GETFD) == FD_CLOEXEC && fstat(fd, &got) == 0 &&
                        stat(name, &wanted) == 0 && got.st_ino == wanted.st_ino;
        bool is_closed = true;
        for (int i = 0; i < 3; i++)
            is_closed = is_closed && ((closed >> i & 1) == 0 || fcntl(i, F_GETFD) < 0);
        for (int i = 0; i < 3; i++)
            dup2(kept[i], i);
        CHECK_MSG(is_right && is_closed, "with 0 to 2 closed by the mask %d: descriptor %d", closed,
                  fd);
        close(fd);
    }
    CHECK(mf_open_apart(AT_FDCWD, "/nonexistent/file", O_RDONLY, 0) == -1 && errno == ENOENT);
    for (int i = 0; i < 3; i++)
        close(kept[i]);
    unlink(name);
}

/* Two that write at once have a file each, whatever their process's number; what a killed one left
 * goes. */
static void test_aside(void)
{
    char dir[] = "/tmp/mf-test-files-XXXXXX", names[3][64], own[64], small[8];
    int fds[3] = {-1, -1, -1};
    REQUIRE(mkdtemp(dir) != NULL);
    const int dir_fd = mf_open_apart(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY, 0);
    REQUIRE(dir_fd >= 0);
    snprintf(own, sizeof own, "a-%x.b", (unsigned)getpid());
    for (int i = 0; i < 2; i++)
        REQUIRE((fds[i] = mf_make_aside(dir_fd, "a-", ".b", 0600, names[i], 64)) > 2);
    CHECK_STR(names[0], own);
    CHECK(strcmp(names[0], names[1]) != 0 && faccessat(dir_fd, names[0], F_OK, 0) == 0);
    mf_remove_if_left(dir_fd, names[1]);
    CHECK(faccessat(dir_fd, names[1], F_OK, 0) == 0);
    CHECK(write(fds[0], "old", 3) == 3 && close(fds[0]) == 0); /* as if it had been killed */
    REQUIRE((fds[2] = mf_make_aside(dir_fd, "a-", ".b", 0600, names[2], 64)) > 2);
    CHECK_STR(names[2], own);
    CHECK(lseek(fds[2], 0, SEEK_END) == 0);
    CHECK(mf_make_aside(dir_fd, "a-", ".b", 0600, small, sizeof small) == -1 &&
          errno == ENAMETOOLONG);
    CHECK(mf_make_aside(dir_fd, "no/a-", ".b", 0600, names[0], 64) == -1 && errno == ENOENT);
    close(fds[1]);
    close(fds[2]);
    for (int i = 1; i < 3; i++)
        mf_remove_if_left(dir_fd, names[i]);
    CHECK(close(dir_fd) == 0 && rmdir(dir) == 0);
}

static bool is_pending(int signal_number)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, signal_number) == 1;
}

static bool is_blocked(int signal_number)
{
    sigset_t mask;
    return pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && sigismember(&mask, signal_number) == 1;
}

/* Both signals have their default here, which is death. */
static void check_write(int fd, int expected_errno)
{
    mf_write_guard guard;
    bool was_blocked[2] = {is_blocked(SIGXFSZ), is_blocked(SIGPIPE)};
    mf_write_guard_begin(&guard);
    CHECK(write(fd, "123456789", 9) == -1);
    mf_write_guard_end(&guard);
    CHECK(errno == expected_errno);
    CHECK(is_blocked(SIGXFSZ) == was_blocked[0] && is_blocked(SIGPIPE) == was_blocked[1]);
}

static void test_guard(void)
{
    struct rlimit before, none;
    int ends[2];
    FILE *file = tmpfile();
    sigset_t set;
    REQUIRE(file != NULL && pipe(ends) == 0 && getrlimit(RLIMIT_FSIZE, &before) == 0);
    close(ends[0]);
    none = before;
    none.rlim_cur = 0;
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
    check_write(fileno(file), EFBIG);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    check_write(ends[1], EPIPE);
    CHECK(!is_pending(SIGXFSZ) && !is_pending(SIGPIPE));
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    REQUIRE(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0); /* the program's own is left to it */
    raise(SIGPIPE);
    check_write(ends[1], EPIPE);
    CHECK(is_pending(SIGPIPE));
    signal(SIGPIPE, SIG_IGN); /* which takes it away */
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    close(ends[1]);
    fclose(file);
}

int main(void)
{
    test_apart();
    test_aside();
    test_guard();
    return test_result();
}
