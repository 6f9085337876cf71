/* SPDX-License-Identifier: MIT */
/*
 * "uniqueItems" of few values: what is left to come is known by the set of those that came, a rule
 * for each set. Of items that are not listed a grammar cannot remember which there were.
 */
#include "grammar/schema.h"

#define MAX_VALUES 10

typedef struct values {
    mf_rules *rules;
    mf_expr all[MAX_VALUES];
    unsigned n;
    uint32_t min, max;
    uint32_t made[1u << MAX_VALUES]; /* rules by the set of those that came, or MF_NO_RULE */
} values;

/* The one schema of all items, behind references; NULL: there are several, or none. */
static yyjson_val *schema_of_items(mf_schema_reader *s, const mf_conjunction *c)
{
    static const char *const ref_alone[] = {"$ref", NULL};
    yyjson_val *found = NULL;
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *items = yyjson_obj_get(c->parts[i].schema, "items");
        if (yyjson_obj_get(c->parts[i].schema, "prefixItems") != NULL ||
            (items != NULL && found != NULL))
            return NULL;
        found = items != NULL ? items : found;
    }
    for (unsigned n = 0; n < MF_MAX_SCHEMA_DEPTH && found != NULL; n++) {
        yyjson_val *ref = yyjson_obj_get(found, "$ref");
        if (!yyjson_is_str(ref) || mf_schema_says_more(found, ref_alone))
            return found;
        found = mf_schema_resolve(s, yyjson_get_str(ref), yyjson_get_len(ref));
    }
    return NULL;
}

/* The list's values, each once. False: there are too many. */
static bool take_list(mf_schema_reader *s, yyjson_val *schema, yyjson_val *list, values *v)
{
    mf_conjunction c = {0};
    yyjson_val *taken[MAX_VALUES] = {NULL}, *item;
    size_t i, n;
    mf_conjunction_add(s, &c, schema);
    yyjson_arr_foreach(list, i, n, item)
    {
        bool is_there = false;
        for (unsigned k = 0; k < v->n; k++)
            is_there = is_there || mf_schema_equal(s, taken[k], item);
        const mf_expr e = is_there ? MF_EXPR_NOTHING : mf_schema_constant(s, &c, item);
        if (e == MF_EXPR_NOTHING)
            continue;
        if (v->n == MAX_VALUES)
            return false;
        taken[v->n] = item;
        v->all[v->n++] = mf_schema_shared(s, e);
    }
    return true;
}

static bool take_values(mf_schema_reader *s, const mf_conjunction *c, values *v)
{
    static const char *const list_alone[] = {"type", "enum", NULL};
    static const char *const type_alone[] = {"type", NULL};
    yyjson_val *schema = schema_of_items(s, c), *list = yyjson_obj_get(schema, "enum");
    if (yyjson_is_arr(list) && !mf_schema_says_more(schema, list_alone))
        return take_list(s, schema, list, v);
    if (!yyjson_equals_str(yyjson_obj_get(schema, "type"), "boolean") ||
        mf_schema_says_more(schema, type_alone))
        return false;
    v->all[v->n++] = mf_expr_text(s->rules, "false");
    v->all[v->n++] = mf_expr_text(s->rules, "true");
    return true;
}

/* What may come behind this set, up to the end. */
static mf_expr behind(values *v, uint32_t set, uint32_t n_came)
{
    mf_rules *r = v->rules;
    if (v->made[set] != MF_NO_RULE)
        return mf_expr_rule(r, v->made[set]);
    mf_expr all = n_came >= v->min && n_came > 0 ? MF_EXPR_EMPTY : MF_EXPR_NOTHING;
    for (unsigned i = 0; i < v->n && n_came < v->max && r->status == MF_OK; i++) {
        if (set >> i & 1)
            continue;
        mf_expr one = mf_expr_seq(r, v->all[i], behind(v, set | 1u << i, n_came + 1));
        if (n_came > 0)
            one = mf_expr_seq(r, mf_expr_seq(r, mf_expr_text(r, ","), mf_json_space(r)), one);
        all = mf_expr_alt(r, all, one);
    }
    const uint32_t rule = mf_rules_add(r, NULL, 0);
    if (r->status != MF_OK)
        return MF_EXPR_NOTHING;
    mf_rules_define(r, rule, all);
    v->made[set] = rule;
    return mf_expr_rule(r, rule);
}

mf_expr mf_schema_unique_items(mf_schema_reader *s, const mf_conjunction *c, uint32_t min,
                               uint32_t max)
{
    mf_rules *r = s->rules;
    values *v = mf_alloc_zeroed(&r->allocator, sizeof *v);
    mf_expr e = MF_EXPR_NOTHING;
    if (v == NULL) {
        mf_rules_fail(r, MF_ERR_NO_MEMORY, "out of memory for a grammar");
        return e;
    }
    v->rules = r;
    v->min = min;
    v->max = max;
    memset(v->made, 0xFF, sizeof v->made);
    if (!take_values(s, c, v))
        (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                             "the keyword \"uniqueItems\" is supported for items of an enum of at "
                             "most %d values and for booleans alone",
                             MAX_VALUES);
    else if (r->status == MF_OK && v->n >= min)
        e = behind(v, 0, 0);
    mf_free(&r->allocator, v, sizeof *v);
    return e;
}
