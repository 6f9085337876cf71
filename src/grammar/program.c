/* SPDX-License-Identifier: MIT */
/* From expressions to states: each expression is compiled with the state that follows it, so that
 * states come before those that lead to them. */
#include "grammar/program.h"

typedef struct compiler {
    const mf_rules *rules;
    mf_error *error;
    mf_status status;
    mf_state *states;
    size_t n_states, capacity;
    uint32_t *starts; /* [n_rules] */
} compiler;

static uint32_t add_state(compiler *c, mf_state state)
{
    if (c->status != MF_OK)
        return 0;
    if (c->n_states >= MF_MAX_STATES) {
        c->status = mf_fail(c->error, MF_ERR_UNSUPPORTED,
                            "the grammar is too large: more than %u states", MF_MAX_STATES);
        return 0;
    }
    if (c->n_states == c->capacity) {
        const mf_allocator *a = &c->rules->allocator;
        size_t grown = c->capacity * 2 + 256;
        mf_state *states =
            mf_realloc(a, c->states, c->capacity * sizeof *c->states, grown * sizeof *c->states);
        if (states == NULL) {
            c->status = mf_fail_memory(c->error, grown * sizeof *states, "a grammar");
            return 0;
        }
        c->states = states;
        c->capacity = grown;
    }
    c->states[c->n_states] = state;
    return (uint32_t)c->n_states++;
}

static uint32_t add_range(compiler *c, uint32_t first, uint32_t last, uint32_t next)
{
    return add_state(c, (mf_state){.kind = MF_STATE_RANGE, .a = first, .b = last, .next = next});
}

/* MF_NO_STATE stands for no way at all. */
static uint32_t add_split(compiler *c, uint32_t one, uint32_t other)
{
    if (one == MF_NO_STATE || other == MF_NO_STATE)
        return one == MF_NO_STATE ? other : one;
    return add_state(c, (mf_state){.kind = MF_STATE_SPLIT, .next = one, .a = other});
}

/* -------------------------------------------------------------------------------- characters -- */

