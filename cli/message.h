/* SPDX-License-Identifier: MIT */
/*
 * A message of a conversation: what was said, thought and called, apart, and the JSON of it, for
 * templates and for files.
 */
#ifndef MF_CLI_MESSAGE_H
#define MF_CLI_MESSAGE_H

#include "input.h"
#include "json.h"

#include <moeflux/moeflux.h>

typedef enum mf_cli_role {
    MF_CLI_SYSTEM,
    MF_CLI_USER,
    MF_CLI_ASSISTANT,
    MF_CLI_TOOL /* the result of a call */
} mf_cli_role;

typedef struct mf_cli_call {
    mf_cli_buffer id, name;
    mf_cli_buffer arguments; /* an object of JSON, if the model wrote one */
} mf_cli_call;

/* Zero-initialise; free. */
typedef struct mf_cli_message {
    mf_cli_role role;
    mf_cli_buffer content, thoughts;
    mf_cli_call *calls;
    size_t n_calls;
    mf_cli_buffer call_id, name; /* of a tool: whose result it is */
} mf_cli_message;

void mf_cli_message_free(mf_cli_message *message);
/* Behind the other calls, empty; NULL: no memory. */
mf_cli_call *mf_cli_message_add_call(mf_cli_message *message);
void mf_cli_message_drop_call(mf_cli_message *message);
/* Bytes that templates and files cannot have become U+FFFD. False: no memory. */
bool mf_cli_message_clean(mf_cli_message *message);
bool mf_cli_clean(const mf_cli_buffer *text, mf_cli_buffer *out);

/* How a message is written: templates differ in what they take. */
enum {
    MF_CLI_WAY_TEXT_ARGUMENTS = 1,   /* of calls: as a string, as clients and files have them */
    MF_CLI_WAY_FULL_CONTENT = 2,     /* "" beside calls, not null */
    MF_CLI_WAY_CONTENT_THOUGHTS = 4, /* thoughts stand in the content, as <think> */
    MF_CLI_WAY_ALL_NAMES = 8         /* thoughts by all the names that templates have for them */
};

/* An array, an object a line. */
void mf_cli_messages_json(FILE *out, const mf_cli_message *messages, size_t n_messages,
                          unsigned ways);
/* {"id", "name", "arguments"}: of calls in the program's own output. */
void mf_cli_call_json(FILE *out, const mf_cli_call *call);

#endif
