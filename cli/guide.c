/* SPDX-License-Identifier: MIT */
/* Answers within a grammar. */
#include "guide.h"

#include "input.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)1 << 20)

static bool is_text(const char *schema)
{
    schema += strspn(schema, " \t\r\n");
    return *schema == '{';
}

static int read_text(const char *given, bool may_be_text, mf_cli_buffer *out)
{
    if (!may_be_text || !is_text(given))
        return mf_cli_read_file(given, MAX_BYTES, out);
    return mf_cli_buffer_append(out, given, strlen(given)) ? MF_EXIT_OK
                                                           : mf_cli_error("no memory for a schema");
}

int mf_cli_guide_open(mf_cli_guide *g, const mf_tokenizer *tokenizer, const mf_reply_syntax *syntax,
                      const char *schema, const char *grammar)
{
    mf_cli_buffer text = {0};
    mf_grammar_params params;
    mf_error error = {0};
    g->tokenizer = tokenizer;
    if (!schema && !grammar)
        return MF_EXIT_OK;
    int status = read_text(schema ? schema : grammar, schema != NULL, &text);
    mf_grammar_params_default(&params);
    params.syntax = syntax;
    if (schema) {
        params.json_schema = text.data;
        params.n_schema_bytes = text.n_bytes;
    } else {
        params.gbnf = text.data;
        params.n_gbnf_bytes = text.n_bytes;
    }
    mf_status made = MF_OK;
    if (status == MF_EXIT_OK)
        made = mf_vocabulary_create(tokenizer, NULL, &g->vocabulary, &error);
    if (status == MF_EXIT_OK && made == MF_OK)
        made = mf_grammar_compile(g->vocabulary, &params, &g->grammar, &error);
    mf_cli_buffer_free(&text);
    if (made == MF_OK)
        return status;
    const char *file = grammar ? grammar : is_text(schema) ? NULL : schema;
    return file && error.message[0] != '\0' ? mf_cli_error("%s: %s", file, error.message)
                                            : mf_cli_fail(made, &error);
}

void mf_cli_guide_close(mf_cli_guide *g)
{
    mf_guide_free(&g->guide);
    mf_grammar_free(&g->grammar);
    mf_vocabulary_free(&g->vocabulary);
    free(g->mask);
}

mf_status mf_cli_guide_begin(mf_cli_guide *g, size_t n_tokens, const char *thought_end,
                             mf_error *error)
{
    if (!g->grammar)
        return MF_OK;
    g->n_tokens = n_tokens;
    if (!g->mask)
        g->mask = malloc((n_tokens + 31) / 32 * sizeof *g->mask);
    if (!g->mask)
        return MF_ERR_NO_MEMORY;
    mf_guide_free(&g->guide);
    mf_status status = mf_guide_create(g->grammar, &g->guide, error);
    if (status == MF_OK && thought_end)
        status = mf_guide_begin_after(g->guide, thought_end, 0, 2, error);
    return status;
}

mf_status mf_cli_guide_sample(mf_cli_guide *g, mf_sampler *sampler, const mf_session *session,
                              int32_t *token, mf_error *error)
{
    const float *logits = mf_session_logits(session), *bounds = mf_session_bounds(session);
    if (!g->grammar) {
        *token = mf_sampler_sample_bounded(sampler, logits, bounds, NULL);
        return MF_OK;
    }
    mf_status status = mf_guide_mask(g->guide, g->mask, g->n_tokens, NULL, error);
    if (status != MF_OK)
        return status;
    *token = mf_sampler_sample_bounded(sampler, logits, bounds, g->mask);
    return MF_OK;
}

mf_status mf_cli_guide_accept(mf_cli_guide *g, int32_t token, mf_error *error)
{
    return g->grammar ? mf_guide_accept(g->guide, token, error) : MF_OK;
}

mf_status mf_cli_guide_forced(mf_cli_guide *g, int32_t *token, mf_error *error)
{
    *token = -1;
    return g->grammar ? mf_guide_forced(g->guide, token, error) : MF_OK;
}

bool mf_cli_guide_is_done(const mf_cli_guide *g)
{
    return g->grammar && mf_guide_is_done(g->guide);
}
