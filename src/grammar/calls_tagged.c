/* SPDX-License-Identifier: MIT */
/* Arguments between tags: strings as they are, up to what closes them, all else as JSON. */
#include "grammar/calls.h"

#define MAX_MARK 64

/* The characters of the mark that may not stand in a string. */
typedef struct mark {
    uint32_t chars[MAX_MARK];
    size_t n;
} mark;

/* What closes a string, without blanks before it, up to a bracket that closes. */
static mark mark_of(const char *close)
{
    mark m = {.n = 0};
    const unsigned char *at = (const unsigned char *)close + strspn(close, " \n");
    while (*at != '\0' && m.n < MAX_MARK) {
        const size_t n = *at < 0x80 ? 1 : *at < 0xE0 ? 2 : *at < 0xF0 ? 3 : 4;
        uint32_t c = n == 1 ? *at : *at & (0xFFu >> (n + 1));
        for (size_t i = 1; i < n; i++)
            c = c << 6 | (at[i] & 0x3Fu);
        m.chars[m.n++] = c;
        at += n;
        if (c == '>')
            break;
    }
    return m;
}

/* How many of the mark's first characters stand there once c has come behind n of them. */
static size_t advance(const mark *m, size_t n, uint32_t c)
{
    for (size_t length = n + 1; length > 0; length--) {
        bool is_end = m->chars[length - 1] == c;
        for (size_t i = 0; i + 1 < length && is_end; i++)
            is_end = m->chars[i] == m->chars[n + 1 - length + i];
        if (is_end)
            return length;
    }
    return 0;
}

/* Text in which n characters of the mark stand last, from there on: a rule for each n, which end in
 * each other. */
static mf_expr rest_after(mf_rules *r, const mark *m, size_t n, uint32_t first_rule)
{
    mf_char_range taken[MAX_MARK], others[MAX_MARK + 2];
    mf_expr all = MF_EXPR_EMPTY;
    size_t n_taken = 0;
    for (size_t i = 0; i < m->n; i++) {
        const uint32_t c = m->chars[i];
        const size_t to = advance(m, n, c);
        bool is_known = false;
        for (size_t k = 0; k < n_taken; k++)
            is_known = is_known || taken[k].first == c;
        if (is_known)
            continue;
        taken[n_taken++] = (mf_char_range){c, c};
        mf_char_range one = {c, c};
        if (to < m->n)
            all = mf_expr_alt(r, all,
                              mf_expr_seq(r, mf_expr_chars(r, &one, 1),
                                          mf_expr_rule(r, first_rule + (uint32_t)to)));
    }
    taken[n_taken < MAX_MARK ? n_taken++ : 0] = (mf_char_range){0, 0};
    const size_t n_others =
        mf_char_ranges_invert(taken, mf_char_ranges_merge(taken, n_taken), others);
    return mf_expr_alt(
        r, all, mf_expr_seq(r, mf_expr_chars(r, others, n_others), mf_expr_rule(r, first_rule)));
}

mf_expr mf_expr_text_without(mf_rules *r, const char *close)
{
    const mark m = mark_of(close);
    uint32_t first = MF_NO_RULE;
    for (size_t i = 0; i < m.n; i++) {
        const uint32_t rule = mf_rules_add(r, NULL, 0);
        first = i == 0 ? rule : first;
    }
    for (size_t i = 0; i < m.n && r->status == MF_OK; i++)
        mf_rules_define(r, first + (uint32_t)i, rest_after(r, &m, i, first));
    return m.n == 0 || r->status != MF_OK ? MF_EXPR_NOTHING : mf_expr_rule(r, first);
}

typedef struct tagged {
    mf_schema_reader *schema;
    const mf_vocabulary *vocabulary;
    const mf_reply_form *form;
    mf_expr text; /* any string */
} tagged;

static mf_expr marked(const tagged *t, const char *text)
{
    return text == NULL ? MF_EXPR_EMPTY
                        : mf_expr_marked(t->schema->rules, t->vocabulary, text, strlen(text));
}

/* Only strings, of which any will do, or those of a list. */
static mf_expr words_of(const tagged *t, yyjson_val *schema)
{
    mf_rules *r = t->schema->rules;
    yyjson_val *list = yyjson_obj_get(schema, "enum"), *item;
    yyjson_val *constant = yyjson_obj_get(schema, "const");
    mf_expr all = MF_EXPR_NOTHING;
    size_t i, n;
    if (yyjson_is_str(constant))
        return mf_expr_bytes(r, yyjson_get_str(constant), yyjson_get_len(constant));
    yyjson_arr_foreach(list, i, n, item)
    {
        if (!yyjson_is_str(item))
            return MF_EXPR_NOTHING;
        all = mf_expr_alt(r, all, mf_expr_bytes(r, yyjson_get_str(item), yyjson_get_len(item)));
    }
    return all;
}

/* May a value be a string, as far as can be seen? */
static bool may_be_string(const tagged *t, yyjson_val *schema, int depth)
{
    static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
    yyjson_val *type = yyjson_obj_get(schema, "type"), *item;
    size_t i, n;
    bool may = yyjson_equals_str(type, "string");
    yyjson_arr_foreach(type, i, n, item)
    {
        may = may || yyjson_equals_str(item, "string");
    }
    if (type != NULL || depth > 8)
        return may;
    bool has_list = false;
    for (size_t k = 0; k < 3; k++) {
        yyjson_arr_foreach(yyjson_obj_get(schema, lists[k]), i, n, item)
        {
            may = may || may_be_string(t, mf_schema_follow(t->schema, item), depth + 1);
            has_list = true;
        }
    }
    return may || !has_list;
}

