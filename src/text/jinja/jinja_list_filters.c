/* SPDX-License-Identifier: MIT */
/* Filters on sequences and mappings, but for those that choose by a test. */
#include "text/jinja/jinja_strings.h"
#include "text/jinja/jinja_unicode.h"

static mf_jval filter_length(mf_jrun *j, const mf_jcall *call)
{
    return mf_j_int(mf_j_length(j, call->self));
}

static mf_jval filter_default(mf_jrun *j, const mf_jcall *call)
{
    bool is_replaced =
        call->self.kind == MF_J_UNDEFINED || (mf_j_flag(call->arg[1]) && !mf_j_truth(call->self));
    if (!is_replaced)
        return call->self;
    return call->arg[0].kind == MF_J_MISSING ? mf_j_text(j, "") : call->arg[0];
}

/* A copy of what iterating gives. */
static mf_jval copy_items(mf_jrun *j, mf_jval from)
{
    const mf_jlist *items = mf_j_items(j, from);
    mf_jval list = mf_j_list(j, MF_J_PLAIN);
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++)
        mf_j_push(j, list, items->items[i]);
    return list;
}

static mf_jval filter_list(mf_jrun *j, const mf_jcall *call)
{
    return copy_items(j, call->self);
}

static mf_jval empty_sequence(mf_jrun *j, const char *message)
{
    mf_jval name = mf_j_text(j, message);
    return mf_j_ok(j) ? mf_j_undefined(name.as.string) : name;
}

static mf_jval filter_first(mf_jrun *j, const mf_jcall *call)
{
    if (mf_j_is_iterator(call->self)) { /* takes one */
        mf_jlist *list = call->self.as.list;
        return list->n_read < list->n_items ? list->items[list->n_read++]
                                            : empty_sequence(j, "the first item of nothing");
    }
    const mf_jlist *items = mf_j_items(j, call->self);
    return items->n_items > 0 ? items->items[0] : empty_sequence(j, "the first item of nothing");
}

static mf_jval filter_last(mf_jrun *j, const mf_jcall *call)
{
    if (mf_j_is_iterator(call->self))
        return mf_j_fail(j, MF_ERR_ARGUMENT, "'generator' object is not reversible");
    const mf_jlist *items = mf_j_items(j, call->self);
    return items->n_items > 0 ? items->items[items->n_items - 1]
                              : empty_sequence(j, "the last item of nothing");
}

static mf_jval filter_join(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *items = mf_j_items(j, call->self);
    mf_jtext text = {.run = j};
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        mf_jval item = items->items[i];
        if (mf_j_given(call->arg[1]))
            item = mf_j_get_path(j, item, call->arg[1], (mf_jval){0});
        if (i > 0 && call->arg[0].kind != MF_J_MISSING)
            mf_j_put_str(&text, call->arg[0]);
        mf_j_put_str(&text, item);
    }
    return mf_j_take_text(&text);
}

static mf_jval filter_reverse(mf_jrun *j, const mf_jcall *call)
{
    mf_jval minus = mf_j_int(-1);
    const mf_jval bounds[3] = {mf_j_none(), mf_j_none(), minus};
    if (call->self.kind == MF_J_STRING)
        return mf_j_get_slice(j, call->self, bounds);
    bool is_iterator = mf_j_is_iterator(call->self);
    const mf_jlist *items = mf_j_items(j, call->self);
    mf_jval list = mf_j_list(j, is_iterator ? MF_J_PLAIN : MF_J_ITERATOR);
    for (size_t i = items->n_items; i-- > 0 && mf_j_ok(j);)
        mf_j_push(j, list, items->items[i]);
    return list;
}

static mf_jval filter_items(mf_jrun *j, const mf_jcall *call)
{
    mf_jval list = mf_j_list(j, MF_J_ITERATOR);
    if (call->self.kind == MF_J_UNDEFINED)
        return list;
    if (call->self.kind != MF_J_DICT)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "items: can only get item pairs from a mapping");
    const mf_jdict *dict = call->self.as.dict;
    for (size_t i = 0; i < dict->n_entries && mf_j_ok(j); i++)
        mf_j_push(j, list, mf_j_pair(j, dict->entries[i].key, dict->entries[i].value));
    return list;
}

static mf_jval filter_attr(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *name = mf_j_want_string(j, call->arg[0], "attr");
    if (call->self.kind == MF_J_DICT && mf_j_find_method(call->self, name) == NULL)
        return mf_j_undefined(name);
    return mf_j_get_field(j, call->self, name);
}

static mf_jval filter_sum(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *items = mf_j_items(j, call->self);
    mf_jval sum = call->arg[1].kind == MF_J_MISSING ? mf_j_int(0) : call->arg[1];
    if (sum.kind == MF_J_STRING)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "sum() can't sum strings: use join");
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        mf_jval item = items->items[i];
        if (mf_j_given(call->arg[0]))
            item = mf_j_get_path(j, item, call->arg[0], (mf_jval){0});
        sum = mf_j_binary(j, '+', sum, item);
    }
    return sum;
}

