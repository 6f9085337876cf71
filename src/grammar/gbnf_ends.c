/* SPDX-License-Identifier: MIT */
/*
 * Tokens that end the answer, within a grammar's text: nothing comes behind them, so that what has
 * to come there never would, and the answer would not be what the grammar allows. Where they stand
 * at its end, or before what may be left out, they end it as its own end does.
 */
#include "grammar/grammar.h"

#include "text/tokenizer.h"

/* A pass over all expressions brings what is known one call of rules further. */
#define MAX_PASSES 1000

/* Of an expression. */
typedef struct known {
    uint32_t last; /* a token that ends the answer, with which its text may end; or MF_NO_TOKEN */
    bool may_be_empty;
} known;

static bool is_end(const mf_vocabulary *v, uint32_t token)
{
    return token < v->n_tokens && (v->ends[token / 32] >> token % 32 & 1) != 0;
}

static bool names_end(const mf_rules *r, const mf_vocabulary *v)
{
    for (size_t i = 0; i < r->n_nodes; i++)
        if (r->nodes[i].kind == MF_EXPR_IS_TOKEN && is_end(v, r->nodes[i].a))
            return true;
    return false;
}

static known either(known a, known b)
{
    return (known){a.last != MF_NO_TOKEN ? a.last : b.last, a.may_be_empty || b.may_be_empty};
}

/* What an expression is made of stands before it in `all`. */
static known look_at(const mf_rules *r, const mf_vocabulary *v, const known *all,
                     const mf_expr_node *e)
{
    known k = {MF_NO_TOKEN, e->kind == MF_EXPR_IS_EMPTY};
    switch (e->kind) {
    case MF_EXPR_IS_SEQ:
        k = all[e->b];
        if (k.last == MF_NO_TOKEN && k.may_be_empty)
            k.last = all[e->a].last;
        k.may_be_empty = k.may_be_empty && all[e->a].may_be_empty;
        break;
    case MF_EXPR_IS_ALT:
        k = either(all[e->a], all[e->b]);
        break;
    case MF_EXPR_IS_REPEAT:
        k = all[e->a];
        k.may_be_empty = k.may_be_empty || e->min == 0;
        break;
    case MF_EXPR_IS_RULE:
        k = all[r->rules[e->a].body];
        break;
    case MF_EXPR_IS_TOKEN:
        k.last = is_end(v, e->a) ? e->a : MF_NO_TOKEN;
        break;
    default:
        break;
    }
    return k;
}

/* False: the rules call each other too deeply for it. */
static bool look_at_all(const mf_rules *r, const mf_vocabulary *v, known *all)
{
    bool has_changed = true;
    for (size_t i = 0; i < r->n_nodes; i++)
        all[i] = (known){MF_NO_TOKEN, false};
    for (int pass = 0; pass < MAX_PASSES && has_changed; pass++) {
        has_changed = false;
        for (size_t i = 0; i < r->n_nodes; i++) {
            const known k = look_at(r, v, all, &r->nodes[i]);
            has_changed |= k.last != all[i].last || k.may_be_empty != all[i].may_be_empty;
            all[i] = k;
        }
    }
    return !has_changed;
}

static void refuse(mf_rules *r, const mf_vocabulary *v, uint32_t token)
{
    size_t n = 0;
    const char *text = mf_text_piece(v->tokenizer, (int32_t)token, &n);
    mf_rules_fail(r, MF_ERR_FORMAT,
                  "the grammar has %.*s (token %u), which ends the answer, before what has to come",
                  (int)(n < 80 ? n : 80), n > 0 ? text : "", token);
}

void mf_gbnf_check_ends(mf_rules *r, const mf_vocabulary *v)
{
    if (r->status != MF_OK || v == NULL || !names_end(r, v))
        return;
    known *all = mf_alloc_array(&r->allocator, r->n_nodes, sizeof *all);
    if (all == NULL) {
        mf_rules_fail(r, MF_ERR_NO_MEMORY, "out of memory for a grammar");
        return;
    }
    const size_t n = look_at_all(r, v, all) ? r->n_nodes : 0;
    for (size_t i = 0; i < n && r->status == MF_OK; i++) {
        const mf_expr_node *e = &r->nodes[i];
        const bool is_pair = e->kind == MF_EXPR_IS_SEQ && !all[e->b].may_be_empty;
        const bool is_run = e->kind == MF_EXPR_IS_REPEAT && e->min > 1 && !all[e->a].may_be_empty;
        if ((is_pair || is_run) && all[e->a].last != MF_NO_TOKEN)
            refuse(r, v, all[e->a].last);
    }
    mf_free(&r->allocator, all, r->n_nodes * sizeof *all);
}
