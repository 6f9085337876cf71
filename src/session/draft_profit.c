/* SPDX-License-Identifier: MIT */
/* Runs of passes, compared. */
#include "session/draft_profit.h"

#define PASSES_A_RUN 16u
/* The way that was dearer is tried again after so many runs. */
#define RUNS_BETWEEN 12u
/* Fewer bytes for a token than this are no reading: a cache that is warm misses now and then. */
#define BYTES_THAT_COUNT 4096u

void mf_draft_profit_init(mf_draft_profit *p)
{
    *p = (mf_draft_profit){.is_on = true};
}

/* For a token. */
static double cost_of(const mf_draft_cost *c, bool in_bytes)
{
    return (double)(in_bytes ? c->n_bytes : c->n_us) / (double)c->n_tokens;
}

static bool reads(const mf_draft_cost *c)
{
    return c->n_bytes / c->n_tokens >= BYTES_THAT_COUNT;
}

static bool is_on_better(const mf_draft_profit *p)
{
    const bool in_bytes = reads(&p->last[0]) || reads(&p->last[1]);
    return cost_of(&p->last[1], in_bytes) < cost_of(&p->last[0], in_bytes);
}

void mf_draft_profit_add(mf_draft_profit *p, const mf_draft_cost *pass)
{
    p->run.n_tokens += pass->n_tokens;
    p->run.n_bytes += pass->n_bytes;
    p->run.n_us += pass->n_us;
    if (++p->n_passes < PASSES_A_RUN)
        return;
    const bool is_on = p->is_on;
    p->last[is_on] = p->run;
    p->run = (mf_draft_cost){0};
    p->n_passes = 0;
    if (p->last[0].n_tokens == 0 || p->last[1].n_tokens == 0 || ++p->n_runs_since > RUNS_BETWEEN) {
        p->is_on = !is_on;
        p->n_runs_since = 0;
        return;
    }
    p->is_on = is_on_better(p);
}
