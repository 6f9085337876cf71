/* SPDX-License-Identifier: MIT */
/*
 * Each turn the whole conversation is formatted. Its tokens are those of the whole text, but for
 * one case: where the text goes on from what the model itself wrote, and goes on with a special
 * token, which no merge crosses, the model's own choice of tokens stays. Templates drop old
 * thoughts and what opened them, so where later prompts part from this one is asked of the template
 * itself, with an answer and a question that stand for any.
 */
#include "conversation.h"

#include "chat_text.h"

#include <stdlib.h>
#include <string.h>

static mf_cli_message *push(mf_cli_conversation *c)
{
    if (c->n_messages == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 16;
        mf_cli_message *messages = realloc(c->messages, capacity * sizeof *messages);
        if (!messages)
            return NULL;
        c->messages = messages;
        c->capacity = capacity;
    }
    c->messages[c->n_messages] = (mf_cli_message){0};
    return &c->messages[c->n_messages++];
}

void mf_cli_conversation_take_back(mf_cli_conversation *c)
{
    mf_cli_message_free(&c->messages[--c->n_messages]);
}

bool mf_cli_conversation_add(mf_cli_conversation *c, mf_cli_role role, const char *content)
{
    mf_cli_message *message = push(c);
    if (!message)
        return false;
    message->role = role;
    if (mf_cli_buffer_append(&message->content, content, strlen(content)))
        return true;
    mf_cli_conversation_take_back(c);
    return false;
}

bool mf_cli_conversation_take(mf_cli_conversation *c, mf_cli_message *message)
{
    mf_cli_message *own = push(c);
    if (own)
        *own = *message;
    else
        mf_cli_message_free(message);
    *message = (mf_cli_message){0};
    return own != NULL;
}

uint32_t mf_cli_conversation_calls(const mf_cli_conversation *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_messages; i++)
        n += c->messages[i].n_calls;
    return (uint32_t)n;
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
    return !system || mf_cli_conversation_add(c, MF_CLI_SYSTEM, system);
}

void mf_cli_conversation_replace(mf_cli_conversation *c, mf_cli_conversation *other)
{
    mf_cli_message *messages = c->messages;
    const size_t n_messages = c->n_messages, capacity = c->capacity;
    c->messages = other->messages;
    c->n_messages = other->n_messages;
    c->capacity = other->capacity;
    other->messages = messages;
    other->n_messages = n_messages;
    other->capacity = capacity;
    c->n_system_tokens = 0;
    forget_own(c);
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

static size_t n_common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    size_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n])
        n++;
    return n;
}

/* How many of the prompt's tokens the messages begin with as well, without the beginning of an
 * answer. 0 also where the template refuses them. */
static size_t n_shared(const mf_cli_conversation *c, const mf_cli_prompt *prompt,
                       const mf_cli_message *messages, size_t n_messages)
{
    mf_cli_prompt other = {0};
    size_t n = 0;
    if (mf_cli_chat_tokens(c->g, messages, n_messages, false, &other, NULL) == MF_OK)
        n = n_common(prompt->tokens, prompt->n_tokens, other.tokens, other.n_tokens);
    free(other.tokens);
    return n;
}

/* What is shared with another conversation after the same system message. */
static size_t n_shared_by_all(const mf_cli_conversation *c, const mf_cli_prompt *prompt)
{
    if (c->n_messages != 2 || c->messages[0].role != MF_CLI_SYSTEM)
        return c->messages[0].role == MF_CLI_SYSTEM ? c->n_system_tokens : 0;
    char other[] = "x";
    *other = *c->messages[1].content.data == 'x' ? 'y' : 'x';
    const mf_cli_message messages[] = {
        c->messages[0], {.role = MF_CLI_USER, .content = {.data = other, .n_bytes = 1}}};
    return n_shared(c, prompt, messages, 2);
}

/* What is shared with the next turn, whatever the answer. */
static size_t n_shared_by_next(mf_cli_conversation *c, const mf_cli_prompt *prompt)
{
    size_t n = 0, n_messages = c->n_messages;
    if (mf_cli_conversation_add(c, MF_CLI_ASSISTANT, "x") &&
        mf_cli_conversation_add(c, MF_CLI_USER, "x"))
        n = n_shared(c, prompt, c->messages, c->n_messages);
    while (c->n_messages > n_messages)
        mf_cli_conversation_take_back(c);
    return n;
}

