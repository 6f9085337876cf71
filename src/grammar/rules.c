/* SPDX-License-Identifier: MIT */
/* Expressions and rules: arrays that grow. */
#include "grammar/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void mf_rules_fail(mf_rules *r, mf_status code, const char *format, ...)
{
    char message[900];
    va_list args;
    if (r->status != MF_OK)
        return;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    r->status = mf_fail(r->error, code, "%s", message);
}

bool mf_rules_grow(mf_rules *r, void **array, size_t *capacity, size_t n, size_t size)
{
    if (n < *capacity)
        return true;
    size_t grown = *capacity * 2 + 64;
    void *larger = mf_realloc(&r->allocator, *array, *capacity * size, grown * size);
    if (larger == NULL) {
        if (r->status == MF_OK)
            r->status = mf_fail_memory(r->error, grown * size, "a grammar");
        return false;
    }
    *array = larger;
    *capacity = grown;
    return true;
}

static mf_expr add_node(mf_rules *r, mf_expr_node node)
{
    if (r->status != MF_OK)
        return MF_EXPR_NOTHING;
    if (r->n_nodes >= r->max_nodes) {
        mf_rules_fail(r, MF_ERR_UNSUPPORTED, "the grammar is too large: more than %u expressions",
                      MF_MAX_EXPRS);
        return MF_EXPR_NOTHING;
    }
    if (!mf_rules_grow(r, (void **)&r->nodes, &r->node_capacity, r->n_nodes, sizeof *r->nodes))
        return MF_EXPR_NOTHING;
    r->nodes[r->n_nodes] = node;
    return (mf_expr)r->n_nodes++;
}

mf_status mf_rules_init(mf_rules *r, const mf_allocator *a, mf_error *error)
{
    *r = (mf_rules){.allocator = *a,
                    .error = error,
                    .root = MF_NO_RULE,
                    .char_rule = MF_NO_RULE,
                    .max_nodes = MF_MAX_EXPRS};
    (void)add_node(r, (mf_expr_node){.kind = MF_EXPR_IS_EMPTY});
    (void)add_node(r, (mf_expr_node){.kind = MF_EXPR_IS_NOTHING});
    return r->status;
}

void mf_rules_free(mf_rules *r)
{
    mf_free(&r->allocator, r->nodes, r->node_capacity * sizeof *r->nodes);
    mf_free(&r->allocator, r->bytes, r->byte_capacity);
    mf_free(&r->allocator, r->ranges, r->range_capacity * sizeof *r->ranges);
    mf_free(&r->allocator, r->rules, r->rule_capacity * sizeof *r->rules);
    *r = (mf_rules){0};
}

/* Where the bytes lie in r->bytes. */
static uint32_t keep_bytes(mf_rules *r, const void *bytes, size_t n_bytes)
{
    const size_t at = r->n_bytes;
    if (n_bytes > MF_MAX_RULE_BYTES - at) {
        mf_rules_fail(r, MF_ERR_UNSUPPORTED,
                      "the grammar is too large: more than %zu bytes of text", MF_MAX_RULE_BYTES);
        return 0;
    }
    while (r->byte_capacity < at + n_bytes)
        if (!mf_rules_grow(r, (void **)&r->bytes, &r->byte_capacity, r->byte_capacity, 1))
            return 0;
    if (n_bytes > 0)
        memcpy(r->bytes + at, bytes, n_bytes);
    r->n_bytes += n_bytes;
    return (uint32_t)at;
}

mf_expr mf_expr_bytes(mf_rules *r, const void *bytes, size_t n_bytes)
{
    if (n_bytes == 0)
        return MF_EXPR_EMPTY;
    const uint32_t at = keep_bytes(r, bytes, n_bytes);
    return add_node(r, (mf_expr_node){.kind = MF_EXPR_IS_BYTES, .a = at, .b = (uint32_t)n_bytes});
}

mf_expr mf_expr_text(mf_rules *r, const char *text)
{
    return mf_expr_bytes(r, text, strlen(text));
}

static int compare_ranges(const void *a, const void *b)
{
    const mf_char_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

size_t mf_char_ranges_merge(mf_char_range *ranges, size_t n)
{
    size_t n_kept = 0;
    if (n > 1)
        qsort(ranges, n, sizeof *ranges, compare_ranges);
    for (size_t i = 0; i < n; i++) {
        mf_char_range *last = n_kept > 0 ? &ranges[n_kept - 1] : NULL;
        if (last != NULL && ranges[i].first <= last->last + 1) {
            if (ranges[i].last > last->last)
                last->last = ranges[i].last;
        } else {
            ranges[n_kept++] = ranges[i];
        }
    }
    return n_kept;
}

size_t mf_char_ranges_invert(const mf_char_range *ranges, size_t n, mf_char_range *out)
{
    uint32_t next = 0;
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].first > next)
            out[n_out++] = (mf_char_range){next, ranges[i].first - 1};
        next = ranges[i].last + 1;
    }
    if (next <= MF_MAX_CODE_POINT)
        out[n_out++] = (mf_char_range){next, MF_MAX_CODE_POINT};
    return n_out;
}

