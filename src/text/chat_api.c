/* SPDX-License-Identifier: MIT */
/* The public functions of conversations: they check the arguments and call. */
#include "base/sized.h"
#include "text/tokenizer.h"

#include <limits.h>

int mf_tokenizer_has_chat(const mf_tokenizer *tokenizer)
{
    return mf_chat_is_usable(&tokenizer->chat);
}

void mf_chat_params_init(mf_chat_params *params, size_t struct_bytes)
{
    const mf_chat_params defaults = {.add_generation_prompt = 1};
    mf_sized_init(params, struct_bytes, &defaults, sizeof defaults);
}

void mf_chat_json_params_init(mf_chat_json_params *params, size_t struct_bytes)
{
    const mf_chat_json_params defaults = {.add_generation_prompt = 1};
    mf_sized_init(params, struct_bytes, &defaults, sizeof defaults);
}

static mf_status check_thinking(mf_thinking thinking, mf_error *error)
{
    if (thinking != MF_THINKING_DEFAULT && thinking != MF_THINKING_ON &&
        thinking != MF_THINKING_OFF)
        return mf_fail(error, MF_ERR_ARGUMENT, "a conversation with unknown thinking %d",
                       (int)thinking);
    return MF_OK;
}

static mf_status check_chat(const mf_chat_params *chat, mf_error *error)
{
    if (chat->messages == NULL || chat->n_messages == 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "a conversation without messages");
    MF_TRY(check_thinking(chat->thinking, error));
    for (size_t i = 0; i < chat->n_messages; i++) {
        mf_chat_role role = chat->messages[i].role;
        if (chat->messages[i].content == NULL ||
            (role != MF_ROLE_SYSTEM && role != MF_ROLE_USER && role != MF_ROLE_ASSISTANT))
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "message %zu of a conversation has no content or an unknown role", i);
    }
    return MF_OK;
}

/* A conversation in either form. */
static mf_status render(const mf_tokenizer *tokenizer, const mf_chat_params *plain,
                        const mf_chat_json_params *json, mf_jinja_output *out, mf_error *error)
{
    mf_chat_params chat;
    mf_chat_json_params given;
    if (plain != NULL) {
        mf_chat_params_default(&chat);
        MF_TRY(mf_sized_get(&chat, sizeof chat, plain, "mf_chat_params", error));
        MF_TRY(check_chat(&chat, error));
        return mf_chat_render(&tokenizer->chat, &chat, out, error);
    }
    mf_chat_json_params_default(&given);
    MF_TRY(mf_sized_get(&given, sizeof given, json, "mf_chat_json_params", error));
    MF_TRY(check_thinking(given.thinking, error));
    if (given.messages == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "a conversation without messages");
    return mf_chat_render_json(&tokenizer->chat, &given, out, error);
}

/* Gives out as much of a rendered conversation as fits. */
static void copy_text(mf_jinja_output *from, char *text, size_t capacity, size_t *n_bytes)
{
    size_t n = from->n_bytes < capacity ? from->n_bytes : capacity;
    if (n != 0)
        memcpy(text, from->text, n);
    *n_bytes = from->n_bytes;
    mf_jinja_output_free(from);
}

