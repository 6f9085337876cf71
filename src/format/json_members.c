/* SPDX-License-Identifier: MIT */
/* Walking over the members of a JSON object. */
#include "format/json_members.h"

#include <string.h>

void mf_json_members_init(mf_json_members *members, const char *path, mf_json_piece object)
{
    members->path = path;
    members->object = object;
    members->at = 0;
}

static mf_status invalid(const mf_json_members *m, uint64_t position, const char *why,
                         mf_error *error)
{
    return mf_fail_at(error, MF_ERR_FORMAT, position, "%s: not valid JSON at byte %llu: %s",
                      m->path, (unsigned long long)position, why);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(mf_json_members *m)
{
    while (m->at < m->object.n_bytes && is_space(m->object.text[m->at]))
        m->at++;
}

/* Takes c, after spaces; false if something else stands there. */
static bool take(mf_json_members *m, char c)
{
    skip_space(m);
    if (m->at == m->object.n_bytes || m->object.text[m->at] != c)
        return false;
    m->at++;
    return true;
}

/* The end of the string that begins at `at`; n_bytes if it has none. */
static size_t end_of_string(const char *text, size_t n_bytes, size_t at)
{
    for (at++; at < n_bytes && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < n_bytes ? at + 1 : n_bytes;
}

/* The end of the value that begins at `at`: brackets are counted, whichever they are. */
static size_t end_of_value(const char *text, size_t n_bytes, size_t at)
{
    size_t depth = 0;
    if (text[at] == '"')
        return end_of_string(text, n_bytes, at);
    while (at < n_bytes) {
        char c = text[at];
        if (depth == 0 && (c == ',' || c == '}' || c == ']' || is_space(c)))
            return at;
        if (c == '"') {
            at = end_of_string(text, n_bytes, at);
            continue;
        }
        at++;
        depth += c == '{' || c == '[';
        if ((c == '}' || c == ']') && --depth == 0)
            return at;
    }
    return n_bytes;
}

/* The value that stands at the next place that is no space. */
static mf_status take_piece(mf_json_members *m, mf_json_piece *out, mf_error *error)
{
    skip_space(m);
    size_t begin = m->at;
    if (begin < m->object.n_bytes)
        m->at = end_of_value(m->object.text, m->object.n_bytes, begin);
    if (m->at == m->object.n_bytes || m->at == begin)
        return invalid(m, m->object.position + m->at, "a value or the end of one is missing",
                       error);
    *out = (mf_json_piece){m->object.text + begin, m->at - begin, m->object.position + begin};
    return MF_OK;
}

static mf_status parse_piece(const mf_json_members *m, const mf_json_piece *piece, char *memory,
                             size_t n_bytes, yyjson_val **out, mf_error *error)
{
    yyjson_alc alc;
    yyjson_read_err e;
    yyjson_alc_pool_init(&alc, memory, n_bytes);
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)piece->text, piece->n_bytes,
                                       YYJSON_READ_NOFLAG, &alc, &e);
    if (doc == NULL)
        return invalid(m, piece->position + e.pos, e.msg, error);
    *out = yyjson_doc_get_root(doc);
    return MF_OK;
}

mf_status mf_json_next(mf_json_members *m, const char **name, mf_json_piece *value, mf_error *error)
{
    bool is_first = m->at == 0;
    mf_json_piece key;
    yyjson_val *string = NULL;
    if (is_first && !take(m, '{'))
        return mf_fail(error, MF_ERR_FORMAT, "%s: not a JSON object at byte %llu", m->path,
                       (unsigned long long)(m->object.position + m->at));
    if (take(m, '}')) {
        skip_space(m);
        if (m->at != m->object.n_bytes)
            return invalid(m, m->object.position + m->at, "something follows the object", error);
        *name = NULL;
        return MF_OK;
    }
    if (!is_first && !take(m, ','))
        return invalid(m, m->object.position + m->at, "expected a comma or the object's end",
                       error);
    MF_TRY(take_piece(m, &key, error));
    if (key.n_bytes > MF_MEMBER_NAME_BYTES)
        return mf_fail_at(error, MF_ERR_FORMAT, key.position,
                          "%s: a name of %zu bytes at byte %llu, expected at most %u", m->path,
                          key.n_bytes, (unsigned long long)key.position, MF_MEMBER_NAME_BYTES);
    MF_TRY(parse_piece(m, &key, m->name_memory, sizeof m->name_memory, &string, error));
    if (!yyjson_is_str(string) || strlen(yyjson_get_str(string)) != yyjson_get_len(string))
        return invalid(m, key.position, "expected a name", error);
    if (!take(m, ':'))
        return invalid(m, m->object.position + m->at, "expected a colon", error);
    MF_TRY(take_piece(m, value, error));
    *name = yyjson_get_str(string);
    return MF_OK;
}

mf_status mf_json_value(mf_json_members *m, const char *name, const mf_json_piece *piece,
                        yyjson_val **out, mf_error *error)
{
    if (piece->n_bytes > MF_MEMBER_VALUE_BYTES)
        return mf_fail_at(error, MF_ERR_FORMAT, piece->position,
                          "%s: %s has %zu bytes of JSON, expected at most %u", m->path, name,
                          piece->n_bytes, MF_MEMBER_VALUE_BYTES);
    return parse_piece(m, piece, m->value_memory, sizeof m->value_memory, out, error);
}
