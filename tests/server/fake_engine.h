/* SPDX-License-Identifier: MIT */
/*
 * An engine that computes nothing, under the scheduler's real thread: sessions are lists of tokens,
 * time is a number that steps move on, and a step waits until it is let go. By the linker's --wrap.
 */
#ifndef MF_TEST_FAKE_ENGINE_H
#define MF_TEST_FAKE_ENGINE_H

#include <moeflux/moeflux.h>

#include <stdbool.h>

#define FAKE_VOCAB 32768 /* so many that answers are drawn side by side */
#define FAKE_MAX_STEPS 16384
#define FAKE_MAX_ITEMS 32

/* What was in a step. */
typedef struct fake_item {
    const mf_session *session;
    size_t n_tokens;
    bool reads; /* a piece of a prompt: more follows, or more than one token */
} fake_item;

typedef struct fake_step {
    uint64_t begin_us, end_us;
    fake_item items[FAKE_MAX_ITEMS];
    size_t n_items;
} fake_step;

/* A step takes answer_us, and token_us * n^exponent for n tokens of prompts. */
typedef struct fake_costs {
    double answer_us, token_us, exponent, jitter;
} fake_costs;

void fake_begin(const fake_costs *costs);
uint64_t fake_now_us(void);
/* Lets so many steps more go; SIZE_MAX: all from now on. */
void fake_let_go(size_t n_steps);
/* Waits until all that were let go are done, and the next one waits. */
void fake_wait_held(void);
/* Those that were done. Not while steps go. */
size_t fake_steps(const fake_step **steps);

#endif
