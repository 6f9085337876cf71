/* SPDX-License-Identifier: MIT */
/* Writes a JSON object on one line, members separated by ", ". */
#ifndef MF_CLI_JSON_H
#define MF_CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct mf_cli_json {
    FILE *out;
    bool has_members;
} mf_cli_json;

mf_cli_json mf_cli_json_begin(FILE *out);
/* Closes the object and the line. */
void mf_cli_json_end(mf_cli_json *json);
/* Closes an object that is a member's value. */
void mf_cli_json_end_value(mf_cli_json *json);
/* The name of a member whose value the caller prints. */
void mf_cli_json_key(mf_cli_json *json, const char *key);
void mf_cli_json_integer(mf_cli_json *json, const char *key, uint64_t value);
void mf_cli_json_bool(mf_cli_json *json, const char *key, bool value);
/* An array. */
void mf_cli_json_ids(mf_cli_json *json, const char *key, const int32_t *ids, size_t n_ids);
/* null where value is no number. */
void mf_cli_json_number(mf_cli_json *json, const char *key, double value);
void mf_cli_json_string(mf_cli_json *json, const char *key, const char *text);
/* A string of so many bytes; NULL: an empty one. */
void mf_cli_json_text(mf_cli_json *json, const char *key, const char *text, size_t n_bytes);
/* How many bytes the character at text takes; 0 if it is none of UTF-8. */
size_t mf_cli_character_bytes(const char *text, size_t n_bytes);
/* A quoted string; bytes that are not UTF-8 become U+FFFD. */
void mf_cli_json_quote(FILE *out, const char *text, size_t n_bytes);

#endif
