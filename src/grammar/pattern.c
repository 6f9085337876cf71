/* SPDX-License-Identifier: MIT */
/*
 * ECMAScript patterns, as strings of JSON: what a pattern's character becomes is how JSON writes
 * it. A pattern is found anywhere unless ^ and $ stand at its ends. Such patterns become
 * expressions, whose repeats are counted; those that look around, or whose lengths are bounded from
 * outside, an automaton (pattern_automaton.c).
 */
#include "grammar/pattern.h"

/* An expression, and how many characters it takes. */
typedef struct piece {
    mf_expr e;
    uint32_t min, max;
    mf_expr one; /* it is nothing but this character, min to max times; or MF_EXPR_NOTHING */
} piece;

typedef struct writer {
    mf_rules *rules;
    const mf_pattern *pattern;
    uint32_t min, max; /* of the whole string */
    bool is_more;      /* than an expression can say */
} writer;

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

static const mf_pattern_node *node_of(const writer *w, uint32_t i)
{
    return &w->pattern->nodes[i];
}

static piece write(writer *w, uint32_t i);

static piece either(writer *w, piece a, piece b)
{
    return (piece){mf_expr_alt(w->rules, a.e, b.e), a.min < b.min ? a.min : b.min,
                   a.max > b.max ? a.max : b.max, MF_EXPR_NOTHING};
}

/* n parts from one on. */
static piece write_parts(writer *w, uint32_t first, uint32_t n)
{
    piece all = {MF_EXPR_EMPTY, 0, 0, MF_EXPR_NOTHING};
    for (uint32_t i = 0; i < n; i++, first = node_of(w, first)->next) {
        const piece p = write(w, first);
        all = (piece){mf_expr_seq(w->rules, all.e, p.e), sum(all.min, p.min), sum(all.max, p.max),
                      n == 1 ? p.one : MF_EXPR_NOTHING};
    }
    return all;
}

static piece write_alternatives(writer *w, const mf_pattern_node *node)
{
    piece all = write(w, node->first);
    for (uint32_t i = node_of(w, node->first)->next; i != MF_NO_PATTERN; i = node_of(w, i)->next)
        all = either(w, all, write(w, i));
    return all;
}

static piece write_chars(writer *w, const mf_pattern_node *node)
{
    const mf_expr e = mf_json_chars(w->rules, w->pattern->ranges + node->first, node->n);
    return (piece){e, 1, 1, e};
}

static piece write_repeat(writer *w, const mf_pattern_node *node)
{
    const piece p = write(w, node->first);
    const bool is_one = p.one != MF_EXPR_NOTHING && p.min == 1 && p.max == 1;
    return (piece){mf_expr_repeat(w->rules, p.e, node->min, node->max), product(p.min, node->min),
                   product(p.max, node->max), is_one ? p.one : MF_EXPR_NOTHING};
}

static piece write(writer *w, uint32_t i)
{
    const mf_pattern_node *node = node_of(w, i);
    switch (node->kind) {
    case MF_PATTERN_CHARS:
        return write_chars(w, node);
    case MF_PATTERN_SEQ:
        return write_parts(w, node->first, node->n);
    case MF_PATTERN_ALT:
        return write_alternatives(w, node);
    case MF_PATTERN_REPEAT:
        return write_repeat(w, node);
    default:
        w->is_more = true;
        return (piece){MF_EXPR_NOTHING, 0, 0, MF_EXPR_NOTHING};
    }
}

/* ------------------------------------------------------------------------------------- whole -- */

/* An alternative of the whole pattern between ^ and $, where it has them. */
typedef struct body {
    uint32_t first, n;
    bool has_begin, has_end;
} body;

