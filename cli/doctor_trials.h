/* SPDX-License-Identifier: MIT */
/* What the doctor measures: the same work done in the ways that settings of the machine allow, so
 * that what a setting gives is said by this machine itself. Some three seconds in all. */
#ifndef MF_CLI_DOCTOR_TRIALS_H
#define MF_CLI_DOCTOR_TRIALS_H

#include "machine_reads.h"

/* What 0 stands for: not measured, or it cannot be done here. */
typedef struct mf_cli_trials {
    uint64_t read_bytes;                      /* of a read: the model's expert, or a usual one */
    double drive;                             /* bytes a second, of the model where it is large */
    bool is_drive_cached;                     /* by the page cache: direct reads are refused */
    mf_cli_reads threads, ring, held, cached; /* of a file that was made for it */
    double memory;                            /* bytes a second by all threads */
    double small_pages, huge_pages;           /* the same of memory that has such pages */
    uint64_t clock_hz, most_hz;               /* of the fastest CPU, when all had just worked */
} mf_cli_trials;

/* model: NULL for none. folder: there is, and a file is made in it and removed. */
void mf_cli_try(const char *model, const char *folder, uint64_t expert_bytes, mf_cli_trials *out);

#endif
