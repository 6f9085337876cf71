/* SPDX-License-Identifier: MIT */
/* Objects, with properties in the order of the schema and others behind them; and arrays. */
#include "grammar/schema.h"

#include <stdio.h>

#define MAX_NAME_BYTES 1000

typedef struct property {
    const char *name;
    size_t n_name;
    mf_expr member; /* "name": value */
    bool is_required;
} property;

typedef struct object {
    property *properties; /* room for MF_MAX_PROPERTIES */
    size_t n;
    mf_expr more; /* a member of another name, or MF_EXPR_NOTHING */
    uint32_t min_more, max_more;
} object;

/* ------------------------------------------------------------------------------------- names -- */

/* The rest of a string of which nothing is to be told apart any more. */
static mf_expr any_rest(mf_rules *r)
{
    return mf_expr_repeat(r, mf_json_char(r), 0, MF_NO_LIMIT);
}

static size_t first_char(const mf_word *w, size_t at, uint32_t *c)
{
    const unsigned char *t = (const unsigned char *)w->text + at;
    const size_t n = *t < 0x80 ? 1 : *t < 0xE0 ? 2 : *t < 0xF0 ? 3 : 4;
    *c = n == 1 ? *t : *t & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++)
        *c = *c << 6 | (t[i] & 0x3Fu);
    return n;
}

/* What a string goes on with after `at` bytes that all words begin with, so that it is none of
 * them: it ends where none ends, leaves them all, or goes on with some. Sorted words. */
static mf_expr not_among(mf_schema_reader *s, const mf_word *words, size_t n, size_t at)
{
    mf_rules *r = s->rules;
    mf_expr all = MF_EXPR_EMPTY;
    size_t i = 0, n_taken = 0;
    mf_char_range *taken = mf_alloc_array(&r->allocator, n + 2, sizeof *taken);
    mf_char_range *others = mf_alloc_array(&r->allocator, n + 4, sizeof *taken);
    if (taken == NULL || others == NULL || r->status != MF_OK) {
        mf_free(&r->allocator, taken, (n + 2) * sizeof *taken);
        mf_free(&r->allocator, others, (n + 4) * sizeof *taken);
        mf_rules_fail(r, MF_ERR_NO_MEMORY, "out of memory for a grammar");
        return MF_EXPR_NOTHING;
    }
    for (; i < n && words[i].n_bytes == at; i++)
        all = MF_EXPR_NOTHING;
    while (i < n && r->status == MF_OK) {
        uint32_t c, other;
        const size_t n_char = first_char(&words[i], at, &c);
        size_t end = i + 1;
        while (end < n && (first_char(&words[end], at, &other), other == c))
            end++;
        mf_char_range one = {c, c};
        mf_expr rest = not_among(s, words + i, end - i, at + n_char);
        all = mf_expr_alt(r, all, mf_expr_seq(r, mf_json_chars(r, &one, 1), rest));
        taken[n_taken++] = (mf_char_range){c, c};
        i = end;
    }
    const size_t n_others =
        mf_char_ranges_invert(taken, mf_char_ranges_merge(taken, n_taken), others);
    mf_expr leave = mf_expr_seq(r, mf_json_chars(r, others, n_others), any_rest(r));
    mf_free(&r->allocator, taken, (n + 2) * sizeof *taken);
    mf_free(&r->allocator, others, (n + 4) * sizeof *taken);
    return mf_expr_alt(r, all, leave);
}

/* A key that is not the name of a property. */
static mf_expr other_key(mf_schema_reader *s, const object *o)
{
    mf_rules *r = s->rules;
    if (o->n == 0)
        return mf_json_any_string(r);
    mf_word *words = mf_alloc_array(&r->allocator, o->n, sizeof *words);
    if (words == NULL) {
        mf_rules_fail(r, MF_ERR_NO_MEMORY, "out of memory for a grammar");
        return MF_EXPR_NOTHING;
    }
    for (size_t i = 0; i < o->n; i++)
        words[i] = (mf_word){o->properties[i].name, o->properties[i].n_name};
    (void)mf_expr_words(r, words, o->n); /* sorts them */
    const mf_expr quote = mf_expr_text(r, "\"");
    mf_expr inside = not_among(s, words, o->n, 0);
    mf_free(&r->allocator, words, o->n * sizeof *words);
    return mf_expr_seq(r, mf_expr_seq(r, quote, inside), quote);
}