mf_expr mf_expr_chars(mf_rules *r, mf_char_range *ranges, size_t n_ranges)
{
    const size_t n = mf_char_ranges_merge(ranges, n_ranges);
    if (n == 0)
        return MF_EXPR_NOTHING;
    const uint32_t at = (uint32_t)r->n_ranges;
    for (size_t i = 0; i < n; i++) {
        if (r->n_ranges >= MF_MAX_EXPRS ||
            !mf_rules_grow(r, (void **)&r->ranges, &r->range_capacity, r->n_ranges,
                           sizeof *r->ranges)) {
            mf_rules_fail(r, MF_ERR_UNSUPPORTED, "the grammar is too large: too many characters");
            return MF_EXPR_NOTHING;
        }
        r->ranges[r->n_ranges++] = ranges[i];
    }
    return add_node(r, (mf_expr_node){.kind = MF_EXPR_IS_CHARS, .a = at, .b = (uint32_t)n});
}

mf_expr mf_expr_seq(mf_rules *r, mf_expr a, mf_expr b)
{
    if (a == MF_EXPR_NOTHING || b == MF_EXPR_NOTHING)
        return MF_EXPR_NOTHING;
    if (a == MF_EXPR_EMPTY)
        return b;
    if (b == MF_EXPR_EMPTY)
        return a;
    return add_node(r, (mf_expr_node){.kind = MF_EXPR_IS_SEQ, .a = a, .b = b});
}

mf_expr mf_expr_alt(mf_rules *r, mf_expr a, mf_expr b)
{
    if (a == MF_EXPR_NOTHING)
        return b;
    if (b == MF_EXPR_NOTHING || a == b)
        return a;
    return add_node(r, (mf_expr_node){.kind = MF_EXPR_IS_ALT, .a = a, .b = b});
}

mf_expr mf_expr_repeat(mf_rules *r, mf_expr a, uint32_t min, uint32_t max)
{
    if (max == 0 || a == MF_EXPR_EMPTY)
        return MF_EXPR_EMPTY;
    if (a == MF_EXPR_NOTHING)
        return min == 0 ? MF_EXPR_EMPTY : MF_EXPR_NOTHING;
    if (min == 1 && max == 1)
        return a;
    return add_node(r, (mf_expr_node){.kind = MF_EXPR_IS_REPEAT, .a = a, .min = min, .max = max});
}

mf_expr mf_expr_optional(mf_rules *r, mf_expr a)
{
    return mf_expr_repeat(r, a, 0, 1);
}

mf_expr mf_expr_rule(mf_rules *r, uint32_t rule)
{
    return add_node(r, (mf_expr_node){.kind = MF_EXPR_IS_RULE, .a = rule});
}

mf_expr mf_expr_token(mf_rules *r, uint32_t token)
{
    return add_node(r, (mf_expr_node){.kind = MF_EXPR_IS_TOKEN, .a = token});
}

uint32_t mf_rules_add(mf_rules *r, const char *name, size_t n_name)
{
    if (r->n_rules >= MF_MAX_RULES) {
        mf_rules_fail(r, MF_ERR_UNSUPPORTED, "the grammar is too large: more than %u rules",
                      MF_MAX_RULES);
        return 0;
    }
    const uint32_t at = keep_bytes(r, name, n_name);
    if (!mf_rules_grow(r, (void **)&r->rules, &r->rule_capacity, r->n_rules, sizeof *r->rules))
        return 0;
    r->rules[r->n_rules] =
        (mf_rule){.body = MF_EXPR_NOTHING, .name = at, .n_name = (uint32_t)n_name};
    return (uint32_t)r->n_rules++;
}

void mf_rules_define(mf_rules *r, uint32_t rule, mf_expr body)
{
    if (rule >= r->n_rules)
        return;
    r->rules[rule].body = body;
    r->rules[rule].is_defined = true;
}

uint32_t mf_rules_find(const mf_rules *r, const char *name, size_t n_name)
{
    for (size_t i = 0; i < r->n_rules; i++)
        if (n_name > 0 && r->rules[i].n_name == n_name &&
            memcmp(r->bytes + r->rules[i].name, name, n_name) == 0)
            return (uint32_t)i;
    return MF_NO_RULE;
}

/* ------------------------------------------------------------------------------------- words -- */

static int compare_words(const void *a, const void *b)
{
    const mf_word *x = a, *y = b;
    const size_t n = x->n_bytes < y->n_bytes ? x->n_bytes : y->n_bytes;
    const int order = n > 0 ? memcmp(x->text, y->text, n) : 0;
    return order != 0 ? order : x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

/* Words that agree in their first `at` bytes, from there on. Sorted: the first and the last agree
 * in no more than all of them. */
static mf_expr words_from(mf_rules *r, const mf_word *words, size_t n, size_t at)
{
    const mf_word *first = &words[0], *last = &words[n - 1];
    size_t same = at;
    while (same < first->n_bytes && same < last->n_bytes && first->text[same] == last->text[same])
        same++;
    const mf_expr head = mf_expr_bytes(r, first->text + at, same - at);
    if (r->status != MF_OK)
        return MF_EXPR_NOTHING;
    size_t i = 0;
    mf_expr tail = MF_EXPR_NOTHING;
    while (i < n && words[i].n_bytes == same) { /* and the same word again */
        tail = MF_EXPR_EMPTY;
        i++;
    }
    while (i < n) {
        size_t end = i + 1;
        while (end < n && words[end].text[same] == words[i].text[same])
            end++;
        tail = mf_expr_alt(r, tail, words_from(r, words + i, end - i, same));
        i = end;
    }
    return mf_expr_seq(r, head, tail);
}

mf_expr mf_expr_words(mf_rules *r, mf_word *words, size_t n_words)
{
    if (n_words == 0)
        return MF_EXPR_NOTHING;
    qsort(words, n_words, sizeof *words, compare_words);
    return words_from(r, words, n_words, 0);
}
