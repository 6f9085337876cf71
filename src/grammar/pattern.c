/* SPDX-License-Identifier: MIT */
/*
 * ECMAScript patterns, as strings of JSON: what a pattern's character becomes is how JSON writes
 * it. \d, \w and \s are ECMAScript's; a pattern is found anywhere unless ^ and $ stand at its ends.
 * What no regular language has, or is not read here, is refused by name.
 */
#include "grammar/schema.h"

#include "text/utf8.h"

#define MAX_DEPTH 100
#define MAX_TIMES 100000u
#define MAX_CLASS 2048

typedef struct reader {
    mf_schema_reader *schema;
    mf_rules *rules;
    const char *text, *at, *end;
    unsigned depth;
} reader;

/* An expression, and how many characters it takes. */
typedef struct piece {
    mf_expr e;
    uint32_t min, max;
    mf_expr one; /* it is nothing but this character, min to max times; or MF_EXPR_NOTHING */
} piece;

typedef struct char_class {
    mf_char_range *ranges; /* room for MAX_CLASS */
    size_t n;
} char_class;

static piece fail(reader *g, mf_status code, const char *what)
{
    (void)mf_schema_fail(g->schema, code, "pattern: at character %zu: %s",
                         (size_t)(g->at - g->text), what);
    g->at = g->end;
    return (piece){.e = MF_EXPR_NOTHING, .one = MF_EXPR_NOTHING};
}

static char peek(const reader *g)
{
    return g->at < g->end ? *g->at : '\0';
}

static bool takes(reader *g, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(g->end - g->at) < n || memcmp(g->at, word, n) != 0)
        return false;
    g->at += n;
    return true;
}

/* ---------------------------------------------------------------------------------------- classes
 * --
 */

static void add_range(reader *g, char_class *c, uint32_t first, uint32_t last)
{
    if (c->n + 1 >= MAX_CLASS)
        (void)fail(g, MF_ERR_UNSUPPORTED, "the class is too long");
    else
        c->ranges[c->n++] = (mf_char_range){first, last};
}

/* \d, \w or \s, or with an upper letter what is not in them. */
static void add_named(reader *g, char_class *c, char name)
{
    static const mf_char_range digits[] = {{'0', '9'}},
                               words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                               blanks[] = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},
                                           {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                           {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                                           {0xFEFF, 0xFEFF}};
    const char lower = (char)(name | 32);
    const mf_char_range *ranges = lower == 'd' ? digits : lower == 'w' ? words : blanks;
    size_t n = lower == 'd' ? 1 : lower == 'w' ? 4 : sizeof blanks / sizeof *blanks;
    mf_char_range inverse[16];
    if (name != lower) {
        n = mf_char_ranges_invert(ranges, n, inverse);
        ranges = inverse;
    }
    for (size_t i = 0; i < n; i++)
        add_range(g, c, ranges[i].first, ranges[i].last);
}