static body body_of(const writer *w, uint32_t i)
{
    const mf_pattern_node *node = node_of(w, i);
    body b = {i, 1, false, false};
    uint32_t last = i;
    if (node->kind == MF_PATTERN_SEQ)
        b = (body){node->first, node->n, false, false};
    if (b.n > 0 && node_of(w, b.first)->kind == MF_PATTERN_BEGIN) {
        b.has_begin = true;
        b.n--;
        b.first = node_of(w, b.first)->next;
    }
    for (uint32_t k = 0; k < b.n; k++)
        last = k == 0 ? b.first : node_of(w, last)->next;
    b.has_end = b.n > 0 && node_of(w, last)->kind == MF_PATTERN_END;
    b.n -= b.has_end;
    return b;
}

/* With all that may stand before and behind it. */
static piece write_anchored(writer *w, uint32_t i)
{
    mf_rules *r = w->rules;
    const body b = body_of(w, i);
    const bool is_whole = b.has_begin && b.has_end;
    piece p = write_parts(w, b.first, b.n);
    if (is_whole && p.one != MF_EXPR_NOTHING) { /* lengths are its own */
        p.min = p.min > w->min ? p.min : w->min;
        p.max = p.max < w->max ? p.max : w->max;
        p.e = p.min <= p.max ? mf_expr_repeat(r, p.one, p.min, p.max) : MF_EXPR_NOTHING;
        return p;
    }
    const mf_expr any = mf_expr_repeat(r, mf_json_char(r), 0, MF_NO_LIMIT);
    if (p.e == MF_EXPR_EMPTY && !is_whole) /* "", "^", "$": any string */
        return (piece){mf_expr_repeat(r, mf_json_char(r), w->min, w->max), w->min, w->max,
                       MF_EXPR_NOTHING};
    if (!b.has_begin)
        p.e = mf_expr_seq(r, any, p.e);
    if (!b.has_end)
        p.e = mf_expr_seq(r, p.e, any);
    if (!is_whole)
        p.max = MF_NO_LIMIT;
    w->is_more = w->is_more || (p.e != MF_EXPR_NOTHING && (p.min < w->min || p.max > w->max));
    return p;
}

/* As an expression; false: it is more than that. */
static bool write_whole(writer *w, mf_expr *out)
{
    const mf_pattern_node *root = node_of(w, w->pattern->root);
    const bool has_several = root->kind == MF_PATTERN_ALT;
    piece all = write_anchored(w, has_several ? root->first : w->pattern->root);
    uint32_t i = has_several ? node_of(w, root->first)->next : MF_NO_PATTERN;
    for (; i != MF_NO_PATTERN && !w->is_more; i = node_of(w, i)->next)
        all = either(w, all, write_anchored(w, i));
    *out = all.e;
    return !w->is_more;
}

mf_expr mf_schema_patterns(mf_schema_reader *s, const mf_word *texts, size_t n, uint32_t min,
                           uint32_t max)
{
    mf_pattern patterns[MF_MAX_PATTERNS] = {{.root = MF_NO_PATTERN}};
    mf_expr e = MF_EXPR_NOTHING;
    size_t n_read = 0;
    if (n > MF_MAX_PATTERNS)
        return mf_schema_fail(s, MF_ERR_UNSUPPORTED, "pattern: more than %d for one value",
                              MF_MAX_PATTERNS);
    bool is_good = true;
    while (is_good && n_read < n) {
        is_good = mf_pattern_read(s, texts[n_read].text, texts[n_read].n_bytes, &patterns[n_read]);
        n_read++;
    }
    if (is_good) {
        writer w = {.rules = s->rules, .pattern = &patterns[0], .min = min, .max = max};
        if (n != 1 || !write_whole(&w, &e))
            e = mf_pattern_automaton(s, patterns, n, min, max);
    }
    for (size_t i = 0; i < n_read; i++)
        mf_pattern_free(&patterns[i]);
    return s->rules->status == MF_OK ? e : MF_EXPR_NOTHING;
}

mf_expr mf_schema_pattern(mf_schema_reader *s, const char *pattern, size_t n_bytes, uint32_t min,
                          uint32_t max)
{
    const mf_word text = {pattern, n_bytes};
    return mf_schema_patterns(s, &text, 1, min, max);
}
