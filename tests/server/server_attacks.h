/* SPDX-License-Identifier: MIT */
/* Requests that no client should send, as a seed gives them. */
#ifndef MF_TEST_SERVER_ATTACKS_H
#define MF_TEST_SERVER_ATTACKS_H

#include "server_questions.h"

typedef enum mf_st_end {
    MF_ST_READS,       /* the answer, up to n_most bytes */
    MF_ST_HALF_CLOSES, /* then reads */
    MF_ST_LEAVES,
    MF_ST_DAWDLES /* keeps the connection open, and says no more */
} mf_st_end;

typedef struct mf_st_attack {
    const char *name;
    char *text;
    size_t n_text, n_endless; /* endless: so many blanks behind it */
    size_t n_most;
    mf_st_end end;
    bool is_slow;
    bool is_unfinished;   /* it may be that the server waits for more */
    bool is_ambiguous;    /* at most one answer may come of it */
    bool must_be_refused; /* if it is answered */
} mf_st_attack;

void mf_st_attack_make(mf_st_attack *attack, const mf_st_question *questions, size_t n_questions,
                       mf_st_random *r);
void mf_st_attack_free(mf_st_attack *attack);

#endif
