/* SPDX-License-Identifier: MIT */
/*
 * Prompts. The marks are where the next request will part from this one: found by writing the
 * conversation with another turn behind it, and with another first question, and comparing tokens.
 */
#include "prompt.h"

#include "model.h"

#include <stdlib.h>
#include <string.h>

#define THINK "<think>"
#define THINK_END "</think>"

void mf_srv_prompt_free(mf_srv_prompt *prompt)
{
    free(prompt->tokens);
    *prompt = (mf_srv_prompt){0};
}

bool mf_srv_conversation_add(mf_srv_conversation *c, mf_chat_role role, char *content)
{
    if (content && c->n_messages == c->capacity) {
        size_t capacity = c->capacity * 2 + 8;
        mf_srv_message *messages = realloc(c->messages, capacity * sizeof *messages);
        if (messages) {
            c->messages = messages;
            c->capacity = capacity;
        }
    }
    if (!content || c->n_messages == c->capacity) {
        free(content);
        return false;
    }
    c->messages[c->n_messages++] = (mf_srv_message){role, content};
    return true;
}

void mf_srv_conversation_free(mf_srv_conversation *c)
{
    for (size_t i = 0; i < c->n_messages; i++)
        free(c->messages[i].content);
    free(c->messages);
    *c = (mf_srv_conversation){0};
}

static bool no_memory(mf_srv_refusal *refusal)
{
    return mf_srv_refuse(refusal, 503, "out of memory for the prompt");
}

bool mf_srv_encode(const mf_srv_model *model, const char *text, size_t n_bytes, bool parse_special,
                   mf_srv_prompt *out, mf_srv_refusal *refusal)
{
    mf_error error = {0};
    size_t n = n_bytes + 2; /* a token is a byte at least, but for a changed character */
    for (;;) {
        size_t capacity = n;
        int32_t *tokens = malloc((capacity + 1) * sizeof *tokens);
        if (!tokens)
            return no_memory(refusal);
        mf_status status = mf_tokenizer_encode(model->tokenizer, text, n_bytes, parse_special,
                                               tokens, capacity, &n, &error);
        if (status == MF_OK && n <= capacity) {
            *out = (mf_srv_prompt){.tokens = tokens, .n_tokens = n};
            return true;
        }
        free(tokens);
        if (status != MF_OK)
            return mf_srv_refuse_status(refusal, status, &error);
    }
}

void mf_srv_prompt_mark_end(const mf_srv_model *model, mf_srv_prompt *prompt)
{
    /* The store keeps marks without logits, so the last token is to be evaluated again. It is one
     * mark or the other: a session's newest alone is sure to stay when memory for marks is short.
     */
    const bool is_before = model->store && prompt->n_tokens > 1;
    prompt->marks[prompt->n_marks++] = prompt->n_tokens - is_before;
}

bool mf_srv_prompt_text(const mf_srv_model *model, const char *text, size_t n_bytes,
                        mf_srv_prompt *out, mf_srv_refusal *refusal)
{
    if (!mf_srv_encode(model, text, n_bytes, true, out, refusal))
        return false;
    int32_t start = mf_tokenizer_start(model->tokenizer);
    if (start >= 0 && (out->n_tokens == 0 || out->tokens[0] != start)) {
        memmove(out->tokens + 1, out->tokens, out->n_tokens++ * sizeof *out->tokens);
        out->tokens[0] = start;
    }
    mf_srv_prompt_mark_end(model, out);
    return true;
}

/* ---------------------------------------------------------------------------- with a template --
 */

/* The messages as the library takes them, and others behind them. */
typedef struct writing {
    mf_chat_message *messages;
    mf_chat_params params;
} writing;

static bool begin_writing(writing *w, const mf_srv_conversation *c, size_t n_messages)
{
    w->messages = malloc((n_messages + 2) * sizeof *w->messages);
    for (size_t i = 0; w->messages && i < n_messages; i++)
        w->messages[i] = (mf_chat_message){c->messages[i].role, c->messages[i].content};
    mf_chat_params_default(&w->params);
    w->params.messages = w->messages;
    w->params.n_messages = n_messages;
    w->params.thinking = c->thinking;
    return w->messages != NULL;
}

static mf_status encode_chat(const mf_srv_model *model, const mf_chat_params *params,
                             mf_srv_prompt *out, mf_error *error)
{
    size_t n = 0;
    mf_status status = mf_chat_encode(model->tokenizer, params, NULL, 0, &n, error);
    if (status != MF_OK)
        return status;
    int32_t *tokens = malloc((n + 1) * sizeof *tokens);
    if (!tokens)
        return MF_ERR_NO_MEMORY;
    status = mf_chat_encode(model->tokenizer, params, tokens, n, &n, error);
    if (status == MF_OK)
        *out = (mf_srv_prompt){.tokens = tokens, .n_tokens = n};
    else
        free(tokens);
    return status;
}

