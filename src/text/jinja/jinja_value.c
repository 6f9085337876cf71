/* SPDX-License-Identifier: MIT */
/* Values: making them, failing, truth, sequences. */
#include "text/jinja/jinja_value.h"

#include "text/utf8.h"

#include <stdarg.h>
#include <stdio.h>

mf_jval mf_j_fail(mf_jrun *j, mf_status status, const char *format, ...)
{
    if (j->status == MF_OK) {
        va_list args;
        va_start(args, format);
        vsnprintf(j->reason, sizeof j->reason, format, args);
        va_end(args);
        j->status = status;
    }
    return mf_j_undefined(NULL);
}

mf_jval mf_j_fail_type(mf_jrun *j, const char *what, mf_jval value)
{
    if (value.kind == MF_J_UNDEFINED && value.as.string != NULL) {
        const mf_jstr *name = value.as.string;
        int n = name->n_bytes < 100 ? (int)name->n_bytes : 100;
        if (value.about != MF_J_MISSING) {
            const char *whose = mf_j_type_name((mf_jval){.kind = value.about});
            return mf_j_fail(j, MF_ERR_ARGUMENT, "'%s object' has no attribute '%.*s'", whose, n,
                             name->text);
        }
        return mf_j_fail(j, MF_ERR_ARGUMENT, "'%.*s' is undefined", n, name->text);
    }
    return mf_j_fail(j, MF_ERR_ARGUMENT, "%s does not take a value of type '%s'", what,
                     mf_j_type_name(value));
}

bool mf_j_spend(mf_jrun *j, size_t n_steps)
{
    if (n_steps < j->n_steps) {
        j->n_steps -= n_steps;
        return mf_j_ok(j);
    }
    j->n_steps = 0;
    mf_j_fail(j, MF_ERR_UNSUPPORTED, "the template takes too many steps");
    return false;
}

bool mf_j_enter(mf_jrun *j)
{
    if (!mf_j_spend(j, 1))
        return false;
    if (j->depth == 0) {
        mf_j_fail(j, MF_ERR_UNSUPPORTED, "nested too deeply");
        return false;
    }
    j->depth--;
    return true;
}

void mf_j_leave(mf_jrun *j)
{
    j->depth++;
}

void *mf_j_take(mf_jrun *j, size_t n_bytes)
{
    void *block = mf_jarena_take(j->arena, n_bytes);
    if (block == NULL && j->arena->is_over)
        mf_j_fail(j, MF_ERR_UNSUPPORTED, "the template takes too much memory");
    else if (block == NULL)
        mf_j_fail(j, MF_ERR_NO_MEMORY, "out of memory: %zu bytes", n_bytes);
    return block;
}

const char *mf_j_type_name(mf_jval value)
{
    static const char *const names[] = {[MF_J_MISSING] = "missing",
                                        [MF_J_UNDEFINED] = "Undefined",
                                        [MF_J_NONE] = "None",
                                        [MF_J_BOOL] = "bool",
                                        [MF_J_INT] = "int",
                                        [MF_J_BIG] = "int",
                                        [MF_J_FLOAT] = "float",
                                        [MF_J_STRING] = "str",
                                        [MF_J_LIST] = "list",
                                        [MF_J_DICT] = "dict",
                                        [MF_J_NAMESPACE] = "Namespace",
                                        [MF_J_BUILTIN] = "function",
                                        [MF_J_MACRO] = "Macro",
                                        [MF_J_LOOP] = "LoopContext",
                                        [MF_J_CYCLER] = "Cycler"};
    static const char *const flavours[] = {
        [MF_J_PLAIN] = "list",     [MF_J_TUPLE] = "tuple",        [MF_J_ITERATOR] = "generator",
        [MF_J_KEYS] = "dict_keys", [MF_J_VALUES] = "dict_values", [MF_J_ITEMS] = "dict_items",
        [MF_J_RANGE] = "range",    [MF_J_GROUP] = "tuple"};
    if (value.kind == MF_J_LIST && value.as.list != NULL)
        return flavours[value.as.list->flavour];
    return names[value.kind];
}

/* ---------------------------------------------------------------------------------- strings -- */

mf_jval mf_j_string(mf_jrun *j, const char *text, size_t n_bytes)
{
    mf_jstr *string = mf_j_take(j, sizeof *string);
    if (string == NULL)
        return mf_j_undefined(NULL);
    *string = (mf_jstr){.text = text, .n_bytes = n_bytes};
    return (mf_jval){.kind = MF_J_STRING, .as.string = string};
}

mf_jval mf_j_text(mf_jrun *j, const char *text)
{
    return mf_j_string(j, text, strlen(text));
}

mf_jval mf_j_copy(mf_jrun *j, const char *text, size_t n_bytes)
{
    char *copy = mf_j_take(j, n_bytes);
    if (copy == NULL)
        return mf_j_undefined(NULL);
    if (n_bytes != 0)
        memcpy(copy, text, n_bytes);
    return mf_j_string(j, copy, n_bytes);
}

mf_jval mf_j_part(mf_jrun *j, const mf_jstr *string, size_t start, size_t end)
{
    mf_jstr *part = mf_j_take(j, sizeof *part);
    if (part == NULL)
        return mf_j_undefined(NULL);
    *part = (mf_jstr){.text = string->text + start,
                      .n_bytes = end - start,
                      .foreign = string->foreign == NULL ? NULL : string->foreign + start,
                      .is_markup = string->is_markup};
    return (mf_jval){.kind = MF_J_STRING, .as.string = part};
}

/* ------------------------------------------------------------------------------------ lists -- */