/* -------------------------------------------------------------------------------- properties -- */

static mf_expr member(mf_schema_reader *s, mf_expr key, mf_expr value)
{
    mf_rules *r = s->rules;
    mf_expr colon = mf_expr_seq(r, mf_expr_text(r, ":"), mf_json_space(r));
    return mf_expr_seq(r, key, mf_expr_seq(r, colon, value));
}

/* What all parts say of a property that some of them name. */
static mf_expr property_value(mf_schema_reader *s, const mf_conjunction *c, const char *name,
                              size_t n_name)
{
    mf_conjunction of = {0};
    char place[100];
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *part = c->parts[i].schema;
        yyjson_val *named = yyjson_obj_getn(yyjson_obj_get(part, "properties"), name, n_name);
        yyjson_val *other = yyjson_obj_get(part, "additionalProperties");
        if (named != NULL)
            mf_conjunction_add(s, &of, named);
        else if (other != NULL)
            mf_conjunction_add(s, &of, other);
    }
    snprintf(place, sizeof place, "/properties/%.70s", name);
    return mf_schema_value(s, &of, place);
}

static property *find_property(const object *o, const char *name, size_t n_name)
{
    for (size_t i = 0; i < o->n; i++)
        if (o->properties[i].n_name == n_name && memcmp(o->properties[i].name, name, n_name) == 0)
            return &o->properties[i];
    return NULL;
}

static property *add_property(mf_schema_reader *s, object *o, yyjson_val *name)
{
    const char *text = yyjson_get_str(name); /* not NULL: a key, or seen to be a string */
    const size_t n_bytes = yyjson_get_len(name);
    property *p = text != NULL ? find_property(o, text, n_bytes) : NULL;
    if (p != NULL)
        return p;
    if (text == NULL || o->n == MF_MAX_PROPERTIES || n_bytes > MAX_NAME_BYTES) {
        (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                             "more than %d properties, or a name of more than %d bytes",
                             MF_MAX_PROPERTIES, MAX_NAME_BYTES);
        return NULL;
    }
    p = &o->properties[o->n++];
    *p = (property){.name = text, .n_name = n_bytes};
    return p;
}

static void collect_properties(mf_schema_reader *s, const mf_conjunction *c, object *o)
{
    size_t k, n;
    yyjson_val *name, *value;
    for (size_t i = 0; i < c->n && s->rules->status == MF_OK; i++) {
        yyjson_val *list = yyjson_obj_get(c->parts[i].schema, "properties");
        if (list != NULL && !yyjson_is_obj(list))
            (void)mf_schema_fail(s, MF_ERR_FORMAT, "properties: expected an object");
        if (list == NULL) /* the loop would step from it */
            continue;
        yyjson_obj_foreach(list, k, n, name, value)
        {
            (void)add_property(s, o, name);
        }
    }
    for (size_t i = 0; i < c->n && s->rules->status == MF_OK; i++) {
        yyjson_val *list = yyjson_obj_get(c->parts[i].schema, "required");
        if (list != NULL && !yyjson_is_arr(list))
            (void)mf_schema_fail(s, MF_ERR_FORMAT, "required: expected a list of names");
        yyjson_arr_foreach(list, k, n, name)
        {
            if (!yyjson_is_str(name)) {
                (void)mf_schema_fail(s, MF_ERR_FORMAT, "required: expected a list of names");
                return;
            }
            property *p = add_property(s, o, name);
            if (p == NULL)
                return;
            p->is_required = true;
        }
    }
    for (size_t i = 0; i < o->n && s->rules->status == MF_OK; i++) {
        property *p = &o->properties[i];
        mf_expr key = mf_json_literal(s->rules, p->name, p->n_name);
        p->member = mf_schema_shared(s, member(s, key, property_value(s, c, p->name, p->n_name)));
    }
}

/* ------------------------------------------------------------------------------------ others -- */

/* The only schema of patternProperties or propertyNames; both are for maps: objects without named
 * properties. */
