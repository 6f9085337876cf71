/* SPDX-License-Identifier: MIT */
/* Writes a conversation as the templates of DeepSeek, Cogito and Kimi would. */
#include "text/chat_writer.h"

#define USER "<｜User｜>"
#define ASSISTANT "<｜Assistant｜>"
#define END_OF_TURN "<｜end▁of▁sentence｜>"
#define DEEP_THINKING "Enable deep thinking subroutine."

const char *mf_span_find(mf_span span, const char *word, bool last)
{
    size_t n = strlen(word);
    const char *found = NULL;
    for (size_t i = 0; i + n <= span.n_bytes; i++) {
        if (memcmp(span.text + i, word, n) != 0)
            continue;
        found = span.text + i;
        if (!last)
            break;
    }
    return found;
}

static mf_span whole(const mf_chat_message *message)
{
    return (mf_span){message->content, strlen(message->content)};
}

/* An assistant's content without its thoughts, as far as the template drops them. */
static mf_span answer_of(const mf_chat_style *style, const char *content)
{
    static const char close[] = "</think>";
    mf_span span = {content, strlen(content)};
    if (style->history != MF_HISTORY_AFTER_LAST && style->history != MF_HISTORY_AFTER_FIRST)
        return span;
    const char *found = mf_span_find(span, close, style->history == MF_HISTORY_AFTER_LAST);
    if (found == NULL)
        return span;
    found += sizeof close - 1;
    return (mf_span){found, (size_t)(span.text + span.n_bytes - found)};
}

/* ----------------------------------------------------------------------------------- DeepSeek --
 */

/* All system messages stand in front, wherever they were. */
static void write_systems(mf_writer *w, const mf_chat_style *style, const mf_chat_message *messages,
                          size_t n_messages)
{
    const mf_chat_message *last = NULL;
    for (size_t i = 0; i < n_messages; i++) {
        if (messages[i].role != MF_ROLE_SYSTEM)
            continue;
        if (!style->keeps_last_system) {
            if (last != NULL)
                mf_write_string(w, "\n\n");
            mf_write_string(w, messages[i].content);
        }
        last = &messages[i];
    }
    if (last != NULL && style->keeps_last_system)
        mf_write_string(w, last->content);
}

void mf_chat_render_deepseek(mf_writer *w, const mf_chat_style *style, const mf_chat_params *chat)
{
    const mf_chat_message *messages = chat->messages;
    size_t n_messages = chat->n_messages;
    bool is_half = style->opening == MF_OPENING_HALF, after_user = false;
    mf_write_string(w, style->bos);
    write_systems(w, style, messages, n_messages);
    for (size_t i = 0; i < n_messages; i++) {
        if (messages[i].role == MF_ROLE_USER) {
            mf_write_string(w, USER);
            mf_write_content(w, messages[i].role, whole(&messages[i]));
            after_user = true;
        } else if (messages[i].role == MF_ROLE_ASSISTANT) {
            if (!is_half)
                mf_write_string(w, ASSISTANT);
            else if (after_user)
                mf_write_string(w, ASSISTANT "</think>");
            mf_write_span(w, answer_of(style, messages[i].content));
            mf_write_string(w, END_OF_TURN);
            after_user = false;
        }
    }
    if (!chat->add_generation_prompt || (is_half && !after_user))
        return;
    mf_write_string(w, ASSISTANT);
    if (is_half)
        mf_write_string(w, chat->thinking == MF_THINKING_ON ? "<think>" : "</think>");
    else if (style->opening == MF_OPENING_ALWAYS)
        mf_write_string(w, "<think>\n");
}

