/* SPDX-License-Identifier: MIT */
/* Errors, log lines, sizes, clock and peak memory of the program. */
#include "output.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void mf_cli_put_plain(FILE *out, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        /* U+0080 to U+009F, some of which begin such sequences, are 0xc2 and their last byte */
        const bool is_c1 = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0;
        fputc(*p < 0x20 || *p == 0x7f || is_c1 ? '?' : *p, out);
        p += is_c1;
    }
}

void mf_cli_row(const char *name, const char *value)
{
    printf("%-22s ", name);
    mf_cli_put_plain(stdout, value);
    putchar('\n');
}

static void print_line(const char *prefix, const char *line)
{
    fputs(prefix, stderr);
    mf_cli_put_plain(stderr, line);
    fputc('\n', stderr);
}

int mf_cli_error(const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    print_line("moeflux: ", line);
    return MF_EXIT_ERROR;
}

int mf_cli_fail(mf_status status, const mf_error *error)
{
    const char *message = error ? error->message : "";
    print_line("moeflux: ", *message ? message : mf_status_name(status));
    return MF_EXIT_ERROR;
}

int mf_cli_fail_of(const char *subject, const mf_error *error)
{
    (void)mf_cli_error("%s: %s", subject, error->message);
    return error->code == MF_ERR_CANCELLED ? MF_EXIT_INTERRUPTED : MF_EXIT_ERROR;
}

int mf_cli_usage_error(const char *command, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    print_line("moeflux: ", line);
    fprintf(stderr, "Try 'moeflux %s%s--help'.\n", command ? command : "", command ? " " : "");
    return MF_EXIT_USAGE;
}

void mf_cli_log(void *user, mf_log_level level, const char *line)
{
    const mf_cli_verbosity *verbosity = user;
    if (level == MF_LOG_WARNING && !verbosity->quiet)
        print_line("moeflux: warning: ", line);
    else if (level == MF_LOG_INFO && verbosity->verbose)
        print_line("moeflux: ", line);
}

const char *mf_cli_size(char buffer[MF_CLI_SIZE_CHARS], double n_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    for (; n_bytes >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        n_bytes /= 1024;
    snprintf(buffer, MF_CLI_SIZE_CHARS, unit ? "%.2f %s" : "%.0f %s", n_bytes, units[unit]);
    return buffer;
}

const char *mf_cli_size_up(char buffer[MF_CLI_SIZE_CHARS], uint64_t n_bytes)
{
    double unit = 1;
    while (unit * 1024 <= (double)n_bytes)
        unit *= 1024;
    return mf_cli_size(buffer, ceil((double)n_bytes / unit * 100) / 100 * unit);
}

const char *mf_cli_count(char buffer[MF_CLI_SIZE_CHARS], double n)
{
    static const char *const units[] = {"", " thousand", " million", " billion", " trillion"};
    size_t unit = 0;
    for (; n >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++)
        n /= 1000;
    snprintf(buffer, MF_CLI_SIZE_CHARS, unit ? "%.2f%s" : "%.0f%s", n, units[unit]);
    return buffer;
}

double mf_cli_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* getrusage's figure survives exec and so may be that of the shell that started us: VmHWM first. */
uint64_t mf_cli_peak_rss_bytes(void)
{
    unsigned long long n_kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    if (file) {
        char line[256];
        while (!n_kib && fgets(line, sizeof line, file))
            if (strncmp(line, "VmHWM:", 6) == 0)
                n_kib = strtoull(line + 6, NULL, 10);
        fclose(file);
    }
    struct rusage usage;
    if (!n_kib && getrusage(RUSAGE_SELF, &usage) == 0)
        n_kib = (unsigned long long)usage.ru_maxrss;
    return n_kib * 1024;
}

/* 0 or an errno, of a file that is not there. */
static int may_make(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    const int why = !folder ? ENOMEM : access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    free(folder);
    return why;
}

int mf_cli_may_write(const char *path)
{
    struct stat st;
    int why = 0;
    if (stat(path, &st) != 0)
        why = errno == ENOENT ? may_make(path) : errno;
    else if (S_ISDIR(st.st_mode))
        why = EISDIR;
    else if (access(path, W_OK) != 0)
        why = errno;
    return why == 0 ? MF_EXIT_OK : mf_cli_error("%s: cannot open: %s", path, strerror(why));
}

int mf_cli_finish(int status)
{
    errno = 0; /* of what failed before, and is not tried again, no reason is left */
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    const int why = errno;
    mf_cli_error("standard output: cannot write%s%s", why != 0 ? ": " : "",
                 why != 0 ? strerror(why) : "");
    return status == MF_EXIT_OK ? MF_EXIT_ERROR : status;
}

int mf_cli_end_trace(mf_engine *engine, const char *trace, int exit_code)
{
    mf_error error = {0};
    if (!trace)
        return exit_code;
    mf_status status = mf_engine_record_routing(engine, NULL, &error);
    if (status == MF_OK)
        return exit_code;
    const int failed = mf_cli_fail(status, &error);
    return exit_code == MF_EXIT_OK ? failed : exit_code;
}

const char *mf_cli_expert_device(const char *name, char line[MF_CLI_EXPERT_DEVICE_CHARS])
{
    if (strcmp(name, "hybrid") == 0)
        return "cpu, a prompt's on the device";
    if (strncmp(name, "hybrid:", 7) != 0)
        return name;
    snprintf(line, MF_CLI_EXPERT_DEVICE_CHARS, "cpu, a prompt's and %.16s layers' on the device",
             name + 7);
    return line;
}
