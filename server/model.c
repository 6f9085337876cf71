/* SPDX-License-Identifier: MIT */
/* What a model's template says of how it answers. */
#include "model.h"

#include "template.h"

#include <string.h>

/* Of answers that may come back in a conversation. */
#define MAX_RECALL_BYTES ((size_t)64 << 20)

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

mf_status mf_srv_model_learn(mf_srv_model *m, mf_error *error)
{
    const size_t most = sizeof m->close_tokens / sizeof *m->close_tokens;
    const size_t most_ends = sizeof m->end_tokens / sizeof *m->end_tokens;
    mf_reply_form form;
    mf_srv_template_learn(m);
    if (!m->has_chat)
        return MF_OK;
    mf_status status = mf_reply_syntax_detect(m->tokenizer, NULL, &m->syntax, error);
    if (status != MF_OK)
        return status;
    mf_reply_form_of(m->syntax, &form);
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
