/* SPDX-License-Identifier: MIT */
/* Cutting experts into requests and handing these to the engine in batches. */
#include "experts/expert_batch.h"

void mf_expert_batch_clear(mf_expert_batch *batch)
{
    batch->plan = (mf_expert_plan){0};
    batch->cursor = (mf_expert_cursor){0};
    batch->head = batch->end = 0;
}

bool mf_expert_batch_wants(mf_expert_batch *batch)
{
    if (batch->head == batch->end)
        batch->head = batch->end = 0;
    while (batch->end < MF_EXPERT_BATCH_READS) {
        mf_io_read *read = &batch->reads[batch->end];
        if (!mf_expert_plan_next(&batch->plan, &batch->cursor, batch->slot, read))
            return true;
        read->tag = batch->tag;
        batch->end++;
    }
    return false;
}

void mf_expert_batch_put(mf_expert_batch *batch, unsigned char *slot, uint64_t tag)
{
    batch->cursor = (mf_expert_cursor){0};
    batch->slot = slot;
    batch->tag = tag;
}

mf_status mf_expert_batch_submit(mf_expert_batch *batch, mf_io *io, mf_expert_sent *sent,
                                 mf_error *error)
{
    *sent = (mf_expert_sent){0};
    if (batch->head == batch->end)
        return MF_OK;
    const mf_io_read *reads = batch->reads + batch->head;
    MF_TRY(mf_io_submit(io, reads, batch->end - batch->head, &sent->n_reads, error));
    for (uint32_t i = 0; i < sent->n_reads; i++)
        sent->n_bytes += reads[i].n_bytes;
    batch->head += sent->n_reads;
    return MF_OK;
}