static mf_expr map_key(mf_schema_reader *s, const mf_conjunction *c, mf_conjunction *value)
{
    mf_rules *r = s->rules;
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *names = yyjson_obj_get(c->parts[i].schema, "propertyNames");
        yyjson_val *patterns = yyjson_obj_get(c->parts[i].schema, "patternProperties");
        if (names != NULL) {
            mf_conjunction of = {.is_name = true};
            mf_conjunction_add(s, &of, names);
            return mf_schema_value(s, &of, "/propertyNames");
        }
        yyjson_obj_iter all = yyjson_obj_iter_with(patterns);
        yyjson_val *pattern = yyjson_obj_iter_next(&all);
        if (pattern == NULL)
            continue;
        value->n = 0;
        mf_conjunction_add(s, value, yyjson_obj_iter_get_val(pattern));
        const mf_expr quote = mf_expr_text(r, "\"");
        mf_expr inside =
            mf_schema_pattern(s, yyjson_get_str(pattern), yyjson_get_len(pattern), 0, MF_NO_LIMIT);
        return mf_expr_seq(r, mf_expr_seq(r, quote, inside), quote);
    }
    return MF_EXPR_NOTHING;
}

/* Is what the parts say of names by pattern something that can be written? */
static bool check_map(mf_schema_reader *s, const mf_conjunction *c, const object *o, bool *is_map)
{
    size_t n_names = 0, n_patterns = 0;
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *part = c->parts[i].schema;
        yyjson_val *patterns = yyjson_obj_get(part, "patternProperties");
        n_names += yyjson_obj_get(part, "propertyNames") != NULL;
        if (patterns == NULL || (yyjson_is_obj(patterns) && yyjson_obj_size(patterns) == 0))
            continue;
        n_patterns++;
        if (!yyjson_is_false(yyjson_obj_get(part, "additionalProperties")) ||
            yyjson_obj_size(patterns) != 1 || c->n != 1) {
            (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                                 "patternProperties is supported with one pattern, without "
                                 "properties, and with additionalProperties false");
            return false;
        }
    }
    *is_map = n_names + n_patterns > 0;
    if (n_names + n_patterns > 1 || (*is_map && o->n > 0)) {
        (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                             "propertyNames and patternProperties are supported alone, without "
                             "properties or required");
        return false;
    }
    return true;
}

static bool says_others(const mf_conjunction *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (yyjson_obj_get(c->parts[i].schema, "additionalProperties") != NULL)
            return true;
    return false;
}

/* Members of other names than those listed. */
static void read_others(mf_schema_reader *s, const mf_conjunction *c, object *o)
{
    mf_conjunction value = {0};
    bool is_map = false, is_open = true;
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *other = yyjson_obj_get(c->parts[i].schema, "additionalProperties");
        is_open = is_open && yyjson_obj_get(c->parts[i].schema, "properties") == NULL;
        if (other != NULL)
            mf_conjunction_add(s, &value, other);
    }
    if (!check_map(s, c, o, &is_map) || (s->is_closed && !is_open && !says_others(c)))
        return;
    const mf_expr key = is_map ? map_key(s, c, &value) : MF_EXPR_NOTHING;
    for (size_t i = 0; i < value.n; i++)
        if (yyjson_is_false(value.parts[i].schema))
            return;
    const mf_expr of = mf_schema_value(s, &value, "/additionalProperties");
    if (of == MF_EXPR_NOTHING)
        return;
    o->more = mf_schema_shared(s, member(s, is_map ? key : other_key(s, o), of));
}

/* How many others there may be. Names may come twice, so that more than one cannot be promised. */
static void count_others(mf_schema_reader *s, const mf_conjunction *c, object *o)
{
    const uint32_t min = mf_schema_count(s, c, "minProperties", false, 0);
    const uint32_t max = mf_schema_count(s, c, "maxProperties", true, MF_NO_LIMIT);
    size_t n_required = 0;
    for (size_t i = 0; i < o->n; i++)
        n_required += o->properties[i].is_required;
    o->max_more = MF_NO_LIMIT;
    if (min > n_required && !(min == 1 && o->n == 0))
        (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                             "minProperties beyond the number of required properties (or 1, where "
                             "none is named) is not supported");
    o->min_more = min > n_required ? 1 : 0;
    if (max == MF_NO_LIMIT || (max >= o->n && o->more == MF_EXPR_NOTHING))
        return;
    if (n_required != o->n || max < o->n)
        (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                             "maxProperties is supported where all named properties are required");
    o->max_more = max - (uint32_t)o->n;
}

