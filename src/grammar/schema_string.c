/* SPDX-License-Identifier: MIT */
/* Strings: lengths in characters, patterns, and formats, which are patterns of ours. */
#include "grammar/schema.h"

#define DAY_OF_YEAR                                                                                \
    "(?:(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|" \
    "3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|(?:[1-9]\\d(?:0[48]|"   \
    "[2468][048]|[13579][26])|0[1-9](?:0[48]|[2468][048]|[13579][26])|00(?:0[48]|[2468][048]|"     \
    "[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define TIME_OF_DAY \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST LABEL "(?:\\." LABEL "){0,2}"
#define BYTE_NUMBER "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 BYTE_NUMBER "(?:\\." BYTE_NUMBER "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                 \
    "(?:(?:" H16 ":){7}" H16 "|(?:" H16 ":){6}" IPV4 "|::(?:" H16 "(?::" H16 "){0,6})?|" H16 \
    "::(?:" H16 "(?::" H16 "){0,5})?|" H16 ":" H16 "::(?:" H16 "(?::" H16 "){0,4})?|(?:" H16 \
    ":){2}" H16 "::(?:" H16 "(?::" H16 "){0,3})?|(?:" H16 ":){3}" H16 "::(?:" H16 "(?::" H16 \
    "){0,2})?|(?:" H16 ":){4}" H16 "::(?:" H16 "(?::" H16 "){0,1})?|(?:" H16 ":){5}" H16     \
    "::(?:" H16 ")?|(?:" H16 ":){6}" H16 "::)"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,32}"
#define EMAIL ATOM "(?:\\." ATOM "){0,1}@" HOST
#define PCT "%[0-9A-Fa-f]{2}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" PCT ")"
#define URI                                                                               \
    "[A-Za-z][A-Za-z0-9+.-]{0,20}:(?://(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" PCT ")*@)?(?:" \
    "\\[" IPV6 "\\]|(?:[A-Za-z0-9._~-]|" PCT ")+)(?::\\d{1,5})?(?:/" PCHAR "*)*|/?" PCHAR \
    "+(?:/" PCHAR "*)*)(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define DURATION                                                                                \
    "P(?:\\d{1,6}W|(?:\\d{1,6}Y(?:\\d{1,6}M(?:\\d{1,6}D)?)?|\\d{1,6}M(?:\\d{1,6}D)?|\\d{1,6}D)" \
    "(?:T(?:\\d{1,6}H(?:\\d{1,6}M(?:\\d{1,6}S)?)?|\\d{1,6}M(?:\\d{1,6}S)?|\\d{1,6}S))?|"        \
    "T(?:\\d{1,6}H(?:\\d{1,6}M(?:\\d{1,6}S)?)?|\\d{1,6}M(?:\\d{1,6}S)?|\\d{1,6}S))"

static const struct {
    const char *name, *pattern;
} formats[] = {{"date", "^" DAY_OF_YEAR "$"},
               {"time", "^" TIME_OF_DAY "$"},
               {"date-time", "^" DAY_OF_YEAR "T" TIME_OF_DAY "$"},
               {"duration", "^" DURATION "$"},
               {"uuid", "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-"
                        "[0-9A-Fa-f]{12}$"},
               {"email", "^" EMAIL "$"},
               {"hostname", "^" HOST "$"},
               {"ipv4", "^" IPV4 "$"},
               {"ipv6", "^" IPV6 "$"},
               {"uri", "^" URI "$"}};

/* NULL: it is not known. */
static const char *pattern_of(const char *format)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(format, formats[i].name) == 0)
            return formats[i].pattern;
    return NULL;
}

/* The value of a keyword that is text and that all parts which have it agree on. */
static yyjson_val *only_text(mf_schema_reader *s, const mf_conjunction *c, const char *keyword)
{
    yyjson_val *found = NULL;
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *v = yyjson_obj_get(c->parts[i].schema, keyword);
        if (v == NULL)
            continue;
        if (!yyjson_is_str(v) || memchr(yyjson_get_str(v), '\0', yyjson_get_len(v)) != NULL) {
            (void)mf_schema_fail(s, MF_ERR_FORMAT, "%s: expected a string", keyword);
            return NULL;
        }
        if (found != NULL && !mf_schema_equal(s, found, v)) {
            (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED, "%s: two of them for one value", keyword);
            return NULL;
        }
        found = v;
    }
    return found;
}

/* Adds a pattern that is not among them. False: it is no text, or there are too many. */
static bool add_pattern(mf_schema_reader *s, yyjson_val *v, mf_word *out, size_t *n)
{
    const mf_word word = {yyjson_get_str(v), yyjson_get_len(v)};
    if (!yyjson_is_str(v) || memchr(word.text, '\0', word.n_bytes) != NULL) {
        (void)mf_schema_fail(s, MF_ERR_FORMAT, "pattern: expected a string");
        return false;
    }
    for (size_t i = 0; i < *n; i++)
        if (out[i].n_bytes == word.n_bytes &&
            (word.n_bytes == 0 || memcmp(out[i].text, word.text, word.n_bytes) == 0))
            return true;
    if (*n == MF_MAX_PATTERNS) {
        (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED, "pattern: more than %d for one value",
                             MF_MAX_PATTERNS);
        return false;
    }
    out[(*n)++] = word;
    return true;
}

static mf_expr inside_of(mf_schema_reader *s, const mf_conjunction *c)
{
    mf_rules *r = s->rules;
    mf_word patterns[MF_MAX_PATTERNS];
    size_t n = 0;
    const uint32_t min = mf_schema_count(s, c, "minLength", false, 0);
    const uint32_t max = mf_schema_count(s, c, "maxLength", true, MF_NO_LIMIT);
    yyjson_val *format = only_text(s, c, "format");
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *v = yyjson_obj_get(c->parts[i].schema, "pattern");
        if (v != NULL && !add_pattern(s, v, patterns, &n))
            return MF_EXPR_NOTHING;
    }
    if (r->status != MF_OK || min > max)
        return MF_EXPR_NOTHING;
    if (format != NULL) {
        const char *pattern = pattern_of(yyjson_get_str(format));
        if (pattern == NULL || n == MF_MAX_PATTERNS)
            return mf_schema_fail(s, MF_ERR_UNSUPPORTED, "the format \"%.60s\" is not supported",
                                  yyjson_get_str(format));
        patterns[n++] = (mf_word){pattern, strlen(pattern)};
    }
    return n == 0 ? mf_expr_repeat(r, mf_json_char(r), min, max)
                  : mf_schema_patterns(s, patterns, n, min, max);
}

mf_expr mf_schema_string(mf_schema_reader *s, const mf_conjunction *c)
{
    mf_rules *r = s->rules;
    const mf_expr quote = mf_expr_text(r, "\"");
    bool is_any = true;
    for (size_t i = 0; i < c->n; i++) {
        static const char *const words[] = {"minLength", "maxLength", "pattern", "format"};
        for (size_t k = 0; k < 4; k++)
            is_any = is_any && yyjson_obj_get(c->parts[i].schema, words[k]) == NULL;
    }
    if (is_any)
        return mf_json_any_string(r);
    return mf_expr_seq(r, mf_expr_seq(r, quote, inside_of(s, c)), quote);
}
