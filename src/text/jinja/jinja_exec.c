/* SPDX-License-Identifier: MIT */
/* Statements: scopes, loops, macros. */
#include "text/jinja/jinja_eval.h"

/* How a run of statements ended. */
typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } flow;

static flow exec_list(mf_jrun *j, const mf_jnode *first);

mf_jscope *mf_j_scope(mf_jrun *j, mf_jscope *parent)
{
    mf_jscope *scope = mf_j_take(j, sizeof *scope);
    if (scope != NULL)
        *scope = (mf_jscope){.parent = parent};
    return scope;
}

void mf_j_bind(mf_jrun *j, mf_jscope *scope, const mf_jstr *name, mf_jval value)
{
    if (scope == NULL || !mf_j_spend(j, 1 + MF_J_LOOKED_UP(scope->n_bindings)))
        return;
    for (size_t i = 0; i < scope->n_bindings; i++) {
        const mf_jstr *other = scope->bindings[i].name;
        if (other->n_bytes == name->n_bytes &&
            memcmp(other->text, name->text, name->n_bytes) == 0) {
            scope->bindings[i].value = value;
            return;
        }
    }
    if (scope->n_bindings == scope->capacity) {
        size_t capacity = scope->capacity == 0 ? 4 : 2 * scope->capacity;
        mf_jbinding *bindings = mf_j_take(j, capacity * sizeof *bindings);
        if (bindings == NULL)
            return;
        if (scope->n_bindings != 0)
            memcpy(bindings, scope->bindings, scope->n_bindings * sizeof *bindings);
        scope->bindings = bindings;
        scope->capacity = capacity;
    }
    scope->bindings[scope->n_bindings++] = (mf_jbinding){name, value};
}

/* namespace.name = value */
static void assign_field(mf_jrun *j, const mf_jnode *target, mf_jval value)
{
    mf_jval whole = mf_j_lookup(j, target->name);
    if (whole.kind != MF_J_NAMESPACE) {
        mf_j_fail(j, MF_ERR_ARGUMENT, "cannot assign attribute on non-namespace object");
        return;
    }
    if (target->second->n_bytes > 0 && *target->second->text == '_') {
        mf_j_fail(j, MF_ERR_ARGUMENT, "a namespace's attribute cannot begin with '_'");
        return;
    }
    mf_j_put(j, whole, (mf_jval){.kind = MF_J_STRING, .as.string = target->second}, value);
}

void mf_j_assign(mf_jrun *j, mf_jscope *scope, const mf_jnode *target, mf_jval value)
{
    if (!mf_j_enter(j))
        return;
    if (target->kind == MF_JN_NAME) {
        mf_j_bind(j, scope, target->name, value);
    } else if (target->kind == MF_JN_NAMESPACE_FIELD) {
        assign_field(j, target, value);
    } else {
        const mf_jlist *items = mf_j_items(j, value);
        size_t n = 0;
        for (const mf_jnode *part = target->list; part != NULL; part = part->next, n++)
            if (n < items->n_items && mf_j_ok(j))
                mf_j_assign(j, scope, part, items->items[n]);
        if (n != items->n_items)
            mf_j_fail(j, MF_ERR_ARGUMENT, "%zu values to unpack, expected %zu", items->n_items, n);
    }
    mf_j_leave(j);
}

mf_jval mf_j_capture(mf_jrun *j, const mf_jnode *first)
{
    mf_jtext text = {.run = j, .max_bytes = j->out->max_bytes}, *out = j->out;
    mf_jscope *scope = j->scope;
    j->out = &text;
    j->scope = mf_j_scope(j, scope);
    if (j->scope != NULL)
        exec_list(j, first);
    j->scope = scope;
    j->out = out;
    return mf_j_take_text(&text);
}

/* ------------------------------------------------------------------------------------- loops -- */

