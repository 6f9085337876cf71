/* SPDX-License-Identifier: MIT */
/* Methods that split strings, those of dictionaries and lists, and which value has which. */
#include "text/jinja/jinja_strings.h"
#include "text/jinja/jinja_unicode.h"
#include "text/utf8.h"

static void split_blanks(mf_jrun *j, mf_jval list, const mf_jstr *s, int64_t n_most)
{
    size_t at = 0;
    for (int64_t n = 0; mf_j_ok(j); n++) {
        size_t start = at, end;
        while (at < s->n_bytes && mf_utf8_is_blank(mf_j_next_char(s, &at)))
            start = at;
        if (start == s->n_bytes)
            return;
        if (n == n_most) {
            mf_j_push(j, list, mf_j_part(j, s, start, s->n_bytes));
            return;
        }
        for (at = end = start; at < s->n_bytes && !mf_utf8_is_blank(mf_j_next_char(s, &at));)
            end = at;
        at = end;
        mf_j_push(j, list, mf_j_part(j, s, start, end));
    }
}

static void split_by(mf_jrun *j, mf_jval list, const mf_jstr *s, const mf_jstr *by, int64_t n_most)
{
    size_t start = 0;
    for (int64_t n = 0; n != n_most && mf_j_ok(j) && s->n_bytes - start >= by->n_bytes; n++) {
        const char *p = memmem(s->text + start, s->n_bytes - start, by->text, by->n_bytes);
        if (p == NULL)
            break;
        mf_j_push(j, list, mf_j_part(j, s, start, (size_t)(p - s->text)));
        start = (size_t)(p - s->text) + by->n_bytes;
    }
    mf_j_push(j, list, mf_j_part(j, s, start, s->n_bytes));
}

static void reverse(mf_jlist *list)
{
    for (size_t i = 0; i < list->n_items / 2; i++) {
        mf_jval item = list->items[i];
        list->items[i] = list->items[list->n_items - 1 - i];
        list->items[list->n_items - 1 - i] = item;
    }
}

/* From the right: into a list that is turned round. */
static void split_by_right(mf_jrun *j, mf_jval list, const mf_jstr *s, const mf_jstr *by,
                           int64_t n_most)
{
    size_t end = s->n_bytes;
    for (int64_t n = 0; n != n_most && mf_j_ok(j); n++) {
        const size_t at = mf_j_find_last(j, s, end, by);
        if (at == SIZE_MAX)
            break;
        mf_j_push(j, list, mf_j_part(j, s, at + by->n_bytes, end));
        end = at;
    }
    mf_j_push(j, list, mf_j_part(j, s, 0, end));
    if (mf_j_ok(j))
        reverse(list.as.list);
}

/* The start of the character that ends at byte `at`. */
static size_t char_before(const mf_jstr *s, size_t at)
{
    at--;
    while (at > 0 && ((unsigned char)s->text[at] & 0xC0) == 0x80)
        at--;
    return at;
}

static bool is_blank_at(const mf_jstr *s, size_t at)
{
    return mf_utf8_is_blank(mf_j_next_char(s, &at));
}

static void split_blanks_right(mf_jrun *j, mf_jval list, const mf_jstr *s, int64_t n_most)
{
    size_t at = s->n_bytes;
    for (int64_t n = 0; mf_j_ok(j); n++) {
        while (at > 0 && is_blank_at(s, char_before(s, at)))
            at = char_before(s, at);
        size_t end = at;
        if (end == 0)
            break;
        if (n == n_most) {
            mf_j_push(j, list, mf_j_part(j, s, 0, end));
            break;
        }
        while (at > 0 && !is_blank_at(s, char_before(s, at)))
            at = char_before(s, at);
        mf_j_push(j, list, mf_j_part(j, s, at, end));
    }
    if (mf_j_ok(j))
        reverse(list.as.list);
}

