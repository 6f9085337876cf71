/* SPDX-License-Identifier: MIT */
/* Dictionaries, and when values are the same, before each other, or within each other. */
#include "text/jinja/jinja_value.h"

#define N_WITHOUT_SLOTS 8

mf_jval mf_j_dict(mf_jrun *j)
{
    mf_jdict *dict = mf_j_take(j, sizeof *dict);
    if (dict == NULL)
        return mf_j_undefined(NULL);
    *dict = (mf_jdict){0};
    return (mf_jval){.kind = MF_J_DICT, .as.dict = dict};
}

static uint32_t hash_bytes(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ p[i]) * 16777619u;
    return hash;
}

bool mf_j_is_hashable(mf_jval value)
{
    if (value.kind == MF_J_LIST && mf_j_is_tuple(value)) {
        for (size_t i = 0; i < value.as.list->n_items; i++) {
            mf_jval item = value.as.list->items[i];
            if (item.kind == MF_J_LIST || item.kind == MF_J_DICT) /* tuples of tuples: not here */
                return false;
        }
        return true;
    }
    return value.kind != MF_J_LIST && value.kind != MF_J_DICT;
}

/* Equal values have equal ones: numbers are taken as floating point. */
static uint32_t hash_flat(mf_jval key)
{
    double real;
    if (key.kind == MF_J_STRING)
        return hash_bytes(key.as.string->text, key.as.string->n_bytes);
    if (mf_j_as_float(key, &real)) {
        real += 0.0; /* no negative zero */
        return hash_bytes(&real, sizeof real);
    }
    return key.kind;
}

static size_t key_bytes(mf_jval key)
{
    return key.kind == MF_J_STRING ? key.as.string->n_bytes : 0;
}

static uint32_t hash_of(mf_jval key)
{
    if (key.kind != MF_J_LIST)
        return hash_flat(key);
    uint32_t hash = 17;
    for (size_t i = 0; i < key.as.list->n_items; i++)
        hash = hash * 31 + hash_flat(key.as.list->items[i]);
    return hash;
}

static void fill_slots(mf_jrun *j, mf_jdict *dict)
{
    size_t n_slots = dict->capacity * 2;
    uint32_t *slots = mf_j_take(j, n_slots * sizeof *slots);
    if (slots == NULL)
        return;
    memset(slots, 0, n_slots * sizeof *slots);
    for (size_t i = 0; i < dict->n_entries; i++) {
        size_t at = dict->entries[i].hash & (n_slots - 1);
        while (slots[at] != 0)
            at = (at + 1) & (n_slots - 1);
        slots[at] = (uint32_t)i + 1;
    }
    dict->slots = slots;
    dict->n_slots = n_slots;
}

static bool is_key(mf_jrun *j, const mf_jentry *entry, mf_jval key, uint32_t hash)
{
    if (entry->hash != hash)
        return false;
    if (key.kind == MF_J_STRING && entry->key.kind == MF_J_STRING)
        return key.as.string->n_bytes == entry->key.as.string->n_bytes &&
               memcmp(key.as.string->text, entry->key.as.string->text, key.as.string->n_bytes) == 0;
    return j != NULL && mf_j_equal(j, entry->key, key);
}

/* j may be NULL for a string. */
static mf_jentry *find(mf_jrun *j, const mf_jdict *dict, mf_jval key, uint32_t hash)
{
    if (dict->n_slots == 0) {
        for (size_t i = 0; i < dict->n_entries; i++)
            if (is_key(j, &dict->entries[i], key, hash))
                return &dict->entries[i];
        return NULL;
    }
    for (size_t at = hash & (dict->n_slots - 1); dict->slots[at] != 0;
         at = (at + 1) & (dict->n_slots - 1))
        if (is_key(j, &dict->entries[dict->slots[at] - 1], key, hash))
            return &dict->entries[dict->slots[at] - 1];
    return NULL;
}

const mf_jval *mf_j_find(mf_jrun *j, const mf_jdict *dict, mf_jval key)
{
    if (!mf_j_is_hashable(key) || !mf_j_spend(j, 1 + MF_J_WALKED(key_bytes(key))))
        return NULL;
    const mf_jentry *entry = find(j, dict, key, hash_of(key));
    return entry == NULL ? NULL : &entry->value;
}