static size_t n_common(const mf_srv_prompt *a, const mf_srv_prompt *b)
{
    size_t n = 0;
    while (n < a->n_tokens && n < b->n_tokens && a->tokens[n] == b->tokens[n])
        n++;
    return n;
}

/* How many tokens the prompt shares with this one; 0 where the template refuses it. */
static size_t n_shared(const mf_srv_model *model, const mf_chat_params *params,
                       const mf_srv_prompt *prompt)
{
    mf_srv_prompt other = {0};
    size_t n = 0;
    if (encode_chat(model, params, &other, NULL) == MF_OK)
        n = n_common(prompt, &other);
    mf_srv_prompt_free(&other);
    return n;
}

/* With the conversation's messages in w, which are changed. */
static void find_marks(const mf_srv_model *model, writing *w, mf_srv_prompt *prompt)
{
    const size_t n = w->params.n_messages;
    size_t at[2] = {0, 0};
    w->params.add_generation_prompt = 0;
    w->messages[n] = (mf_chat_message){MF_ROLE_ASSISTANT, "x"};
    w->messages[n + 1] = (mf_chat_message){MF_ROLE_USER, "x"};
    w->params.n_messages = n + 2;
    at[1] = n_shared(model, &w->params, prompt);
    if (n > 1 && w->messages[0].role == MF_ROLE_SYSTEM) {
        const char *first = w->messages[1].content;
        w->messages[1] = (mf_chat_message){MF_ROLE_USER, *first == 'x' ? "y" : "x"};
        w->params.n_messages = 2;
        at[0] = n_shared(model, &w->params, prompt);
    }
    for (size_t i = 0; i < 2; i++)
        if (at[i] > 0 && (prompt->n_marks == 0 || at[i] > prompt->marks[0]))
            prompt->marks[prompt->n_marks++] = at[i];
}

/* Does the prompt leave the model within its thoughts? */
static bool opens_thought(const mf_srv_model *model, const mf_srv_prompt *prompt)
{
    for (size_t i = prompt->n_tokens; model->has_thoughts && i-- > 0;) {
        size_t n = 0;
        const char *piece = mf_tokenizer_piece(model->tokenizer, prompt->tokens[i], &n);
        if (!piece)
            continue;
        if (n == sizeof THINK - 1 && memcmp(piece, THINK, n) == 0)
            return true;
        if (n == sizeof THINK_END - 1 && memcmp(piece, THINK_END, n) == 0)
            return false;
    }
    return false;
}

/* Templates that allow a system message at the start alone get later ones as a user's reminder. */
static bool move_reminders(writing *w, mf_srv_bytes *texts)
{
    bool has_moved = false;
    for (size_t i = 1; i < w->params.n_messages; i++) {
        mf_chat_message *m = &w->messages[i];
        if (m->role != MF_ROLE_SYSTEM)
            continue;
        mf_srv_printf(&texts[i], "<system-reminder>\n%s\n</system-reminder>", m->content);
        if (texts[i].has_failed)
            return false;
        *m = (mf_chat_message){MF_ROLE_USER, texts[i].data};
        has_moved = true;
    }
    return has_moved;
}

/* Of what the template takes: marks are looked for only in what is written for the model. */
static mf_status write_chat(const mf_srv_model *model, writing *w, mf_srv_prompt *out,
                            mf_srv_bytes *text, mf_error *error)
{
    if (!text) {
        mf_status status = encode_chat(model, &w->params, out, error);
        if (status == MF_OK)
            find_marks(model, w, out);
        return status;
    }
    size_t n = 0;
    mf_status status = mf_chat_text(model->tokenizer, &w->params, NULL, 0, &n, error);
    char *data = status == MF_OK ? malloc(n + 1) : NULL;
    if (status == MF_OK && !data)
        return MF_ERR_NO_MEMORY;
    if (data)
        status = mf_chat_text(model->tokenizer, &w->params, data, n, &n, error);
    if (status == MF_OK)
        mf_srv_put(text, data, n);
    free(data);
    return status;
}

static bool with_template(const mf_srv_model *model, const mf_srv_conversation *c,
                          size_t n_messages, mf_srv_prompt *out, mf_srv_bytes *text,
                          mf_srv_refusal *refusal)
{
    writing w;
    mf_error error = {0};
    mf_srv_bytes *reminders = calloc(n_messages + 1, sizeof *reminders);
    if (!begin_writing(&w, c, n_messages) || !reminders) {
        free(w.messages);
        free(reminders);
        return no_memory(refusal);
    }
    mf_status status = write_chat(model, &w, out, text, &error);
    if (status == MF_ERR_ARGUMENT && move_reminders(&w, reminders))
        status = write_chat(model, &w, out, text, &error);
    for (size_t i = 0; i < n_messages; i++)
        mf_srv_bytes_free(&reminders[i]);
    free(reminders);
    free(w.messages);
    if (status != MF_OK) {
        mf_srv_refuse_status(refusal, status, &error);
        strcpy(refusal->param, "messages");
    }
    return status == MF_OK;
}

