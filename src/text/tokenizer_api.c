/* SPDX-License-Identifier: MIT */
/* The public functions of the tokenizer and the chat template: they check the arguments and call.
 */
#include "base/sized.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

mf_status mf_tokenizer_open(const char *path, const mf_allocator *allocator, mf_tokenizer **out,
                            mf_error *error)
{
    if (path == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_tokenizer_open: path and out must not be NULL");
    mf_allocator a = mf_allocator_or_default(allocator);
    return mf_text_open(path, &a, out, error);
}

void mf_tokenizer_free(mf_tokenizer **tokenizer)
{
    if (tokenizer != NULL)
        mf_text_close(tokenizer);
}

mf_status mf_tokenizer_encode(const mf_tokenizer *tokenizer, const char *text, size_t n_bytes,
                              int parse_special, int32_t *tokens, size_t capacity, size_t *n_tokens,
                              mf_error *error)
{
    if (tokenizer == NULL || n_tokens == NULL || (text == NULL && n_bytes != 0) ||
        (tokens == NULL && capacity != 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_tokenizer_encode: a NULL argument");
    if (n_bytes > INT_MAX / 4)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_tokenizer_encode: %zu bytes of text, at most %d at once", n_bytes,
                       INT_MAX / 4);
    const mf_text_input input = {text, n_bytes, .parse_special = parse_special != 0};
    mf_token_list list = {tokens, capacity, 0};
    MF_TRY(mf_text_encode(tokenizer, &input, &list, error));
    *n_tokens = list.n_tokens;
    return MF_OK;
}

const char *mf_tokenizer_piece(const mf_tokenizer *tokenizer, int32_t token, size_t *n_bytes)
{
    size_t ignored;
    return mf_text_piece(tokenizer, token, n_bytes != NULL ? n_bytes : &ignored);
}

size_t mf_tokenizer_n_vocab(const mf_tokenizer *tokenizer)
{
    return tokenizer->bpe.n_ids;
}

int mf_tokenizer_is_end(const mf_tokenizer *tokenizer, int32_t token)
{
    for (size_t i = 0; i < tokenizer->n_end_tokens; i++)
        if (tokenizer->end_tokens[i] == token)
            return 1;
    return 0;
}

int32_t mf_tokenizer_start(const mf_tokenizer *tokenizer)
{
    return tokenizer->start_token;
}

int mf_tokenizer_is_special(const mf_tokenizer *tokenizer, int32_t token)
{
    return token >= 0 && (size_t)token < tokenizer->bpe.n_ids &&
           tokenizer->bpe.pieces[token].is_special;
}

mf_status mf_tokenizer_decode(const mf_tokenizer *tokenizer, mf_decoder *decoder, int32_t token,
                              char *text, size_t capacity, size_t *n_bytes)
{
    if (tokenizer == NULL || decoder == NULL || n_bytes == NULL || (text == NULL && capacity != 0))
        return MF_ERR_ARGUMENT;
    if (decoder->n_pending > sizeof decoder->pending)
        return MF_ERR_ARGUMENT;
    return mf_text_decode(tokenizer, decoder, token, text, capacity, n_bytes);
}

int mf_tokenizer_has_chat(const mf_tokenizer *tokenizer)
{
    return tokenizer->chat.is_known;
}

void mf_chat_params_init(mf_chat_params *params, size_t struct_bytes)
{
    const mf_chat_params defaults = {.add_generation_prompt = 1};
    mf_sized_init(params, struct_bytes, &defaults, sizeof defaults);
}

static mf_status take_params(const mf_chat_params *params, mf_chat_params *out, mf_error *error)
{
    mf_chat_params_default(out);
    return mf_sized_get(out, sizeof *out, params, "mf_chat_params", error);
}

static mf_status check_chat(const mf_chat_params *chat, mf_error *error)
{
    mf_thinking thinking = chat->thinking;
    if (chat->messages == NULL || chat->n_messages == 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "a conversation without messages");
    if (thinking != MF_THINKING_DEFAULT && thinking != MF_THINKING_ON &&
        thinking != MF_THINKING_OFF)
        return mf_fail(error, MF_ERR_ARGUMENT, "a conversation with unknown thinking %d",
                       (int)thinking);
    for (size_t i = 0; i < chat->n_messages; i++) {
        mf_chat_role role = chat->messages[i].role;
        if (chat->messages[i].content == NULL ||
            (role != MF_ROLE_SYSTEM && role != MF_ROLE_USER && role != MF_ROLE_ASSISTANT))
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "message %zu of a conversation has no content or an unknown role", i);
    }
    return MF_OK;
}

mf_status mf_chat_text(const mf_tokenizer *tokenizer, const mf_chat_params *params, char *text,
                       size_t capacity, size_t *n_bytes, mf_error *error)
{
    mf_chat_params chat;
    if (tokenizer == NULL || params == NULL || n_bytes == NULL || (text == NULL && capacity != 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_chat_text: a NULL argument");
    MF_TRY(take_params(params, &chat, error));
    MF_TRY(check_chat(&chat, error));
    return mf_chat_render(&tokenizer->chat, &chat, text, capacity, n_bytes, error);
}

/* Repairs text between and in the ranges apart, and moves them to where they then are, so that they
 * still end between characters. */
static mf_status repair(mf_buffer *out, const char *text, size_t n_bytes, mf_chat_contents *c,
                        mf_error *error)
{
    const unsigned char *from = (const unsigned char *)text;
    size_t at = 0;
    for (size_t i = 0; i <= 2 * c->n_ranges; i++) {
        mf_text_range *range = &c->ranges[i / 2];
        size_t *edge = i % 2 == 0 ? &range->start : &range->end;
        size_t end = i < 2 * c->n_ranges ? *edge : n_bytes;
        size_t n = mf_utf8_repair(from + at, end - at, NULL);
        MF_TRY(mf_buffer_reserve(out, out->n_bytes + n, "a conversation", error));
        out->n_bytes += mf_utf8_repair(from + at, end - at, out->data + out->n_bytes);
        if (i < 2 * c->n_ranges)
            *edge = out->n_bytes;
        at = end;
    }
    return MF_OK;
}

/* The tokens of a rendered conversation of n_bytes, for which there are text and ranges. */
static mf_status encode_chat(const mf_tokenizer *t, const mf_chat_params *chat, mf_buffer *text,
                             mf_chat_contents *contents, mf_token_list *out, mf_error *error)
{
    mf_buffer repaired;
    mf_status status;
    mf_buffer_init(&repaired, &t->allocator);
    MF_TRY_GOTO(
        mf_chat_render_marked(&t->chat, chat, (char *)text->data, text->n_bytes, contents, error));
    MF_TRY_GOTO(repair(&repaired, (const char *)text->data, text->n_bytes, contents, error));
    const mf_text_input input = {(const char *)repaired.data, repaired.n_bytes,
                                 .parse_special = true, .literal = contents->ranges,
                                 .n_literal = contents->n_ranges};
    MF_TRY_GOTO(mf_text_encode(t, &input, out, error));
fail:
    mf_buffer_free(&repaired);
    return status;
}

mf_status mf_chat_encode(const mf_tokenizer *tokenizer, const mf_chat_params *params,
                         int32_t *tokens, size_t capacity, size_t *n_tokens, mf_error *error)
{
    mf_chat_params chat;
    mf_token_list list = {tokens, capacity, 0};
    if (tokenizer == NULL || params == NULL || n_tokens == NULL ||
        (tokens == NULL && capacity != 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_chat_encode: a NULL argument");
    MF_TRY(take_params(params, &chat, error));
    MF_TRY(check_chat(&chat, error));
    const mf_allocator *a = &tokenizer->allocator;
    mf_buffer text;
    size_t n_bytes = 0;
    mf_status status;
    mf_buffer_init(&text, a);
    mf_chat_contents contents = {mf_alloc_array(a, chat.n_messages + 1, sizeof *contents.ranges),
                                 0};
    if (contents.ranges == NULL)
        MF_TRY_GOTO(mf_fail_memory(error, chat.n_messages * sizeof *contents.ranges, "messages"));
    MF_TRY_GOTO(mf_chat_render(&tokenizer->chat, &chat, NULL, 0, &n_bytes, error));
    if (n_bytes > INT_MAX / 4)
        MF_TRY_GOTO(mf_fail(error, MF_ERR_ARGUMENT, "a conversation of %zu bytes, at most %d",
                            n_bytes, INT_MAX / 4));
    MF_TRY_GOTO(mf_buffer_reserve(&text, n_bytes, "a conversation", error));
    text.n_bytes = n_bytes;
    MF_TRY_GOTO(encode_chat(tokenizer, &chat, &text, &contents, &list, error));
    *n_tokens = list.n_tokens;
fail:
    mf_buffer_free(&text);
    mf_free(a, contents.ranges, (chat.n_messages + 1) * sizeof *contents.ranges);
    return status;
}

mf_status mf_chat_format(const mf_tokenizer *tokenizer, const mf_chat_message *messages,
                         size_t n_messages, mf_thinking thinking, char *text, size_t capacity,
                         size_t *n_bytes, mf_error *error)
{
    mf_chat_params params;
    mf_chat_params_default(&params);
    params.messages = messages;
    params.n_messages = n_messages;
    params.thinking = thinking;
    return mf_chat_text(tokenizer, &params, text, capacity, n_bytes, error);
}
