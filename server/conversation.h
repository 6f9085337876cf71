/* SPDX-License-Identifier: MIT */
/* Conversations as the three APIs send them, checked and brought into one form. */
#ifndef MF_SERVER_CONVERSATION_H
#define MF_SERVER_CONVERSATION_H

#include "fields.h"
#include "prompt.h"

/* messages of /v1/chat/completions. */
bool mf_srv_read_chat(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);
/* instructions and input of /v1/responses. */
bool mf_srv_read_responses(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);
/* system and messages of /v1/messages. */
bool mf_srv_read_messages(yyjson_val *object, mf_srv_conversation *c, mf_srv_refusal *r);

#endif
