/* SPDX-License-Identifier: MIT */
/* Masks by a walk over tokens, and what is kept of them. */
#include "grammar/masks.h"

#define DEAD 1u
#define NO_ROOM 0u

void mf_masks_init(mf_masks *m, const mf_allocator *a, const mf_program *program,
                   const mf_vocabulary *vocabulary, size_t max_bytes)
{
    *m = (mf_masks){
        .allocator = *a, .vocabulary = vocabulary, .program = program, .max_bytes = max_bytes};
    mf_pool_init(&m->pool, a, program);
}

static size_t mask_bytes(const mf_masks *m)
{
    return m->vocabulary->n_words * sizeof(uint32_t);
}

/* Forgets all states; what arrays are there stays. */
static void forget(mf_masks *m)
{
    for (size_t i = 0; i < m->n_states; i++) {
        mf_free(&m->allocator, m->states[i].next, 256 * sizeof(uint32_t));
        mf_free(&m->allocator, m->states[i].mask, mask_bytes(m));
    }
    m->n_states = m->n_tops = m->used_bytes = 0;
    if (m->slots != NULL)
        memset(m->slots, 0, m->n_slots * sizeof *m->slots);
    mf_pool_clear(&m->pool);
}

void mf_masks_free(mf_masks *m)
{
    const mf_allocator *a = &m->allocator;
    forget(m);
    mf_free(a, m->states, m->state_capacity * sizeof *m->states);
    mf_free(a, m->tops, m->top_capacity * sizeof *m->tops);
    mf_free(a, m->slots, m->n_slots * sizeof *m->slots);
    mf_tops_free(a, &m->scratch);
    mf_pool_free(&m->pool);
}

/* ---------------------------------------------------------------------------------------- states
 * --
 */

static size_t hash(const uint32_t *tops, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ tops[i]) * 0x9E3779B97F4A7C15u ^ h >> 31;
    return (size_t)(h ^ h >> 29);
}

static bool make_room(mf_masks *m, void **array, size_t *capacity, size_t n, size_t size)
{
    if (n <= *capacity)
        return true;
    const size_t grown = n * 2 + 64;
    void *larger = mf_realloc(&m->allocator, *array, *capacity * size, grown * size);
    if (larger == NULL)
        return false;
    *array = larger;
    *capacity = grown;
    return true;
}

static bool grow_slots(mf_masks *m)
{
    const size_t grown = m->n_slots == 0 ? 1024 : m->n_slots * 2;
    uint32_t *slots = mf_alloc_array(&m->allocator, grown, sizeof *slots);
    if (slots == NULL)
        return false;
    mf_free(&m->allocator, m->slots, m->n_slots * sizeof *slots);
    m->slots = slots;
    m->n_slots = grown;
    for (size_t i = 1; i < m->n_states; i++) {
        const mf_dfa_state *s = &m->states[i];
        size_t at = hash(m->tops + s->first, s->n_tops) & (grown - 1);
        while (slots[at] != 0)
            at = (at + 1) & (grown - 1);
        slots[at] = (uint32_t)i;
    }
    return true;
}

static uint32_t add_state(mf_masks *m, const uint32_t *tops, size_t n)
{
    if (2 * (m->n_states + 1) > m->n_slots && !grow_slots(m))
        return NO_ROOM;
    size_t at = hash(tops, n) & (m->n_slots - 1);
    for (; m->slots[at] != 0; at = (at + 1) & (m->n_slots - 1)) {
        const mf_dfa_state *s = &m->states[m->slots[at]];
        if (s->n_tops == n && (n == 0 || memcmp(m->tops + s->first, tops, n * sizeof *tops) == 0))
            return m->slots[at];
    }
    if (!make_room(m, (void **)&m->states, &m->state_capacity, m->n_states + 1,
                   sizeof *m->states) ||
        !make_room(m, (void **)&m->tops, &m->top_capacity, m->n_tops + n, sizeof *m->tops))
        return NO_ROOM;
    m->states[m->n_states] = (mf_dfa_state){.first = (uint32_t)m->n_tops, .n_tops = (uint32_t)n};
    if (n > 0)
        memcpy(m->tops + m->n_tops, tops, n * sizeof *tops);
    m->n_tops += n;
    m->used_bytes += sizeof *m->states + 4 * n + 16;
    m->slots[at] = (uint32_t)m->n_states;
    return (uint32_t)m->n_states++;
}

