/* SPDX-License-Identifier: MIT */
/* Calls of the library's templates. */
#include "template.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The documents of a call. */
typedef struct call {
    mf_srv_bytes messages, variables;
    mf_chat_json_params params;
} call;

static void free_call(call *k)
{
    mf_srv_bytes_free(&k->messages);
    mf_srv_bytes_free(&k->variables);
}

/* How this model is told things. */
static unsigned own_ways(const mf_srv_model *model)
{
    return (model->has_content_thoughts ? MF_SRV_CONTENT_THOUGHTS : 0) |
           (model->tells_tools ? MF_SRV_TOLD_TOOLS : 0);
}

static mf_status begin_call(call *k, const mf_srv_writing *w, const mf_srv_message *messages,
                            size_t n, bool opens_answer)
{
    const mf_srv_conversation *c = w->conversation;
    const unsigned own = own_ways(w->model);
    *k = (call){{0}, {0}, {0}};
    mf_srv_put_messages(messages, n, w->ways | own, own & MF_SRV_TOLD_TOOLS ? c->tools.data : NULL,
                        &k->messages);
    mf_srv_put_variables(c, w->ways, &k->variables);
    mf_chat_json_params_default(&k->params);
    k->params.messages = k->messages.data;
    k->params.variables = k->variables.data;
    k->params.tools = c->tools.data;
    k->params.documents = c->documents.data;
    k->params.thinking = c->thinking;
    k->params.add_generation_prompt = opens_answer;
    k->params.now_seconds = w->now;
    if (!k->messages.has_failed && !k->variables.has_failed)
        return MF_OK;
    free_call(k);
    return MF_ERR_NO_MEMORY;
}

mf_status mf_srv_template_text(const mf_srv_writing *w, const mf_srv_message *messages, size_t n,
                               bool opens_answer, mf_srv_bytes *text, mf_error *error)
{
    call k;
    mf_status status = begin_call(&k, w, messages, n, opens_answer);
    /* a template's text is seldom longer than this */
    size_t n_bytes = k.messages.n_bytes + 2 * w->conversation->tools.n_bytes + 4096;
    char *data = NULL;
    for (size_t capacity = 0; status == MF_OK && (!data || n_bytes > capacity);) {
        capacity = n_bytes;
        free(data);
        data = malloc(capacity + 1);
        status = data ? mf_chat_json_text(w->model->tokenizer, &k.params, data, capacity, &n_bytes,
                                          error)
                      : MF_ERR_NO_MEMORY;
    }
    free_call(&k);
    if (status != MF_OK) {
        free(data);
        return status;
    }
    data[n_bytes] = '\0';
    mf_srv_bytes_free(text);
    *text = (mf_srv_bytes){.data = data, .n_bytes = n_bytes, .capacity = n_bytes + 1};
    return MF_OK;
}

mf_status mf_srv_template_tokens(const mf_srv_writing *w, const mf_srv_message *messages, size_t n,
                                 bool opens_answer, size_t n_skip, mf_srv_prompt *out,
                                 mf_error *error)
{
    call k;
    mf_status status = begin_call(&k, w, messages, n, opens_answer);
    size_t n_tokens = k.messages.n_bytes / 2 + w->conversation->tools.n_bytes + 4096;
    int32_t *tokens = NULL;
    k.params.n_skip_bytes = n_skip;
    for (size_t capacity = 0; status == MF_OK && (!tokens || n_tokens > capacity);) {
        capacity = n_tokens;
        free(tokens);
        tokens = malloc((capacity + 1) * sizeof *tokens);
        status = tokens ? mf_chat_json_encode(w->model->tokenizer, &k.params, tokens, capacity,
                                              &n_tokens, error)
                        : MF_ERR_NO_MEMORY;
    }
    free_call(&k);
    if (status == MF_OK)
        *out = (mf_srv_prompt){.tokens = tokens, .n_tokens = n_tokens};
    else
        free(tokens);
    return status;
}

static int n_ways(unsigned ways)
{
    int n = 0;
    for (; ways != 0; ways &= ways - 1)
        n++;
    return n;
}

mf_status mf_srv_template_begin(mf_srv_writing *w, size_t n_messages, bool opens_answer,
                                mf_srv_bytes *text, mf_error *error)
{
    const mf_srv_message *messages = w->conversation->messages;
    const unsigned useful = mf_srv_ways_of(w->conversation, own_ways(w->model));
    w->now = w->now != 0 ? w->now : (int64_t)time(NULL);
    w->ways = 0;
    mf_status first = mf_srv_template_text(w, messages, n_messages, opens_answer, text, error);
    mf_status status = first;
    for (int n = 1; n <= 3; n++) /* one other way, two, all */
        for (unsigned ways = 1; ways <= useful; ways++) {
            if (status != MF_ERR_ARGUMENT && status != MF_ERR_UNSUPPORTED)
                return status; /* it is done, or no other way helps */
            if ((ways & ~useful) != 0 || (n < 3 ? n_ways(ways) != n : ways != useful))
                continue;
            w->ways = ways;
            status = mf_srv_template_text(w, messages, n_messages, opens_answer, text, NULL);
        }
    return status == MF_OK ? MF_OK : first;
}

/* ---------------------------------------------------------------------------------- learning -- */

/* A text of a message that is not freed. */
static mf_srv_bytes lent(char *text)
{
    return (mf_srv_bytes){.data = text, .n_bytes = strlen(text)};
}

