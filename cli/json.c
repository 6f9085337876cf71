/* SPDX-License-Identifier: MIT */
/* The JSON writer. Numbers are printed in the C locale, which the program never leaves for them. */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

mf_cli_json mf_cli_json_begin(FILE *out)
{
    fputc('{', out);
    return (mf_cli_json){.out = out};
}

void mf_cli_json_end(mf_cli_json *json)
{
    fputs("}\n", json->out);
}

void mf_cli_json_end_value(mf_cli_json *json)
{
    fputc('}', json->out);
}

void mf_cli_json_key(mf_cli_json *json, const char *key)
{
    if (json->has_members)
        fputs(", ", json->out);
    json->has_members = true;
    mf_cli_json_quote(json->out, key, strlen(key));
    fputs(": ", json->out);
}

void mf_cli_json_integer(mf_cli_json *json, const char *key, uint64_t value)
{
    mf_cli_json_key(json, key);
    fprintf(json->out, "%" PRIu64, value);
}

void mf_cli_json_bool(mf_cli_json *json, const char *key, bool value)
{
    mf_cli_json_key(json, key);
    fputs(value ? "true" : "false", json->out);
}

void mf_cli_json_ids(mf_cli_json *json, const char *key, const int32_t *ids, size_t n_ids)
{
    mf_cli_json_key(json, key);
    fputc('[', json->out);
    for (size_t i = 0; i < n_ids; i++)
        fprintf(json->out, "%s%" PRId32, i ? ", " : "", ids[i]);
    fputc(']', json->out);
}

void mf_cli_json_number(mf_cli_json *json, const char *key, double value)
{
    mf_cli_json_key(json, key);
    if (!isfinite(value))
        fputs("null", json->out);
    else if (fabs(value) < 9e15 && floor(value) == value)
        fprintf(json->out, "%.0f", value);
    else
        fprintf(json->out, "%.10g", value);
}

void mf_cli_json_string(mf_cli_json *json, const char *key, const char *text)
{
    mf_cli_json_key(json, key);
    mf_cli_json_quote(json->out, text, strlen(text));
}

void mf_cli_json_text(mf_cli_json *json, const char *key, const char *text, size_t n_bytes)
{
    mf_cli_json_key(json, key);
    mf_cli_json_quote(json->out, text ? text : "", text ? n_bytes : 0);
}

/* Bytes of the well-formed UTF-8 character at p, 0 if there is none (overlong forms, surrogates and
 * code points past U+10FFFF included). */
static size_t utf8_character(const unsigned char *p, size_t n_bytes)
{
    if (p[0] < 0x80)
        return 1;
    size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n > n_bytes)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

size_t mf_cli_character_bytes(const char *text, size_t n_bytes)
{
    return utf8_character((const unsigned char *)text, n_bytes);
}

void mf_cli_json_quote(FILE *out, const char *text, size_t n_bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    fputc('"', out);
    while (n_bytes > 0) {
        size_t n = utf8_character(p, n_bytes);
        if (n == 0)
            fputs("\\ufffd", out);
        else if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(out, "\\u%04x", *p);
        else
            fwrite(p, 1, n, out);
        n += n == 0;
        p += n;
        n_bytes -= n;
    }
    fputc('"', out);
}
