/* SPDX-License-Identifier: MIT */
/* Tests ("is ..."), the filters that choose or change items by tests and filters, and the search
 * for all that has a name. */
#include "text/jinja/jinja_eval.h"
#include "text/jinja/jinja_unicode.h"

enum {
    TEST_DEFINED,
    TEST_UNDEFINED,
    TEST_NONE,
    TEST_TRUE,
    TEST_FALSE,
    TEST_BOOLEAN,
    TEST_INTEGER,
    TEST_FLOAT,
    TEST_NUMBER,
    TEST_STRING,
    TEST_MAPPING,
    TEST_SEQUENCE,
    TEST_ITERABLE,
    TEST_CALLABLE
};

static bool is_sequence(mf_jval v)
{
    bool is_view = v.kind == MF_J_LIST &&
                   (v.as.list->flavour == MF_J_KEYS || v.as.list->flavour == MF_J_VALUES ||
                    v.as.list->flavour == MF_J_ITEMS);
    return mf_j_has_length(v) && !is_view;
}

static mf_jval test_kind(mf_jrun *j, const mf_jcall *call)
{
    mf_jval v = call->self;
    bool is_integer = v.kind == MF_J_INT || v.kind == MF_J_BIG;
    (void)j;
    switch (call->variant) {
    case TEST_DEFINED:
        return mf_j_bool(v.kind != MF_J_UNDEFINED);
    case TEST_UNDEFINED:
        return mf_j_bool(v.kind == MF_J_UNDEFINED);
    case TEST_NONE:
        return mf_j_bool(v.kind == MF_J_NONE);
    case TEST_TRUE:
        return mf_j_bool(v.kind == MF_J_BOOL && v.as.truth);
    case TEST_FALSE:
        return mf_j_bool(v.kind == MF_J_BOOL && !v.as.truth);
    case TEST_BOOLEAN:
        return mf_j_bool(v.kind == MF_J_BOOL);
    case TEST_INTEGER:
        return mf_j_bool(is_integer);
    case TEST_FLOAT:
        return mf_j_bool(v.kind == MF_J_FLOAT);
    case TEST_NUMBER:
        return mf_j_bool(is_integer || v.kind == MF_J_FLOAT || v.kind == MF_J_BOOL);
    case TEST_STRING:
        return mf_j_bool(v.kind == MF_J_STRING);
    case TEST_MAPPING:
        return mf_j_bool(v.kind == MF_J_DICT);
    case TEST_SEQUENCE:
        return mf_j_bool(is_sequence(v));
    case TEST_ITERABLE:
        return mf_j_bool(mf_j_has_length(v) || v.kind == MF_J_LIST || v.kind == MF_J_LOOP);
    default:
        return mf_j_bool(v.kind == MF_J_UNDEFINED || v.kind == MF_J_BUILTIN ||
                         v.kind == MF_J_MACRO || v.kind == MF_J_LOOP ||
                         (v.kind == MF_J_CYCLER && v.as.cycler->is_joiner));
    }
}

static mf_jval test_compare(mf_jrun *j, const mf_jcall *call)
{
    mf_jval a = call->self, b = call->arg[0];
    if (call->variant == '=')
        return mf_j_bool(mf_j_equal(j, a, b));
    if (call->variant == '!')
        return mf_j_bool(!mf_j_equal(j, a, b));
    int order = mf_j_compare(j, a, b);
    switch (call->variant) {
    case '<':
        return mf_j_bool(order < 0);
    case '>':
        return mf_j_bool(order > 0);
    case 'l':
        return mf_j_bool(order <= 0);
    default:
        return mf_j_bool(order >= 0);
    }
}

/* x % n == rest */
static mf_jval test_divides(mf_jrun *j, const mf_jcall *call)
{
    mf_jval by = call->variant == 2 ? call->arg[0] : mf_j_int(2);
    mf_jval rest = mf_j_binary(j, '%', call->self, by);
    return mf_j_bool(mf_j_ok(j) && mf_j_equal(j, rest, mf_j_int(call->variant == 1)));
}

