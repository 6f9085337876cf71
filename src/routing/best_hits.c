/* SPDX-License-Identifier: MIT */
/* Belady's rule over a trace: all turns in a list with where each expert comes again, and those
 * that are held in a heap by that. An entry of the heap is of no use any more when its expert has
 * left or was asked for since. */
#include "routing/visits.h"

#include <string.h>

#define NEVER UINT32_MAX

typedef struct entry {
    uint32_t next, key;
} entry;

typedef struct belady {
    mf_arena arena;
    uint32_t n_keys, n_uses;
    uint32_t *uses;       /* [n_uses] keys, turn by turn */
    uint32_t *next;       /* [n_uses] where the key comes again */
    uint32_t *next_of;    /* [n_keys] of what is held */
    uint32_t *pinned_in;  /* [n_keys] the last turn that wants it, from 1 on */
    uint8_t *is_held;     /* [n_keys] */
    entry *heap, *passed; /* [n_uses + 1], the furthest first; pinned ones, to be put back */
    uint32_t n_heap, turn;
    uint64_t n_free;
} belady;

uint32_t mf_routing_visit(const mf_routing *t, size_t pass, uint32_t layer, uint8_t *is_wanted,
                          uint32_t *wanted)
{
    const mf_routing_pass *p = &t->passes[pass];
    const size_t n = (size_t)p->n_rows * t->head.k, first = p->first_choice + layer * n;
    uint32_t n_wanted = 0;
    memset(is_wanted, 0, t->head.n_experts);
    for (size_t i = first; i < first + n; i++)
        is_wanted[t->ids[i]] = 1;
    for (uint32_t e = 0; e < t->head.n_experts; e++)
        if (is_wanted[e])
            wanted[n_wanted++] = e;
    return n_wanted;
}

/* ------------------------------------------------------------------------------------ heap -- */

static void push(belady *b, entry e)
{
    uint32_t i = b->n_heap++;
    for (; i > 0 && b->heap[(i - 1) / 2].next < e.next; i = (i - 1) / 2)
        b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = e;
}

static entry pop(belady *b)
{
    const entry top = b->heap[0], last = b->heap[--b->n_heap];
    uint32_t i = 0;
    for (uint32_t child = 1; child < b->n_heap; child = 2 * i + 1) {
        if (child + 1 < b->n_heap && b->heap[child + 1].next > b->heap[child].next)
            child++;
        if (b->heap[child].next <= last.next)
            break;
        b->heap[i] = b->heap[child];
        i = child;
    }
    b->heap[i] = last;
    return top;
}

/* Empties a slot; pinned experts are passed over while there are others. */
static void evict(belady *b)
{
    uint32_t n_passed = 0;
    bool found = false;
    while (!found && b->n_heap > 0) {
        const entry e = pop(b);
        if (!b->is_held[e.key] || b->next_of[e.key] != e.next)
            continue;
        if (b->pinned_in[e.key] == b->turn) {
            b->passed[n_passed++] = e;
            continue;
        }
        b->is_held[e.key] = 0;
        found = true;
    }
    for (uint32_t i = 0; i < n_passed; i++)
        push(b, b->passed[i]);
    for (uint32_t key = 0; key < b->n_keys && !found; key++)
        b->pinned_in[key] = 0; /* slots ran out: what the turn had so far was computed */
    if (!found)
        evict(b);
}

static void hold(belady *b, uint32_t use)
{
    const uint32_t key = b->uses[use];
    b->is_held[key] = 1;
    b->next_of[key] = b->next[use];
    b->pinned_in[key] = b->turn;
    push(b, (entry){b->next[use], key});
}

static uint32_t run_turn(belady *b, uint32_t first, uint32_t n)
{
    uint32_t n_hits = 0;
    b->turn++;
    for (uint32_t i = first; i < first + n; i++)
        if (b->is_held[b->uses[i]]) {
            hold(b, i);
            n_hits++;
        }
    for (uint32_t i = first; i < first + n; i++) {
        if (b->is_held[b->uses[i]])
            continue;
        if (b->n_free > 0)
            b->n_free--;
        else
            evict(b);
        hold(b, i);
    }
    return n_hits;
}

