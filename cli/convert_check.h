/* SPDX-License-Identifier: MIT */
/* What a conversion costs: the perplexity of a text by the source and by what was made of it. */
#ifndef MF_CLI_CONVERT_CHECK_H
#define MF_CLI_CONVERT_CHECK_H

#include "input.h"

typedef struct mf_cli_check {
    const char *source, *made, *file;
    uint32_t packed_bits; /* of the source */
    uint32_t n_threads;   /* 0: one per core */
    uint64_t n_tokens;    /* of the text, at most */
    mf_cli_ids ids;       /* of the text, once it is read */
    /* Results. */
    size_t n_scored;
    double source_perplexity, made_perplexity;
} mf_cli_check;

/* What the experts of a model are given on a text: mf_engine_sum_inputs's sums, to be freed. Of the
 * check, source, file, packed_bits, n_threads and n_tokens count. Prints the error; returns an exit
 * code. */
int mf_cli_calibrate(const mf_cli_check *text, double **sums, uint64_t *n_sums);
/* Reads the text, which needs nothing that was made. Prints the error; returns an exit code. */
int mf_cli_check_begin(mf_cli_check *check);
/* Of a check that was begun. Prints the error; returns an exit code. */
int mf_cli_check_made(mf_cli_check *check);
void mf_cli_check_end(mf_cli_check *check);

#endif