mf_status mf_chat_text(const mf_tokenizer *tokenizer, const mf_chat_params *params, char *text,
                       size_t capacity, size_t *n_bytes, mf_error *error)
{
    mf_jinja_output out = {0};
    if (tokenizer == NULL || params == NULL || n_bytes == NULL || (text == NULL && capacity != 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_chat_text: a NULL argument");
    MF_TRY(render(tokenizer, params, NULL, &out, error));
    copy_text(&out, text, capacity, n_bytes);
    return MF_OK;
}

mf_status mf_chat_json_text(const mf_tokenizer *tokenizer, const mf_chat_json_params *params,
                            char *text, size_t capacity, size_t *n_bytes, mf_error *error)
{
    mf_jinja_output out = {0};
    if (tokenizer == NULL || params == NULL || n_bytes == NULL || (text == NULL && capacity != 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_chat_json_text: a NULL argument");
    MF_TRY(render(tokenizer, NULL, params, &out, error));
    copy_text(&out, text, capacity, n_bytes);
    return MF_OK;
}

/* Where what users and tools wrote stands in a rendered text: whole characters. Counts the ranges,
 * and writes them where `ranges` is not NULL. */
static size_t find_foreign(const mf_jinja_output *text, mf_text_range *ranges)
{
    size_t n = 0;
    bool is_inside = false;
    for (size_t i = 0; text->foreign != NULL && i < text->n_bytes; i++) {
        if (((unsigned char)text->text[i] & 0xC0) == 0x80)
            continue; /* as the character's first byte */
        bool is_foreign = text->foreign[i] != 0;
        if (is_foreign != is_inside && ranges != NULL)
            *(is_foreign ? &ranges[n].start : &ranges[n - 1].end) = i;
        n += is_foreign && !is_inside;
        is_inside = is_foreign;
    }
    if (is_inside && ranges != NULL)
        ranges[n - 1].end = text->n_bytes;
    return n;
}

/* n_skip: bytes that have their tokens already. */
static mf_status encode(const mf_tokenizer *t, const mf_jinja_output *whole, size_t n_skip,
                        mf_token_list *out, mf_error *error)
{
    mf_jinja_output rest = *whole, *text = &rest;
    if (n_skip > whole->n_bytes)
        return mf_fail(error, MF_ERR_ARGUMENT, "%zu bytes to skip of a conversation of %zu", n_skip,
                       whole->n_bytes);
    if (n_skip == whole->n_bytes)
        return MF_OK;
    rest.text += n_skip;
    rest.n_bytes -= n_skip;
    if (rest.foreign != NULL)
        rest.foreign += n_skip;
    if (text->n_bytes > INT_MAX / 4)
        return mf_fail(error, MF_ERR_ARGUMENT, "a conversation of %zu bytes, at most %d",
                       text->n_bytes, INT_MAX / 4);
    size_t n_ranges = find_foreign(text, NULL), n_bytes = (n_ranges + 1) * sizeof(mf_text_range);
    mf_text_range *ranges = mf_alloc_zeroed(&t->allocator, n_bytes);
    if (ranges == NULL)
        return mf_fail_memory(error, n_bytes, "a conversation");
    find_foreign(text, ranges);
    const mf_text_input input = {text->text, text->n_bytes, .parse_special = true,
                                 .literal = ranges, .n_literal = n_ranges};
    mf_status status = mf_text_encode(t, &input, out, error);
    mf_free(&t->allocator, ranges, n_bytes);
    return status;
}

static mf_status encode_chat(const mf_tokenizer *t, const mf_chat_params *plain,
                             const mf_chat_json_params *json, mf_token_list *list, mf_error *error)
{
    mf_jinja_output text = {0};
    mf_chat_json_params given;
    mf_chat_json_params_default(&given);
    if (json != NULL)
        MF_TRY(mf_sized_get(&given, sizeof given, json, "mf_chat_json_params", error));
    MF_TRY(render(t, plain, json, &text, error));
    mf_status status = encode(t, &text, given.n_skip_bytes, list, error);
    mf_jinja_output_free(&text);
    return status;
}

mf_status mf_chat_encode(const mf_tokenizer *tokenizer, const mf_chat_params *params,
                         int32_t *tokens, size_t capacity, size_t *n_tokens, mf_error *error)
{
    mf_token_list list = {tokens, capacity, 0};
    if (tokenizer == NULL || params == NULL || n_tokens == NULL ||
        (tokens == NULL && capacity != 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_chat_encode: a NULL argument");
    MF_TRY(encode_chat(tokenizer, params, NULL, &list, error));
    *n_tokens = list.n_tokens;
    return MF_OK;
}

mf_status mf_chat_json_encode(const mf_tokenizer *tokenizer, const mf_chat_json_params *params,
                              int32_t *tokens, size_t capacity, size_t *n_tokens, mf_error *error)
{
    mf_token_list list = {tokens, capacity, 0};
    if (tokenizer == NULL || params == NULL || n_tokens == NULL ||
        (tokens == NULL && capacity != 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_chat_json_encode: a NULL argument");
    MF_TRY(encode_chat(tokenizer, NULL, params, &list, error));
    *n_tokens = list.n_tokens;
    return MF_OK;
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
