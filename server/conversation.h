/* SPDX-License-Identifier: MIT */
/* Conversations as the three APIs send them, checked and brought into one form (message.h). */
#ifndef MF_SERVER_CONVERSATION_H
#define MF_SERVER_CONVERSATION_H

#include "fields.h"
#include "message.h"

/* Takes what failed turns left away and thoughts out of contents; something must stay. name: of
 * the field with the messages. */
bool mf_srv_conversation_finish(mf_srv_conversation *c, const char *name, mf_srv_refusal *r);

/* A content: a string, null, or an array of parts that are text. place: for refusals. */
bool mf_srv_read_content(yyjson_val *content, const char *place, mf_srv_message *m,
                         mf_srv_refusal *r);
/* One part, at an index of place. */
bool mf_srv_read_part(yyjson_val *part, const char *place, size_t i, mf_srv_message *m,
                      mf_srv_refusal *r);
/* What is said: any characters, U+0000 among them. */
bool mf_srv_read_text(yyjson_val *value, const char *place, mf_srv_bytes *to, mf_srv_refusal *r);
/* The array of messages is one, and not too long. */
bool mf_srv_check_messages(yyjson_val *array, const char *name, mf_srv_refusal *r);
bool mf_srv_read_role(yyjson_val *message, const char *name, size_t i, mf_srv_role *out,
                      mf_srv_refusal *r);

/* messages of /v1/chat/completions. */
bool mf_srv_read_chat(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);
/* instructions of /v1/responses and its items: a string, or an array that begins with n_earlier of
 * earlier responses. */
bool mf_srv_read_responses(yyjson_val *object, yyjson_val *items, size_t n_earlier,
                           mf_srv_conversation *c, mf_srv_refusal *r);
/* A list of items that a conversation begins or goes on with. */
bool mf_srv_read_items(yyjson_val *items, const char *name, mf_srv_conversation *c,
                       mf_srv_refusal *r);
/* system and messages of /v1/messages. */
bool mf_srv_read_messages(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);

/* tools, tool_choice, parallel_tool_calls, as each API has them. Without a choice of tools the
 * conversation has none. */
bool mf_srv_read_chat_tools(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);
/* Those among the items, too. */
bool mf_srv_read_responses_tools(yyjson_val *object, yyjson_val *items, mf_srv_conversation *c,
                                 mf_srv_refusal *r);
bool mf_srv_read_messages_tools(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);

/* chat_template_kwargs, thinking, reasoning_effort, reasoning. *budget: thinking.budget_tokens, or
 * SIZE_MAX. What the request does not say is as the model's server was told. */
bool mf_srv_read_thinking(yyjson_val *object, const struct mf_srv_model *model,
                          mf_srv_conversation *c, size_t *budget, mf_srv_refusal *r);
/* The defaults of a template's variables are an object that this takes. */
bool mf_srv_check_variables(const char *json, mf_error *error);
/* documents: objects. */
bool mf_srv_read_documents(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);

#endif
