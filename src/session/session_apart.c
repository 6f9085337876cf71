/* SPDX-License-Identifier: MIT */
#include "session/session_apart.h"

#include "base/clock.h"
#include "forward/forward.h"
#include "session/session_call.h"

static bool can(const mf_call *call, const mf_batch *batch)
{
    const mf_runner *r = &call->engine->runner;
    bool is_plain = batch->n_parts > 1 && batch->n_parts <= MF_APART_MOST && call->each == NULL &&
                    mf_early_is_on(r) && mf_routed_has_all(r);
    for (uint32_t i = 0; i < batch->n_parts && is_plain; i++)
        is_plain = mf_batch_part_is_plain(&batch->parts[i]);
    return is_plain;
}

mf_apart_chunk mf_apart_begin(const mf_call *call, const mf_batch *batch)
{
    mf_engine *e = call->engine;
    const mf_split_mode mode = e->runner.split.mode;
    mf_apart_chunk c = {.began_us = mf_now_us()};
    if (mode == MF_SPLIT_NEVER || !can(call, batch))
        return c;
    c.measured = &e->apart.profit[batch->n_parts - 2];
    c.is_on = mode == MF_SPLIT_ALWAYS || c.measured->is_on;
    return c;
}

void mf_apart_end(const mf_call *call, const mf_batch *batch, const mf_apart_chunk *chunk)
{
    const uint64_t n_us = mf_now_us() - chunk->began_us;
    call->engine->apart.n_chunks += chunk->is_on;
    /* either way may gain, whatever was waited for */
    if (chunk->measured != NULL && call->status == MF_OK)
        mf_split_profit_add(
            chunk->measured,
            &(mf_split_cost){.n_rows = batch->n_rows, .n_us = n_us, .wait_us = n_us});
}
