/* SPDX-License-Identifier: MIT */
/*
 * How tokens become text, as far as it is not in the tokens themselves: what is left out at the
 * start of a text, and what becomes of bytes that are no character. Read-only after loading.
 */
#ifndef MF_TEXT_DECODING_H
#define MF_TEXT_DECODING_H

#include "format/json.h"

typedef enum mf_start_strip {
    MF_STRIP_NONE,
    MF_STRIP_BLANK,      /* one blank at the start of the text */
    MF_STRIP_MARK,       /* the same if a mark stands for it */
    MF_STRIP_MARKS,      /* such a one of each token, until there is text */
    MF_STRIP_FIRST_TOKEN /* all blanks that marks stand for in the first token */
} mf_start_strip;

typedef struct mf_decoding {
    bool is_byte_level;
    bool unmarks_blanks; /* U+2581 is a blank */
    bool unmarks_bytes;  /* and if it comes as bytes */
    bool joins_bytes;    /* tokens like <0x0A> are bytes; of what is no character each is U+FFFD */
    mf_start_strip strip;
} mf_decoding;

/* Loads "decoder". *d is zeroed by the caller. */
mf_status mf_decoding_load(mf_decoding *d, const mf_json *json, mf_error *error);

#endif