void mf_chat_render_deepseek_v2(mf_writer *w, const mf_chat_style *style,
                                const mf_chat_params *chat)
{
    const mf_chat_message *messages = chat->messages;
    mf_write_string(w, style->bos);
    for (size_t i = 0; i < chat->n_messages; i++) {
        static const char *const names[] = {
            [MF_ROLE_SYSTEM] = "", [MF_ROLE_USER] = "User: ", [MF_ROLE_ASSISTANT] = "Assistant: "};
        mf_write_string(w, names[messages[i].role]);
        mf_write_content(w, messages[i].role, whole(&messages[i]));
        mf_write_string(w, messages[i].role == MF_ROLE_ASSISTANT ? style->eos : "\n\n");
    }
    if (chat->add_generation_prompt)
        mf_write_string(w, "Assistant:");
}

/* ------------------------------------------------------------------------------------- Cogito --
 */

/* The built-in prompt and the caller's, after the words that turn thinking on. Only the version
 * with a built-in prompt puts an empty line after the caller's. */
static void write_cogito_system(mf_writer *w, const mf_chat_style *style, const char *system,
                                bool thinks)
{
    const char *const parts[] = {thinks ? DEEP_THINKING : "", style->prompt, system};
    bool is_first = true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i][0] == '\0')
            continue;
        if (!is_first)
            mf_write_string(w, "\n\n");
        mf_write_string(w, parts[i]);
        is_first = false;
    }
    if (thinks && style->prompt[0] != '\0' && system[0] != '\0')
        mf_write_string(w, "\n\n");
}

void mf_chat_render_cogito(mf_writer *w, const mf_chat_style *style, const mf_chat_params *chat)
{
    const mf_chat_message *messages = chat->messages;
    bool thinks = chat->thinking == MF_THINKING_ON, after_user = false;
    bool has_system = messages[0].role == MF_ROLE_SYSTEM;
    mf_write_string(w, style->bos);
    write_cogito_system(w, style, has_system ? messages[0].content : "", thinks);
    for (size_t i = has_system; i < chat->n_messages; i++) {
        if (messages[i].role == MF_ROLE_USER) {
            mf_write_string(w, USER);
            mf_write_content(w, messages[i].role, whole(&messages[i]));
            mf_write_string(w, ASSISTANT);
            after_user = true;
        } else if (messages[i].role == MF_ROLE_ASSISTANT) {
            mf_write_span(w, answer_of(style, messages[i].content));
            mf_write_string(w, END_OF_TURN);
            after_user = false;
        }
    }
    if (!chat->add_generation_prompt)
        return;
    if (!after_user)
        mf_write_string(w, ASSISTANT);
    if (thinks)
        mf_write_string(w, "<think>\n");
}

/* --------------------------------------------------------------------------------------- Kimi --
 */

static void write_kimi_head(mf_writer *w, mf_chat_role role)
{
    static const char *const heads[] = {
        [MF_ROLE_SYSTEM] = "<|im_system|>system<|im_middle|>",
        [MF_ROLE_USER] = "<|im_user|>user<|im_middle|>",
        [MF_ROLE_ASSISTANT] = "<|im_assistant|>assistant<|im_middle|>",
    };
    mf_write_string(w, heads[role]);
}

void mf_chat_render_kimi(mf_writer *w, const mf_chat_style *style, const mf_chat_params *chat)
{
    const mf_chat_message *messages = chat->messages;
    if (messages[0].role != MF_ROLE_SYSTEM) {
        write_kimi_head(w, MF_ROLE_SYSTEM);
        mf_write_string(w, style->prompt);
        mf_write_string(w, "<|im_end|>");
    }
    for (size_t i = 0; i < chat->n_messages; i++) {
        write_kimi_head(w, messages[i].role);
        if (messages[i].role == MF_ROLE_ASSISTANT && style->history == MF_HISTORY_EMPTY)
            mf_write_string(w, "<think></think>");
        mf_write_content(w, messages[i].role, whole(&messages[i]));
        mf_write_string(w, "<|im_end|>");
    }
    if (chat->add_generation_prompt)
        write_kimi_head(w, MF_ROLE_ASSISTANT);
}
