/* SPDX-License-Identifier: MIT */
/* Part of <moeflux/moeflux.h>, which programs include and which states the conventions: what a
 * model said, taken apart into thoughts, content and tool calls while it is being said. */
#ifndef MOEFLUX_REPLY_H
#define MOEFLUX_REPLY_H

#include <moeflux/text.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------- syntaxes ---------------------------------------- */

/* How a model writes thoughts and calls. Read-only: any number of threads and replies may use one.
 */
typedef struct mf_reply_syntax mf_reply_syntax;

/*
 * The syntax of a checkpoint's template: by what the template makes of a message with thoughts and
 * calls, else by the markers in its text; "plain" where it has none or there is no template: an
 * answer that is nothing but {"name": NAME, "arguments": {...}} calls a tool of that name.
 * template_name NULL: the template that is used with tools. It keeps nothing of the tokenizer. Do
 * it once for a model: it renders several conversations. Errors: MF_ERR_ARGUMENT, MF_ERR_NO_MEMORY.
 */
MF_API MF_MUST_CHECK mf_status mf_reply_syntax_detect(const mf_tokenizer *tokenizer,
                                                      const char *template_name,
                                                      mf_reply_syntax **out, mf_error *error);

/* A known syntax by its name: "hermes", "plain", ... (mf_reply_syntax_names). allocator may be
 * NULL. Errors: MF_ERR_NOT_FOUND (the message lists the names), MF_ERR_ARGUMENT, MF_ERR_NO_MEMORY.
 */
MF_API MF_MUST_CHECK mf_status mf_reply_syntax_named(const char *name,
                                                     const mf_allocator *allocator,
                                                     mf_reply_syntax **out, mf_error *error);
/* NULL behind the last. Static storage. */
MF_API const char *const *mf_reply_syntax_names(void);
MF_API void mf_reply_syntax_free(mf_reply_syntax **syntax);

typedef enum mf_reply_arguments {
    /* No syntax has this. */
    MF_REPLY_ARGUMENTS_NONE = 0,
    /* An object of JSON. */
    MF_REPLY_ARGUMENTS_JSON = 1,
    /* For each argument key_open, its name, key_close, its value, value_close; strings stand
     * as they are, all else as JSON. */
    MF_REPLY_ARGUMENTS_TAGGED = 2,
    /* name=value, between them value_close; values are literals of Python. */
    MF_REPLY_ARGUMENTS_PYTHON = 3,
    /* {name:value}: names are bare, strings stand between marks of their own (Gemma 4). */
    MF_REPLY_ARGUMENTS_BARE = 4,
    /* For each argument an element of its name; lists and objects are elements within it
     * (MiniMax-M3). */
    MF_REPLY_ARGUMENTS_ELEMENTS = 5
} mf_reply_arguments;

/*
 * What calls look like, for those who want to force them, as the template writes it, with its
 * blanks: calls_open, then for each call (between_calls before all but the first)
 *   name_open NAME [number_open NUMBER] name_close ARGUMENTS call_close
 * and calls_close. Strings are NUL-terminated and valid as long as the syntax; "" where nothing
 * stands there. NUMBER counts the calls of the whole conversation from 0 on.
 */
typedef struct mf_reply_form {
    size_t struct_bytes;
    const char *name; /* of the syntax; "derived" if it is none of those known */
    mf_reply_arguments arguments;
    int allows_several; /* 0: at most one call a reply */
    const char *calls_open, *calls_close, *between_calls;
    const char *name_open, *name_close, *call_close;
    const char *number_open; /* NULL: calls have no number */
    /* Tagged (and value_close for Python). key_close_string: in place of key_close before a string;
     * NULL: the same. */
    const char *key_open, *key_close, *key_close_string, *value_close;
    /* A thought; NULL: none. thought_close ends it, also when it is to be cut short. */
    const char *thought_open, *thought_close;
    /* Around the content. */
    const char *content_open, *content_close;
    /* Texts of tokens at which a reply is over, beside those of mf_tokenizer_is_end. */
    const char *const *stops;
    size_t n_stops;
    /* Tagged: where key_close is followed by the type of the value (number, boolean, null, object,
     * array) and by this; NULL: it is not. */
    const char *type_close;
    const char *quote; /* Bare: around strings; "" elsewhere */
} mf_reply_form;

/* Use mf_reply_form_of. */
MF_API void mf_reply_form_sized(const mf_reply_syntax *syntax, mf_reply_form *form,
                                size_t struct_bytes);
static inline void mf_reply_form_of(const mf_reply_syntax *syntax, mf_reply_form *form)
{
    mf_reply_form_sized(syntax, form, sizeof *form);
}

/* ---------------------------------------- a reply ---------------------------------------- */

typedef struct mf_reply mf_reply;