static mf_jval filter_batch(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *items = mf_j_items(j, call->self);
    mf_jval list = mf_j_list(j, MF_J_ITERATOR), part = mf_j_none();
    int64_t n;
    if (!mf_j_want_int(j, call->arg[0], "batch", &n) || n <= 0)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "batch: expected a positive number");
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        if (i % (uint64_t)n == 0) {
            part = mf_j_list(j, MF_J_PLAIN);
            mf_j_push(j, list, part);
        }
        mf_j_push(j, part, items->items[i]);
    }
    while (mf_j_ok(j) && part.kind == MF_J_LIST && mf_j_given(call->arg[1]) &&
           (int64_t)part.as.list->n_items < n)
        mf_j_push(j, part, call->arg[1]);
    return list;
}

static mf_jval filter_slice(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *items = mf_j_items(j, call->self);
    mf_jval list = mf_j_list(j, MF_J_ITERATOR);
    int64_t n;
    if (!mf_j_want_int(j, call->arg[0], "slice", &n) || n <= 0)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "slice: expected a positive number");
    size_t n_each = items->n_items / (uint64_t)n, n_longer = items->n_items % (uint64_t)n, at = 0;
    for (int64_t s = 0; s < n && mf_j_ok(j); s++) {
        mf_jval part = mf_j_list(j, MF_J_PLAIN);
        size_t n_here = n_each + ((uint64_t)s < n_longer);
        for (size_t i = 0; i < n_here && mf_j_ok(j); i++)
            mf_j_push(j, part, items->items[at++]);
        if (mf_j_given(call->arg[1]) && (uint64_t)s >= n_longer) /* even where all are as long */
            mf_j_push(j, part, call->arg[1]);
        mf_j_push(j, list, part);
    }
    return list;
}

/* ---------------------------------------------------------------------------------- in order -- */

/* What an item is ordered by: a part of it, in lower case unless that matters. */
static mf_jval order_key(mf_jrun *j, mf_jval item, mf_jval attribute, bool minds_case)
{
    if (mf_j_given(attribute))
        item = mf_j_get_path(j, item, attribute, (mf_jval){0});
    if (minds_case || item.kind != MF_J_STRING)
        return item;
    return mf_j_cased(j, item.as.string, MF_J_LOWER);
}

/* A list of keys, of each of the attributes "a,b" one, or of the only one: as in Jinja, items whose
 * keys are equal need have no order. */
static mf_jval sort_key(mf_jrun *j, mf_jval item, mf_jval attribute, bool minds_case)
{
    mf_jval keys = mf_j_list(j, MF_J_PLAIN);
    if (attribute.kind != MF_J_STRING) {
        mf_j_push(j, keys, order_key(j, item, attribute, minds_case));
        return keys;
    }
    const mf_jstr *names = attribute.as.string;
    for (size_t start = 0; start <= names->n_bytes && mf_j_ok(j);) {
        size_t end = start;
        while (end < names->n_bytes && names->text[end] != ',')
            end++;
        mf_j_push(j, keys, order_key(j, item, mf_j_part(j, names, start, end), minds_case));
        start = end + 1;
    }
    return keys;
}

/* Sorts items by keys, both of n, in place and keeping what is equal in order. */
static void sort_by(mf_jrun *j, mf_jval *items, mf_jval *keys, size_t n, bool is_reverse)
{
    for (size_t i = 1; i < n && mf_j_ok(j); i++) {
        mf_jval item = items[i], key = keys[i];
        size_t low = 0, high = i;
        while (low < high && mf_j_ok(j)) { /* where the key belongs: behind its equals */
            size_t middle = (low + high) / 2;
            int order = is_reverse ? mf_j_compare(j, keys[middle], key)
                                   : mf_j_compare(j, key, keys[middle]);
            if (order < 0)
                high = middle;
            else
                low = middle + 1;
        }
        mf_j_spend(j, (i - low) / 16);
        memmove(items + low + 1, items + low, (i - low) * sizeof *items);
        memmove(keys + low + 1, keys + low, (i - low) * sizeof *keys);
        items[low] = item;
        keys[low] = key;
    }
}

typedef mf_jval (*key_of)(mf_jrun *j, mf_jval item, mf_jval attribute, bool minds_case);

static mf_jval sorted(mf_jrun *j, mf_jval from, key_of key, mf_jval attribute, bool minds_case,
                      bool is_reverse)
{
    mf_jval list = copy_items(j, from), keys = mf_j_list(j, MF_J_PLAIN);
    if (!mf_j_ok(j))
        return list;
    mf_jlist *items = list.as.list;
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++)
        mf_j_push(j, keys, key(j, items->items[i], attribute, minds_case));
    if (mf_j_ok(j) && items->n_items > 0)
        sort_by(j, items->items, keys.as.list->items, items->n_items, is_reverse);
    return list;
}

