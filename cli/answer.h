/* SPDX-License-Identifier: MIT */
/*
 * An answer being made: tokens are chosen, taken apart into thoughts and content, shown, kept and
 * evaluated. What may be the beginning of a stop string is held back, and none of one is shown.
 */
#ifndef MF_CLI_ANSWER_H
#define MF_CLI_ANSWER_H

#include "generate.h"
#include "message.h"

/* Why an answer ended. */
typedef enum mf_cli_stop {
    MF_STOP_END,         /* the model ended it */
    MF_STOP_STRING,      /* a stop string */
    MF_STOP_LENGTH,      /* n_max_tokens */
    MF_STOP_CONTEXT,     /* the context is full */
    MF_STOP_INTERRUPTED, /* Ctrl-C */
    MF_STOP_ERROR        /* printed already */
} mf_cli_stop;

/* What was shown last of an answer. */
typedef enum mf_cli_part {
    MF_PART_NONE,
    MF_PART_THOUGHT,
    MF_PART_CONTENT,
    MF_PART_CALL
} mf_cli_part;

/* Zero-initialise; free. */
typedef struct mf_cli_answer {
    uint32_t n_earlier_calls; /* of the conversation: some families count them */

    mf_cli_stop stop;
    const char *stopped_by; /* the stop string */
    mf_cli_message message; /* what was said, without a stop string */
    mf_cli_buffer raw;      /* of all tokens, special ones and those of a stop string too */
    mf_cli_buffer tokens;   /* an int32_t each */
    mf_cli_buffer logprobs; /* n_logprobs + 1 mf_logprob each, the chosen one first */
    size_t n_thought_tokens;
    int32_t unevaluated; /* the last token if the session does not hold it, else -1 */

    /* While it is made. */
    mf_reply *reply;
    mf_decoder decoder;
    mf_cli_buffer held; /* content that may belong to a stop string */
    bool is_in_thought; /* the prompt has begun one */
    mf_cli_part part;
    bool has_counted;  /* the terminal shows how long hidden thoughts are */
    double counted_at; /* when it was last drawn */
    size_t n_closed;   /* tokens given that end thoughts beyond their budget */
} mf_cli_answer;

/* Answers from where the session stands, on stdout unless args->is_silent. */
mf_cli_stop mf_cli_answer_make(mf_cli_generator *g, mf_cli_answer *answer);
void mf_cli_answer_free(mf_cli_answer *answer);

/* A line on standard error for each token: what it is, its logarithm, the likeliest others. */
void mf_cli_answer_print_logprobs(const mf_cli_generator *g, const mf_cli_answer *answer);
#endif
