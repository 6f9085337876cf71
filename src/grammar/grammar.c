/* SPDX-License-Identifier: MIT */
/* From parameters to a compiled grammar. */
#include "grammar/calls.h"

#include "base/sized.h"

void mf_grammar_params_init(mf_grammar_params *params, size_t struct_bytes)
{
    const mf_grammar_params defaults = {0};
    mf_sized_init(params, struct_bytes, &defaults, sizeof defaults);
}

static mf_status check(const mf_grammar_params *p, mf_error *error)
{
    const int n = (p->json_schema != NULL) + (p->json_object != 0) + (p->gbnf != NULL);
    if (n != 1)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "a grammar is one of json_schema, json_object and gbnf, but %d are given",
                       n);
    if (p->n_schemas > 0 && (p->gbnf == NULL || p->schemas == NULL))
        return mf_fail(error, MF_ERR_ARGUMENT, "schemas are given, but no gbnf or no array");
    if (p->n_schemas > 1024)
        return mf_fail(error, MF_ERR_ARGUMENT, "%zu schemas, at most 1024", p->n_schemas);
    if (p->json_schema != NULL && p->n_schema_bytes > MF_MAX_SCHEMA_BYTES)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "the schema has %zu bytes, at most %zu",
                       p->n_schema_bytes, MF_MAX_SCHEMA_BYTES);
    if (p->gbnf != NULL && p->n_gbnf_bytes > MF_MAX_GBNF_BYTES)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "the grammar has %zu bytes, at most %zu",
                       p->n_gbnf_bytes, MF_MAX_GBNF_BYTES);
    return MF_OK;
}

/* A thought with its marks, of which a text that ends it holds no part. */
static mf_expr thought(mf_rules *r, const mf_vocabulary *v, const mf_reply_form *f)
{
    const mf_expr text = mf_expr_text_without(r, f->thought_close);
    const mf_expr open = mf_expr_marked(r, v, f->thought_open, strlen(f->thought_open));
    const mf_expr close = mf_expr_marked(r, v, f->thought_close, strlen(f->thought_close));
    return mf_expr_seq(r, mf_expr_seq(r, open, text), close);
}

/* What the syntax has before content may stand before the text. */
static void add_marks(mf_rules *r, const mf_vocabulary *v, const mf_reply_syntax *syntax)
{
    mf_reply_form f;
    if (syntax == NULL || r->status != MF_OK || r->root == MF_NO_RULE)
        return;
    mf_reply_form_of(syntax, &f);
    if (*f.content_open == '\0')
        return;
    mf_expr before = mf_expr_marked(r, v, f.content_open, strlen(f.content_open));
    if (f.thought_open != NULL && *f.thought_open != '\0' && f.thought_close != NULL)
        before = mf_expr_seq(r, mf_expr_optional(r, thought(r, v, &f)), before);
    const uint32_t root = mf_rules_add(r, NULL, 0);
    mf_rules_define(r, root, mf_expr_seq(r, mf_expr_optional(r, before), mf_expr_rule(r, r->root)));
    r->root = root;
}

static void read_text(mf_rules *r, const mf_vocabulary *v, const mf_grammar_params *p)
{
    if (p->gbnf == NULL) {
        r->root = mf_rules_add(r, "root", 4);
        mf_rules_define(r, r->root,
                        p->json_schema != NULL
                            ? mf_schema_read(r, p->json_schema, p->n_schema_bytes, "schema", false)
                            : mf_schema_any_object(r));
        return;
    }
    for (size_t i = 0; i < p->n_schemas && r->status == MF_OK; i++) {
        const mf_grammar_schema *s = &p->schemas[i];
        if (s->name == NULL || s->schema == NULL || s->n_bytes > MF_MAX_SCHEMA_BYTES) {
            mf_rules_fail(r, MF_ERR_ARGUMENT,
                          "schema %zu: a name and a text of at most %zu bytes are wanted", i,
                          MF_MAX_SCHEMA_BYTES);
            return;
        }
        const uint32_t rule = mf_rules_add(r, s->name, strlen(s->name));
        mf_rules_define(r, rule, mf_schema_read(r, s->schema, s->n_bytes, s->name, false));
    }
    mf_gbnf_read(r, p->gbnf, p->n_gbnf_bytes, v, p->literal_tokens != 0);
    mf_gbnf_check_ends(r, v);
    r->root = mf_rules_find(r, "root", 4);
}