static size_t put_utf8(uint32_t c, unsigned char out[4])
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    const size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (unsigned char)(0x80 | (c & 0x3F));
    out[0] = (unsigned char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

/* Characters first to last whose encodings have the same length and differ, but for the first byte
 * that differs, in whole ranges of bytes. */
static uint32_t add_sequence(compiler *c, uint32_t first, uint32_t last, uint32_t next)
{
    unsigned char low[4], high[4];
    const size_t n = put_utf8(first, low);
    (void)put_utf8(last, high);
    for (size_t i = n; i-- > 0;)
        next = add_range(c, low[i], high[i], next);
    return next;
}

/* The end of the longest run from first on that add_sequence can take. */
static uint32_t sequence_end(uint32_t first, uint32_t last)
{
    static const uint32_t ends[] = {0x7F, 0x7FF, 0xFFFF, MF_MAX_CODE_POINT};
    for (size_t i = 0; i < 4; i++)
        if (first <= ends[i]) {
            last = last < ends[i] ? last : ends[i];
            break;
        }
    for (uint32_t bits = 6; first > 0x7F && bits <= 18; bits += 6) {
        const uint32_t mask = (1u << bits) - 1;
        if ((first & ~mask) == (last & ~mask))
            break;
        if ((first & mask) != 0)
            last = first | mask; /* up to where the lower bytes are full */
        else if ((last & mask) != mask)
            last = (last & ~mask) - 1;
    }
    return last;
}

static uint32_t add_chars(compiler *c, const mf_char_range *ranges, size_t n, uint32_t next)
{
    uint32_t all = MF_NO_STATE;
    for (size_t i = n; i-- > 0;) {
        uint32_t first = ranges[i].first, last = ranges[i].last;
        while (first <= last && c->status == MF_OK) {
            if (first >= 0xD800 && first <= 0xDFFF) { /* surrogates are no characters */
                first = 0xE000;
                continue;
            }
            uint32_t end = first < 0xD800 && last >= 0xD800 ? 0xD7FF : last;
            end = sequence_end(first, end);
            all = add_split(c, add_sequence(c, first, end, next), all);
            first = end + 1;
        }
    }
    return all;
}

/* ------------------------------------------------------------------------------- expressions -- */

static uint32_t compile(compiler *c, mf_expr e, uint32_t next);

/* Without a count on the stack where none is needed. A character of a JSON string is always
 * counted: masks.h looks for it. */
static uint32_t compile_repeat(compiler *c, const mf_expr_node *node, uint32_t next)
{
    const mf_expr_node *inner = &c->rules->nodes[node->a];
    const bool is_char = inner->kind == MF_EXPR_IS_RULE && inner->a == c->rules->char_rule;
    if (!is_char && node->min == 0 && node->max == 1)
        return add_split(c, compile(c, node->a, next), next);
    if (!is_char && node->min <= 1 && node->max == MF_NO_LIMIT) {
        uint32_t loop = add_state(c, (mf_state){.kind = MF_STATE_SPLIT, .next = next, .a = next});
        uint32_t body = compile(c, node->a, loop);
        if (c->status != MF_OK || body == MF_NO_STATE)
            return node->min == 0 ? next : MF_NO_STATE;
        c->states[loop].next = body;
        return node->min == 0 ? loop : body;
    }
    uint32_t end = add_state(c, (mf_state){.kind = MF_STATE_RETURN});
    uint32_t body = compile(c, node->a, end);
    if (body == MF_NO_STATE)
        return node->min == 0 ? next : MF_NO_STATE;
    return add_state(
        c,
        (mf_state){
            .kind = MF_STATE_REPEAT, .next = next, .a = body, .min = node->min, .max = node->max});
}

static uint32_t compile_alternatives(compiler *c, mf_expr e, uint32_t next)
{
    uint32_t all = MF_NO_STATE;
    while (c->rules->nodes[e].kind == MF_EXPR_IS_ALT) {
        const mf_expr_node *node = &c->rules->nodes[e];
        all = add_split(c, compile(c, node->b, next), all);
        e = node->a;
    }
    return add_split(c, compile(c, e, next), all);
}

/* The rule's start is filled in by link(). */
static uint32_t compile_call(compiler *c, uint32_t rule, uint32_t next)
{
    return add_state(c, (mf_state){.kind = MF_STATE_CALL, .a = rule, .next = next});
}

static uint32_t compile(compiler *c, mf_expr e, uint32_t next)
{
    const mf_expr_node *node = &c->rules->nodes[e];
    while (node->kind == MF_EXPR_IS_SEQ && next != MF_NO_STATE) {
        next = compile(c, node->b, next);
        node = &c->rules->nodes[e = node->a];
    }
    if (next == MF_NO_STATE || c->status != MF_OK)
        return MF_NO_STATE;
    switch (node->kind) {
    case MF_EXPR_IS_BYTES:
        for (size_t i = node->b; i-- > 0;) {
            const unsigned char byte = c->rules->bytes[node->a + i];
            next = add_range(c, byte, byte, next);
        }
        return next;
    case MF_EXPR_IS_CHARS:
        return add_chars(c, c->rules->ranges + node->a, node->b, next);
    case MF_EXPR_IS_ALT:
        return compile_alternatives(c, e, next);
    case MF_EXPR_IS_REPEAT:
        return compile_repeat(c, node, next);
    case MF_EXPR_IS_RULE:
        return compile_call(c, node->a, next);
    case MF_EXPR_IS_TOKEN:
        return add_state(c, (mf_state){.kind = MF_STATE_TOKEN, .a = node->a, .next = next});
    case MF_EXPR_IS_EMPTY:
        return next;
    default:
        return MF_NO_STATE;
    }
}

/* A state that leads nowhere. */
static uint32_t add_never(compiler *c)
{
    return add_range(c, 1, 0, 0);
}

static void compile_rules(compiler *c)
{
    const mf_rules *r = c->rules;
    const uint32_t end = add_state(c, (mf_state){.kind = MF_STATE_RETURN});
    for (size_t i = 0; i < r->n_rules && c->status == MF_OK; i++) {
        if (!r->rules[i].is_defined) {
            c->status = mf_fail(c->error, MF_ERR_FORMAT, "the rule %.*s is used but not defined",
                                (int)r->rules[i].n_name, r->bytes + r->rules[i].name);
            return;
        }
        uint32_t start = compile(c, r->rules[i].body, end);
        c->starts[i] = start == MF_NO_STATE ? add_never(c) : start;
    }
    for (size_t i = 0; i < c->n_states; i++)
        if (c->states[i].kind == MF_STATE_CALL)
            c->states[i].a = c->starts[c->states[i].a];
}

/* ---------------------------------------------------------------------------- left recursion -- */

#define NEVER UINT16_MAX

/* What the checks find out of each state. */
typedef struct findings {
    unsigned char *can_be_empty; /* its rule can end from here without a byte */
    unsigned char *mark;         /* 0: not seen, 1: on the way here, 2: done */
} findings;

static bool empty_from(const mf_state *states, const unsigned char *can_be_empty, size_t i)
{
    const mf_state *s = &states[i];
    switch (s->kind) {
    case MF_STATE_RETURN:
        return true;
    case MF_STATE_SPLIT:
        return can_be_empty[s->next] || can_be_empty[s->a];
    case MF_STATE_CALL:
        return can_be_empty[s->a] && can_be_empty[s->next];
    case MF_STATE_REPEAT:
        return (s->min == 0 || can_be_empty[s->a]) && can_be_empty[s->next];
    default:
        return false;
    }
}

static void find_empty(const mf_program *p, unsigned char *can_be_empty)
{
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (size_t i = 0; i < p->n_states; i++)
            if (!can_be_empty[i] && empty_from(p->states, can_be_empty, i)) {
                can_be_empty[i] = 1;
                has_changed = true;
            }
    }
}

