/* SPDX-License-Identifier: MIT */
/* What the program prints besides its answers: errors, log lines, sizes; and the two figures about
 * the process that it asks the system for. */
#ifndef MF_CLI_OUTPUT_H
#define MF_CLI_OUTPUT_H

#include <moeflux/moeflux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { MF_EXIT_OK = 0, MF_EXIT_ERROR = 1, MF_EXIT_USAGE = 2, MF_EXIT_INTERRUPTED = 130 };

/* Within a line: control characters as '?'. File names and file contents reach lines: a newline or
 * an escape sequence in them must not reach the terminal. */
void mf_cli_put_plain(FILE *out, const char *text);
/* A row of a table on stdout, value so. */
void mf_cli_row(const char *name, const char *value);

/* One line on stderr, "moeflux: ...", control characters replaced. Returns MF_EXIT_ERROR. */
__attribute__((format(printf, 1, 2))) int mf_cli_error(const char *format, ...);
/* The same for a failed call of the library. */
int mf_cli_fail(mf_status status, const mf_error *error);
/* The same with what was asked for in front; an interrupted one ends as interrupted. */
int mf_cli_fail_of(const char *subject, const mf_error *error);
/* One usage line and a hint on stderr; command NULL: the program itself. Returns MF_EXIT_USAGE. */
__attribute__((format(printf, 2, 3))) int mf_cli_usage_error(const char *command,
                                                             const char *format, ...);

/* How much the library's notes are shown: warnings unless quiet, everything if verbose. */
typedef struct mf_cli_verbosity {
    bool quiet;
    bool verbose;
} mf_cli_verbosity;

/* An mf_log_fn; user is a const mf_cli_verbosity *. */
void mf_cli_log(void *user, mf_log_level level, const char *line);

#define MF_CLI_SIZE_CHARS 32
/* "1.50 GiB"; returns buffer. */
const char *mf_cli_size(char buffer[MF_CLI_SIZE_CHARS], double n_bytes);
/* The same of what is the least, rounded up: "1.51 GiB" given as "1.51G" is n_bytes or more, and at
 * most a hundredth of the unit more. For n_bytes of less than 2^46. Returns buffer. */
const char *mf_cli_size_up(char buffer[MF_CLI_SIZE_CHARS], uint64_t n_bytes);
/* What multiplies experts, for people: mf_model_info.expert_device. Returns name, line or a
 * constant.
 */
#define MF_CLI_EXPERT_DEVICE_CHARS 80
const char *mf_cli_expert_device(const char *name, char line[MF_CLI_EXPERT_DEVICE_CHARS]);
/* "34.7 billion"; returns buffer. */
const char *mf_cli_count(char buffer[MF_CLI_SIZE_CHARS], double n);

/* Seconds of a clock that only goes forward. */
double mf_cli_now(void);
/* The process's peak resident bytes by the kernel's count. */
uint64_t mf_cli_peak_rss_bytes(void);

/* Whether a file may be written, or made, before the work that it is for; nothing is made. An exit
 * code; it has said why not. */
int mf_cli_may_write(const char *path);

/* Flushes stdout; an error exit if any of it could not be written, else status. */
int mf_cli_finish(int status);

/* Ends what mf_engine_record_routing began, if a trace was asked for. The exit code given, or that
 * of what went wrong with the trace. */
int mf_cli_end_trace(mf_engine *engine, const char *trace, int exit_code);

#endif