/* Whether what the template makes of an answer with thoughts has them: an answer that calls a tool,
 * or an earlier one, behind which a user speaks. */
static bool shows_thoughts(const mf_srv_model *model, bool calls, bool is_earlier)
{
    char question[] = "x", answer[] = "y", thought[] = "mfthought", name[] = "f", none[] = "{}";
    char id[] = "call00000";
    mf_srv_call use = {id, name, none};
    const mf_srv_message messages[] = {
        {.role = MF_SRV_USER, .content = lent(question)},
        {.role = MF_SRV_ASSISTANT,
         .content = lent(answer),
         .thoughts = lent(thought),
         .calls = &use,
         .n_calls = calls},
        {.role = calls ? MF_SRV_TOOL : MF_SRV_USER, .content = lent(question), .call_id = id}};
    const mf_srv_conversation c = {0};
    const mf_srv_writing w = {.model = model, .conversation = &c};
    const size_t n = calls || is_earlier ? 3 : 2;
    mf_srv_bytes text = {0};
    bool has = mf_srv_template_text(&w, messages, n, false, &text, NULL) == MF_OK &&
               strstr(text.data, thought) != NULL;
    mf_srv_bytes_free(&text);
    return has;
}

/* Templates that know thoughts in the content alone part them from it, and drop old ones. */
static bool wants_content_thoughts(mf_srv_model *model)
{
    model->has_content_thoughts = false;
    if (shows_thoughts(model, false, false) || shows_thoughts(model, true, false))
        return false;
    model->has_content_thoughts = true;
    return shows_thoughts(model, false, false) && !shows_thoughts(model, false, true);
}

/* Whether the model is told of tools. */
static bool shows_tools(const mf_srv_model *model)
{
    static const char name[] = "mftool";
    char question[] = "x";
    char tools[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"mftool\",\"description\":\"x\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";
    const mf_srv_message message = {.role = MF_SRV_USER, .content = lent(question)};
    const mf_srv_conversation c = {.tools = lent(tools)};
    const mf_srv_writing w = {.model = model, .conversation = &c};
    mf_srv_bytes text = {0};
    const bool shows = mf_srv_template_text(&w, &message, 1, true, &text, NULL) == MF_OK &&
                       strstr(text.data, name) != NULL;
    mf_srv_bytes_free(&text);
    return shows;
}

void mf_srv_template_learn(mf_srv_model *model)
{
    const mf_chat_message message = {MF_ROLE_USER, "x"};
    mf_chat_params params;
    size_t n = 0;
    mf_chat_params_default(&params);
    params.messages = &message;
    params.n_messages = 1;
    /* One that is not understood is one, too: its conversations are refused, and not guessed at. */
    model->has_chat =
        mf_chat_text(model->tokenizer, &params, NULL, 0, &n, NULL) != MF_ERR_NOT_FOUND;
    model->has_content_thoughts = model->has_chat && wants_content_thoughts(model);
    model->shows_tools = model->has_chat && shows_tools(model);
}

bool mf_srv_model_ends(const mf_srv_model *model, int32_t token)
{
    for (size_t i = 0; i < model->n_end_tokens; i++)
        if (model->end_tokens[i] == token)
            return true;
    return mf_tokenizer_is_end(model->tokenizer, token) != 0;
}

static void add_end(mf_srv_model *model, int32_t token)
{
    const size_t most = sizeof model->end_texts / sizeof *model->end_texts;
    size_t n = 0;
    const char *piece = mf_tokenizer_piece(model->tokenizer, token, &n);
    if (piece && n > 0 && n < sizeof *model->end_texts && model->n_end_texts < most)
        memcpy(model->end_texts[model->n_end_texts++], piece, n); /* it was all zeros */
}

/* The special token that the template writes behind an answer; -1: there is none. */
static int32_t token_behind_answer(const mf_srv_model *model)
{
    char question[] = "x", answer[] = "mfanswer";
    const mf_srv_message messages[] = {{.role = MF_SRV_USER, .content = lent(question)},
                                       {.role = MF_SRV_ASSISTANT, .content = lent(answer)},
                                       {.role = MF_SRV_USER, .content = lent(question)}};
    const mf_srv_conversation c = {0};
    const mf_srv_writing w = {.model = model, .conversation = &c};
    mf_srv_bytes text = {0};
    int32_t tokens[64], found = -1;
    size_t n = 0;
    if (mf_srv_template_text(&w, messages, 3, false, &text, NULL) != MF_OK)
        return -1;
    const char *at = strstr(text.data, answer);
    if (at && mf_tokenizer_encode(model->tokenizer, at + strlen(answer),
                                  strlen(at + strlen(answer)), 1, tokens, 64, &n, NULL) == MF_OK)
        for (size_t i = 0; i < n && i < 64 && found < 0; i++)
            if (mf_tokenizer_is_special(model->tokenizer, tokens[i]))
                found = tokens[i];
    mf_srv_bytes_free(&text);
    return found;
}

void mf_srv_template_learn_ends(mf_srv_model *model)
{
    const size_t n_vocab = mf_tokenizer_n_vocab(model->tokenizer);
    const int32_t behind = token_behind_answer(model);
    model->n_end_texts = 0;
    memset(model->end_texts, 0, sizeof model->end_texts);
    for (size_t i = 0; i < n_vocab; i++)
        if (mf_srv_model_ends(model, (int32_t)i) || (int32_t)i == behind)
            add_end(model, (int32_t)i);
}
