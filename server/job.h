/* SPDX-License-Identifier: MIT */
/*
 * A request for answers: its prompts, how to sample, and its choices, each an answer in the making.
 * Made by a connection's thread, handed to the scheduler, which alone changes it from then on; both
 * hold it by reference. What an API makes of it (events, or one document) is its protocol's.
 */
#ifndef MF_SERVER_JOB_H
#define MF_SERVER_JOB_H

#include "channel.h"
#include "prompt.h"
#include "random.h"
#include "refusal.h"

#include <moeflux/moeflux.h>

#define MF_SRV_MAX_STOPS 16
#define MF_SRV_MAX_STOP_BYTES 1024
#define MF_SRV_MAX_TOP 20
#define MF_SRV_MAX_CHOICES 128
#define MF_SRV_ID_BYTES 40

typedef struct mf_srv_job mf_srv_job;
typedef struct mf_srv_choice mf_srv_choice;

typedef enum mf_srv_finish {
    MF_SRV_RUNNING = 0,
    MF_SRV_END,    /* the model ended it */
    MF_SRV_STOP,   /* a stop string */
    MF_SRV_LENGTH, /* max_tokens */
    MF_SRV_CONTEXT /* the context is full */
} mf_srv_finish;

/* How to answer. */
typedef struct mf_srv_params {
    mf_sampler_options sampler;
    mf_logit_bias *biases; /* from malloc; what sampler.biases points to */
    const char **breakers; /* likewise, and dry_breakers; NULL: the usual ones */
    size_t n_max_tokens;   /* SIZE_MAX: as many as the context holds */
    size_t n_choices;      /* of each prompt */
    size_t n_best;         /* of these, those that are given out: the likeliest; 0: all */
    size_t n_max_calls;    /* of tools, in an answer; 0: any number */
    char *stops[MF_SRV_MAX_STOPS];
    size_t n_stops;
    bool streams;
    bool has_usage_event; /* stream_options.include_usage */
    bool has_logprobs;
    unsigned n_top; /* alternatives of each token */
    bool has_echo;
    bool ignores_end;
    size_t n_thought_max; /* tokens of thoughts; SIZE_MAX: as many as come */
} mf_srv_params;

/* What was thought of a token of the answer. */
typedef struct mf_srv_token {
    int32_t token;
    float logprob; /* NAN: nothing stands before it */
    size_t end;    /* bytes of the content up to and with it */
    unsigned n_top;
    mf_logprob top[MF_SRV_MAX_TOP];
} mf_srv_token;

typedef enum mf_srv_kind {
    MF_SRV_TEXT,
    MF_SRV_THOUGHT,
    MF_SRV_CALL /* of a tool; its text are the arguments */
} mf_srv_kind;

/* Of an answer as it is given out: a thought, a text, or a call. One follows the other. */
typedef struct mf_srv_part {
    mf_srv_kind kind;
    size_t begin, end; /* bytes of the choice's thoughts, content, or call's arguments */
    size_t call;       /* its index */
} mf_srv_part;

/* A call that the answer makes. */
typedef struct mf_srv_made_call {
    char *id;       /* for the client; from malloc */
    char *model_id; /* for the model's template; the same */
    char *name;     /* the same */
    mf_srv_bytes arguments;
} mf_srv_made_call;

/* More of an answer: text that is whole characters, or empty; and the tokens that end in it, where
 * logprobs are asked for. */
typedef struct mf_srv_piece {
    mf_srv_kind kind;
    const char *text;
    size_t n_bytes;
    const mf_srv_token *tokens;
    size_t n_tokens;
} mf_srv_piece;

struct mf_srv_choice {
    mf_srv_job *job;
    size_t index;
    const mf_srv_prompt *prompt;

    /* The prompt's tokens, and those of the answer; NULL: its turn has not come yet. */
    int32_t *tokens;
    size_t n_tokens, capacity;
    size_t n_evaluated;
    size_t n_answered; /* sampled, the end token not counted */
    size_t n_cached;   /* of the prompt, not evaluated */
    size_t n_echoed;   /* of the prompt, given back */
    size_t n_forced;   /* of the tokens behind the last one that was sampled; not evaluated yet */
    size_t n_thought_tokens;
    size_t n_closed;          /* tokens given that end the thoughts, beyond the budget */
    size_t stop_mark;         /* the session's mark before what may be a stop string; 0: none */
    bool has_prompt;          /* evaluated once: choices of the same prompt find it */
    struct mf_srv_slot *slot; /* NULL: waits */
    struct mf_srv_slot *left; /* the place that it was put back from; NULL: none */
    mf_sampler *sampler;
    int32_t drawn;   /* the next token, if it was drawn already; else -1 */
    mf_guide *guide; /* what it must look like; NULL: anything */
    uint32_t *mask;  /* of tokens, with a guide */
    mf_decoder decoder;

    mf_reply *reply;       /* NULL: the answer is text alone */
    bool is_done;          /* nothing more is wanted of it: the one call that was allowed is made */
    bool is_broken;        /* a call in it could not be understood */
    mf_srv_bytes held;     /* content that may be a part of a stop string */
    mf_srv_bytes content;  /* released */
    mf_srv_bytes thoughts; /* released */
    mf_srv_made_call *calls; /* the same */
    size_t n_calls;
    mf_srv_part *parts; /* the same, in order */
    size_t n_parts;
    bool has_open_part;         /* the last one grows */
    mf_srv_token *infos;        /* of the tokens of the content */
    size_t n_infos, n_released; /* of them, released */
    size_t info_capacity;
    size_t n_content_bytes; /* of the content, held ones included */
    double logprob_sum;     /* of the tokens and its end; with n_best */
    size_t n_scored;        /* of these */

