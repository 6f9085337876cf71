/* SPDX-License-Identifier: MIT */
/*
 * JSON as models write it, checked byte by byte: what goes out is strict JSON. Put right on the way
 * are raw control characters in strings, backslashes that escape nothing, and halves of surrogate
 * pairs (U+FFFD); all else that is not JSON is refused at the byte where it is seen.
 */
#ifndef MF_TEXT_REPLY_JSON_H
#define MF_TEXT_REPLY_JSON_H

#include "text/buffer.h"

#define MF_REPLY_JSON_DEPTH 128

/* JSON's white space; a char of any sign. */
static inline bool mf_reply_is_blank(int c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

typedef enum mf_json_state {
    MF_JSON_VALUE,       /* a value is to come */
    MF_JSON_ITEM_OR_END, /* behind [ */
    MF_JSON_KEY_OR_END,  /* behind { */
    MF_JSON_KEY,         /* behind the comma of an object */
    MF_JSON_COLON,       /* behind a key */
    MF_JSON_NEXT,        /* behind a value: a comma or the end */
    MF_JSON_STRING,      /* in a string */
    MF_JSON_ESCAPE,      /* behind a backslash */
    MF_JSON_UNICODE,     /* in the four digits behind \u */
    MF_JSON_LOW,         /* behind a high surrogate: \ */
    MF_JSON_LOW_U,       /* u */
    MF_JSON_NUMBER,
    MF_JSON_WORD, /* true, false, null */
    MF_JSON_DONE
} mf_json_state;

typedef struct mf_json_scan {
    mf_json_state state;
    unsigned depth;
    unsigned char is_object[MF_REPLY_JSON_DEPTH / 8];
    bool is_key;         /* of the string that is being read */
    unsigned char phase; /* of a number, or digits of \u that have been read */
    unsigned unit, high; /* \uXXXX; a high surrogate that waits for the low one, or 0 */
    const char *word;    /* what is left of it */
} mf_json_scan;

typedef enum mf_json_result {
    MF_JSON_MORE,  /* the byte was taken */
    MF_JSON_WHOLE, /* it was, and the value is whole */
    MF_JSON_ENDED, /* it was not: the value, a number, ended before it */
    MF_JSON_BAD,   /* this is no JSON */
    MF_JSON_NO_MEMORY
} mf_json_result;

/* One byte more of a value. What it comes to is appended to `out`. Begins with a zeroed scan. */
mf_json_result mf_json_scan_byte(mf_json_scan *scan, unsigned char byte, mf_buffer *out);
/* Whether the value is whole, if nothing more comes. */
bool mf_json_scan_is_whole(const mf_json_scan *scan);

/* A whole value: appended to `out`; blanks around it are left out. */
mf_json_result mf_json_scan_text(const char *text, size_t n_bytes, mf_buffer *out);

/* A string of JSON, with its quotes, as it came out of a scan: its characters. */
mf_status mf_json_unquote(const char *text, size_t n_bytes, mf_buffer *out);
/* Characters as the inside of a string. */
mf_status mf_json_quote(const char *text, size_t n_bytes, mf_buffer *out);

#endif
