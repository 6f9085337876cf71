/* SPDX-License-Identifier: MIT */
/* What a client makes of a streamed answer, and how it sends it back, in each of the APIs. */
#ifndef MF_TEST_AGENT_ANSWER_H
#define MF_TEST_AGENT_ANSWER_H

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <stdbool.h>

typedef enum mf_agent_form { MF_AGENT_CHAT, MF_AGENT_MESSAGES, MF_AGENT_RESPONSES } mf_agent_form;

typedef struct mf_agent_answer {
    char *content, *thoughts, *signature; /* from malloc; NULL: none */
    bool has_call;                        /* one at most */
    char call_id[64], call_name[64];
    char *arguments;
    yyjson_doc *output; /* of responses: the items as they ended */
    long n_prompt, n_cached, n_answered;
} mf_agent_answer;

/* From the events. False: they are not those of an answer that ended well. */
bool mf_agent_read(mf_agent_form form, const char *events, mf_agent_answer *a);
/* Adds the answer to the history, as the log's client does (its fields "content_beside_calls" and
 * "thoughts_in_content"). */
void mf_agent_append(mf_agent_form form, const mf_agent_answer *a, yyjson_val *log,
                     yyjson_mut_doc *doc, yyjson_mut_val *history);
void mf_agent_answer_free(mf_agent_answer *a);

#endif
