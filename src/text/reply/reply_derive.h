/* SPDX-License-Identifier: MIT */
/* Rows held against what a template writes, and rows found in it. */
#ifndef MF_TEXT_REPLY_DERIVE_H
#define MF_TEXT_REPLY_DERIVE_H

#include "text/reply/reply_syntax.h"

/* The texts of a row that was found. */
typedef struct mf_reply_derived {
    char texts[2048];
    size_t n_bytes;
} mf_reply_derived;

/* Whether a syntax of this row writes the probe's calls just as they stand in the text. */
mf_status mf_reply_writes(const mf_allocator *a, const mf_reply_row *row, const char *text,
                          unsigned n_calls, bool *is_exact);

/* What an answer is made of. */
typedef struct mf_reply_sample {
    const char *answer;   /* with the probe's calls */
    const char *turn_end; /* what else ends an answer */
    unsigned n_calls;
} mf_reply_sample;

/* Finds the texts of a row in an answer with the probe's calls; false: they are in no form that is
 * known. It is to be tried. */
bool mf_reply_derive(const mf_reply_sample *sample, mf_reply_derived *texts, mf_reply_row *out);

#endif
