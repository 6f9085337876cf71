/* SPDX-License-Identifier: MIT */
/* Fields of requests, checked. */
#include "fields.h"

#include <stdio.h>
#include <string.h>

yyjson_val *mf_srv_field_of(yyjson_val *object, const char *name)
{
    const char *dot = strrchr(name, '.');
    yyjson_val *value = yyjson_obj_get(object, dot ? dot + 1 : name);
    return yyjson_is_null(value) ? NULL : value;
}

static bool says_nothing(yyjson_val *v)
{
    if (yyjson_is_null(v) || yyjson_is_false(v))
        return true;
    if (yyjson_is_num(v))
        return yyjson_get_num(v) == 0.0;
    return (yyjson_is_ctn(v) && unsafe_yyjson_get_len(v) == 0) ||
           (yyjson_is_str(v) && yyjson_get_len(v) == 0);
}

static bool is_refused(mf_srv_field_kind kind, yyjson_val *v)
{
    return kind == MF_SRV_FIELD_UNHEARD ? yyjson_is_obj(v) || !says_nothing(v)
                                        : kind == MF_SRV_FIELD_REFUSED && !says_nothing(v);
}

static const mf_srv_field *find(const mf_srv_field *const *tables, yyjson_val *key)
{
    for (; *tables; tables++)
        for (const mf_srv_field *f = *tables; f->name; f++)
            if (yyjson_equals_str(key, f->name))
                return f;
    return NULL;
}

bool mf_srv_check_fields(yyjson_val *object, const char *what, const mf_srv_field *const *tables,
                         mf_srv_refusal *r)
{
    size_t i, n;
    yyjson_val *key, *value;
    char name[MF_SRV_PARAM_BYTES];
    if (!object) /* the loop would step from it */
        return true;
    yyjson_obj_foreach(object, i, n, key, value)
    {
        const char *key_text = yyjson_get_str(key);
        if (!key_text) /* never of a parsed object: its keys are strings */
            continue;
        const mf_srv_field *field = find(tables, key);
        if (!field && yyjson_is_null(value)) /* as many as there may be: no search for each */
            continue;
        snprintf(name, sizeof name, "%s%s%s", what, *what ? "." : "", key_text);
        if (yyjson_obj_getn(object, key_text, yyjson_get_len(key)) != value)
            return mf_srv_refuse_field(r, name, "given twice");
        if (yyjson_is_null(value))
            continue;
        if (!field) {
            mf_srv_refuse_field(r, name, "this server does not know such a field");
            r->code = "unknown_parameter";
            return false;
        }
        if (is_refused(field->kind, value)) {
            mf_srv_refuse_field(r, name, "not supported by this server");
            r->code = "unsupported_parameter";
            return false;
        }
    }
    return true;
}

bool mf_srv_check_object(yyjson_val *object, const char *what, const mf_srv_field *table,
                         mf_srv_refusal *r)
{
    const mf_srv_field *const tables[] = {table, NULL};
    if (!yyjson_is_obj(object))
        return mf_srv_refuse_field(r, what, "expected an object");
    return mf_srv_check_fields(object, what, tables, r);
}

bool mf_srv_get_object(yyjson_val *object, const char *name, const mf_srv_field *table,
                       yyjson_val **out, mf_srv_refusal *r)
{
    *out = mf_srv_field_of(object, name);
    return !*out || mf_srv_check_object(*out, name, table, r);
}

bool mf_srv_get_bool(yyjson_val *object, const char *name, bool *out, mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(object, name);
    if (v && !yyjson_is_bool(v))
        return mf_srv_refuse_field(r, name, "expected true or false");
    if (v)
        *out = yyjson_get_bool(v);
    return true;
}

bool mf_srv_get_float(yyjson_val *object, const char *name, double min, double max, float *out,
                      mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(object, name);
    double number = yyjson_get_num(v);
    if (v && (!yyjson_is_num(v) || !(number >= min && number <= max)))
        return mf_srv_refuse_field(r, name, "expected a number from %g to %g", min, max);
    if (v)
        *out = (float)number;
    return true;
}

/* or_none: what else is taken, for the message; -1 is, where there is something else. */
static bool get_count(yyjson_val *object, const char *name, uint64_t min, uint64_t max,
                      const char *or_none, size_t *out, mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(object, name);
    double number = yyjson_get_num(v);
    if (!v)
        return true;
    if (*or_none && yyjson_is_num(v) && number == -1.0) {
        *out = SIZE_MAX;
        return true;
    }
    if (!yyjson_is_num(v) || !(number >= (double)min && number <= (double)max) ||
        number != (double)(uint64_t)number)
        return mf_srv_refuse_field(r, name, "expected a whole number from %llu to %llu%s",
                                   (unsigned long long)min, (unsigned long long)max, or_none);
    *out = (size_t)number;
    return true;
}

bool mf_srv_get_count(yyjson_val *object, const char *name, uint64_t min, uint64_t max, size_t *out,
                      mf_srv_refusal *r)
{
    return get_count(object, name, min, max, "", out, r);
}

bool mf_srv_get_limit(yyjson_val *object, const char *name, uint64_t min, uint64_t max, size_t *out,
                      mf_srv_refusal *r)
{
    return get_count(object, name, min, max, ", or -1", out, r);
}

bool mf_srv_get_token_limit(yyjson_val *object, const char *name, uint64_t min, size_t *out,
                            mf_srv_refusal *r)
{
    return mf_srv_get_limit(object, name, min, INT32_MAX, out, r);
}

bool mf_srv_is_text(yyjson_val *value, const char *field, mf_srv_refusal *r)
{
    if (!yyjson_is_str(value))
        return mf_srv_refuse_field(r, field, "expected a string");
    if (strlen(yyjson_get_str(value)) != yyjson_get_len(value))
        return mf_srv_refuse_field(r, field, "contains the character U+0000");
    return true;
}

bool mf_srv_get_string(yyjson_val *object, const char *name, const char **out, mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(object, name);
    if (v && !mf_srv_is_text(v, name, r))
        return false;
    if (v)
        *out = yyjson_get_str(v);
    return true;
}

bool mf_srv_get_word(yyjson_val *object, const char *name, const char *const *words, int *out,
                     mf_srv_refusal *r)
{
    const char *text = NULL;
    char list[256] = "";
    if (!mf_srv_get_string(object, name, &text, r))
        return false;
    if (!text)
        return true;
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], text) == 0) {
            *out = i;
            return true;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    return mf_srv_refuse_field(r, name, "'%.64s' is not one of %s", text, list);
}
