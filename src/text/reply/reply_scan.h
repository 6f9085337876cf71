/* SPDX-License-Identifier: MIT */
/*
 * A reply while it is read: the text that waits to be decided, what is going on, and the events
 * that wait to be taken. One function a state looks at the waiting text and takes what is decided.
 *
 * A call is an attempt from its opening mark on: its events stay hidden until the call is certain,
 * and it can be taken back until then. Every byte is looked at a bounded number of times: what was
 * no call is not searched for another one.
 */
#ifndef MF_TEXT_REPLY_SCAN_H
#define MF_TEXT_REPLY_SCAN_H

#include "text/reply/reply_json.h"
#include "text/reply/reply_syntax.h"
#include "text/reply/reply_tools.h"

#define MF_REPLY_NAME_BYTES 256u /* of a name or an id, at most */
#define MF_REPLY_KEY_BYTES 1024u /* of an argument's name */
#define MF_REPLY_MAX_CALLS 4096u
/* Blanks in a row that wait for what comes behind them; longer rows come out but for these. */
#define MF_REPLY_BLANKS 64u

typedef struct mf_reply_item {
    mf_reply_kind kind;
    uint32_t call;
    size_t text_at, n_bytes, id_at, name_at; /* in `texts` */
} mf_reply_item;

typedef struct mf_reply_events {
    mf_buffer texts; /* each NUL-terminated */
    mf_buffer items;
    size_t n_taken, n_visible; /* of the items */
} mf_reply_events;

/* A state: takes what it can of the waiting text; false: it needs more of it. */
typedef struct mf_reply_scan mf_reply_scan;
typedef bool (*mf_reply_state)(mf_reply_scan *s);

/* What an object of JSON is read into; its members are looked at while it is scanned. */
typedef struct mf_reply_object {
    mf_json_scan json;
    unsigned level; /* the depth at which name and arguments stand */
    enum { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS, MEMBER_ID, MEMBER_FUNCTION } member;
    bool is_in_key, is_in_value, is_text; /* is_text: arguments as a string */
    bool has_arguments;
} mf_reply_object;

typedef struct mf_reply_call {
    bool is_open;    /* an attempt is going on */
    bool is_whole;   /* its arguments are */
    bool is_given;   /* MF_REPLY_CALL came out */
    bool is_bare;    /* without its opening mark: must name a tool */
    bool must_close; /* must be closed, too */
    bool is_object;  /* an object of JSON, whatever the syntax has */
    size_t begin;    /* in the waiting text: where the attempt begins */
    uint32_t n_keys;
    mf_buffer name, id;  /* without a NUL */
    mf_buffer key, keys; /* keys: all so far, each with a NUL */
    mf_buffer value;     /* arguments or a value, while they cannot come out */
    mf_json_scan json;
    mf_reply_object object;
    /* The argument that is being read. */
    bool is_string, is_dropped; /* text as it stands; one of this name came before */
    bool is_begun;              /* its value has been begun */
    bool has_line;              /* the line end before it has been dropped */
    bool is_cdata;              /* it stands in <![CDATA[ ]]> */
    unsigned types;             /* what it may be, 0: unknown */
    char quote;                 /* Python: of the string that is being read, or 0 */
    bool is_escaped;            /* Python: behind a backslash */
    unsigned depth;             /* Python: of brackets; of elements */
    mf_reply_kind body;         /* harmony: what a message's text is */
} mf_reply_call;

struct mf_reply_scan {
    const mf_reply_syntax *syntax;
    mf_allocator allocator;
    mf_status status; /* MF_ERR_NO_MEMORY: for good */
    mf_reply_tools tools;
    bool has_calls, has_whole_calls;
    uint64_t id_seed;
    uint32_t n_earlier_calls, n_calls;

    mf_buffer in; /* the waiting text, whole characters, from `at` on; before it: the attempt */
    size_t at;
    unsigned char rest[4]; /* of a character that is not whole */
    unsigned n_rest;
    bool is_over, was_cut;

    mf_reply_state state;
    bool is_thought, is_fresh; /* is_fresh: nothing but blanks was said */
    bool drops_lines;          /* line ends behind the mark of a thought */
    bool is_after_call;        /* nothing but blanks since the last call */
    mf_reply_call call;
    mf_buffer scratch;
    mf_reply_events events;
};

struct mf_reply {
    mf_reply_scan scan;
};

/* ---- texts in the waiting text */

typedef enum mf_reply_found { MF_FOUND_NO, MF_FOUND_PART, MF_FOUND_WHOLE } mf_reply_found;

/* Whether `mark` stands at `at`, or as much of it as there is text. *end: where it ends. A blank in
 * it matches any blanks, MF_REPLY_ANY any name. A mark of no bytes is never found. */