mf_jval mf_j_list(mf_jrun *j, mf_jflavour flavour)
{
    mf_jlist *list = mf_j_take(j, sizeof *list);
    if (list == NULL)
        return mf_j_undefined(NULL);
    *list = (mf_jlist){.flavour = flavour};
    return (mf_jval){.kind = MF_J_LIST, .as.list = list};
}

void mf_j_push(mf_jrun *j, mf_jval to, mf_jval item)
{
    if (!mf_j_spend(j, 1) || to.kind != MF_J_LIST)
        return;
    mf_jlist *list = to.as.list;
    if (list->n_items == list->capacity) {
        size_t capacity = list->capacity == 0 ? 4 : 2 * list->capacity;
        size_t n_bytes = capacity * sizeof item;
        if (list->capacity == 0 ||
            !mf_jarena_extend(j->arena, list->items, list->capacity * sizeof item, n_bytes)) {
            mf_jval *items = mf_j_take(j, n_bytes);
            if (items == NULL)
                return;
            if (list->n_items != 0)
                memcpy(items, list->items, list->n_items * sizeof item);
            list->items = items;
        }
        list->capacity = capacity;
    }
    list->items[list->n_items++] = item;
}

mf_jval mf_j_pair(mf_jrun *j, mf_jval first, mf_jval second)
{
    mf_jval pair = mf_j_list(j, MF_J_TUPLE);
    mf_j_push(j, pair, first);
    mf_j_push(j, pair, second);
    return pair;
}

/* Python's iteration over a string: its characters. */
static void push_characters(mf_jrun *j, mf_jval to, const mf_jstr *s)
{
    mf_jstr plain = *s;
    plain.is_markup = false;
    for (size_t i = 0; i < s->n_bytes && mf_j_ok(j);) {
        uint32_t c;
        size_t n;
        mf_utf8_next((const unsigned char *)s->text + i, s->n_bytes - i, &c, &n);
        mf_j_push(j, to, mf_j_part(j, &plain, i, i + n));
        i += n;
    }
}

static void push_rest(mf_jrun *j, mf_jval to, mf_jlist *from)
{
    while (from->n_read < from->n_items && mf_j_ok(j))
        mf_j_push(j, to, from->items[from->n_read++]);
}

const mf_jlist *mf_j_items(mf_jrun *j, mf_jval value)
{
    static const mf_jlist nothing = {0};
    if (value.kind == MF_J_LIST && value.as.list->flavour != MF_J_ITERATOR)
        return value.as.list;
    mf_jval list = mf_j_list(j, MF_J_PLAIN);
    if (list.kind != MF_J_LIST)
        return &nothing;
    switch (value.kind) {
    case MF_J_LIST:
        push_rest(j, list, value.as.list);
        break;
    case MF_J_STRING:
        push_characters(j, list, value.as.string);
        break;
    case MF_J_DICT:
        for (size_t i = 0; i < value.as.dict->n_entries && mf_j_ok(j); i++)
            mf_j_push(j, list, value.as.dict->entries[i].key);
        break;
    case MF_J_UNDEFINED:
        break;
    default:
        mf_j_fail(j, MF_ERR_ARGUMENT, "'%s' object is not iterable", mf_j_type_name(value));
    }
    return list.as.list;
}

static int64_t n_characters(const mf_jstr *s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->n_bytes; i++)
        n += ((unsigned char)s->text[i] & 0xC0) != 0x80;
    return n;
}

bool mf_j_has_length(mf_jval value)
{
    return value.kind == MF_J_STRING || value.kind == MF_J_DICT || value.kind == MF_J_UNDEFINED ||
           (value.kind == MF_J_LIST && value.as.list->flavour != MF_J_ITERATOR);
}

int64_t mf_j_length(mf_jrun *j, mf_jval value)
{
    if (!mf_j_has_length(value)) {
        mf_j_fail(j, MF_ERR_ARGUMENT, "object of type '%s' has no len()", mf_j_type_name(value));
        return 0;
    }
    if (value.kind == MF_J_STRING) {
        mf_j_spend(j, MF_J_COMPARED(value.as.string->n_bytes));
        return n_characters(value.as.string);
    }
    if (value.kind == MF_J_LIST)
        return (int64_t)value.as.list->n_items;
    return value.kind == MF_J_DICT ? (int64_t)value.as.dict->n_entries : 0;
}

/* ------------------------------------------------------------------------------------ truth -- */

bool mf_j_truth(mf_jval value)
{
    switch (value.kind) {
    case MF_J_BOOL:
        return value.as.truth;
    case MF_J_INT:
        return value.as.integer != 0;
    case MF_J_FLOAT:
        return value.as.real != 0; /* NaN is true */
    case MF_J_STRING:
        return value.as.string->n_bytes != 0;
    case MF_J_LIST:
        return value.as.list->flavour == MF_J_ITERATOR || value.as.list->n_items != 0;
    case MF_J_DICT:
        return value.as.dict->n_entries != 0;
    case MF_J_LOOP:
        return true;
    default:
        return value.kind > MF_J_NONE;
    }
}

bool mf_j_as_int(mf_jval value, int64_t *out)
{
    if (value.kind != MF_J_INT && value.kind != MF_J_BOOL)
        return false;
    *out = value.kind == MF_J_INT ? value.as.integer : value.as.truth;
    return true;
}

bool mf_j_as_float(mf_jval value, double *out)
{
    int64_t integer;
    if (value.kind == MF_J_FLOAT)
        *out = value.as.real;
    else if (mf_j_as_int(value, &integer))
        *out = (double)integer;
    else
        return false;
    return true;
}