/* The items that the loop's condition lets through. */
static const mf_jlist *filter_items(mf_jrun *j, const mf_jnode *node, const mf_jlist *items)
{
    static const mf_jlist nothing = {0};
    mf_jval kept = mf_j_list(j, MF_J_PLAIN);
    mf_jscope *scope = j->scope;
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        j->scope = mf_j_scope(j, scope);
        mf_j_assign(j, j->scope, node->a, items->items[i]);
        if (mf_j_ok(j) && mf_j_truth(mf_j_eval(j, node->c)))
            mf_j_push(j, kept, items->items[i]);
        j->scope = scope;
    }
    return mf_j_ok(j) ? kept.as.list : &nothing;
}

static flow exec_iteration(mf_jrun *j, const mf_jnode *node, mf_jloop *loop)
{
    static const mf_jstr name = {.text = "loop", .n_bytes = 4};
    flow end = FLOW_NEXT;
    j->scope = mf_j_scope(j, loop->scope);
    mf_j_bind(j, j->scope, &name, (mf_jval){.kind = MF_J_LOOP, .as.loop = loop});
    mf_j_assign(j, j->scope, node->a, loop->items->items[loop->index]);
    if (mf_j_ok(j))
        end = exec_list(j, node->list);
    return end;
}

static void exec_loop(mf_jrun *j, const mf_jnode *node, mf_jval iterable, unsigned depth)
{
    mf_jscope *scope = j->scope;
    mf_jloop *loop = mf_j_take(j, sizeof *loop);
    const mf_jlist *items = mf_j_items(j, iterable);
    if (node->c != NULL)
        items = filter_items(j, node, items);
    if (loop == NULL || !mf_j_ok(j))
        return;
    *loop = (mf_jloop){
        .items = items, .depth = depth, .scope = scope, .node = node->is_set ? node : NULL};
    /* As in Jinja, "else" is for loops of which no iteration came to its end: those that break and
     * continue left do not count. */
    bool has_ended = false;
    /* Its own count: nothing may change the list meanwhile, but nothing here relies on that. */
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        loop->index = i;
        const flow end = exec_iteration(j, node, loop);
        has_ended = has_ended || end == FLOW_NEXT;
        if (end == FLOW_BREAK)
            break;
    }
    j->scope = scope;
    if (!has_ended) {
        j->scope = mf_j_scope(j, scope);
        exec_list(j, node->otherwise);
        j->scope = scope;
    }
}

mf_jval mf_j_call_loop(mf_jrun *j, const mf_jloop *loop, const mf_jarguments *arguments)
{
    const mf_jlist *given = arguments->plain.as.list;
    if (loop->node == NULL || given->n_items != 1)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "loop() is for recursive loops, with one argument");
    mf_jtext text = {.run = j, .max_bytes = j->out->max_bytes}, *out = j->out;
    mf_jscope *scope = j->scope;
    j->out = &text;
    j->scope = loop->scope;
    exec_loop(j, loop->node, given->items[0], loop->depth + 1);
    j->scope = scope;
    j->out = out;
    return mf_j_take_text(&text);
}

/* ------------------------------------------------------------------------------------ macros -- */

mf_jval mf_j_macro_name(const mf_jmacro *macro)
{
    return (mf_jval){.kind = MF_J_STRING, .as.string = macro->node->name};
}

mf_jval mf_j_make_macro(mf_jrun *j, const mf_jnode *node)
{
    mf_jmacro *macro = mf_j_take(j, sizeof *macro);
    if (macro == NULL)
        return mf_j_undefined(NULL);
    *macro = (mf_jmacro){node, j->scope};
    return (mf_jval){.kind = MF_J_MACRO, .as.macro = macro};
}

static void bind_text(mf_jrun *j, const char *name, mf_jval value)
{
    mf_jval string = mf_j_text(j, name);
    if (mf_j_ok(j))
        mf_j_bind(j, j->scope, string.as.string, value);
}

static const mf_jval *named_argument(const mf_jarguments *arguments, const mf_jstr *name)
{
    return arguments->named.kind == MF_J_DICT
               ? mf_j_find_text(arguments->named.as.dict, name->text, name->n_bytes)
               : NULL;
}

