/* SPDX-License-Identifier: MIT */
/*
 * How much of the prompts that come in a step reads while answers are running. It learns what a
 * step of answers alone takes, what a prompt's token adds, and how far steps are from what was
 * expected, and keeps that far below the bound. Times are in microseconds.
 */
#ifndef MF_SERVER_PACE_H
#define MF_SERVER_PACE_H

#include <stddef.h>

typedef struct mf_srv_pace {
    size_t piece;     /* tokens of prompts for the next step */
    size_t most;      /* the largest piece */
    double stall_us;  /* a step may take so long whatever is usual */
    double answer_us; /* what a step of answers alone takes, smoothed; 0: not known */
    double token_us;  /* what a prompt's token adds, smoothed; 0: not known */
    double error_us;  /* between what was expected and what it took, smoothed */
} mf_srv_pace;

void mf_srv_pace_begin(mf_srv_pace *p, size_t most, double stall_us);
/* A step of answers alone. */
void mf_srv_pace_answers(mf_srv_pace *p, double us);
/* A step of answers and n_tokens of prompts. */
void mf_srv_pace_mixed(mf_srv_pace *p, size_t n_tokens, double us);

#endif
