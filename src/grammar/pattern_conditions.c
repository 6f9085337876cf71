/* SPDX-License-Identifier: MIT */
/* From trees to conditions, and the kinds of characters that these tell apart. */
#include "grammar/pattern_machine.h"

#define MAX_CONDITIONS 30000u

static const mf_char_range word_chars[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};

bool mf_machine_grow(mf_machine *m, void **array, size_t *capacity, size_t n, size_t size)
{
    if (n < *capacity)
        return true;
    const size_t grown = *capacity * 2 + 256;
    void *larger = mf_realloc(&m->allocator, *array, *capacity * size, grown * size);
    if (larger == NULL) {
        mf_machine_fail(m, MF_ERR_NO_MEMORY);
        return false;
    }
    *array = larger;
    *capacity = grown;
    return true;
}

/* -------------------------------------------------------------------------------- conditions -- */

static mf_condition add(mf_machine *m, mf_condition_node node)
{
    if (m->n_conditions >= MAX_CONDITIONS)
        mf_machine_fail(m, MF_ERR_UNSUPPORTED);
    if (!mf_machine_is_good(m) ||
        !mf_machine_grow(m, (void **)&m->conditions, &m->condition_capacity, m->n_conditions,
                         sizeof *m->conditions))
        return MF_CONDITION_NEVER;
    m->conditions[m->n_conditions] = node;
    return (mf_condition)m->n_conditions++;
}

mf_condition mf_machine_add(mf_machine *m, mf_condition_kind kind, mf_condition a, mf_condition b)
{
    return add(m, (mf_condition_node){.kind = kind, .a = a, .b = b});
}

/* The number of a class. */
static uint32_t class_of(mf_machine *m, const mf_char_range *ranges, size_t n)
{
    for (size_t i = 0; i < m->n_classes; i++)
        if (m->classes[i].n == n &&
            (n == 0 || memcmp(m->classes[i].ranges, ranges, n * sizeof *ranges) == 0))
            return (uint32_t)i;
    if (m->n_classes == MF_MAX_CLASSES) {
        mf_machine_fail(m, MF_ERR_UNSUPPORTED);
        return 0;
    }
    m->classes[m->n_classes] = (mf_machine_class){ranges, n};
    return (uint32_t)m->n_classes++;
}

static mf_condition add_chars(mf_machine *m, const mf_char_range *ranges, size_t n,
                              mf_condition next)
{
    return mf_machine_add(m, MF_IS_CHARS, class_of(m, ranges, n), next);
}

static mf_condition add_any(mf_machine *m, mf_condition next)
{
    return add_chars(m, mf_all_chars, 2, next);
}

/* A condition that is set later: it may lead back to itself. */
static mf_condition add_loop(mf_machine *m)
{
    return mf_machine_add(m, MF_IS_OR, MF_CONDITION_NEVER, MF_CONDITION_NEVER);
}

static void set_loop(mf_machine *m, mf_condition loop, mf_condition a, mf_condition b)
{
    if (!mf_machine_is_good(m))
        return;
    m->conditions[loop].a = a;
    m->conditions[loop].b = b;
}

static mf_condition read_node(mf_machine *m, uint32_t i, mf_condition next);

/* Parts one behind the other, and then next: built from the last one on. */
static mf_condition read_parts(mf_machine *m, const mf_pattern_node *node, mf_condition next)
{
    uint32_t *parts = mf_alloc_array(&m->allocator, node->n + 1, sizeof *parts);
    if (parts == NULL) {
        mf_machine_fail(m, MF_ERR_NO_MEMORY);
        return MF_CONDITION_NEVER;
    }
    uint32_t i = node->first;
    for (uint32_t k = 0; k < node->n; k++, i = m->pattern->nodes[i].next)
        parts[k] = i;
    for (uint32_t k = node->n; k-- > 0 && mf_machine_is_good(m);)
        next = read_node(m, parts[k], next);
    mf_free(&m->allocator, parts, (node->n + 1) * sizeof *parts);
    return next;
}

static mf_condition read_alternatives(mf_machine *m, const mf_pattern_node *node, mf_condition next)
{
    mf_condition all = read_node(m, node->first, next);
    for (uint32_t i = m->pattern->nodes[node->first].next;
         i != MF_NO_PATTERN && mf_machine_is_good(m); i = m->pattern->nodes[i].next)
        all = mf_machine_add(m, MF_IS_OR, all, read_node(m, i, next));
    return all;
}

static mf_condition read_repeat(mf_machine *m, const mf_pattern_node *node, mf_condition next)
{
    mf_condition all = next;
    if (node->max == MF_NO_LIMIT) {
        all = add_loop(m);
        set_loop(m, all, next, read_node(m, node->first, all));
    } else {
        for (uint32_t i = node->min; i < node->max && mf_machine_is_good(m); i++)
            all = mf_machine_add(m, MF_IS_OR, next, read_node(m, node->first, all));
    }
    for (uint32_t i = 0; i < node->min && mf_machine_is_good(m); i++)
        all = read_node(m, node->first, all);
    return all;
}

