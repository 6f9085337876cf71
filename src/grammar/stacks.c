/* SPDX-License-Identifier: MIT */
/* Sets of stacks, and how bytes and tokens change them. */
#include "grammar/stacks.h"

#include <stdlib.h>

void mf_pool_init(mf_pool *p, const mf_allocator *a, const mf_program *program)
{
    *p = (mf_pool){.allocator = *a, .program = program};
}

void mf_tops_free(const mf_allocator *a, mf_tops *tops)
{
    mf_free(a, tops->items, tops->capacity * sizeof *tops->items);
    *tops = (mf_tops){0};
}

void mf_pool_free(mf_pool *p)
{
    const mf_allocator *a = &p->allocator;
    mf_free(a, p->stacks, p->capacity * sizeof *p->stacks);
    mf_free(a, p->seen, p->capacity * sizeof *p->seen);
    mf_free(a, p->slots, p->n_slots * sizeof *p->slots);
    mf_tops_free(a, &p->work);
    mf_tops_free(a, &p->found);
    mf_pool_init(p, a, p->program);
}

void mf_pool_clear(mf_pool *p)
{
    p->n_stacks = 0;
    p->n_closures = 0;
    p->status = MF_OK;
    if (p->slots != NULL)
        memset(p->slots, 0xFF, p->n_slots * sizeof *p->slots);
    if (p->seen != NULL)
        memset(p->seen, 0, p->capacity * sizeof *p->seen);
}

static bool reserve(mf_pool *p, mf_tops *tops, size_t n)
{
    if (n <= tops->capacity)
        return true;
    const size_t grown = n * 2 + 32;
    uint32_t *items = mf_realloc(&p->allocator, tops->items, tops->capacity * sizeof *items,
                                 grown * sizeof *items);
    if (items == NULL) {
        p->status = MF_ERR_NO_MEMORY;
        return false;
    }
    tops->items = items;
    tops->capacity = grown;
    return true;
}

bool mf_tops_set(mf_pool *p, mf_tops *out, const uint32_t *items, size_t n)
{
    if (!reserve(p, out, n))
        return false;
    if (n > 0)
        memcpy(out->items, items, n * sizeof *items);
    out->n = n;
    return true;
}

static void push(mf_pool *p, mf_tops *tops, uint32_t item)
{
    if (reserve(p, tops, tops->n + 1))
        tops->items[tops->n++] = item;
}

/* ------------------------------------------------------------------------------------ stacks -- */

static size_t hash(uint32_t parent, uint32_t state, uint32_t count)
{
    uint64_t h = ((uint64_t)parent << 32 | state) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 29 ^ count) * 0xBF58476D1CE4E5B9u;
    return (size_t)(h ^ h >> 32);
}

/* All three arrays, or none. */
static bool grow(mf_pool *p)
{
    const mf_allocator *a = &p->allocator;
    const size_t grown = p->capacity == 0 ? 256 : p->capacity * 2, n_slots = 2 * grown;
    mf_stack *stacks = mf_alloc_array(a, grown, sizeof *stacks);
    uint32_t *seen = mf_alloc_array(a, grown, sizeof *seen);
    uint32_t *slots = mf_alloc(a, n_slots * sizeof *slots);
    if (stacks == NULL || seen == NULL || slots == NULL) {
        mf_free(a, stacks, grown * sizeof *stacks);
        mf_free(a, seen, grown * sizeof *seen);
        mf_free(a, slots, n_slots * sizeof *slots);
        return false;
    }
    memset(slots, 0xFF, n_slots * sizeof *slots);
    for (size_t i = 0; i < p->n_stacks; i++) {
        const mf_stack *s = &p->stacks[i];
        size_t at = hash(s->parent, s->state, s->count) & (n_slots - 1);
        while (slots[at] != MF_NO_STACK)
            at = (at + 1) & (n_slots - 1);
        slots[at] = (uint32_t)i;
        stacks[i] = *s;
        seen[i] = p->seen[i];
    }
    mf_free(a, p->stacks, p->capacity * sizeof *stacks);
    mf_free(a, p->seen, p->capacity * sizeof *seen);
    mf_free(a, p->slots, p->n_slots * sizeof *slots);
    p->stacks = stacks;
    p->seen = seen;
    p->slots = slots;
    p->capacity = grown;
    p->n_slots = n_slots;
    return true;
}