const mf_jval *mf_j_find_text(const mf_jdict *dict, const char *key, size_t n_bytes)
{
    const mf_jstr string = {.text = key, .n_bytes = n_bytes};
    const mf_jval value = {.kind = MF_J_STRING, .as.string = &string};
    const mf_jentry *entry = find(NULL, dict, value, hash_bytes(key, n_bytes));
    return entry == NULL ? NULL : &entry->value;
}

static bool grow(mf_jrun *j, mf_jdict *dict)
{
    size_t capacity = dict->capacity == 0 ? 4 : 2 * dict->capacity;
    mf_jentry *entries = mf_j_take(j, capacity * sizeof *entries);
    if (entries == NULL)
        return false;
    if (dict->n_entries != 0)
        memcpy(entries, dict->entries, dict->n_entries * sizeof *entries);
    dict->entries = entries;
    dict->capacity = capacity;
    if (capacity > N_WITHOUT_SLOTS)
        fill_slots(j, dict);
    return mf_j_ok(j);
}

void mf_j_put(mf_jrun *j, mf_jval to, mf_jval key, mf_jval value)
{
    if (!mf_j_spend(j, 1 + MF_J_WALKED(key_bytes(key))) ||
        (to.kind != MF_J_DICT && to.kind != MF_J_NAMESPACE))
        return;
    if (!mf_j_is_hashable(key)) {
        mf_j_fail(j, MF_ERR_ARGUMENT, "unhashable type: '%s'", mf_j_type_name(key));
        return;
    }
    mf_jdict *dict = to.as.dict;
    uint32_t hash = hash_of(key);
    mf_jentry *entry = find(j, dict, key, hash);
    if (entry != NULL) {
        entry->value = value;
        return;
    }
    if (dict->n_entries == dict->capacity && !grow(j, dict))
        return;
    if (dict->n_slots != 0) {
        size_t at = hash & (dict->n_slots - 1);
        while (dict->slots[at] != 0)
            at = (at + 1) & (dict->n_slots - 1);
        dict->slots[at] = (uint32_t)dict->n_entries + 1;
    }
    dict->entries[dict->n_entries++] = (mf_jentry){key, value, hash};
}

void mf_j_put_text(mf_jrun *j, mf_jval dict, const char *key, mf_jval value)
{
    mf_jval name = mf_j_text(j, key);
    if (mf_j_ok(j))
        mf_j_put(j, dict, name, value);
}

/* -------------------------------------------------------------------------------- equality -- */

static int compare_strings(mf_jrun *j, const mf_jstr *a, const mf_jstr *b)
{
    /* The order of UTF-8's bytes is that of the characters. */
    size_t n = a->n_bytes < b->n_bytes ? a->n_bytes : b->n_bytes;
    mf_j_spend(j, MF_J_COMPARED(n));
    int order = n == 0 ? 0 : memcmp(a->text, b->text, n);
    return order != 0 ? order : (a->n_bytes > b->n_bytes) - (a->n_bytes < b->n_bytes);
}

static bool equal_lists(mf_jrun *j, mf_jval a, mf_jval b)
{
    const mf_jlist *x = a.as.list, *y = b.as.list;
    bool is_same_type = x->flavour == y->flavour || (mf_j_is_tuple(a) && mf_j_is_tuple(b));
    if (x == y)
        return true;
    if (!is_same_type || x->flavour == MF_J_ITERATOR || x->flavour == MF_J_VALUES ||
        x->n_items != y->n_items)
        return false;
    bool is_equal = true;
    if (!mf_j_enter(j))
        return false;
    for (size_t i = 0; i < x->n_items && is_equal; i++)
        is_equal = mf_j_equal(j, x->items[i], y->items[i]);
    mf_j_leave(j);
    return is_equal;
}

static bool equal_dicts(mf_jrun *j, const mf_jdict *a, const mf_jdict *b)
{
    bool is_equal = a->n_entries == b->n_entries;
    if (a == b)
        return true;
    if (!mf_j_enter(j))
        return false;
    for (size_t i = 0; i < a->n_entries && is_equal; i++) {
        const mf_jval *other = mf_j_find(j, b, a->entries[i].key);
        is_equal = other != NULL && mf_j_equal(j, a->entries[i].value, *other);
    }
    mf_j_leave(j);
    return is_equal;
}

