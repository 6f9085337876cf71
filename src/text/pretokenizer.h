/* SPDX-License-Identifier: MIT */
/* The pre-tokenizer: cuts text into the words that byte-pair encoding works on. Read-only after
 * loading. */
#ifndef MF_TEXT_PRETOKENIZER_H
#define MF_TEXT_PRETOKENIZER_H

#include "format/json.h"
#include "text/regex.h"

#define MF_MAX_PRETOKEN_STEPS 16

typedef enum mf_split_behavior {
    MF_SPLIT_ISOLATED,
    MF_SPLIT_REMOVED,
    MF_SPLIT_MERGED_WITH_PREVIOUS,
    MF_SPLIT_MERGED_WITH_NEXT,
    MF_SPLIT_CONTIGUOUS
} mf_split_behavior;

/* Before which pieces Metaspace puts a U+2581 that they do not have. */
typedef enum mf_prepend_scheme {
    MF_PREPEND_ALWAYS,
    MF_PREPEND_FIRST, /* the one at the start of the text */
    MF_PREPEND_NEVER
} mf_prepend_scheme;

/* One step: Metaspace (U+2581 for blanks, maybe one in front, maybe a cut before each); or else an
 * optional space in front of each piece, then an optional cut by a regex. */
typedef struct mf_pretoken_step {
    mf_regex *regex; /* NULL: no cut */
    mf_split_behavior behavior;
    bool inverts;
    bool adds_prefix_space;
    bool is_metaspace, cuts_at_marks;
    mf_prepend_scheme prepend;
} mf_pretoken_step;

typedef struct mf_pretokenizer {
    mf_pretoken_step steps[MF_MAX_PRETOKEN_STEPS];
    size_t n_steps;
    bool is_byte_level; /* its last step is ByteLevel */
    bool marks_blanks;  /* a step is Metaspace */
} mf_pretokenizer;

/* Receives one word, valid during the call. */
typedef mf_status (*mf_word_fn)(void *ctx, const unsigned char *word, size_t n_bytes,
                                mf_error *error);

/* What one thread needs to run a pre-tokenizer. */
typedef struct mf_pretoken_run {
    const mf_pretokenizer *pretokenizer;
    mf_matcher *matchers[MF_MAX_PRETOKEN_STEPS];
    mf_buffer prefixed[MF_MAX_PRETOKEN_STEPS];
    mf_word_fn fn;
    void *ctx;
    mf_error *error;
} mf_pretoken_run;

/* Loads "pre_tokenizer". *p is zeroed by the caller and freed after a failure too. */
mf_status mf_pretokenizer_load(mf_pretokenizer *p, const mf_allocator *a, const mf_json *json,
                               mf_error *error);
/* One step that isolates the matches of a pattern. *p as above. */
mf_status mf_pretokenizer_make(mf_pretokenizer *p, const mf_allocator *a, const char *pattern,
                               mf_error *error);
void mf_pretokenizer_free(mf_pretokenizer *p);

/* *run is zeroed by the caller and freed after a failure too. */
mf_status mf_pretoken_run_init(mf_pretoken_run *run, const mf_pretokenizer *p,
                               const mf_allocator *a, mf_word_fn fn, void *ctx, mf_error *error);
void mf_pretoken_run_free(mf_pretoken_run *run);
/* Calls fn for each word of text[n_bytes], which is valid UTF-8. at_start: the text that is encoded
 * starts with it. */
mf_status mf_pretoken_run_text(mf_pretoken_run *run, const unsigned char *text, size_t n_bytes,
                               bool at_start);

#endif
