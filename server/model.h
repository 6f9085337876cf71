/* SPDX-License-Identifier: MIT */
/* The model that is served: what all threads may look at, and nothing of it changes. */
#ifndef MF_SERVER_MODEL_H
#define MF_SERVER_MODEL_H

#include "guides.h"
#include "recall.h"
#include "recall_file.h"
#include "responses_kept.h"

#include <moeflux/moeflux.h>

#include <stdbool.h>

/* The tokens around what stands before and behind a gap that the model fills; all -1: it knows
 * none.
 */
typedef struct mf_srv_gap {
    int32_t prefix, suffix;
    int32_t middle;        /* the answer's beginning; -1: none, the answer follows the prefix */
    bool has_suffix_first; /* suffix, then prefix */
} mf_srv_gap;

typedef struct mf_srv_model {
    const char *path;
    char name[128]; /* what clients call it */
    int64_t created;
    mf_engine *engine;
    mf_tokenizer *tokenizer;
    mf_vocabulary *vocabulary; /* its tokens, for grammars */
    mf_srv_gap gap;
    mf_srv_guides *guides; /* grammars that were asked for; NULL: none are kept */
    mf_store *store;       /* NULL: none */
    mf_model_info info;
    double drive_rate;          /* bytes per second that the drive gave at the start; 0: unread */
    mf_sampler_options sampler; /* the model's own defaults */
    const char *variables;      /* of the template, where requests have none: JSON; NULL: none */
    mf_thinking thinking;       /* the same */
    size_t n_thought_max;       /* the same; SIZE_MAX: no bound */
    bool has_chat;              /* a template of conversations */
    bool shows_tools;           /* its template writes the tools that may be called */
    bool tells_tools;           /* it knows none: users' and the model's words are told of them */
    bool has_content_thoughts;  /* its template looks for thoughts in the content */
    mf_reply_syntax *syntax;    /* how it writes thoughts and calls; NULL: no template */
    /* What ends a thought that is too long. */
    int32_t close_tokens[16];
    size_t n_close_tokens;
    /* Those at which an answer is over, beside the tokenizer's. */
    int32_t end_tokens[8];
    size_t n_end_tokens;
    /* The texts of all that stand behind answers. */
    char end_texts[16][64];
    size_t n_end_texts;
    mf_srv_recall *recall;           /* answers that were given; NULL: none are kept */
    mf_srv_responses *responses;     /* that were given, or are being made, by id */
    mf_srv_responses *conversations; /* by id */
    mf_srv_recall_file *recall_file; /* where they outlive the server; NULL: nowhere */
} mf_srv_model;

/* How it thinks and calls, and where it ends: all from has_chat on but the sampler, by its
 * tokenizer. Errors: those of mf_reply_syntax_detect, MF_ERR_NO_MEMORY. */
mf_status mf_srv_model_learn(mf_srv_model *model, mf_error *error);
/* Whether an answer is over at the token. */
bool mf_srv_model_ends(const mf_srv_model *model, int32_t token);

/* Answers that an earlier server kept, in a file of at most max_bytes, and this one's from now on.
 * What hinders it is logged: it hinders nothing else. */
void mf_srv_model_remember(mf_srv_model *model, const mf_srv_recall_file_options *options);

#endif
