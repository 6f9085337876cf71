/* SPDX-License-Identifier: MIT */
/*
 * Patterns that look around, and several of one string, as one deterministic automaton.
 *
 * A state of it is a Boolean function of the conditions that begin with a character, as a decision
 * diagram, which makes equal states one; with it go the functions of what is looked for behind,
 * which run along from the beginning. Characters that no class tells apart are one. States from
 * which no text can end are left out.
 */
#include "grammar/pattern_machine.h"

#define MAX_STATES 4000u
#define MAX_PASSAGES 200000u /* states times kinds of characters */
#define MAX_DEPTH 1000u

/* --------------------------------------------------------------------------------- positions -- */

/* Of a position: what of the text before it counts. */
static void begin_position(mf_machine *m, bool is_begin)
{
    m->stamp++;
    m->is_begin = is_begin;
}

static mf_decision value_of(mf_machine *m, mf_condition c);

static mf_decision find_value(mf_machine *m, const mf_condition_node *node, mf_condition c)
{
    switch (node->kind) {
    case MF_IS_NEVER:
        return MF_NEVER;
    case MF_IS_ALWAYS:
        return MF_ALWAYS;
    case MF_IS_END:
    case MF_IS_CHARS:
        return mf_decision_variable(&m->d, c);
    case MF_IS_OR:
        return mf_decision_or(&m->d, value_of(m, node->a), value_of(m, node->b));
    case MF_IS_AND:
        return mf_decision_and(&m->d, value_of(m, node->a), value_of(m, node->b));
    case MF_IS_NOT:
        return mf_decision_not(&m->d, value_of(m, node->a));
    case MF_IS_BEGIN:
        return m->is_begin ? value_of(m, node->a) : MF_NEVER;
    default:
        return m->holds[node->b] != node->is_not ? value_of(m, node->a) : MF_NEVER;
    }
}

/* What a condition comes to here, as a function of those that begin with a character. One that is
 * led back to without one adds nothing to itself: it is the least that satisfies it. What was found
 * on such a way holds for this way alone, and is not kept. */
static mf_decision value_of(mf_machine *m, mf_condition c)
{
    mf_condition_node *node = &m->conditions[c];
    if (node->stamp == m->stamp)
        return node->value;
    if (node->is_under_way) {
        m->is_tainted = true;
        return MF_NEVER;
    }
    if (m->depth == MAX_DEPTH)
        mf_machine_fail(m, MF_ERR_UNSUPPORTED);
    if (!mf_decisions_step(&m->d) || !mf_machine_is_good(m))
        return MF_NEVER;
    const bool was_tainted = m->is_tainted;
    m->is_tainted = false;
    m->depth++;
    node->is_under_way = true;
    const mf_decision value = find_value(m, node, c);
    node->is_under_way = false;
    m->depth--;
    if (!m->is_tainted || m->depth == 0) {
        node->value = value;
        node->stamp = m->stamp;
    }
    m->is_tainted = m->is_tainted || was_tainted;
    if (m->depth == 0)
        m->is_tainted = false;
    return value;
}

/* Holds it at the end of the string? */
static bool accepts(const mf_machine *m, mf_decision f)
{
    while (f > MF_ALWAYS) {
        const mf_decision_node *node = &m->d.nodes[f];
        f = node->variable == MF_CONDITION_END ? node->high : node->low;
    }
    return f == MF_ALWAYS;
}

static bool is_in(const mf_machine *m, uint32_t kind, uint32_t class)
{
    return (m->members[kind * MF_KIND_WORDS + class / 64] >> (class % 64) & 1) != 0;
}

typedef struct passage {
    uint32_t kind;      /* of the character that comes */
    mf_decision *found; /* by function; valid where the stamp is of now */
    uint32_t *stamps;   /* [n] */
    size_t n;
    unsigned depth;
} passage;

/* The function behind a character of the kind. */
static mf_decision pass(mf_machine *m, passage *p, mf_decision f)
{
    if (f <= MF_ALWAYS || f >= p->n || !mf_decisions_step(&m->d) || !mf_machine_is_good(m))
        return f == MF_ALWAYS;
    if (p->stamps[f] == m->stamp)
        return p->found[f];
    if (p->depth == MAX_DEPTH) {
        mf_machine_fail(m, MF_ERR_UNSUPPORTED);
        return MF_NEVER;
    }
    const mf_decision_node node = m->d.nodes[f];
    const mf_condition_node first = m->conditions[node.variable];
    mf_decision holds = MF_NEVER;
    if (first.kind == MF_IS_CHARS && is_in(m, p->kind, first.a))
        holds = value_of(m, first.b);
    p->depth++;
    const mf_decision high = pass(m, p, node.high), low = pass(m, p, node.low);
    p->depth--;
    p->found[f] = mf_decision_if(&m->d, holds, high, low);
    p->stamps[f] = m->stamp;
    return p->found[f];
}