/* split, and (variant 1) rsplit */
static mf_jval method_split(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *s = call->self.as.string;
    mf_jval list = mf_j_list(j, MF_J_PLAIN);
    int64_t n_most = -1;
    if (call->arg[1].kind != MF_J_MISSING && !mf_j_want_int(j, call->arg[1], "split", &n_most))
        return list;
    n_most = n_most < 0 ? -1 : n_most;
    mf_j_spend(j, MF_J_WALKED(s->n_bytes));
    if (!mf_j_given(call->arg[0])) {
        (call->variant != 0 ? split_blanks_right : split_blanks)(j, list, s, n_most);
        return list;
    }
    const mf_jstr *by = mf_j_want_string(j, call->arg[0], "split");
    if (by->n_bytes == 0)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "empty separator");
    (call->variant != 0 ? split_by_right : split_by)(j, list, s, by, n_most);
    return list;
}

static mf_jval method_splitlines(mf_jrun *j, const mf_jcall *call)
{
    return mf_j_split_lines(j, call->self.as.string, mf_j_flag(call->arg[0]));
}

/* partition, and (variant 1) rpartition */
static mf_jval method_partition(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *s = call->self.as.string, *by = mf_j_want_string(j, call->arg[0], "partition");
    mf_jval parts = mf_j_list(j, MF_J_PLAIN), result = mf_j_list(j, MF_J_TUPLE);
    if (by->n_bytes == 0)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "empty separator");
    (call->variant != 0 ? split_by_right : split_by)(j, parts, s, by, 1);
    if (!mf_j_ok(j))
        return result;
    bool is_found = parts.as.list->n_items == 2;
    mf_jval nothing = mf_j_text(j, "");
    if (!is_found && call->variant != 0) {
        mf_j_push(j, result, nothing);
        mf_j_push(j, result, nothing);
    }
    mf_j_push(j, result, parts.as.list->items[0]);
    if (is_found)
        mf_j_push(j, result, call->arg[0]);
    if (is_found)
        mf_j_push(j, result, parts.as.list->items[1]);
    if (!is_found && call->variant == 0) {
        mf_j_push(j, result, nothing);
        mf_j_push(j, result, nothing);
    }
    return result;
}

const mf_jbuiltin mf_j_split_methods[] = {
    {"split", "sep maxsplit", method_split, 0},       {"rsplit", "sep maxsplit", method_split, 1},
    {"splitlines", "keepends", method_splitlines, 0}, {"partition", "sep!", method_partition, 0},
    {"rpartition", "sep!", method_partition, 1},      {NULL, NULL, NULL, 0},
};

/* -------------------------------------------------------------------- dictionaries and lists -- */

static mf_jval method_get(mf_jrun *j, const mf_jcall *call)
{
    if (!mf_j_is_hashable(call->arg[0]))
        return mf_j_fail(j, MF_ERR_ARGUMENT, "unhashable type: '%s'", mf_j_type_name(call->arg[0]));
    const mf_jval *found = mf_j_find(j, call->self.as.dict, call->arg[0]);
    if (found != NULL)
        return *found;
    return call->arg[1].kind == MF_J_MISSING ? mf_j_none() : call->arg[1];
}

static mf_jval method_view(mf_jrun *j, const mf_jcall *call)
{
    const mf_jdict *dict = call->self.as.dict;
    mf_jval list = mf_j_list(j, (mf_jflavour)call->variant);
    for (size_t i = 0; i < dict->n_entries && mf_j_ok(j); i++) {
        const mf_jentry *entry = &dict->entries[i];
        mf_j_push(j, list,
                  call->variant == MF_J_KEYS     ? entry->key
                  : call->variant == MF_J_VALUES ? entry->value
                                                 : mf_j_pair(j, entry->key, entry->value));
    }
    return list;
}

static mf_jval method_copy_dict(mf_jrun *j, const mf_jcall *call)
{
    mf_jval copy = mf_j_dict(j);
    for (size_t i = 0; i < call->self.as.dict->n_entries && mf_j_ok(j); i++)
        mf_j_put(j, copy, call->self.as.dict->entries[i].key, call->self.as.dict->entries[i].value);
    return copy;
}

