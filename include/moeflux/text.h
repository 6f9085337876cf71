/* SPDX-License-Identifier: MIT */
/* Part of <moeflux/moeflux.h>, which programs include and which states the conventions: text to
 * token ids and back, and conversations. */
#ifndef MOEFLUX_TEXT_H
#define MOEFLUX_TEXT_H

#include <moeflux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mf_tokenizer mf_tokenizer;

/* --------------------------------------- tokenizer --------------------------------------- */

/*
 * Opens the tokenizer of a checkpoint directory: tokenizer.json, or if there is none Kimi's
 * tiktoken.model, Hunyuan's hy.tiktoken or SentencePiece's tokenizer.model, and where present
 * tokenizer_config.json, chat_template.jinja, config.json and generation_config.json (for end
 * tokens); or of a GGUF file. allocator may be NULL. Errors: MF_ERR_ARGUMENT, _NO_MEMORY, _IO,
 * _FORMAT, _UNSUPPORTED, _NOT_FOUND (none of these).
 */
MF_API MF_MUST_CHECK mf_status mf_tokenizer_open(const char *path, const mf_allocator *allocator,
                                                 mf_tokenizer **out, mf_error *error);
MF_API void mf_tokenizer_free(mf_tokenizer **tokenizer);

/*
 * Token ids of text[n_bytes], exactly those of Hugging Face tokenizers with
 * add_special_tokens=False, of the sentencepiece package for a tokenizer.model, or of
 * tokenization_kimi.py for a tiktoken.model; special tokens written in the text are recognised if
 * parse_special is non-zero, else they are encoded as plain text.
 * Writes at most capacity ids and always sets *n_tokens to the full count: call with capacity 0 to
 * size the buffer. Invalid UTF-8 is read as U+FFFD. Errors: MF_ERR_ARGUMENT, _NO_MEMORY,
 * _UNSUPPORTED (the pre-tokeniser's regex takes too much work on this text).
 */
MF_API MF_MUST_CHECK mf_status mf_tokenizer_encode(const mf_tokenizer *tokenizer, const char *text,
                                                   size_t n_bytes, int parse_special,
                                                   int32_t *tokens, size_t capacity,
                                                   size_t *n_tokens, mf_error *error);

/* The bytes a token stands for; *n_bytes is set. NULL if the id has none. Valid as long as the
 * tokenizer. */
MF_API const char *mf_tokenizer_piece(const mf_tokenizer *tokenizer, int32_t token,
                                      size_t *n_bytes);

/* Ids run from 0 to this minus 1 (added tokens included; gaps possible). */
MF_API size_t mf_tokenizer_n_vocab(const mf_tokenizer *tokenizer);

/* Non-zero if generation stops at this token, by any of the checkpoint's files. */
MF_API int mf_tokenizer_is_end(const mf_tokenizer *tokenizer, int32_t token);

/* The token that plain text is to be preceded by (by add_bos_token or the post-processor), or -1.
 * It is left to the caller: encoding never adds it, and a chat template writes its name itself. */
MF_API int32_t mf_tokenizer_start(const mf_tokenizer *tokenizer);

/* Non-zero for special tokens (not shown to the user). */
MF_API int mf_tokenizer_is_special(const mf_tokenizer *tokenizer, int32_t token);

/* Incremental decoding. Zero-initialise for each text: where it starts matters to SentencePiece's
 * vocabularies, whose first blank is not shown. Holds back the bytes of an unfinished UTF-8
 * character. */
typedef struct mf_decoder {
    unsigned char pending[4]; /* the last: whether the text has begun */
    unsigned char n_pending;
} mf_decoder;

/*
 * Appends a token and writes the whole characters that are now complete to text (not
 * NUL-terminated), at most capacity bytes; *n_bytes is set. Bytes that can never become UTF-8 come
 * out as U+FFFD. token < 0 flushes what is held back. Errors: MF_ERR_ARGUMENT (capacity too small:
 * three times the piece plus 12 bytes always suffices; nothing was consumed).
 */
MF_API MF_MUST_CHECK mf_status mf_tokenizer_decode(const mf_tokenizer *tokenizer,
                                                   mf_decoder *decoder, int32_t token, char *text,
                                                   size_t capacity, size_t *n_bytes);

/*
 * Where an answer that grows has to end: looks for stops[n_stops] (NUL-terminated; an empty one is
 * none) in the text that has not been given out yet, and returns how many of its bytes may be given
 * out. Where a stop is whole, *found is its index, and the answer ends at that byte; of several,
 * the one that is whole first, and of those the one that begins first, so that it does not matter
 * in which pieces the text came. Else *found is n_stops, and what the text ends in may be the
 * beginning of a stop: keep it, and ask again with what follows behind it. When nothing follows,
 * all is text.
 */
MF_API size_t mf_stop_find(const char *text, size_t n_bytes, const char *const *stops,
                           size_t n_stops, size_t *found);

/* ------------------------------------- conversations ------------------------------------- */

typedef enum mf_chat_role {
    MF_ROLE_SYSTEM = 0,
    MF_ROLE_USER = 1,
    MF_ROLE_ASSISTANT = 2
} mf_chat_role;

typedef struct mf_chat_message {
    mf_chat_role role;
    const char *content;
} mf_chat_message;

