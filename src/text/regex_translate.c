/* SPDX-License-Identifier: MIT */
/*
 * Oniguruma (Ruby syntax) to PCRE2. The two read most of a pattern alike; this goes through it
 * once, copies what means the same, rewrites what does not, and refuses the rest.
 *
 * Rewritten: \s is Unicode's White_Space (PCRE2's also has U+180E); \v is one character, a vertical
 * tab (PCRE2's is a class); \uHHHH is \x{HHHH}; \p{X} gets the characters that X has gained since
 * PCRE2's version of Unicode; [A&&[^B]] is (?:(?![B])[A]).
 *
 * Refused, as they mean something else or are rare: [a[b]], other [a&&b], {,n}, {n}+, {n}?, a bare
 * (?i), \w, \b, \h and the like.
 */
#include "text/regex.h"

#include "base/digits.h"
#include "text/unicode_additions.h"

#include <stdio.h>
#include <string.h>

#define SPACE                                                                          \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}" \
    "\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                  \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"   \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}" \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}"

typedef struct mf_translation {
    const char *field;
    const char *at, *end;
    mf_buffer *out;
    mf_error *error;
    bool in_class;
} mf_translation;

static mf_status put(mf_translation *t, const char *text, size_t n)
{
    return mf_buffer_append(t->out, text, n, "a regular expression", t->error);
}

static mf_status put_string(mf_translation *t, const char *text)
{
    return put(t, text, strlen(text));
}

static mf_status refuse(const mf_translation *t, const char *what)
{
    size_t n = (size_t)(t->end - t->at);
    return mf_fail(t->error, MF_ERR_UNSUPPORTED, "%s: regular expression: %s near \"%.*s\"",
                   t->field, what, (int)(n > 24 ? 24 : n), t->at);
}

static bool starts_with(const mf_translation *t, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(t->end - t->at) >= n && memcmp(t->at, text, n) == 0;
}

/* The members of a class's inside, as a class of its own where there is none around. */
static mf_status put_members(mf_translation *t, const char *members)
{
    if (t->in_class)
        return put_string(t, members);
    MF_TRY(put_string(t, "["));
    MF_TRY(put_string(t, members));
    return put_string(t, "]");
}

/* Of a category (one letter: of all that begin with it) or a script. */
static mf_status put_additions(mf_translation *t, const char *name)
{
    size_t n = strlen(name);
    bool is_script = n > 2;
    const mf_unicode_addition *additions = is_script ? mf_script_additions : mf_unicode_additions;
    size_t n_additions = is_script ? mf_n_script_additions : mf_n_unicode_additions;
    for (size_t i = 0; i < n_additions; i++) {
        const mf_unicode_addition *a = &additions[i];
        char range[40];
        if (strncmp(a->name, name, n) != 0)
            continue;
        (void)snprintf(range, sizeof range, "\\x{%x}-\\x{%x}", a->first, a->last);
        MF_TRY(put_string(t, range));
    }
    return MF_OK;
}

static bool is_general_category(const char *name)
{
    static const char *const known =
        " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po "
        "S Sm Sc Sk So Z Zs Zl Zp ";
    char padded[8];
    if (strlen(name) > 2)
        return false;
    (void)snprintf(padded, sizeof padded, " %.2s ", name);
    return strstr(known, padded) != NULL;
}

