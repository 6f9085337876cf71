/* SPDX-License-Identifier: MIT */
/*
 * Chat templates of the Qwen family, rendered natively. There is no Jinja here: a template's text
 * is matched against the statements that the published templates of the family are made of, and one
 * that has other statements where it matters is not recognised. Tool calls are not rendered.
 */
#ifndef MF_TEXT_CHAT_H
#define MF_TEXT_CHAT_H

#include "format/json.h"

typedef enum mf_chat_opening {
    MF_OPENING_PLAIN,       /* nothing after "assistant" */
    MF_OPENING_CLOSABLE,    /* thinking off: an empty think block (Qwen3) */
    MF_OPENING_THINK,       /* off: an empty block; else an open one (Qwen3.5) */
    MF_OPENING_THINK_ASKED, /* on: an open block; else an empty one (small Qwen3.5) */
    MF_OPENING_ALWAYS       /* always an open block (thinking-only models) */
} mf_chat_opening;

typedef enum mf_chat_history {
    MF_HISTORY_PLAIN,      /* assistant turns as they are */
    MF_HISTORY_LAST_TURNS, /* after the last question with their thoughts, if any or the very last
                              (Qwen3) */
    MF_HISTORY_ALWAYS      /* after the last question always with a think block (Qwen3.5) */
} mf_chat_history;

/* What a template does. */
typedef struct mf_chat_style {
    bool is_known;
    mf_chat_opening opening;
    mf_chat_history history;
    bool splits_thoughts; /* <think> blocks in an assistant's content are taken apart */
    bool keeps_thoughts;  /* of every turn, not only of those after the last question */
    bool trims;           /* white space around every content */
    bool wants_system_first;
    bool wants_question;
} mf_chat_style;

/* Reads chat_template.jinja, or chat_template of tokenizer_config.json. None, or one of another
 * family: is_known stays false. */
mf_status mf_chat_load(mf_chat_style *style, const mf_allocator *a, const char *path,
                       mf_error *error);
/* What a template text does; is_known false if it is not recognised. */
mf_status mf_chat_recognise(mf_chat_style *style, const mf_allocator *a, const char *text,
                            size_t n_bytes, mf_error *error);

/* As mf_chat_format of moeflux.h. */
mf_status mf_chat_render(const mf_chat_style *style, const mf_chat_message *messages,
                         size_t n_messages, mf_thinking thinking, char *text, size_t capacity,
                         size_t *n_bytes, mf_error *error);

#endif