/* ----------------------------------------------------------------------------------- objects -- */

static mf_expr after_comma(mf_rules *r, mf_expr e)
{
    return mf_expr_seq(r, mf_expr_seq(r, mf_expr_text(r, ","), mf_json_space(r)), e);
}

/* Others, where something stands before them already. */
static mf_expr more_behind(mf_rules *r, const object *o, uint32_t min, uint32_t max)
{
    return mf_expr_repeat(r, after_comma(r, o->more), min, max);
}

/* What may stand behind property i - 1, up to the end. */
static mf_expr behind(mf_rules *r, const object *o, size_t i)
{
    mf_expr all = MF_EXPR_EMPTY;
    for (; i < o->n; i++) {
        mf_expr one = after_comma(r, o->properties[i].member);
        all = mf_expr_seq(r, all, o->properties[i].is_required ? one : mf_expr_optional(r, one));
    }
    all = mf_expr_seq(r, all, more_behind(r, o, o->min_more, o->max_more));
    return mf_expr_seq(r, mf_expr_seq(r, all, mf_json_space(r)), mf_expr_text(r, "}"));
}

/* All of an object behind "{": what comes first is one of the first properties, up to the first
 * that must come. What stands behind those is a rule each, so that it is there once. */
static mf_expr members(mf_schema_reader *s, const object *o)
{
    mf_rules *r = s->rules;
    size_t n_first = 0;
    while (n_first < o->n && !o->properties[n_first].is_required)
        n_first++;
    const bool must = n_first < o->n;
    mf_expr rest = mf_schema_shared(s, behind(r, o, must ? n_first + 1 : n_first));
    mf_expr all = MF_EXPR_NOTHING;
    if (must) {
        all = mf_expr_seq(r, o->properties[n_first].member, rest);
        mf_expr one = after_comma(r, o->properties[n_first].member);
        rest = mf_schema_shared(s, mf_expr_seq(r, one, rest));
    } else {
        const uint32_t max = o->max_more == MF_NO_LIMIT ? MF_NO_LIMIT : o->max_more - 1;
        mf_expr close = mf_expr_seq(r, mf_json_space(r), mf_expr_text(r, "}"));
        if (o->more != MF_EXPR_NOTHING && o->max_more > 0)
            all = mf_expr_seq(r, mf_expr_seq(r, o->more, more_behind(r, o, 0, max)), close);
        if (o->min_more == 0)
            all = mf_expr_alt(r, all, mf_expr_text(r, "}"));
    }
    for (size_t i = n_first; i-- > 0;) {
        all = mf_expr_alt(r, mf_expr_seq(r, o->properties[i].member, rest), all);
        mf_expr one = mf_expr_optional(r, after_comma(r, o->properties[i].member));
        if (i > 0)
            rest = mf_schema_shared(s, mf_expr_seq(r, one, rest));
    }
    return all;
}

mf_expr mf_schema_object(mf_schema_reader *s, const mf_conjunction *c)
{
    mf_rules *r = s->rules;
    const size_t n_bytes = MF_MAX_PROPERTIES * sizeof(property);
    object o = {.properties = mf_alloc(&r->allocator, n_bytes), .more = MF_EXPR_NOTHING};
    mf_expr all = MF_EXPR_NOTHING;
    if (o.properties == NULL) {
        mf_rules_fail(r, MF_ERR_NO_MEMORY, "out of memory for a grammar");
        return MF_EXPR_NOTHING;
    }
    collect_properties(s, c, &o);
    if (r->status == MF_OK)
        read_others(s, c, &o);
    if (r->status == MF_OK)
        count_others(s, c, &o);
    if (r->status == MF_OK) {
        mf_expr open = mf_expr_seq(r, mf_expr_text(r, "{"), mf_json_space(r));
        all = mf_expr_seq(r, open, members(s, &o));
    }
    mf_free(&r->allocator, o.properties, n_bytes);
    return all;
}

/* ------------------------------------------------------------------------------------ arrays -- */

typedef struct array {
    uint32_t min, max;
    size_t n_prefix;
    mf_expr item; /* behind those that have a place */
} array;