    mf_srv_finish finish;
    const char *stopped_by; /* the stop string */
    uint64_t first_us, last_us;
    uint64_t turn_us;    /* since when it runs, or waits */
    mf_srv_choice *next; /* in a queue */
};

/* An API's way to say what happens. Called by the scheduler's thread, or before the job is its. */
typedef struct mf_srv_protocol {
    const char *name; /* in statistics */
    const char *id_prefix;
    mf_srv_shape shape;
    bool has_thoughts; /* told apart from the content */
    /* Streams only; any may be NULL. */
    void (*begin)(mf_srv_job *job, mf_srv_bytes *out);
    void (*open)(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_part *part,
                 mf_srv_bytes *out);
    void (*close)(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_part *part,
                  mf_srv_bytes *out);
    void (*piece)(mf_srv_job *job, mf_srv_choice *choice, const mf_srv_piece *piece,
                  mf_srv_bytes *out);
    void (*finish)(mf_srv_job *job, mf_srv_choice *choice, mf_srv_bytes *out);
    void (*end)(mf_srv_job *job, mf_srv_bytes *out);
    void (*fail)(mf_srv_job *job, const mf_srv_refusal *refusal, mf_srv_bytes *out);
    /* Streamed or not: it has ended without an answer. refusal NULL: it was cancelled. */
    void (*drop)(mf_srv_job *job, const mf_srv_refusal *refusal);
    /* The whole answer as one document. */
    void (*document)(mf_srv_job *job, mf_srv_bytes *out);
} mf_srv_protocol;

/* How far a prompt has come in, and when it will have: by mf_srv_now_us, 0: not known. n_all 0:
 * none comes in. */
typedef struct mf_srv_reading {
    uint64_t n_done, n_all, end_us;
} mf_srv_reading;

struct mf_srv_job {
    int n_refs;             /* atomic */
    mf_srv_reading reading; /* each atomic, and of about one moment; of the choice told of last */
    const mf_srv_protocol *protocol;
    mf_srv_channel channel;
    mf_cancel cancel;
    char id[MF_SRV_ID_BYTES];
    int64_t created; /* seconds since 1970 */
    uint64_t arrived_us, deadline_us;
    uint64_t client; /* whose turn it is */
    char *model;     /* as the request names it */
    const struct mf_srv_model *served;
    mf_srv_params params;
    mf_guide *guide;        /* at the beginning, which each choice takes a copy of; NULL: none */
    char call_opening[256]; /* with a guide that begins where this text comes, each time; "": not */
    mf_srv_prompt *prompts;
    size_t n_prompts;
    mf_srv_choice *choices;               /* of prompt i / params.n_choices */
    size_t n_choices, n_finished, n_left; /* left: the scheduler */
    bool has_begun;                       /* atomic where others than the scheduler look */
    bool is_over;
    unsigned long sequence; /* of the protocol's events */
    /* Of the conversation: */
    mf_srv_bytes tools; /* as templates take them; data NULL: there are none to call */
    mf_srv_odd_tools odd;
    bool has_one_call;      /* an answer makes one at most */
    bool has_functions;     /* it is told in OpenAI's older form */
    bool has_context_edits; /* Anthropic's answer says which were made */
    uint32_t n_earlier_calls;
    /* Of a response: */
    mf_srv_bytes items;  /* its conversation's, as JSON without brackets */
    mf_srv_bytes echo;   /* what was asked, as it is told: ,"name":VALUE... */
    size_t key;          /* whose it is */
    bool is_kept;        /* others may go on from it */
    bool is_background;  /* it is made whether its client waits or not */
    mf_srv_log *log;     /* of such a one's events, if it is streamed; the channel's sink */
    mf_srv_job *follows; /* held: this is a connection that reads its log, and no job by itself */
    char conversation[MF_SRV_ID_BYTES]; /* which its items are added to; "": none */
    mf_srv_bytes own_items;             /* those to be added, as items */
    bool seals_thoughts;
};

/* prefix and twenty letters that nobody guesses, though they open nothing. */
void mf_srv_make_id(char id[MF_SRV_ID_BYTES], const char *prefix);

/* An empty job with one reference; NULL without memory. */
mf_srv_job *mf_srv_job_new(const struct mf_srv_model *served, const mf_srv_protocol *protocol);
void mf_srv_job_hold(mf_srv_job *job);
void mf_srv_job_drop(mf_srv_job *job);
/* Makes the choices of the prompts. False: no memory. */
bool mf_srv_job_prepare(mf_srv_job *job);
/* The text of a part. */
const char *mf_srv_part_text(const mf_srv_choice *choice, const mf_srv_part *part, size_t *n_bytes);

/* For the scheduler. */
/* The tokens of a choice whose turn has come. False: no memory. */
bool mf_srv_job_give_tokens(mf_srv_choice *choice);
void mf_srv_job_begin(mf_srv_job *job);
void mf_srv_job_piece(mf_srv_choice *choice, const mf_srv_piece *piece);
/* A call begins; the pieces of its arguments follow. */
void mf_srv_job_call(mf_srv_choice *choice, const char *id, const char *name);
void mf_srv_job_finish(mf_srv_choice *choice, mf_srv_finish finish);
void mf_srv_job_fail(mf_srv_job *job, const mf_srv_refusal *refusal);
/* Nobody wants it any more. */
void mf_srv_job_cancel(mf_srv_job *job);
void mf_srv_job_tell_reading(mf_srv_job *job, const mf_srv_reading *reading);
/* From any thread. */
mf_srv_reading mf_srv_job_reading(const mf_srv_job *job);

typedef struct mf_srv_usage {
    size_t n_prompt, n_cached, n_answer, n_thought;
} mf_srv_usage;
mf_srv_usage mf_srv_job_usage(const mf_srv_job *job);

#endif