/* ------------------------------------------------------------------------------------ states -- */

#define N_PLACES 16384u

static size_t hash_of(const mf_machine_state *s, size_t n_behind)
{
    uint64_t h = s->rest * 0x9E3779B97F4A7C15ull;
    for (size_t i = 0; i < n_behind; i++)
        h = (h ^ s->behind[i]) * 0xC2B2AE3D27D4EB4Full;
    return (size_t)(h >> 32);
}

/* The number of a state, which is added where it is new. */
static uint32_t number_of(mf_machine *m, const mf_machine_state *s)
{
    size_t i = hash_of(s, m->n_behind) & (N_PLACES - 1);
    for (; m->places[i] != 0; i = (i + 1) & (N_PLACES - 1)) {
        const mf_machine_state *other = &m->states[m->places[i] - 1];
        if (other->rest == s->rest &&
            memcmp(other->behind, s->behind, m->n_behind * sizeof *s->behind) == 0)
            return m->places[i] - 1;
    }
    if (m->n_states == MAX_STATES || (m->n_states + 1) * m->n_kinds > MAX_PASSAGES)
        mf_machine_fail(m, MF_ERR_UNSUPPORTED);
    if (!mf_machine_is_good(m) || !mf_machine_grow(m, (void **)&m->states, &m->state_capacity,
                                                   m->n_states, sizeof *m->states))
        return 0;
    m->states[m->n_states] = *s;
    m->places[i] = (uint32_t)++m->n_states;
    return (uint32_t)(m->n_states - 1);
}

static void begin_states(mf_machine *m, mf_condition all)
{
    mf_machine_state s = {.rest = MF_NEVER};
    begin_position(m, true);
    for (size_t i = 0; i < m->n_behind; i++) {
        s.behind[i] = value_of(m, m->behind[i]);
        m->holds[i] = accepts(m, s.behind[i]);
    }
    begin_position(m, true); /* now what is behind is known */
    s.rest = value_of(m, all);
    (void)number_of(m, &s);
}

static mf_machine_state next_state(mf_machine *m, const mf_machine_state *from, passage *p)
{
    mf_machine_state s = {.rest = MF_NEVER};
    begin_position(m, false);
    for (size_t i = 0; i < m->n_behind; i++)
        s.behind[i] = pass(m, p, from->behind[i]);
    for (size_t i = 0; i < m->n_behind; i++)
        m->holds[i] = accepts(m, s.behind[i]);
    begin_position(m, false);
    s.rest = pass(m, p, from->rest);
    return s;
}

/* Room for what functions come to, of all that there are. */
static bool begin_passage(mf_machine *m, passage *p, size_t *capacity)
{
    const size_t n = m->d.n, grown = 2 * n + 1024;
    if (n > *capacity) {
        mf_free(&m->allocator, p->found, *capacity * sizeof *p->found);
        mf_free(&m->allocator, p->stamps, *capacity * sizeof *p->stamps);
        p->found = mf_alloc_array(&m->allocator, grown, sizeof *p->found);
        p->stamps = mf_alloc_array(&m->allocator, grown, sizeof *p->stamps);
        *capacity = p->found != NULL && p->stamps != NULL ? grown : 0;
        if (*capacity == 0) {
            mf_free(&m->allocator, p->found, grown * sizeof *p->found);
            mf_free(&m->allocator, p->stamps, grown * sizeof *p->stamps);
            p->found = NULL;
            p->stamps = NULL;
            mf_machine_fail(m, MF_ERR_NO_MEMORY);
        }
    }
    p->n = n;
    return mf_machine_is_good(m);
}

static void find_states(mf_machine *m, mf_condition all)
{
    passage p = {0};
    size_t capacity = 0;
    begin_states(m, all);
    for (size_t i = 0; i < m->n_states && mf_machine_is_good(m); i++) {
        for (uint32_t kind = 0; kind < m->n_kinds; kind++) {
            if (!begin_passage(m, &p, &capacity) ||
                !mf_machine_grow(m, (void **)&m->to, &m->to_capacity, (i + 1) * m->n_kinds,
                                 sizeof *m->to))
                break;
            const mf_machine_state from = m->states[i];
            p.kind = kind;
            const mf_machine_state to = next_state(m, &from, &p);
            m->to[i * m->n_kinds + kind] = number_of(m, &to);
        }
    }
    mf_free(&m->allocator, p.found, capacity * sizeof *p.found);
    mf_free(&m->allocator, p.stamps, capacity * sizeof *p.stamps);
}

