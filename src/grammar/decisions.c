/* SPDX-License-Identifier: MIT */
/* Decision diagrams: a table of nodes by content, and a memo of what was computed last. */
#include "grammar/decisions.h"

#define MAX_NODES 400000u
#define MAX_STEPS 16000000ul /* for all patterns of a grammar: some 0.15 s */
#define MAX_DEPTH 2000u
#define N_MEMO 16384u
#define CONSTANT UINT32_MAX /* as a variable: decided behind all */

static void fail(mf_decisions *d, mf_decisions_state state)
{
    if (d->state == MF_DECISIONS_GOOD)
        d->state = state;
}

static bool grow_nodes(mf_decisions *d)
{
    const size_t grown = d->capacity * 2 + 1024;
    mf_decision_node *nodes =
        mf_realloc(&d->allocator, d->nodes, d->capacity * sizeof *nodes, grown * sizeof *nodes);
    if (nodes == NULL) {
        fail(d, MF_DECISIONS_NO_MEMORY);
        return false;
    }
    d->nodes = nodes;
    d->capacity = grown;
    return true;
}

void mf_decisions_init(mf_decisions *d, const mf_allocator *a)
{
    *d = (mf_decisions){.allocator = *a};
    d->memo = mf_alloc_array(a, N_MEMO, sizeof *d->memo);
    if (d->memo == NULL)
        fail(d, MF_DECISIONS_NO_MEMORY);
    if (d->memo == NULL || !grow_nodes(d))
        return;
    d->nodes[MF_NEVER] = (mf_decision_node){CONSTANT, MF_NEVER, MF_NEVER};
    d->nodes[MF_ALWAYS] = (mf_decision_node){CONSTANT, MF_ALWAYS, MF_ALWAYS};
    d->n = 2;
}

void mf_decisions_free(mf_decisions *d)
{
    mf_free(&d->allocator, d->nodes, d->capacity * sizeof *d->nodes);
    mf_free(&d->allocator, d->table, d->n_table * sizeof *d->table);
    mf_free(&d->allocator, d->memo, N_MEMO * sizeof *d->memo);
    *d = (mf_decisions){.allocator = d->allocator};
}

bool mf_decisions_step(mf_decisions *d)
{
    if (++d->n_steps > MAX_STEPS)
        fail(d, MF_DECISIONS_TOO_MANY);
    return d->state == MF_DECISIONS_GOOD;
}

static size_t hash(uint32_t a, uint32_t b, uint32_t c)
{
    uint64_t h =
        (a * 0x9E3779B97F4A7C15ull) ^ (b * 0xC2B2AE3D27D4EB4Full) ^ (c * 0x165667B19E3779F9ull);
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ull;
    return (size_t)(h ^ (h >> 32));
}

/* The place of a node in the table, or the empty one where it belongs. */
static size_t place_of(const mf_decisions *d, const mf_decision_node *node)
{
    size_t i = hash(node->variable, node->low, node->high) & (d->n_table - 1);
    while (d->table[i] != 0) {
        const mf_decision_node *other = &d->nodes[d->table[i]];
        if (other->variable == node->variable && other->low == node->low &&
            other->high == node->high)
            break;
        i = (i + 1) & (d->n_table - 1);
    }
    return i;
}

static bool grow_table(mf_decisions *d)
{
    const size_t before = d->n_table, grown = before == 0 ? 4096 : 2 * before;
    uint32_t *table = mf_alloc_array(&d->allocator, grown, sizeof *table);
    if (table == NULL) {
        fail(d, MF_DECISIONS_NO_MEMORY);
        return false;
    }
    mf_free(&d->allocator, d->table, before * sizeof *table);
    d->table = table;
    d->n_table = grown;
    for (size_t i = 2; i < d->n; i++)
        d->table[place_of(d, &d->nodes[i])] = (uint32_t)i;
    return true;
}

static mf_decision make(mf_decisions *d, uint32_t variable, mf_decision low, mf_decision high)
{
    const mf_decision_node node = {variable, low, high};
    if (low == high)
        return low;
    if (d->state != MF_DECISIONS_GOOD || (2 * d->n >= d->n_table && !grow_table(d)))
        return MF_NEVER;
    const size_t place = place_of(d, &node);
    if (d->table[place] != 0)
        return d->table[place];
    if (d->n >= MAX_NODES) {
        fail(d, MF_DECISIONS_TOO_MANY);
        return MF_NEVER;
    }
    if (d->n == d->capacity && !grow_nodes(d))
        return MF_NEVER;
    d->nodes[d->n] = node;
    d->table[place] = (uint32_t)d->n;
    return (mf_decision)d->n++;
}

mf_decision mf_decision_variable(mf_decisions *d, uint32_t variable)
{
    return make(d, variable, MF_NEVER, MF_ALWAYS);
}

static mf_decision branch(const mf_decisions *d, mf_decision f, uint32_t variable, bool is_high)
{
    const mf_decision_node *node = &d->nodes[f];
    if (node->variable != variable)
        return f;
    return is_high ? node->high : node->low;
}

mf_decision mf_decision_if(mf_decisions *d, mf_decision f, mf_decision g, mf_decision h)
{
    if (f == MF_ALWAYS || g == h)
        return g;
    if (f == MF_NEVER)
        return h;
    if (g == MF_ALWAYS && h == MF_NEVER)
        return f;
    if (!mf_decisions_step(d))
        return MF_NEVER;
    mf_decision_memo *memo = &d->memo[hash(f, g, h) & (N_MEMO - 1)];
    if (memo->f == f && memo->g == g && memo->h == h)
        return memo->result; /* f of an empty one is a constant, which does not come here */
    if (d->depth == MAX_DEPTH) {
        fail(d, MF_DECISIONS_TOO_MANY);
        return MF_NEVER;
    }
    uint32_t top = d->nodes[f].variable;
    top = d->nodes[g].variable < top ? d->nodes[g].variable : top;
    top = d->nodes[h].variable < top ? d->nodes[h].variable : top;
    d->depth++;
    const mf_decision low = mf_decision_if(d, branch(d, f, top, false), branch(d, g, top, false),
                                           branch(d, h, top, false));
    const mf_decision high = mf_decision_if(d, branch(d, f, top, true), branch(d, g, top, true),
                                            branch(d, h, top, true));
    d->depth--;
    const mf_decision result = make(d, top, low, high);
    if (d->state == MF_DECISIONS_GOOD)
        *memo = (mf_decision_memo){f, g, h, result};
    return result;
}