bool mf_j_equal(mf_jrun *j, mf_jval a, mf_jval b)
{
    double x, y;
    int64_t m, n;
    if (!mf_j_spend(j, 1))
        return false;
    if (mf_j_as_int(a, &m) && mf_j_as_int(b, &n))
        return m == n;
    if (mf_j_as_float(a, &x) && mf_j_as_float(b, &y))
        return x == y;
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case MF_J_STRING:
    case MF_J_BIG:
        return a.as.string->n_bytes == b.as.string->n_bytes &&
               compare_strings(j, a.as.string, b.as.string) == 0;
    case MF_J_LIST:
        return equal_lists(j, a, b);
    case MF_J_DICT:
        return equal_dicts(j, a.as.dict, b.as.dict);
    case MF_J_NAMESPACE:
        return a.as.dict == b.as.dict;
    case MF_J_BUILTIN:
        return a.as.bound == b.as.bound;
    case MF_J_MACRO:
        return a.as.macro == b.as.macro;
    default:
        return true;
    }
}

static int compare_lists(mf_jrun *j, const mf_jlist *a, const mf_jlist *b)
{
    int order = 0;
    size_t i = 0;
    if (!mf_j_enter(j))
        return 0;
    while (i < a->n_items && i < b->n_items && mf_j_equal(j, a->items[i], b->items[i]))
        i++;
    if (i < a->n_items && i < b->n_items)
        order = mf_j_compare(j, a->items[i], b->items[i]);
    else
        order = (a->n_items > b->n_items) - (a->n_items < b->n_items);
    mf_j_leave(j);
    return order;
}

int mf_j_compare(mf_jrun *j, mf_jval a, mf_jval b)
{
    double x, y;
    int64_t m, n;
    if (!mf_j_spend(j, 1))
        return 0;
    if (mf_j_as_int(a, &m) && mf_j_as_int(b, &n))
        return (m > n) - (m < n);
    if (mf_j_as_float(a, &x) && mf_j_as_float(b, &y))
        return (x > y) - (x < y);
    if (a.kind == MF_J_STRING && b.kind == MF_J_STRING)
        return compare_strings(j, a.as.string, b.as.string);
    if (a.kind == MF_J_LIST && b.kind == MF_J_LIST && mf_j_is_tuple(a) == mf_j_is_tuple(b) &&
        (mf_j_is_tuple(a) ||
         (a.as.list->flavour == MF_J_PLAIN && b.as.list->flavour == MF_J_PLAIN)))
        return compare_lists(j, a.as.list, b.as.list);
    if (a.kind == MF_J_UNDEFINED || b.kind == MF_J_UNDEFINED)
        mf_j_fail_type(j, "a comparison", a.kind == MF_J_UNDEFINED ? a : b);
    else
        mf_j_fail(j, MF_ERR_ARGUMENT, "'%s' and '%s' have no order", mf_j_type_name(a),
                  mf_j_type_name(b));
    return 0;
}

static bool text_contains(mf_jrun *j, const mf_jstr *whole, const mf_jstr *part)
{
    mf_j_spend(j, MF_J_COMPARED(whole->n_bytes));
    return part->n_bytes == 0 ||
           memmem(whole->text, whole->n_bytes, part->text, part->n_bytes) != NULL;
}

bool mf_j_contains(mf_jrun *j, mf_jval whole, mf_jval part)
{
    if (whole.kind == MF_J_STRING) {
        if (part.kind == MF_J_STRING)
            return text_contains(j, whole.as.string, part.as.string);
        mf_j_fail(j, MF_ERR_ARGUMENT, "'in' a string wants a string on its left, not '%s'",
                  mf_j_type_name(part));
        return false;
    }
    if (whole.kind == MF_J_DICT) {
        if (!mf_j_is_hashable(part))
            mf_j_fail(j, MF_ERR_ARGUMENT, "unhashable type: '%s'", mf_j_type_name(part));
        return mf_j_find(j, whole.as.dict, part) != NULL;
    }
    if (mf_j_is_iterator(whole)) { /* read no further than to the part */
        mf_jlist *list = whole.as.list;
        while (list->n_read < list->n_items && mf_j_ok(j))
            if (mf_j_equal(j, list->items[list->n_read++], part))
                return true;
        return false;
    }
    const mf_jlist *items = mf_j_items(j, whole);
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++)
        if (mf_j_equal(j, items->items[i], part))
            return true;
    return false;
}
