/* SPDX-License-Identifier: MIT */
/*
 * Each turn the whole conversation is formatted. Its tokens are those of the whole text, but for
 * one case: where the text goes on from what the model itself wrote, and goes on with a special
 * token, which no merge crosses, the model's own choice of tokens stays and only the rest is
 * tokenised. Templates drop old thoughts and what opened them, so where later prompts part from
 * this one is asked of the template itself, with an answer and a question that stand for any.
 */
#include "conversation.h"

#include <stdlib.h>
#include <string.h>

static bool push(mf_cli_conversation *c, mf_chat_role role, const char *content)
{
    if (c->n_messages == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 16;
        mf_chat_message *messages = realloc(c->messages, capacity * sizeof *messages);
        if (!messages)
            return false;
        c->messages = messages;
        c->capacity = capacity;
    }
    char *copy = strdup(content);
    if (!copy)
        return false;
    c->messages[c->n_messages++] = (mf_chat_message){role, copy};
    return true;
}

void mf_cli_conversation_take_back(mf_cli_conversation *c)
{
    free((char *)c->messages[--c->n_messages].content);
}

static void forget_own(mf_cli_conversation *c)
{
    free(c->own_tokens);
    c->own_tokens = NULL;
    c->n_own_tokens = 0;
    mf_cli_buffer_clear(&c->own);
}

bool mf_cli_conversation_clear(mf_cli_conversation *c)
{
    while (c->n_messages > 0)
        mf_cli_conversation_take_back(c);
    forget_own(c);
    const char *system = c->g->args->system;
    return !system || push(c, MF_ROLE_SYSTEM, system);
}

void mf_cli_conversation_free(mf_cli_conversation *c)
{
    while (c->n_messages > 0)
        mf_cli_conversation_take_back(c);
    forget_own(c);
    free(c->messages);
    mf_cli_buffer_free(&c->text);
    mf_cli_buffer_free(&c->own);
}

bool mf_cli_conversation_ask(mf_cli_conversation *c, const char *question)
{
    return push(c, MF_ROLE_USER, question);
}

/* Token ids of text from a byte on. */
static mf_status encode_from(const mf_cli_conversation *c, const mf_cli_buffer *text, size_t from,
                             mf_cli_prompt *out, mf_error *error)
{
    *out = (mf_cli_prompt){0};
    return mf_cli_encode_text(c->g->tokenizer, text->data + from, text->n_bytes - from, true,
                              &out->tokens, &out->n_tokens, error);
}

static mf_status put_before(mf_cli_prompt *prompt, const int32_t *tokens, size_t n_tokens)
{
    int32_t *grown = realloc(prompt->tokens, (prompt->n_tokens + n_tokens) * sizeof *grown);
    if (!grown)
        return MF_ERR_NO_MEMORY;
    memmove(grown + n_tokens, grown, prompt->n_tokens * sizeof *grown);
    memcpy(grown, tokens, n_tokens * sizeof *grown);
    prompt->tokens = grown;
    prompt->n_tokens += n_tokens;
    return MF_OK;
}

static bool begins_with(const mf_cli_buffer *text, const mf_cli_buffer *start)
{
    return start->n_bytes > 0 && text->n_bytes > start->n_bytes &&
           memcmp(text->data, start->data, start->n_bytes) == 0;
}

/* The prompt's tokens; *n_own_bytes of its text are the model's own tokens. */
static mf_status encode_prompt(mf_cli_conversation *c, mf_cli_prompt *out, size_t *n_own_bytes,
                               mf_error *error)
{
    *n_own_bytes = 0;
    if (begins_with(&c->text, &c->own)) {
        mf_status status = encode_from(c, &c->text, c->own.n_bytes, out, error);
        if (status != MF_OK)
            return status;
        if (mf_tokenizer_is_special(c->g->tokenizer, out->tokens[0])) {
            *n_own_bytes = c->own.n_bytes;
            return put_before(out, c->own_tokens, c->n_own_tokens);
        }
        free(out->tokens);
    }
    return encode_from(c, &c->text, 0, out, error);
}

static size_t n_common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    size_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n])
        n++;
    return n;
}

/* How many of the prompt's tokens the text of `messages` begins with as well, of which the first
 * n_own stand for its first n_own_bytes. 0 also where the template refuses them. */
