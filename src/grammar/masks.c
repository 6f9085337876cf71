/* SPDX-License-Identifier: MIT */
/* Masks by a walk over tokens, and what is kept of them. */
#include "grammar/masks.h"

#define DEAD 1u
#define NO_ROOM 0u
/* The characters of a kind lead to different states. */
#define UNLIKE UINT32_MAX
/* Transitions of a state by bytes, then by kinds of characters. */
#define N_NEXT (256u + MF_N_KINDS)
/* So many nodes below one are worth a look whether all are allowed. */
#define MIN_BELOW 6u
/* So many states are looked at for whether a group leads on. */
#define MAX_LOOKED_AT 64u

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
        mf_free(&m->allocator, m->states[i].next, N_NEXT * sizeof(uint32_t));
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

/* ------------------------------------------------------------------------------------ states -- */

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

/* The bytes around one that no range of the state tells from it. */
static void find_alike(const mf_masks *m, const mf_tops *tops, unsigned byte, unsigned *first,
                       unsigned *last)
{
    *first = 0;
    *last = 255;
    for (size_t i = 0; i < tops->n; i++) {
        const mf_stack *stack = &m->pool.stacks[tops->items[i]];
        if (stack->state == MF_NO_STATE)
            continue;
        const mf_state *p = &m->program->states[stack->state];
        if (p->kind != MF_STATE_RANGE || p->a > p->b)
            continue;
        const unsigned begin = byte < p->a ? 0 : byte <= p->b ? p->a : p->b + 1;
        const unsigned end = byte < p->a ? p->a - 1 : byte <= p->b ? p->b : 255;
        *first = begin > *first ? begin : *first;
        *last = end < *last ? end : *last;
    }
}

static uint32_t find_next(mf_masks *m, uint32_t state, unsigned char byte)
{
    const mf_dfa_state s = m->states[state];
    const mf_tops from = {m->tops + s.first, s.n_tops, s.n_tops};
    unsigned first, last;
    find_alike(m, &from, byte, &first, &last);
    mf_pool_byte(&m->pool, &from, byte, &m->scratch);
    if (m->pool.status != MF_OK)
        return NO_ROOM;
    const uint32_t next = intern(m, &m->scratch);
    if (next == NO_ROOM)
        return NO_ROOM;
    if (s.next == NULL) {
        m->states[state].next = mf_alloc_array(&m->allocator, N_NEXT, sizeof *s.next);
        if (m->states[state].next == NULL)
            return NO_ROOM;
        m->used_bytes += N_NEXT * sizeof *s.next;
    }
    for (unsigned i = first; i <= last; i++)
        m->states[state].next[i] = next;
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

/* ------------------------------------------------------------------------------------- kinds -- */

/* As find_next, where there is room: else, and where too much is possible, NO_ROOM, and whoever
 * asks does without. */
static uint32_t look(mf_masks *m, uint32_t state, unsigned byte)
{
    uint32_t to = m->states[state].next != NULL ? m->states[state].next[byte] : NO_ROOM;
    if (to != NO_ROOM || is_full(m))
        return to;
    to = find_next(m, state, (unsigned char)byte);
    if (m->pool.status == MF_ERR_UNSUPPORTED)
        m->pool.status = MF_OK;
    return to;
}

/* Where all bytes of a range lead. */
static uint32_t over_range(mf_masks *m, uint32_t state, unsigned first, unsigned last)
{
    const uint32_t to = look(m, state, first);
    for (unsigned byte = first + 1; byte <= last && to != NO_ROOM; byte++) {
        const uint32_t other = look(m, state, byte);
        if (other != to)
            return other == NO_ROOM ? NO_ROOM : UNLIKE;
    }
    return to;
}

/* Where all characters beyond ASCII lead, as they are written. */
static uint32_t over_wide(mf_masks *m, uint32_t state)
{
    static const struct {
        unsigned char first[2], second[2];
        unsigned n_more; /* of 0x80 to 0xBF */
    } forms[] = {{{0xC2, 0xDF}, {0x80, 0xBF}, 0}, {{0xE0, 0xE0}, {0xA0, 0xBF}, 1},
                 {{0xE1, 0xEC}, {0x80, 0xBF}, 1}, {{0xED, 0xED}, {0x80, 0x9F}, 1},
                 {{0xEE, 0xEF}, {0x80, 0xBF}, 1}, {{0xF0, 0xF0}, {0x90, 0xBF}, 2},
                 {{0xF1, 0xF3}, {0x80, 0xBF}, 2}, {{0xF4, 0xF4}, {0x80, 0x8F}, 2}};
    uint32_t all = NO_ROOM;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        uint32_t to = over_range(m, state, forms[i].first[0], forms[i].first[1]);
        for (unsigned k = 0; k <= forms[i].n_more && to > DEAD && to != UNLIKE; k++)
            to = over_range(m, to, k > 0 ? 0x80 : forms[i].second[0],
                            k > 0 ? 0xBF : forms[i].second[1]);
        if (to == NO_ROOM || to == UNLIKE)
            return to;
        if (i > 0 && to != all)
            return UNLIKE;
        all = to;
    }
    return all;
}

