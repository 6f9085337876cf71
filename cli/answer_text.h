/* SPDX-License-Identifier: MIT */
/*
 * An answer's text on its way to the screen: taken apart by the syntax of the model's template into
 * thoughts, content and calls, which are kept in the answer's message, and shown in one form for
 * all families: <think> and </think> around thoughts, <tool_call> around calls. With --raw text is
 * shown as the model writes it.
 */
#ifndef MF_CLI_ANSWER_TEXT_H
#define MF_CLI_ANSWER_TEXT_H

#include "answer.h"

/* Before the first token, of a session that holds the prompt. */
mf_status mf_cli_answer_begin(mf_cli_generator *g, mf_cli_answer *answer, mf_error *error);
/* A token that the answer has; where a stop string is whole, answer->stopped_by is set. 0, or the
 * errno of what cannot be written, as below. */
int mf_cli_answer_take(mf_cli_generator *g, mf_cli_answer *answer, int32_t token);
/* Nothing follows: what was held back is shown. */
int mf_cli_answer_end(mf_cli_generator *g, mf_cli_answer *answer);
bool mf_cli_answer_is_thinking(const mf_cli_answer *answer);
/* The calls of an earlier answer. */
int mf_cli_answer_show_calls(mf_cli_generator *g, const mf_cli_message *message);
/* Of what is dim nothing more comes. */
int mf_cli_answer_undim(mf_cli_generator *g);

#endif
