/* SPDX-License-Identifier: MIT */
/*
 * The regular expressions of tokenizer.json. They are written for Oniguruma (Ruby syntax, Unicode
 * 16), which Hugging Face tokenizers uses; here they are translated to PCRE2 so that they match the
 * same text. What has no exact translation is refused.
 */
#ifndef MF_TEXT_REGEX_H
#define MF_TEXT_REGEX_H

#include "text/buffer.h"

typedef struct mf_regex mf_regex;
typedef struct mf_matcher mf_matcher;

typedef struct mf_pattern {
    const char *text;
    size_t n_bytes;
    bool is_literal; /* plain text to find */
} mf_pattern;

/* `field` names the pattern in messages. Errors: MF_ERR_UNSUPPORTED, MF_ERR_NO_MEMORY. */
mf_status mf_regex_compile(const mf_allocator *a, const char *field, mf_pattern pattern,
                           mf_regex **out, mf_error *error);
void mf_regex_free(mf_regex **regex);

/* What one thread needs to match with a regex, which is itself read-only. Its matches share an
 * amount of work that grows with the texts that they are looked for in. */
mf_status mf_matcher_create(const mf_regex *regex, const mf_allocator *a, mf_matcher **out,
                            mf_error *error);
void mf_matcher_free(mf_matcher **matcher);

typedef struct mf_match {
    bool found;
    size_t start, end; /* where it was found */
} mf_match;

/* The first match in text[n_bytes] (valid UTF-8) at or after `from`. Errors: MF_ERR_UNSUPPORTED
 * (too much work), MF_ERR_NO_MEMORY. */
mf_status mf_matcher_find(mf_matcher *matcher, const unsigned char *text, size_t n_bytes,
                          size_t from, mf_match *out, mf_error *error);

/* Writes the PCRE2 form of an Oniguruma pattern to out. Errors: MF_ERR_UNSUPPORTED naming what has
 * no exact translation, MF_ERR_NO_MEMORY. */
mf_status mf_regex_translate(const char *field, const char *pattern, size_t n_bytes, mf_buffer *out,
                             mf_error *error);

#endif