/* Parameters by place, by name, by default. */
static size_t bind_parameters(mf_jrun *j, const mf_jnode *node, const mf_jarguments *arguments)
{
    const mf_jlist *plain = arguments->plain.as.list;
    size_t n = 0;
    for (const mf_jnode *p = node->otherwise; p != NULL && mf_j_ok(j); p = p->next, n++) {
        const mf_jval *named = named_argument(arguments, p->name);
        if (n < plain->n_items && named != NULL) {
            mf_j_fail(j, MF_ERR_ARGUMENT, "a macro's argument is given twice");
        } else if (n < plain->n_items || named != NULL) {
            mf_j_bind(j, j->scope, p->name, named != NULL ? *named : plain->items[n]);
        } else {
            mf_jval value = p->a != NULL ? mf_j_eval(j, p->a) : mf_j_undefined(p->name);
            mf_j_bind(j, j->scope, p->name, value);
        }
    }
    return n;
}

/* Arguments that no parameter takes. */
static void bind_rest(mf_jrun *j, const mf_jnode *node, const mf_jarguments *arguments, size_t n)
{
    const mf_jlist *plain = arguments->plain.as.list;
    mf_jval varargs = mf_j_list(j, MF_J_TUPLE), kwargs = mf_j_dict(j);
    for (size_t i = n; i < plain->n_items && mf_j_ok(j); i++)
        mf_j_push(j, varargs, plain->items[i]);
    size_t n_named = arguments->named.kind == MF_J_DICT ? arguments->named.as.dict->n_entries : 0;
    for (size_t i = 0; i < n_named && mf_j_ok(j); i++) {
        const mf_jentry *entry = &arguments->named.as.dict->entries[i];
        bool is_parameter = false;
        for (const mf_jnode *p = node->otherwise; p != NULL; p = p->next)
            is_parameter = is_parameter || (entry->key.kind == MF_J_STRING &&
                                            entry->key.as.string->n_bytes == p->name->n_bytes &&
                                            memcmp(entry->key.as.string->text, p->name->text,
                                                   p->name->n_bytes) == 0);
        if (!is_parameter)
            mf_j_put(j, kwargs, entry->key, entry->value);
    }
    if (!mf_j_ok(j))
        return;
    if (varargs.as.list->n_items > 0 && (node->op & MF_JM_VARARGS) == 0)
        mf_j_fail(j, MF_ERR_ARGUMENT, "a macro takes not more than %zu arguments", n);
    if (kwargs.as.dict->n_entries > 0 && (node->op & MF_JM_KWARGS) == 0)
        mf_j_fail(j, MF_ERR_ARGUMENT, "a macro takes no argument of that name");
    if (arguments->caller.kind == MF_J_MACRO && (node->op & MF_JM_CALLER) == 0)
        mf_j_fail(j, MF_ERR_ARGUMENT, "a macro in a call block does not use caller");
    if ((node->op & MF_JM_VARARGS) != 0)
        bind_text(j, "varargs", varargs);
    if ((node->op & MF_JM_KWARGS) != 0)
        bind_text(j, "kwargs", kwargs);
}

mf_jval mf_j_call_macro(mf_jrun *j, const mf_jmacro *macro, const mf_jarguments *arguments)
{
    static const mf_jstr caller = {.text = "caller", .n_bytes = 6};
    const mf_jnode *node = macro->node;
    mf_jscope *scope = j->scope;
    mf_jval result = mf_j_undefined(NULL);
    j->scope = mf_j_scope(j, macro->scope);
    if (j->scope != NULL) {
        if ((node->op & MF_JM_CALLER) != 0)
            mf_j_bind(j, j->scope, &caller,
                      arguments->caller.kind == MF_J_MACRO ? arguments->caller
                                                           : mf_j_undefined(&caller));
        size_t n = bind_parameters(j, node, arguments);
        bind_rest(j, node, arguments, n);
        if (mf_j_ok(j))
            result = mf_j_capture(j, node->list);
    }
    j->scope = scope;
    return result;
}