static bool read_hex(reader *g, int n, uint32_t *out)
{
    uint32_t value = 0;
    if (g->end - g->at < n)
        return false;
    for (int i = 0; i < n; i++) {
        const char c = g->at[i];
        if (c >= '0' && c <= '9')
            value = value * 16 + (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            value = value * 16 + (uint32_t)((c | 32) - 'a' + 10);
        else
            return false;
    }
    g->at += n;
    *out = value;
    return true;
}

/* Behind \u: four digits, two times four that are surrogates, or digits in braces. */
static uint32_t read_unicode(reader *g)
{
    uint32_t c = 0, low = 0;
    if (takes(g, "{")) {
        int n = 0;
        while (n < 6 && g->at + n < g->end && g->at[n] != '}')
            n++;
        if (n == 0 || !read_hex(g, n, &c) || !takes(g, "}") || c > MF_MAX_CODE_POINT)
            (void)fail(g, MF_ERR_FORMAT, "\\u{...}: no character");
        return c;
    }
    if (!read_hex(g, 4, &c)) {
        (void)fail(g, MF_ERR_FORMAT, "\\u: expected four hexadecimal digits");
        return 0;
    }
    if (c >= 0xD800 && c <= 0xDBFF && takes(g, "\\u") && read_hex(g, 4, &low) && low >= 0xDC00 &&
        low <= 0xDFFF)
        return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    if (c >= 0xD800 && c <= 0xDFFF)
        (void)fail(g, MF_ERR_UNSUPPORTED, "half of a surrogate pair");
    return c;
}

/* A character behind a backslash that stands for one. */
static uint32_t read_escape(reader *g, bool is_in_class)
{
    static const char letters[] = "tnvfr0", values[] = "\t\n\v\f\r\0";
    uint32_t value = 0;
    const char c = peek(g);
    const char *letter = c != '\0' ? strchr(letters, c) : NULL;
    g->at += g->at < g->end;
    if (letter != NULL && !(c == '0' && peek(g) >= '0' && peek(g) <= '9'))
        return (unsigned char)values[letter - letters];
    if (c == 'b' && is_in_class)
        return 8;
    if (c == 'x' && read_hex(g, 2, &value))
        return value;
    if (c == 'u')
        return read_unicode(g);
    if (c == 'c' && ((peek(g) | 32) >= 'a' && (peek(g) | 32) <= 'z'))
        return (unsigned char)*g->at++ & 31u;
    if (c != '\0' && strchr("^$\\.*+?()[]{}|/-\"'#%&,:;<=>@_`~! ", c) != NULL)
        return (unsigned char)c;
    g->at -= c != '\0' ? 2 : 1;
    if (c >= '1' && c <= '9')
        (void)fail(g, MF_ERR_UNSUPPORTED, "references to groups are not supported");
    else if (c == 'k')
        (void)fail(g, MF_ERR_UNSUPPORTED, "references to groups (\\k) are not supported");
    else if (c == 'b' || c == 'B')
        (void)fail(g, MF_ERR_UNSUPPORTED, "word boundaries (\\b, \\B) are not supported");
    else if (c == 'p' || c == 'P')
        (void)fail(g, MF_ERR_UNSUPPORTED, "properties of characters (\\p, \\P) are not supported");
    else
        (void)fail(g, MF_ERR_FORMAT, "unknown escape");
    return 0;
}

static uint32_t read_plain(reader *g)
{
    uint32_t c = 0;
    size_t n = 1;
    (void)mf_utf8_next((const unsigned char *)g->at, (size_t)(g->end - g->at), &c, &n);
    g->at += n;
    return c;
}

/* A member of a class: a character (true), or a class of its own, which is added. */
static bool read_member(reader *g, char_class *c, bool is_in_class, uint32_t *out)
{
    if (peek(g) != '\\') {
        *out = read_plain(g);
        return true;
    }
    g->at++;
    if (peek(g) != '\0' && strchr("dDwWsS", peek(g)) != NULL) {
        add_named(g, c, *g->at++);
        return false;
    }
    *out = read_escape(g, is_in_class);
    return true;
}

static void read_class(reader *g, char_class *c)
{
    while (g->rules->status == MF_OK && peek(g) != ']') {
        uint32_t first, last;
        if (g->at >= g->end) {
            (void)fail(g, MF_ERR_FORMAT, "a class without its ']'");
            return;
        }
        if (!read_member(g, c, true, &first))
            continue;
        last = first;
        if (peek(g) == '-' && g->at + 1 < g->end && g->at[1] != ']') {
            g->at++;
            if (!read_member(g, c, true, &last)) { /* "a-\d": three things */
                add_range(g, c, '-', '-');
                last = first;
            }
        }
        if (last < first)
            (void)fail(g, MF_ERR_FORMAT, "a range that runs backwards");
        else
            add_range(g, c, first, last);
    }
    g->at++;
}

static piece make_chars(reader *g, char_class *c, bool is_inverse)
{
    mf_expr e = MF_EXPR_NOTHING;
    const mf_allocator *a = &g->rules->allocator;
    if (g->rules->status == MF_OK && is_inverse) {
        mf_char_range *inverse = mf_alloc_array(a, MAX_CLASS + 2, sizeof *inverse);
        if (inverse == NULL)
            (void)fail(g, MF_ERR_NO_MEMORY, "out of memory");
        else
            e = mf_json_chars(
                g->rules, inverse,
                mf_char_ranges_invert(c->ranges, mf_char_ranges_merge(c->ranges, c->n), inverse));
        mf_free(a, inverse, (MAX_CLASS + 2) * sizeof *inverse);
    } else if (g->rules->status == MF_OK) {
        e = mf_json_chars(g->rules, c->ranges, c->n);
    }
    return (piece){e, 1, 1, e};
}

/* One character: a class, a named one, a dot, an escape, or itself. */
static piece read_one(reader *g)
{
    const mf_allocator *a = &g->rules->allocator;
    char_class c = {mf_alloc_array(a, MAX_CLASS + 2, sizeof *c.ranges), 0};
    bool is_inverse = false;
    if (c.ranges == NULL)
        return fail(g, MF_ERR_NO_MEMORY, "out of memory");
    if (takes(g, "[")) {
        is_inverse = takes(g, "^");
        read_class(g, &c);
    } else if (takes(g, ".")) {
        is_inverse = true;
        add_range(g, &c, '\n', '\n');
        add_range(g, &c, '\r', '\r');
        add_range(g, &c, 0x2028, 0x2029);
    } else {
        uint32_t one;
        if (read_member(g, &c, false, &one))
            add_range(g, &c, one, one);
    }
    piece p = make_chars(g, &c, is_inverse);
    mf_free(a, c.ranges, (MAX_CLASS + 2) * sizeof *c.ranges);
    return p;
}

/* ---------------------------------------------------------------------------------- expressions --
 */

static piece read_alternatives(reader *g);

static uint32_t sum(uint32_t a, uint32_t b)
{
    return a == MF_NO_LIMIT || b == MF_NO_LIMIT || a + b < a ? MF_NO_LIMIT : a + b;
}

static uint32_t product(uint32_t a, uint32_t b)
{
    if (a == 0 || b == 0)
        return 0;
    const uint64_t all = (uint64_t)a * b;
    return a == MF_NO_LIMIT || b == MF_NO_LIMIT || all >= MF_NO_LIMIT ? MF_NO_LIMIT : (uint32_t)all;
}

static piece read_group(reader *g)
{
    if (takes(g, "?")) {
        if (takes(g, "=") || takes(g, "!"))
            return fail(g, MF_ERR_UNSUPPORTED,
                        "looking ahead, (?=...) or (?!...), is not supported");
        if (takes(g, "<=") || takes(g, "<!"))
            return fail(g, MF_ERR_UNSUPPORTED,
                        "looking behind, (?<=...) or (?<!...), is not supported");
        if (takes(g, "<")) { /* a name */
            while (g->at < g->end && *g->at != '>' && *g->at != ')')
                g->at++;
            if (!takes(g, ">"))
                return fail(g, MF_ERR_FORMAT, "a name without its '>'");
        } else if (!takes(g, ":")) {
            return fail(g, MF_ERR_UNSUPPORTED, "a group of this kind is not supported");
        }
    }
    if (++g->depth > MAX_DEPTH)
        return fail(g, MF_ERR_UNSUPPORTED, "groups are nested too deep");
    piece p = read_alternatives(g);
    g->depth--;
    if (g->rules->status == MF_OK && !takes(g, ")"))
        return fail(g, MF_ERR_FORMAT, "a group without its ')'");
    return p;
}

static bool read_number(reader *g, uint32_t *out)
{
    uint32_t value = 0;
    if (peek(g) < '0' || peek(g) > '9')
        return false;
    for (; peek(g) >= '0' && peek(g) <= '9'; g->at++)
        value = value > MAX_TIMES ? value : value * 10 + (uint32_t)(peek(g) - '0');
    if (value > MAX_TIMES)
        (void)fail(g, MF_ERR_UNSUPPORTED, "at most 100000 repeats");
    *out = value;
    return true;
}

/* {n}, {n,} or {n,m}; false and nothing taken: it is none. */
static bool read_braces(reader *g, uint32_t *min, uint32_t *max)
{
    const char *before = g->at;
    if (takes(g, "{") && read_number(g, min)) {
        *max = *min;
        if (takes(g, ",") && !read_number(g, max))
            *max = MF_NO_LIMIT;
        if (takes(g, "}"))
            return true;
    }
    if (g->rules->status == MF_OK)
        g->at = before;
    return false;
}

static piece repeated(reader *g, piece p, uint32_t min, uint32_t max)
{
    if (max < min)
        return fail(g, MF_ERR_FORMAT, "the numbers in braces run backwards");
    const bool is_one = p.one != MF_EXPR_NOTHING && p.min == 1 && p.max == 1;
    return (piece){mf_expr_repeat(g->rules, p.e, min, max), product(p.min, min),
                   product(p.max, max), is_one ? p.one : MF_EXPR_NOTHING};
}

static piece read_repeats(reader *g, piece p)
{
    uint32_t min, max;
    if (takes(g, "*"))
        p = repeated(g, p, 0, MF_NO_LIMIT);
    else if (takes(g, "+"))
        p = repeated(g, p, 1, MF_NO_LIMIT);
    else if (takes(g, "?"))
        p = repeated(g, p, 0, 1);
    else if (read_braces(g, &min, &max))
        p = repeated(g, p, min, max);
    else
        return p;
    (void)takes(g, "?"); /* lazy: the same texts */
    if (peek(g) == '*' || peek(g) == '+' || peek(g) == '?')
        return fail(g, MF_ERR_FORMAT, "nothing to repeat");
    return p;
}

static piece read_item(reader *g)
{
    const char c = peek(g);
    if (takes(g, "("))
        return read_repeats(g, read_group(g));
    if (c == '^' || c == '$')
        return fail(g, MF_ERR_UNSUPPORTED, "^ and $ are supported at the ends of a pattern");
    if (c == '*' || c == '+' || c == '?')
        return fail(g, MF_ERR_FORMAT, "nothing to repeat");
    return read_repeats(g, read_one(g));
}

static piece read_sequence(reader *g)
{
    piece all = {MF_EXPR_EMPTY, 0, 0, MF_EXPR_NOTHING};
    bool is_first = true;
    while (g->rules->status == MF_OK && g->at < g->end && *g->at != '|' && *g->at != ')') {
        if (g->depth == 0 && *g->at == '$' && (g->at + 1 == g->end || g->at[1] == '|'))
            break;
        const piece p = read_item(g);
        all = (piece){mf_expr_seq(g->rules, all.e, p.e), sum(all.min, p.min), sum(all.max, p.max),
                      is_first ? p.one : MF_EXPR_NOTHING};
        is_first = false;
    }
    return all;
}

static piece either(reader *g, piece a, piece b)
{
    return (piece){mf_expr_alt(g->rules, a.e, b.e), a.min < b.min ? a.min : b.min,
                   a.max > b.max ? a.max : b.max, MF_EXPR_NOTHING};
}

static piece read_alternatives(reader *g)
{
    piece all = read_sequence(g);
    while (g->rules->status == MF_OK && takes(g, "|"))
        all = either(g, all, read_sequence(g));
    return all;
}

/* ------------------------------------------------------------------------------------------ whole
 * --
 */

/* An alternative of the whole pattern, with all that may stand before and behind it. */
static piece read_anchored(reader *g, uint32_t min, uint32_t max)
{
    mf_rules *r = g->rules;
    const bool has_begin = takes(g, "^");
    piece p = read_sequence(g);
    const bool has_end = takes(g, "$");
    if (r->status != MF_OK)
        return p;
    if (has_begin && has_end && p.one != MF_EXPR_NOTHING) { /* lengths are its own */
        p.min = p.min > min ? p.min : min;
        p.max = p.max < max ? p.max : max;
        p.e = p.min <= p.max ? mf_expr_repeat(r, p.one, p.min, p.max) : MF_EXPR_NOTHING;
        return p;
    }
    const mf_expr any = mf_expr_repeat(r, mf_json_char(r), 0, MF_NO_LIMIT);
    if (p.e == MF_EXPR_EMPTY && !(has_begin && has_end)) /* "", "^", "$": any string */
        return (piece){mf_expr_repeat(r, mf_json_char(r), min, max), min, max, MF_EXPR_NOTHING};
    if (!has_begin)
        p.e = mf_expr_seq(r, any, p.e);
    if (!has_end)
        p.e = mf_expr_seq(r, p.e, any);
    if (!has_begin || !has_end)
        p.max = MF_NO_LIMIT;
    if (p.e != MF_EXPR_NOTHING && (p.min < min || p.max > max))
        (void)mf_schema_fail(g->schema, MF_ERR_UNSUPPORTED,
                             "pattern together with minLength or maxLength, where the pattern does "
                             "not keep to them by itself, is not supported");
    return p;
}

mf_expr mf_schema_pattern(mf_schema_reader *s, const char *pattern, size_t n_bytes, uint32_t min,
                          uint32_t max)
{
    reader g = {
        .schema = s, .rules = s->rules, .text = pattern, .at = pattern, .end = pattern + n_bytes};
    piece all = read_anchored(&g, min, max);
    while (s->rules->status == MF_OK && takes(&g, "|"))
        all = either(&g, all, read_anchored(&g, min, max));
    if (s->rules->status == MF_OK && g.at < g.end)
        (void)fail(&g, MF_ERR_FORMAT, "a ')' without its '('");
    return s->rules->status == MF_OK ? all.e : MF_EXPR_NOTHING;
}
