/* SPDX-License-Identifier: MIT */
/* Items as a conversation keeps them and tells them: each with an id, messages with their parts. */
#ifndef MF_SERVER_CONVERSATION_ITEMS_H
#define MF_SERVER_CONVERSATION_ITEMS_H

#include "bytes.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

/* Each false without memory. */
bool mf_srv_put_item(yyjson_val *item, mf_srv_bytes *out);
/* A text that a user says. */
bool mf_srv_put_user_item(yyjson_val *text, mf_srv_bytes *out);

/* Items without brackets, as an array. NULL: no memory. */
yyjson_doc *mf_srv_parse_items(const mf_srv_bytes *items);

#endif