/* -------------------------------------------------------------------------------- statements -- */

/* The text of a block, through its filters (NULL: none). */
static mf_jval filtered_block(mf_jrun *j, const mf_jnode *body, const mf_jnode *filters)
{
    mf_jval text = mf_j_capture(j, body), before = j->block_input;
    if (filters == NULL || !mf_j_ok(j))
        return text;
    j->block_input = text;
    text = mf_j_eval(j, filters);
    j->block_input = before;
    return text;
}

static flow exec_if(mf_jrun *j, const mf_jnode *node)
{
    for (; node != NULL && mf_j_ok(j); node = node->b) {
        j->line = node->line;
        if (mf_j_truth(mf_j_eval(j, node->a)))
            return exec_list(j, node->list);
        if (node->b == NULL)
            return exec_list(j, node->otherwise);
    }
    return FLOW_NEXT;
}

static flow exec_with(mf_jrun *j, const mf_jnode *node)
{
    mf_jscope *outer = j->scope, *scope = mf_j_scope(j, outer);
    for (const mf_jnode *set = node->otherwise; set != NULL && mf_j_ok(j); set = set->next)
        mf_j_assign(j, scope, set->a, mf_j_eval(j, set->b));
    flow end = FLOW_NEXT;
    j->scope = scope;
    if (mf_j_ok(j))
        end = exec_list(j, node->list);
    j->scope = outer;
    return end;
}

static void exec_output(mf_jrun *j, const mf_jnode *node)
{
    mf_jval value = mf_j_eval(j, node);
    if (mf_j_ok(j))
        mf_j_put_str(j->out, value);
}

static flow exec_compound(mf_jrun *j, const mf_jnode *node)
{
    switch (node->kind) {
    case MF_JN_FOR:
        exec_loop(j, node, mf_j_eval(j, node->b), 0);
        break;
    case MF_JN_IF:
        return exec_if(j, node);
    case MF_JN_SET:
        mf_j_assign(j, j->scope, node->a, mf_j_eval(j, node->b));
        break;
    case MF_JN_SET_BLOCK:
        mf_j_assign(j, j->scope, node->a, filtered_block(j, node->list, node->b));
        break;
    case MF_JN_WITH:
        return exec_with(j, node);
    case MF_JN_MACRO:
        mf_j_bind(j, j->scope, node->name, mf_j_make_macro(j, node));
        break;
    case MF_JN_FILTER_BLOCK:
        mf_j_put_str(j->out, filtered_block(j, node->list, node->a));
        break;
    case MF_JN_SCOPE:
        mf_j_put_str(j->out, mf_j_capture(j, node->list));
        break;
    default:
        mf_j_fail(j, MF_ERR_FORMAT, "not a statement");
    }
    return FLOW_NEXT;
}

static flow exec_one(mf_jrun *j, const mf_jnode *node)
{
    switch (node->kind) {
    case MF_JN_TEXT:
        mf_j_put_string(j->out, node->value.as.string);
        return FLOW_NEXT;
    case MF_JN_OUTPUT:
        exec_output(j, node->a);
        return FLOW_NEXT;
    case MF_JN_CALL_BLOCK:
        exec_output(j, node);
        return FLOW_NEXT;
    case MF_JN_BREAK:
        return FLOW_BREAK;
    case MF_JN_CONTINUE:
        return FLOW_CONTINUE;
    default:
        return exec_compound(j, node);
    }
}

static flow exec_list(mf_jrun *j, const mf_jnode *first)
{
    flow end = FLOW_NEXT;
    if (!mf_j_enter(j))
        return end;
    for (const mf_jnode *node = first; node != NULL && end == FLOW_NEXT && mf_j_ok(j);
         node = node->next) {
        j->line = node->line;
        end = exec_one(j, node);
    }
    mf_j_leave(j);
    return end;
}

void mf_j_exec(mf_jrun *j, const mf_jnode *first)
{
    exec_list(j, first);
}