static void read_rules(mf_rules *r, const mf_vocabulary *v, const void *source)
{
    const mf_grammar_params *p = source;
    read_text(r, v, p);
    add_marks(r, v, p->syntax);
}

static mf_status compile(mf_vocabulary *v, mf_rules_fn read, const void *source, mf_program *out,
                         mf_error *error)
{
    mf_rules rules;
    mf_status status = mf_rules_init(&rules, &v->allocator, error);
    if (status == MF_OK) {
        read(&rules, v, source);
        status = mf_program_make(&rules, out, error);
    }
    mf_rules_free(&rules);
    return status;
}

/* A grammar of rules that `read` reads from `source`. */
mf_status mf_grammar_make(mf_vocabulary *vocabulary, mf_rules_fn read, const void *source,
                          size_t max_mask_bytes, mf_grammar **out, mf_error *error)
{
    const mf_allocator *a = &vocabulary->allocator;
    mf_grammar *g = mf_alloc_zeroed(a, sizeof *g);
    if (g == NULL)
        return mf_fail_memory(error, sizeof *g, "a grammar");
    mf_status status = compile(vocabulary, read, source, &g->program, error);
    if (status == MF_OK && pthread_mutex_init(&g->mutex, NULL) != 0) {
        mf_program_free(&g->program);
        status = mf_fail_memory(error, sizeof g->mutex, "a grammar");
    }
    if (status != MF_OK) {
        mf_free(a, g, sizeof *g);
        return status;
    }
    g->allocator = *a;
    g->n_refs = 1;
    g->vocabulary = vocabulary;
    mf_vocabulary_hold(vocabulary);
    mf_masks_init(&g->masks, a, &g->program, vocabulary,
                  max_mask_bytes > 0 ? max_mask_bytes : MF_DEFAULT_MASK_BYTES);
    *out = g;
    return MF_OK;
}

mf_status mf_grammar_compile(mf_vocabulary *vocabulary, const mf_grammar_params *params,
                             mf_grammar **out, mf_error *error)
{
    if (vocabulary == NULL || params == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_grammar_compile: a NULL argument");
    mf_grammar_params p = {0};
    MF_TRY(mf_sized_get(&p, sizeof p, params, "mf_grammar_params", error));
    MF_TRY(check(&p, error));
    return mf_grammar_make(vocabulary, read_rules, &p, p.max_mask_bytes, out, error);
}

void mf_grammar_free(mf_grammar **grammar)
{
    if (grammar == NULL || *grammar == NULL)
        return;
    mf_grammar *g = *grammar;
    *grammar = NULL;
    if (__atomic_sub_fetch(&g->n_refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    const mf_allocator a = g->allocator;
    mf_masks_free(&g->masks);
    mf_program_free(&g->program);
    pthread_mutex_destroy(&g->mutex);
    mf_vocabulary_free(&g->vocabulary);
    mf_free(&a, g, sizeof *g);
}

void mf_grammar_get_stats_sized(const mf_grammar *grammar, mf_grammar_stats *stats,
                                size_t struct_bytes)
{
    mf_grammar *g = (mf_grammar *)(uintptr_t)grammar; /* for its mutex */
    if (g == NULL || stats == NULL)
        return;
    pthread_mutex_lock(&g->mutex);
    const mf_grammar_stats found = {.n_states = g->program.n_states,
                                    .n_masks = g->masks.n_misses,
                                    .n_reused = g->masks.n_hits,
                                    .n_flushes = g->masks.n_flushes,
                                    .kept_bytes = g->masks.used_bytes};
    pthread_mutex_unlock(&g->mutex);
    mf_sized_put(stats, struct_bytes, &found, sizeof found);
}
