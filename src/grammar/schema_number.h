/* SPDX-License-Identifier: MIT */
/*
 * Decimals as they are written, for numbers within bounds (schema_number.c) and multiples
 * (schema_multiple.c).
 */
#ifndef MF_GRAMMAR_SCHEMA_NUMBER_H
#define MF_GRAMMAR_SCHEMA_NUMBER_H

#include "grammar/schema.h"

#define MF_MAX_DIGITS 48

/* A decimal without zeros at its ends: 0.D1D2... times ten to the power of point. */
typedef struct mf_decimal {
    bool is_negative;
    char digits[MF_MAX_DIGITS];
    int n, point; /* n 0: zero */
} mf_decimal;

/* A bound of a number's size, without sign. */
typedef struct mf_bound {
    bool is_there, is_exclusive;
    char whole[MF_MAX_DIGITS * 2]; /* "0", or without zeros before it */
    int n_whole;
    char rest[MF_MAX_DIGITS * 2]; /* behind the point, without zeros behind it */
    int n_rest;
} mf_bound;

/* A number of JSON; false: it has too many digits. */
bool mf_decimal_parse(const char *text, mf_decimal *out);
/* The whole number behind that of the digits; and before it (false: it was 0). */
void mf_digits_up(char *number, int *n);
bool mf_digits_down(char *number, int *n);

/*
 * The numbers that "multipleOf" allows: an automaton over their digits that keeps the remainder.
 * Numbers have no exponent there. NULL: no part asks for it, or it failed.
 */
typedef struct mf_multiples mf_multiples;
mf_multiples *mf_multiples_of(mf_schema_reader *s, const mf_conjunction *c, bool is_integer);
/* Sizes between bounds. */
mf_expr mf_multiples_between(mf_multiples *m, mf_bound low, mf_bound high);
void mf_multiples_free(mf_multiples *m);

#endif
