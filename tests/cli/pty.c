/* SPDX-License-Identifier: MIT */
/* pty COMMAND ARGUMENT...: runs the command on a terminal of its own; what comes on standard input
 * is typed there, what the terminal shows goes to standard output. Exits as the command does. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static int fail(const char *what)
{
    perror(what);
    return 126;
}

static void become_command(const char *terminal, char **argv)
{
    setsid();
    int fd = open(terminal, O_RDWR);
    const struct winsize size = {.ws_row = 24, .ws_col = 80};
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) != 0 || ioctl(fd, TIOCSWINSZ, &size) != 0)
        _exit(fail(terminal));
    for (int i = 0; i < 3; i++)
        dup2(fd, i);
    if (fd > 2)
        close(fd);
    execvp(argv[0], argv);
    _exit(fail(argv[0]));
}

/* One read's worth; false at the end of input. */
static int copy(int from, int to)
{
    char bytes[4096];
    ssize_t n = read(from, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
        return 1;
    for (ssize_t at = 0, m; at < n; at += m)
        if ((m = write(to, bytes + at, (size_t)(n - at))) < 0)
            return 0;
    return n > 0;
}

int main(int argc, char **argv)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), status = 0;
    if (argc < 2 || master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        return fail("pty");
    pid_t child = fork();
    if (child < 0)
        return fail("fork");
    if (child == 0)
        become_command(ptsname(master), argv + 1);
    struct pollfd fds[2] = {{.fd = master, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    for (;;) { /* reading fails when nobody has the terminal open any more */
        if (poll(fds, 2, 100) < 0 && errno != EINTR)
            return fail("poll");
        if (fds[1].fd >= 0 && fds[1].revents != 0 && !copy(0, master))
            fds[1].fd = -1;
        if ((fds[0].revents & POLLIN) != 0 ? !copy(master, 1) : (fds[0].revents & POLLHUP) != 0)
            if (waitpid(child, &status, 0) == child)
                break;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
