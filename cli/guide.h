/* SPDX-License-Identifier: MIT */
/* What an answer must look like, for --json-schema and --grammar; nothing where neither is given.
 */
#ifndef MF_CLI_GUIDE_H
#define MF_CLI_GUIDE_H

#include <moeflux/moeflux.h>

#include <stdbool.h>

typedef struct mf_cli_guide {
    const mf_tokenizer *tokenizer;
    mf_vocabulary *vocabulary;
    mf_grammar *grammar; /* NULL: everything is allowed */
    mf_guide *guide;     /* of the answer that is being made */
    uint32_t *mask;
    size_t n_tokens;
} mf_cli_guide;

/* schema: a file's name, or the schema itself, which begins with "{"; grammar: a file's name.
 * syntax: of the answer, whose marks may stand before it; NULL: none. Either may be NULL. Prints
 * the error; returns an exit code. Close it in any case. */
int mf_cli_guide_open(mf_cli_guide *g, const mf_tokenizer *tokenizer, const mf_reply_syntax *syntax,
                      const char *schema, const char *grammar);
void mf_cli_guide_close(mf_cli_guide *g);

/* A new answer, of a model with n_tokens. thought_end: the answer begins within a thought, which
 * that text ends; NULL: it does not. */
mf_status mf_cli_guide_begin(mf_cli_guide *g, size_t n_tokens, const char *thought_end,
                             mf_error *error);
/* The sampler's choice among what is allowed, by the session's logits. */
mf_status mf_cli_guide_sample(mf_cli_guide *g, mf_sampler *sampler, const mf_session *session,
                              int32_t *token, mf_error *error);
/* A token of the answer, which may be another than the sampler's. */
mf_status mf_cli_guide_accept(mf_cli_guide *g, int32_t token, mf_error *error);
/* The one token that may come next; -1: the sampler chooses. */
mf_status mf_cli_guide_forced(mf_cli_guide *g, int32_t *token, mf_error *error);
/* The answer is whole, and nothing may follow it. */
bool mf_cli_guide_is_done(const mf_cli_guide *g);

#endif
