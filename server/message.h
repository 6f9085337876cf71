/* SPDX-License-Identifier: MIT */
/*
 * Messages in the one form that the APIs' become: what a chat template may know of them, and
 * nothing of how an API says it.
 */
#ifndef MF_SERVER_MESSAGE_H
#define MF_SERVER_MESSAGE_H

#include "refusal.h"

#include <moeflux/moeflux.h>

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
    /* The first part that the model cannot be shown, in whose place the content has a word: where
     * it stands, and its type. From malloc; NULL: there is none. */
    char *unseen, *unseen_type;
} mf_srv_message;

/* A tool that an API has by another form than a function. Strings from malloc. */
typedef struct mf_srv_odd_tool {
    char *name;     /* as the model is shown it */
    char *own;      /* the client's name for it; NULL: the same */
    char *space;    /* its group's name; NULL: none */
    bool is_custom; /* it takes a text, and no object */
} mf_srv_odd_tool;

typedef struct mf_srv_odd_tools {
    mf_srv_odd_tool *list; /* from malloc */
    size_t n;
} mf_srv_odd_tools;

typedef struct mf_srv_conversation {
    mf_srv_message *messages; /* from malloc */
    size_t n_messages, capacity;
    /* JSON as templates take it, from malloc; data NULL: none. */
    mf_srv_bytes tools;        /* an array */
    mf_srv_odd_tools odd;      /* those of the tools that are */
    mf_srv_bytes names;        /* of the tools as the model is shown them, each with its NUL */
    size_t last_name;          /* where the last of them begins */
    struct yyjson_val *listed; /* the list that is read; of the request */
    mf_srv_bytes documents;    /* an array */
    mf_srv_bytes variables;    /* the members of an object, without its braces */
    const char *effort;        /* how much is thought, a word; NULL: not said. Static storage */
    mf_thinking thinking;
    bool keeps_thoughts; /* of earlier turns: by the template's switch, or without it */
    bool has_functions;  /* the tools came as functions, OpenAI's older form, and so do calls */
    bool has_one_call;   /* an answer calls one tool at most */
    bool must_call;      /* and one at least */
    char *only_tool;     /* which, from malloc; NULL: any */
    mf_srv_bytes strict; /* of each tool '1' or '0': are its calls held to its schema? */
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
void mf_srv_odd_tools_free(mf_srv_odd_tools *odd);
void mf_srv_conversation_free(mf_srv_conversation *c);
#endif
