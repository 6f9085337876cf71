/* SPDX-License-Identifier: MIT */
/* Calls of what is built in, and the functions that templates find without defining them. */
#include "text/jinja/jinja_eval.h"

#include <time.h>

#define MAX_RANGE 100000 /* of Jinja's sandbox */
#define MAX_FORMAT_BYTES 256

const mf_jbuiltin *mf_j_find_builtin(const mf_jbuiltin *table, const mf_jstr *name)
{
    for (; table->name != NULL; table++)
        if (mf_j_is_text(name, table->name))
            return table;
    return NULL;
}

mf_jval mf_j_bound(mf_jrun *j, const mf_jbuiltin *what, mf_jval self)
{
    mf_jbound *bound = mf_j_take(j, sizeof *bound);
    if (bound == NULL)
        return mf_j_undefined(NULL);
    *bound = (mf_jbound){what, self};
    return (mf_jval){.kind = MF_J_BUILTIN, .as.bound = bound};
}

/* The next name of a list of parameters, and whether it must be there. */
static const char *next_parameter(const char *params, size_t *n, bool *is_needed)
{
    while (*params == ' ')
        params++;
    *n = strcspn(params, " !");
    *is_needed = params[*n] == '!';
    return params;
}

static bool bind_arguments(mf_jrun *j, const mf_jbuiltin *what, const mf_jarguments *arguments,
                           mf_jcall *call)
{
    const mf_jlist *plain = arguments->plain.as.list;
    size_t n_bound = 0, i = 0, n, n_named = 0;
    bool is_needed;
    const char *name = next_parameter(what->params, &n, &is_needed);
    for (; n != 0; name = next_parameter(name + n + is_needed, &n, &is_needed), i++) {
        const mf_jval *named = arguments->named.kind == MF_J_DICT
                                   ? mf_j_find_text(arguments->named.as.dict, name, n)
                                   : NULL;
        n_named += named != NULL;
        if (i < plain->n_items)
            call->arg[i] = plain->items[i];
        else if (named != NULL)
            call->arg[i] = *named;
        n_bound += i < plain->n_items;
        if (is_needed && i >= plain->n_items && named == NULL) {
            mf_j_fail(j, MF_ERR_ARGUMENT, "%s() wants an argument '%.*s'", what->name, (int)n,
                      name);
            return false;
        }
    }
    size_t n_given = arguments->named.kind == MF_J_DICT ? arguments->named.as.dict->n_entries : 0;
    if (n_bound == plain->n_items && n_named == n_given)
        return true;
    mf_j_fail(j, MF_ERR_ARGUMENT, "%s() does not take these arguments", what->name);
    return false;
}

mf_jval mf_j_call_builtin(mf_jrun *j, const mf_jbuiltin *what, mf_jval self,
                          const mf_jarguments *arguments)
{
    mf_jcall call = {.self = self, .all = arguments, .variant = what->variant};
    if (!mf_j_spend(j, 1))
        return mf_j_undefined(NULL);
    if (*what->params != '*' && !bind_arguments(j, what, arguments, &call))
        return mf_j_undefined(NULL);
    return what->run(j, &call);
}

bool mf_j_want_int(mf_jrun *j, mf_jval value, const char *what, int64_t *out)
{
    if (mf_j_as_int(value, out))
        return true;
    mf_j_fail_type(j, what, value);
    return false;
}

const mf_jstr *mf_j_want_string(mf_jrun *j, mf_jval value, const char *what)
{
    static const mf_jstr nothing = {.text = ""};
    if (value.kind == MF_J_STRING)
        return value.as.string;
    mf_j_fail_type(j, what, value);
    return &nothing;
}

/* --------------------------------------------------------------------------------- functions -- */

static mf_jval range(mf_jrun *j, const mf_jcall *call)
{
    int64_t a = 0, b = 0, step = 1;
    bool has_start = call->arg[1].kind != MF_J_MISSING;
    if (!mf_j_want_int(j, call->arg[0], "range()", has_start ? &a : &b) ||
        (has_start && !mf_j_want_int(j, call->arg[1], "range()", &b)) ||
        (call->arg[2].kind != MF_J_MISSING && !mf_j_want_int(j, call->arg[2], "range()", &step)))
        return mf_j_undefined(NULL);
    if (step == 0)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "range() arg 3 must not be zero");
    mf_jval list = mf_j_list(j, MF_J_RANGE);
    uint64_t width = step < 0 ? -(uint64_t)step : (uint64_t)step;
    bool is_empty = step > 0 ? a >= b : a <= b;
    uint64_t distance = step > 0 ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b;
    uint64_t n = is_empty ? 0 : (distance - 1) / width + 1;
    if (n > MAX_RANGE)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "range too big, the maximum is %d", MAX_RANGE);
    for (uint64_t i = 0; i < n && mf_j_ok(j); i++)
        mf_j_push(j, list, mf_j_int((int64_t)((uint64_t)a + i * (uint64_t)step)));
    if (mf_j_ok(j)) {
        list.as.list->start = a;
        list.as.list->stop = b;
        list.as.list->step = step;
    }
    return list;
}

