/* SPDX-License-Identifier: MIT */
/*
 * JSON as text. Between tokens, behind "{", "[", "," and ":" and before "}" and "]", there may be
 * one blank, or a line feed with up to 40 blanks or tabs: what compact, spaced and indented writers
 * put there, and no more, so that nothing can go on for ever.
 */
#include "grammar/schema.h"

#include <stdio.h>

/* The rule of that name, which is made where it is missing. True: it has to be defined. */
static bool find_rule(mf_rules *r, const char *name, uint32_t *rule)
{
    *rule = mf_rules_find(r, name, strlen(name));
    if (*rule != MF_NO_RULE)
        return false;
    *rule = mf_rules_add(r, name, strlen(name));
    return r->status == MF_OK;
}

static mf_expr range(mf_rules *r, uint32_t first, uint32_t last)
{
    mf_char_range one = {first, last};
    return mf_expr_chars(r, &one, 1);
}

static mf_expr one_of(mf_rules *r, const char *chars)
{
    mf_char_range ranges[32];
    size_t n = 0;
    for (; chars[n] != '\0' && n < 32; n++)
        ranges[n] = (mf_char_range){(unsigned char)chars[n], (unsigned char)chars[n]};
    return mf_expr_chars(r, ranges, n);
}

mf_expr mf_json_space(mf_rules *r)
{
    uint32_t rule;
    if (find_rule(r, "json ws", &rule)) {
        mf_expr indent = mf_expr_repeat(r, one_of(r, " \t"), 0, 40);
        mf_expr line = mf_expr_seq(r, mf_expr_text(r, "\n"), indent);
        mf_rules_define(r, rule, mf_expr_optional(r, mf_expr_alt(r, mf_expr_text(r, " "), line)));
    }
    return mf_expr_rule(r, rule);
}

/* \uXXXX of a character below U+10000 that is no surrogate, or of two surrogates. */
static mf_expr unicode_escape(mf_rules *r)
{
    mf_char_range hex[] = {{'0', '9'}, {'a', 'f'}, {'A', 'F'}};
    mf_char_range not_d[] = {{'0', '9'}, {'a', 'c'}, {'e', 'f'}, {'A', 'C'}, {'E', 'F'}};
    const mf_expr digit = mf_expr_chars(r, hex, 3);
    const mf_expr two = mf_expr_seq(r, digit, digit), d = one_of(r, "dD");
    const mf_expr low = mf_expr_seq(r, range(r, '0', '7'), two);
    const mf_expr below =
        mf_expr_alt(r, mf_expr_seq(r, mf_expr_chars(r, not_d, 5), mf_expr_seq(r, digit, two)),
                    mf_expr_seq(r, d, low));
    mf_expr first = mf_expr_seq(r, mf_expr_seq(r, d, one_of(r, "89abAB")), two);
    mf_expr second = mf_expr_seq(r, mf_expr_seq(r, d, one_of(r, "cdefCDEF")), two);
    mf_expr pair = mf_expr_seq(r, mf_expr_seq(r, first, mf_expr_text(r, "\\u")), second);
    return mf_expr_seq(r, mf_expr_text(r, "u"), mf_expr_alt(r, below, pair));
}

/* The first alternative is a range of plain bytes: masks.h looks for it. */
mf_expr mf_json_char(mf_rules *r)
{
    if (r->char_rule == MF_NO_RULE) {
        mf_char_range plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, MF_MAX_CODE_POINT}};
        mf_expr escape = mf_expr_seq(r, mf_expr_text(r, "\\"),
                                     mf_expr_alt(r, one_of(r, "\"\\/bfnrt"), unicode_escape(r)));
        r->char_rule = mf_rules_add(r, "json char", 9);
        mf_rules_define(r, r->char_rule, mf_expr_alt(r, mf_expr_chars(r, plain, 3), escape));
    }
    return mf_expr_rule(r, r->char_rule);
}

static mf_expr quoted(mf_rules *r, mf_expr inside)
{
    const mf_expr quote = mf_expr_text(r, "\"");
    return mf_expr_seq(r, mf_expr_seq(r, quote, inside), quote);
}