static mf_jval test_in(mf_jrun *j, const mf_jcall *call)
{
    return mf_j_bool(mf_j_contains(j, call->arg[0], call->self));
}

static mf_jval test_same_as(mf_jrun *j, const mf_jcall *call)
{
    mf_jval a = call->self, b = call->arg[0];
    if (a.kind != b.kind)
        return mf_j_bool(false);
    if (a.kind == MF_J_LIST || a.kind == MF_J_DICT)
        return mf_j_bool(a.kind == MF_J_LIST ? a.as.list == b.as.list : a.as.dict == b.as.dict);
    return mf_j_bool(mf_j_equal(j, a, b));
}

/* str.isupper, str.islower of the value as a string. */
static mf_jval test_case(mf_jrun *j, const mf_jcall *call)
{
    mf_jval text = mf_j_str(j, call->self);
    bool is_cased = false;
    if (mf_j_ok(j))
        mf_j_spend(j, MF_J_LOOKED_UP(text.as.string->n_bytes));
    for (size_t at = 0; mf_j_ok(j) && at < text.as.string->n_bytes;) {
        uint32_t c = mf_j_next_char(text.as.string, &at);
        bool is_wanted = call->variant == 'U' ? mf_j_is_upper(c) : mf_j_is_lower(c);
        if (mf_j_is_cased(c) && !is_wanted) /* letters in title case are neither */
            return mf_j_bool(false);
        is_cased = is_cased || is_wanted;
    }
    return mf_j_bool(is_cased);
}

static mf_jval test_escaped(mf_jrun *j, const mf_jcall *call)
{
    (void)j;
    return mf_j_bool(call->self.kind == MF_J_STRING && call->self.as.string->is_markup);
}

static mf_jval test_known(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *name = mf_j_want_string(j, call->self, "a name's test");
    return mf_j_bool((call->variant == 't' ? mf_j_find_test(name) : mf_j_find_filter(name)) !=
                     NULL);
}

static const mf_jbuiltin tests[] = {
    {"defined", "", test_kind, TEST_DEFINED},
    {"undefined", "", test_kind, TEST_UNDEFINED},
    {"none", "", test_kind, TEST_NONE},
    {"true", "", test_kind, TEST_TRUE},
    {"false", "", test_kind, TEST_FALSE},
    {"boolean", "", test_kind, TEST_BOOLEAN},
    {"integer", "", test_kind, TEST_INTEGER},
    {"float", "", test_kind, TEST_FLOAT},
    {"number", "", test_kind, TEST_NUMBER},
    {"string", "", test_kind, TEST_STRING},
    {"mapping", "", test_kind, TEST_MAPPING},
    {"sequence", "", test_kind, TEST_SEQUENCE},
    {"iterable", "", test_kind, TEST_ITERABLE},
    {"callable", "", test_kind, TEST_CALLABLE},
    {"eq", "other!", test_compare, '='},
    {"equalto", "other!", test_compare, '='},
    {"==", "other!", test_compare, '='},
    {"ne", "other!", test_compare, '!'},
    {"!=", "other!", test_compare, '!'},
    {"lt", "other!", test_compare, '<'},
    {"lessthan", "other!", test_compare, '<'},
    {"<", "other!", test_compare, '<'},
    {"gt", "other!", test_compare, '>'},
    {"greaterthan", "other!", test_compare, '>'},
    {">", "other!", test_compare, '>'},
    {"le", "other!", test_compare, 'l'},
    {"<=", "other!", test_compare, 'l'},
    {"ge", "other!", test_compare, 'g'},
    {">=", "other!", test_compare, 'g'},
    {"even", "", test_divides, 0},
    {"odd", "", test_divides, 1},
    {"divisibleby", "num!", test_divides, 2},
    {"in", "seq!", test_in, 0},
    {"sameas", "other!", test_same_as, 0},
    {"upper", "", test_case, 'U'},
    {"lower", "", test_case, 'L'},
    {"escaped", "", test_escaped, 0},
    {"test", "", test_known, 't'},
    {"filter", "", test_known, 'f'},
    {NULL, NULL, NULL, 0},
};

