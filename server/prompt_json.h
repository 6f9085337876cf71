/* SPDX-License-Identifier: MIT */
/* Conversations as the JSON that templates get. */
#ifndef MF_SERVER_PROMPT_JSON_H
#define MF_SERVER_PROMPT_JSON_H

#include "message.h"

/* Ways to say the same, for templates that refuse the usual one; together in any number. */
enum {
    MF_SRV_TEXT_ARGUMENTS = 1, /* of calls: JSON in a string, not an object */
    MF_SRV_FULL_CONTENT = 2,   /* an empty string, not null */
    MF_SRV_REMINDERS = 4,      /* system messages later than the first: a user's */
    MF_SRV_MERGED = 8,         /* neighbours of one role are one message */
    MF_SRV_SHORT_IDS = 16,     /* of calls: nine letters and digits */
    MF_SRV_NO_EFFORT = 32,     /* without the word for how much is thought */
    MF_SRV_NO_THOUGHTS = 64,
    MF_SRV_ALL_WAYS = 127,
    /* The model's own ways: */
    MF_SRV_CONTENT_THOUGHTS = 128, /* thoughts in <think> before the content */
    MF_SRV_TOLD_TOOLS = 256 /* tools, calls and results as text, for a template that knows none */
};

/* Those of MF_SRV_ALL_WAYS that make a difference, beside the model's own. */
unsigned mf_srv_ways_of(const mf_srv_conversation *c, unsigned own);

/* The messages [n] as an array. tools: what MF_SRV_TOLD_TOOLS tells of, as templates take them;
 * NULL: none. */
void mf_srv_put_messages(const mf_srv_message *messages, size_t n, unsigned ways, const char *tools,
                         mf_srv_bytes *out);
/* The template's variables as an object. */
void mf_srv_put_variables(const mf_srv_conversation *c, unsigned ways, mf_srv_bytes *out);

#endif