/* The state of these stacks of m->pool; NO_ROOM. */
static uint32_t intern(mf_masks *m, const mf_tops *tops)
{
    if (m->n_states == 0) { /* the two that are always there */
        if (!make_room(m, (void **)&m->states, &m->state_capacity, 2, sizeof *m->states))
            return NO_ROOM;
        m->states[0] = (mf_dfa_state){0};
        m->n_states = 1;
        if (add_state(m, NULL, 0) != DEAD)
            return NO_ROOM;
    }
    return add_state(m, tops->items, tops->n);
}

static uint32_t find_next(mf_masks *m, uint32_t state, unsigned char byte)
{
    const mf_dfa_state s = m->states[state];
    const mf_tops from = {m->tops + s.first, s.n_tops, s.n_tops};
    mf_pool_byte(&m->pool, &from, byte, &m->scratch);
    if (m->pool.status != MF_OK)
        return NO_ROOM;
    const uint32_t next = intern(m, &m->scratch);
    if (next == NO_ROOM)
        return NO_ROOM;
    if (s.next == NULL) {
        m->states[state].next = mf_alloc_array(&m->allocator, 256, sizeof *s.next);
        if (m->states[state].next == NULL)
            return NO_ROOM;
        m->used_bytes += 256 * sizeof *s.next;
    }
    m->states[state].next[byte] = next;
    return next;
}

static bool is_full(const mf_masks *m)
{
    return m->used_bytes + m->pool.n_stacks * 32 > m->max_bytes;
}

/* Forgets all but states[n], which get their new numbers. */
static bool start_anew(mf_masks *m, uint32_t *states, size_t n)
{
    mf_masks old = *m;
    bool is_good = true;
    mf_masks_init(m, &old.allocator, old.program, old.vocabulary, old.max_bytes);
    m->n_hits = old.n_hits;
    m->n_misses = old.n_misses;
    m->n_flushes = old.n_flushes + 1;
    for (size_t i = 0; i < n && is_good; i++) {
        const mf_dfa_state *s = &old.states[states[i]];
        const mf_tops from = {old.tops + s->first, s->n_tops, s->n_tops};
        mf_pool_copy(&m->pool, &old.pool, &from, 0, &m->scratch);
        states[i] = intern(m, &m->scratch);
        is_good = states[i] != NO_ROOM && m->pool.status == MF_OK;
    }
    mf_masks_free(&old);
    return is_good;
}

/* ----------------------------------------------------------------------------------------- walks
 * --
 */

static void allow(const mf_vocabulary *v, uint32_t token, uint32_t *mask)
{
    for (; token != MF_NO_TOKEN; token = v->same[token])
        mask[token / 32] |= 1u << token % 32;
}

/* Allows what of the tokens leads on from a state, which is path[0]. */
static bool walk(mf_masks *m, const mf_trie *trie, uint32_t *path, uint32_t *mask)
{
    for (size_t i = 0; i < trie->n_nodes;) {
        const mf_trie_node *node = &trie->nodes[i];
        const uint32_t from = path[node->depth];
        uint32_t to = m->states[from].next != NULL ? m->states[from].next[node->byte] : 0;
        if (to == NO_ROOM) {
            if (is_full(m) && !start_anew(m, path, node->depth + 1u))
                return false;
            to = find_next(m, path[node->depth], node->byte);
            if (to == NO_ROOM)
                return false;
        }
        if (to == DEAD) {
            i = node->skip;
            continue;
        }
        path[node->depth + 1] = to;
        if (node->token != MF_NO_TOKEN)
            allow(m->vocabulary, node->token, mask);
        i++;
    }
    return true;
}

/* How many characters a JSON string still takes: 0 where a stack is in none. */
static uint32_t string_room(const mf_masks *m, const mf_stack *stack)
{
    if (stack->state != m->program->char_state || stack->state == MF_NO_STATE ||
        stack->parent == MF_NO_STACK)
        return 0;
    const mf_stack *frame = &m->pool.stacks[stack->parent];
    const mf_state *repeat = &m->program->states[frame->state];
    if (repeat->kind != MF_STATE_REPEAT)
        return 0;
    return repeat->max == MF_NO_LIMIT ? MF_NO_LIMIT : repeat->max - frame->count + 1;
}