static uint32_t intern(mf_pool *p, uint32_t parent, uint32_t state, uint32_t count)
{
    if ((p->n_slots == 0 || 2 * (p->n_stacks + 1) > p->n_slots) && !grow(p)) {
        p->status = MF_ERR_NO_MEMORY;
        return MF_NO_STACK;
    }
    size_t at = hash(parent, state, count) & (p->n_slots - 1);
    while (p->slots[at] != MF_NO_STACK) {
        const mf_stack *s = &p->stacks[p->slots[at]];
        if (s->parent == parent && s->state == state && s->count == count)
            return p->slots[at];
        at = (at + 1) & (p->n_slots - 1);
    }
    const uint32_t depth = parent == MF_NO_STACK ? 1 : p->stacks[parent].depth + 1;
    p->stacks[p->n_stacks] = (mf_stack){parent, state, count, depth};
    p->slots[at] = (uint32_t)p->n_stacks;
    return (uint32_t)p->n_stacks++;
}

/* ----------------------------------------------------------------------------------- closure -- */

/* To go on from a state, unless the stack would have to grow too deep. */
static void go(mf_pool *p, uint32_t parent, uint32_t state)
{
    const uint32_t depth = parent == MF_NO_STACK ? 0 : p->stacks[parent].depth;
    if (p->status != MF_OK || depth + p->program->needs[state] > MF_MAX_STACK)
        return;
    const uint32_t stack = intern(p, parent, state, 0);
    if (stack == MF_NO_STACK || p->seen[stack] == p->n_closures)
        return;
    p->seen[stack] = p->n_closures;
    if (p->work.n + p->found.n >= MF_MAX_TOPS) {
        p->status = MF_ERR_UNSUPPORTED;
        return;
    }
    push(p, &p->work, stack);
}

/* A repeat that has been count times. */
static void go_on_repeating(mf_pool *p, uint32_t parent, uint32_t state, uint32_t count)
{
    const mf_state *s = &p->program->states[state];
    if (count >= s->min)
        go(p, parent, s->next);
    if (count >= s->max)
        return;
    if (s->max != MF_NO_LIMIT || count < s->min)
        count++;
    const uint32_t frame = intern(p, parent, state, count);
    if (frame != MF_NO_STACK)
        go(p, frame, s->a);
}

static void return_to(mf_pool *p, uint32_t parent)
{
    if (parent == MF_NO_STACK) {
        const uint32_t done = intern(p, MF_NO_STACK, MF_NO_STATE, 0);
        if (done != MF_NO_STACK && p->seen[done] != p->n_closures) {
            p->seen[done] = p->n_closures;
            push(p, &p->found, done);
        }
        return;
    }
    const mf_stack frame = p->stacks[parent];
    if (p->program->states[frame.state].kind == MF_STATE_REPEAT)
        go_on_repeating(p, frame.parent, frame.state, frame.count);
    else
        go(p, frame.parent, frame.state);
}

static void call(mf_pool *p, uint32_t parent, const mf_state *s)
{
    if (p->program->states[s->next].kind != MF_STATE_RETURN) {
        parent = intern(p, parent, s->next, 0);
        if (parent == MF_NO_STACK)
            return;
    }
    go(p, parent, s->a);
}

static int compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void begin_closure(mf_pool *p)
{
    if (++p->n_closures == 0) {
        memset(p->seen, 0, p->capacity * sizeof *p->seen);
        p->n_closures = 1;
    }
    p->work.n = p->found.n = 0;
}

/* Follows all that take nothing; what is left is sorted into *out. */
static void close_over(mf_pool *p, mf_tops *out)
{
    while (p->work.n > 0 && p->status == MF_OK) {
        const uint32_t top = p->work.items[--p->work.n];
        const mf_stack stack = p->stacks[top];
        const mf_state *s = &p->program->states[stack.state];
        switch (s->kind) {
        case MF_STATE_RETURN:
            return_to(p, stack.parent);
            break;
        case MF_STATE_SPLIT:
            go(p, stack.parent, s->next);
            go(p, stack.parent, s->a);
            break;
        case MF_STATE_CALL:
            call(p, stack.parent, s);
            break;
        case MF_STATE_REPEAT:
            go_on_repeating(p, stack.parent, stack.state, 0);
            break;
        default:
            push(p, &p->found, top);
        }
    }
    if (p->found.n > 1)
        qsort(p->found.items, p->found.n, sizeof *p->found.items, compare);
    out->n = 0;
    if (p->status == MF_OK)
        (void)mf_tops_set(p, out, p->found.items, p->found.n);
}