static size_t prefix_size(mf_schema_reader *s, const mf_conjunction *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *prefix = yyjson_obj_get(c->parts[i].schema, "prefixItems");
        if (prefix != NULL && !yyjson_is_arr(prefix))
            (void)mf_schema_fail(s, MF_ERR_FORMAT, "prefixItems: expected a list of schemas");
        if (yyjson_is_arr(yyjson_obj_get(c->parts[i].schema, "items")))
            (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                                 "items: a list of schemas is not supported: use prefixItems");
        n = yyjson_arr_size(prefix) > n ? yyjson_arr_size(prefix) : n;
    }
    return n;
}

static bool is_unique(mf_schema_reader *s, const mf_conjunction *c)
{
    bool is = false;
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *unique = yyjson_obj_get(c->parts[i].schema, "uniqueItems");
        if (unique != NULL && !yyjson_is_bool(unique))
            (void)mf_schema_fail(s, MF_ERR_FORMAT, "uniqueItems: expected true or false");
        is = is || yyjson_is_true(unique);
    }
    return is;
}

/* An item at a place; at SIZE_MAX: behind all that have a place. */
static mf_expr item_at(mf_schema_reader *s, const mf_conjunction *c, size_t at)
{
    mf_conjunction of = {0};
    char place[40] = "/items";
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *prefix = yyjson_obj_get(c->parts[i].schema, "prefixItems");
        yyjson_val *items = yyjson_obj_get(c->parts[i].schema, "items");
        yyjson_val *own = at < yyjson_arr_size(prefix) ? yyjson_arr_get(prefix, at) : items;
        if (own != NULL)
            mf_conjunction_add(s, &of, own);
    }
    if (at != SIZE_MAX)
        snprintf(place, sizeof place, "/prefixItems/%zu", at);
    return mf_schema_shared(s, mf_schema_value(s, &of, place));
}

/* Behind item i - 1, up to the end. */
static mf_expr items_behind(mf_schema_reader *s, const mf_conjunction *c, const array *a)
{
    const uint32_t min = a->min, max = a->max;
    mf_rules *r = s->rules;
    const uint32_t n = a->n_prefix > 1 ? (uint32_t)a->n_prefix : 1; /* with the first one */
    mf_expr all = MF_EXPR_EMPTY;
    if (max > n) {
        const uint32_t most = max == MF_NO_LIMIT ? MF_NO_LIMIT : max - n;
        all = mf_expr_repeat(r, after_comma(r, a->item), min > n ? min - n : 0, most);
    }
    for (size_t i = a->n_prefix; i-- > 1 && r->status == MF_OK;) {
        if (i >= max)
            continue;
        all = mf_expr_seq(r, after_comma(r, item_at(s, c, i)), all);
        if (i >= min)
            all = mf_expr_optional(r, all);
    }
    return all;
}

/* One and more. */
static mf_expr items_of(mf_schema_reader *s, const mf_conjunction *c, array *a)
{
    if (is_unique(s, c) && a->max > 1)
        return mf_schema_unique_items(s, c, a->min, a->max);
    if (a->max > a->n_prefix)
        a->item = item_at(s, c, SIZE_MAX);
    const mf_expr first = a->n_prefix > 0 ? item_at(s, c, 0) : a->item;
    return mf_expr_seq(s->rules, first, items_behind(s, c, a));
}

mf_expr mf_schema_array(mf_schema_reader *s, const mf_conjunction *c)
{
    mf_rules *r = s->rules;
    array a = {.min = mf_schema_count(s, c, "minItems", false, 0),
               .max = mf_schema_count(s, c, "maxItems", true, MF_NO_LIMIT),
               .n_prefix = prefix_size(s, c),
               .item = MF_EXPR_NOTHING};
    if (a.n_prefix > MF_MAX_PROPERTIES)
        return mf_schema_fail(s, MF_ERR_UNSUPPORTED, "prefixItems: more than %d",
                              MF_MAX_PROPERTIES);
    if (a.min > a.max)
        return MF_EXPR_NOTHING;
    mf_expr open = mf_expr_seq(r, mf_expr_text(r, "["), mf_json_space(r));
    mf_expr items =
        a.max > 0 ? mf_expr_seq(r, items_of(s, c, &a), mf_json_space(r)) : MF_EXPR_NOTHING;
    if (a.min == 0)
        items = mf_expr_optional(r, items);
    return mf_expr_seq(r, mf_expr_seq(r, open, items), mf_expr_text(r, "]"));
}
