/* SPDX-License-Identifier: MIT */
/* Writes a conversation as a recognised chat template would. */
#include "text/chat_writer.h"
#include "text/utf8.h"

#include <string.h>

static mf_span trim(mf_span span)
{
    uint32_t c;
    size_t n;
    while (span.n_bytes > 0 &&
           mf_utf8_next((const unsigned char *)span.text, span.n_bytes, &c, &n) == MF_UTF8_CHAR &&
           mf_utf8_is_blank(c)) {
        span.text += n;
        span.n_bytes -= n;
    }
    while (span.n_bytes > 0) {
        size_t start = span.n_bytes - 1;
        while (start > 0 && ((unsigned char)span.text[start] & 0xC0) == 0x80)
            start--;
        const unsigned char *last = (const unsigned char *)span.text + start;
        if (mf_utf8_next(last, span.n_bytes - start, &c, &n) != MF_UTF8_CHAR ||
            !mf_utf8_is_blank(c) || n != span.n_bytes - start)
            break;
        span.n_bytes = start;
    }
    return span;
}

static mf_span strip_newlines(mf_span span, bool left, bool right)
{
    while (left && span.n_bytes > 0 && span.text[0] == '\n') {
        span.text++;
        span.n_bytes--;
    }
    while (right && span.n_bytes > 0 && span.text[span.n_bytes - 1] == '\n')
        span.n_bytes--;
    return span;
}

/* Takes the thoughts out of an assistant's content: what stands before the first </think> (after
 * the last <think> there), and leaves what stands after the last. */
static mf_span split_thoughts(mf_span *content)
{
    static const char open[] = "<think>", close[] = "</think>";
    const char *end = content->text + content->n_bytes;
    const char *first = mf_span_find(*content, close, false),
               *last = mf_span_find(*content, close, true);
    if (first == NULL)
        return (mf_span){content->text, 0};
    mf_span thoughts = {content->text, (size_t)(first - content->text)};
    thoughts = strip_newlines(thoughts, false, true);
    const char *opened = mf_span_find(thoughts, open, true);
    if (opened != NULL) {
        opened += sizeof open - 1;
        thoughts.n_bytes = (size_t)(thoughts.text + thoughts.n_bytes - opened);
        thoughts.text = opened;
    }
    last += sizeof close - 1;
    *content = strip_newlines((mf_span){last, (size_t)(end - last)}, true, false);
    return strip_newlines(thoughts, true, false);
}

static mf_span content_of(const mf_chat_style *style, const mf_chat_message *message)
{
    mf_span span = {message->content, strlen(message->content)};
    return style->trims ? trim(span) : span;
}

/* A user message that is wrapped as a tool's response is no question. */
static bool is_question(const mf_chat_style *style, const mf_chat_message *message)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    if (message->role != MF_ROLE_USER)
        return false;
    mf_span span = content_of(style, message);
    size_t n_open = sizeof open - 1, n_close = sizeof close - 1;
    return span.n_bytes < n_open || memcmp(span.text, open, n_open) != 0 ||
           span.n_bytes < n_close ||
           memcmp(span.text + span.n_bytes - n_close, close, n_close) != 0;
}

static void write_turn(mf_writer *w, mf_chat_role role, mf_span content)
{
    static const char *const names[] = {
        [MF_ROLE_SYSTEM] = "system", [MF_ROLE_USER] = "user", [MF_ROLE_ASSISTANT] = "assistant"};
    mf_write_string(w, "<|im_start|>");
    mf_write_string(w, names[role]);
    mf_write_string(w, "\n");
    mf_write_content(w, role, content);
    mf_write_string(w, "<|im_end|>\n");
}

static void write_assistant(mf_writer *w, const mf_chat_style *style, mf_span content,
                            bool is_after_question, bool is_last)
{
    mf_span thoughts = {content.text, 0};
    if (style->splits_thoughts)
        thoughts = split_thoughts(&content);
    if (style->history == MF_HISTORY_ALWAYS)
        thoughts = trim(thoughts);
    bool shows = style->keeps_thoughts || is_after_question;
    if (style->history == MF_HISTORY_PLAIN)
        shows = false;
    if (style->history == MF_HISTORY_LAST_TURNS && !is_last && thoughts.n_bytes == 0)
        shows = false;
    if (!shows) {
        write_turn(w, MF_ROLE_ASSISTANT, content);
        return;
    }
    if (style->history == MF_HISTORY_LAST_TURNS) {
        thoughts = strip_newlines(thoughts, true, true);
        content = strip_newlines(content, true, false);
    }
    mf_write_string(w, "<|im_start|>assistant\n<think>\n");
    mf_write_span(w, thoughts);
    mf_write_string(w, "\n</think>\n\n");
    mf_write_span(w, content);
    mf_write_string(w, "<|im_end|>\n");
}

