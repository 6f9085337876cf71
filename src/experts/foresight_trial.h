/* SPDX-License-Identifier: MIT */
/*
 * Whether foresight pays, by the clock. In a trial passes go with it and without it in turn, in
 * windows of a few. What a pass takes depends most on how many experts its text asks for that are
 * not held: so each is told with that number, and counts as what it took over what the trial's
 * passes of that number take, by a line through all of them. Each window's median pass is compared
 * with those of its neighbours, which went the other way just before and just after, so that
 * neither a cache that fills nor a machine that gets busier speaks for one of the ways; the median
 * of these comparisons is the trial's result, whatever a few passes had to wait for. Between trials
 * the way that was faster goes on, the longer the more often it was; trials in a row are averaged.
 * It knows no clock: it is told what passes took.
 */
#ifndef MF_EXPERTS_FORESIGHT_TRIAL_H
#define MF_EXPERTS_FORESIGHT_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

/* Passes of a window, and windows of a trial, at most. */
#define MF_TRIAL_PASSES 4u
#define MF_TRIAL_WINDOWS 9u

typedef struct mf_trial_pass {
    double time, n_needed;
} mf_trial_pass;

typedef struct mf_foresight_trial {
    bool is_on;      /* the next pass goes with foresight */
    bool pays;       /* as far as is known */
    bool is_resting; /* no trial is under way */
    bool has_acted;  /* in this trial something was foreseen */
    uint32_t n_rest; /* passes between two trials now */
    uint32_t n_rested;
    double ratio; /* time with over time without; 0: no trial has ended */
    mf_trial_pass passes[MF_TRIAL_WINDOWS * MF_TRIAL_PASSES]; /* of all windows so far */
    uint32_t n_passes;
    bool first_is_on; /* the trial's first window is with foresight */
} mf_foresight_trial;

void mf_foresight_trial_init(mf_foresight_trial *trial);
/* A pass is done that went as is_on said; time in any unit, n_needed the experts that were asked
 * for and not held but for foresight; has_acted: something was foreseen in it that was not there
 * already. */
void mf_foresight_trial_add(mf_foresight_trial *trial, mf_trial_pass pass, bool has_acted);
/* What comes next cannot be compared with what was: a trial under way begins anew. */
void mf_foresight_trial_restart(mf_foresight_trial *trial);

#endif