/* Where all characters of a kind lead: a state, DEAD, UNLIKE; NO_ROOM: that is not known. */
static uint32_t over_kind(mf_masks *m, uint32_t state, unsigned kind)
{
    const uint32_t *next = m->states[state].next;
    if (next != NULL && next[256 + kind] != 0)
        return next[256 + kind];
    const uint32_t to = kind == MF_KIND_WIDE ? over_wide(m, state)
                                             : over_range(m, state, mf_kind_first[kind],
                                                          mf_kind_first[kind + 1] - 1u);
    if (to != NO_ROOM && m->states[state].next != NULL)
        m->states[state].next[256 + kind] = to;
    return to;
}

/* How many characters of these kinds a state takes, whichever they are, up to `most`. *ends: and
 * not one more. */
static uint32_t run_of(mf_masks *m, uint32_t state, uint32_t kinds, uint32_t most, bool *ends)
{
    *ends = false;
    for (uint32_t n = 0; n < most; n++) {
        uint32_t to = NO_ROOM;
        for (uint32_t rest = kinds; rest != 0; rest &= rest - 1) {
            const uint32_t one = over_kind(m, state, (unsigned)__builtin_ctz(rest));
            if (one == NO_ROOM || one == UNLIKE || (to != NO_ROOM && one != to))
                return n;
            to = one;
        }
        *ends = to == DEAD;
        if (to <= DEAD)
            return n;
        if (to == state)
            return most;
        state = to;
    }
    return most;
}

/* ------------------------------------------------------------------------------------- walks -- */

static void allow(const mf_vocabulary *v, uint32_t token, uint32_t *mask)
{
    for (; token != MF_NO_TOKEN; token = v->same[token])
        mask[token / 32] |= 1u << token % 32;
}

static void allow_node(const mf_vocabulary *v, const mf_trie_node *node, uint32_t *mask)
{
    if (node->has_like)
        allow(v, node->token, mask);
    else if (node->token != MF_NO_TOKEN)
        mask[node->token / 32] |= 1u << node->token % 32;
}

/* Where to go on in the tree, the state behind node i being known. What is below is looked at as a
 * whole, if it is much. */
static size_t pass(mf_masks *m, const mf_trie *trie, size_t i, uint32_t state, uint32_t *mask)
{
    const mf_trie_node *node = &trie->nodes[i];
    bool ends;
    if (node->skip - i <= MIN_BELOW || (node->kinds & MF_KINDS_INSIDE) != 0)
        return i + 1;
    const uint32_t n = run_of(m, state, node->kinds, node->n_below, &ends);
    if (n < node->n_below)
        return n == 0 && ends ? node->skip : i + 1;
    while (++i < node->skip)
        allow_node(m->vocabulary, &trie->nodes[i], mask);
    return i;
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
        allow_node(m->vocabulary, node, mask);
        i = pass(m, trie, i, to, mask);
    }
    return true;
}