/* The states that follow one without a byte; a loop back to itself is none. */
static size_t followers(const mf_program *p, const findings *f, uint32_t i, uint32_t out[2],
                        bool *calls)
{
    const mf_state *s = &p->states[i];
    size_t n = 0;
    *calls = s->kind == MF_STATE_CALL || s->kind == MF_STATE_REPEAT;
    if (s->kind == MF_STATE_SPLIT || *calls)
        out[n++] = s->a;
    if (s->kind == MF_STATE_SPLIT || (*calls && f->can_be_empty[s->a]) ||
        (s->kind == MF_STATE_REPEAT && s->min == 0))
        out[n++] = s->next;
    return n;
}

typedef struct step {
    uint32_t state;
    uint8_t n_done;
    bool calls; /* what it leads to was called */
} step;

/* Depth first, without recursion. True: a cycle that calls something was found. */
static bool finds_cycle(const mf_program *p, findings *f, step *path, uint32_t start)
{
    size_t n = 1;
    path[0] = (step){start, 0, false};
    f->mark[start] = 1;
    while (n > 0) {
        step *top = &path[n - 1];
        uint32_t out[2] = {0, 0};
        bool calls;
        const size_t n_out = followers(p, f, top->state, out, &calls);
        if (top->n_done == n_out) {
            f->mark[top->state] = 2;
            n--;
            continue;
        }
        const uint32_t to = out[top->n_done];
        top->calls = calls && top->n_done == 0;
        top->n_done++;
        if (f->mark[to] == 0) {
            f->mark[to] = 1;
            path[n++] = (step){to, 0, false};
        } else if (f->mark[to] == 1) {
            for (size_t i = n; i-- > 0;) {
                if (path[i].calls)
                    return true;
                if (path[i].state == to)
                    break;
            }
        }
    }
    return false;
}

static mf_status check_left_recursion(const mf_program *p, const uint32_t *starts,
                                      const mf_rules *rules, mf_error *error)
{
    const mf_allocator *a = &p->allocator;
    findings f = {mf_alloc_array(a, p->n_states, 1), mf_alloc_array(a, p->n_states, 1)};
    step *path = mf_alloc_array(a, p->n_states, sizeof *path);
    mf_status status = MF_OK;
    if (f.can_be_empty == NULL || f.mark == NULL || path == NULL)
        status = mf_fail_memory(error, p->n_states * sizeof *path, "a grammar");
    else
        find_empty(p, f.can_be_empty);
    for (size_t i = 0; status == MF_OK && i < rules->n_rules; i++) {
        const mf_rule *rule = &rules->rules[i];
        if (f.mark[starts[i]] == 0 && finds_cycle(p, &f, path, starts[i]))
            status = mf_fail(error, MF_ERR_FORMAT,
                             "the rule %.*s leads back to itself before any byte (left recursion)",
                             (int)rule->n_name, rules->bytes + rule->name);
    }
    for (size_t i = 0; status == MF_OK && i < p->n_states; i++) {
        const mf_state *s = &p->states[i];
        if (s->kind == MF_STATE_REPEAT && f.can_be_empty[s->a] && s->max != MF_NO_LIMIT &&
            s->max > 64)
            status = mf_fail(error, MF_ERR_UNSUPPORTED,
                             "what is repeated up to %u times may be empty", s->max);
    }
    mf_free(a, path, p->n_states * sizeof *path);
    mf_free(a, f.mark, p->n_states);
    mf_free(a, f.can_be_empty, p->n_states);
    return status;
}

