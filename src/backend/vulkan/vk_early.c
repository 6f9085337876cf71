/* SPDX-License-Identifier: MIT */
/*
 * A submission whose commands are recorded while the device works, before it is known whether they
 * come next: one token is decoded as the one before it. It is the open one, with the ticket that it
 * will have, and becomes the stream's by being handed over: no command is recorded then, and the
 * device has all of the token in one piece. Whatever else begins in the stream drops it first; then
 * the rings, the list of reads and the batch are as they were before it.
 */
#include "backend/vulkan/vk_internal.h"

#include <string.h>

/* Nothing is on its way that its commands would have to be told to wait for, and nobody takes their
 * time, which goes by submissions. */
static bool can_begin(const mf_vk_backend *be)
{
    const mf_vk_ahead *a = &be->ahead;
    return be->stream.lost == MF_OK && be->stream.open == NULL && a->open == NULL &&
           a->n_pending == 0 && a->forgotten <= a->awaited && be->timing.pool == VK_NULL_HANDLE;
}

bool mf_vk_early_begin(mf_vk_backend *be)
{
    mf_vk_early *e = &be->early;
    mf_vk_submit(be); /* what the stream has begins by itself */
    if (!can_begin(be))
        return false;
    for (int i = 0; i < MF_VK_RINGS; i++)
        e->ring_heads[i] = be->rings[i].head;
    e->n_reads = 0;
    e->weight_bytes = be->weight_bytes;
    e->tokens = NULL;
    e->n_tokens = 0;
    e->state = MF_VK_EARLY;
    return true;
}

void mf_vk_early_drop(mf_vk_backend *be)
{
    mf_vk_early *e = &be->early;
    mf_vk_stream *st = &be->stream;
    const bool is_kept = e->state == MF_VK_EARLY_KEPT;
    if (e->state == MF_VK_NOT_EARLY || e->state == MF_VK_EARLY_IN_VAIN)
        return;
    mf_vk_submission *s = is_kept ? e->kept : st->open;
    mf_vk_batch *batch = &be->batches.batches[be->batches.current];
    if (s != NULL) /* its commands are reset when it is opened again */
        s->ticket = 0;
    st->open = NULL;
    for (int i = 0; i < MF_VK_RINGS; i++)
        be->rings[i].head = e->ring_heads[i];
    st->n_reads -= e->n_reads; /* the last ones */
    st->condition = 0;
    st->is_condition_stale = false;
    st->has_unseen_conditions = true;
    st->accesses_all = true;             /* what was touched before it is not known any more */
    if (batch->last_use > st->submitted) /* by what never comes */
        batch->last_use = st->submitted;
    be->weight_bytes = is_kept ? be->weight_bytes : e->weight_bytes;
    e->state = is_kept ? MF_VK_NOT_EARLY : MF_VK_EARLY_IN_VAIN;
}

bool mf_vk_early_end(mf_vk_backend *be)
{
    mf_vk_early *e = &be->early;
    const bool is_whole = e->state == MF_VK_EARLY && be->stream.open != NULL;
    e->kept = is_whole ? mf_vk_submission_close(be) : NULL;
    if (e->kept == NULL) {
        e->state = MF_VK_NOT_EARLY;
        return false;
    }
    const uint64_t n_bytes = be->weight_bytes - e->weight_bytes;
    be->weight_bytes = e->weight_bytes;
    e->weight_bytes = n_bytes;
    e->state = MF_VK_EARLY_KEPT;
    return true;
}

bool mf_vk_early_take(mf_vk_backend *be, const int32_t *tokens, uint32_t n)
{
    mf_vk_early *e = &be->early;
    if (e->state != MF_VK_EARLY_KEPT)
        return false;
    if (n != e->n_tokens) {
        mf_vk_early_drop(be);
        return false;
    }
    if (n != 0)
        memcpy(e->tokens, tokens, n * sizeof *tokens);
    e->state = MF_VK_NOT_EARLY;
    be->weight_bytes += e->weight_bytes;
    mf_vk_submission_hand_over(be, e->kept);
    return true;
}

void mf_vk_early_tokens(mf_vk_backend *be, void *tokens, uint32_t n)
{
    if (be->early.state != MF_VK_EARLY)
        return;
    be->early.tokens = tokens;
    be->early.n_tokens = n;
}
