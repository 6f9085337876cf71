/* SPDX-License-Identifier: MIT */
/*
 * PCRE2 behind the caller's allocator. Patterns run as machine code where PCRE2 can make it, and in
 * its interpreter where it cannot or where the code's stack is too small.
 *
 * All matches of a text together may take an amount of work proportional to it, and no more: an
 * exponential pattern ends in an error, and so does one that is polynomial over the whole text.
 * PCRE2 does not say how much work a match took, but ends it at a limit: a match gets little at
 * first, which is free and enough for nearly all, and then more and more, which is charged. The
 * limits are two: of steps, which are decisions, and of how far it sees, since one step may run
 * over all of the text. What a match answers without having touched the end of what it sees is what
 * it would answer to the whole (PCRE2_PARTIAL_HARD).
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#define FREE_STEPS 50u
#define FIRST_STEPS 200u
#define LEAST_STEPS 2000000u
#define STEPS_PER_BYTE 64u
#define FREE_SIGHT ((size_t)256)
#define LEAST_SIGHT ((uint64_t)64 << 20)
#define SIGHT_PER_BYTE 256u
/* Work grows with the pattern too; those of tokenizers have some hundreds. */
#define MAX_PATTERN_BYTES ((size_t)16384)
#define MAX_FIELD 512
#define HEAP_LIMIT_KIB (32u * 1024u)

struct mf_regex {
    mf_allocator allocator;
    pcre2_general_context *general; /* its memory functions point at `allocator` */
    pcre2_code *code;
    bool has_jit;
    char field[MAX_FIELD]; /* what messages call it */
};

struct mf_matcher {
    mf_allocator allocator;
    const mf_regex *regex;
    pcre2_general_context *general;
    pcre2_match_context *match_context;
    pcre2_match_data *match_data;
    uint64_t steps_left, sight_left; /* for all matches; sight is in bytes */
};

static void *block_alloc(size_t n_bytes, void *ctx)
{
    return mf_block_alloc(ctx, n_bytes);
}

static void block_free(void *ptr, void *ctx)
{
    mf_block_free(ctx, ptr);
}

static mf_status compile(mf_regex *regex, const char *field, const unsigned char *pattern,
                         size_t n_bytes, uint32_t options, mf_error *error)
{
    regex->general = pcre2_general_context_create(block_alloc, block_free, &regex->allocator);
    pcre2_compile_context *context =
        regex->general != NULL ? pcre2_compile_context_create(regex->general) : NULL;
    if (context == NULL)
        return mf_fail_memory(error, 0, "a regular expression");
    /* Ruby's ^ and $ are at every line, and its only newline is \n. */
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 50);
    int code;
    PCRE2_SIZE position;
    regex->code = pcre2_compile(pattern, n_bytes, options, &code, &position, context);
    pcre2_compile_context_free(context);
    if (regex->code == NULL) {
        PCRE2_UCHAR reason[128] = "";
        if (code == PCRE2_ERROR_HEAP_FAILED)
            return mf_fail_memory(error, n_bytes, "a regular expression");
        (void)pcre2_get_error_message(code, reason, sizeof reason);
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: not a regular expression this version runs: %s (at byte %zu of its "
                       "PCRE2 form)",
                       field, (const char *)reason, (size_t)position);
    }
    regex->has_jit =
        pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
    return MF_OK;
}

mf_status mf_regex_compile(const mf_allocator *a, const char *field, mf_pattern pattern,
                           mf_regex **out, mf_error *error)
{
    if (pattern.n_bytes > MAX_PATTERN_BYTES)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: a pattern of %zu bytes, this version runs at most %zu", field,
                       pattern.n_bytes, MAX_PATTERN_BYTES);
    mf_regex *regex = mf_alloc_zeroed(a, sizeof *regex);
    if (regex == NULL)
        return mf_fail_memory(error, sizeof *regex, "a regular expression");
    regex->allocator = *a;
    (void)snprintf(regex->field, sizeof regex->field, "%s", field);
    mf_status status;
    if (pattern.is_literal) {
        status = compile(regex, field, (const unsigned char *)pattern.text, pattern.n_bytes,
                         PCRE2_LITERAL | PCRE2_UTF, error);
    } else {
        mf_buffer translated;
        mf_buffer_init(&translated, a);
        status = mf_regex_translate(field, pattern.text, pattern.n_bytes, &translated, error);
        if (status == MF_OK)
            status =
                compile(regex, field, translated.data, translated.n_bytes,
                        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, error);
        mf_buffer_free(&translated);
    }
    if (status != MF_OK) {
        mf_regex_free(&regex);
        return status;
    }
    *out = regex;
    return MF_OK;
}

void mf_regex_free(mf_regex **regex)
{
    mf_regex *r = *regex;
    *regex = NULL;
    if (r == NULL)
        return;
    pcre2_code_free(r->code);
    pcre2_general_context_free(r->general);
    mf_allocator a = r->allocator;
    mf_free(&a, r, sizeof *r);
}