static void write_opening(mf_writer *w, mf_chat_opening opening, mf_thinking thinking)
{
    static const char open[] = "<think>\n", empty[] = "<think>\n\n</think>\n\n";
    bool off = thinking == MF_THINKING_OFF, on = thinking == MF_THINKING_ON;
    mf_write_string(w, "<|im_start|>assistant\n");
    switch (opening) {
    case MF_OPENING_PLAIN:
        break;
    case MF_OPENING_CLOSABLE:
        if (off)
            mf_write_string(w, empty);
        break;
    case MF_OPENING_THINK:
        mf_write_string(w, off ? empty : open);
        break;
    case MF_OPENING_THINK_ASKED:
        mf_write_string(w, on ? open : empty);
        break;
    case MF_OPENING_ALWAYS:
        mf_write_string(w, open);
        break;
    case MF_OPENING_HALF: /* of another family */
        break;
    }
}

static mf_status check_messages(const mf_chat_style *style, const mf_chat_message *messages,
                                size_t n_messages, mf_error *error)
{
    bool has_question = false;
    for (size_t i = 0; i < n_messages; i++) {
        has_question = has_question || is_question(style, &messages[i]);
        if (style->wants_system_first && i > 0 && messages[i].role == MF_ROLE_SYSTEM)
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "the chat template wants the system message at the beginning");
    }
    if (style->wants_question && !has_question)
        return mf_fail(error, MF_ERR_ARGUMENT, "the chat template wants a user message");
    return MF_OK;
}

static void render_qwen(mf_writer *w, const mf_chat_style *style, const mf_chat_params *chat)
{
    size_t n_messages = chat->n_messages, last_question = n_messages;
    for (size_t i = 0; i < n_messages; i++)
        if (is_question(style, &chat->messages[i]))
            last_question = i;
    for (size_t i = 0; i < n_messages; i++) {
        const mf_chat_message *message = &chat->messages[i];
        mf_span content = content_of(style, message);
        if (message->role != MF_ROLE_ASSISTANT)
            write_turn(w, message->role, content);
        else
            write_assistant(w, style, content, i > last_question, i + 1 == n_messages);
    }
    if (chat->add_generation_prompt)
        write_opening(w, style->opening, chat->thinking);
}

static mf_status render(const mf_chat_style *style, const mf_chat_params *chat, mf_writer *w,
                        mf_error *error)
{
    if (style->source == NULL)
        return mf_fail(error, MF_ERR_NOT_FOUND, "the checkpoint has no chat template");
    if (!style->is_known)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: the chat template is not one that this version knows", style->source);
    MF_TRY(check_messages(style, chat->messages, chat->n_messages, error));
    switch (style->family) {
    case MF_CHAT_QWEN:
        render_qwen(w, style, chat);
        break;
    case MF_CHAT_DEEPSEEK:
        mf_chat_render_deepseek(w, style, chat);
        break;
    case MF_CHAT_DEEPSEEK_V2:
        mf_chat_render_deepseek_v2(w, style, chat);
        break;
    case MF_CHAT_COGITO:
        mf_chat_render_cogito(w, style, chat);
        break;
    case MF_CHAT_KIMI:
        mf_chat_render_kimi(w, style, chat);
        break;
    }
    return MF_OK;
}

mf_status mf_chat_render(const mf_chat_style *style, const mf_chat_params *chat, char *text,
                         size_t capacity, size_t *n_bytes, mf_error *error)
{
    mf_writer w = {.text = text, .capacity = capacity};
    MF_TRY(render(style, chat, &w, error));
    *n_bytes = w.n_bytes;
    return MF_OK;
}

mf_status mf_chat_render_marked(const mf_chat_style *style, const mf_chat_params *chat, char *text,
                                size_t n_bytes, mf_chat_contents *contents, mf_error *error)
{
    mf_writer w = {.text = text, .capacity = n_bytes, .contents = contents};
    contents->n_ranges = 0;
    return render(style, chat, &w, error);
}
