/* SPDX-License-Identifier: MIT */
/*
 * What the heavy tests of the server share: a server of their own as a child, connections to it,
 * whole requests and their answers, and numbers that a seed gives.
 */
#ifndef MF_TEST_SERVER_CHILD_H
#define MF_TEST_SERVER_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* --- numbers --- */

typedef struct mf_st_random {
    uint64_t state;
} mf_st_random;

uint64_t mf_st_next(mf_st_random *r);
/* 0 to n - 1; n > 0. */
size_t mf_st_below(mf_st_random *r, size_t n);

double mf_st_now(void);
void mf_st_sleep(double seconds);

/* --- the server --- */

typedef struct mf_st_server {
    pid_t pid;
    unsigned port;
} mf_st_server;

/* argv: the program and its arguments, NULL at the end; --port 0 is added. Waits until the server
 * says where it is. False: it did not. */
bool mf_st_start(mf_st_server *s, char *const *argv);
/* Sends the signal and waits. The exit code; 128 + the signal that ended it. */
int mf_st_stop(mf_st_server *s, int signal_number);
/* Of the process: VmRSS in KiB, open descriptors. -1: it is no more. */
long mf_st_memory_kib(const mf_st_server *s);
long mf_st_n_descriptors(const mf_st_server *s);

/* --- connections --- */

/* source: the last part of our own address 127.0.0.x, so that clients differ; 0: any. -1: none. */
int mf_st_connect(const mf_st_server *s, unsigned source);
bool mf_st_send(int fd, const char *data, size_t n_bytes);
/* No answer within so long is none. */
void mf_st_set_patience(int fd, unsigned seconds);
/* With a reset, and not an orderly end. */
void mf_st_reset(int fd);

typedef struct mf_st_answer {
    int status; /* 0: none came */
    char *body; /* NUL-terminated, chunks joined */
    size_t n_body;
    bool is_whole, keeps_open;
    double first_s, last_s; /* when its first and last bytes came */
    /* as it came */
    char *raw;
    size_t n_raw, capacity;
} mf_st_answer;

/* Reads one answer, or what there is of it when more than n_most bytes came. */
void mf_st_read(int fd, size_t n_most, mf_st_answer *a);
void mf_st_answer_free(mf_st_answer *a);

/* POST of a body; GET where it is NULL. The text of the request, from malloc. */
char *mf_st_request(const char *path, const char *body, size_t *n_bytes);
/* Over a connection of its own. */
void mf_st_ask(const mf_st_server *s, const char *path, const char *body, mf_st_answer *a);
/* A figure of /v1/moeflux/stats; -1: it cannot be had. */
long mf_st_figure(const mf_st_server *s, const char *name);
/* Waits for a figure. */
bool mf_st_wait_for(const mf_st_server *s, const char *name, long value, double seconds);
/* A number of JSON text, the first that is so called; -1: none. */
long mf_st_number(const char *json, const char *name);

#endif
