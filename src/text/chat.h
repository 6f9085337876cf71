/* SPDX-License-Identifier: MIT */
/*
 * Chat templates of the Qwen, DeepSeek, Cogito and Kimi families, rendered natively. There is no
 * Jinja here: a template's text is matched against the statements that the published templates of a
 * family are made of, and one that has other statements where it matters is not recognised. Tool
 * calls are not rendered.
 */
#ifndef MF_TEXT_CHAT_H
#define MF_TEXT_CHAT_H

#include "format/json.h"
#include "text/added_tokens.h"

#define MF_MAX_CHAT_NAME 64    /* of a token, with its NUL */
#define MF_MAX_CHAT_PROMPT 512 /* of a built-in system prompt, with its NUL */

typedef enum mf_chat_family {
    MF_CHAT_QWEN,
    MF_CHAT_DEEPSEEK,    /* V3, R1, V3.1: <｜User｜>...<｜Assistant｜>... */
    MF_CHAT_DEEPSEEK_V2, /* User: ... Assistant: ... */
    MF_CHAT_COGITO,
    MF_CHAT_KIMI
} mf_chat_family;

typedef enum mf_chat_opening {
    MF_OPENING_PLAIN,       /* nothing after "assistant" */
    MF_OPENING_CLOSABLE,    /* thinking off: an empty think block (Qwen3) */
    MF_OPENING_THINK,       /* off: an empty block; else an open one (Qwen3.5) */
    MF_OPENING_THINK_ASKED, /* on: an open block; else an empty one (small Qwen3.5) */
    MF_OPENING_ALWAYS,      /* always an open block (thinking-only models) */
    MF_OPENING_HALF         /* on: <think>; else </think>; after a user message only (V3.1) */
} mf_chat_opening;

typedef enum mf_chat_history {
    MF_HISTORY_PLAIN,       /* assistant turns as they are */
    MF_HISTORY_LAST_TURNS,  /* after the last question with their thoughts, if any or the very last
                               (Qwen3) */
    MF_HISTORY_ALWAYS,      /* after the last question always with a think block (Qwen3.5) */
    MF_HISTORY_AFTER_LAST,  /* what follows the last </think> (R1) */
    MF_HISTORY_AFTER_FIRST, /* what follows the first </think> (V3.1) */
    MF_HISTORY_EMPTY        /* as they are, each after an empty think block (Kimi-K2-Thinking) */
} mf_chat_history;

/* What a template does. */
typedef struct mf_chat_style {
    bool is_known;
    const char *source; /* the file that it is from, NULL: there is no template */
    mf_chat_family family;
    mf_chat_opening opening;
    mf_chat_history history;
    bool splits_thoughts; /* <think> blocks in an assistant's content are taken apart */
    bool keeps_thoughts;  /* of every turn, not only of those after the last question */
    bool trims;           /* white space around every content */
    bool wants_system_first;
    bool wants_question;
    bool keeps_last_system; /* of several system messages; else all, an empty line between */
    char prompt[MF_MAX_CHAT_PROMPT]; /* built-in: before, or instead of, a system message */
    char bos[MF_MAX_CHAT_NAME];      /* the names that the template takes from the tokenizer */
    char eos[MF_MAX_CHAT_NAME];
} mf_chat_style;

/* What a template without a file is called. */
#define MF_CHAT_UNNAMED "the template"

/* Reads chat_template.jinja, or chat_template of tokenizer_config.json, and the names of the first
 * and the last token from there. None, or one of another family: is_known stays
 * false. */
mf_status mf_chat_load(mf_chat_style *style, const mf_allocator *a, const char *path,
                       mf_error *error);
/* What a template text does; is_known false if it is not recognised. */
mf_status mf_chat_recognise(mf_chat_style *style, const mf_allocator *a, const char *text,
                            size_t n_bytes, mf_error *error);

/* Where the users' messages stand in a rendered text; room for one a message. */
typedef struct mf_chat_contents {
    mf_text_range *ranges;
    size_t n_ranges;
} mf_chat_contents;

/* As mf_chat_text of moeflux.h. */
mf_status mf_chat_render(const mf_chat_style *style, const mf_chat_params *chat, char *text,
                         size_t capacity, size_t *n_bytes, mf_error *error);
/* All of the text, which is known to have n_bytes, and where users wrote it. */
mf_status mf_chat_render_marked(const mf_chat_style *style, const mf_chat_params *chat, char *text,
                                size_t n_bytes, mf_chat_contents *contents, mf_error *error);

#endif
