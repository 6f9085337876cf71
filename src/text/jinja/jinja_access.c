/* SPDX-License-Identifier: MIT */
/* Parts of values: attributes, items, slices; as the sandbox of transformers lets templates see
 * them. */
#include "text/jinja/jinja_eval.h"

#include "text/utf8.h"

static mf_jval lacking(mf_jval whole, const mf_jstr *name)
{
    return (mf_jval){.kind = MF_J_UNDEFINED, .about = whole.kind, .as.string = name};
}

static mf_jval lacking_item(mf_jrun *j, mf_jval whole, mf_jval key)
{
    mf_jval name = key.kind == MF_J_STRING ? key : mf_j_text(j, "that");
    return mf_j_ok(j) ? lacking(whole, name.as.string) : mf_j_undefined(NULL);
}

/* ------------------------------------------------------------------------------------- items -- */

/* The byte at which a string's character `index` begins; n_bytes: behind the last. */
static size_t byte_of(mf_jrun *j, const mf_jstr *s, int64_t index)
{
    size_t at = 0;
    while (at < s->n_bytes && (index > 0 || ((unsigned char)s->text[at] & 0xC0) == 0x80)) {
        at++;
        index -= at < s->n_bytes ? ((unsigned char)s->text[at] & 0xC0) != 0x80 : 1;
    }
    mf_j_spend(j, MF_J_WALKED(at));
    return at;
}

static mf_jval character(mf_jrun *j, mf_jval whole, int64_t index)
{
    const mf_jstr *s = whole.as.string;
    int64_t n = mf_j_length(j, whole);
    index += index < 0 ? n : 0;
    if (index < 0 || index >= n)
        return mf_j_undefined(NULL);
    size_t start = byte_of(j, s, index), end = start + 1;
    while (end < s->n_bytes && ((unsigned char)s->text[end] & 0xC0) == 0x80)
        end++;
    return mf_j_part(j, s, start, end);
}

static mf_jval list_item(const mf_jlist *list, int64_t index)
{
    int64_t n = (int64_t)list->n_items;
    index += index < 0 ? n : 0;
    bool is_there = index >= 0 && index < n &&
                    (list->flavour == MF_J_PLAIN || list->flavour == MF_J_TUPLE ||
                     list->flavour == MF_J_RANGE || list->flavour == MF_J_GROUP);
    return is_there ? list->items[index] : mf_j_undefined(NULL);
}

static mf_jval method_of(mf_jrun *j, mf_jval whole, const mf_jstr *name)
{
    const mf_jbuiltin *method = mf_j_find_method(whole, name);
    return method == NULL ? mf_j_undefined(NULL) : mf_j_bound(j, method, whole);
}

/* Attributes that values have besides methods. */
static mf_jval attribute_of(mf_jrun *j, mf_jval whole, const mf_jstr *name)
{
    if (whole.kind == MF_J_NAMESPACE) {
        const mf_jval *value = mf_j_find_text(whole.as.dict, name->text, name->n_bytes);
        return value == NULL ? mf_j_undefined(NULL) : *value;
    }
    if (whole.kind == MF_J_LOOP)
        return mf_j_loop_field(j, whole.as.loop, name);
    if (whole.kind == MF_J_MACRO && mf_j_is_text(name, "name"))
        return mf_j_macro_name(whole.as.macro);
    if (whole.kind == MF_J_LIST && whole.as.list->flavour == MF_J_GROUP) {
        if (mf_j_is_text(name, "grouper"))
            return whole.as.list->items[0];
        if (mf_j_is_text(name, "list"))
            return whole.as.list->items[1];
    }
    return method_of(j, whole, name);
}

static mf_jval item_of(mf_jrun *j, mf_jval whole, mf_jval key)
{
    int64_t index;
    if (whole.kind == MF_J_DICT || (whole.kind == MF_J_NAMESPACE && key.kind == MF_J_STRING)) {
        const mf_jval *value = mf_j_find(j, whole.as.dict, key);
        return value == NULL ? mf_j_undefined(NULL) : *value;
    }
    if (!mf_j_as_int(key, &index))
        return mf_j_undefined(NULL);
    if (whole.kind == MF_J_LIST)
        return list_item(whole.as.list, index);
    return whole.kind == MF_J_STRING ? character(j, whole, index) : mf_j_undefined(NULL);
}

