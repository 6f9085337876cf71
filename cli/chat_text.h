/* SPDX-License-Identifier: MIT */
/* Conversations by the model's template: messages as JSON, with tools and variables where they are
 * given. */
#ifndef MF_CLI_CHAT_TEXT_H
#define MF_CLI_CHAT_TEXT_H

#include "generate.h"
#include "message.h"

/* How the model's template writes thoughts and calls; of a generator with tokenizer. */
mf_status mf_cli_chat_learn(mf_cli_generator *g, mf_error *error);

/* The text of a conversation, with the beginning of the answer or without; nothing is printed. */
mf_status mf_cli_chat_text(const mf_cli_generator *g, const mf_cli_message *messages,
                           size_t n_messages, bool opens_answer, mf_cli_buffer *out,
                           mf_error *error);

/* Its tokens; what users wrote in it is text, whatever it looks like. */
mf_status mf_cli_chat_tokens(const mf_cli_generator *g, const mf_cli_message *messages,
                             size_t n_messages, bool opens_answer, mf_cli_prompt *out,
                             mf_error *error);
/* The same of messages that are JSON already, to be answered. */
mf_status mf_cli_chat_json_tokens(const mf_cli_generator *g, const char *messages,
                                  mf_cli_prompt *out, mf_error *error);

/* A file of JSON as a string; *out stays NULL where none is named. Prints the error; an exit code.
 */
int mf_cli_read_json(const char *file, mf_cli_buffer *buffer, const char **out);
/* Adds the option --set's NAME=JSON to the beginning of an object. An exit code. */
int mf_cli_add_variable(const mf_cli_parser *parser, const char *option, mf_cli_buffer *variables);
/* Closes that object; *out stays NULL where there is none. An exit code. */
int mf_cli_end_variables(mf_cli_buffer *variables, const char **out);

#endif