/* A dictionary of pairs, or of a dictionary, and of named arguments. */
static mf_jval make_dict(mf_jrun *j, const mf_jcall *call)
{
    mf_jval dict = mf_j_dict(j);
    const mf_jlist *plain = call->all->plain.as.list;
    const mf_jval sources[2] = {plain->n_items > 0 ? plain->items[0] : (mf_jval){0},
                                call->all->named};
    if (plain->n_items > 1)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "dict() takes at most one argument");
    for (int s = 0; s < 2 && mf_j_ok(j); s++) {
        if (sources[s].kind == MF_J_MISSING)
            continue;
        if (sources[s].kind == MF_J_DICT) {
            const mf_jdict *from = sources[s].as.dict;
            for (size_t i = 0; i < from->n_entries && mf_j_ok(j); i++)
                mf_j_put(j, dict, from->entries[i].key, from->entries[i].value);
            continue;
        }
        const mf_jlist *pairs = mf_j_items(j, sources[s]);
        for (size_t i = 0; i < pairs->n_items && mf_j_ok(j); i++) {
            const mf_jlist *pair = mf_j_items(j, pairs->items[i]);
            if (pair->n_items != 2)
                mf_j_fail(j, MF_ERR_ARGUMENT, "dict() wants pairs");
            else
                mf_j_put(j, dict, pair->items[0], pair->items[1]);
        }
    }
    return dict;
}

static mf_jval make_namespace(mf_jrun *j, const mf_jcall *call)
{
    mf_jval value = make_dict(j, call);
    if (!mf_j_ok(j))
        return value;
    for (size_t i = 0; i < value.as.dict->n_entries; i++) {
        mf_jval key = value.as.dict->entries[i].key;
        if (key.kind == MF_J_STRING && key.as.string->n_bytes > 0 && *key.as.string->text == '_')
            return mf_j_fail(j, MF_ERR_ARGUMENT, "a namespace's attribute cannot begin with '_'");
    }
    value.kind = MF_J_NAMESPACE;
    return value;
}

static mf_jval raise_exception(mf_jrun *j, const mf_jcall *call)
{
    mf_jval text = mf_j_str(j, call->arg[0]);
    if (!mf_j_ok(j))
        return text;
    const mf_jstr *s = text.as.string;
    j->is_asked = true;
    return mf_j_fail(j, MF_ERR_ARGUMENT, "%.*s", s->n_bytes < 500 ? (int)s->n_bytes : 500, s->text);
}

/* What Python itself makes of a format before the system's strftime sees it: of a time without a
 * zone %z and %Z are nothing. Ours has no parts of seconds. In out, which has room for three times
 * as much, with a point behind it. */
static void prepare_format(const mf_jstr *s, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_bytes; i++) {
        const char next = s->text[i] == '%' && i + 1 < s->n_bytes ? s->text[i + 1] : '\0';
        if (next == '\0') {
            out[n++] = s->text[i];
            continue;
        }
        i++;
        if (next == 'f') {
            memset(out + n, '0', 6);
            n += 6;
        } else if (next != 'z' && next != 'Z') {
            out[n++] = '%';
            out[n++] = next;
        }
    }
    memcpy(out + n, ".", 2);
}

static mf_jval strftime_now(mf_jrun *j, const mf_jcall *call)
{
    char format[3 * MAX_FORMAT_BYTES + 2], out[16 * MAX_FORMAT_BYTES];
    struct tm parts;
    const mf_jstr *s = mf_j_want_string(j, call->arg[0], "strftime_now()");
    time_t now = j->now_seconds != 0 ? (time_t)j->now_seconds : time(NULL);
    if (!mf_j_ok(j) || s->n_bytes == 0)
        return mf_j_text(j, "");
    if (s->n_bytes >= MAX_FORMAT_BYTES || memchr(s->text, '\0', s->n_bytes) != NULL ||
        localtime_r(&now, &parts) == NULL)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "strftime_now(): a format too long");
    prepare_format(s, format);
    const size_t n = strftime(out, sizeof out, format, &parts);
    if (n == 0) /* which the point alone cannot be */
        return mf_j_fail(j, MF_ERR_ARGUMENT, "strftime_now(): a format too long");
    return mf_j_copy(j, out, n - 1);
}

static mf_jval make_cycler(mf_jrun *j, const mf_jcall *call)
{
    mf_jcycler *cycler = mf_j_take(j, sizeof *cycler);
    mf_jval items = call->all->plain;
    bool is_joiner = call->variant != 0;
    if (is_joiner) {
        items = mf_j_list(j, MF_J_PLAIN);
        mf_j_push(j, items, call->arg[0].kind == MF_J_MISSING ? mf_j_text(j, ", ") : call->arg[0]);
    }
    if (cycler == NULL || !mf_j_ok(j))
        return mf_j_undefined(NULL);
    if (items.as.list->n_items == 0)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "at least one item has to be provided");
    *cycler = (mf_jcycler){items.as.list, 0, is_joiner};
    return (mf_jval){.kind = MF_J_CYCLER, .as.cycler = cycler};
}

const mf_jbuiltin mf_j_globals[] = {
    {"range", "start! stop step", range, 0},
    {"dict", "*", make_dict, 0},
    {"namespace", "*", make_namespace, 0},
    {"raise_exception", "message!", raise_exception, 0},
    {"strftime_now", "format!", strftime_now, 0},
    {"cycler", "*", make_cycler, 0},
    {"joiner", "sep", make_cycler, 1},
    {NULL, NULL, NULL, 0},
};