mf_jval mf_j_get_item(mf_jrun *j, mf_jval whole, mf_jval key)
{
    if (!mf_j_ok(j))
        return mf_j_undefined(NULL);
    if (whole.kind == MF_J_UNDEFINED)
        return mf_j_fail_type(j, "[]", whole);
    mf_jval value = item_of(j, whole, key);
    if (value.kind == MF_J_UNDEFINED && value.as.string == NULL && key.kind == MF_J_STRING)
        value = attribute_of(j, whole, key.as.string);
    if (value.kind == MF_J_UNDEFINED && value.as.string == NULL)
        return lacking_item(j, whole, key);
    return value;
}

mf_jval mf_j_get_field(mf_jrun *j, mf_jval whole, const mf_jstr *name)
{
    if (whole.kind == MF_J_UNDEFINED)
        return mf_j_fail_type(j, "an attribute's name", whole);
    mf_jval value = attribute_of(j, whole, name);
    if (value.kind == MF_J_UNDEFINED && value.as.string == NULL)
        value = item_of(j, whole, (mf_jval){.kind = MF_J_STRING, .as.string = name});
    if (value.kind == MF_J_UNDEFINED && value.as.string == NULL)
        return lacking(whole, name);
    return value;
}

/* A part of a path: a number where it is one. */
static mf_jval path_key(mf_jrun *j, const mf_jstr *path, size_t start, size_t end)
{
    int64_t index = 0;
    bool is_number = end > start && end - start < 10;
    for (size_t i = start; i < end && is_number; i++) {
        is_number = path->text[i] >= '0' && path->text[i] <= '9';
        index = index * 10 + (path->text[i] - '0');
    }
    return is_number ? mf_j_int(index) : mf_j_part(j, path, start, end);
}

mf_jval mf_j_get_path(mf_jrun *j, mf_jval whole, mf_jval path, mf_jval otherwise)
{
    if (path.kind != MF_J_STRING) {
        mf_jval item = mf_j_get_item(j, whole, path);
        return item.kind == MF_J_UNDEFINED && mf_j_given(otherwise) ? otherwise : item;
    }
    const mf_jstr *text = path.as.string;
    for (size_t start = 0; start <= text->n_bytes && mf_j_ok(j);) {
        size_t end = start;
        while (end < text->n_bytes && text->text[end] != '.')
            end++;
        mf_jval key = path_key(j, text, start, end);
        whole = mf_j_get_item(j, whole, key);
        if (whole.kind == MF_J_UNDEFINED && mf_j_given(otherwise))
            whole = otherwise;
        start = end + 1;
    }
    return whole;
}

/* ------------------------------------------------------------------------------------ slices -- */

typedef struct slice {
    int64_t start, stop, step;
    size_t n;
} slice;

/* One bound, as Python brings it into [low, high]. */
static int64_t clip(int64_t bound, int64_t n, int64_t low, int64_t high)
{
    bound += bound < 0 ? n : 0;
    return bound < low ? low : bound > high ? high : bound;
}

static bool resolve(mf_jrun *j, const mf_jval bounds[3], int64_t n, slice *out)
{
    int64_t given[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++) {
        if (bounds[i].kind != MF_J_NONE && !mf_j_as_int(bounds[i], &given[i])) {
            mf_j_fail_type(j, "a slice", bounds[i]);
            return false;
        }
    }
    int64_t step = given[2];
    if (step == 0) {
        mf_j_fail(j, MF_ERR_ARGUMENT, "slice step cannot be zero");
        return false;
    }
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    out->start =
        bounds[0].kind == MF_J_NONE ? (step < 0 ? high : low) : clip(given[0], n, low, high);
    out->stop =
        bounds[1].kind == MF_J_NONE ? (step < 0 ? low : high) : clip(given[1], n, low, high);
    out->step = step;
    /* distances are at most n, steps may be anything */
    uint64_t width = step < 0 ? -(uint64_t)step : (uint64_t)step;
    int64_t distance = step < 0 ? out->start - out->stop : out->stop - out->start;
    out->n = distance <= 0 ? 0 : (size_t)(((uint64_t)distance - 1) / width + 1);
    return true;
}

static mf_jval slice_string(mf_jrun *j, const mf_jstr *s, const slice *part)
{
    if (part->n == 0)
        return mf_j_part(j, s, 0, 0);
    if (part->step == 1)
        return mf_j_part(j, s, byte_of(j, s, part->start), byte_of(j, s, part->stop));
    mf_jval whole = {.kind = MF_J_STRING, .as.string = s};
    const mf_jlist *characters = mf_j_items(j, whole);
    mf_jtext text = {.run = j};
    for (size_t i = 0; i < part->n && mf_j_ok(j); i++) {
        int64_t at = part->start + (int64_t)i * part->step;
        mf_j_put_string(&text, characters->items[at].as.string);
    }
    return mf_j_take_text(&text);
}

