/* SPDX-License-Identifier: MIT */
/*
 * JSON schemas to expressions. What has to hold of a value is a conjunction of schemas: $ref, allOf
 * and the branches of anyOf are added to it, and only then is each type written. Every keyword is
 * one of schema_keywords.c's table: understood, a remark, or refused by name.
 */
#ifndef MF_GRAMMAR_SCHEMA_H
#define MF_GRAMMAR_SCHEMA_H

#include "format/json.h"
#include "grammar/rules.h"

#define MF_MAX_PARTS 48
#define MF_MAX_SCHEMA_DEPTH 160
#define MF_MAX_PROPERTIES 2000

/* A schema of a conjunction, and what of it has been added to the conjunction already. */
typedef struct mf_schema_part {
    yyjson_val *schema;
    bool has_ref, has_all, has_any, has_one;
} mf_schema_part;

typedef struct mf_conjunction {
    mf_schema_part parts[MF_MAX_PARTS];
    size_t n;
    /* whatever the parts would allow besides: */
    bool is_name;      /* of a member: a string */
    bool is_arguments; /* of a call: an object */
} mf_conjunction;

typedef struct mf_schema_target {
    yyjson_val *schema;
    uint32_t rule;
} mf_schema_target;

typedef struct mf_schema_reader {
    mf_rules *rules;
    const mf_json *json;
    const char *what;
    char path[256]; /* of the value that is read, for messages */
    bool is_closed; /* objects that name properties and say nothing of others have no others */
    unsigned depth;
    unsigned long n_reads;     /* of conjunctions: bounded */
    mf_schema_target *targets; /* of $ref, each a rule */
    size_t n_targets, target_capacity;
} mf_schema_reader;

/* Fails with the place and the reason; returns MF_EXPR_NOTHING. */
mf_expr mf_schema_fail(mf_schema_reader *s, mf_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Any value of which all parts hold. `name` is added to the path meanwhile; NULL: nothing. */
mf_expr mf_schema_value(mf_schema_reader *s, const mf_conjunction *c, const char *name);
/* Adds a schema (an object, true or false). */
void mf_conjunction_add(mf_schema_reader *s, mf_conjunction *c, yyjson_val *schema);
/* An expression that may stand in several places: a rule, unless it is one. */
mf_expr mf_schema_shared(mf_schema_reader *s, mf_expr e);

/* Are all keywords of this schema understood? */
bool mf_schema_check_keywords(mf_schema_reader *s, yyjson_val *schema);
/* Has it any keyword that says something, but for those of the list, which ends with NULL? */
bool mf_schema_says_more(yyjson_val *schema, const char *const *but);

mf_expr mf_schema_object(mf_schema_reader *s, const mf_conjunction *c);
mf_expr mf_schema_array(mf_schema_reader *s, const mf_conjunction *c);
/* min to max items, at least one, all different; fails where that cannot be told. */
mf_expr mf_schema_unique_items(mf_schema_reader *s, const mf_conjunction *c, uint32_t min,
                               uint32_t max);
/* A value of an enum, where all parts have it; else MF_EXPR_NOTHING. */
mf_expr mf_schema_constant(mf_schema_reader *s, const mf_conjunction *c, yyjson_val *value);
mf_expr mf_schema_string(mf_schema_reader *s, const mf_conjunction *c);
mf_expr mf_schema_number(mf_schema_reader *s, const mf_conjunction *c, bool is_integer);

/* Are no two schemas of the list satisfied by one value, as far as can be seen? */
bool mf_schema_are_disjoint(mf_schema_reader *s, yyjson_val *list);
/* What a local reference points to; NULL: nothing. */
yyjson_val *mf_schema_resolve(mf_schema_reader *s, const char *ref, size_t n_bytes);
/* The schema that a chain of nothing but $ref leads to. */
yyjson_val *mf_schema_follow(mf_schema_reader *s, yyjson_val *schema);
/* Equal as JSON values: numbers by value. True as well once comparing has taken too much work,
 * which fails what is read: searches end there. */
bool mf_schema_equal(mf_schema_reader *s, yyjson_val *a, yyjson_val *b);
bool mf_schema_is_required(mf_schema_reader *s, yyjson_val *schema, yyjson_val *name);

/* The lowest (or, with is_max, highest) whole number that c's parts have for a keyword, at least 0;
 * otherwise what it is where none has it. */
uint32_t mf_schema_count(mf_schema_reader *s, const mf_conjunction *c, const char *keyword,
                         bool is_max, uint32_t otherwise);

/* What JSON is made of; rules that all schemas of a grammar share. */
mf_expr mf_json_space(mf_rules *r);
mf_expr mf_json_char(mf_rules *r); /* of a string, escaped or not; to be repeated */
mf_expr mf_json_any_string(mf_rules *r);
mf_expr mf_json_any_number(mf_rules *r);
mf_expr mf_json_any_integer(mf_rules *r);
mf_expr mf_json_any_array(mf_rules *r);
mf_expr mf_json_any_object(mf_rules *r);
mf_expr mf_json_any_value(mf_rules *r);
/* These characters, written as a JSON string holds them. The ranges are changed. */
mf_expr mf_json_chars(mf_rules *r, mf_char_range *ranges, size_t n);
/* The string with its quotes. */
mf_expr mf_json_literal(mf_rules *r, const char *text, size_t n_bytes);
/* Appends text as a JSON string holds it; false without room. */
size_t mf_json_escape(const char *text, size_t n_bytes, char *out);

/* The inside of a string that an ECMAScript pattern is found in, of min to max characters. */
mf_expr mf_schema_pattern(mf_schema_reader *s, const char *pattern, size_t n_bytes, uint32_t min,
                          uint32_t max);
#define MF_MAX_PATTERNS 8
/* The same of several: all of them are found in it. */
mf_expr mf_schema_patterns(mf_schema_reader *s, const mf_word *texts, size_t n, uint32_t min,
                           uint32_t max);

#endif