/* --------------------------------------------------------------------------------- selection -- */

enum { PICK_REJECTS = 1, PICK_BY_ATTRIBUTE = 2 };

static mf_jval filter_pick(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *given = call->all->plain.as.list, *items;
    size_t n_before = (call->variant & PICK_BY_ATTRIBUTE) != 0;
    mf_jval list = mf_j_list(j, MF_J_ITERATOR);
    if (!mf_j_truth(call->self)) /* also of none there is nothing to choose from */
        return list;
    items = mf_j_items(j, call->self);
    if (given->n_items < n_before)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "a filter by attribute wants the attribute's name");
    bool has_test = given->n_items > n_before;
    const mf_jstr *test =
        has_test ? mf_j_want_string(j, given->items[n_before], "a selection") : NULL;
    const mf_jarguments rest = mf_j_rest(j, call->all, n_before + has_test);
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        mf_jval value = items->items[i];
        if (n_before != 0)
            value = mf_j_get_path(j, value, given->items[0], (mf_jval){0});
        bool passes =
            test != NULL ? mf_j_ok(j) && mf_j_apply_test(j, test, value, &rest) : mf_j_truth(value);
        if (passes != ((call->variant & PICK_REJECTS) != 0))
            mf_j_push(j, list, items->items[i]);
    }
    return list;
}

static mf_jval named(const mf_jarguments *arguments, const char *name)
{
    const mf_jval *found = arguments->named.kind == MF_J_DICT
                               ? mf_j_find_text(arguments->named.as.dict, name, strlen(name))
                               : NULL;
    return found == NULL ? (mf_jval){0} : *found;
}

static mf_jval filter_map(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *given = call->all->plain.as.list, *items;
    mf_jval list = mf_j_list(j, MF_J_ITERATOR), attribute = named(call->all, "attribute");
    if (!mf_j_truth(call->self))
        return list;
    items = mf_j_items(j, call->self);
    bool has_filter = given->n_items > 0;
    if (!has_filter && !mf_j_given(attribute))
        return mf_j_fail(j, MF_ERR_ARGUMENT, "map wants a filter's name or an attribute");
    const mf_jstr *filter = has_filter ? mf_j_want_string(j, given->items[0], "map") : NULL;
    const mf_jarguments rest = mf_j_rest(j, call->all, has_filter);
    mf_jval otherwise = named(call->all, "default");
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++)
        mf_j_push(j, list,
                  has_filter ? mf_j_apply_filter(j, filter, items->items[i], &rest)
                             : mf_j_get_path(j, items->items[i], attribute, otherwise));
    return list;
}

const mf_jbuiltin mf_j_pick_filters[] = {
    {"map", "*", filter_map, 0},
    {"select", "*", filter_pick, 0},
    {"reject", "*", filter_pick, PICK_REJECTS},
    {"selectattr", "*", filter_pick, PICK_BY_ATTRIBUTE},
    {"rejectattr", "*", filter_pick, PICK_BY_ATTRIBUTE | PICK_REJECTS},
    {NULL, NULL, NULL, 0},
};

const mf_jbuiltin *mf_j_find_test(const mf_jstr *name)
{
    return mf_j_find_builtin(tests, name);
}

const mf_jbuiltin *mf_j_find_filter(const mf_jstr *name)
{
    const mf_jbuiltin *const tables[] = {mf_j_text_filters, mf_j_list_filters, mf_j_number_filters,
                                         mf_j_pick_filters};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const mf_jbuiltin *found = mf_j_find_builtin(tables[i], name);
        if (found != NULL)
            return found;
    }
    return NULL;
}
