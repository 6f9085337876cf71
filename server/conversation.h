/* SPDX-License-Identifier: MIT */
/*
 * Conversations as the three APIs send them, checked and brought into one form: what a chat
 * template may know of them, and nothing of how an API says it.
 */
#ifndef MF_SERVER_CONVERSATION_H
#define MF_SERVER_CONVERSATION_H

#include "fields.h"

typedef enum mf_srv_role {
    MF_SRV_SYSTEM,
    MF_SRV_USER,
    MF_SRV_ASSISTANT,
    MF_SRV_TOOL /* a call's result */
} mf_srv_role;

/* A call of a tool. Strings from malloc. */
typedef struct mf_srv_call {
    char *id; /* NULL: none */
    char *name;
    char *arguments; /* an object as JSON; what else a client sends stays what it is */
} mf_srv_call;

typedef struct mf_srv_message {
    mf_srv_role role;
    mf_srv_bytes content;  /* data NULL: none */
    mf_srv_bytes thoughts; /* the same */
    char *name;            /* who says it, from malloc; NULL: nobody in particular */
    char *call_id;         /* whose result it is, from malloc; NULL: not said */
    mf_srv_call *calls;    /* from malloc */
    size_t n_calls;
} mf_srv_message;

typedef struct mf_srv_conversation {
    mf_srv_message *messages; /* from malloc */
    size_t n_messages, capacity;
    /* JSON as templates take it, from malloc; data NULL: none. */
    mf_srv_bytes tools;     /* an array */
    mf_srv_bytes documents; /* an array */
    mf_srv_bytes variables; /* the members of an object, without its braces */
    const char *effort;     /* how much is thought, a word; NULL: not said. Static storage */
    mf_thinking thinking;
    bool has_one_call; /* an answer calls one tool at most */
} mf_srv_conversation;

/* A message more, empty. NULL: no memory, and the refusal says so. */
mf_srv_message *mf_srv_conversation_add(mf_srv_conversation *c, mf_srv_role role,
                                        mf_srv_refusal *r);
/* A call more of a message; id may be NULL. arguments[n_arguments]: JSON. */
bool mf_srv_message_call(mf_srv_message *m, const char *id, const char *name, const char *arguments,
                         size_t n_arguments, mf_srv_refusal *r);
/* Puts the messages from index on that are an answer's parts into one. */
bool mf_srv_message_append(mf_srv_message *m, mf_srv_message *from, const char *between,
                           mf_srv_refusal *r);
void mf_srv_message_free(mf_srv_message *m);
void mf_srv_conversation_free(mf_srv_conversation *c);
/* Takes what failed turns left away and thoughts out of contents; something must stay. name: of
 * the field with the messages. */
bool mf_srv_conversation_finish(mf_srv_conversation *c, const char *name, mf_srv_refusal *r);

/* A content: a string, null, or an array of parts that are text. place: for refusals. */
bool mf_srv_read_content(yyjson_val *content, const char *place, mf_srv_message *m,
                         mf_srv_refusal *r);
/* One part, at an index of place. */
bool mf_srv_read_part(yyjson_val *part, const char *place, size_t i, mf_srv_message *m,
                      mf_srv_refusal *r);
bool mf_srv_read_text(yyjson_val *value, const char *place, mf_srv_bytes *to, mf_srv_refusal *r);
/* The array of messages is one, and not too long. */
bool mf_srv_check_messages(yyjson_val *array, const char *name, mf_srv_refusal *r);
bool mf_srv_read_role(yyjson_val *message, const char *name, size_t i, mf_srv_role *out,
                      mf_srv_refusal *r);

/* messages of /v1/chat/completions. */
bool mf_srv_read_chat(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);
/* instructions and input of /v1/responses. */
bool mf_srv_read_responses(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);
/* system and messages of /v1/messages. */
bool mf_srv_read_messages(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);

/* tools, tool_choice, parallel_tool_calls, as each API has them. Without a choice of tools the
 * conversation has none. */
bool mf_srv_read_chat_tools(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);
bool mf_srv_read_responses_tools(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);
bool mf_srv_read_messages_tools(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);

/* chat_template_kwargs, thinking, reasoning_effort, reasoning. *budget: thinking.budget_tokens. */
bool mf_srv_read_thinking(yyjson_val *object, mf_srv_conversation *c, size_t *budget,
                          mf_srv_refusal *r);
/* documents: objects. */
bool mf_srv_read_documents(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);

#endif
