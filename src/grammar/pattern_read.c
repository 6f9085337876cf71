/* SPDX-License-Identifier: MIT */
/* Patterns from text to trees. \d, \w and \s are ECMAScript's. */
#include "grammar/pattern.h"

#include "base/digits.h"
#include "text/utf8.h"

#define MAX_DEPTH 100
#define MAX_TIMES 100000u
#define MAX_CLASS 2048
#define MAX_NODES 200000u

typedef struct reader {
    mf_schema_reader *schema;
    mf_rules *rules;
    mf_pattern *out;
    const char *text, *at, *end;
    unsigned depth;
} reader;

typedef struct char_class {
    mf_char_range *ranges; /* room for MAX_CLASS */
    size_t n;
} char_class;

static uint32_t fail(reader *g, mf_status code, const char *what)
{
    (void)mf_schema_fail(g->schema, code, "pattern: at character %zu: %s",
                         (size_t)(g->at - g->text), what);
    g->at = g->end;
    return MF_NO_PATTERN;
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

/* ----------------------------------------------------------------------------------- classes -- */

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
        if (!mf_is_hex(g->at[i]))
            return false;
        value = value * 16 + (uint32_t)mf_digit_of(g->at[i]);
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

/* ------------------------------------------------------------------------------------- nodes -- */

static uint32_t add_node(reader *g, mf_pattern_node node)
{
    mf_pattern *p = g->out;
    if (g->rules->status != MF_OK)
        return MF_NO_PATTERN;
    if (p->n_nodes >= MAX_NODES)
        return fail(g, MF_ERR_UNSUPPORTED, "the pattern is too long");
    if (!mf_rules_grow(g->rules, (void **)&p->nodes, &p->node_capacity, p->n_nodes,
                       sizeof *p->nodes))
        return MF_NO_PATTERN;
    node.next = MF_NO_PATTERN;
    p->nodes[p->n_nodes] = node;
    return (uint32_t)p->n_nodes++;
}

static uint32_t add_chars(reader *g, const mf_char_range *ranges, size_t n)
{
    mf_pattern *p = g->out;
    const uint32_t first = (uint32_t)p->n_ranges;
    for (size_t i = 0; i < n; i++) {
        if (!mf_rules_grow(g->rules, (void **)&p->ranges, &p->range_capacity, p->n_ranges,
                           sizeof *p->ranges))
            return MF_NO_PATTERN;
        p->ranges[p->n_ranges++] = ranges[i];
    }
    return add_node(g,
                    (mf_pattern_node){.kind = MF_PATTERN_CHARS, .first = first, .n = (uint32_t)n});
}

/* Parts of a node, one behind the other. */
typedef struct parts {
    uint32_t first, last, n;
} parts;

static void add_part(reader *g, parts *all, uint32_t part)
{
    if (g->rules->status != MF_OK)
        return;
    if (all->n == 0)
        all->first = part;
    else
        g->out->nodes[all->last].next = part;
    all->last = part;
    all->n++;
}

static uint32_t add_list(reader *g, mf_pattern_kind kind, const parts *all)
{
    if (all->n == 1)
        return all->first;
    return add_node(g, (mf_pattern_node){.kind = kind,
                                         .first = all->n > 0 ? all->first : MF_NO_PATTERN,
                                         .n = all->n});
}

static uint32_t make_chars(reader *g, char_class *c, bool is_inverse)
{
    const mf_allocator *a = &g->rules->allocator;
    if (g->rules->status != MF_OK)
        return MF_NO_PATTERN;
    c->n = mf_char_ranges_merge(c->ranges, c->n);
    if (!is_inverse)
        return add_chars(g, c->ranges, c->n);
    mf_char_range *inverse = mf_alloc_array(a, MAX_CLASS + 2, sizeof *inverse);
    if (inverse == NULL)
        return fail(g, MF_ERR_NO_MEMORY, "out of memory");
    const uint32_t node = add_chars(g, inverse, mf_char_ranges_invert(c->ranges, c->n, inverse));
    mf_free(a, inverse, (MAX_CLASS + 2) * sizeof *inverse);
    return node;
}

/* One character: a class, a named one, a dot, an escape, or itself. */
static uint32_t read_one(reader *g)
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
    const uint32_t node = make_chars(g, &c, is_inverse);
    mf_free(a, c.ranges, (MAX_CLASS + 2) * sizeof *c.ranges);
    return node;
}

/* ------------------------------------------------------------------------------- expressions -- */

static uint32_t read_alternatives(reader *g);