/* Those of a group that have at most n characters. */
static void allow_short(const mf_vocabulary *v, const mf_token_group *g, uint32_t n, uint32_t *mask)
{
    const size_t end = g->first + g->n_tokens;
    size_t i = g->first;
    if (n > 0 && g->n_lengths > 0) {
        const uint32_t length = n < g->n_lengths ? n : g->n_lengths;
        const uint32_t *up_to = g->up_to + (length - 1) * v->n_words;
        for (size_t w = 0; w < v->n_words; w++)
            mask[w] |= up_to[w];
        if (n <= length)
            return;
        i = g->longer;
    }
    for (; i < end && v->plain_chars[i] <= n; i++)
        mask[v->plain_sorted[i] / 32] |= 1u << v->plain_sorted[i] % 32;
}

/* Whether no text leads on that has characters of these kinds alone and of each of them, up to so
 * many: one of the kinds leads nowhere from wherever the others lead. */
static bool is_shut(mf_masks *m, uint32_t state, uint32_t kinds, uint32_t longest)
{
    uint32_t seen[MAX_LOOKED_AT] = {state}, open = 0;
    size_t n = 1, first = 0;
    for (uint32_t length = 0; length < longest && first < n; length++)
        for (const size_t end = n; first < end; first++)
            for (uint32_t rest = kinds; rest != 0; rest &= rest - 1) {
                const unsigned kind = (unsigned)__builtin_ctz(rest);
                const uint32_t to = over_kind(m, seen[first], kind);
                size_t i = 0;
                if (to == NO_ROOM || to == UNLIKE)
                    return false;
                if (to == DEAD)
                    continue;
                open |= 1u << kind;
                while (i < n && seen[i] != to)
                    i++;
                if (open == kinds || (i == n && n == MAX_LOOKED_AT))
                    return false;
                if (i == n)
                    seen[n++] = to;
            }
    return true;
}

/* Likewise of a group: as far as all characters of its kinds lead to one state, without a walk. */
static bool walk_group(mf_masks *m, const mf_token_group *g, uint32_t *path, uint32_t *mask)
{
    const mf_vocabulary *v = m->vocabulary;
    bool ends = false;
    if (g->kinds != 0) {
        const uint32_t longest = v->plain_chars[g->first + g->n_tokens - 1];
        const uint32_t n = run_of(m, path[0], g->kinds, longest, &ends);
        allow_short(v, g, n, mask);
        ends = ends || n == longest || is_shut(m, path[0], g->kinds, longest);
    }
    return ends || walk(m, &g->trie, path, mask);
}

static bool walk_plain(mf_masks *m, uint32_t *path, uint32_t *mask)
{
    for (size_t i = 0; i < m->vocabulary->n_groups; i++)
        if (!walk_group(m, &m->vocabulary->groups[i], path, mask))
            return false;
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
    for (size_t i = 0; i < v->n_groups; i++)
        allow_short(v, &v->groups[i], room, mask);
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

static uint32_t only_token(const uint32_t *mask, size_t n_words)
{
    uint32_t only = MF_NO_TOKEN;
    for (size_t i = 0; i < n_words; i++) {
        if (mask[i] == 0)
            continue;
        if (only != MF_NO_TOKEN || (mask[i] & (mask[i] - 1)) != 0)
            return MF_NO_TOKEN;
        only = (uint32_t)(32 * i) + (uint32_t)__builtin_ctz(mask[i]);
    }
    return only;
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
    if ((walks_plain && !walk_plain(m, path, mask)) || !walk(m, &v->rest, path, mask)) {
        mf_free(&m->allocator, mask, mask_bytes(m));
        return false;
    }
    *state = path[0];
    m->states[*state].mask = mask;
    m->states[*state].only = only_token(mask, v->n_words);
    m->used_bytes += mask_bytes(m);
    return true;
}

mf_status mf_masks_find(mf_masks *m, const mf_pool *pool, const mf_tops *tops, uint32_t *out,
                        uint32_t *only, mf_error *error)
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
    if (out != NULL)
        memcpy(out, m->states[state].mask, mask_bytes(m));
    *only = m->states[state].only;
    return MF_OK;
}
