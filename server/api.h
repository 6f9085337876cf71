/* SPDX-License-Identifier: MIT */
/* What the APIs' files share: the making of jobs, parts of answers, and the routes' functions. */
#ifndef MF_SERVER_API_H
#define MF_SERVER_API_H

#include "conversation.h"
#include "fields.h"
#include "http.h"

/* A job for the request, which holds it from then on; sampling and model are read. */
mf_srv_job *mf_srv_api_job(mf_srv_request *request, const mf_srv_protocol *protocol,
                           mf_srv_refusal *r);
/* Takes the prompt over. It must fit the context with room for an answer. */
bool mf_srv_api_add_prompt(mf_srv_job *job, mf_srv_prompt *prompt, mf_srv_refusal *r);
/* The conversation as the job's only prompt; frees it in any case. */
bool mf_srv_api_add_chat(mf_srv_job *job, mf_srv_conversation *c, mf_srv_refusal *r);
/* The last word: the job is ready. */
bool mf_srv_api_finish(mf_srv_job *job, mf_srv_refusal *r);
/* An API's reading of a request; what it has read is there to be freed in any case. */
typedef bool (*mf_srv_read_fn)(mf_srv_request *request, mf_srv_conversation *c,
                               size_t *n_thought_max, mf_srv_refusal *r);
/* How many tokens the request's conversation is. */
bool mf_srv_api_count(mf_srv_request *request, mf_srv_read_fn read, size_t *n_tokens,
                      mf_srv_refusal *r);

/* ,"name":VALUE */
void mf_srv_put_text_field(mf_srv_bytes *out, const char *name, const char *text);
/* OpenAI's usage of chat and completions: an object. */
void mf_srv_put_usage(const mf_srv_job *job, mf_srv_bytes *out);
/* A logarithm that JSON can hold. */
void mf_srv_put_logprob(mf_srv_bytes *out, float logprob);
/* The text of a token, as a JSON string. */
void mf_srv_put_token(const mf_srv_job *job, mf_srv_bytes *out, int32_t token);
/* What is odd about the tool that is called; NULL: nothing. */
const mf_srv_odd_tool *mf_srv_odd_of(const mf_srv_job *job, const mf_srv_made_call *call);
/* It takes a text. */
bool mf_srv_is_custom(const mf_srv_job *job, const mf_srv_made_call *call);
/* The text that a custom tool is called with, of its arguments; a JSON string. */
void mf_srv_put_input(mf_srv_bytes *out, const char *arguments, size_t n_bytes);
/* OpenAI's list of tokens with their logprobs and alternatives. */
void mf_srv_put_scores(const mf_srv_job *job, mf_srv_bytes *out, const mf_srv_token *tokens,
                       size_t n_tokens);
/* "stop" or "length". */
const char *mf_srv_finish_name(mf_srv_finish finish);
/* OpenAI's error as a stream's last event. */
void mf_srv_put_error_event(mf_srv_job *job, const mf_srv_refusal *refusal, mf_srv_bytes *out);

bool mf_srv_api_chat(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_completions(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_responses(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_responses_count(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_responses_compact(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_response(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_response_items(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_response_drop(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_response_cancel(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_conversation_new(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_conversation(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_conversation_change(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_conversation_drop(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_items(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_items_add(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_item(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_item_drop(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_messages(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_messages_count(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_tokenize(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_detokenize(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_template(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_models(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_model(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_health(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_probe(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_props(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_metrics(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_stats(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_experts(mf_srv_request *request, mf_srv_refusal *r);
bool mf_srv_api_page(mf_srv_request *request, mf_srv_refusal *r);

/* Of the figures: what does not count up. ,"memory":{...},"drive":{...},"model_info":{...} */
void mf_srv_put_facts(const mf_srv_server *server, mf_srv_bytes *out);

#endif
