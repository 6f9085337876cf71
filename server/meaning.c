/* SPDX-License-Identifier: MIT */
/* Messages by what they mean: what clients change on the way makes no difference. */
#include "recall.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* JSON that is nested deeper is itself. */
#define MAX_DEPTH 64
/* Defaults are looked up one by one for each argument, and a request may have millions of either:
 * tools with more parameters are taken to have none. */
#define MAX_PROPERTIES 256

typedef struct member {
    yyjson_val *key, *value;
} member;

static int compare(const void *a, const void *b)
{
    return strcmp(yyjson_get_str(((const member *)a)->key),
                  yyjson_get_str(((const member *)b)->key));
}

static bool put_sorted(yyjson_val *v, int depth, mf_srv_bytes *out);

/* Whether properties [a schema's; NULL: none] say that this is what the member is without being
 * said. */
static bool is_default(yyjson_val *properties, yyjson_val *key, yyjson_val *value)
{
    mf_srv_bytes a = {0}, b = {0};
    yyjson_val *schema = yyjson_obj_getn(properties, yyjson_get_str(key), yyjson_get_len(key));
    yyjson_val *otherwise = yyjson_obj_get(schema, "default");
    const bool is = otherwise && put_sorted(otherwise, MAX_DEPTH, &a) &&
                    put_sorted(value, MAX_DEPTH, &b) && !a.has_failed && !b.has_failed &&
                    a.n_bytes == b.n_bytes && memcmp(a.data, b.data, a.n_bytes) == 0;
    mf_srv_bytes_free(&a);
    mf_srv_bytes_free(&b);
    return is;
}

static bool put_object(yyjson_val *object, yyjson_val *properties, int depth, mf_srv_bytes *out)
{
    member *members = malloc((yyjson_obj_size(object) + 1) * sizeof *members);
    yyjson_val *key, *value;
    size_t i, max, n = 0;
    bool is_good = members != NULL;
    if (!members)
        return false;
    yyjson_obj_foreach(object, i, max, key, value)
    {
        if (!is_default(properties, key, value))
            members[n++] = (member){key, value};
    }
    qsort(members, n, sizeof *members, compare);
    mf_srv_puts(out, "{");
    for (i = 0; is_good && i < n; i++) {
        mf_srv_puts(out, i > 0 ? "," : "");
        mf_srv_put_json(out, yyjson_get_str(members[i].key), yyjson_get_len(members[i].key));
        mf_srv_puts(out, ":");
        is_good = put_sorted(members[i].value, depth, out);
    }
    mf_srv_puts(out, "}");
    free(members);
    return is_good;
}

static bool put_array(yyjson_val *array, int depth, mf_srv_bytes *out)
{
    yyjson_val *value;
    size_t i, n;
    mf_srv_puts(out, "[");
    yyjson_arr_foreach(array, i, n, value)
    {
        mf_srv_puts(out, i > 0 ? "," : "");
        if (!put_sorted(value, depth, out))
            return false;
    }
    mf_srv_puts(out, "]");
    return true;
}

/* 1 and 1.0 are one number: some clients have no other. */
static void put_number(yyjson_val *v, mf_srv_bytes *out)
{
    const double x = yyjson_get_num(v), exact = 9007199254740992.0;
    if (yyjson_is_uint(v))
        mf_srv_printf(out, "%llu", (unsigned long long)yyjson_get_uint(v));
    else if (yyjson_is_int(v))
        mf_srv_printf(out, "%lld", (long long)yyjson_get_sint(v));
    else if (x == floor(x) && fabs(x) < exact)
        mf_srv_printf(out, "%lld", (long long)x);
    else
        mf_srv_printf(out, "%.17g", x);
}

/* False: too deep. */
static bool put_sorted(yyjson_val *v, int depth, mf_srv_bytes *out)
{
    if (depth == 0)
        return false;
    if (yyjson_is_obj(v))
        return put_object(v, NULL, depth - 1, out);
    if (yyjson_is_arr(v))
        return put_array(v, depth - 1, out);
    if (yyjson_is_str(v))
        mf_srv_put_json(out, yyjson_get_str(v), yyjson_get_len(v));
    else if (yyjson_is_num(v))
        put_number(v, out);
    else
        mf_srv_puts(out, yyjson_is_null(v) ? "null" : yyjson_is_true(v) ? "true" : "false");
    return true;
}

/* What the parameters of the tool of that name are; NULL: not known, or too many. */
static yyjson_val *properties_of(yyjson_val *tools, const char *name)
{
    size_t i, n;
    yyjson_val *tool;
    yyjson_arr_foreach(tools, i, n, tool)
    {
        yyjson_val *function = yyjson_obj_get(tool, "function");
        if (!yyjson_equals_str(yyjson_obj_get(function, "name"), name))
            continue;
        yyjson_val *all = yyjson_obj_get(yyjson_obj_get(function, "parameters"), "properties");
        return yyjson_obj_size(all) <= MAX_PROPERTIES ? all : NULL;
    }
    return NULL;
}

static void put_arguments(const char *json, yyjson_val *properties, mf_srv_bytes *out)
{
    yyjson_doc *doc = yyjson_read(json, strlen(json), 0);
    yyjson_val *root = yyjson_doc_get_root(doc);
    mf_srv_bytes text = {0};
    if (yyjson_is_obj(root) ? put_object(root, properties, MAX_DEPTH - 1, &text)
                            : doc && put_sorted(root, MAX_DEPTH, &text))
        mf_srv_put(out, text.data, text.n_bytes);
    else
        mf_srv_puts(out, json);
    out->has_failed = out->has_failed || text.has_failed;
    mf_srv_bytes_free(&text);
    yyjson_doc_free(doc);
}

void mf_srv_put_meaning(const mf_srv_message *m, yyjson_val *tools, mf_srv_bytes *out)
{
    size_t n = m->content.n_bytes;
    const char *text = mf_srv_trim(m->content.data ? m->content.data : "", &n);
    mf_srv_printf(out, "%d ", (int)m->role);
    mf_srv_put_json(out, text, m->n_calls > 0 ? 0 : n);
    for (size_t i = 0; i < m->n_calls; i++) {
        mf_srv_puts(out, " ");
        mf_srv_puts_json(out, m->calls[i].name);
        mf_srv_puts(out, " ");
        put_arguments(m->calls[i].arguments, properties_of(tools, m->calls[i].name), out);
    }
    mf_srv_puts(out, "\n");
}