/* The text so far ends in what the condition says, which ends at the end; its number. */
static uint32_t add_behind(mf_machine *m, const mf_pattern_node *node, mf_condition what)
{
    if (m->n_behind == MF_MAX_BEHIND) {
        mf_machine_fail(m, MF_ERR_UNSUPPORTED);
        return 0;
    }
    const mf_condition loop = add_loop(m);
    set_loop(m, loop, what, add_any(m, loop));
    m->behind[m->n_behind] = loop;
    m->behind_of[m->n_behind] = node;
    return (uint32_t)m->n_behind++;
}

/* One that is there already; n_behind: none. */
static uint32_t find_behind(const mf_machine *m, const mf_pattern_node *node)
{
    uint32_t which = 0;
    while (which < m->n_behind && m->behind_of[which] != node)
        which++;
    return which;
}

static mf_condition at_behind(mf_machine *m, uint32_t which, bool is_not, mf_condition next)
{
    return add(m,
               (mf_condition_node){.kind = MF_IS_BEHIND, .is_not = is_not, .a = next, .b = which});
}

/* \b: of the characters before and behind, one is a word's. */
static mf_condition read_boundary(mf_machine *m, bool is_not, mf_condition next)
{
    uint32_t which = find_behind(m, NULL);
    if (which == m->n_behind)
        which = add_behind(m, NULL, add_chars(m, word_chars, 4, MF_CONDITION_END));
    const mf_condition follows = add_chars(m, word_chars, 4, MF_CONDITION_ALWAYS);
    const mf_condition does_not = mf_machine_add(m, MF_IS_NOT, follows, MF_CONDITION_NEVER);
    const mf_condition a = mf_machine_add(m, MF_IS_AND, is_not ? follows : does_not, next);
    const mf_condition b = mf_machine_add(m, MF_IS_AND, is_not ? does_not : follows, next);
    return mf_machine_add(m, MF_IS_OR, at_behind(m, which, false, a), at_behind(m, which, true, b));
}

/* What stands behind a look behind has no end of the string, and does not look around itself. */
static bool is_simple(const mf_pattern *p, uint32_t i)
{
    const mf_pattern_node *node = &p->nodes[i];
    bool is = node->kind != MF_PATTERN_END && node->kind != MF_PATTERN_BOUNDARY &&
              node->kind != MF_PATTERN_LOOK;
    uint32_t part = node->kind == MF_PATTERN_CHARS ? MF_NO_PATTERN : node->first;
    for (uint32_t k = 0; is && k < node->n && part != MF_NO_PATTERN; k++) {
        is = is_simple(p, part);
        part = p->nodes[part].next;
    }
    return is;
}

static mf_condition read_look(mf_machine *m, const mf_pattern_node *node, mf_condition next)
{
    if (!node->is_behind) {
        mf_condition what = read_node(m, node->first, MF_CONDITION_ALWAYS);
        if (node->is_not)
            what = mf_machine_add(m, MF_IS_NOT, what, MF_CONDITION_NEVER);
        return mf_machine_add(m, MF_IS_AND, what, next);
    }
    if (!is_simple(m->pattern, node->first)) {
        (void)mf_schema_fail(m->schema, MF_ERR_UNSUPPORTED,
                             "pattern: looking around or $ within looking behind is not supported");
        mf_machine_fail(m, MF_ERR_UNSUPPORTED);
        return MF_CONDITION_NEVER;
    }
    uint32_t which = find_behind(m, node);
    if (which == m->n_behind)
        which = add_behind(m, node, read_node(m, node->first, MF_CONDITION_END));
    return at_behind(m, which, node->is_not, next);
}

static mf_condition read_node(mf_machine *m, uint32_t i, mf_condition next)
{
    const mf_pattern_node *node = &m->pattern->nodes[i];
    switch (node->kind) {
    case MF_PATTERN_CHARS:
        return add_chars(m, m->pattern->ranges + node->first, node->n, next);
    case MF_PATTERN_SEQ:
        return read_parts(m, node, next);
    case MF_PATTERN_ALT:
        return read_alternatives(m, node, next);
    case MF_PATTERN_REPEAT:
        return read_repeat(m, node, next);
    case MF_PATTERN_BEGIN:
        return mf_machine_add(m, MF_IS_BEGIN, next, MF_CONDITION_NEVER);
    case MF_PATTERN_END:
        return mf_machine_add(m, MF_IS_AND, MF_CONDITION_END, next);
    case MF_PATTERN_BOUNDARY:
        return read_boundary(m, node->is_not, next);
    default:
        return read_look(m, node, next);
    }
}