/* ------------------------------------------------------------------------- without a template --
 */

/* Messages as paragraphs, for models that only go on writing. */
static void put_paragraphs(const mf_srv_conversation *c, mf_srv_bytes *out)
{
    for (size_t i = 0; i < c->n_messages; i++) {
        if (i > 0)
            mf_srv_puts(out, "\n\n");
        mf_srv_puts(out, c->messages[i].content);
    }
}

/* What users write in it is text, and nothing special. */
static bool paragraphs(const mf_srv_model *model, const mf_srv_conversation *c, mf_srv_prompt *out,
                       mf_srv_refusal *refusal)
{
    mf_srv_bytes text = {0};
    int32_t start = mf_tokenizer_start(model->tokenizer);
    put_paragraphs(c, &text);
    bool is_good = !text.has_failed || no_memory(refusal);
    is_good = is_good &&
              mf_srv_encode(model, text.data ? text.data : "", text.n_bytes, false, out, refusal);
    mf_srv_bytes_free(&text);
    if (is_good && start >= 0 && out->tokens) {
        memmove(out->tokens + 1, out->tokens, out->n_tokens++ * sizeof *out->tokens);
        out->tokens[0] = start;
    }
    if (is_good)
        mf_srv_prompt_mark_end(model, out);
    return is_good;
}

/* ---------------------------------------------------------------------------------------- both --
 */

static bool append_text(const mf_srv_model *model, const char *text, mf_srv_prompt *prompt,
                        mf_srv_refusal *refusal)
{
    mf_srv_prompt more = {0};
    if (!mf_srv_encode(model, text, strlen(text), false, &more, refusal))
        return false;
    int32_t *tokens =
        realloc(prompt->tokens, (prompt->n_tokens + more.n_tokens + 1) * sizeof *tokens);
    if (tokens) {
        if (more.n_tokens > 0 && more.tokens)
            memcpy(tokens + prompt->n_tokens, more.tokens, more.n_tokens * sizeof *tokens);
        prompt->tokens = tokens;
        prompt->n_tokens += more.n_tokens;
    }
    mf_srv_prompt_free(&more);
    return tokens || no_memory(refusal);
}

/* The text that the answer continues; NULL: none. */
static const char *continued(const mf_srv_conversation *c)
{
    const mf_srv_message *last = &c->messages[c->n_messages - 1];
    return c->n_messages > 1 && last->role == MF_ROLE_ASSISTANT ? last->content : NULL;
}

/* What is continued is no thought. */
static mf_srv_conversation without_last(const mf_srv_conversation *c)
{
    mf_srv_conversation shorter = *c;
    shorter.n_messages--;
    shorter.thinking = MF_THINKING_OFF;
    return shorter;
}

bool mf_srv_prompt_chat(const mf_srv_model *model, const mf_srv_conversation *c, mf_srv_prompt *out,
                        mf_srv_refusal *refusal)
{
    mf_srv_prompt prompt = {0};
    const char *text = model->has_chat ? continued(c) : NULL;
    bool is_good;
    if (!model->has_chat) {
        is_good = paragraphs(model, c, &prompt, refusal);
    } else if (text) {
        mf_srv_conversation shorter = without_last(c);
        is_good = with_template(model, &shorter, shorter.n_messages, &prompt, NULL, refusal) &&
                  append_text(model, text, &prompt, refusal);
    } else {
        is_good = with_template(model, c, c->n_messages, &prompt, NULL, refusal);
    }
    if (!is_good) {
        mf_srv_prompt_free(&prompt);
        return false;
    }
    prompt.opens_thought = opens_thought(model, &prompt);
    *out = prompt;
    return true;
}

bool mf_srv_prompt_chat_text(const mf_srv_model *model, const mf_srv_conversation *c,
                             mf_srv_bytes *out, mf_srv_refusal *refusal)
{
    const char *text = continued(c);
    mf_srv_prompt none = {0};
    if (!model->has_chat) {
        put_paragraphs(c, out);
    } else if (text) {
        mf_srv_conversation shorter = without_last(c);
        if (!with_template(model, &shorter, shorter.n_messages, &none, out, refusal))
            return false;
        mf_srv_puts(out, text);
    } else if (!with_template(model, c, c->n_messages, &none, out, refusal)) {
        return false;
    }
    return !out->has_failed || no_memory(refusal);
}