mf_status mf_matcher_create(const mf_regex *regex, const mf_allocator *a, mf_matcher **out,
                            mf_error *error)
{
    mf_matcher *matcher = mf_alloc_zeroed(a, sizeof *matcher);
    if (matcher == NULL)
        return mf_fail_memory(error, sizeof *matcher, "a match");
    matcher->allocator = *a;
    matcher->regex = regex;
    matcher->general = pcre2_general_context_create(block_alloc, block_free, &matcher->allocator);
    if (matcher->general != NULL) {
        matcher->match_context = pcre2_match_context_create(matcher->general);
        matcher->match_data = pcre2_match_data_create(1, matcher->general);
    }
    if (matcher->match_context == NULL || matcher->match_data == NULL) {
        mf_matcher_free(&matcher);
        return mf_fail_memory(error, 0, "a match");
    }
    pcre2_set_heap_limit(matcher->match_context, HEAP_LIMIT_KIB);
    matcher->steps_left = LEAST_STEPS;
    matcher->sight_left = LEAST_SIGHT;
    *out = matcher;
    return MF_OK;
}

void mf_matcher_free(mf_matcher **matcher)
{
    mf_matcher *m = *matcher;
    *matcher = NULL;
    if (m == NULL)
        return;
    pcre2_match_data_free(m->match_data);
    pcre2_match_context_free(m->match_context);
    pcre2_general_context_free(m->general);
    mf_allocator a = m->allocator;
    mf_free(&a, m, sizeof *m);
}

/* Where a match of text[n_bytes] looks, and whether text goes on behind. */
typedef struct view {
    const unsigned char *text;
    size_t n_bytes, from;
    bool is_cut;
} view;

/* Few steps of machine code first, for nearly all matches; then the interpreter within what is
 * left, four times as many steps at each attempt. */
static int match_in_steps(mf_matcher *m, const view *v)
{
    /* The text is checked once by the caller, not once a match. */
    const uint32_t options = PCRE2_NO_UTF_CHECK | (v->is_cut ? PCRE2_PARTIAL_HARD : 0);
    uint64_t n_steps = FIRST_STEPS;
    if (m->regex->has_jit) {
        pcre2_set_match_limit(m->match_context, FREE_STEPS);
        int n = pcre2_jit_match(m->regex->code, v->text, v->n_bytes, v->from, options,
                                m->match_data, m->match_context);
        if (n != PCRE2_ERROR_MATCHLIMIT && n != PCRE2_ERROR_JIT_STACKLIMIT)
            return n;
    }
    for (;; n_steps *= 4) {
        n_steps = n_steps < UINT32_MAX ? n_steps : UINT32_MAX;
        if (n_steps > m->steps_left)
            n_steps = m->steps_left;
        pcre2_set_match_limit(m->match_context, (uint32_t)n_steps);
        int n = pcre2_match(m->regex->code, v->text, v->n_bytes, v->from, options | PCRE2_NO_JIT,
                            m->match_data, m->match_context);
        m->steps_left -= n_steps;
        if (n != PCRE2_ERROR_MATCHLIMIT || m->steps_left == 0)
            return n;
    }
}

/* text[n_bytes] as far as n_seen bytes behind `from`, and not into a character. */
static view view_of(const unsigned char *text, size_t n_bytes, size_t from, size_t n_seen)
{
    if (n_seen >= n_bytes - from)
        return (view){text, n_bytes, from, false};
    size_t end = from + n_seen;
    while ((text[end] & 0xC0) == 0x80)
        end--;
    return (view){text, end, from, true};
}

/* Does the answer n hold for the whole text? Not what touched the end of what was seen; and that
 * nothing was found there says nothing about what lies behind. */
static bool holds_for_all(const mf_matcher *m, const view *v, int n)
{
    if (!v->is_cut)
        return true;
    if (n >= 0)
        return pcre2_get_ovector_pointer(m->match_data)[1] < v->n_bytes;
    return n != PCRE2_ERROR_PARTIAL && n != PCRE2_ERROR_NOMATCH;
}

/* A short sight first, for nearly all matches; then within what is left, four times as far at each
 * attempt. */
static int match_in_budget(mf_matcher *m, const unsigned char *text, size_t n_bytes, size_t from)
{
    for (size_t n_seen = FREE_SIGHT;; n_seen *= 4) {
        const view v = view_of(text, n_bytes, from, n_seen);
        size_t n_charged = v.n_bytes - from > FREE_SIGHT ? v.n_bytes - from : 0;
        if (n_charged > m->sight_left)
            return PCRE2_ERROR_MATCHLIMIT;
        m->sight_left -= n_charged;
        int n = match_in_steps(m, &v);
        if (holds_for_all(m, &v, n))
            return n;
    }
}

mf_status mf_matcher_find(mf_matcher *m, const unsigned char *text, size_t n_bytes, size_t from,
                          mf_match *out, mf_error *error)
{
    if (from == 0) { /* a text begins */
        m->steps_left += (uint64_t)STEPS_PER_BYTE * n_bytes;
        m->sight_left += (uint64_t)SIGHT_PER_BYTE * n_bytes;
    }
    int n = match_in_budget(m, text, n_bytes, from);
    if (n == PCRE2_ERROR_NOMATCH) {
        *out = (mf_match){0};
        return MF_OK;
    }
    if (n == PCRE2_ERROR_NOMEMORY)
        return mf_fail_memory(error, 0, "a match");
    if (n < 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: its regular expression takes too much work on this text: it gave up "
                       "(PCRE2 error %d) at byte %zu of %zu",
                       m->regex->field, n, from, n_bytes);
    const PCRE2_SIZE *ovector = pcre2_get_ovector_pointer(m->match_data);
    *out = (mf_match){true, ovector[0], ovector[1]};
    return MF_OK;
}