static void find_live(mf_machine *m)
{
    for (size_t i = 0; i < m->n_states; i++)
        m->states[i].is_live = accepts(m, m->states[i].rest);
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (size_t i = m->n_states; i-- > 0;)
            for (size_t k = 0; k < m->n_kinds && !m->states[i].is_live; k++)
                if (m->states[m->to[i * m->n_kinds + k]].is_live)
                    m->states[i].is_live = has_changed = true;
    }
}

/* ------------------------------------------------------------------------------------- rules -- */

/* The characters of all kinds that lead from a mf_machine_state to another. */
static size_t list_chars(const mf_machine *m, const uint32_t *to, uint32_t target,
                         mf_char_range *out)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_intervals; i++) {
        const mf_char_range one = m->intervals[i];
        if (to[m->kind_of[i]] != target)
            continue;
        if (n > 0 && out[n - 1].last + 1 == one.first)
            out[n - 1].last = one.last;
        else
            out[n++] = one;
    }
    return n;
}

static bool is_all(const mf_char_range *ranges, size_t n)
{
    return n == 2 && memcmp(ranges, mf_all_chars, sizeof mf_all_chars) == 0;
}

/* The same characters lead to many states: they are written once. */
typedef struct written_class {
    mf_char_range *ranges;
    size_t n;
    uint32_t rule;
} written_class;

#define MAX_WRITTEN 256u

typedef struct writer {
    mf_machine *m;
    mf_char_range *chars; /* [n_intervals] */
    written_class written[MAX_WRITTEN];
    size_t n_written;
} writer;

static mf_expr write_chars(writer *w, size_t n)
{
    mf_rules *r = w->m->schema->rules;
    const size_t n_bytes = n * sizeof *w->chars;
    if (is_all(w->chars, n))
        return mf_json_char(r);
    for (size_t i = 0; i < w->n_written; i++)
        if (w->written[i].n == n && memcmp(w->written[i].ranges, w->chars, n_bytes) == 0)
            return mf_expr_rule(r, w->written[i].rule);
    if (w->n_written == MAX_WRITTEN)
        return mf_json_chars(r, w->chars, n);
    mf_char_range *copy = mf_alloc_array(&w->m->allocator, n, sizeof *copy);
    if (copy == NULL) {
        mf_machine_fail(w->m, MF_ERR_NO_MEMORY);
        return MF_EXPR_NOTHING;
    }
    memcpy(copy, w->chars, n_bytes);
    const uint32_t rule = mf_rules_add(r, NULL, 0);
    w->written[w->n_written++] = (written_class){copy, n, rule};
    mf_rules_define(r, rule, mf_json_chars(r, w->chars, n));
    return mf_expr_rule(r, rule);
}

static void write_state(writer *w, size_t i)
{
    mf_machine *m = w->m;
    mf_rules *r = m->schema->rules;
    const uint32_t *to = m->to + i * m->n_kinds;
    mf_expr all = accepts(m, m->states[i].rest) ? MF_EXPR_EMPTY : MF_EXPR_NOTHING;
    const bool may_end = all == MF_EXPR_EMPTY;
    for (size_t k = 0; k < m->n_kinds && r->status == MF_OK; k++) {
        bool is_first = m->states[to[k]].is_live;
        for (size_t j = 0; j < k && is_first; j++)
            is_first = to[j] != to[k];
        if (!is_first)
            continue;
        const size_t n = list_chars(m, to, to[k], w->chars);
        if (n == 0)
            continue;
        if (may_end && to[k] == i && is_all(w->chars, n)) { /* all that may come is allowed */
            all = mf_expr_repeat(r, mf_json_char(r), 0, MF_NO_LIMIT);
            break;
        }
        all = mf_expr_alt(
            r, all, mf_expr_seq(r, write_chars(w, n), mf_expr_rule(r, m->states[to[k]].rule)));
    }
    mf_rules_define(r, m->states[i].rule, all);
}