/* Fill with mf_reply_options_default, then change what is needed. Nothing is kept of it. */
typedef struct mf_reply_options {
    size_t struct_bytes;
    /* The tools, as mf_chat_json_params has them (or in Anthropic's form, or bare: name and
     * parameters), NUL-terminated; NULL: unknown. They give untyped arguments their types, and say
     * whether what only may be a call is one. */
    const char *tools;
    /* The prompt's text, or its end from the start of the answer on: says where the reply begins,
     * within a thought, say, or behind it. NULL: at the beginning of an answer. */
    const char *prompt;
    size_t n_prompt_bytes;
    int has_calls;   /* 1: look for calls; 0: their text is content */
    int whole_calls; /* 1: nothing of a call is given out before all of it has been read */
    /* Where the syntax has no ids they are made from this and the call's index: another seed for
     * each reply. */
    uint64_t id_seed;
    /* Calls made earlier in the conversation, where ids have numbers and the model left it out. */
    uint32_t n_earlier_calls;
} mf_reply_options;

MF_API void mf_reply_options_init(mf_reply_options *options, size_t struct_bytes);
/* No tools known, the beginning of an answer, calls looked for and given out as they come. */
static inline void mf_reply_options_default(mf_reply_options *options)
{
    mf_reply_options_init(options, sizeof *options);
}

/* The syntax must outlive the reply; it brings the allocator. options may be NULL. Errors:
 * MF_ERR_ARGUMENT, MF_ERR_FORMAT (tools are no JSON array of objects), MF_ERR_NO_MEMORY. */
MF_API MF_MUST_CHECK mf_status mf_reply_create(const mf_reply_syntax *syntax,
                                               const mf_reply_options *options, mf_reply **out,
                                               mf_error *error);
MF_API void mf_reply_free(mf_reply **reply);

typedef enum mf_reply_kind {
    /* Some of a thought: text. */
    MF_REPLY_THOUGHT = 1,
    /* Some of the content: text. */
    MF_REPLY_CONTENT = 2,
    /* A call begins: call, id, name. Its name and the beginning of its arguments have been seen. */
    MF_REPLY_CALL = 3,
    /* Some of the call's arguments: text. All pieces of a call together are one JSON object. */
    MF_REPLY_CALL_ARGUMENTS = 4,
    /* The arguments are whole. Every MF_REPLY_CALL is followed by this or by the next. */
    MF_REPLY_CALL_END = 5,
    /* The call cannot be understood any further, or the text ended in it: what was given out of its
     * arguments is not whole. text: the call as the model wrote it so far, which who has not given
     * the call away can take for content. */
    MF_REPLY_CALL_BROKEN = 6
} mf_reply_kind;

/* The strings are UTF-8, whole characters, NUL-terminated, and valid until the next push, finish or
 * free. */
typedef struct mf_reply_event {
    size_t struct_bytes;
    mf_reply_kind kind;
    uint32_t call; /* of this reply's calls, from 0 on */
    const char *text;
    size_t n_bytes;
    const char *id, *name;
} mf_reply_event;

/*
 * More of what the model said: the bytes of a token (mf_tokenizer_piece), or of any number of them
 * or parts of them. Give it all tokens but the one that ended the reply, the special ones too, by
 * themselves and with is_special set (mf_tokenizer_is_special): some families' markers are special
 * tokens; those that are none are dropped here. Without is_special all bytes are text. Characters
 * may be cut anywhere; what is not UTF-8 becomes U+FFFD.
 *
 * What is given out at once: all that cannot be part of a marker, and of a call its name and then
 * its arguments, checked byte by byte. Held back are: a beginning of a marker, blanks (they are
 * dropped before a call, and line ends around a thought), a call until its name is known, what only
 * may be a call (a call without its opening marker: until it is closed and names a tool; JSON or
 * Python at the beginning of an answer: until it names a tool), and an argument that is no string
 * until its end where the syntax has it as text. What turns out to be no call comes out as content,
 * all of it. Calls within thoughts are thoughts.
 *
 * Errors: MF_ERR_ARGUMENT (after mf_reply_finish; nothing changed), MF_ERR_NO_MEMORY (the reply can
 * only be freed then).
 */
MF_API MF_MUST_CHECK mf_status mf_reply_push(mf_reply *reply, const char *bytes, size_t n_bytes,
                                             int is_special, mf_error *error);

/*
 * The reply is over: what was held back is decided and comes out. was_cut 0: the model ended it; a
 * call whose arguments are whole is one without its closing markers too, and tagged arguments end
 * with the text. was_cut 1: a limit or a stop string did: a call that is not whole is broken.
 * Errors: as mf_reply_push.
 */
MF_API MF_MUST_CHECK mf_status mf_reply_finish(mf_reply *reply, int was_cut, mf_error *error);

/* Use mf_reply_next. */
MF_API int mf_reply_next_sized(mf_reply *reply, mf_reply_event *event, size_t struct_bytes);
/* Takes the next event; 0: there is none (yet). Those that are not taken stay. */
static inline int mf_reply_next(mf_reply *reply, mf_reply_event *event)
{
    return mf_reply_next_sized(reply, event, sizeof *event);
}

/* Where the reply is: MF_REPLY_THOUGHT, MF_REPLY_CONTENT or MF_REPLY_CALL (from its opening marker
 * to its closing one). For a budget of thoughts, and for sampling that is bound within calls. */
MF_API mf_reply_kind mf_reply_place(const mf_reply *reply);

#ifdef __cplusplus
}
#endif
#endif
