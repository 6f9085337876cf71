/* SPDX-License-Identifier: MIT */
/* The one JSON object of `run --json`. */
#ifndef MF_CLI_ANSWER_JSON_H
#define MF_CLI_ANSWER_JSON_H

#include "answer.h"

/* On standard output, with its line's end: thoughts, content and calls taken apart as the model's
 * template writes them. */
void mf_cli_answer_json(const mf_cli_generator *g, const mf_cli_answer *answer, size_t n_prompt);

#endif