/* Behind "(?": what kind of group it is. */
static bool read_kind(reader *g, mf_pattern_node *look, bool *looks)
{
    static const char *const words[] = {"=", "!", "<=", "<!"};
    for (size_t i = 0; i < 4; i++)
        if (takes(g, words[i])) {
            *looks = true;
            look->is_behind = i >= 2;
            look->is_not = i % 2 == 1;
            return true;
        }
    if (takes(g, "<")) { /* a name */
        while (g->at < g->end && *g->at != '>' && *g->at != ')')
            g->at++;
        if (!takes(g, ">"))
            (void)fail(g, MF_ERR_FORMAT, "a name without its '>'");
    } else if (!takes(g, ":")) {
        (void)fail(g, MF_ERR_UNSUPPORTED, "a group of this kind is not supported");
    }
    return g->rules->status == MF_OK;
}

/* *looks: it is no text of its own. */
static uint32_t read_group(reader *g, bool *looks)
{
    mf_pattern_node look = {.kind = MF_PATTERN_LOOK, .n = 1};
    *looks = false;
    if (takes(g, "?") && !read_kind(g, &look, looks))
        return MF_NO_PATTERN;
    if (++g->depth > MAX_DEPTH)
        return fail(g, MF_ERR_UNSUPPORTED, "groups are nested too deep");
    const uint32_t inner = read_alternatives(g);
    g->depth--;
    if (g->rules->status == MF_OK && !takes(g, ")"))
        return fail(g, MF_ERR_FORMAT, "a group without its ')'");
    look.first = inner;
    return *looks ? add_node(g, look) : inner;
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

/* A quantifier where there is nothing for it; braces that are none are text. */
static bool is_stray_repeat(reader *g)
{
    const char *before = g->at;
    uint32_t min, max;
    const char c = peek(g);
    const bool is_repeat = c == '*' || c == '+' || c == '?' || read_braces(g, &min, &max);
    if (g->rules->status == MF_OK)
        g->at = before;
    return is_repeat;
}

static uint32_t read_repeats(reader *g, uint32_t part)
{
    mf_pattern_node node = {.kind = MF_PATTERN_REPEAT, .first = part, .n = 1, .max = MF_NO_LIMIT};
    if (takes(g, "+"))
        node.min = 1;
    else if (takes(g, "?"))
        node.max = 1;
    else if (!takes(g, "*") && !read_braces(g, &node.min, &node.max))
        return part;
    if (node.max < node.min)
        return fail(g, MF_ERR_FORMAT, "the numbers in braces run backwards");
    (void)takes(g, "?"); /* lazy: the same texts */
    if (is_stray_repeat(g))
        return fail(g, MF_ERR_FORMAT, "nothing to repeat");
    return add_node(g, node);
}

/* What looks around may not be repeated in ECMAScript, but for old patterns. */
static uint32_t read_item(reader *g)
{
    bool looks = false;
    if (takes(g, "(")) {
        const uint32_t group = read_group(g, &looks);
        return looks ? group : read_repeats(g, group);
    }
    if (takes(g, "^"))
        return add_node(g, (mf_pattern_node){.kind = MF_PATTERN_BEGIN});
    if (takes(g, "$"))
        return add_node(g, (mf_pattern_node){.kind = MF_PATTERN_END});
    if (takes(g, "\\b") || takes(g, "\\B"))
        return add_node(g,
                        (mf_pattern_node){.kind = MF_PATTERN_BOUNDARY, .is_not = g->at[-1] == 'B'});
    if (is_stray_repeat(g))
        return fail(g, MF_ERR_FORMAT, "nothing to repeat");
    return read_repeats(g, read_one(g));
}

static uint32_t read_sequence(reader *g)
{
    parts all = {0, 0, 0};
    while (g->rules->status == MF_OK && g->at < g->end && *g->at != '|' && *g->at != ')')
        add_part(g, &all, read_item(g));
    return add_list(g, MF_PATTERN_SEQ, &all);
}

static uint32_t read_alternatives(reader *g)
{
    parts all = {0, 0, 0};
    add_part(g, &all, read_sequence(g));
    while (g->rules->status == MF_OK && takes(g, "|"))
        add_part(g, &all, read_sequence(g));
    return add_list(g, MF_PATTERN_ALT, &all);
}

bool mf_pattern_read(mf_schema_reader *s, const char *text, size_t n_bytes, mf_pattern *out)
{
    *out = (mf_pattern){.allocator = s->rules->allocator, .root = MF_NO_PATTERN};
    reader g = {.schema = s,
                .rules = s->rules,
                .out = out,
                .text = text,
                .at = text,
                .end = text + n_bytes};
    out->root = read_alternatives(&g);
    if (s->rules->status == MF_OK && g.at < g.end)
        (void)fail(&g, MF_ERR_FORMAT, "a ')' without its '('");
    return s->rules->status == MF_OK;
}

void mf_pattern_free(mf_pattern *p)
{
    mf_free(&p->allocator, p->nodes, p->node_capacity * sizeof *p->nodes);
    mf_free(&p->allocator, p->ranges, p->range_capacity * sizeof *p->ranges);
    p->nodes = NULL;
    p->ranges = NULL;
}