mf_expr mf_json_any_string(mf_rules *r)
{
    uint32_t rule;
    if (find_rule(r, "json string", &rule))
        mf_rules_define(r, rule, quoted(r, mf_expr_repeat(r, mf_json_char(r), 0, MF_NO_LIMIT)));
    return mf_expr_rule(r, rule);
}

mf_expr mf_json_any_integer(mf_rules *r)
{
    uint32_t rule;
    if (find_rule(r, "json integer", &rule)) {
        mf_expr digits = mf_expr_repeat(r, range(r, '0', '9'), 0, MF_NO_LIMIT);
        mf_expr whole =
            mf_expr_alt(r, mf_expr_text(r, "0"), mf_expr_seq(r, range(r, '1', '9'), digits));
        mf_expr sign = mf_expr_optional(r, mf_expr_text(r, "-"));
        mf_rules_define(r, rule, mf_expr_seq(r, sign, whole));
    }
    return mf_expr_rule(r, rule);
}

/* Exponents as far as doubles reach. */
mf_expr mf_json_any_number(mf_rules *r)
{
    uint32_t rule;
    if (find_rule(r, "json number", &rule)) {
        const mf_expr digit = range(r, '0', '9');
        mf_expr point =
            mf_expr_seq(r, mf_expr_text(r, "."), mf_expr_repeat(r, digit, 1, MF_NO_LIMIT));
        mf_expr hundreds = mf_expr_seq(r, one_of(r, "12"), mf_expr_seq(r, digit, digit));
        mf_expr most = mf_expr_seq(r, mf_expr_text(r, "30"), range(r, '0', '7'));
        mf_expr size =
            mf_expr_alt(r, mf_expr_alt(r, mf_expr_repeat(r, digit, 1, 2), hundreds), most);
        mf_expr sign = mf_expr_optional(r, one_of(r, "+-"));
        mf_expr power = mf_expr_seq(r, mf_expr_seq(r, one_of(r, "eE"), sign), size);
        mf_expr parts = mf_expr_seq(r, mf_expr_optional(r, point), mf_expr_optional(r, power));
        mf_rules_define(r, rule, mf_expr_seq(r, mf_json_any_integer(r), parts));
    }
    return mf_expr_rule(r, rule);
}

/* open item ("," item)* close, or open close */
static mf_expr list_of(mf_rules *r, const char *open, mf_expr item, const char *close)
{
    const mf_expr ws = mf_json_space(r);
    mf_expr comma = mf_expr_seq(r, mf_expr_text(r, ","), ws);
    mf_expr more = mf_expr_repeat(r, mf_expr_seq(r, comma, item), 0, MF_NO_LIMIT);
    mf_expr items = mf_expr_seq(r, mf_expr_seq(r, item, more), ws);
    mf_expr begin = mf_expr_seq(r, mf_expr_text(r, open), ws);
    return mf_expr_seq(r, mf_expr_seq(r, begin, mf_expr_optional(r, items)),
                       mf_expr_text(r, close));
}

mf_expr mf_json_any_array(mf_rules *r)
{
    uint32_t rule;
    if (find_rule(r, "json array", &rule))
        mf_rules_define(r, rule, list_of(r, "[", mf_json_any_value(r), "]"));
    return mf_expr_rule(r, rule);
}

mf_expr mf_json_any_object(mf_rules *r)
{
    uint32_t rule;
    if (find_rule(r, "json object", &rule)) {
        mf_expr colon = mf_expr_seq(r, mf_expr_text(r, ":"), mf_json_space(r));
        mf_expr key = mf_expr_seq(r, mf_json_any_string(r), colon);
        mf_rules_define(r, rule, list_of(r, "{", mf_expr_seq(r, key, mf_json_any_value(r)), "}"));
    }
    return mf_expr_rule(r, rule);
}