/* \p{X}, \P{X}, \p{^X}: at the 'p'. Scripts are by Script, not PCRE2's Script_Extensions. */
static mf_status translate_property(mf_translation *t)
{
    bool negated = *t->at == 'P';
    const char *name = t->at + 2, *close;
    char buffer[40];
    if (t->at + 1 == t->end || t->at[1] != '{' ||
        (close = memchr(name, '}', (size_t)(t->end - name))) == NULL)
        return refuse(t, "expected \\p{...}");
    if (name < close && *name == '^') {
        negated = !negated;
        name++;
    }
    size_t n = (size_t)(close - name);
    if (n == 0 || n >= sizeof buffer - 1)
        return refuse(t, "unknown property");
    memcpy(buffer, name, n);
    buffer[n] = '\0';
    bool is_category = is_general_category(buffer);
    static const char *const scripts = " Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic "
                                       "Hebrew Thai Devanagari ";
    char padded[48];
    (void)snprintf(padded, sizeof padded, " %s ", buffer);
    if (!is_category && strstr(scripts, padded) == NULL)
        return refuse(t, "a property this version does not know");
    if (negated && t->in_class) /* additions cannot be taken out of a class */
        return refuse(t, "a negated property in a class");
    if (!t->in_class)
        MF_TRY(put_string(t, negated ? "[^" : "["));
    MF_TRY(put_string(t, is_category ? "\\p{" : "\\p{sc:"));
    MF_TRY(put_string(t, buffer));
    MF_TRY(put_string(t, "}"));
    MF_TRY(put_additions(t, buffer));
    if (!t->in_class)
        MF_TRY(put_string(t, "]"));
    t->at = close + 1;
    return MF_OK;
}

/* \xHH, \x{H...}, \uHHHH: at the letter. */
static mf_status translate_code_point(mf_translation *t)
{
    bool braced = t->end - t->at > 1 && t->at[0] == 'x' && t->at[1] == '{';
    size_t most = t->at[0] == 'u' ? 4 : braced ? 6 : 2;
    const char *digits = t->at + (braced ? 2 : 1);
    size_t n = 0;
    while (n < most && digits + n < t->end && mf_is_hex(digits[n]))
        n++;
    /* Two digits above 7F are a bare byte in Oniguruma. */
    if (n == 0 || (t->at[0] == 'u' && n != 4) || (most == 2 && n == 2 && digits[0] > '7'))
        return refuse(t, "an escape this version does not know");
    if (braced && (digits + n == t->end || digits[n] != '}'))
        return refuse(t, "expected }");
    MF_TRY(put_string(t, "\\x{"));
    MF_TRY(put(t, digits, n));
    MF_TRY(put_string(t, "}"));
    t->at = digits + n + braced;
    return MF_OK;
}

static mf_status translate_escape(mf_translation *t)
{
    t->at++; /* the backslash */
    if (t->at == t->end)
        return refuse(t, "a backslash at the end");
    char c = *t->at;
    switch (c) {
    case 'p':
    case 'P':
        return translate_property(t);
    case 'x':
    case 'u':
        return translate_code_point(t);
    case 's':
    case 'S':
        t->at++;
        return put_members(t, c == 's' ? SPACE : NOT_SPACE);
    case 'v':
        t->at++;
        return put_string(t, "\\x{b}");
    case 'd':
        t->at++;
        if (!t->in_class)
            MF_TRY(put_string(t, "["));
        MF_TRY(put_string(t, "\\p{Nd}"));
        MF_TRY(put_additions(t, "Nd"));
        return t->in_class ? MF_OK : put_string(t, "]");
    default:
        break;
    }
    bool is_letter_or_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                              (c >= 'A' && c <= 'Z') || (c & 0x80) != 0;
    bool is_known = strchr("nrtfae", c) != NULL || (!t->in_class && (c == 'A' || c == 'z'));
    if (is_letter_or_digit && !is_known)
        return refuse(t, "an escape this version does not know");
    t->at++;
    MF_TRY(put_string(t, "\\"));
    return put(t, &c, 1);
}