typedef enum mf_thinking {
    MF_THINKING_DEFAULT = 0,
    MF_THINKING_ON = 1,
    MF_THINKING_OFF = 2
} mf_thinking;

/* Non-zero if the checkpoint has a chat template, and it can be read. */
MF_API int mf_tokenizer_has_chat(const mf_tokenizer *tokenizer);

/* A conversation, and how it is written. Fill with mf_chat_params_default, then set messages. */
typedef struct mf_chat_params {
    size_t struct_bytes;
    const mf_chat_message *messages;
    size_t n_messages;         /* at least 1 */
    mf_thinking thinking;      /* MF_THINKING_DEFAULT: as the template has it */
    int add_generation_prompt; /* 1: the beginning of the answer stands at the end; 0: not */
} mf_chat_params;

MF_API void mf_chat_params_init(mf_chat_params *params, size_t struct_bytes);
/* No messages, the template's thinking, with the generation prompt. */
static inline void mf_chat_params_default(mf_chat_params *params)
{
    mf_chat_params_init(params, sizeof *params);
}

/*
 * The text of a conversation, as the checkpoint's own template gives it. Writes at most capacity
 * bytes (not NUL-terminated) and always sets *n_bytes to the full length: call with text NULL and
 * capacity 0 to size the buffer. Without the generation prompt it is the text that later turns
 * begin with, where it ends in a user's message; with it, what comes behind may be written in
 * another way later (templates drop old thoughts, and the <think> that opened them): the place for
 * a mark. Errors: MF_ERR_ARGUMENT (also: the template refuses these messages, with its line and
 * reason), MF_ERR_NOT_FOUND (no template), MF_ERR_UNSUPPORTED (it has a mistake, or asks for what
 * is not there or for too much work), MF_ERR_NO_MEMORY.
 */
MF_API MF_MUST_CHECK mf_status mf_chat_text(const mf_tokenizer *tokenizer,
                                            const mf_chat_params *params, char *text,
                                            size_t capacity, size_t *n_bytes, mf_error *error);

/*
 * The token ids of mf_chat_text, as mf_tokenizer_encode gives them with special tokens, but for
 * what users wrote: added tokens in a user's message, "<|im_end|>" say, stay text, so that nobody
 * can end a turn or begin one by writing so. Where there are none the ids are the same. Writes at
 * most capacity ids and always sets *n_tokens to the full count. Errors: as both.
 */
MF_API MF_MUST_CHECK mf_status mf_chat_encode(const mf_tokenizer *tokenizer,
                                              const mf_chat_params *params, int32_t *tokens,
                                              size_t capacity, size_t *n_tokens, mf_error *error);

/* mf_chat_text with the generation prompt. */
MF_API MF_MUST_CHECK mf_status mf_chat_format(const mf_tokenizer *tokenizer,
                                              const mf_chat_message *messages, size_t n_messages,
                                              mf_thinking thinking, char *text, size_t capacity,
                                              size_t *n_bytes, mf_error *error);

/*
 * A conversation as JSON, with all that a template may know: what apply_chat_template of
 * transformers gets. The strings are NUL-terminated; NULL: not given. Fill with
 * mf_chat_json_params_default, then set messages.
 */
typedef struct mf_chat_json_params {
    size_t struct_bytes;
    const char
        *messages;     /* an array of objects: role, content, reasoning_content, tool_calls, ... */
    const char *tools; /* an array of objects */
    const char *documents;     /* an array of objects */
    const char *variables;     /* an object: further variables, which take the place of the tokens'
                                  names     (bos_token) and of what thinking says */
    const char *template_name; /* of several templates; NULL: "tool_use" with tools where there is
                                  one, else "default" */
    mf_thinking thinking;      /* on or off: the variables enable_thinking and thinking */
    int add_generation_prompt; /* 1: the beginning of the answer stands at the end; 0: not */
    int64_t now_seconds; /* what the template takes for the time, since 1970; 0: the clock's. A date
                            in a prompt changes the prompt: keep it while a conversation lasts */
    size_t n_skip_bytes; /* mf_chat_json_encode: the text's first bytes, whose tokens are known and
                            are not given; at a place where a token begins anyway */
} mf_chat_json_params;

MF_API void mf_chat_json_params_init(mf_chat_json_params *params, size_t struct_bytes);
/* No messages, the template's thinking, with the generation prompt. */
static inline void mf_chat_json_params_default(mf_chat_json_params *params)
{
    mf_chat_json_params_init(params, sizeof *params);
}

/* As mf_chat_text. Errors: also MF_ERR_FORMAT (what should be JSON is not, or of another kind). */
MF_API MF_MUST_CHECK mf_status mf_chat_json_text(const mf_tokenizer *tokenizer,
                                                 const mf_chat_json_params *params, char *text,
                                                 size_t capacity, size_t *n_bytes, mf_error *error);

/* As mf_chat_encode: added tokens stay text wherever a template puts what the system, a developer
 * or the assistant did not write: messages of other roles, tools and documents. Errors: also
 * MF_ERR_ARGUMENT (n_skip_bytes is more than the text). */
MF_API MF_MUST_CHECK mf_status mf_chat_json_encode(const mf_tokenizer *tokenizer,
                                                   const mf_chat_json_params *params,
                                                   int32_t *tokens, size_t capacity,
                                                   size_t *n_tokens, mf_error *error);

#ifdef __cplusplus
}
#endif
#endif