/* ------------------------------------------------------------------------------------- needs -- */

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t need_of(const mf_program *p, size_t i)
{
    const mf_state *s = &p->states[i];
    const uint16_t *needs = p->needs;
    uint32_t called;
    switch (s->kind) {
    case MF_STATE_RETURN:
        return 0;
    case MF_STATE_RANGE:
        return s->a <= s->b ? needs[s->next] : NEVER;
    case MF_STATE_TOKEN:
        return needs[s->next];
    case MF_STATE_SPLIT:
        return needs[s->next] < needs[s->a] ? needs[s->next] : needs[s->a];
    case MF_STATE_CALL:
        called = needs[s->a];
        if (p->states[s->next].kind != MF_STATE_RETURN)
            called++;
        return larger(called, needs[s->next]);
    default:
        if (s->min == 0)
            return needs[s->next];
        return larger(needs[s->a] + 1u, needs[s->next]);
    }
}

static void find_needs(mf_program *p)
{
    memset(p->needs, 0xFF, p->n_states * sizeof *p->needs);
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (size_t i = 0; i < p->n_states; i++) {
            const uint32_t need = need_of(p, i);
            if (need < p->needs[i] && need <= MF_MAX_STACK) {
                p->needs[i] = (uint16_t)need;
                has_changed = true;
            }
        }
    }
}

/* ------------------------------------------------------------------------------------- whole -- */

static mf_status finish(compiler *c, mf_program *p, mf_error *error)
{
    const mf_rules *r = c->rules;
    p->states = c->states;
    p->n_states = c->n_states;
    p->n_allocated = c->capacity;
    p->start = c->starts[r->root];
    p->char_state = MF_NO_STATE;
    if (r->char_rule != MF_NO_RULE) /* a way to the first range */
        for (p->char_state = c->starts[r->char_rule];
             p->states[p->char_state].kind == MF_STATE_SPLIT;)
            p->char_state = p->states[p->char_state].next;
    p->needs = mf_alloc_array(&p->allocator, p->n_states, sizeof *p->needs);
    if (p->needs == NULL)
        return mf_fail_memory(error, p->n_states * sizeof *p->needs, "a grammar");
    MF_TRY(check_left_recursion(p, c->starts, r, error));
    find_needs(p);
    if (p->needs[p->start] > MF_MAX_STACK)
        return mf_fail(error, MF_ERR_FORMAT, "nothing satisfies the grammar: no text ends it");
    return MF_OK;
}

mf_status mf_program_make(const mf_rules *rules, mf_program *out, mf_error *error)
{
    const mf_allocator *a = &rules->allocator;
    mf_program p = {.allocator = *a};
    compiler c = {.rules = rules, .error = error};
    if (rules->status != MF_OK)
        return rules->status;
    if (rules->root >= rules->n_rules)
        return mf_fail(error, MF_ERR_FORMAT, "the grammar has no rule 'root'");
    c.starts = mf_alloc_array(a, rules->n_rules, sizeof *c.starts);
    if (c.starts == NULL)
        return mf_fail_memory(error, rules->n_rules * sizeof *c.starts, "a grammar");
    compile_rules(&c);
    mf_status status = c.status;
    if (status == MF_OK)
        status = finish(&c, &p, error);
    else
        mf_free(a, c.states, c.capacity * sizeof *c.states);
    mf_free(a, c.starts, rules->n_rules * sizeof *c.starts);
    if (status == MF_OK)
        *out = p;
    else
        mf_program_free(&p);
    return status;
}

void mf_program_free(mf_program *p)
{
    mf_free(&p->allocator, p->states, p->n_allocated * sizeof *p->states);
    mf_free(&p->allocator, p->needs, p->n_states * sizeof *p->needs);
    *p = (mf_program){0};
}