static mf_jval method_refused(mf_jrun *j, const mf_jcall *call)
{
    return mf_j_fail(j, MF_ERR_ARGUMENT, "a method that would change a value of type '%s'",
                     mf_j_type_name(call->self));
}

static const mf_jbuiltin dict_methods[] = {
    {"get", "key! default", method_get, 0}, {"items", "", method_view, MF_J_ITEMS},
    {"keys", "", method_view, MF_J_KEYS},   {"values", "", method_view, MF_J_VALUES},
    {"copy", "", method_copy_dict, 0},      {"update", "*", method_refused, 0},
    {"pop", "*", method_refused, 0},        {"popitem", "*", method_refused, 0},
    {"setdefault", "*", method_refused, 0}, {"clear", "*", method_refused, 0},
    {"fromkeys", "*", method_refused, 0},   {NULL, NULL, NULL, 0},
};

/* index, and (variant 1) count */
static mf_jval method_index(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *list = call->self.as.list;
    int64_t n = 0;
    for (size_t i = 0; i < list->n_items && mf_j_ok(j); i++) {
        bool is_it = mf_j_equal(j, list->items[i], call->arg[0]);
        if (is_it && call->variant == 0)
            return mf_j_int((int64_t)i);
        n += is_it;
    }
    if (call->variant == 0)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "index: the value is not in the list");
    return mf_j_int(n);
}

static mf_jval method_copy_list(mf_jrun *j, const mf_jcall *call)
{
    mf_jval copy = mf_j_list(j, MF_J_PLAIN);
    for (size_t i = 0; i < call->self.as.list->n_items && mf_j_ok(j); i++)
        mf_j_push(j, copy, call->self.as.list->items[i]);
    return copy;
}

static const mf_jbuiltin list_methods[] = {
    {"index", "value!", method_index, 0}, {"count", "value!", method_index, 1},
    {"copy", "", method_copy_list, 0},    {"append", "*", method_refused, 0},
    {"extend", "*", method_refused, 0},   {"insert", "*", method_refused, 0},
    {"pop", "*", method_refused, 0},      {"remove", "*", method_refused, 0},
    {"reverse", "*", method_refused, 0},  {"sort", "*", method_refused, 0},
    {"clear", "*", method_refused, 0},    {NULL, NULL, NULL, 0},
};

static mf_jval method_next(mf_jrun *j, const mf_jcall *call)
{
    mf_jcycler *cycler = call->self.as.cycler;
    (void)j;
    return cycler->items->items[cycler->at++ % cycler->items->n_items];
}

static mf_jval method_reset(mf_jrun *j, const mf_jcall *call)
{
    (void)j;
    call->self.as.cycler->at = 0;
    return mf_j_none();
}

static const mf_jbuiltin cycler_methods[] = {
    {"next", "", method_next, 0}, {"reset", "", method_reset, 0}, {NULL, NULL, NULL, 0}};

const mf_jbuiltin *mf_j_find_method(mf_jval whole, const mf_jstr *name)
{
    switch (whole.kind) {
    case MF_J_STRING: {
        const mf_jbuiltin *found = mf_j_find_builtin(mf_j_string_methods, name);
        return found != NULL ? found : mf_j_find_builtin(mf_j_split_methods, name);
    }
    case MF_J_DICT:
        return mf_j_find_builtin(dict_methods, name);
    case MF_J_LIST: {
        const mf_jbuiltin *found = mf_j_find_builtin(list_methods, name);
        bool is_list = whole.as.list->flavour == MF_J_PLAIN;
        bool is_tuple = mf_j_is_tuple(whole) || whole.as.list->flavour == MF_J_RANGE;
        bool is_read = found != NULL && found->run == method_index;
        return is_list || (is_tuple && is_read) ? found : NULL;
    }
    case MF_J_CYCLER:
        return whole.as.cycler->is_joiner ? NULL : mf_j_find_builtin(cycler_methods, name);
    default:
        return NULL;
    }
}