/* From the '[' of a class up to its ']' or "&&". */
static mf_status translate_members(mf_translation *t)
{
    MF_TRY(put_string(t, "["));
    t->at++;
    if (t->at < t->end && *t->at == '^') {
        MF_TRY(put_string(t, "^"));
        t->at++;
    }
    if (t->at < t->end && (*t->at == ']' || starts_with(t, "&&")))
        return refuse(t, "an empty class");
    while (t->at < t->end && *t->at != ']' && !starts_with(t, "&&")) {
        if (*t->at == '\\') {
            MF_TRY(translate_escape(t));
        } else if (*t->at == '[') {
            return refuse(t, "a class inside a class");
        } else {
            MF_TRY(put(t, t->at, 1));
            t->at++;
        }
    }
    if (t->at == t->end)
        return refuse(t, "a class without its end");
    return put_string(t, "]");
}

/* [A&&[^B]], at its first '[', as (?:(?![B])[A]): the one intersection that has a translation. */
static mf_status translate_difference(mf_translation *t)
{
    static const char minus[] = "&&[^";
    const char *start = t->at;
    size_t n_before = t->out->n_bytes;
    MF_TRY(translate_members(t)); /* only to find its end: A comes last */
    t->out->n_bytes = n_before;
    if (start[1] == '^' || !starts_with(t, minus) || t->end - t->at < 5 || t->at[4] == '^')
        return refuse(t, "an intersection of classes");
    t->at += sizeof minus - 2; /* the '^' stands where the '[' of B would */
    MF_TRY(put_string(t, "(?:(?!"));
    MF_TRY(translate_members(t));
    MF_TRY(put_string(t, ")"));
    const char *end = t->at;
    if (!starts_with(t, "]]"))
        return refuse(t, "an intersection of classes");
    t->at = start;
    MF_TRY(translate_members(t));
    t->at = end + 1;
    return put_string(t, ")");
}

/* A character class, at its '['. */
static mf_status translate_class(mf_translation *t)
{
    const char *start = t->at;
    size_t n_before = t->out->n_bytes;
    t->in_class = true;
    MF_TRY(translate_members(t));
    if (*t->at == '&') {
        t->at = start;
        t->out->n_bytes = n_before;
        MF_TRY(translate_difference(t));
    }
    t->at++;
    t->in_class = false;
    return MF_OK;
}

static mf_status translate_group(mf_translation *t)
{
    static const char *const openings[] = {
        "(?:", "(?i:", "(?-i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        if (starts_with(t, openings[i])) {
            t->at += strlen(openings[i]);
            return put_string(t, openings[i]);
        }
    }
    if (starts_with(t, "(?") || starts_with(t, "(*"))
        return refuse(t, "a group this version does not know");
    t->at++;
    return put_string(t, "(?:"); /* nothing refers to captures */
}

/* {n}, {n,}, {n,m}, at the '{'. */
static mf_status translate_interval(mf_translation *t)
{
    const char *p = t->at + 1;
    while (p < t->end && ((*p >= '0' && *p <= '9') || *p == ','))
        p++;
    size_t n = (size_t)(p - t->at);
    if (n < 2 || p == t->end || *p != '}' || t->at[1] == ',')
        return refuse(t, "a brace that is no {n}, {n,} or {n,m}");
    bool is_fixed = memchr(t->at, ',', n) == NULL;
    p++;
    if (p < t->end && (*p == '+' || (*p == '?' && is_fixed)))
        return refuse(t, "a quantifier after {...}");
    MF_TRY(put(t, t->at, (size_t)(p - t->at)));
    t->at = p;
    return MF_OK;
}

static mf_status translate_one(mf_translation *t)
{
    switch (*t->at) {
    case '\\':
        return translate_escape(t);
    case '[':
        return translate_class(t);
    case '(':
        return translate_group(t);
    case '{':
        return translate_interval(t);
    default:
        MF_TRY(put(t, t->at, 1));
        t->at++;
        return MF_OK;
    }
}

mf_status mf_regex_translate(const char *field, const char *pattern, size_t n_bytes, mf_buffer *out,
                             mf_error *error)
{
    mf_translation t = {field, pattern, pattern + n_bytes, out, error, false};
    while (t.at < t.end)
        MF_TRY(translate_one(&t));
    return MF_OK;
}
