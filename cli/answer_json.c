/* SPDX-License-Identifier: MIT */
/* An answer as JSON. */
#include "answer_json.h"

#include "profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_usage(mf_cli_json *json, const mf_cli_generator *g, const mf_cli_answer *a,
                        size_t n_prompt)
{
    const size_t n_answer = a->tokens.n_bytes / sizeof(int32_t);
    mf_cli_json_key(json, "usage");
    mf_cli_json usage = mf_cli_json_begin(json->out);
    mf_cli_json_integer(&usage, "prompt_tokens", n_prompt);
    mf_cli_json_integer(&usage, "cached_tokens", g->stats.n_reused);
    mf_cli_json_integer(&usage, "completion_tokens", n_answer);
    mf_cli_json_integer(&usage, "thought_tokens", a->n_thought_tokens);
    mf_cli_json_integer(&usage, "total_tokens", n_prompt + n_answer);
    mf_cli_json_end_value(&usage);
}

/* The members of one token's object; the caller closes it. */
static mf_cli_json begin_token(const mf_cli_generator *g, FILE *out, const mf_logprob *one)
{
    size_t n_bytes = 0;
    const char *piece = mf_tokenizer_piece(g->tokenizer, one->token, &n_bytes);
    mf_cli_json json = mf_cli_json_begin(out);
    mf_cli_json_integer(&json, "id", (uint64_t)one->token);
    mf_cli_json_text(&json, "token", piece, n_bytes);
    mf_cli_json_number(&json, "logprob", (double)one->logprob);
    return json;
}

static void print_logprobs(mf_cli_json *json, const mf_cli_generator *g, const mf_cli_answer *a)
{
    const mf_logprob *all = (const mf_logprob *)(const void *)a->logprobs.data;
    const size_t n_each = g->args->n_logprobs + 1, n = a->logprobs.n_bytes / sizeof *all / n_each;
    mf_cli_json_key(json, "logprobs");
    fputc('[', json->out);
    for (size_t i = 0; i < n; i++, all += n_each) {
        fputs(i > 0 ? ", " : "", json->out);
        mf_cli_json token = begin_token(g, json->out, all);
        mf_cli_json_key(&token, "top");
        fputc('[', json->out);
        for (size_t k = 1; k < n_each && all[k].token >= 0; k++) {
            fputs(k > 1 ? ", " : "", json->out);
            mf_cli_json other = begin_token(g, json->out, &all[k]);
            mf_cli_json_end_value(&other);
        }
        fputc(']', json->out);
        mf_cli_json_end_value(&token);
    }
    fputc(']', json->out);
}

void mf_cli_answer_json(const mf_cli_generator *g, const mf_cli_answer *a, size_t n_prompt)
{
    static const char *const reasons[] = {[MF_STOP_END] = "end",
                                          [MF_STOP_STRING] = "stop",
                                          [MF_STOP_LENGTH] = "length",
                                          [MF_STOP_CONTEXT] = "context",
                                          [MF_STOP_INTERRUPTED] = "cancelled"};
    const mf_cli_message *m = &a->message;
    const bool is_calling = a->stop == MF_STOP_END && m->n_calls > 0;
    mf_cli_json json = mf_cli_json_begin(stdout);
    mf_cli_json_text(&json, "text", m->content.data, m->content.n_bytes);
    mf_cli_json_ids(&json, "tokens", (const int32_t *)(const void *)a->tokens.data,
                    a->tokens.n_bytes / sizeof(int32_t));
    mf_cli_json_string(&json, "finish_reason", is_calling ? "calls" : reasons[a->stop]);
    if (a->stopped_by)
        mf_cli_json_string(&json, "stop", a->stopped_by);
    mf_cli_json_text(&json, "thoughts", m->thoughts.data, m->thoughts.n_bytes);
    mf_cli_json_key(&json, "calls");
    fputc('[', stdout);
    for (size_t i = 0; i < m->n_calls; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        mf_cli_call_json(stdout, &m->calls[i]);
    }
    fputc(']', stdout);
    print_usage(&json, g, a, n_prompt);
    if (g->args->has_logprobs)
        print_logprobs(&json, g, a);
    mf_cli_seed_json(&json, &g->stats);
    mf_cli_json_key(&json, "stats");
    mf_cli_json stats = mf_cli_json_begin(stdout);
    mf_cli_run_stats_json(&stats, &g->stats);
    mf_cli_layers_json(&stats, g->engine);
    mf_cli_json_end_value(&stats);
    mf_cli_json_end(&json);
}