/* All of an alternative's texts begin where the string does. */
static bool begins_string(const mf_pattern *p, uint32_t i)
{
    const mf_pattern_node *node = &p->nodes[i];
    if (node->kind == MF_PATTERN_SEQ && node->n > 0)
        return begins_string(p, node->first);
    if (node->kind != MF_PATTERN_ALT)
        return node->kind == MF_PATTERN_BEGIN;
    for (uint32_t k = node->first; k != MF_NO_PATTERN; k = p->nodes[k].next)
        if (!begins_string(p, k))
            return false;
    return true;
}

mf_condition mf_machine_read(mf_machine *m, const mf_pattern *p)
{
    m->pattern = p;
    const mf_condition here = read_node(m, p->root, MF_CONDITION_ALWAYS);
    if (!mf_machine_is_good(m) || begins_string(p, p->root))
        return here;
    const mf_condition loop = add_loop(m);
    set_loop(m, loop, here, add_any(m, loop));
    return loop;
}

mf_condition mf_machine_read_lengths(mf_machine *m, uint32_t min, uint32_t max)
{
    mf_condition all = MF_CONDITION_END;
    if (max == MF_NO_LIMIT) {
        all = MF_CONDITION_ALWAYS;
    } else {
        for (uint32_t i = min; i < max && mf_machine_is_good(m); i++)
            all = mf_machine_add(m, MF_IS_OR, MF_CONDITION_END, add_any(m, all));
    }
    for (uint32_t i = 0; i < min && mf_machine_is_good(m); i++)
        all = add_any(m, all);
    return all;
}

/* -------------------------------------------------------------------------------- characters -- */

static int compare_points(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool has_char(const mf_machine_class *c, uint32_t point)
{
    size_t low = 0, high = c->n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (c->ranges[middle].last < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->n && c->ranges[low].first <= point;
}

/* The kind of the characters that an interval's first is one of. */
static uint32_t kind_at(mf_machine *m, uint32_t point)
{
    uint64_t own[MF_KIND_WORDS] = {0};
    for (size_t i = 0; i < m->n_classes; i++)
        if (has_char(&m->classes[i], point))
            own[i / 64] |= (uint64_t)1 << (i % 64);
    for (size_t k = 0; k < m->n_kinds; k++)
        if (memcmp(m->members + k * MF_KIND_WORDS, own, sizeof own) == 0)
            return (uint32_t)k;
    if (m->n_kinds == MF_MAX_KINDS) {
        mf_machine_fail(m, MF_ERR_UNSUPPORTED);
        return 0;
    }
    memcpy(m->members + m->n_kinds * MF_KIND_WORDS, own, sizeof own);
    return (uint32_t)m->n_kinds++;
}

/* Where some class begins, or has ended; sorted, each once. */
static size_t list_points(const mf_machine *m, uint32_t *points)
{
    size_t n = 0, n_kept = 0;
    points[n++] = 0;
    points[n++] = 0xD800;
    points[n++] = 0xE000;
    for (size_t i = 0; i < m->n_classes; i++)
        for (size_t k = 0; k < m->classes[i].n; k++) {
            points[n++] = m->classes[i].ranges[k].first;
            points[n++] = m->classes[i].ranges[k].last + 1;
        }
    qsort(points, n, sizeof *points, compare_points);
    for (size_t i = 0; i < n; i++)
        if (points[i] <= MF_MAX_CODE_POINT && (n_kept == 0 || points[n_kept - 1] != points[i]))
            points[n_kept++] = points[i];
    return n_kept;
}

void mf_machine_find_kinds(mf_machine *m)
{
    size_t n_most = 3;
    for (size_t i = 0; i < m->n_classes; i++)
        n_most += 2 * m->classes[i].n;
    uint32_t *points = mf_alloc_array(&m->allocator, n_most, sizeof *points);
    m->n_intervals = points != NULL ? list_points(m, points) : 0;
    m->interval_capacity = m->n_intervals + 1;
    m->intervals = mf_alloc_array(&m->allocator, m->interval_capacity, sizeof *m->intervals);
    m->kind_of = mf_alloc_array(&m->allocator, m->interval_capacity, sizeof *m->kind_of);
    m->members = mf_alloc_array(&m->allocator, MF_MAX_KINDS, MF_KIND_WORDS * sizeof *m->members);
    if (points == NULL || m->intervals == NULL || m->kind_of == NULL || m->members == NULL)
        mf_machine_fail(m, MF_ERR_NO_MEMORY);
    const size_t n_points = m->n_intervals;
    m->n_intervals = 0;
    for (size_t i = 0; i < n_points && mf_machine_is_good(m); i++) {
        const uint32_t end = i + 1 < n_points ? points[i + 1] : MF_MAX_CODE_POINT + 1;
        if (points[i] >= 0xD800 && points[i] <= 0xDFFF)
            continue; /* no characters */
        m->intervals[m->n_intervals] = (mf_char_range){points[i], end - 1};
        m->kind_of[m->n_intervals++] = kind_at(m, points[i]);
    }
    mf_free(&m->allocator, points, n_most * sizeof *points);
}
