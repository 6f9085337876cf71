/* SPDX-License-Identifier: MIT */
/*
 * One model ready to answer: tokenizer, engine, session and sampler, and the prefill with its
 * progress bar. answer.h goes on from there; run and chat are built on both.
 */
#ifndef MF_CLI_GENERATE_H
#define MF_CLI_GENERATE_H

#include "guide.h"
#include "input.h"
#include "options.h"
#include "run_stats.h"
#include "sampling.h"
#include "screen.h"

#define MF_CLI_MAX_STOP_STRINGS 16
#define MF_CLI_MAX_LOGPROBS 20

/* What becomes of thoughts on their way to standard output. */
typedef enum mf_cli_thoughts {
    MF_THOUGHTS_DIM,
    MF_THOUGHTS_SHOW,
    MF_THOUGHTS_HIDE
} mf_cli_thoughts;

/* How to answer; the caller keeps it alive. */
typedef struct mf_cli_generate_args {
    mf_cli_engine_args engine;
    mf_cli_sampling sampling;
    const char *stops[MF_CLI_MAX_STOP_STRINGS]; /* an answer ends before them */
    size_t n_stops;
    uint64_t n_max_tokens; /* UINT64_MAX: as many as the context holds */
    bool ignore_end;       /* go on after an end token */
    bool raw;              /* no chat template */
    bool is_chat;          /* prompts will begin like those before them */
    bool is_silent;        /* answers are kept and not shown */
    mf_thinking thinking;
    mf_cli_thoughts thoughts;
    uint64_t n_thought_max; /* tokens of thoughts; UINT64_MAX: as many as come */
    bool has_logprobs;      /* are kept, with so many of the likeliest: */
    uint32_t n_logprobs;
    bool shows_prompt; /* each prompt as it is evaluated, on standard error */
    bool no_history;   /* a chat's lines are not kept for the next one */
    bool no_wrap;      /* the terminal breaks lines, wherever its edge is */
    mf_cli_color color;
    const char *system;      /* NULL: none */
    const char *json_schema; /* what the answer must look like: the schema or its file, */
    const char *grammar;     /* or a grammar's file; NULL: anything */
    const char *tools;       /* JSON, for the template, as the next; NULL: none */
    const char *variables;
    const char *resume;       /* a chat begins with this saved conversation; NULL: none */
    bool continues;           /* with the newest one */
    bool has_profile;         /* where time goes is wanted */
    bool has_forecast;        /* and how long a prompt will take, which takes measuring */
    const char *trace;        /* of the routing, to be recorded; NULL: none */
    const char *state_dir;    /* of a store; NULL: none */
    uint64_t state_dir_bytes; /* 0: the library's default */
} mf_cli_generate_args;

typedef struct mf_cli_generator {
    const mf_cli_generate_args *args;
    const char *model; /* its path, for messages */
    mf_tokenizer *tokenizer;
    mf_store *store; /* NULL without args->state_dir */
    mf_engine *engine;
    mf_session *session;
    mf_sampler *sampler;
    mf_cli_guide guide;
    mf_model_info info;
    int64_t now_seconds; /* what templates take for the time: prompts go on as they began */
    size_t n_context_tokens;
    mf_cli_run_stats stats;
    bool has_said_seed;
    mf_reply_syntax *syntax;  /* how the model writes thoughts and calls: */
    int32_t close_tokens[16]; /* what ends thoughts that are too long, */
    size_t n_close_tokens;
    char thought_end[64];  /* its text without blanks, */
    int32_t end_tokens[8]; /* and what ends answers beside the tokenizer's ends */
    size_t n_end_tokens;
    bool has_content_thoughts; /* the template looks for earlier ones in the content */
    mf_cli_screen screen;
    mf_cli_buffer shown;   /* scratch for decoding one token, */
    mf_cli_buffer escaped; /* and for showing the prompt */
} mf_cli_generator;

#define MF_CLI_MAX_STOPS 2

/* All tokens that the session is to hold, and how many of the first of them later prompts will
 * share: there a mark is made. */
typedef struct mf_cli_prompt {
    int32_t *tokens; /* from malloc */
    size_t n_tokens;
    size_t stops[MF_CLI_MAX_STOPS]; /* rising */
    size_t n_stops;
} mf_cli_prompt;

/* Prints the error; returns an exit code. Close it in any case. */
int mf_cli_generator_open(mf_cli_generator *g, const char *model, const mf_cli_generate_args *args);
void mf_cli_generator_close(mf_cli_generator *g);

/* True if a prompt of n_tokens fits the context. */
bool mf_cli_fits(const mf_cli_generator *g, size_t n_tokens);

/* Puts the tokenizer's start token, if it has one, before tokens of plain text that lack it. The
 * exit code says whether there was memory. */
int mf_cli_add_start(const mf_cli_generator *g, mf_cli_ids *ids);

/* Brings the session to the prompt: what it, its marks or the store hold of it is taken over,
 * the rest evaluated. MF_ERR_CANCELLED after Ctrl-C; any other failure has been printed. The
 * session then holds what was done of it, for the next prompt that begins like this one. */
mf_status mf_cli_prefill(mf_cli_generator *g, const mf_cli_prompt *prompt);

/* Puts what the session holds into the store, if there is one. A failure is a warning. */
void mf_cli_keep(mf_cli_generator *g);

/* Before the first answer: the seed, if it was drawn and matters. */
void mf_cli_say_seed(mf_cli_generator *g);

#endif
