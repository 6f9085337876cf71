/* SPDX-License-Identifier: MIT */
/*
 * Whether proposals pay. Passes that evaluate one token of each session are counted in runs, with
 * and without proposals in turn; the cheaper way goes on, and the other is tried again now and
 * then. Cost is what is read for a token that is kept, or, where next to nothing is read, the time.
 */
#ifndef MF_SESSION_DRAFT_PROFIT_H
#define MF_SESSION_DRAFT_PROFIT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mf_draft_cost {
    uint64_t n_tokens, n_bytes, n_us;
} mf_draft_cost;

typedef struct mf_draft_profit {
    bool is_on;            /* this run has proposals */
    uint32_t n_passes;     /* of the run */
    mf_draft_cost run;     /* so far */
    mf_draft_cost last[2]; /* of the last whole run without and with; n_tokens 0: there was none */
    uint32_t n_runs_since; /* the other way was tried */
} mf_draft_profit;

void mf_draft_profit_init(mf_draft_profit *profit);
/* A pass is done; of its tokens some may have been evaluated ahead of it. */
void mf_draft_profit_add(mf_draft_profit *profit, const mf_draft_cost *pass);

#endif
