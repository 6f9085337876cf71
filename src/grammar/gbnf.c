/* SPDX-License-Identifier: MIT */
/* GBNF, as llama.cpp has it: rules "name ::= ...", literals, character classes, groups, repeats,
 * comments, and tokens by name or number. */
#include "grammar/grammar.h"

#include "base/digits.h"
#include "text/utf8.h"

#include <stdlib.h>

#define MAX_DEPTH 200
#define MAX_TIMES 1000000u
#define MAX_CLASS 4096

typedef struct reader {
    mf_rules *rules;
    const mf_vocabulary *vocabulary;
    const char *text, *at, *end;
    bool literal_tokens;
    unsigned depth;
} reader;

static unsigned line_of(const reader *g)
{
    unsigned line = 1;
    for (const char *c = g->text; c < g->at && c < g->end; c++)
        line += *c == '\n';
    return line;
}

/* What is wrong, and where. */
static mf_expr fail(reader *g, const char *what)
{
    mf_rules_fail(g->rules, MF_ERR_FORMAT, "the grammar's line %u: %s", line_of(g), what);
    g->at = g->end;
    return MF_EXPR_NOTHING;
}

static char peek(const reader *g)
{
    return g->at < g->end ? *g->at : '\0';
}

/* Blanks and comments; over line ends too if that is allowed here. */
static void skip(reader *g, bool with_lines)
{
    while (g->at < g->end) {
        if (*g->at == '#')
            while (g->at < g->end && *g->at != '\n' && *g->at != '\r')
                g->at++;
        else if (*g->at == ' ' || *g->at == '\t' ||
                 (with_lines && (*g->at == '\n' || *g->at == '\r')))
            g->at++;
        else
            break;
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t read_name(reader *g, const char **name)
{
    *name = g->at;
    while (g->at < g->end && is_name(*g->at))
        g->at++;
    return (size_t)(g->at - *name);
}

/* -------------------------------------------------------------------------------- characters -- */

static uint32_t read_hex(reader *g, int n)
{
    uint32_t value = 0;
    for (int i = 0; i < n; i++, g->at++) {
        if (!mf_is_hex(peek(g)))
            return (void)fail(g, "expected a hexadecimal digit"), 0;
        value = value * 16 + (uint32_t)mf_digit_of(peek(g));
    }
    if (value > MF_MAX_CODE_POINT || (value >= 0xD800 && value <= 0xDFFF))
        return (void)fail(g, "the escape is no character"), 0;
    return value;
}

static uint32_t read_escape(reader *g)
{
    const char c = peek(g);
    g->at += g->at < g->end;
    switch (c) {
    case 'x':
        return read_hex(g, 2);
    case 'u':
        return read_hex(g, 4);
    case 'U':
        return read_hex(g, 8);
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case 'n':
        return '\n';
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
        return (unsigned char)c;
    default:
        return (void)fail(g, "unknown escape"), 0;
    }
}

/* A character of a literal or a class. */
static uint32_t read_char(reader *g)
{
    uint32_t c = 0;
    size_t n = 1;
    if (g->at >= g->end)
        return (void)fail(g, "the text ends within a literal"), 0;
    if (*g->at == '\\') {
        g->at++;
        return read_escape(g);
    }
    if (mf_utf8_next((const unsigned char *)g->at, (size_t)(g->end - g->at), &c, &n) !=
        MF_UTF8_CHAR)
        return (void)fail(g, "not valid UTF-8"), 0;
    g->at += n;
    return c;
}

static mf_expr read_literal(reader *g)
{
    mf_buffer text;
    mf_expr e = MF_EXPR_NOTHING;
    mf_buffer_init(&text, &g->rules->allocator);
    g->at++;
    while (g->rules->status == MF_OK && peek(g) != '"') {
        unsigned char bytes[4];
        const size_t n = mf_utf8_put(read_char(g), bytes);
        if (mf_buffer_append(&text, bytes, n, "a grammar", g->rules->error) != MF_OK)
            g->rules->status = MF_ERR_NO_MEMORY;
    }
    g->at += g->at < g->end;
    if (g->rules->status == MF_OK)
        e = mf_expr_marked(g->rules, g->literal_tokens ? g->vocabulary : NULL,
                           (const char *)text.data, text.n_bytes);
    mf_buffer_free(&text);
    return e;
}

static mf_expr read_class(reader *g)
{
    mf_char_range *ranges = mf_alloc_array(&g->rules->allocator, MAX_CLASS + 2, sizeof *ranges);
    mf_char_range *inverse = mf_alloc_array(&g->rules->allocator, MAX_CLASS + 2, sizeof *ranges);
    size_t n = 0;
    mf_expr e = MF_EXPR_NOTHING;
    g->at++;
    const bool is_inverse = peek(g) == '^';
    g->at += is_inverse;
    if (ranges == NULL || inverse == NULL)
        mf_rules_fail(g->rules, MF_ERR_NO_MEMORY, "out of memory for a grammar");
    while (g->rules->status == MF_OK && peek(g) != ']') {
        const uint32_t first = read_char(g);
        uint32_t last = first;
        if (peek(g) == '-' && g->at + 1 < g->end && g->at[1] != ']') {
            g->at++;
            last = read_char(g);
        }
        if (last < first || n >= MAX_CLASS)
            (void)fail(g, last < first ? "the range runs backwards" : "the class is too long");
        else
            ranges[n++] = (mf_char_range){first, last};
    }
    g->at += g->at < g->end;
    if (g->rules->status == MF_OK && is_inverse) {
        n = mf_char_ranges_invert(ranges, mf_char_ranges_merge(ranges, n), inverse);
        e = mf_expr_chars(g->rules, inverse, n);
    } else if (g->rules->status == MF_OK) {
        e = mf_expr_chars(g->rules, ranges, n);
    }
    mf_free(&g->rules->allocator, ranges, (MAX_CLASS + 2) * sizeof *ranges);
    mf_free(&g->rules->allocator, inverse, (MAX_CLASS + 2) * sizeof *ranges);
    return e;
}

/* <name> or <[number]> */
static mf_expr read_token(reader *g)
{
    const char *begin = g->at, *close = memchr(g->at, '>', (size_t)(g->end - g->at));
    size_t n_token = 0;
    if (close == NULL)
        return fail(g, "a token is written <name> or <[number]>");
    if (begin[1] == '[') {
        char *stop;
        const unsigned long id = strtoul(begin + 2, &stop, 10);
        if (stop == begin + 2 || *stop != ']' || stop + 1 != close || begin[2] < '0' ||
            begin[2] > '9' || g->vocabulary == NULL || id >= g->vocabulary->n_tokens)
            return fail(g, "<[number]>: no such token");
        g->at = close + 1;
        return mf_expr_token(g->rules, (uint32_t)id);
    }
    const size_t n = (size_t)(close + 1 - begin);
    const uint32_t token = g->vocabulary == NULL
                               ? MF_NO_TOKEN
                               : mf_vocabulary_added(g->vocabulary, begin, n, &n_token);
    if (token == MF_NO_TOKEN || n_token != n) {
        mf_rules_fail(g->rules, MF_ERR_FORMAT, "the grammar's line %u: no token is called %.*s",
                      line_of(g), (int)(n < 80 ? n : 80), begin);
        g->at = g->end;
        return MF_EXPR_NOTHING;
    }
    g->at = close + 1;
    return mf_expr_token(g->rules, token);
}

/* ------------------------------------------------------------------------------- expressions -- */

static mf_expr read_alternatives(reader *g, bool is_nested);

static mf_expr read_any(reader *g)
{
    mf_char_range all = {0, MF_MAX_CODE_POINT};
    g->at++;
    return mf_expr_chars(g->rules, &all, 1);
}

static mf_expr read_group(reader *g)
{
    g->at++;
    if (++g->depth > MAX_DEPTH)
        return fail(g, "groups are nested too deep");
    const mf_expr e = read_alternatives(g, true);
    g->depth--;
    if (peek(g) != ')')
        return fail(g, "expected ')'");
    g->at++;
    return e;
}

static mf_expr read_reference(reader *g)
{
    const char *name;
    const size_t n = read_name(g, &name);
    uint32_t rule = mf_rules_find(g->rules, name, n);
    if (rule == MF_NO_RULE)
        rule = mf_rules_add(g->rules, name, n);
    return mf_expr_rule(g->rules, rule);
}

static bool read_times(reader *g, uint32_t *out)
{
    uint64_t value = 0;
    if (peek(g) < '0' || peek(g) > '9')
        return false;
    for (; peek(g) >= '0' && peek(g) <= '9'; g->at++)
        value = value > MAX_TIMES ? value : value * 10 + (uint64_t)(peek(g) - '0');
    if (value > MAX_TIMES)
        (void)fail(g, "at most 1000000 repeats");
    *out = (uint32_t)value;
    return true;
}

static mf_expr read_braces(reader *g, mf_expr e)
{
    uint32_t min = 0, max = 0;
    g->at++;
    skip(g, true);
    const bool has_min = read_times(g, &min);
    skip(g, true);
    if (peek(g) == ',') {
        g->at++;
        skip(g, true);
        if (!read_times(g, &max))
            max = MF_NO_LIMIT;
        skip(g, true);
    } else if (has_min) {
        max = min;
    }
    if (peek(g) != '}' || (!has_min && max == 0) || max < min)
        return fail(g, "repeats are written {n}, {n,}, {,m} or {n,m}");
    g->at++;
    return mf_expr_repeat(g->rules, e, min, max);
}

static mf_expr read_repeats(reader *g, mf_expr e)
{
    for (;;) {
        switch (peek(g)) {
        case '*':
            e = mf_expr_repeat(g->rules, e, 0, MF_NO_LIMIT);
            break;
        case '+':
            e = mf_expr_repeat(g->rules, e, 1, MF_NO_LIMIT);
            break;
        case '?':
            e = mf_expr_optional(g->rules, e);
            break;
        case '{':
            e = read_braces(g, e);
            continue;
        default:
            return e;
        }
        g->at++;
    }
}

static mf_expr read_item(reader *g)
{
    switch (peek(g)) {
    case '"':
        return read_literal(g);
    case '[':
        return read_class(g);
    case '(':
        return read_group(g);
    case '.':
        return read_any(g);
    case '<':
        return read_token(g);
    case '!':
        return fail(g, "'!' (any token but one) is not supported");
    default:
        return read_reference(g);
    }
}

static bool begins_item(char c)
{
    return is_name(c) || (c != '\0' && strchr("\"[(.<!", c) != NULL);
}

static mf_expr read_sequence(reader *g, bool is_nested)
{
    mf_expr all = MF_EXPR_EMPTY;
    while (g->rules->status == MF_OK && g->at < g->end && begins_item(*g->at)) {
        const mf_expr item = read_item(g);
        all = mf_expr_seq(g->rules, all, read_repeats(g, item));
        skip(g, is_nested);
    }
    return all;
}

/* An alternative may also begin the next line. */
static bool finds_bar(reader *g)
{
    const char *before = g->at;
    skip(g, true);
    if (g->rules->status == MF_OK && peek(g) == '|')
        return true;
    g->at = before;
    return false;
}

static mf_expr read_alternatives(reader *g, bool is_nested)
{
    skip(g, true);
    mf_expr all = read_sequence(g, is_nested);
    while (finds_bar(g)) {
        g->at++;
        skip(g, true);
        all = mf_expr_alt(g->rules, all, read_sequence(g, is_nested));
    }
    return all;
}

static void read_rule(reader *g)
{
    const char *name;
    const size_t n = read_name(g, &name);
    if (n == 0) {
        (void)fail(g, "expected the name of a rule");
        return;
    }
    skip(g, false);
    if (g->end - g->at < 3 || memcmp(g->at, "::=", 3) != 0) {
        (void)fail(g, "expected '::='");
        return;
    }
    g->at += 3;
    uint32_t rule = mf_rules_find(g->rules, name, n);
    if (rule == MF_NO_RULE)
        rule = mf_rules_add(g->rules, name, n);
    if (g->rules->status == MF_OK && g->rules->rules[rule].is_defined) {
        mf_rules_fail(g->rules, MF_ERR_FORMAT,
                      "the grammar's line %u: the rule %.*s is there twice", line_of(g),
                      (int)(n < 80 ? n : 80), name);
        return;
    }
    const mf_expr body = read_alternatives(g, false);
    mf_rules_define(g->rules, rule, body);
    if (g->at < g->end && *g->at != '\n' && *g->at != '\r')
        (void)fail(g, "expected the end of the rule");
}

void mf_gbnf_read(mf_rules *r, const char *text, size_t n_bytes, const mf_vocabulary *vocabulary,
                  bool literal_tokens)
{
    reader g = {.rules = r,
                .vocabulary = vocabulary,
                .text = text,
                .at = text,
                .end = text + n_bytes,
                .literal_tokens = literal_tokens};
    for (skip(&g, true); r->status == MF_OK && g.at < g.end; skip(&g, true))
        read_rule(&g);
}
