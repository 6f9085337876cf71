/* SPDX-License-Identifier: MIT */
/*
 * A conversation as messages, and the prompt that it makes: text by the model's template, tokens of
 * it, and the places up to which the prompts of later turns will be the same.
 */
#ifndef MF_CLI_CONVERSATION_H
#define MF_CLI_CONVERSATION_H

#include "answer.h"

typedef struct mf_cli_conversation {
    const mf_cli_generator *g;
    mf_cli_message *messages;
    size_t n_messages;
    size_t capacity;
    mf_cli_buffer text;  /* of the last prompt */
    mf_cli_buffer own;   /* the text of own_tokens */
    int32_t *own_tokens; /* the last prompt's and its answer's, as the model chose them */
    size_t n_own_tokens;
    size_t n_system_tokens; /* of the prompt: what every conversation with that message shares */
} mf_cli_conversation;

/* Zero-initialise, set g, clear. */

/* Back to nothing but the system message. False: no memory. */
bool mf_cli_conversation_clear(mf_cli_conversation *c);
void mf_cli_conversation_free(mf_cli_conversation *c);

/* Messages are exchanged; what the model chose itself is forgotten. */
void mf_cli_conversation_replace(mf_cli_conversation *c, mf_cli_conversation *other);

/* False: no memory. */
bool mf_cli_conversation_add(mf_cli_conversation *c, mf_cli_role role, const char *content);
/* Takes the message, whatever comes of it. */
bool mf_cli_conversation_take(mf_cli_conversation *c, mf_cli_message *message);
void mf_cli_conversation_take_back(mf_cli_conversation *c);

/* The prompt of the conversation as it stands; the caller frees its tokens. MF_ERR_ARGUMENT: the
 * template refuses the last message. */
mf_status mf_cli_conversation_prompt(mf_cli_conversation *c, mf_cli_prompt *out, mf_error *error);

/* How many calls of tools there were. */
uint32_t mf_cli_conversation_calls(const mf_cli_conversation *c);

/* Adds the model's answer to the last prompt, which the session holds but for the token that is
 * not evaluated; takes its message. False: no memory. */
bool mf_cli_conversation_answer(mf_cli_conversation *c, mf_cli_answer *answer);

#endif