/* A rule for each state, which end in each other. */
static mf_expr write_rules(mf_machine *m)
{
    mf_rules *r = m->schema->rules;
    writer w = {.m = m};
    if (!m->states[0].is_live)
        return MF_EXPR_NOTHING;
    w.chars = mf_alloc_array(&m->allocator, m->n_intervals, sizeof *w.chars);
    if (w.chars == NULL)
        mf_machine_fail(m, MF_ERR_NO_MEMORY);
    for (size_t i = 0; i < m->n_states; i++)
        if (m->states[i].is_live)
            m->states[i].rule = mf_rules_add(r, NULL, 0);
    for (size_t i = 0; i < m->n_states && mf_machine_is_good(m) && r->status == MF_OK; i++)
        if (m->states[i].is_live)
            write_state(&w, i);
    for (size_t i = 0; i < w.n_written; i++)
        mf_free(&m->allocator, w.written[i].ranges, w.written[i].n * sizeof *w.chars);
    mf_free(&m->allocator, w.chars, m->n_intervals * sizeof *w.chars);
    return mf_expr_rule(r, m->states[0].rule);
}

/* ------------------------------------------------------------------------------------- whole -- */

static void open_automaton(mf_machine *m, mf_schema_reader *s)
{
    *m = (mf_machine){.schema = s, .allocator = s->rules->allocator};
    mf_decisions_init(&m->d, &m->allocator);
    m->d.n_steps = s->rules->n_steps;
    m->classes = mf_alloc_array(&m->allocator, MF_MAX_CLASSES, sizeof *m->classes);
    m->places = mf_alloc_array(&m->allocator, N_PLACES, sizeof *m->places);
    if (m->classes == NULL || m->places == NULL)
        mf_machine_fail(m, MF_ERR_NO_MEMORY);
    (void)mf_machine_add(m, MF_IS_NEVER, MF_CONDITION_NEVER,
                         MF_CONDITION_NEVER); /* the first three have fixed numbers */
    (void)mf_machine_add(m, MF_IS_ALWAYS, MF_CONDITION_NEVER, MF_CONDITION_NEVER);
    (void)mf_machine_add(m, MF_IS_END, MF_CONDITION_NEVER, MF_CONDITION_NEVER);
}

static void close_automaton(mf_machine *m)
{
    const mf_allocator *a = &m->allocator;
    mf_decisions_free(&m->d);
    mf_free(a, m->conditions, m->condition_capacity * sizeof *m->conditions);
    mf_free(a, m->classes, MF_MAX_CLASSES * sizeof *m->classes);
    mf_free(a, m->places, N_PLACES * sizeof *m->places);
    mf_free(a, m->intervals, m->interval_capacity * sizeof *m->intervals);
    mf_free(a, m->kind_of, m->interval_capacity * sizeof *m->kind_of);
    mf_free(a, m->members, (size_t)MF_MAX_KINDS * MF_KIND_WORDS * sizeof *m->members);
    mf_free(a, m->states, m->state_capacity * sizeof *m->states);
    mf_free(a, m->to, m->to_capacity * sizeof *m->to);
}

mf_expr mf_pattern_automaton(mf_schema_reader *s, const mf_pattern *patterns, size_t n,
                             uint32_t min, uint32_t max)
{
    mf_rules *r = s->rules;
    mf_machine m;
    mf_expr e = MF_EXPR_NOTHING;
    if (r->status != MF_OK)
        return e;
    open_automaton(&m, s);
    mf_condition all = mf_machine_read_lengths(&m, min, max);
    for (size_t i = 0; i < n && mf_machine_is_good(&m); i++)
        all = mf_machine_add(&m, MF_IS_AND, all, mf_machine_read(&m, &patterns[i]));
    if (mf_machine_is_good(&m))
        mf_machine_find_kinds(&m);
    if (mf_machine_is_good(&m))
        find_states(&m, all);
    if (mf_machine_is_good(&m)) {
        find_live(&m);
        e = write_rules(&m);
    }
    r->n_steps = m.d.n_steps + 8 * m.n_states * m.n_kinds; /* what follows the diagrams, too */
    const bool is_without_memory =
        m.status == MF_ERR_NO_MEMORY || m.d.state == MF_DECISIONS_NO_MEMORY;
    if (!mf_machine_is_good(&m) && r->status == MF_OK)
        e = mf_schema_fail(s, is_without_memory ? MF_ERR_NO_MEMORY : MF_ERR_UNSUPPORTED,
                           is_without_memory
                               ? "out of memory"
                               : "pattern: what looks around, or is bound in its length, comes to "
                                 "more states than are supported");
    close_automaton(&m);
    return r->status == MF_OK ? e : MF_EXPR_NOTHING;
}