static mf_jval filter_sort(mf_jrun *j, const mf_jcall *call)
{
    return sorted(j, call->self, sort_key, call->arg[2], mf_j_flag(call->arg[1]),
                  mf_j_flag(call->arg[0]));
}

static mf_jval filter_dictsort(mf_jrun *j, const mf_jcall *call)
{
    mf_jval by = call->arg[1];
    bool by_value = by.kind == MF_J_STRING && mf_j_is_text(by.as.string, "value");
    if (call->self.kind != MF_J_DICT)
        return mf_j_fail_type(j, "dictsort", call->self);
    const mf_jcall items = {.self = call->self};
    return sorted(j, filter_items(j, &items), order_key, mf_j_int(by_value),
                  mf_j_flag(call->arg[0]), mf_j_flag(call->arg[2]));
}

static mf_jval filter_unique(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *items = mf_j_items(j, call->self);
    mf_jval list = mf_j_list(j, MF_J_ITERATOR), seen = mf_j_dict(j);
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        mf_jval key = order_key(j, items->items[i], call->arg[1], mf_j_flag(call->arg[0]));
        if (!mf_j_ok(j) || mf_j_find(j, seen.as.dict, key) != NULL)
            continue;
        mf_j_put(j, seen, key, mf_j_none());
        mf_j_push(j, list, items->items[i]);
    }
    return list;
}

/* The least, or (variant 1) the greatest. */
static mf_jval filter_extreme(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *items = mf_j_items(j, call->self);
    mf_jval best = mf_j_none(), best_key = mf_j_none();
    if (items->n_items == 0)
        return empty_sequence(j, "the least or greatest of nothing");
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        mf_jval key = order_key(j, items->items[i], call->arg[1], mf_j_flag(call->arg[0]));
        int order = i == 0 ? -1 : mf_j_compare(j, key, best_key);
        if (i == 0 || (call->variant != 0 ? order > 0 : order < 0)) {
            best = items->items[i];
            best_key = key;
        }
    }
    return best;
}

static mf_jval make_group(mf_jrun *j, mf_jval name, mf_jval items)
{
    mf_jval group = mf_j_pair(j, name, items);
    if (mf_j_ok(j))
        group.as.list->flavour = MF_J_GROUP;
    return group;
}

static mf_jval filter_groupby(mf_jrun *j, const mf_jcall *call)
{
    bool minds_case = mf_j_flag(call->arg[2]);
    mf_jval list = copy_items(j, call->self), keys = mf_j_list(j, MF_J_PLAIN);
    mf_jval groups = mf_j_list(j, MF_J_PLAIN), group = mf_j_none();
    if (!mf_j_ok(j))
        return list;
    mf_jlist *items = list.as.list;
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        mf_jval key = mf_j_get_path(j, items->items[i], call->arg[0], call->arg[1]);
        mf_j_push(j, keys, order_key(j, key, mf_j_none(), minds_case));
    }
    if (mf_j_ok(j) && items->n_items > 0)
        sort_by(j, items->items, keys.as.list->items, items->n_items, false);
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        const mf_jval *key = &keys.as.list->items[i];
        if (i == 0 || !mf_j_equal(j, key[-1], key[0])) {
            group = mf_j_list(j, MF_J_PLAIN);
            mf_jval name = mf_j_get_path(j, items->items[i], call->arg[0], call->arg[1]);
            mf_j_push(j, groups, make_group(j, name, group));
        }
        mf_j_push(j, group, items->items[i]);
    }
    return groups;
}

const mf_jbuiltin mf_j_list_filters[] = {
    {"length", "", filter_length, 0},
    {"count", "", filter_length, 0},
    {"default", "default_value boolean", filter_default, 0},
    {"d", "default_value boolean", filter_default, 0},
    {"list", "", filter_list, 0},
    {"first", "", filter_first, 0},
    {"last", "", filter_last, 0},
    {"join", "d attribute", filter_join, 0},
    {"reverse", "", filter_reverse, 0},
    {"items", "", filter_items, 0},
    {"attr", "name!", filter_attr, 0},
    {"sum", "attribute start", filter_sum, 0},
    {"batch", "linecount! fill_with", filter_batch, 0},
    {"slice", "slices! fill_with", filter_slice, 0},
    {"sort", "reverse case_sensitive attribute", filter_sort, 0},
    {"dictsort", "case_sensitive by reverse", filter_dictsort, 0},
    {"unique", "case_sensitive attribute", filter_unique, 0},
    {"min", "case_sensitive attribute", filter_extreme, 0},
    {"max", "case_sensitive attribute", filter_extreme, 1},
    {"groupby", "attribute! default case_sensitive", filter_groupby, 0},
    {NULL, NULL, NULL, 0},
};