static void allow_plain(const mf_vocabulary *v, uint32_t room, uint32_t *mask)
{
    if (room >= v->longest_bytes) {
        for (size_t i = 0; i < v->n_words; i++)
            mask[i] |= v->plain_all[i];
        return;
    }
    for (size_t i = 0; i < v->n_plain && v->plain_chars[i] <= room; i++)
        allow(v, v->plain_sorted[i], mask);
}

/* What needs no walk over bytes: tokens by name, ends. *room: of the widest string. */
static void look_at_tops(const mf_masks *m, uint32_t state, uint32_t *mask, uint32_t *room)
{
    const mf_vocabulary *v = m->vocabulary;
    const mf_dfa_state *s = &m->states[state];
    *room = 0;
    for (size_t i = 0; i < s->n_tops; i++) {
        const mf_stack *stack = &m->pool.stacks[m->tops[s->first + i]];
        if (stack->state == MF_NO_STATE) {
            for (size_t w = 0; w < v->n_words; w++)
                mask[w] |= v->ends[w];
            continue;
        }
        const mf_state *p = &m->program->states[stack->state];
        const uint32_t string = string_room(m, stack);
        *room = string > *room ? string : *room;
        if (p->kind == MF_STATE_TOKEN && p->a < v->n_tokens)
            mask[p->a / 32] |= 1u << p->a % 32;
    }
}

/* Where only the string's own ways are left for plain tokens: nothing else takes a plain byte. */
static bool is_string_alone(const mf_masks *m, uint32_t state)
{
    const mf_dfa_state *s = &m->states[state];
    uint32_t parent = MF_NO_STACK;
    for (size_t i = 0; i < s->n_tops; i++) {
        const mf_stack *stack = &m->pool.stacks[m->tops[s->first + i]];
        if (string_room(m, stack) > 0)
            parent = stack->parent;
    }
    for (size_t i = 0; i < s->n_tops; i++) {
        const mf_stack *stack = &m->pool.stacks[m->tops[s->first + i]];
        if (stack->state == MF_NO_STATE)
            continue;
        const mf_state *p = &m->program->states[stack->state];
        if (stack->parent != parent && !(p->kind == MF_STATE_RANGE && p->a == '"' && p->b == '"'))
            return false;
    }
    return true;
}

static bool find_mask(mf_masks *m, uint32_t *state)
{
    const mf_vocabulary *v = m->vocabulary;
    uint32_t path[MF_MAX_TOKEN_BYTES + 2] = {*state}, room;
    uint32_t *mask = mf_alloc_zeroed(&m->allocator, mask_bytes(m));
    if (mask == NULL)
        return false;
    look_at_tops(m, *state, mask, &room);
    if (room > 0)
        allow_plain(v, room, mask);
    const bool walks_plain = room < v->longest_bytes && (room == 0 || !is_string_alone(m, *state));
    if ((walks_plain && !walk(m, &v->plain, path, mask)) || !walk(m, &v->rest, path, mask)) {
        mf_free(&m->allocator, mask, mask_bytes(m));
        return false;
    }
    *state = path[0];
    m->states[*state].mask = mask;
    m->used_bytes += mask_bytes(m);
    return true;
}

mf_status mf_masks_find(mf_masks *m, const mf_pool *pool, const mf_tops *tops, uint32_t *out,
                        mf_error *error)
{
    uint32_t state = NO_ROOM;
    if (m->pool.status != MF_OK || is_full(m)) {
        forget(m);
        m->n_flushes++;
    }
    mf_pool_copy(&m->pool, pool, tops, m->vocabulary->longest_bytes, &m->scratch);
    if (m->pool.status == MF_OK)
        state = intern(m, &m->scratch);
    bool is_found = state != NO_ROOM;
    if (is_found && m->states[state].mask != NULL)
        m->n_hits++;
    else if (is_found) {
        m->n_misses++;
        is_found = find_mask(m, &state);
    }
    if (!is_found && m->pool.status == MF_ERR_UNSUPPORTED)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "the grammar is too ambiguous: more than %u ways",
                       MF_MAX_TOPS);
    if (!is_found)
        return mf_fail_memory(error, mask_bytes(m), "a mask of tokens");
    memcpy(out, m->states[state].mask, mask_bytes(m));
    return MF_OK;
}