static size_t n_shared(const mf_cli_conversation *c, const mf_cli_prompt *prompt,
                       const mf_chat_message *messages, size_t n_messages, size_t n_own_bytes)
{
    mf_cli_buffer other = {0};
    mf_cli_prompt rest = {0};
    size_t n_own = n_own_bytes > 0 ? c->n_own_tokens : 0, n = 0;
    if (mf_cli_chat_text(c->g, messages, n_messages, false, &other, NULL) == MF_OK &&
        other.n_bytes > n_own_bytes && memcmp(other.data, c->text.data, n_own_bytes) == 0 &&
        encode_from(c, &other, n_own_bytes, &rest, NULL) == MF_OK)
        n = n_own +
            n_common(prompt->tokens + n_own, prompt->n_tokens - n_own, rest.tokens, rest.n_tokens);
    free(rest.tokens);
    mf_cli_buffer_free(&other);
    return n;
}

/* What is shared with another conversation after the same system message. */
static size_t n_shared_by_all(const mf_cli_conversation *c, const mf_cli_prompt *prompt)
{
    if (c->n_messages != 2 || c->messages[0].role != MF_ROLE_SYSTEM)
        return c->messages[0].role == MF_ROLE_SYSTEM ? c->n_system_tokens : 0;
    const char *other = *c->messages[1].content == 'x' ? "y" : "x";
    const mf_chat_message messages[] = {c->messages[0], {MF_ROLE_USER, other}};
    return n_shared(c, prompt, messages, 2, 0);
}

/* What is shared with the next turn, whatever the answer. */
static size_t n_shared_by_next(mf_cli_conversation *c, const mf_cli_prompt *prompt,
                               size_t n_own_bytes)
{
    size_t n = 0, n_messages = c->n_messages;
    if (push(c, MF_ROLE_ASSISTANT, "x") && push(c, MF_ROLE_USER, "x"))
        n = n_shared(c, prompt, c->messages, c->n_messages, n_own_bytes);
    while (c->n_messages > n_messages)
        mf_cli_conversation_take_back(c);
    return n;
}

mf_status mf_cli_conversation_prompt(mf_cli_conversation *c, mf_cli_prompt *out, mf_error *error)
{
    size_t n_own_bytes = 0;
    *out = (mf_cli_prompt){0};
    mf_status status = mf_cli_chat_text(c->g, c->messages, c->n_messages, false, &c->text, error);
    c->n_text_plain = c->text.n_bytes;
    if (status == MF_OK)
        status = mf_cli_chat_text(c->g, c->messages, c->n_messages, true, &c->text, error);
    if (status == MF_OK)
        status = encode_prompt(c, out, &n_own_bytes, error);
    if (status != MF_OK)
        return status;
    c->n_system_tokens = n_shared_by_all(c, out);
    size_t n_next = n_shared_by_next(c, out, n_own_bytes);
    if (c->n_system_tokens > 0 && c->n_system_tokens < n_next)
        out->stops[out->n_stops++] = c->n_system_tokens;
    if (n_next > 0)
        out->stops[out->n_stops++] = n_next;
    return MF_OK;
}

/* What the session holds, and its text. */
static bool keep_own(mf_cli_conversation *c, const mf_cli_buffer *answer, int32_t unevaluated)
{
    size_t n = mf_session_position(c->g->session);
    forget_own(c);
    c->own_tokens = malloc((n + 1) * sizeof *c->own_tokens);
    if (!c->own_tokens)
        return false;
    memcpy(c->own_tokens, mf_session_tokens(c->g->session), n * sizeof *c->own_tokens);
    c->own_tokens[n] = unevaluated;
    c->n_own_tokens = n + (unevaluated >= 0);
    return mf_cli_buffer_append(&c->own, c->text.data, c->text.n_bytes) &&
           mf_cli_buffer_append(&c->own, answer->data, answer->n_bytes);
}

/* Where the prompt left the model inside its thoughts and the answer ended there, the thoughts are
 * closed, so that the template knows them as such. */
bool mf_cli_conversation_answer(mf_cli_conversation *c, const mf_cli_buffer *answer,
                                int32_t unevaluated)
{
    const char *text = answer->data ? answer->data : "";
    const char *open = strstr(c->text.data + c->n_text_plain, "<think>");
    if (!keep_own(c, answer, unevaluated))
        return false;
    if (!open || strstr(open, "</think>") || strstr(text, "</think>"))
        return push(c, MF_ROLE_ASSISTANT, text);
    mf_cli_buffer closed = {0};
    bool kept = mf_cli_buffer_append(&closed, "<think>\n", 8) &&
                mf_cli_buffer_append(&closed, text, strlen(text)) &&
                mf_cli_buffer_append(&closed, "\n</think>\n\n", 11) &&
                push(c, MF_ROLE_ASSISTANT, closed.data);
    mf_cli_buffer_free(&closed);
    return kept;
}
