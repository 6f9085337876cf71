/* SPDX-License-Identifier: MIT */
/* What a model's template says of how it answers. */
#include "model.h"

#include "template.h"

#include <string.h>

/* Of answers that may come back in a conversation. */
#define MAX_RECALL_BYTES ((size_t)64 << 20)

/* The model, and how it cuts texts: an answer's tokens are those of one vocabulary. */
static mf_status fingerprint(const mf_srv_model *m, uint8_t out[16], mf_error *error)
{
    const mf_srv_digest_key key = {{0, 0}};
    mf_srv_digest digest = {{0, 0}};
    mf_srv_bytes all = {0};
    uint8_t model[16];
    mf_status status = mf_engine_fingerprint(m->engine, model, error);
    if (status != MF_OK)
        return status;
    mf_srv_put(&all, (const char *)model, sizeof model);
    for (uint32_t i = 0; i < m->info.n_vocab; i++) {
        size_t n = 0;
        const char *piece = mf_tokenizer_piece(m->tokenizer, (int32_t)i, &n);
        mf_srv_put(&all, (const char *)&n, sizeof n);
        if (piece)
            mf_srv_put(&all, piece, n);
    }
    if (all.has_failed)
        status = MF_ERR_NO_MEMORY;
    else
        digest = mf_srv_digest_of(&key, all.data, all.n_bytes);
    mf_srv_bytes_free(&all);
    memcpy(out, &digest, sizeof digest);
    return status;
}

void mf_srv_model_remember(mf_srv_model *m, const mf_srv_recall_file_options *options)
{
    mf_srv_recall_file_options o = *options;
    mf_error error = {0};
    if (!m->recall)
        return;
    o.n_vocab = m->info.n_vocab;
    o.max_bytes = o.max_bytes < 2 * MAX_RECALL_BYTES ? o.max_bytes : 2 * MAX_RECALL_BYTES;
    mf_status status = fingerprint(m, o.model, &error);
    if (status == MF_OK)
        status = mf_srv_recall_file_open(&o, m->recall, &m->recall_file, &error);
    if (status != MF_OK && status != MF_ERR_UNSUPPORTED && o.log)
        o.log(o.log_user, MF_LOG_WARNING,
              error.message[0] != '\0' ? error.message : "no memory for kept answers");
}

/* The token that a text is; -1: it is none, or several. */
static int32_t token_of(const mf_srv_model *m, const char *text)
{
    size_t n = 0;
    int32_t token;
    return mf_tokenizer_encode(m->tokenizer, text, strlen(text), 1, &token, 1, &n, NULL) == MF_OK &&
                   n == 1
               ? token
               : -1;
}

/* By the texts that published models have for them. */
static void learn_gap(mf_srv_model *m)
{
    static const struct {
        const char *prefix, *suffix, *middle;
    } names[] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                 {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                 {"<\xEF\xBD\x9C"
                  "fim\xE2\x96\x81"
                  "begin\xEF\xBD\x9C>",
                  "<\xEF\xBD\x9C"
                  "fim\xE2\x96\x81"
                  "hole\xEF\xBD\x9C>",
                  "<\xEF\xBD\x9C"
                  "fim\xE2\x96\x81"
                  "end\xEF\xBD\x9C>"},
                 {"[PREFIX]", "[SUFFIX]", NULL}};
    m->gap = (mf_srv_gap){-1, -1, -1, false};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const mf_srv_gap gap = {token_of(m, names[i].prefix), token_of(m, names[i].suffix),
                                names[i].middle ? token_of(m, names[i].middle) : -1,
                                !names[i].middle};
        if (gap.prefix >= 0 && gap.suffix >= 0 && (gap.middle >= 0 || !names[i].middle)) {
            m->gap = gap;
            return;
        }
    }
}

mf_status mf_srv_model_learn(mf_srv_model *m, mf_error *error)
{
    const size_t most = sizeof m->close_tokens / sizeof *m->close_tokens;
    const size_t most_ends = sizeof m->end_tokens / sizeof *m->end_tokens;
    mf_reply_form form;
    m->responses = mf_srv_responses_new(MF_SRV_RESPONSE_BYTES);
    m->conversations = mf_srv_responses_new(MF_SRV_RESPONSE_BYTES);
    if (!m->responses || !m->conversations)
        return MF_ERR_NO_MEMORY;
    learn_gap(m);
    mf_srv_template_learn(m);
    if (!m->has_chat)
        return MF_OK;
    mf_status status = mf_reply_syntax_detect(m->tokenizer, NULL, &m->syntax, error);
    if (status != MF_OK)
        return status;
    mf_reply_form_of(m->syntax, &form);
    m->tells_tools = !m->shows_tools && strcmp(form.name, "plain") == 0;
    if (form.thought_close &&
        mf_tokenizer_encode(m->tokenizer, form.thought_close, strlen(form.thought_close), 1,
                            m->close_tokens, most, &m->n_close_tokens, NULL) != MF_OK)
        m->n_close_tokens = 0;
    if (m->n_close_tokens > most)
        m->n_close_tokens = 0;
    for (size_t i = 0; i < form.n_stops && m->n_end_tokens < most_ends; i++)
        if (token_of(m, form.stops[i]) >= 0)
            m->end_tokens[m->n_end_tokens++] = token_of(m, form.stops[i]);
    mf_srv_template_learn_ends(m);
    m->recall = mf_srv_recall_new(MAX_RECALL_BYTES);
    return m->recall ? MF_OK : MF_ERR_NO_MEMORY;
}
