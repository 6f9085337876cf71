/* SPDX-License-Identifier: MIT */
/*
 * The reads on their way to the I/O engine: experts are put in one at a time, their requests are
 * cut into a bounded batch and submitted as the engine has room. Used by fetches and by the raw
 * measurement, so that both make the same requests.
 */
#ifndef MF_EXPERTS_EXPERT_BATCH_H
#define MF_EXPERTS_EXPERT_BATCH_H

#include "experts/expert_plan.h"

#define MF_EXPERT_BATCH_READS 128u

typedef struct mf_expert_batch {
    /* The expert being cut into reads. */
    mf_expert_plan plan;
    mf_expert_cursor cursor;
    unsigned char *slot;
    uint64_t tag;
    /* reads[head .. end) are cut and not yet accepted. */
    uint32_t head, end;
    mf_io_read reads[MF_EXPERT_BATCH_READS];
} mf_expert_batch;

/* Drops what was not submitted. */
void mf_expert_batch_clear(mf_expert_batch *batch);
/* Whether another expert can be put in now; cuts the present one as far as there is room. */
bool mf_expert_batch_wants(mf_expert_batch *batch);
/* Puts an expert in: fill batch->plan first. All its reads carry the tag. */
void mf_expert_batch_put(mf_expert_batch *batch, unsigned char *slot, uint64_t tag);

typedef struct mf_expert_sent {
    uint32_t n_reads;
    uint64_t n_bytes;
} mf_expert_sent;

/* Submits what is cut; *sent says how much the engine took (possibly nothing). */
mf_status mf_expert_batch_submit(mf_expert_batch *batch, mf_io *io, mf_expert_sent *sent,
                                 mf_error *error);

#endif