void mf_pool_start(mf_pool *p, mf_tops *out)
{
    begin_closure(p);
    go(p, MF_NO_STACK, p->program->start);
    close_over(p, out);
}

bool mf_tops_join(mf_pool *p, mf_tops *into, const mf_tops *from)
{
    const size_t n = into->n;
    if (n + from->n > MF_MAX_TOPS) {
        p->status = MF_ERR_UNSUPPORTED;
        return false;
    }
    if (!reserve(p, into, n + from->n))
        return false;
    for (size_t i = 0; i < from->n; i++)
        if (!bsearch(&from->items[i], into->items, n, sizeof *into->items, compare))
            into->items[into->n++] = from->items[i];
    qsort(into->items, into->n, sizeof *into->items, compare);
    return true;
}

/* Over all states of a kind that take a value. */
static void step(mf_pool *p, const mf_tops *from, mf_state_kind kind, uint32_t value, mf_tops *out)
{
    begin_closure(p);
    for (size_t i = 0; i < from->n; i++) {
        const mf_stack stack = p->stacks[from->items[i]];
        if (stack.state == MF_NO_STATE)
            continue;
        const mf_state *s = &p->program->states[stack.state];
        const uint32_t last = kind == MF_STATE_RANGE ? s->b : s->a;
        if (s->kind == kind && s->a <= value && value <= last)
            go(p, stack.parent, s->next);
    }
    close_over(p, out);
}

void mf_pool_byte(mf_pool *p, const mf_tops *from, unsigned char byte, mf_tops *out)
{
    step(p, from, MF_STATE_RANGE, byte, out);
}

void mf_pool_token(mf_pool *p, const mf_tops *from, uint32_t token, mf_tops *out)
{
    step(p, from, MF_STATE_TOKEN, token, out);
}

bool mf_tops_may_end(const mf_pool *p, const mf_tops *tops)
{
    for (size_t i = 0; i < tops->n; i++)
        if (p->stacks[tops->items[i]].state == MF_NO_STATE)
            return true;
    return false;
}

/* ------------------------------------------------------------------------------------ copies -- */

/* Each byte adds one to a count at most. */
static uint32_t alike(const mf_program *program, const mf_stack *s, size_t longest)
{
    if (s->state == MF_NO_STATE || longest == 0)
        return s->count;
    const mf_state *state = &program->states[s->state];
    if (state->kind != MF_STATE_REPEAT || s->count == 0)
        return s->count;
    if (s->count < state->min)
        return state->min - s->count > longest ? state->min - (uint32_t)longest - 1 : s->count;
    if (state->max == MF_NO_LIMIT || state->max - s->count <= longest || state->min == s->count)
        return s->count;
    return state->min > 0 ? state->min : 1;
}

void mf_pool_copy(mf_pool *p, const mf_pool *source, const mf_tops *from, size_t longest_bytes,
                  mf_tops *out)
{
    uint32_t path[MF_MAX_STACK + 2];
    begin_closure(p);
    for (size_t i = 0; i < from->n && p->status == MF_OK; i++) {
        size_t n = 0;
        for (uint32_t at = from->items[i]; at != MF_NO_STACK && n < MF_MAX_STACK + 2;
             at = source->stacks[at].parent)
            path[n++] = at;
        uint32_t parent = MF_NO_STACK;
        while (n > 0) {
            const mf_stack *s = &source->stacks[path[--n]];
            parent = intern(p, parent, s->state, alike(p->program, s, longest_bytes));
            if (parent == MF_NO_STACK)
                return;
        }
        if (p->seen[parent] != p->n_closures) {
            p->seen[parent] = p->n_closures;
            push(p, &p->found, parent);
        }
    }
    if (p->found.n > 1)
        qsort(p->found.items, p->found.n, sizeof *p->found.items, compare);
    (void)mf_tops_set(p, out, p->found.items, p->found.n);
}
