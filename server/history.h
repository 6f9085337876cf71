/* SPDX-License-Identifier: MIT */
/*
 * What was sampled is what is kept. Clients send whole conversations back, with thoughts dropped
 * and calls written otherwise. Answers that were given here get their own words again, and a prompt
 * begins with the tokens that were there when the last of them was made, as long as the template
 * still says the same: old thoughts are dropped where it drops them, unless the conversation keeps
 * them.
 */
#ifndef MF_SERVER_HISTORY_H
#define MF_SERVER_HISTORY_H

#include "job.h"
#include "template.h"

typedef struct mf_srv_history {
    mf_srv_kept **kept; /* [n_messages] of the conversation; NULL: not ours, or forgotten */
    size_t n_messages;
    mf_srv_digest chain; /* of the whole conversation */
    int64_t now;         /* what the template took for the time; 0: it was not asked yet */
} mf_srv_history;

/* Finds the answers, and puts them in the place of what came. False: no memory. */
bool mf_srv_history_open(const mf_srv_model *model, mf_srv_conversation *c, mf_srv_history *h);
void mf_srv_history_close(mf_srv_history *h);

/* The tokens that the prompt begins with, and *n_bytes of the text that they stand for; 0: none are
 * known. system_mark is set where they are. False: no memory. */
bool mf_srv_history_begin(const mf_srv_history *h, const mf_srv_writing *w,
                          const mf_srv_bytes *text, mf_srv_prompt *out, size_t *n_bytes);
/* The prompt is made: what its answer will be kept by. */
void mf_srv_history_end(const mf_srv_history *h, const mf_srv_writing *w, size_t system_mark,
                        mf_srv_prompt *prompt);

/* An answer is made, and nothing follows. */
void mf_srv_history_keep(const mf_srv_choice *choice, mf_srv_finish why);

#endif