mf_reply_found mf_reply_match(const mf_reply_scan *s, size_t at, const char *mark, size_t *end);
/* Takes blanks; false: there is nothing behind them yet. */
bool mf_reply_skip_blanks(mf_reply_scan *s);
/* The first byte from `at` on that is none of them. */
static inline size_t mf_reply_behind_blanks(const mf_reply_scan *s, size_t at)
{
    while (at < s->in.n_bytes && mf_reply_is_blank(s->in.data[at]))
        at++;
    return at;
}
static inline size_t mf_reply_left(const mf_reply_scan *s)
{
    return s->in.n_bytes - s->at;
}

/* ---- what comes out */

/* Some text, n_bytes of whole characters. */
void mf_reply_give_text(mf_reply_scan *s, mf_reply_kind kind, const char *text, size_t n_bytes);
/* MF_REPLY_CALL, with the call's name and id. */
void mf_reply_give_call(mf_reply_scan *s);
void mf_reply_give_end(mf_reply_scan *s, mf_reply_kind kind, const char *text, size_t n_bytes);
/* What the reply keeps of no use any more is forgotten: before more text is appended. */
void mf_reply_tidy(mf_reply_scan *s);
/* The hidden events of an attempt are. */
void mf_reply_take_back(mf_reply_scan *s);

/* ---- calls */

/* An attempt begins, the text before `at` is decided. */
void mf_reply_call_begin(mf_reply_scan *s, size_t begin);
/* Its name is known and its arguments begin: it comes out, unless it is bare and names no tool
 * (false: it was taken back). */
bool mf_reply_call_name(mf_reply_scan *s);
/* Its arguments are whole. */
void mf_reply_call_end(mf_reply_scan *s);
/* It cannot be one, as far as it was read (`at`): content, or a broken call. */
void mf_reply_call_fail(mf_reply_scan *s);
bool mf_reply_is_name_byte(unsigned char c);
/* The end of a row of them from `at` on. */
size_t mf_reply_name_end(const mf_reply_scan *s, size_t at);
/* Checks a name's characters; appends them to call.name, without the row's prefix. */
bool mf_reply_call_take_name(mf_reply_scan *s, const char *name, size_t n_bytes);
/* In arguments as JSON. */
bool mf_reply_in_json(mf_reply_scan *s);

/* Some of its arguments. */
void mf_reply_give_arguments(mf_reply_scan *s, const char *text, size_t n_bytes);
/* An argument begins: what stands before its value comes out, and its type is looked up. */
void mf_reply_begin_argument(mf_reply_scan *s, const char *key, size_t n_bytes);
/* The value in call.value comes out as what it may be. */
void mf_reply_give_value(mf_reply_scan *s);
/* The value in call.value, elements within elements, as JSON. */
mf_status mf_reply_elements_value(mf_reply_scan *s, mf_buffer *out);
/* The waiting text before `end` belongs to the value. */
void mf_reply_take_value(mf_reply_scan *s, size_t end);
/* The value ends at `end`, and what ends it at `next`. */
void mf_reply_end_value(mf_reply_scan *s, size_t end, size_t next);
/* All arguments have been read. */
void mf_reply_end_arguments(mf_reply_scan *s);

/* ---- states */

bool mf_reply_in_content(mf_reply_scan *s);
bool mf_reply_in_thought(mf_reply_scan *s);
/* Behind a call: another one, the end of the section, or content. */
bool mf_reply_in_section(mf_reply_scan *s);
/* How a section begins, and a call behind call_mark. */
mf_reply_state mf_reply_first_state(const mf_reply_scan *s);
mf_reply_state mf_reply_call_state(const mf_reply_scan *s);

bool mf_reply_begin_objects(mf_reply_scan *s); /* before an object or an array of such */
bool mf_reply_in_object(mf_reply_scan *s);
bool mf_reply_begin_named(mf_reply_scan *s); /* before call_mark, or what stands in its place */
bool mf_reply_in_name(mf_reply_scan *s);
bool mf_reply_in_json(mf_reply_scan *s);
bool mf_reply_in_tags(mf_reply_scan *s); /* before an argument, or behind the last */
bool mf_reply_in_elements(mf_reply_scan *s);
bool mf_reply_in_bare(mf_reply_scan *s);
bool mf_reply_begin_recipient(mf_reply_scan *s); /* at the beginning: the mark may stand there */
bool mf_reply_in_recipient(mf_reply_scan *s);
bool mf_reply_begin_python(mf_reply_scan *s);
bool mf_reply_in_harmony(mf_reply_scan *s); /* between messages */

/* Runs the states for as long as they can. */
void mf_reply_run(mf_reply_scan *s);
void mf_reply_scan_push(mf_reply_scan *s, const char *bytes, size_t n_bytes);
void mf_reply_scan_finish(mf_reply_scan *s, bool was_cut);

#endif