/* Does a schema's type, a name or a list of them, have this one? */
static bool has_type(yyjson_val *type, const char *word)
{
    const bool is_number = strcmp(word, "number") == 0;
    yyjson_val *item;
    size_t i, n;
    bool has = yyjson_equals_str(type, word) || (is_number && yyjson_equals_str(type, "integer"));
    if (!yyjson_is_arr(type))
        return has;
    yyjson_arr_foreach(type, i, n, item)
    {
        has = has || yyjson_equals_str(item, word) ||
              (is_number && yyjson_equals_str(item, "integer"));
    }
    return has;
}

/* The name of the type that a value has which is no string: those that the schema lists, else any.
 */
static mf_expr type_word(const tagged *t, yyjson_val *shape)
{
    static const char *const words[] = {"number", "boolean", "null", "object", "array"};
    mf_rules *r = t->schema->rules;
    yyjson_val *type = yyjson_obj_get(shape, "type");
    mf_expr all = MF_EXPR_NOTHING;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (type == NULL || has_type(type, words[i]))
            all = mf_expr_alt(r, all, mf_expr_text(r, words[i]));
    return mf_expr_seq(r, all, marked(t, t->form->type_close));
}

static mf_expr argument(const tagged *t, const char *name, size_t n_name, yyjson_val *schema)
{
    mf_rules *r = t->schema->rules;
    yyjson_val *shape = mf_schema_follow(t->schema, schema);
    mf_expr value = words_of(t, shape);
    bool is_text = value != MF_EXPR_NOTHING;
    if (!is_text && may_be_string(t, shape, 0)) {
        value = t->text;
        is_text = true;
    }
    if (!is_text) {
        mf_conjunction c = {0};
        mf_conjunction_add(t->schema, &c, schema);
        value = mf_schema_value(t->schema, &c, "/properties");
    }
    const char *close = is_text && t->form->key_close_string != NULL ? t->form->key_close_string
                                                                     : t->form->key_close;
    mf_expr all = mf_expr_seq(r, marked(t, t->form->key_open), mf_expr_bytes(r, name, n_name));
    all = mf_expr_seq(r, all, marked(t, close));
    if (t->form->type_close != NULL && close == t->form->key_close)
        all = mf_expr_seq(r, all, type_word(t, shape));
    return mf_expr_seq(r, mf_expr_seq(r, all, value), marked(t, t->form->value_close));
}

static mf_expr all_arguments(tagged *t, yyjson_val *schema)
{
    mf_rules *r = t->schema->rules;
    mf_expr all = MF_EXPR_EMPTY;
    size_t i, n;
    yyjson_val *name, *value;
    t->text = mf_expr_text_without(r, t->form->value_close);
    if (t->text == MF_EXPR_NOTHING) {
        mf_rules_fail(r, MF_ERR_UNSUPPORTED, "the model's syntax does not close its arguments");
        return all;
    }
    schema = mf_schema_follow(t->schema, schema);
    yyjson_val *properties = yyjson_obj_get(schema, "properties");
    if (!yyjson_is_obj(properties))
        return all;
    yyjson_obj_foreach(properties, i, n, name, value)
    {
        mf_expr one = argument(t, yyjson_get_str(name), yyjson_get_len(name), value);
        all = mf_expr_seq(
            r, all,
            mf_schema_is_required(t->schema, schema, name) ? one : mf_expr_optional(r, one));
    }
    return all;
}

bool mf_schema_open(mf_schema_reader *s, mf_rules *r, const mf_grammar_tool *tool, const char *what,
                    mf_json *json)
{
    const bool has_any = tool->parameters != NULL;
    if (r->status != MF_OK)
        return false;
    *s = (mf_schema_reader){.rules = r, .json = json, .what = what, .is_closed = true};
    r->status = mf_json_parse_raw(&r->allocator, what, has_any ? tool->parameters : "{}",
                                  has_any ? tool->n_bytes : 2, json, r->error);
    if (r->status == MF_OK)
        r->status = mf_json_check_names(json, r->error);
    if (r->status != MF_OK)
        mf_json_free(json);
    return r->status == MF_OK;
}

void mf_schema_close(mf_schema_reader *s, mf_json *json)
{
    mf_free(&s->rules->allocator, s->targets, s->target_capacity * sizeof *s->targets);
    mf_json_free(json);
}

mf_expr mf_schema_read_tagged(mf_rules *r, const mf_vocabulary *v, const mf_reply_form *form,
                              const mf_grammar_tool *tool, const char *what)
{
    mf_json json = {0};
    mf_schema_reader s;
    mf_expr e = MF_EXPR_NOTHING;
    if (!mf_schema_open(&s, r, tool, what, &json))
        return e;
    tagged t = {.schema = &s, .vocabulary = v, .form = form};
    e = all_arguments(&t, json.root);
    mf_schema_close(&s, &json);
    return e;
}
