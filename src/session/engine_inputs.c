/* SPDX-License-Identifier: MIT */
/* The squares of what experts are given, summed up for whoever quantises them. */
#include "session/session.h"

static size_t rows_bytes(const mf_engine *e)
{
    return (size_t)e->runner.plan.n_chunk * e->runner.h.hidden_size * sizeof(float);
}

void mf_engine_inputs_free(mf_engine *e)
{
    e->runner.inputs = NULL;
    mf_free(&e->allocator, e->inputs.rows, e->inputs.rows != NULL ? rows_bytes(e) : 0);
    e->inputs = (mf_input_sums){0};
}

static mf_status sum_inputs(mf_engine *e, double *sums, mf_error *error)
{
    if (sums == NULL) {
        mf_engine_inputs_free(e);
        return MF_OK;
    }
    if (e->inputs.rows == NULL)
        e->inputs.rows = mf_alloc(&e->allocator, rows_bytes(e));
    if (e->inputs.rows == NULL)
        return mf_fail_memory(error, rows_bytes(e), "what experts are given");
    e->inputs.sums = sums;
    e->runner.inputs = &e->inputs;
    return MF_OK;
}

mf_status mf_engine_sum_inputs(mf_engine *engine, double *sums, mf_error *error)
{
    if (engine == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_sum_inputs: engine is NULL");
    MF_TRY(mf_engine_take_turn(engine, error));
    mf_status status = sum_inputs(engine, sums, error);
    mf_engine_end_turn(engine);
    return status;
}
