/* SPDX-License-Identifier: MIT */
/* The same reads made in several ways, with what they cost. */
#ifndef MF_CLI_MACHINE_READS_H
#define MF_CLI_MACHINE_READS_H

#include <stdbool.h>
#include <stdint.h>

/* Pieces of n_bytes (a multiple of MF_CLI_FILE_UNIT) all over a file, eight at once. */
typedef struct mf_cli_read_job {
    int fd;
    uint64_t n_file_bytes, n_bytes;
    double seconds; /* how long */
    bool is_once;   /* no piece twice: it ends with the file */
} mf_cli_read_job;

/* 0, 0: they cannot be made. */
typedef struct mf_cli_reads {
    double bytes_per_second;
    double cpu_seconds; /* of all threads and of the kernel in them, for each GiB */
} mf_cli_reads;

/* By eight threads. */
mf_cli_reads mf_cli_read_by_threads(const mf_cli_read_job *job);
/* By io_uring; is_held: to memory and from a file that the ring holds. */
mf_cli_reads mf_cli_read_by_ring(const mf_cli_read_job *job, bool is_held);

#endif