mf_expr mf_json_any_value(mf_rules *r)
{
    uint32_t rule;
    if (find_rule(r, "json value", &rule)) {
        mf_word words[] = {{"null", 4}, {"true", 4}, {"false", 5}};
        mf_expr all = mf_expr_words(r, words, 3);
        all = mf_expr_alt(r, all, mf_json_any_number(r));
        all = mf_expr_alt(r, all, mf_json_any_string(r));
        all = mf_expr_alt(r, all, mf_json_any_array(r));
        mf_rules_define(r, rule, mf_expr_alt(r, all, mf_json_any_object(r)));
    }
    return mf_expr_rule(r, rule);
}

/* ----------------------------------------------------------------------------------- strings -- */

/* A character that cannot stand for itself, as it is written; 0 bytes: it can. */
static size_t escape_of(uint32_t c, char out[8])
{
    static const char letters[] = "btnvfr";
    if (c == '"' || c == '\\')
        return (size_t)snprintf(out, 8, "\\%c", (char)c);
    if (c >= 0x20)
        return 0;
    if (c >= 8 && c <= 13 && c != 11)
        return (size_t)snprintf(out, 8, "\\%c", letters[c - 8]);
    return (size_t)snprintf(out, 8, "\\u%04x", (unsigned)c);
}

size_t mf_json_escape(const char *text, size_t n_bytes, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        char escape[8];
        const size_t n_escape = escape_of((unsigned char)text[i], escape);
        if (n_escape > 0)
            memcpy(out + n, escape, n_escape);
        else
            out[n] = text[i];
        n += n_escape > 0 ? n_escape : 1;
    }
    return n;
}

mf_expr mf_json_literal(mf_rules *r, const char *text, size_t n_bytes)
{
    const size_t capacity = 6 * n_bytes + 2;
    char *out = mf_alloc(&r->allocator, capacity);
    if (out == NULL) {
        mf_rules_fail(r, MF_ERR_NO_MEMORY, "out of memory for a grammar");
        return MF_EXPR_NOTHING;
    }
    out[0] = '"';
    size_t n = 1 + mf_json_escape(text, n_bytes, out + 1);
    out[n++] = '"';
    mf_expr e = mf_expr_bytes(r, out, n);
    mf_free(&r->allocator, out, capacity);
    return e;
}

static bool holds(const mf_char_range *ranges, size_t n, uint32_t c)
{
    for (size_t i = 0; i < n; i++)
        if (ranges[i].first <= c && c <= ranges[i].last)
            return true;
    return false;
}

/* Those that stand for themselves, of merged ranges, into out[n + 2]. */
static size_t keep_plain(const mf_char_range *ranges, size_t n, mf_char_range *out)
{
    static const mf_char_range plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, MF_MAX_CODE_POINT}};
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 3; k++) {
            const uint32_t first =
                ranges[i].first > plain[k].first ? ranges[i].first : plain[k].first;
            const uint32_t last = ranges[i].last < plain[k].last ? ranges[i].last : plain[k].last;
            if (first <= last)
                out[n_out++] = (mf_char_range){first, last};
        }
    return n_out;
}

mf_expr mf_json_chars(mf_rules *r, mf_char_range *ranges, size_t n)
{
    n = mf_char_ranges_merge(ranges, n);
    const size_t n_bytes = (3 * n + 1) * sizeof(mf_char_range);
    mf_char_range *out = mf_alloc(&r->allocator, n_bytes);
    char texts[34][8];
    mf_word words[34];
    size_t n_words = 0;
    if (out == NULL) {
        mf_rules_fail(r, MF_ERR_NO_MEMORY, "out of memory for a grammar");
        return MF_EXPR_NOTHING;
    }
    for (uint32_t c = 0; c <= '\\'; c++) {
        const size_t n_escape = holds(ranges, n, c) ? escape_of(c, texts[n_words]) : 0;
        if (n_escape == 0)
            continue;
        words[n_words] = (mf_word){texts[n_words], n_escape};
        n_words++;
    }
    mf_expr plain = mf_expr_chars(r, out, keep_plain(ranges, n, out));
    mf_free(&r->allocator, out, n_bytes);
    return mf_expr_alt(r, plain, mf_expr_words(r, words, n_words));
}