/* The prompt's first token that stands for its last n_bytes of text, if it is a special one, which
 * no merge crosses; else the number of its tokens. Where the tokenizer changes text (NFC) none is
 * found, which costs time and nothing else. */
static size_t special_at(const mf_cli_conversation *c, const mf_cli_prompt *prompt, size_t n_bytes)
{
    size_t at = prompt->n_tokens, n_piece = 0;
    for (size_t n = 0; n < n_bytes && at > 0; n += n_piece)
        if (!mf_tokenizer_piece(c->g->tokenizer, prompt->tokens[--at], &n_piece))
            return prompt->n_tokens;
        else if (n + n_piece == n_bytes)
            return mf_tokenizer_is_special(c->g->tokenizer, prompt->tokens[at]) ? at
                                                                                : prompt->n_tokens;
    return prompt->n_tokens;
}

/* Puts the model's own tokens in place of the prompt's first n, which stand for the same text.
 * Stops before their end are no later than where both are the same. */
static mf_status use_own_tokens(const mf_cli_conversation *c, mf_cli_prompt *prompt, size_t n)
{
    size_t n_rest = prompt->n_tokens - n;
    int32_t *tokens = malloc((c->n_own_tokens + n_rest) * sizeof *tokens);
    if (!tokens)
        return MF_ERR_NO_MEMORY;
    memcpy(tokens, c->own_tokens, c->n_own_tokens * sizeof *tokens);
    memcpy(tokens + c->n_own_tokens, prompt->tokens + n, n_rest * sizeof *tokens);
    const size_t n_same = n_common(c->own_tokens, c->n_own_tokens, prompt->tokens, n);
    for (size_t i = 0; i < prompt->n_stops; i++) {
        size_t *stop = &prompt->stops[i];
        if (*stop >= n)
            *stop = *stop - n + c->n_own_tokens;
        else if (*stop > n_same)
            *stop = n_same;
    }
    free(prompt->tokens);
    prompt->tokens = tokens;
    prompt->n_tokens = c->n_own_tokens + n_rest;
    return MF_OK;
}

static bool begins_with(const mf_cli_buffer *text, const mf_cli_buffer *start)
{
    return start->n_bytes > 0 && text->n_bytes > start->n_bytes &&
           memcmp(text->data, start->data, start->n_bytes) == 0;
}

mf_status mf_cli_conversation_prompt(mf_cli_conversation *c, mf_cli_prompt *out, mf_error *error)
{
    *out = (mf_cli_prompt){0};
    mf_status status = mf_cli_chat_text(c->g, c->messages, c->n_messages, true, &c->text, error);
    if (status == MF_OK)
        status = mf_cli_chat_tokens(c->g, c->messages, c->n_messages, true, out, error);
    if (status != MF_OK)
        return status;
    c->n_system_tokens = n_shared_by_all(c, out);
    size_t n_next = n_shared_by_next(c, out);
    if (c->n_system_tokens > 0 && c->n_system_tokens < n_next)
        out->stops[out->n_stops++] = c->n_system_tokens;
    if (n_next > 0)
        out->stops[out->n_stops++] = n_next;
    if (!begins_with(&c->text, &c->own))
        return MF_OK;
    size_t n = special_at(c, out, c->text.n_bytes - c->own.n_bytes);
    return n < out->n_tokens ? use_own_tokens(c, out, n) : MF_OK;
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

/* Of an answer that a stop string cut, the session holds more than the text. */
bool mf_cli_conversation_answer(mf_cli_conversation *c, mf_cli_answer *answer)
{
    mf_cli_buffer text = {0};
    bool is_good = mf_cli_clean(&answer->raw, &text);
    if (answer->stopped_by)
        forget_own(c);
    else if (is_good)
        is_good = keep_own(c, &text, answer->unevaluated);
    mf_cli_buffer_free(&text);
    return is_good && mf_cli_message_clean(&answer->message) &&
           mf_cli_conversation_take(c, &answer->message);
}