/* ------------------------------------------------------------------------------------ runs -- */

static mf_status make(belady *b, const mf_routing *t, mf_error *error)
{
    const size_t n = t->n_choices + 1, keys = (size_t)t->head.n_layers * t->head.n_experts;
    const size_t n_bytes = n * (2 * sizeof(uint32_t) + 2 * sizeof(entry)) + keys * 9 + 8 * 64;
    if (n >= NEVER / 2)
        return mf_fail(error, MF_ERR_ARGUMENT, "a trace of too many choices");
    MF_TRY(mf_arena_create(&t->allocator, n_bytes, "Belady's rule", &b->arena, error));
    b->n_keys = (uint32_t)keys;
    b->uses = mf_arena_take(&b->arena, n * sizeof *b->uses);
    b->next = mf_arena_take(&b->arena, n * sizeof *b->next);
    b->heap = mf_arena_take(&b->arena, n * sizeof *b->heap);
    b->passed = mf_arena_take(&b->arena, n * sizeof *b->passed);
    b->next_of = mf_arena_take(&b->arena, keys * sizeof *b->next_of);
    b->pinned_in = mf_arena_take(&b->arena, keys * sizeof *b->pinned_in);
    b->is_held = mf_arena_take(&b->arena, keys);
    return b->is_held != NULL ? MF_OK : mf_fail_memory(error, n_bytes, "Belady's rule");
}

static void find_next(belady *b)
{
    memset(b->next_of, 0xff, b->n_keys * sizeof *b->next_of);
    for (uint32_t i = b->n_uses; i-- > 0;) {
        b->next[i] = b->next_of[b->uses[i]];
        b->next_of[b->uses[i]] = i;
    }
}

/* All turns; sizes[pass * n_layers + layer] of each. */
static void list_turns(belady *b, const mf_routing *t, uint8_t *is_wanted, uint32_t *wanted,
                       uint32_t *sizes)
{
    const uint32_t n_layers = t->head.n_layers, n_experts = t->head.n_experts;
    for (size_t pass = 0; pass < t->n_passes; pass++)
        for (uint32_t layer = 0; layer < n_layers; layer++) {
            const uint32_t n = mf_routing_visit(t, pass, layer, is_wanted, wanted);
            sizes[pass * n_layers + layer] = n;
            for (uint32_t i = 0; i < n; i++)
                b->uses[b->n_uses++] = layer * n_experts + wanted[i];
        }
}

static uint64_t run_all(belady *b, const mf_routing *t, const uint32_t *sizes, uint64_t before)
{
    uint64_t n_hits = 0;
    uint32_t at = 0;
    for (size_t i = 0; i < t->n_passes * t->head.n_layers; i++) {
        const uint32_t n = run_turn(b, at, sizes[i]);
        n_hits += i / t->head.n_layers >= before ? n : 0;
        at += sizes[i];
    }
    return n_hits;
}

mf_status mf_routing_best_hits(const mf_routing *t, uint64_t n_slots, uint64_t before,
                               uint64_t *n_hits, mf_error *error)
{
    const mf_allocator *a = &t->allocator;
    const size_t n_turns = t->n_passes * t->head.n_layers, n_experts = t->head.n_experts;
    belady b = {.n_free = n_slots};
    uint32_t *sizes = mf_alloc_array(a, n_turns, sizeof *sizes);
    uint32_t *wanted = mf_alloc_array(a, n_experts, sizeof *wanted);
    uint8_t *is_wanted = mf_alloc_array(a, n_experts, 1);
    mf_status status = sizes != NULL && wanted != NULL && is_wanted != NULL
                           ? make(&b, t, error)
                           : mf_fail_memory(error, n_turns * sizeof *sizes, "Belady's rule");
    if (status == MF_OK) {
        list_turns(&b, t, is_wanted, wanted, sizes);
        find_next(&b);
        *n_hits = run_all(&b, t, sizes, before);
        mf_arena_free(&b.arena);
    }
    mf_free(a, sizes, n_turns * sizeof *sizes);
    mf_free(a, wanted, n_experts * sizeof *wanted);
    mf_free(a, is_wanted, n_experts);
    return status;
}