/* What the part of a range is a range of. */
static void slice_range(mf_jrun *j, const mf_jlist *from, const slice *part, mf_jlist *out)
{
    int64_t start, stop;
    if (__builtin_mul_overflow(part->start, from->step, &start) ||
        __builtin_add_overflow(start, from->start, &out->start) ||
        __builtin_mul_overflow(part->stop, from->step, &stop) ||
        __builtin_add_overflow(stop, from->start, &out->stop) ||
        __builtin_mul_overflow(part->step, from->step, &out->step))
        mf_j_fail(j, MF_ERR_UNSUPPORTED, "an integer of more than 64 bits");
}

mf_jval mf_j_get_slice(mf_jrun *j, mf_jval whole, const mf_jval bounds[3])
{
    slice part;
    if (!mf_j_ok(j))
        return mf_j_undefined(NULL);
    if (whole.kind == MF_J_UNDEFINED)
        return mf_j_fail_type(j, "a slice", whole);
    bool is_list =
        whole.kind == MF_J_LIST && (mf_j_is_tuple(whole) || whole.as.list->flavour == MF_J_PLAIN ||
                                    whole.as.list->flavour == MF_J_RANGE);
    if (!is_list && whole.kind != MF_J_STRING)
        return mf_j_fail_type(j, "a slice", whole);
    if (!resolve(j, bounds, mf_j_length(j, whole), &part))
        return mf_j_undefined(NULL);
    if (whole.kind == MF_J_STRING)
        return slice_string(j, whole.as.string, &part);
    const mf_jlist *from = whole.as.list;
    mf_jval list = mf_j_list(j, mf_j_is_tuple(whole) ? MF_J_TUPLE : from->flavour);
    for (size_t i = 0; i < part.n && mf_j_ok(j); i++)
        mf_j_push(j, list, from->items[part.start + (int64_t)i * part.step]);
    if (from->flavour == MF_J_RANGE && mf_j_ok(j))
        slice_range(j, from, &part, list.as.list);
    return list;
}

/* ------------------------------------------------------------------------------------- loops -- */

static mf_jval loop_cycle(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *given = call->all->plain.as.list;
    if (given->n_items == 0)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "no items for cycling given");
    return given->items[call->self.as.loop->index % given->n_items];
}

static mf_jval loop_changed(mf_jrun *j, const mf_jcall *call)
{
    mf_jloop *loop = call->self.as.loop;
    mf_jval now = call->all->plain;
    now.as.list->flavour = MF_J_TUPLE;
    bool is_same = loop->was_changed && mf_j_equal(j, loop->last_changed, now);
    loop->was_changed = true;
    loop->last_changed = now;
    return mf_j_bool(!is_same);
}

mf_jval mf_j_loop_field(mf_jrun *j, mf_jloop *loop, const mf_jstr *name)
{
    static const mf_jbuiltin methods[] = {
        {"cycle", "*", loop_cycle, 0}, {"changed", "*", loop_changed, 0}, {NULL, NULL, NULL, 0}};
    int64_t i = (int64_t)loop->index, n = (int64_t)loop->items->n_items;
    const struct {
        const char *name;
        mf_jval value;
    } fields[] = {
        {"index", mf_j_int(i + 1)},
        {"index0", mf_j_int(i)},
        {"first", mf_j_bool(i == 0)},
        {"last", mf_j_bool(i == n - 1)},
        {"length", mf_j_int(n)},
        {"revindex", mf_j_int(n - i)},
        {"revindex0", mf_j_int(n - i - 1)},
        {"depth", mf_j_int((int64_t)loop->depth + 1)},
        {"depth0", mf_j_int(loop->depth)},
    };
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
        if (mf_j_is_text(name, fields[k].name))
            return fields[k].value;
    if (mf_j_is_text(name, "previtem"))
        return i > 0 ? loop->items->items[i - 1] : lacking((mf_jval){.kind = MF_J_LOOP}, name);
    if (mf_j_is_text(name, "nextitem"))
        return i + 1 < n ? loop->items->items[i + 1] : lacking((mf_jval){.kind = MF_J_LOOP}, name);
    const mf_jbuiltin *method = mf_j_find_builtin(methods, name);
    const mf_jval self = {.kind = MF_J_LOOP, .as.loop = loop};
    return method == NULL ? mf_j_undefined(NULL) : mf_j_bound(j, method, self);
}
